"""Running passes in order: timed, and verified where asked."""

from __future__ import annotations

import time
from collections.abc import Callable, MutableMapping, Sequence

from tilewright.environment import flag
from tilewright.ir.core import Module
from tilewright.ir.verifier import VerificationError, verify
from tilewright.passes.canonicalize import canonicalize
from tilewright.passes.cse import cse
from tilewright.passes.dce import dce
from tilewright.passes.licm import licm

#: A pass changes a module in place and says whether it did.
Pass = Callable[[Module], bool]

#: What every module goes through between frontend and backend.
STANDARD: tuple[Pass, ...] = (canonicalize, cse, licm, canonicalize, cse, dce)


def run(module: Module, passes: Sequence[Pass] = STANDARD, *, verify_each: bool = False, timings: MutableMapping[str, float] | None = None) -> bool:
    """Run ``passes`` over ``module`` in place; whether any changed it.

    Args:
        verify_each: verify before the first and after each pass; the environment variable ``TILEWRIGHT_VERIFY=1`` does the same.
        timings: gets the seconds of each pass added under its name.

    Raises:
        VerificationError: the module was malformed before, or after the pass that the message names.
    """
    verify_each = verify_each or flag("TILEWRIGHT_VERIFY")
    if verify_each:
        verify(module)
    changed = False
    for pass_ in passes:
        name = pass_name(pass_)
        start = time.perf_counter()
        changed |= bool(pass_(module))
        if timings is not None:
            timings[name] = timings.get(name, 0.0) + time.perf_counter() - start
        if verify_each:
            try:
                verify(module)
            except VerificationError as error:
                raise VerificationError(f"after pass {name}: {error}", error.operation) from error
    return changed


def pass_name(pass_: Pass) -> str:
    """The name a pass is reported by."""
    return getattr(pass_, "__name__", None) or type(pass_).__name__


__all__ = ["STANDARD", "Pass", "pass_name", "run"]
