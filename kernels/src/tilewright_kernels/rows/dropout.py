"""Dropout whose mask is computed again from a seed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import array_api_compat

import tilewright as tw
import tilewright.language as tl
from tilewright_kernels.operations import Array, Launcher, Operation
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
    numbers = _uniform(np.arange((size + 3) // 4, dtype=np.uint64), seed)[:size]
    kept = numbers.reshape(tuple(x.shape)) >= np.float32(rate)
    scale = 1 / (1 - rate) if rate < 1 else 0.0
    return x * xp.asarray(kept, device=array_api_compat.device(x)) * scale


def _uniform(places: Any, seed: int) -> Any:
    """Return four numbers of [0, 1) for each place, by Philox of ten rounds."""
    import numpy as np

    low = np.uint64(0xFFFFFFFF)
    shift = np.uint64(32)
    words = [places & low, places >> shift, places * np.uint64(0), places * np.uint64(0)]
    keys = [np.uint64(seed & 0xFFFFFFFF), np.uint64((seed >> 32) & 0xFFFFFFFF)]
    for _ in range(10):
        even = words[0] * np.uint64(0xD2511F53)
        odd = words[2] * np.uint64(0xCD9E8D57)
        words = [
            (odd >> shift) ^ words[1] ^ keys[0],
            odd & low,
            (even >> shift) ^ words[3] ^ keys[1],
            even & low,
        ]
        keys = [
            (keys[0] + np.uint64(0x9E3779B9)) & low,
            (keys[1] + np.uint64(0xBB67AE85)) & low,
        ]
    signed = np.stack(words, axis=-1).reshape(-1).astype(np.uint32).view(np.int32)
    magnitude = np.where(signed < 0, -signed - 1, signed)
    return magnitude.astype(np.float32) * np.float32(4.6566127342e-10)


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
