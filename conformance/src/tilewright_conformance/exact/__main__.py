"""The pairs of one algebra and the injected bugs on a backend.

python -m tilewright_conformance.exact --backend NAME [--emulate TARGET[:MODE]] [--only PATTERN]...
                                       [--repeat N] [--dot native|i8] [--carry float|int]
"""

from __future__ import annotations

import argparse
import fnmatch
import sys
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from tilewright.errors import TilewrightError
from tilewright.plugins.emulators import emulate
from tilewright.plugins.manifest import EmulatedDevice
from tilewright.tools.shared_options import repeated
from tilewright_conformance.exact.equal_pairs import FAMILIES, atomic_split_k
from tilewright_conformance.exact.injected_bugs import BUGS, with_bug
from tilewright_conformance.exact.launches import Launch, verdict_on
from tilewright_conformance.exact.rewrites import rewrites
from tilewright_conformance.suite.session import Session, Subject

#: Kinds of comparisons, as the last line counts them.
PAIRS, ATOMICS, BUG = "pairs equal", "atomic pairs equal", "bugs caught"
REWRITES, VARIANTS = "rewrites equal", "wrong variants caught"


class Comparison(NamedTuple):
    """Two launches, and the status of the verdict that is right.

    Attributes:
        outputs: the number of comparisons that it counts for.
    """

    kind: str
    name: str
    a: Launch
    b: Launch
    expected: str
    outputs: int


def comparisons() -> Iterator[Comparison]:
    for family in FAMILIES:
        for pair in family():
            yield Comparison(PAIRS, pair.name, pair.a, pair.b, "equal", pair.outputs)
    for dtype in (np.float16, np.float32):
        for split in (1, 2, 5):
            pair = atomic_split_k(split, dtype)
            yield Comparison(ATOMICS, pair.name, pair.a, pair.b, "equal", 1)
    for launch, bug in BUGS:
        right = launch()
        name = f"{launch.__name__}: {bug}"
        yield Comparison(BUG, name, right, with_bug(right, bug), "different", 1)
    for name, plain, rewritten, bugs in rewrites():
        yield Comparison(REWRITES, name, plain, rewritten, "equal", 1)
        for bug in bugs:
            wrong = with_bug(rewritten, bug)
            yield Comparison(VARIANTS, f"{name}: {bug}", plain, wrong, "different", 1)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the comparisons that are asked for; return 0 where all verdicts are right."""
    given = _parser().parse_args(arguments)
    try:
        emulated = emulate(given.backend, given.emulate) if given.emulate else None
        session = Session(Subject(given.backend), "exact")
    except TilewrightError as error:
        print(f"exact: {error}", file=sys.stderr)
        return 2
    chosen = [
        one
        for one in comparisons()
        if not given.only or any(fnmatch.fnmatchcase(one.name, part) for part in given.only)
    ]
    if not chosen:
        print(f"exact: no comparison matches {' or '.join(given.only)}", file=sys.stderr)
        return 2
    right: dict[str, int] = {}
    total: dict[str, int] = {}
    started = time.perf_counter()
    for one in chosen:
        wrong = _wrong(one, session, emulated, given)
        total[one.kind] = total.get(one.kind, 0) + one.outputs
        right[one.kind] = right.get(one.kind, 0) + (0 if wrong else one.outputs)
        seconds = time.perf_counter() - started
        print(f"{seconds:7.1f} s  {'WRONG' if wrong else 'right'}  {one.name}{wrong}", flush=True)
    counts = ", ".join(f"{kind} {right[kind]}/{total[kind]}" for kind in total)
    print(f"{counts}; {given.repeat} times each in {time.perf_counter() - started:.1f} s")
    return 0 if right == total else 1


def _wrong(
    one: Comparison, session: Session, emulated: EmulatedDevice | None, given: argparse.Namespace
) -> str:
    """Run a comparison on as many draws as are asked for; return what is wrong, if anything."""
    for seed in range(given.repeat):
        try:
            found = verdict_on(session, one.a, one.b, seed=seed, dot=given.dot, carry=given.carry)
        except TilewrightError as error:
            if emulated is None:
                return f": {type(error).__name__}: {error}"
            cause = emulated.error or error
            emulated.recover()
            return f": {type(cause).__name__}: {cause}"
        if found.status != one.expected:
            return f": seed {seed}: {found}"
    return ""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tilewright_conformance.exact",
        description="Kernels of one algebra, and bugs, in exact mode on a backend.",
    )
    parser.add_argument("--backend", required=True, metavar="NAME")
    parser.add_argument(
        "--emulate",
        default="",
        metavar="TARGET",
        help="run on this emulated target of the backend; TARGET:MODE for a mode of its emulator",
    )
    repeated(
        parser,
        "--only",
        metavar="PATTERN",
        help="run the comparisons whose names match; may be repeated",
    )
    parser.add_argument(
        "--repeat",
        type=int,
        default=1,
        metavar="N",
        help="draw payloads N times for each comparison (%(default)s)",
    )
    parser.add_argument("--dot", choices=("native", "i8"), default="native")
    parser.add_argument("--carry", choices=("float", "int"), default="float")
    return parser


if __name__ == "__main__":
    sys.exit(main())
