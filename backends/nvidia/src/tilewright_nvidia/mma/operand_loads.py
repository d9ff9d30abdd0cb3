"""Loads of MMA operands from shared memory: ``ldmatrix``, transposed or not.

``ldmatrix`` reads 8x8 matrices of 16-bit elements. Each row is 16 contiguous bytes at an address
from one lane. Lane ``4 * g + t`` receives packed register t of row g or, transposed, elements g of
rows 2t and 2t + 1. This loads a fragment if the shared layout keeps contiguous what a row needs:
the elements of a packed register and of the lanes t, or transposed those of the lanes g. All
layouts are linear, so it suffices to check one matrix.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from tilewright.ir.types import Type
from tilewright.llvm.emission.registers import register_type, storage_size
from tilewright.llvm.emission.writer import FunctionWriter
from tilewright.simt.layouts.linear_layout import (
    Basis,
    LinearLayout,
    SharedLayout,
    axis_shifts,
    log2,
    span,
)
from tilewright.simt.layouts.swizzle import accesses
from tilewright.simt.lowering.emission.context import SimtContext
from tilewright.simt.lowering.emission.shared_access import places, plan_accesses
from tilewright_nvidia.codegen.kernel_state import words_in

#: Bytes that all banks of shared memory deliver at once.
_BANKS_BYTES: Final = 128

#: ``prmt`` selectors: for a register with two neighbours of each of two rows, and for two such
#: registers, one selector for each of two columns.
PAIRS_OF_A_WORD: Final = 0x3120
ROWS_OF_TWO_WORDS: Final = (0x6420, 0x7531)


@dataclass(frozen=True, slots=True)
class MatrixLoads:
    """The ``ldmatrix`` instructions that load a fragment, with offsets in bytes.

    Attributes:
        transposed: whether the loads are transposed (``.trans``).
        matrices: matrices per instruction: 1, 2 or 4.
        lanes, warps: images of the lane and warp index bits in the offset of the row that a lane
            addresses.
        steps: offsets of the instructions, in register order.
    """

    transposed: bool
    matrices: int
    lanes: tuple[int, ...]
    warps: tuple[int, ...]
    steps: tuple[int, ...]


@functools.lru_cache(maxsize=1024)
def matrix_loads(layout: LinearLayout, shared: SharedLayout, size: int) -> MatrixLoads | None:
    """Plan the ``ldmatrix`` loads of a fragment; None if ``ldmatrix`` does not fit.

    ``size`` is the number of bytes of an element.
    """
    if size > 4 or len(layout.lanes) != 5:
        return None
    registers, lanes, warps = (
        [size * offset for offset in shared.through(images)]
        for images in (layout.registers, layout.lanes, layout.warps)
    )
    return _matrix_loads(registers, lanes, warps, size)


@functools.lru_cache(maxsize=1024)
def byte_matrix_loads(layout: LinearLayout, shared: SharedLayout) -> MatrixLoads | None:
    """Plan transposed ``ldmatrix`` loads of 8-bit elements, as pairs of 16 bits.

    The elements are contiguous along the axis of a thread's pairs, but packed registers need
    neighbours along the other axis. Register bit 1 distinguishes the elements of a pair, or bit 2
    if a register packs four neighbours.
    """
    if len(layout.lanes) != 5:
        return None
    registers, lanes, warps = (
        list(shared.through(images)) for images in (layout.registers, layout.lanes, layout.warps)
    )
    pair = _pair_bit(registers)
    if pair is None:
        return None
    plan = _matrix_loads(registers[:pair] + registers[pair + 1 :], lanes, warps, 2)
    return plan if plan is not None and plan.transposed else None


def _pair_bit(offsets: Sequence[int]) -> int | None:
    """Return the register bit, 1 or 2, of neighbours in memory; None if neither has them."""
    return next((bit for bit in (1, 2) if bit < len(offsets) and offsets[bit] == 1), None)


def _matrix_loads(
    registers: list[int], lanes: list[int], warps: list[int], size: int
) -> MatrixLoads | None:
    """Plan ``ldmatrix`` from the byte offsets of the register, lane and warp index bits."""
    inner = 2 - log2(size)  # index bits of an element in its register
    words = registers[inner:]
    within, matrices = registers[:inner], words[:2]
    if [*within, *lanes[:2]] == [size << i for i in range(inner + 2)]:
        transposed, rows = False, lanes[2:]
    elif size == 2 and lanes[2:] == [2, 4, 8]:
        transposed, rows = True, [*within, *lanes[:2]]
    else:
        return None
    if any(offset & 15 for offset in (*rows, *words, *warps)):
        return None
    given = (*rows, *matrices, *(0 for _ in range(2 - len(matrices))))
    return MatrixLoads(transposed, 1 << len(matrices), given, tuple(warps), tuple(span(words[2:])))


def matrix_turns(layout: LinearLayout, shared: SharedLayout, size: int) -> int | None:
    """Return the shared memory wavefronts of a warp's ``ldmatrix`` loads; None if it does not fit.

    A matrix whose eight rows are in different banks takes one wavefront.
    """
    plan = matrix_loads(layout, shared, size)
    if plan is None:
        return None
    apart = Basis([offset % _BANKS_BYTES for offset in plan.lanes[:3]]).rank
    return len(plan.steps) * plan.matrices << 3 - apart


def load_operand(
    context: SimtContext,
    layout: LinearLayout,
    element: Type,
    address: str,
    shared: SharedLayout,
    first: int = 0,
) -> list[str] | None:
    """Load an operand, or its step at element ``first``; None if ``ldmatrix`` does not fit."""
    size = storage_size(element)
    plan = matrix_loads(layout, shared, size)
    if plan is None:
        return None
    words = _load_words(context, plan, address, size * shared.offset(first))
    return [
        name
        for word in words
        for name in words_in(context.writer).unpack(
            context.writer, word, "i32", register_type(element)
        )
    ]


def _load_words(context: SimtContext, plan: MatrixLoads, address: str, start: int) -> list[str]:
    """Load a fragment's packed registers from ``start`` bytes after an address."""
    w = context.writer
    thread = context.thread_part(plan.lanes, plan.warps)
    reach = functools.reduce(int.__or__, (*plan.lanes, *plan.warps), 0)
    form = f"x{plan.matrices}{'.trans' if plan.transposed else ''}"
    name = f"llvm.nvvm.ldmatrix.sync.aligned.m8n8.{form}.b16.p3"
    result = "i32" if plan.matrices == 1 else f"{{{', '.join(['i32'] * plan.matrices)}}}"
    words: list[str] = []
    for step in plan.steps:
        # xor the bits that the thread's offset may have set; add the rest as an immediate offset
        step ^= start
        low = step & reach
        place = words_in(w).address(w, address, thread, low)
        if step != low:
            place = w.emit(f"getelementptr i8, ptr addrspace(3) {place}, i32 {step ^ low}")
        loaded = w.call(name, result, [("ptr addrspace(3)", place)])
        words += (
            [loaded]
            if plan.matrices == 1
            else [w.emit(f"extractvalue {result} {loaded}, {i}") for i in range(plan.matrices)]
        )
    return words


def read_fragments(
    context: SimtContext, address: str, layout: LinearLayout, shared: SharedLayout, element: Type
) -> list[str] | None:
    """Load a tile's registers by ``ldmatrix`` or in pairs of bytes; None if neither is better.

    The threads hold the tile as an instruction's operand, or compute one from it. None if neither
    way fits, or if ``ldmatrix`` needs as many instructions as ordinary loads.
    """
    size = storage_size(element)
    if size == 1 and (bytes_plan := byte_matrix_loads(layout, shared)) is not None:
        return _read_transposed_bytes(context, bytes_plan, address, layout, shared, element)
    order = fragment_order(layout, shared, size)
    if size == 1 and accesses(layout, shared, context.target.resources.max_access).width == 2:
        return _read_pairs(context, address, layout, shared, element)
    if order is None:
        return None
    ordered = replace(layout, registers=tuple(layout.registers[bit] for bit in order))
    plan = matrix_loads(ordered, shared, size)
    if plan is None or len(plan.steps) >= len(
        accesses(layout, shared, context.target.resources.max_access // size).groups
    ):
        return None
    names = load_operand(context, ordered, element, address, shared)
    if names is None:
        return None
    found = [""] * len(names)
    for register, name in zip(span([1 << bit for bit in order]), names, strict=True):
        found[register] = name
    return found


def _read_transposed_bytes(
    context: SimtContext,
    plan: MatrixLoads,
    address: str,
    layout: LinearLayout,
    shared: SharedLayout,
    element: Type,
) -> list[str]:
    """Load 8-bit elements by transposed ``ldmatrix``.

    A loaded register has two neighbours in memory of each of two rows; a byte permutation gathers
    those of one row of the operand.
    """
    w = context.writer
    loaded = _load_words(context, plan, address, 0)
    if _pair_bit(shared.through(layout.registers)) == 1:
        words = [words_in(w).permute(w, word, PAIRS_OF_A_WORD) for word in loaded]
    else:
        words = [
            _permuted(w, low, high, bytes_)
            for low, high in zip(loaded[::2], loaded[1::2], strict=True)
            for bytes_ in ROWS_OF_TWO_WORDS
        ]
    return [
        name
        for word in words
        for name in words_in(w).unpack(w, word, "i32", register_type(element))
    ]


def _permuted(w: FunctionWriter, low: str, high: str, bytes_: int) -> str:
    return w.call("llvm.nvvm.prmt", "i32", [("i32", low), ("i32", high), ("i32", str(bytes_))])


def _read_pairs(
    context: SimtContext, address: str, layout: LinearLayout, shared: SharedLayout, element: Type
) -> list[str]:
    """Load 8-bit elements in pairs, which conversions consume together."""
    found = [""] * layout.register_count
    for place in places(context, address, plan_accesses(context, layout, shared, element), element):
        (pair,) = context.shared_load(place.base, "i16", 1, place.offset, 2)
        for register, name in zip(
            place.registers,
            words_in(context.writer).unpack(context.writer, pair, "i16", register_type(element)),
            strict=True,
        ):
            found[register] = name
    return found


def fragment_order(layout: LinearLayout, shared: SharedLayout, size: int) -> list[int] | None:
    """Order the register index bits with those within a packed register first; None if impossible.

    It is impossible if registers repeat elements.
    """
    offsets = [size * offset for offset in shared.through(layout.registers)]
    if not all(offsets):
        return None
    words = [size << bit for bit in range(2 - log2(size))] if size < 4 else []
    within = [offsets.index(word) for word in words if word in offsets]
    if len(within) < len(words) and offsets:
        # in a transposed load, a register packs elements of two rows: the first bit stays first
        within = [0] if size == 2 else []
    return [*within, *(bit for bit in range(len(offsets)) if bit not in within)]


def operand_shared(layout: LinearLayout, size: int) -> SharedLayout | None:
    """Return a shared layout for conflict-free ``ldmatrix`` of an operand; None if it does not fit.

    Rows consist of 16-byte chunks, permuted within a row by the row's number, so that the same
    chunk of eight rows covers all banks.
    """
    shape = layout.shape
    row, columns = shape[-2], shape[-1]
    chunk = 16 // size
    if columns < chunk:
        return None
    shifts = axis_shifts(shape)
    # rows that together cover the banks once share a permutation; each next group shifts the chunks
    # by one
    together = max(0, log2(128) - log2(columns * size))
    turns = min(3 - min(3, together), log2(columns // chunk), max(0, log2(row) - together))
    images = []
    for bit in range(log2(row) + log2(columns) + sum(log2(extent) for extent in shape[:-2])):
        image = 1 << bit
        turn = bit - shifts[-2] - together
        if 0 <= turn < turns and bit < shifts[-2] + log2(row):
            image |= 1 << (log2(chunk) + turn)
        images.append(image)
    found = SharedLayout(shape, tuple(images))
    return found if matrix_loads(layout, found, size) is not None else None
