"""Choice of the backend that runs a launch.

In order: the launch keyword ``backend=``, the innermost ``with tw.backend(name):``, the environment
variables ``TILEWRIGHT_CHECKED`` and ``TILEWRIGHT_BACKEND`` (read at the first launch), and else the
default backend of the devices that the array arguments lie on. A kernel without arrays runs on the
default backend: the first, by priority and then by name, that has a device.
"""

from __future__ import annotations

import contextvars
import os
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, Any

from tilewright.environment import CHECKED, flag
from tilewright.errors import BackendError, LaunchError, VariableError
from tilewright.plugins.manifest import Device, Target
from tilewright.plugins.registry import Backend, registry
from tilewright.runtime.devices import device_registry
from tilewright.runtime.options import option_key
from tilewright.runtime.storage.files import warn_user

if TYPE_CHECKING:
    from tilewright.runtime.preparation import Preparation

#: A feature of the manifest: the backend takes arguments on any kind of device when it is asked for
#: by name.
ANY_DEVICE = "any_device"


class DeviceError(LaunchError, ValueError):
    """The arguments of a launch lie where the kernel cannot reach them."""


class Choice:
    """A backend chosen by name, with launch options; equal choices are the same object.

    An empty name leaves the backend to the environment and the arguments. ``preparation`` is done
    to the modules of kernels before the passes.
    """

    __slots__ = ("name", "options", "preparation")
    _interned: dict[tuple[Any, ...], Choice] = {}  # noqa: RUF012 (the table of all instances)
    name: str
    options: Mapping[str, Any]
    preparation: Preparation | None

    def __new__(
        cls, name: str, options: Mapping[str, Any], preparation: Preparation | None = None
    ) -> Choice:
        if not isinstance(name, str):
            registry().get(name)  # says what a name is
        key = (name, option_key(sorted(options.items())), preparation)
        self = cls._interned.get(key)
        if self is None:
            self = object.__new__(cls)
            self.name, self.options = name, MappingProxyType(dict(options))
            self.preparation = preparation
            self = cls._interned.setdefault(key, self)
        return self


#: the innermost ``with tw.backend``; None outside of any
current: contextvars.ContextVar[Choice | None] = contextvars.ContextVar(
    "tilewright_backend", default=None
)


class backend:  # noqa: N801 (used as a statement: with tw.backend("reference"):)
    """Run the launches of a ``with`` block on the backend called ``name``.

    The launch options in ``options`` apply to all launches in the block.

        with tw.backend("reference", checked=True):
            kernel[grid](x, y, n)

    Raises:
        BackendError: no such backend is installed, or it is broken.
    """

    def __init__(self, name: str, **options: Any) -> None:
        registry().get(name)
        self.choice = Choice(name, options)
        self._tokens: list[contextvars.Token[Choice | None]] = []

    def __enter__(self) -> Backend:
        outer, choice = current.get(), self.choice
        if outer is not None and outer.preparation is not None:
            choice = Choice(choice.name, choice.options, outer.preparation)
        self._tokens.append(current.set(choice))
        return registry().get(choice.name)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        current.reset(self._tokens.pop())


_environment: Choice | None = None
_environment_read = False


def environment_choice() -> Choice | None:
    """Return the choice of ``TILEWRIGHT_CHECKED`` and ``TILEWRIGHT_BACKEND``.

    Both are read once, see :func:`refresh_environment`.

    Raises:
        VariableError: ``TILEWRIGHT_CHECKED`` is on, and ``TILEWRIGHT_BACKEND`` names a backend
            that has no checked mode.
    """
    global _environment, _environment_read
    if not _environment_read:
        name = os.environ.get("TILEWRIGHT_BACKEND", "").strip()
        options = {}
        if flag(CHECKED):
            name, options = name or "reference", {"checked": True}
            if "checked" not in environment_backend(Choice(name, {})).manifest.options:
                raise VariableError(
                    f"{CHECKED}=1 needs the reference interpreter, but TILEWRIGHT_BACKEND={name}: "
                    "unset one of the two"
                )
        _environment = Choice(name, options) if name else None
        _environment_read = True
    return _environment


def variable_of(choice: Choice) -> str:
    """Return the variable that leads to the choice of :func:`environment_choice`."""
    return CHECKED if choice.options else "TILEWRIGHT_BACKEND"


def refresh_environment() -> None:
    """Read the variables again at the next launch that is not planned yet."""
    global _environment_read
    _environment_read = False


#: Places of arguments, (device kind, index), in their order, each with the name of the first
#: argument there.
Places = Mapping[tuple[str, int], str]


def first_place(places: Places) -> tuple[str, int]:
    """Return the first argument's device, for arguments on several devices of one kind."""
    return next(iter(places))


def choose(
    choice: Choice | None, places: Places, among: Callable[[Places], tuple[str, int]] = first_place
) -> tuple[Backend, Device]:
    """Choose the backend and device for arguments that lie at ``places``.

    Args:
        among: chooses the device for arguments that lie on several devices of one kind.

    Raises:
        BackendError: nothing serves those devices; names what is installed and how to get more.
        DeviceError: the arguments lie on devices of several kinds, or on some that the launch's
            device, or the chosen backend, cannot reach.
    """
    found, device = _choose(choice, places, among)
    if len(places) > 1 and not _takes_any_device(found):
        for place, name in places.items():
            why = device_registry.why_unreachable(found, device, place)
            if why:
                raise DeviceError(
                    "the arguments of a launch must lie on one device, or on devices that can "
                    f"access each other's memory, and these lie on {_listed(places)}: the launch "
                    f"runs on {device.kind}:{device.index}, which cannot access the memory of "
                    f"argument {name!r} on {place[0]}:{place[1]} ({why}). Move them to one "
                    "device first"
                )
    return found, device


def _takes_any_device(backend: Backend) -> bool:
    capabilities = backend.manifest.capabilities
    return capabilities is not None and ANY_DEVICE in capabilities.features


def _choose(
    choice: Choice | None, places: Places, among: Callable[[Places], tuple[str, int]]
) -> tuple[Backend, Device]:
    named = choice is not None and choice.name
    chosen = choice if named else environment_choice()
    if chosen is not None:
        found = registry().get(chosen.name) if named else environment_backend(chosen)
        if _takes_any_device(found):
            return found, device_registry.find(found, None)
        place = _of_one_kind(places, among)
        if place is not None and place[0] not in found.manifest.device_kinds:
            raise DeviceError(_unreachable(found, place[0]))
        return found, device_registry.find(found, place)
    place = _of_one_kind(places, among)
    if place is None:
        return default_backend()
    serving = registry().for_device_kind(place[0])
    if not serving:
        raise BackendError(
            f"no installed backend serves {place[0]!r} devices, where the arguments lie; "
            f"installed: {_installed()}. Install one that does, for example with: pip install "
            "'tilewright[all]'" + _broken_hint()
        )
    return _first_that_works(serving, place)


def reason(choice: Choice | None, places: Places, *, by_keyword: bool) -> str:
    """Return the reason for the choice of :func:`choose`, for the log."""
    if choice is not None and choice.name:
        return (
            f"the launch's backend={choice.name!r}"
            if by_keyword
            else f"with tilewright.backend({choice.name!r})"
        )
    environment = environment_choice()
    if environment is not None:
        return variable_of(environment)
    return (
        f"the arguments lie on {_listed(places)}"
        if places
        else "the default backend, for a kernel without arrays"
    )


def default_backend() -> tuple[Backend, Device]:
    """Return the backend and device of kernels without array arguments.

    Raises:
        BackendError: no backend has a device.
    """
    candidates = [candidate for candidate in registry().backends() if not candidate.manifest.status]
    try:
        return _first_that_works(candidates, None)
    except BackendError as error:
        raise BackendError(
            (
                f"no installed backend has a device; installed: {_installed()}. Install one with: "
                "pip install 'tilewright[cpu]'"
            )
            + "".join(
                f"\n  {line}" for line in dict.fromkeys(str(error).splitlines()) if candidates
            )
            + _broken_hint()
        ) from None


def default_target() -> Target | None:
    """Return the target of the device that runs a kernel without array arguments.

    None where no backend has a device.
    """
    try:
        return device_registry.target_of(*choose(current.get(), {}))
    except BackendError:
        return None


_passed_over: set[str] = set()


def _first_that_works(
    candidates: Sequence[Backend], place: tuple[str, int] | None
) -> tuple[Backend, Device]:
    """Return the first of several backends that has the device at a place.

    A backend that fails in the device search is skipped, with one warning.

    Raises:
        BackendError: none has; the errors of all, the first one first.
    """
    failures: list[BackendError] = []
    searches: list[tuple[Backend, BackendError]] = []
    for candidate in candidates:
        if not candidate.manifest.status:
            try:
                device_registry.devices(candidate)
            except BackendError as error:
                failures.append(error)
                searches.append((candidate, error))
                continue
        try:
            found = candidate, device_registry.find(candidate, place)
        except BackendError as error:
            failures.append(error)
            continue
        for other, failure in searches:
            if other.name not in _passed_over:
                _passed_over.add(other.name)
                warn_user(
                    f"backend {candidate.name!r} is used, since one that comes before it "
                    f"failed: {failure}"
                )
        _tell_substitute(candidate)
        return found
    raise BackendError("\n".join(map(str, failures)))


def _tell_substitute(chosen: Backend) -> None:
    """Warn once per backend that could not be chosen when kernels fall back to an interpreter.

    The device kinds of a plugin that does not load are unknown: the warning names all such plugins.
    """
    capabilities = chosen.manifest.capabilities
    if capabilities is None or ANY_DEVICE not in capabilities.features:
        return
    reasons = {name: str(error) for name, error in registry().broken().items()}
    for other in registry().backends():
        if other.manifest.status and not set(chosen.manifest.device_kinds).isdisjoint(
            other.manifest.device_kinds
        ):
            reasons[other.name] = (
                f"backend {other.name!r} cannot run kernels: {other.manifest.status}"
            )
    untold = [reason for name, reason in reasons.items() if name not in _passed_over]
    _passed_over.update(reasons)
    if untold:
        listed = "".join(f"\n  {reason}" for reason in untold)
        warn_user(
            f"kernels run on the interpreter, backend {chosen.name!r}, which is slow, since no "
            f"other backend for {'/'.join(chosen.manifest.device_kinds)} works:{listed}\nAsk for "
            f"it, with TILEWRIGHT_BACKEND={chosen.name} or tilewright.backend({chosen.name!r}), "
            "where that is meant"
        )


def environment_backend(choice: Choice) -> Backend:
    """Return the backend of :func:`environment_choice`.

    Raises:
        BackendError: there is none, or it is broken; says where the name comes from.
    """
    try:
        return registry().get(choice.name)
    except BackendError as error:
        raise BackendError(
            f"{error}\n  The environment variable TILEWRIGHT_BACKEND asks for it: unset it, or set "
            "it to the name of a backend"
        ) from error


def _of_one_kind(
    places: Places, among: Callable[[Places], tuple[str, int]]
) -> tuple[str, int] | None:
    """Return the device of a launch whose arguments are on one kind; None without arrays."""
    kinds = {kind for kind, _ in places}
    if len(kinds) > 1:
        hint = " Pointer argument cannot be accessed (cpu tensor?)." if "cpu" in kinds else ""
        raise DeviceError(
            "the arguments of a launch must lie on one device, and these lie on "
            f"{_listed(places)}.{hint} Move them to one device first"
        )
    return among(places) if len(places) > 1 else next(iter(places), None)


def _listed(places: Places) -> str:
    return " and ".join(f"{kind}:{index}" for kind, index in sorted(places))


def _unreachable(found: Backend, kind: str) -> str:
    serving = (
        ", ".join(other.name for other in registry().for_device_kind(kind))
        or "none that is installed"
    )
    return (
        f"Pointer argument cannot be accessed ({kind} tensor?): backend {found.name!r} serves "
        f"{' and '.join(found.manifest.device_kinds)} devices, and the arguments lie on a {kind!r} "
        f"device. Backends for it: {serving}"
    )


def _installed() -> str:
    return (
        ", ".join(
            f"{found.name} (for {'/'.join(found.manifest.device_kinds)})"
            for found in registry().backends()
        )
        or "none"
    )


def _broken_hint() -> str:
    broken = registry().broken()
    return "".join(f"\n  {error}" for error in broken.values())
