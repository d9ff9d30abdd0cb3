"""Atomic updates in flight when waves diverge: each happens once."""

from __future__ import annotations

import numpy as np
import pytest
from amd_emulated import launched
from amd_support import listed

from tilewright_conformance.kernels.atomic_kernels import gradient_by_tiles


@pytest.mark.parametrize("schedule", ["lockstep", "random"])
@pytest.mark.parametrize("arch", ["gfx942", "gfx1100", "gfx1201"])
def test_each_row_is_added_once(arch: str, schedule: str) -> None:
    signature = "grad_ptr=*i32:16, index_ptr=*i32:16, table_ptr=*i32:16, count=i32, width=i32"
    code = listed(gradient_by_tiles, signature, arch, {"ROWS": 16, "WIDTH": 32}, num_warps=4)
    index = np.array([4, 0, -1, 6, 6, 2, 5, -1, 1, 3, 0, 4, 2], np.int32)
    grad = np.arange(13 * 20, dtype=np.int32).reshape(13, 20)
    table, expected = np.zeros((2, 7, 20), np.int32)
    np.add.at(expected, index[index >= 0], grad[index >= 0])
    launched(code, [grad, index, table, 13, 20], schedule=schedule)
    np.testing.assert_array_equal(table, expected)
