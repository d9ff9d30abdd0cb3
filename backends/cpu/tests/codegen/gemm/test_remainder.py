"""Matmuls of masked loads: the remainder is skipped only if nothing can observe it."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright
import tilewright.language as tl
from tilewright.ir import Value
from tilewright.ir.types import BF16, F16, F32, I1, I8, I32, FloatType, TileType, Type, element_type
from tilewright_conformance.op_samples.kernel import INTEGRAL, Draw, SampleKernel
from tilewright_cpu.codegen.kernel import write_module
from tilewright_cpu.codegen.state import stack_slots
from tilewright_cpu.hardware import named_target
from tilewright_cpu.status import ALIGNMENT

_M, _N, _K = 32, 48, 24
#: Numbers among which infinities and NaN show whether zero times them was computed.
_SPECIAL = Draw(
    array=lambda rng, count: rng.choice(
        np.array([1.0, -2.0, 3.0, np.inf, np.nan], np.float32),
        count,
        p=[0.4, 0.3, 0.27, 0.02, 0.01],
    )
)


class _Edges:
    """A kernel with bounds along M, N and of each operand along K."""

    def __init__(self, bounds: tuple[int, int, int, int]) -> None:
        self.kernel = SampleKernel("dot")
        self.b = self.kernel.b
        self.index = {extent: self.b.arange(start=0, end=extent) for extent in (_M, _N, _K)}
        m, n, k_a, k_b = (self.kernel.scalar(I32, Draw(bound, bound)) for bound in bounds)
        self.rows, self.columns = self.below(_M, m), self.below(_N, n)
        self.k_of_a, self.k_of_b = self.below(_K, k_a), self.below(_K, k_b)

    def below(self, extent: int, limit: Value) -> Value:
        index = self.index[extent]
        value: Value = self.b.cmp(index, self.b.splat(limit, result=index.type), predicate="lt")
        return value

    def along(self, line: Value, axis: int, shape: tuple[int, int]) -> Value:
        value: Value = self.b.broadcast(
            self.b.expand_dims(line, axis=1 - axis), result=TileType(shape, element_type(line.type))
        )
        return value

    def load(
        self,
        element: Type,
        lines: tuple[Value, Value],
        shape: tuple[int, int],
        draw: Draw,
        other: float | None = 0.0,
    ) -> Value:
        mask = self.b.and_(self.along(lines[0], 0, shape), self.along(lines[1], 1, shape))
        pointer = self.kernel.pointers(self.kernel.pointer(element, shape, draw), shape)
        filled = None if other is None else self.kernel.constant(TileType(shape, element), other)
        value: Value = self.b.load(pointer, mask=mask, other=filled)
        return value

    def operands(self, element: Type, draw: Draw, other: float | None = 0.0) -> tuple[Value, Value]:
        a = self.load(element, (self.rows, self.k_of_a), (_M, _K), draw, other)
        return a, self.load(element, (self.k_of_b, self.columns), (_K, _N), draw, other)

    def mask(self, rows: bool, columns: bool) -> Value | None:
        parts = [
            self.along(line, axis, (_M, _N))
            for axis, (line, wanted) in enumerate(((self.rows, rows), (self.columns, columns)))
            if wanted
        ]
        if not parts:
            return None
        value: Value = parts[0] if len(parts) == 1 else self.b.and_(*parts)
        return value


_BOUNDS = [
    (_M, _N, _K, _K), (19, 30, 11, 11), (1, 1, 1, 1), (0, 5, 5, 5), (5, 0, 5, 5), (7, 33, 0, 0),
    (20, 48, 5, 13), (32, 17, 13, 5), (-3, 40, 24, 0),
    (1, 48, 24, 24), (2, 47, 23, 18),
]  # fmt: skip


@pytest.mark.each_value
@pytest.mark.parametrize(
    "stored",
    [(False, False), (True, False), (False, True), (True, True)],
    ids=["unmasked", "rows", "columns", "both"],
)
@pytest.mark.parametrize("bounds", _BOUNDS, ids=str)
def test_infinity_in_the_remainder_is_seen_where_it_is_read(
    bounds: tuple[int, int, int, int], stored: tuple[bool, bool], agree: Callable[..., Any]
) -> None:
    edges = _Edges(bounds)
    a, b = edges.operands(F32, _SPECIAL)
    c = edges.kernel.load(F32, (_M, _N), INTEGRAL)
    edges.kernel.store(edges.b.dot(a, b, c), edges.mask(*stored))
    agree(edges.kernel.finish(), seed=sum(bounds))


@pytest.mark.each_value
@pytest.mark.parametrize("element", [F32, F16, BF16, I8, FloatType("f8e4m3fn")], ids=str)
@pytest.mark.parametrize("bounds", _BOUNDS, ids=str)
def test_loop_with_masks_and_masked_store(
    element: Type, bounds: tuple[int, int, int, int], agree: Callable[..., Any]
) -> None:
    """The accumulator starts at zero, is carried, and goes through arithmetic before it is
    stored."""
    edges = _Edges(bounds)
    b, accumulator = edges.b, I32 if element is I8 else F32
    draw = Draw(-9, 9) if element is I8 else Draw(-2, 2, integral=True)
    zero = edges.kernel.constant(TileType((_M, _N), accumulator), 0)

    def body(_: Value, total: Value) -> Value:
        value: Value = b.dot(*operands, total)
        return value

    operands = edges.operands(element, draw)
    region = edges.kernel.region((I32, zero.type), body)
    total = b.region_op(
        "for", *(edges.kernel.constant(I32, value) for value in (0, 3, 1)), [zero], regions=[region]
    ).result
    edges.kernel.store(b.add(b.mul(total, total), zero), edges.mask(True, True))
    agree(edges.kernel.finish())


@pytest.mark.parametrize("bounds", _BOUNDS, ids=str)
def test_result_that_is_also_summed(
    bounds: tuple[int, int, int, int], agree: Callable[..., Any]
) -> None:
    """A masked store does not hide the rows beyond the edge where another operation reads them."""
    edges = _Edges(bounds)
    a, b = edges.operands(F32, _SPECIAL)
    result = edges.b.dot(a, b, edges.kernel.load(F32, (_M, _N), INTEGRAL))
    edges.kernel.store(result, edges.mask(True, True))
    combine = edges.kernel.region((F32, F32), lambda x, y: edges.b.max(x, y))
    edges.kernel.store(edges.b.region_op("reduce", result, regions=[combine], axis=0).result)
    agree(edges.kernel.finish())


def test_other_that_is_not_zero_counts(agree: Callable[..., Any]) -> None:
    edges = _Edges((20, 30, 10, 10))
    a, b = edges.operands(F32, INTEGRAL, other=2.0)
    edges.kernel.store(
        edges.b.dot(a, b, edges.kernel.constant(TileType((_M, _N), F32), 0.0)),
        edges.mask(True, True),
    )
    agree(edges.kernel.finish())


def test_transposed_and_widened_remainders(agree: Callable[..., Any]) -> None:
    for bounds in _BOUNDS:
        edges = _Edges(bounds)
        b = edges.b
        a = b.permute(edges.load(F16, (edges.k_of_a, edges.rows), (_K, _M), INTEGRAL), order=(1, 0))
        other = b.permute(
            edges.load(F16, (edges.columns, edges.k_of_b), (_N, _K), INTEGRAL), order=(1, 0)
        )
        wide = [b.cast(value, result=TileType(value.type.shape, F32)) for value in (a, other)]
        edges.kernel.store(
            b.dot(*wide, edges.kernel.constant(TileType((_M, _N), F32), 0.0)),
            edges.mask(True, True),
        )
        agree(edges.kernel.finish())


def test_mask_from_memory(agree: Callable[..., Any]) -> None:
    """A mask that is no bound."""
    kernel = SampleKernel("dot")
    pointer = kernel.pointers(kernel.pointer(F32, (_M, _K), INTEGRAL), (_M, _K))
    a = kernel.b.load(
        pointer, mask=kernel.load(I1, (_M, _K)), other=kernel.constant(TileType((_M, _K), F32), 0.0)
    )
    kernel.store(
        kernel.b.dot(a, kernel.load(F32, (_K, _N), INTEGRAL), kernel.load(F32, (_M, _N), INTEGRAL))
    )
    agree(kernel.finish())


@tilewright.jit
def _masked_product(a, b, out, m, n, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    rows, columns, inner = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    x = tl.load(
        a + rows[:, None] * k + inner[None, :],
        mask=(rows[:, None] < m) & (inner[None, :] < k),
        other=0.0,
    )
    y = tl.load(
        b + inner[:, None] * n + columns[None, :],
        mask=(inner[:, None] < k) & (columns[None, :] < n),
        other=0.0,
    )
    at = rows[:, None] * n + columns[None, :]
    tl.store(out + at, tl.dot(x, y), mask=(rows[:, None] < m) & (columns[None, :] < n))


@pytest.mark.parametrize(("m", "n", "k"), [(5, 90, 50), (64, 128, 64), (63, 1, 17)])
def test_operands_that_masks_cut_take_little_code(
    m: int,
    n: int,
    k: int,
    module_of: Callable[..., Any],
    same_as_reference: Callable[..., list[Any]],
) -> None:
    rng = np.random.default_rng(m)
    arguments = [
        rng.random((m, k), dtype=np.float32),
        rng.random((k, n), dtype=np.float32),
        np.zeros((m, n), np.float32),
        m,
        n,
        k,
    ]
    module = module_of(_masked_product, arguments, optimise=True, M=64, N=128, K=64)
    # for each operand one loop under its mask; on machines without masks the chunk that its bound
    # cuts, of a row inside, and the one of a row outside
    for name, loads in (("x86-64-v4", 2), ("x86-64-v3", 4)):
        text = write_module(module, named_target(name), {}).text
        assert len(re.findall(r"call <\d+ x float> @llvm\.masked\.load", text)) == loads
    same_as_reference(module, arguments, relative=1e-5)


@pytest.mark.each_value
@pytest.mark.parametrize("element", [np.float32, np.float64], ids=["f32", "f64"])
@pytest.mark.parametrize("columns", [4, 64, 1024])
@pytest.mark.parametrize("m", [1, 2, 5, 8, 9])
def test_few_rows_of_a_tile(
    m: int,
    columns: int,
    element: Any,
    module_of: Callable[..., Any],
    same_as_reference: Callable[..., list[Any]],
) -> None:
    rng = np.random.default_rng(m)
    n, k = max(columns - 3, 3), 61
    a, b = rng.random((m, k)).astype(element), rng.random((k, n)).astype(element)
    arguments = [a, b, np.full((m, n), 7, element), m, n, k]
    same_as_reference(
        module_of(_masked_product, arguments, optimise=True, M=16, N=columns, K=64),
        arguments,
        relative=1e-5,
    )


@pytest.mark.each_value
@pytest.mark.parametrize("element", [F16, BF16, I8, FloatType("f8e4m3fn")], ids=str)
@pytest.mark.parametrize("rows", [1, 3, 4, 5])
def test_few_rows_of_narrow_elements(rows: int, element: Type, agree: Callable[..., Any]) -> None:
    edges = _Edges((rows, _N, _K, _K))
    a, b = edges.operands(element, Draw(-9, 9) if element is I8 else Draw(-2, 2, integral=True))
    edges.kernel.store(
        edges.b.dot(a, b, edges.kernel.load(I32 if element is I8 else F32, (_M, _N), INTEGRAL)),
        edges.mask(True, True),
    )
    agree(edges.kernel.finish())


@pytest.mark.parametrize("columns", [48, 44])
def test_tile_of_few_rows(columns: int, agree: Callable[..., Any]) -> None:
    """Without a mask, along K in groups of rows of B and what is left over, and along N in whole
    vectors and a part of one."""
    kernel = SampleKernel("dot")
    a, b = kernel.load(F32, (3, 21), INTEGRAL), kernel.load(F32, (21, columns), INTEGRAL)
    kernel.store(kernel.b.dot(a, b, kernel.load(F32, (3, columns), INTEGRAL)))
    agree(kernel.finish())


@pytest.mark.parametrize(
    ("name", "lanes", "shapes"),
    [("x86-64-v3", 8, [(1, 8)]), ("x86-64-v4", 16, [(4, 4), (4, 4), (2, 8), (1, 8)])],
)
def test_few_rows_read_rows_of_b_side_by_side(
    name: str, lanes: int, shapes: list[tuple[int, int]], module_of: Callable[..., Any]
) -> None:
    """The accumulator goes through memory once for four or eight rows of B, each of whose lines is
    prefetched once for all rows of A that the registers hold, and so for those left over."""
    arguments = [np.zeros((64, 64), np.float32)] * 3
    text = write_module(
        module_of(_masked_product, [*arguments, 1, 64, 64], optimise=True, M=64, N=128, K=64),
        named_target(name),
        {},
    ).text
    loops = [
        body
        for body in re.findall(r"^loop\d+:\n((?:  .*\n)+)", text, re.MULTILINE)
        if "prefetch" in body and "llvm.fma" in body
    ]
    assert len(loops) == len(shapes)
    for body, (rows, rows_of_b) in zip(loops, shapes, strict=True):
        assert body.count("llvm.fma") == 2 * rows_of_b * rows
        assert body.count("llvm.prefetch") == 2 * rows_of_b * lanes * 4 // 64
        assert body.count(f"store <{lanes} x float>") == 2 * rows


def test_addresses_of_rows_are_computed_in_front_of_the_loops_along_them(
    module_of: Callable[..., Any],
) -> None:
    arguments = [np.zeros((64, 64), np.float32)] * 3
    text = write_module(
        module_of(_masked_product, [*arguments, 64, 64, 64], optimise=True, M=64, N=128, K=64),
        named_target("x86-64-v4"),
        {},
    ).text
    loops = [
        block
        for block in re.findall(r"^(loop\d+):\n((?:  .*\n)+)", text, re.MULTILINE)
        if f"label %{block[0]}," in block[1]
    ]
    copies = [body for _, body in loops if "masked.load" in body and "store <16 x float>" in body]
    assert copies and not any(" = mul " in body for body in copies)


@tilewright.jit
def _masked_loop(a, b, out, m, n, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    rows, columns, inner = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    row_inside, column_inside = rows[:, None] < m, columns[None, :] < n
    total = tl.zeros((M, N), tl.float32)
    for start in range(0, k, K):
        x = tl.load(
            a + rows[:, None] * k + start + inner[None, :],
            mask=row_inside & (inner[None, :] < k - start),
            other=0.0,
        )
        y = tl.load(
            b + (start + inner[:, None]) * n + columns[None, :],
            mask=(inner[:, None] < k - start) & column_inside,
            other=0.0,
        )
        total = tl.dot(x, y, total)
    tl.store(out + rows[:, None] * n + columns[None, :], total, mask=row_inside & column_inside)


@pytest.mark.parametrize(
    ("m", "n", "k", "kibibytes"),
    [(100, 2, 66, 80), (100, 100, 2, 80), (2, 2, 66, 16), (2, 100, 3, 16)],
)
def test_memory_of_the_remainder_is_not_written(
    m: int,
    n: int,
    k: int,
    kibibytes: int,
    module_of: Callable[..., Any],
    compiled: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Neither of the accumulator, which nobody sees there, nor of copies and packed panels of
    operands, which nobody multiplies."""
    monkeypatch.setattr(stack_slots, "STACK_LIMIT", 0)
    rng = np.random.default_rng(m)
    a, b = (rng.integers(-8, 8, shape).astype(np.float32) for shape in ((m, k), (k, n)))
    out = np.full((m, n), np.nan, np.float32)
    arguments = [a, b, out, m, n, k]
    kernel = compiled(module_of(_masked_loop, arguments, optimise=True, M=128, N=128, K=64))
    size, cleared = kernel.code.metadata["memory_bytes"], kernel.code.metadata["cleared_bytes"]
    memory = np.full(size + ALIGNMENT, 0xA5, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    memory[start : start + cleared] = 0
    kernel._function(
        kernel.pack(arguments, (1, 1, 1)).ctypes.data, 0, 1, memory.ctypes.data + start
    )
    np.testing.assert_array_equal(out, a @ b)
    assert np.count_nonzero(memory[start + cleared :] != 0xA5) <= kibibytes << 10


@tilewright.jit
def _short_steps(a_ptr, b_ptr, c_ptr, M, N, K, BLOCK: tl.constexpr, BLOCK_K: tl.constexpr):
    rows, columns = tl.arange(0, BLOCK), tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK, BLOCK), tl.float32)
    for start in range(0, K, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)
        a_mask = (rows[:, None] < M) & (k[None, :] < K)
        b_mask = (k[:, None] < K) & (columns[None, :] < N)
        a = tl.load(a_ptr + rows[:, None] * K + k[None, :], mask=a_mask, other=0.0)
        b = tl.load(b_ptr + k[:, None] * N + columns[None, :], mask=b_mask, other=0.0)
        total = tl.dot(a, b, total)
    c_mask = (rows[:, None] < M) & (columns[None, :] < N)
    tl.store(c_ptr + rows[:, None] * N + columns[None, :], total, mask=c_mask)


@pytest.mark.parametrize("block_k", [1, 2, 4, 8, 16])
@pytest.mark.parametrize("element", ["float32", "bfloat16"])
def test_tiles_with_fewer_steps_than_are_multiplied_at_once(block_k: int, element: str) -> None:
    import ml_dtypes

    rng, dtype = np.random.default_rng(0), np.dtype(getattr(ml_dtypes, element, element))
    for m, n, k in ((33, 40, 19), (3, 32, 8), (64, 64, 16)):
        a, b = (rng.integers(-4, 5, shape).astype(dtype) for shape in ((m, k), (k, n)))
        c = np.full((m, n), np.nan, np.float32)
        given = [
            tilewright.reinterpret(each.view(np.int16), tl.bfloat16)
            if element == "bfloat16"
            else each
            for each in (a, b)
        ]
        _short_steps[(1,)](*given, c, m, n, k, BLOCK=64, BLOCK_K=block_k, backend="cpu")
        np.testing.assert_array_equal(c, a.astype(np.float64) @ b.astype(np.float64))


def test_columns_left_over_have_tall_blocks(module_of: Callable[..., Any]) -> None:
    """As many rows as registers hold: a step along K waits for the one before it in each sum."""
    arguments = [np.zeros((64, 64), np.float32)] * 3
    text = write_module(
        module_of(_masked_product, [*arguments, 64, 64, 64], optimise=True, M=64, N=128, K=64),
        named_target("x86-64-v3"),
        {},
    ).text
    loops = re.findall(r"^loop\d+:\n((?:  .*\n)+)", text, re.MULTILINE)
    assert any(
        body.count("llvm.fma") == 12 and body.count("load <8 x float>") == 1 for body in loops
    )


@tilewright.jit
def _transposed_product(a, b, out, m, n, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    rows, columns, inner = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    x = tl.load(
        a + rows[:, None] * k + inner[None, :],
        mask=(rows[:, None] < m) & (inner[None, :] < k),
        other=0.0,
    )
    y = tl.load(
        b + inner[:, None] + columns[None, :] * k,
        mask=(inner[:, None] < k) & (columns[None, :] < n),
        other=0.0,
    )
    tl.store(
        out + rows[:, None] * n + columns[None, :],
        tl.dot(x, y),
        mask=(rows[:, None] < m) & (columns[None, :] < n),
    )


@pytest.mark.each_value
@pytest.mark.parametrize("element", [np.float32, np.float64, np.float16], ids=["f32", "f64", "f16"])
@pytest.mark.parametrize(("n", "k"), [(61, 41), (64, 64), (3, 64), (64, 5)])
@pytest.mark.parametrize("m", [1, 3, 8, 9, 16])
def test_masked_columns_that_are_contiguous(
    m: int,
    n: int,
    k: int,
    element: Any,
    module_of: Callable[..., Any],
    same_as_reference: Callable[..., list[Any]],
) -> None:
    rng = np.random.default_rng(m)
    result = np.full((m, n), 7, np.float64 if element is np.float64 else np.float32)
    arguments = [
        rng.random((m, k)).astype(element),
        rng.random((n, k)).astype(element),
        result,
        m,
        n,
        k,
    ]
    same_as_reference(
        module_of(_transposed_product, arguments, optimise=True, M=16, N=64, K=64),
        arguments,
        relative=1e-5,
    )


@pytest.mark.parametrize(("rows", "columns"), [(3, 48), (8, 11)])
def test_tile_of_few_rows_and_contiguous_columns(
    rows: int, columns: int, agree: Callable[..., Any]
) -> None:
    kernel = SampleKernel("dot")
    a, b = kernel.load(BF16, (rows, 64), INTEGRAL), kernel.load(BF16, (columns, 64), INTEGRAL)
    kernel.store(
        kernel.b.dot(
            a, kernel.b.permute(b, order=(1, 0)), kernel.load(F32, (rows, columns), INTEGRAL)
        )
    )
    agree(kernel.finish())


@pytest.mark.parametrize(("name", "lanes"), [("x86-64-v3", 8), ("x86-64-v4", 16)])
def test_contiguous_columns_are_read_and_copied_along_k(
    name: str, lanes: int, module_of: Callable[..., Any]
) -> None:
    """Where a mask cuts a tile its copy lies as the tile does, and few rows multiply vectors along
    K, with no transposition."""
    arguments = [np.zeros((64, 64), np.float32)] * 3
    text = write_module(
        module_of(_transposed_product, [*arguments, 64, 64, 64], optimise=True, M=64, N=128, K=64),
        named_target(name),
        {},
    ).text
    assert "masked.scatter" not in text and "masked.gather" not in text
    loops = re.findall(r"^loop\d+:\n((?:  .*\n)+)", text, re.MULTILINE)
    assert any(
        body.count("llvm.fma") == 8
        and body.count(f"load <{lanes} x float>") == 9
        and "shuffle" not in body
        for body in loops
    )
    # two or four rows of A share the loads of B where there are 32 registers
    for loads in (10, 8):
        shared = any(
            body.count("llvm.fma") == 16 and body.count(f"load <{lanes} x float>") == loads
            for body in loops
        )
        assert shared == (name == "x86-64-v4")
