"""Remedies in error messages: replacement code that quotes the kernel's own source.

They address mistakes common among users who know Python and NumPy better than the language.
"""

from __future__ import annotations

import ast
import builtins
from types import FunctionType
from typing import Any

from tilewright.errors import similar
from tilewright.frontend.errors import source_of
from tilewright.frontend.generator import ModuleGenerator
from tilewright.language.core import constexpr, tensor
from tilewright.language.core import tuple as tl_tuple

#: Packages whose functions work on arrays or numbers of the host.
_LIBRARIES = frozenset({"cmath", "cupy", "jax", "math", "numpy", "scipy", "torch"})
#: NumPy and PyTorch names of functions that the language spells differently.
_DEBUGGERS = frozenset({"IPython", "bdb", "debugpy", "ipdb", "pdb", "pudb"})
_OTHER_NAMES = {
    "absolute": "abs",
    "amax": "max",
    "amin": "min",
    "concat": "cat",
    "concatenate": "cat",
    "fabs": "abs",
    "fmax": "maximum",
    "fmin": "minimum",
    "matmul": "dot",
    "power": "extra.libdevice.pow",
    "pow": "extra.libdevice.pow",
    "prod": "reduce",
    "take": "gather",
    "tanh": "extra.libdevice.tanh",
    "transpose": "trans",
}
#: Methods that mutate a list -> the expression with the same outcome.
_OF_LISTS = {
    "append": "{value} = {value} + ({arguments},)",
    "extend": "{value} = {value} + tuple({arguments})",
    "insert": "{value} = {value}[:i] + (x,) + {value}[i:]",
    "pop": "{value} = {value}[:-1]",
    "remove": "{value} = {value}[:i] + {value}[i + 1:]",
    "clear": "{value} = ()",
    "reverse": "{value} = {value}[::-1]",
}


def of_library(fn: Any, name: str) -> str:
    """Suggest the language's counterpart of a host function called on a kernel's values."""
    from tilewright import language

    module = str(getattr(fn, "__module__", None) or "").partition(".")[0]
    if module == "pdb":
        return "write breakpoint()"
    if isinstance(fn, FunctionType) and module not in _LIBRARIES:
        return ""
    own = _OTHER_NAMES.get(name, name)
    return (
        f"use tl.{own}"
        if own in _OTHER_NAMES.values() or callable(getattr(language, own, None))
        else ""
    )


def of_import(node: ast.Import | ast.ImportFrom) -> str:
    """Suggest a replacement for the import of a debugger in a kernel."""
    modules = (
        [node.module or ""]
        if isinstance(node, ast.ImportFrom)
        else [alias.name for alias in node.names]
    )
    return (
        "stop with breakpoint(), under the reference interpreter"
        if any(module.partition(".")[0] in _DEBUGGERS for module in modules)
        else ""
    )


def of_builtin(name: str) -> str:
    """Suggest the language's function of the same name for an unsupported Python builtin."""
    from tilewright import language

    if not hasattr(builtins, name):
        return ""
    places = {f"tl.{name}": language, f"tl.extra.libdevice.{name}": language.extra.libdevice}
    return next(
        (f"use {text}" for text, module in places.items() if callable(getattr(module, name, None))),
        "",
    )


def of_call(g: ModuleGenerator, node: ast.Call, fn: Any, error: Exception) -> str:
    """Suggest fixes for a rejected call: non-constant arguments and misspelt keywords."""
    text = str(error)
    if "  help: " in "".join((text, *getattr(error, "__notes__", ()))):
        return ""
    if text.startswith("cannot convert") and text.endswith("of type tuple to tensor"):
        return (
            "a tile is made by tl.full, tl.arange or tl.load; tl.join and tl.cat put tiles together"
        )
    if text.startswith("zeros() is missing argument: 'dtype'"):
        return (
            "say what its elements are: "
            f"{source_of(node.func)}({', '.join((*map(source_of, node.args), 'tl.float32'))})"
        )
    if "constexpr" in text and not g.frame.function.__module__.startswith("tilewright."):
        return _to_constants(g, node)
    if text.startswith("arange() missing") and len(node.args) == 1:
        return f"a range begins somewhere: tl.arange(0, {source_of(node.args[0])})"
    if text.startswith("where() missing") and len(node.args) == 2 and not node.keywords:
        return (
            f"both values are given: tl.where({', '.join(map(source_of, node.args))}, 0) is 0 "
            "where the condition does not hold"
        )
    _, found, rest = text.partition("unexpected keyword argument '")
    if found:
        code = getattr(getattr(fn, "__wrapped__", fn), "__code__", None)
        names = (
            code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
            if code is not None
            else ()
        )
        return similar(rest.partition("'")[0], (name for name in names if not name.startswith("_")))
    return ""


def _to_constants(g: ModuleGenerator, node: ast.Call) -> str:
    """Name a call's run-time arguments, and suggest how to make them compile-time constants."""
    parameters: list[str] = []
    computed: list[str] = []
    for argument in (*node.args, *(keyword.value for keyword in node.keywords)):
        for name in (part.id for part in ast.walk(argument) if isinstance(part, ast.Name)):
            value = g.scope.get(name)
            if isinstance(value, tensor) and not value.dtype.is_ptr():
                found = parameters if name in g.frame.function.arg_names else computed
                found.extend([] if name in found else [name])
    mask = (
        "where it may be any number, take the next power of two as a constant instead, and a "
        "mask for what is beyond it"
    )
    if parameters:
        annotations = ", ".join(f"`{name}: tl.constexpr`" for name in parameters)
        verb, what = ("is", "an argument") if len(parameters) == 1 else ("are", "arguments")
        return (
            f"{' and '.join(parameters)} {verb} {what} known only when the kernel runs: "
            f"annotate {annotations} in the `def` of {g.frame.name}; {mask}"
        )
    if computed:
        verb = "is" if len(computed) == 1 else "are"
        return (
            f"{' and '.join(computed)} {verb} computed when the kernel runs: compute with "
            f"parameters that are annotated tl.constexpr; {mask}"
        )
    return ""


def of_method(g: ModuleGenerator, node: ast.Call, method: ast.Attribute) -> str:
    """Suggest a replacement for a mutating list method; lists are immutable tuples in kernels."""
    if (
        method.attr not in _OF_LISTS
        or not isinstance(method.value, ast.Name)
        or not isinstance(g.scope.get(method.value.id), tl_tuple)
    ):
        return ""
    arguments = ", ".join(map(source_of, node.args)) or "x"
    return (
        "lists are tuples here, and do not change: "
        f"`{_OF_LISTS[method.attr].format(value=method.value.id, arguments=arguments)}`"
    )


def of_index(node: ast.Subscript, value: tensor, index: Any) -> str:
    """Suggest a replacement for array-style indexing of a pointer or tensor."""
    of, at = source_of(node.value), source_of(node.slice)
    if value.dtype.is_ptr():
        at = (
            f"({at})"
            if isinstance(node.slice, ast.BinOp)
            and not isinstance(node.slice.op, ast.Add | ast.Mult)
            else at
        )
        if isinstance(node.slice, ast.Tuple):
            return (
                f"read memory with tl.load, at the offset of the element: tl.load({of} + row * "
                "stride + column)"
            )
        if isinstance(node.slice, ast.Slice):
            return f"read memory with tl.load: tl.load({of} + tl.arange(start, end))"
        return f"read memory with tl.load: tl.load({of} + {at})"
    if isinstance(index, tensor) and index.extents:
        return f"pick elements of a tile with tl.gather: tl.gather({of}, {at}, axis=0)"
    if len(value.extents) == 1 and (
        isinstance(index, tensor) or (type(index) is constexpr and isinstance(index.value, int))
    ):
        return (
            "sum up the tile without its other elements: tl.sum(tl.where(tl.arange(0, "
            f"{value.extents[0]}) == {at}, {of}, 0), axis=0)"
        )
    return "a tile has no parts: load the part that is needed, or pick elements with tl.gather"


def of_assignment(node: ast.Subscript, value: Any) -> str:
    """Suggest a replacement for an assignment to an element."""
    of, at = source_of(node.value), source_of(node.slice)
    if isinstance(value, tl_tuple):
        return f"lists are tuples here, and do not change: `{of} = {of}[:i] + (x,) + {of}[i + 1:]`"
    if (
        isinstance(value, tensor)
        and value.dtype.is_ptr()
        and not isinstance(node.slice, ast.Tuple | ast.Slice)
    ):
        return f"write to memory with tl.store: tl.store({of} + {at}, value)"
    return "tensors cannot be changed in place: use tl.where, or write to memory with tl.store"
