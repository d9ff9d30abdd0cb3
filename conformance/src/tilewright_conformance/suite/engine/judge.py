"""Judging one run of one case in its process: the rule of declared capabilities, and exceptions."""

from __future__ import annotations

import math
import time

from tilewright.errors import (
    AutotunerError,
    BackendError,
    CompilationError,
    LoweringError,
    OutOfResources,
    TilewrightError,
    UnknownOptionError,
)
from tilewright_conformance.suite.case import Case, Outcome, Status
from tilewright_conformance.suite.session import Session

#: Characters of a message that are kept.
_LONGEST = 4000


def execute(case: Case, session: Session) -> Outcome:
    """Run a case and judge it.

    Where the backend declares less than the case needs, only a refusal is right.
    """
    missing = case.needs.missing(session.capabilities)
    started = time.perf_counter()
    error: BaseException | None = None
    try:
        case.run(session)
    except (KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException as caught:  # SystemExit too: no backend ends the run
        error = caught
    seconds = time.perf_counter() - started
    status, message = _judge(error, missing, session)
    numbers = {
        name: float(value) for name, value in session.numbers.items() if math.isfinite(value)
    }
    return Outcome(
        case.id,
        status,
        message[:_LONGEST],
        "" if error is None else type(error).__name__,
        numbers,
        seconds,
    )


def _judge(
    error: BaseException | None, missing: tuple[str, ...], session: Session
) -> tuple[Status, str]:
    lacking = f"the backend does not declare {', '.join(missing)}"
    if error is None:
        if missing:
            return (
                Status.FAILED,
                f"{lacking}, and accepted it silently: declare it, or refuse it with an error",
            )
        if not session.checks:
            return Status.ERROR, "the case demanded nothing: this is a defect of the suite"
        return Status.PASSED, ""
    text = str(error) or type(error).__name__
    if missing:
        if is_refusal(error):
            return Status.NOT_SUPPORTED, text
        if isinstance(error, AssertionError):
            return (
                Status.FAILED,
                f"{lacking}, accepted it silently, and gave a wrong result: {text}",
            )
        return (
            Status.ERROR,
            f"{lacking}, and met it with a {type(error).__name__}, which is no diagnostic: {text}",
        )
    if isinstance(error, AssertionError):
        return Status.FAILED, text
    if is_refusal(error):
        return Status.ERROR, f"the backend refused what it declares: {type(error).__name__}: {text}"
    return Status.ERROR, f"{type(error).__name__}: {text}"


def is_refusal(error: BaseException) -> bool:
    """Return whether an exception is an intended diagnostic.

    It is an error of the compiler's own kinds, with a message, and not one around a defect. A
    backend's limits may also show in a launch option that it does not have.
    """
    if not str(error).strip():
        return False
    if isinstance(error, CompilationError | LoweringError | OutOfResources | UnknownOptionError):
        return True
    if isinstance(error, AutotunerError):  # no configuration works: the last one's reason counts
        return error.__cause__ is not None and is_refusal(error.__cause__)
    # The registry wraps what a plugin raised by mistake in a plain BackendError, chained to its
    # cause.
    return isinstance(error, BackendError) and (
        error.__cause__ is None or isinstance(error.__cause__, TilewrightError)
    )
