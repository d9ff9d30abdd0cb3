"""``python -m tilewright_conformance.runtests [FILE...] [--backend NAME]...``.

Without files the run tests of the suite, without backends the reference and every backend that has
a device here. Exit status: 0 where all passed or are not supported, 1 where one failed, 2 where a
file or a backend cannot be run.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from tilewright.errors import BackendError, TilewrightError
from tilewright.ir import VerificationError
from tilewright.ir.parser import ParseError
from tilewright_conformance import mutation
from tilewright_conformance.runtests.runner import (
    FAILED,
    FILES,
    NOT_SUPPORTED,
    PASSED,
    Runner,
    backends,
    malformed,
    report,
)
from tilewright_conformance.suite.engine.setup import Setup, load_plugins


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line; returns the exit status."""
    given = _parser().parse_args(arguments)
    files = given.files or sorted(FILES.glob("*.tileir"))
    code = 0
    try:
        if given.load or given.emulate:
            if len(given.backend) != 1:
                raise BackendError("--load and --emulate need one --backend")
            load_plugins(Setup(given.backend[0], load=tuple(given.load), emulate=given.emulate))
        for backend in given.backend or backends():
            if mutation.is_faulty(backend):
                mutation.register(backend)
            runner = Runner(backend, with_passes=not given.without_passes)
            code = max(code, _run(runner, files, given.verbose))
    except (TilewrightError, ImportError, AttributeError, KeyError, OSError) as error:
        message = error.args[0] if isinstance(error, KeyError) else error
        print(f"cannot run: {message}", file=sys.stderr)
        return 2
    return code


def _run(runner: Runner, files: Sequence[Path], verbose: bool) -> int:
    counts: Counter[str] = Counter()
    broken = False
    for path in files:
        try:
            outcomes = runner.run_file(path)
        except ParseError as error:
            print(malformed(path, error), file=sys.stderr)
            broken = True
            continue
        except VerificationError as error:
            print(f"{path}: {error}", file=sys.stderr)
            broken = True
            continue
        counts.update(outcome.status for outcome in outcomes)
        for outcome in outcomes:
            if verbose or outcome.status == FAILED:
                print(report(path, runner.backend, outcome))
    texts = (f"{counts[status]} {status}" for status in (PASSED, FAILED, NOT_SUPPORTED))
    print(f"{runner.backend}: {', '.join(texts)}")
    return 2 if broken else 1 if counts[FAILED] else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "python -m tilewright_conformance.runtests",
        description="Run functions of Tile IR and compare their results.",
    )
    parser.add_argument(
        "files",
        nargs="*",
        type=Path,
        metavar="FILE",
        help="Tile IR with directives '; run: @f(1.0) == 2.0'; those of the suite otherwise",
    )
    parser.add_argument(
        "--backend",
        action="append",
        default=[],
        metavar="NAME",
        help="may be repeated; the reference and all that have a device otherwise",
    )
    parser.add_argument(
        "--load",
        action="append",
        default=[],
        metavar="MODULE",
        help="a plugin module to register under the backend's name; may be repeated",
    )
    parser.add_argument(
        "--emulate",
        default="",
        metavar="TARGET",
        help="run on this emulated target; TARGET:MODE for a mode of its emulator",
    )
    parser.add_argument(
        "--without-passes",
        action="store_true",
        help="lower the text as it stands",
    )
    parser.add_argument(
        "-v",
        "--verbose",
        action="store_true",
        help="print every directive, not only failures",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
