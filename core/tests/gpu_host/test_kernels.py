"""Loading: modules, function attributes, what a device has too little of."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from tilewright.errors import BackendError, LaunchError, OutOfResources
from tilewright.gpu_host.driver import Driver
from tilewright.testing.threads import side_by_side


def test_loading_tells_what_a_kernel_takes(
    driver: Driver, bindings: Any, toy: SimpleNamespace
) -> None:
    bindings.settings.function_attributes["local_bytes"] = 48
    loaded = toy.load(driver, 1, shared=4096)
    assert (loaded.n_regs, loaded.n_max_threads, loaded.threads, loaded.shared, loaded.context) == (
        32,
        1024,
        128,
        4096,
        1,
    )
    assert (loaded.local_bytes, loaded.n_spills) == (48, 12)
    assert toy.load(driver, 1, spills=24).n_spills == 6
    assert bindings.named("toyFunction") == [(7, b"k_entry")] and loaded.function == 77
    assert loaded.occupancy == 8 * 128 / 2048
    assert bindings.named("toyOccupancy") == [(77, 128, 4096)]
    assert bindings.current == 0


def test_code_is_loaded_once_a_context_and_unloaded_with_its_last_kernel(
    driver: Driver, bindings: Any, toy: SimpleNamespace
) -> None:
    kernels = [
        toy.load(driver, 1),
        toy.load(driver, 1),
        toy.load(driver, 0),
        toy.load(driver, 1, b"other code"),
    ]
    assert len(bindings.modules) == 3 and len({kernel.function for kernel in kernels}) == 3
    assert kernels[0].function == kernels[1].function
    del kernels[0]
    assert len(bindings.modules) == 3
    kernels.clear()
    assert not bindings.modules and bindings.current == 0
    toy.load(driver, 1)
    assert len(bindings.named("toyLoad")) == 4


def test_threads_that_load_the_same_code_share_it(
    driver: Driver, bindings: Any, toy: SimpleNamespace
) -> None:
    loading, found = threading.Barrier(2), []
    given = bindings.module_load

    def slow(binary: bytes) -> int:
        loading.wait(60)  # both are at it
        return given(binary)

    bindings.__class__ = type(
        "Slow", (type(bindings),), {"module_load": lambda self, binary: slow(binary)}
    )
    side_by_side(2, lambda _: found.append(toy.load(driver)))
    assert len({kernel.function for kernel in found}) == 1 and len(bindings.modules) == 1


def test_more_shared_memory_than_is_free_is_asked_for(
    wide: tuple[Any, Driver], toy: SimpleNamespace
) -> None:
    bindings, driver = wide
    kept = [toy.load(driver, shared=size) for size in (16 << 10, 40 << 10, 20 << 10, 64 << 10)]
    # what one kernel of the code was allowed is not taken from it for another
    assert [size for _, size in bindings.named("toyAllowShared")] == [40 << 10, 64 << 10]
    assert len(kept) == 4 and len(bindings.modules) == 1


def test_shared_memory_need_not_be_asked_for_everywhere(toy: SimpleNamespace) -> None:
    bindings = toy.bindings(toy.flat)
    assert toy.load(Driver(toy.flat, bindings), shared=64 << 10).shared == 64 << 10
    assert not bindings.named("toyAllowShared")


def test_what_does_not_fit_the_device_is_told_before_it_is_linked(
    driver: Driver, bindings: Any, toy: SimpleNamespace
) -> None:
    with pytest.raises(
        OutOfResources,
        match=(
            r"shared memory, Required: 100000, Hardware limit: 98304, in kernel k \(num_warps=4\)"
        ),
    ):
        toy.load(driver, shared=100000, binary=lambda: pytest.fail("it was linked"))
    bindings.settings.function_attributes.update(registers=255, max_threads=64)
    with pytest.raises(
        OutOfResources,
        match=r"registers, Required: 32640, Hardware limit: 65536, in kernel k \(num_warps=4\)",
    ):
        toy.load(driver)


@pytest.mark.parametrize(
    ("status", "error", "words"),
    [
        (
            22,
            BackendError,
            r"kernel k was compiled for another GPU than toy of age 3: toyLoad failed: TOY_22",
        ),
        (21, BackendError, r"kernel k: the device has not enough free memory"),
        (5, LaunchError, r"kernel k: toyLoad failed: TOY_5"),
    ],
)
def test_code_that_the_driver_does_not_take(
    driver: Driver,
    bindings: Any,
    toy: SimpleNamespace,
    status: int,
    error: type[Exception],
    words: str,
) -> None:
    bindings.settings.failures["toyLoad"] = status
    with pytest.raises(error, match=words):
        toy.load(driver)
    assert bindings.current == 0
    bindings.settings.failures.clear()
    assert toy.load(driver).function  # the failure is not kept
