"""The files that a :class:`.context.Context` works through, which import it: the lowering of each operation among them."""

from __future__ import annotations

from typing import Final

from tilewright.ir.table import merged
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
METHODS: Final = Methods(
    materialize.materialize,
    materialize.copy_buffer,
    memory.in_place,
    evaluate.evaluate,
    regions.evaluate_scalars,
    machine.machine_operation,
    merged(*(module.LOWERINGS for module in _MODULES)),
    control.lower_scalar,
)
