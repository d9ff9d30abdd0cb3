"""A matmul of matrices in memory: chooses its form, and writes the loops over blocks."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from tilewright.ir.types import F16, F32, F64, I32, FloatType, IntType, Type, byte_size
from tilewright.llvm.emission.registers import storage_type
from tilewright.llvm.emission.writer import FunctionWriter
from tilewright_cpu.codegen.gemm.amx import configured
from tilewright_cpu.codegen.gemm.amx_microkernel import (
    is_a_resident,
    write_resident_rows,
    write_tile_block,
)
from tilewright_cpu.codegen.gemm.batched_k import (
    BatchedAccumulation,
    IterationQueue,
    QueuedIterations,
    batch_depth,
)
from tilewright_cpu.codegen.gemm.extent_limit import Limits
from tilewright_cpu.codegen.gemm.gemv import MAX_COLUMNS, write_columns
from tilewright_cpu.codegen.gemm.microkernel import Kernel, write_block, write_column_totals
from tilewright_cpu.codegen.gemm.operand import Accumulator, KGroupsA, KGroupsB, ResultRows
from tilewright_cpu.codegen.gemm.operand_placement import (
    a_in_place,
    is_near,
    is_near_now,
    may_be_near,
    operand_a,
    operand_b,
    reads_b_in_place,
)
from tilewright_cpu.codegen.gemm.pack import Matrix, Packer, plus, scaled
from tilewright_cpu.codegen.gemm.plan import (
    FMA32,
    FMA64,
    IEEE,
    TILE,
    Block,
    Extent,
    Panel,
    a_is_unsigned,
    block_of,
    choose_block,
    choose_scheme,
    flips_sign,
    packed_columns,
    split_columns,
    split_rows,
)
from tilewright_cpu.codegen.gemm.problem import BUFFER_ELEMENT, Allocate, Gemm
from tilewright_cpu.codegen.gemm.skinny_gemm import (
    ROWS_PER_PASS,
    max_rows,
    write_rows,
    write_rows_along_k,
)
from tilewright_cpu.codegen.gemm.widen import widen
from tilewright_cpu.hardware import Hardware

#: With fewer steps along K, adding up the lanes of vectors along K costs more than it saves.
_MIN_K = 16


def steps_at_once(
    elements: tuple[Type, Type], extents: tuple[int, int, int], hardware: Hardware, precision: str
) -> int | None:
    """Maximum of the steps along K that are multiplied together, a power of two; None for all."""
    if extents[1] <= MAX_COLUMNS:
        return None
    scheme = choose_scheme(*elements, hardware, extents, precision)
    lanes = hardware.vector_bytes // byte_size(F32)
    return max(ROWS_PER_PASS, lanes, scheme.group * (TILE if scheme.tiled else 1))


def write_gemm(gemm: Gemm) -> None:
    """Write a matmul at the writer's position."""
    w, a, b = gemm.w, gemm.a, gemm.b
    if (
        not gemm.sequential
        and b.columns <= MAX_COLUMNS
        and isinstance(gemm.c.element, FloatType)
        and a.column_stride == 1
        and a.columns >= _MIN_K
    ):
        _write_columns(gemm)
        return
    few, write_rows_alone = _widened(gemm), _few_rows(gemm)
    rows, most = gemm.limits.rows, max_rows(gemm.hardware, few.scheme, b)

    def write_few(few: Gemm, most: int) -> None:
        assert write_rows_alone is not None
        if gemm.loop is not None:
            lanes = gemm.hardware.vector_bytes // few.scheme.k_group_bytes
            gemm.loop.clear(w, lanes, gemm.c, rows or a.rows, gemm.limits.columns or b.columns)
        write_rows_alone(few, most)

    if write_rows_alone is None:
        _write_whole(gemm)
    elif a.rows <= most and not is_near(gemm.hardware, b):
        write_few(few, a.rows)
    elif a.rows <= most or rows is None:
        _write_whole(gemm)
    else:
        narrow, wide, join = w.new_block("few"), w.new_block("many"), w.new_block("join")
        w.branch_if(w.emit(f"icmp ule i64 {rows}, {most}"), narrow, wide)
        w.place(narrow)
        write_few(few, most)
        w.branch(join)
        w.place(wide)
        _write_whole(gemm)
        w.branch(join)
        w.place(join)


def _few_rows(gemm: Gemm) -> Callable[[Gemm, int], None] | None:
    """The function that writes a matmul with few rows, None where B must be packed for it too.

    It takes the maximum of rows.
    """
    hardware, a, b, c = gemm.hardware, gemm.a, gemm.b, gemm.c
    scheme = _widened(gemm).scheme
    if c.element is F16 or scheme.group > 1:
        return None
    # many rows must be added up alike: in the same instructions, one k after the other
    one_order = gemm.sequential or (gemm.invariant and isinstance(c.element, FloatType))
    if one_order and scheme != gemm.scheme:
        return None
    if b.column_stride == 1:
        return _write_rows
    lanes = hardware.vector_bytes // scheme.k_group_bytes
    if (
        b.row_stride == 1
        and not one_order
        and isinstance(c.element, FloatType)
        and a.columns % lanes == 0
        and a.columns >= _MIN_K
    ):
        return _write_rows_along_k
    return None


def _write_rows(gemm: Gemm, rows: int) -> None:
    kernel = Kernel(gemm.scheme, gemm.hardware.can("fused"), False, gemm.a.columns, gemm.a.columns)
    write_rows(gemm.w, gemm.hardware, kernel, gemm.a, gemm.b, gemm.c, gemm.limits)


def _write_rows_along_k(gemm: Gemm, rows: int) -> None:
    w, hardware, scheme = gemm.w, gemm.hardware, gemm.scheme
    a = replace(gemm.a, rows=rows)
    if storage_type(a.element) != scheme.element or a.column_stride != 1:
        element = BUFFER_ELEMENT[scheme.k_group]
        packed = gemm.allocate(a.rows * a.columns, element)
        Packer(w, scheme, a.transposed, False, hardware).pack_transposed(
            packed, hardware.vector_bytes // scheme.k_group_bytes
        )
        a = Matrix(packed, element, a.rows, a.columns, a.columns, 1)
    kernel = Kernel(scheme, hardware.can("fused"), False, a.columns, a.columns)
    write_rows_along_k(w, hardware, kernel, a, gemm.b, gemm.c, gemm.limits)


def _widened(gemm: Gemm) -> Gemm:
    """The matmul whose narrow floats are multiplied in f32, for which B need not be packed."""
    narrow = isinstance(gemm.c.element, FloatType) and gemm.c.element is F32
    return replace(gemm, elements=(F32, F32), precision=IEEE) if narrow else gemm


def _write_whole(gemm: Gemm) -> None:
    """Write the matmul by blocks of accumulators in registers."""
    w, hardware, a, b, limits, scheme = (
        gemm.w,
        gemm.hardware,
        gemm.a,
        gemm.b,
        gemm.limits,
        gemm.scheme,
    )
    block = block_of(scheme, gemm.elements, a.rows, b.columns, hardware)
    panels = split_columns(b.columns, block)
    flip = flips_sign(scheme, *gemm.elements)
    queue = _iteration_queue(gemm, block, panels)
    room = gemm.allocate if queue is None else queue.room
    k_groups_a = operand_a(gemm, flip, room)
    k_groups_b = operand_b(gemm, panels, -(-a.rows // block.rows), room)
    k_groups = -(-a.columns // scheme.group)
    steps = limits.blocks(w, limits.k, 0, scheme.group, k_groups)
    kernel = Kernel(scheme, hardware.can("fused"), a_is_unsigned(a.element, flip), k_groups, steps)
    destination = None if gemm.loop is None else gemm.loop.destination
    if destination is not None:
        if a_in_place(scheme, a, flip):
            destination.note_overlap(w, a)
        if not k_groups_b.packed:
            destination.note_overlap(w, b)

    def multiply(queued: QueuedIterations | None) -> None:
        corrected = (
            _corrected(w, kernel, b, k_groups_b, panels, gemm.allocate, queued) if flip else kernel
        )
        with configured(w) if scheme.tiled else contextlib.nullcontext():
            _write_blocks(
                w,
                hardware,
                corrected,
                gemm.elements,
                k_groups_a,
                k_groups_b,
                _loop_accumulator(gemm, min(a.rows, max(block.rows, 2 * hardware.block[0]))),
                a.rows,
                block,
                panels,
                limits,
                queued,
            )

    if queue is None:
        multiply(None)
    else:
        queued = queue.add(k_groups_a, k_groups_b, steps)
        with w.when(queued.due):
            multiply(queued)


def _loop_accumulator(gemm: Gemm, tallest: int) -> Accumulator:
    """The accumulator in this iteration of its loop, with blocks of up to ``tallest`` rows."""
    w, c, loop = gemm.w, gemm.c, gemm.loop
    if loop is None:
        return c
    c = replace(c, fresh=loop.begin(w))
    to = loop.destination
    if to is None:
        return c
    overlapped = w.emit(f"icmp ne i8 {w.load('i8', to.overlapped)}, 0")
    kept = w.emit(f"or i1 {overlapped}, {w.emit(f'xor i1 {to.whole}, true')}")
    direct = w.emit(f"and i1 {loop.last}, {w.emit(f'xor i1 {kept}, true')}")
    with w.when(direct):
        w.store("i8", "1", to.stored)
    pointer = w.emit(f"select i1 {direct}, ptr {to.pointer}, ptr {c.pointer}")
    stride = w.emit(f"select i1 {direct}, i64 {to.row_stride}, i64 {c.row_stride}")
    offsets = [scaled(w, row, stride) for row in range(tallest)]
    return replace(c, result=ResultRows(pointer, stride, offsets))


def _iteration_queue(gemm: Gemm, block: Block, panels: tuple[Panel, ...]) -> IterationQueue | None:
    """The queue of a loop's iterations; None where they are not batched."""
    a, scheme, hardware = gemm.a, gemm.scheme, gemm.hardware
    if gemm.batching is None:
        return None
    batching, in_place = gemm.batching, reads_b_in_place(gemm, -(-a.rows // block.rows))
    if in_place:
        if batching.b_stays == "false":
            return None
        batching = _waiting_for_b(gemm.w, batching, "true")
    elif may_be_near(gemm, panels):
        batching = _waiting_for_b(gemm.w, batching, is_near_now(gemm))
    k_groups = -(-a.columns // scheme.group)
    columns, rows = (
        0 if in_place else packed_columns(panels),
        0 if a_in_place(scheme, a, flips_sign(scheme, *gemm.elements)) else a.rows,
    )
    panel_bytes = hardware.tiled_panel_bytes if scheme.tiled else hardware.panel_bytes
    panel_k_groups = panel_bytes // (block.columns * scheme.k_group_bytes)
    depth = batch_depth(
        k_groups * scheme.parts,
        panel_k_groups,
        (rows + columns) * k_groups * scheme.packed_bytes,
        hardware.packed_bytes,
    )
    return IterationQueue(gemm.w, batching, depth) if depth > 1 else None


def _waiting_for_b(
    w: FunctionWriter, batching: BatchedAccumulation, in_place: str
) -> BatchedAccumulation:
    """The conditions of batching where B is read in place if an i1 holds."""
    copied = w.emit(f"and i1 {in_place}, {w.emit(f'xor i1 {batching.b_stays}, true')}")
    stays = w.emit(f"and i1 {batching.stays}, {w.emit(f'xor i1 {copied}, true')}")
    return replace(batching, stays=stays)


def _write_columns(gemm: Gemm) -> None:
    """Write a matmul with few columns: make columns of B contiguous, read rows of A in place."""
    w, hardware, b = gemm.w, gemm.hardware, gemm.b
    scheme = FMA64 if gemm.c.element is F64 else FMA32
    lanes = hardware.vector_bytes // scheme.k_group_bytes
    columns = b
    if storage_type(b.element) != scheme.element or b.row_stride != 1:
        packed = gemm.allocate(b.rows * b.columns, BUFFER_ELEMENT[scheme.k_group])
        Packer(w, scheme, b, False, hardware).pack_transposed(packed, lanes)
        columns = Matrix(packed, BUFFER_ELEMENT[scheme.k_group], b.rows, b.columns, 1, b.rows)

    def convert(value: str, width: int) -> str:
        return widen(w, gemm.a.element, value, width, scheme.element, hardware.can("half"))

    write_columns(w, scheme.element, lanes, hardware, gemm.a, columns, gemm.c, convert)


def _corrected(
    w: FunctionWriter,
    kernel: Kernel,
    b: Matrix,
    k_groups_b: KGroupsB,
    panels: tuple[Panel, ...],
    allocate: Allocate,
    queued: QueuedIterations | None,
) -> Kernel:
    """The kernel with the correction that A moved by 128 needs."""
    assert isinstance(b.element, IntType)
    correction = allocate(packed_columns(panels), I32)
    # A + 128 unsigned adds 128 * B too much, A - 128 signed as much too little.
    write_column_totals(
        w,
        kernel,
        k_groups_b,
        panels,
        not b.element.signed,
        -128 if kernel.a_unsigned else 128,
        correction,
        queued,
    )
    return replace(kernel, correction=correction)


def _write_blocks(
    w: FunctionWriter,
    hardware: Hardware,
    kernel: Kernel,
    elements: tuple[Type, Type],
    a: KGroupsA,
    b: KGroupsB,
    c: Accumulator,
    m: int,
    block: Block,
    panels: tuple[Panel, ...],
    limits: Limits,
    queued: QueuedIterations | None,
) -> None:
    """Write the loops over panels of columns and, inside, blocks of rows.

    So a panel of B stays in the nearest cache. The order is reversed where tiles hold rows of A.
    """
    lone = (
        None
        if limits.columns is None or kernel.scheme.tiled or block.vectors == 1
        else choose_block(m, block.lanes, block.lanes, hardware)
    )
    tallest = block.rows if lone is None else max(block.rows, lone.rows)
    row_offsets: list[Extent] = [scaled(w, r, a.row_stride) for r in range(min(m, tallest))]

    def in_blocks(block: Block) -> list[tuple[int, Extent, int]]:
        return [
            (first, limits.blocks(w, limits.rows, first, rows, count), rows)
            for first, count, rows in split_rows(m, block)
        ]

    rows_of_blocks, rows_of_lone = in_blocks(block), [] if lone is None else in_blocks(lone)
    panel_counts = [
        limits.blocks(w, limits.columns, panel.start, panel.columns, panel.count)
        for panel in panels
    ]

    def each_panel() -> Iterator[tuple[Panel, Extent]]:
        for panel, count in zip(panels, panel_counts, strict=True):
            with w.loop("0", str(count), 1, nonempty=isinstance(count, int)) as columns:
                yield panel, plus(w, scaled(w, columns.index, panel.columns), panel.start)

    def each_row(
        rows_of_blocks: Sequence[tuple[int, Extent, int]] = rows_of_blocks,
    ) -> Iterator[tuple[int, Extent]]:
        for first, count, rows in rows_of_blocks:
            with w.loop("0", str(count), 1, nonempty=isinstance(count, int)) as blocks:
                yield rows, plus(w, scaled(w, blocks.index, rows), first)

    if is_a_resident(kernel, queued):
        for rows, row in each_row():
            write_resident_rows(w, kernel, elements, a, b, c, row, rows, each_panel)
        return

    def write(
        panel: Panel,
        column: Extent,
        rows_of_blocks: Sequence[tuple[int, Extent, int]] = rows_of_blocks,
    ) -> None:
        for rows, row in each_row(rows_of_blocks):
            if kernel.scheme.tiled:
                write_tile_block(w, kernel, elements, a, b, c, row, rows, panel, column, queued)
            else:
                write_block(w, kernel, a, b, c, row, row_offsets[:rows], panel, column, queued)

    for panel, column in each_panel():
        narrow = None if lone is None else panel.first_vector
        if narrow is None:
            write(panel, column)
            continue
        # the last panel below a limit costs what its columns do: often a few of many are left over
        few, many, join = w.new_block("few"), w.new_block("many"), w.new_block("join")
        left = w.emit(f"sub i64 {limits.columns}, {column}")
        w.branch_if(w.emit(f"icmp ule i64 {left}, {narrow.columns}"), few, many)
        w.place(few)
        write(narrow, column, rows_of_lone)
        w.branch(join)
        w.place(many)
        write(panel, column)
        w.branch(join)
        w.place(join)
