"""``tilewright bisect``: name the compilation step that changes a kernel's results."""

from __future__ import annotations

import argparse
from dataclasses import asdict

from tilewright.runtime.devices.backend_choice import backend as chosen_backend
from tilewright.tools.bisect.search import bisect
from tilewright.tools.described_launch import described_launch
from tilewright.tools.printing import print_json


def bisect_command(options: argparse.Namespace) -> int:
    """Search for the step that changes the results of a kernel; 1 if there is one.

    See ``tilewright bisect --help``.
    """
    launch = described_launch(options)
    with chosen_backend(launch.backend.name):
        found = bisect(launch.kernel, exact=options.exact)[launch.grid](**launch.arguments)
    if options.json:
        print_json({**asdict(found), "conclusion": found.conclusion()})
    else:
        print(found)
    return 0 if found.culprit is None else 1
