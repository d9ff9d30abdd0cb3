"""The command line ``tilewright``: installed backends, a kernel's stages, the cache, a check."""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    from tilewright.triton_names import absent

    raise absent(__name__, name)
