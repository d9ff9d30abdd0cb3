"""Helpers of the families of control flow, launches and tuning: cases from a table, and arrays that
a tuner puts back."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright_conformance.suite.session import Session, Subject
from tilewright_conformance.testlib.case_table import Table, elements
from tilewright_conformance.testlib.device_array import DeviceArray
from tilewright_conformance.testlib.environment import environment


def test_a_table_makes_a_case_of_each_value() -> None:
    table, seen = Table("a", "control"), []

    @table("one", "while", needs=elements("f32", "i1", tile=64, features={"print"}), quick=True)
    def one(session: Session) -> None:
        seen.append("one")

    @table(
        "each",
        "if",
        each={"x": 3, "y": None},
        needs=lambda value: elements("i8", *["f8e5m2"] * (value is not None)),
        quick=("y",),
    )
    def each(session: Session, value: object) -> None:
        seen.append(value)

    @table("named", "if", each=("u", "v"))
    def named(session: Session, name: str) -> None:
        seen.append(name)

    first, *others = table
    assert (first.id, first.subject, first.profile, first.quick, first.source) == (
        "a/one",
        "while",
        "control",
        True,
        "NumPy",
    )
    assert (first.needs.dtypes, first.needs.features, first.needs.tile_elements) == (
        {"f32", "i1", "i8"},
        {"print"},
        64,
    )
    assert [(case.id, case.profile, case.quick, set(case.needs.dtypes)) for case in others] == [
        ("a/each/x", "fp8", False, {"i8", "f8e5m2"}),
        ("a/each/y", "control", True, {"i8"}),
        ("a/named/u", "control", False, set()),
        ("a/named/v", "control", False, set()),
    ]
    for case in table:
        case.run(Session(Subject("reference"), case.id))
    assert seen == ["one", 3, None, "u", "v"]


def test_a_table_makes_cases_of_rows() -> None:
    table = Table("a", "matmul", "exact fractions")
    run = lambda session: None  # noqa: E731
    case = table.case(
        "row/f16", "tl.dot", run, "float16", "bool", dot={("f16", "f32")}, tile=64, quick=True
    )
    assert (case.id, case.profile, case.source, case.quick) == (
        "a/row/f16",
        "matmul",
        "exact fractions",
        True,
    )
    assert (case.needs.dtypes, case.needs.dot) == ({"f16", "i1", "i8"}, {("f16", "f32")})
    assert table.case("row/fp8", "tl.dot", run, "float8e5").profile == "fp8" and not list(table)


@pytest.mark.parametrize("backend", ["reference", "cpu"])
def test_device_arrays_are_copied_and_set(backend: str) -> None:
    session = Session(Subject(backend), "a/b")
    values = np.arange(12, dtype=np.float32).reshape(3, 4)
    array = DeviceArray(session, values.T)
    kept = array.clone()
    array.zero_()
    assert (array.numpy() == 0).all() and array.shape == (4, 3) and array.data_ptr() % 16 == 0
    array.copy_(kept)
    np.testing.assert_array_equal(array.numpy(), values.T)


def test_the_environment_is_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    monkeypatch.setenv("TILEWRIGHT_AUTOTUNE", "off")
    monkeypatch.delenv("TILEWRIGHT_NOTHING", raising=False)
    with (
        pytest.raises(ValueError, match="here"),
        environment(TILEWRIGHT_AUTOTUNE="on", TILEWRIGHT_NOTHING="1"),
    ):
        assert (os.environ["TILEWRIGHT_AUTOTUNE"], os.environ["TILEWRIGHT_NOTHING"]) == ("on", "1")
        raise ValueError("here")
    assert os.environ["TILEWRIGHT_AUTOTUNE"] == "off" and "TILEWRIGHT_NOTHING" not in os.environ
