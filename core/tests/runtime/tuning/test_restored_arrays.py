"""Tuning leaves arrays as a single launch would.

The stores of all trials are undone, even failed ones.
"""

import warnings

import numpy as np
import pytest
from optional_torch import torch
from tuning_support import add_one

import tilewright as tw
import tilewright.language as tl
from tilewright.compat import triton
from tilewright.errors import AutotunerError, OutOfResources
from tilewright.runtime.compiler import workers

CONFIGS = [tw.Config({"BLOCK": block}) for block in (8, 16, 32)]


def grid(meta):
    return (tw.cdiv(meta["n"], meta["BLOCK"]),)


@pytest.fixture(autouse=True, scope="module")
def no_workers_left():
    """Other tests' workers find other plugins."""
    yield
    workers.close_pool()


@pytest.fixture(autouse=True)
def reference():
    with tw.backend("reference"):
        yield


def bench(call, quantiles, runs=3):
    """Runs three times; the second configuration is the fastest."""
    for _ in range(runs):
        call()
    bench.tuned = getattr(bench, "tuned", 0) + 1
    return [1.0 if bench.tuned % 3 == 2 else 2.0] * len(quantiles)


@pytest.fixture(autouse=True)
def fresh():
    bench.tuned = 0


def tuned(function, do_bench=bench, configs=CONFIGS, **options):
    return tw.autotune(configs, key=["n"], do_bench=do_bench, cache_results=False, **options)(
        tw.jit(function)
    )


@pytest.mark.parametrize("make", [np.zeros, torch.zeros], ids=["numpy", "torch"])
def test_a_kernel_that_works_in_place_does_so_once(make):
    kernel, x = tuned(add_one), make(50)
    kernel[grid](x, 40)
    assert bench.tuned == 3
    assert x.tolist() == [1.0] * 40 + [0.0] * 10
    assert kernel.best_config is CONFIGS[1]
    kernel[grid](x, 40)
    assert bench.tuned == 3
    assert x.tolist() == [2.0] * 40 + [0.0] * 10


def test_measuring_with_the_runtimes_own_clock_leaves_them_too(monkeypatch):
    kernel = tw.autotune(CONFIGS[:2], key=["n"], warmup=0.1, rep=0.1, cache_results=False)
    with pytest.warns(DeprecationWarning):
        kernel = kernel(tw.jit(add_one))
    x = np.zeros(50, np.float32)
    kernel[grid](x, 40)
    assert x.tolist() == [1.0] * 40 + [0.0] * 10


def test_through_triton_it_does_so_once_too():
    kernel = triton.autotune(
        [triton.Config({"BLOCK": block}) for block in (8, 16)], key=["n"], do_bench=bench
    )(triton.jit(add_one))
    x = torch.zeros(50)
    kernel[grid](x, 40)
    assert x.tolist() == [1.0] * 40 + [0.0] * 10


def atomics(x, n, BLOCK: tl.constexpr):
    tl.atomic_add(x, n)


def of_a_tuple(pair, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(pair[0] + offsets, mask=offsets < n)
    tl.store(
        pair[1] + offsets, tl.load(pair[1] + offsets, mask=offsets < n) + value, mask=offsets < n
    )


def in_a_loop(x, n, BLOCK: tl.constexpr):
    for _ in range(n):
        tl.store(x, tl.load(x) + 1)
        x += 1


@pytest.mark.parametrize(
    ("function", "arguments", "once"),
    [
        (atomics, lambda x: x, [5.0, 0, 0, 0, 0]),
        (of_a_tuple, lambda x: (np.arange(5, dtype=np.float32), x), [0.0, 1, 2, 3, 4]),
        (in_a_loop, lambda x: x, [1.0] * 5),
    ],
)
def test_whatever_way_it_stores(function, arguments, once):
    x = np.zeros(5, np.float32)
    tuned(function)[(1,)](arguments(x), 5)
    assert x.tolist() == once


def test_arrays_that_are_described():
    def increase(d, n, BLOCK: tl.constexpr):
        d.store([0], d.load([0]) + n)

    x = np.zeros(16, np.float32)
    tuned(increase)[(1,)](tw.TensorDescriptor.from_tensor(x, [16]), 2)
    assert x.tolist() == [2.0] * 16


def test_arrays_that_share_memory():
    def shift(x, y, n, BLOCK: tl.constexpr):
        tl.store(y, tl.load(x) + n)

    x = np.zeros(5, np.float32)
    tuned(shift)[(1,)](x[1:], x[1:3], 2)
    assert x.tolist() == [0.0, 2.0, 0.0, 0.0, 0.0]


def test_elements_that_only_other_configurations_store_to_stay_as_they_were():
    def mark(x, n, BLOCK: tl.constexpr):
        tl.store(x + tl.arange(0, BLOCK), n)

    x = np.full(64, 9, np.float32)
    tuned(mark)[(1,)](x, 2)
    assert x.tolist() == [2.0] * 16 + [9.0] * 48


@pytest.mark.parametrize(
    "error", [OutOfResources(2, 1, "shared memory"), KeyboardInterrupt(), ZeroDivisionError()]
)
def test_what_fails_leaves_them_too(error):
    def fails(call, quantiles):
        call()
        raise error

    x = np.zeros(50, np.float32)
    with pytest.raises((AutotunerError, KeyboardInterrupt, ZeroDivisionError)):
        tuned(add_one, fails)[grid](x, 40)
    assert not x.any()


def test_named_arguments_are_the_callers_business():
    x, seen = np.full(16, 5, np.float32), []

    def look(call, quantiles):
        call()
        seen.append(x[0])
        call()
        seen.append(x[0])
        return [1.0] * len(quantiles)

    tuned(add_one, look, restore_value=["x"])[grid](x, 16)
    assert seen == [5.0] * 6 and x[0] == 6
    seen.clear()
    tuned(add_one, look, reset_to_zero=["x"])[grid](x, 16)
    assert seen == [1.0] * 6 and x[0] == 1
    seen.clear()
    tuned(add_one, look)[grid](x, 16)
    assert seen == [2.0, 3.0] * 3 and x[0] == 2


class Bare:
    """An array that can be neither copied nor assigned to."""

    def __init__(self, array):
        self.array, self.dtype = array, array.dtype

    @property
    def __array_interface__(self):
        return self.array.__array_interface__


class Carrier:
    """The same; its objects have the protocol, and its type has not."""

    def __init__(self, array):
        self.array, self.__array_interface__ = array, array.__array_interface__


@pytest.mark.parametrize("bare", [Bare, Carrier])
def test_an_array_that_cannot_be_copied_is_not_tuned_on(bare):
    x, runs = np.zeros(50, np.float32), []
    with pytest.raises(
        AutotunerError,
        match=(
            rf"add_one reads argument 'x' and stores to it.*{bare.__name__} has no way to copy "
            r"it[\s\S]*help: tune on other arrays first"
        ),
    ):
        tuned(add_one, lambda call, quantiles: runs.append(call()))[grid](bare(x), 40)
    assert not runs and not x.any()


def test_without_memory_for_the_copy_it_is_refused(monkeypatch):
    class Large(np.ndarray):
        def copy(self, order="C"):
            raise MemoryError("Unable to allocate 3 TiB")

    x = np.zeros(50, np.float32).view(Large)
    with pytest.raises(AutotunerError, match="Unable to allocate 3 TiB"):
        tuned(add_one)[grid](x, 40)
    assert not np.asarray(x).any()


def test_an_array_that_is_only_stored_to_and_cannot_be_copied_is_told_of():
    def fill(x, n, BLOCK: tl.constexpr):
        offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(x + offsets, n, mask=offsets < n)

    x = np.zeros(50, np.float32)
    with pytest.warns(
        RuntimeWarning, match=r"fill stores to argument 'x' while it is tuned.*could not be kept"
    ) as told:
        tuned(fill)[grid](Bare(x), 40)
    assert [warning.filename for warning in told] == [__file__]
    assert x.tolist() == [40.0] * 40 + [0.0] * 10


def test_derivatives_do_not_learn_of_it():
    x = torch.zeros(50, requires_grad=True)
    version = x._version
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tuned(add_one)[grid](x, 40)
    assert x._version == version
    assert x.tolist() == [1.0] * 40 + [0.0] * 10


def test_what_is_only_read_is_not_copied():
    class Watched(np.ndarray):
        def copy(self, order="C"):
            raise AssertionError("copied")

    def move(x, y, n, BLOCK: tl.constexpr):
        offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(y + offsets, tl.load(x + offsets, mask=offsets < n), mask=offsets < n)

    x, y = np.ones(50, np.float32).view(Watched), np.zeros(50, np.float32)
    tuned(move)[grid](x, y, 50)
    assert y.tolist() == [1.0] * 50
