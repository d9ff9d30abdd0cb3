"""Writes a failing program as a Python file that needs only Tilewright, NumPy and the backend."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.runtime.storage.files import write_whole
from tilewright_conformance.random_programs import Output, Program

_TEMPLATE = '''"""{title}

    python {file} [BACKEND]

{message}

Exit status: 0 where the backend agrees with the expected values, 1 where it does not. The expected
values are the reference interpreter's; with BACKEND "reference" they are checked against it.
"""

import importlib
import sys

import numpy as np

from tilewright.ir.parser import parse_module
from tilewright.ir.types import FloatType
from tilewright.plugins.registry import registry
from tilewright.reference.numerics import decode
from tilewright.runtime.arguments.array_protocols import ArrayView
from tilewright.runtime.compiler.compile import lower_module
from tilewright.runtime.arguments.dtypes import IR_TEXT

BACKEND = {backend!r}
#: the backend's plugin, as module:object, where no distribution ships it
LOAD = {load!r}

MODULE = r"""
{module}
"""

GRID = {grid}

#: (dtype, bytes in hexadecimal) of an array, or a number; elements that NumPy has no dtype for are
#: raw bits
ARGUMENTS = [
{arguments}
]

#: argument -> (dtype and bytes it should hold after the launch, units in the last place it may
#: differ, the smallest size of number those are taken of); None in their place asks for equal bits
EXPECTED = {{
{expected}
}}


#: bytes on either side of each array that no kernel may write
GUARD = 256
ZONE = np.full(GUARD, 0xA5, np.uint8)


def array(dtype, text):
    return np.frombuffer(bytes.fromhex(text), dtype).copy()


def run(name):
    """The arguments after a launch on the backend's first device."""
    if LOAD and name == BACKEND and name not in registry().names():
        module, _, attribute = LOAD.partition(":")
        plugin = importlib.import_module(module)
        registry().register(getattr(plugin, attribute) if attribute else plugin, name)
    backend = registry().get(name)
    device = backend.require("tilewright_devices")[0]
    target = backend.require("tilewright_target", device=device)
    memory = backend.require("tilewright_memory", device=device)
    options = {{**backend.manifest.options, "enable_fp_fusion": False}}
    if "math" in options:
        options["math"] = "strict"
    artifact = lower_module(parse_module(MODULE), options, backend, target)
    types = [argument.type for argument in parse_module(MODULE).kernel.arguments]
    dtypes = {{str(ir): text for text, ir in IR_TEXT.items()}}
    loaded = backend.require("tilewright_load", code=artifact.code, device=device)
    launch = backend.require(
        "tilewright_launcher", loaded=loaded, parameters=artifact.parameters, options=options
    )
    host = [array(*value) if isinstance(value, tuple) else value for value in ARGUMENTS]
    placed, outside = [], []
    for value, type_ in zip(host, types):
        if isinstance(value, np.ndarray):
            buffer = memory.allocate(value.nbytes + 2 * GUARD, 256)
            whole = np.concatenate([ZONE, value.view(np.uint8), ZONE])
            memory.copy_to_device(buffer, memoryview(whole))
            address, text = int(buffer.data_ptr()) + GUARD, dtypes[str(type_.pointee)]
            place = (device.kind, device.index)
            value = ArrayView(buffer, address, text, value.shape, (1,), place)
        placed.append(value)
    launch(GRID, None, tuple(placed))
    memory.synchronize()
    for value, on_device in zip(host, placed):
        if isinstance(value, np.ndarray):
            whole = np.empty(value.nbytes + 2 * GUARD, np.uint8)
            memory.copy_to_host(on_device.owner, memoryview(whole))
            value.view(np.uint8)[:] = whole[GUARD:-GUARD]
            outside.append(int((whole[:GUARD] != ZONE).sum() + (whole[-GUARD:] != ZONE).sum()))
    return host, types, sum(outside)


def wrong(found, expected, element, ulp, scale):
    """(the numbers that were found, those expected, where they differ). NaN equals NaN."""
    both, width = (found, expected), expected.itemsize
    found_bytes, expected_bytes = (one.view(np.uint8).reshape(-1, width) for one in both)
    same = (found_bytes == expected_bytes).all(axis=1)
    if isinstance(element, FloatType) and ulp is not None:
        wide = np.longdouble if element.bits == 64 else np.float64
        found, expected = (np.asarray(decode(one, element)).astype(wide) for one in both)
        same |= np.isnan(found) & np.isnan(expected)
        if ulp:
            with np.errstate(all="ignore"):
                size = np.maximum(np.abs(expected), scale)
                exponent = np.frexp(np.where(np.isfinite(size), size, 1))[1] - 1
                exponent = np.maximum(exponent, 1 - element.bias)
                limit = ulp * np.ldexp(wide(1), exponent - element.mantissa)
                same |= (np.abs(found - expected) <= limit) | (found == expected)
    return found, expected, np.flatnonzero(~same)


def main():
    name = sys.argv[1] if len(sys.argv) > 1 else BACKEND
    (after, types, outside), failed = run(name), False
    for position, (data, ulp, scale) in EXPECTED.items():
        element = types[position].pointee
        found, expected, places = wrong(after[position], array(*data), element, ulp, scale)
        for place in places[:8]:
            print(
                f"argument {{position}}[{{place}}], {{element}}: expected {{expected[place]!r}}, "
                f"{{name}} gave {{found[place]!r}}"
            )
        failed |= bool(len(places))
    if outside:
        print(f"{{outside}} bytes around the arguments were written")
        failed = True
    print(f"{{name}}: {{'WRONG' if failed else 'agrees'}}")
    return failed


if __name__ == "__main__":
    sys.exit(main())
'''


def reproducer(
    program: Program,
    expected: Sequence[Any],
    *,
    backend: str,
    load: str = "",
    title: str,
    message: str,
    file: str = "reproducer.py",
) -> str:
    """The file's text.

    Args:
        expected: the arguments after the reference ran.
        backend, load: the backend's name, and a reference to its plugin where no distribution ships
            it.
        title: a line on what this is; ``message`` says what was wrong.
    """
    indented = "\n".join(f"    {line}".rstrip() for line in _plain(message).splitlines())
    return _TEMPLATE.format(
        title=_plain(title),
        file=file,
        message=indented,
        backend=backend,
        load=load,
        module=str(program.module).strip(),
        grid=program.grid,
        arguments="\n".join(f"    {_data(value)}," for value in program.arguments()),
        expected="\n".join(
            f"    {one.index}: ({_data(expected[one.index])}, {_bounds(one)}),"
            for one in program.outputs
        ),
    )


def write(path: Path, text: str) -> None:
    """Write a reproducer, whole or not at all."""
    write_whole(path, text.encode())


def _plain(text: str) -> str:
    """Text that can stand in a docstring."""
    return text.replace("\\", "/").replace('"""', "'''")


def _bounds(output: Output) -> str:
    return "None, None" if output.payloads else f"{output.ulp!r}, {output.scale!r}"


def _data(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return repr((value.dtype.str[1:], value.tobytes().hex()))
    return repr(value)
