"""A mock GPU driver in Python, over host memory, for tests of a backend's host side.

It replaces the driver's bindings and its library.

Both are made from the backend's :class:`~tilewright.gpu_host.table.DriverTable`, keep what they are
passed, and fail where a test says so. A backend adds what its functions take that their roles do
not: a method ``_<function of the driver>`` on a class of its own, which returns the results without
the status.
"""

from __future__ import annotations

import ctypes
import enum
import itertools
from collections.abc import Callable, Sequence
from dataclasses import fields
from functools import partial
from typing import Any

from tilewright.gpu_host.capture import GLOBAL, RELAXED
from tilewright.gpu_host.table import (
    OPERANDS,
    DriverTable,
    Enumeration,
    LaunchParameters,
    NativeEntries,
)

#: Roles that no graph has a place for: refused while one is captured, unless in relaxed mode.
_NOT_CAPTURED = frozenset(
    (
        "module_load",
        "module_unload",
        "memory_allocate",
        "memory_free",
        "memory_to_device",
        "memory_to_host",
        "synchronize",
        "event_wait",
    )
)


class Settings:
    """Settings of the mock devices, which tests change.

    ``failures`` has the statuses that functions fail with, ``peers`` the pairs of devices of which
    the first can access the memory of the second.
    """

    def __init__(self) -> None:
        self.attributes = {
            "shared_memory": 96 << 10,
            "processors": 64,
            "processor_threads": 2048,
            "registers": 65536,
            "cache_bytes": 8 << 20,
            "cooperative": 1,
        }
        self.function_attributes = {"registers": 32, "local_bytes": 0, "max_threads": 1024}
        self.devices = 2
        self.clusters = 100
        self.peers: set[tuple[int, int]] = set()
        self.failures: dict[str, int] = {}


class StandInBindings:
    """The module of a driver's bindings.

    Attributes:
        settings: what the devices are like.
        calls: names and arguments, in order.
        contexts: what this thread entered and has not left.
        launches: parameters of each launch, and the words of its first :attr:`words` arguments.
        words: how many words a launch's arguments are read as.
        sizes: of the structures behind them; :attr:`structures` has those of the last launch.
        memory: what is allocated, by address.
        modules: what is loaded, by handle.
        capturing: a graph is being captured; a call that is refused for that sets :attr:`spoiled`.
    """

    def __init__(self, table: DriverTable) -> None:
        self.table, self.settings = table, Settings()
        self.calls: list[tuple[str, tuple[Any, ...]]] = []
        self.contexts: list[int] = []
        self.launches: list[tuple[Any, list[int]]] = []
        self.memory: dict[int, Any] = {}
        self.modules: dict[int, bytes] = {}
        self.words, self.mode = 0, GLOBAL
        self.sizes: tuple[int, ...] = ()
        self.structures: list[bytes] = []
        self.capturing = self.spoiled = False
        self._handles = itertools.count(7)
        entries = (
            (field.name, getattr(table.entries, field.name)) for field in fields(table.entries)
        )
        self._roles = {
            entry if isinstance(entry, str) else entry.name: role
            for role, entry in entries
            if entry is not None
        }
        for enumeration in (table.device_attributes, table.function_attributes):
            setattr(self, enumeration.type, self.members(enumeration))

    def members(self, enumeration: Enumeration) -> Any:
        """The enumeration's type in the bindings."""
        return enum.IntEnum(
            enumeration.type,
            {member: number for number, member in enumerate(enumeration.members.values())},
        )

    def __getattr__(self, name: str) -> Callable[..., tuple[Any, ...]]:
        role = self.__dict__.get("_roles", {}).get(name)
        given = getattr(type(self), f"_{name}", None) or (role and getattr(type(self), role))
        if given is None:
            raise AttributeError(name)

        def call(*arguments: Any) -> tuple[Any, ...]:
            self.calls.append((name, arguments))
            status = self.settings.failures.get(name, 0)
            if not status and role in _NOT_CAPTURED and self.capturing and self.mode != RELAXED:
                self.spoiled, status = True, min(self.table.statuses.capture)
            if status:
                return status, None
            result = given(self, *arguments)
            return (
                (0,)
                if result is None
                else (0, *result)
                if isinstance(result, tuple)
                else (0, result)
            )

        return call

    def named(self, name: str) -> list[tuple[Any, ...]]:
        """The arguments of all calls of a function."""
        return [arguments for called, arguments in self.calls if called == name]

    # ---- the roles; what a function of the driver takes beyond its role is not looked at

    def initialize(self, *_: Any) -> None: ...

    def device_count(self) -> int:
        return self.settings.devices

    def device(self, index: int) -> int:
        return index

    def device_name(self, *_: Any) -> bytes:
        return b"Stand-in GPU\0\0\0"

    def device_memory(self, *_: Any) -> int:
        return 80 << 30

    def device_attribute(self, member: Any, _: Any) -> int:
        return self.settings.attributes[self._called(self.table.device_attributes, member)]

    def function_attribute(self, member: Any, _: Any) -> int:
        return self.settings.function_attributes[
            self._called(self.table.function_attributes, member)
        ]

    def _called(self, enumeration: Enumeration, member: Any) -> str:
        return next(name for name, found in enumeration.members.items() if found == member.name)

    def context(self, device: int) -> int:
        return 1000 + device

    def context_current(self) -> int:
        return self.contexts[-1] if self.contexts else 0

    def context_enter(self, context: int) -> None:
        self.contexts.append(context)

    def context_leave(self, *_: Any) -> None:
        self.contexts.pop()

    def module_load(self, binary: bytes) -> int:
        handle = next(self._handles)
        self.modules[handle] = binary
        return handle

    def module_unload(self, module: int) -> None:
        del self.modules[module]

    def module_function(self, module: int, _: bytes) -> int:
        return 11 * module

    def function_allow_shared(self, *_: Any) -> None: ...

    def occupancy(self, *_: Any) -> int:
        return 8

    def cluster_occupancy(self, *_: Any) -> int:
        return self.settings.clusters

    def launch(self, launch: LaunchParameters) -> None:
        self.started(launch, launch.addresses)

    def started(self, launch: Any, addresses: int) -> None:
        """Keep a launch."""
        words, self.structures = _passed(addresses, self.words, self.sizes)
        self.launches.append((launch, words))

    def memory_allocate(self, size: int) -> int:
        # as far apart as a driver's addresses are
        buffer = ctypes.create_string_buffer(size + self.table.alignment)
        address = -(-ctypes.addressof(buffer) // self.table.alignment) * self.table.alignment
        self.memory[address] = buffer
        return address

    def memory_free(self, address: int) -> None:
        del self.memory[address]

    def memory_to_device(self, to: int, source: int, size: int) -> None:
        ctypes.memmove(to, source, size)

    memory_to_host = memory_to_device

    def memory_fill(self, *_: Any) -> None: ...

    def peer_possible(self, device: int, peer: int) -> int:
        return int((device, peer) in self.settings.peers)

    def peer_enable(self, *_: Any) -> None: ...

    def synchronize(self) -> None: ...

    def event_create(self, *_: Any) -> int:
        return 5

    def event_record(self, *_: Any) -> None: ...

    def event_wait(self, *_: Any) -> None: ...

    def event_milliseconds(self, *_: Any) -> float:
        return 0.25

    def event_destroy(self, *_: Any) -> None: ...

    def capture_mode(self, mode: int) -> int:
        before, self.mode = self.mode, int(mode)
        return before


def _passed(addresses: int, words: int, sizes: Sequence[int]) -> tuple[list[int], list[bytes]]:
    """The words and structures of a launch's arguments."""
    places = (ctypes.c_uint64 * (words + len(sizes))).from_address(addresses)
    structures = [
        ctypes.string_at(place, size) for place, size in zip(places[words:], sizes, strict=True)
    ]
    return [ctypes.c_uint64.from_address(place).value for place in places[:words]], structures


_TYPES = {"ptr": ctypes.c_void_p, "i32": ctypes.c_uint32, "i64": ctypes.c_uint64}


class StandInLibrary:
    """The functions of a driver's library that native launchers call, as its attributes.

    Attributes:
        functions: name -> function of ctypes; tests add what makes opaque structures.
        launches: of each launch ``grid``, ``block``, ``shared``, ``stream``, ``function``, the
            ``words`` of its arguments, and the ``attributes``, numbers and the first words of their
            values; and ``called``, the function, where that is one for cooperative launches alone.
        sizes: of the structures behind the words; ``structures`` has those of the last launch.
        context: the current context.
        status: what the next launches give.
    """

    def __init__(self, table: DriverTable, words: int, context: int) -> None:
        self.launches: list[dict[str, Any]] = []
        self.sizes: tuple[int, ...] = ()
        self.structures: list[bytes] = []
        self.context, self.status = context, 0

        def launch(native: NativeEntries, *given: Any) -> int:
            operands: dict[str, Any] = dict(zip(native.operands, given, strict=True))
            if native.config is None:
                found: dict[str, Any] = {
                    name: tuple(operands[f"{name}_{axis}"] for axis in "xyz")
                    for name in ("grid", "block")
                }
                found |= {name: operands[name] for name in ("shared", "stream")}
                found["attributes"] = []
            else:
                record: Any = native.config.from_address(operands["config"])
                found = {
                    "grid": tuple(record.grid),
                    "block": tuple(record.block),
                    "shared": record.shared,
                    "stream": record.stream,
                }
                found["attributes"] = _attributes(native, record.attributes, record.attribute_count)
            if native is not table.native:
                found["called"] = native.launch
            passed, self.structures = _passed(operands["addresses"], words, self.sizes)
            self.launches.append({**found, "function": operands["function"], "words": passed})
            return self.status

        def current(place: Any) -> int:
            place[0] = self.context
            return 0

        self.functions: dict[str, Any] = {}
        for native in (table.native, table.native_entries(True)):
            types = (_TYPES[OPERANDS[name]] for name in native.operands)
            self.functions[native.launch] = ctypes.CFUNCTYPE(ctypes.c_int32, *types)(
                partial(launch, native)
            )
            self.functions[native.current] = ctypes.CFUNCTYPE(
                ctypes.c_int32, ctypes.POINTER(ctypes.c_uint64)
            )(current)

    def __getattr__(self, name: str) -> Any:
        try:
            return self.__dict__["functions"][name]
        except KeyError:
            raise AttributeError(name) from None


def _attributes(native: NativeEntries, address: int, count: int) -> list[tuple[int, int]]:
    if native.attribute is None:
        return []
    records: Any = (native.attribute * count).from_address(address) if count else ()
    return [(record.number, ctypes.c_uint32.from_buffer(record.value).value) for record in records]


__all__ = ["Settings", "StandInBindings", "StandInLibrary"]
