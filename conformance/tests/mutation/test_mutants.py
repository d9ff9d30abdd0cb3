"""Every switch of the broken backend changes something that can be seen, and nothing is wrong with
it switched off."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest

from tilewright.errors import BackendError
from tilewright.plugins.registry import registry
from tilewright_conformance import mutation
from tilewright_conformance.mutation.killing_tests import (
    Observation,
    on_backend,
    on_reference,
    witness,
)
from tilewright_conformance.mutation.mutant_backend import ENVIRONMENT, BrokenBackend
from tilewright_conformance.mutation.mutants import SWITCHES, table

SHOWN_BY_A_KERNEL = [name for name in SWITCHES if witness(name) is not None]


@pytest.fixture(scope="module", autouse=True)
def healthy() -> Iterator[str]:
    mutation.register("broken")
    yield "broken"
    mutation.unregister("broken")


@pytest.mark.parametrize("name", SHOWN_BY_A_KERNEL)
def test_a_switch_changes_what_its_witness_does(name: str) -> None:
    sample = witness(name)
    assert sample is not None
    expected = Observation.of(sample, on_reference)
    assert expected.difference(sample, Observation.of(sample, on_backend("broken"))) == ""
    broken = mutation.backend_name(name)
    mutation.register(broken)
    try:
        assert expected.difference(sample, Observation.of(sample, on_backend(broken))) != ""
    finally:
        mutation.unregister(broken)


def test_there_are_enough_and_they_differ() -> None:
    rows = mutation.switches()
    assert len(rows) >= 40
    assert len({row.name for row in rows}) == len({row.description for row in rows}) == len(rows)
    assert all(row.bug_class and row.description and row.hooks for row in rows)
    assert all(row.name in table() for row in rows)


def test_a_child_process_registers_a_switch_by_its_name() -> None:
    script = (
        "import sys; from tilewright_conformance import mutation; from "
        "tilewright_conformance.mutation.killing_tests import *\n"
        "backend = mutation.register(sys.argv[1]); sample = witness('sub-swapped'); expected = "
        "Observation.of(sample, on_reference)\n"
        "print(backend.name, bool(expected.difference(sample, Observation.of(sample, "
        "on_backend(sys.argv[1])))))\n"
    )
    found = subprocess.run(
        [sys.executable, "-c", script, "broken-sub-swapped"],
        capture_output=True,
        text=True,
        timeout=900,
        check=True,
    )
    assert found.stdout.split() == ["broken-sub-swapped", "True"]


def test_the_environment_names_the_switch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ENVIRONMENT, "sub-swapped")
    assert BrokenBackend().name == "broken-sub-swapped"
    assert BrokenBackend("").switch is None
    monkeypatch.delenv(ENVIRONMENT)
    assert BrokenBackend().name == "broken"


def test_a_plugin_is_loaded_by_its_reference() -> None:
    import importlib

    module, _, name = mutation.load_reference("broken-sub-swapped").partition(":")
    plugin = getattr(importlib.import_module(module), name)
    assert registry().register(plugin, "broken-sub-swapped").manifest.name == "broken-sub-swapped"
    registry().unregister("broken-sub-swapped")


def test_names_that_do_not_exist_are_refused() -> None:
    with pytest.raises(KeyError, match="no switch 'nonsense'"):
        mutation.register("broken-nonsense")
    with pytest.raises(KeyError, match="no faulty backend"):
        mutation.register("nonsense")
    with pytest.raises(BackendError, match="nonsense"):
        registry().get("broken-nonsense")


def test_registering_twice_is_no_harm_and_the_backend_is_never_a_default() -> None:
    first = mutation.register("broken-cat-swapped")
    try:
        assert mutation.register("broken-cat-swapped") is first
        assert registry().for_device_kind("cpu")[0].name == "cpu"
    finally:
        mutation.unregister("broken-cat-swapped")


def test_the_code_of_two_switches_is_cached_apart() -> None:
    from tilewright.runtime.storage.cache_keys import backend_version

    names = ["broken-sub-swapped", "broken-cat-swapped", "broken"]
    backends = [mutation.register(name) for name in names]
    try:
        assert len({backend_version(backend) for backend in backends}) == 3
        targets = [
            backend.call("tilewright_target", device=backend.call("tilewright_devices")[0]).key
            for backend in backends
        ]
        assert len(set(targets)) == 3
    finally:
        for name in names[:2]:
            mutation.unregister(name)
