"""All switches of the broken backend."""

from __future__ import annotations

from tilewright.ir.table import merged
from tilewright_conformance.mutation import (
    arithmetic,
    control,
    conversions,
    descriptors,
    disruptive,
    functions,
    launching,
    matmul,
    memory,
    shapes,
)
from tilewright_conformance.mutation.mutant import Switch

_FAMILIES = (
    arithmetic,
    functions,
    conversions,
    memory,
    descriptors,
    shapes,
    matmul,
    control,
    launching,
)
#: name -> switch
SWITCHES: dict[str, Switch] = merged(
    *({_switch.name: _switch} for _family in _FAMILIES for _switch in _family.SWITCHES),
    what="switch",
)

#: name -> switch of those that may end the process, hang or take its memory
DISRUPTIVE: dict[str, Switch] = {_switch.name: _switch for _switch in disruptive.SWITCHES}


def switches() -> tuple[Switch, ...]:
    """Every switch that is safe to run in any process, in the order of the table."""
    return tuple(SWITCHES.values())


def switch(name: str) -> Switch:
    """The switch of a name.

    Raises:
        KeyError: there is none; names all.
    """
    found = SWITCHES.get(name) or DISRUPTIVE.get(name)
    if found is None:
        raise KeyError(
            f"the broken backend has no switch {name!r}; it has "
            f"{', '.join((*SWITCHES, *DISRUPTIVE))}"
        )
    return found


def disruptive_switches() -> tuple[Switch, ...]:
    """Every switch that may end the process, hang or exhaust memory, on an ``sqrt``."""
    return tuple(DISRUPTIVE.values())


def table() -> str:
    """The table of all switches as text: name, class, description."""
    rows = [
        (row.name, row.bug_class, row.description) for row in (*switches(), *DISRUPTIVE.values())
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(2)]
    return "".join(f"{name:<{widths[0]}}  {bug:<{widths[1]}}  {what}\n" for name, bug, what in rows)
