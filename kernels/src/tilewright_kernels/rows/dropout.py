"""Dropout whose mask is computed again from a seed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import array_api_compat

import tilewright as tw
import tilewright.language as tl
from tilewright_kernels.operations import Array, Launcher, Operation
from tilewright_kernels.rows.reference_functions import uniform4x
from tilewright_kernels.rows.shapes import contiguous, is_on_gpu


@tw.jit
def dropout_kernel(x_ptr, y_ptr, n, rate, scale, seed, BLOCK: tl.constexpr):
    places = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = places < n
    x = tl.load(x_ptr + places, mask=inside, other=0.0).to(tl.float32)
    # a block of Philox has numbers for four elements
    quarters = tl.program_id(0).to(tl.int64) * (BLOCK // 4) + tl.arange(0, BLOCK // 4)
    a, b, c, d = tl.rand4x(seed, quarters)
    numbers = tl.reshape(tl.join(tl.join(a, c), tl.join(b, d)), [BLOCK])
    is_kept = numbers >= rate
    tl.store(y_ptr + places, tl.where(is_kept, x * scale, 0.0), mask=inside)


def dropout_reference(x: Any, rate: float, seed: int) -> Any:
    """Return ``x / (1 - rate)`` where the uniform number of an element is at least ``rate``.

    The numbers of four elements are those of ``tl.rand4x(seed, place // 4)``.
    """
    import numpy as np

    xp = array_api_compat.array_namespace(x)
    size = int(np.prod(x.shape))
    numbers = uniform4x(np.arange((size + 3) // 4, dtype=np.uint64), seed).reshape(-1)[:size]
    kept = numbers.reshape(tuple(x.shape)) >= np.float32(rate)
    scale = 1 / (1 - rate) if rate < 1 else 0.0
    return x * xp.asarray(kept, device=array_api_compat.device(x)) * scale


def _shapes(make: Any, x: Any, rate: float, seed: int) -> tuple[Any, ...]:
    return (make(x.shape, x.dtype),)


def _launch(run: Launcher, y: Any, x: Array, rate: float, seed: int) -> None:
    x = contiguous(x)
    n = 1
    for extent in x.shape:
        n *= extent
    block = 1024 if is_on_gpu(x) else 4096
    run(
        dropout_kernel,
        (tw.cdiv(n, block),),
        x,
        y,
        n,
        rate,
        1 / (1 - rate) if rate < 1 else 0.0,
        seed,
        BLOCK=block,
        num_warps=4,
    )


DROPOUT = Operation("dropout", ("y",), _shapes, _launch, reference=dropout_reference)


@DROPOUT.differentiate(saved=())
def _gradients(saved: Any, dy: Any) -> Mapping[str, Any]:
    return {"x": DROPOUT(dy, saved.rate, saved.seed)}


def dropout(x: Any, rate: float, seed: int, *, out: Any = None) -> Any:
    """Set elements to zero with a probability, and scale the others.

    Args:
        x: of any shape and strides, of float16, bfloat16 or float32.
        rate: the probability, between 0 and 1.
        seed: the seed of the mask: the same one yields the same mask. It is an integer of 32 bits.
        out: the array for the result.

    Returns:
        An array of the shape and type of ``x``: ``x / (1 - rate)`` or 0. The mask depends on the
        seed and on an element's place alone, so that it is not stored: the backward pass computes
        it again.

    Raises:
        ValueError: ``rate`` is no probability.

    Source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011.
    """
    if not 0 <= rate <= 1:
        raise ValueError(f"rate is {rate}: give a probability, between 0 and 1")
    return DROPOUT(x, rate, seed, out=out)
