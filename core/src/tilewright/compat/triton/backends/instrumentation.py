"""Triton's floating-point sanitizer, which is Tilewright's exact mode."""

from __future__ import annotations

import functools
from typing import Final

from tilewright.runtime.devices.backend_choice import Choice
from tilewright.runtime.storage.files import warn_user

#: The value of ``knobs.compilation.instrumentation_mode`` that stands for exact mode: Triton's
#: floating-point sanitizer.
EXACT_MODE: Final = "fpsan"


@functools.cache
def sanitized(choice: Choice | None) -> Choice:
    """Return the choice of exact mode, and say that it is not Triton's sanitizer."""
    from tilewright.runtime.exact.exact_mode import exact_choice

    warn_user(
        f"instrumentation mode {EXACT_MODE!r} is Tilewright's exact mode: its payloads are "
        "residues modulo powers of 251, not Triton's"
    )
    return exact_choice(choice)
