"""External functions of the launch's bitcode libraries (``extern_libs={name: path}``).

Each call is checked: the function exists, and its signature fits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tilewright.errors import LoweringError
from tilewright.ir.core import Module
from tilewright.ir.ops.debug import Extern
from tilewright.ir.types import Type, element_type
from tilewright.llvm.emission.registers import register_type
from tilewright.llvm.emission.writer import FunctionWriter

if TYPE_CHECKING:
    from tilewright.llvm.codegen.libraries import Libraries

#: (LLVM type at hand, type wanted) -> the instruction between them. Addresses are often numbers in
#: a kernel, booleans bytes in C.
_CONVERSIONS = {
    ("i64", "ptr"): "inttoptr",
    ("ptr", "i64"): "ptrtoint",
    ("i16", "bfloat"): "bitcast",
    ("bfloat", "i16"): "bitcast",
    ("i1", "i8"): "zext",
    ("i8", "i1"): "trunc",
}


def libraries_called(module: Module, given: Any, triple: str) -> Libraries | None:
    """Return the libraries that a module calls; None, without reading any file, if it calls none.

    Args:
        given: the launch option ``extern_libs``.
        triple: the target triple of the generated code.

    Raises:
        LoweringError: names the call and the function or signature that the libraries lack, or the
            file that is not a library for the target.
    """
    calls = [operation for operation in module.walk() if isinstance(operation, Extern)]
    if not calls:
        return None
    from tilewright.llvm.codegen.libraries import Libraries, paths_of

    libraries = Libraries(paths_of(given), triple)
    for operation in calls:
        _check(operation, libraries)
    return libraries


def _check(operation: Extern, libraries: Libraries) -> None:
    symbol, place = operation.symbol, f"extern at {operation.location}"
    if symbol not in libraries:
        given = str(libraries)
        has = (
            f"none of the libraries of extern_libs ({given}) has {symbol!r}"
            if given
            else f"no library is given that has {symbol!r}"
        )
        raise LoweringError(
            f"{place}: {has}; launch with extern_libs={{name: path of a bitcode file that has "
            "it}, or write it in the language"
        )
    if len(operation.results) != 1:
        raise LoweringError(
            f"{place}: {symbol!r} must give one result, not {len(operation.results)}"
        )
    result, parameters = libraries.signature(symbol)
    operands = [register_type(element_type(operand.type)) for operand in operation.inputs]
    own = register_type(element_type(operation.results[0].type))
    fits = (
        len(operands) == len(parameters)
        and all(map(_converts, operands, parameters))
        and (result == "void" or _converts(result, own))
    )
    if not fits:
        raise LoweringError(
            f"{place}: it calls {symbol!r} as {own} ({', '.join(operands)}), and the library's is "
            f"{result} ({', '.join(parameters)})"
        )


def _converts(source: str, target: str) -> bool:
    return source == target or (source, target) in _CONVERSIONS


def call_extern(
    w: FunctionWriter,
    libraries: Libraries,
    symbol: str,
    result: Type,
    operands: Sequence[tuple[Type, str]],
) -> str:
    """Call a function of the libraries on (element type, name) operands.

    A function that returns nothing yields zero.
    """
    found, parameters = libraries.signature(symbol)
    arguments = [
        (type_, _converted(w, name, register_type(own), type_))
        for (own, name), type_ in zip(operands, parameters, strict=True)
    ]
    value, own = w.call(symbol, found, arguments), register_type(result)
    return (
        _converted(w, value, found, own)
        if value
        else {"ptr": "null", "half": "0.0", "float": "0.0", "double": "0.0"}.get(own, "0")
    )


def _converted(w: FunctionWriter, name: str, source: str, target: str) -> str:
    return (
        name
        if source == target
        else w.emit(f"{_CONVERSIONS[source, target]} {source} {name} to {target}")
    )
