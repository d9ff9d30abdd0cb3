"""Histograms: counts of integers, and of floats in bins of equal width."""

from __future__ import annotations

import math
from typing import Any

import array_api_compat

import tilewright as tw
import tilewright.language as tl
from tilewright_kernels.operations import Array, Launcher, Operation
from tilewright_kernels.operations.devices import device_of
from tilewright_kernels.reductions.numeric_types import is_floating
from tilewright_kernels.reductions.views import contiguous


@tw.jit
def zero_counts_kernel(counts_ptr, n_bins, BLOCK: tl.constexpr):
    bin_ = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(counts_ptr + bin_, tl.zeros([BLOCK], tl.int64), mask=bin_ < n_bins)


@tw.jit
def histogram_kernel(
    x_ptr,
    counts_ptr,
    n,
    n_bins,
    minimum,
    maximum,
    steps,
    BINS: tl.constexpr,
    IS_FLOAT: tl.constexpr,
    BLOCK: tl.constexpr,
):
    first = tl.program_id(0).to(tl.int64) * steps * BLOCK
    counts = tl.zeros([BINS], tl.int32)
    for step in range(steps):
        offsets = first + step * BLOCK + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + offsets, mask=offsets < n, other=0)
        if IS_FLOAT:
            x = x.to(tl.float32)
            is_counted = (x >= minimum) & (x <= maximum) & (offsets < n)
            position = (x - minimum) * (n_bins / (maximum - minimum))
            # the last bin has its upper edge
            bin_ = tl.minimum(tl.where(is_counted, position, 0.0).to(tl.int32), n_bins - 1)
        else:
            is_counted = (x >= 0) & (x < n_bins) & (offsets < n)
            bin_ = tl.where(is_counted, x, 0).to(tl.int32)
        if BINS > 1:
            counts += tl.histogram(bin_, BINS, mask=is_counted)
        else:
            tl.atomic_add(counts_ptr + bin_, is_counted.to(tl.int64), mask=is_counted)
    if BINS > 1:
        each = tl.arange(0, BINS)
        is_bin = (each < n_bins) & (counts > 0)
        tl.atomic_add(counts_ptr + each, counts.to(tl.int64), mask=is_bin)


def histogram_reference(
    x: Any, n_bins: int, *, minimum: float | None = None, maximum: float | None = None
) -> Any:
    """Return the counts of elements in each bin; integers are bins themselves."""
    xp = array_api_compat.array_namespace(x)
    x = xp.reshape(x, (-1,))
    if minimum is not None and maximum is not None:
        bins = xp.floor((x - minimum) * (n_bins / (maximum - minimum)))
        last = xp.asarray(n_bins - 1.0, dtype=bins.dtype, device=array_api_compat.device(x))
        bins = xp.where(x == maximum, last, bins)
    else:
        bins = x
    every = xp.arange(n_bins, device=array_api_compat.device(x))
    return xp.sum(bins[:, None] == every[None, :], axis=0)


def _by_formula(x: Any, n_bins: int, minimum: float, maximum: float) -> Any:
    if not is_floating(x.dtype):
        return histogram_reference(x, n_bins)
    return histogram_reference(x, n_bins, minimum=minimum, maximum=maximum)


def _shapes(make: Any, x: Any, n_bins: int, minimum: float, maximum: float) -> tuple[Any, ...]:
    return (make((n_bins,), "int64"),)


def _launch(
    run: Launcher, counts: Any, x: Array, n_bins: int, minimum: float = 0.0, maximum: float = 1.0
) -> None:
    n = math.prod(x.shape)
    run(zero_counts_kernel, (tw.cdiv(n_bins, 1024),), counts, n_bins, BLOCK=1024)
    if n == 0:
        return
    on_cpu = device_of(x).family == "cpu"
    bins, block = max(tw.next_power_of_2(n_bins), 16), 1024
    steps = max(tw.cdiv(n, block * (16 if on_cpu else 1056)), 1)
    run(
        histogram_kernel,
        (tw.cdiv(n, block * steps),),
        contiguous(x),
        counts,
        n,
        n_bins,
        minimum,
        maximum,
        steps,
        BINS=bins if bins <= 1024 else 1,
        IS_FLOAT=is_floating(x.dtype),
        BLOCK=block,
        updates=("counts_ptr",),
    )


HISTOGRAM = Operation("histogram", ("counts",), _shapes, _launch, reference=_by_formula)


def histogram(
    x: Any,
    n_bins: int,
    *,
    minimum: float | None = None,
    maximum: float | None = None,
    out: Any = None,
) -> Any:
    """Count elements in bins.

    Args:
        x: an array of any shape and strides. An integer is the number of its bin. Floats may be
            float16, bfloat16 or float32.
        n_bins: number of bins.
        minimum: the lower edge of the first bin, for floats.
        maximum: the upper edge of the last bin (inclusive), for floats.
        out: the array for the result.

    Returns:
        The counts, a vector of int64. Elements outside all bins are not counted. The result is the
        same in each run.

    Raises:
        TypeError: ``x`` contains floats and ``minimum`` or ``maximum`` is missing, or ``x``
            contains integers and ``minimum`` or ``maximum`` is given.
        ValueError: ``n_bins`` is below 1, or ``minimum`` is not below ``maximum``.
    """
    has_edges = minimum is not None and maximum is not None
    if has_edges != is_floating(x.dtype) or (minimum is None) != (maximum is None):
        raise TypeError("histogram: floats take minimum= and maximum=, and integers neither")
    if n_bins < 1 or (minimum is not None and maximum is not None and not minimum < maximum):
        raise ValueError(
            f"histogram: cannot count in {n_bins} bins between {minimum} and {maximum}"
        )
    edges = (minimum, maximum) if has_edges else (0.0, 1.0)
    return HISTOGRAM(x, n_bins, *edges, out=out)
