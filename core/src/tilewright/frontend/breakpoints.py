"""Lowering of ``breakpoint()`` in a kernel, for backends that can stop one.

The operation records the variables of the function at that point by name.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tilewright.errors import CompilationError, with_help
from tilewright.frontend.frame import is_hidden
from tilewright.frontend.generator import ModuleGenerator
from tilewright.ir.breakpoint import FEATURE, Breakpoint
from tilewright.language.core import base_value, constexpr, dtype
from tilewright.language.core import tuple as tl_tuple

_PLAIN = (int, float, str, type(None), tuple, list, dtype)


def stop(g: ModuleGenerator) -> None:
    """Emit a breakpoint with the variables of the function being visited.

    Raises:
        CompilationError: the target runs compiled code, which nothing stops.
    """
    options = g.semantic.options
    if options.capabilities is not None and FEATURE not in options.capabilities.features:
        message = (
            f"breakpoint() stops no compiled kernel, and backend {options.backend or '?'!r} "
            "compiles kernels"
        )
        remedy = (
            "run the kernel with the reference interpreter: `with "
            'tilewright.backend("reference"):` around the launch, or '
            "TILEWRIGHT_BACKEND=reference"
        )
        raise CompilationError(with_help(message, remedy))
    names: list[str] = []
    values: list[Any] = []
    constants: list[str] = []
    for name, value in g.scope.items():
        if is_hidden(name):
            continue
        for path, part in _parts(name, value):
            if type(part) is constexpr:
                if isinstance(part.value, _PLAIN):
                    constants.append(f"{path}={part.value!r}")
            else:
                names.append(path)
                values.append(part)
    g.builder.create(
        Breakpoint.row, [values], {"names": tuple(names), "constants": tuple(constants)}
    )


def _parts(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the IR values and constants that a variable consists of, each with its path."""
    if type(value) is constexpr:
        yield path, value
    elif isinstance(value, tl_tuple):
        for index, item in enumerate(value.values):
            yield from _parts(f"{path}.{index}", item)
    elif isinstance(value, base_value):
        flat = value.flatten()
        if len(flat) == 1:
            yield path, flat[0]
        else:
            yield from ((f"{path}.{index}", part) for index, part in enumerate(flat))
