"""Matmuls: types, shapes, options, and values."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright.language as tl
from tilewright.language.definitions.callable import device_function as jit
from tilewright.plugins.manifest import Capabilities

# operand: (default result, result for out_dtype=float16)
RESULTS = {
    "int8": ("int32", None),
    "uint8": ("int32", None),
    "fp16": ("fp32", "fp16"),
    "bf16": ("fp32", "fp32"),
    "fp32": ("fp32", "fp32"),
    "fp64": ("fp64", "fp64"),
    "fp8e5": ("fp32", "fp16"),
    "fp8e4nv": ("fp32", "fp16"),
    "fp8e4b15": ("fp32", "fp16"),
}


def operands(
    bench: Any, a: Any, b: Any = None, m: int = 16, n: int = 32, k: int = 64
) -> tuple[Any, Any]:
    return bench.value(tl.dtype(a), [m, k]), bench.value(tl.dtype(b or a), [k, n])


@pytest.mark.parametrize("name", RESULTS)
def test_types_of_results(bench: Any, name: str) -> None:
    default, half = RESULTS[name]
    assert bench(tl.dot, *operands(bench, name)).type is tl.block_type(tl.dtype(default), [16, 32])
    acc = bench.value(tl.dtype(default), [16, 32])
    assert bench(tl.dot, *operands(bench, name), acc).type is acc.type
    assert bench.last.operand("c") is acc.handle
    if half is None:
        with pytest.raises(ValueError, match=f"a dot of {name} returns int32, not fp16"):
            bench(tl.dot, *operands(bench, name), out_dtype=tl.float16)
    else:
        assert bench(tl.dot, *operands(bench, name), out_dtype=tl.float16).dtype.name == half
    bench.verify()


def test_the_accumulator_chooses_fp16(bench: Any) -> None:
    acc = bench.value(tl.float16, [16, 32])
    assert bench(tl.dot, *operands(bench, "fp16"), acc).dtype is tl.float16
    with pytest.raises(ValueError, match="acc of dot must have type"):
        bench(tl.dot, *operands(bench, "fp16"), acc, out_dtype=tl.float32)


def test_ranks_and_batches(bench: Any) -> None:
    for batch in ([4], [2, 4]):
        a, b = bench.value(tl.float16, [*batch, 16, 32]), bench.value(tl.float16, [*batch, 32, 64])
        assert bench(tl.dot, a, b).extents == (*batch, 16, 64)
    bench.verify()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda b: b(tl.dot, *operands(b, "fp16", "fp32")),
            "^Both operands must be same dtype. Got fp16 and fp32$",
        ),
        (lambda b: b(tl.dot, *operands(b, "int32")), "Unsupported dtype of dot: int32"),
        (
            lambda b: b(tl.dot, *operands(b, "fp16"), out_dtype=tl.bfloat16),
            "out_dtype=bfloat16 is unsupported",
        ),
        (
            lambda b: b(tl.dot, b.value(tl.float16, [16, 16]), b.value(tl.float16, [32, 16])),
            r"second index of first shape \(16\) must be equal to first index",
        ),
        (
            lambda b: b(tl.dot, b.value(tl.float16, [2, 16, 16]), b.value(tl.float16, [16, 16])),
            "Both inputs must have one rank",
        ),
        (
            lambda b: b(tl.dot, b.value(tl.float16, [2, 16, 16]), b.value(tl.float16, [4, 16, 16])),
            "Batch dimensions",
        ),
        (
            lambda b: b(tl.dot, b.value(tl.float16, [16]), b.value(tl.float16, [16])),
            "one rank of at least 2",
        ),
        (
            lambda b: b(tl.dot, *operands(b, "fp32"), input_precision="half"),
            "input_precision must be one of .* Got half",
        ),
        (
            lambda b: b(tl.dot, *operands(b, "fp32"), None, "ieee", True),
            "^Only one of input_precision and allow_tf32 can be specified$",
        ),
        (
            lambda b: b(tl.dot, *operands(b, "fp8e5"), max_num_imprecise_acc=128),
            r"^max_num_imprecise_acc \(128\) must be <= K \(64\)$",
        ),
        (
            lambda b: b(tl.dot, *operands(b, "fp32"), b.value(tl.float32, [32, 16])),
            "acc of dot must have type",
        ),
        (lambda b: b(tl.dot, *operands(b, "fp32"), 0.0), "acc of dot must have type"),
        (
            lambda b: b(tl.dot, b.value(tl.float32), b.value(tl.float32)),
            "dot takes tensors of rank 2 or more",
        ),
    ],
)
def test_dots_that_are_refused(bench: Any, call: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call(bench)


def test_precision(make_bench: Callable[..., Any]) -> None:
    def precision(bench: Any, name: str = "fp32", **arguments: Any) -> str:
        bench(tl.dot, *operands(bench, name), **arguments)
        return bench.last.attribute("precision")  # type: ignore[no-any-return]

    bench = make_bench()
    assert precision(bench) == "ieee"
    assert precision(bench, input_precision=tl.constexpr("tf32x3")) == "tf32x3"
    assert precision(bench, allow_tf32=True) == "tf32"
    assert precision(bench, allow_tf32=False) == "ieee"
    assert precision(bench, name="fp16", input_precision="tf32") == "ieee"
    assert precision(make_bench(default_dot_precision="tf32")) == "tf32"
    assert precision(make_bench(default_dot_precision="tf32"), allow_tf32=False) == "ieee"
    plain = make_bench(
        default_dot_precision="tf32",
        capabilities=Capabilities(frozenset({"f32"}), dot={"f32": ("f32",)}),
    )
    assert precision(plain) == "ieee"
    assert precision(plain, allow_tf32=True) == "ieee"
    with pytest.raises(ValueError, match="input_precision must be one of"):
        precision(plain, input_precision="tf32")


def test_imprecise_accumulation_is_for_fp8(bench: Any) -> None:
    bench(tl.dot, *operands(bench, "fp8e5", "fp8e4nv"), max_num_imprecise_acc=32)
    assert bench.last.attribute("max_imprecise") == 32
    bench(tl.dot, *operands(bench, "fp16"), max_num_imprecise_acc=1000)
    assert bench.last.attribute("max_imprecise") == 0


def test_what_the_target_lacks(make_bench: Callable[..., Any]) -> None:
    capabilities = Capabilities(
        frozenset({"f32", "f16", "i8", "i32"}),
        dot={"f16": ("f32",), "f32": ("f32",)},
        min_dot=(16, 8, 32),
    )
    bench = make_bench(capabilities=capabilities)
    bench(tl.dot, *operands(bench, "fp16"))
    with pytest.raises(
        ValueError, match=r"^dot of int8 is not supported by backend small; it has f16, f32$"
    ):
        bench(tl.dot, *operands(bench, "int8"))
    with pytest.raises(
        ValueError, match="dot of fp16 does not accumulate in fp16 on backend small"
    ):
        bench(tl.dot, *operands(bench, "fp16"), out_dtype=tl.float16)
    with pytest.raises(ValueError, match=r"^Input shapes should have M >= 16, N >= 8 and K >= 32"):
        bench(tl.dot, *operands(bench, "fp16", m=8))
    with pytest.raises(ValueError, match="dot_scaled is not supported by backend small"):
        scaled(bench)


def test_the_smallest_dot_may_depend_on_the_width_of_the_operands(
    make_bench: Callable[..., Any],
) -> None:
    capabilities = Capabilities(
        frozenset({"f32", "f16", "i8", "i32"}),
        dot={"f16": ("f32",), "f32": ("f32",), "i8": ("i32",)},
        min_dot=(1, 1, 2),
    )
    bench = make_bench(capabilities=capabilities, min_dot_size=((8, (1, 1, 64)), (16, (4, 1, 16))))
    bench(tl.dot, *operands(bench, "fp16", k=16))
    bench(tl.dot, *operands(bench, "fp32", k=2))
    with pytest.raises(
        ValueError, match=r"^Input shapes should have M >= 4, N >= 1 and K >= 16; got M = 2, "
    ):
        bench(tl.dot, *operands(bench, "fp16", m=2))
    with pytest.raises(
        ValueError, match=r"^Input shapes should have M >= 1, N >= 1 and K >= 64; got .* K = 32$"
    ):
        bench(tl.dot, *operands(bench, "int8", k=32))


def test_slow_operands_are_warned_of(make_bench: Callable[..., Any]) -> None:
    bench = make_bench(deprecated_fp8_dot_operand_dtypes=("fp8e4b15",))
    with pytest.warns(UserWarning, match="the use of fp8e4b15 is deprecated"):
        bench(tl.dot, *operands(bench, "fp8e5", "fp8e4b15"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        bench(tl.dot, *operands(bench, "fp8e5", "fp8e4nv"))


def scaled(bench: Any, a_format: str = "e4m3", b_format: str = "e2m1", **changes: Any) -> Any:
    kinds = {
        "e2m1": tl.uint8,
        "e4m3": tl.uint8,
        "e5m2": tl.float8e5,
        "bf16": tl.bfloat16,
        "fp16": tl.float16,
    }
    m, n, k = 16, 32, 64
    a = bench.value(kinds[a_format], [m, k // 2 if a_format == "e2m1" else k])
    b = bench.value(kinds[b_format], [k // 2 if b_format == "e2m1" else k, n])
    arguments = {
        "lhs": a,
        "lhs_scale": bench.value(tl.uint8, [m, k // 32]),
        "lhs_format": a_format,
        "rhs": b,
        "rhs_scale": bench.value(tl.uint8, [n, k // 32]),
        "rhs_format": b_format,
        **changes,
    }
    return bench(tl.dot_scaled, **arguments)


@pytest.mark.parametrize("a_format", ["e2m1", "e4m3", "e5m2", "bf16", "fp16"])
@pytest.mark.parametrize("b_format", ["e2m1", "e4m3", "e5m2", "bf16", "fp16"])
def test_scaled_formats(bench: Any, a_format: str, b_format: str) -> None:
    assert scaled(bench, a_format, b_format).type is tl.block_type(tl.float32, [16, 32])
    scaled(
        bench,
        a_format,
        b_format,
        lhs_scale=None,
        rhs_scale=tl.constexpr(None),
        acc=bench.value(tl.float32, [16, 32]),
        fast_math=True,
    )
    assert bench.last.operand("a_scale") is bench.last.operand("b_scale") is None
    bench.verify()


def test_scaled_packing_along_the_other_axis(bench: Any) -> None:
    a, b = bench.value(tl.uint8, [8, 64]), bench.value(tl.uint8, [64, 16])
    result = scaled(bench, "e2m1", "e2m1", lhs=a, rhs=b, lhs_k_pack=False, rhs_k_pack=False)
    assert result.extents == (16, 32)
    bench.verify()


def test_scales_of_sixteen(bench: Any) -> None:
    scaled(
        bench,
        lhs_scale=bench.value(tl.float8e4nv, [16, 4]),
        rhs_scale=bench.value(tl.float8e4nv, [32, 4]),
    )
    bench.verify()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            lambda b: {"lhs_format": "e3m2"},
            "lhs_format must be one of e2m1, e4m3, e5m2, bf16, fp16, got e3m2",
        ),
        (
            lambda b: {"rhs_scale": b.value(tl.uint8, [2, 32])},
            r"rhs_scale must be a tensor of shape \[32, 2\]. Got \['2', '32'\]",
        ),
        (lambda b: {"lhs_scale": b.value(tl.float32, [16, 2])}, "lhs_scale must hold uint8"),
        (
            lambda b: {"lhs_k_pack": False},
            "only e2m1 .fp4. operands can be packed along another axis",
        ),
        (
            lambda b: {"lhs": b.value(tl.float32, [16, 64])},
            "lhs in format e4m3 must hold fp8e4nv, got fp32",
        ),
        (lambda b: {"rhs": b.value(tl.uint8, [64, 32])}, "must agree along K, got 64 and 128"),
        (lambda b: {"acc": b.value(tl.float16, [16, 32])}, "acc of dot_scaled must have type"),
        (lambda b: {"out_dtype": tl.bfloat16}, "dot_scaled returns fp32, not bf16"),
    ],
)
def test_scaled_dots_that_are_refused(bench: Any, changes: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        scaled(bench, **changes(bench))


@jit
def dot_kernel(a, b, c, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    x = tl.load(a + m[:, None] * K + k[None, :])
    y = tl.load(b + k[:, None] * N + n[None, :])
    where = c + m[:, None] * N + n[None, :]
    tl.store(where, tl.dot(x, y, tl.load(where)))


@pytest.mark.parametrize(
    ("dtype", "acc"),
    [
        ("float32", "float32"),
        ("float64", "float64"),
        ("int8", "int32"),
        ("float16", "float32"),
        ("float16", "float16"),
    ],
)
def test_values(run: Callable[..., None], dtype: str, acc: str) -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-8, 8, shape).astype(dtype) for shape in ((4, 16), (16, 8)))
    c = rng.integers(-8, 8, (4, 8)).astype(acc)
    expected = a.astype("float64") @ b.astype("float64") + c
    run(dot_kernel, a, b, c, M=4, N=8, K=16)
    assert np.array_equal(c, expected)
