"""The error of a kernel that has no derivative."""

from __future__ import annotations

from tilewright.errors import TilewrightError, with_help
from tilewright.ir.core import Location, Operation

#: The remedy for an operation that has no row.
REWRITE = (
    "compute it by operations that have a derivative, or in a kernel of its own, whose "
    "gradient you write by hand"
)


class DerivativeError(TilewrightError):
    """The compiler cannot derive the derivative of a kernel, or no derivative exists.

    Attributes:
        reason: the operation that has no derivative, and why.
        remedy: another way to write the kernel, for which a derivative exists.
        location: the location of this operation in the kernel's source, or None if it is unknown;
            its ``chain()`` returns the calls that led there.
    """

    page = "reference/gradients#kernels-without-a-derivative"

    def __init__(self, reason: str, remedy: str = "", location: Location | None = None) -> None:
        self.reason, self.remedy, self.location = reason, remedy, location
        where, calls = "", ""
        if location is not None:
            here, *callers = location.chain()
            where = f"{here}: "
            calls = "".join(f"\n  called at {caller}" for caller in callers)
        super().__init__(with_help(f"{where}{reason}{calls}", remedy))

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.reason, self.remedy, self.location)


def refusal(operation: Operation, why: str, remedy: str = "") -> DerivativeError:
    """Return the error that an operation causes, at its place."""
    return DerivativeError(f"{operation.name}: {why}", remedy, operation.location)
