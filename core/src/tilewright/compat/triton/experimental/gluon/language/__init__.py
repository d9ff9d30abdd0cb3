"""``triton.experimental.gluon.language``: what modules ask of it before any kernel is compiled."""

from __future__ import annotations

from typing import Any

from tilewright.compat.triton.outside import absent
from tilewright.language import constexpr

__all__ = ["constexpr"]


def __getattr__(name: str) -> Any:
    raise absent(__name__.replace("tilewright.compat.", ""), name, "it is of the Gluon language")
