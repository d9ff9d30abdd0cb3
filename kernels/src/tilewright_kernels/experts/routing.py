"""Routing of tokens: softmax, the k most probable experts, and their weights."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import array_api_compat

import tilewright as tw
import tilewright.language as tl
from tilewright_kernels.operations import Array, Launcher, Operation, strides
from tilewright_kernels.operations.devices import device_of
from tilewright_kernels.reductions.views import contiguous
from tilewright_kernels.rows.shapes import matrix_of
from tilewright_kernels.sampling.packed_keys import NOTHING, packed, position_of
from tilewright_kernels.sampling.top_k import topk_reference


@tw.jit
def route_kernel(
    x_ptr,
    weights_ptr,
    experts_ptr,
    n_rows,
    n_experts,
    k,
    x_stride,
    RENORMALIZE: tl.constexpr,
    ROWS: tl.constexpr,
    EXPERTS: tl.constexpr,
    KEPT: tl.constexpr,
):
    row = (tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS))[:, None]
    expert = tl.arange(0, EXPERTS)[None, :]
    is_inside = (row < n_rows) & (expert < n_experts)
    x = tl.load(x_ptr + row * x_stride + expert, mask=is_inside, other=-float("inf"))
    key = tl.where(is_inside, packed(x, expert, True), NOTHING)
    if KEPT < EXPERTS:
        key = tl.topk(key, KEPT, descending=False)
    else:
        key = tl.sort(key)
    chosen = position_of(key)
    place = tl.arange(0, KEPT)[None, :]
    is_chosen = (row < n_rows) & (place < k)
    logit = tl.load(x_ptr + row * x_stride + chosen, mask=is_chosen, other=-float("inf"))
    logit = logit.to(tl.float32)
    maximum = tl.where(row < n_rows, tl.max(logit, axis=1)[:, None], 0.0)
    weight = tl.exp(logit - maximum)
    if RENORMALIZE:
        total = tl.sum(weight, axis=1)
    else:
        total = tl.sum(tl.exp(x.to(tl.float32) - maximum), axis=1)
    tl.store(weights_ptr + row * k + place, weight / total[:, None], mask=is_chosen)
    tl.store(experts_ptr + row * k + place, chosen, mask=is_chosen)


@tw.jit
def route_gradient_kernel(
    dweights_ptr,
    x_ptr,
    experts_ptr,
    dx_ptr,
    n_rows,
    n_experts,
    k,
    x_stride,
    RENORMALIZE: tl.constexpr,
    ROWS: tl.constexpr,
    EXPERTS: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    expert = tl.arange(0, EXPERTS)[None, :]
    is_row = row < n_rows
    is_inside = is_row[:, None] & (expert < n_experts)
    x = tl.load(x_ptr + row[:, None] * x_stride + expert, mask=is_inside, other=-float("inf"))
    x = x.to(tl.float32)
    dprobability = tl.zeros([ROWS, EXPERTS], tl.float32)
    is_chosen = tl.zeros([ROWS, EXPERTS], tl.int1)
    for place in range(k):
        chosen = tl.load(experts_ptr + row * k + place, mask=is_row, other=-1)
        dweight = tl.load(dweights_ptr + row * k + place, mask=is_row, other=0.0)
        is_this = chosen[:, None] == expert
        dprobability = tl.where(is_this, dweight.to(tl.float32)[:, None], dprobability)
        is_chosen = is_chosen | is_this
    if RENORMALIZE:
        x = tl.where(is_chosen, x, -float("inf"))
    maximum = tl.where(is_row, tl.max(x, axis=1), 0.0)
    probability = tl.exp(x - maximum[:, None])
    total = tl.where(is_row, tl.sum(probability, axis=1), 1.0)
    probability /= total[:, None]
    mean = tl.sum(probability * dprobability, axis=1)
    dx = probability * (dprobability - mean[:, None])
    tl.store(dx_ptr + row[:, None] * n_experts + expert, dx, mask=is_inside)


@tw.jit
def chosen_gradient_kernel(
    dweights_ptr,
    x_ptr,
    experts_ptr,
    dx_ptr,
    n_experts,
    k,
    x_stride,
    EXPERTS: tl.constexpr,
    KEPT: tl.constexpr,
):
    """Store the gradient of a row whose weights depend on the chosen logits alone, on a CPU."""
    row = tl.program_id(0).to(tl.int64)
    expert, place = tl.arange(0, EXPERTS), tl.arange(0, KEPT)
    is_chosen = place < k
    chosen = tl.load(experts_ptr + row * k + place, mask=is_chosen, other=0)
    dweight = tl.load(dweights_ptr + row * k + place, mask=is_chosen, other=0.0).to(tl.float32)
    x = tl.load(x_ptr + row * x_stride + chosen, mask=is_chosen, other=-float("inf"))
    x = x.to(tl.float32)
    weight = tl.exp(x - tl.max(x, axis=0))
    weight /= tl.sum(weight, axis=0)
    dx = weight * (dweight - tl.sum(weight * dweight, axis=0))
    dx_ptr += row * n_experts
    tl.store(dx_ptr + expert, tl.zeros([EXPERTS], tl.float32), mask=expert < n_experts)
    tl.store(dx_ptr + chosen, dx, mask=is_chosen)


def route_reference(logits: Any, k: int, *, renormalize: bool = True) -> tuple[Any, Any]:
    """Return the k largest probabilities, which sum to 1 if renormalized, and their experts."""
    xp = array_api_compat.array_namespace(logits)
    chosen, experts = topk_reference(logits, k)
    exponentials = xp.exp(chosen - xp.max(logits, axis=-1, keepdims=True))
    if renormalize:
        return exponentials / xp.sum(exponentials, axis=-1, keepdims=True), experts
    everything = xp.exp(logits - xp.max(logits, axis=-1, keepdims=True))
    return exponentials / xp.sum(everything, axis=-1, keepdims=True), experts


def _by_formula(logits: Any, k: int, renormalize: bool) -> tuple[Any, Any]:
    return route_reference(logits, k, renormalize=renormalize)


def _shapes(make: Any, logits: Any, k: int, renormalize: bool) -> tuple[Any, ...]:
    shape = (*logits.shape[:-1], k)
    return make(shape, "float32"), make(shape, "int32")


def _rows_of(x: Any, experts: int) -> int:
    return 1 if device_of(x).family == "cpu" else max(256 // experts, 1)


def _launch(
    run: Launcher, weights: Any, experts: Any, logits: Array, k: int, renormalize: bool = True
) -> None:
    n_rows, n_experts = math.prod(logits.shape[:-1]), logits.shape[-1]
    if n_rows == 0:
        return
    x = matrix_of(logits)
    width = max(tw.next_power_of_2(n_experts), 2)
    rows = _rows_of(x, width)
    run(
        route_kernel,
        (tw.cdiv(n_rows, rows),),
        x,
        weights,
        experts,
        n_rows,
        n_experts,
        k,
        strides(x)[0],
        RENORMALIZE=renormalize,
        ROWS=rows,
        EXPERTS=width,
        KEPT=tw.next_power_of_2(k),
        num_warps=max(min(rows * width // 256, 4), 1),
    )


ROUTE = Operation("route", ("weights", "experts"), _shapes, _launch, reference=_by_formula)


def _gradient_shapes(
    make: Any, dweights: Any, logits: Any, experts: Any, renormalize: bool
) -> tuple[Any, ...]:
    return (make(logits.shape, logits.dtype),)


def _gradient_launch(
    run: Launcher, dx: Any, dweights: Array, logits: Array, experts: Array, renormalize: bool
) -> None:
    n_rows, n_experts = math.prod(logits.shape[:-1]), logits.shape[-1]
    if n_rows == 0:
        return
    x, width = matrix_of(logits), max(tw.next_power_of_2(n_experts), 2)
    if renormalize and device_of(x).family == "cpu":
        run(
            chosen_gradient_kernel,
            (n_rows,),
            contiguous(dweights),
            x,
            contiguous(experts),
            dx,
            n_experts,
            experts.shape[-1],
            strides(x)[0],
            EXPERTS=width,
            KEPT=tw.next_power_of_2(experts.shape[-1]),
        )
        return
    rows = _rows_of(x, width)
    run(
        route_gradient_kernel,
        (tw.cdiv(n_rows, rows),),
        contiguous(dweights),
        x,
        contiguous(experts),
        dx,
        n_rows,
        n_experts,
        experts.shape[-1],
        strides(x)[0],
        RENORMALIZE=renormalize,
        ROWS=rows,
        EXPERTS=width,
        num_warps=max(min(rows * width // 256, 4), 1),
    )


ROUTE_GRADIENT = Operation("route_gradient", ("dx",), _gradient_shapes, _gradient_launch)


@ROUTE.differentiate(saved=("logits", "experts"))
def _gradients(saved: Any, dweights: Any, _dexperts: Any) -> Mapping[str, Any]:
    if dweights is None:
        return {}
    return {"logits": ROUTE_GRADIENT(dweights, saved.logits, saved.experts, saved.renormalize)}


def route(logits: Any, k: int, *, renormalize: bool = True) -> tuple[Any, Any]:
    """Choose the k most probable experts of each token, with their weights.

    Args:
        logits: of shape (..., experts), of float16, bfloat16 or float32; at most 4096 experts.
        k: how many experts a token has.
        renormalize: whether to scale the weights of each token so that they sum to 1. Otherwise,
            the weights are the probabilities of the softmax over all experts.

    Returns:
        A pair of arrays of shape (..., k): the weights in descending order, of float32, and the
        numbers of the experts, of int32. Among equally probable experts, the one with the lower
        number comes first. The weights have gradients.

    Raises:
        ValueError: k is below 1 or above the number of experts, or there are more than 4096
            experts.

    Source: Shazeer et al., "Outrageously large neural networks", 2017.
    """
    n_experts = logits.shape[-1]
    if not 1 <= k <= n_experts <= 4096:
        raise ValueError(f"route: cannot choose {k} of {n_experts} experts, of at most 4096")
    found = ROUTE(logits, k, renormalize)
    return found[0], found[1]
