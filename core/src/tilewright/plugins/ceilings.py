"""Peak rates of a device, as backends report them: the ceilings of a roofline."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Ceilings:
    """Peak rates of a device; an unknown rate is absent.

    Attributes:
        source: whose rates these are and where they come from: a device's name, or that of the
            usual device of an architecture.
        bandwidth: bytes a second of its memory.
        matmuls: operations a second of matrix instructions, two for a multiply-add, by the type of
            the operands; those of f32 with their precision behind it: ``f16``, ``i8``,
            ``f32 tf32``.
        arithmetic: the same of other instructions, by the type of the numbers.
        processors: how many run programs; 0 where it is not known. unit: what such a one is called:
            ``SM``, ``CU``.
    """

    source: str
    bandwidth: float | None = None
    matmuls: Mapping[str, float] = field(default_factory=dict)
    arithmetic: Mapping[str, float] = field(default_factory=dict)
    processors: int = 0
    unit: str = "processor"


__all__ = ["Ceilings"]
