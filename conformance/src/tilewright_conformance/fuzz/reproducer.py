"""A failing program written out as a Python file that needs nothing but Tilewright, NumPy and the backend."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tilewright_conformance.programs import Program

_TEMPLATE = '''"""{title}

    python {file} [BACKEND]

{message}

Exit status: 0 where the backend agrees with the expected values, 1 where it does not. The expected values are the reference interpreter's;
with BACKEND "reference" they are checked against it.
"""

import importlib
import sys

import numpy as np

from tilewright.ir.parser import parse_module
from tilewright.plugins.registry import registry
from tilewright.runtime.arguments import ArrayView
from tilewright.runtime.compile import lower_module

BACKEND = {backend!r}
#: the backend's plugin, as module:object, where no distribution ships it
LOAD = {load!r}

MODULE = r"""
{module}
"""

GRID = {grid}

#: (dtype, bytes in hexadecimal) of an array, or a number
ARGUMENTS = [
{arguments}
]

#: argument -> (dtype and bytes it should hold after the launch, units in the last place it may differ, the least size of number those are taken of)
EXPECTED = {{
{expected}
}}


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
    loaded = backend.require("tilewright_load", code=artifact.code, device=device)
    launch = backend.require("tilewright_launcher", loaded=loaded, parameters=artifact.parameters, options=options)
    host = [array(*value) if isinstance(value, tuple) else value for value in ARGUMENTS]
    placed = []
    for value in host:
        if isinstance(value, np.ndarray):
            buffer = memory.allocate(value.nbytes, 256)
            memory.copy_to_device(buffer, memoryview(value.view(np.uint8)))
            text = value.dtype.str[1:].replace("f2", "fp16").replace("f4", "fp32").replace("f8", "fp64")
            text = text if text.startswith("fp") else text[0] + str(8 * value.itemsize)
            value = ArrayView(buffer, int(buffer.data_ptr()), text, value.shape, (1,), (device.kind, device.index))
        placed.append(value)
    launch(GRID, None, tuple(placed))
    memory.synchronize()
    for value, on_device in zip(host, placed):
        if isinstance(value, np.ndarray):
            memory.copy_to_host(on_device.owner, memoryview(value.view(np.uint8)))
    return host


def wrong(found, expected, ulp, scale):
    """Which elements differ; NaN equals NaN."""
    width = expected.itemsize
    same = (found.view(np.uint8).reshape(-1, width) == expected.view(np.uint8).reshape(-1, width)).all(axis=1)
    if expected.dtype.kind == "f":
        same |= np.isnan(found) & np.isnan(expected)
        if ulp:
            with np.errstate(all="ignore"):
                unit = np.spacing(np.maximum(np.abs(expected), expected.dtype.type(scale))).astype(np.float64)
                same |= (np.abs(found.astype(np.float64) - expected.astype(np.float64)) <= ulp * unit) | (found == expected)
    return np.flatnonzero(~same)


def main():
    name = sys.argv[1] if len(sys.argv) > 1 else BACKEND
    found, failed = run(name), False
    for position, (data, ulp, scale) in EXPECTED.items():
        expected = array(*data)
        places = wrong(found[position], expected, ulp, scale)
        for place in places[:8]:
            print(f"argument {{position}}[{{place}}]: expected {{expected[place]!r}}, {{name}} gave {{found[position][place]!r}}")
        failed |= bool(len(places))
    print(f"{{name}}: {{'WRONG' if failed else 'agrees'}}")
    return failed


if __name__ == "__main__":
    sys.exit(main())
'''


def reproducer(program: Program, expected: Sequence[Any], *, backend: str, load: str = "", title: str, message: str, file: str = "reproducer.py") -> str:
    """The file's text.

    Args:
        expected: the arguments after the reference ran.
        backend, load: the backend's name, and a reference to its plugin where no distribution ships it.
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
        expected="\n".join(f"    {one.index}: ({_data(expected[one.index])}, {one.ulp!r}, {one.scale!r})," for one in program.outputs),
    )


def write(path: Path, text: str) -> None:
    """Write a reproducer, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.draft")
    draft.write_text(text)
    draft.replace(path)


def _plain(text: str) -> str:
    """Text that can stand in a docstring."""
    return text.replace("\\", "/").replace('"""', "'''")


def _data(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return repr((value.dtype.str[1:], value.tobytes().hex()))
    return repr(value)
