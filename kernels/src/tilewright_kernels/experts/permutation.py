"""Rows of tokens in the order of experts, and weighted sums back to tokens."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import array_api_compat

import tilewright as tw
import tilewright.language as tl
from tilewright_kernels.experts.expert_order import ExpertOrder
from tilewright_kernels.operations import Array, Launcher, Operation, strides
from tilewright_kernels.operations.devices import device_of
from tilewright_kernels.reductions.views import contiguous
from tilewright_kernels.rows.shapes import matrix_of


@tw.jit
def permute_kernel(
    x_ptr,
    order_ptr,
    weights_ptr,
    y_ptr,
    n_rows,
    n_columns,
    k,
    x_stride,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Store the token's row of each assignment, times the assignment's weight."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    column = (tl.program_id(1) * BLOCK + tl.arange(0, BLOCK))[None, :]
    is_row = row < n_rows
    is_inside = is_row[:, None] & (column < n_columns)
    assignment = tl.load(order_ptr + row, mask=is_row, other=0)
    token = (assignment // k).to(tl.int64)
    x = tl.load(x_ptr + token[:, None] * x_stride + column, mask=is_inside, other=0.0)
    if weights_ptr is not None:
        weight = tl.load(weights_ptr + assignment, mask=is_row, other=0.0)
        x = x.to(tl.float32) * weight[:, None]
    tl.store(y_ptr + row[:, None] * n_columns + column, x, mask=is_inside)


@tw.jit
def combine_kernel(
    y_ptr,
    weights_ptr,
    slots_ptr,
    out_ptr,
    n_tokens,
    n_columns,
    k,
    y_stride,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Store the sum of the rows of each token's assignments, times their weights."""
    token = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    column = (tl.program_id(1) * BLOCK + tl.arange(0, BLOCK))[None, :]
    is_token = token < n_tokens
    is_inside = is_token[:, None] & (column < n_columns)
    total = tl.zeros([ROWS, BLOCK], tl.float32)
    for place in range(k):
        slot = tl.load(slots_ptr + token * k + place, mask=is_token, other=0).to(tl.int64)
        y = tl.load(y_ptr + slot[:, None] * y_stride + column, mask=is_inside, other=0.0)
        if weights_ptr is not None:
            weight = tl.load(weights_ptr + token * k + place, mask=is_token, other=0.0)
            total += y.to(tl.float32) * weight.to(tl.float32)[:, None]
        else:
            total += y.to(tl.float32)
    tl.store(out_ptr + token[:, None] * n_columns + column, total, mask=is_inside)


@tw.jit
def weight_gradient_kernel(
    dout_ptr,
    y_ptr,
    slots_ptr,
    dweights_ptr,
    n_columns,
    k,
    dout_stride,
    y_stride,
    BLOCK: tl.constexpr,
):
    """Store the dot product of an assignment's row with the gradient of its token's."""
    assignment = tl.program_id(0).to(tl.int64)
    slot = tl.load(slots_ptr + assignment).to(tl.int64)
    token = assignment // k
    total = tl.zeros([BLOCK], tl.float32)
    for start in range(0, n_columns, BLOCK):
        column = start + tl.arange(0, BLOCK)
        is_inside = column < n_columns
        dout = tl.load(dout_ptr + token * dout_stride + column, mask=is_inside, other=0.0)
        y = tl.load(y_ptr + slot * y_stride + column, mask=is_inside, other=0.0)
        total += dout.to(tl.float32) * y.to(tl.float32)
    tl.store(dweights_ptr + assignment, tl.sum(total, axis=0))


def _blocks(array: Any, n_columns: int) -> dict[str, Any]:
    block = min(tw.next_power_of_2(n_columns), 1024)
    rows = 1 if device_of(array).family == "cpu" else max(1024 // block, 1)
    return {"ROWS": rows, "BLOCK": block, "num_warps": max(min(rows * block // 256, 4), 1)}


def permute_reference(x: Any, order: ExpertOrder) -> Any:
    """Return the row of the token of each assignment, in the order of experts."""
    return _permute_by_formula(
        x, order.order, order.order.shape[0] // max(x.shape[0], 1) or 1, None
    )


def combine_reference(y: Any, weights: Any, order: ExpertOrder) -> Any:
    """Return the sum of the rows of each token's assignments, times their weights."""
    return _combine_by_formula(y, order.slots, weights.shape[1], weights)


def _permute_by_formula(x: Any, order: Any, k: int, weights: Any) -> Any:
    xp = array_api_compat.array_namespace(x)
    y = xp.take(x, order // k, axis=0)
    return y if weights is None else y * xp.take(xp.reshape(weights, (-1,)), order)[:, None]


def _combine_by_formula(y: Any, slots: Any, k: int, weights: Any) -> Any:
    xp = array_api_compat.array_namespace(y)
    rows = xp.reshape(xp.take(y, slots, axis=0), (-1, k, y.shape[-1]))
    return xp.sum(rows if weights is None else rows * weights[..., None], axis=1)


def _permute_shapes(
    make: Any, x: Any, order: Any, slots: Any, k: int, weights: Any
) -> tuple[Any, ...]:
    return (make((order.shape[0], x.shape[1]), x.dtype),)


def _permute_launch(
    run: Launcher,
    y: Any,
    x: Array,
    order: Array,
    slots: Array,
    k: int,
    weights: Array | None = None,
) -> None:
    n_rows, n_columns = order.shape[0], x.shape[1]
    if n_rows * n_columns == 0:
        return
    x, blocks = matrix_of(x), _blocks(x, n_columns)
    run(
        permute_kernel,
        (tw.cdiv(n_rows, blocks["ROWS"]), tw.cdiv(n_columns, blocks["BLOCK"])),
        x,
        contiguous(order),
        None if weights is None else contiguous(weights),
        y,
        n_rows,
        n_columns,
        k,
        strides(x)[0],
        **blocks,
    )


PERMUTE = Operation(
    "permute_tokens", ("y",), _permute_shapes, _permute_launch, reference=_permute_by_formula
)


def _combine_shapes(
    make: Any, y: Any, order: Any, slots: Any, k: int, weights: Any
) -> tuple[Any, ...]:
    return (make((slots.shape[0] // k, y.shape[1]), y.dtype),)


def _combine_launch(
    run: Launcher,
    out: Any,
    y: Array,
    order: Array,
    slots: Array,
    k: int,
    weights: Array | None = None,
) -> None:
    n_tokens, n_columns = slots.shape[0] // k, y.shape[1]
    if n_tokens * n_columns == 0:
        return
    y, blocks = matrix_of(y), _blocks(y, n_columns)
    run(
        combine_kernel,
        (tw.cdiv(n_tokens, blocks["ROWS"]), tw.cdiv(n_columns, blocks["BLOCK"])),
        y,
        None if weights is None else contiguous(weights),
        contiguous(slots),
        out,
        n_tokens,
        n_columns,
        k,
        strides(y)[0],
        **blocks,
    )


COMBINE = Operation(
    "combine_experts", ("out",), _combine_shapes, _combine_launch, reference=_combine_by_formula
)


def _weight_shapes(make: Any, dout: Any, y: Any, slots: Any, weights: Any) -> tuple[Any, ...]:
    return (make(weights.shape, weights.dtype),)


def _weight_launch(
    run: Launcher, dweights: Any, dout: Array, y: Array, slots: Array, weights: Array
) -> None:
    n, n_columns = math.prod(weights.shape), y.shape[1]
    if n == 0:
        return
    dout, y = matrix_of(dout), matrix_of(y)
    block = min(tw.next_power_of_2(max(n_columns, 1)), 1024)
    run(
        weight_gradient_kernel,
        (n,),
        dout,
        y,
        contiguous(slots),
        dweights,
        n_columns,
        weights.shape[-1],
        strides(dout)[0],
        strides(y)[0],
        BLOCK=block,
        num_warps=max(block // 512, 1),
    )


WEIGHT_GRADIENT = Operation(
    "combine_weight_gradient", ("dweights",), _weight_shapes, _weight_launch
)


@PERMUTE.differentiate(saved=("order", "slots"))
def _permute_gradients(saved: Any, dy: Any) -> Mapping[str, Any]:
    return {"x": COMBINE(dy, saved.order, saved.slots, saved.k, None)}


@COMBINE.differentiate(saved=("y", "order", "slots", "weights"))
def _combine_gradients(saved: Any, dout: Any) -> Mapping[str, Any]:
    found = {}
    if "y" in saved.needed:
        found["y"] = PERMUTE(dout, saved.order, saved.slots, saved.k, saved.weights)
    if "weights" in saved.needed:
        found["weights"] = WEIGHT_GRADIENT(dout, saved.y, saved.slots, saved.weights)
    return found


def permute(x: Any, order: ExpertOrder, *, out: Any = None) -> Any:
    """Copy the row of each token once for each of its k experts, and sort the copies by expert.

    Args:
        x: of shape (tokens, columns), of float16, bfloat16 or float32.
        order: the order of the tokens' assignments, as :func:`.expert_order` returns it.
        out: the array for the result.

    Returns:
        An array of shape (tokens * k, columns). The rows of expert e begin with row
        ``order.starts[e]`` and end before row ``order.starts[e + 1]``. The gradient of a row of
        ``x`` is the sum of the gradients of its k copies. The gradients are added in a fixed order.

    Raises:
        ValueError: ``order`` was made for a different number of tokens.
    """
    return PERMUTE(x, order.order, order.slots, _places(order, x.shape[0]), None, out=out)


def combine(y: Any, weights: Any, order: ExpertOrder, *, out: Any = None) -> Any:
    """Compute for each token the weighted sum of the rows that belong to its experts.

    Args:
        y: of shape (tokens * k, columns), with rows sorted by expert, as :func:`permute` sorts
            them.
        weights: of shape (tokens, k).
        order: the order of the tokens' assignments, as :func:`.expert_order` returns it.
        out: the array for the result.

    Returns:
        An array of shape (tokens, columns) with the element type of ``y``. Sums are computed in
        float32. ``y`` and ``weights`` have gradients.

    Raises:
        ValueError: ``order`` was made for a different number of tokens.
    """
    places = _places(order, weights.shape[0])
    # without tokens, an order does not say how many experts each has
    if len(weights.shape) != 2 or (weights.shape[0] and weights.shape[1] != places):
        raise ValueError(f"combine: the weights have the shape {tuple(weights.shape)}")
    return COMBINE(y, order.order, order.slots, weights.shape[1], weights, out=out)


def _places(order: ExpertOrder, n_tokens: int) -> int:
    n = order.order.shape[0]
    if n_tokens == 0 and n == 0:
        return 1
    if n_tokens == 0 or n % n_tokens:
        raise ValueError(f"the order has {n} assignments, which {n_tokens} tokens do not share")
    return int(n // n_tokens)
