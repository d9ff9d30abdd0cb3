"""From a call of a kernel to running code.

The runtime has ``jit``, specialisation, compilation, the disk cache, launch plans, autotuning and
argument protocols.

Not in this package: the language and its frontend, passes, and hardware-specific code (which
belongs to backends).
"""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    from tilewright.triton_names import absent

    raise absent(__name__, name)
