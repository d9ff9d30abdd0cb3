"""Hazards of wgmma in PTX: writes to registers that a matmul in flight reads.

They are undefined before ``wgmma.wait_group`` (PTX ISA, "wgmma.mma_async").
"""

from __future__ import annotations

import re

_PRODUCT = re.compile(r"wgmma\.mma_async\S+ \{([^}]*)\}, (?:\{([^}]*)\})?")
_WAIT = re.compile(r"wgmma\.wait_group\.sync\.aligned\s+(\d+)")
#: A label, a branch to one, and what an instruction writes.
_LABEL, _BRANCH = re.compile(r"(\$L\w+):"), re.compile(r"bra(?:\.uni)?\s+(\$L\w+);")
_WRITES = re.compile(r"(?:@!?%\w+\s+)?[a-z][\w.:]*\s+(\{[^}]*\}|%\w+)")


def overwritten(ptx: str) -> list[str]:
    """Return the instructions that write registers of an operand of a matmul in flight.

    The text is scanned from its beginning, and each loop twice.
    """
    lines = [line.strip() for line in ptx.splitlines()]
    labels = {
        found[1]: number for number, line in enumerate(lines) if (found := _LABEL.match(line))
    }
    loops = [
        (labels[found[1]], number)
        for number, line in enumerate(lines)
        if (found := _BRANCH.search(line)) and labels[found[1]] < number
    ]
    wrong = _followed(lines)
    for first, last in loops:
        body = lines[first : last + 1]
        if any("wgmma.mma_async" in line for line in body):
            wrong += _followed([*body, *body])
    return list(dict.fromkeys(wrong))


def _followed(lines: list[str]) -> list[str]:
    groups: list[set[str]] = []
    current: set[str] = set()
    wrong = []
    for line in lines:
        if (found := _PRODUCT.search(line)) is not None:
            current |= _names(found[2] or "")
        elif line.startswith("wgmma.commit_group"):
            groups.append(current)
            current = set()
        elif (waited := _WAIT.search(line)) is not None:
            groups = groups[len(groups) - int(waited[1]) :] if int(waited[1]) else []
        elif (
            (written := _WRITES.match(line)) is not None
            and not line.startswith("st.")
            and _names(written[1]) & current.union(*groups)
        ):
            wrong.append(line)
    return wrong


def _names(text: str) -> set[str]:
    return set(re.findall(r"%\w+", text))
