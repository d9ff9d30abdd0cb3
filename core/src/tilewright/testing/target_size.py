"""Check that the interface of a target stays small: public members of it and of each capability."""

from __future__ import annotations

from typing import Final

from tilewright.simt.target.simt_target import SimtTarget
from tilewright.testing.read_back import is_capability

#: Maximum number of public members of a target, and of each of its capabilities.
MAX_MEMBERS: Final = 25


def public_members(value: object) -> set[str]:
    """Return the names of an object's public attributes and methods, inherited ones included."""
    declared = {
        name for class_ in type(value).__mro__ for name in getattr(class_, "__annotations__", {})
    }
    return {name for name in {*dir(value), *declared} if not name.startswith("_")}


def oversized(target: SimtTarget) -> dict[str, int]:
    """Return the classes of a target and its capabilities that have too many public members."""
    owners = [
        target,
        *(
            value
            for name in public_members(target)
            if is_capability(value := getattr(target, name, None))
        ),
    ]
    counts = {type(owner).__name__: len(public_members(owner)) for owner in owners}
    return {name: count for name, count in counts.items() if count > MAX_MEMBERS}
