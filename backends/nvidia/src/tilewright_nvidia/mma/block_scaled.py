"""Block-scaled matmul by ``mma.sync`` with ``block_scale``, of compute capability 12.x.

32 elements along k share a power of two, which the instruction takes as a byte.

By the PTX ISA ("Matrix fragments for mma.m16n8k32" and "mma.m16n8k64", "Block scaling for mma.sync"), of lane ``4 * g + t``, in elements along k:

- ``kind::mxf8f6f4`` is of k = 32 elements, of any of its formats, each in a byte; the lane holds of A the rows g and g + 8, of B the columns g, four neighbours
  from ``4 * t`` on and four from ``4 * t + 16`` on. Of an element of four bits these are the bits 2 to 5 of its byte;
- ``kind::mxf4`` is of k = 64 elements of e2m1, two a byte; the lane holds of the same rows and columns eight from ``8 * t`` on and eight 32 further;
- scales: lanes 4 * g and 4 * g + 1 hold those of the rows g and g + 8 of A, lanes 4 * g those of the columns g of B, where the instruction's selectors name
  thread 0; of four bytes of a register the selectors name the one of ``mxf8f6f4``, and the first of the two neighbours of ``mxf4``, one for each 32 elements.

A sum over 32 elements that share their scales is the same in any order, if it is that of both operands. So of ``mxf8f6f4`` a lane takes eight neighbours from
``8 * t`` on, as its first four and its second four.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tilewright.ir.core import Value
from tilewright.ir.ops.linear import DotScaled
from tilewright.llvm.emission.writer import FunctionWriter
from tilewright.simt.assign_layouts.scaled_matmul import GROUP, PER_BYTE, ScaledLayouts, extents, is_known, scaled_interface
from tilewright.simt.dialect.attributes import warps_of
from tilewright.simt.dialect.op_interface import Interface
from tilewright.simt.layouts.linear_layout import LinearLayout
from tilewright.simt.layouts.mma_tiling import Fragment, MatrixShape, Tiling, layouts, tile, transposed
from tilewright.simt.lowering.emission.context import SimtContext
from tilewright_nvidia.codegen.inline_ptx import call_asm
from tilewright_nvidia.codegen.kernel_state import words_in

_ROWS, _COLUMNS = 16, 8
#: Scales of 1.
_ONES: Final = str(0x7F7F7F7F)
_FACTORS: Final = ("a", "b")


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of the instruction.

    Attributes:
        name: as PTX calls it, with the scales of a row.
        depth: elements along k.
        near: elements along k that the bits of an element's number in the lane's first word stand for, from one on.
        far: those that its second word is further.
        lanes: those that the two lowest bits of a lane's number stand for.
        widened: whether elements of four bits are put into a byte each.
    """

    name: str
    depth: int
    near: tuple[int, ...]
    far: int
    lanes: tuple[int, int]
    widened: bool


MXF8F6F4: Final = Kind("kind::mxf8f6f4.block_scale.scale_vec::1X", 32, (1, 2), 4, (8, 16), widened=True)
MXF4: Final = Kind("kind::mxf4.block_scale.scale_vec::2X", 64, (1, 2, 4), 32, (8, 16), widened=False)


@dataclass(frozen=True, kw_only=True)
class ScaledPlan(ScaledLayouts):
    """How a product is computed.

    Attributes:
        kind: of the instruction.
        sides: the operands of the operation that are the first and the second of the instruction: a and b, or b and a where the transpose is computed.
        formats: of those.
        tiling: how warps share what is computed.
    """

    kind: Kind
    sides: tuple[str, str]
    formats: tuple[str, str]
    tiling: Tiling

    @property
    def name(self) -> str:
        return f"mma.sync.aligned.m{_ROWS}n{_COLUMNS}k{self.kind.depth}.row.col.{self.kind.name}.f32.{'.'.join(self.formats)}.f32.ue8m0"


# ---- which products


def serves(capability: int, operation: DotScaled) -> bool:
    """Whether there is an instruction for a ``dot_scaled``: of its formats, of scales by 32, of pairs along k, and small enough."""
    if capability // 10 != 12 or not all(is_known(operation, name) for name in _FACTORS):
        return False
    (*_, m, n), k = extents(operation)
    return min(m, n) >= _COLUMNS and max(m, n) >= _ROWS and k >= GROUP


def plan_of(operation: DotScaled, num_warps: int) -> ScaledPlan:
    """How a product that :func:`serves` found is computed: by the kind that multiplies e2m1 at twice the rate where both operands are of that."""
    shape, k = extents(operation)
    turned = shape[-2] < _ROWS
    sides = ("b", "a") if turned else ("a", "b")
    first, second = formats = operation.attribute(f"{sides[0]}_format"), operation.attribute(f"{sides[1]}_format")
    kind = MXF4 if first == second == "e2m1" and k >= MXF4.depth else MXF8F6F4
    if turned:
        shape = (*shape[:-2], shape[-1], shape[-2])
    tiling = tile(_shape(kind, 1), shape, k, num_warps)

    def of(per_unit: int) -> tuple[LinearLayout, LinearLayout, LinearLayout]:
        """Of operands of which so many elements along k are one of the tile."""
        return layouts(_shape(kind, per_unit), tiling, shape, k // per_unit, num_warps)

    factors, (left, right, sums) = (of(PER_BYTE[first])[0], of(PER_BYTE[second])[1]), of(GROUP)
    found = {name: transposed(layout) if turned else layout for name, layout in zip(sides, factors, strict=True)}
    # scales are rows by groups, those of both operands
    scales = {f"{sides[0]}_scale": left, f"{sides[1]}_scale": transposed(right)}
    return ScaledPlan(kind=kind, sides=sides, formats=formats, tiling=tiling, **found, **scales, c=transposed(sums) if turned else sums)


def _shape(kind: Kind, per_unit: int) -> MatrixShape:
    """Of the instruction, of whose operands one element of a tile is so many along k: 1, 2 a byte, or the 32 of a scale."""
    rows, columns = ((1, 0), (2, 0), (4, 0)), ((0, 1), (0, 2), (0, 4))
    c = Fragment(((0, 1), (8, 0)), ((0, 2), (0, 4), *rows))
    depth = kind.depth // per_unit
    if per_unit == GROUP:
        groups = [1 << bit for bit in range(depth.bit_length() - 1)]
        a = Fragment(tuple((0, group) for group in groups), ((8, 0), (0, 0), *rows))
        b = Fragment(tuple((group, 0) for group in groups), ((0, 0), (0, 0), *columns))
        return MatrixShape(_ROWS, _COLUMNS, depth, a, b, c)
    own = [k // per_unit for k in (*kind.near, kind.far) if k >= per_unit]
    one, two = (k // per_unit for k in kind.lanes)
    a = Fragment((*((0, k) for k in own), (8, 0)), ((0, one), (0, two), *rows))
    b = Fragment(tuple((k, 0) for k in own), ((one, 0), (two, 0), *columns))
    return MatrixShape(_ROWS, _COLUMNS, depth, a, b, c)


# ---- how they are written


def _lower(context: SimtContext, operation: DotScaled) -> None:
    w, plan = context.writer, plan_of(operation, warps_of(operation))
    t = plan.tiling
    left, right = (_factor(context, operation.operand(side), plan.kind, format_) for side, format_ in zip(plan.sides, plan.formats, strict=True))
    scales = [_scales(context, operation.operand(f"{side}_scale")) for side in plan.sides]
    sums = list(context.registers[operation.c])
    steps, each = t.repeats_k, plan.kind.depth // GROUP
    for x, y, z in t.instructions(steps):
        # (register, byte in it) of each side's scales
        chosen = [(side[each * index // 4], each * index % 4) if side else (_ONES, 0) for side, index in zip(scales, (x, y), strict=True)]
        near_far = left[4 * x : 4 * x + 4]
        # the instruction wants the first words of both rows before the second ones
        a = [near_far[i] for i in (0, 2, 1, 3)]
        sums[4 * z : 4 * z + 4] = multiply(w, plan.name, a, right[2 * y : 2 * y + 2], sums[4 * z : 4 * z + 4], chosen)
    context.bind(operation.results[0], sums)


def multiply(w: FunctionWriter, name: str, a: Sequence[str], b: Sequence[str], c: Sequence[str], scales: Sequence[tuple[str, int]]) -> list[str]:
    """One instruction: words of the operands, and of both the register of scales and which of its bytes is the first that is taken."""
    groups, first = [], 0
    for group in (c, a, b, c):
        groups.append("{" + ", ".join(f"${first + i}" for i in range(len(group))) + "}")
        first += len(group)
    groups += [f"${first + i}, {{{byte}, 0}}" for i, (_, byte) in enumerate(scales)]
    operands = [*(("i32", word) for word in (*a, *b)), *(("float", number) for number in c), *(("i32", register) for register, _ in scales)]
    return call_asm(w, f"{name} {', '.join(groups)};", ["float"] * len(c), operands, effects=False, convergent=True)


def _factor(context: SimtContext, operand: Value | None, kind: Kind, format_: str) -> list[str]:
    """The words that instructions take of an operand, those of a row or column together, in order."""
    assert operand is not None
    w, names = context.writer, context.registers[operand]
    words = words_in(w)
    packed = [words.pack(w, names[i : i + 4], "i8", "i32") for i in range(0, len(names), 4)]
    return [part for word in packed for part in _in_bytes(w, word)] if kind.widened and PER_BYTE[format_] == 2 else packed


def _in_bytes(w: FunctionWriter, word: str) -> list[str]:
    """Eight numbers of four bits, each in the middle of a byte of two words."""
    even = w.emit(f"and i32 {w.emit(f'shl i32 {word}, 2')}, {0x3C3C3C3C}")
    odd = w.emit(f"and i32 {w.emit(f'lshr i32 {word}, 2')}, {0x3C3C3C3C}")
    pair = [f"<4 x i8> {w.emit(f'bitcast i32 {half} to <4 x i8>')}" for half in (even, odd)]
    found = []
    for first in (0, 2):
        order = f"<4 x i32> <i32 {first}, i32 {first + 4}, i32 {first + 1}, i32 {first + 5}>"
        found.append(w.emit(f"bitcast <4 x i8> {w.emit(f'shufflevector {pair[0]}, {pair[1]}, {order}')} to i32"))
    return found


def _scales(context: SimtContext, scale: Value | None) -> Sequence[str]:
    """Four scales of a lane a register, in order; nothing where there are none."""
    if scale is None:
        return ()
    names = context.registers[scale]
    names = [*names, *["0"] * (-len(names) % 4)]
    words = words_in(context.writer)
    return [words.pack(context.writer, names[i : i + 4], "i8", "i32") for i in range(0, len(names), 4)]


#: That of ``dot_scaled``.
INTERFACES: dict[str, Interface] = {"dot_scaled": scaled_interface(_lower, lambda operation, target, num_warps: plan_of(operation, num_warps))}
