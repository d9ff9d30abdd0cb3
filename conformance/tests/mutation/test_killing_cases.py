"""The suite catches every switch of the broken backend, by the case that the checked-in list names;
a null backend passes nothing."""

from __future__ import annotations

import pytest

from tilewright_conformance import mutation
from tilewright_conformance.mutation.killing_cases import (
    CAUGHT,
    PROFILE_LISTS,
    catching_cases,
    outcome,
)
from tilewright_conformance.mutation.mutant import Switch
from tilewright_conformance.mutation.mutants import switch as switch_of
from tilewright_conformance.suite.case import Status
from tilewright_conformance.suite.catalogue import catalogue
from tilewright_conformance.suite.engine.judge import execute
from tilewright_conformance.suite.session import Session, Subject

CAUGHT_BY = catching_cases()
#: (profile, switch, case) of the lists of profiles.
OF_PROFILES = [
    (profile, *row) for profile in PROFILE_LISTS for row in catching_cases(profile).items()
]
SWITCHES = (*mutation.switches(), *mutation.disruptive_switches())


def test_the_list_names_every_switch_and_no_other() -> None:
    assert list(CAUGHT_BY) == [switch.name for switch in SWITCHES]


@pytest.mark.parametrize("switch", SWITCHES, ids=lambda switch: switch.name)
def test_a_switch_is_caught(switch: Switch) -> None:
    found = outcome(switch, catalogue()[CAUGHT_BY[switch.name]])
    assert found.status in CAUGHT, f"{found.status}: {found.message}"
    assert found.message


@pytest.mark.sampled(12)
@pytest.mark.parametrize(
    "case_id", sorted({*CAUGHT_BY.values(), *(case for _, _, case in OF_PROFILES)})
)
def test_a_catching_case_passes_without_a_switch(case_id: str) -> None:
    found = outcome(None, catalogue()[case_id])
    assert found.status is Status.PASSED, f"{found.status}: {found.message}"


def test_the_list_of_a_profile_names_its_cases() -> None:
    assert {profile for profile, _, _ in OF_PROFILES} == set(PROFILE_LISTS)
    for profile, _, case in OF_PROFILES:
        assert catalogue()[case].profile == profile


@pytest.mark.sampled(20)
@pytest.mark.parametrize(
    ("name", "case_id"),
    [pytest.param(name, case, id=f"{profile}-{name}") for profile, name, case in OF_PROFILES],
)
def test_a_profile_catches_a_switch(name: str, case_id: str) -> None:
    found = outcome(switch_of(name), catalogue()[case_id])
    assert found.status in CAUGHT, f"{found.status}: {found.message}"


#: What a backend that does nothing gets right: errors before the backend is asked, stores of
#: nothing, memory, and values that were there before.
NOTHING_IS_RIGHT = (
    "atomics/atomic_cas/f64/scalar",
    "atomics/atomic_cas/i16/scalar",
    "atomics/atomic_rmw/min/u32/scalar",
    "autotune/failures/mistake",
    "descriptors/descriptor_store/f16/made/10x20/40x0",
    "elementwise/min/f64/scalar/nan_ignore",
    "libdevice/types/refused",
    "math/exp/f16/refused",
    "memory/allocation/alignment",
    "memory/allocation/copies",
    "memory/empty/arrays/f32",
    "memory/empty/arrays/i8",
    "random/philox/i16/refused",
)


@pytest.mark.sampled(9)
@pytest.mark.parametrize("family", catalogue().families)
def test_a_backend_that_does_nothing_passes_nothing(
    family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "tilewright_conformance.cases.perf.perf.measuring.sized_launch",
        lambda session, make, size, maximum: size,
    )  # whatever the size, nothing takes no time
    mutation.register(mutation.NULL)
    try:
        subject = Subject(mutation.NULL)
        quick = [case for case in catalogue().family(family).values() if case.quick]
        passed = [
            case.id
            for case in quick
            if execute(case, Session(subject, case.id)).status is Status.PASSED
        ]
    finally:
        mutation.unregister(mutation.NULL)
    assert sorted(passed) == [id_ for id_ in NOTHING_IS_RIGHT if id_.startswith(f"{family}/")]
