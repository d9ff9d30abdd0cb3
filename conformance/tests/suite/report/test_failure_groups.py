"""Failures put together by cause."""

from __future__ import annotations

from typing import Any

import pytest

from tilewright_conformance.suite.report import failure_groups
from tilewright_conformance.suite.report.document import Document
from tilewright_conformance.suite.report.failure_groups import missing_operations
from tilewright_conformance.suite.selftest import summary


def document(*results: dict[str, Any]) -> Document:
    rows = [
        {
            "case": f"a/{index}",
            "subject": "exp",
            "status": "error",
            "verdict": "bad",
            "message": "",
            "exception": "LoweringError",
            "lacks": [],
            **row,
        }
        for index, row in enumerate(results)
    ]
    return {"results": rows}


def lowering(*names: str) -> dict[str, str]:
    also = f"; this kernel also needs {', '.join(names[1:])}" if names[1:] else ""
    text = (
        "the backend refused what it declares: LoweringError: backend 'v' does not lower "
        f"{names[0]} yet (at x.py:3): write a function for it"
    )
    return {"message": text + also}


@pytest.mark.parametrize(
    ("message", "found"),
    [
        (lowering("store", "load", "vendor.op")["message"], {"store", "load", "vendor.op"}),
        ("the CPU backend does not lower atomic_cas, at x.py:3", {"atomic_cas"}),
        (
            (
                "the C backend does not lower add of i4 (at x.py:3); run this kernel on another "
                "backend"
            ),
            {"add"},
        ),
        ("operation scan at x.py:3 in f has no lowering for gfx942", {"scan"}),
        ("dot: backend 'v' does not declare products of f16", set()),
        ("3 elements are wrong", set()),
    ],
)
def test_refusals_name_operations(message: str, found: set[str]) -> None:
    assert missing_operations(message) == found


def test_what_to_lower_next_and_what_that_unblocks() -> None:
    rows = (
        [lowering("store", "arange")] * 4
        + [lowering("store")] * 2
        + [lowering("store", "arange", "exp")] * 3
        + [lowering("exp")]
    )
    found = failure_groups.failures(document(*rows))
    assert [str(cause) for cause in found] == [
        "lower `store`: unblocks 2 cases",
        "lower `arange`: unblocks 4 cases",
        "lower `exp`: unblocks 4 cases",
    ]
    assert found[0].cases == tuple(f"a/{index}" for index in range(9)) and sum(
        cause.unblocks for cause in found
    ) == len(rows)


def test_an_operation_that_unblocks_nothing_by_itself() -> None:
    found = failure_groups.failures(document(*[lowering("store", "load")] * 5))
    assert [str(cause) for cause in found] == [
        "lower `store`: 5 cases need it and more",
        "lower `load`: unblocks 5 cases",
    ]


def test_what_is_nearly_there_comes_before_what_is_far_off() -> None:
    found = failure_groups.failures(
        document(*[lowering("store", "load", "arange")] * 5, lowering("exp"))
    )
    assert str(found[0]) == "lower `exp`: unblocks 1 case"


def test_other_failures_are_one_cause_where_they_fail_alike() -> None:
    rows = [
        {"status": "timed-out", "exception": "TimeLimit", "message": "no result within 30 seconds"},
        *(
            {
                "exception": "ValueError",
                "message": (
                    f"ValueError: bad 'x{index}' of fp32 at /a/b{index}.py:{index} in {index} steps"
                ),
            }
            for index in range(3)
        ),
        *(
            {
                "status": "failed",
                "exception": "MismatchError",
                "message": f"{index} elements are wrong",
            }
            for index in range(2)
        ),
        {"status": "crashed", "exception": "SIGSEGV", "message": "died"},
        {
            "status": "failed",
            "exception": "",
            "message": (
                "the backend does not declare dtype f64, and accepted it silently: declare it"
            ),
        },
        {"status": "passed", "verdict": "unexpected-pass", "exception": ""},
        {"status": "passed", "verdict": "good"},
        {"verdict": "expected"},
    ]
    assert [str(cause) for cause in failure_groups.failures(document(*rows))] == [
        "ValueError: bad … of fp32 at … in … steps: 3 cases",
        "wrong results of `exp`: 2 cases",
        "time limits of `exp` (give a slow machine more by --time-scale): 1 case",
        "the process ended (SIGSEGV) on `exp`: 1 case",
        "declare or refuse dtype f64: 1 case",
        "the vendor's list says that they do not pass, and they do: take them out: 1 case",
    ]


def test_what_is_not_supported_by_reason() -> None:
    given = {"status": "not-supported", "verdict": "good"}
    rows = [
        {**given, "lacks": ["dtype f64", "atomic add on i32"]},
        {**given, "lacks": ["atomic add on i32", "atomic max on i32"]},
        {**given, "lacks": ["feature print"]},
        {"lacks": ["feature print"]},
    ]
    found = {cause.text: cause.cases for cause in failure_groups.unsupported(document(*rows))}
    assert found == {
        "atomic updates of i32": ("a/0", "a/1"),
        "dtype f64": ("a/0",),
        "feature print": ("a/2",),
    }


def test_a_run_ends_with_the_first_causes() -> None:
    names = [f"op_{letter}" for letter in "abcdefghij"]
    told = failure_groups.lines(document(*[lowering(name) for name in names]))
    assert (
        told[0] == "why, and what to do next:"
        and len(told) == 10
        and told[-1] == "  … and 2 more causes, 2 cases"
    )
    assert failure_groups.lines(document({"verdict": "good", "status": "passed"})) == []
    report = document({**lowering("exp"), "profile": "math", "numbers": {}})
    report.update(
        device={"name": "d", "target": "t"},
        summary={"total": {"cases": 1}},
        run={"seconds": 1.0},
        backend={"name": "b", "version": "1"},
    )
    assert "  lower `exp`: unblocks 1 case" in summary(report)
