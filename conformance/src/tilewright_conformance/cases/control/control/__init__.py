"""Control flow beyond branches and counted loops; calls, maps, prints, assertions, assumptions.

Inline assembly of the target is here, too.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator

import numpy as np

from tilewright.ir.ops.control import Call, Condition, Map, Return, While
from tilewright.ir.ops.debug import Assert, Assume, Hint
from tilewright.ir.ops.memory import Clock
from tilewright_conformance.cases.control.control import calls, reports, whiles
from tilewright_conformance.op_samples import Sample, samples
from tilewright_conformance.suite.case import Case
from tilewright_conformance.suite.requirements import needs_of
from tilewright_conformance.suite.session import Session
from tilewright_conformance.testlib.sampled_cases import sampled


def cases() -> Iterator[Case]:
    # Assertions of samples hold; what failing ones raise is looked at in kernels of the language.
    operations = (While, Condition, Map, Call, Return, Assert, Assume, Hint, Clock)
    yield from sampled("control", "control", {one.row.name: True for one in operations})
    for index, sample in enumerate(samples("print")):
        run = functools.partial(_prints_alike, sample)
        needs = needs_of(sample.module)
        yield Case(
            f"control/{sample.name}",
            "control",
            "print",
            run,
            needs,
            quick=index % 4 == 0,
            source="the reference interpreter",
        )
    yield from whiles.CASES
    yield from calls.CASES
    yield from reports.CASES


def _prints_alike(sample: Sample, session: Session) -> None:
    """Print the lines of the reference, in any order and without addresses."""
    seed = int(session.rng.integers(1 << 62))
    with session.printed() as due:
        session.run_reference(
            sample.module, sample.make_arguments(np.random.default_rng(seed)), sample.grid
        )
    with session.printed() as found:
        session.run_module(
            sample.module, sample.make_arguments(np.random.default_rng(seed)), sample.grid
        )
    expected, printed = (
        sorted(re.sub(r"address: 0x[0-9a-f]{16}$", "address", line) for line in lines)
        for lines in (due, found)
    )
    session.require(
        expected and printed == expected,
        f"printed {printed[:4]!r} in place of {expected[:4]!r} ({len(printed)} lines, "
        f"{len(expected)} due)",
    )
