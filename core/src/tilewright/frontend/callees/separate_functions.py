"""Functions that a module has beside its kernel, and calls of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tilewright import ir
from tilewright.errors import UnsupportedLanguageConstruct, with_help
from tilewright.frontend import errors
from tilewright.frontend.frame import Scope
from tilewright.frontend.values import (
    decay,
    describe,
    flatten,
    name_values,
    type_of,
    unflatten,
)
from tilewright.language.core import base_type, base_value, tensor
from tilewright.language.core import tuple as tl_tuple
from tilewright.language.definitions.callable import JitCallable

if TYPE_CHECKING:
    from tilewright.frontend.generator import ModuleGenerator


def separate_function(
    g: ModuleGenerator,
    name: str,
    types: Sequence[base_type],
    visit: Callable[[list[Any]], Any],
) -> tuple[ir.Function, base_type]:
    """Add a function to the module; also return its result's type.

    Args:
        name: its name, to which a number is added where the module has it.
        types: those of its arguments.
        visit: appends its body, given the arguments, and returns its value.
    """
    builder, first, number = g.builder, name, 1
    while name in g.module.functions or (_kernel_name(g) == name):
        name = f"{first}__{number}"
        number += 1
    flat = [part for type_ in types for part in type_.flatten()]
    function = ir.Function(name, flat, kernel=False, location=builder.location)
    g.module.functions[name] = function
    location = builder.location
    outer, saved = g.enter(function.body)
    value = visit(unflatten(types, function.arguments))
    builder.location = location
    value = decay(g.semantic, value)
    results = flatten(value)
    builder.return_(results)
    function.result_types = tuple(result.type for result in results)
    g.leave(outer, saved)
    return function, type_of(value)


def call_noinline(g: ModuleGenerator, fn: JitCallable, scope: Scope) -> Any:
    """Emit a call of a function that is ``noinline``.

    Raises:
        UnsupportedLanguageConstruct: an argument is no scalar, or the function calls itself.
    """
    for name, value in scope.items():
        for part in _parts(value):
            if isinstance(part, tensor) and part.numel.value != 1:
                message = with_help(
                    f"{fn.__name__} is noinline: argument {name} must be a scalar, not "
                    f"{describe(part)}",
                    "pass scalars and pointers, or drop noinline",
                )
                raise _at_call(g, message)
    types = {name: type_of(value) for name, value in scope.items()}
    key = (id(fn), tuple((name, type_) for name, type_ in types.items()))
    if key not in g.callees:
        g.callees[key] = None
        g.callees[key] = _compiled(g, fn, types)
    compiled = g.callees[key]
    if compiled is None:
        message = with_help(
            f"{fn.__name__} is noinline and calls itself with the same argument types",
            "use a loop",
        )
        raise _at_call(g, message)
    return emit_call(g, *compiled, list(scope.values()))


def emit_call(
    g: ModuleGenerator,
    function: ir.Function,
    result: base_type,
    values: Sequence[Any],
    **attributes: bool,
) -> Any:
    """Emit a call of a function of the module; return its result, which has a type."""
    operands = [flat for value in values for flat in flatten(value)]
    operation = g.builder.create(
        ir.TABLE["call"],
        [operands],
        {"callee": function.name, **attributes},
        function.result_types,
    )
    return unflatten([result], operation.results)[0]


def _compiled(
    g: ModuleGenerator, fn: JitCallable, types: Mapping[str, base_type]
) -> tuple[ir.Function, base_type]:
    def visit(values: list[Any]) -> Any:
        scope = dict(zip(types, values, strict=True))
        for variable, value in scope.items():
            name_values(value, variable)
        return g.visit_separate(fn, scope)

    return separate_function(g, fn.__name__, list(types.values()), visit)


def _at_call(g: ModuleGenerator, message: str) -> Exception:
    node = g.call_node or g.frame.analysis.tree
    return errors.located(g.frame, node, message, UnsupportedLanguageConstruct)


def _kernel_name(g: ModuleGenerator) -> str:
    frame = g.frame
    while frame.caller is not None:
        frame = frame.caller
    return frame.name


def _parts(value: Any) -> Iterator[Any]:
    if isinstance(value, tl_tuple):
        for item in value.values:
            yield from _parts(item)
    elif isinstance(value, base_value):
        yield value
