"""The driver table: the functions of a GPU driver by role; the rest of the package uses it."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from tilewright.gpu_host.expressions import Expression

if TYPE_CHECKING:
    from tilewright.gpu_host.driver import Driver
    from tilewright.plugins.manifest import CodeObject

Grid = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class DriverCall:
    """A driver function whose arguments or results differ from those of its role.

    Attributes:
        name: the function, as errors name it.
        call: (bindings, *arguments of the role) -> (status, *results of the role).
    """

    name: str
    call: Callable[..., tuple[Any, ...]]


#: A function of the bindings: its name where its signature is that of the role, else a
#: :class:`DriverCall`. Each returns a tuple of a status and the results.
Entry = str | DriverCall


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Entries:
    """The driver's functions by role.

    Handles are whatever the bindings make of them; contexts, streams, functions and addresses are
    numbers for a role.

    Attributes:
        initialize: () once a process, before all others.
        device_count: () -> number of devices.
        device: (index) -> handle.
        device_name: (handle) -> text, or bytes up to the first zero.
        device_memory: (handle) -> bytes.
        device_attribute: (member of :attr:`DriverTable.device_attributes`, handle) -> number.
        context: (handle) -> the primary context, which all libraries of the process share; a driver
            without contexts returns the device's index.
        context_current: () -> this thread's context, 0 or another number where it has none.
        context_enter: (context) makes it current in this thread.
        context_leave: (context before) restores that one as current in this thread.
        module_load: (code, bytes) -> module.
        module_unload: (module).
        module_function: (module, symbol, bytes) -> function.
        function_attribute: (member of :attr:`DriverTable.function_attributes`, function) -> number.
        function_allow_shared: (function, bytes) lets programs have more shared memory than
            :attr:`DriverTable.free_shared`.
        occupancy: (function, threads, bytes of shared memory) -> resident programs per SM (CU).
        cluster_occupancy: (:class:`LaunchParameters` whose grid is one program) -> clusters, which
            are programs of several CTAs, that the device holds; None where each program is one CTA.
        launch: (:class:`LaunchParameters`).
        memory_allocate: (bytes) -> address, of the current context.
        memory_free: (address).
        memory_to_device, memory_to_host: (to, from, bytes); the copy has ended when they return.
        memory_fill: (address, byte, bytes, stream).
        pointer_device: (address) -> index of the device whose memory it is; negative for the
            host's, and for what the driver does not know.
        peer_possible: (handle, handle of another device) -> whether kernels on the first can access
            the memory of the second, 0 or not.
        peer_enable: (context of another device) lets the current context's kernels access its
            memory. Both are None where no device accesses another's.
        synchronize: () waits for the current context.
        event_create: () -> event that times.
        event_record: (event, stream).
        event_wait: (event) waits for it.
        event_milliseconds: (start, end) -> time between them.
        event_destroy: (event).
        capture_mode: (mode) -> mode before: the interaction of this thread's calls with graph
            capture; None where no call can invalidate a capture.
    """

    initialize: Entry
    device_count: Entry
    device: Entry
    device_name: Entry
    device_memory: Entry
    device_attribute: Entry
    context: Entry
    context_current: Entry
    context_enter: Entry
    context_leave: Entry
    module_load: Entry
    module_unload: Entry
    module_function: Entry
    function_attribute: Entry
    function_allow_shared: Entry | None
    occupancy: Entry
    launch: Entry
    memory_allocate: Entry
    memory_free: Entry
    memory_to_device: Entry
    memory_to_host: Entry
    memory_fill: Entry
    pointer_device: Entry
    synchronize: Entry
    event_create: Entry
    event_record: Entry
    event_wait: Entry
    event_milliseconds: Entry
    event_destroy: Entry
    capture_mode: Entry | None
    cluster_occupancy: Entry | None = None
    peer_possible: Entry | None = None
    peer_enable: Entry | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Enumeration:
    """An enumeration of the bindings.

    Attributes:
        type: its name there.
        members: name of a member in this package and the backend -> its name there.
    """

    type: str
    members: Mapping[str, str]

    @classmethod
    def prefixed(cls, type_: str, prefix: str, **members: str) -> Enumeration:
        """Make an enumeration whose members share a prefix, given their names without it."""
        return cls(type_, {name: prefix + member for name, member in members.items()})

    def member(self, bindings: Any, name: str) -> Any:
        return getattr(getattr(bindings, self.type), self.members[name])


#: The device attributes that this package reads: bytes of shared memory of a program, the number of
#: SMs (CUs), threads and registers of each, bytes of the last-level cache.
DEVICE_ATTRIBUTES = ("shared_memory", "processors", "processor_threads", "registers", "cache_bytes")
#: The function attributes: registers and bytes of local memory of a thread, maximum threads of a
#: program.
FUNCTION_ATTRIBUTES = ("registers", "local_bytes", "max_threads")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Statuses:
    """Meanings of the status codes that are distinguished; 0 is success.

    Attributes:
        out_of_memory: there is not enough device memory.
        no_binary: the code is not for this device.
        out_of_launch_resources: a launch takes more threads or registers than there are.
        peer_enabled: a context's memory is accessed already.
        too_many_programs: a cooperative launch has more programs than run at once; None where the
            driver knows no such launches.
        faults: descriptions of kernel faults. Such a status is sticky: the context is unusable, and
            every call returns it again until the process ends.
        capture: a call that cannot be part of a graph, while one is being captured.
        texts: (bindings, code) -> the status's name and the driver's description.
        messages: (bindings) -> messages that kernels wrote before they failed, reported once in
            place of the fault; empty where there are none. None where the driver prints them.
    """

    out_of_memory: int
    no_binary: int
    out_of_launch_resources: int
    faults: Mapping[int, str]
    capture: frozenset[int]
    texts: Callable[[Any, int], tuple[str, str]]
    messages: Callable[[Any], str] | None = None
    too_many_programs: int | None = None
    peer_enabled: int | None = None


@dataclass(frozen=True, slots=True)
class LaunchAttribute:
    """An attribute of a launch, as drivers take them beside the grid.

    Attributes:
        number: as the driver numbers such attributes.
        member: the member of the driver's union that the value is in.
        value: 32-bit numbers.
    """

    number: int
    member: str
    value: tuple[int, ...]


class LaunchParameters(NamedTuple):
    """Parameters of one launch, as :attr:`Entries.launch` receives them.

    Attributes:
        function: the kernel's handle, as a number.
        grid: CTAs along each axis.
        threads, shared: threads and bytes of shared memory of a CTA.
        stream: a handle, as a number.
        addresses: the address of an array of the addresses of all arguments; it lives until the
            call returns.
        attributes: in any order.
        cooperative: all programs are resident at once, or the launch fails.
    """

    function: int
    grid: Grid
    threads: int
    shared: int
    stream: int
    addresses: int
    attributes: tuple[LaunchAttribute, ...] = ()
    cooperative: bool = False


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NativeEntries:
    """The two driver functions that native launchers call; both return a 32-bit status.

    Attributes:
        launch: starts a kernel.
        current: given the address of 8 zero bytes, writes this thread's context there, as
            :attr:`Entries.context_current` returns it.
        operands: the operands of ``launch`` in order: keys of :data:`OPERANDS`.
        config: where ``config`` is among them, the structure it points to, with fields ``grid`` and
            ``block`` of three 32-bit numbers, ``shared`` (32 bits), ``stream`` and ``attributes``
            (64), and ``attribute_count`` (32).
        attribute: the structure of one of its attributes, with fields ``number`` and ``value``,
            bytes.
    """

    launch: str
    current: str
    operands: tuple[str, ...]
    config: type[ctypes.Structure] | None = None
    attribute: type[ctypes.Structure] | None = None


#: Operand of a native launch function -> its LLVM type.
OPERANDS: Mapping[str, str] = {
    **dict.fromkeys(("config", "function", "addresses", "null"), "ptr"),
    **dict.fromkeys(
        ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z", "shared"), "i32"
    ),
    "stream": "i64",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamNames:
    """Representations of the device's streams in other libraries.

    Attributes:
        torch: the module of PyTorch for such devices, which knows the current stream.
        attributes: attributes of stream objects that are handles, in the order they are looked for.
        protocol: the attribute, or method, of stream objects that returns a version and a handle.
        libraries: the libraries with such streams, for messages.
    """

    torch: str
    attributes: tuple[str, ...]
    protocol: str
    libraries: str


class IntegerOperand(NamedTuple):
    """An operand of a native function: an integer of an LLVM type, ``i32`` or ``i64``."""

    type: str
    value: Expression


class IntegerArrayOperand(NamedTuple):
    """An operand of a native function: the address of an array of integers."""

    type: str
    values: tuple[Expression, ...]


#: The operand of a native function that is the address of the structure it fills in, a multiple of
#: 64.
STRUCTURE = "structure"


class Precondition(NamedTuple):
    """Precondition on a launch's arguments for encoding an opaque structure.

    The value lies between ``minimum`` and ``maximum`` and is a multiple of ``divisor``.
    """

    value: Expression
    minimum: int
    maximum: int
    divisor: int
    rule: str

    def holds(self, value: int) -> bool:
        return self.minimum <= value <= self.maximum and value % self.divisor == 0


@dataclass(frozen=True, slots=True)
class NativeCall:
    """Native call that fills in an opaque structure.

    Attributes:
        function: of the driver's library; it returns a 32-bit status.
        operands: its operands: :class:`IntegerOperand`, :class:`IntegerArrayOperand` or
            :data:`STRUCTURE`.
    """

    function: str
    operands: tuple[IntegerOperand | IntegerArrayOperand | str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OpaqueArgument:
    """Hidden kernel parameter: a structure passed by value, such as a tensor map for TMA.

    It follows the parameters of the source, and is encoded from the arguments at launch.

    Attributes:
        subject: its description for messages: ``the tensor of argument 2``.
        inputs: the expressions that it is encoded from.
        size: bytes.
        conditions: the structure cannot be encoded where one does not hold or its expression has no
            value.
        encode: the values of ``inputs`` -> the structure. Equal values yield equal structures, so
            results are cached. A
            :class:`~tilewright.gpu_host.errors.DriverError` that it raises means that the structure
            cannot be encoded.
        native: the same as a native call; None where the Python launcher handles the launches.
    """

    subject: str
    inputs: tuple[Expression, ...]
    size: int
    conditions: tuple[Precondition, ...] = ()
    encode: Callable[[tuple[int, ...]], bytes]
    native: NativeCall | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """Description of a code object for loading and launching.

    Attributes:
        binary: returns the bytes for :attr:`Entries.module_load`; it may link them first, and is
            not called for a kernel that cannot run.
        symbol: the kernel's name in them.
        threads, shared: threads and bytes of shared memory of a program, or of each of its CTAs.
        blocks: CTAs per program, consecutive along the grid's first axis.
        spills: bytes of register spills that a thread stores; None where unknown: the thread's
            local memory is then used.
        attributes: of every launch.
        cooperative: whether launches are cooperative; where the driver takes an attribute for that,
            it is among the attributes. The device attribute ``cooperative`` of the backend's table,
            where it has one, says whether a device can.
        opaque: hidden parameters that follow those of the source, in order.
        around: (stream, a handle as a number) -> what the driver's call is done within, for what a
            backend does before and after each launch, such as waiting for what the kernel leaves on
            the host; the device's context is the thread's. Such launches are left to Python.
    """

    binary: Callable[[], bytes]
    symbol: str
    threads: int
    shared: int
    blocks: int = 1
    spills: int | None = None
    attributes: tuple[LaunchAttribute, ...] = ()
    cooperative: bool = False
    opaque: tuple[OpaqueArgument, ...] = ()
    around: Callable[[int], AbstractContextManager[None]] | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DriverTable:
    """A driver: its functions, enumerations, statuses and limits.

    Attributes:
        backend: the name of the backend, under which the environment speaks of it too
            (``TILEWRIGHT_<BACKEND>_LAUNCHER``).
        kind: the kind of its devices in the terms of argument protocols.
        entries, statuses, native, streams: see there.
        cooperative_native: the functions that native launchers call for cooperative launches, where
            these differ.
        device_attributes: :data:`DEVICE_ATTRIBUTES`, and the attributes that the backend itself
            reads.
        function_attributes: :data:`FUNCTION_ATTRIBUTES`.
        library: the driver's library, not initialised; None where there is none.
        image: (driver, index of the device, code object) -> its :class:`Image`.
        architecture: (driver, index) -> the device's architecture, for messages.
        grid_limits: maximum extents of a grid.
        free_shared: bytes of shared memory that a program has without
            :attr:`Entries.function_allow_shared`.
        alignment: alignment in bytes of addresses from :attr:`Entries.memory_allocate`.
        flushed_bytes: minimum number of bytes overwritten to flush the caches; twice the last-level
            cache where that is more.
        array_protocol: the attribute by which other libraries find arrays in device memory, in the
            form of version 3 of the array interface.
    """

    backend: str
    kind: str
    entries: Entries
    statuses: Statuses
    native: NativeEntries
    streams: StreamNames
    device_attributes: Enumeration
    function_attributes: Enumeration
    library: Callable[[], Any]
    image: Callable[[Driver, int, CodeObject], Image]
    architecture: Callable[[Driver, int], str]
    grid_limits: Grid
    free_shared: int
    alignment: int
    flushed_bytes: int
    array_protocol: str
    cooperative_native: NativeEntries | None = None

    def __post_init__(self) -> None:
        for native in (self.native, self.cooperative_native or self.native):
            unknown = [word for word in native.operands if word not in OPERANDS]
            if unknown or ("config" in native.operands) != (native.config is not None):
                raise ValueError(
                    f"a native launch function takes {', '.join(OPERANDS)}, and a config is "
                    f"described where it takes one; not {native}"
                )
        for label, found, needed in (
            ("device", self.device_attributes, DEVICE_ATTRIBUTES),
            ("function", self.function_attributes, FUNCTION_ATTRIBUTES),
        ):
            missing = [name for name in needed if name not in found.members]
            if missing:
                raise ValueError(
                    f"the table of {self.backend} lacks {label} attributes {', '.join(missing)}"
                )

    def native_entries(self, cooperative: bool) -> NativeEntries:
        """Return the entries for native launchers, cooperative or not."""
        return (
            self.cooperative_native
            if cooperative and self.cooperative_native is not None
            else self.native
        )
