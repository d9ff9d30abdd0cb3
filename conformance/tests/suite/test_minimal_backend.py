"""Each profile can be claimed by a backend that has exactly what the profile states."""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from tilewright.ir import TABLE
from tilewright.passes.decompose.catalogue import CATALOGUE
from tilewright.plugins.hooks import hookimpl
from tilewright.plugins.registry import registry
from tilewright_conformance.suite import minimal_backend
from tilewright_conformance.suite.case import PROFILES, Case, Needs, Outcome, Status
from tilewright_conformance.suite.catalogue import catalogue
from tilewright_conformance.suite.cli import main
from tilewright_conformance.suite.engine.judge import execute
from tilewright_conformance.suite.profiles import OPERATIONS, REQUIRES, USES, required_cases
from tilewright_conformance.suite.session import Session, Subject

#: ``TILEWRIGHT_FULL_CONFORMANCE=1`` runs all cases of each profile. Without it those of a quick run
#: do, in which every operation that the profile core states is lowered.
FULL = os.environ.get("TILEWRIGHT_FULL_CONFORMANCE", "0") not in ("", "0")


@pytest.fixture
def fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Cached code is not lowered again."""
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path))
    yield
    registry().unregister(minimal_backend.NAME)


def outcomes(profile: str, cases: Iterable[Case]) -> list[Outcome]:
    registry().register(minimal_backend.Minimal(profile), minimal_backend.NAME)
    subject = Subject(minimal_backend.NAME)
    return [execute(case, Session(subject, case.id)) for case in cases]


#: Cases for which the interpreter executes hundreds of thousands of operations; for each, one that
#: differs in the shape of its tiles alone.
LONG = {
    "sorting/tl.sort/f32/2048": "sorting/tl.sort/f32/256",
    "sorting/tl.sort/i32/2048": "sorting/tl.sort/i32/16x1",
    "sorting/argsort/i32/1024": "sorting/argsort/i32/128",
    "kernels/attention/forward/causal/f16_depth_64": "kernels/attention/forward/causal/f16",
    "kernels/attention/forward/full/f16_depth_64": "kernels/attention/forward/full/f16",
    "kernels/attention/gradients/causal/f16_depth_64": "kernels/attention/gradients/causal/f16",
    "kernels/attention/gradients/full/f16_depth_64": "kernels/attention/gradients/full/f16",
    "dots/loop/f16/blocks_of_128": "dots/loop/f16/rows_acc",
    "dots/loop/bf16/blocks_of_128": "dots/loop/bf16/rows_acc",
}


@pytest.mark.slow
@pytest.mark.parametrize("profile", PROFILES)
def test_a_profile_needs_no_more_than_it_states(
    profile: str, fresh: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cases of the profile, in this process: it is the reference interpreter that runs them.
    Of a long one, another runs, and it needs no more."""
    monkeypatch.setattr("tilewright_conformance.cases.perf.perf.measuring._TRIES", 1)
    monkeypatch.setattr("tilewright_conformance.cases.perf.perf.measuring._ROUNDS", 1)
    monkeypatch.setattr(
        "tilewright_conformance.cases.perf.perf.measuring.sized_launch",
        lambda session, make, size, maximum: size,
    )
    every = catalogue().select(profiles=[profile])
    for case in every:
        if case.id in LONG:
            assert (
                catalogue()[LONG[case.id]] in every
                and case.needs.missing(REQUIRES[profile].capabilities()) == ()
            )
    selected = [case for case in every if (FULL or case.quick) and case.id not in LONG]
    found = outcomes(profile, selected)
    listed = tuple(
        case
        for case in required_cases(catalogue())[profile]
        if case in {case.id for case in selected}
    )
    if (
        profile == "perf"
    ):  # how fast the interpreter is on a busy machine says nothing here: what it refuses does
        found = [outcome for outcome in found if outcome.status is not Status.FAILED]
        listed = tuple(case for case in listed if case in {outcome.case for outcome in found})
    assert listed
    wrong = [
        outcome for outcome in found if outcome.status not in (Status.PASSED, Status.NOT_SUPPORTED)
    ]
    assert minimal_backend.judged(profile, catalogue(), found, listed).reasons == (), wrong


def test_exact_mode_takes_dots_of_floats_where_the_backend_has_those_of_i8(fresh: None) -> None:
    cases = (catalogue()["exact/matmul/tiled/f16"], catalogue()["exact/matmul/native/f16"])
    in_i8, native = outcomes("exact", cases)
    assert in_i8.status is Status.PASSED, in_i8.message
    assert native.status is Status.NOT_SUPPORTED and "dot of fp16" in native.message


@pytest.mark.parametrize(
    ("profile", "case", "refused"),
    [
        ("math", "math/erf/f32/128", "fma"),
        ("atomics", "atomics/lock", "while"),
        ("matmul", "dots/dot/bf16/fractions", "reduce"),
    ],
)
def test_an_operation_that_a_profile_does_not_state_shows(
    profile: str, case: str, refused: str, fresh: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(OPERATIONS, profile, OPERATIONS[profile] - {refused})
    (found,) = outcomes(profile, [catalogue()[case]])
    assert found.status is Status.ERROR and f"does not lower {refused} (at" in found.message
    assert not minimal_backend.judged(profile, catalogue(), [found], (case,)).holds


@pytest.mark.parametrize(
    ("profile", "case", "lacking"),
    [
        ("core", "elementwise/add/f64/scalar", "element type f64"),
        ("matmul", "dots/dot/i8_u8_i32/16x16x16", "matmul of u8 accumulated in i32"),
        ("matmul", "dots/precision/f32/tf32/32x32x64", "input_precision must be one of"),
        ("atomics", "atomics/poll/time/waiting", "feature 'clock'"),
        ("autotune", "autotune/hooks/descriptor", "feature 'descriptors'"),
        ("control", "control/extern/bitcode", "extern_libs was specified but unrecognised"),
    ],
)
def test_a_case_that_keeps_a_need_to_itself_shows(
    profile: str, case: str, lacking: str, fresh: None
) -> None:
    own = dataclasses.replace(catalogue()[case], needs=Needs())
    (found,) = outcomes(profile, [own])
    assert found.status is Status.ERROR and lacking in found.message
    assert not minimal_backend.judged(profile, catalogue(), [found], (case,)).holds
    registry().unregister(minimal_backend.NAME)
    assert outcomes(profile, [catalogue()[case]])[0].status is Status.NOT_SUPPORTED


def test_no_profile_needs_llvm(fresh: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """A backend may have its own compiler and no LLVM."""
    for module in ("llvmlite", "llvmlite.binding", "llvmlite.ir"):
        monkeypatch.setitem(sys.modules, module, None)
    (found,) = outcomes("control", [catalogue()["control/extern/bitcode"]])
    assert found.status is Status.NOT_SUPPORTED, found.message


def test_operations_are_of_the_table_and_of_core_first() -> None:
    names = {spec.name for spec in TABLE}
    for profile in PROFILES:
        assert OPERATIONS["core"] <= OPERATIONS[profile] <= names
        assert USES["core"] <= USES[profile] <= names


def test_few_operations_are_to_be_lowered() -> None:
    """All other operations of the cases have a row in the catalogue of decompositions."""
    assert len(OPERATIONS["core"]) <= 35 < len(USES["core"])
    for profile in ("math", "memory", "descriptors", "fp8", "launch", "autotune"):
        assert OPERATIONS[profile] == OPERATIONS["core"]
    assert not (OPERATIONS["core"] | OPERATIONS["atomics"] | OPERATIONS["matmul"]) & set(CATALOGUE)


def test_arithmetic_on_a_float_that_is_not_computed_in_shows(
    fresh: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest = minimal_backend.Minimal.tilewright_backend
    monkeypatch.setattr(
        minimal_backend.Minimal,
        "tilewright_backend",
        hookimpl(lambda self: dataclasses.replace(manifest(self), computes=frozenset())),
    )
    (found,) = outcomes("core", [catalogue()["elementwise/add/bf16/scalar"]])
    assert (
        found.status is Status.ERROR
        and "does not lower add (at" in found.message
        and "bf16: it computes in f32" in found.message
    )


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["profiles", "--claimable", "--profile", "launch", "-j", "1"]) == 0
    assert capsys.readouterr().out.startswith("profile launch: claimed, ")
