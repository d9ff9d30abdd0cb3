"""Explain a recorded launch: the code that Tilewright makes of it for a target, and its roofline.

    python -m corpus.explain liger-kernel/_rms_norm_forward_kernel/… --target sm_90a --output
    page.html

The arguments and the grid are the record's; neither memory nor a GPU is taken.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from corpus import load
from corpus.launches import Launch, read_all
from corpus.targets import TARGETS, Target

#: Tilewright's backends for those of Triton that are called otherwise.
_BACKENDS = {"cuda": "nvidia", "hip": "amd"}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("id", help="a record: PACKAGE/KERNEL/CASE, or what the ids of one record alone begin with")
    add("--target", choices=TARGETS, default="sm_90a")
    add("--json", action="store_true", help="print JSON")
    add("--output", type=Path, metavar="FILE", help="write the page")
    given = parser.parse_args()
    if not os.environ.get(
        "TILEWRIGHT_TRITON"
    ):  # packages import Triton: they are to find Tilewright
        return subprocess.run(
            [sys.executable, "-m", "corpus.explain", *sys.argv[1:]],
            env={**os.environ, "TILEWRIGHT_TRITON": "1"},
            check=False,
        ).returncode
    chosen = [launch for launch in read_all() if launch.id.startswith(given.id)]
    chosen = [launch for launch in chosen if launch.id == given.id] or chosen
    if len(chosen) != 1:
        print(
            f"{len(chosen)} records are like that",
            *(launch.id for launch in chosen[:20]),
            sep="\n",
            file=sys.stderr,
        )
        return 2
    with load.pretended():
        found = explained(chosen[0], load.kernel(chosen[0]), TARGETS[given.target])
    if given.output is not None:
        found.save(given.output)
    if given.json:
        from tilewright.tools.printing import print_json

        print_json(found.record())
    else:
        print(found)
    return 0


def explained(launch: Launch, kernel: Any, target: Target) -> Any:
    """The :class:`~tilewright.tools.explain.explanation.Explanation` of a launch of a kernel."""
    from tilewright.compat.triton.compiler.options import language_options, triton_options
    from tilewright.passes.analysis.traffic import DescriptorTensor
    from tilewright.runtime.compiler.compile import Specialization
    from tilewright.runtime.options import resolve
    from tilewright.tools.explain.explanation import explain_specialization
    from tilewright.tools.explain.launch import Launch as Known
    from tilewright.tools.inspect import place

    backend, ours = place(
        _BACKENDS.get(target.backend, target.backend),
        None if target.arch == "host" else target.name,
    )
    arguments = {_name(launch, path): argument for path, argument in load.paths(launch.arguments)}
    constants, attributes = load.specialization(launch)
    options = {
        name: value
        for name, value in load.options(launch).items()
        if name in backend.manifest.options
    }
    # a kernel of Triton has Triton's defaults, such as tf32 for a dot that states no precision
    defaults = language_options(ours, triton_options(backend, ours, {}).__dict__)
    specialization = Specialization(
        kernel,
        load.signature(launch),
        {_name(launch, path): value for path, value in constants.items()},
        {_name(launch, path): {"divisibility": 16} for path in attributes},
        {**resolve(backend, kernel.__name__, options, {}, kernel.arg_names), **defaults},
    )
    known: dict[str, Any] = {
        name: argument.value
        for name, argument in arguments.items()
        if isinstance(argument.value, int | float)
    }
    known |= {
        name: DescriptorTensor(argument.shape, argument.strides)
        for name, argument in arguments.items()
        if argument.type.startswith("tensordesc")
        and argument.shape is not None
        and argument.strides is not None
    }
    return explain_specialization(specialization, backend, ours, Known(launch.grid, known))


def _name(launch: Launch, path: load.Path) -> str:
    """The name of a parameter, or of an item of one that is a tuple."""
    return ".".join([launch.arguments[path[0]].name, *map(str, path[1:])])


if __name__ == "__main__":
    raise SystemExit(main())
