"""``mma.sync``: selection of a warp's matrix instruction for a matmul, and its emission."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tilewright.ir.types import BF16, F8E4M3FN, F8E5M2, F16, F32, F64, I8, I32, U8, IntType, Type
from tilewright.llvm.emission.casts import emit_cast
from tilewright.llvm.emission.registers import register_type, storage_size
from tilewright.llvm.emission.writer import FunctionWriter
from tilewright.simt.layouts.linear_layout import LinearLayout, SharedLayout, axis_shifts
from tilewright.simt.layouts.mma_tiling import Tiling, layouts, tile, transposed
from tilewright.simt.lowering.emission.context import SimtContext
from tilewright.simt.passes.split_f32_operands import BF16_SPLITS, split
from tilewright.simt.target.matmul_plan import Matmul, MatmulPlan
from tilewright_nvidia.codegen.inline_ptx import call_asm
from tilewright_nvidia.codegen.kernel_state import words_in
from tilewright_nvidia.mma.fragments import Instruction
from tilewright_nvidia.mma.operand_loads import load_operand, matrix_turns, operand_shared


def _family(
    name: str,
    packed: int,
    extents: Sequence[tuple[int, int, int, int]],
    operand: str,
    accumulator: str,
) -> tuple[Instruction, ...]:
    """Return instructions that differ in their extents (m, k, compute capability, n)."""
    return tuple(
        Instruction(
            m,
            n,
            k,
            packed,
            f"mma.sync.aligned.m{m}n{n}k{k}.row.col.{name}",
            operand,
            accumulator,
            minimum,
        )
        for m, k, minimum, n in extents
    )


#: Kind of operands and accumulator -> its instructions, in order of preference.
INSTRUCTIONS: dict[str, tuple[Instruction, ...]] = {
    "f16 f32": _family("f32.f16.f16.f32", 2, ((16, 16, 80, 8), (16, 8, 75, 8)), "i32", "float"),
    "f16 f16": _family("f16.f16.f16.f16", 2, ((16, 16, 80, 8), (16, 8, 75, 8)), "i32", "i32"),
    "bf16 f32": _family("f32.bf16.bf16.f32", 2, ((16, 16, 80, 8), (16, 8, 80, 8)), "i32", "float"),
    "tf32 f32": _family("f32.tf32.tf32.f32", 1, ((16, 8, 80, 8), (16, 4, 80, 8)), "i32", "float"),
    # the sum saturates; the language does not define its value on overflow
    "i8 i32": _family(
        "satfinite.s32.{a}.{b}.s32",
        4,
        ((16, 32, 80, 8), (16, 16, 80, 8), (8, 16, 75, 8)),
        "i32",
        "i32",
    ),
    "fp8 f32": _family("f32.{a}.{b}.f32", 4, ((16, 32, 89, 8),), "i32", "float"),
    "f64 f64": _family("f64.f64.f64.f64", 1, ((8, 4, 80, 8),), "double", "double"),
}
_NAMES: dict[Type, str] = {I8: "s8", U8: "u8", F8E4M3FN: "e4m3", F8E5M2: "e5m2"}

#: Precision -> (kind of instruction, parts of each f32 operand, pairs of parts to multiply,
#: smallest products first).
SPLITS: dict[str, tuple[str, int, tuple[tuple[int, int], ...]]] = {
    "tf32": ("tf32 f32", 1, ((0, 0),)),
    "tf32x3": ("tf32 f32", 2, ((1, 0), (0, 1), (0, 0))),
    **{name: ("bf16 f32", *parts) for name, parts in BF16_SPLITS.items()},
}


@dataclass(frozen=True, slots=True)
class Choice:
    """The instruction selected for a matmul, and the conversion of its operands.

    Attributes:
        instruction: the instruction.
        through: the element types that the operands are converted to first.
        precision: the scheme that splits f32 operands; empty if they are not split.
    """

    instruction: Instruction
    through: tuple[Type, Type]
    precision: str = ""


def choose(
    capability: int,
    shape: Sequence[int],
    k: int,
    a: Type,
    b: Type,
    accumulator: Type,
    precision: str,
) -> Choice | None:
    """Select the instruction for a matmul; None if no instruction has its types and extents."""
    kinds = _kinds(a, b, accumulator, precision)
    m, n = shape[-2:]
    for kind, through, parts in kinds:
        for instruction in INSTRUCTIONS[kind]:
            if (
                capability >= instruction.minimum
                and instruction.m <= m
                and instruction.n <= n
                and instruction.k <= k
            ):
                return Choice(instruction, through, parts)
    return None


def _kinds(
    a: Type, b: Type, accumulator: Type, precision: str
) -> list[tuple[str, tuple[Type, Type], str]]:
    """Return candidates (kind of instruction, converted types, split), in order of preference."""
    if a is F32:
        return [(SPLITS[precision][0], (F32, F32), precision)] if precision in SPLITS else []
    if isinstance(a, IntType):
        return [("i8 i32", (a, b), "")] if accumulator is I32 else []
    if a is F64:
        return [("f64 f64", (F64, F64), "")]
    if a is BF16:
        return [("bf16 f32", (BF16, BF16), "")]
    found: list[tuple[str, tuple[Type, Type], str]] = []
    if a in _NAMES and b in _NAMES and accumulator is F32:
        found.append(("fp8 f32", (a, b), ""))
    # f16 represents every fp8 number exactly
    found.append(("f16 f16" if accumulator is F16 else "f16 f32", (F16, F16), ""))
    return found


def plans(capability: int, wanted: Matmul) -> tuple[MatmulPlan, ...]:
    """Plan a matmul, in order of preference; empty if no instruction fits.

    If only the transposed matmul has enough rows for an instruction, the plan computes the
    transpose with swapped operands.
    """
    shape, k, a, b, accumulator, precision = (
        wanted.shape,
        wanted.k,
        wanted.a,
        wanted.b,
        wanted.accumulator,
        wanted.precision,
    )
    choice = choose(capability, shape, k, a, b, accumulator, precision)
    swapped = choice is None
    if choice is None:
        shape, a, b = (*shape[:-2], shape[-1], shape[-2]), b, a
        choice = choose(capability, shape, k, a, b, accumulator, precision)
    if choice is None:
        return ()
    choices = [choice]
    if choice.precision and choice.instruction.packed == 1 and choice.instruction.k == 8:
        choices.append(replace(choice, instruction=replace(choice.instruction, pairs=True)))
    return tuple(
        _plan(
            each, replace(wanted, shape=shape, a=a, b=b), tf32_rounding(capability), swapped=swapped
        )
        for each in choices
    )


def _plan(choice: Choice, wanted: Matmul, rounding: str, *, swapped: bool) -> MatmulPlan:
    """Return the plan for an instruction, with swapped operands for the transposed matmul."""
    shape, k, a, b = wanted.shape, wanted.k, wanted.a, wanted.b
    tiling = tile(choice.instruction.shape, shape, k, wanted.warps)
    a_layout, b_layout, c_layout = layouts(choice.instruction.shape, tiling, shape, k, wanted.warps)
    matmul = _Matmul(choice, tiling, (a, b), wanted.accumulator, rounding)
    emit: Callable[[SimtContext, list[str], list[str], list[str]], list[str]] = matmul.emit
    elements = (a, b)
    if swapped:
        a_layout, b_layout, c_layout = (
            transposed(b_layout),
            transposed(a_layout),
            transposed(c_layout),
        )
        elements = (b, a)

        def emit(context: SimtContext, x: list[str], y: list[str], z: list[str]) -> list[str]:
            return matmul.emit(context, y, x, z)

    step = choice.instruction.k
    parts = [
        _step(layout, axis, step)
        for layout, axis in zip((a_layout, b_layout), (-1, -2), strict=True)
    ]
    loads = [
        _loader(part, element, axis)
        for part, element, axis in zip(parts, elements, (-1, -2), strict=True)
    ]

    def load_turns(position: int, shared: SharedLayout) -> int | None:
        turns = matrix_turns(parts[position], shared, storage_size(elements[position]))
        return (
            None
            if turns is None
            else turns
            * (a_layout, b_layout)[position].register_count
            // parts[position].register_count
        )

    shared = [
        operand_shared(layout, storage_size(element))
        for layout, element in zip((a_layout, b_layout), elements, strict=True)
    ]
    name = choice.instruction.text.format(**_type_names(choice)) + (
        ".pairs" if choice.instruction.pairs else ""
    )
    fragments: dict[str, Any] = {
        "load_a": loads[0],
        "load_b": loads[1],
        "load_turns": load_turns,
        "k_step": step,
    }
    return MatmulPlan(
        name,
        a_layout,
        b_layout,
        c_layout,
        emit,
        a_shared=shared[0],
        b_shared=shared[1],
        **fragments,
    )


def _type_names(choice: Choice) -> dict[str, str]:
    return {"a": _NAMES.get(choice.through[0], ""), "b": _NAMES.get(choice.through[1], "")}


def _step(layout: LinearLayout, axis: int, step: int) -> LinearLayout:
    """Return an operand's layout restricted to the first step along K (axis ``axis``)."""
    shift = axis_shifts(layout.shape)[axis]
    mask = layout.axis_mask(axis % len(layout.shape))
    steps = [image for image in layout.registers if image & mask and image >> shift >= step]
    return LinearLayout(
        layout.shape,
        tuple(image for image in layout.registers if image not in steps),
        layout.lanes,
        layout.warps,
    )


def _loader(
    part: LinearLayout, element: Type, axis: int
) -> Callable[[SimtContext, str, SharedLayout, int], list[str] | None]:
    """Return a function that loads the registers of one step along K (``axis``)."""
    shift = axis_shifts(part.shape)[axis]

    def load(
        context: SimtContext, address: str, shared: SharedLayout, first: int
    ) -> list[str] | None:
        return load_operand(context, part, element, address, shared, first << shift)

    return load


class _Matmul:
    """The emission of one matmul."""

    def __init__(
        self,
        choice: Choice,
        tiling: Tiling,
        elements: tuple[Type, Type],
        accumulator: Type,
        rounding: str,
    ) -> None:
        self.choice, self.tiling, self.elements, self.accumulator, self.rounding = (
            choice,
            tiling,
            elements,
            accumulator,
            rounding,
        )
        self.text = choice.instruction.text.format(**_type_names(choice))

    def emit(self, context: SimtContext, a: list[str], b: list[str], c: list[str]) -> list[str]:
        """Emit one step along K; return the result in the layouts of :mod:`.fragments`."""
        t, (a_words, b_words, c_words) = self.tiling, self.choice.instruction.words
        precision = self.choice.precision
        _, parts, pairs = SPLITS[precision] if precision else ("", 1, ((0, 0),))
        a_parts, b_parts = self._operand(context, a, 0, parts), self._operand(context, b, 1, parts)
        accumulator = self._accumulators(context.writer, c)
        for x, y, z in t.instructions(1):
            left, right, place = x * a_words, y * b_words, z * c_words
            for i, j in pairs:
                operands = (
                    a_parts[i][left : left + a_words],
                    b_parts[j][right : right + b_words],
                    accumulator[place : place + c_words],
                )
                accumulator[place : place + c_words] = self._multiply(context.writer, *operands)
        return self._results(context.writer, accumulator)

    def _multiply(self, w: FunctionWriter, a: list[str], b: list[str], c: list[str]) -> list[str]:
        instruction = self.choice.instruction
        groups, first = [], 0
        for group in (c, a, b, c):
            groups.append("{" + ", ".join(f"${first + i}" for i in range(len(group))) + "}")
            first += len(group)
        operands = [
            *((instruction.operand, name) for name in (*a, *b)),
            *((instruction.accumulator, name) for name in c),
        ]
        return call_asm(
            w,
            f"{self.text} {', '.join(groups)};",
            [instruction.accumulator] * len(c),
            operands,
            effects=False,
            convergent=True,
        )

    def _operand(
        self, context: SimtContext, names: list[str], side: int, parts: int
    ) -> list[list[str]]:
        """Return the packed registers in order, for each part of the split elements."""
        w, element, through = context.writer, self.elements[side], self.choice.through[side]
        if self.choice.precision:
            columns = [
                _split(w, self.choice.precision, name, parts, self.rounding) for name in names
            ]
            type_ = "i32" if self.choice.instruction.packed == 1 else "i16"
            return [
                self._packed(w, [pieces[part] for pieces in columns], type_)
                for part in range(parts)
            ]
        if element is not through:
            names = [emit_cast(context, name, element, through, 0) for name in names]
        return [self._packed(w, names, register_type(through))]

    def _packed(self, w: FunctionWriter, names: list[str], type_: str) -> list[str]:
        packed, operand = self.choice.instruction.packed, self.choice.instruction.operand
        if packed == 1:
            return names
        return [
            words_in(w).pack(w, names[i : i + packed], type_, operand)
            for i in range(0, len(names), packed)
        ]

    def _accumulators(self, w: FunctionWriter, c: list[str]) -> list[str]:
        if self.accumulator is F16:
            return [words_in(w).pack(w, c[i : i + 2], "half", "i32") for i in range(0, len(c), 2)]
        return list(c)

    def _results(self, w: FunctionWriter, accumulator: list[str]) -> list[str]:
        if self.accumulator is F16:
            return [
                name for word in accumulator for name in words_in(w).unpack(w, word, "i32", "half")
            ]
        return accumulator


def tf32_rounding(capability: int) -> str:
    """Return the instruction that converts f32 to tf32.

    ``cvt.rn``, from compute capability 9.0 on, is one instruction and rounds ties to even. Before,
    there is only ``cvt.rna``, which rounds ties away from zero in three instructions.
    """
    return "cvt.rn.tf32.f32" if capability >= 90 else "cvt.rna.tf32.f32"


def _split(w: FunctionWriter, precision: str, name: str, parts: int, rounding: str) -> list[str]:
    """Split an f32 number into a sum of tf32 or bf16 numbers, the largest first.

    ``rounding`` is the conversion to tf32.
    """
    tf32 = precision.startswith("tf32")

    def narrow(name: str) -> str:
        text, type_ = (rounding, "i32") if tf32 else ("cvt.rn.bf16.f32", "i16")
        return call_asm(w, f"{text} $0, $1;", [type_], [("float", name)], effects=False)[0]

    def widen(piece: str) -> str:
        wide = piece if tf32 else w.emit(f"shl i32 {w.emit(f'zext i16 {piece} to i32')}, 16")
        return w.emit(f"bitcast i32 {wide} to float")

    return split(w, name, parts, narrow, widen)
