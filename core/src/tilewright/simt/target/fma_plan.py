"""The plan of matmuls without matrix instructions, by multiply-adds.

Each thread computes a block of the result from operands in shared memory. The plan splits the
result's registers as evenly as it can between M and N, so that a thread uses each element that it
reads as often as possible. :mod:`tilewright.simt.lowering.fma_matmul` emits it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from tilewright.ir.types import FloatType, IntType, Type
from tilewright.simt.layouts.linear_layout import LinearLayout, log2
from tilewright.simt.target.matmul_plan import SHARED, Matmul, MatmulPlan
from tilewright.simt.target.simt_target import SimtTarget

#: log2 of the neighbors along M and N that a thread keeps together, for wide reads.
_RUN_BITS = 2


#: The name of the plan whose order is any.
FMA: Final = "multiply and add"
#: The name of the plan that adds one product after the other, without dot-product instructions.
FMA_IN_SEQUENCE: Final = "multiply and add in sequence"


def fma_plan(target: SimtTarget, matmul: Matmul, name: str = FMA) -> MatmulPlan:
    """Return the plan of a matmul in IEEE arithmetic, regardless of its precision attribute."""
    block = fma_block(
        result_layout(matmul.shape, log2(target.resources.warp_size), log2(matmul.warps)), matmul
    )
    return MatmulPlan(
        name, block.reads(0), block.reads(1), block.c, None, (SHARED, SHARED), by_threads=True
    )


def fma_block(c: LinearLayout, matmul: Matmul) -> FmaBlock:
    """Return the block of a matmul that each thread computes, for a result in layout ``c``."""
    return FmaBlock(c, log2(matmul.k), matmul.a, matmul.b, matmul.accumulator)


def result_layout(shape: tuple[int, ...], lane_bits: int, warp_bits: int) -> LinearLayout:
    """Return a layout of the result in which each thread has a block."""
    m, n = log2(shape[-2]), log2(shape[-1])
    held = max(0, log2(math.prod(shape)) - lane_bits - warp_bits)
    of_n = min(n, (held + 1) // 2)
    of_m = min(m, held - of_n)
    of_n = min(n, held - of_m)
    columns, rows = list(range(n)), list(range(n, n + m))
    batches = list(range(n + m, log2(math.prod(shape))))

    def block(bits: list[int], count: int) -> tuple[list[int], list[int]]:
        """Take the lowest and the highest bits for a thread's block.

        Lanes then read neighboring elements.
        """
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
    return LinearLayout(
        shape, images(registers, len(registers)), images(lanes, lane_bits), images(warps, warp_bits)
    )


@dataclass(frozen=True)
class FmaBlock:
    """A thread's block of a matmul with the result in layout ``c``, over 2**``k_bits`` elements."""

    c: LinearLayout
    k_bits: int
    a: Type
    b: Type
    accumulator: FloatType | IntType

    def _image(self, image: int, operand: int) -> int:
        """Map an image in the result to one in operand 0 or 1, at K = 0."""
        m, n = log2(self.c.shape[-2]), log2(self.c.shape[-1])
        row, column, batch = image >> n & ((1 << m) - 1), image & ((1 << n) - 1), image >> (n + m)
        if operand == 0:
            return batch << (m + self.k_bits) | row << self.k_bits
        return batch << (self.k_bits + n) | column

    def reads(self, operand: int) -> LinearLayout:
        """Return the layout of a thread's elements of an operand.

        The registers along M or N, and batches, come first, then those along K.
        """
        m, n, k = self.c.shape[-2], self.c.shape[-1], 1 << self.k_bits
        shape = (*self.c.shape[:-2], m, k) if operand == 0 else (*self.c.shape[:-2], k, n)
        own = [
            image for image in (self._image(image, operand) for image in self.c.registers) if image
        ]
        along_k = [1 << (bit if operand == 0 else bit + log2(n)) for bit in range(self.k_bits)]
        lanes, warps = (
            tuple([self._image(image, operand) for image in images])
            for images in (self.c.lanes, self.c.warps)
        )
        return LinearLayout(shape, (*own, *along_k), lanes, warps)

    def registers(self, operand: int) -> list[int]:
        """Return the operand's register at K = 0 for each register of the result."""
        found, position = [0], 0
        for image in self.c.registers:
            moved = 1 << position if self._image(image, operand) else 0
            position += 1 if moved else 0
            found += [register ^ moved for register in found]
        return found
