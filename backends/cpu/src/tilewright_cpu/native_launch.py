"""The native launcher: a builtin function ``launch(grid, stream, values)`` that reads its arguments and starts the pool without running Python code.

One piece of code serves all kernels; what differs is in a context that the function is bound to. Whatever is not as expected (a value of
another type, a failed conversion, a read-only array to be stored to) goes to the Python launcher with the same arguments. The interpreter lock is kept for
launches that are expected to take less than a few microseconds, since giving it up and taking it back costs tens of nanoseconds; it is released for all
others.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence

from tilewright.llvm import native
from tilewright.llvm.link import LoadedObject, load_object
from tilewright.llvm.writer import Block, FunctionWriter, ModuleWriter
from tilewright.plugins.manifest import Launcher, Parameter
from tilewright.runtime.writability import writable_address
from tilewright_cpu.launch import PythonLauncher
from tilewright_cpu.runtime import STATUS_WORDS, LoadedKernel
from tilewright_cpu.support import support_object

#: Arguments the native launcher has slots for.
MAX_ARGUMENTS = 64
#: Seconds of expected work up to which the interpreter lock is kept.
KEEP_LOCK_SECONDS = 3e-6


class _Context(ctypes.Structure):
    """What a launcher knows of its kernel. ``estimate``, ``serial`` and ``launch`` are the pool's entries; ``hold`` is in its cycles."""

    _fields_ = (
        ("record", ctypes.c_uint64),
        ("kinds", ctypes.c_uint64),
        ("count", ctypes.c_int64),
        ("hold", ctypes.c_uint64),
        ("estimate", ctypes.c_uint64),
        ("serial", ctypes.c_uint64),
        ("launch", ctypes.c_uint64),
    )


def native_launcher(loaded: LoadedKernel, parameters: Sequence[Parameter], slow: PythonLauncher) -> Launcher | None:
    """The native launcher of a kernel; None where the kernel or the interpreter does not allow one."""
    kinds = native.kinds_of([parameter.type for parameter in parameters], [parameter.stored for parameter in parameters])
    if kinds is None or len(kinds) > MAX_ARGUMENTS or loaded.prints or not slow.pool.launch_address:
        return None
    code = _code()
    if code is None:
        return None
    native.fill_addresses(code.address("addresses"), writable_address)
    threads = slow.pool
    kinds_buffer = ctypes.create_string_buffer(kinds)
    context = _Context(
        ctypes.addressof(loaded.record),
        ctypes.addressof(kinds_buffer),
        len(kinds),
        int(KEEP_LOCK_SECONDS * threads.cycles_per_second),
        threads.estimate_address,
        threads.serial_address,
        threads.launch_address,
    )
    # the function's ``self``: what it calls, the context's bytes, and what those point to
    bound = (slow, loaded.raise_failure, bytes(context), loaded, kinds_buffer)
    return native.make_builtin(code.address("launch"), loaded.name, bound, code)


@functools.cache
def _code() -> LoadedObject | None:
    objects = native.layout()
    if objects is None:
        return None
    binary = support_object("native launcher", launcher_ir(objects))
    return load_object(binary, ("launch", "addresses"))


def launcher_ir(objects: native.Layout) -> str:
    """The launcher's module."""
    module = ModuleWriter("nounwind")
    native.write_readers(module, objects)
    w = module.function("launch", [("ptr", "self"), ("ptr", "arguments"), ("i64", "given")], "ptr")
    slow = w.new_block("slow")
    _write_launch(w, objects, slow)
    w.place(slow)
    python = w.load("ptr", w.emit(f"getelementptr i8, ptr %self, i64 {objects.tuple_items}"), 8)
    w.ret(f"ptr {w.call('PyObject_Vectorcall', 'ptr', [('ptr', python), ('ptr', '%arguments'), ('i64', '%given'), ('ptr', 'null')])}")
    return module.text()


def _write_launch(w: FunctionWriter, objects: native.Layout, slow: Block) -> None:
    """The body; branches to ``slow`` where a value is not as expected."""

    def need(condition: str) -> None:
        fine = w.new_block("fine")
        w.branch_if(condition, fine, slow, likely=True)
        w.place(fine)

    def at(base: str, offset: int, type_: str = "ptr") -> str:
        return w.load(type_, w.emit(f"getelementptr i8, ptr {base}, i64 {offset}"), 8)

    def item(values: str, position: int) -> str:
        return at(values, objects.tuple_items + 8 * position)

    need(w.emit("icmp eq i64 %given, 3"))
    context_bytes = item("%self", 2)
    context = w.emit(f"getelementptr i8, ptr {context_bytes}, i64 {objects.bytes_data}")

    def field(name: str, type_: str = "i64") -> str:
        return at(context, getattr(_Context, name).offset, type_)

    grid, values = w.load("ptr", "%arguments", 8), at("%arguments", 16)
    tuple_type = native.address(w, "tuple")
    need(w.emit(f"icmp eq ptr {at(grid, objects.type_offset)}, {tuple_type}"))
    need(w.emit(f"icmp eq i64 {at(grid, objects.size, 'i64')}, 3"))
    need(w.emit(f"icmp eq ptr {at(values, objects.type_offset)}, {tuple_type}"))
    count = field("count")
    need(w.emit(f"icmp eq i64 {at(values, objects.size, 'i64')}, {count}"))
    slots, status = w.alloca("i64", 5 + MAX_ARGUMENTS, 16), w.alloca("i32", STATUS_WORDS, 16)
    programs = ""
    for axis in range(3):
        extent = item(grid, axis)
        need(w.emit(f"call i1 @read_signed(ptr {extent}, ptr {w.gep('i64', slots, axis)})"))
        value = w.load("i64", w.gep("i64", slots, axis), 8)
        # an empty or negative extent, or one that multiplying could overflow, is the Python launcher's business
        need(w.emit(f"icmp ult i64 {w.emit(f'sub i64 {value}, 1')}, 2147483647"))
        if programs:
            product = w.emit(f"call {{ i64, i1 }} @llvm.umul.with.overflow.i64(i64 {programs}, i64 {value})")
            need(w.emit(f"xor i1 {w.emit(f'extractvalue {{ i64, i1 }} {product}, 1')}, true"))
            programs = w.emit(f"extractvalue {{ i64, i1 }} {product}, 0")
        else:
            programs = value
    w.module.declare("llvm.umul.with.overflow.i64", "{ i64, i1 }", ("i64", "i64"))
    w.store("i32", "0", status, 16)
    w.store("ptr", status, w.gep("i64", slots, 3), 8)
    w.store("i64", "0", w.gep("i64", slots, 4), 8)
    need(w.emit(f"call i1 @read_values(ptr {values}, ptr {field('kinds', 'ptr')}, i64 {count}, ptr {w.gep('i64', slots, 5)})"))

    record = field("record", "ptr")
    expected = w.emit(f"call i64 {field('estimate', 'ptr')}(ptr {record}, i64 {programs})")
    keep, release, done = w.new_block("keep"), w.new_block("release"), w.new_block("done")
    w.branch_if(w.emit(f"icmp ult i64 {expected}, {field('hold')}"), keep, release)
    # With the lock held the kernel runs in this thread: another one might wait for the lock, and this one for it.
    w.place(keep)
    w.do(f"call void {field('serial', 'ptr')}(ptr {record}, ptr {slots}, i64 {programs})")
    w.branch(done)
    w.place(release)
    launch = field("launch", "ptr")
    state = w.call("PyEval_SaveThread", "ptr", [])
    w.do(f"call void {launch}(ptr {record}, ptr {slots}, i64 {programs})")
    w.call("PyEval_RestoreThread", "void", [("ptr", state)])
    w.branch(done)
    w.place(done)
    failed, fine = w.new_block("failed"), w.new_block("fine")
    w.branch_if(w.emit(f"icmp eq i32 {w.load('i32', status, 4)}, 0"), fine, failed, likely=True)
    w.place(failed)
    words = [w.load("i32", w.gep("i32", status, word), 4) for word in range(STATUS_WORDS)]
    form = w.module.string(b"i" * STATUS_WORDS)
    w.module.declare("PyObject_CallFunction", "ptr", ("ptr", "ptr", "..."))
    raiser, listed = item("%self", 1), ", ".join(f"i32 {word}" for word in words)
    raised = w.emit(f"call ptr (ptr, ptr, ...) @PyObject_CallFunction(ptr {raiser}, ptr {form}, {listed})")
    w.ret(f"ptr {raised}")
    w.place(fine)
    none = native.address(w, "none")
    w.call("Py_IncRef", "void", [("ptr", none)])
    w.ret(f"ptr {none}")
