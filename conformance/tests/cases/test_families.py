"""Rules for each family.

Unique ids, quick cases, declared requirements, and passing on the reference.
"""

from __future__ import annotations

import dataclasses
import sys
import types
from pathlib import Path

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tilewright.runtime import reference_backend
from tilewright_conformance.cases.perf.perf.measuring import demand
from tilewright_conformance.suite.case import Case, Needs
from tilewright_conformance.suite.catalogue import Catalogue, CatalogueError, catalogue
from tilewright_conformance.suite.comparison import MismatchError
from tilewright_conformance.suite.requirements_audit import Used, undeclared, used
from tilewright_conformance.suite.session import Session, Subject

#: Types that every kernel may use for indices, masks and messages without saying so.
_GRANTED = Needs(frozenset({"i1", "i32", "i64"}))


def _sampled(family: str) -> list[Case]:
    """Six quick cases, spread over the family, of those that the reference can run."""
    features = reference_backend.CAPABILITIES.features
    quick = [
        case
        for case in catalogue().family(family).values()
        if case.quick and case.needs.features <= features
    ]
    return quick[:: max(1, len(quick) // 6)]


@pytest.mark.parametrize("family", catalogue().families)
def test_cases_declare_what_their_kernels_use(
    family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path))
    sampled = _sampled(family)
    assert sampled, f"family {family} has no quick cases"
    for case in sampled:
        found = [
            text
            for text in undeclared(case, used(case))
            if text.removeprefix("dtype ") not in _GRANTED.dtypes
        ]
        assert not found, f"{case.id} uses, and does not declare, {', '.join(found)}"


def test_an_audit_of_needs_does_not_judge_speed() -> None:
    tries = []

    def run(session: Session) -> None:
        demand(session, lambda: (tries.append(1) or {}, "too slow"))

    case = Case("audited/speed", "perf", "add", run)
    assert not undeclared(case, used(case)) and len(tries) == 1
    with pytest.raises(MismatchError, match="too slow, in each of 6 tries"):
        run(Session(Subject("reference"), case.id))


def _case(id_: str) -> Case:
    return Case(id_, "core", "add", lambda session: None)


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        (["other/a"], "the id of each case begins with own/, and one is 'other/a'"),
        (["own/a", "own/b", "own/a"], "two cases have the id 'own/a'"),
        ([], "has no cases"),
    ],
)
def test_families_that_break_a_rule(
    monkeypatch: pytest.MonkeyPatch, ids: list[str], message: str
) -> None:
    module = types.ModuleType("families.own")
    module.cases = lambda: iter([_case(id_) for id_ in ids])  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "families.own", module)
    found = Catalogue()
    monkeypatch.setitem(found._modules, "own", "families.own")
    with pytest.raises(CatalogueError, match=message):
        found.family("own")


def test_looking_cases_up() -> None:
    found = catalogue()
    assert found["elementwise/add/i8/scalar"].subject == "add"
    assert [case.id for case in found.matching("elementwise/add/i8/scalar")] == [
        "elementwise/add/i8/scalar"
    ]
    assert {case.subject for case in found.matching("elementwise/add/")} == {"add"}
    assert {case.subject for case in found.matching("*/add/i8/*")} >= {"add"}
    with pytest.raises(CatalogueError, match="the suite has no case 'elementwise/nothing'"):
        found["elementwise/nothing"]
    with pytest.raises(CatalogueError, match="there is no profile 'best'"):
        found.select(profiles=["best"])
    quick = found.select(quick=True)
    assert quick and len(quick) < len(found.select()) and all(case.quick for case in quick)


@pytest.mark.parametrize(
    ("id_", "profile"),
    [("elementwise", "core"), ("a/b c", "core"), ("a//b", "core"), ("a/b", "best")],
)
def test_ids_and_profiles_have_a_form(id_: str, profile: str) -> None:
    with pytest.raises(ValueError, match=r"the id of a case is words|the profile must be one of"):
        Case(id_, profile, "add", lambda session: None)


def test_a_case_that_uses_more_than_it_declares_is_found() -> None:
    case = catalogue()["elementwise/add/f64/scalar"]

    assert undeclared(Case("a/b", "core", "add", case.run, needs=case.needs), used(case)) == []
    assert "dtype f64" in undeclared(Case("a/b", "core", "add", case.run), used(case))


def test_functions_of_a_bitcode_library_need_no_others() -> None:
    """A backend that takes libraries is judged by the case of them also where it has no functions
    of the C library."""
    case = catalogue()["control/extern/bitcode"]
    calls = Used(
        Needs(dtypes=case.needs.dtypes, features=frozenset({"extern"})), frozenset({"extern"})
    )
    without = dataclasses.replace(
        reference_backend.CAPABILITIES,
        features=reference_backend.CAPABILITIES.features - {"extern"} | {"extern_libraries"},
    )

    assert case.needs.missing(without) == ()
    assert undeclared(case, calls) == []
    assert undeclared(
        Case("a/b", "core", "extern_elementwise", case.run, needs=Needs(dtypes=case.needs.dtypes)),
        calls,
    ) == ["feature extern"]


@tw.jit
def accumulate(out):
    tl.atomic_add(out + tl.arange(0, 2), 1.5)


def test_kernels_of_the_language_are_audited_each_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path))

    def run(session: Session) -> None:
        out = np.zeros(2, np.float32)
        session.launch(accumulate, (1,), out)
        session.check(out, np.array([1.5, 1.5]))

    case = Case("a/b", "atomics", "atomic_add", run)
    for _ in range(2):
        assert "atomic add on f32" in undeclared(case, used(case))
