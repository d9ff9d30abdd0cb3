"""Texts of runtime failures of a kernel: source location, program and lane."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.errors import KernelError
from tilewright.ir.core import Location, Operation


def program_coordinates(pid: int, grid: tuple[int, int, int]) -> tuple[int, int, int]:
    """The position in the grid of a linear program id."""
    return pid % grid[0], pid // grid[0] % grid[1], pid // (grid[0] * grid[1])


def where(location: Location | None, calls: Sequence[Location | None] = ()) -> str:
    """Format a location with its chain of calls, innermost first.

    ``calls`` are those of functions that were not inlined, innermost first.
    """
    chain = location.chain() if location is not None else []
    for call in calls:
        chain = [*chain, *(call.chain() if call is not None else [])]
    if not chain:
        return "<unknown location>"
    return str(chain[0]) + "".join(f", called from {caller}" for caller in chain[1:])


def failure(
    operation: Operation,
    message: str,
    program: tuple[int, int, int] | None,
    lane: tuple[int, ...] | None,
    calls: Sequence[Location | None],
) -> KernelError:
    """The exception for an operation that failed."""
    text = f"{where(operation.location, calls)}: {message}"
    if program is not None:
        text += f"; program {program}"
    if lane:
        text += f", lane {lane if len(lane) > 1 else lane[0]}"
    return KernelError(text)
