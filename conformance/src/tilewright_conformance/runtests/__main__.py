"""``python -m tilewright_conformance.runtests [FILE...] [--backend NAME]...``.

A file is a path, or the name of one of the suite's files, such as ``integers``. Without files, the
command runs all of the suite's; without backends, the reference and every backend that has a device
here. Exit status: 0 if every directive passed or is not supported, 1 if one failed, 2 if a file or
a backend cannot be run.
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
from tilewright.tools.shared_options import repeated
from tilewright.tools.usage import UsageError
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
from tilewright_conformance.suite.report.failure_groups import (
    missing_operations,
    operations_to_lower,
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line; returns the exit status."""
    given = _parser().parse_args(arguments)
    code = 0
    try:
        files = [_located(file) for file in given.files] or sorted(FILES.glob("*.tileir"))
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


def _located(file: Path) -> Path:
    """Return a file as given, or the suite's file of that name if there is none at the path.

    Raises:
        UsageError: there is no such file.
    """
    own = FILES / f"{file.name.removesuffix('.tileir')}.tileir"
    if file.exists():
        return file
    if file.parent == Path() and own.exists():
        return own
    names = ", ".join(sorted(path.stem for path in FILES.glob("*.tileir")))
    raise UsageError(f"there is no file {file}; the suite's files are {names}")


def _run(runner: Runner, files: Sequence[Path], verbose: bool) -> int:
    counts: Counter[str] = Counter()
    broken = False
    missing: dict[str, str] = {}
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
            waits = outcome.status == FAILED and missing_operations(outcome.message)
            if waits:
                missing[f"{path}:{outcome.run.line}:{outcome.run.column}"] = outcome.message
            if verbose or (outcome.status == FAILED and not waits):
                print(report(path, runner.backend, outcome))
    if missing:
        print(f"{len(missing)} directives need operations without a lowering (-v lists them):")
        print("".join(f"  {cause}\n" for cause in operations_to_lower(missing)), end="")
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
        help="Tile IR with directives '; run: @f(1.0) == 2.0', or the name of one of the suite's "
        "files; all of the suite's otherwise",
    )
    repeated(
        parser,
        "--backend",
        metavar="NAME",
        help="may be repeated; the reference and all that have a device otherwise",
    )
    repeated(
        parser,
        "--load",
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
        help="print every directive, not only wrong results and errors",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
