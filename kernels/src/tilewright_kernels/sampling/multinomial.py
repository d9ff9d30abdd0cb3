"""Samples of discrete distributions, from a seed."""

from __future__ import annotations

import math
from typing import Any

import array_api_compat
import numpy as np

import tilewright as tw
import tilewright.language as tl
from tilewright_kernels.operations import Array, Launcher, Operation, strides
from tilewright_kernels.operations.devices import device_of
from tilewright_kernels.rows.reference_functions import uniform4x
from tilewright_kernels.rows.shapes import matrix_of


@tw.jit
def multinomial_kernel(x_ptr, index_ptr, x_stride, n_columns, n_samples, seed, BLOCK: tl.constexpr):
    row, sample = tl.program_id(0).to(tl.int64), tl.program_id(1)
    x_ptr += row * x_stride
    total = 0.0
    for start in range(0, n_columns, BLOCK):
        column = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + column, mask=column < n_columns, other=0.0).to(tl.float32)
        total += tl.sum(x, axis=0)
    # Philox's counter is of 32 bits: the lower ones of a sample's number
    target = tl.rand(seed, (row * n_samples + sample).to(tl.int32)) * total
    before = 0.0
    chosen = n_columns
    last = 0
    for start in range(0, n_columns, BLOCK):
        column = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + column, mask=column < n_columns, other=0.0).to(tl.float32)
        is_reached = (before + tl.cumsum(x, axis=0) > target) & (x > 0)
        chosen = tl.minimum(chosen, tl.min(tl.where(is_reached, column, n_columns), axis=0))
        last = tl.maximum(last, tl.max(tl.where(x > 0, column, 0), axis=0))
        before += tl.sum(x, axis=0)
    # rounding may leave the last prefix sum below the target
    chosen = tl.where(chosen < n_columns, chosen, last)
    tl.store(index_ptr + row * n_samples + sample, chosen)


def multinomial_reference(probabilities: Any, uniform: Any) -> Any:
    """Return the first positions whose prefix sums are above uniform numbers times the sums.

    Args:
        probabilities: of shape (..., n).
        uniform: of shape (..., samples), in [0, 1).
    """
    xp = array_api_compat.array_namespace(probabilities)
    prefix = xp.cumulative_sum(probabilities, axis=-1)
    is_reached = prefix[..., None, :] > (uniform * prefix[..., -1:])[..., None]
    return xp.argmax(xp.astype(is_reached, xp.int32), axis=-1)


def _by_formula(probabilities: Any, n_samples: int, seed: int) -> Any:
    xp = array_api_compat.array_namespace(probabilities)
    shape = (*probabilities.shape[:-1], n_samples)
    draws = np.arange(math.prod(shape), dtype=np.uint64) & np.uint64(0xFFFFFFFF)
    uniform = uniform4x(draws, seed)[:, 0].reshape(shape)
    uniform = xp.asarray(uniform, device=array_api_compat.device(probabilities))
    return multinomial_reference(probabilities, uniform)


def _shapes(make: Any, probabilities: Any, n_samples: int, seed: int) -> tuple[Any, ...]:
    return (make((*probabilities.shape[:-1], n_samples), "int64"),)


def _launch(run: Launcher, index: Any, probabilities: Array, n_samples: int, seed: int) -> None:
    n_rows, n_columns = math.prod(probabilities.shape[:-1]), probabilities.shape[-1]
    if n_rows == 0 or n_samples == 0:
        return
    x = matrix_of(probabilities)
    widest = 1024 if device_of(x).family == "cpu" else 4096
    block = min(tw.next_power_of_2(n_columns), widest)
    run(
        multinomial_kernel,
        (n_rows, n_samples),
        x,
        index,
        strides(x)[0],
        n_columns,
        n_samples,
        seed,
        BLOCK=block,
        num_warps=max(min(block // 512, 8), 1),
    )


MULTINOMIAL = Operation("multinomial", ("index",), _shapes, _launch, reference=_by_formula)


def multinomial(probabilities: Any, n_samples: int = 1, *, seed: int, out: Any = None) -> Any:
    """Draw positions in each row at random, with the given probabilities and with replacement.

    Args:
        probabilities: of shape (..., n), not negative, of float16, bfloat16 or float32; rows need
            not sum to 1.
        n_samples: how many positions to draw in each row.
        seed: the seed of the random number generator Philox. Equal seeds give equal draws on every
            device, unless the devices round the sums of probabilities differently.
        out: the array for the result.

    Returns:
        An array of int64 and shape (..., n_samples) with the positions. Elements of probability 0
        are never drawn.

    Raises:
        ValueError: rows have no elements, or ``n_samples`` is negative.

    Source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011.
    """
    if probabilities.shape[-1] == 0 or n_samples < 0:
        raise ValueError(
            f"multinomial: cannot draw {n_samples} of rows of {probabilities.shape[-1]} elements"
        )
    return MULTINOMIAL(probabilities, n_samples, seed, out=out)
