"""Fragments of MFMA and WMMA: the mapping from lanes to elements of A, B and C.

They follow AMD's matrix instruction calculator and the ISA documents.

MFMA (64 lanes): lane l holds row ``l % m`` of A and e consecutive elements along K from ``e * (l /
m)`` on, and the same of a column of B. Of C it holds column ``l % n`` and four consecutive rows
from ``4 * (l / n)`` on, then the same four rows of each further group. For f64, it holds every
fourth row. For f8f6f4 instructions (e = 32) the hardware orders the elements along K differently
(:mod:`.block_scaled` has the order), but without scales the sum does not depend on the order.

WMMA (32 lanes): on RDNA 3, each half of the lanes holds all of A and B, a row or column per lane,
and every second row of C. On RDNA 4, each half holds one half of K and one half of C's rows.
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
        name: the LLVM intrinsic without ``llvm.amdgcn.``; ``{a}`` and ``{b}`` stand for the kinds
            of fp8 operands.
        kind: the kind of its operands: ``f16``, ``bf16``, ``fp8``, ``i8``, ``xf32``, ``f32`` or
            ``f64``.
        shape: extents and fragments.
        operand: LLVM type of a lane's elements of A or B.
        accumulator: LLVM type of an element of C.
        family, generations: the architectures that have it.
        times: number of back-to-back issues that consume a lane's elements of A and B; see
            :meth:`packed`.
        sinks: whether LLVM moves it into a branch that some lanes do not take, where its result is
            used there alone, as by a masked store.
    """

    name: str
    kind: str
    shape: MatrixShape
    operand: str
    accumulator: str
    family: str
    generations: tuple[int, ...]
    times: int = 1
    sinks: bool = False

    def packed(self) -> Instruction:
        """Return two back-to-back issues of the instruction, whose operands a lane loads at once.

        The lane holds consecutive elements along K for both.
        """
        shape, extent = self.shape, self.shape.m
        groups = 64 // extent
        return replace(self, shape=_mfma_shape(extent, 2 * shape.k // groups), times=2 * self.times)

    @property
    def accumulators(self) -> str:
        """Return the LLVM type of a lane's accumulators."""
        return f"<{self.shape.c.elements} x {self.accumulator}>"


def _mfma_shape(extent: int, elements: int, *, double: bool = False) -> MatrixShape:
    """Return an MFMA shape of ``extent`` rows and columns, ``elements`` along K per lane."""
    groups = 64 // extent
    own, others = powers(1, elements), [elements * group for group in powers(1, groups)]
    along = powers(1, extent)
    a = Fragment(
        tuple((0, k) for k in own), (*((row, 0) for row in along), *((0, k) for k in others))
    )
    b = Fragment(
        tuple((k, 0) for k in own), (*((0, column) for column in along), *((k, 0) for k in others))
    )
    if double:
        held, spread = [4, 8], [1, 2]
    else:
        held, spread = [1, 2, *powers(4 * groups, extent)], powers(4, 4 * groups)
    c = Fragment(
        tuple((row, 0) for row in held),
        (*((0, column) for column in along), *((row, 0) for row in spread)),
    )
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


#: (kind, suffix of the intrinsic after the extents, elements along K per lane, their LLVM type,
#: LLVM type of an element of C, generations). Each has a variant with 32 rows and one with 16; f64
#: is separate.
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
            result = "i32" if accumulator == "i32" else "f32"
            name = f"mfma.{scale}{result}.{extent}x{extent}x{shape.k}{ending}"
            yield Instruction(name, kind, shape, operand, accumulator, MFMA, generations)
    yield Instruction(
        "mfma.f64.16x16x4f64",
        "f64",
        _mfma_shape(16, 1, double=True),
        "double",
        "double",
        MFMA,
        (2, 3, 4),
    )
    for generation, elements, bytes_ in ((3, 16, 4), (4, 8, 2)):
        shape = _wmma_shape(generation)
        for name, kind, operand, accumulator in (
            ("wmma.f32.16x16x16.f16", "f16", f"<{elements} x half>", "float"),
            ("wmma.f32.16x16x16.bf16", "bf16", f"<{elements} x i16>", "float"),
            ("wmma.i32.16x16x16.iu8", "i8", f"<{bytes_} x i32>", "i32"),
        ):
            # of LLVM 22's machine instructions these alone are not marked as convergent
            sinks = generation == 3
            yield Instruction(
                name, kind, shape, operand, accumulator, WMMA, (generation,), sinks=sinks
            )
    yield Instruction(
        "wmma.f32.16x16x16.{a}.{b}", "fp8", _wmma_shape(4), "<2 x i32>", "float", WMMA, (4,)
    )


#: All instructions; those of a kind in order of preference.
INSTRUCTIONS: Final = tuple(_all())
