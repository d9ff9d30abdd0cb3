"""``kernel.device_caches``: taking kernels out of it, and letting go of what they hold on a
device."""

import gc
import os

import numpy as np
import pytest

from tilewright.runtime.hooks import hooks


@pytest.mark.parametrize(
    "take_out",
    [
        lambda caches: caches.clear(),
        lambda caches: caches.pop("recorder:0"),
        lambda caches: caches.popitem(),
        lambda caches: caches.__delitem__("recorder:0"),
        lambda caches: caches["recorder:0"][0].clear(),
        lambda caches: caches["recorder:0"][0].popitem(),
    ],
)
def test_a_kernel_that_is_taken_out_is_made_again(recorder, one_int, take_out):
    x = np.zeros(4)
    for _ in range(4):  # also by way of what remembers launches
        first = one_int[(1,)](x, 7)
    take_out(one_int.device_caches)
    again = one_int[(1,)](x, 7)
    assert again is not first and again.hash == first.hash and again.cache_hit
    assert one_int[(1,)](x, 7) is again


@pytest.fixture
def unloaded():
    """The names of the kernels that were let go of; those of other tests were before."""
    gc.collect()
    names = []
    hook = lambda module, function, name, metadata_group, hash: names.append(name)  # noqa: E731
    hooks.kernel_unload.add(hook)
    yield names
    hooks.kernel_unload.remove(hook)


def test_code_is_let_go_of_once(recorder, one_int, unloaded):
    kernel = one_int.warmup(np.zeros(4), 7)
    kernel.__del__()  # it was never loaded
    assert unloaded == []
    kernel._init_handles()
    assert kernel.module is not None
    kernel.__del__()
    kernel.__del__()
    assert kernel.module is None and unloaded == [kernel.name]
    one_int[(1,)](np.zeros(4), 7)  # it is loaded again
    assert len(recorder.launches) == 1 and len(recorder.loaded) == 2


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_child_lets_go_of_nothing_of_its_parents(recorder, one_int, unloaded):
    kernel = one_int[(1,)](np.zeros(4), 7)
    child = os.fork()
    if child == 0:
        kernel.__del__()
        os._exit(len(unloaded))
    assert os.waitpid(child, 0)[1] == 0
