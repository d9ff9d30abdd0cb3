"""Matmuls with few columns: vectors run along K, and a block of rows is reduced at the end.

With one column there is nothing to broadcast A against; reading rows of A by vectors uses every
lane.
"""

from __future__ import annotations

from collections.abc import Callable

from tilewright.llvm.emission.registers import storage_size, storage_type
from tilewright.llvm.emission.writer import FunctionWriter, vector
from tilewright_cpu.codegen.gemm.microkernel import (
    masked_load,
    masked_store,
    multiply_add,
    narrowed,
    widened,
)
from tilewright_cpu.codegen.gemm.operand import Accumulator
from tilewright_cpu.codegen.gemm.pack import Matrix, plus, scaled
from tilewright_cpu.codegen.gemm.plan import Extent
from tilewright_cpu.hardware import Hardware

#: Up to this many columns; with more, vectors along N do as well.
MAX_COLUMNS = 4

#: Makes elements as they lie in memory (LLVM name, lanes) elements of the accumulator's type.
Convert = Callable[[str, int], str]


def write_columns(
    w: FunctionWriter,
    element: str,
    lanes: int,
    hardware: Hardware,
    a: Matrix,
    b: Matrix,
    c: Accumulator,
    convert: Convert,
) -> None:
    """Write ``c += a @ b`` for A with contiguous rows and B with contiguous columns.

    B has accumulator elements (LLVM type ``element``). ``c`` must be dense. ``convert`` is for
    elements of A.
    """
    block, fused = min(hardware.column_rows, max(1, lanes // b.columns)), hardware.can("fused")
    whole, rest = divmod(a.rows, block)
    if whole:
        with w.loop("0", str(whole * block), block, nonempty=True) as loop:
            write_columns_block(w, element, lanes, fused, a, b, c, convert, loop.index, block)
    if rest:
        write_columns_block(w, element, lanes, fused, a, b, c, convert, whole * block, rest)


def write_columns_block(
    w: FunctionWriter,
    element: str,
    lanes: int,
    fused: bool,
    a: Matrix,
    b: Matrix,
    c: Accumulator,
    convert: Convert,
    first: Extent,
    rows: int,
    end: str | None = None,
    column_stride: int | None = None,
) -> None:
    """Write ``rows`` rows of C from ``first`` on: an accumulator a row and column.

    They run along K up to ``end`` (an i64), which is a multiple of ``lanes`` as K is then. Where
    C is not dense, its rows are contiguous, and ``column_stride`` apart are its columns.
    """
    stored, type_, columns = storage_type(a.element), vector(element, lanes), b.columns
    corner = w.gep(stored, a.pointer, scaled(w, first, a.row_stride))
    a_rows = [w.gep(stored, corner, scaled(w, r, a.row_stride)) for r in range(rows)]
    b_columns = [w.gep(element, b.pointer, scaled(w, n, b.column_stride)) for n in range(columns)]

    def step(k: Extent, valid: int, accumulators: list[str]) -> list[str]:
        right = [
            masked_load(w, element, w.gep(element, b_column, k), 4, lanes, valid)
            for b_column in b_columns
        ]
        result = []
        for r in range(rows):
            left = convert(
                masked_load(
                    w, stored, w.gep(stored, a_rows[r], k), storage_size(a.element), lanes, valid
                ),
                lanes,
            )
            result += [
                multiply_add(
                    w, fused, element, left, right[n], accumulators[r * columns + n], lanes
                )
                for n in range(columns)
            ]
        return result

    accumulators = ["zeroinitializer"] * (rows * columns)
    whole, rest = divmod(a.columns, lanes)
    if whole:
        with w.loop(
            "0",
            end or str(whole * lanes),
            lanes,
            [(type_, total) for total in accumulators],
            nonempty=end is None,
        ) as loop:
            loop.next_values = step(loop.index, lanes, loop.values)
        accumulators = loop.results
    if rest:
        accumulators = step(whole * lanes, rest, accumulators)
    if column_stride is None:
        # the accumulators are C's elements in order
        places, sums = [scaled(w, first, columns)], [accumulators]
    else:
        places = [plus(w, first, n * column_stride) for n in range(columns)]
        sums = [accumulators[n::columns] for n in range(columns)]
    for place, each in zip(places, sums, strict=True):
        _store_totals(w, element, lanes, each, c, place)


def _store_totals(
    w: FunctionWriter, element: str, lanes: int, sums: list[str], c: Accumulator, place: Extent
) -> None:
    """Add the lanes of each vector up, and add the totals to elements of C from ``place`` on."""
    stored = storage_type(c.element)
    pointer = w.gep(stored, c.pointer, place)
    totals, width = _across_lanes(w, element, lanes, sums)
    if not c.zero:
        old = masked_load(w, stored, pointer, c.align, width, len(sums))
        old = widened(w, c.element, old, width)
        totals = w.emit(f"fadd {vector(element, width)} {totals}, {old}")
    totals = narrowed(w, c.element, totals, width)
    masked_store(w, stored, totals, pointer, c.align, width, len(sums))


def _across_lanes(
    w: FunctionWriter, element: str, lanes: int, vectors: list[str]
) -> tuple[str, int]:
    """(a vector whose lane i is the sum of the lanes of vector i, its lanes: a power of two).

    A round joins pairs of vectors: in every block of lanes the lower half of one is added to its
    upper half, and so is the other's beside it. Once one vector is left, its halves are added until
    there is a lane a sum.
    """
    count = 1 << (len(vectors) - 1).bit_length()
    vectors = vectors + ["zeroinitializer"] * (count - len(vectors))
    type_ = vector(element, lanes)
    step = 1
    while step < count:
        # Lane j of vector i of a round is a partial sum of input i * step + (j mod step).
        low = ", ".join(
            f"i32 {j - j % (2 * step) + j % step + (lanes if j & step else 0)}"
            for j in range(lanes)
        )
        high = ", ".join(
            f"i32 {j - j % (2 * step) + step + j % step + (lanes if j & step else 0)}"
            for j in range(lanes)
        )
        joined = []
        for a, b in zip(vectors[::2], vectors[1::2], strict=True):
            first = w.emit(f"shufflevector {type_} {a}, {type_} {b}, <{lanes} x i32> <{low}>")
            second = w.emit(f"shufflevector {type_} {a}, {type_} {b}, <{lanes} x i32> <{high}>")
            joined.append(w.emit(f"fadd {type_} {first}, {second}"))
        vectors = joined
        step *= 2
    total = vectors[0]
    while lanes > count:
        half = lanes // 2
        parts = []
        for start in (0, half):
            order = ", ".join(f"i32 {start + j}" for j in range(half))
            parts.append(
                w.emit(
                    f"shufflevector {vector(element, lanes)} {total}, {vector(element, lanes)} "
                    f"poison, <{half} x i32> <{order}>"
                )
            )
        total = w.emit(f"fadd {vector(element, half)} {parts[0]}, {parts[1]}")
        lanes = half
    return total, lanes
