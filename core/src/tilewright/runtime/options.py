"""Launch options: the keywords of a launch beside the kernel's parameters, validated."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from operator import index
from typing import Any

from tilewright.environment import flag
from tilewright.errors import (
    LaunchError,
    ReservedOptionError,
    UnknownOptionError,
    similar,
    with_help,
)
from tilewright.plugins.registry import Backend, registry

#: Where a launch runs follows from its arguments; these are refused with an explanation.
RESERVED: Mapping[str, str] = {
    "device": "the device is the one that the arguments lie on",
    "device_type": (
        "the device is the one that the arguments lie on; choose a backend with backend= or "
        "tilewright.backend()"
    ),
    "stream": (
        "the stream is the current one of the arguments' library; a compiled kernel takes "
        "stream=: kernel.warmup(...)[grid](*args, stream=s)"
    ),
}

#: Counts, which have to be positive; num_stages may be 0.
_POSITIVE = ("num_warps", "num_stages", "num_ctas")
#: Options that must be booleans.
_BOOLEAN = ("cooperative", "invariant")


def resolve(
    backend: Backend,
    kernel: str,
    given: Mapping[str, Any],
    defaults: Mapping[str, Any],
    parameters: Iterable[str] = (),
) -> dict[str, Any]:
    """Resolve every option of the backend's manifest from the launch, then ``defaults``.

    ``parameters`` are those of the kernel that a keyword of another name may have meant.

    Raises:
        UnknownOptionError: a keyword is neither a parameter of the kernel nor an option of the
            backend.
        ReservedOptionError: ``device``, ``device_type`` or ``stream`` was given.
        LaunchError: an option's value makes no sense.
    """
    known = backend.manifest.options
    options = dict(known)
    for name, value in (*defaults.items(), *given.items()):
        if name not in known:
            raise refusal(backend, kernel, name, parameters)
        options[name] = (
            getattr(value, "value", value) if type(value).__name__ == "constexpr" else value
        )
    for name in _POSITIVE:
        value = options.get(name)
        if value is None and known.get(name) is None:
            continue
        if type(value) is not int:
            value = options[name] = _integer(value)
        if value is None or value < (0 if name == "num_stages" else 1):
            raise LaunchError(
                f"{kernel}: option {name} must be a positive integer, not "
                f"{given.get(name, defaults.get(name))!r}"
            )
    for name in _BOOLEAN:
        if name in options:
            value = options[name]
            if type(value).__name__ not in ("bool", "bool_"):
                raise LaunchError(f"{kernel}: option {name} must be True or False, not {value!r}")
            options[name] = bool(value)
    return options


def _integer(value: Any) -> int | None:
    """Convert an integer of any library to Python's; None for other values, booleans included."""
    try:
        return (
            None
            if isinstance(value, bool) or type(value).__name__ in ("bool", "bool_")
            else index(value)
        )
    except TypeError:
        return None


def refusal(
    backend: Backend, kernel: str, name: str, parameters: Iterable[str], also: Iterable[str] = ()
) -> LaunchError:
    """Return the error for a keyword that is no option; ``also`` are options beside the backend's.

    ``parameters`` are those of the kernel, which the keyword may have meant.
    """
    if name in RESERVED:
        return ReservedOptionError(f"{name}= is not an option of a launch: {RESERVED[name]}")
    options = sorted({*backend.manifest.options, *also})
    message = (
        f"Keyword argument {name} was specified but unrecognised: it is no parameter of {kernel} "
        f"and no option of backend {backend.name!r} (options: {', '.join(options)})"
    )
    others = [
        repr(other.manifest.name)
        for other in registry().backends()
        if name in other.manifest.options
    ]
    if others:
        return UnknownOptionError(
            f"{message}; {', '.join(others)} has it: pass backend={others[0]} as well"
        )
    return UnknownOptionError(with_help(message, similar(name, (*options, *parameters))))


def known_options() -> frozenset[str]:
    """Return the launch options of every working installed backend."""
    return frozenset(
        (
            "backend",
            *(name for backend in registry().backends() for name in backend.manifest.options),
        )
    )


def debug_default(jit_debug: bool | None) -> dict[str, Any]:
    """Return the default of ``debug``: that of ``jit(debug=)``, else of ``TILEWRIGHT_DEBUG``."""
    if jit_debug is not None:
        return {"debug": bool(jit_debug)}
    return {"debug": True} if flag("TILEWRIGHT_DEBUG") else {}


def option_key(items: Iterable[tuple[str, Any]]) -> tuple[Any, ...]:
    """Make option items hashable: dictionaries and lists become tuples."""
    return tuple(
        [item if type(item[1]) in _PLAIN else (item[0], _frozen(item[1])) for item in items]
    )


_PLAIN = frozenset((int, str, type(None)))


def _frozen(value: Any) -> Any:
    if isinstance(value, Mapping):
        return tuple(sorted((key, _frozen(item)) for key, item in value.items()))
    if isinstance(value, list | tuple):
        return tuple([_frozen(item) for item in value])
    if isinstance(value, bool | float):  # True is not 1 in a key
        return (type(value).__name__, value)
    try:
        hash(value)
    except TypeError:  # the compiled kernel keeps the object, so that its id stays its own
        return (type(value).__name__, id(value))
    return value
