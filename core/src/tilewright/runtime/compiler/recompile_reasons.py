"""Reasons for a recompilation: the differences from the kernel's last one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from tilewright.language.definitions.dependencies import digests

if TYPE_CHECKING:
    from tilewright.runtime.compiler.kernel_definition import KernelDefinition
    from tilewright.runtime.compiler.selection import Selected

_NOTHING: Any = object()


class Compilation(NamedTuple):
    """The inputs of one compilation of a kernel.

    Attributes:
        selected: backend, device, options and specialization.
        key: the kernel's key then, which covers what it calls and reads.
        functions: name -> digest of each function it was made of; empty where nobody asked for it.
    """

    selected: Selected
    key: str
    functions: Mapping[str, str]


def compilation(kernel: KernelDefinition, selected: Selected, *, functions: bool) -> Compilation:
    """Record the compilation of a selection that just ended.

    With ``functions``, the next compilation can name the function that has changed.
    """
    return Compilation(selected, kernel.cache_key, digests(kernel) if functions else {})


def reasons(last: Compilation, now: Compilation) -> list[str]:
    """List the differences between two compilations of a kernel as texts."""
    return list(_reasons(last, now))


def _reasons(last: Compilation, now: Compilation) -> Iterator[str]:
    old, new = last.selected, now.selected
    yield from _changed("backend", old.backend.name, new.backend.name)
    if old.backend.name == new.backend.name:
        yield from _changed("device", old.device.index, new.device.index)
        yield from _changed("target", old.target.key, new.target.key)
    before, after = old.specialization, new.specialization
    types = set()
    for name, was, is_ in _differing(before.signature, after.signature):
        types.add(name)
        yield (
            f"argument {name} is {_typed(name, is_, after.constants)}, was "
            f"{_typed(name, was, before.constants)}"
        )
    for name, was, is_ in _differing(before.constants, after.constants):
        if name not in types:
            yield from _changed(f"constant {name}", was, is_)
    for name, was, is_ in _differing(before.attributes, after.attributes):
        if name not in types:
            for fact, one, other in _differing(_facts(was), _facts(is_)):
                yield f"argument {name}: {fact} {_shown(other)}, was {_shown(one)}"
    for name, was, is_ in _differing(before.options, after.options):
        yield from _changed(f"option {name}", was, is_)
    yield from _changed("ir_override", before.ir_override, after.ir_override)
    if last.key != now.key:
        changed = (
            [name for name, *_ in _differing(last.functions, now.functions)]
            if last.functions and now.functions
            else []
        )
        yield f"{', '.join(changed) or 'the kernel, or what it calls or reads,'} has changed"


def _differing(
    before: Mapping[str, Any], after: Mapping[str, Any]
) -> Iterator[tuple[str, Any, Any]]:
    for name in dict.fromkeys((*after, *before)):
        was, is_ = before.get(name, _NOTHING), after.get(name, _NOTHING)
        if type(was) is not type(is_) or (was is not is_ and repr(was) != repr(is_)):
            yield name, was, is_


def _changed(what: str, was: Any, is_: Any) -> Iterator[str]:
    if was is not is_ and repr(was) != repr(is_):
        yield f"{what} is {_shown(is_)}, was {_shown(was)}"


def _typed(name: str, type_: Any, constants: Mapping[str, Any]) -> str:
    return (
        f"the constant {_shown(constants.get(name, _NOTHING))}"
        if type_ == "constexpr"
        else _shown(type_)
    )


def _facts(found: Any) -> Mapping[str, Any]:
    return {} if found is _NOTHING else found


def _shown(value: Any) -> str:
    if value is _NOTHING:
        return "not known"
    return (
        value
        if isinstance(value, str)
        else f"{getattr(value, '__name__', None) or repr(value):.80}"
    )
