"""Calls of a driver: contexts, attributes, errors; what a table must have."""

from __future__ import annotations

import importlib
import pickle
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tilewright.errors import BackendError, KernelError, LaunchError
from tilewright.gpu_host.devices import listed
from tilewright.gpu_host.driver import Driver, missing_module, open_library
from tilewright.gpu_host.errors import DeviceFaultError, DriverError, translate
from tilewright.gpu_host.table import DriverTable, Enumeration


def test_calls_give_results_and_raise_statuses(driver: Driver, bindings: Any) -> None:
    assert bindings.calls == [("toyInit", (0,))]
    assert driver(driver.entries.device_count) == 2 and driver("toyCount") == 2
    assert driver(driver.entries.synchronize) is None
    assert driver.attribute(0, "processors") == 64 and driver.attribute(1, "age") == 3
    bindings.settings.failures["toyWait"] = 5
    with pytest.raises(DriverError, match=r"^toyWait failed: TOY_5 \(5\): what the driver says\n"):
        driver(driver.entries.synchronize)


def test_a_device_is_current_for_a_block_and_no_longer(driver: Driver, bindings: Any) -> None:
    with driver.use(1):
        assert bindings.current == 1
        bindings.calls.clear()
        with driver.use(1):  # is current: nothing is entered
            pass
        assert bindings.named("toySetDevice") == []
        with driver.use(0):
            assert bindings.current == 0
        assert bindings.current == 1
    assert bindings.current == 0
    with pytest.raises(KeyError), driver.use(1):
        raise KeyError
    assert bindings.current == 0


def test_a_fault_is_an_error_of_a_kernel(driver: Driver, bindings: Any) -> None:
    bindings.settings.failures["toyWait"] = 30
    with pytest.raises(
        KernelError,
        match=(
            r"divided the device by zero\. It was the kernel launched last.*restart the process "
            r"\(TOY_30 from toyWait\)"
        ),
    ):
        driver(driver.entries.synchronize)


def test_errors_can_be_pickled(driver: Driver) -> None:
    for code, kind in ((5, DriverError), (30, DeviceFaultError)):
        error = driver.error("toyLoad", code)
        back = pickle.loads(pickle.dumps(error))
        assert type(error) is type(back) is kind and str(back) == str(error) and back.code == code


def test_users_meet_what_a_status_means(driver: Driver, table: DriverTable) -> None:
    def met(code: int, kernel: str = "") -> Exception:
        return translate(driver.error("toyCall", code), table.statuses, kernel)

    assert (
        type(met(21)) is BackendError
        and str(met(21)) == "the device has not enough free memory (TOY_21)"
    )
    assert str(met(21, "k")) == "kernel k: the device has not enough free memory (TOY_21)"
    assert type(met(5)) is DriverError
    assert (
        type(met(5, "k")) is LaunchError
        and str(met(5, "k")) == "kernel k: toyCall failed: TOY_5 (5): what the driver says"
    )
    assert (
        type(met(40)) is BackendError
        and type(met(40, "k")) is LaunchError
        and "captured into a graph" in str(met(40))
    )
    assert isinstance(met(30, "k"), DeviceFaultError)


def test_devices_are_listed_with_what_the_backend_knows_of_them(
    driver: Driver, bindings: Any
) -> None:
    def facts(asked: Driver, index: int) -> dict[str, Any] | None:
        return {"arch": f"toy{asked.attribute(index, 'age')}"} if index else None

    (found,) = listed(lambda: driver, facts)
    assert (found.backend, found.kind, found.index, found.name) == ("toy", "toy", 1, "Stand-in GPU")
    assert found.properties == {
        "arch": "toy3",
        "memory_bytes": 80 << 30,
        "multiprocessors": 64,
        "l2_bytes": 8 << 20,
        "shared_memory": 96 << 10,
    }
    bindings.settings.failures["toyCount"] = 5
    assert listed(lambda: driver, facts) == []

    def broken() -> Driver:
        raise BackendError("no driver")

    assert listed(broken, facts) == []


def test_what_is_missing_is_told(toy: SimpleNamespace) -> None:
    assert open_library("libno_such_driver.so.77") is None
    assert (
        missing_module("no_such_bindings.driver", "get it") == "get it"
        and missing_module("json", "get it") == ""
    )


def test_an_incomplete_table_is_refused(toy: SimpleNamespace) -> None:
    with pytest.raises(
        ValueError, match="the table of toy lacks function attributes local_bytes, max_threads"
    ):
        replace(toy.wide, function_attributes=Enumeration("E", {"registers": "R"}))
    with pytest.raises(ValueError, match="a config is described where it takes one"):
        replace(toy.wide, native=replace(toy.wide.native, config=None))
    with pytest.raises(ValueError, match="takes config, function"):
        replace(toy.flat, native=replace(toy.flat.native, operands=("function", "cluster")))


def test_a_package_that_hides_another_ones_modules_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "maker").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    remedy = "maker-bindings is not installed: pip install maker-bindings"
    assert missing_module("maker.bindings", remedy) == remedy  # a folder alone hides nothing
    file = tmp_path / "maker" / "__init__.py"
    file.touch()
    importlib.invalidate_caches()
    sys.modules.pop("maker", None)
    expected = (
        f"{file} is found as the package 'maker', which hides that of maker-bindings: rename it, "
        "or take its folder off Python's path"
    )
    assert missing_module("maker.bindings", remedy) == expected
    installed = tmp_path / "installed" / "maker" / "bindings"
    installed.mkdir(parents=True)
    (installed / "__init__.py").write_text("there = True")
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path / "installed")])
    assert missing_module("maker.bindings", remedy) == ""  # both have their modules then
    assert importlib.import_module("maker.bindings").there and sys.modules["maker"].__file__ == str(
        file
    )
    for module in ("maker", "maker.bindings"):
        sys.modules.pop(module, None)


def test_access_to_another_devices_memory_is_asked_for_once_a_pair(
    driver: Driver, bindings: Any
) -> None:
    bindings.settings.peers = {(1, 0)}
    assert driver.why_no_access(1, 1) == "" and not bindings.named("toyReach")
    for _ in range(2):
        assert driver.why_no_access(1, 0) == ""
        assert (
            driver.why_no_access(0, 1)
            == "the driver says that there is no peer access between them"
        )
    assert bindings.named("toyReach") == [(0,)], "the other's context, once"
    entered = [name for name, _ in bindings.calls].index("toyReach")
    assert ("toySetDevice", (1,)) in bindings.calls[:entered] and bindings.current == 0
    lacking = Driver(
        replace(driver.table, entries=replace(driver.entries, peer_enable=None)), bindings
    )
    assert lacking.why_no_access(1, 0) == "the toy driver has no access between devices"


def test_another_library_may_have_asked_for_access_before(driver: Driver, bindings: Any) -> None:
    bindings.settings.peers = {(1, 0)}
    for status, told in ((26, "toyReach failed: TOY_26 (26): what the driver says"), (25, "")):
        bindings.settings.failures["toyReach"] = status
        assert driver.why_no_access(1, 0) == told
    bindings.settings.failures["toyReach"] = 30
    bindings.settings.peers.add((0, 1))
    with pytest.raises(DeviceFaultError, match="divided the device by zero"):
        driver.why_no_access(0, 1)
