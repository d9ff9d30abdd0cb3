"""The meaning of a breakpoint: Python's debugger in a frame with kernel lines and variables."""

from __future__ import annotations

import ast
import os
import pdb
import sys
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.ir.breakpoint import Breakpoint
from tilewright.ir.types import FloatType, Type, element_type, shape_of
from tilewright.reference.numerics import Array, decode
from tilewright.reference.values import Descriptor, expanded

if TYPE_CHECKING:
    from tilewright.ir.core import Operation
    from tilewright.reference.frame import Frame
    from tilewright.reference.operations.arithmetic import Meaning


class _Debugger(pdb.Pdb):
    """Python's debugger, in which every way of stepping goes on to the next breakpoint.

    The code in between is the interpreter's, not the kernel's.
    """

    do_n = do_next = do_s = do_step = do_r = do_return = do_unt = do_until = pdb.Pdb.do_continue


def breakpoint_(frame: Frame, operation: Breakpoint, values: list[Array]) -> None:
    """Stop once for each program.

    Scalars are numbers, tiles are read-only arrays, pointers are addresses.
    """
    for row in range(frame.rows):
        program = frame.coordinates(row)
        variables: dict[str, Any] = {"program_id": program}
        for constant in operation.constants:
            path, _, text = constant.partition("=")
            _put(variables, path, _constant(text))
        for path, operand, value in zip(operation.names, operation.values, values, strict=True):
            _put(variables, path, _shown(value, operand.type, row, frame.rows))
        _stop(operation, _with_tuples(variables), program)


def _constant(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):  # a type of the language, infinity, not a number
        return text


def _shown(value: Any, type_: Type, row: int, rows: int) -> Any:
    """The value of one program as its author thinks of it."""
    if isinstance(value, Descriptor):
        fields = [int(field[row] if field.ndim else field) for field in value.fields()]
        rank = len(value.shape)
        return {
            "base": fields[0],
            "shape": tuple(fields[1 : 1 + rank]),
            "strides": tuple(fields[1 + rank : -1]),
            "padding": "nan" if fields[-1] else "zero",
        }
    shape, element = shape_of(type_), element_type(type_)
    array = np.array(expanded(value, shape, rows)[row])
    if isinstance(element, FloatType):
        array = np.array(decode(array, element))
    if not shape:
        return array.item()
    array.flags.writeable = False
    return array


class _Items(dict[int, Any]):
    """A tuple that is being put together: its items by position."""


def _put(variables: dict[Any, Any], path: str, value: Any) -> None:
    name, *positions = path.split(".")
    holder: dict[Any, Any] = variables
    key: str | int = name
    for position in positions:
        if not isinstance(holder.get(key), _Items):
            holder[key] = _Items()
        holder, key = holder[key], int(position)
    holder[key] = value


def _with_tuples(variables: dict[str, Any]) -> dict[str, Any]:
    def finished(value: Any) -> Any:
        return (
            tuple(finished(value[position]) for position in sorted(value))
            if isinstance(value, _Items)
            else value
        )

    return {name: finished(value) for name, value in variables.items()}


def _stop(operation: Operation, variables: dict[str, Any], program: tuple[int, int, int]) -> None:
    """Enter the debugger in a frame with the kernel's file, name, variables and line.

    The line is the one after the breakpoint.
    """
    place = operation.location
    file, line, name = (
        (place.file, place.line, place.function) if place is not None else ("<kernel>", 1, "kernel")
    )
    print(f"breakpoint in {name}, program {program}", flush=True)
    code = compile("\n" * (line - 1) + "__debugger__()\npass", file, "exec").replace(
        co_name=name or "kernel"
    )
    exec(code, {"__name__": "__kernel__", "__debugger__": _debugger(), "np": np}, variables)


def _debugger() -> Any:
    """Return the debugger: Python's ``breakpoint`` where the user has chosen one, else our own."""
    if sys.breakpointhook is not sys.__breakpointhook__ or os.environ.get("PYTHONBREAKPOINT"):
        return breakpoint
    return lambda: _Debugger(nosigint=True).set_trace(sys._getframe(1))


MEANINGS: dict[str, Meaning] = {Breakpoint.row.name: breakpoint_}
