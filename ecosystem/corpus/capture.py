"""Write the records of packages: run their functions at served shapes, without a GPU, and keep what
they launch.

    python ecosystem/corpus/capture.py --package liger_kernel     one of programs/, may be repeated
    python ecosystem/corpus/capture.py                            all

A package's program is a module of ``programs``: ``DISTRIBUTION`` names what is installed, and its
functions ``case_…`` call the package's own. They are given no arguments and run on tensors without
memory (see :mod:`corpus.pretended`); what they return is not looked at. Each program runs in a
process of its own, with ``TILEWRIGHT_CORPUS``.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import math
import os
import re
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from corpus import launches  # noqa: E402

_RESULT = "capture result: "


def names() -> list[str]:
    """The packages that have a program."""
    return sorted(
        path.stem for path in (HERE / "programs").glob("*.py") if not path.stem.startswith("_")
    )


def run_here(package: str, only: str) -> dict[str, str]:
    """Run the cases of a package's program in this process; the errors of those that failed."""
    import tilewright.compat.triton  # noqa: F401  # who imports triton from now on finds it
    from corpus.pretended import Hopper, contents_of
    from tilewright.compat.triton import recording

    recording.runs_launches = False
    recording.contents_of = contents_of
    with Hopper(fake=False):
        program = importlib.import_module(f"corpus.programs.{package}")
    failures: dict[str, str] = {}
    for name, case in cases(program):
        if only and not re.search(only, name):
            continue
        recording.case = name
        try:
            with Hopper() if getattr(program, "PRETENDS", True) else contextlib.nullcontext():
                case()
        except Exception as error:
            failures[name] = traceback.format_exception_only(error)[-1].strip().splitlines()[0]
            traceback.print_exc(limit=-6)
    return failures


def cases(program: Any) -> Iterator[tuple[str, Callable[[], Any]]]:
    """The cases of a program by name. A dict ``CASES`` may hold more than the functions."""
    for name, case in list(vars(program).items()):
        if name.startswith("case_"):
            yield name.removeprefix("case_"), case
    yield from getattr(program, "CASES", {}).items()


def capture(package: str, limit: float, only: str = "") -> tuple[list[launches.Launch], list[str]]:
    """(the launches of a package, what went wrong), from a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        command = [
            sys.executable,
            str(HERE / "capture.py"),
            "--package",
            package,
            "--here",
            "--only",
            only,
        ]
        environment = {
            **os.environ,
            "TILEWRIGHT_TRITON": "1",
            "TILEWRIGHT_CORPUS": folder,
            "TORCHDYNAMO_DISABLE": "1",
        }
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=limit, env=environment, check=False
        )
        found = [line for line in done.stdout.splitlines() if line.startswith(_RESULT)]
        if not found:
            return [], [f"the process ended with {done.returncode}: {done.stderr.strip()[-2000:]}"]
        result = json.loads(found[-1].removeprefix(_RESULT))
        if result["failures"] and only:
            print(done.stderr[-20000:], file=sys.stderr)
        lines = [
            json.loads(line)
            for file in sorted(Path(folder).glob("*.jsonl"))
            for line in file.read_text().splitlines()
        ]
    troubles = [f"{name}: {error}" for name, error in result["failures"].items()]
    kept, left = merged(lines, result["package"], result["version"], result["modules"])
    return kept, troubles + left


def merged(
    lines: Iterable[dict[str, Any]], package: str, version: str, modules: Iterable[str]
) -> tuple[list[launches.Launch], list[str]]:
    """Return the launches with one of each specialization, and the reasons to exclude others."""
    kept: dict[str, launches.Launch] = {}
    left: dict[str, None] = {}
    used: set[str] = set()
    roots = tuple(modules)
    for line in lines:
        found = launches.launch_of({"package": package, "version": version, **line})
        why = unusable(found, roots)
        if why:
            left[f"{found.module}:{found.kernel} is excluded: {why}"] = None
        elif found.specialization not in kept:
            kept[found.specialization] = launches.with_case(
                found, f"{found.case}/{_extent(found)}", used
            )
    return list(kept.values()), list(left)


def _of_failed_cases(kept: list[launches.Launch], troubles: Iterable[str]) -> list[launches.Launch]:
    """The records that a package had of cases that have failed this time: its other requirements
    may be absent here.
    """
    failed = {trouble.partition(":")[0] for trouble in troubles}
    package, known, ids = (
        kept[0].package,
        {each.specialization for each in kept},
        {each.id for each in kept},
    )
    before = launches.read(package) if (launches.FOLDER / f"{package}.json").exists() else []
    return [
        each
        for each in before
        if each.case.partition("/")[0] in failed
        and each.specialization not in known
        and each.id not in ids
    ]


def _extent(launch: launches.Launch) -> str:
    """The largest tensor of a launch: ``4096x8192/bf16``."""
    tensors = [each for each in launch.arguments if each.shape]
    if not tensors:
        return "numbers"
    largest = max(tensors, key=lambda each: math.prod(each.shape or ()))
    element = re.sub(r"^tensordesc<|\[.*|^[*]k?", "", largest.type)
    return f"{'x'.join(map(str, largest.shape or ()))}/{element}"


def unusable(launch: launches.Launch, roots: tuple[str, ...]) -> str:
    """Why a launch cannot be compiled again from its record; empty where it can."""
    if not launch.module.startswith(roots):
        return "it is another package's"
    if "<" in launch.kernel:
        return "it is defined within a function"
    text = json.dumps(launches.record_of(launch))
    unknown = re.search(r'"unknown": "([^"]*)"', text)
    if unknown:
        return f"a constant is of type {unknown[1]}"
    return "a constant is a function that is defined within another" if "<locals>" in text else ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--package",
        action="append",
        default=[],
        choices=names(),
        help="may be repeated; all otherwise",
    )
    parser.add_argument("--limit", type=float, default=1800, help="seconds that a package may take")
    parser.add_argument(
        "--only",
        default="",
        help="cases whose name this expression is found in; nothing is written then",
    )
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.here:
        (package,) = given.package
        failures = run_here(package, given.only)
        program = importlib.import_module(f"corpus.programs.{package}")
        result = {
            "failures": failures,
            "package": program.DISTRIBUTION,
            "version": _version(program),
            "modules": program.MODULES,
        }
        print("\n" + _RESULT + json.dumps(result))
        return 0
    failed = False
    for package in given.package or names():
        kept, troubles = capture(package, given.limit, given.only)
        kernels = {(launch.module, launch.kernel) for launch in kept}
        print(f"{package:28} {len(kernels):4} kernels {len(kept):4} specializations", flush=True)
        for trouble in troubles:
            print(f"    {trouble}")
        failed = failed or not kept
        if kept and not given.only:
            launches.write(kept[0].package, [*kept, *_of_failed_cases(kept, troubles)])
        elif given.only:
            for launch in kept:
                print("   ", launch.id, launch.grid, launch.options)
    return int(failed)


def _version(program: Any) -> str:
    from importlib.metadata import version

    return getattr(program, "VERSION", "") or version(program.DISTRIBUTION)


if __name__ == "__main__":
    sys.exit(main())
