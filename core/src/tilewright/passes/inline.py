"""Replacing calls by the bodies of what they call, for backends without calls."""

from __future__ import annotations

from collections.abc import Callable

from tilewright.ir.core import Function, Location, Module, Value
from tilewright.ir.ops.control import Call, Return
from tilewright.passes.clone import clone_operation


def inline(module: Module, *, keep: Callable[[Function], bool] | None = None) -> bool:
    """Inline every ``call`` and drop the called functions; return whether anything changed.

    Args:
        keep: whether calls of a function stay. Then no function is dropped.

    Raises:
        ValueError: a function calls itself, directly or through others.
    """
    done: set[str] = set()
    changed = False
    for function in module.functions.values():
        if function.kernel:
            changed |= _inline_into(function, module, done, (), keep)
    if keep is not None:
        return changed
    callees = [name for name, function in module.functions.items() if not function.kernel]
    for name in callees:
        del module.functions[name]
    return changed or bool(callees)


def _inline_into(
    function: Function,
    module: Module,
    done: set[str],
    chain: tuple[str, ...],
    keep: Callable[[Function], bool] | None,
) -> bool:
    """Make ``function`` free of calls, callees first.

    ``chain`` names the functions on the way here.
    """
    if function.name in chain:
        raise ValueError(
            f"@{function.name} calls itself "
            f"({' -> '.join(['@' + name for name in (*chain, function.name)])}) and cannot "
            "be inlined"
        )
    if function.name in done:
        return False
    changed = False
    for operation in list(function.walk()):
        if isinstance(operation, Call):
            callee = module.functions[operation.callee]
            if keep is not None and keep(callee):
                continue
            _inline_into(callee, module, done, (*chain, function.name), keep)
            _replace(operation, callee)
            changed = True
    done.add(function.name)
    return changed


def _replace(call: Call, callee: Function) -> None:
    mapping: dict[Value, Value] = dict(zip(callee.arguments, call.arguments, strict=True))
    moved: dict[Location, Location] = {}

    def relocate(location: Location | None) -> Location | None:
        """The place in the callee, called from here."""
        if location is None or call.location is None:
            return location or call.location
        known = moved.get(location)
        if known is None:
            known = call.location
            for place in reversed(location.chain()):
                known = Location(place.file, place.line, place.column, place.function, known)
            moved[location] = known
        return known

    region = call.parent
    assert region is not None
    for operation in callee.body:
        if isinstance(operation, Return):
            for result, value in zip(call.results, operation.operands, strict=True):
                result.replace_all_uses(mapping.get(value, value))
        else:
            region.insert_before(clone_operation(operation, mapping, relocate), call)
    call.erase()
