"""The native launcher (see :mod:`tilewright.llvm.launchers`): reads a kernel's arguments and calls the driver without running Python code.

A value of another type, another device's context, a grid that is empty or too large go to the Python launcher. The interpreter lock is released around the
driver's call.
"""

from __future__ import annotations

import ctypes
import functools
import sys
from collections.abc import Callable, Sequence
from typing import Any

from tilewright.llvm import native
from tilewright.llvm.launchers import LauncherFrame
from tilewright.llvm.link import LoadedObject
from tilewright.llvm.native_values import kinds_of
from tilewright.plugins.manifest import Launcher, Parameter
from tilewright.runtime.host_code import load_host_code
from tilewright_nvidia.driver import library
from tilewright_nvidia.launch import GRID_LIMITS, PythonLauncher, device_address
from tilewright_nvidia.runtime import LoadedKernel, current_stream

#: Arguments the native launcher has slots for.
MAX_ARGUMENTS = 128
#: cuLaunchAttribute: programmatic stream serialisation.
_SERIALIZATION = 6


class _Attribute(ctypes.Structure):
    """CUlaunchAttribute."""

    _fields_ = (("id", ctypes.c_int32), ("padding", ctypes.c_int32), ("value", ctypes.c_uint8 * 64))


class _Config(ctypes.Structure):
    """CUlaunchConfig."""

    _fields_ = (
        ("grid", ctypes.c_uint32 * 3),
        ("block", ctypes.c_uint32 * 3),
        ("shared", ctypes.c_uint32),
        ("stream", ctypes.c_uint64),
        ("attributes", ctypes.c_uint64),
        ("attribute_count", ctypes.c_uint32),
    )


class _Context(ctypes.Structure):
    """What a launcher knows of its kernel. ``launch`` and ``current`` are functions of the driver, ``index`` is the device's number as a Python object."""

    _fields_ = (
        ("launch", ctypes.c_uint64),
        ("current", ctypes.c_uint64),
        ("driver_context", ctypes.c_uint64),
        ("function", ctypes.c_uint64),
        ("kinds", ctypes.c_uint64),
        ("count", ctypes.c_int64),
        ("index", ctypes.c_uint64),
        ("attributes", ctypes.c_uint64),
        ("threads", ctypes.c_uint32),
        ("shared", ctypes.c_uint32),
        ("attribute_count", ctypes.c_uint32),
    )


def native_launcher(loaded: LoadedKernel, parameters: Sequence[Parameter], slow: PythonLauncher, entries: tuple[int, int] | None = None) -> Launcher | None:
    """The native launcher of a kernel; None where its arguments or the interpreter do not allow one.

    Args:
        entries: addresses of ``cuLaunchKernelEx`` and ``cuCtxGetCurrent``; the driver's own where None.
    """
    kinds = kinds_of([parameter.type for parameter in parameters], [parameter.stored for parameter in parameters])
    if kinds is None or len(kinds) > MAX_ARGUMENTS:
        return None
    code = _code()
    entries = entries or driver_entries()
    if code is None or entries is None:
        return None
    native.fill_addresses(code.address("addresses"), _writable_address(loaded.device))
    watch_streams(code.address("stream_source"))
    kinds_buffer = ctypes.create_string_buffer(kinds)
    attribute = _Attribute(_SERIALIZATION)
    attribute.value[0] = 1
    index = loaded.device
    context = _Context(
        *entries,
        loaded.context,
        loaded.function,
        ctypes.addressof(kinds_buffer),
        len(kinds),
        id(index),
        ctypes.addressof(attribute) if loaded.pdl else 0,
        loaded.threads,
        loaded.shared,
        int(loaded.pdl),
    )
    # the function's ``self``: what it calls, the context's bytes, and what those point to
    bound = (slow, loaded.raise_failure, bytes(context), index, kinds_buffer, attribute, loaded)
    return native.make_builtin(code.address("launch"), loaded.name, bound, code)


@functools.cache
def _writable_address(device: int) -> Callable[[Any], int]:
    """Asked for arrays that are stored to and are no tensors: the address, if they are the device's memory and may be written."""
    from tilewright.errors import LaunchError
    from tilewright.runtime.writability import is_writable

    def address(value: Any) -> int:
        if not is_writable(value):
            raise LaunchError(f"a {type(value).__name__} is read-only")
        return device_address(value, device)

    return address


def driver_entries() -> tuple[int, int] | None:
    """The addresses of ``cuLaunchKernelEx`` and ``cuCtxGetCurrent``."""
    loaded = library()
    if loaded is None:
        return None
    found = [ctypes.cast(getattr(loaded, name), ctypes.c_void_p).value or 0 for name in ("cuLaunchKernelEx", "cuCtxGetCurrent")]
    return found[0], found[1]


#: Where the code looks for the function that gives the current stream of a device.
_stream_source: ctypes.c_uint64 | None = None


def watch_streams(address: int) -> None:
    """Let the code at ``address`` ask for streams: PyTorch's own function once PyTorch uses the GPU, until then one that looks whether it does."""
    global _stream_source
    _stream_source = ctypes.c_uint64.from_address(address)
    _stream_source.value = id(_torch_source() or _current_stream)


def _torch_source() -> Any:
    torch = sys.modules.get("torch")
    find = getattr(getattr(torch, "_C", None), "_cuda_getCurrentRawStream", None)
    return find if find is not None and torch is not None and torch.cuda.is_initialized() else None


def _current_stream(device: int) -> int:
    found = _torch_source()
    if found is not None and _stream_source is not None:
        _stream_source.value = id(found)
    return current_stream(device)


@functools.cache
def _code() -> LoadedObject | None:
    objects = native.layout()
    if objects is None:
        return None
    return load_host_code("native launcher", launcher_ir(objects), ("launch", "addresses", "stream_source"))


def launcher_ir(objects: native.Layout) -> str:
    """The launcher's module."""
    frame = LauncherFrame(objects, _Context, host_arrays=False)
    frame.module.add_global("@stream_source = global ptr null")
    w = frame.w
    slots, addresses = w.alloca("i64", MAX_ARGUMENTS, 16), w.alloca("ptr", MAX_ARGUMENTS, 16)
    config, number = w.alloca("i64", ctypes.sizeof(_Config) // 8, 16), w.alloca("i64", 1, 8)

    def put(name: str, type_: str, value: str, index: int = 0) -> None:
        w.store(type_, value, w.gep("i8", config, getattr(_Config, name).offset + 4 * index), 4 if type_ == "i32" else 8)

    # the device's context must be this thread's
    w.store("i64", "0", number, 8)
    w.emit(f"call i32 {frame.field('current', 'ptr')}(ptr {number})")
    frame.need(w.emit(f"icmp eq i64 {w.load('i64', number, 8)}, {frame.field('driver_context')}"))
    for axis, limit in enumerate(GRID_LIMITS):
        put("grid", "i32", w.emit(f"trunc i64 {frame.extent(axis, limit, number)} to i32"), axis)
    frame.read_values(slots)
    _write_stream(frame, number)
    put("stream", "i64", w.load("i64", number, 8))
    put("block", "i32", frame.field("threads", "i32"))
    for axis in (1, 2):
        put("block", "i32", "1", axis)
    put("shared", "i32", frame.field("shared", "i32"))
    put("attributes", "i64", frame.field("attributes"))
    put("attribute_count", "i32", frame.field("attribute_count", "i32"))
    with w.loop("0", frame.count, 1) as loop:
        w.store("ptr", w.gep("i64", slots, loop.index), w.gep("ptr", addresses, loop.index), 8)
    # the driver's call may wait for room in the stream's queue
    state = w.call("PyEval_SaveThread", "ptr", [])
    status = w.emit(f"call i32 {frame.field('launch', 'ptr')}(ptr {config}, ptr {frame.field('function', 'ptr')}, ptr {addresses}, ptr null)")
    w.call("PyEval_RestoreThread", "void", [("ptr", state)])
    return frame.finish(w.emit(f"icmp eq i32 {status}, 0"), (status,))


def _write_stream(frame: LauncherFrame, number: str) -> None:
    """Put the stream's handle into ``number``: what was given, a number, or the current one for None."""
    w = frame.w
    given, ask, known = w.new_block("given"), w.new_block("ask"), w.new_block("known")
    w.branch_if(w.emit(f"icmp eq ptr {frame.stream}, {native.address(w, 'none')}"), ask, given, likely=True)
    w.place(given)
    frame.need(w.emit(f"icmp eq ptr {frame.at(frame.stream, frame.objects.type_offset)}, {native.address(w, 'int')}"))
    frame.need(w.emit(f"call i1 @read_unsigned(ptr {frame.stream}, ptr {number})"))
    w.branch(known)
    w.place(ask)
    arguments = w.alloca("ptr", 2, 8)
    first = w.gep("ptr", arguments, 1)
    w.store("ptr", frame.field("index", "ptr"), first, 8)
    source = w.load("ptr", "@stream_source", 8)
    count = str(1 + native.ARGUMENTS_OFFSET)
    found = w.call("PyObject_Vectorcall", "ptr", [("ptr", source), ("ptr", first), ("i64", count), ("ptr", "null")])
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
