"""Native dispatch of ``kernel[grid](...)``: lookup of the kernel and its launch, without Python.

A builtin function ``dispatch(grid, *args, **keywords)`` is bound to the tuple of :data:`BOUND`. It
looks through *entries*, each of which describes launches seen before as conditions on the arguments
(:mod:`.dispatch_entries`); the first whose conditions hold is started. Where none fits, or where
anything else is unusual (a hook is set, a grid is not of plain ints), the same call goes to the
Python function, which can do everything.

The values of an entry's table are the launcher's; its arguments by name are those that a grid
function is given.
"""

from __future__ import annotations

from typing import Final

from tilewright.llvm.emission.writer import ModuleWriter
from tilewright.llvm.native import native_functions
from tilewright.llvm.native.dispatch_entries import (
    MAX_ARGUMENTS,
    Header,
    Writer,
    call_with_names,
    entry_items,
    pick_all,
    sources_of,
    write_entry_search,
    write_search_functions,
)

#: The items of what the function is bound to: the Python function, the context variable of the
#: chosen backend, the lists of hooks around launches, and a list whose one item is the tuple of
#: entries.
BOUND: Final = ("python", "choice", "enter_hooks", "exit_hooks", "entries")
#: The items of an entry.
ENTRY: Final = entry_items("launcher", "kernel", "names")
#: Maximum extents of a grid that are started from here, so that the number of programs fits 63
#: bits.
_EXTENTS: Final = (2**31 - 1, 65535, 65535)


def dispatch_module(objects: native_functions.Layout) -> ModuleWriter:
    """A module with the function ``dispatch`` and the global ``addresses``."""
    module = ModuleWriter("nounwind")
    native_functions.declare_addresses(module)
    write_search_functions(module, objects)
    _write_extent(module, objects)
    _write_grid(module, objects)
    _write_ask_grid(module, objects)
    _write_start(module, objects)
    write_entry_search(module, objects, "dispatch", "start", BOUND)
    return module


def _write_extent(module: ModuleWriter, objects: native_functions.Layout) -> None:
    """``extent(object, limit)``: whether an object is an int of 1 to ``limit``."""
    f = Writer(module, objects, "extent", [("ptr", "object"), ("i64", "limit")], "i1")
    w = f.w
    failed, slot = w.new_block("failed"), w.alloca("i64", 1, 8)
    f.need(f.is_type("%object", native_functions.address(w, "int")), failed)
    f.need(w.emit(f"call i1 @read_signed(ptr %object, ptr {slot})"), failed)
    below = w.emit(f"sub i64 {w.load('i64', slot, 8)}, 1")
    w.ret(f"i1 {w.emit(f'icmp ult i64 {below}, %limit')}")
    f.give_false(failed)


def _write_grid(module: ModuleWriter, objects: native_functions.Layout) -> None:
    """Write ``grid_of(grid)``: a new reference to a tuple of three sizes.

    It is null without an exception where the grid is neither a tuple of plain ints nor an int.
    """
    f = Writer(module, objects, "grid_of", [("ptr", "grid")], "ptr")
    w = f.w
    failed, number, sizes, checked = (
        w.new_block(name) for name in ("failed", "number", "sizes", "checked")
    )
    one = native_functions.address(w, "one")
    extents = [w.alloca("ptr", 1, 8) for _ in _EXTENTS]
    for place in extents:
        w.store("ptr", one, place, 8)
    w.branch_if(
        f.is_type("%grid", native_functions.address(w, "tuple")), sizes, number, likely=True
    )
    w.place(number)
    w.store("ptr", "%grid", extents[0], 8)
    w.branch(checked)
    w.place(sizes)
    size = f.size("%grid")
    f.need(w.emit(f"icmp ult i64 {w.emit(f'sub i64 {size}, 1')}, {len(_EXTENTS)}"), failed)
    for axis, place in enumerate(extents):
        if axis:
            more = w.new_block("more")
            w.branch_if(w.emit(f"icmp ugt i64 {size}, {axis}"), more, checked)
            w.place(more)
        w.store("ptr", f.item("%grid", axis), place, 8)
    w.branch(checked)
    w.place(checked)
    found = [w.load("ptr", place, 8) for place in extents]
    for value, limit in zip(found, _EXTENTS, strict=True):
        f.need(w.emit(f"call i1 @extent(ptr {value}, i64 {limit})"), failed)
    made = w.call("PyTuple_New", "ptr", [("i64", str(len(_EXTENTS)))])
    f.need(w.emit(f"icmp ne ptr {made}, null"), failed)
    for axis, value in enumerate(found):
        f.hold(value)
        w.store(
            "ptr",
            value,
            w.emit(f"getelementptr i8, ptr {made}, i64 {objects.tuple_items + 8 * axis}"),
            8,
        )
    w.ret(f"ptr {made}")
    w.place(failed)
    w.call("PyErr_Clear", "void", [])
    w.ret("ptr null")


def _write_ask_grid(module: ModuleWriter, objects: native_functions.Layout) -> None:
    """Write ``ask_grid(seen, arguments)``: call the grid function on the arguments by name.

    The result is a new reference; null where the function raises.
    """
    f = Writer(module, objects, "ask_grid", [("ptr", "seen"), ("ptr", "arguments")], "ptr")
    w = f.w
    header, defaults = f.table_of("%seen"), f.item("%seen", ENTRY.index("defaults"))
    checks, values, count = (
        f.at(header, getattr(Header, name).offset, "i64") for name in ("checks", "values", "names")
    )
    sources = w.gep("i32", sources_of(f, header, checks), values)
    grid = w.load("ptr", "%arguments", 8)
    names = f.item("%seen", ENTRY.index("names"))
    w.ret(f"ptr {call_with_names(f, grid, names, count, sources, defaults)}")


def _write_start(module: ModuleWriter, objects: native_functions.Layout) -> None:
    """Write ``start(self, seen, arguments, given, total, keywords)``: launch an entry's kernel.

    The result is a new reference to the kernel, null where something raised, ``@declined`` where
    nothing was done yet. ``given`` counts positional arguments, ``total`` all.
    """
    parameters = [
        ("ptr", "self"),
        ("ptr", "seen"),
        ("ptr", "arguments"),
        ("i64", "given"),
        ("i64", "total"),
        ("ptr", "keywords"),
    ]
    f = Writer(module, objects, "start", parameters, "ptr")
    w = f.w
    raised, declined = w.new_block("raised"), w.new_block("declined")
    asked, plain, sized = w.new_block("asked"), w.new_block("plain"), w.new_block("sized")
    grid = w.load("ptr", "%arguments", 8)
    is_plain = w.emit(
        f"or i1 {f.is_type(grid, native_functions.address(w, 'tuple'))}, "
        f"{f.is_type(grid, native_functions.address(w, 'int'))}"
    )
    w.branch_if(is_plain, plain, asked, likely=True)

    w.place(plain)
    given_sizes = w.emit(f"call ptr @grid_of(ptr {grid})")
    f.need(w.emit(f"icmp ne ptr {given_sizes}, null"), declined)
    plain = w.current
    w.branch(sized)

    w.place(asked)
    f.need(w.emit(f"icmp ne i32 {w.call('PyCallable_Check', 'i32', [('ptr', grid)])}, 0"), declined)
    said = w.emit("call ptr @ask_grid(ptr %seen, ptr %arguments)")
    f.need(w.emit(f"icmp ne ptr {said}, null"), raised)
    listed, joined, before = w.new_block("listed"), w.new_block("joined"), w.current
    w.branch_if(f.is_type(said, native_functions.address(w, "list")), listed, joined)
    w.place(listed)
    as_tuple = w.call("PyList_AsTuple", "ptr", [("ptr", said)])
    f.drop(said)
    f.need(w.emit(f"icmp ne ptr {as_tuple}, null"), raised)
    listed = w.current
    w.branch(joined)
    w.place(joined)
    answer = w.phi("ptr", ((said, before), (as_tuple, listed)))
    odd, found = w.new_block("odd"), w.new_block("found")
    is_plain = w.emit(
        f"or i1 {f.is_type(answer, native_functions.address(w, 'tuple'))}, "
        f"{f.is_type(answer, native_functions.address(w, 'int'))}"
    )
    f.need(is_plain, odd)
    asked_sizes = w.emit(f"call ptr @grid_of(ptr {answer})")
    w.branch_if(w.emit(f"icmp ne ptr {asked_sizes}, null"), found, odd, likely=True)
    # The function was asked and is not asked again: Python gets its answer in place of the grid.
    w.place(odd)
    copy = w.alloca("ptr", MAX_ARGUMENTS, 8)
    with w.loop("1", "%total", 1) as loop:
        w.store(
            "ptr",
            w.load("ptr", w.gep("ptr", "%arguments", loop.index), 8),
            w.gep("ptr", copy, loop.index),
            8,
        )
    w.store("ptr", answer, copy, 8)
    python = f.item("%self", BOUND.index("python"))
    result = w.call(
        "PyObject_Vectorcall",
        "ptr",
        [("ptr", python), ("ptr", copy), ("i64", "%given"), ("ptr", "%keywords")],
    )
    f.drop(answer)
    w.ret(f"ptr {result}")
    w.place(found)
    f.drop(answer)
    w.branch(sized)

    w.place(sized)
    sizes = w.phi("ptr", ((given_sizes, plain), (asked_sizes, found)))
    header = f.table_of("%seen")
    checks, count = (
        f.at(header, getattr(Header, name).offset, "i64") for name in ("checks", "values")
    )
    sources = sources_of(f, header, checks)
    values = w.call("PyTuple_New", "ptr", [("i64", count)])
    unsized = w.new_block("unsized")
    f.need(w.emit(f"icmp ne ptr {values}, null"), unsized)
    items, defaults = (
        w.emit(f"getelementptr i8, ptr {values}, i64 {objects.tuple_items}"),
        f.item("%seen", ENTRY.index("defaults")),
    )
    pick_all(f, sources, count, defaults, items)
    call = w.alloca("ptr", 4, 8)
    for position, value in enumerate((sizes, native_functions.address(w, "none"), values), 1):
        w.store("ptr", value, w.gep("ptr", call, position), 8)
    launcher = f.item("%seen", ENTRY.index("launcher"))
    arguments = [
        ("ptr", launcher),
        ("ptr", w.gep("ptr", call, 1)),
        ("i64", str(3 + native_functions.ARGUMENTS_OFFSET)),
        ("ptr", "null"),
    ]
    result = w.call("PyObject_Vectorcall", "ptr", arguments)
    f.drop(sizes, values)
    f.need(w.emit(f"icmp ne ptr {result}, null"), raised)
    f.drop(result)
    kernel = f.item("%seen", ENTRY.index("kernel"))
    f.hold(kernel)
    w.ret(f"ptr {kernel}")

    w.place(unsized)
    f.drop(sizes)
    w.branch(raised)
    w.place(raised)
    w.ret("ptr null")
    w.place(declined)
    w.ret("ptr @declined")
