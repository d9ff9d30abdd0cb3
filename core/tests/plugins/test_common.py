"""Declarations that all backends' manifests share."""

from __future__ import annotations

import importlib.util

import pytest

from tilewright.plugins.common import every_type, why_disabled


def test_what_differs_between_backends_is_said_by_each():
    narrow = every_type({"print"}, power_of_two=False, narrow_floats=("add",))
    wide = every_type(())
    assert narrow.atomics["f16"] == {"add", "xchg", "cas"} and wide.atomics["bf16"] == {
        "add",
        "min",
        "max",
        "xchg",
        "cas",
    }
    assert (narrow.features, narrow.power_of_two) == ({"print"}, False) and (
        wide.features,
        wide.power_of_two,
    ) == (frozenset(), True)
    assert narrow.dtypes == wide.dtypes and narrow.dot == wide.dot


def test_a_backend_is_out_of_use_by_the_environment_for_want_of_llvm_or_by_its_own_reason(
    monkeypatch: pytest.MonkeyPatch,
):
    asked = []

    def why_not() -> str:
        asked.append(1)
        return "the moon is full"

    monkeypatch.delenv("TILEWRIGHT_TOY_DISABLE", raising=False)
    assert (
        why_disabled("toy", "toys") == ""
        and why_disabled("toy", "toys", why_not) == "the moon is full"
    )
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert (
        why_disabled("toy", "toys", why_not)
        == "llvmlite is not installed: pip install 'tilewright[toys]'"
    )
    monkeypatch.setenv("TILEWRIGHT_TOY_DISABLE", "1")
    assert why_disabled("toy", "toys", why_not) == "disabled by TILEWRIGHT_TOY_DISABLE=1"
    assert len(asked) == 1
