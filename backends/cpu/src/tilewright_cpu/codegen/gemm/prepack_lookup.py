"""Run-time lookup of an operand B packed before the launch (:mod:`tilewright_cpu.prepack`).

A launch lists the packed matrices among its arguments in the reserved word of its slots: the
address of a count and as many addresses of :class:`Record`, or 0. A dot that would pack B checks
whether B lies in one of those matrices, at a place where a panel begins, and was packed the way it
would pack it (:func:`form`). If so it reads the panels that are there; else it packs, so a tile at
an edge, or one of another shape, costs what it always did.
"""

from __future__ import annotations

import ctypes
import hashlib
from collections.abc import Callable

from tilewright.ir.types import Type, byte_size
from tilewright.llvm.emission.writer import FunctionWriter
from tilewright_cpu.codegen.gemm.pack import Matrix, plus, scaled
from tilewright_cpu.codegen.gemm.plan import Extent, Panel, Scheme

#: The slot that holds the address of the list of packed matrices.
SLOT = 4


class Record(ctypes.Structure):
    """Record of a packed matrix that kernels read.

    It has the address of the matrix, its extents, its strides in elements, the address of its
    panels, the K-groups of a panel, and its form.
    """

    _fields_ = (
        ("base", ctypes.c_uint64),
        ("rows", ctypes.c_int64),
        ("columns", ctypes.c_int64),
        ("row_stride", ctypes.c_int64),
        ("column_stride", ctypes.c_int64),
        ("packed", ctypes.c_uint64),
        ("units", ctypes.c_int64),
        ("form", ctypes.c_int64),
    )


def form(scheme: Scheme, stored: Type, columns: int) -> int:
    """Key, of 63 bits, of how a matrix of ``stored`` elements is packed in panels of ``columns``.

    Every way of packing has a key of its own.
    """
    text = f"{scheme.k_group} {scheme.group} {scheme.element} {scheme.parts} {stored} {columns}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little") >> 1


def can_be_prepacked(b: Matrix, panels: tuple[Panel, ...]) -> bool:
    """Return whether B's packing is looked up at run time.

    Its panels must be alike and without padding, and one of its axes known to be contiguous.
    """
    alike = len(panels) == 1 and panels[0].valid == panels[0].widths[-1]
    return alike and (b.column_stride == 1 or b.row_stride == 1)


def find_or_pack(
    w: FunctionWriter,
    scheme: Scheme,
    b: Matrix,
    panel: Panel,
    k_groups: int,
    matrices: str,
    pack: Callable[[], tuple[str, Extent]],
) -> tuple[str, Extent, Extent]:
    """(address of panels, K-groups of a panel, the flag of infinities) of an operand B.

    They are those of a matrix packed before the launch, else of ``pack``, which returns the first
    and the last. The flag is other than 0 where an element may be infinite. ``matrices`` is the
    list's address, or null.
    """
    search, packing, done = w.new_block("search"), w.new_block("packing"), w.new_block("packed")
    w.branch_if(w.emit(f"icmp eq ptr {matrices}, null"), packing, search)
    w.place(search)
    found: list[tuple[str, str]] = []
    hits = []
    with w.loop("0", w.load("i64", matrices, 8), 1) as loop:
        record = w.load("ptr", w.gep("ptr", w.gep("i64", matrices, 1), loop.index), 8)
        following = w.new_block("following")
        address, length = _look_up(w, scheme, b, panel, k_groups, record, following.label)
        found.append((address, length))
        hits.append(w.current)
        w.branch(done)
        w.place(following)
    w.branch(packing)
    w.place(packing)
    target, infinite = pack()
    packed = w.current
    w.branch(done)
    w.place(done)
    address = w.phi("ptr", ((found[0][0], hits[0]), (target, packed)))
    if infinite != 0:
        infinite = w.phi("i64", (("0", hits[0]), (str(infinite), packed)))
    return address, w.phi("i64", ((found[0][1], hits[0]), (str(k_groups), packed))), infinite


def _look_up(
    w: FunctionWriter,
    scheme: Scheme,
    b: Matrix,
    panel: Panel,
    k_groups: int,
    record: str,
    otherwise: str,
) -> tuple[str, str]:
    """(address of B's first K-group, K-groups of a panel) in the matrix of a record.

    The code goes to the block of the label ``otherwise`` where B is not there.
    """

    def field(name: str, type_: str = "i64") -> str:
        return w.load(type_, w.gep("i8", record, getattr(Record, name).offset), 8)

    def need(condition: str) -> None:
        fine = w.new_block("fine")
        w.current.terminator = f"  br i1 {condition}, label %{fine.label}, label %{otherwise}"
        w.place(fine)

    need(w.emit(f"icmp eq i64 {field('form')}, {form(scheme, b.element, panel.columns)}"))
    strides = field("row_stride"), field("column_stride")
    for given, stride in zip(strides, (b.row_stride, b.column_stride), strict=True):
        need(w.emit(f"icmp eq i64 {given}, {stride}"))
    rows, columns = field("rows"), field("columns")
    by_rows = b.column_stride == 1
    across = strides[0] if by_rows else strides[1]
    offset = w.emit(f"sub i64 {w.emit(f'ptrtoint ptr {b.pointer} to i64')}, {field('base')}")
    within = w.emit(f"udiv i64 {offset}, {byte_size(b.element)}")
    # An address before the matrix is a large number here, and fails one of the comparisons with its
    # extents.
    far, near = w.emit(f"udiv i64 {within}, {across}"), w.emit(f"urem i64 {within}, {across}")
    row, column = (far, near) if by_rows else (near, far)
    for first, count, extent in ((row, b.rows, rows), (column, b.columns, columns)):
        need(w.emit(f"icmp ule i64 {w.emit(f'add i64 {first}, {count}')}, {extent}"))
    for first, step in ((row, scheme.step), (column, panel.columns)):
        if step > 1:
            need(w.emit(f"icmp eq i64 {w.emit(f'and i64 {first}, {step - 1}')}, 0"))
    length = field("units")
    k_group = w.emit(f"udiv i64 {row}, {scheme.group}") if scheme.group > 1 else row
    place = plus(
        w, w.emit(f"mul i64 {column}, {length}"), scaled(w, k_group, scheme.parts * panel.columns)
    )
    return w.gep(scheme.k_group, field("packed", "ptr"), place), length
