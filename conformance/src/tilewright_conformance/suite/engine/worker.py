"""A worker process: it reads cases to run from standard input and writes outcomes as JSON lines.

Its arguments are the setup and the number of the process that starts it.

A line of standard input is ``[id of the case, how many runs of it have passed]``.

The lines go to the standard output with which the process started. After that, standard output is
standard error: nothing that backends and kernels print can pass for an outcome.
"""

from __future__ import annotations

import dataclasses
import faulthandler
import gc
import json
import os
import signal
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TextIO

from tilewright.child_process import end_with_parent
from tilewright.plugins.manifest import Memory

if TYPE_CHECKING:
    from tilewright_conformance.suite.case import Case, Outcome
    from tilewright_conformance.suite.engine.setup import Setup
    from tilewright_conformance.suite.session import Subject


def main(arguments: Sequence[str]) -> int:
    """Serve until standard input ends."""
    answers = os.fdopen(os.dup(1), "w", buffering=1, encoding="utf-8")
    os.dup2(2, 1)
    faulthandler.enable()
    end_with_parent(int(arguments[1]))  # even while it hangs in native code
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the pool decides what an interrupt means

    from tilewright_conformance.suite.case import Outcome, Status
    from tilewright_conformance.suite.catalogue import catalogue
    from tilewright_conformance.suite.engine.setup import Setup, load_plugins
    from tilewright_conformance.suite.session import Subject

    setup = Setup.from_text(arguments[0])
    try:
        emulated = load_plugins(setup)
        subject = Subject(setup.backend)
    except BaseException as error:
        _write(answers, {"refused": f"{type(error).__name__}: {error}"})
        return 1
    cases = catalogue(setup.packages)
    _collect()
    _write(answers, {"ready": os.getpid()})
    for line in sys.stdin:
        case_id, passed = json.loads(line)
        try:
            case = cases[case_id]
            outcome, passed = repeated(case, subject, setup, passed)
            if emulated is not None and emulated.error is not None:
                outcome = dataclasses.replace(
                    outcome,
                    message=f"{outcome.message}\nThe emulated device found: {emulated.error}",
                )
        except BaseException as error:  # a family that does not import; the engine's own mistakes
            outcome = Outcome(
                case_id,
                Status.ERROR,
                f"the case could not be run: {type(error).__name__}: {error}",
                type(error).__name__,
            )
        _collect()
        _write(
            answers, {**outcome.as_json(), "passed": passed, "spent": not _answers(subject.memory)}
        )
    return 0


def repeated(case: Case, subject: Subject, setup: Setup, passed: int) -> tuple[Outcome, int]:
    """Run a case until it has passed as often as the setup says, fails, or breaks the device.

    Args:
        passed: how many runs of it have passed in earlier processes.

    Returns:
        the outcome of the last run, and how many runs have passed in all.
    """
    from tilewright_conformance.suite.case import Status
    from tilewright_conformance.suite.engine.judge import execute
    from tilewright_conformance.suite.session import Session

    while True:
        outcome = execute(case, Session(subject, case.id, setup.seed, quick=setup.quick))
        if outcome.status is not Status.PASSED:
            if passed:
                text = (
                    f"run {passed + 1} of {setup.repeat}, after {passed} that passed: "
                    f"{outcome.message}"
                )
                outcome = dataclasses.replace(outcome, message=text)
            return outcome, passed
        passed += 1
        if passed >= setup.repeat or not _answers(subject.memory):
            return outcome, passed


def _collect() -> None:
    """Collect a case's garbage and freeze the rest.

    No finalizer then runs in another case's time.
    """
    gc.collect()
    gc.freeze()


def _answers(memory: Memory) -> bool:
    """Return whether the device still works for this process.

    On some devices one failed kernel is the end, and proves nothing about later cases.
    """
    try:
        memory.synchronize()
    except Exception:
        return False
    return True


def _write(answers: TextIO, data: dict[str, Any]) -> None:
    answers.write(json.dumps(data) + "\n")
    answers.flush()


def serve() -> None:
    """Serve with the arguments of the command line, and end the process."""
    code = main(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # what a backend's own exit handlers do is no case's result
