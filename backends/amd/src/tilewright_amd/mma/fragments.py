"""Fragments of MFMA and WMMA: which lane holds which elements of A, B and C.

They follow AMD's matrix instruction calculator and ISA documents.

MFMA, by 64 lanes: lane l holds of A the row ``l % m`` and e neighbours along k from ``e * (l / m)`` on, of B the same of the column; of C the column ``l % n``
and of its rows four neighbours from ``4 * (l / n)`` on, then those of each further group. f64 has them one from every four rows. For f8f6f4, of whose
operands an instruction takes e = 32, other elements along k are neighbours
(:mod:`.block_scaled` has them); a sum without scales is the same whichever they are.

WMMA, by 32 lanes: of RDNA 3 each half of the lanes holds all of A and B, a row or column a lane, and every second row of C; of RDNA 4 one half of k and of the
rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from tilewright.simt.layouts.mma_tiling import Fragment, MatrixShape, powers
from tilewright_amd.architectures import MFMA, WMMA


@dataclass(frozen=True, slots=True)
class Instruction:
    """One matrix instruction.

    Attributes:
        name: of LLVM's intrinsic, less ``llvm.amdgcn.``; ``{a}`` and ``{b}`` stand for the kinds of fp8 operands.
        kind: of its operands: ``f16``, ``bf16``, ``fp8``, ``i8``, ``xf32``, ``f32`` or ``f64``.
        shape: extents and fragments.
        operand: LLVM type of a lane's elements of A or B.
        accumulator: LLVM type of an element of C.
        family, generations: the architectures that have it.
        times: how often it is issued, one after the other, for what a lane holds of A and B; see :meth:`packed`.
    """

    name: str
    kind: str
    shape: MatrixShape
    operand: str
    accumulator: str
    family: str
    generations: tuple[int, ...]
    times: int = 1

    def packed(self) -> Instruction:
        """Two of it, one after the other, of whose operands a lane holds neighbours along k: it loads them at once."""
        shape, extent = self.shape, self.shape.m
        groups = 64 // extent
        return replace(self, shape=_mfma_shape(extent, 2 * shape.k // groups), times=2 * self.times)

    @property
    def sums(self) -> str:
        """LLVM type of a lane's elements of C."""
        return f"<{self.shape.c.elements} x {self.accumulator}>"


def _mfma_shape(extent: int, elements: int, *, double: bool = False) -> MatrixShape:
    """``extent`` rows and columns, ``elements`` neighbours along k in a lane."""
    groups = 64 // extent
    own, others = powers(1, elements), [elements * group for group in powers(1, groups)]
    along = powers(1, extent)
    a = Fragment(tuple((0, k) for k in own), (*((row, 0) for row in along), *((0, k) for k in others)))
    b = Fragment(tuple((k, 0) for k in own), (*((0, column) for column in along), *((k, 0) for k in others)))
    if double:
        held, spread = [4, 8], [1, 2]
    else:
        held, spread = [1, 2, *powers(4 * groups, extent)], powers(4, 4 * groups)
    c = Fragment(tuple((row, 0) for row in held), (*((0, column) for column in along), *((row, 0) for row in spread)))
    return MatrixShape(extent, extent, elements * groups, a, b, c)


def _wmma_shape(generation: int) -> MatrixShape:
    along = powers(1, 16)
    if generation == 3:
        own, other, rows, half = powers(1, 16), 0, (2, 4, 8), 1
    else:
        own, other, rows, half = powers(1, 8), 8, (1, 2, 4), 8
    a = Fragment(tuple((0, k) for k in own), (*((row, 0) for row in along), (0, other)))
    b = Fragment(tuple((k, 0) for k in own), (*((0, column) for column in along), (other, 0)))
    c = Fragment(tuple((row, 0) for row in rows), (*((0, column) for column in along), (half, 0)))
    return MatrixShape(16, 16, 16, a, b, c)


#: (kind, what intrinsics are called after their extents, neighbours along k in a lane, LLVM type of them, of an element of C, generations): each with 32 rows
#: and with 16. That of f64 is apart.
_MFMA: Final = (
    ("f16", ".f16", 8, "<8 x half>", "float", (4,)),
    ("f16", "f16", 4, "<4 x half>", "float", (2, 3, 4)),
    ("bf16", ".bf16", 8, "<8 x bfloat>", "float", (4,)),
    ("bf16", "bf16.1k", 4, "<4 x i16>", "float", (2, 3, 4)),
    ("fp8", ".f8f6f4", 32, "<8 x i32>", "float", (4,)),
    ("fp8", ".{a}.{b}", 8, "i64", "float", (3, 4)),
    ("i8", ".i8", 16, "<4 x i32>", "i32", (4,)),
    ("i8", ".i8", 8, "i64", "i32", (3, 4)),
    ("i8", "i8", 4, "i32", "i32", (2,)),
    ("xf32", ".xf32", 2, "<2 x float>", "float", (3,)),
    ("f32", "f32", 1, "float", "float", (2, 3, 4)),
)


def _all() -> Iterator[Instruction]:
    for kind, ending, elements, operand, accumulator, generations in _MFMA:
        for extent in (32, 16):
            shape = _mfma_shape(extent, elements)
            scale = "scale." if ending == ".f8f6f4" else ""
            name = f"mfma.{scale}{'i32' if accumulator == 'i32' else 'f32'}.{extent}x{extent}x{shape.k}{ending}"
            yield Instruction(name, kind, shape, operand, accumulator, MFMA, generations)
    yield Instruction("mfma.f64.16x16x4f64", "f64", _mfma_shape(16, 1, double=True), "double", "double", MFMA, (2, 3, 4))
    for generation, elements, bytes_ in ((3, 16, 4), (4, 8, 2)):
        shape = _wmma_shape(generation)
        yield Instruction("wmma.f32.16x16x16.f16", "f16", shape, f"<{elements} x half>", "float", WMMA, (generation,))
        yield Instruction("wmma.f32.16x16x16.bf16", "bf16", shape, f"<{elements} x i16>", "float", WMMA, (generation,))
        yield Instruction("wmma.i32.16x16x16.iu8", "i8", shape, f"<{bytes_} x i32>", "i32", WMMA, (generation,))
    yield Instruction("wmma.f32.16x16x16.{a}.{b}", "fp8", _wmma_shape(4), "<2 x i32>", "float", WMMA, (4,))


#: All of them; of a kind, those preferred first.
INSTRUCTIONS: Final = tuple(_all())
