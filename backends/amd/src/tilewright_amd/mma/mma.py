"""MFMA and WMMA: selection of a wave's matrix instruction for a matmul, and its emission.

The backend computes the transposed matmul, with A and B swapped. A lane then holds consecutive
elements of a row of the result, which it stores together. The same elements are the lane's share of
the first operand of a following matmul, as in attention.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from tilewright.ir.types import BF16, F16, F32, F64, I8, I32, FloatType, IntType, Type
from tilewright.llvm.emission.casts import emit_cast
from tilewright.llvm.emission.registers import register_type, storage_size
from tilewright.llvm.emission.writer import FunctionWriter
from tilewright.simt.layouts.mma_tiling import Tiling, layouts, tile, transposed
from tilewright.simt.lowering.emission.context import SimtContext
from tilewright.simt.passes.split_f32_operands import BF16_SPLITS, split
from tilewright.simt.target.fragments import k_axis
from tilewright.simt.target.matmul_plan import Matmul, MatmulPlan
from tilewright_amd.architectures import MFMA, WMMA, Architecture
from tilewright_amd.codegen.vectors import elements, join
from tilewright_amd.mma import transposed_loads
from tilewright_amd.mma.fragments import INSTRUCTIONS, Instruction

#: Precision -> candidates for f32 operands, in order of preference: (kind of instruction, split of
#: the operands or empty).
_PRECISIONS: Final[dict[str, tuple[tuple[str, str], ...]]] = {
    "ieee": (("f32", ""),),
    "tf32": (("xf32", ""), ("f32", ""), ("bf16", "bf16x3")),
    "tf32x3": (("f32", ""), ("bf16", "bf16x6")),
    "bf16x3": (("bf16", "bf16x3"),),
    "bf16x6": (("bf16", "bf16x6"),),
}


#: Format codes of f8f6f4 instructions.
_FORMATS: Final = {"fp8": 0, "bf8": 1}


@dataclass(frozen=True, slots=True)
class Choice:
    """The instruction selected for a matmul, and the conversion of its operands.

    Attributes:
        instruction: the instruction.
        through: the element types that the operands are converted to first.
        split: the scheme that splits f32 operands into bf16 parts; empty if they are not split.
    """

    instruction: Instruction
    through: tuple[Type, Type]
    split: str = ""


def _kinds(
    row: Architecture, a: Type, b: Type, accumulator: Type, precision: str
) -> list[tuple[str, tuple[Type, Type], str]]:
    """Return candidates (kind of instruction, converted types, split), in order of preference."""
    if a is F32:
        return [(kind, (F32, F32), parts) for kind, parts in _PRECISIONS.get(precision, ())]
    if isinstance(a, IntType):
        # MFMA treats its bytes as signed
        fits = accumulator is I32 and (row.matrix == WMMA or (a is I8 and b is I8))
        return [("i8", (a, b), "")] if fits else []
    if a is F64:
        return [("f64", (F64, F64), "")]
    if a is BF16:
        return [("bf16", (BF16, BF16), "")]
    found: list[tuple[str, tuple[Type, Type], str]] = []
    if a in row.fp8 and b in row.fp8:
        found.append(("fp8", (a, b), ""))
    # f16 represents every fp8 number exactly
    found.append(("f16", (F16, F16), ""))
    return found


def choose(row: Architecture, wanted: Matmul, extent: int = 0, pack: int = 1) -> Choice | None:
    """Select the instruction for a matmul; None if no instruction has its types and extents.

    ``extent`` requests the instruction's rows and columns. With 0, the largest instruction of which
    each warp gets one is chosen. A ``pack`` of 2 lets lanes hold twice as many consecutive elements
    along K, if the matmul is deep enough.
    """
    m, n = wanted.shape[-2:]
    for kind, through, parts in _kinds(
        row, wanted.a, wanted.b, wanted.accumulator, wanted.precision
    ):
        fitting = [
            instruction
            for instruction in INSTRUCTIONS
            if instruction.kind == kind
            and instruction.family == row.matrix
            and row.generation in instruction.generations
            if instruction.shape.m <= n
            and instruction.shape.n <= m
            and instruction.shape.k <= wanted.k
        ]
        shared = [one for one in fitting if (m // one.shape.n) * (n // one.shape.m) >= wanted.warps]
        asked = [one for one in fitting if one.shape.m == extent]
        for instruction in (*asked, *shared, *fitting):
            packs = (
                pack == 2
                and instruction.family == MFMA
                and instruction.kind != "f64"
                and 2 * instruction.shape.k <= wanted.k
            )
            return Choice(instruction.packed() if packs else instruction, through, parts)
    return None


def plans(
    row: Architecture,
    wanted: Matmul,
    extent: int = 0,
    pack: int = 1,
    interleaving: int | None = None,
) -> tuple[list[MatmulPlan], int]:
    """Plan a matmul; return the plans and the number of result elements per lane of an instruction.

    The first plan minimizes the elements that waves load. If registers are scarce and it differs,
    the second plan assigns whole rows to each wave. There are no plans if no instruction fits.
    ``interleaving`` is LLVM's scheduling strategy for instructions beside MFMA, or None.
    """
    choice = choose(row, wanted, extent, pack)
    if choice is None:
        return [], 1
    # the transposed matmul's columns are the matmul's rows
    swapped = (*wanted.shape[:-2], wanted.shape[-1], wanted.shape[-2])
    ways = (False, True) if row.few_registers else (False,)
    tilings = [
        tile(choice.instruction.shape, swapped, wanted.k, wanted.warps, whole_columns=whole)
        for whole in ways
    ]
    found = [
        _plan(row, wanted, choice, tiling, interleaving, whole_rows=number > 0)
        for number, tiling in enumerate(dict.fromkeys(tilings))
    ]
    return found, choice.instruction.shape.c.elements


def _plan(
    row: Architecture,
    wanted: Matmul,
    choice: Choice,
    tiling: Tiling,
    interleaving: int | None,
    *,
    whole_rows: bool,
) -> MatmulPlan:
    instruction = choice.instruction
    swapped = (*wanted.shape[:-2], wanted.shape[-1], wanted.shape[-2])
    left, right, accumulator = layouts(instruction.shape, tiling, swapped, wanted.k, wanted.warps)
    matmul = _Matmul(
        choice,
        tiling,
        (wanted.a, wanted.b),
        wanted.accumulator,
        interleaving if row.matrix == MFMA else None,
    )
    # narrower accumulators are rounded once, after all of K
    step = instruction.shape.k if matmul.accumulator_type is wanted.accumulator else 0
    times = f" x {instruction.times}" if instruction.times > 1 else ""
    split = f" {choice.split}" if choice.split else ""
    found = MatmulPlan(
        f"{matmul.name}{times}{split}{' by rows' if whole_rows else ''}",
        transposed(right),
        transposed(left),
        transposed(accumulator),
        matmul.emit,
        whole_rows=whole_rows,
        k_step=step,
    )
    return _turning(found, wanted) if row.turns else found


def _turning(plan: MatmulPlan, wanted: Matmul) -> MatmulPlan:
    """Return the plan with transposed LDS loads for 16-bit operands not contiguous along K."""
    across, loads = [], []
    for position, element in enumerate((wanted.a, wanted.b)):
        layout = plan.operand(position)
        across_k = (
            transposed_loads.transposed_layout(layout)
            if storage_size(element) == transposed_loads.SIZE
            else None
        )
        across.append(across_k)
        loads.append(
            transposed_loads.loader(layout, k_axis(plan, position), plan.k_step, across_k, element)
            if across_k is not None
            else None
        )
    return replace(
        plan, load_a=loads[0], load_b=loads[1], a_transposed=across[0], b_transposed=across[1]
    )


class _Matmul:
    """The emission of one matmul."""

    def __init__(
        self,
        choice: Choice,
        tiling: Tiling,
        elements: tuple[Type, Type],
        accumulator: FloatType | IntType,
        interleaving: int | None = None,
    ) -> None:
        self.choice, self.tiling, self.elements, self.accumulator = (
            choice,
            tiling,
            elements,
            accumulator,
        )
        self.interleaving = interleaving
        #: the type of the accumulators
        self.accumulator_type: Type = (
            F32 if choice.instruction.accumulator == "float" else accumulator
        )
        # the transposed matmul swaps the operands: the instruction's first operand is the matmul's
        # second
        names = {"a": _fp8_name(choice.through[1]), "b": _fp8_name(choice.through[0])}
        self.name = choice.instruction.name.format(**names)

    def emit(self, context: SimtContext, a: list[str], b: list[str], c: list[str]) -> list[str]:
        """Emit the matmul over the given steps along K; return the registers of the result."""
        w, t, shape = context.writer, self.tiling, self.choice.instruction.shape
        parts, pairs = BF16_SPLITS[self.choice.split] if self.choice.split else (1, ((0, 0),))
        if self.interleaving is not None:
            w.call("llvm.amdgcn.iglp.opt", "void", [("i32", str(self.interleaving))])
        times = self.choice.instruction.times
        left = self._vectors(context, b, 1, parts, shape.a.elements // times)
        right = self._vectors(context, a, 0, parts, shape.b.elements // times)
        held = shape.c.elements
        steps = len(left[0]) // (t.batches * t.repeats_m)
        scalars = [
            emit_cast(context, name, self.accumulator, self.accumulator_type, 0) for name in c
        ]
        accumulator = [
            join(w, self.choice.instruction.accumulator, scalars[i : i + held])
            for i in range(0, len(scalars), held)
        ]
        for x, y, place in t.instructions(steps):
            for i, j in pairs:
                accumulator[place] = self._multiply(w, left[i][x], right[j][y], accumulator[place])
        if self.choice.instruction.sinks:
            accumulator = [self._pinned(w, vector) for vector in accumulator]
        found = [
            name
            for vector in accumulator
            for name in elements(w, self.choice.instruction.accumulator, vector, held)
        ]
        return [
            emit_cast(context, name, self.accumulator_type, self.accumulator, 0) for name in found
        ]

    def _pinned(self, w: FunctionWriter, accumulator: str) -> str:
        """Keep an accumulator's instructions, which need all lanes, out of branches below them.

        The assembly is empty. It is convergent, so that LLVM does not sink it.
        """
        type_ = self.choice.instruction.accumulators
        marks = "convergent nounwind willreturn memory(none)"
        return w.emit(f'call {type_} asm "", "=v,0"({type_} {accumulator}) {marks}')

    def _multiply(self, w: FunctionWriter, a: str, b: str, c: str) -> str:
        instruction = self.choice.instruction
        operands = [
            (instruction.operand, a),
            (instruction.operand, b),
            (instruction.accumulators, c),
        ]
        if instruction.name.endswith(".f8f6f4"):
            # zero scale operands select the instruction without scales
            formats = [
                ("i32", str(_FORMATS[_fp8_name(type_)])) for type_ in reversed(self.choice.through)
            ]
            return w.intrinsic(
                f"llvm.amdgcn.{self.name}",
                instruction.accumulators,
                [*operands, *formats, *[("i32", "0")] * 4],
                [instruction.operand] * 2,
            )
        if instruction.family == MFMA:
            return w.call(
                f"llvm.amdgcn.{self.name}",
                instruction.accumulators,
                [*operands, ("i32", "0"), ("i32", "0"), ("i32", "0")],
            )
        if instruction.kind == "i8":
            signs = [
                ("i1", "true" if type_ is I8 else "false")
                for type_ in (self.choice.through[1], self.choice.through[0])
            ]
            operands = [signs[0], operands[0], signs[1], operands[1], operands[2], ("i1", "false")]
        return w.intrinsic(
            f"llvm.amdgcn.{self.name}",
            instruction.accumulators,
            operands,
            [instruction.accumulators, instruction.operand],
        )

    def _vectors(
        self, context: SimtContext, names: list[str], side: int, parts: int, held: int
    ) -> list[list[str]]:
        """Return the packed operands of the instructions, for each part of the split elements."""
        w, element, through = context.writer, self.elements[side], self.choice.through[side]
        if self.choice.split:

            def narrow(name: str) -> str:
                return emit_cast(context, name, F32, BF16, 0)

            def widen(name: str) -> str:
                return emit_cast(context, name, BF16, F32, 0)

            pieces = [split(w, name, parts, narrow, widen) for name in names]
            columns, through = [[piece[part] for piece in pieces] for part in range(parts)], BF16
        else:
            columns = [
                names
                if element is through
                else [emit_cast(context, name, element, through, 0) for name in names]
            ]
        type_ = register_type(through)
        return [
            [self._operand(w, type_, column[i : i + held]) for i in range(0, len(column), held)]
            for column in columns
        ]

    def _operand(self, w: FunctionWriter, type_: str, names: list[str]) -> str:
        """Pack a lane's elements into the instruction's operand type."""
        wanted, vector = self.choice.instruction.operand, join(w, type_, names)
        own = type_ if len(names) == 1 else f"<{len(names)} x {type_}>"
        return vector if own == wanted else w.emit(f"bitcast {own} {vector} to {wanted}")


def _fp8_name(type_: Type) -> str:
    return "fp8" if isinstance(type_, FloatType) and type_.mantissa == 3 else "bf8"
