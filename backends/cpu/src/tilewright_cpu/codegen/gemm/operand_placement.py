"""Operands of a matmul: read in place where their memory suits, else packed."""

from __future__ import annotations

from collections.abc import Callable

from tilewright.ir.types import byte_size
from tilewright.llvm.emission.registers import storage_type
from tilewright_cpu.codegen.gemm.amx_microkernel import transpose_panels
from tilewright_cpu.codegen.gemm.operand import KGroupsA, KGroupsB
from tilewright_cpu.codegen.gemm.pack import Matrix, Packer, scaled
from tilewright_cpu.codegen.gemm.plan import (
    TILE,
    Block,
    Extent,
    Panel,
    Scheme,
    packed_columns,
    split_columns,
)
from tilewright_cpu.codegen.gemm.prepack_lookup import can_be_prepacked, find_or_pack
from tilewright_cpu.codegen.gemm.problem import BUFFER_ELEMENT, Allocate, Gemm
from tilewright_cpu.codegen.gemm.widen import widen
from tilewright_cpu.hardware import Hardware

#: As many blocks along M must read a panel of B before packing it pays.
_REUSES_TO_PACK = 3


def operand_a(gemm: Gemm, flip: bool, allocate: Allocate) -> KGroupsA:
    """Operand A in place where its memory holds K-groups already, else packed.

    It is packed along K where that is contiguous, else as its transpose is.
    """
    w, hardware, scheme, a = gemm.w, gemm.hardware, gemm.scheme, gemm.a
    if a_in_place(scheme, a, flip):
        return KGroupsA(
            a.pointer,
            scheme.element,
            a.row_stride,
            scaled(w, scheme.group, a.column_stride),
            byte_size(a.element),
        )
    packer = Packer(w, scheme, a.transposed, flip, hardware)
    lanes = hardware.vector_bytes // scheme.k_group_bytes

    def placed(rows: int, pack: Callable[[str], None]) -> tuple[str, Extent]:
        return _packed(gemm, 0, packer, rows * packer.k_groups, allocate, pack)

    if a.column_stride == 1:
        target, infinite = placed(a.rows, lambda place: packer.pack_columns(place, lanes))
        return KGroupsA(target, scheme.k_group, packer.k_groups, 1, scheme.k_group_bytes, infinite)
    if scheme.tiled:
        panels = split_columns(a.rows, Block(1, 1, TILE))

        def pack(place: str) -> None:
            packed = gemm.allocate(a.rows * packer.k_groups, BUFFER_ELEMENT[scheme.k_group])
            packer.pack_panels(panels, packed)
            transpose_panels(w, scheme, packed, panels[0].count, TILE, packer.k_groups, place)

        target, infinite = placed(a.rows, pack)
        return KGroupsA(target, scheme.k_group, packer.k_groups, 1, scheme.k_group_bytes, infinite)
    panels = split_columns(a.rows, Block(1, -(-a.rows // lanes), lanes))
    assert len(panels) == 1
    target, _ = placed(packed_columns(panels), lambda place: packer.pack_panels(panels, place))
    return KGroupsA(target, scheme.k_group, 1, panels[0].columns, scheme.k_group_bytes)


def _packed(
    gemm: Gemm,
    which: int,
    packer: Packer,
    k_groups: int,
    allocate: Allocate,
    pack: Callable[[str], None],
) -> tuple[str, Extent]:
    """(address of the packed operand A (``which`` 0) or B (1), its flag of infinities).

    It has ``k_groups`` K-groups, and lies where an earlier program packed it, or in memory of
    ``allocate`` where ``pack`` fills it. The flag is other than 0 where an element may be infinite.
    """
    w, scheme, pack_cache = gemm.w, gemm.scheme, gemm.pack_caches[which]
    size, flag_bytes = k_groups * scheme.k_group_bytes, 0 if scheme.split is None else 8

    def pack_and_flag(place: str) -> None:
        pack(place)
        if flag_bytes:
            w.store("i64", packer.take_infinite(), w.gep("i8", place, size), 8)

    target = allocate(k_groups + flag_bytes // scheme.k_group_bytes, BUFFER_ELEMENT[scheme.k_group])
    if pack_cache is None:
        pack_and_flag(target)
    else:
        target = pack_cache.packed(
            w, (gemm.a, gemm.b)[which], size + flag_bytes, target, pack_and_flag
        )
    return target, w.load("i64", w.gep("i8", target, size), 8) if flag_bytes else 0


def a_in_place(scheme: Scheme, a: Matrix, flip: bool) -> bool:
    """Return whether the memory of A holds K-groups already."""
    whole = scheme.group == 1 or (a.column_stride == 1 and a.columns % scheme.group == 0)
    return storage_type(a.element) == scheme.element and scheme.split is None and not flip and whole


def _readable_in_place(scheme: Scheme, b: Matrix) -> bool:
    """Return whether rows of B are vectors of K-groups as they lie in memory."""
    return scheme.group == 1 and b.column_stride == 1


def reads_b_in_place(gemm: Gemm, row_blocks: int) -> bool:
    """Return whether B is read in place: its rows are contiguous, and packing would not pay."""
    scheme, b = gemm.scheme, gemm.b
    same = storage_type(b.element) == scheme.element
    return _readable_in_place(scheme, b) and (
        row_blocks < _REUSES_TO_PACK or (same and is_near(gemm.hardware, b))
    )


def is_near(hardware: Hardware, b: Matrix) -> bool:
    """Return whether the rows of B, or its contiguous columns, are known to lie close together."""
    stride = b.column_stride if b.row_stride == 1 else b.row_stride
    return isinstance(stride, int) and stride * byte_size(b.element) <= hardware.far_bytes


def may_be_near(gemm: Gemm, panels: tuple[Panel, ...]) -> bool:
    """Return whether B is read in place where its rows turn out to lie close together.

    All panels are of one shape without padding, so that only the distances between rows and between
    columns differ from those of packed panels. Where A too is read across its rows, the two would
    drive each other out of the same sets of the caches.
    """
    scheme, b = gemm.scheme, gemm.b
    return (
        gemm.a.column_stride == 1
        and _readable_in_place(scheme, b)
        and storage_type(b.element) == scheme.element
        and isinstance(b.row_stride, str)
        and len(panels) == 1
        and panels[0].valid == panels[0].widths[-1]
    )


def is_near_now(gemm: Gemm) -> str:
    """An i1: rows of B lie so close together that reading them again takes no longer than packed.

    A way of the L1 cache holds two of them.
    """
    most = 2 * gemm.hardware.far_bytes // byte_size(gemm.b.element)
    return gemm.w.emit(f"icmp ule i64 {gemm.b.row_stride}, {most}")


def operand_b(
    gemm: Gemm, panels: tuple[Panel, ...], row_blocks: int, allocate: Allocate
) -> KGroupsB:
    """B in place, or packed."""
    w, hardware, scheme, b = gemm.w, gemm.hardware, gemm.scheme, gemm.b
    if reads_b_in_place(gemm, row_blocks):

        def convert(value: str, lanes: int) -> str:
            return widen(w, b.element, value, lanes, scheme.element, hardware.can("half"))

        same = storage_type(b.element) == scheme.element
        return KGroupsB(
            b.pointer,
            False,
            b.row_stride,
            byte_size(b.element),
            storage_type(b.element),
            None if same else convert,
            k_groups=1,
        )
    if may_be_near(gemm, panels):
        return _near_or_packed(gemm, panels, allocate)
    return _packed_b(gemm, panels, allocate)


def _near_or_packed(gemm: Gemm, panels: tuple[Panel, ...], allocate: Allocate) -> KGroupsB:
    """B in place where its rows lie close together, else packed."""
    w, b, size = gemm.w, gemm.b, byte_size(gemm.b.element)
    before, far, join = w.current, w.new_block("far"), w.new_block("join")
    w.branch_if(is_near_now(gemm), join, far)
    w.place(far)
    packed = _packed_b(gemm, panels, allocate)
    after = w.current
    w.branch(join)
    w.place(join)
    pointer = w.phi("ptr", ((b.pointer, before), (packed.pointer, after)))
    stride = w.phi("i64", ((str(b.row_stride), before), (str(panels[0].columns), after)))
    k_groups = w.phi("i64", (("1", before), (str(packed.k_groups), after)))
    return KGroupsB(pointer, False, stride, size, storage_type(b.element), k_groups=k_groups)


def _packed_b(gemm: Gemm, panels: tuple[Panel, ...], allocate: Allocate) -> KGroupsB:
    """B packed: before the launch, or here."""
    w, scheme, b = gemm.w, gemm.scheme, gemm.b
    packer = Packer(w, scheme, b, False, gemm.hardware)

    def pack() -> tuple[str, Extent]:
        return _packed(
            gemm,
            1,
            packer,
            packed_columns(panels) * packer.k_groups,
            allocate,
            lambda place: packer.pack_panels(panels, place, gemm.limits),
        )

    k_groups: Extent = packer.k_groups
    if gemm.prepacked is None or not can_be_prepacked(b, panels):
        pointer, infinite = pack()
    else:
        pointer, k_groups, infinite = find_or_pack(
            w, scheme, b, panels[0], packer.k_groups, gemm.prepacked, pack
        )
    return KGroupsB(
        pointer, True, 0, scheme.k_group_bytes, scheme.k_group, k_groups=k_groups, infinite=infinite
    )
