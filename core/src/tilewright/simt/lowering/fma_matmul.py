"""Lowering of matmuls without matrix instructions (:mod:`tilewright.simt.target.fma_plan`).

A thread reads a few elements along K at a time, in a loop: neither registers nor code grow with K.
Lanes that need the same element read it together. Where the target has a dot-product instruction
for pairs of narrow elements, neighbors along K form the pairs.
"""

from __future__ import annotations

from dataclasses import replace

from tilewright.ir.types import F32, F64, IntType, Type
from tilewright.llvm.emission.casts import emit_cast
from tilewright.llvm.emission.registers import register_type, storage_size
from tilewright.simt.layouts.linear_layout import LinearLayout, bits_of, log2
from tilewright.simt.layouts.swizzle import accesses
from tilewright.simt.lowering.emission.context import SimtContext, emit_linear
from tilewright.simt.lowering.emission.shared_access import places, read
from tilewright.simt.lowering.emission.shuffles import packed
from tilewright.simt.target.capabilities.matrix import PairDot
from tilewright.simt.target.fma_plan import FmaBlock
from tilewright.simt.target.matmul_plan import SharedOperand


def emit_fma_block(
    context: SimtContext,
    block: FmaBlock,
    a: SharedOperand,
    b: SharedOperand,
    c: list[str],
    *,
    in_sequence: bool = False,
) -> list[str]:
    """Emit the matmul of a thread's block; return the registers of the result.

    ``in_sequence``: one product is added after the other.
    """
    w = context.writer
    compute: Type = (
        block.accumulator
        if isinstance(block.accumulator, IntType) or block.accumulator is F64
        else F32
    )
    type_ = register_type(compute)
    sides = [
        _Side(context, operand, block.reads(number), block.k_bits)
        for number, operand in enumerate((a, b))
    ]
    body = context.target.costs.thresholds.fma_body
    slice_bits = max(
        0,
        min(block.k_bits, log2(body) - len(block.c.registers)),
        *(side.slice_bits for side in sides),
    )
    of_register = [block.registers(operand) for operand in (0, 1)]
    accumulator = [emit_cast(context, name, block.accumulator, compute, 0) for name in c]

    pairs = (
        context.target.matrix.pair_dot
        if compute is F32 and block.a is block.b and slice_bits > 0 and not in_sequence
        else None
    )
    if pairs is not None and block.a not in pairs.types:
        pairs = None

    def add_pairs(instruction: PairDot, accumulator: list[str], index: str | None) -> list[str]:
        left, right = (
            _pairs(context, side.read(slice_bits, index, block.a), block.a) for side in sides
        )
        for k in range(0, 1 << slice_bits, 2):
            for register, (row, column) in enumerate(zip(*of_register, strict=True)):
                accumulator[register] = instruction.emit(
                    w, block.a, left[row, k], right[column, k], accumulator[register]
                )
        return accumulator

    def add_slice(accumulator: list[str], index: str | None) -> list[str]:
        if pairs is not None:
            return add_pairs(pairs, accumulator, index)
        left, right = (side.read(slice_bits, index, compute) for side in sides)
        for k in range(1 << slice_bits):
            for register, (row, column) in enumerate(zip(*of_register, strict=True)):
                x, y = left[row, k], right[column, k]
                if isinstance(compute, IntType):
                    accumulator[register] = w.emit(
                        f"add {type_} {accumulator[register]}, {w.emit(f'mul {type_} {x}, {y}')}"
                    )
                else:
                    accumulator[register] = w.intrinsic(
                        "llvm.fma", type_, [(type_, x), (type_, y), (type_, accumulator[register])]
                    )
        return accumulator

    if slice_bits == block.k_bits:
        accumulator = add_slice(accumulator, None)
    else:
        loop = w.begin_loop(
            "0",
            str(1 << (block.k_bits - slice_bits)),
            1,
            [(type_, name) for name in accumulator],
            nonempty=True,
            type_="i32",
        )
        accumulator = w.end_loop(loop, add_slice(list(loop.values), loop.index))
    return [emit_cast(context, name, compute, block.accumulator, 0) for name in accumulator]


class _Side:
    """A thread's reads of one operand."""

    def __init__(
        self, context: SimtContext, operand: SharedOperand, layout: LinearLayout, k_bits: int
    ) -> None:
        self.context, self.operand, self.layout, self.k_bits = context, operand, layout, k_bits
        self.own_bits = len(layout.registers) - k_bits
        limit = max(1, context.target.resources.max_access // storage_size(operand.element))
        while True:
            self.plan = accesses(layout, operand.shared, limit)
            registers, _ = self.plan.groups[0]
            #: bits of K that one access may span
            self.slice_bits = max(
                (register ^ registers[0]) >> self.own_bits for register in registers
            ).bit_length()
            # the number of the slice must not change where in an access an element is
            if not any(
                image & (self.plan.width - 1)
                for image in operand.shared.through(
                    layout.registers[self.own_bits + self.slice_bits :]
                )
            ):
                break
            limit = self.plan.width // 2

    def read(self, slice_bits: int, index: str | None, compute: Type) -> dict[tuple[int, int], str]:
        """Load a slice: (register at K = 0, index along K in the slice) -> the element.

        Elements have type ``compute``; ``index`` is the slice's number, an i32.
        """
        context, size = self.context, storage_size(self.operand.element)
        inside = 1 << (self.own_bits + slice_bits)
        plan = replace(
            self.plan,
            groups=tuple(
                (registers, offset)
                for registers, offset in self.plan.groups
                if registers[0] < inside
            ),
        )
        moved = None
        if index is not None:
            images = [
                image * size
                for image in self.operand.shared.through(
                    self.layout.registers[self.own_bits + slice_bits :]
                )
            ]
            moved = emit_linear(context.writer, ((index, images),)), _union(images)
        found = {}
        for place in places(context, self.operand.address, plan, self.operand.element, index=moved):
            for register, name in zip(
                place.registers, read(context, place, self.operand.element), strict=True
            ):
                value = emit_cast(context, name, self.operand.element, compute, 0)
                found[register & ((1 << self.own_bits) - 1), register >> self.own_bits] = value
        return found


def _pairs(
    context: SimtContext, elements: dict[tuple[int, int], str], element: Type
) -> dict[tuple[int, int], str]:
    """Return (register at K = 0, even index along K) -> the packed word of two K neighbors."""
    return {
        (own, k): packed(context.writer, register_type(element), [low, elements[own, k + 1]])
        for (own, k), low in elements.items()
        if k % 2 == 0
    }


def _union(images: list[int]) -> int:
    return sum(1 << bit for bit in {bit for image in images for bit in bits_of(image)})
