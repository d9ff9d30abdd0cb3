"""Running passes in order: timed, and verified where asked."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, MutableMapping, Sequence

from tilewright.environment import flag, refused
from tilewright.errors import VariableError
from tilewright.ir.core import Module
from tilewright.ir.verifier import VerificationError, verify, verify_uses
from tilewright.passes.canonicalize import canonicalize
from tilewright.passes.cse import cse
from tilewright.passes.dce import dce
from tilewright.passes.licm import licm

#: A pass changes a module in place and says whether it did.
Pass = Callable[[Module], bool]

#: Raises VerificationError where a module breaks a rule.
Check = Callable[[Module], None]

#: What every module goes through between frontend and backend.
STANDARD: tuple[Pass, ...] = (canonicalize, cse, licm, canonicalize, cse, dce)


def run(
    module: Module,
    passes: Sequence[Pass] = STANDARD,
    *,
    verify_each: bool = False,
    timings: MutableMapping[str, float] | None = None,
) -> bool:
    """Run ``passes`` over ``module`` in place; whether any changed it.

    Args:
        verify_each: verify before the first and after each pass; the environment variable
            ``TILEWRIGHT_VERIFY`` does the same.
        timings: gets the seconds of each pass added under its name.

    Raises:
        VerificationError: the module was malformed before, or after the pass that the message
            names.
    """
    check = verify if verify_each else verification()
    if check is not None:
        check(module)
    changed = False
    for pass_ in passes:
        name = pass_name(pass_)
        start = time.perf_counter()
        changed |= bool(pass_(module))
        if timings is not None:
            timings[name] = timings.get(name, 0.0) + time.perf_counter() - start
        if check is not None:
            check_after(f"pass {name}", module, check)
    return changed


def verification() -> Check | None:
    """The check that ``TILEWRIGHT_VERIFY`` asks for.

    Raises:
        VariableError: it is none that there is.
    """
    text = os.environ.get("TILEWRIGHT_VERIFY", "")
    if text.strip().lower() == "uses":
        return verify_uses
    try:
        return verify if flag("TILEWRIGHT_VERIFY") else None
    except VariableError:
        raise refused("TILEWRIGHT_VERIFY", "0, 1 or uses", text) from None


def check_after(step: str, module: Module, check: Check = verify) -> None:
    """Check a module after a step, such as ``pass cse``, which the error names."""
    try:
        check(module)
    except VerificationError as error:
        raise VerificationError(f"after {step}: {error}", error.operation) from error


def pass_name(pass_: Pass) -> str:
    """The name a pass is reported by."""
    return getattr(pass_, "__name__", None) or type(pass_).__name__


__all__ = ["STANDARD", "Check", "Pass", "check_after", "pass_name", "run", "verification"]
