"""Programs that people wrote for Triton, on Tilewright: their kernels against PyTorch's own, and a
table by program.

    make ecosystem                          on the CPU
    make ecosystem DEVICE=cuda              on a GPU
    python ecosystem/run.py --program liger

A program is a module of ``programs``: its functions ``case_…`` are its cases, each of which is
given the device and fails by raising. What is not installed is told apart from what fails. Each
program runs in a process of its own.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import subprocess
import sys
import time
import traceback
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType

HERE = Path(__file__).resolve().parent
_RESULT = "ecosystem result: "


@dataclass
class Outcome:
    """What became of a program's cases. ``failures`` holds the last line of each error."""

    program: str
    version: str = ""
    passed: int = 0
    failures: dict[str, str] = field(default_factory=dict)
    absent: str = ""
    seconds: float = 0.0


def names() -> list[str]:
    """The programs."""
    return sorted(path.stem for path in (HERE / "programs").glob("*.py") if path.stem != "__init__")


def run_here(program: str, device: str) -> Outcome:
    """Run the cases of a program in this process."""
    import tilewright.compat.triton  # noqa: F401  # who imports triton from now on finds it

    sys.path.insert(0, str(HERE))
    module = importlib.import_module(f"programs.{program}")
    outcome, started = Outcome(program), time.perf_counter()
    try:
        outcome.version = version_of(module)
    except ModuleNotFoundError as error:
        outcome.absent = str(error)
        return outcome
    for name, case in list(vars(module).items()):
        if name.startswith("case_"):
            try:
                case(device)
                outcome.passed += 1
            except Exception as error:
                outcome.failures[name.removeprefix("case_")] = (
                    traceback.format_exception_only(error)[-1].strip().splitlines()[0]
                )
                traceback.print_exc()
    outcome.seconds = time.perf_counter() - started
    return outcome


def version_of(module: ModuleType) -> str:
    """The version of the program that a module of cases is for; empty where it is none to install.

    Raises:
        ModuleNotFoundError: it is not installed.
    """
    from importlib.metadata import PackageNotFoundError, version

    distribution: str = getattr(module, "DISTRIBUTION", "")
    if not distribution:
        return ""
    try:
        return version(distribution)
    except PackageNotFoundError:
        raise ModuleNotFoundError(
            f"{distribution} is not installed: pip install --no-deps {distribution}"
        ) from None


def run_apart(program: str, device: str, limit: float) -> Outcome:
    """The same in a process of its own, which ends after ``limit`` seconds at most."""
    command = [
        sys.executable,
        str(HERE / "run.py"),
        "--program",
        program,
        "--device",
        device,
        "--here",
    ]
    environment = {**os.environ, "TILEWRIGHT_TRITON": "1"}
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=limit, env=environment, check=False
        )
    except subprocess.TimeoutExpired:
        return Outcome(program, failures={"all": f"it did not end in {limit:g} s"}, seconds=limit)
    found = [line for line in done.stdout.splitlines() if line.startswith(_RESULT)]
    if not found:
        return Outcome(
            program,
            failures={
                "all": f"the process ended with {done.returncode}: {done.stderr.strip()[-300:]}"
            },
        )
    outcome = Outcome(**json.loads(found[-1].removeprefix(_RESULT)))
    if outcome.failures:
        print(done.stderr, file=sys.stderr)
    return outcome


def table(outcomes: list[Outcome]) -> str:
    """A line a program, and one a failure."""
    lines = [f"{'program':24} {'version':10} {'passed':>6} {'failed':>6} {'seconds':>8}"]
    for each in outcomes:
        if each.absent:
            lines.append(f"{each.program:24} {each.absent}")
            continue
        lines.append(
            f"{each.program:24} {each.version:10} {each.passed:6} {len(each.failures):6} "
            f"{each.seconds:8.1f}"
        )
        lines += [f"    {name}: {error}" for name, error in each.failures.items()]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--program",
        action="append",
        default=[],
        choices=names(),
        help="may be repeated; all otherwise",
    )
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--limit", type=float, default=600, help="seconds a program may take")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.here:
        outcome = run_here(given.program[0], given.device)
        print(_RESULT + json.dumps(vars(outcome)))
        return 0
    outcomes = [
        run_apart(program, given.device, given.limit) for program in given.program or names()
    ]
    print(table(outcomes))
    return 1 if any(each.failures for each in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())
