"""Launches that a kernel refuses run the same kernel compiled with other options."""

import numpy as np
import pytest

from tilewright.errors import LaunchError
from tilewright.runtime.hooks import hooks
from tilewright.testing.threads import side_by_side


def test_refused_launches_run_the_other_kernel(choosy, one_int):
    x = np.zeros(4, np.int32)
    kernel = one_int[(2,)](x, 4)
    assert [options["fast"] for options in choosy.lowered] == [
        True
    ] and kernel.otherwise.kernel is None
    for value in (3, 6, 5, 3):
        assert one_int[(2,)](x, value) is kernel
    assert choosy.launches == [
        ((2, 1, 1), fast, value)
        for fast, value in ((True, 4), (False, 3), (True, 6), (False, 5), (False, 3))
    ]
    assert [options["fast"] for options in choosy.lowered] == [True, False]
    assert (
        kernel.otherwise.reasons == ["3 is odd", "5 is odd"]
        and kernel.otherwise.kernel.metadata.fast is False
    )
    kernel[(1,)](x, 7)
    assert choosy.launches[-1] == ((1, 1, 1), False, 7)


def test_kernels_that_refuse_nothing_have_no_other(choosy, one_int):
    x = np.zeros(4, np.int32)
    kernel = one_int[(2,)](x, 3, fast=False)
    assert kernel.otherwise is None and choosy.launches == [((2, 1, 1), False, 3)]


def test_the_other_kernel_is_in_the_disk_cache(choosy, one_int):
    x = np.zeros(4, np.int32)
    for _ in range(2):
        one_int[(2,)](x, 3)
        one_int.clear_cache()
    assert len(choosy.lowered) == 2


def test_hooks_see_one_launch(choosy, one_int):
    x, seen = np.zeros(4, np.int32), []
    hooks.launch_enter.add(seen.append)
    try:
        one_int[(1,)](x, 3)
    finally:
        hooks.launch_enter.remove(seen.append)
    assert len(seen) == 1 and choosy.launches == [((1, 1, 1), False, 3)]


def test_threads_compile_one_other_kernel(choosy, one_int):
    x = np.zeros(4, np.int32)
    one_int[(1,)](x, 2)
    side_by_side(8, lambda number: one_int[(1,)](x, 2 * number + 3))
    assert len(choosy.lowered) == 2 and len(choosy.launches) == 9


def test_what_the_other_kernel_raises_is_the_users(choosy, one_int):
    x = np.zeros(4, np.int32)
    one_int[(1,)](x, 3)

    def fail(grid, stream, values):
        raise LaunchError("no more")

    one_int[(1,)](x, 3).otherwise.kernel._here.launcher = fail
    with pytest.raises(LaunchError, match="no more") as caught:
        one_int[(1,)](x, 3)
    assert caught.value.__context__ is None
