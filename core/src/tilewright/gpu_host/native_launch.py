"""The native launcher: reads a kernel's arguments and calls the driver without running Python code.

See :mod:`tilewright.llvm.native.launchers`.

It passes a launch to the Python launcher if a value has another type, the context is another
device's, the grid is empty or too large (for a cooperative launch: more programs than are
resident), or a structure cannot be encoded. The interpreter lock is released around the driver's
call. There is one launcher for each driver, and one for its
cooperative launches where they are another function of it. They are made from the driver's table:
its functions and their operands; a kernel with opaque
structures has machine code of its own for them (:mod:`.encoding`).
"""

from __future__ import annotations

import ctypes
import functools
import struct
from collections.abc import Callable, Sequence
from typing import Any

from tilewright.gpu_host.arguments import OPAQUE_ALIGNMENT, device_address, places_of
from tilewright.gpu_host.driver import Driver
from tilewright.gpu_host.encoding import encoder_code, functions_of
from tilewright.gpu_host.kernels import LoadedKernel
from tilewright.gpu_host.launch import PythonLauncher
from tilewright.gpu_host.streams import torch_source
from tilewright.gpu_host.table import OPERANDS, DriverTable, LaunchAttribute, NativeEntries
from tilewright.llvm.codegen.link import LoadedObject
from tilewright.llvm.native import native_functions
from tilewright.llvm.native.launchers import LauncherFrame
from tilewright.llvm.native.native_values import kinds_of, slots_of
from tilewright.plugins.manifest import Launcher, Parameter
from tilewright.runtime.storage.host_code import load_host_code

#: Program limit of a launch that is not cooperative.
_ANY = (1 << 64) - 1
#: Slots that the native launcher has for arguments, and addresses of opaque structures and bytes
#: for them.
MAX_SLOTS, MAX_STRUCTURES, MAX_STRUCTURE_BYTES = 400, 32, 4096


class _Context(ctypes.Structure):
    """State of a native launcher for one kernel.

    ``launch`` and ``current`` are functions of the driver, ``index`` is the device's number as a
    Python object. ``encode`` is the encoder of opaque structures, null where there are none, which
    calls the driver's functions in ``encoders``.
    """

    _fields_ = (
        ("launch", ctypes.c_uint64),
        ("current", ctypes.c_uint64),
        ("driver_context", ctypes.c_uint64),
        ("function", ctypes.c_uint64),
        ("kinds", ctypes.c_uint64),
        ("count", ctypes.c_int64),
        ("slots", ctypes.c_int64),
        ("encode", ctypes.c_uint64),
        ("encoders", ctypes.c_uint64),
        ("index", ctypes.c_uint64),
        ("attributes", ctypes.c_uint64),
        ("most_programs", ctypes.c_uint64),
        ("threads", ctypes.c_uint32),
        ("shared", ctypes.c_uint32),
        ("attribute_count", ctypes.c_uint32),
        ("blocks", ctypes.c_uint32),
    )


def native_launcher(
    loaded: LoadedKernel, parameters: Sequence[Parameter], slow: PythonLauncher, library: Any = None
) -> Launcher | None:
    """Make the native launcher of a kernel; None where none is possible.

    Its arguments, its launches, the work around them, or the interpreter may rule one out.

    Args:
        library: the library that has the driver's functions; the table's own where None.
    """
    table, image = loaded.driver.table, loaded.image
    kinds = kinds_of(
        [parameter.type for parameter in parameters], [parameter.stored for parameter in parameters]
    )
    if image.around is not None:
        return None
    if (
        kinds is None
        or slots_of(kinds) > MAX_SLOTS
        or len(image.opaque) > MAX_STRUCTURES
        or places_of(image.opaque)[-1] > MAX_STRUCTURE_BYTES
    ):
        return None
    called = table.native_entries(image.cooperative)
    attributes = attribute_records(called, image.attributes)
    code = _code(table, called)
    library = table.library() if library is None else library
    entries = driver_entries(called, library)
    if attributes is None or code is None or entries is None:
        return None
    encoder = encoders = None
    if image.opaque:
        first_words = [slots_of(kinds[:position]) for position in range(len(kinds))]
        encoder, encoders = (
            encoder_code(loaded.name, image.opaque, first_words),
            functions_of(library, image.opaque),
        )
        if encoder is None or encoders is None:
            return None
    native_functions.fill_addresses(
        code.address("addresses"), _writable_address(loaded.driver, loaded.device)
    )
    stream_source(table, called).value = id(
        torch_source(table.streams) or _current_stream(table, called)
    )
    kinds_buffer, attribute_buffer = (
        ctypes.create_string_buffer(kinds),
        ctypes.create_string_buffer(attributes, max(8, len(attributes))),
    )
    index = loaded.device
    context = _Context(
        *entries,
        loaded.context,
        loaded.function,
        ctypes.addressof(kinds_buffer),
        len(kinds),
        slots_of(kinds),
        0 if encoder is None else encoder.address("encode"),
        0 if encoders is None else ctypes.addressof(encoders),
        id(index),
        ctypes.addressof(attribute_buffer) if attributes else 0,
        _ANY if loaded.most_programs is None else loaded.most_programs,
        loaded.threads,
        loaded.shared,
        len(image.attributes),
        image.blocks,
    )
    # the function's ``self``: its callees, the context's bytes, and the objects that these point to
    bound = (
        slow,
        loaded.raise_failure,
        bytes(context),
        index,
        kinds_buffer,
        attribute_buffer,
        encoders,
        encoder,
        loaded,
    )
    return native_functions.make_builtin(code.address("launch"), loaded.name, bound, code)


def attribute_records(
    entries: NativeEntries, attributes: Sequence[LaunchAttribute]
) -> bytes | None:
    """Encode the attributes of a launch one after the other; None if the function takes none."""
    if not attributes:
        return b""
    if entries.attribute is None:
        return None
    records = []
    for attribute in attributes:
        record, field = entries.attribute(number=attribute.number), entries.attribute.value
        value = struct.pack(f"<{len(attribute.value)}I", *attribute.value)
        if len(value) > field.size:
            raise ValueError(
                f"attribute {attribute.number} of a launch has {field.size} bytes, not {len(value)}"
            )
        ctypes.memmove(ctypes.addressof(record) + field.offset, value, len(value))
        records.append(bytes(record))
    return b"".join(records)


@functools.cache
def _writable_address(driver: Driver, device: int) -> Callable[[Any], int]:
    """Return the address function for non-tensor arrays that the kernel stores to.

    It refuses read-only memory, and memory that the device cannot access.
    """
    from tilewright.errors import LaunchError
    from tilewright.runtime.arguments.writability import is_writable

    def address(value: Any) -> int:
        if not is_writable(value):
            raise LaunchError(f"a {type(value).__name__} is read-only")
        return device_address(driver, device, value)

    return address


def driver_entries(entries: NativeEntries, library: Any) -> tuple[int, int] | None:
    """Return the addresses of the launch and current-context functions; None if unavailable."""
    if library is None:
        return None
    try:
        launch, current = (
            ctypes.cast(getattr(library, name), ctypes.c_void_p).value
            for name in (entries.launch, entries.current)
        )
    except AttributeError:
        return None
    return (launch, current) if launch and current else None


def stream_source(table: DriverTable, entries: NativeEntries | None = None) -> ctypes.c_uint64:
    """Return the variable that holds the code's function for the current stream of a device.

    It is PyTorch's own function once PyTorch uses such devices, until then one that checks whether
    it does.
    """
    code = _code(table, entries or table.native)
    assert code is not None
    return ctypes.c_uint64.from_address(code.address("stream_source"))


@functools.cache
def _current_stream(table: DriverTable, entries: NativeEntries) -> Callable[[int], int]:
    def current(device: int) -> int:
        found = torch_source(table.streams)
        if found is None:
            return 0
        stream_source(table, entries).value = id(found)
        return int(found(device))

    return current


@functools.cache
def _code(table: DriverTable, entries: NativeEntries) -> LoadedObject | None:
    objects = native_functions.layout()
    if objects is None:
        return None
    return load_host_code(
        "native launcher",
        launcher_ir(objects, table, entries),
        ("launch", "addresses", "stream_source"),
    )


def launcher_ir(
    objects: native_functions.Layout, table: DriverTable, entries: NativeEntries
) -> str:
    """Return the LLVM IR of the launcher; ``entries`` are the driver functions that it calls."""
    frame = LauncherFrame(objects, _Context, host_arrays=False)
    frame.module.add_global("@stream_source = global ptr null")
    w = frame.w
    slots, addresses = (
        w.alloca("i64", MAX_SLOTS, 16),
        w.alloca("ptr", MAX_SLOTS + MAX_STRUCTURES, 16),
    )
    structures = w.alloca("i8", MAX_STRUCTURE_BYTES, OPAQUE_ALIGNMENT)
    record = entries.config
    config = "" if record is None else w.alloca("i64", -(-ctypes.sizeof(record) // 8), 16)
    number = w.alloca("i64", 1, 8)
    operands = {"addresses": addresses, "null": "null", "config": config}

    def put(name: str, type_: str, value: str, axis: int | None = None) -> None:
        """Pass a number to the driver: in its structure, or as an operand."""
        if record is None:
            operands[name if axis is None else f"{name}_{'xyz'[axis]}"] = value
        else:
            w.store(
                type_,
                value,
                w.gep("i8", config, getattr(record, name).offset + 4 * (axis or 0)),
                4 if type_ == "i32" else 8,
            )

    # the device's context must be this thread's
    w.store("i64", "0", number, 8)
    w.emit(f"call i32 {frame.field('current', 'ptr')}(ptr {number})")
    frame.need(w.emit(f"icmp eq i64 {w.load('i64', number, 8)}, {frame.field('driver_context')}"))
    programs = ""
    for axis, limit in enumerate(table.grid_limits):
        extent = frame.extent(axis, limit, number)
        # within 64 bits: what drivers take along the three axes has 63 at most
        programs = w.emit(f"mul i64 {programs}, {extent}") if programs else extent
        if axis == 0:
            blocks = w.emit(f"zext i32 {frame.field('blocks', 'i32')} to i64")
            extent = w.emit(f"mul i64 {extent}, {blocks}")
            frame.need(w.emit(f"icmp ule i64 {extent}, {limit}"))
        put("grid", "i32", w.emit(f"trunc i64 {extent} to i32"), axis)
    frame.need(w.emit(f"icmp ule i64 {programs}, {frame.field('most_programs')}"))
    frame.read_values(slots)
    _write_stream(frame, number)
    put("stream", "i64", w.load("i64", number, 8))
    put("block", "i32", frame.field("threads", "i32"), 0)
    for axis in (1, 2):
        put("block", "i32", "1", axis)
    put("shared", "i32", frame.field("shared", "i32"))
    if record is not None:
        put("attributes", "i64", frame.field("attributes"))
        put("attribute_count", "i32", frame.field("attribute_count", "i32"))
    count, encode = frame.field("slots"), frame.field("encode", "ptr")
    with w.loop("0", count, 1) as loop:
        w.store("ptr", w.gep("i64", slots, loop.index), w.gep("ptr", addresses, loop.index), 8)
    with w.when(w.emit(f"icmp ne ptr {encode}, null"), likely=False):
        given = (
            f"ptr {slots}, ptr {structures}, ptr {w.gep('ptr', addresses, count)}, ptr "
            f"{frame.field('encoders', 'ptr')}"
        )
        frame.need(w.emit(f"call i1 {encode}({given})"))
    # the driver's call may wait for room in the stream's queue
    state = w.call("PyEval_SaveThread", "ptr", [])
    launch, operands["function"] = frame.field("launch", "ptr"), frame.field("function", "ptr")
    given = ", ".join(f"{OPERANDS[name]} {operands[name]}" for name in entries.operands)
    status = w.emit(f"call i32 {launch}({given})")
    w.call("PyEval_RestoreThread", "void", [("ptr", state)])
    return frame.finish(w.emit(f"icmp eq i32 {status}, 0"), (status,))


def _write_stream(frame: LauncherFrame, number: str) -> None:
    """Write the handle of the given stream, or of the current one for None, to ``number``."""
    w = frame.w
    given, ask, known = w.new_block("given"), w.new_block("ask"), w.new_block("known")
    w.branch_if(
        w.emit(f"icmp eq ptr {frame.stream}, {native_functions.address(w, 'none')}"),
        ask,
        given,
        likely=True,
    )
    w.place(given)
    frame.need(
        w.emit(
            f"icmp eq ptr {frame.at(frame.stream, frame.objects.type_offset)}, "
            f"{native_functions.address(w, 'int')}"
        )
    )
    frame.need(w.emit(f"call i1 @read_unsigned(ptr {frame.stream}, ptr {number})"))
    w.branch(known)
    w.place(ask)
    arguments = w.alloca("ptr", 2, 8)
    first = w.gep("ptr", arguments, 1)
    w.store("ptr", frame.field("index", "ptr"), first, 8)
    source = w.load("ptr", "@stream_source", 8)
    count = str(1 + native_functions.ARGUMENTS_OFFSET)
    found = w.call(
        "PyObject_Vectorcall",
        "ptr",
        [("ptr", source), ("ptr", first), ("i64", count), ("ptr", "null")],
    )
    raised, got = w.new_block("raised"), w.new_block("got")
    w.branch_if(w.emit(f"icmp eq ptr {found}, null"), raised, got, likely=False)
    w.place(raised)
    w.ret("ptr null")
    w.place(got)
    fits = w.emit(f"call i1 @read_unsigned(ptr {found}, ptr {number})")
    w.call("Py_DecRef", "void", [("ptr", found)])
    frame.need(fits)
    w.branch(known)
    w.place(known)
