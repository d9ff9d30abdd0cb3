"""Refusal of launches that are sure to write outside an argument's memory.

On a CPU such a write goes over whatever lies there, and the process may end long after. A backend
whose memory is the process's own records in its code's metadata, under ``writes``, how far stores
certainly reach (:mod:`tilewright.passes.analysis.write_extent`); the first launch of each
specialisation is held against it.
"""

from __future__ import annotations

import linecache
import sys
from collections.abc import Callable, Sequence
from typing import Any

from tilewright.errors import CompilationError
from tilewright.plugins.manifest import Parameter
from tilewright.runtime.arguments.array_protocols import address_of
from tilewright.runtime.arguments.mock_tensors import TensorWrapper

#: Extent of one store, from the backend's metadata: position of the argument, first byte, byte
#: after the last, file, line, column.
Write = tuple[int, int, int, str, int, int]


def memory_of(value: Any) -> tuple[int, int] | None:
    """Return the (start, end) addresses of the memory that an array is a view of, if known."""
    numpy = sys.modules.get("numpy")
    if isinstance(value, TensorWrapper):
        value = value.base
    if numpy is not None and isinstance(value, numpy.ndarray):
        while isinstance(value.base, numpy.ndarray):
            value = value.base
        if value.base is not None or not value.flags.forc:
            return None
        address = address_of(value)
        return address, address + value.nbytes
    storage = getattr(value, "untyped_storage", None)
    if storage is None:
        return None
    whole = storage()
    return whole.data_ptr(), whole.data_ptr() + whole.nbytes()


def bounds_check(
    kernel: str, parameters: Sequence[Parameter], writes: Sequence[Write]
) -> Callable[[Sequence[Any]], None]:
    """Make the function that checks a launch's values, in the order of ``parameters``.

    The returned function raises:
        CompilationError: with the place of the store, and the argument that is too short.
    """

    def check(values: Sequence[Any]) -> None:
        for position, first, end, file, line, column in writes:
            value = values[position]
            memory = memory_of(value)
            if memory is None:
                continue
            address = address_of(value)
            before, after = memory[0] - (address + first), address + end - memory[1]
            if before > 0 or after > 0:
                name = parameters[position].name
                where = (
                    f"{before} bytes before the memory"
                    if before > 0
                    else f"{after} bytes past the end of the memory"
                )
                rule = (
                    f"{kernel}: program (0, 0, 0) stores {where} of argument {name!r}, "
                    "whatever the grid"
                )
                source = linecache.getline(file, line).strip()
                place = (f"\n  --> {file}:{line}:{column}" if file else "") + (
                    f"\n   {line} | {source}" if source else ""
                )
                raise CompilationError(
                    rule,
                    f"{rule}{place}\n  help: pass a larger array, or a mask to tl.store",
                    file or None,
                    line or None,
                    column,
                )

    return check
