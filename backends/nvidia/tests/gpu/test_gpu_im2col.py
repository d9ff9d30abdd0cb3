"""Loads of pixels in the order of a convolution, on the device, against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gpu_support import launch_on_gpu, prepare
from hopper_gpu import agree, aligned, hopper_is_there, tensor, within_patience
from im2col_kernels import CASES, expected, module_of

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not hopper_is_there(), reason="there is no Hopper GPU here"),
]


@pytest.mark.parametrize("warps", [1, 4])
@pytest.mark.parametrize(("dtype", "element"), [("fp16", np.float16), ("fp32", np.float32)])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_pixels_are_those_of_a_convolution(
    case: tuple[Any, ...], dtype: str, element: Any, warps: int
) -> None:
    extents, first, pixels, channels, (r, s), *_ = case
    images, out = aligned(extents, element), np.full((r * s + 1, pixels, channels), 7, element)
    images[...] = (np.arange(images.size) % 1019 + 1).reshape(images.shape)
    launch, memory = prepare(module_of(dtype, case), asynchronous=True, num_warps=warps)
    within_patience(
        f"pixels of {extents}",
        lambda: launch_on_gpu(launch, memory, [tensor(images), out, *first], (1, 1, 1)),
    )
    agree(out, expected(images, case))
