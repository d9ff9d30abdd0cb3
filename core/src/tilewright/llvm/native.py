"""Functions made by LLVM that Python calls directly, and code that reads Python objects natively.

A launcher that the interpreter calls without an argument tuple, that reads pointers out of arrays and tensors itself, costs a tenth of one written with
ctypes. What this module knows of object layouts it verifies on live objects first (:func:`layout`); where anything differs (another interpreter,
a free-threaded build) there is no native launcher, and callers keep to Python.

:func:`write_readers` adds to a module the function

    i1 @read_values(ptr values, ptr kinds, i64 count, ptr slots)

that turns a tuple of Python objects into 8-byte slots. ``kinds`` has one byte a value, of :data:`KINDS`. It gives false, with no exception set, where a
value is not what it expects: the caller then takes the Python path, which reports the error. The module's object code is the same in every process:
addresses of types and library functions are in the global ``@addresses``, which :func:`fill_addresses` sets.
"""

from __future__ import annotations

import ctypes
import functools
import struct
import sys
import sysconfig
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tilewright.llvm.writer import FunctionWriter, ModuleWriter

#: How a value becomes a slot: a pointer's address, of an array that may be stored to where the pointer is stored through; an integer, signed or not; the bits
#: of a double or of a float; 0 or 1.
KINDS: Final[dict[str, bytes]] = {"pointer": b"p", "stored": b"w", "signed": b"i", "unsigned": b"u", "f64": b"d", "f32": b"f", "boolean": b"b"}

_METH_FASTCALL: Final = 0x80
#: PY_VECTORCALL_ARGUMENTS_OFFSET: the callee may use the word before the arguments.
_ARGUMENTS_OFFSET: Final = -(2**63)


@dataclass(frozen=True, slots=True)
class Layout:
    """Byte offsets in the interpreter's objects.

    Attributes:
        type_offset: the type, in every object.
        size: the length, in objects of variable length.
        tuple_items: a tuple's first item.
        float_value: a float's double.
        bytes_data: the first byte of a bytes object.
        array_data: the address in a NumPy array.
        array_flags: its flags, of 4 bytes.
    """

    type_offset: int
    size: int
    tuple_items: int
    float_value: int
    bytes_data: int
    array_data: int
    array_flags: int


#: NPY_ARRAY_WRITEABLE
_WRITEABLE: Final = 0x0400


def _word(address: int) -> int:
    return ctypes.c_uint64.from_address(address).value


@functools.cache
def layout() -> Layout | None:
    """The layout of this interpreter's objects, verified on live ones; None where it is not the one this module can read."""
    if sys.implementation.name != "cpython" or sysconfig.get_config_var("Py_GIL_DISABLED") or struct.calcsize("P") != 8:
        return None
    import numpy as np

    header = object.__basicsize__
    # Of an array, in NumPy's stable ABI: address, rank, shape, strides, base, element type, flags.
    found = Layout(header - 8, header, tuple.__basicsize__, header, bytes.__basicsize__ - 1, header, header + 48)
    items, number, text, array = (object(), 1, "two"), 2.5e-300, b"\x01" * 8 + b"tilewright", np.arange(5, dtype=np.int8)[2:]
    frozen = np.frombuffer(text, np.uint8).reshape(3, 6).T
    checks = (
        *((_word(id(x) + found.type_offset), id(type(x))) for x in (items, number, text, array, 5)),
        (_word(id(items) + found.size), 3),
        *((_word(id(items) + found.tuple_items + 8 * i), id(item)) for i, item in enumerate(items)),
        (_word(id(number) + found.float_value), struct.unpack("<Q", struct.pack("<d", number))[0]),
        (_word(id(text) + found.bytes_data), struct.unpack("<Q", text[:8])[0]),
        (_word(id(array) + found.array_data), array.__array_interface__["data"][0]),
        *((_word(id(x) + found.array_flags) & 0xFFFFFFFF, x.flags.num) for x in (array, frozen)),
        *((bool(x.flags.num & _WRITEABLE), x.flags.writeable) for x in (array, frozen)),
    )
    return found if all(read == expected for read, expected in checks) else None


# ---- functions for the interpreter


class _MethodDefinition(ctypes.Structure):
    _fields_ = (("name", ctypes.c_char_p), ("function", ctypes.c_void_p), ("flags", ctypes.c_int), ("doc", ctypes.c_char_p))


def make_builtin(address: int, name: str, self_object: object, keep: object = None) -> Callable[..., Any]:
    """A builtin function that runs native code: ``PyObject *(PyObject *self, PyObject *const *args, Py_ssize_t nargs)``, positional arguments only.

    The code must stay mapped as long as the function lives: ``keep`` is kept alive for the rest of the process, since the function may be.
    """
    create = ctypes.pythonapi.PyCFunction_NewEx
    create.argtypes, create.restype = (ctypes.c_void_p, ctypes.py_object, ctypes.py_object), ctypes.py_object
    definition = _MethodDefinition(name.encode(), address, _METH_FASTCALL, None)
    function: Callable[..., Any] = create(ctypes.addressof(definition), self_object, None)
    _definitions.append((definition, keep))
    return function


#: Method definitions are referred to by the functions made of them, without a count.
_definitions: list[tuple[_MethodDefinition, object]] = []


# ---- addresses that differ from process to process

#: Entries of ``@addresses``.
ADDRESSES: Final = ("none", "tuple", "int", "float", "true", "array", "tensor", "parameter", "tensor_pointer", "data_ptr_name", "writable_address")


def fill_addresses(table: int, writable_address: Callable[[Any], int] | None = None) -> None:
    """Set the entries of ``@addresses`` at ``table``; again whenever PyTorch may have been loaded since.

    ``writable_address`` gives the address of an object that may be stored to and raises for all others; it is asked of what is neither a NumPy array nor a
    PyTorch tensor. Without it such objects are refused where they would be stored to. It must live as long as the process.
    """
    import numpy as np

    known: dict[str, int] = {
        "none": id(None),
        "tuple": id(tuple),
        "int": id(int),
        "float": id(float),
        "true": id(True),
        "array": id(np.ndarray),
        "data_ptr_name": id(_DATA_PTR),
        "writable_address": 0 if writable_address is None else id(writable_address),
        **_tensor_addresses(),
    }
    entries = (ctypes.c_uint64 * len(ADDRESSES)).from_address(table)
    for position, name in enumerate(ADDRESSES):
        entries[position] = known.get(name, 0)


_DATA_PTR: Final = sys.intern("data_ptr")

#: Where the C++ tensor is in a PyTorch tensor object.
TENSOR_OFFSET: Final = object.__basicsize__


@functools.cache
def _tensor_entries() -> dict[str, int]:
    torch = sys.modules["torch"]
    try:
        from pathlib import Path

        library = ctypes.CDLL(str(next((Path(torch.__file__ or "").parent / "lib").glob("libtorch_cpu.*"))))
        function = library.aoti_torch_get_data_ptr
        tensors = [torch.zeros(3), torch.zeros(4, 4)[1:], torch.nn.Parameter(torch.zeros(2)), torch.zeros(2, dtype=torch.int8)]
        # The word must be the tensor's implementation in each, and the library must read the right address through it.
        if any(_word(id(tensor) + TENSOR_OFFSET) != tensor._cdata for tensor in tensors):
            return {}
        found = ctypes.c_uint64()
        for tensor in tensors:
            if function(ctypes.c_void_p(id(tensor) + TENSOR_OFFSET), ctypes.byref(found)) != 0 or found.value != tensor.data_ptr():
                return {}
        pointer = ctypes.cast(function, ctypes.c_void_p).value or 0
    except (OSError, AttributeError, StopIteration, RuntimeError, ImportError):
        return {}
    return {"tensor": id(torch.Tensor), "parameter": id(torch.nn.Parameter), "tensor_pointer": pointer}


def _tensor_addresses() -> dict[str, int]:
    torch = sys.modules.get("torch")
    # a module that is still being imported is asked again later
    return _tensor_entries() if torch is not None and hasattr(torch, "nn") and hasattr(torch, "zeros") else {}


# ---- reading Python objects


class _Reader:
    """Writes one function that reads an object into ``%slot`` and returns whether it could."""

    def __init__(self, module: ModuleWriter, name: str, objects: Layout) -> None:
        self.writer: FunctionWriter = module.function(name, [("ptr", "object"), ("ptr", "slot")], "i1", linkage="internal")
        self.objects = objects

    def field(self, type_: str, offset: int, base: str = "%object") -> str:
        return self.writer.load(type_, self.writer.emit(f"getelementptr i8, ptr {base}, i64 {offset}"), 8)

    def has_type(self, type_name: str) -> str:
        return self.writer.emit(f"icmp eq ptr {self.field('ptr', self.objects.type_offset)}, {address(self.writer, type_name)}")

    def give(self, type_: str, value: str) -> None:
        self.writer.store("i64", "0", "%slot", 8)
        self.writer.store(type_, value, "%slot", 8)
        self.writer.ret("i1 true")

    def refuse_error(self, value: str, type_: str, sentinel: str) -> None:
        """Clear the interpreter's error and return false if the value is the sentinel of one."""
        w = self.writer
        compare = "fcmp oeq" if type_ == "double" else "icmp eq"
        doubtful = w.emit(f"{compare} {type_} {value}, {sentinel}")
        ask, fine, failed = w.new_block("ask"), w.new_block("fine"), w.new_block("failed")
        w.branch_if(doubtful, ask, fine, likely=False)
        w.place(ask)
        error = w.call("PyErr_Occurred", "ptr", [])
        w.branch_if(w.emit(f"icmp ne ptr {error}, null"), failed, fine, likely=False)
        w.place(failed)
        w.call("PyErr_Clear", "void", [])
        w.ret("i1 false")
        w.place(fine)


def address(writer: FunctionWriter, name: str) -> str:
    """An entry of ``@addresses``."""
    return writer.load("ptr", writer.gep("ptr", "@addresses", ADDRESSES.index(name)), 8)


def _write_pointer(module: ModuleWriter, objects: Layout, name: str, *, stored: bool, host_arrays: bool) -> None:
    """The reader of addresses; where they are ``stored`` to, of memory that may be; of NumPy arrays only with ``host_arrays``."""
    r = _Reader(module, name, objects)
    w = r.writer
    array, other, tensor, method = w.new_block("array"), w.new_block("other"), w.new_block("tensor"), w.new_block("method")
    w.branch_if(r.has_type("array"), array, other)
    w.place(array)
    if stored and host_arrays:
        flags = w.load("i32", w.emit(f"getelementptr i8, ptr %object, i64 {objects.array_flags}"), 4)
        fine, frozen = w.new_block("fine"), w.new_block("frozen")
        w.branch_if(w.emit(f"icmp ne i32 {w.emit(f'and i32 {flags}, {_WRITEABLE}')}, 0"), fine, frozen, likely=True)
        w.place(frozen)
        w.ret("i1 false")
        w.place(fine)
    if host_arrays:
        r.give("i64", r.field("i64", objects.array_data))
    else:
        w.ret("i1 false")
    w.place(other)
    function = address(w, "tensor_pointer")
    known = w.emit(f"icmp ne ptr {function}, null")
    is_tensor = w.emit(f"or i1 {r.has_type('tensor')}, {r.has_type('parameter')}")
    w.branch_if(w.emit(f"and i1 {known}, {is_tensor}"), tensor, method)
    w.place(tensor)
    handle = w.emit(f"getelementptr i8, ptr %object, i64 {TENSOR_OFFSET}")
    status = w.emit(f"call i32 {function}(ptr {handle}, ptr %slot)")
    w.ret(f"i1 {w.emit(f'icmp eq i32 {status}, 0')}")
    # any object with data_ptr(), or that the host's own function makes an address of
    w.place(method)
    arguments = w.alloca("ptr", 2, 8)
    receiver = w.gep("ptr", arguments, 1)
    w.store("ptr", "%object", receiver, 8)
    if stored:
        function = address(w, "writable_address")
        able, unable = w.new_block("able"), w.new_block("unable")
        w.branch_if(w.emit(f"icmp ne ptr {function}, null"), able, unable, likely=True)
        w.place(unable)
        w.ret("i1 false")
        w.place(able)
        callee, entry = function, "PyObject_Vectorcall"
    else:
        callee, entry = address(w, "data_ptr_name"), "PyObject_VectorcallMethod"
    result = w.call(entry, "ptr", [("ptr", callee), ("ptr", receiver), ("i64", str(1 + _ARGUMENTS_OFFSET)), ("ptr", "null")])
    got, missing = w.new_block("got"), w.new_block("missing")
    w.branch_if(w.emit(f"icmp ne ptr {result}, null"), got, missing, likely=True)
    w.place(missing)
    w.call("PyErr_Clear", "void", [])
    w.ret("i1 false")
    w.place(got)
    value = w.call("PyLong_AsUnsignedLongLong", "i64", [("ptr", result)])
    w.call("Py_DecRef", "void", [("ptr", result)])
    r.refuse_error(value, "i64", "-1")
    r.give("i64", value)


def _write_integer(module: ModuleWriter, objects: Layout, name: str, convert: str) -> None:
    r = _Reader(module, name, objects)
    value = r.writer.call(convert, "i64", [("ptr", "%object")])
    r.refuse_error(value, "i64", "-1")
    r.give("i64", value)


def _write_float(module: ModuleWriter, objects: Layout, name: str, narrow: bool) -> None:
    r = _Reader(module, name, objects)
    w = r.writer
    exact, other, done = w.new_block("exact"), w.new_block("other"), w.new_block("done")
    w.branch_if(r.has_type("float"), exact, other, likely=True)
    w.place(exact)
    stored = r.field("double", objects.float_value)
    w.branch(done)
    w.place(other)
    converted = w.call("PyFloat_AsDouble", "double", [("ptr", "%object")])
    r.refuse_error(converted, "double", "-1.0")
    fine = w.current
    w.branch(done)
    w.place(done)
    value = w.phi("double", ((stored, exact), (converted, fine)))
    if narrow:
        r.give("float", w.emit(f"fptrunc double {value} to float"))
    else:
        r.give("double", value)


def _write_boolean(module: ModuleWriter, objects: Layout) -> None:
    r = _Reader(module, "read_boolean", objects)
    truth = r.writer.call("PyObject_IsTrue", "i32", [("ptr", "%object")])
    r.refuse_error(truth, "i32", "-1")
    r.give("i64", r.writer.emit(f"zext i32 {truth} to i64"))


def write_readers(module: ModuleWriter, objects: Layout, *, host_arrays: bool = True) -> None:
    """Add ``@read_values`` and what it calls to a module (see the module's documentation). ``host_arrays``: whether NumPy arrays are read, or refused."""
    module.add_global(f"@addresses = global [{len(ADDRESSES)} x ptr] zeroinitializer")
    _write_pointer(module, objects, "read_pointer", stored=False, host_arrays=host_arrays)
    _write_pointer(module, objects, "read_stored", stored=True, host_arrays=host_arrays)
    _write_integer(module, objects, "read_signed", "PyLong_AsLongLong")
    _write_integer(module, objects, "read_unsigned", "PyLong_AsUnsignedLongLong")
    _write_float(module, objects, "read_f64", narrow=False)
    _write_float(module, objects, "read_f32", narrow=True)
    _write_boolean(module, objects)
    w = module.function("read_values", [("ptr", "values"), ("ptr", "kinds"), ("i64", "count"), ("ptr", "slots")], "i1", linkage="internal")
    failed = w.new_block("failed")
    items = w.emit(f"getelementptr i8, ptr %values, i64 {objects.tuple_items}")
    with w.loop("0", "%count", 1) as loop:
        item = w.load("ptr", w.gep("ptr", items, loop.index), 8)
        slot = w.gep("i64", "%slots", loop.index)
        kind = w.load("i8", w.gep("i8", "%kinds", loop.index), 1)
        blocks = {name: w.new_block(name) for name in KINDS}
        join = w.new_block("join")
        cases = " ".join(f"i8 {KINDS[name][0]}, label %{block.label}" for name, block in blocks.items())
        w.current.terminator = f"  switch i8 {kind}, label %{failed.label} [ {cases} ]"
        read = []
        for name, block in blocks.items():
            w.place(block)
            read.append((w.emit(f"call i1 @read_{name}(ptr {item}, ptr {slot})"), block))
            w.branch(join)
        w.place(join)
        following = w.new_block("following")
        w.branch_if(w.phi("i1", read), following, failed, likely=True)
        w.place(following)
    w.ret("i1 true")
    w.place(failed)
    w.ret("i1 false")


def kinds_of(types: Sequence[str], stored: Sequence[bool] = ()) -> bytes | None:
    """The kind of each runtime argument from its IR type in text (``ptr<f32>``, ``i32``); None where one has no native reader.

    ``stored`` tells which pointers are stored through; none are where it is left out.
    """
    found = [kind_of(type_, is_stored) for type_, is_stored in zip(types, stored or [False] * len(types), strict=True)]
    return b"".join(found) if all(found) else None  # type: ignore[arg-type]


def kind_of(type_: str, stored: bool = False) -> bytes | None:
    """One byte of :data:`KINDS` for an IR type in text; None for what has no native reader (narrow floats, descriptors)."""
    if type_.startswith("ptr<"):
        return KINDS["stored" if stored else "pointer"]
    if type_ == "i1":
        return KINDS["boolean"]
    if type_ in ("i8", "i16", "i32", "i64", "u8", "u16", "u32"):
        return KINDS["signed"]
    return KINDS.get({"u64": "unsigned"}.get(type_, type_))
