"""The native launcher: reads arguments and starts the pool without running Python code.

It is made by :mod:`tilewright.llvm.native.launchers`. A value of another type, a failed conversion,
a read-only array to be stored to, and for matmuls a matrix packed before go to the Python launcher.
The interpreter lock is kept for launches that are expected to take less than a few microseconds,
since giving it up and taking it back costs tens of nanoseconds; it is released for all others, and
for kernels with ``while`` loops, which may never end, whatever they took before.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence

from tilewright.llvm.codegen.link import LoadedObject
from tilewright.llvm.native import native_functions
from tilewright.llvm.native.launchers import LauncherFrame
from tilewright.llvm.native.native_values import kinds_of, slots_of
from tilewright.plugins.manifest import Launcher, Parameter
from tilewright.runtime.arguments.writability import writable_address
from tilewright.runtime.storage.host_code import load_host_code
from tilewright_cpu.prepack import PackedMatrix
from tilewright_cpu.python_launch import PythonLauncher
from tilewright_cpu.runtime import LoadedKernel
from tilewright_cpu.status import STATUS_WORDS

#: Slots that the native launcher has for arguments.
MAX_ARGUMENTS = 400
#: Seconds of expected work up to which the interpreter lock is kept.
KEEP_LOCK_SECONDS = 3e-6


class _Context(ctypes.Structure):
    """Facts about a kernel that its launcher reads.

    ``estimate``, ``serial`` and ``launch`` are the pool's entries; ``hold`` is in its cycles;
    ``refused`` is the type of values that the Python launcher takes, 0 where there is none.
    """

    _fields_ = (
        ("record", ctypes.c_uint64),
        ("kinds", ctypes.c_uint64),
        ("count", ctypes.c_int64),
        ("hold", ctypes.c_uint64),
        ("estimate", ctypes.c_uint64),
        ("serial", ctypes.c_uint64),
        ("launch", ctypes.c_uint64),
        ("refused", ctypes.c_uint64),
    )


def native_launcher(
    loaded: LoadedKernel, parameters: Sequence[Parameter], slow: PythonLauncher
) -> Launcher | None:
    """Return a kernel's native launcher; None if the kernel or interpreter allows none."""
    kinds = kinds_of(
        [parameter.type for parameter in parameters], [parameter.stored for parameter in parameters]
    )
    if (
        kinds is None
        or slots_of(kinds) > MAX_ARGUMENTS
        or loaded.prints
        or not slow.pool.launch_address
    ):
        return None
    code = _code()
    if code is None:
        return None
    native_functions.fill_addresses(code.address("addresses"), writable_address)
    threads = slow.pool
    kinds_buffer = ctypes.create_string_buffer(kinds)
    context = _Context(
        ctypes.addressof(loaded.record),
        ctypes.addressof(kinds_buffer),
        len(kinds),
        0 if loaded.record.polls else int(KEEP_LOCK_SECONDS * threads.cycles_per_second),
        threads.estimate_address,
        threads.serial_address,
        threads.launch_address,
        id(PackedMatrix) if loaded.metadata.get("prepackable") else 0,
    )
    # the function's ``self``: what it calls, the context's bytes, and what those point to
    bound = (slow, loaded.raise_failure, bytes(context), loaded, kinds_buffer)
    return native_functions.make_builtin(code.address("launch"), loaded.name, bound, code)


@functools.cache
def _code() -> LoadedObject | None:
    objects = native_functions.layout()
    if objects is None:
        return None
    return load_host_code("native launcher", launcher_ir(objects), ("launch", "addresses"))


def launcher_ir(objects: native_functions.Layout) -> str:
    """The launcher's module."""
    frame = LauncherFrame(objects, _Context)
    w = frame.w
    slots, status = w.alloca("i64", 5 + MAX_ARGUMENTS, 16), w.alloca("i32", STATUS_WORDS, 16)
    programs = ""
    for axis in range(3):
        extent = frame.extent(axis, 2**31 - 1, w.gep("i64", slots, axis))
        if programs:
            product = w.emit(
                f"call {{ i64, i1 }} @llvm.umul.with.overflow.i64(i64 {programs}, i64 {extent})"
            )
            frame.need(w.emit(f"xor i1 {w.emit(f'extractvalue {{ i64, i1 }} {product}, 1')}, true"))
            programs = w.emit(f"extractvalue {{ i64, i1 }} {product}, 0")
        else:
            programs = extent
    frame.module.declare("llvm.umul.with.overflow.i64", "{ i64, i1 }", ("i64", "i64"))
    w.store("i32", "0", status, 16)
    w.store("ptr", status, w.gep("i64", slots, 3), 8)
    w.store("i64", "0", w.gep("i64", slots, 4), 8)
    _refuse(frame)
    frame.read_values(w.gep("i64", slots, 5))

    record = frame.field("record", "ptr")
    expected = w.emit(f"call i64 {frame.field('estimate', 'ptr')}(ptr {record}, i64 {programs})")
    keep, release, done = w.new_block("keep"), w.new_block("release"), w.new_block("done")
    w.branch_if(w.emit(f"icmp ult i64 {expected}, {frame.field('hold')}"), keep, release)
    # With the lock held the kernel runs in this thread: another one might wait for the lock, and
    # this one for it.
    w.place(keep)
    w.do(f"call void {frame.field('serial', 'ptr')}(ptr {record}, ptr {slots}, i64 {programs})")
    w.branch(done)
    w.place(release)
    launch = frame.field("launch", "ptr")
    state = w.call("PyEval_SaveThread", "ptr", [])
    w.do(f"call void {launch}(ptr {record}, ptr {slots}, i64 {programs})")
    w.call("PyEval_RestoreThread", "void", [("ptr", state)])
    w.branch(done)
    w.place(done)
    words = [w.load("i32", w.gep("i32", status, word), 4) for word in range(STATUS_WORDS)]
    return frame.finish(w.emit(f"icmp eq i32 {words[0]}, 0"), words)


def _refuse(frame: LauncherFrame) -> None:
    """Leave a launch with values of the context's ``refused`` type to the Python launcher."""
    w, refused = frame.w, frame.field("refused", "ptr")
    look, done = w.new_block("look"), w.new_block("done")
    w.branch_if(w.emit(f"icmp eq ptr {refused}, null"), done, look)
    w.place(look)
    with w.loop("0", frame.count, 1) as loop:
        items = w.emit(
            f"getelementptr i8, ptr {w.load('ptr', w.gep('ptr', '%arguments', 2), 8)}, i64 "
            f"{frame.objects.tuple_items}"
        )
        value = w.load("ptr", w.gep("ptr", items, loop.index), 8)
        frame.need(w.emit(f"icmp ne ptr {frame.at(value, frame.objects.type_offset)}, {refused}"))
    w.branch(done)
    w.place(done)
