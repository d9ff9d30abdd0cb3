"""The interfaces of all operations: the toolkit's own, of the modules of :mod:`tilewright.simt.lowering`, and those of a target in their place.

This module is above the lowering of operations, which does not import it: what writes a kernel is handed :func:`interface_of`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tilewright.ir.table import merged
from tilewright.simt.interface import Interface
from tilewright.simt.lowering import (
    accesses,
    accumulators,
    asynchronous,
    atomics,
    barrier_objects,
    control,
    conversions,
    debug,
    device_descriptors,
    dot,
    groups,
    indices,
    partitions,
    phases,
    reduce,
    scan,
    scattered,
    shape,
    shared,
)
from tilewright.simt.target import SimtTarget

_MODULES: Final = (
    accesses,
    accumulators,
    asynchronous,
    atomics,
    barrier_objects,
    control,
    conversions,
    debug,
    dot,
    groups,
    indices,
    device_descriptors,
    partitions,
    phases,
    reduce,
    scan,
    scattered,
    shape,
    shared,
)
#: The toolkit's own, by operation.
INTERFACES: Final[Mapping[str, Interface]] = merged(*(module.INTERFACES for module in _MODULES))


def interface_of(target: SimtTarget, name: str) -> Interface | None:
    """What is known of an operation; None for elementwise ones, and for those that are unknown."""
    return target.own_interface(name) or INTERFACES.get(name)
