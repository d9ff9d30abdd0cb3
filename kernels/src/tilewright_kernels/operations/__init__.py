"""Declaration of operations, once for every framework of arrays."""

from __future__ import annotations

from tilewright_kernels.operations.frameworks import strides
from tilewright_kernels.operations.launcher import Launcher
from tilewright_kernels.operations.operation import Operation
from tilewright_kernels.operations.parameters import Array, Arrays, DType, Floats, Function, Ints

__all__ = [
    "Array",
    "Arrays",
    "DType",
    "Floats",
    "Function",
    "Ints",
    "Launcher",
    "Operation",
    "strides",
]
