"""A comment line ahead of PTX that makes ``ptxas`` attempt more CTAs per SM.

Only ptxas knows the registers that a kernel needs: the backend keeps more CTAs than the PTX's bound
if nothing spills. The driver's compiler ignores the comment and follows the bound.
"""

from __future__ import annotations

import re
from typing import Final


def attempt_line(programs: int) -> str:
    """Return the comment line that requests ``programs`` CTAs per SM."""
    return f"// attempted CTAs of an SM: {programs}\n"


_LINE: Final = re.compile(attempt_line(0).replace("0", r"(\d+)").encode())
_BOUND: Final = re.compile(rb"\.minnctapersm \d+")


def attempted(ptx: bytes) -> bytes | None:
    """Return PTX with the bound that its comment line requests; None without such a line."""
    line = _LINE.match(ptx)
    return None if line is None else _BOUND.sub(b".minnctapersm " + line[1], ptx, count=1)
