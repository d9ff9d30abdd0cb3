"""The suite as tests of pytest.

    pytest --pyargs tilewright_conformance --backend NAME [--profile PROFILE] [--quick] [-n N]

The plugin is there in every run of pytest, and does nothing, not even add options, unless the suite
is named on the command line. Each case runs in a worker process of the engine, so that a backend
that crashes or hangs fails that case alone; with pytest-xdist there is a worker process for each of
its workers.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tilewright_conformance.suite.case import Case
    from tilewright_conformance.suite.engine.pool import Lane
    from tilewright_conformance.suite.expectations import Expectations

_PACKAGE = "tilewright_conformance"
#: The fixture that a test of a case asks for.
_CASE = "conformance_case"


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(parser: pytest.Parser, args: list[str]) -> None:
    """Add the options, where the suite is named; the command line is not parsed for good yet."""
    if not any(argument.partition("::")[0].partition(".")[0] == _PACKAGE for argument in args):
        return
    group = parser.getgroup("tilewright conformance")
    group.addoption(
        "--backend", dest="conformance_backend", metavar="NAME", help="the backend to test"
    )
    group.addoption(
        "--profile",
        dest="conformance_profile",
        action="append",
        default=[],
        help="run the cases of this profile; may be repeated",
    )
    group.addoption(
        "--case",
        dest="conformance_patterns",
        action="append",
        default=[],
        metavar="PATTERN",
        help="run the cases that match; may be repeated",
    )
    group.addoption(
        "--quick", dest="conformance_quick", action="store_true", help="run a part of the cases"
    )
    group.addoption(
        "--expectations",
        dest="conformance_expectations",
        metavar="FILE",
        help="the vendor's list of what the backend does not do",
    )
    group.addoption(
        "--seed", dest="conformance_seed", type=int, default=0, help="of the random numbers"
    )
    group.addoption(
        "--load",
        dest="conformance_load",
        action="append",
        default=[],
        metavar="MODULE",
        help="a plugin module to register as the backend",
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test for each chosen case."""
    if _CASE not in metafunc.fixturenames:
        return
    from tilewright_conformance.suite.catalogue import CatalogueError, catalogue

    option = metafunc.config.option
    if not getattr(option, "conformance_backend", None):
        raise pytest.UsageError(
            f"the conformance suite needs a backend: pytest --pyargs {_PACKAGE} --backend NAME"
        )
    try:
        cases = catalogue().select(
            profiles=option.conformance_profile,
            patterns=option.conformance_patterns,
            quick=option.conformance_quick,
        )
    except CatalogueError as error:
        raise pytest.UsageError(str(error)) from None
    metafunc.parametrize(_CASE, cases, ids=[case.id for case in cases])


@pytest.fixture(scope="session")
def conformance_lane(request: pytest.FixtureRequest) -> Iterator[Lane]:
    """A lane that runs cases, for the whole run of this process."""
    from tilewright_conformance.suite.engine.pool import Lane, fresh_caches
    from tilewright_conformance.suite.engine.process import WorkerRefusedError
    from tilewright_conformance.suite.engine.setup import Setup

    option = request.config.option
    setup = Setup(
        option.conformance_backend,
        seed=option.conformance_seed,
        quick=option.conformance_quick,
        load=tuple(option.conformance_load),
    )
    with fresh_caches() as environment:
        try:
            lane = Lane(setup, environment)
        except WorkerRefusedError as error:
            pytest.exit(str(error), returncode=2)
        yield lane
        lane.stop()


@pytest.fixture(scope="session")
def conformance_expectations(request: pytest.FixtureRequest) -> Expectations:
    """The vendor's list; empty where none is given."""
    from tilewright_conformance.suite.catalogue import catalogue
    from tilewright_conformance.suite.expectations import (
        ExpectationError,
        Expectations,
        read_expectations,
    )

    path = request.config.option.conformance_expectations
    try:
        return Expectations() if path is None else read_expectations(Path(path), catalogue())
    except (ExpectationError, OSError) as error:
        pytest.exit(str(error), returncode=2)


def run_as_test(case: Case, lane: Lane, expectations: Expectations, record_property: Any) -> None:
    """Run a case, and end the test as its verdict says."""
    from tilewright_conformance.suite.case import Status
    from tilewright_conformance.suite.expectations import Verdict

    outcome = lane.run(case)
    verdict, entry = expectations.verdict(outcome), expectations.of(case.id)
    record_property("status", outcome.status.value)
    for name, number in outcome.numbers.items():
        record_property(name, number)
    if verdict is Verdict.EXPECTED:
        assert entry is not None
        pytest.xfail(f"{entry.kind}: {entry.reason} ({entry.issue})")
    if verdict is Verdict.UNEXPECTED_PASS:
        assert entry is not None
        pytest.fail(f"passed, and the expectations say {entry.kind}: {entry.reason}", pytrace=False)
    if verdict is Verdict.BAD:
        pytest.fail(f"{outcome.status}: {outcome.message}", pytrace=False)
    if outcome.status is Status.NOT_SUPPORTED:
        pytest.skip(f"not supported: {outcome.message}")
