"""One program on the reference, in checked mode, and on a backend."""

from __future__ import annotations

import faulthandler
import sys
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.errors import KernelError
from tilewright.plugins.manifest import Capabilities
from tilewright.reference.checks.checked_mode import CheckedOptions
from tilewright.reference.interpreter import run
from tilewright_conformance.random_programs import Program, mismatch
from tilewright_conformance.suite.placement import OutOfBoundsWriteError
from tilewright_conformance.suite.requirements import needs_of
from tilewright_conformance.suite.session import Session, Subject

if TYPE_CHECKING:
    from tilewright.plugins.manifest import EmulatedDevice

#: Integers wrap around in the IR; all else that the checked mode finds makes a program undefined.
_CHECKED = CheckedOptions(overflow=False)

AGREES, UNDEFINED, UNDECLARED, MISMATCH, ERROR = (
    "agrees",
    "undefined",
    "undeclared",
    "mismatch",
    "error",
)
#: Verdicts of exact mode alone: it has no rule for the program, or the results differ behind an
#: operation of which it knows nothing but the operands.
NOT_MODELLED, INCONCLUSIVE = "not modelled", "inconclusive"


@dataclass(frozen=True)
class Verdict:
    """The outcome of a program.

    Attributes:
        kind: ``agrees``; ``undefined`` (the reference refuses the program or found something, so it
            proves nothing about the backend); ``undeclared`` (the program needs a feature that the
            backend does not declare); ``mismatch`` (a result differs, or memory around an array was
            written); ``error`` (the backend refused the program, or failed); in exact mode also
            ``not modelled`` and ``inconclusive``.
        message: what is wrong.
        expected: the arguments after the reference ran; empty where it did not.
        executed: the program that ran, where it was made from the one that is judged.
    """

    kind: str
    message: str = ""
    expected: tuple[Any, ...] = ()
    executed: Program | None = None

    @property
    def fails(self) -> bool:
        """Return whether the backend failed."""
        return self.kind in (MISMATCH, ERROR)


def interpreted(program: Program) -> tuple[Any, ...]:
    """Return a program's arguments after the reference ran it in checked mode.

    Raises:
        KernelError: the program is undefined.
    """
    arguments = program.arguments()
    with np.errstate(all="ignore"):
        run(program.module, arguments, program.grid, checked=_CHECKED)
    return tuple(arguments)


class Differential:
    """Judges programs on a backend.

    Multiplications and additions are not fused, and functions are as exact as the shared ones.

    Args:
        time_limit: seconds that the backend may take for a program, where not None. Past them the
            process ends with status 1 and prints its stacks: nothing else stops machine code or a
            compiler written in C.
        emulated: the device, where it is one that can be used again after a kernel that failed.

    Raises:
        BackendError: there is no such backend, or it has no device.
    """

    def __init__(
        self, backend: str, time_limit: float | None = None, emulated: EmulatedDevice | None = None
    ) -> None:
        self.backend, self.time_limit, self._emulated = backend, time_limit, emulated
        self.session = Session(Subject(backend), "fuzz")

    @property
    def executes(self) -> str:
        """The backend that a reproducer runs on."""
        return self.backend

    @property
    def capabilities(self) -> Capabilities:
        """The backend's declared capabilities, which random programs stay within."""
        return self.session.capabilities

    def expected(self, program: Program) -> Verdict:
        """Run the reference alone.

        The verdict is ``agrees`` with the expected values, ``undefined`` or ``undeclared``.
        """
        missing = needs_of(program.module).missing(self.session.capabilities)
        if missing:
            return Verdict(UNDECLARED, ", ".join(missing))
        try:
            return Verdict(AGREES, "", interpreted(program))
        except KernelError as error:
            return Verdict(UNDEFINED, str(error))

    def _recovered(self) -> str:
        """Return the error that an emulated device found, and reset the device."""
        if self._emulated is None or self._emulated.error is None:
            return ""
        found = f"\nThe emulated device found: {self._emulated.error}"
        self._emulated.recover()
        return found

    def judge(self, program: Program, known: Verdict | None = None) -> Verdict:
        """Run a program on both; ``known`` is the verdict of :meth:`expected`, where known."""
        known = known or self.expected(program)
        if known.kind != AGREES:
            return known
        program = known.executed or program
        found = program.arguments()
        if self.time_limit is not None:
            faulthandler.dump_traceback_later(self.time_limit, exit=True, file=sys.__stderr__ or 2)
        try:
            self.session.run_module(program.module, found, program.grid, **self.session.strict)
        except OutOfBoundsWriteError as error:
            return replace(known, kind=MISMATCH, message=str(error))
        except Exception as error:  # a backend may raise anything
            message = f"{type(error).__name__}: {error}{self._recovered()}"
            return replace(known, kind=ERROR, message=message)
        finally:
            if self.time_limit is not None:
                faulthandler.cancel_dump_traceback_later()
        for output in program.outputs:
            wrong = mismatch(output, known.expected[output.index], found[output.index])
            if wrong:
                message = f"argument {output.index}, of {output.element}: {wrong}"
                return replace(known, kind=MISMATCH, message=message)
        return known
