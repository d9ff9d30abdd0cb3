"""The files that a :class:`.context.Context` works through, which import it: the lowering of each operation among them."""

from __future__ import annotations

from typing import Final

from tilewright_cpu.lowering import (
    assertions,
    atomics,
    calls,
    control,
    debug,
    descriptors,
    dot,
    dot_scaled,
    evaluate,
    histogram,
    machine,
    map,
    materialize,
    memory,
    rearrange,
    reduce,
    regions,
    scan,
)
from tilewright_cpu.lowering.context import Methods

_MODULES: Final = (control, calls, memory, reduce, assertions, atomics, debug, descriptors, dot, dot_scaled, histogram, map, rearrange, scan)
_STATEMENTS: Final = {name: lowering for module in _MODULES for name, lowering in module.LOWERINGS.items()}
assert len(_STATEMENTS) == sum(len(module.LOWERINGS) for module in _MODULES), "an operation is lowered in two files"
METHODS: Final = Methods(
    materialize.materialize,
    materialize.copy_buffer,
    memory.in_place,
    evaluate.evaluate,
    regions.evaluate_scalars,
    machine.machine_operation,
    _STATEMENTS,
    control.lower_scalar,
)
