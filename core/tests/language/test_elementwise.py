"""Elementary functions, choice, extrema, hints, library functions: types, messages, values."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright.language as tl
from tilewright import ir
from tilewright.language import libdevice
from tilewright.language.definitions.callable import device_function as jit
from tilewright.language.device_math import bit_manipulation, elementary, rounding, special

ELEMENTARY = ["exp", "exp2", "log", "log2", "sin", "cos", "erf", "sqrt", "rsqrt", "floor", "ceil"]
NUMBERS = (*tl.dtype.SINT_TYPES, *tl.dtype.UINT_TYPES, *tl.dtype.FP_TYPES)


@pytest.mark.parametrize("name", ELEMENTARY)
def test_elementary_functions_take_fp32_and_fp64(bench: Any, name: str) -> None:
    fn = getattr(tl, name)
    assert fn is getattr(tl.math, name)
    for dtype in NUMBERS:
        x = bench.value(tl.dtype(dtype), [4])
        if dtype in ("fp32", "fp64"):
            assert bench(fn, x).type is x.type
            assert bench.last.name == name
            assert bench(getattr(x, name)).type is x.type
        else:
            with pytest.raises(
                ValueError,
                match=(
                    rf"^Expected dtype \['fp32', 'fp64'\] but got {dtype}\n  help: convert it "
                    r"first"
                ),
            ):
                bench(fn, x)
    assert bench(fn, 2.0).type is tl.float32
    bench.verify()


@pytest.mark.parametrize("name", ["sqrt_rn", "div_rn"])
def test_correctly_rounded_functions_take_fp32(bench: Any, name: str) -> None:
    count = 2 if name == "div_rn" else 1
    assert bench(getattr(tl, name), *[bench.value(tl.float32, [4])] * count).dtype is tl.float32
    assert bench.last.attribute("approximate") is False
    with pytest.raises(ValueError, match=r"Expected dtype \['fp32'\] but got fp64"):
        bench(getattr(tl, name), *[bench.value(tl.float64)] * count)


def test_division_of_floats(bench: Any) -> None:
    x, half = bench.value(tl.float32, [4]), bench.value(tl.float16, [4])
    bench(tl.fdiv, x, x)
    assert bench.last.attribute("approximate") is True
    bench(tl.fdiv, x, x, ieee_rounding=True)
    assert bench.last.attribute("approximate") is False
    assert bench(tl.fdiv, half, half).dtype is tl.float32
    assert bench.semantic.binary("truediv", x, x).dtype is tl.float32
    assert bench.last.attribute("approximate") is False
    with pytest.raises(TypeError, match="both operands of fdiv must have floating scalar type"):
        bench(tl.fdiv, bench.value(tl.int32), 2)


@pytest.mark.parametrize("name", NUMBERS)
def test_absolute_value(bench: Any, name: str) -> None:
    x = bench.value(tl.dtype(name), [4])
    result = bench(tl.abs, x)
    assert result.type is x.type
    unsigned = name.startswith("uint") or name == "int1"
    assert bench.names == ([] if unsigned else ["abs"])
    with pytest.raises(ValueError, match="abs takes numbers"):
        bench(tl.abs, bench.value("*fp32"))


@jit
def umulhi_kernel(x, y, out):
    i = tl.arange(0, 16)
    tl.store(out + i, tl.umulhi(tl.load(x + i), tl.load(y + i)))


@pytest.mark.parametrize("dtype", ["int32", "uint32", "int64", "uint64"])
def test_upper_half_of_products_is_unsigned(run: Callable[..., None], dtype: str) -> None:
    limits = np.iinfo(dtype)
    rng = np.random.default_rng(0)
    x, y = (rng.integers(limits.min, limits.max, 16, dtype=dtype, endpoint=True) for _ in range(2))
    out = np.zeros(16, dtype)
    run(umulhi_kernel, x, y, out)
    mask, bits = (1 << limits.bits) - 1, limits.bits
    expected = [
        ((int(a) & mask) * (int(b) & mask) >> bits) & mask for a, b in zip(x, y, strict=True)
    ]
    assert [int(value) & mask for value in out] == expected


def test_umulhi_takes_wide_integers(bench: Any) -> None:
    with pytest.raises(
        ValueError, match=r"Expected dtype \['int32', 'int64', 'uint32', 'uint64'\] but got int8"
    ):
        bench(tl.umulhi, bench.value(tl.int8), bench.value(tl.int8))


def test_fma_promotes_and_broadcasts_all_three(bench: Any) -> None:
    x, y, z = bench.value(tl.float16, [4, 1]), bench.value(tl.float32, [8]), bench.value(tl.float64)
    assert bench(tl.fma, x, y, z).type is tl.block_type(tl.float64, [4, 8])
    assert bench(tl.fma, x, 2.0, x).type is x.type
    with pytest.raises(TypeError, match="fma takes floats, got int32"):
        bench(tl.fma, bench.value(tl.int32), 1, 1)
    bench.verify()


# -- choice and extrema ----------------------------------------------------------------------------


def test_where(bench: Any) -> None:
    cond, x = bench.value(tl.int1, [8]), bench.value(tl.float16, [8])
    assert bench(tl.where, cond, x, 0.0).type is x.type
    assert bench(tl.where, cond, 1, 2).type is tl.block_type(tl.int32, [8])
    assert bench(tl.where, cond, x, bench.value(tl.float32, [4, 1])).type is tl.block_type(
        tl.float32, [4, 8]
    )
    p = bench.value("*fp32", [8])
    assert bench(tl.where, cond, p, p).type is p.type
    assert bench(tl.where, True, bench.value(tl.int8), bench.value(tl.uint8)).type is tl.uint8
    with pytest.warns(UserWarning, match="condition of type int32 is deprecated"):
        bench(tl.where, bench.value(tl.int32), x, x)
    for other in (bench.value("*i32"), bench.value(tl.int32), bench.value(tl.float32)):
        with pytest.raises(TypeError):
            bench(tl.where, cond, p, other)
    bench.verify()


@pytest.mark.parametrize(("name", "op"), [("minimum", "min"), ("maximum", "max")])
def test_types_of_extrema(bench: Any, name: str, op: str) -> None:
    fn = getattr(tl, name)
    half, brain, byte = (bench.value(dtype, [4]) for dtype in (tl.float16, tl.bfloat16, tl.int8))
    assert bench(fn, half, half).dtype is tl.float16
    assert bench(fn, half, 0.0).dtype is tl.float32
    assert bench(fn, brain, brain).dtype is tl.float32
    assert bench(fn, byte, byte).dtype is tl.int8
    assert bench(fn, byte, 300).dtype is tl.int32
    assert bench(fn, byte, bench.value(tl.uint32)).dtype is tl.uint32
    assert bench.last.name == op
    bench(fn, half, half, propagate_nan=tl.PropagateNan.ALL)
    assert bench.last.attribute("nan") == "propagate"
    bench(fn, half, half, propagate_nan=tl.constexpr(tl.PropagateNan.NONE))
    assert bench.last.attribute("nan") == "ignore"
    bench(fn, byte, byte, propagate_nan=tl.PropagateNan.ALL)
    assert bench.last.attribute("nan") == "ignore"
    with pytest.raises(ValueError, match="Unexpected propagate_nan"):
        bench(fn, half, half, True)
    bench.verify()


@jit
def extrema_kernel(x, y, out):
    i = tl.arange(0, 16)
    a, b = tl.load(x + i), tl.load(y + i)
    tl.store(out + i, tl.minimum(a, b))
    tl.store(out + 16 + i, tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL))
    tl.store(out + 32 + i, tl.clamp(a, -1.0, 1.0))
    tl.store(out + 48 + i, tl.clamp(a, b, 2.0, tl.PropagateNan.ALL))


def test_values_of_extrema(run: Callable[..., None]) -> None:
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal(16).astype(np.float32) * 3 for _ in range(2))
    x[3], y[5], y = np.nan, np.nan, np.minimum(y, 2.0)
    out = np.zeros(64, np.float32)
    run(extrema_kernel, x, y, out)
    assert np.array_equal(out[:16], np.fmin(x, y), equal_nan=True)
    assert np.array_equal(out[16:32], np.maximum(x, y), equal_nan=True)
    finite = ~np.isnan(x)
    assert np.array_equal(out[32:48][finite], np.clip(x, -1, 1)[finite])
    assert np.array_equal(out[48:], np.minimum(np.maximum(x, y), 2), equal_nan=True)


def test_clamp_of_integers(bench: Any) -> None:
    assert bench(tl.clamp, bench.value(tl.int64, [4]), 0, 10).type is tl.block_type(tl.int64, [4])
    assert bench(tl.clamp, bench.value(tl.bfloat16, [4]), 0.0, 1.0).dtype is tl.float32
    bench.verify()


def test_python_extrema(bench: Any) -> None:
    assert bench(tl.core.builtin_max, tl.constexpr(3), 7, 5).value == 7
    assert bench(tl.core.builtin_min, [4, tl.constexpr(2)]).value == 2
    for value in (float("nan"), -0.0):
        with pytest.raises(ValueError, match="is not supported"):
            bench(tl.core.builtin_max, value, 1.0)
    x = bench.value(tl.int32)
    assert bench(tl.core.builtin_max, x, 3, x).type is tl.int32
    assert [name for name in bench.names if name == "max"] == ["max", "max"]


# -- hints -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "attribute"),
    [
        ("multiple_of", "divisibility"),
        ("max_contiguous", "contiguity"),
        ("max_constancy", "constancy"),
    ],
)
def test_hints(bench: Any, name: str, attribute: str) -> None:
    fn = getattr(tl, name)
    x = bench.value(tl.int32, [8, 4])
    assert bench(fn, x, [tl.constexpr(4), 2]).type is x.type
    assert bench.last.attribute(attribute) == (4, 2)
    bench(fn, bench.value(tl.int32), tl.constexpr(16))
    assert bench.last.attribute(attribute) == (16,)
    with pytest.raises(TypeError, match=f"^{name}: values element 1 must have type `constexpr`$"):
        bench(fn, x, [4, bench.value(tl.int32)])
    with pytest.raises(
        TypeError,
        match=r"must have type `constexpr\[int\]` and be positive, got `constexpr\[2.0\]`",
    ):
        bench(fn, x, [4, 2.0])
    with pytest.raises(
        ValueError, match=f"^Shape of input to {name} does not match the length of values"
    ):
        bench(fn, x, 4)
    bench.verify()


def test_a_hint_whose_result_is_dropped_holds_from_then_on(bench: Any) -> None:
    """As a statement: ``tl.multiple_of(offsets, 16)``."""
    x = bench.value(tl.int32, [8])
    before = x.handle
    promised = bench(tl.max_contiguous, bench(tl.multiple_of, x, 16), 8)
    assert promised is x and x.handle is not before
    assert (
        bench.names[-2:] == ["hint", "hint"]
        and x.handle.owner.operands[0].owner.operands[0] is before
    )
    bench.semantic.binary("add", x, 1)
    outside = x.handle
    assert bench.last.operands[0] is outside
    region = ir.Region()
    with bench.builder.at_region(region):
        # In a branch the promise holds there only: what comes after must not read a value made in
        # it.
        assert bench(tl.multiple_of, x, 32) is not x
    assert x.handle is outside


def test_assumptions(bench: Any) -> None:
    bench(tl.assume, bench.value(tl.int1))
    bench(tl.assume, tl.constexpr(True))
    assert bench.names == ["assume"]
    with pytest.raises(ValueError, match="known to be false"):
        bench(tl.assume, tl.constexpr(False))
    with pytest.raises(ValueError, match="assume takes a scalar condition"):
        bench(tl.assume, bench.value(tl.int1, [4]))


def test_expect_zero(make_bench: Callable[..., Any]) -> None:
    for debug in (False, True):
        bench = make_bench(debug=debug)
        x = bench.value(tl.float32, [4])
        assert bench(tl.expect_zero, x, bench.value(tl.int1, [4])) is x
        assert ("assert" in bench.names) is debug
        bench.verify()


# -- assembly and libraries ------------------------------------------------------------------------


def test_inline_assembly(bench: Any) -> None:
    x, y = bench.value(tl.float32, [8]), bench.value(tl.int32)
    one = bench(tl.inline_asm_elementwise, "add", "=r,r,r", [x, y], tl.int32, True, 1)
    assert one.type is tl.block_type(tl.int32, [8])
    assert bench.last.attribute("assembly") == "add"
    two = bench(
        tl.inline_asm_elementwise,
        "a",
        "=r,=r,r",
        (x,),
        (tl.int32, tl.float16),
        is_pure=False,
        pack=2,
    )
    assert [part.dtype for part in two] == [tl.int32, tl.float16]
    assert (bench.last.attribute("pure"), bench.last.attribute("pack")) == (False, 2)
    assert bench(tl.inline_asm_elementwise, "clock", "=l", [], tl.int64, False, 1).type is tl.int64
    bench.verify()


def test_library_functions(bench: Any) -> None:
    table = {
        (tl.float32, tl.float32): ("powf", tl.float32),
        (tl.float64, tl.float64): ("pow", tl.float64),
    }
    x, y = bench.value(tl.float16, [8, 1]), bench.value(tl.float32, [4])
    assert bench(tl.core.extern_elementwise, "m", "", [x, y], table, True).type is tl.block_type(
        tl.float32, [8, 4]
    )
    assert (bench.last.attribute("symbol"), bench.last.attribute("library")) == ("powf", "m")
    with pytest.raises(
        ValueError,
        match=(
            r"^input arg type does not match. Expect one of \(fp32, fp32; fp64, fp64\), got "
            r"\(int32, int32\)$"
        ),
    ):
        bench(tl.core.extern_elementwise, "m", "", [bench.value(tl.int32), 1], table, True)
    bench.verify()


@jit
def libdevice_kernel(x, y, n, out):
    i = tl.arange(0, 16)
    a, b, k = tl.load(x + i), tl.load(y + i), tl.load(n + i)
    tl.store(out + i, tl.extra.libdevice.tanh(a))
    tl.store(out + 16 + i, tl.extra.libdevice.trunc(a))
    tl.store(out + 32 + i, tl.extra.libdevice.rint(a))
    tl.store(out + 48 + i, tl.extra.libdevice.round(a))
    tl.store(out + 64 + i, tl.extra.libdevice.fmod(a, b))
    tl.store(out + 80 + i, tl.extra.libdevice.copysign(a, b))
    tl.store(out + 96 + i, tl.extra.libdevice.ldexp(a, k))
    tl.store(out + 112 + i, tl.extra.libdevice.isnan(b).to(tl.float32))
    tl.store(out + 128 + i, tl.extra.libdevice.isinf(b).to(tl.float32))
    tl.store(out + 144 + i, tl.extra.libdevice.finitef(b).to(tl.float32))
    tl.store(out + 160 + i, tl.extra.libdevice.signbit(b))
    tl.store(out + 176 + i, tl.extra.libdevice.llrint(a))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_values_of_library_functions(run: Callable[..., None], dtype: str) -> None:
    rng = np.random.default_rng(2)
    x = (rng.standard_normal(16) * 4).astype(dtype)
    x[:6] = [0.5, 1.5, -2.5, 0.49999997, -0.5, 2.0]
    y = (rng.standard_normal(16) * 2).astype(dtype)
    y[8:12] = [np.nan, np.inf, -np.inf, -0.0]
    n = rng.integers(-20, 20, 16).astype(np.int32)
    out = np.zeros(192, dtype)
    run(libdevice_kernel, x, y, n, out)
    parts = out.reshape(12, 16)
    assert np.allclose(parts[0], np.tanh(x), rtol=1e-6)
    assert np.array_equal(parts[1], np.trunc(x))
    assert np.array_equal(parts[2], np.rint(x))
    assert np.array_equal(
        parts[3],
        [
            math.copysign(
                math.floor(abs(float(v)) + 0.5)
                if abs(float(v)) != float(np.float32(0.49999997))
                else 0.0,
                v,
            )
            for v in x
        ],
    )
    with np.errstate(invalid="ignore"):
        assert np.array_equal(parts[4], np.fmod(x, y), equal_nan=True)
    assert np.array_equal(parts[5], np.copysign(x, y))
    assert np.array_equal(parts[6], np.ldexp(x, n))
    assert np.array_equal(parts[7], np.isnan(y))
    assert np.array_equal(parts[8], np.isinf(y))
    assert np.array_equal(parts[9], np.isfinite(y))
    assert np.array_equal(parts[10], np.signbit(y))
    assert np.array_equal(parts[11], np.rint(x))


@jit
def bits_kernel(x, y, out):
    i = tl.arange(0, 16)
    a, b = tl.load(x + i), tl.load(y + i)
    tl.store(out + i, libdevice.clz(a))
    tl.store(out + 16 + i, libdevice.popc(a))
    tl.store(out + 32 + i, libdevice.ffs(a))
    tl.store(out + 48 + i, libdevice.mulhi(a, b))


@pytest.mark.parametrize("dtype", ["int32", "uint32", "int64", "uint64"])
def test_values_of_bit_functions(run: Callable[..., None], dtype: str) -> None:
    limits = np.iinfo(dtype)
    rng = np.random.default_rng(3)
    x, y = (
        rng.integers(limits.min, limits.max, 16, dtype=dtype, endpoint=True)
        >> rng.integers(0, 30, 16).astype(dtype)
        for _ in range(2)
    )
    x[0] = 0
    out = np.zeros(64, np.int64 if limits.bits == 64 else dtype)
    run(bits_kernel, x, y, out)
    mask = (1 << limits.bits) - 1
    patterns = [int(value) & mask for value in x]
    assert list(out[:16]) == [limits.bits - pattern.bit_length() for pattern in patterns]
    assert list(out[16:32]) == [pattern.bit_count() for pattern in patterns]
    assert list(out[32:48]) == [(pattern & -pattern).bit_length() for pattern in patterns]
    assert [int(value) & mask for value in out[48:]] == [
        (int(a) * int(b) >> limits.bits) & mask for a, b in zip(x, y, strict=True)
    ]


@pytest.mark.each_value
@pytest.mark.parametrize("dtype", [tl.float32, tl.float64], ids=str)
@pytest.mark.parametrize(
    "name",
    [name for part in (elementary, bit_manipulation, rounding, special) for name in part.FUNCTIONS],
)
def test_library_functions_have_nothing_to_contract(
    make_bench: Any, name: str, dtype: tl.dtype
) -> None:
    """A backend may contract a caller's multiplication with an addition.

    That would remove the rounding that the function relies on or emulates.
    """
    bench, function = make_bench(), getattr(libdevice, name)
    parameters = [
        each for each in inspect.signature(function).parameters if not each.startswith("_")
    ]
    try:
        bench(function, *[bench.value(dtype, [4]) for _ in parameters])
    except (TypeError, ValueError):
        pytest.skip(f"{name} does not take {dtype}")
    floats = [
        operation.name
        for operation in bench.function.walk()
        if isinstance(ir.types.element_type(operation.results[0].type), ir.types.FloatType)
    ]
    assert not {"add", "sub", "mul"} & set(floats)
