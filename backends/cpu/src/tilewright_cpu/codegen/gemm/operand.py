"""Operands and accumulator of a matmul, as micro-kernels read and write them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tilewright.ir.types import Type
from tilewright_cpu.codegen.gemm.plan import Extent


@dataclass(frozen=True, slots=True)
class KGroupsA:
    """Operand A by K-groups.

    K-group (m, k) lies at ``pointer`` + m * row_stride + k * k_stride elements of ``element``, an
    LLVM type. ``infinite``, an i64: other than 0 where the first part of a number that was split
    may be infinite.
    """

    pointer: str
    element: str
    row_stride: Extent
    k_stride: Extent
    align: int
    infinite: Extent = 0


@dataclass(frozen=True, slots=True)
class KGroupsB:
    """Operand B by K-groups.

    Packed: panels as :mod:`.pack` lays them out, each of ``k_groups`` along K. Else K-group (k, n)
    of a panel that begins at column c lies at ``pointer`` + k * row_stride + c * k_groups + n - c,
    in ``stored`` elements that ``convert`` makes K-groups; in place, ``k_groups`` is 1.
    ``infinite``: see :class:`KGroupsA`.
    """

    pointer: str
    packed: bool
    row_stride: Extent
    align: int
    stored: str
    convert: Callable[[str, int], str] | None = None
    k_groups: Extent = 0
    infinite: Extent = 0


@dataclass(frozen=True, slots=True)
class Accumulator:
    """Operand C and the result: row-major, ``row_stride`` elements a row.

    Attributes:
        zero: the accumulators start at zero, whatever memory holds.
        fresh: an i1: they do so in this matmul of a loop, whose other ones go on; None for
            ``zero``.
        result: where the result is written to; None where it is to operand C's memory.
    """

    pointer: str
    element: Type
    row_stride: int
    align: int
    zero: bool
    fresh: str | None = None
    result: ResultRows | None = None


@dataclass(frozen=True, slots=True)
class ResultRows:
    """Rows of a result: row r of a block lies ``offsets[r]`` elements behind its first one."""

    pointer: str
    row_stride: Extent
    offsets: Sequence[Extent] = ()
