"""Block-scaled matmul by ``mma.sync`` with ``block_scale``, of compute capability 12.x.

32 elements along K share a power of two, which the instruction takes as a byte.

By the PTX ISA ("Matrix fragments for mma.m16n8k32" and "mma.m16n8k64", "Block scaling for
mma.sync"), lane ``4 * g + t`` holds, in elements along K:

- ``kind::mxf8f6f4`` has k = 32 elements of any of its formats, one per byte. The lane holds rows g
  and g + 8 of A and column g of B, four consecutive elements from ``4 * t`` on and four from
  ``4 * t + 16`` on. A 4-bit element is in bits 2 to 5 of its byte.
- ``kind::mxf4`` has k = 64 elements of e2m1, two per byte. Of the same rows and columns, the lane
  holds eight elements from ``8 * t`` on and eight 32 further.
- Scales: lanes 4 * g and 4 * g + 1 hold those of rows g and g + 8 of A, and lane 4 * g those of
  column g of B, if the instruction's selectors name thread 0. Of the four bytes of a register, the
  selectors name the one of ``mxf8f6f4``, and the first of two consecutive ones of ``mxf4``, one for
  each 32 elements.

A sum over 32 elements with common scales does not depend on their order, as long as both operands
have the same order. So for ``mxf8f6f4`` a lane uses eight consecutive elements from ``8 * t`` on as
its first four and its second four.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tilewright.ir.core import Value
from tilewright.ir.ops.linear import DotScaled
from tilewright.llvm.emission.writer import FunctionWriter
from tilewright.simt.assign_layouts.scaled_matmul import (
    GROUP,
    PER_BYTE,
    ScaledLayouts,
    extents,
    is_known,
    scaled_interface,
)
from tilewright.simt.dialect.attributes import warps_of
from tilewright.simt.dialect.op_interface import Interface
from tilewright.simt.layouts.linear_layout import LinearLayout
from tilewright.simt.layouts.mma_tiling import (
    Fragment,
    MatrixShape,
    Tiling,
    layouts,
    tile,
    transposed,
)
from tilewright.simt.lowering.emission.context import SimtContext
from tilewright_nvidia.codegen.inline_ptx import call_asm
from tilewright_nvidia.codegen.kernel_state import words_in

_ROWS, _COLUMNS = 16, 8
#: Scales of 1.
_ONES: Final = str(0x7F7F7F7F)
_FACTORS: Final = ("a", "b")


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of block-scaled ``mma.sync`` instruction.

    Attributes:
        name: its PTX spelling, with the scale vector size.
        depth: elements along k.
        near: elements along K to which the bits of an element's index in the lane's first register
            correspond, from one on.
        far: offset of the lane's second register along K.
        lanes: elements along K to which the two lowest lane index bits correspond.
        widened: whether 4-bit elements are expanded to a byte each.
    """

    name: str
    depth: int
    near: tuple[int, ...]
    far: int
    lanes: tuple[int, int]
    widened: bool


MXF8F6F4: Final = Kind(
    "kind::mxf8f6f4.block_scale.scale_vec::1X", 32, (1, 2), 4, (8, 16), widened=True
)
MXF4: Final = Kind(
    "kind::mxf4.block_scale.scale_vec::2X", 64, (1, 2, 4), 32, (8, 16), widened=False
)


@dataclass(frozen=True, kw_only=True)
class ScaledPlan(ScaledLayouts):
    """The instruction, tiling and layouts of a block-scaled matmul.

    Attributes:
        kind: the kind of instruction.
        sides: the operation's operands in the instruction's order: a and b, or b and a for the
            transposed matmul.
        formats: the formats of the operands in that order.
        tiling: the distribution of the matmul over warps.
    """

    kind: Kind
    sides: tuple[str, str]
    formats: tuple[str, str]
    tiling: Tiling

    @property
    def name(self) -> str:
        shape = f"m{_ROWS}n{_COLUMNS}k{self.kind.depth}"
        types = f"f32.{'.'.join(self.formats)}.f32.ue8m0"
        return f"mma.sync.aligned.{shape}.row.col.{self.kind.name}.{types}"


# ---- selection


def serves(capability: int, operation: DotScaled) -> bool:
    """Return whether a block-scaled ``mma.sync`` computes a ``dot_scaled``.

    Its formats must be known, its scales must cover 32 elements, pairs must lie along K, and the
    instruction must not exceed the matmul.
    """
    if capability // 10 != 12 or not all(is_known(operation, name) for name in _FACTORS):
        return False
    (*_, m, n), k = extents(operation)
    return min(m, n) >= _COLUMNS and max(m, n) >= _ROWS and k >= GROUP


def plan_of(operation: DotScaled, num_warps: int) -> ScaledPlan:
    """Plan a ``dot_scaled`` that :func:`serves` accepts.

    Two e2m1 operands use ``mxf4``, which has twice the rate.
    """
    shape, k = extents(operation)
    swapped = shape[-2] < _ROWS
    sides = ("b", "a") if swapped else ("a", "b")
    first, second = formats = (
        operation.attribute(f"{sides[0]}_format"),
        operation.attribute(f"{sides[1]}_format"),
    )
    kind = MXF4 if first == second == "e2m1" and k >= MXF4.depth else MXF8F6F4
    if swapped:
        shape = (*shape[:-2], shape[-1], shape[-2])
    tiling = tile(_shape(kind, 1), shape, k, num_warps)

    def of(per_unit: int) -> tuple[LinearLayout, LinearLayout, LinearLayout]:
        """Return the layouts of operands with ``per_unit`` elements along K per tile element."""
        return layouts(_shape(kind, per_unit), tiling, shape, k // per_unit, num_warps)

    factors, (left, right, accumulator) = (
        (of(PER_BYTE[first])[0], of(PER_BYTE[second])[1]),
        of(GROUP),
    )
    found = {
        name: transposed(layout) if swapped else layout
        for name, layout in zip(sides, factors, strict=True)
    }
    # the scales of both operands are matrices of rows by K groups
    scales = {f"{sides[0]}_scale": left, f"{sides[1]}_scale": transposed(right)}
    return ScaledPlan(
        kind=kind,
        sides=sides,
        formats=formats,
        tiling=tiling,
        **found,
        **scales,
        c=transposed(accumulator) if swapped else accumulator,
    )


def _shape(kind: Kind, per_unit: int) -> MatrixShape:
    """Return the instruction's shape, with ``per_unit`` elements along K per tile element.

    ``per_unit`` is 1, 2 for two elements a byte, or 32 for a scale.
    """
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


# ---- emission


def _lower(context: SimtContext, operation: DotScaled) -> None:
    w, plan = context.writer, plan_of(operation, warps_of(operation))
    t = plan.tiling
    left, right = (
        _factor(context, operation.operand(side), plan.kind, format_)
        for side, format_ in zip(plan.sides, plan.formats, strict=True)
    )
    scales = [_scales(context, operation.operand(f"{side}_scale")) for side in plan.sides]
    accumulator = list(context.registers[operation.c])
    steps, each = t.repeats_k, plan.kind.depth // GROUP
    for x, y, z in t.instructions(steps):
        # (register, byte in it) of each side's scales
        chosen = [
            (side[each * index // 4], each * index % 4) if side else (_ONES, 0)
            for side, index in zip(scales, (x, y), strict=True)
        ]
        near_far = left[4 * x : 4 * x + 4]
        # the instruction takes the first registers of both rows before the second ones
        a = [near_far[i] for i in (0, 2, 1, 3)]
        accumulator[4 * z : 4 * z + 4] = multiply(
            w, plan.name, a, right[2 * y : 2 * y + 2], accumulator[4 * z : 4 * z + 4], chosen
        )
    context.bind(operation.results[0], accumulator)


def multiply(
    w: FunctionWriter,
    name: str,
    a: Sequence[str],
    b: Sequence[str],
    c: Sequence[str],
    scales: Sequence[tuple[str, int]],
) -> list[str]:
    """Emit one instruction, given for each operand its scale register and the first byte to use."""
    groups, first = [], 0
    for group in (c, a, b, c):
        groups.append("{" + ", ".join(f"${first + i}" for i in range(len(group))) + "}")
        first += len(group)
    groups += [f"${first + i}, {{{byte}, 0}}" for i, (_, byte) in enumerate(scales)]
    operands = [
        *(("i32", word) for word in (*a, *b)),
        *(("float", number) for number in c),
        *(("i32", register) for register, _ in scales),
    ]
    return call_asm(
        w,
        f"{name} {', '.join(groups)};",
        ["float"] * len(c),
        operands,
        effects=False,
        convergent=True,
    )


def _factor(context: SimtContext, operand: Value | None, kind: Kind, format_: str) -> list[str]:
    """Return an operand's packed registers in the instruction's order, row (or column) by row."""
    assert operand is not None
    w, names = context.writer, context.registers[operand]
    words = words_in(w)
    packed = [words.pack(w, names[i : i + 4], "i8", "i32") for i in range(0, len(names), 4)]
    return (
        [part for word in packed for part in _in_bytes(w, word)]
        if kind.widened and PER_BYTE[format_] == 2
        else packed
    )


def _in_bytes(w: FunctionWriter, word: str) -> list[str]:
    """Expand eight 4-bit numbers to the middle bits of the bytes of two registers."""
    even = w.emit(f"and i32 {w.emit(f'shl i32 {word}, 2')}, {0x3C3C3C3C}")
    odd = w.emit(f"and i32 {w.emit(f'lshr i32 {word}, 2')}, {0x3C3C3C3C}")
    pair = [f"<4 x i8> {w.emit(f'bitcast i32 {half} to <4 x i8>')}" for half in (even, odd)]
    found = []
    for first in (0, 2):
        order = f"<4 x i32> <i32 {first}, i32 {first + 4}, i32 {first + 1}, i32 {first + 5}>"
        found.append(
            w.emit(
                f"bitcast <4 x i8> {w.emit(f'shufflevector {pair[0]}, {pair[1]}, {order}')} to i32"
            )
        )
    return found


def _scales(context: SimtContext, scale: Value | None) -> Sequence[str]:
    """Pack a lane's scales, four per register, in order; nothing if there are no scales."""
    if scale is None:
        return ()
    names = context.registers[scale]
    names = [*names, *["0"] * (-len(names) % 4)]
    words = words_in(context.writer)
    return [
        words.pack(context.writer, names[i : i + 4], "i8", "i32") for i in range(0, len(names), 4)
    ]


#: The interface of ``dot_scaled``.
INTERFACES: dict[str, Interface] = {
    "dot_scaled": scaled_interface(
        _lower, lambda operation, target, num_warps: plan_of(operation, num_warps)
    )
}
