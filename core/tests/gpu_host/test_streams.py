"""Streams of other libraries, the current one, and graphs that are being captured."""

from __future__ import annotations

import gc
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tilewright.errors import BackendError, LaunchError
from tilewright.gpu_host.driver import Driver
from tilewright.gpu_host.launch import PythonLauncher
from tilewright.gpu_host.memory import DeviceMemory
from tilewright.gpu_host.native_launch import native_launcher
from tilewright.gpu_host.streams import current_stream, stream_handle
from tilewright.gpu_host.table import DriverTable
from tilewright.plugins.manifest import Parameter


class Torch:
    """PyTorch with a module of toys, which is in use or not."""

    def __init__(self, used: bool) -> None:
        self.used, self.asked = used, []
        self.toy = SimpleNamespace(is_initialized=lambda: self.used)
        self._C = SimpleNamespace(_toy_getCurrentRawStream=self.find)

    def find(self, device: int) -> int:
        self.asked.append(device)
        return 500 + device


def test_streams_of_other_libraries(table: DriverTable) -> None:
    method = type("Method", (), {"__toy_stream__": lambda self: (0, 13)})()
    streams = (
        7,
        SimpleNamespace(toy_stream=11),
        SimpleNamespace(handle=12),
        method,
        SimpleNamespace(__toy_stream__=(0, 14)),
        np.int64(15),
    )
    assert [stream_handle(table.streams, stream, 0) for stream in streams] == [
        7,
        11,
        12,
        13,
        14,
        15,
    ]
    with pytest.raises(
        LaunchError, match="a str is no stream: pass a handle, or a stream of PyTorch or toys"
    ):
        stream_handle(table.streams, "fast", 0)


def test_the_current_stream_is_that_of_pytorch_once_it_uses_the_device(
    table: DriverTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = Torch(used=False)
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    assert current_stream(table.streams, 1) == 0
    monkeypatch.setitem(sys.modules, "torch", torch)
    assert current_stream(table.streams, 1) == 0 and not torch.asked
    torch.used = True
    assert current_stream(table.streams, 1) == 501 == stream_handle(table.streams, None, 1)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace())  # one that was built without
    assert current_stream(table.streams, 1) == 0


def test_native_launches_go_to_pytorchs_stream_from_its_first_use_on(
    table: DriverTable, driver: Driver, toy: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch, loaded, library = Torch(used=False), toy.load(driver), toy.library(table, 0)
    launcher = native_launcher(loaded, (), PythonLauncher(loaded, ()), library)
    assert launcher is not None
    launcher((1, 1, 1), None, ())
    monkeypatch.setitem(sys.modules, "torch", torch)
    launcher((1, 1, 1), None, ())
    torch.used = True
    launcher((1, 1, 1), None, ())
    monkeypatch.delitem(
        sys.modules, "torch"
    )  # by now the code has PyTorch's own function, and asks it alone
    launcher((1, 1, 1), None, ())
    assert [launch["stream"] for launch in library.launches] == [
        0,
        0,
        501,
        501,
    ] and torch.asked == [1, 1]


# ---- graphs


def test_launches_are_part_of_a_graph_and_loading_leaves_it_alone(
    wide: tuple[Any, Driver], toy: SimpleNamespace
) -> None:
    bindings, driver = wide
    bindings.capturing, bindings.words = True, 1
    loaded = toy.load(driver)  # the first launch of a kernel may be within a capture
    parameters = (Parameter("x", "ptr<f32>"),)
    python, library = PythonLauncher(loaded, parameters), toy.library(driver.table, 1)
    native = native_launcher(loaded, parameters, python, library)
    assert native is not None
    bindings.calls.clear()
    for launcher in (python, native):
        launcher((2, 1, 1), 9, (toy.array(64),))
    assert {name for name, _ in bindings.calls} == {
        "toyCurrent",
        "toySetDevice",
        "toyLaunch",
    }  # neither waits nor allocates
    assert [words for _, words in bindings.launches] == [[64]] and library.launches[0]["words"] == [
        64
    ]
    del loaded, python, native, launcher
    gc.collect()
    assert not bindings.spoiled and bindings.mode == 0


def test_memory_is_taken_and_freed_beside_a_graph(wide: tuple[Any, Driver]) -> None:
    bindings, driver = wide
    bindings.capturing = True
    buffer = DeviceMemory(0, driver).allocate(64, 16)
    del buffer
    assert not bindings.memory and not bindings.spoiled and bindings.mode == 0


def test_what_a_graph_has_no_place_for_is_told(wide: tuple[Any, Driver]) -> None:
    bindings, driver = wide
    bindings.capturing = True
    with pytest.raises(
        BackendError,
        match=(
            r"toyWait failed: TOY_40 .*\. A stream is being captured into a graph, and this "
            r"cannot be part of one"
        ),
    ):
        DeviceMemory(0, driver).synchronize()
    assert bindings.spoiled
