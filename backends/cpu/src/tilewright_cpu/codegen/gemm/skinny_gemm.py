"""Matmuls with few rows: B streams through once, and reading it takes nearly all of the time.

A tile of B is a few hundred bytes each of rows that lie far apart, which no hardware prefetcher
follows. So a few rows of B are read side by side, a cache line of each in turn, and the same line
of rows further on is prefetched into the second-level cache: more requests can be in flight there
than the nearest cache has buffers for. The accumulator, which stays in the nearest cache, is loaded
and stored once for these rows together. Two or four rows of A share what is read of B where there
are registers for it, so that loads do not take longer than the multiplications.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from tilewright.ir.types import FloatType, byte_size
from tilewright.llvm.emission.registers import storage_type
from tilewright.llvm.emission.writer import FunctionWriter
from tilewright_cpu.codegen.gemm.extent_limit import Limits
from tilewright_cpu.codegen.gemm.gemv import write_columns_block
from tilewright_cpu.codegen.gemm.microkernel import (
    Kernel,
    masked_load,
    masked_store,
    multiply_k_groups,
)
from tilewright_cpu.codegen.gemm.operand import Accumulator
from tilewright_cpu.codegen.gemm.pack import Matrix, address, fetch, plus, scaled
from tilewright_cpu.codegen.gemm.plan import Block, Extent, Panel, Scheme, split_columns
from tilewright_cpu.codegen.gemm.widen import widen
from tilewright_cpu.hardware import Hardware

#: Up to this many rows; with more, packing B pays.
_MAX_ROWS: Final = 8
#: Rows of B that are read side by side: with 4, 0.95 of the bandwidth.
ROWS_PER_PASS: Final = 8
#: Rows of A that share reads of B, and how many rows of B (or columns, along K), so that the
#: registers hold the elements of A or the accumulators; the first shapes take what rows they can.
_SHAPES: Final[tuple[tuple[int, int], ...]] = ((4, 4), (2, ROWS_PER_PASS), (1, ROWS_PER_PASS))
_REGISTERS_TO_SHARE: Final = 32
#: Rows of A for which the loads of vectors along K run ahead far enough by themselves.
_ROWS_WITHOUT_PREFETCH: Final = 2
#: Bytes of B that are prefetched: some times what memory delivers in its latency.
_AHEAD_BYTES: Final = 8 << 10


def max_rows(hardware: Hardware, scheme: Scheme, b: Matrix) -> int:
    """Maximum of rows that count as few.

    It is half as many where B is converted for each row: no two rows share the registers.
    """
    shares = storage_type(b.element) == scheme.element or hardware.registers >= _REGISTERS_TO_SHARE
    return _MAX_ROWS if shares else _MAX_ROWS // 2


def write_rows(
    w: FunctionWriter,
    hardware: Hardware,
    kernel: Kernel,
    a: Matrix,
    b: Matrix,
    c: Accumulator,
    limits: Limits,
) -> None:
    """Write ``c += a @ b`` for B with contiguous rows and K-groups of one element.

    Where ``c.zero`` it is ``c = a @ b``.
    """
    size = byte_size(b.element)
    lanes = hardware.vector_bytes // kernel.scheme.k_group_bytes
    while lanes > 1 and lanes >= 2 * b.columns:
        lanes //= 2
    # a cache line of accumulators, and two vectors at least
    vectors = min(
        max(2, hardware.limit("line_bytes") // hardware.vector_bytes), -(-b.columns // lanes)
    )
    panels = split_columns(b.columns, Block(1, vectors, lanes))
    ahead = max(ROWS_PER_PASS, -(-_AHEAD_BYTES // (b.columns * size)))
    rows = limits.rows or str(a.rows)
    counts = [
        limits.blocks(w, limits.columns, panel.start, panel.columns, panel.count)
        for panel in panels
    ]
    if c.zero:
        _clear(w, c, rows, limits.columns or str(b.columns))
    whole, rest = divmod(a.columns, ROWS_PER_PASS)
    for first, count, steps in (
        (0, whole, ROWS_PER_PASS),
        (whole * ROWS_PER_PASS, min(rest, 1), rest),
    ):
        if not count:
            continue
        with w.loop("0", str(limits.blocks(w, limits.k, first, steps, count)), 1) as groups:
            k = plus(w, scaled(w, groups.index, steps), first)
            b_rows = [address(w, b, plus(w, k, r), 0) for r in range(steps)]

            def add(row: Extent, number: int, k: Extent = k, b_rows: list[str] = b_rows) -> None:
                """Add the products of ``number`` rows of A, from ``row`` on, and ``b_rows``."""
                steps, stored = len(b_rows), storage_type(c.element)
                here = [plus(w, row, r) for r in range(number)]
                factors = [
                    [_factor(w, hardware, kernel, a, each, plus(w, k, r)) for r in range(steps)]
                    for each in here
                ]
                c_rows = [w.gep(stored, c.pointer, scaled(w, r, c.row_stride)) for r in here]
                later = scaled(w, ahead, b.row_stride)
                for panel, panel_count in zip(panels, counts, strict=True):
                    _write_panels(
                        w, hardware, kernel, factors, b, b_rows, later, c_rows, c.align, panel,
                        panel_count,
                    )  # fmt: skip

            for row, number, together in _shapes_of_rows(w, hardware, rows, a.rows):
                for start in range(0, steps, together):
                    add(row, number, plus(w, k, start), b_rows[start : start + together])


def write_rows_along_k(
    w: FunctionWriter,
    hardware: Hardware,
    kernel: Kernel,
    a: Matrix,
    b: Matrix,
    c: Accumulator,
    limits: Limits,
) -> None:
    """Write ``c += a @ b`` for B with contiguous columns and A with contiguous rows.

    Where ``c.zero`` it is ``c = a @ b``. A has accumulator elements. Vectors run along K, and the
    lanes of the accumulators of a few columns are added up at the end. With more rows than
    :data:`_ROWS_WITHOUT_PREFETCH`, the columns of the next block along K are prefetched.
    """
    element, size = kernel.scheme.accumulator, byte_size(b.element)
    lanes = hardware.vector_bytes // kernel.scheme.k_group_bytes
    block = min(hardware.column_rows, lanes)
    columns = b.transposed

    def convert(value: str, width: int) -> str:
        return widen(w, b.element, value, width, element, hardware.can("half"))

    rows = limits.rows or str(a.rows)

    def write(first: Extent, count: int) -> None:
        with w.when(w.emit(f"icmp sgt i64 {rows}, {_ROWS_WITHOUT_PREFETCH}")):
            for r in range(count):
                later = address(w, b, b.rows, plus(w, first, r))
                for start in range(0, b.rows, hardware.limit("line_bytes") // size):
                    fetch(w, w.gep(storage_type(b.element), later, start))
        for row, number, together in _shapes_of_rows(w, hardware, rows, a.rows):
            pointer = w.gep(storage_type(c.element), c.pointer, scaled(w, row, c.row_stride))
            for start in range(0, count, together):
                write_columns_block(
                    w,
                    element,
                    lanes,
                    kernel.fused,
                    columns,
                    Matrix(address(w, a, row, 0), a.element, a.columns, number, 1, a.row_stride),
                    replace(c, pointer=pointer),
                    convert,
                    plus(w, first, start),
                    min(together, count - start),
                    limits.end,
                    c.row_stride,
                )

    whole, rest = divmod(b.columns, block)
    if whole:
        count = limits.blocks(w, limits.columns, 0, block, whole)
        with w.loop("0", str(count), 1, nonempty=isinstance(count, int)) as blocks:
            write(scaled(w, blocks.index, block), block)
    if rest:
        write(whole * block, rest)


def _shapes_of_rows(
    w: FunctionWriter, hardware: Hardware, rows: str, most: int
) -> Iterator[tuple[str, int, int]]:
    """Write loops over rows of A, the first shapes of which take what they can.

    Yields, inside each loop: the first row, the rows that share reads of B, and how many rows or
    columns of B are read together.
    """
    begin = "0"
    for number, together in _SHAPES:
        if number > 1 and (hardware.registers < _REGISTERS_TO_SHARE or number > most):
            continue
        end = rows if number == 1 else w.emit(f"and i64 {rows}, {-number}")
        with w.loop(begin, end, number) as each:
            yield each.index, number, together
        begin = end


def _clear(w: FunctionWriter, c: Accumulator, rows: str, columns: str) -> None:
    stored = storage_type(c.element)
    with w.loop("0", rows, 1) as each:
        row = w.gep(stored, c.pointer, scaled(w, each.index, c.row_stride))
        with w.loop("0", columns, 1) as loop:
            w.store(
                stored,
                "0.0" if isinstance(c.element, FloatType) else "0",
                w.gep(stored, row, loop.index),
                c.align,
            )


def _factor(
    w: FunctionWriter, hardware: Hardware, kernel: Kernel, a: Matrix, row: Extent, k: Extent
) -> str:
    """An element of A as a K-group."""
    value = w.load(storage_type(a.element), address(w, a, row, k), byte_size(a.element))
    return widen(w, a.element, value, 0, kernel.scheme.element, hardware.can("half"))


def _write_panels(
    w: FunctionWriter,
    hardware: Hardware,
    kernel: Kernel,
    factors: list[list[str]],
    b: Matrix,
    b_rows: list[str],
    later: Extent,
    c_rows: list[str],
    align: int,
    panel: Panel,
    count: Extent,
) -> None:
    """Add each row's factors times rows of B to ``count`` panels of rows of the accumulator.

    ``later``: how many elements further on B is prefetched.
    """
    k_group, stored, size = kernel.scheme.k_group, storage_type(b.element), byte_size(b.element)
    splats = {
        width: [[w.splat(k_group, factor, width) for factor in row] for row in factors]
        for width in set(panel.widths)
    }
    vectors = [(sum(panel.widths[:v]), width, width) for v, width in enumerate(panel.widths)]
    vectors[-1] = (*vectors[-1][:2], panel.valid)
    with w.loop(
        "0", str(scaled(w, count, panel.columns)), panel.columns, nonempty=isinstance(count, int)
    ) as loop:
        column = plus(w, loop.index, panel.start)
        fetched = plus(w, column, later)
        targets = [w.gep(k_group, c_row, column) for c_row in c_rows]
        accumulators = [
            [
                masked_load(w, k_group, w.gep(k_group, target, start), align, width, valid)
                for start, width, valid in vectors
            ]
            for target in targets
        ]
        for r, b_row in enumerate(b_rows):
            ahead, here = w.gep(stored, b_row, fetched), w.gep(stored, b_row, column)
            for start in range(0, panel.columns, hardware.limit("line_bytes") // size):
                fetch(w, w.gep(stored, ahead, start))
            for v, (start, width, valid) in enumerate(vectors):
                value = masked_load(w, stored, w.gep(stored, here, start), size, width, valid)
                value = widen(
                    w, b.element, value, width, kernel.scheme.element, hardware.can("half")
                )
                for row, sums in enumerate(accumulators):
                    sums[v] = multiply_k_groups(
                        w, kernel, splats[width][row][r], value, sums[v], width
                    )
        for target, sums in zip(targets, accumulators, strict=True):
            for (start, width, valid), total in zip(vectors, sums, strict=True):
                place = w.gep(k_group, target, start)
                masked_store(w, k_group, total, place, align, width, valid)
