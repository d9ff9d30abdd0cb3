"""``triton.experimental.gluon.language``: what modules ask of it before any kernel is compiled.

Modules bind names that Gluon shares with ``triton.language`` (``gl.exp``, ``gl.program_id``) and
functions of ``extra.libdevice`` when they are imported: these are the language's own. What Gluon
alone has is refused.
"""

from __future__ import annotations

from typing import Any

from tilewright import language
from tilewright.compat.triton.outside import absent
from tilewright.language import constexpr, extra

__all__ = ["constexpr", "extra"]


def __getattr__(name: str) -> Any:
    if name in language.__all__:
        return getattr(language, name)
    raise absent(__name__.replace("tilewright.compat.", ""), name, "it is of the Gluon language")
