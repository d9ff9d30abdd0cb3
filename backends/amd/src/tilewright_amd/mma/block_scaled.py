"""Block-scaled matmul by the MFMA instructions with scales.

32 elements along K share a power of two, which the instruction takes as a byte.

By AMD's matrix instruction calculator, for instructions of m rows, n columns and k = 2048 / m, lane
l of 64 holds the following, where g = l / m:

- 8-bit elements: row ``l % m`` of A, 16 consecutive elements along K from ``16 * g`` on and 16 from
  ``k / 2 + 16 * g`` on;
- 4-bit elements: 32 consecutive elements from ``32 * g`` on, two per byte, the low half first;
- scales: that of row ``l % m`` and of the 32 elements from ``32 * g`` on, in a selectable byte of a
  register;

and the same of B's columns. C and D have the layout of other MFMA instructions. As in :mod:`.mma`,
the backend computes the transposed matmul.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, cast

from tilewright.ir.core import Value
from tilewright.ir.ops.linear import DotScaled
from tilewright.ir.types import element_type
from tilewright.llvm.emission.registers import register_type
from tilewright.simt.assign_layouts.scaled_matmul import (
    GROUP,
    PER_BYTE,
    ScaledLayouts,
    extents,
    is_known,
    scaled_interface,
)
from tilewright.simt.dialect.attributes import warps_of
from tilewright.simt.layouts.linear_layout import LinearLayout
from tilewright.simt.layouts.mma_tiling import (
    Fragment,
    MatrixShape,
    Tiling,
    layouts,
    powers,
    tile,
    transposed,
)
from tilewright.simt.lowering.emission.context import SimtContext
from tilewright.simt.target.simt_target import SimtTarget
from tilewright_amd.architectures import MFMA, Architecture
from tilewright_amd.codegen.vectors import elements, join
from tilewright_amd.mma.fragments import INSTRUCTIONS

if TYPE_CHECKING:
    from tilewright_amd.mma.matrix_instructions import GcnMatrix


@dataclass(frozen=True, slots=True)
class Format:
    """A format of operands.

    Attributes:
        code: its number in the instruction.
        operand: LLVM type of a lane's elements.
    """

    code: int
    operand: str


FORMATS: Final = {
    "e4m3": Format(0, "<8 x i32>"),
    "e5m2": Format(1, "<8 x i32>"),
    "e2m1": Format(4, "<4 x i32>"),
}
#: Rows and columns of the instructions.
_EXTENTS: Final = (32, 16)
#: A scale of 1, in each byte of a register.
_ONE: Final = str(0x7F7F7F7F)


@dataclass(frozen=True, kw_only=True)
class ScaledPlan(ScaledLayouts):
    """The instruction, tiling and layouts of a block-scaled matmul.

    Attributes:
        extent: rows and columns of the instruction.
        depth: the instruction's elements along K.
        tiling: the distribution of the transposed matmul over warps.
    """

    extent: int
    depth: int
    tiling: Tiling

    @property
    def name(self) -> str:
        """LLVM's intrinsic, less ``llvm.amdgcn.``."""
        return f"mfma.scale.f32.{self.extent}x{self.extent}x{self.depth}.f8f6f4"


# ---- selection


def serves(row: Architecture, operation: DotScaled) -> bool:
    """Return whether an MFMA instruction with scales computes a ``dot_scaled``.

    Its formats must be known, its scales must cover 32 elements, pairs must lie along K, and the
    instruction must not exceed the matmul.
    """
    if (
        row.matrix != MFMA
        or row.generation < 4
        or any(not is_known(operation, name) for name in ("a", "b"))
    ):
        return False
    return bool(_fitting(operation))


def _fitting(operation: DotScaled) -> list[int]:
    """Return the extents of the instructions that do not exceed the matmul."""
    shape, k = extents(operation)
    return [extent for extent in _EXTENTS if extent <= min(shape[-2:]) and 2048 // extent <= k]


def plan_of(operation: DotScaled, num_warps: int, extent: int = 0) -> ScaledPlan:
    """Plan a ``dot_scaled`` that :func:`serves` accepts.

    ``extent`` requests rows and columns of the instruction. With 0, the largest extent at which
    each warp gets an instruction is chosen.
    """
    shape, k = extents(operation)
    fitting = _fitting(operation)
    shared = [one for one in fitting if (shape[-2] // one) * (shape[-1] // one) >= num_warps]
    chosen = next(iter((*(one for one in fitting if one == extent), *shared, *fitting)))
    depth = 2048 // chosen
    swapped = (*shape[:-2], shape[-1], shape[-2])
    tiling = tile(_shape(chosen, depth, 1), swapped, k, num_warps)

    def of(per_unit: int) -> tuple[LinearLayout, LinearLayout, LinearLayout]:
        """Return the transposed layouts, with ``per_unit`` elements along K per tile element."""
        return layouts(_shape(chosen, depth, per_unit), tiling, swapped, k // per_unit, num_warps)

    by_format = {name: of(PER_BYTE[operation.attribute(f"{name}_format")]) for name in ("a", "b")}
    left, right, accumulator = of(GROUP)
    return ScaledPlan(
        extent=chosen,
        depth=depth,
        tiling=tiling,
        a=transposed(by_format["a"][1]),
        b=transposed(by_format["b"][0]),
        a_scale=transposed(right),
        b_scale=left,
        c=transposed(accumulator),
    )


def _shape(extent: int, depth: int, per_unit: int) -> MatrixShape:
    """Return an instruction's shape, with ``per_unit`` elements along K per tile element.

    ``per_unit`` is 1, 2 for two elements a byte, or 32 for a scale.
    """
    run = {1: 16, 2: 16, GROUP: 1}[per_unit]
    own = [*powers(1, run), *([depth // 2] if per_unit == 1 else [])]
    others, along = [run * group for group in powers(1, 64 // extent)], powers(1, extent)
    a = Fragment(
        tuple((0, k) for k in own), (*((row, 0) for row in along), *((0, k) for k in others))
    )
    b = Fragment(tuple((k, 0) for _, k in a.registers), tuple((k, row) for row, k in a.lanes))
    # the result has the layout of all MFMA instructions of this extent
    c = next(
        one.shape.c
        for one in INSTRUCTIONS
        if one.family == MFMA and one.kind == "f16" and one.shape.m == extent
    )
    return MatrixShape(extent, extent, depth // per_unit, a, b, c)


# ---- emission


def _planned(operation: DotScaled, target: SimtTarget, num_warps: int) -> ScaledPlan:
    return cast("GcnMatrix", target.matrix).scaled_plan(operation, num_warps)


def _lower(context: SimtContext, operation: DotScaled) -> None:
    w, plan = context.writer, _planned(operation, context.target, warps_of(operation))
    t, held = plan.tiling, plan.extent**2 // 64
    formats = {name: FORMATS[operation.attribute(f"{name}_format")] for name in ("a", "b")}
    # the transposed matmul swaps the operands: the instruction's first operand is the matmul's
    # second
    left, right = (
        _vectors(context, operation.operand(name), operation.attribute(f"{name}_format"))
        for name in ("b", "a")
    )
    scales = [_scales(context, operation.operand(f"{name}_scale")) for name in ("b", "a")]
    names = context.registers[operation.c]
    accumulator = [join(w, "float", names[i : i + held]) for i in range(0, len(names), held)]
    steps = len(left) // (t.batches * t.repeats_m)
    for x, y, place in t.instructions(steps):
        operands = [
            (formats["b"].operand, left[x]),
            (formats["a"].operand, right[y]),
            (f"<{held} x float>", accumulator[place]),
        ]
        operands += [("i32", str(formats[name].code)) for name in ("b", "a")]
        for side, index in zip(scales, (x, y), strict=True):
            operands += [
                ("i32", str(index % 4 if side else 0)),
                ("i32", side[index // 4] if side else _ONE),
            ]
        kinds = [operands[0][0], operands[1][0]]
        accumulator[place] = w.intrinsic(
            f"llvm.amdgcn.{plan.name}", f"<{held} x float>", operands, kinds
        )
    context.bind(
        operation.results[0],
        [name for vector in accumulator for name in elements(w, "float", vector, held)],
    )


def _vectors(context: SimtContext, operand: Value | None, format_: str) -> list[str]:
    """Return an operand's registers packed as the instruction takes them, in order."""
    assert operand is not None
    names, type_ = context.registers[operand], register_type(element_type(operand.type))
    held = 32 // PER_BYTE[format_]
    groups = [names[i : i + held] for i in range(0, len(names), held)]
    return [
        context.writer.emit(
            f"bitcast <{held} x {type_}> {join(context.writer, type_, group)} to "
            f"{FORMATS[format_].operand}"
        )
        for group in groups
    ]


def _scales(context: SimtContext, scale: Value | None) -> Sequence[str]:
    """Pack a lane's scales, four per register, in order; nothing if there are no scales."""
    if scale is None:
        return ()
    w, names = context.writer, context.registers[scale]
    names = [*names, *["0"] * (-len(names) % 4)]
    return [
        w.emit(f"bitcast <4 x i8> {join(w, 'i8', names[i : i + 4])} to i32")
        for i in range(0, len(names), 4)
    ]


INTERFACES: Final = {"dot_scaled": scaled_interface(_lower, _planned)}
