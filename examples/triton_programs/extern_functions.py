"""Functions of the device's math library, called by name: ``libdevice`` is picked for the device
that the kernel is compiled for.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import triton
import triton.language as tl
from comparison import compare, device
from triton.language.extra import libdevice


@triton.jit
def asin_kernel(x_ptr, out_ptr, length, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = places < length
    x = tl.load(x_ptr + places, mask=inside)
    tl.store(out_ptr + places, libdevice.asin(x), mask=inside)


@triton.jit
def two_argument_kernel(x_ptr, y_ptr, out_ptr, length, FUNCTION: tl.constexpr, BLOCK: tl.constexpr):
    """One kernel for several functions: which one is a constant, so that each compiles to a kernel
    of its own.
    """
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = places < length
    x = tl.load(x_ptr + places, mask=inside)
    y = tl.load(y_ptr + places, mask=inside)
    if FUNCTION == "hypot":
        result = libdevice.hypot(x, y)
    elif FUNCTION == "atan2":
        result = libdevice.atan2(x, y)
    else:
        tl.static_assert(FUNCTION == "copysign", "no such function here")
        result = libdevice.copysign(x, y)
    tl.store(out_ptr + places, result, mask=inside)


def asin(x: torch.Tensor) -> torch.Tensor:
    """The arcsine of fp32 or fp64 elements."""
    out = torch.empty_like(x)
    asin_kernel[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), BLOCK=1024)
    return out


def two_argument(function: str, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """``"hypot"``, ``"atan2"`` or ``"copysign"`` of two contiguous tensors."""
    out = torch.empty_like(x)
    two_argument_kernel[(triton.cdiv(x.numel(), 1024),)](
        x, y, out, x.numel(), FUNCTION=function, BLOCK=1024
    )
    return out


#: name -> PyTorch's function of the same name
RIVALS: dict[str, Callable[..., Any]] = {
    "hypot": torch.hypot,
    "atan2": torch.atan2,
    "copysign": torch.copysign,
}


def main() -> None:
    for dtype in (torch.float32, torch.float64):
        x, y = (torch.rand(98_432, device=device(), dtype=dtype) * 2 - 1 for _ in range(2))
        compare(
            f"asin of {dtype}", partial(asin, x), partial(torch.asin, x), torch.asin(x.double())
        )
        for name, rival in RIVALS.items():
            compare(
                f"{name} of {dtype}",
                partial(two_argument, name, x, y),
                partial(rival, x, y),
                rival(x.double(), y.double()),
            )


if __name__ == "__main__":
    main()
