"""Matrix products without matrix instructions: each thread multiplies and adds for a block of the result, from operands in shared memory.

The result's registers are split as evenly as they go between M and N, so that an element that is read is used as often as may be. A thread reads a few
elements along K at a time, in a loop: neither registers nor code grow with K. Lanes that need the same element read it together. Where the machine adds two
products of narrow elements at once, those of neighbours along K are.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final

from tilewright.ir.types import F32, F64, FloatType, IntType, Type
from tilewright.llvm.casts import emit_cast
from tilewright.llvm.registers import register_type, storage_size
from tilewright.simt.context import SimtContext, emit_linear
from tilewright.simt.linear_layout import LinearLayout, bits_of, log2
from tilewright.simt.lowering.shared_accesses import places, read
from tilewright.simt.lowering.shuffles import packed
from tilewright.simt.matmul_plans import SHARED, Product, ProductPlan, SharedOperand
from tilewright.simt.swizzle import accesses
from tilewright.simt.target import SimtTarget

#: Multiplications that the body of the loop over K has at most.
_BODY = 512
#: Neighbours along M and N that a thread keeps together, for wide reads.
_RUN_BITS = 2


#: The name of the plan.
FMA: Final = "multiply and add"


def fma_plan(target: SimtTarget, product: Product) -> ProductPlan:
    """A product in IEEE arithmetic, whatever its precision allows."""
    c = result_layout(product.shape, log2(target.warp_size), log2(product.warps))
    block = _Block(c, log2(product.k), product.a, product.b, product.accumulator)
    return ProductPlan(FMA, block.reads(0), block.reads(1), c, block.emit, (SHARED, SHARED), by_threads=True)


def result_layout(shape: tuple[int, ...], lane_bits: int, warp_bits: int) -> LinearLayout:
    """Threads over the result, each with a block of it."""
    m, n = log2(shape[-2]), log2(shape[-1])
    held = max(0, log2(math.prod(shape)) - lane_bits - warp_bits)
    of_n = min(n, (held + 1) // 2)
    of_m = min(m, held - of_n)
    of_n = min(n, held - of_m)
    columns, rows = list(range(n)), list(range(n, n + m))
    batches = list(range(n + m, log2(math.prod(shape))))

    def block(bits: list[int], count: int) -> tuple[list[int], list[int]]:
        """Neighbours in the lowest bits, the rest of the block far apart, so that lanes read side by side."""
        run = min(count, _RUN_BITS)
        far = count - run
        taken = bits[:run], bits[len(bits) - far :]
        del bits[len(bits) - far :], bits[:run]
        return taken

    near_n, far_n = block(columns, of_n)
    near_m, far_m = block(rows, of_m)
    registers = [*near_n, *near_m, *far_n, *far_m]
    registers += batches[len(batches) - (held - len(registers)) :]
    del batches[len(batches) - (held - of_n - of_m) :]
    half = (lane_bits + 1) // 2
    order = [*columns[:half], *rows[: lane_bits - min(half, len(columns))]]
    order += [bit for bit in (*rows, *columns, *batches) if bit not in order]

    def images(bits: list[int], count: int) -> tuple[int, ...]:
        return (*(1 << bit for bit in bits), *(0,) * (count - len(bits)))

    lanes, warps = order[:lane_bits], order[lane_bits:]
    return LinearLayout(shape, images(registers, len(registers)), images(lanes, lane_bits), images(warps, warp_bits))


@dataclass(frozen=True)
class _Block:
    """A product whose result is in layout ``c``, over 2**``k_bits`` elements."""

    c: LinearLayout
    k_bits: int
    a: Type
    b: Type
    accumulator: FloatType | IntType

    def _image(self, image: int, operand: int) -> int:
        """The part that an image in the result has in operand 0 or 1, at K = 0."""
        m, n = log2(self.c.shape[-2]), log2(self.c.shape[-1])
        row, column, batch = image >> n & ((1 << m) - 1), image & ((1 << n) - 1), image >> (n + m)
        if operand == 0:
            return batch << (m + self.k_bits) | row << self.k_bits
        return batch << (self.k_bits + n) | column

    def reads(self, operand: int) -> LinearLayout:
        """What a thread reads of an operand: first the registers along M or N, and batches, then those along K."""
        m, n, k = self.c.shape[-2], self.c.shape[-1], 1 << self.k_bits
        shape = (*self.c.shape[:-2], m, k) if operand == 0 else (*self.c.shape[:-2], k, n)
        own = [image for image in (self._image(image, operand) for image in self.c.registers) if image]
        along_k = [1 << (bit if operand == 0 else bit + log2(n)) for bit in range(self.k_bits)]
        lanes, warps = (tuple([self._image(image, operand) for image in images]) for images in (self.c.lanes, self.c.warps))
        return LinearLayout(shape, (*own, *along_k), lanes, warps)

    def emit(self, context: SimtContext, a: SharedOperand, b: SharedOperand, c: list[str]) -> list[str]:
        """The registers of the result."""
        w = context.writer
        compute: Type = self.accumulator if isinstance(self.accumulator, IntType) or self.accumulator is F64 else F32
        type_ = register_type(compute)
        sides = [_Side(context, operand, self.reads(number), self.k_bits) for number, operand in enumerate((a, b))]
        slice_bits = max(0, min(self.k_bits, log2(_BODY) - len(self.c.registers)), *(side.slice_bits for side in sides))
        of_register = [self._registers(operand) for operand in (0, 1)]
        sums = [emit_cast(context, name, self.accumulator, compute, 0) for name in c]

        paired = compute is F32 and self.a is self.b and self.a in context.target.pair_products and slice_bits > 0

        def add_pairs(sums: list[str], index: str | None) -> list[str]:
            left, right = (_pairs(context, side.read(slice_bits, index, self.a), self.a) for side in sides)
            for k in range(0, 1 << slice_bits, 2):
                for register, (row, column) in enumerate(zip(*of_register, strict=True)):
                    sums[register] = context.target.add_pair(w, self.a, left[row, k], right[column, k], sums[register])
            return sums

        def add_slice(sums: list[str], index: str | None) -> list[str]:
            if paired:
                return add_pairs(sums, index)
            left, right = (side.read(slice_bits, index, compute) for side in sides)
            for k in range(1 << slice_bits):
                for register, (row, column) in enumerate(zip(*of_register, strict=True)):
                    x, y = left[row, k], right[column, k]
                    if isinstance(compute, IntType):
                        sums[register] = w.emit(f"add {type_} {sums[register]}, {w.emit(f'mul {type_} {x}, {y}')}")
                    else:
                        sums[register] = w.intrinsic("llvm.fma", type_, [(type_, x), (type_, y), (type_, sums[register])])
            return sums

        if slice_bits == self.k_bits:
            sums = add_slice(sums, None)
        else:
            loop = w.begin_loop("0", str(1 << (self.k_bits - slice_bits)), 1, [(type_, name) for name in sums], nonempty=True, type_="i32")
            sums = w.end_loop(loop, add_slice(list(loop.values), loop.index))
        return [emit_cast(context, name, compute, self.accumulator, 0) for name in sums]

    def _registers(self, operand: int) -> list[int]:
        """For each register of the result, the operand's register that it multiplies, at K = 0."""
        found, position = [0], 0
        for image in self.c.registers:
            moved = 1 << position if self._image(image, operand) else 0
            position += 1 if moved else 0
            found += [register ^ moved for register in found]
        return found


class _Side:
    """How a thread reads one operand."""

    def __init__(self, context: SimtContext, operand: SharedOperand, layout: LinearLayout, k_bits: int) -> None:
        self.context, self.operand, self.layout, self.k_bits = context, operand, layout, k_bits
        self.own_bits = len(layout.registers) - k_bits
        limit = max(1, context.target.max_access // storage_size(operand.element))
        while True:
            self.plan = accesses(layout, operand.shared, limit)
            registers, _ = self.plan.groups[0]
            #: bits of K that one access may span
            self.slice_bits = max((register ^ registers[0]) >> self.own_bits for register in registers).bit_length()
            # the number of the slice must not change where in an access an element is
            if not any(image & (self.plan.width - 1) for image in operand.shared.through(layout.registers[self.own_bits + self.slice_bits :])):
                break
            limit = self.plan.width // 2

    def read(self, slice_bits: int, index: str | None, compute: Type) -> dict[tuple[int, int], str]:
        """(register at K = 0, place along K in the slice) -> the element, in type ``compute``. ``index`` is the slice's number, an i32."""
        context, size = self.context, storage_size(self.operand.element)
        inside = 1 << (self.own_bits + slice_bits)
        plan = replace(self.plan, groups=tuple((registers, offset) for registers, offset in self.plan.groups if registers[0] < inside))
        moved = None
        if index is not None:
            images = [image * size for image in self.operand.shared.through(self.layout.registers[self.own_bits + slice_bits :])]
            moved = emit_linear(context.writer, ((index, images),)), _union(images)
        found = {}
        for place in places(context, self.operand.address, plan, self.operand.element, index=moved):
            for register, name in zip(place.registers, read(context, place, self.operand.element), strict=True):
                value = emit_cast(context, name, self.operand.element, compute, 0)
                found[register & ((1 << self.own_bits) - 1), register >> self.own_bits] = value
        return found


def _pairs(context: SimtContext, elements: dict[tuple[int, int], str], element: Type) -> dict[tuple[int, int], str]:
    """(register at K = 0, an even place along K) -> the word of that element of 16 bits and of the next one along K."""
    return {(own, k): packed(context.writer, register_type(element), [low, elements[own, k + 1]]) for (own, k), low in elements.items() if k % 2 == 0}


def _union(images: list[int]) -> int:
    return sum(1 << bit for bit in {bit for image in images for bit in bits_of(image)})
