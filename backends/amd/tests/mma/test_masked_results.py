"""Matmuls whose result is used by a masked store alone: all lanes take part in them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from amd_emulated import launched
from amd_support import listed

import tilewright as tw
import tilewright.language as tl

ELEMENTS: dict[str, Any] = {"fp16": np.float16, "bf16": np.float32, "i8": np.int8}


@tw.jit
def masked(a_ptr, b_ptr, out_ptr, n):
    place = tl.arange(0, 16)
    at = place[:, None] * 16 + place[None, :]
    found = tl.dot(tl.load(a_ptr + at), tl.load(b_ptr + at))
    tl.store(out_ptr + place[None, :] * 16 + place[:, None], found, mask=place[:, None] < n)


@pytest.mark.parametrize("arch", ["gfx942", "gfx1100", "gfx1201"])
@pytest.mark.parametrize("element", list(ELEMENTS))
def test_no_lane_is_masked_off(element: str, arch: str) -> None:
    total = "i32" if element == "i8" else "fp32"
    signature = f"a_ptr=*{element}:16, b_ptr=*{element}:16, out_ptr=*{total}:16, n=i32"
    code = listed(masked, signature, arch, num_warps=1)
    numbers = np.random.default_rng(7).integers(-4, 5, (2, 16, 16)).astype(ELEMENTS[element])
    found = np.full((16, 16), 77, np.int32 if element == "i8" else np.float32)
    expected = (numbers[0].astype(np.int32) @ numbers[1].astype(np.int32)).astype(found.dtype)
    expected = expected.T.copy()
    expected[:, 5:] = 77
    operands = [*numbers]
    if element == "bf16":
        operands = [(one.view(np.uint32) >> 16).astype(np.uint16) for one in numbers]
    launched(code, [*operands, found, 5])
    np.testing.assert_array_equal(found, expected)
