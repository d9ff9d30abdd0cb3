"""The arguments of a launch from a line of text, on any device.

    x=fp32[n, 64], out=fp32[n], n=4096, scale=0.5

An entry is an array, ``NAME=TYPE[EXTENTS]``, or a number, ``NAME=VALUE``; extents and values may
name other entries and use ``cdiv``, ``next_power_of_2``, ``min`` and ``max``. Floats of arrays are
drawn from a normal distribution, always the same ones; integers are 0, which no index is wrong
with.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from tilewright.ir.type_text import parse_type
from tilewright.ir.types import FloatType
from tilewright.plugins.manifest import Device
from tilewright.plugins.registry import Backend
from tilewright.runtime.arguments.array_protocols import ArrayView
from tilewright.runtime.arguments.dlpack import contiguous_strides
from tilewright.runtime.arguments.dtypes import IR_TEXT, ITEM_SIZE
from tilewright.runtime.integers import cdiv, next_power_of_2
from tilewright.tools.expressions import evaluate
from tilewright.tools.inspect import split_top
from tilewright.tools.usage import UsageError

_ARRAY = re.compile(r"(\w+)\s*\[(.*)\]")
_FUNCTIONS: dict[str, Any] = {
    "cdiv": cdiv,
    "next_power_of_2": next_power_of_2,
    "min": min,
    "max": max,
}
#: Bytes that arrays on devices are aligned to.
_ALIGNMENT = 256


def evaluated(text: str, names: Mapping[str, Any], what: str) -> Any:
    """Return the value of an expression in which ``names`` may occur.

    See :mod:`tilewright.tools.expressions`.

    Raises:
        UsageError: it is none.
    """
    try:
        return evaluate(text, names, _FUNCTIONS)
    except Exception as error:
        raise UsageError(
            f"{what}: {text.strip()!r} has no value ({type(error).__name__}: {error}); known are "
            f"{', '.join(names) or 'no names'}"
        ) from None


def parsed(text: str) -> dict[str, Any]:
    """Each entry of a text: a number, or (type, shape) of an array.

    Raises:
        UsageError: an entry is neither.
    """
    arrays: dict[str, tuple[str, str]] = {}
    numbers: dict[str, str] = {}
    order: list[str] = []
    for entry in split_top(text):
        name, equals, value = (part.strip() for part in entry.partition("="))
        if not equals or not name.isidentifier():
            raise UsageError(
                f"--arguments: expected NAME=VALUE or NAME=TYPE[EXTENTS], not {entry!r}"
            )
        if name in arrays or name in numbers:
            raise UsageError(f"--arguments: {name!r} is given twice")
        order.append(name)
        array = _ARRAY.fullmatch(value)
        if array is None:
            numbers[name] = value
        elif array[1] not in IR_TEXT:
            raise UsageError(
                f"--arguments: {name!r} has no element type {array[1]!r}; there are "
                f"{', '.join(IR_TEXT)}"
            )
        else:
            arrays[name] = (array[1], array[2])
    values: dict[str, Any] = {}
    waiting = dict(numbers)
    while waiting:  # numbers may name those that come after them
        ready = [
            name
            for name, value in waiting.items()
            if not set(re.findall(r"[A-Za-z_]\w*", value)) & waiting.keys()
        ]
        if not ready:
            raise UsageError(f"--arguments: {', '.join(waiting)} name each other")
        for name in ready:
            values[name] = evaluated(waiting.pop(name), values, f"--arguments {name}")
            if isinstance(values[name], tuple):
                raise UsageError(
                    f"--arguments: {name!r} is one number, or an array NAME=TYPE[EXTENTS], not "
                    f"{values[name]}"
                )
    shapes: dict[str, Any] = {}
    for name, (type_, extents) in arrays.items():
        shape = evaluated(
            f"({inside},)" if (inside := extents.strip().rstrip(",")) else "()",
            values,
            f"--arguments {name}",
        )
        if not all(isinstance(extent, int) and extent >= 0 for extent in shape):
            raise UsageError(
                f"--arguments: the extents of {name!r} are integers from 0 on, not {shape}"
            )
        if math.prod(shape) * ITEM_SIZE[type_] > sys.maxsize:
            raise UsageError(f"--arguments: no memory has room for {name!r}, {type_}[{extents}]")
        shapes[name] = (type_, shape)
    return {name: shapes[name] if name in shapes else values[name] for name in order}


def on_device(
    given: Mapping[str, Any],
    backend: Backend,
    device: Device,
    arrays: Mapping[str, np.ndarray[Any, Any]] = MappingProxyType({}),
) -> dict[str, Any]:
    """Arguments for a launch: arrays in the device's memory, numbers as they are.

    Args:
        arrays: the values of some arrays by name, in place of those that are drawn; each has as
            many bytes as ``given`` says.

    Raises:
        UsageError: the backend has no memory that arrays can be put into, this process too little
            for their values, or ``arrays`` does not fit ``given``.
    """
    unknown = [name for name in arrays if not isinstance(given.get(name), tuple)]
    if unknown:
        raise UsageError(f"--arrays: {', '.join(unknown)} are no arrays of --arguments")
    memory = backend.call("tilewright_memory", device=device)
    rng = np.random.default_rng(0)
    found: dict[str, Any] = {}
    for name, value in given.items():
        if not isinstance(value, tuple):
            found[name] = value
            continue
        if memory is None:
            raise UsageError(
                f"backend {backend.name!r} does not copy to its devices, so that no arrays can be "
                "made for a launch"
            )
        type_, shape = value
        try:
            data = (
                _bytes_of(name, arrays[name], type_, shape)
                if name in arrays
                else _values(type_, math.prod(shape), rng)
            )
        except (MemoryError, ValueError):  # NumPy has a largest array, too
            raise UsageError(
                f"--arguments: this process has no room for the values of {name!r}, "
                f"{type_}{list(shape)}"
            ) from None
        buffer = memory.allocate(max(1, data.nbytes), _ALIGNMENT)
        if data.nbytes:
            memory.copy_to_device(buffer, data.data)
        found[name] = ArrayView(
            buffer,
            int(buffer.data_ptr()),
            type_,
            shape,
            contiguous_strides(shape),
            (device.kind, device.index),
        )
    return found


def _bytes_of(
    name: str, array: np.ndarray[Any, Any], type_: str, shape: tuple[int, ...]
) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """The bytes of an array that is given."""
    if array.shape != shape or array.itemsize != ITEM_SIZE[type_]:
        raise UsageError(
            f"--arrays: {name!r} is {array.dtype}{list(array.shape)} in the file, and "
            f"{type_}{list(shape)} among the --arguments"
        )
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def _values(
    type_: str, count: int, rng: np.random.Generator
) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """The bytes of an array's elements."""
    ir_type = parse_type(IR_TEXT[type_])
    if not isinstance(ir_type, FloatType):
        return np.zeros(count * ITEM_SIZE[type_], np.uint8)
    from tilewright.reference.numerics import encode

    return np.ascontiguousarray(encode(rng.standard_normal(count), ir_type)).view(np.uint8)
