"""``tilewright trace``: run a kernel once, and print the values that it computed."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

from tilewright.runtime.devices.backend_choice import backend as chosen_backend
from tilewright.tools.described_launch import DescribedLaunch, described_launch
from tilewright.tools.explain.explanation import explain
from tilewright.tools.explain.findings import VALUES, Remark
from tilewright.tools.printing import print_json
from tilewright.tools.trace.report import WatchReport
from tilewright.tools.trace.watch import watch
from tilewright.tools.usage import UsageError


def trace_command(options: argparse.Namespace) -> int:
    """Launch the kernel of a command line and report its values; 1 if ``--nan`` finds a NaN.

    See ``tilewright trace --help``.
    """
    launch = described_launch(options)
    with chosen_backend(launch.backend.name):
        report = watch(launch.kernel)[launch.grid](**launch.arguments)
        if options.output is not None:
            _save(options.output, launch, report)
    if options.json:
        print_json(report.record())
    else:
        print("\n".join(report.conclusions()) if options.nan else report)
    return 1 if options.nan and any(value.nan for value in report.values) else 0


def _save(path: Path, launch: DescribedLaunch, report: WatchReport) -> None:
    """Write the page of ``explain`` with the values beside each line."""
    found = explain(launch.kernel, grid=launch.grid, **launch.arguments)
    values = [Remark(VALUES, value.place, str(value)) for value in report.values]
    try:
        replace(found, findings=(*found.findings, *values)).save(path)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from None
