"""Executing the directives of a file on a backend, and on the reference interpreter."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tilewright.errors import TilewrightError
from tilewright.ir.parser import ParseError
from tilewright.plugins.registry import registry
from tilewright.reference.checks.checked_mode import CheckedOptions
from tilewright.reference.interpreter import DescriptorValue
from tilewright.reference.interpreter import run as interpret
from tilewright_conformance.runtests.directives import Run, parse
from tilewright_conformance.runtests.harness import Prepared, prepare
from tilewright_conformance.suite.comparison import MismatchError, Rules, compare
from tilewright_conformance.suite.requirements import needs_of
from tilewright_conformance.suite.session import Session, Subject

REFERENCE = "reference"
PASSED, FAILED, NOT_SUPPORTED = "passed", "failed", "not-supported"
#: Run tests of the distribution.
FILES = Path(__file__).with_name("files")
#: Integers wrap around, and division by zero has a meaning; other findings are faults of a test.
_CHECKED = CheckedOptions(overflow=False, arithmetic=False)


@dataclass(frozen=True)
class Outcome:
    """The outcome of one directive on one backend; ``message`` is empty where it passed."""

    run: Run
    status: str
    message: str = ""


def backends() -> list[str]:
    """Return the reference and every backend that has a device on this machine."""
    found = [REFERENCE]
    for backend in registry().backends():
        try:
            there = not backend.manifest.status and backend.call("tilewright_devices")
        except TilewrightError:
            continue
        if there and backend.name != REFERENCE:
            found.append(backend.name)
    return found


class Runner:
    """Runs directives on one backend. The reference is the interpreter, in its checked mode.

    Args:
        with_passes: run the passes before lowering; else a backend lowers the text as it stands.

    Raises:
        BackendError: the backend is not installed, or has no device.
    """

    def __init__(self, backend: str, *, with_passes: bool = True) -> None:
        self.backend, self.with_passes = backend, with_passes
        self.session = Session(Subject(backend), "runtests")

    def run_file(self, path: Path) -> list[Outcome]:
        """Run every directive of a file.

        Raises:
            ParseError: the file is no Tile IR, or a directive is malformed.
            OSError: the file cannot be read.
        """
        return list(self.run_text(path.read_text(encoding="utf-8")))

    def run_text(self, text: str) -> Iterator[Outcome]:
        """Run every directive of a text, in order."""
        found, lines = parse(text), text.split("\n")
        table = self.session.subject.backend.table
        # before the first runs: a malformed directive is no failure of the backend
        prepared = [prepare(found.ir, run, table, lines) for run in found.runs]
        for run, one in zip(found.runs, prepared, strict=True):
            yield self._outcome(run, one)

    def _outcome(self, run: Run, prepared: Prepared) -> Outcome:
        missing = needs_of(prepared.module).missing(self.session.capabilities)
        if missing:
            return Outcome(run, NOT_SUPPORTED, f"the backend does not declare {', '.join(missing)}")
        arguments = prepared.fresh_arguments()
        try:
            self._execute(prepared, arguments)
            self._compare(prepared, arguments)
        except MismatchError as error:
            return Outcome(run, FAILED, str(error))
        except Exception as error:  # a backend may raise anything
            return Outcome(run, FAILED, f"{type(error).__name__}: {error}")
        return Outcome(run, PASSED)

    def _execute(self, prepared: Prepared, arguments: list[object]) -> None:
        if self.backend == REFERENCE:
            with np.errstate(all="ignore"):
                interpret(prepared.module, arguments, prepared.grid, checked=_CHECKED)
            return
        module, grid, options = prepared.module, prepared.grid, self.session.strict
        self.session.run_module(module, arguments, grid, with_passes=self.with_passes, **options)

    @staticmethod
    def _compare(prepared: Prepared, arguments: list[object]) -> None:
        for check in prepared.checks:
            value = arguments[check.index]
            found = value.base if isinstance(value, DescriptorValue) else value
            assert isinstance(found, np.ndarray)
            shaped = found.reshape(check.expected.shape)
            compare(shaped, check.expected, check.element, Rules(ulp=check.ulp), check.name)


def report(path: Path, backend: str, outcome: Outcome) -> str:
    """Return the line that reports an outcome."""
    run = outcome.run
    message = f": {outcome.message}" if outcome.message else ""
    return f"{path}:{run.line}:{run.column}: {outcome.status} on {backend}: {run.text}{message}"


def malformed(path: Path, error: ParseError) -> str:
    """Return the report of a file that cannot be run."""
    _, _, message = str(error).partition(": ")
    return f"{path}:{error.line}:{error.column}: {message}"
