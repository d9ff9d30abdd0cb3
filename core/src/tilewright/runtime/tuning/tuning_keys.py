"""Tuning keys, in memory and in the records on disk."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from tilewright.errors import LaunchError
from tilewright.runtime import tuning_records
from tilewright.runtime.arguments.array_protocols import array_kind, is_array
from tilewright.runtime.arguments.descriptor import TensorDescriptor
from tilewright.runtime.arguments.dtypes import dtype_text
from tilewright.runtime.compiler.config import Config, config_text
from tilewright.runtime.devices import backend_choice, device_registry
from tilewright.runtime.storage.cache_keys import (
    UnstableError,
    backend_version,
    core_version,
    digest,
    stable_text,
)
from tilewright.runtime.storage.tuning_record import identity
from tilewright.runtime.tuning.candidates import TuningTarget

#: types of most arguments that are no arrays
_NUMBERS = frozenset((int, float, bool, type(None), str))


class ArrayTypes:
    """Element types and devices of a launch's arrays in order, as a part of tuning keys.

    Interned: equal ones are the same object, which makes lookups fast.
    """

    __slots__ = ("types",)
    _interned: dict[tuple[Any, ...], ArrayTypes] = {}  # noqa: RUF012 (the table of all instances)
    types: tuple[Any, ...]

    def __new__(cls, types: Iterable[Any]) -> ArrayTypes:
        """Return the interned object, creating it if necessary.

        Raises:
            TypeError: one is not hashable.
        """
        key = tuple(types)
        self = cls._interned.get(key)
        if self is None:
            self = object.__new__(cls)
            self.types = key
            self = cls._interned.setdefault(key, self)
        return self

    def __reduce__(self) -> Any:
        return ArrayTypes, (self.types,)

    def __repr__(self) -> str:
        return repr(self.types)


def tuning_key(keys: Sequence[str], named: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return the values of the key's arguments, the backend, and each array's dtype and device.

    Args:
        keys: the parameters that are in the key.
        named: a launch's arguments by name.
    """
    types: list[Any] = []
    for value in named.values():
        if type(value) in _NUMBERS:
            continue
        if type(value) is TensorDescriptor:
            value = value.base
        dtype = getattr(value, "dtype", None)
        if dtype is not None:
            types.append(dtype)
            types.append(getattr(value, "device", None))
    return (*[named.get(name) for name in keys], backend_choice.current.get(), ArrayTypes(types))


def unhashable(kernel: str, keys: Sequence[str], named: Mapping[str, Any]) -> LaunchError:
    """Return the error for a launch whose tuning key cannot be hashed."""
    for name in keys:
        try:
            hash(named.get(name))
        except TypeError:
            kind = type(named[name]).__name__
            return LaunchError(
                f"{kernel}: argument {name!r} is in the tuning key, so it must be hashable, and a "
                f"{kind} is not"
            )
    return LaunchError(
        f"{kernel}: an argument's dtype or device is not hashable, so that it cannot be part of "
        "the tuning key"
    )


def place_of(
    named: Mapping[str, Any],
    backend_name: str | None,
    place_among: Callable[[backend_choice.Places], tuple[str, int]],
) -> TuningTarget:
    """Return the backend, target and device of a launch.

    Args:
        named: its arguments by name.
        backend_name: the backend that the launch itself names.
        place_among: chooses the place of a launch whose arrays lie at several.
    """
    places: dict[tuple[str, int], str] = {}
    for name, value in named.items():
        base = value.base if isinstance(value, TensorDescriptor) else value
        if is_array(base):
            place = array_kind(base).device
            if place is not None:
                places.setdefault(place, name)
    choice = (
        backend_choice.current.get()
        if backend_name is None
        else backend_choice.Choice(backend_name, {})
    )
    backend, device = backend_choice.choose(choice, places, place_among)
    return TuningTarget(backend, device, device_registry.target_of(backend, device))


class RecordKey(NamedTuple):
    """Key of a tuning record; for its parts see the record's class.

    The class is :class:`~tilewright.runtime.storage.tuning_record.Record`.
    """

    source: str
    key: str
    device: str
    target: str
    space: str

    @property
    def identity(self) -> str:
        return identity(*self)


def record_key(
    kernel: Any,
    values: Sequence[Any],
    named: Mapping[str, Any],
    configs: Sequence[Config],
    place: TuningTarget,
) -> RecordKey | None:
    """Return the key of a tuning's record.

    None where it has no text that is the same in every process.

    Its text has the values of the key's arguments and the element type of each array, whichever
    library it is of and however it is passed.

    Args:
        kernel: the innermost kernel.
        values: those of the key's arguments.
        named: a launch's arguments by name.
    """
    try:
        typed = [
            f"{name}:{_dtype_name(value.dtype)}"
            for name, value in sorted(named.items())
            if getattr(value, "dtype", None) is not None
        ]
        text = ";".join([*map(stable_text, values), *typed])
        space = digest(*sorted(config_text(config) for config in configs))
    except UnstableError:
        return None
    return RecordKey(
        tuning_records.source_key(kernel), text, place.device.name, place.target.key, space
    )


def bits_text(place: TuningTarget) -> str:
    """Return the part of an invariant tuning's key: bits may change with what writes code."""
    return f"bits={digest(core_version(), backend_version(place.backend))[:16]}"


def _dtype_name(dtype: Any) -> str:
    try:
        return dtype_text(dtype)
    except TypeError:
        return str(dtype)
