"""A driver as a table: the functions a GPU's driver has, by what they do. Everything else in this package is written in these terms."""

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
class Call:
    """A function of the driver that takes or gives something else than its role does.

    Attributes:
        name: the function, as errors name it.
        call: (bindings, *arguments of the role) -> (status, *results of the role).
    """

    name: str
    call: Callable[..., tuple[Any, ...]]


#: A function of the bindings, by name where it takes and gives what the role does. Each gives a status and its results, as a tuple.
Entry = str | Call


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Entries:
    """The driver's functions by role. Handles are whatever the bindings make of them; contexts, streams, functions and addresses are numbers for a role.

    Attributes:
        initialize: () once a process, before all others.
        device_count: () -> how many devices there are.
        device: (index) -> handle.
        device_name: (handle) -> text, or bytes up to the first zero.
        device_memory: (handle) -> bytes.
        device_attribute: (member of :attr:`DriverTable.device_attributes`, handle) -> number.
        context: (handle) -> the context that all libraries of the process share; a driver that has none but the device gives its index.
        context_current: () -> this thread's context, 0 or another number where it has none.
        context_enter: (context) makes it this thread's.
        context_leave: (context before) makes that one this thread's again.
        module_load: (code, bytes) -> module.
        module_unload: (module).
        module_function: (module, symbol, bytes) -> function.
        function_attribute: (member of :attr:`DriverTable.function_attributes`, function) -> number.
        function_allow_shared: (function, bytes) lets programs have more shared memory than :attr:`DriverTable.free_shared`.
        occupancy: (function, threads, bytes of shared memory) -> programs that a processor holds.
        cluster_occupancy: (:class:`Launch` whose grid is one program) -> programs of several blocks of threads, clusters, that the device holds; None where
            programs are of one block each.
        launch: (:class:`Launch`).
        memory_allocate: (bytes) -> address, of the current context.
        memory_free: (address).
        memory_to_device, memory_to_host: (to, from, bytes); the copy has ended when they return.
        memory_fill: (address, byte, bytes, stream).
        pointer_device: (address) -> index of the device whose memory it is; negative for the host's, and for what the driver does not know.
        peer_possible: (handle, handle of another device) -> whether kernels on the first can access the memory of the second, 0 or not.
        peer_enable: (context of another device) lets the current context's kernels access its memory. Both are None where no device accesses another's.
        synchronize: () waits for the current context.
        event_create: () -> event that times.
        event_record: (event, stream).
        event_wait: (event) waits for it.
        event_milliseconds: (start, end) -> time between them.
        event_destroy: (event).
        capture_mode: (mode) -> mode before: how this thread's calls go with graphs that are being captured; None where nothing can spoil a capture.
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
        members: what this package, and the backend, call a member -> its name there.
    """

    type: str
    members: Mapping[str, str]

    @classmethod
    def prefixed(cls, type_: str, prefix: str, **members: str) -> Enumeration:
        """One whose members' names all begin alike there: ``members`` are what follows."""
        return cls(type_, {name: prefix + member for name, member in members.items()})

    def member(self, bindings: Any, name: str) -> Any:
        return getattr(getattr(bindings, self.type), self.members[name])


#: The device attributes that are asked for here: bytes of shared memory of a program, processors, threads and registers of one, bytes of the last cache.
DEVICE_ATTRIBUTES = ("shared_memory", "processors", "processor_threads", "registers", "cache_bytes")
#: The function attributes: registers and bytes of local memory of a thread, threads that a program could have.
FUNCTION_ATTRIBUTES = ("registers", "local_bytes", "max_threads")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Statuses:
    """What status codes mean, as far as they are told apart. 0 is success.

    Attributes:
        out_of_memory: there is not enough device memory.
        no_binary: the code is not for this device.
        out_of_launch_resources: a launch takes more threads or registers than there are.
        peer_enabled: a context's memory is accessed already.
        too_many_programs: a cooperative launch has more programs than run at once; None where the driver knows no such launches.
        faults: what a kernel did wrong. After such a status the context is of no more use: every call gives it again until the process ends.
        capture: a call that cannot be part of a graph, while one is being captured.
        texts: (bindings, code) -> the status's name and what the driver says of it.
        told: (bindings) -> what kernels said of themselves before they failed, to be told in a fault's place, and then no more; empty where they said
            nothing. None where the driver prints it.
    """

    out_of_memory: int
    no_binary: int
    out_of_launch_resources: int
    faults: Mapping[int, str]
    capture: frozenset[int]
    texts: Callable[[Any, int], tuple[str, str]]
    told: Callable[[Any], str] | None = None
    too_many_programs: int | None = None
    peer_enabled: int | None = None


@dataclass(frozen=True, slots=True)
class LaunchAttribute:
    """Something said of a launch beyond its grid.

    Attributes:
        number: as the driver numbers such attributes.
        member: the member of the driver's union that the value is in.
        value: numbers of 32 bits.
    """

    number: int
    member: str
    value: tuple[int, ...]


class Launch(NamedTuple):
    """One launch, as :attr:`Entries.launch` gets it.

    Attributes:
        function: the kernel's handle, as a number.
        grid: blocks of threads along each axis.
        threads, shared: threads and bytes of shared memory of a block.
        stream: a handle, as a number.
        addresses: the address of an array of the addresses of all arguments; it lives until the call returns.
        attributes: in any order.
        cooperative: all programs run at once, or none.
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
    """The two functions that native launchers call, in the driver's library. Both return a 32-bit status.

    Attributes:
        launch: starts a kernel.
        current: given the address of 8 zero bytes, writes this thread's context there, as :attr:`Entries.context_current` gives it.
        operands: what ``launch`` is called with, in order: words of :data:`OPERANDS`.
        config: where ``config`` is among them, the structure it points to, with fields ``grid`` and ``block`` of three 32-bit numbers, ``shared`` (32 bits),
            ``stream`` and ``attributes`` (64), and ``attribute_count`` (32).
        attribute: the structure of one of its attributes, with fields ``number`` and ``value``, bytes.
    """

    launch: str
    current: str
    operands: tuple[str, ...]
    config: type[ctypes.Structure] | None = None
    attribute: type[ctypes.Structure] | None = None


#: Operand of a native launch function -> its LLVM type.
OPERANDS: Mapping[str, str] = {
    **dict.fromkeys(("config", "function", "addresses", "null"), "ptr"),
    **dict.fromkeys(("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z", "shared"), "i32"),
    "stream": "i64",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamNames:
    """How other libraries name streams of the device.

    Attributes:
        torch: the module of PyTorch for such devices, which knows the current stream.
        attributes: attributes of stream objects that are handles, in the order they are looked for.
        protocol: the attribute, or method, of stream objects that gives a version and a handle.
        libraries: who has such streams, for messages.
    """

    torch: str
    attributes: tuple[str, ...]
    protocol: str
    libraries: str


class Number(NamedTuple):
    """An operand of a native function: an integer of an LLVM type, ``i32`` or ``i64``."""

    type: str
    value: Expression


class Numbers(NamedTuple):
    """An operand of a native function: the address of integers, one behind the other."""

    type: str
    values: tuple[Expression, ...]


#: The operand of a native function that is the address of the structure it fills in, a multiple of 64.
STRUCTURE = "structure"


class Condition(NamedTuple):
    """What must hold of a launch's arguments before an opaque structure is made of them: a value from ``least`` to ``most``, a multiple of ``divisor``."""

    value: Expression
    least: int
    most: int
    divisor: int
    rule: str

    def holds(self, value: int) -> bool:
        return self.least <= value <= self.most and value % self.divisor == 0


@dataclass(frozen=True, slots=True)
class NativeCall:
    """How machine code fills in an opaque structure.

    Attributes:
        function: of the driver's library; it returns a 32-bit status.
        operands: what it is called with: :class:`Number`, :class:`Numbers` or :data:`STRUCTURE`.
    """

    function: str
    operands: tuple[Number | Numbers | str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OpaqueArgument:
    """A parameter of a kernel behind those of its source: a structure passed by value that is made of its arguments when it is launched, such as a descriptor
    that the copy hardware reads.

    Attributes:
        subject: what it is, for messages: ``the tensor of argument 2``.
        inputs: what it is made of.
        size: bytes.
        conditions: where one does not hold, or the value of one has no value, there is no such structure.
        encode: the values of ``inputs`` -> the structure. The same values have the same structure, so that it is kept and not made again. A
            :class:`~tilewright.gpu_host.errors.DriverError` of it says that there is none.
        native: the same for machine code; None where launches are left to Python.
    """

    subject: str
    inputs: tuple[Expression, ...]
    size: int
    conditions: tuple[Condition, ...] = ()
    encode: Callable[[tuple[int, ...]], bytes]
    native: NativeCall | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """What is to be known of a code object to load and launch it.

    Attributes:
        binary: gives the bytes for :attr:`Entries.module_load`; it may link them first, and is not called for a kernel that cannot run.
        symbol: the kernel's name in them.
        threads, shared: threads and bytes of shared memory of a program, or of each block of them.
        blocks: blocks of threads that run a program; their numbers follow each other along the grid's first axis.
        spills: bytes that a thread stores for want of registers; its local memory where they are not known.
        attributes: of every launch.
        cooperative: whether launches are cooperative; where the driver takes an attribute for that, it is among the attributes. The device attribute
            ``cooperative`` of the backend's table, where it has one, says whether a device can.
        opaque: parameters behind those of the source, in order.
        around: (stream, a handle as a number) -> what the driver's call is done within, for what a backend does before and after each launch, such as waiting
            for what the kernel leaves on the host; the device's context is the thread's. Such launches are left to Python.
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
    """A driver.

    Attributes:
        backend: the name of the backend, under which the environment speaks of it too (``TILEWRIGHT_<BACKEND>_LAUNCHER``).
        kind: the kind of its devices in the terms of argument protocols.
        entries, statuses, native, streams: see there.
        cooperative_native: what native launchers of cooperative launches call, where that is another function.
        device_attributes: :data:`DEVICE_ATTRIBUTES`, and what the backend asks for itself.
        function_attributes: :data:`FUNCTION_ATTRIBUTES`.
        library: the driver's library, not initialised; None where there is none.
        image: (driver, index of the device, code object) -> what to load.
        architecture: (driver, index) -> what the device is, for messages.
        grid_limits: greatest extents of a grid.
        free_shared: bytes of shared memory that a program has without :attr:`Entries.function_allow_shared`.
        alignment: what addresses from :attr:`Entries.memory_allocate` are multiples of, in bytes.
        flushed_bytes: bytes that are overwritten at least to empty the caches; twice the last cache where that is more.
        array_protocol: the attribute by which other libraries find arrays in device memory, in the form of version 3 of the array interface.
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
                raise ValueError(f"a native launch function takes {', '.join(OPERANDS)}, and a config is described where it takes one; not {native}")
        for label, found, needed in (
            ("device", self.device_attributes, DEVICE_ATTRIBUTES),
            ("function", self.function_attributes, FUNCTION_ATTRIBUTES),
        ):
            missing = [name for name in needed if name not in found.members]
            if missing:
                raise ValueError(f"the table of {self.backend} lacks {label} attributes {', '.join(missing)}")

    def native_entries(self, cooperative: bool) -> NativeEntries:
        """What native launchers call, of launches that are cooperative or of others."""
        return self.cooperative_native if cooperative and self.cooperative_native is not None else self.native
