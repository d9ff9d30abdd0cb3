"""Comment lines ahead of PTX that let ``ptxas`` attempt other occupancy bounds than the PTX's own.

Only ptxas knows the registers that a kernel needs. An attempt at more CTAs per SM comes first. The
register limit of a light kernel is the PTX's own, and greater limits follow it. The backend keeps
the first code that does not spill. The driver's compiler ignores the comments and follows the PTX.
"""

from __future__ import annotations

import re
from typing import Final

#: Registers per thread with which 6, 5 and 4 CTAs of 128 threads fit an SM of 65,536 registers.
_GREATER_LIMITS: Final = (80, 96, 128)
_LIMIT_LINE: Final = "// the register limit may rise\n"


def attempt_line(programs: int) -> str:
    """Return the comment line that requests ``programs`` CTAs per SM."""
    return f"// attempted CTAs of an SM: {programs}\n"


def limit_line() -> str:
    """Return the comment line that permits a greater register limit than the PTX's."""
    return _LIMIT_LINE


_LINE: Final = re.compile(attempt_line(0).replace("0", r"(\d+)").encode())
_BOUND: Final = re.compile(rb"\.minnctapersm \d+")
_LIMIT: Final = re.compile(rb"\.maxnreg \d+")


def attempts(ptx: bytes) -> list[bytes]:
    """List the PTX of each bound, in the order in which ptxas attempts them."""
    line = _LINE.match(ptx)
    if line is not None:
        return [_BOUND.sub(b".minnctapersm " + line[1], ptx, count=1), ptx]
    if ptx.startswith(_LIMIT_LINE.encode()):
        limits = (b".maxnreg %d" % limit for limit in _GREATER_LIMITS)
        return [ptx, *(_LIMIT.sub(limit, ptx, count=1) for limit in limits)]
    return [ptx]
