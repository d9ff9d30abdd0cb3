"""Errors of exact mode."""

from __future__ import annotations

from tilewright.errors import TilewrightError, with_help
from tilewright.ir.core import Location


class ExactModeError(TilewrightError):
    """A kernel does something that has no meaning over a ring.

    Attributes:
        reason: the operation that has none.
        remedy: a way to write the kernel that has one.
        location: its place in the kernel's source; None where unknown.
    """

    page = "exact#identities-that-exact-mode-keeps"

    def __init__(self, reason: str, remedy: str, location: Location | None) -> None:
        self.reason, self.remedy, self.location = reason, remedy, location
        where = "" if location is None else f"{location}: "
        super().__init__(with_help(f"exact mode: {where}{reason}", remedy))

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.reason, self.remedy, self.location)
