"""Native conversion of Python numbers, arrays and tensors to argument words.

:func:`write_readers` adds to a module the function

    i1 @read_values(ptr values, ptr kinds, i64 count, ptr slots)

that turns a tuple of Python objects into 8-byte slots: one for a number or an address, 1 + 2 * rank
for a tensor descriptor, its address, extents and strides. ``kinds`` has one byte a value, of
:data:`KINDS` or :func:`_descriptor_byte`. It returns false, with no exception set, where a value is
not what it expects: the caller then takes the Python path, which reports the error.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tilewright.llvm.emission.writer import BasicBlock, FunctionWriter, ModuleWriter
from tilewright.llvm.native.native_functions import (
    ARGUMENTS_OFFSET,
    TENSOR_OFFSET,
    WRITEABLE,
    Layout,
    address,
    declare_addresses,
)

#: How a value becomes a slot: a pointer's address, of an array that may be stored to where the
#: pointer is stored through; an integer, signed or not; the bits of a double or of a float; 0 or 1.
KINDS: Final[dict[str, bytes]] = {
    "pointer": b"p",
    "stored": b"w",
    "signed": b"i",
    "unsigned": b"u",
    "f64": b"d",
    "f32": b"f",
    "boolean": b"b",
}


#: Axes of a descriptor, at the most.
MOST_AXES: Final = 5


def _descriptor_byte(rank: int, stored: bool) -> int:
    """Return the kind of a descriptor of a rank: its number of slots.

    The upper bit says that it is stored through.
    """
    return (0x80 if stored else 0) | (1 + 2 * rank)


class _Reader:
    """Writes one function that reads an object into ``%slot`` and returns whether it could."""

    def __init__(self, module: ModuleWriter, name: str, objects: Layout) -> None:
        self.writer: FunctionWriter = module.function(
            name, [("ptr", "object"), ("ptr", "slot")], "i1", linkage="internal"
        )
        self.objects = objects

    def field(self, type_: str, offset: int) -> str:
        return self.writer.load(
            type_, self.writer.emit(f"getelementptr i8, ptr %object, i64 {offset}"), 8
        )

    def has_type(self, type_name: str) -> str:
        return self.writer.emit(
            f"icmp eq ptr {self.field('ptr', self.objects.type_offset)}, "
            f"{address(self.writer, type_name)}"
        )

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


def _write_pointer(
    module: ModuleWriter, objects: Layout, name: str, *, stored: bool, host_arrays: bool
) -> None:
    """Write the reader of addresses.

    Where they are ``stored`` to, it accepts only writable memory; NumPy arrays only with
    ``host_arrays``.
    """
    r = _Reader(module, name, objects)
    w = r.writer
    array, other, tensor, method = (
        w.new_block("array"),
        w.new_block("other"),
        w.new_block("tensor"),
        w.new_block("method"),
    )
    w.branch_if(r.has_type("array"), array, other)
    w.place(array)
    if stored and host_arrays:
        flags = w.load(
            "i32", w.emit(f"getelementptr i8, ptr %object, i64 {objects.array_flags}"), 4
        )
        fine, frozen = w.new_block("fine"), w.new_block("frozen")
        w.branch_if(
            w.emit(f"icmp ne i32 {w.emit(f'and i32 {flags}, {WRITEABLE}')}, 0"),
            fine,
            frozen,
            likely=True,
        )
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
    result = w.call(
        entry,
        "ptr",
        [("ptr", callee), ("ptr", receiver), ("i64", str(1 + ARGUMENTS_OFFSET)), ("ptr", "null")],
    )
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
    if objects.int_signs:
        _give_short_integer(r, negative=convert == "PyLong_AsLongLong")
    value = r.writer.call(convert, "i64", [("ptr", "%object")])
    r.refuse_error(value, "i64", "-1")
    r.give("i64", value)


def _give_short_integer(r: _Reader, *, negative: bool) -> None:
    """Return an int of at most one digit, ``negative`` ones too; go on for every other object."""
    w, other = r.writer, r.writer.new_block("other")
    w.store(
        "i64", read_short_integer(w, r.objects, "%object", other, negative=negative), "%slot", 8
    )
    w.ret("i1 true")
    w.place(other)


def read_short_integer(
    w: FunctionWriter, objects: Layout, value: str, other: BasicBlock, *, negative: bool = True
) -> str:
    """Read an int of at most one digit as an i64, ``negative`` ones too.

    Every other object branches to ``other``. Not for a layout without ``int_signs``.
    """

    def at(type_: str, offset: int) -> str:
        return w.load(
            type_,
            w.emit(f"getelementptr i8, ptr {value}, i64 {offset}"),
            4 if type_ == "i32" else 8,
        )

    exact, short = w.new_block("exact"), w.new_block("short")
    w.branch_if(
        w.emit(f"icmp eq ptr {at('ptr', objects.type_offset)}, {address(w, 'int')}"),
        exact,
        other,
        likely=True,
    )
    w.place(exact)
    word = at("i64", objects.size)
    if objects.int_signs == "size":
        is_short, sign = w.emit(f"icmp ult i64 {w.emit(f'add i64 {word}, 1')}, 3"), word
    else:
        is_short, sign = (
            w.emit(f"icmp ult i64 {word}, 16"),
            w.emit(f"sub i64 1, {w.emit(f'and i64 {word}, 3')}"),
        )
    if not negative:
        is_short = w.emit(f"and i1 {is_short}, {w.emit(f'icmp sge i64 {sign}, 0')}")
    w.branch_if(is_short, short, other, likely=True)
    w.place(short)
    digit = at("i32", objects.digit)
    return w.emit(f"mul i64 {sign}, {w.emit(f'zext i32 {digit} to i64')}")


def _write_descriptor(module: ModuleWriter, objects: Layout, name: str, pointer: str) -> None:
    """Write the reader of tensor descriptors; ``pointer`` reads their addresses.

    Extents and strides are lists of plain ints, as descriptors make them.
    """
    w = module.function(
        name, [("ptr", "object"), ("ptr", "slot"), ("i64", "rank")], "i1", linkage="internal"
    )
    failed, dropped = w.new_block("failed"), w.new_block("dropped")

    def need(condition: str, otherwise: BasicBlock) -> None:
        fine = w.new_block("fine")
        w.branch_if(condition, fine, otherwise, likely=True)
        w.place(fine)

    def attribute(attribute_name: str) -> str:
        found = w.call(
            "PyObject_GetAttr",
            "ptr",
            [("ptr", "%object"), ("ptr", address(w, f"{attribute_name}_name"))],
        )
        need(w.emit(f"icmp ne ptr {found}, null"), failed)
        return found

    def type_of(object_: str) -> str:
        return w.load(
            "ptr", w.emit(f"getelementptr i8, ptr {object_}, i64 {objects.type_offset}"), 8
        )

    base = attribute("base")
    read = w.emit(f"call i1 @{pointer}(ptr {base}, ptr %slot)")
    w.call("Py_DecRef", "void", [("ptr", base)])
    need(read, failed)
    held = w.alloca("ptr", 1, 8)
    for number, attribute_name in enumerate(("shape", "strides")):
        numbers = attribute(attribute_name)
        w.store("ptr", numbers, held, 8)
        need(w.emit(f"icmp eq ptr {type_of(numbers)}, {address(w, 'list')}"), dropped)
        need(
            w.emit(f"icmp eq i64 {w.call('PyList_Size', 'i64', [('ptr', numbers)])}, %rank"),
            dropped,
        )
        first = w.emit(f"add i64 1, {w.emit(f'mul i64 {number}, %rank')}")
        with w.loop("0", "%rank", 1) as loop:
            item = w.call("PyList_GetItem", "ptr", [("ptr", numbers), ("i64", loop.index)])
            need(w.emit(f"icmp eq ptr {type_of(item)}, {address(w, 'int')}"), dropped)
            place = w.gep("i64", "%slot", w.emit(f"add i64 {first}, {loop.index}"))
            need(w.emit(f"call i1 @read_signed(ptr {item}, ptr {place})"), dropped)
        w.call("Py_DecRef", "void", [("ptr", numbers)])
    w.ret("i1 true")
    w.place(dropped)
    w.call("Py_DecRef", "void", [("ptr", w.load("ptr", held, 8))])
    w.ret("i1 false")
    w.place(failed)
    w.call("PyErr_Clear", "void", [])
    w.ret("i1 false")


def write_read_signed(module: ModuleWriter, objects: Layout) -> None:
    """Add ``i1 @read_signed(ptr object, ptr slot)``, which reads a signed integer of 64 bits.

    It returns false, with no exception set, for any other object.
    """
    _write_integer(module, objects, "read_signed", "PyLong_AsLongLong")


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
    """Add ``@read_values`` and its callees to a module (see the module's documentation).

    ``host_arrays``: whether NumPy arrays are read, or refused.
    """
    declare_addresses(module)
    _write_pointer(module, objects, "read_pointer", stored=False, host_arrays=host_arrays)
    _write_pointer(module, objects, "read_stored", stored=True, host_arrays=host_arrays)
    write_read_signed(module, objects)
    _write_integer(module, objects, "read_unsigned", "PyLong_AsUnsignedLongLong")
    _write_float(module, objects, "read_f64", narrow=False)
    _write_float(module, objects, "read_f32", narrow=True)
    _write_boolean(module, objects)
    _write_descriptor(module, objects, "read_descriptor", "read_pointer")
    _write_descriptor(module, objects, "read_stored_descriptor", "read_stored")
    w = module.function(
        "read_values",
        [("ptr", "values"), ("ptr", "kinds"), ("i64", "count"), ("ptr", "slots")],
        "i1",
        linkage="internal",
    )
    failed = w.new_block("failed")
    items = w.emit(f"getelementptr i8, ptr %values, i64 {objects.tuple_items}")
    with w.loop("0", "%count", 1, [("i64", "0")]) as loop:
        item = w.load("ptr", w.gep("ptr", items, loop.index), 8)
        slot = w.gep("i64", "%slots", loop.values[0])
        kind = w.load("i8", w.gep("i8", "%kinds", loop.index), 1)
        blocks = {name: w.new_block(name) for name in KINDS}
        join, read, taken = (
            w.new_block("join"),
            list[tuple[str, BasicBlock]](),
            list[tuple[str, BasicBlock]](),
        )
        if objects.int_signs:
            # most of many values are small integers: they take no call
            small, any_value = w.new_block("small"), w.new_block("any")
            w.branch_if(w.emit(f"icmp eq i8 {kind}, {KINDS['signed'][0]}"), small, any_value)
            w.place(small)
            w.store("i64", read_short_integer(w, objects, item, any_value), slot, 8)
            read.append(("true", w.current))
            taken.append(("1", w.current))
            w.branch(join)
            w.place(any_value)
        cases = " ".join(
            f"i8 {KINDS[name][0]}, label %{block.label}" for name, block in blocks.items()
        )
        described = w.new_block("described")
        w.current.terminator = f"  switch i8 {kind}, label %{described.label} [ {cases} ]"
        for name, block in blocks.items():
            w.place(block)
            read.append((w.emit(f"call i1 @read_{name}(ptr {item}, ptr {slot})"), block))
            taken.append(("1", block))
            w.branch(join)
        w.place(described)
        slots = w.emit(f"zext i8 {w.emit(f'and i8 {kind}, 127')} to i64")
        rank = w.emit(f"lshr i64 {slots}, 1")
        readers = {
            name: w.new_block(name) for name in ("read_descriptor", "read_stored_descriptor")
        }
        w.branch_if(w.emit(f"icmp sge i8 {kind}, 0"), *readers.values())
        for name, block in readers.items():
            w.place(block)
            read.append((w.emit(f"call i1 @{name}(ptr {item}, ptr {slot}, i64 {rank})"), block))
            taken.append((slots, block))
            w.branch(join)
        w.place(join)
        following = w.new_block("following")
        found, step = w.phi("i1", read), w.phi("i64", taken)
        w.branch_if(found, following, failed, likely=True)
        w.place(following)
        loop.next_values = [w.emit(f"add i64 {loop.values[0]}, {step}")]
    w.ret("i1 true")
    w.place(failed)
    w.ret("i1 false")


def kinds_of(types: Sequence[str], stored: Sequence[bool] = ()) -> bytes | None:
    """Return the kind of each runtime argument from its IR type in text (``ptr<f32>``, ``i32``).

    None where one has no native reader.

    ``stored`` tells which pointers are stored through; none are without it.
    """
    found = [
        kind_of(type_, is_stored)
        for type_, is_stored in zip(types, stored or [False] * len(types), strict=True)
    ]
    return b"".join(found) if all(found) else None  # type: ignore[arg-type]


def slots_of(kinds: bytes) -> int:
    """Return the number of slots of arguments of these kinds."""
    plain = frozenset(letter[0] for letter in KINDS.values())
    return sum(1 if kind in plain else kind & 0x7F for kind in kinds)


def kind_of(type_: str, stored: bool = False) -> bytes | None:
    """One byte for an IR type in text; None for what has no native reader (narrow floats)."""
    if type_.startswith("desc<"):
        rank = type_.count("x")
        return bytes((_descriptor_byte(rank, stored),)) if rank <= MOST_AXES else None
    if type_.startswith("ptr<"):
        return KINDS["stored" if stored else "pointer"]
    if type_ == "i1":
        return KINDS["boolean"]
    if type_ in ("i8", "i16", "i32", "i64", "u8", "u16", "u32"):
        return KINDS["signed"]
    return KINDS.get({"u64": "unsigned"}.get(type_, type_))
