"""``python -m tilewright_conformance.fuzz --backend NAME --count N --seed S --out DIR``.

Exit status: 0 where every program agreed, 1 where one did not, 2 where nothing could be run. A
backend that crashes or hangs ends the process; the program that ran then is in ``running_SEED.py``,
so that processes with seeds of their own may share a folder.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tilewright.errors import TilewrightError
from tilewright.plugins.emulators import emulate
from tilewright.plugins.registry import registry
from tilewright_conformance import mutation
from tilewright_conformance.fuzz.differential import Differential, Verdict
from tilewright_conformance.fuzz.exact_differential import ExactDifferential, RewriteDifferential
from tilewright_conformance.fuzz.reproducer import reproducer, write
from tilewright_conformance.fuzz.search import Found, Search
from tilewright_conformance.random_programs import Program


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the fuzzer and return the exit status."""
    given = _parser().parse_args(arguments)
    try:
        load = _loaded(given.backend, given.load)
        emulated = emulate(given.backend, given.emulate, given.seed) if given.emulate else None
        differential = _oracle(given)(given.backend, given.time_limit, emulated)
    except (TilewrightError, ImportError, AttributeError, KeyError) as error:
        print(
            f"cannot run on {given.backend!r}: "
            f"{error.args[0] if isinstance(error, KeyError) else error}",
            file=sys.stderr,
        )
        return 2
    return _Run(
        given.backend, load, given.out, given.seed, Search(differential, shrink=given.shrink)
    ).run(given.count, given.stop_after)


class _Run:
    def __init__(self, backend: str, load: str, out: Path, seed: int, search: Search) -> None:
        self.backend, self.load, self.out, self.seed, self.search = backend, load, out, seed, search
        self.running = out / f"running_{seed}.py"
        search.before = self._note

    def run(self, count: int, stop_after: int) -> int:
        seed, started, found = self.seed, time.monotonic(), 0
        print(f"fuzzing {self.backend}: {count} programs, seed {seed}", flush=True)
        for failure in self.search.run(count, seed):
            found += 1
            print(self._report(failure, f"failure_{failure.seed}.py"), flush=True)
            if found == stop_after:
                break
        self.running.unlink(missing_ok=True)
        tally = self.search.tally
        if not tally.judged:
            print(f"no program could be run: {dict(tally.kinds)}", file=sys.stderr)
            return 2
        print(tally.coverage())
        for reason, times in tally.reasons.most_common(10):
            print(f"thrown out {times} times: {reason}")
        print(
            f"{self.backend}: {tally.judged} programs, {found} failing, {tally.rejections()}; "
            f"seed {seed}, {time.monotonic() - started:.1f} s"
        )
        return 1 if found else 0

    def _text(self, program: Program, verdict: Verdict, title: str, file: str) -> str:
        return reproducer(
            verdict.executed or program,
            verdict.expected,
            backend=self.search.differential.executes,
            load=self.load,
            title=title,
            message=verdict.message,
            file=file,
        )

    def _note(self, program: Program, known: Verdict) -> None:
        """Leave the program behind, in case the backend ends the process."""
        write(
            self.running,
            self._text(
                program,
                known,
                f"The program that ran when the process on {self.backend} ended.",
                self.running.name,
            ),
        )

    def _report(self, failure: Found, file: str) -> str:
        title = f"A random program on which {self.backend} fails ({failure.verdict.kind})."
        write(self.out / file, self._text(failure.program, failure.verdict, title, file))
        return (
            f"{failure.verdict.kind}: {failure.verdict.message}\n  {failure.drawn} operations "
            f"made {failure.shrunk}; python {self.out / file}"
        )


def _oracle(given: argparse.Namespace) -> type[Differential]:
    if given.rewrites:
        return RewriteDifferential
    return ExactDifferential if given.exact else Differential


def _loaded(backend: str, reference: str) -> str:
    """Register a backend that no distribution ships and return the reference to its plugin.

    The reference is empty for an installed backend.
    """
    if not reference and mutation.is_faulty(backend):
        mutation.register(backend)
        return mutation.load_reference(backend)
    if reference:
        module, _, name = reference.partition(":")
        # computed: the command line names the plugin
        plugin = importlib.import_module(module)
        registry().register(
            getattr(plugin, name) if name else plugin,
            backend,
            distribution=f"loaded from {reference}",
        )
    return reference


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "python -m tilewright_conformance.fuzz",
        description="Run random tile programs on a backend and on the reference.",
    )
    parser.add_argument("--backend", required=True, help="the backend's name")
    parser.add_argument(
        "--count", type=int, default=1000, help="programs to run (default: %(default)s)"
    )
    parser.add_argument(
        "--seed", type=int, default=0, help="of the programs and their data (default: %(default)s)"
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("fuzz"),
        help="where reproducers are written (default: %(default)s)",
    )
    oracle = parser.add_mutually_exclusive_group()
    oracle.add_argument(
        "--exact",
        action="store_true",
        help="run the programs in exact mode, on drawn payloads: the backend's bits must be the "
        "reference's",
    )
    oracle.add_argument(
        "--rewrites",
        action="store_true",
        help="on the reference, in exact mode: a program and what each of the backend's passes "
        "makes of it must compute the same algebra",
    )
    parser.add_argument(
        "--emulate",
        default="",
        metavar="TARGET",
        help="run on this emulated target of the backend; TARGET:MODE for a mode of its emulator",
    )
    parser.add_argument(
        "--load",
        default="",
        metavar="MODULE[:OBJECT]",
        help="the backend's plugin, where no distribution ships it",
    )
    parser.add_argument(
        "--stop-after",
        type=int,
        default=5,
        metavar="N",
        help="stop after N failures (default: %(default)s)",
    )
    parser.add_argument(
        "--time-limit",
        type=float,
        default=120.0,
        metavar="S",
        help="seconds for one program; then all ends (default: %(default)s)",
    )
    parser.add_argument(
        "--shrink",
        type=int,
        default=500,
        metavar="N",
        help="smaller programs to try for each failure (default: %(default)s)",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
