"""Tensor descriptors made in kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright.language as tl
from tilewright import ir
from tilewright.errors import CompilationError
from tilewright.frontend import compile_function
from tilewright.language.builtin_functions.descriptors import tensor_descriptor_base_type
from tilewright.language.definitions.callable import device_function as jit
from tilewright.language.semantic import Options
from tilewright.passes.pipeline import run as run_passes
from tilewright.plugins.manifest import Capabilities, Target
from tilewright.reference.interpreter import DescriptorValue
from tilewright.reference.interpreter import run as interpret


@jit
def copy_kernel(
    x, y, M, N, row, column, ROWS: tl.constexpr, COLUMNS: tl.constexpr, PADDING: tl.constexpr
):
    source = tl.make_tensor_descriptor(x, [M, N], [N, 1], [ROWS, COLUMNS], padding_option=PADDING)
    target = tl.make_tensor_descriptor(y, [ROWS, COLUMNS], [COLUMNS, 1], [ROWS, COLUMNS])
    block = source.load([row, column])
    tl.store_tensor_descriptor(target, (0, 0), block)


@pytest.mark.parametrize("padding", ["zero", "nan"])
@pytest.mark.parametrize(
    ("m", "n", "row", "column"), [(8, 8, 0, 0), (5, 7, 2, 4), (5, 7, -2, -3), (3, 3, 9, 0)]
)
def test_blocks_are_padded(
    run: Callable[..., None], m: int, n: int, row: int, column: int, padding: str
) -> None:
    x = np.random.default_rng(0).standard_normal((m, n)).astype(np.float32)
    y = np.zeros((8, 8), np.float32)
    run(copy_kernel, x, y, m, n, row, column, ROWS=8, COLUMNS=8, PADDING=padding)
    expected = np.full((8, 8), 0 if padding == "zero" else np.nan, np.float32)
    for i in range(8):
        for j in range(8):
            if 0 <= i + row < m and 0 <= j + column < n:
                expected[i, j] = x[i + row, j + column]
    assert np.array_equal(y, expected, equal_nan=True)


@jit
def update_kernel(x, M, N, OP: tl.constexpr):
    desc = tl.make_tensor_descriptor(x, [M, N], [N, 1], [4, 4])
    values = tl.arange(0, 16).reshape(4, 4) - 5
    if OP == "add":
        desc.atomic_add([1, 2], values)
    elif OP == "min":
        desc.atomic_min([1, 2], values)
    elif OP == "max":
        desc.atomic_max([1, 2], values)
    elif OP == "and":
        desc.atomic_and([1, 2], values)
    elif OP == "or":
        desc.atomic_or([1, 2], values)
    else:
        desc.atomic_xor([1, 2], values)


@pytest.mark.parametrize(
    ("op", "apply"),
    [
        ("add", np.add),
        ("min", np.minimum),
        ("max", np.maximum),
        ("and", np.bitwise_and),
        ("or", np.bitwise_or),
        ("xor", np.bitwise_xor),
    ],
)
def test_updates_of_blocks(run: Callable[..., None], op: str, apply: Any) -> None:
    x = np.random.default_rng(3).integers(-20, 20, (4, 5)).astype(np.int32)
    expected = x.copy()
    values = np.arange(16).reshape(4, 4) - 5
    expected[1:, 2:] = apply(expected[1:, 2:], values[:3, :3])
    run(update_kernel, x, 4, 5, OP=op)
    assert np.array_equal(x, expected)


@jit
def rows_kernel(x, rows, y, M, N, column):
    desc = tl.make_tensor_descriptor(x, [M, N], [N, 1], [1, 4])
    picked = desc.gather(tl.load(rows + tl.arange(0, 8)), column)
    out = tl.make_tensor_descriptor(y, [16, 4], [4, 1], [1, 4])
    out.scatter(picked * 2, tl.arange(0, 8) * 2, 0)


def test_rows_are_gathered_and_scattered(run: Callable[..., None]) -> None:
    x = np.random.default_rng(4).standard_normal((11, 6)).astype(np.float32)
    rows = np.array([3, 0, 10, 11, 5, 5, -1, 2], np.int32)
    y = np.zeros((16, 4), np.float32)
    run(rows_kernel, x, rows, y, 11, 6, 3)
    expected = np.zeros((16, 4), np.float32)
    for i, row in enumerate(rows):
        if 0 <= row < 11:
            expected[2 * i, :3] = 2 * x[row, 3:6]
    assert np.array_equal(y, expected)


def descriptor(bench: Any, type_: str = "*fp16", block: Any = (8, 16), **options: Any) -> Any:
    return bench(
        tl.make_tensor_descriptor,
        bench.value(type_),
        [bench.value(tl.int32), 64][-len(block) :],
        [bench.value(tl.int64), 1][-len(block) :],
        block,
        **options,
    )


def test_members(bench: Any) -> None:
    desc = descriptor(bench)
    assert desc.dtype is tl.float16
    assert desc.block_type is tl.block_type(tl.float16, [8, 16])
    assert [extent.value for extent in desc.block_shape] == [8, 16]
    assert [size.dtype for size in bench.semantic.attribute(desc, "shape")] == [tl.int32, tl.int32]
    assert [step.dtype for step in bench.semantic.attribute(desc, "strides")] == [
        tl.int64,
        tl.int64,
    ]
    assert bench(desc.load, [0, bench.value(tl.int64)]).type is desc.block_type
    assert bench(tl.load_tensor_descriptor, desc, [0, 1]).type is desc.block_type
    bench(desc.store, [0, 0], bench.value(tl.float32, [8, 16]))
    assert str(bench.last.operand("value").type) == "tile<8x16xf16>"
    bench.verify()


def test_descriptors_are_carried_with_shape_and_strides(bench: Any) -> None:
    desc = descriptor(bench)
    assert [str(type_) for type_ in desc.type.flatten()] == [
        "desc<8x16xf16>",
        "i32",
        "i32",
        "i64",
        "i64",
    ]
    again = desc.type.unflatten(iter(desc.flatten()))
    assert again.type == desc.type
    assert again.flatten() == desc.flatten()
    assert again.type != tl.str_to_ty("tensordesc<fp16[8,16]>")
    assert tl.str_to_ty("tensordesc<fp16[8,16]>") == tl.str_to_ty("tensordesc<fp16[8, 16]>")


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda b: descriptor(b, block=(8, 4)),
            ValueError,
            (
                r"Descriptor block shape must have at least 16 bytes in the last dimension, but "
                r"got 4 \* 2 = 8"
            ),
        ),
        (
            lambda b: descriptor(b, "*i32", padding_option="nan"),
            ValueError,
            "`nan` is not supported for int32",
        ),
        (
            lambda b: descriptor(b, padding_option="one"),
            ValueError,
            "Padding option one not supported",
        ),
        (
            lambda b: b(tl.make_tensor_descriptor, b.value(tl.int32), [8], [1], [8]),
            ValueError,
            "base of a tensor descriptor must be a pointer",
        ),
        (
            lambda b: b(tl.make_tensor_descriptor, b.value("*fp32"), [8], [2], [8]),
            ValueError,
            "Tensor descriptor last dim must be 1 but got",
        ),
        (
            lambda b: b(tl.make_tensor_descriptor, b.value("*fp32"), [8], [b.value(tl.int32)], [8]),
            ValueError,
            "last stride is the constexpr 1",
        ),
        (
            lambda b: b(tl.make_tensor_descriptor, b.value("*fp32"), [8], [1], [2] * 6),
            ValueError,
            "Expected 1 <= ndim <= 5 but got 6 dimensions",
        ),
        (
            lambda b: b(tl.make_tensor_descriptor, b.value("*fp32"), [8, 8], [1], [8]),
            ValueError,
            "Expected 1 shape but got 2",
        ),
        (
            lambda b: b(tl.make_tensor_descriptor, b.value("*fp32"), [8], [1], [12]),
            ValueError,
            "must be a power of 2",
        ),
        (lambda b: b(descriptor(b).load, [0]), ValueError, "^expected 2 offsets, but got 1$"),
        (
            lambda b: b(descriptor(b).load, [0, 1.5]),
            ValueError,
            "offsets of a descriptor are scalar integers",
        ),
        (
            lambda b: b(descriptor(b).store, [0, 0], b.value(tl.float16, [8, 8])),
            ValueError,
            "takes a value of that shape",
        ),
        (
            lambda b: b(descriptor(b).gather, b.value(tl.int32, [8]), 0),
            ValueError,
            "descriptor gather block must have 1 row, but has 8",
        ),
        (
            lambda b: b(descriptor(b, block=(16,)).gather, b.value(tl.int32, [8]), 0),
            ValueError,
            "descriptor gather must be 2D",
        ),
        (
            lambda b: b(descriptor(b, block=(1, 16)).gather, b.value(tl.int32, [4]), 0),
            ValueError,
            "must have at least 8 rows, but got 4",
        ),
        (
            lambda b: b(descriptor(b, block=(1, 16)).scatter, 0.0, b.value(tl.int32, [8]), 0),
            ValueError,
            r"scatter takes a value of shape \[8, 16\]",
        ),
        (
            lambda b: b(descriptor(b, "*fp32").atomic_max, [0, 0], 1),
            ValueError,
            "atomic_max of a descriptor does not support fp32",
        ),
        (
            lambda b: b(descriptor(b).atomic_xor, [0, 0], 1),
            ValueError,
            "atomic_xor of a descriptor does not support fp16",
        ),
        (
            lambda b: b(tl.load_tensor_descriptor, b.value("*fp32"), [0]),
            TypeError,
            "expected a tensor descriptor, got pointer<fp32>",
        ),
    ],
)
def test_what_is_refused(bench: Any, call: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call(bench)


@jit
def boolean_kernel(x, y):
    desc = tl.make_tensor_descriptor(x, [2, 16], [16, 1], [2, 16])
    out = tl.make_tensor_descriptor(y, [2, 16], [16, 1], [2, 16])
    out.store([0, 0], ~desc.load([0, 0]))


def test_descriptors_of_booleans(run: Callable[..., None]) -> None:
    x = np.random.default_rng(0).integers(0, 2, (2, 16)).astype(bool)
    y = np.zeros((2, 16), bool)
    run(boolean_kernel, x, y)
    assert np.array_equal(y, ~x)


@jit
def members_kernel(desc, out):
    tl.static_assert(desc.shape[0].dtype == tl.int32)
    tl.static_assert(desc.strides[0].dtype == tl.int64)
    tl.static_assert(desc.block_shape[0] == 4 and desc.block_shape[1] == 8)
    tl.static_assert(desc.dtype == tl.float32 and len(desc.shape) == 2 and len(desc.strides) == 2)
    tl.static_assert(
        isinstance(desc, tl.tensor_descriptor) and not isinstance(out, tl.tensor_descriptor)
    )
    rows, columns = desc.shape
    tl.store(out, rows)
    tl.store(out + 1, columns)
    tl.store(out + 2, desc.strides[0])
    tl.store(out + 3, desc.strides[1])
    tl.store(out + 4, tl.cdiv(rows, desc.block_shape[0]) * tl.cdiv(columns, desc.block_shape[1]))


def _members_module() -> ir.Module:
    module = compile_function(
        members_kernel, {"desc": "tensordesc<fp32[4,8]>", "out": "*i64"}, {}, None, None
    )
    ir.verify(module)
    return module


@pytest.mark.parametrize(("m", "n", "pitch"), [(7, 13, 16), (1, 1, 4), (64, 40, 40)])
def test_members_of_a_descriptor_of_the_host(m: int, n: int, pitch: int) -> None:
    out = np.full(6, -7, np.int64)
    interpret(
        _members_module(),
        [DescriptorValue(np.zeros((m, pitch), np.float32), (m, n), (pitch, 1)), out],
        (1, 1, 1),
    )
    assert out.tolist() == [m, n, pitch, 1, -(-m // 4) * -(-n // 8), -7]


def test_members_are_read_where_they_are_used_and_once_after_merging() -> None:
    module = _members_module()
    names = [operation.name for operation in module.walk()]
    assert names.count("descriptor_extent") > 2
    assert names.count("descriptor_stride") > 2
    run_passes(module)
    names = [operation.name for operation in module.walk()]
    assert (names.count("descriptor_extent"), names.count("descriptor_stride")) == (2, 2)
    axes = [
        operation.attribute("axis")
        for operation in module.walk()
        if operation.name == "descriptor_stride"
    ]
    assert axes == [0, 1]


def test_members_need_a_kernel() -> None:
    described = tensor_descriptor_base_type(tl.block_type(tl.float32, [4, 8]))
    module = ir.Module()
    function = module.add(ir.Function("f", described.flatten()))
    value = described.unflatten(iter(function.arguments))
    for name in ("shape", "strides"):
        with pytest.raises(
            ValueError, match=f"`{name}` of a tensor descriptor can be read only inside a kernel"
        ):
            getattr(value, name)
    with pytest.raises(AttributeError, match="a tensor descriptor has no attribute 'colour'"):
        value.colour


@jit
def half_extremes_kernel(x, values):
    desc = tl.make_tensor_descriptor(x, [3, 16], [16, 1], [4, 16])
    lanes = tl.load(values + tl.arange(0, 4)[:, None] * 16 + tl.arange(0, 16)[None, :])
    desc.atomic_max([0, 0], lanes)
    desc.atomic_min([0, 0], -lanes)


def test_extremes_of_half_precision_need_a_target_that_has_them(run: Callable[..., None]) -> None:
    rng = np.random.default_rng(5)
    x, values = (rng.standard_normal((rows, 16)).astype(np.float16) for rows in (3, 4))
    out = x.copy()
    run(half_extremes_kernel, out, values)
    assert np.array_equal(out, np.minimum(np.maximum(x, values[:3]), -values[:3]))

    without = Capabilities(
        dtypes=frozenset({"f16", "i32", "i64", "i1"}), atomics={"f16": frozenset({"add"})}
    )
    with pytest.raises(
        CompilationError, match="atomic_max of a descriptor does not support fp16 on backend small"
    ):
        compile_function(
            half_extremes_kernel,
            {"x": "*fp16", "values": "*fp16"},
            options=Options(target=Target("small", "one", kind="cpu", capabilities=without)),
        )
