"""The work of a launch, as :mod:`tilewright.passes.analysis.work` counts it for backends."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tilewright.ir.types import Type, byte_size


@dataclass(frozen=True, slots=True)
class MatmulWork:
    """A matmul, ``batch`` times M by N by K.

    Attributes:
        a, b: element types of the operands; accumulator: of the result.
        a_loaded, b_loaded: whether the operand was loaded from memory in the same run of the body.
        precision: of the multiplication of floats.
    """

    m: int
    n: int
    k: int
    batch: int
    a: Type
    b: Type
    accumulator: Type
    a_loaded: bool
    b_loaded: bool
    precision: str

    @property
    def operations(self) -> int:
        """Multiplications and additions."""
        return 2 * self.batch * self.m * self.n * self.k

    @property
    def loaded(self) -> int:
        """Bytes of the operands that were loaded in the same run."""
        a = self.m * self.k * byte_size(self.a) if self.a_loaded else 0
        b = self.k * self.n * byte_size(self.b) if self.b_loaded else 0
        return self.batch * (a + b)


@dataclass(slots=True)
class Body:
    """The work between inner loops: of the whole kernel, or of one loop.

    Attributes:
        depth: loops around.
        runs: how often a program runs it; entries: how often it comes to the loop.
        known: whether these follow from the launch.
        loaded, stored: bytes of tiles, a run; computed: floats that operations compute, a run;
            slow: those that take long. Integers are mostly addresses, which cost little.
        stages: what the loop says of its pipeline; 0 where it leaves that to the kernel.
        flattened: merged with the loop around; specialized: it asks for warps of their own for
            loads.
    """

    depth: int
    runs: float
    entries: float
    known: bool = True
    dots: list[MatmulWork] = field(default_factory=list)
    loaded: int = 0
    stored: int = 0
    computed: int = 0
    slow: int = 0
    stages: int = 0
    flattened: bool = False
    specialized: bool = False


@dataclass(frozen=True, slots=True)
class Work:
    """The work of a launch of one configuration.

    Attributes:
        programs: how many there are; None where that is not known.
        bodies: those of the first, the middle and the last program of a kernel with matmuls; of
            the first program of others.
        options: the launch's options, all of the backend's.
        max_tile_elements: number of elements of the largest tile.
    """

    programs: int | None
    bodies: tuple[tuple[Body, ...], ...]
    options: Mapping[str, Any]
    max_tile_elements: int

    @property
    def multiplies(self) -> bool:
        """Return whether it multiplies matrices."""
        return any(body.dots for body in self.bodies[0])
