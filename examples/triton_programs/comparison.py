"""Shared helpers of the examples: the device to run on, and a comparison with PyTorch.

An example run with ``--check`` compares results and omits the times.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.testing


def device() -> torch.device:
    """The device that Triton's driver launches on."""
    return triton.runtime.driver.active.get_active_torch_device()


@functools.cache
def properties() -> dict[str, int]:
    """Properties of the device, queried once, because the driver is slow to answer."""
    active = triton.runtime.driver.active
    return active.utils.get_device_properties(active.get_current_device())


def processors() -> int:
    """Return the number of programs that run at once if each takes a whole processor.

    This is the grid size of a persistent kernel.
    """
    return properties()["multiprocessor_count"]


def worst(found: torch.Tensor, exact: torch.Tensor) -> float:
    """Return the maximum error relative to the maximum exact value; NaN if there is a NaN."""
    found, exact = found.double(), exact.double()
    return float((found - exact).abs().max() / exact.abs().max().clamp_min(1e-300))


def compare(
    what: str,
    kernel: Callable[[], Any],
    rival: Callable[[], Any],
    exact: torch.Tensor | None = None,
) -> None:
    """Print how far the kernel's result is from ``exact`` (the rival's, where it is None) and what
    both take.
    """
    reference = rival() if exact is None else exact
    print(f"{what:<52} error {worst(kernel(), reference):8.1e}", end="")
    if "--check" in sys.argv:
        print()
        return
    ours, theirs = (
        triton.testing.do_bench(call, warmup=10, rep=40, return_mode="median")
        for call in (kernel, rival)
    )
    print(f"   kernel {ours:9.4f} ms   torch {theirs:9.4f} ms   {theirs / ours:6.2f}x")
