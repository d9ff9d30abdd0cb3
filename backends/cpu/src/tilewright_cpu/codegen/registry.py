"""Registry of the lowerings of operations, and the services of contexts."""

from __future__ import annotations

from typing import Final

from tilewright.ir.table import merged
from tilewright_cpu.codegen.context import Methods
from tilewright_cpu.codegen.control import calls, control_flow, scalar_region
from tilewright_cpu.codegen.intrinsics import target_intrinsics
from tilewright_cpu.codegen.loops import evaluate, materialize
from tilewright_cpu.codegen.ops import (
    assertions,
    atomics,
    debug,
    descriptors,
    dot,
    dot_scaled,
    histogram,
    map,
    memory,
    rearrange,
    reduce,
    scan,
)

_MODULES: Final = (
    control_flow,
    calls,
    memory,
    reduce,
    assertions,
    atomics,
    debug,
    descriptors,
    dot,
    dot_scaled,
    histogram,
    map,
    rearrange,
    scan,
)
METHODS: Final = Methods(
    materialize.materialize,
    materialize.copy_buffer,
    memory.in_place,
    evaluate.evaluate,
    scalar_region.evaluate_scalars,
    target_intrinsics.machine_operation,
    merged(*(module.LOWERINGS for module in _MODULES)),
    control_flow.lower_scalar,
)
