"""Dispatch entries: calls as conditions on their arguments, and the search among them.

An entry is the tuple of :func:`entry_items`. Its table is the bytes of a :class:`Header`, then
checks, then where each of its values comes from, then the same for arguments by name. A source is a
position in the call, the first argument first and keywords last in the order given, or with
:data:`DEFAULT` set a position among the entry's defaults.
"""

from __future__ import annotations

import ctypes
import enum
from collections.abc import Sequence
from typing import Final

from tilewright.llvm.emission.writer import BasicBlock, FunctionWriter, ModuleWriter
from tilewright.llvm.native import native_functions
from tilewright.llvm.native.native_functions import TENSOR_OFFSET
from tilewright.llvm.native.native_values import read_short_integer, write_read_signed

#: Marks a source among the entry's defaults.
DEFAULT: Final = 1 << 31
#: Arguments of a call, at most.
MAX_ARGUMENTS: Final = 400


def entry_items(first: str, second: str, third: str) -> tuple[str, ...]:
    """Return the items of an entry: those that the search reads, and three of the dispatcher's own.

    ``keep`` holds references for the table.
    """
    return ("table", first, second, "keywords", third, "defaults", "choice", "keep")


#: The items of an entry that are the same in all dispatchers.
_ENTRY: Final = entry_items("", "", "")


class CheckKind(enum.IntEnum):
    """Kinds of requirements on an argument."""

    #: to be the object at ``a``
    OBJECT = 0
    #: to be an int of ``a`` to ``b`` other than ``c``, of the alignment ``d``
    INTEGER = 1
    #: to be of exactly the type at ``a``
    TYPE = 2
    #: to be a float of the bits ``a``
    FLOAT = 3
    #: to be a tensor of exactly the type at ``a``, of element type (low half) and device kind (high
    #: half) ``b`` on device ``c``, its address of alignment ``d``
    TENSOR = 4
    #: to be a NumPy array of the dtype at ``b``, its address of alignment ``d``
    ARRAY = 5
    #: that the dictionary at ``a`` has the object ``c`` under the name at ``b``; the argument does
    #: not matter
    GLOBAL = 6
    #: to be a tensor descriptor as the :class:`Described` at ``a`` says
    DESCRIPTOR = 7
    #: to be an object of exactly the type at ``a`` whose attribute ``base`` the check at ``b``
    #: holds of
    BASE = 8
    #: to be of exactly the type of the object at ``a``, which is a text or a number, and equal to
    #: it
    EQUAL = 9


class Divisibility(enum.IntEnum):
    """Requirements on an integer or an address modulo 16."""

    ANY = 0
    DIVISIBLE = 1
    INDIVISIBLE = 2
    #: nothing: a tensor is not asked for its address, and may have none
    UNREAD = 3


class Check(ctypes.Structure):
    """One condition on one argument."""

    _fields_ = (
        ("condition", ctypes.c_uint32),
        ("source", ctypes.c_uint32),
        ("a", ctypes.c_int64),
        ("b", ctypes.c_int64),
        ("c", ctypes.c_int64),
        ("d", ctypes.c_int64),
    )


class Described(ctypes.Structure):
    """Requirements on a tensor descriptor.

    It must be of exactly the type at ``type``, its block shape a list equal to that at
    ``block_shape``, its padding the object at ``padding``, its last extent of the alignment
    ``whole`` modulo ``divisor``, its tensor as ``base`` says.
    """

    _fields_ = (
        ("type", ctypes.c_int64),
        ("block_shape", ctypes.c_int64),
        ("padding", ctypes.c_int64),
        ("divisor", ctypes.c_int64),
        ("whole", ctypes.c_int64),
        ("base", Check),
    )


class Header(ctypes.Structure):
    """The beginning of an entry's table: the number of a call's arguments, and lengths.

    The first number counts grid and keywords, another the keywords alone; the lengths are of the
    parts behind the header.
    """

    _fields_ = (
        ("given", ctypes.c_int64),
        ("keywords", ctypes.c_int64),
        ("checks", ctypes.c_int64),
        ("values", ctypes.c_int64),
        ("names", ctypes.c_int64),
    )


def table(
    given: int, keywords: int, checks: Sequence[Check], values: Sequence[int], names: Sequence[int]
) -> bytes:
    """The table of an entry."""
    header = Header(given, keywords, len(checks), len(values), len(names))
    sources = (ctypes.c_uint32 * (len(values) + len(names)))(*values, *names)
    return b"".join(map(bytes, (header, *checks, sources)))


def write_search_functions(module: ModuleWriter, objects: native_functions.Layout) -> None:
    """The functions that a search calls."""
    module.add_global("@declined = internal constant i8 0")
    write_read_signed(module, objects)
    _write_holds(module, objects)
    _write_described(module, objects)
    _write_matches(module, objects)


class Writer:
    """A function being written, with the ways to read objects."""

    def __init__(
        self,
        module: ModuleWriter,
        objects: native_functions.Layout,
        name: str,
        parameters: Sequence[tuple[str, str]],
        result: str,
        linkage: str = "internal",
    ):
        self.w: FunctionWriter = module.function(name, parameters, result, linkage=linkage)
        self.objects = objects

    def at(self, base: str, offset: int, type_: str = "ptr") -> str:
        return self.w.load(
            type_,
            self.w.emit(f"getelementptr i8, ptr {base}, i64 {offset}"),
            4 if type_ == "i32" else 8,
        )

    def item(self, values: str, position: int) -> str:
        return self.at(values, self.objects.tuple_items + 8 * position)

    def size(self, values: str) -> str:
        return self.at(values, self.objects.size, "i64")

    def is_type(self, value: str, type_: str) -> str:
        """Return whether an object is of the type at an address."""
        return self.w.emit(f"icmp eq ptr {self.at(value, self.objects.type_offset)}, {type_}")

    def table_of(self, entry: str) -> str:
        return self.w.emit(
            f"getelementptr i8, ptr {self.item(entry, _ENTRY.index('table'))}, i64 "
            f"{self.objects.bytes_data}"
        )

    def need(self, condition: str, otherwise: BasicBlock) -> None:
        fine = self.w.new_block("fine")
        self.w.branch_if(condition, fine, otherwise, likely=True)
        self.w.place(fine)

    def give_false(self, block: BasicBlock) -> None:
        self.w.place(block)
        self.w.ret("i1 false")

    def drop(self, *values: str) -> None:
        for value in values:
            self.w.call("Py_DecRef", "void", [("ptr", value)])

    def hold(self, value: str) -> None:
        if self.objects.plain_counts:
            self.w.store("i64", self.w.emit(f"add i64 {self.w.load('i64', value, 8)}, 1"), value, 8)
        else:
            self.w.call("Py_IncRef", "void", [("ptr", value)])


def _is_aligned(w: FunctionWriter, value: str, wanted: str) -> str:
    """Return whether a number is of an :class:`Divisibility`."""
    divisible = w.emit(f"icmp eq i64 {w.emit(f'and i64 {value}, 15')}, 0")
    found = w.emit(
        f"select i1 {divisible}, i64 {int(Divisibility.DIVISIBLE)}, i64 "
        f"{int(Divisibility.INDIVISIBLE)}"
    )
    same, unasked = (
        w.emit(f"icmp ne i64 {w.emit(f'and i64 {found}, {wanted}')}, 0"),
        w.emit(f"icmp eq i64 {wanted}, {int(Divisibility.ANY)}"),
    )
    return w.emit(f"or i1 {same}, {unasked}")


def _write_holds(module: ModuleWriter, objects: native_functions.Layout) -> None:
    """Write ``holds(check, object)``: whether the condition of a check holds.

    No exception is left behind.
    """
    f = Writer(module, objects, "holds", [("ptr", "check"), ("ptr", "object")], "i1")
    w = f.w
    failed, slot = w.new_block("failed"), w.alloca("i64", 1, 8)
    blocks = {condition: w.new_block(condition.name.lower()) for condition in CheckKind}
    cases = " ".join(
        f"i32 {int(condition)}, label %{block.label}" for condition, block in blocks.items()
    )
    a, b, c, d = (f.at("%check", getattr(Check, name).offset, "i64") for name in "abcd")
    kind = f.at("%check", Check.condition.offset, "i32")
    w.current.terminator = f"  switch i32 {kind}, label %{failed.label} [ {cases} ]"

    def aligned(value: str) -> None:
        w.ret(f"i1 {_is_aligned(w, value, d)}")

    def give_equal(value: str, wanted: str) -> None:
        w.ret(f"i1 {w.emit(f'icmp eq i64 {value}, {wanted}')}")

    w.place(blocks[CheckKind.OBJECT])
    give_equal(w.emit("ptrtoint ptr %object to i64"), a)

    w.place(blocks[CheckKind.INTEGER])
    f.need(f.is_type("%object", native_functions.address(w, "int")), failed)
    f.need(w.emit(f"call i1 @read_signed(ptr %object, ptr {slot})"), failed)
    number = w.load("i64", slot, 8)
    _need_number(f, number, (a, b, c, d), failed)
    w.ret("i1 true")

    w.place(blocks[CheckKind.TYPE])
    w.ret(f"i1 {f.is_type('%object', w.emit(f'inttoptr i64 {a} to ptr'))}")

    w.place(blocks[CheckKind.FLOAT])
    f.need(f.is_type("%object", native_functions.address(w, "float")), failed)
    give_equal(f.at("%object", objects.float_value, "i64"), a)

    w.place(blocks[CheckKind.TENSOR])
    f.need(f.is_type("%object", w.emit(f"inttoptr i64 {a} to ptr")), failed)
    handle = w.emit(f"getelementptr i8, ptr %object, i64 {TENSOR_OFFSET}")
    device_kind = w.emit(f"trunc i64 {w.emit(f'lshr i64 {b}, 32')} to i32")
    for fact, wanted in (
        ("dtype", w.emit(f"trunc i64 {b} to i32")),
        ("device_kind", device_kind),
        ("device_index", w.emit(f"trunc i64 {c} to i32")),
    ):
        w.store("i64", "0", slot, 8)
        status = w.emit(
            f"call i32 {native_functions.address(w, f'tensor_{fact}')}(ptr {handle}, ptr {slot})"
        )
        f.need(w.emit(f"icmp eq i32 {status}, 0"), failed)
        f.need(w.emit(f"icmp eq i32 {w.load('i32', slot, 8)}, {wanted}"), failed)
    unread = w.new_block("unread")
    f.need(w.emit(f"icmp ne i64 {d}, {int(Divisibility.UNREAD)}"), unread)
    status = w.emit(
        f"call i32 {native_functions.address(w, 'tensor_pointer')}(ptr {handle}, ptr {slot})"
    )
    f.need(w.emit(f"icmp eq i32 {status}, 0"), failed)
    pointer = w.load("i64", slot, 8)
    # Only a tensor without elements may lie nowhere; Python raises for others.
    nowhere, somewhere = w.new_block("nowhere"), w.new_block("somewhere")
    w.branch_if(w.emit(f"icmp ne i64 {pointer}, 0"), somewhere, nowhere, likely=True)
    w.place(nowhere)
    status = w.emit(
        f"call i32 {native_functions.address(w, 'tensor_elements')}(ptr {handle}, ptr {slot})"
    )
    f.need(w.emit(f"icmp eq i32 {status}, 0"), failed)
    f.need(w.emit(f"icmp eq i64 {w.load('i64', slot, 8)}, 0"), failed)
    w.branch(somewhere)
    w.place(somewhere)
    aligned(pointer)
    w.place(unread)
    w.ret("i1 true")

    w.place(blocks[CheckKind.ARRAY])
    f.need(f.is_type("%object", native_functions.address(w, "array")), failed)
    f.need(w.emit(f"icmp eq i64 {f.at('%object', objects.array_dtype, 'i64')}, {b}"), failed)
    aligned(f.at("%object", objects.array_data, "i64"))

    w.place(blocks[CheckKind.GLOBAL])
    dictionary, name = (w.emit(f"inttoptr i64 {word} to ptr") for word in (a, b))
    value = w.call("PyDict_GetItem", "ptr", [("ptr", dictionary), ("ptr", name)])
    give_equal(w.emit(f"ptrtoint ptr {value} to i64"), c)

    w.place(blocks[CheckKind.DESCRIPTOR])
    wanted = w.emit(f"inttoptr i64 {a} to ptr")
    w.ret(f"i1 {w.emit(f'call i1 @described(ptr {wanted}, ptr %object)')}")

    w.place(blocks[CheckKind.BASE])
    f.need(f.is_type("%object", w.emit(f"inttoptr i64 {a} to ptr")), failed)
    base = w.call(
        "PyObject_GetAttr",
        "ptr",
        [("ptr", "%object"), ("ptr", native_functions.address(w, "base_name"))],
    )
    without = w.new_block("without")
    f.need(w.emit(f"icmp ne ptr {base}, null"), without)
    fits = w.emit(f"call i1 @holds(ptr {w.emit(f'inttoptr i64 {b} to ptr')}, ptr {base})")
    f.drop(base)
    w.ret(f"i1 {fits}")
    w.place(without)
    w.call("PyErr_Clear", "void", [])
    w.branch(failed)

    w.place(blocks[CheckKind.EQUAL])
    expected = w.emit(f"inttoptr i64 {a} to ptr")
    f.need(f.is_type("%object", f.at(expected, objects.type_offset)), failed)
    same = w.call(
        "PyObject_RichCompareBool", "i32", [("ptr", "%object"), ("ptr", expected), ("i32", "2")]
    )
    give_equal(w.emit(f"sext i32 {same} to i64"), "1")

    f.give_false(failed)


def _need_number(f: Writer, number: str, wanted: Sequence[str], failed: BasicBlock) -> None:
    """Branch to ``failed`` unless an i64 satisfies a check's ``a``, ``b``, ``c`` and ``d``."""
    w, (low, high, excluded, alignment) = f.w, wanted
    for comparison, bound in (("sge", low), ("sle", high), ("ne", excluded)):
        f.need(w.emit(f"icmp {comparison} i64 {number}, {bound}"), failed)
    f.need(_is_aligned(w, number, alignment), failed)


def _write_described(module: ModuleWriter, objects: native_functions.Layout) -> None:
    """Write ``described(wanted, object)``: whether a descriptor fits a :class:`Described`.

    No exception is left behind.
    """
    f = Writer(module, objects, "described", [("ptr", "wanted"), ("ptr", "object")], "i1")
    w = f.w
    failed, dropped, held, number = (
        w.new_block("failed"),
        w.new_block("dropped"),
        w.alloca("ptr", 1, 8),
        w.alloca("i64", 1, 8),
    )

    def wanted(name: str) -> str:
        return f.at("%wanted", getattr(Described, name).offset, "i64")

    def attribute(name: str) -> str:
        found = w.call(
            "PyObject_GetAttr",
            "ptr",
            [("ptr", "%object"), ("ptr", native_functions.address(w, f"{name}_name"))],
        )
        f.need(w.emit(f"icmp ne ptr {found}, null"), failed)
        w.store("ptr", found, held, 8)
        return found

    def as_pointer(name: str) -> str:
        return w.emit(f"inttoptr i64 {wanted(name)} to ptr")

    f.need(f.is_type("%object", as_pointer("type")), failed)
    padding = attribute("padding")
    f.drop(padding)  # only compared
    f.need(w.emit(f"icmp eq ptr {padding}, {as_pointer('padding')}"), failed)
    shape = attribute("shape")
    f.need(f.is_type(shape, native_functions.address(w, "list")), dropped)
    rank = w.call("PyList_Size", "i64", [("ptr", shape)])
    f.need(w.emit(f"icmp sgt i64 {rank}, 0"), dropped)
    last = w.call("PyList_GetItem", "ptr", [("ptr", shape), ("i64", w.emit(f"sub i64 {rank}, 1"))])
    f.need(f.is_type(last, native_functions.address(w, "int")), dropped)
    f.need(w.emit(f"call i1 @read_signed(ptr {last}, ptr {number})"), dropped)
    rest = w.emit(f"srem i64 {w.load('i64', number, 8)}, {wanted('divisor')}")
    whole = w.emit(
        f"select i1 {w.emit(f'icmp eq i64 {rest}, 0')}, i64 {int(Divisibility.DIVISIBLE)}, i64 "
        f"{int(Divisibility.INDIVISIBLE)}"
    )
    f.need(w.emit(f"icmp eq i64 {whole}, {wanted('whole')}"), dropped)
    f.drop(shape)
    blocks = attribute("block_shape")
    f.need(f.is_type(blocks, native_functions.address(w, "list")), dropped)
    known = as_pointer("block_shape")
    count = w.call("PyList_Size", "i64", [("ptr", blocks)])
    f.need(
        w.emit(f"icmp eq i64 {count}, {w.call('PyList_Size', 'i64', [('ptr', known)])}"), dropped
    )
    with w.loop("0", count, 1) as loop:
        item, expected = (
            w.call("PyList_GetItem", "ptr", [("ptr", listed), ("i64", loop.index)])
            for listed in (blocks, known)
        )
        f.need(f.is_type(item, native_functions.address(w, "int")), dropped)
        same = w.call(
            "PyObject_RichCompareBool", "i32", [("ptr", item), ("ptr", expected), ("i32", "2")]
        )
        f.need(w.emit(f"icmp eq i32 {same}, 1"), dropped)
    f.drop(blocks)
    base = attribute("base")
    check = w.emit(f"getelementptr i8, ptr %wanted, i64 {Described.base.offset}")
    fits = w.emit(f"call i1 @holds(ptr {check}, ptr {base})")
    f.drop(base)
    w.ret(f"i1 {fits}")
    w.place(dropped)
    f.drop(w.load("ptr", held, 8))
    w.branch(failed)
    w.place(failed)
    w.call("PyErr_Clear", "void", [])
    w.ret("i1 false")


def _write_matches(module: ModuleWriter, objects: native_functions.Layout) -> None:
    """Write ``matches(seen, arguments, given, keywords, named, choice)``: match call and entry."""
    parameters = [
        ("ptr", "seen"),
        ("ptr", "arguments"),
        ("i64", "given"),
        ("ptr", "keywords"),
        ("i64", "named"),
        ("ptr", "choice"),
    ]
    f = Writer(module, objects, "matches", parameters, "i1")
    w = f.w
    failed = w.new_block("failed")
    header = f.table_of("%seen")
    for name, value in (("given", "%given"), ("keywords", "%named")):
        f.need(
            w.emit(f"icmp eq i64 {f.at(header, getattr(Header, name).offset, 'i64')}, {value}"),
            failed,
        )
    f.need(w.emit(f"icmp eq ptr {f.item('%seen', _ENTRY.index('choice'))}, %choice"), failed)
    expected = f.item("%seen", _ENTRY.index("keywords"))
    with w.loop("0", "%named", 1) as loop:
        pair = (
            w.gep(
                "ptr",
                w.emit(f"getelementptr i8, ptr {names}, i64 {objects.tuple_items}"),
                loop.index,
            )
            for names in (expected, "%keywords")
        )
        wanted, given = (w.load("ptr", name, 8) for name in pair)
        with w.when(w.emit(f"icmp ne ptr {wanted}, {given}"), likely=False):
            same = w.call(
                "PyObject_RichCompareBool", "i32", [("ptr", wanted), ("ptr", given), ("i32", "2")]
            )
            f.need(w.emit(f"icmp eq i32 {same}, 1"), failed)
    checks = w.emit(f"getelementptr i8, ptr {header}, i64 {ctypes.sizeof(Header)}")
    with w.loop("0", f.at(header, Header.checks.offset, "i64"), 1) as loop:
        check = w.emit(
            f"getelementptr [{ctypes.sizeof(Check)} x i8], ptr {checks}, i64 {loop.index}"
        )
        source = w.emit(f"zext i32 {f.at(check, Check.source.offset, 'i32')} to i64")
        value = w.load("ptr", w.gep("ptr", "%arguments", source), 8)
        held = w.new_block("held")
        if objects.int_signs:
            # most of many arguments are small integers: they take no call
            integer, other = w.new_block("integer"), w.new_block("other")
            condition = f.at(check, Check.condition.offset, "i32")
            w.branch_if(
                w.emit(f"icmp eq i32 {condition}, {int(CheckKind.INTEGER)}"), integer, other
            )
            w.place(integer)
            number = read_short_integer(w, objects, value, other)
            _need_number(
                f,
                number,
                [f.at(check, getattr(Check, name).offset, "i64") for name in "abcd"],
                failed,
            )
            w.branch(held)
            w.place(other)
        f.need(w.emit(f"call i1 @holds(ptr {check}, ptr {value})"), failed)
        w.branch(held)
        w.place(held)
    w.ret("i1 true")
    f.give_false(failed)


def pick(f: Writer, source: str, defaults: str) -> str:
    """Return the object that a source (i32) names for a call of ``%arguments``, borrowed.

    ``defaults`` is the tuple of values that are not among the arguments.
    """
    w = f.w
    given, default, join = w.new_block("given"), w.new_block("default"), w.new_block("join")
    w.branch_if(w.emit(f"icmp ult i32 {source}, {DEFAULT}"), given, default, likely=True)
    w.place(given)
    argument = w.load("ptr", w.gep("ptr", "%arguments", w.emit(f"zext i32 {source} to i64")), 8)
    w.branch(join)
    w.place(default)
    position = w.emit(f"zext i32 {w.emit(f'and i32 {source}, {DEFAULT - 1}')} to i64")
    items = w.emit(f"getelementptr i8, ptr {defaults}, i64 {f.objects.tuple_items}")
    kept = w.load("ptr", w.gep("ptr", items, position), 8)
    w.branch(join)
    w.place(join)
    return w.phi("ptr", ((argument, given), (kept, default)))


def pick_all(f: Writer, sources: str, count: str, defaults: str, items: str) -> None:
    """Put the objects that ``count`` sources name into a new tuple's ``items``, owned by it."""
    w = f.w
    with w.loop("0", count, 1) as loop:
        value = pick(f, w.load("i32", w.gep("i32", sources, loop.index), 4), defaults)
        f.hold(value)
        w.store("ptr", value, w.gep("ptr", items, loop.index), 8)


def call_with_names(
    f: Writer, function: str, names: str, count: str, sources: str, defaults: str
) -> str:
    """Call a function with a dict of the objects that ``count`` sources name.

    The names are those of a tuple. The result is a new reference; null where the function raises.
    """
    w = f.w
    failed, dropped, called = w.new_block("failed"), w.new_block("dropped"), w.new_block("called")
    first = w.emit(f"getelementptr i8, ptr {names}, i64 {f.objects.tuple_items}")
    by_name = w.call("PyDict_New", "ptr", [])
    f.need(w.emit(f"icmp ne ptr {by_name}, null"), failed)
    with w.loop("0", count, 1) as loop:
        value = pick(f, w.load("i32", w.gep("i32", sources, loop.index), 4), defaults)
        name = w.load("ptr", w.gep("ptr", first, loop.index), 8)
        status = w.call("PyDict_SetItem", "i32", [("ptr", by_name), ("ptr", name), ("ptr", value)])
        f.need(w.emit(f"icmp eq i32 {status}, 0"), dropped)
    call = w.alloca("ptr", 2, 8)
    given = w.gep("ptr", call, 1)  # behind the word that a callee may use
    w.store("ptr", by_name, given, 8)
    result = w.call(
        "PyObject_Vectorcall",
        "ptr",
        [
            ("ptr", function),
            ("ptr", given),
            ("i64", str(1 + native_functions.ARGUMENTS_OFFSET)),
            ("ptr", "null"),
        ],
    )
    f.drop(by_name)
    before = w.current
    w.branch(called)
    w.place(dropped)
    f.drop(by_name)
    w.branch(failed)
    w.place(failed)
    w.branch(called)
    w.place(called)
    return w.phi("ptr", ((result, before), ("null", failed)))


def sources_of(f: Writer, header: str, checks: str) -> str:
    """Where a table's sources begin."""
    size = f.w.emit(f"mul i64 {checks}, {ctypes.sizeof(Check)}")
    return f.w.emit(
        f"getelementptr i8, ptr {header}, i64 "
        f"{f.w.emit(f'add i64 {size}, {ctypes.sizeof(Header)}')}"
    )


def write_entry_search(
    module: ModuleWriter,
    objects: native_functions.Layout,
    name: str,
    start: str,
    bound: tuple[str, ...],
) -> None:
    """Write the builtin function ``name``: search the entries for one that describes the call.

    The function ``start`` starts that entry; without one, Python is called.

    Args:
        bound: the items of what the function is bound to.
    """
    f = Writer(
        module,
        objects,
        name,
        [("ptr", "self"), ("ptr", "arguments"), ("i64", "given"), ("ptr", "keywords")],
        "ptr",
        "",
    )
    w = f.w
    slow, named, counted = w.new_block("slow"), w.new_block("named"), w.new_block("counted")
    f.need(w.emit("icmp sgt i64 %given, 0"), slow)
    for hooks in (item for item in bound if item.endswith("_hooks")):
        size = w.call("PyList_Size", "i64", [("ptr", f.item("%self", bound.index(hooks)))])
        f.need(w.emit(f"icmp eq i64 {size}, 0"), slow)
    begin = w.current
    w.branch_if(w.emit("icmp eq ptr %keywords, null"), counted, named)
    w.place(named)
    size = f.size("%keywords")
    w.branch(counted)
    w.place(counted)
    keywords = w.phi("i64", (("0", begin), (size, named)))
    total = w.emit(f"add i64 %given, {keywords}")
    f.need(w.emit(f"icmp sle i64 {total}, {MAX_ARGUMENTS}"), slow)
    choice_place = w.alloca("ptr", 1, 8)
    w.store("ptr", "null", choice_place, 8)
    status = w.call(
        "PyContextVar_Get",
        "i32",
        [("ptr", f.item("%self", bound.index("choice"))), ("ptr", "null"), ("ptr", choice_place)],
    )
    unchosen = w.new_block("unchosen")
    f.need(w.emit(f"icmp eq i32 {status}, 0"), unchosen)
    choice = w.load("ptr", choice_place, 8)
    f.drop(choice)  # only compared from here on, with what entries hold
    entries = w.call(
        "PyList_GetItem", "ptr", [("ptr", f.item("%self", bound.index("entries"))), ("i64", "0")]
    )
    items = w.emit(f"getelementptr i8, ptr {entries}, i64 {objects.tuple_items}")
    hit = w.new_block("hit")
    with w.loop("0", f.size(entries), 1) as loop:
        entry = w.load("ptr", w.gep("ptr", items, loop.index), 8)
        operands = (
            f"ptr {entry}, ptr %arguments, i64 {total}, ptr %keywords, i64 {keywords}, ptr {choice}"
        )
        following = w.new_block("following")
        w.branch_if(w.emit(f"call i1 @matches({operands})"), hit, following)
        w.place(following)
    w.branch(slow)

    w.place(hit)
    f.hold(entry)  # another thread may replace it meanwhile
    result = w.emit(
        f"call ptr @{start}(ptr %self, ptr {entry}, ptr %arguments, i64 %given, i64 {total}, "
        "ptr %keywords)"
    )
    f.drop(entry)
    done = w.new_block("done")
    w.branch_if(w.emit(f"icmp eq ptr {result}, @declined"), slow, done, likely=False)
    w.place(done)
    w.ret(f"ptr {result}")

    w.place(unchosen)
    w.ret("ptr null")
    w.place(slow)
    python = f.item("%self", bound.index("python"))
    result = w.call(
        "PyObject_Vectorcall",
        "ptr",
        [("ptr", python), ("ptr", "%arguments"), ("i64", "%given"), ("ptr", "%keywords")],
    )
    w.ret(f"ptr {result}")
