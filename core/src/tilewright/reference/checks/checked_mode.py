"""Kinds of problems that the checked mode finds, and their texts."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.errors import KernelError, helped
from tilewright.ir.core import Location
from tilewright.reference.failures import where


@dataclass(frozen=True, slots=True)
class CheckedOptions:
    """Options of the checked mode, which always checks bounds.

    Attributes:
        uninitialized: names or positions of arguments that hold nothing yet: reading what no
            program wrote there is a finding.
        buffers: further arrays that the kernel may touch, for kernels that load pointers from
            memory.
        undefined: lanes that an operation left undefined and that reach a store, an address or a
            branch.
        masked_off: lanes that the mask of a load turns off, and that reach one: they are zero for
            want of an ``other``, which a kernel may rely on.
        races: accesses of different programs to the same bytes, not all of them reads or atomics,
            with no order between them.
        overflow: signed integer addition, subtraction or multiplication that wraps around.
        arithmetic: integer division by zero, shifts and float-to-integer casts out of range,
            gathers out of range.
        promises: ``assume`` and hints that do not hold.
        overlaps: accesses through an argument, one of them a store, to what is accessed through
            another that begins elsewhere in the same memory.
        limit: the number of findings after which the run stops.
    """

    uninitialized: Collection[str | int] = ()
    buffers: Sequence[Any] = ()
    undefined: bool = True
    masked_off: bool = False
    races: bool = True
    overflow: bool = True
    arithmetic: bool = True
    promises: bool = True
    overlaps: bool = True
    limit: int = 20


@dataclass(frozen=True, slots=True)
class Finding:
    """A defect of a kernel, at the first lane with it; ``count`` lanes of the operation have it.

    ``kind`` is one of ``out-of-bounds uninitialized-read undefined-value masked-off-lane race
    integer-overflow division-by-zero shift-out-of-range cast-out-of-range index-out-of-range
    broken-promise overlapping-arguments``. ``location`` carries the chain of inlined calls,
    ``calls`` the call sites of functions that were not inlined. ``lane`` is the index into the
    operation's tile, ``()`` for a scalar.
    """

    kind: str
    message: str
    location: Location | None
    calls: tuple[Location | None, ...]
    program: tuple[int, int, int]
    lane: tuple[int, ...]
    argument: str | None
    count: int

    def __str__(self) -> str:
        lane = f", lane {self.lane if len(self.lane) > 1 else self.lane[0]}" if self.lane else ""
        others = self.count - 1
        what = "lane" if self.lane else "program"
        more = f" (and {others} more {what}{'s' if others > 1 else ''})" if others else ""
        return (
            f"{where(self.location, self.calls)}: {self.kind}: {self.message}; program "
            f"{self.program}{lane}{more}"
        )


_REMEDY_OF_A_RACE = (
    "to avoid a race, let each program write its own elements, or combine results with atomics "
    "such as tl.atomic_add"
)


class CheckError(KernelError):
    """The checked mode found defects; ``findings`` has them, at most one an operation and kind."""

    page = "debugging#checked-mode"

    def __init__(self, findings: Sequence[Finding], complete: bool = True) -> None:
        self.findings = tuple(findings)
        self.complete = complete
        count = f"{len(self.findings)} finding{'s' if len(self.findings) != 1 else ''}"
        if not complete:
            count += ", where the run was stopped"
        super().__init__(
            "\n".join(
                [f"the checked mode has {count}:", *(f"  {finding}" for finding in self.findings)]
            )
        )
        if any(finding.kind == "race" for finding in self.findings):
            helped(self, _REMEDY_OF_A_RACE)

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.findings, self.complete)
