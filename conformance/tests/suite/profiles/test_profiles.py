"""The lists of what must pass, and what a claim rests on."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from tilewright.ir.order import SEQUENTIAL, TREE
from tilewright.ir.types import F32
from tilewright_conformance.suite import profiles
from tilewright_conformance.suite.case import PROFILES, Needs, Outcome, Status
from tilewright_conformance.suite.catalogue import catalogue
from tilewright_conformance.suite.expectations import Expectation, Expectations
from tilewright_conformance.suite.provenance import suite_version
from tilewright_conformance.suite.session import Subject


def test_the_required_cases_are_the_checked_in_ones() -> None:
    changes = profiles.changed_families(catalogue(), suite_version())
    assert not changes, "python -m tilewright_conformance profiles --write"


def test_each_profile_states_what_it_requires() -> None:
    assert set(profiles.REQUIRES) == set(PROFILES)


def test_required_cases_need_no_more_than_the_profile_requires() -> None:
    required = profiles.required_cases(catalogue())["core"]
    assert "elementwise/add/f32/scalar" in required
    assert "elementwise/add/f64/scalar" not in required


def test_fingerprints_are_read_as_they_were_written(tmp_path: Path) -> None:
    profiles.write_fingerprints(catalogue(), "9.9", file := tmp_path / "required_cases.toml")
    recorded = profiles.recorded_fingerprints("9.9", file)
    assert recorded == profiles.fingerprints(catalogue())
    required = profiles.required_cases(catalogue())["core"]
    assert recorded["core"]["elementwise"].cases == sum(
        id_.startswith("elementwise/") for id_ in required
    )
    with pytest.raises(profiles.ProfileError, match=r"no required cases of version 9\.8"):
        profiles.recorded_fingerprints("9.8", file)
    file.write_text('suite = "9.9"\n[core]\nelementwise = 3\n')
    with pytest.raises(profiles.ProfileError, match="is damaged"):
        profiles.recorded_fingerprints("9.9", file)


def test_a_changed_case_changes_the_fingerprint_of_its_family(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    recorded = profiles.fingerprints(catalogue())
    recorded["core"]["elementwise"] = profiles.Fingerprint.of(["elementwise/add/f32/scalar"])
    monkeypatch.setattr(profiles, "recorded_fingerprints", lambda version: recorded)
    assert profiles.changed_families(catalogue(), suite_version()) == {"core": ["elementwise"]}


CORE = ("elementwise/add/f32/scalar", "elementwise/sub/f32/scalar")
FURTHER = "elementwise/add/f64/scalar"


def claim(
    outcomes: dict[str, Status],
    *,
    without: str = "",
    expected: tuple[Expectation, ...] = (),
    **options: Any,
) -> str:
    capabilities = Subject("cpu").capabilities
    if without:
        capabilities = dataclasses.replace(capabilities, dtypes=capabilities.dtypes - {without})
    found = {
        case: Outcome(case, status, "", "" if status is Status.PASSED else "LoweringError")
        for case, status in outcomes.items()
    }
    judged = profiles.claim(
        "core",
        CORE,
        found,
        dict.fromkeys(found, "core"),
        capabilities,
        Expectations(expected, catalogue()),
        **{"quick": False, **options},
    )
    assert judged.holds == (not judged.reasons)
    return "; ".join(judged.reasons)


PASSED = dict.fromkeys((*CORE, FURTHER), Status.PASSED)


@pytest.mark.parametrize(
    ("changes", "options", "reason"),
    [
        ({}, {}, ""),
        ({}, {"quick": True}, "a quick run is not valid for a claim"),
        ({}, {"without": "f32"}, "the backend does not declare dtype f32"),
        ({}, {"without": "f64"}, ""),
        ({}, {"changed": ("access",)}, "the cases of access are not those of the suite's version"),
        ({CORE[0]: Status.NOT_SUPPORTED}, {}, f"1 of 2 cases that must pass did not: {CORE[0]}"),
        ({FURTHER: Status.NOT_SUPPORTED}, {}, ""),
        (
            {FURTHER: Status.FAILED},
            {},
            f"1 further cases were neither passed nor refused: {FURTHER}",
        ),
        (
            {FURTHER: Status.ERROR},
            {"expected": (Expectation(FURTHER, "never", "no", "LoweringError", "https://x"),)},
            "",
        ),
        (
            {FURTHER: Status.ERROR},
            {"expected": (Expectation(FURTHER, "notyet", "no", "LoweringError", "https://x"),)},
            f"1 further cases were neither passed nor refused: {FURTHER}",
        ),
    ],
)
def test_what_a_claim_rests_on(
    changes: dict[str, Status], options: dict[str, Any], reason: str
) -> None:
    assert claim({**PASSED, **changes}, **options) == reason


def test_a_claim_needs_each_case_of_the_list() -> None:
    assert claim({CORE[0]: Status.PASSED}) == f"1 of 2 cases that must pass were not run: {CORE[1]}"


def test_needs_are_read_off_modules() -> None:
    from tilewright_conformance.op_samples import samples
    from tilewright_conformance.suite.requirements import needs_of
    from tilewright_conformance.testlib import reduction_order

    assert needs_of(next(samples("dot")).module).dot
    found = {
        operation: [needs_of(sample.module) for sample in samples(operation)]
        for operation in ("atomic_rmw", "atomic_cas", "descriptor_load", "print")
    }
    assert {("f32", "add"), ("i32", "xor")} <= {
        pair for needs in found["atomic_rmw"] for pair in needs.atomics
    }
    assert all("cas" in {kind for _, kind in needs.atomics} for needs in found["atomic_cas"])
    ordered = reduction_order.sum_sample(F32, (4, 8), 1, TREE).module
    assert needs_of(ordered).orders == {("reduce", TREE), ("scan", TREE)}
    assert needs_of(reduction_order.dot_sample("f32").module).orders == {("dot", SEQUENTIAL)}
    assert all("descriptors" in needs.features for needs in found["descriptor_load"])
    assert all("print" in needs.features for needs in found["print"])
    capabilities = dataclasses.replace(
        Subject("cpu").capabilities, power_of_two=True, max_tile_elements=8
    )
    assert Needs(
        any_extent=True,
        tile_elements=9,
        dot_precisions=frozenset({"x"}),
        orders=frozenset({("dot", TREE), ("scan", TREE)}),
    ).missing(capabilities) == (
        "dot precision x",
        "order tree of dot",
        "extents that are no powers of two",
        "tiles of 9 elements",
    )
