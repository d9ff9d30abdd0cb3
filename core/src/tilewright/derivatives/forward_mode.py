"""Forward mode: the kernel on pairs of a value and its tangent.

The kernel of the tangents has the kernel's parameters, then ``t_x`` for each input and output
``x``, where the tangents of what ``x`` leads to lie. Loads read both, stores write both.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tilewright.derivatives.analysis.activity import Activity
from tilewright.derivatives.analysis.addresses import is_address
from tilewright.derivatives.analysis.finiteness import Finiteness
from tilewright.derivatives.analysis.memory_effects import MemoryEffects
from tilewright.derivatives.kernel_arguments import (
    element_of,
    named_arguments,
    normalized,
    require_new,
)
from tilewright.derivatives.rule_calls import callees
from tilewright.derivatives.shadow_addresses import ShadowAddresses, add_argument
from tilewright.derivatives.tangent_builder import TangentBuilder
from tilewright.ir.core import Module
from tilewright.ir.types import Type
from tilewright.ir.verifier import verify
from tilewright.passes.inline import inline
from tilewright.passes.pipeline import run as run_passes


@dataclass(frozen=True)
class TangentRequest:
    """The tangents that are wanted of a kernel.

    Attributes:
        inputs: arrays of floats, and float scalars, that have tangents.
        outputs: arrays of floats whose tangents are wanted.
        elements: parameter of the new kernel -> the elements of its array, where they are not those
            of the original.
        facts: parameter of the new kernel -> attributes, as ``{"divisibility": 16}``.
        prefix: begins the names of the new parameters.
        keep_calls: leave calls of functions that have a derivative of their own, so that the
            kernel can be differentiated again.
    """

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    elements: Mapping[str, Type] = field(default_factory=dict)
    facts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    prefix: str = "t_"
    keep_calls: bool = False


def jvp(module: Module, request: TangentRequest) -> Module:
    """Return the module of the kernel that computes tangents beside values.

    Raises:
        DerivativeError: the kernel has no derivative, or none that is known here.
    """
    source = normalized(module, rules=True)
    kernel, functions = source.kernel, callees(source)
    inputs = named_arguments(kernel, request.inputs, "inputs", scalars=True)
    outputs = named_arguments(kernel, request.outputs, "outputs")
    arrays = dict.fromkeys(value for value in (*inputs, *outputs) if is_address(value))
    scalars = [value for value in inputs if not is_address(value)]
    require_new(kernel, [f"{request.prefix}{value.name}" for value in (*arrays, *scalars)])
    activity = Activity(kernel, arrays, scalars, functions=functions)
    memory = MemoryEffects(kernel, activity, arrays, outputs, mirrored=True)
    finiteness = Finiteness(kernel)
    shadows = ShadowAddresses(
        kernel,
        {
            value: request.elements.get(f"{request.prefix}{value.name}", element_of(value))
            for value in arrays
        },
        request.prefix,
        request.facts,
    )
    tangents = {
        value: add_argument(kernel, value.type, f"{request.prefix}{value.name}")
        for value in scalars
    }
    made = Module()
    builder = TangentBuilder(
        kernel, activity.varied, memory, shadows, finiteness, tangents, functions
    )
    made.add(builder.build())
    made.functions.update(functions)
    run_passes(made)
    if not request.keep_calls and inline(made):
        run_passes(made)
    verify(made)
    return made
