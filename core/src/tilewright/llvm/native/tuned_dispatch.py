"""Native dispatch of ``autotuner[grid](...)`` to the chosen configuration, without Python.

A builtin function ``dispatch_tuned(grid, *args, **keywords)`` is bound to the tuple of
:data:`BOUND`. Its *entries* describe calls by their form: how many arguments there are, which by
keyword, and the types of them that the tuning key tells apart (:mod:`.dispatch_entries`). For a
call that an entry describes the tuning key is put together, the autotuner's ``cache`` is asked for
its configuration, and ``autotuner.fn[grid]`` is called with what the configuration adds. Where no
entry fits, or the cache has no such key, the same call goes to the Python function.

Everything that a program may set between two launches is read at each: ``cache``, ``configs``,
``fn``, and what a configuration says.
"""

from __future__ import annotations

import ctypes
from typing import Final

from tilewright.llvm.emission.writer import BasicBlock, ModuleWriter
from tilewright.llvm.native import native_functions
from tilewright.llvm.native.dispatch import dispatch_module
from tilewright.llvm.native.dispatch_entries import (
    DEFAULT,
    MAX_ARGUMENTS,
    Header,
    Writer,
    call_with_names,
    entry_items,
    pick,
    pick_all,
    sources_of,
    write_entry_search,
)
from tilewright.llvm.native.native_functions import Layout

#: The items of what the function is bound to: the Python function, the context variable of the
#: chosen backend, a list whose one item is the tuple of entries, and the autotuner.
BOUND: Final = ("python", "choice", "entries", "tuner")
#: The items of an entry. Its table is that of an entry of a kernel: its values are the arguments of
#: the tuning key. ``chosen`` is a list whose one item is the tuple of what calls of each
#: configuration add, ``types`` the key's last item, or False where the only configuration is taken
#: without a key. ``kernel`` is the type of ``autotuner.fn`` where its method ``launch_function``
#: says what its brackets bind to a grid; else None.
ENTRY: Final = entry_items("chosen", "types", "kernel")
#: What a configuration adds to calls: ``settings`` are the configuration's attributes, equal to
#: ``known`` as long as the rest is right; ``keywords`` the names of all arguments by keyword,
#: ``sources`` where they come from, as bytes, ``values`` what the configuration adds. ``hook`` is
#: its ``pre_hook``, or None, which is given a dict of ``hook_names``, from ``hook_sources``.
CHOSEN: Final = (
    "config",
    "settings",
    "known",
    "keywords",
    "sources",
    "values",
    "hook",
    "hook_names",
    "hook_sources",
)


def dispatchers_ir(objects: Layout) -> str:
    """Return the module of the functions ``dispatch`` and ``dispatch_tuned``, and ``addresses``."""
    module = dispatch_module(objects)
    _write_key(module, objects)
    _write_config_of(module, objects)
    _write_chosen_of(module, objects)
    _write_call_hook(module, objects)
    _write_start(module, objects)
    write_entry_search(module, objects, "dispatch_tuned", "tuned_start", BOUND)
    return module.text()


class _TunedWriter(Writer):
    def attribute(self, object_: str, name: str, otherwise: BasicBlock) -> str:
        """Return an attribute of an object, a new reference.

        Without it, branch to ``otherwise`` with an exception set.
        """
        found = self.w.call(
            "PyObject_GetAttr",
            "ptr",
            [("ptr", object_), ("ptr", native_functions.address(self.w, f"{name}_name"))],
        )
        self.need(self.w.emit(f"icmp ne ptr {found}, null"), otherwise)
        return found

    def tuner(self) -> str:
        return self.item("%self", BOUND.index("tuner"))

    def fields(self, object_: str, names: tuple[str, ...], *wanted: str) -> list[str]:
        return [self.item(object_, names.index(name)) for name in wanted]

    def bytes_of(self, object_: str) -> str:
        return self.w.emit(f"getelementptr i8, ptr {object_}, i64 {self.objects.bytes_data}")


def _write_key(module: ModuleWriter, objects: Layout) -> None:
    """Write ``key_of(seen, arguments)``: the tuning key of a call that an entry describes.

    It is a new reference; null with an exception where there is no memory.
    """
    f = _TunedWriter(module, objects, "key_of", [("ptr", "seen"), ("ptr", "arguments")], "ptr")
    w = f.w
    failed = w.new_block("failed")
    header = f.table_of("%seen")
    checks, count = (
        f.at(header, getattr(Header, name).offset, "i64") for name in ("checks", "values")
    )
    key = w.call("PyTuple_New", "ptr", [("i64", w.emit(f"add i64 {count}, 2"))])
    f.need(w.emit(f"icmp ne ptr {key}, null"), failed)
    items = w.emit(f"getelementptr i8, ptr {key}, i64 {objects.tuple_items}")
    sources = sources_of(f, header, checks)
    defaults = f.item("%seen", ENTRY.index("defaults"))
    pick_all(f, sources, count, defaults, items)
    for further, value in enumerate(f.fields("%seen", ENTRY, "choice", "types")):
        f.hold(value)
        w.store("ptr", value, w.gep("ptr", items, w.emit(f"add i64 {count}, {further}")), 8)
    w.ret(f"ptr {key}")
    w.place(failed)
    w.ret("ptr null")


def _write_config_of(module: ModuleWriter, objects: Layout) -> None:
    """Write ``config_of(self, seen, arguments)``: the configuration of a call.

    An entry describes the call. It is a new reference; null where Python is to look for it.
    """
    f = _TunedWriter(
        module,
        objects,
        "config_of",
        [("ptr", "self"), ("ptr", "seen"), ("ptr", "arguments")],
        "ptr",
    )
    w = f.w
    failed, unlike, keyed, single, many = (
        w.new_block(name) for name in ("failed", "unlike", "keyed", "single", "many")
    )
    held = w.alloca("ptr", 2, 8)
    second = w.gep("ptr", held, 1)
    (types,) = f.fields("%seen", ENTRY, "types")
    w.branch_if(
        w.emit(f"icmp eq ptr {types}, {native_functions.address(w, 'false')}"),
        single,
        keyed,
        likely=False,
    )

    w.place(keyed)
    key = w.emit("call ptr @key_of(ptr %seen, ptr %arguments)")
    f.need(w.emit(f"icmp ne ptr {key}, null"), failed)
    w.store("ptr", key, held, 8)
    cache = f.attribute(f.tuner(), "cache", unlike)
    w.store("ptr", cache, second, 8)
    f.need(f.is_type(cache, native_functions.address(w, "dict")), many)
    config = w.call("PyDict_GetItemWithError", "ptr", [("ptr", cache), ("ptr", key)])
    f.need(w.emit(f"icmp ne ptr {config}, null"), many)
    f.hold(config)
    f.drop(key, cache)
    w.ret(f"ptr {config}")
    w.place(many)
    f.drop(w.load("ptr", second, 8))
    w.branch(unlike)

    w.place(single)
    measures = f.attribute(f.tuner(), "measures_one", failed)
    f.drop(measures)  # only compared
    f.need(w.emit(f"icmp eq ptr {measures}, {types}"), failed)
    configs = f.attribute(f.tuner(), "configs", failed)
    w.store("ptr", configs, held, 8)
    f.need(f.is_type(configs, native_functions.address(w, "list")), unlike)
    f.need(w.emit(f"icmp eq i64 {w.call('PyList_Size', 'i64', [('ptr', configs)])}, 1"), unlike)
    only = w.call("PyList_GetItem", "ptr", [("ptr", configs), ("i64", "0")])
    f.hold(only)
    f.drop(configs)
    w.ret(f"ptr {only}")

    w.place(unlike)
    f.drop(w.load("ptr", held, 8))
    w.branch(failed)
    w.place(failed)
    w.call("PyErr_Clear", "void", [])
    w.ret("ptr null")


def _write_chosen_of(module: ModuleWriter, objects: Layout) -> None:
    """Write ``chosen_of(seen, config)``: the arguments that a configuration adds to calls.

    It is a new reference; null where Python is to find it.
    """
    f = _TunedWriter(module, objects, "chosen_of", [("ptr", "seen"), ("ptr", "config")], "ptr")
    w = f.w
    failed, found = w.new_block("failed"), w.new_block("found")
    (listed,) = f.fields("%seen", ENTRY, "chosen")
    every = w.call("PyList_GetItem", "ptr", [("ptr", listed), ("i64", "0")])
    items = w.emit(f"getelementptr i8, ptr {every}, i64 {objects.tuple_items}")
    with w.loop("0", f.size(every), 1) as loop:
        chosen = w.load("ptr", w.gep("ptr", items, loop.index), 8)
        following = w.new_block("following")
        w.branch_if(
            w.emit(f"icmp eq ptr {f.item(chosen, CHOSEN.index('config'))}, %config"),
            found,
            following,
        )
        w.place(following)
    w.branch(failed)
    w.place(found)
    f.hold(chosen)
    settings, known = f.fields(chosen, CHOSEN, "settings", "known")
    same, other = w.new_block("same"), w.new_block("other")
    equal = w.call(
        "PyObject_RichCompareBool", "i32", [("ptr", settings), ("ptr", known), ("i32", "2")]
    )
    w.branch_if(w.emit(f"icmp eq i32 {equal}, 1"), same, other, likely=True)
    w.place(same)
    w.ret(f"ptr {chosen}")
    w.place(other)
    f.drop(chosen)
    w.call("PyErr_Clear", "void", [])
    w.branch(failed)
    w.place(failed)
    w.ret("ptr null")


def _write_call_hook(module: ModuleWriter, objects: Layout) -> None:
    """Write ``call_hook(chosen, arguments)``: call a configuration's hook on arguments by name.

    It is false where the hook raises.
    """
    f = _TunedWriter(module, objects, "call_hook", [("ptr", "chosen"), ("ptr", "arguments")], "i1")
    w = f.w
    failed = w.new_block("failed")
    hook, names, sources, values = f.fields(
        "%chosen", CHOSEN, "hook", "hook_names", "hook_sources", "values"
    )
    result = call_with_names(f, hook, names, f.size(names), f.bytes_of(sources), values)
    f.need(w.emit(f"icmp ne ptr {result}, null"), failed)
    f.drop(result)
    w.ret("i1 true")
    f.give_false(failed)


def _write_start(module: ModuleWriter, objects: Layout) -> None:
    """Write ``tuned_start(self, seen, arguments, given, total, keywords)``.

    It does as ``start`` of :mod:`.dispatch`.
    """
    parameters = [
        ("ptr", "self"),
        ("ptr", "seen"),
        ("ptr", "arguments"),
        ("i64", "given"),
        ("i64", "total"),
        ("ptr", "keywords"),
    ]
    f = _TunedWriter(module, objects, "tuned_start", parameters, "ptr")
    w = f.w
    declined, unchosen, raised = (w.new_block(name) for name in ("declined", "unchosen", "raised"))
    config = w.emit("call ptr @config_of(ptr %self, ptr %seen, ptr %arguments)")
    f.need(w.emit(f"icmp ne ptr {config}, null"), declined)
    chosen = w.emit(f"call ptr @chosen_of(ptr %seen, ptr {config})")
    f.need(w.emit(f"icmp ne ptr {chosen}, null"), unchosen)
    tuner = f.tuner()
    status = w.call(
        "PyObject_SetAttr",
        "i32",
        [("ptr", tuner), ("ptr", native_functions.address(w, "best_config_name")), ("ptr", config)],
    )
    f.need(w.emit(f"icmp eq i32 {status}, 0"), raised)
    hook, keywords, sources, values = f.fields(
        chosen, CHOSEN, "hook", "keywords", "sources", "values"
    )
    hooked, unhooked = w.new_block("hooked"), w.new_block("unhooked")
    w.branch_if(
        w.emit(f"icmp eq ptr {hook}, {native_functions.address(w, 'none')}"),
        unhooked,
        hooked,
        likely=True,
    )
    w.place(hooked)
    f.need(w.emit(f"call i1 @call_hook(ptr {chosen}, ptr %arguments)"), raised)
    w.branch(unhooked)

    w.place(unhooked)
    kernel = f.attribute(tuner, "fn", raised)
    found, ask, bracket, bound, direct = (
        w.new_block(name) for name in ("found", "ask", "bracket", "bound", "direct")
    )
    # what is called, and the first of the call's arguments that it is given
    function, offset = w.alloca("ptr", 1, 8), w.alloca("i64", 1, 8)
    (kind,) = f.fields("%seen", ENTRY, "kernel")
    w.branch_if(f.is_type(kernel, kind), ask, bracket, likely=True)

    w.place(ask)
    receiver = w.alloca("ptr", 2, 8)
    w.store("ptr", kernel, w.gep("ptr", receiver, 1), 8)
    asked = [
        ("ptr", native_functions.address(w, "launch_function_name")),
        ("ptr", w.gep("ptr", receiver, 1)),
        ("i64", str(1 + native_functions.ARGUMENTS_OFFSET)),
        ("ptr", "null"),
    ]
    answer = w.call("PyObject_VectorcallMethod", "ptr", asked)
    unasked = w.new_block("unasked")
    f.need(w.emit(f"icmp ne ptr {answer}, null"), unasked)
    w.branch_if(
        w.emit(f"icmp eq ptr {answer}, {native_functions.address(w, 'none')}"),
        bound,
        direct,
        likely=False,
    )
    w.place(bound)
    f.drop(answer)
    w.branch(bracket)
    w.place(direct)
    f.drop(kernel)
    w.store("ptr", answer, function, 8)
    w.store("i64", "0", offset, 8)
    w.branch(found)

    w.place(bracket)
    launch = w.call(
        "PyObject_GetItem", "ptr", [("ptr", kernel), ("ptr", w.load("ptr", "%arguments", 8))]
    )
    f.need(w.emit(f"icmp ne ptr {launch}, null"), unasked)
    f.drop(kernel)
    w.store("ptr", launch, function, 8)
    w.store("i64", "1", offset, 8)
    w.branch(found)
    w.place(unasked)
    f.drop(kernel)
    w.branch(raised)

    w.place(found)
    launch, first = w.load("ptr", function, 8), w.load("i64", offset, 8)
    space = w.alloca("ptr", MAX_ARGUMENTS + 2, 8)
    call = w.gep("ptr", space, 1)  # behind the word that a callee may use
    with w.loop("0", "%given", 1) as loop:
        w.store(
            "ptr",
            w.load("ptr", w.gep("ptr", "%arguments", loop.index), 8),
            w.gep("ptr", call, loop.index),
            8,
        )
    named, places, count = w.gep("ptr", call, "%given"), f.bytes_of(sources), f.size(keywords)
    with w.loop("0", count, 1) as loop:
        value = pick(f, w.load("i32", w.gep("i32", places, loop.index), 4), values)
        w.store("ptr", value, w.gep("ptr", named, loop.index), 8)
    positional = w.emit(
        f"or i64 {w.emit(f'sub i64 %given, {first}')}, {native_functions.ARGUMENTS_OFFSET}"
    )
    names = w.emit(f"select i1 {w.emit(f'icmp eq i64 {count}, 0')}, ptr null, ptr {keywords}")
    result = w.call(
        "PyObject_Vectorcall",
        "ptr",
        [("ptr", launch), ("ptr", w.gep("ptr", call, first)), ("i64", positional), ("ptr", names)],
    )
    f.drop(launch, chosen, config)
    w.ret(f"ptr {result}")

    w.place(raised)
    f.drop(chosen, config)
    w.ret("ptr null")
    w.place(unchosen)
    f.drop(config)
    w.branch(declined)
    w.place(declined)
    w.ret("ptr @declined")


def sources_bytes(sources: tuple[int, ...]) -> bytes:
    """Encode sources for :data:`CHOSEN`.

    They are positions in the call, or with :data:`DEFAULT` set among the values.
    """
    return bytes((ctypes.c_uint32 * len(sources))(*sources))


__all__ = ["BOUND", "CHOSEN", "DEFAULT", "ENTRY", "dispatchers_ir", "sources_bytes"]
