"""The AMX micro-kernel: four tile registers of accumulators, four of operands.

Up to 32 x 32 accumulators stay in their tiles over the loop along K. Operand A is read where it
lies if its rows are contiguous; B from panels of up to 32 columns. All extents are multiples of a
tile's, so nothing is masked: rows and columns past a limit are computed in whole blocks, and past
one along K both operands are zero in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product

from tilewright.ir.types import IntType, Type
from tilewright.llvm.emission.writer import FunctionWriter, splat_constant, vector
from tilewright_cpu.codegen.gemm import amx
from tilewright_cpu.codegen.gemm.batched_k import QueuedIterations
from tilewright_cpu.codegen.gemm.microkernel import Kernel
from tilewright_cpu.codegen.gemm.operand import Accumulator, KGroupsA, KGroupsB
from tilewright_cpu.codegen.gemm.pack import plus, scaled, transpose
from tilewright_cpu.codegen.gemm.plan import TILE, Extent, Panel, Scheme

#: Writes loops over the panels of B: (panel, its first column), in the loop's body.
PanelLoops = Callable[[], Iterator[tuple[Panel, Extent]]]

_K_GROUP_BYTES = amx.ROW_BYTES // TILE
_ELEMENT_BYTES = {"i8": 1, "i16": 2, "i32": 4}
#: The first tile of operand A's, and of operand B's; accumulators are in those before.
_A, _B = 4, 6
#: Tiles along K that the four tiles of operand A can hold of two tiles' rows.
_RESIDENT = 2
#: The bits of an infinite bf16 number without its sign.
_INFINITY = 0x7F80
#: Square blocks of this many K-groups a side are transposed in vector registers.
_TRANSPOSED = 8


def write_tile_block(
    w: FunctionWriter,
    kernel: Kernel,
    elements: tuple[Type, Type],
    a: KGroupsA,
    b: KGroupsB,
    c: Accumulator,
    row: Extent,
    rows: int,
    panel: Panel,
    column: Extent,
    queued: QueuedIterations | None = None,
) -> None:
    """Write one block: ``rows`` (16 or 32) rows from ``row`` on, the columns of ``panel``.

    These are 16 or 32 from ``column`` on. See
    :func:`~tilewright_cpu.codegen.gemm.microkernel.write_block`.
    """
    down, across, how = range(rows // TILE), range(panel.columns // TILE), _instruction(elements)
    split = kernel.scheme.split
    products, parts = ((0, 0),) if split is None else split.products, kernel.scheme.parts
    corner = w.gep("i32", c.pointer, plus(w, scaled(w, row, c.row_stride), column))
    places = {
        (i, j): (len(across) * i + j, w.gep("i32", corner, TILE * (i * c.row_stride + j)))
        for i in down
        for j in across
    }  # (tile, address)
    stride = c.row_stride * _K_GROUP_BYTES
    for tile, place in places.values():
        if c.zero:
            amx.zero(w, tile)
        else:
            amx.load(w, tile, place, stride)

    def add_up(a: KGroupsA, b: KGroupsB, steps: Extent, infinite: bool) -> None:
        """``infinite``: infinities of a first part are 0 in products with another part."""
        a_stride, b_stride = (
            scaled(w, a.row_stride, _ELEMENT_BYTES[a.element]),
            panel.columns * _K_GROUP_BYTES,
        )
        a_row = [
            w.gep(a.element, a.pointer, scaled(w, plus(w, row, i * TILE), a.row_stride))
            for i in down
        ]
        b_column = w.gep("i32", b.pointer, scaled(w, column, b.k_groups))
        a_part, b_part = scaled(w, TILE, a.k_stride), TILE * panel.columns
        pointers = [("ptr", pointer) for pointer in (*a_row, b_column)]
        with w.loop(
            "0", str(_tiles(w, steps)), 1, pointers, nonempty=isinstance(steps, int)
        ) as loop:
            *a_here, b_here = loop.values
            held = dict[
                int, tuple[int, bool]
            ]()  # tile -> the part that it holds, and whether infinities are 0 there

            def hold(tile: int, part: int, other: int, pointer: str, stride: Extent) -> None:
                cleared = infinite and part == 0 and other != 0
                if held.get(tile) != (part, cleared):
                    if cleared:
                        pointer, stride = _without_infinities(w, pointer, stride), amx.ROW_BYTES
                    amx.load(w, tile, pointer, stride)
                    held[tile] = part, cleared

            for (of_a, of_b), i, j in product(products, down, across):
                hold(
                    _A + i,
                    of_a,
                    of_b,
                    w.gep(a.element, a_here[i], scaled(w, of_a, a_part)),
                    a_stride,
                )
                hold(_B + j, of_b, of_a, w.gep("i32", b_here, of_b * b_part + j * TILE), b_stride)
                amx.multiply_add(w, how, places[i, j][0], _A + i, _B + j)
            a_step = scaled(w, parts, a_part)
            loop.next_values = [
                *(w.gep(a.element, pointer, a_step) for pointer in a_here),
                w.gep("i32", b_here, parts * b_part),
            ]

    def add_up_either(a: KGroupsA, b: KGroupsB, steps: Extent) -> None:
        if a.infinite == b.infinite == 0:
            add_up(a, b, steps, False)
            return
        usual, rare, join = w.new_block("finite"), w.new_block("infinite"), w.new_block("join")
        some = w.emit(f"icmp ne i64 {w.emit(f'or i64 {a.infinite}, {b.infinite}')}, 0")
        w.branch_if(some, rare, usual, likely=False)
        for block, infinite in ((usual, False), (rare, True)):
            w.place(block)
            add_up(a, b, steps, infinite)
            w.branch(join)
        w.place(join)

    if queued is None:
        add_up_either(a, b, kernel.steps)
    else:
        with w.loop("0", queued.count, 1, nonempty=True) as iterations:
            add_up_either(*queued.operands(w, iterations.index))
    for tile, place in places.values():
        amx.store(w, tile, place, stride)


def _without_infinities(w: FunctionWriter, pointer: str, stride: Extent) -> str:
    """Address of a dense copy of a tile of bf16 numbers with 0 in the place of infinities."""
    lanes = amx.ROW_BYTES // 2
    words, copy = vector("i16", lanes), w.alloca("i8", TILE * amx.ROW_BYTES)
    with w.loop("0", str(TILE), 1, nonempty=True) as rows:
        value = w.load(words, w.gep("i8", pointer, scaled(w, rows.index, stride)))
        magnitude = w.emit(f"and {words} {value}, {splat_constant('i16', '32767', lanes)}")
        infinite = w.emit(
            f"icmp eq {words} {magnitude}, {splat_constant('i16', str(_INFINITY), lanes)}"
        )
        w.store(
            words,
            w.emit(
                f"select {vector('i1', lanes)} {infinite}, {words} zeroinitializer, {words} {value}"
            ),
            w.gep("i8", copy, scaled(w, rows.index, amx.ROW_BYTES)),
        )
    return copy


def is_a_resident(kernel: Kernel, queued: QueuedIterations | None) -> bool:
    """Return whether all of operand A along K stays in tile registers.

    See :func:`write_resident_rows`.
    """
    return (
        kernel.scheme.tiled
        and kernel.scheme.split is None
        and queued is None
        and isinstance(kernel.steps, int)
        and kernel.steps <= _RESIDENT * TILE
    )


def write_resident_rows(
    w: FunctionWriter,
    kernel: Kernel,
    elements: tuple[Type, Type],
    a: KGroupsA,
    b: KGroupsB,
    c: Accumulator,
    row: Extent,
    rows: int,
    panels: PanelLoops,
) -> None:
    """Write ``rows`` (16 or 32) rows from ``row`` on and all columns, with operand A resident.

    Operand A is loaded once, and columns are taken one tile at a time. ``panels``: loops over the
    panels of B, each given with its first column.
    """
    assert isinstance(kernel.steps, int)
    down, along, how = range(rows // TILE), range(-(-kernel.steps // TILE)), _instruction(elements)
    a_stride = scaled(w, a.row_stride, _ELEMENT_BYTES[a.element])
    for i, k in product(down, along):
        corner = w.gep(a.element, a.pointer, scaled(w, plus(w, row, i * TILE), a.row_stride))
        amx.load(
            w,
            _A + _RESIDENT * i + k,
            w.gep(a.element, corner, scaled(w, k * TILE, a.k_stride)),
            a_stride,
        )
    first = _A - len(along)  # of the tiles of operand B's
    for panel, column in panels():
        panel_b = w.gep("i32", b.pointer, scaled(w, column, b.k_groups))
        for j in range(panel.columns // TILE):
            corner = w.gep(
                "i32", c.pointer, plus(w, scaled(w, row, c.row_stride), plus(w, column, j * TILE))
            )
            places = [w.gep("i32", corner, TILE * i * c.row_stride) for i in down]
            for i, place in enumerate(places):
                if c.zero:
                    amx.zero(w, i)
                else:
                    amx.load(w, i, place, c.row_stride * _K_GROUP_BYTES)
            for k in along:
                amx.load(
                    w,
                    first + k,
                    w.gep("i32", panel_b, (k * panel.columns + j) * TILE),
                    panel.columns * _K_GROUP_BYTES,
                )
                for i in down:
                    amx.multiply_add(w, how, i, _A + _RESIDENT * i + k, first + k)
            for i, place in enumerate(places):
                amx.store(w, i, place, c.row_stride * _K_GROUP_BYTES)


def _tiles(w: FunctionWriter, steps: Extent) -> Extent:
    """Number of tiles along K that hold so many K-groups."""
    if isinstance(steps, int):
        return -(-steps // TILE)
    return w.emit(f"udiv i64 {w.emit(f'add i64 {steps}, {TILE - 1}')}, {TILE}")


def _instruction(elements: tuple[Type, Type]) -> str:
    if not isinstance(elements[0], IntType):
        return "dpbf16ps"
    signs = "".join(
        "s" if isinstance(element, IntType) and element.signed else "u" for element in elements
    )
    return f"dpb{signs}d"


def transpose_panels(
    w: FunctionWriter,
    scheme: Scheme,
    panels: str,
    count: int,
    columns: int,
    k_groups: int,
    target: str,
) -> None:
    """Transpose ``count`` packed panels of ``columns`` columns into rows of K-groups.

    K-group (column, k) goes to ``target`` + column * k_groups + k.
    """
    type_ = vector(scheme.k_group, _TRANSPOSED)
    with (
        w.loop("0", str(count), 1, nonempty=True) as each,
        w.loop("0", str(columns), _TRANSPOSED, nonempty=True) as across,
    ):
        panel = w.gep(
            scheme.k_group,
            w.gep(scheme.k_group, panels, scaled(w, each.index, k_groups * columns)),
            across.index,
        )
        column = plus(w, scaled(w, each.index, columns), across.index)
        rows = w.gep(scheme.k_group, target, scaled(w, column, k_groups))
        with w.loop("0", str(k_groups), _TRANSPOSED, nonempty=True) as along:
            corner = w.gep(scheme.k_group, panel, scaled(w, along.index, columns))
            found = [
                w.load(type_, w.gep(scheme.k_group, corner, i * columns), scheme.k_group_bytes)
                for i in range(_TRANSPOSED)
            ]
            place = w.gep(scheme.k_group, rows, along.index)
            for i, value in enumerate(transpose(w, scheme.k_group, found)):
                w.store(
                    type_, value, w.gep(scheme.k_group, place, i * k_groups), scheme.k_group_bytes
                )
