"""Reductions, scans, maps, sorting and the rest of the standard library, run by the reference
interpreter against NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright.language as tl
from tilewright.errors import CompilationError
from tilewright.frontend import compile_function
from tilewright.ir.ops.control import Reduce
from tilewright.language.definitions.callable import device_function as jit
from tilewright.simt.lowering.reduce import is_symmetric

ROWS, COLUMNS = 4, 16


@jit
def rectangle(x, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    return x + tl.arange(0, ROWS)[:, None] * COLUMNS + tl.arange(0, COLUMNS)[None, :]


@jit
def reduce_kernel(
    x,
    out,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    OP: tl.constexpr,
    AXIS: tl.constexpr,
    KEEP: tl.constexpr,
):
    v = tl.load(rectangle(x, ROWS, COLUMNS))
    if OP == "sum":
        r = tl.sum(v, AXIS, keep_dims=KEEP)
    elif OP == "max":
        r = v.max(AXIS, keep_dims=KEEP)
    elif OP == "min":
        r = tl.min(v, axis=AXIS, keep_dims=KEEP)
    elif OP == "xor_sum":
        r = tl.xor_sum(v, AXIS, KEEP)
    elif OP == "reduce_or":
        r = tl.reduce_or(v, AXIS, KEEP)
    elif OP == "argmax":
        r = tl.argmax(v, AXIS, keep_dims=KEEP)
    else:
        r = v.argmin(AXIS, keep_dims=KEEP)
    tl.store(out + tl.arange(0, r.numel), tl.reshape(r, [r.numel]))


NUMPY: dict[str, Callable[..., Any]] = {
    "sum": np.sum,
    "max": np.max,
    "min": np.min,
    "xor_sum": np.bitwise_xor.reduce,
    "reduce_or": np.bitwise_or.reduce,
    "argmax": np.argmax,
    "argmin": np.argmin,
}


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("axis", [0, 1, -1, None])
@pytest.mark.parametrize(
    ("op", "dtype"),
    [
        (op, dtype)
        for op in NUMPY
        for dtype in ("int32", "uint8", "float32")
        if dtype != "float32" or "or" not in op
    ],
)
def test_reductions(
    run: Callable[..., None], op: str, axis: int | None, keep: bool, dtype: str
) -> None:
    # Few distinct values, so that there are ties.
    x = np.random.default_rng(0).integers(0, 9, (ROWS, COLUMNS)).astype(dtype)
    expected = np.asarray(
        NUMPY[op](x.ravel() if axis is None else x, axis=0 if axis is None else axis)
    ).ravel()
    out = np.full(64, 99, np.float64)
    run(reduce_kernel, x, out, ROWS=ROWS, COLUMNS=COLUMNS, OP=op, AXIS=axis, KEEP=keep)
    assert np.array_equal(out[: expected.size], expected)
    assert (out[expected.size :] == 99).all()


@jit
def type_kernel(x, N: tl.constexpr):
    v = tl.load(x + tl.arange(0, N))
    tl.static_print("sum", tl.sum(v).dtype)
    tl.static_print("max", tl.max(v, 0).dtype)
    tl.static_print("max_with_indices", tl.max(v, 0, return_indices=True)[0].dtype)
    tl.static_print("argmax", tl.argmax(v, 0).dtype)
    tl.static_print("cumsum", tl.cumsum(v).dtype)
    tl.static_print("cumprod", tl.cumprod(v).dtype)
    tl.static_print("sort", tl.sort(v).dtype)
    tl.static_print("topk", tl.topk(v, 2).dtype)
    tl.static_print("topk_all", tl.topk(v, N).dtype)
    tl.static_print("explicit", tl.sum(v, dtype=tl.float64).dtype)


# dtype: sum, max, max with indices, cumsum, cumprod, topk
TYPES = {
    "int8": ("int32", "int32", "int8", "int32", "int8", "int32"),
    "uint16": ("uint32", "int32", "uint16", "uint32", "uint16", "int32"),
    "int32": ("int32",) * 6,
    "uint64": ("uint64",) * 6,
    "fp16": ("fp16", "fp32", "fp16", "fp16", "fp16", "fp32"),
    "bf16": ("bf16", "fp32", "fp32", "fp32", "fp32", "fp32"),
    "fp32": ("fp32",) * 6,
    "fp64": ("fp64",) * 6,
}


@pytest.mark.parametrize("dtype", TYPES)
def test_types_of_results(capsys: pytest.CaptureFixture[str], dtype: str) -> None:
    compile_function(
        type_kernel, {"x": "*" + tl.dtype(dtype).cache_key_part, "N": "constexpr"}, {"N": 8}
    )
    found = dict(line.split() for line in capsys.readouterr().out.splitlines())
    total, extremum, with_indices, cumsum, cumprod, topk = TYPES[dtype]
    assert found == {
        "sum": total,
        "max": extremum,
        "max_with_indices": with_indices,
        "argmax": "int32",
        "cumsum": cumsum,
        "cumprod": cumprod,
        "sort": dtype,
        "topk": topk,
        "topk_all": dtype,
        "explicit": "fp64",
    }


@jit
def boolean_sum_kernel(x, out):
    v = tl.load(x + tl.arange(0, 16))
    tl.store(out, tl.sum(v))
    tl.static_assert(tl.sum(v).dtype == tl.uint32)


def test_booleans_are_counted(run: Callable[..., None]) -> None:
    x = np.random.default_rng(0).integers(0, 2, 16).astype(bool)
    out = np.zeros(1, np.int32)
    run(boolean_sum_kernel, x, out)
    assert out[0] == x.sum()


@jit
def ties_kernel(x, out, LEFT: tl.constexpr):
    v = tl.load(x + tl.arange(0, 16))
    value, index = tl.max(v, 0, return_indices=True, return_indices_tie_break_left=LEFT)
    tl.store(out, index)
    tl.store(out + 1, value)
    value, index = tl.min(v, 0, True, LEFT)
    tl.store(out + 2, index)
    tl.store(out + 3, value)


@pytest.mark.parametrize("left", [True, False])
def test_ties(run: Callable[..., None], left: bool) -> None:
    x = np.array([3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 9, 7, 9, 3, 1], np.int32)
    out = np.zeros(4, np.int32)
    run(ties_kernel, x, out, LEFT=left)
    assert (out[1], out[3]) == (9, 1)
    assert (x[out[0]], x[out[2]]) == (9, 1)
    if left:
        assert (out[0], out[2]) == (5, 1)


def test_nan_is_ignored_by_max_and_min(run: Callable[..., None]) -> None:
    x = np.random.default_rng(0).standard_normal((ROWS, COLUMNS)).astype(np.float32)
    x[1, ::2] = np.nan
    out = np.zeros(64, np.float32)
    for op, fn in (("max", np.nanmax), ("min", np.nanmin)):
        run(reduce_kernel, x, out, ROWS=ROWS, COLUMNS=COLUMNS, OP=op, AXIS=1, KEEP=False)
        assert np.array_equal(out[:ROWS], fn(x, axis=1))


@jit
def greater_left(value1, index1, value2, index2):
    return tl.standard._argmax_combine(value1, index1, value2, index2, True)


@jit
def smaller_left(value1, index1, value2, index2):
    return tl.standard._argmin_combine(value1, index1, value2, index2, True)


@jit
def places_kernel(
    x,
    value,
    index,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    GREATEST: tl.constexpr,
    AXIS: tl.constexpr,
    OWN: tl.constexpr,
):
    v = tl.load(rectangle(x, ROWS, COLUMNS))
    if OWN:
        # from the last to the first, as a reduction in another order would meet them
        at = COLUMNS - 1 - tl.arange(0, COLUMNS)[None, :] + tl.zeros_like(v).to(tl.int32)
        best, at = tl.reduce((v, at), 1, greater_left if GREATEST else smaller_left)
        at = COLUMNS - 1 - at
    elif GREATEST:
        best, at = tl.max(v, AXIS, return_indices=True)
    else:
        best, at = tl.min(v, AXIS, return_indices=True)
    tl.store(value + tl.arange(0, best.numel), tl.reshape(best, [best.numel]))
    tl.store(index + tl.arange(0, best.numel), tl.reshape(at, [best.numel]))


@pytest.mark.parametrize("greatest", [True, False])
@pytest.mark.parametrize("axis", [0, 1])
def test_positions_are_those_of_the_numbers_beside_nan(
    run: Callable[..., None], axis: int, greatest: bool
) -> None:
    worst = -np.inf if greatest else np.inf
    rows = [
        [6, np.nan, 8, np.nan],
        [np.nan, worst, np.nan, worst],
        [np.nan] * 4,
        [np.nan, 2, 2, -3],
    ]
    values, places = (
        ([8, worst, np.nan, 2], [2, 1, 0, 1])
        if greatest
        else ([6, worst, np.nan, -3], [0, 1, 0, 3])
    )
    x = np.array(rows, np.float32)
    value, index = np.zeros(4, np.float32), np.full(4, -1, np.int32)
    run(
        places_kernel,
        x if axis else np.ascontiguousarray(x.T),
        value,
        index,
        ROWS=4,
        COLUMNS=4,
        GREATEST=greatest,
        AXIS=axis,
        OWN=False,
    )
    assert np.array_equal(value, values, equal_nan=True)
    assert index.tolist() == places


@pytest.mark.parametrize("greatest", [True, False])
@pytest.mark.parametrize("axis", [0, 1])
def test_positions_are_found_by_combinations_of_one_commutative_operation(
    axis: int, greatest: bool
) -> None:
    # A GPU swaps no operands of such a reduction among lanes, and may have an instruction for it.
    constants = {"ROWS": 4, "COLUMNS": 4, "GREATEST": greatest, "AXIS": axis, "OWN": False}
    types = {
        "x": "*fp32",
        "value": "*fp32",
        "index": "*i32",
        **dict.fromkeys(constants, "constexpr"),
    }
    module = compile_function(places_kernel, types, constants)
    reductions = [operation for operation in module.walk() if isinstance(operation, Reduce)]
    assert reductions
    assert all(is_symmetric(operation.combine) for operation in reductions)


@pytest.mark.parametrize("greatest", [True, False])
def test_combining_by_the_lower_index_beside_nan(run: Callable[..., None], greatest: bool) -> None:
    x = np.array(
        [[6, np.nan, 8, np.nan], [np.nan, 1, np.nan, 1], [np.nan] * 4, [np.nan, 2, 2, 2]],
        np.float32,
    )
    value, index = np.zeros(4, np.float32), np.full(4, -1, np.int32)
    run(places_kernel, x, value, index, ROWS=4, COLUMNS=4, GREATEST=greatest, AXIS=1, OWN=True)
    assert np.array_equal(value, [8 if greatest else 6, 1, np.nan, 2], equal_nan=True)
    assert index.tolist() == [
        2 if greatest else 0,
        3,
        3,
        3,
    ]  # the lower index is that of the later element


# -- combining with functions of one's own ---------------------------------------------------------


@jit
def welford(mean1, m2_1, weight1, mean2, m2_2, weight2):
    delta = mean2 - mean1
    weight = weight1 + weight2
    ratio = tl.where(weight == 0.0, 0.0, weight2 / weight)
    return mean1 + delta * ratio, m2_1 + m2_2 + delta * delta * weight1 * ratio, weight


@jit
def welford_kernel(x, out):
    v = tl.load(x + tl.arange(0, 64))
    mean, m2, weight = tl.reduce((v, tl.zeros_like(v), tl.full([64], 1.0, tl.float32)), 0, welford)
    tl.store(out, mean)
    tl.store(out + 1, m2 / weight)


def test_reduction_of_several_values(run: Callable[..., None]) -> None:
    x, out = (
        np.random.default_rng(0).standard_normal(64).astype(np.float32),
        np.zeros(2, np.float32),
    )
    run(welford_kernel, x, out)
    assert np.allclose(out, [x.mean(), x.var()], rtol=1e-5)


@jit
def first_order(a1, b1, a2, b2):
    return a1 * a2, b1 * a2 + b2


@jit
def scan_kernel(a, b, out, REVERSE: tl.constexpr):
    i = tl.arange(0, 32)
    gain, state = tl.associative_scan(
        (tl.load(a + i), tl.load(b + i)), 0, first_order, reverse=REVERSE
    )
    tl.store(out + i, state)
    tl.store(out + 32 + i, gain)


@pytest.mark.parametrize("reverse", [False, True])
def test_scan_of_several_values(run: Callable[..., None], reverse: bool) -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.uniform(0.5, 1.5, 32).astype(np.float64) for _ in range(2))
    out = np.zeros(64, np.float64)
    run(scan_kernel, a, b, out, REVERSE=reverse)
    state, expected = 0.0, np.zeros(32)
    for i in reversed(range(32)) if reverse else range(32):
        state = state * a[i] + b[i]
        expected[i] = state
    assert np.allclose(out[:32], expected)
    product = np.cumprod(a[::-1])[::-1] if reverse else np.cumprod(a)
    assert np.allclose(out[32:], product)


@jit
def running_kernel(x, out, AXIS: tl.constexpr, REVERSE: tl.constexpr):
    v = tl.load(rectangle(x, 4, 16))
    tl.store(rectangle(out, 4, 16), tl.cumsum(v, AXIS, REVERSE))
    tl.store(rectangle(out + 64, 4, 16), v.cumprod(AXIS, reverse=REVERSE))


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("axis", [0, 1])
def test_running_sums_and_products(run: Callable[..., None], axis: int, reverse: bool) -> None:
    x = np.random.default_rng(0).integers(-2, 4, (4, 16)).astype(np.int32)
    out = np.zeros((2, 4, 16), np.int32)
    run(running_kernel, x, out, AXIS=axis, REVERSE=reverse)
    turn = (lambda a: np.flip(a, axis)) if reverse else (lambda a: a)
    assert np.array_equal(out[0], turn(np.cumsum(turn(x), axis)))
    with np.errstate(over="ignore"):
        assert np.array_equal(out[1], turn(np.cumprod(turn(x), axis, dtype=np.int32)))


@jit
def to_half(a, b):
    return (a + b).to(tl.float16)


@jit
def wrong_combine_kernel(x):
    tl.reduce(tl.load(x + tl.arange(0, 8)), 0, to_half)


@jit
def pair(a, b, c, d):
    return a, c


@jit
def unequal_kernel(x):
    v = tl.load(x + tl.arange(0, 8))
    tl.reduce((v, tl.arange(0, 4)), 0, pair)


@jit
def scalar_kernel(x):
    tl.sum(tl.load(x))


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        (
            wrong_combine_kernel,
            r"the combine function must give values of the inputs' types \(fp32\), got \(fp16\)",
        ),
        (unequal_kernel, "all inputs of reduce must have the same shape"),
        (scalar_kernel, "reduce takes tensors of rank 1 or more"),
    ],
)
def test_reductions_that_are_refused(kernel: Any, message: str) -> None:
    with pytest.raises(CompilationError, match=message):
        compile_function(kernel, {"x": "*fp32"})


# -- maps ------------------------------------------------------------------------------------------


@jit
def collatz(n):
    steps = 0
    while n > 1:
        if n % 2 == 0:
            n = n // 2
        else:
            n = 3 * n + 1
        steps += 1
    return steps


@jit
def map_kernel(x, out):
    v = tl.load(x + tl.arange(0, 32))
    tl.store(out + tl.arange(0, 32), tl.map_elementwise(collatz, v))


def test_maps_may_branch_and_loop(run: Callable[..., None]) -> None:
    x, out = np.arange(1, 33, dtype=np.int32), np.zeros(32, np.int32)
    run(map_kernel, x, out)

    def steps(n: int) -> int:
        return 0 if n == 1 else 1 + steps(n // 2 if n % 2 == 0 else 3 * n + 1)

    assert list(out) == [steps(int(n)) for n in x]


@jit
def ordered(a0, a1, b0, b1):
    return a0 + b0, a1 - b1, a1 * 2, a0.to(tl.float32)


@jit
def mixed(a0, a1, b0, b1):
    return a0 + b0, a1 - b1, a0, a1


@jit
def pack_kernel(x, y, out):
    i = tl.arange(0, 8)
    a, b = tl.map_elementwise(mixed, tl.load(x + i), tl.load(y + i), pack=2)
    tl.store(out + i, a)
    tl.store(out + 8 + i, b)


@jit
def wrong_pack_kernel(x, y, out):
    i = tl.arange(0, 8)
    tl.map_elementwise(ordered, tl.load(x + i), tl.load(y + i), pack=2)


def test_packed_maps(run: Callable[..., None]) -> None:
    x, y, out = (
        np.arange(8, dtype=np.int32),
        np.arange(8, dtype=np.int32) * 10,
        np.zeros(16, np.int32),
    )
    run(pack_kernel, x, y, out)
    assert np.array_equal(out[:8].reshape(4, 2), np.stack([x[::2] + y[::2], x[1::2] - y[1::2]], 1))
    assert np.array_equal(out[8:], x)
    with pytest.raises(
        CompilationError,
        match="the 2 values of one result must have one type, got int32, int32, int32, fp32",
    ):
        compile_function(wrong_pack_kernel, dict.fromkeys(("x", "y", "out"), "*i32"))


# -- the rest --------------------------------------------------------------------------------------


@jit
def arithmetic_kernel(x, out, n, BLOCK: tl.constexpr):
    i = tl.arange(0, 16)
    v = tl.load(x + i)
    tl.store(out + i, tl.sigmoid(v))
    tl.store(out + 16 + i, tl.softmax(v))
    tl.store(out + 32, tl.cdiv(n, BLOCK))
    tl.store(out + 33, n.cdiv(7))
    tl.store(out + 34 + i, tl.zeros_like(v) + tl.zeros([16], tl.float32))
    tl.static_assert(tl.cdiv(BLOCK, 3) == 6)


def test_arithmetic(run: Callable[..., None]) -> None:
    x, out = (
        np.random.default_rng(0).standard_normal(16).astype(np.float32),
        np.full(50, 5, np.float32),
    )
    run(arithmetic_kernel, x, out, 100, BLOCK=16)
    assert np.allclose(out[:16], 1 / (1 + np.exp(-x)), rtol=1e-6)
    e = np.exp(x.astype(np.float64) - x.max())
    assert np.allclose(out[16:32], e / e.sum(), rtol=1e-5)
    assert list(out[32:34]) == [7, 15]
    assert (out[34:] == 0).all()


@jit
def softmax_kernel(x, out, DIM: tl.constexpr, KEEP: tl.constexpr):
    tl.store(rectangle(out, 4, 16), tl.load(rectangle(x, 4, 16)).softmax(DIM, KEEP))


@pytest.mark.parametrize(("dim", "keep"), [(None, False), (0, True), (1, True), (1, False)])
def test_softmax_keeps_the_shape(run: Callable[..., None], dim: int | None, keep: bool) -> None:
    x, out = (
        np.random.default_rng(0).standard_normal((4, 16)).astype(np.float32),
        np.zeros((4, 16), np.float32),
    )
    run(softmax_kernel, x, out, DIM=dim, KEEP=keep)
    e = np.exp(x)
    assert np.allclose(out, e / e.sum(dim or 0, keepdims=True), rtol=1e-5)


# -- sorting ---------------------------------------------------------------------------------------


@jit
def sort_kernel(x, out, ROWS: tl.constexpr, COLUMNS: tl.constexpr, DESCENDING: tl.constexpr):
    tl.store(
        rectangle(out, ROWS, COLUMNS),
        tl.sort(tl.load(rectangle(x, ROWS, COLUMNS)), descending=DESCENDING),
    )


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("dtype", ["int8", "uint32", "int64", "float16", "float32"])
@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (1, 2), (2, 8), (4, 64)])
def test_sort(
    run: Callable[..., None], dtype: str, descending: bool, rows: int, columns: int
) -> None:
    rng = np.random.default_rng(columns)
    x = (
        (rng.standard_normal((rows, columns)) * 20).astype(dtype)
        if dtype[0] != "u"
        else rng.integers(0, 50, (rows, columns)).astype(dtype)
    )
    out = np.zeros_like(x)
    run(sort_kernel, x, out, ROWS=rows, COLUMNS=columns, DESCENDING=descending)
    expected = np.sort(x, axis=-1)
    assert np.array_equal(out, expected[:, ::-1] if descending else expected)


@pytest.mark.parametrize("descending", [False, True])
def test_nan_sorts_above_every_number(run: Callable[..., None], descending: bool) -> None:
    x = np.random.default_rng(0).standard_normal((2, 32)).astype(np.float32)
    x[:, ::5], x[:, ::10], x[:, 1] = np.nan, -np.nan, np.inf
    out = np.zeros_like(x)
    run(sort_kernel, x, out, ROWS=2, COLUMNS=32, DESCENDING=descending)
    expected = np.sort(x, axis=-1)
    assert np.array_equal(out, expected[:, ::-1] if descending else expected, equal_nan=True)


@jit
def topk_kernel(
    x, out, ROWS: tl.constexpr, COLUMNS: tl.constexpr, K: tl.constexpr, DESCENDING: tl.constexpr
):
    tl.store(
        rectangle(out, ROWS, K),
        tl.topk(tl.load(rectangle(x, ROWS, COLUMNS)), K, descending=DESCENDING),
    )


@pytest.mark.parametrize("descending", [True, False])
@pytest.mark.parametrize("k", [1, 2, 8, 32])
@pytest.mark.parametrize("dtype", ["int16", "float32"])
def test_topk(run: Callable[..., None], dtype: str, k: int, descending: bool) -> None:
    x = (np.random.default_rng(k).standard_normal((2, 32)) * 9).astype(dtype)
    out = np.zeros((2, k), dtype)
    run(topk_kernel, x, out, ROWS=2, COLUMNS=32, K=k, DESCENDING=descending)
    expected = np.sort(x, axis=-1)
    assert np.array_equal(out, expected[:, ::-1][:, :k] if descending else expected[:, :k])


@jit
def merge_kernel(x, out, DESCENDING: tl.constexpr):
    tl.store(
        rectangle(out, 2, 16), tl.bitonic_merge(tl.load(rectangle(x, 2, 16)), descending=DESCENDING)
    )


@pytest.mark.parametrize("descending", [True, False])
def test_bitonic_rows_are_merged(run: Callable[..., None], descending: bool) -> None:
    half = np.sort(np.random.default_rng(0).standard_normal((2, 2, 8)).astype(np.float32), axis=-1)
    x = np.roll(np.concatenate([half[0], half[1][:, ::-1]], 1), 3, axis=1)
    out = np.zeros_like(x)
    run(merge_kernel, x, out, DESCENDING=descending)
    expected = np.sort(x, axis=-1)
    assert np.array_equal(out, expected[:, ::-1] if descending else expected)


@jit
def wrong_axis_kernel(x):
    tl.sort(tl.load(rectangle(x, 4, 4)), dim=0)


@jit
def too_many_kernel(x):
    tl.topk(tl.load(x + tl.arange(0, 4)), 8)


@jit
def odd_kernel(x):
    tl.topk(tl.load(x + tl.arange(0, 4)), 3)


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        (
            wrong_axis_kernel,
            "sort: only the last dimension is currently supported, got axis 0 of 2",
        ),
        (too_many_kernel, "k must not exceed the extent of the axis"),
        (odd_kernel, "k must be a power of two"),
    ],
)
def test_sorts_that_are_refused(kernel: Any, message: str) -> None:
    with pytest.raises(CompilationError, match=message):
        compile_function(kernel, {"x": "*fp32"})
