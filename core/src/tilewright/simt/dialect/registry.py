"""The interfaces of operations, by name.

The modules of :mod:`tilewright.simt.lowering` register those of the toolkit's own operations when
that package is imported; a target's own interfaces come before them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from tilewright.simt.dialect.op_interface import Interface

if TYPE_CHECKING:
    # handed in: targets are asked for interfaces of their own
    from tilewright.simt.target.simt_target import SimtTarget

_INTERFACES: Final[dict[str, Interface]] = {}


def register_interfaces(interfaces: Mapping[str, Interface]) -> Mapping[str, Interface]:
    """Add the interfaces of operations, and return them.

    Raises:
        ValueError: an operation has an interface already.
    """
    if twice := _INTERFACES.keys() & interfaces:
        raise ValueError(f"operation {min(twice)!r} has an interface already")
    _INTERFACES.update(interfaces)
    return interfaces


def interface_of(target: SimtTarget, name: str) -> Interface | None:
    """Return the interface of an operation; None for elementwise operations, and for those that are
    unknown."""
    assert _INTERFACES, (
        "tilewright.simt.lowering, which registers the interfaces, has not been imported"
    )
    own = target.dialect.interfaces.get(name)
    assert own is None or isinstance(own, Interface)
    return own or _INTERFACES.get(name)
