"""Mutation testing of the suite: a backend that does nothing, and one with a switch for each bug.

    from tilewright_conformance.mutation import backend_name, register, switches

    for switch in switches():
        register(backend_name(switch))  # "broken-mask-off-by-one" ...; in any process, by its name
        ...  # demand that the suite finds something wrong with that backend

The broken backend is the CPU backend with one hook, or the module it lowers, changed by the switch.
``python -m tilewright_conformance.mutation`` prints the table of switches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tilewright.plugins.registry import Backend
    from tilewright_conformance.mutation.mutant import Switch

PREFIX = "broken-"
#: The broken backend with no bug switched on, unless ``TILEWRIGHT_BROKEN_SWITCH`` names one.
HEALTHY = "broken"
NULL = "null"


def switches() -> tuple[Switch, ...]:
    """Return the broken backend's switches that are safe in any process, in table order."""
    from tilewright_conformance.mutation.mutants import switches

    return switches()


def disruptive_switches() -> tuple[Switch, ...]:
    """Return the switches with which the backend ends the process, hangs or exhausts its memory.

    They act on kernels with an ``sqrt``, and need a process of their own.
    """
    from tilewright_conformance.mutation.mutants import disruptive_switches

    return disruptive_switches()


def backend_name(switch: Switch | str) -> str:
    """The name of the broken backend with a switch on."""
    return PREFIX + (switch if isinstance(switch, str) else switch.name)


def is_faulty(name: str) -> bool:
    """Return whether :func:`register` takes a backend's name; the switch may not exist."""
    return name in (HEALTHY, NULL) or name.startswith(PREFIX)


def register(name: str) -> Backend:
    """Register a faulty backend in this process by its name, once.

    The name is ``null``, ``broken`` or ``broken-<switch>``. Registering it again is no error.

    Raises:
        KeyError: there is no such backend or switch.
    """
    from tilewright.plugins.registry import registry

    if name in registry().names():
        return registry().get(name)
    return registry().register(plugin(name), name, distribution="tilewright-conformance")


def unregister(name: str) -> None:
    """Take back :func:`register`."""
    from tilewright.plugins.registry import registry

    registry().unregister(name)


def load_reference(name: str) -> str:
    """Return the reference (``module:object``) of a faulty backend's plugin.

    Processes that register plugins by such references load it.
    """
    return f"{__name__}.plugins:{name}"


def plugin(name: str) -> Any:
    """A new plugin object of a faulty backend.

    Raises:
        KeyError: there is no such backend or switch.
    """
    if name == NULL:
        from tilewright_conformance.mutation.null_backend import NullBackend

        return NullBackend()
    from tilewright_conformance.mutation.mutant_backend import BrokenBackend

    if name == HEALTHY:
        return BrokenBackend(name=name)
    if not name.startswith(PREFIX):
        raise KeyError(
            f"no faulty backend is called {name!r}: they are {NULL!r}, {HEALTHY!r}, and "
            f"{PREFIX}<switch>"
        )
    return BrokenBackend(name.removeprefix(PREFIX))
