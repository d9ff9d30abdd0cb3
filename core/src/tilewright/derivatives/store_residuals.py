"""A kernel that also stores residuals: values of its own that its adjoint would compute again.

Each program stores its tile of a value to memory of the caller, one program's after the other's.
An adjoint of the kernel for which that memory is saved loads the value in place of computing it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from tilewright.derivatives.kernel_arguments import normalized, require_new
from tilewright.derivatives.refusals import DerivativeError
from tilewright.derivatives.shadow_addresses import add_argument
from tilewright.derivatives.tile_memory import tile_at
from tilewright.derivatives.tiling.scratch_tiles import axes_read, program_number
from tilewright.errors import similar
from tilewright.ir.builder import Builder
from tilewright.ir.core import Function, Module, Operation, Value
from tilewright.ir.types import FloatType, PointerType, Type, element_type
from tilewright.ir.verifier import verify
from tilewright.passes.inline import inline
from tilewright.passes.pipeline import run as run_passes


class ResidualLayout(NamedTuple):
    """The residuals of a kernel.

    Attributes:
        axes: those of the grid along which the kernel reads its place.
        types: variable -> the tile, or scalar, that each program stores.
    """

    axes: tuple[int, ...]
    types: Mapping[str, Type]


def residual_values(module: Module) -> dict[str, Value]:
    """Return the values that a kernel can store as residuals, by the name of their variable.

    They are floats that are computed outside of loops and branches; of a variable that is assigned
    several times, the last one.
    """
    return {
        result.name: result
        for operation in module.kernel.body
        for result in operation.results
        if result.name and isinstance(element_type(result.type), FloatType)
    }


def _value_of(name: str, known: Mapping[str, Value], kernel: Function) -> Value:
    value = known.get(name)
    if value is None:
        raise DerivativeError(
            f"the kernel computes no float {name} outside of loops and branches",
            similar(name, known) or f"name one of {', '.join(known)}",
            kernel.location,
        )
    return value


def store_residuals(
    module: Module,
    names: Sequence[str],
    prefix: str = "r_",
    facts: Mapping[str, Mapping[str, Any]] | None = None,
    *,
    keep_calls: bool = False,
) -> Module:
    """Return a kernel that stores variables to arrays of floats, its last parameters.

    Args:
        names: the variables, each in its own type.
        prefix: begins the names of the parameters.
        facts: parameter -> attributes, as ``{"divisibility": 16}``.
        keep_calls: leave calls of functions that have a derivative of their own.

    Raises:
        DerivativeError: the kernel has no such variable.
    """
    made = normalized(module, rules=True)
    kernel = made.kernel
    require_new(kernel, [f"{prefix}{name}" for name in names])
    axes, known = axes_read(made), residual_values(made)
    for name in names:
        value = _value_of(name, known, kernel)
        parameter = f"{prefix}{name}"
        pointer = add_argument(kernel, PointerType(element_type(value.type)), parameter)
        kernel.argument_attributes[-1].update((facts or {}).get(parameter, {}))
        definition = value.definition
        assert isinstance(definition, Operation) and definition.next is not None
        b = Builder.at(definition.next)
        b.location = definition.location
        b.store(tile_at(b, pointer, program_number(b, axes), value.type), value)
    if not keep_calls and inline(made):
        run_passes(made)
    verify(made)
    return made


def residual_layout(module: Module, names: Sequence[str]) -> ResidualLayout:
    """Return what each program stores, and where.

    Raises:
        DerivativeError: the kernel has no such variable.
    """
    made = normalized(module, rules=True)
    known = residual_values(made)
    types = {name: _value_of(name, known, made.kernel).type for name in names}
    return ResidualLayout(tuple(axes_read(made)), types)


__all__ = ["ResidualLayout", "residual_layout", "residual_values", "store_residuals"]
