"""Dependencies of a function of the language: called functions, globals, and their key."""

from __future__ import annotations

import ast
import builtins
import contextlib
import enum
import hashlib
import sys
from collections.abc import Iterator
from types import CodeType, FunctionType, ModuleType
from typing import Any

from tilewright.ir.order import ANY
from tilewright.language.binding import is_builtin
from tilewright.language.definitions.callable import JitCallable
from tilewright.language.definitions.custom_derivative import CustomDerivative
from tilewright.language.value_types.base_classes import base_type
from tilewright.language.value_types.values import constexpr
from tilewright.plugins.versions import plugin_version, text_version

#: (name, id of the namespace) -> (value, namespace)
UsedGlobals = dict[tuple[str, int], tuple[Any, dict[str, Any]]]

#: Bits of an integer from which on its text is hexadecimal: Python writes no more than some
#: thousand decimal digits.
_LONG = 8192
_SIMPLE = (bool, int, float, complex, str, bytes, type(None))


class Dependencies:
    """One function's own part of a key: a digest of its text and globals, and its callees."""

    __slots__ = ("callees", "digest", "globals")

    def __init__(self, digest: str, used_globals: UsedGlobals, callees: list[JitCallable]) -> None:
        self.digest, self.globals, self.callees = digest, used_globals, callees


def cache_key(function: JitCallable) -> tuple[str, UsedGlobals]:
    """The key of ``function`` and the globals it was made with.

    The key covers every function reachable through calls, so it is sound for mutual recursion too:
    it is the hash of the sorted digests of all of them. Functions of this package count by name:
    what they are is in the package's version, which is a part of every key on disk. Builtins of
    backends count by name and the version of their distribution, those of other modules by name and
    their module's text.
    """
    used: UsedGlobals = {}
    found = []
    for current, own, digest in _reached(function):
        if current is not function:
            current.note_caller(function)
        if own is not None:
            used.update(own.globals)
        found.append(digest)
    first, rest = found[0], sorted(found[1:])
    return hashlib.sha256("\n".join((first, *rest)).encode()).hexdigest(), used


def digests(function: JitCallable) -> dict[str, str]:
    """Name -> digest of each function that the key of ``function`` is made of."""
    return {
        f"{current.__module__}.{current.__qualname__}": digest
        for current, _, digest in _reached(function)
    }


def _reached(function: JitCallable) -> Iterator[tuple[JitCallable, Dependencies | None, str]]:
    """Yield ``function`` and every function that it reaches through calls.

    Each comes with its own part, where that is looked at, and the digest that counts.
    """
    seen: dict[int, JitCallable] = {}
    pending = [function]
    while pending:
        current = pending.pop()
        if id(current) in seen:
            continue
        seen[id(current)] = current
        if current.fn is None:  # came from a pickle: its key is all there is
            yield current, None, str(current.hash)
        elif _is_own(current):
            yield current, None, f"{current.__module__}.{current.__qualname__}"
        else:
            own = dependencies(current)
            yield current, own, own.digest
            pending.extend(own.callees)


def _is_own(function: JitCallable) -> bool:
    """Return whether a function is this package's, at the top level of a module, unmodified."""
    module = sys.modules.get(function.__module__)
    return (
        (function.__module__ or "").partition(".")[0] == _PACKAGE
        and function._text is None
        and module is not None
        and vars(module).get(function.__qualname__) is function
    )


def dependencies(function: JitCallable) -> Dependencies:
    """The function's own dependencies, with the values its globals have now."""
    tree = function.parse()
    names = function._dependencies
    if names is None:
        names = function._dependencies = sorted(set(_free_chains(tree)))
    nonlocals, namespace = function.nonlocals, function.fn.__globals__
    used: UsedGlobals = {}
    callees: list[JitCallable] = []
    place = (
        f"{function.file}:{function.starting_line_number}:"
        f"{function.definition_line}:{function.indent}"
    )
    parts = [function.src, place, str(function.noinline)]
    if function.order != ANY:
        parts.append(function.order)
    if isinstance(function, CustomDerivative):
        parts.append(describe(function.rules, callees))
    parts.append(describe(function.fn.__defaults__, callees))
    parts.append(describe(function.fn.__kwdefaults__, callees))
    for chain in names:
        name, *attributes = chain
        if name in nonlocals:
            space, value = nonlocals, nonlocals[name]
        elif name in namespace:
            space, value = namespace, namespace[name]
        else:
            continue  # a builtin of Python, or unknown: the frontend reports it where it is used
        for attribute in attributes:
            if not isinstance(value, ModuleType):
                break
            found = value.__dict__.get(attribute, _MISSING)
            if found is _MISSING:  # a module that makes its attributes when they are asked for
                found = getattr(value, attribute, _MISSING)
            if found is _MISSING:
                break
            name, space, value = attribute, value.__dict__, found
        if function._host and isinstance(value, FunctionType) and not _is_trusted(value):
            raise RuntimeError(
                f"Unsupported function referenced: {value} by {function.__qualname__}, whose "
                "result would depend on what is no part of the kernel's key. Decorate it with "
                "constexpr_function, or pass its result to the kernel as a constexpr argument"
            )
        _add(value, name, space, used, callees, parts)
    return Dependencies(hashlib.sha256("\x00".join(parts).encode()).hexdigest(), used, callees)


_MISSING: Any = object()
_PACKAGE = __name__.partition(".")[0]
#: Packages whose functions are the same in every process, with their versions in the key of
#: compiled code or as good as fixed.
_TRUSTED = sys.stdlib_module_names | {"tilewright", "triton", "numpy"}


def _is_trusted(value: FunctionType) -> bool:
    """Return whether constexpr functions may call a plain function: its version is in keys."""
    # there is none where a program makes functions without a `__name__` among its globals
    module = value.__module__ or ""
    return module.partition(".")[0] in _TRUSTED or plugin_version(module) != ""


def _named(name: str, value: FunctionType | type) -> str:
    """A function or class by its name, with the version of what it is part of."""
    module, version = value.__module__ or "", ""
    if module.partition(".")[0] not in _TRUSTED:
        version = plugin_version(module) or (
            text_version(module) if is_builtin(value) and isinstance(value, FunctionType) else ""
        )
    return f"{name}={module}.{value.__qualname__} {version}"


def _add(
    value: Any,
    name: str,
    space: dict[str, Any],
    used: UsedGlobals,
    callees: list[JitCallable],
    parts: list[str],
) -> None:
    if isinstance(value, ModuleType):
        return
    if isinstance(value, JitCallable):
        callees.append(value)
    elif isinstance(value, type):
        parts.append(_named(name, value))
        _add_class(value, callees, parts)
    elif isinstance(value, FunctionType):
        parts.append(_named(name, value))
    elif name not in vars(builtins):
        text = describe(value, callees)
        if text:
            parts.append(f"{name}={text}")
            if value is not None:
                used[(name, id(space))] = (value, space)


def _add_class(cls: type, callees: list[JitCallable], parts: list[str]) -> None:
    """The functions that the meaning of a class depends on, its fields and their defaults."""
    if cls.__module__ == "builtins":
        return
    for member in getattr(cls, "hash_attrs", ()):
        if isinstance(member, JitCallable):
            callees.append(member)
        elif isinstance(member, FunctionType):
            code = member.__code__
            parts.append(
                f"{member.__name__}:{hashlib.sha256(code.co_code).hexdigest()}"
                f"{code.co_names}{describe(code.co_consts, callees)}"
            )
    annotations = getattr(cls, "_annotations", None)
    if isinstance(annotations, dict):
        parts.append(repr([(name, str(annotation)) for name, annotation in annotations.items()]))
        parts.append(describe(getattr(cls, "_defaults", None), callees))
    if issubclass(cls, enum.Enum):
        parts.append(repr([(member.name, describe(member.value, callees)) for member in cls]))
    fields = getattr(cls, "_fields", None)
    if fields is not None:
        parts.append(repr(fields))


def describe(value: Any, callees: list[JitCallable]) -> str:
    """Return a text that changes with the value and is the same in every process.

    It is empty for a value without such a text. Functions are added to ``callees``.
    """
    if isinstance(value, int) and value.bit_length() > _LONG:
        return f"{type(value).__name__}:{value:#x}"
    if isinstance(value, _SIMPLE):
        return f"{type(value).__name__}:{value!r}"
    if isinstance(value, constexpr):
        if isinstance(value.value, FunctionType):
            return f"constexpr({_code_text(value.value, callees, {})})"
        inner = describe(value.value, callees)
        return f"constexpr({inner})" if inner else ""
    if isinstance(value, base_type):
        return repr(value)
    if isinstance(value, JitCallable):
        callees.append(value)
        return f"{value.__module__}.{value.__qualname__}"
    if isinstance(value, tuple | list):
        return f"{type(value).__name__}({', '.join(describe(item, callees) for item in value)})"
    if isinstance(value, dict):
        items = (
            f"{describe(key, callees)}: {describe(item, callees)}" for key, item in value.items()
        )
        return f"dict({', '.join(items)})"
    if isinstance(value, enum.Enum):
        return f"{type(value).__module__}.{type(value).__qualname__}.{value.name}"
    return ""


def _code_text(
    function: FunctionType, callees: list[JitCallable], seen: dict[FunctionType, int]
) -> str:
    """Return a text of a plain function that kernels call at compile time.

    It covers its code, its defaults, and the values and functions that it may name.
    """
    if function in seen:
        return f"again {seen[function]}"
    seen[function] = len(seen)
    name = f"{function.__module__}.{function.__qualname__}"
    if _is_trusted(function):
        return f"{name} {plugin_version(function.__module__ or '')}"
    namespace = dict(function.__globals__)
    for cell_name, cell in zip(
        function.__code__.co_freevars, function.__closure__ or (), strict=True
    ):
        with contextlib.suppress(ValueError):  # not assigned yet
            namespace[cell_name] = cell.cell_contents
    parts = [
        name,
        describe(function.__defaults__, callees),
        describe(function.__kwdefaults__, callees),
    ]
    pending = [function.__code__]
    while pending:
        code = pending.pop()
        parts += (hashlib.sha256(code.co_code).hexdigest(), repr(code.co_names))
        parts += (
            describe(constant, callees)
            for constant in code.co_consts
            if not isinstance(constant, CodeType)
        )
        pending += (constant for constant in code.co_consts if isinstance(constant, CodeType))
        for used in (*code.co_names, *code.co_freevars):
            value = namespace.get(used)
            inner = value.value if isinstance(value, constexpr) else value
            text = (
                _code_text(inner, callees, seen)
                if isinstance(inner, FunctionType)
                else describe(value, callees)
            )
            parts.append(f"{used}={text}")
    return "\x00".join(parts)


def _free_chains(tree: ast.FunctionDef) -> Iterator[tuple[str, ...]]:
    """Yield the free names of a function, each with the attributes read of it.

    ``tl.math.exp`` is ``("tl", "math", "exp")``.

    A name is the function's own from where it is first assigned, in the order of the text.
    """
    arguments = tree.args
    local = {
        argument.arg
        for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)
    }
    local.update(
        argument.arg for argument in (arguments.vararg, arguments.kwarg) if argument is not None
    )
    chains: list[tuple[str, ...]] = []

    def read(name: str, *attributes: str) -> None:
        if name not in local:
            chains.append((name, *attributes))

    # An expression may be nested thousands deep, so what is left to visit stands in a list, the
    # next last.
    pending: list[ast.AST] = [*reversed(tree.body)]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Name):
            if isinstance(node.ctx, ast.Load):
                read(node.id)
            else:
                local.add(node.id)
        elif isinstance(node, ast.Attribute):
            attributes = [node.attr]
            inner: ast.AST = node.value
            while isinstance(inner, ast.Attribute):
                attributes.append(inner.attr)
                inner = inner.value
            if isinstance(inner, ast.Name):
                read(inner.id, *reversed(attributes))
            else:
                pending.append(inner)
        else:
            if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
                read(node.target.id)
            for field in reversed(_order(type(node))):
                child = getattr(node, field, None)
                if isinstance(child, ast.AST):
                    pending.append(child)
                elif isinstance(child, list):
                    pending.extend(item for item in reversed(child) if isinstance(item, ast.AST))
    return iter(chains)


def _order(kind: type[ast.AST]) -> tuple[str, ...]:
    """The fields of a piece of syntax in the order in which they are evaluated."""
    found = _ORDERS.get(kind)
    if found is None:
        first = _EVALUATED_FIRST.get(kind, ())
        found = _ORDERS[kind] = (
            *first,
            *(field for field in kind._fields if field not in first and field not in _NO_NAMES),
        )
    return found


_ORDERS: dict[type[ast.AST], tuple[str, ...]] = {}
#: Fields that hold no names of variables.
_NO_NAMES = ("ctx", "op", "ops", "kind", "type_comment")
#: Fields of a piece of syntax that are evaluated before those written before them.
_EVALUATED_FIRST: dict[type[ast.AST], tuple[str, ...]] = {
    ast.Assign: ("value",),
    ast.AnnAssign: ("annotation", "value"),
    ast.AugAssign: ("value",),
    ast.NamedExpr: ("value",),
    ast.For: ("iter",),
    ast.comprehension: ("iter",),
    ast.ListComp: ("generators",),
    ast.GeneratorExp: ("generators",),
    ast.SetComp: ("generators",),
    ast.DictComp: ("generators",),
}
