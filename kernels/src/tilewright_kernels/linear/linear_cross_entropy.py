"""Cross entropy of the logits of a linear layer, which are never whole in memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import array_api_compat

import tilewright as tw
import tilewright.language as tl
from tilewright_kernels.linear.matmul import launch_matmul, matmul
from tilewright_kernels.operations import Array, Launcher, Operation
from tilewright_kernels.rows.cross_entropy import (
    cross_entropy,
    cross_entropy_reference,
    run_backward,
    run_forward,
)
from tilewright_kernels.rows.losses import launch_reduction
from tilewright_kernels.rows.shapes import contiguous, count_rows, is_on_gpu

#: Elements of the logits that are in memory at a time, on a GPU and on a CPU.
_LOGITS_ON_GPU, _LOGITS_ON_CPU = 1 << 29, 1 << 22
_BLOCK = 4096


@tw.jit
def scale_kernel(x_ptr, d_loss_ptr, count_ptr, y_ptr, n, MEAN: tl.constexpr, BLOCK: tl.constexpr):
    """Multiply by the cotangent of the loss, divided by the number of rows for their mean."""
    places = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    scale = tl.load(d_loss_ptr).to(tl.float32)
    if MEAN:
        scale /= tl.load(count_ptr)
    x = tl.load(x_ptr + places, mask=places < n, other=0.0).to(tl.float32)
    tl.store(y_ptr + places, x * scale, mask=places < n)


def linear_cross_entropy_reference(
    x: Any,
    weight: Any,
    target: Any,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    z_loss: float = 0.0,
    reduction: str = "mean",
) -> Any:
    """Return the cross entropy of ``x @ weight.T``."""
    xp = array_api_compat.array_namespace(x)
    logits = xp.matmul(x, weight.T)
    return cross_entropy_reference(logits, target, ignore_index, label_smoothing, z_loss, reduction)


def _shapes(make: Any, x: Any, weight: Any, target: Any, *settings: Any) -> tuple[Any, ...]:
    return (
        make((), "float32"),
        make((count_rows(x.shape), x.shape[-1]), x.dtype),
        make(weight.shape, weight.dtype),
        make((), "float32"),
    )


def _launch(
    run: Launcher,
    loss: Any,
    x_slopes: Any,
    weight_slopes: Any,
    count: Any,
    x: Array,
    weight: Array,
    target: Array,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    z_loss: float = 0.0,
    reduction: str = "mean",
) -> None:
    n_rows, n_columns, n_classes = count_rows(x.shape), x.shape[-1], weight.shape[0]
    inputs: Any = contiguous(x).reshape(n_rows, n_columns)
    targets: Any = contiguous(target).reshape(n_rows)
    matrix: Any = contiguous(weight)
    limit = _LOGITS_ON_GPU if is_on_gpu(x) else _LOGITS_ON_CPU
    step = max(min(n_rows, limit // max(n_classes, 1)), 1)
    losses, lse = run.empty((n_rows,), "float32"), run.empty((n_rows,), "float32")
    logits = run.empty((step, n_classes), x.dtype)
    one = None if x_slopes is None else run.empty((1,), "float32")
    if one is not None:
        run(one_kernel, (1,), one)
    for start in range(0, n_rows, step):
        end = min(start + step, n_rows)
        chunk, rows = logits[: end - start], inputs[start:end]
        places = (targets[start:end], losses[start:end], lse[start:end])
        _multiply(run, chunk, rows, matrix.T, None)
        run_forward(
            run,
            end - start,
            chunk,
            *places,
            None,
            n_classes,
            n_classes,
            0,
            ignore_index,
            label_smoothing,
            z_loss,
        )
        if one is None:
            continue
        # the gradient takes the place of the logits
        run_backward(
            run,
            chunk,
            chunk,
            places[0],
            places[2],
            one,
            None,
            None,
            0,
            0,
            ignore_index,
            label_smoothing,
            z_loss,
        )
        _multiply(run, x_slopes[start:end], chunk, matrix, None)
        _multiply(run, weight_slopes, chunk.T, rows, weight_slopes if start else None)
    launch_reduction(run, reduction, losses, targets, loss, count, n_rows, ignore_index)


@tw.jit
def one_kernel(one_ptr):
    tl.store(one_ptr, 1.0)


def _multiply(run: Launcher, c: Any, a: Any, b: Any, residual: Any) -> None:
    """Store ``a @ b + residual``."""
    launch_matmul(run, c, None, a, b, residual=residual, invariant=False)


LINEAR_CROSS_ENTROPY = Operation(
    "linear_cross_entropy",
    ("loss", "x_slopes", "weight_slopes", "count"),
    _shapes,
    _launch,
    residuals=("x_slopes", "weight_slopes", "count"),
    reference=linear_cross_entropy_reference,
)


def _backward_shapes(
    make: Any, d_loss: Any, x_slopes: Any, weight_slopes: Any, *others: Any
) -> tuple[Any, ...]:
    return (
        make(x_slopes.shape, x_slopes.dtype),
        make(weight_slopes.shape, weight_slopes.dtype),
    )


def _backward_launch(
    run: Launcher,
    dx: Any,
    d_weight: Any,
    d_loss: Array,
    x_slopes: Array,
    weight_slopes: Array,
    count: Array,
    reduction: str,
) -> None:
    for slopes, gradient in ((x_slopes, dx), (weight_slopes, d_weight)):
        size = slopes.shape[0] * slopes.shape[1]
        run(
            scale_kernel,
            (tw.cdiv(size, _BLOCK),),
            slopes,
            d_loss,
            count,
            gradient,
            size,
            MEAN=reduction == "mean",
            BLOCK=_BLOCK,
            num_warps=8,
        )


LINEAR_CROSS_ENTROPY_BACKWARD = Operation(
    "linear_cross_entropy_backward", ("dx", "d_weight"), _backward_shapes, _backward_launch
)


@LINEAR_CROSS_ENTROPY.differentiate(saved=("x", "x_slopes", "weight_slopes", "count"))
def _gradients(saved: Any, d_loss: Any) -> Mapping[str, Any]:
    dx, d_weight = LINEAR_CROSS_ENTROPY_BACKWARD(
        d_loss, saved.x_slopes, saved.weight_slopes, saved.count, saved.reduction
    )
    return {"x": dx.reshape(saved.x.shape), "weight": d_weight}


def linear_cross_entropy(
    x: Any,
    weight: Any,
    target: Any,
    *,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    z_loss: float = 0.0,
    reduction: str = "mean",
    out: Any = None,
) -> Any:
    """Return the cross entropy of the logits ``x @ weight.T`` without storing all logits.

    The function processes the rows in chunks and stores the logits of only one chunk at a time. On
    a GPU, a chunk has at most 2**29 logits. If gradients are required, the forward pass also
    computes the gradients of ``x`` and ``weight`` chunk by chunk, and the backward pass multiplies
    them by the gradient of the loss. The gradient of ``weight`` is accumulated over the chunks in
    the element type of ``weight``. If the arguments are JAX arrays, the function computes all
    logits at once.

    Args:
        x: of shape (..., columns), of float16, bfloat16 or float32.
        weight: of shape (classes, columns), of the type of ``x``.
        target: the class of each row, of int32 or int64.
        ignore_index: as in :func:`cross_entropy`.
        label_smoothing: as in :func:`cross_entropy`.
        z_loss: as in :func:`cross_entropy`.
        reduction: "mean" over the rows whose target is not ``ignore_index``, or "sum".
        out: the array for the result.

    Returns:
        The loss: a float32 array without axes (a scalar).

    Raises:
        ValueError: the shapes of the arguments do not match, or ``reduction`` is unknown.

    Source: Hsu et al., "Liger Kernel: Efficient Triton Kernels for LLM Training", 2024.
    """
    if reduction not in ("mean", "sum"):
        raise ValueError(f"reduction is {reduction!r}: give mean or sum")
    if x.shape[-1] != weight.shape[-1] or tuple(x.shape[:-1]) != tuple(target.shape):
        raise ValueError(
            f"x, weight and target have the shapes {tuple(x.shape)}, {tuple(weight.shape)} and "
            f"{tuple(target.shape)}: give (..., columns), (classes, columns) and (...)"
        )
    if array_api_compat.is_jax_array(x):
        return cross_entropy(
            matmul(x, weight.T),
            target,
            ignore_index=ignore_index,
            label_smoothing=label_smoothing,
            z_loss=z_loss,
            reduction=reduction,
            out=out,
        )
    return LINEAR_CROSS_ENTROPY(
        x, weight, target, ignore_index, label_smoothing, z_loss, reduction, out=out
    )
