"""Kernels that update a tensor by TMA reductions."""

from __future__ import annotations

from typing import Any

import tilewright.language as tl
from tilewright.frontend.compile import compile_function
from tilewright.language.definitions.callable import device_function
from tilewright.passes import pipeline


def updated(x: Any, y: Any, KIND: tl.constexpr) -> None:
    """Every program updates the same block, beyond the end of the tensor."""
    value = x.load([tl.program_id(0) * 32, 0])
    if KIND == "add":
        y.atomic_add([8, 16], value)
    elif KIND == "min":
        y.atomic_min([8, 16], value)
    elif KIND == "max":
        y.atomic_max([8, 16], value)
    elif KIND == "and":
        y.atomic_and([8, 16], value)
    elif KIND == "or":
        y.atomic_or([8, 16], value)
    else:
        y.atomic_xor([8, 16], value)


def updated_module(kind: str, element: str) -> Any:
    type_ = f"tensordesc<{element}[32,64]>"
    types = {"x": type_, "y": type_, "KIND": "constexpr"}
    module = compile_function(
        device_function(updated),
        types,
        {"KIND": kind},
        {name: {"divisibility": 16, "extent_divisibility": 16} for name in "xy"},
    )
    pipeline.run(module)
    return module


#: (kind, element type) of the TMA reductions.
UPDATES = [
    *(("add", element) for element in ("u32", "i32", "u64", "fp32", "fp16", "bf16")),
    *((kind, element) for kind in ("min", "max") for element in ("u32", "i32", "u64", "i64")),
    *((kind, element) for kind in ("and", "or", "xor") for element in ("i32", "u64")),
]
