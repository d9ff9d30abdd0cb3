"""A launch that a command line describes: kernel, grid, arguments, constants and options."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tilewright.plugins.registry import Backend
from tilewright.runtime.devices import device_registry
from tilewright.runtime.launch.jit import JITFunction
from tilewright.tools.inspect import find_kernel, parse_assignments, place
from tilewright.tools.launch_arguments import evaluated, on_device, parsed
from tilewright.tools.usage import UsageError


class DescribedLaunch(NamedTuple):
    """A launch ``kernel[grid](**arguments)`` on a backend."""

    kernel: JITFunction
    backend: Backend
    grid: Any
    arguments: dict[str, Any]


def described_launch(options: argparse.Namespace) -> DescribedLaunch:
    """Make the launch, with arrays in the memory of the backend's first device.

    Raises:
        UsageError: the description makes no sense.
    """
    kernel = find_kernel(options.kernel)
    keywords = {**parse_assignments(options.constants), **parse_assignments(options.option)}
    backend, _ = place(options.backend, None)
    device = device_registry.find(backend, None)
    described = parsed(options.arguments)
    arguments = on_device(described, backend, device, _arrays(options.arrays))
    numbers = {name: value for name, value in described.items() if not isinstance(value, tuple)}
    grid = evaluated(f"({options.grid},)", {**keywords, **numbers}, "--grid")
    return DescribedLaunch(kernel, backend, grid, {**arguments, **keywords})


def _arrays(path: Path | None) -> dict[str, np.ndarray[Any, Any]]:
    """Read arrays by name from a file of NumPy's."""
    if path is None:
        return {}
    try:
        with np.load(path) as file:
            return {name: file[name] for name in file.files}
    except (OSError, ValueError) as error:
        raise UsageError(f"--arrays: {path} is no .npz file that can be read: {error}") from None
