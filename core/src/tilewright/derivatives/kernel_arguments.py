"""Arguments of a kernel that a derivative names, and the kernel made ready for the passes."""

from __future__ import annotations

from collections.abc import Iterable

from tilewright.derivatives.analysis.addresses import is_address
from tilewright.derivatives.refusals import DerivativeError
from tilewright.derivatives.rule_calls import inline_but_rules
from tilewright.derivatives.sort_keys import move_floats_with_keys
from tilewright.errors import similar
from tilewright.ir.core import Function, Module, Value
from tilewright.ir.types import DescriptorType, FloatType, PointerType, Type
from tilewright.passes.clone import clone_module
from tilewright.passes.inline import inline
from tilewright.passes.pipeline import run as run_passes


def normalized(module: Module, *, rules: bool = False) -> Module:
    """Return a copy of a module without calls, after the standard passes.

    Floats are sorted along with the keys that they are compared by.

    Args:
        rules: whether calls of functions that have a derivative of their own stay.
    """
    copy = clone_module(module)
    if rules:
        inline_but_rules(copy)
    else:
        inline(copy)
    run_passes(copy)
    if move_floats_with_keys(copy.kernel):
        run_passes(copy)
    return copy


def element_of(argument: Value) -> Type:
    """Return the elements of the array that a pointer or descriptor leads to; a scalar's type."""
    type_ = argument.type
    if isinstance(type_, DescriptorType):
        return type_.element
    return type_.pointee if isinstance(type_, PointerType) else type_


def named_arguments(
    function: Function, names: Iterable[str], role: str, *, scalars: bool = False
) -> list[Value]:
    """Return arguments of a kernel by name: arrays of floats.

    Args:
        role: what they are, for errors.
        scalars: whether floats are allowed as well.

    Raises:
        DerivativeError: the kernel has none of that name, or it is of another kind.
    """
    known = {argument.name: argument for argument in function.arguments}
    found = []
    for name in dict.fromkeys(names):
        argument = known.get(name)
        if argument is None:
            raise DerivativeError(
                f"{function.name} has no argument {name!r} at run time, which {role} names: it "
                f"has {', '.join(known)}",
                similar(name, known),
                function.location,
            )
        is_allowed = scalars or is_address(argument)
        if not (is_allowed and isinstance(element_of(argument), FloatType)):
            wanted = "an array of floats or a float" if scalars else "an array of floats"
            raise DerivativeError(
                f"{role} names {name!r}, which is a {argument.type} and not {wanted}",
                "",
                function.location,
            )
        found.append(argument)
    return found


def require_new(function: Function, names: Iterable[str]) -> None:
    """Check that a kernel has no parameters of these names.

    Raises:
        DerivativeError: it has one.
    """
    known = {argument.name for argument in function.arguments}
    for name in names:
        if name in known:
            raise DerivativeError(
                f"{function.name} has a parameter {name!r}, which is to be the derivative's",
                "choose another prefix",
                function.location,
            )
