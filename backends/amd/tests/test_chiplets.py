"""The option ``chiplets``: neighbours among the programs are at places of the grid that the device
deals to one chiplet."""

from __future__ import annotations

import amd_kernels as kernels
import numpy as np
import pytest
from amd_emulated import launched
from amd_support import compiled

from tilewright.errors import LoweringError

SIGNATURE = "counter=*i32:16, out=*i32:16"


@pytest.mark.parametrize("arch", ["gfx942", "gfx1201"])
@pytest.mark.parametrize(
    ("count", "chiplets"), [(64, 8), (37, 8), (5, 8), (1, 8), (20, 6), (20, 0)]
)
def test_neighbours_are_on_one_chiplet(arch: str, count: int, chiplets: int) -> None:
    code = compiled(kernels.in_order_of_places, SIGNATURE, arch, chiplets=chiplets, num_warps=1)
    counter, out = np.zeros(1, np.int32), np.full(count, -1, np.int32)
    launched(
        code, [counter, out], (count,)
    )  # in lockstep, programs count in the order of their places
    places = (
        np.arange(count)
        if not chiplets
        else np.concatenate([np.arange(first, count, chiplets) for first in range(chiplets)])
    )
    np.testing.assert_array_equal(out[places], np.arange(count))


def test_what_is_no_number_of_chiplets_is_refused() -> None:
    with pytest.raises(LoweringError, match="chiplets must be a number from 0 to 64, not -1"):
        compiled(kernels.in_order_of_places, SIGNATURE, "gfx942", chiplets=-1)
