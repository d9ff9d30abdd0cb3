"""Memory of a device, and timing by its events."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tilewright.errors import BackendError, KernelError
from tilewright.gpu_host.driver import Driver
from tilewright.gpu_host.memory import DeviceMemory
from tilewright.gpu_host.timer import DeviceTimer
from tilewright.plugins.manifest import MomentTimer


def test_memory_goes_there_and_back_and_is_freed(bindings: Any, driver: Driver) -> None:
    memory = DeviceMemory(1, driver)
    buffer = memory.allocate(40, 16)
    data = np.arange(10, dtype=np.float32)
    memory.copy_to_device(buffer, memoryview(data))
    back = np.full(10, np.nan, np.float32)
    memory.copy_to_host(buffer, memoryview(back))
    np.testing.assert_array_equal(back, data)
    interface = getattr(buffer, "__toy_array_interface__")
    assert (
        interface["data"] == (buffer.data_ptr(), False)
        and interface["shape"] == (40,)
        and buffer.device == ("toy", 1)
    )
    assert len(bindings.memory) == 1
    del buffer
    assert not bindings.memory and bindings.current == 0


def test_memory_is_aligned_beyond_what_the_driver_gives(bindings: Any, driver: Driver) -> None:
    memory = DeviceMemory(0, driver)
    kept = [memory.allocate(8, 1 << 14) for _ in range(5)]
    for buffer, start, (size,) in zip(
        kept, bindings.memory, bindings.named("toyAllocate"), strict=True
    ):
        assert (
            buffer.data_ptr() % (1 << 14) == 0 and start <= buffer.data_ptr() <= start + size - 8
        )  # within what the driver gave
    del kept, buffer
    assert not bindings.memory


def test_nothing_is_asked_of_the_driver_for_no_bytes(bindings: Any, driver: Driver) -> None:
    memory = DeviceMemory(0, driver)
    bindings.calls.clear()
    empty = memory.allocate(0, 16)
    assert empty.data_ptr() == 0 and not bindings.calls
    for size, alignment in ((-1, 8), (8, 0), (8, 3)):
        with pytest.raises(
            BackendError,
            match="memory is a size of at least 0 and an alignment that is a power of two",
        ):
            memory.allocate(size, alignment)
    frozen = np.zeros(4)
    frozen.flags.writeable = False
    with pytest.raises(BackendError, match="read-only"):
        memory.copy_to_host(memory.allocate(32, 8), memoryview(frozen))


def test_failures_of_memory_and_kernels_are_told_apart(bindings: Any, driver: Driver) -> None:
    memory = DeviceMemory(0, driver)
    buffer = memory.allocate(8, 8)
    bindings.settings.failures.update(toyAllocate=21, toyWait=30, toyCopyOut=5)
    with pytest.raises(BackendError, match="not enough free memory"):
        memory.allocate(1 << 40, 8)
    with pytest.raises(KernelError, match=r"divided the device by zero.*restart the process"):
        memory.synchronize()
    with pytest.raises(BackendError, match="toyCopyOut failed"):
        memory.copy_to_host(buffer, memoryview(bytearray(8)))


@pytest.mark.parametrize("capturing", [False, True])
def test_memory_that_torch_keeps_unused_is_asked_back(
    bindings: Any, driver: Driver, monkeypatch: pytest.MonkeyPatch, capturing: bool
) -> None:
    released: list[str] = []

    def empty_cache() -> None:
        released.append("torch")
        del bindings.settings.failures["toyAllocate"]

    toy = SimpleNamespace(
        is_initialized=lambda: True,
        is_current_stream_capturing=lambda: capturing,
        empty_cache=empty_cache,
    )
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(**{driver.table.streams.torch: toy}))
    monkeypatch.delitem(sys.modules, "cupy", raising=False)
    bindings.settings.failures["toyAllocate"] = 21
    if capturing:
        with pytest.raises(BackendError, match="not enough free memory"):
            DeviceMemory(0, driver).allocate(64, 8)
    else:
        assert DeviceMemory(0, driver).allocate(64, 8).nbytes == 64
    assert released == ([] if capturing else ["torch"])


def test_memory_that_cupy_keeps_unused_is_asked_back(
    bindings: Any, driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = SimpleNamespace(free_all_blocks=bindings.settings.failures.clear)
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(get_default_memory_pool=lambda: pool))
    bindings.settings.failures["toyAllocate"] = 21
    assert DeviceMemory(0, driver).allocate(64, 8).nbytes == 64


def test_timer_measures_each_repetition(bindings: Any, driver: Driver) -> None:
    calls: list[int] = []
    timer = DeviceTimer(1, driver)
    assert timer.measure(lambda: calls.append(bindings.current), 3) == [0.25] * 3
    assert calls == [1] * 3 and bindings.current == 0
    assert bindings.named("toyRecord") == [(5, 0)] * 6 and len(bindings.named("toyForget")) == 6
    bindings.settings.failures["toyWaitFor"] = 30
    with pytest.raises(KernelError, match="divided"):
        timer.measure(lambda: None, 2)
    assert len(bindings.named("toyForget")) == 10


@pytest.mark.parametrize(("cache", "flushed"), [(8 << 10, 1 << 20), (8 << 20, 16 << 20)])
def test_more_is_overwritten_than_caches_hold(
    bindings: Any, driver: Driver, cache: int, flushed: int
) -> None:
    bindings.settings.attributes["cache_bytes"] = cache
    timer = DeviceTimer(0, driver)
    timer.flush_cache()
    timer.flush_cache()
    assert [(byte, size, stream) for _, byte, size, stream in bindings.named("toyFill")] == [
        (0, flushed, 0)
    ] * 2
    assert len(bindings.named("toyAllocate")) == 1


def test_timer_marks_moments_of_a_stream(bindings: Any, driver: Driver) -> None:
    timer = DeviceTimer(1, driver)
    start, end = timer.mark(), timer.mark(7)
    assert (
        isinstance(timer, MomentTimer)
        and bindings.named("toyRecord") == [(5, 0), (5, 7)]
        and bindings.current == 0
    )
    assert timer.milliseconds_between(start, end) == 0.25 == timer.milliseconds_between(start, end)
    assert not bindings.named("toyForget")
    timer.forget(start, end)
    assert len(bindings.named("toyForget")) == 2
    bindings.settings.failures["toyWaitFor"] = 30
    with pytest.raises(KernelError, match="divided"):
        timer.milliseconds_between(start, end)
