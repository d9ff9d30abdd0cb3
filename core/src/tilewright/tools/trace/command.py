"""``tilewright trace``: run a kernel once, and print the values that it computed."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.runtime.devices import device_registry
from tilewright.runtime.devices.backend_choice import backend as chosen_backend
from tilewright.runtime.launch.jit import JITFunction
from tilewright.tools.explain.explanation import explain
from tilewright.tools.explain.findings import VALUES, Remark
from tilewright.tools.inspect import find_kernel, parse_assignments, place
from tilewright.tools.launch_arguments import evaluated, on_device, parsed
from tilewright.tools.printing import print_json
from tilewright.tools.trace.report import WatchReport
from tilewright.tools.trace.watch import watch
from tilewright.tools.usage import UsageError


def trace_command(options: argparse.Namespace) -> int:
    """Launch the kernel of a command line and report its values; 1 if ``--nan`` finds a NaN.

    See ``tilewright trace --help``.
    """
    kernel = find_kernel(options.kernel)
    keywords = {**parse_assignments(options.constants), **parse_assignments(options.option)}
    backend, _ = place(options.backend, None)
    device = device_registry.find(backend, None)
    described = parsed(options.arguments)
    arguments = on_device(described, backend, device, _arrays(options.arrays))
    names = {
        **keywords,
        **{name: value for name, value in described.items() if not isinstance(value, tuple)},
    }
    grid = evaluated(f"({options.grid},)", names, "--grid")
    with chosen_backend(backend.name):
        report = watch(kernel)[grid](**arguments, **keywords)
        if options.output is not None:
            _save(options.output, kernel, report, grid, {**arguments, **keywords})
    if options.json:
        print_json(report.record())
    else:
        print("\n".join(report.conclusions()) if options.nan else report)
    return 1 if options.nan and any(value.nan for value in report.values) else 0


def _arrays(path: Path | None) -> dict[str, np.ndarray[Any, Any]]:
    """Read arrays by name from a file of NumPy's."""
    if path is None:
        return {}
    try:
        with np.load(path) as file:
            return {name: file[name] for name in file.files}
    except (OSError, ValueError) as error:
        raise UsageError(f"--arrays: {path} is no .npz file that can be read: {error}") from None


def _save(
    path: Path, kernel: JITFunction, report: WatchReport, grid: Any, arguments: dict[str, Any]
) -> None:
    """Write the page of ``explain`` with the values beside each line."""
    found = explain(kernel, grid=grid, **arguments)
    values = [Remark(VALUES, value.place, str(value)) for value in report.values]
    try:
        replace(found, findings=(*found.findings, *values)).save(path)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from None
