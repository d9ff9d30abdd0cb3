"""Nucleus sampling's distribution: the most probable elements, renormalized."""

from __future__ import annotations

import math
from typing import Any

import array_api_compat
import numpy as np

import tilewright as tw
import tilewright.language as tl
from tilewright_kernels.operations import Array, Launcher, Operation, strides
from tilewright_kernels.operations.devices import device_of
from tilewright_kernels.rows.shapes import matrix_of


@tw.jit
def _mass_above(x_ptr, n_columns, bits, BLOCK: tl.constexpr):
    """Add up the probabilities of a row whose bits, as an integer, are at least ``bits``.

    Sums are in float64: the rounding of a sum in float32 is as large as an element of a wide row.
    """
    mass = tl.zeros([BLOCK], tl.float64)
    for start in range(0, n_columns, BLOCK):
        column = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + column, mask=column < n_columns, other=0.0).to(tl.float32)
        mass += tl.where(x.to(tl.int32, bitcast=True) >= bits, x, 0.0).to(tl.float64)
    return tl.sum(mass, axis=0)


@tw.jit
def top_p_kernel(
    x_ptr, y_ptr, x_stride, y_stride, n_columns, p_upper, p_lower, BLOCK: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * x_stride
    p = tl.cast(p_upper, tl.float64) + tl.cast(p_lower, tl.float64)
    wanted = _mass_above(x_ptr, n_columns, 0, BLOCK) * p
    # The highest threshold that leaves enough: floats that are not negative have the
    # order of their bits.
    threshold = 0
    for step in range(31):
        raised = threshold | (1 << (30 - step))
        mass = _mass_above(x_ptr, n_columns, raised, BLOCK)
        if (mass >= wanted) & (mass > 0):
            threshold = raised
    scale = (1.0 / _mass_above(x_ptr, n_columns, threshold, BLOCK)).to(tl.float32)
    for start in range(0, n_columns, BLOCK):
        column = start + tl.arange(0, BLOCK)
        is_inside = column < n_columns
        x = tl.load(x_ptr + column, mask=is_inside, other=0.0).to(tl.float32)
        is_kept = x.to(tl.int32, bitcast=True) >= threshold
        tl.store(y_ptr + row * y_stride + column, tl.where(is_kept, x * scale, 0.0), mask=is_inside)


def top_p_reference(probabilities: Any, p: float) -> Any:
    """Return the probabilities that are at least as great as the last that is needed for p."""
    xp = array_api_compat.array_namespace(probabilities)
    descending = xp.flip(xp.sort(probabilities, axis=-1), axis=-1)
    prefix = xp.cumulative_sum(descending, axis=-1)
    is_enough = prefix >= prefix[..., -1:] * p
    index = xp.argmax(xp.astype(is_enough, xp.int32), axis=-1, keepdims=True)
    threshold = xp.take_along_axis(descending, index, axis=-1)
    kept = xp.where(probabilities >= threshold, probabilities, xp.zeros_like(probabilities))
    return kept / xp.sum(kept, axis=-1, keepdims=True)


def _shapes(make: Any, probabilities: Any, p: float) -> tuple[Any, ...]:
    return (make(probabilities.shape, probabilities.dtype),)


def _launch(run: Launcher, y: Any, probabilities: Array, p: float) -> None:
    n_columns = probabilities.shape[-1]
    n_rows = math.prod(probabilities.shape[:-1])
    if n_rows == 0 or n_columns == 0:
        return
    x = matrix_of(probabilities)
    widest = 1024 if device_of(x).family == "cpu" else 8192
    block = min(tw.next_power_of_2(n_columns), widest)
    p_upper = float(np.float32(p))
    run(
        top_p_kernel,
        (n_rows,),
        x,
        y,
        strides(x)[0],
        n_columns,
        n_columns,
        p_upper,
        p - p_upper,
        BLOCK=block,
        num_warps=max(min(block // 512, 16), 1),
    )


TOP_P = Operation("top_p", ("y",), _shapes, _launch, reference=top_p_reference)


def top_p(probabilities: Any, p: float, *, out: Any = None) -> Any:
    """Keep the most probable elements of each row, until their total probability reaches p.

    Args:
        probabilities: of shape (..., n), not negative, of float16, bfloat16 or float32.
        p: the total probability, between 0 and 1; 0 keeps only the most probable element.
        out: the array for the result.

    Returns:
        An array with the shape and element type of ``probabilities``. Elements that are not kept
        become zero, and the others are scaled so that each row sums to 1. The rows of
        ``probabilities`` need not sum to 1. If other elements are equal to the last element that is
        needed to reach p, the function keeps them, too. There is no gradient.

    Raises:
        ValueError: p is not between 0 and 1.

    Source: Holtzman et al., "The curious case of neural text degeneration", 2020. The threshold is
    found by bisection over the bits of floats, without a sort; sums are in float64.
    """
    if not 0 <= p <= 1:
        raise ValueError(f"top_p: p must be between 0 and 1, not {p}")
    return TOP_P(probabilities, p, out=out)
