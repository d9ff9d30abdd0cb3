"""Dropout by a mask that a seed determines.

On a GPU the backward pass computes the mask again. On a CPU that takes longer than to read it: the
forward pass then stores a byte per element.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import array_api_compat

import tilewright as tw
import tilewright.language as tl
from tilewright_kernels.operations import Array, Launcher, Operation
from tilewright_kernels.rows.reference_functions import uniform4x
from tilewright_kernels.rows.shapes import contiguous, is_on_gpu

#: Elements of a program that applies a mask.
_KEPT_BLOCK = 4096


@tw.jit
def dropout_kernel(x_ptr, y_ptr, kept_ptr, n, rate, scale, seed, BLOCK: tl.constexpr):
    places = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = places < n
    x = tl.load(x_ptr + places, mask=inside, other=0.0).to(tl.float32)
    # a block of Philox has numbers for four elements; its number of 64 bits is that of the first
    # block, of whose low word no other block of the program carries
    first = tl.program_id(0).to(tl.int64) * (BLOCK // 4)
    zero = tl.zeros([BLOCK // 4], tl.uint32)
    low = first.to(tl.uint32) + tl.arange(0, BLOCK // 4).to(tl.uint32)
    a, b, c, d = tl.philox(seed, low, zero + (first >> 32).to(tl.uint32), zero, zero)
    words = tl.reshape(tl.join(tl.join(a, c), tl.join(b, d)), [BLOCK])
    is_kept = tl.uint_to_uniform_float(words) >= rate
    tl.store(y_ptr + places, tl.where(is_kept, x * scale, 0.0), mask=inside)
    if kept_ptr is not None:
        tl.store(kept_ptr + places, is_kept.to(tl.uint8), mask=inside)


@tw.jit
def kept_elements_kernel(x_ptr, kept_ptr, y_ptr, n, scale, BLOCK: tl.constexpr):
    places = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = places < n
    x = tl.load(x_ptr + places, mask=inside, other=0.0).to(tl.float32)
    is_kept = tl.load(kept_ptr + places, mask=inside, other=0) != 0
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


def _scale(rate: float) -> float:
    return 1 / (1 - rate) if rate < 1 else 0.0


def _shapes(make: Any, x: Any, rate: float, seed: int) -> tuple[Any, ...]:
    return make(x.shape, x.dtype), None if is_on_gpu(x) else make(x.shape, "uint8")


def _launch(run: Launcher, y: Any, kept: Any, x: Array, rate: float, seed: int) -> None:
    x = contiguous(x)
    n = math.prod(x.shape)
    block = 1024 if is_on_gpu(x) else 512
    run(
        dropout_kernel,
        (tw.cdiv(n, block),),
        x,
        y,
        kept,
        n,
        rate,
        _scale(rate),
        seed,
        BLOCK=block,
        num_warps=4,
    )


DROPOUT = Operation(
    "dropout",
    ("y", "kept"),
    _shapes,
    _launch,
    residuals=("kept",),
    optional=("kept",),
    reference=dropout_reference,
)


def _kept_shapes(make: Any, x: Any, kept: Any, rate: float) -> tuple[Any, ...]:
    return (make(x.shape, x.dtype),)


def _kept_launch(run: Launcher, y: Any, x: Array, kept: Array, rate: float) -> None:
    n = math.prod(x.shape)
    run(
        kept_elements_kernel,
        (tw.cdiv(n, _KEPT_BLOCK),),
        contiguous(x),
        contiguous(kept),
        y,
        n,
        _scale(rate),
        BLOCK=_KEPT_BLOCK,
        num_warps=4,
    )


#: The elements that a mask keeps, times the scale of dropout.
KEPT_ELEMENTS = Operation("kept_elements", ("y",), _kept_shapes, _kept_launch)


@KEPT_ELEMENTS.differentiate(saved=("kept",))
def _kept_gradients(saved: Any, dy: Any) -> Mapping[str, Any]:
    return {"x": KEPT_ELEMENTS(dy, saved.kept, saved.rate)}


@DROPOUT.differentiate(saved=("kept",))
def _gradients(saved: Any, dy: Any) -> Mapping[str, Any]:
    if is_on_gpu(dy):
        return {"x": DROPOUT(dy, saved.rate, saved.seed)}
    return {"x": KEPT_ELEMENTS(dy, saved.kept, saved.rate)}


def dropout(x: Any, rate: float, seed: int, *, out: Any = None) -> Any:
    """Set each element to zero with probability ``rate``, and divide all others by ``1 - rate``.

    Args:
        x: of any shape and strides, of float16, bfloat16 or float32.
        rate: the probability that an element becomes zero, between 0 and 1.
        seed: the seed of the mask, an integer of 32 bits. The same seed yields the same mask.
        out: the array for the result.

    Returns:
        An array with the shape and element type of ``x``: each element is ``x / (1 - rate)`` or 0.
        The mask, which states which elements become zero, depends only on the seed and on the
        positions of the elements. On a CPU, if a gradient is required, the forward pass stores the
        mask, with one byte per element. On a GPU, the backward pass computes the mask again.

    Raises:
        ValueError: ``rate`` is not between 0 and 1.

    Source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011.
    """
    if not 0 <= rate <= 1:
        raise ValueError(f"rate is {rate}: give a probability, between 0 and 1")
    return DROPOUT(x, rate, seed, out=out)
