"""Progress messages of a run."""

from __future__ import annotations

import io

from tilewright_conformance.suite.case import Outcome, Status
from tilewright_conformance.suite.expectations import Verdict
from tilewright_conformance.suite.progress import Printer


def told(*outcomes: Outcome) -> list[str]:
    """The lines about cases of a run whose cases all go wrong."""
    stream = io.StringIO()
    printer = Printer(stream)
    for done, outcome in enumerate(outcomes, 1):
        printer(len(outcomes), done, outcome, Verdict.BAD)
    return [line for line in stream.getvalue().splitlines() if not line[0].isdigit()]


def test_of_cases_that_go_wrong_in_one_way_the_first_are_told() -> None:
    refused = (
        "the backend refused what it declares: LoweringError: backend 'v' does not lower {} yet "
        "(at x.py:3): write a function for it"
    )
    lacking = [
        Outcome(f"scans/{name}/{index}", Status.ERROR, refused.format(name))
        for name in ("scan", "map")
        for index in range(300)
    ]
    wrong = [
        Outcome(
            f"elementwise/{name}/f32/{index}", Status.FAILED, f"{index} of 64 elements are wrong"
        )
        for name in ("max", "min")
        for index in range(40)
    ]
    lines = told(
        *lacking,
        *wrong,
        Outcome("elementwise/max/f32/x", Status.ERROR, "KeyError: 'f32'"),
        Outcome("math/exp", Status.PASSED),
    )
    assert [line.split(":")[0] for line in lines] == [
        *(f"ERROR scans/scan/{index}" for index in range(5)),
        "… and further ones like this, which are counted below and in the report",
        *(f"FAILED elementwise/max/f32/{index}" for index in range(5)),
        "… and further ones like this, which are counted below and in the report",
        *(f"FAILED elementwise/min/f32/{index}" for index in range(5)),
        "… and further ones like this, which are counted below and in the report",
        "ERROR elementwise/max/f32/x",
        "PASSED math/exp",
    ]
    assert lines[-2:] == [
        "ERROR elementwise/max/f32/x: KeyError: 'f32'",
        "PASSED math/exp: the expectations say that it does not pass",
    ]


def test_a_case_that_crashed_is_told_with_what_the_process_wrote() -> None:
    message = "the worker process died (SIGABRT); it wrote:\nfree(): invalid next size\nAborted"
    assert told(Outcome("access/load/i16", Status.CRASHED, message)) == [
        "CRASHED access/load/i16: the worker process died (SIGABRT); it wrote: "
        "free(): invalid next size"
    ]
