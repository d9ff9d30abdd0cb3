"""Cross entropy of logits and target classes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import array_api_compat

import tilewright as tw
import tilewright.language as tl
from tilewright_kernels.operations import Array, Launcher, Operation
from tilewright_kernels.rows.losses import check_reduction, launch_reduction
from tilewright_kernels.rows.shapes import contiguous, count_rows, is_on_gpu, loop_stages, with_rows
from tilewright_kernels.rows.tiles import log_of_sums, online_sum

#: Columns of a step of the forward pass, and of a program of the backward pass.
_BLOCK = 4096
_BACKWARD_BLOCK = 2048


@tw.jit
def cross_entropy_kernel(
    logits_ptr,
    target_ptr,
    loss_ptr,
    lse_ptr,
    chosen_ptr,
    stride,
    n_classes,
    first_class,
    ignore_index,
    smoothing,
    z_loss,
    SMOOTH: tl.constexpr,
    STAGES: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Compute the loss of a row, or the parts of it that a shard of the classes has.

    Rows that are ignored read no logits.
    """
    row = tl.program_id(0).to(tl.int64)
    logits_ptr += row * stride
    target = tl.load(target_ptr + row)
    is_used = target != ignore_index
    end = n_classes
    if loss_ptr is not None:
        end = tl.where(is_used, n_classes, 0)
    maximum = tl.cast(-float("inf"), tl.float32)
    total = tl.zeros([BLOCK], tl.float32)
    parts = tl.zeros([BLOCK], tl.float32)
    for start in tl.range(0, end, BLOCK, num_stages=STAGES):
        columns = start + tl.arange(0, BLOCK)
        inside = columns < n_classes
        logits = tl.load(logits_ptr + columns, mask=inside, other=0.0).to(tl.float32)
        if SMOOTH:
            parts += logits
        logits = tl.where(inside, logits, -float("inf"))
        maximum, total = online_sum(maximum, total, logits)
    lse = log_of_sums(maximum, total)
    place = target - first_class
    is_here = (place >= 0) & (place < n_classes)
    if loss_ptr is None:
        chosen = tl.load(logits_ptr + place, mask=is_here, other=0.0).to(tl.float32)
        tl.store(chosen_ptr + row, chosen)
    else:
        chosen = tl.load(logits_ptr + place, mask=is_here, other=float("nan")).to(tl.float32)
        loss = lse - (1 - smoothing) * chosen + z_loss * lse * lse
        if SMOOTH:
            loss -= smoothing * tl.sum(parts, axis=0) / n_classes
        tl.store(loss_ptr + row, tl.where(is_used, loss, 0.0))
    if lse_ptr is not None:
        tl.store(lse_ptr + row, lse)


@tw.jit
def cross_entropy_backward_kernel(
    logits_ptr,
    target_ptr,
    lse_ptr,
    d_loss_ptr,
    d_chosen_ptr,
    count_ptr,
    d_logits_ptr,
    stride,
    d_loss_stride,
    n_classes,
    first_class,
    ignore_index,
    smoothing,
    z_loss,
    BLOCK: tl.constexpr,
):
    """Compute the gradients of a block of a row's logits.

    With ``d_chosen_ptr`` the cotangents are those of a shard's results.
    """
    blocks = tl.cdiv(n_classes, BLOCK)
    row = (tl.program_id(0) // blocks).to(tl.int64)
    columns = (tl.program_id(0) % blocks) * BLOCK + tl.arange(0, BLOCK)
    inside = columns < n_classes
    target = tl.load(target_ptr + row)
    lse = tl.load(lse_ptr + row)
    d_loss = tl.load(d_loss_ptr + row * d_loss_stride).to(tl.float32)
    is_used = target != ignore_index
    if d_chosen_ptr is None:
        if count_ptr is not None:
            d_loss /= tl.load(count_ptr)
        of_weights = d_loss * (1 + 2 * z_loss * lse)
        of_target = d_loss * (smoothing - 1)
        of_all = -d_loss * smoothing / n_classes
    else:
        of_weights = d_loss
        of_target = tl.load(d_chosen_ptr + row).to(tl.float32)
        of_all = 0.0
    logits = tl.load(logits_ptr + row * stride + columns, mask=inside, other=0.0).to(tl.float32)
    found = of_weights * tl.exp(logits - lse) + of_all
    found += tl.where(columns == target - first_class, of_target, 0.0)
    if d_chosen_ptr is None:
        found = tl.where(is_used, found, 0.0)
    tl.store(d_logits_ptr + row * n_classes + columns, found, mask=inside)


def chosen_logits(xp: Any, logits: Any, place: Any) -> Any:
    """Return the logit of each row's target in a reference; 0 where there is none."""
    classes = xp.arange(logits.shape[-1], device=array_api_compat.device(place))
    return xp.sum(xp.where(classes == place[..., None], logits, 0 * logits), axis=-1)


def log_sum_exp(xp: Any, logits: Any) -> Any:
    """Return the logarithm of each row's sum of exponentials in a reference."""
    maximum = xp.max(logits, axis=-1)
    return maximum + xp.log(xp.sum(xp.exp(logits - maximum[..., None]), axis=-1))


def cross_entropy_reference(
    logits: Any,
    target: Any,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    z_loss: float = 0.0,
    reduction: str = "mean",
) -> Any:
    """Return ``lse - logits[target]``, with smoothing and ``z_loss * lse ** 2``."""
    xp = array_api_compat.array_namespace(logits)
    lse = log_sum_exp(xp, logits)
    losses = lse - (1 - label_smoothing) * chosen_logits(xp, logits, target) + z_loss * lse * lse
    losses = losses - label_smoothing * xp.mean(logits, axis=-1)
    is_used = target != ignore_index
    losses = xp.where(is_used, losses, 0 * losses)
    if reduction == "none":
        return losses
    total = xp.sum(losses)
    return total / xp.sum(xp.astype(is_used, losses.dtype)) if reduction == "mean" else total


def check_target(logits: Any, target: Any) -> None:
    """Check that there is a target for each row.

    Raises:
        ValueError: there is not.
    """
    if tuple(logits.shape[:-1]) != tuple(target.shape):
        raise ValueError(
            f"logits have the shape {tuple(logits.shape)}, and target {tuple(target.shape)}: give "
            f"a class for each row, {tuple(logits.shape[:-1])}"
        )


def _shapes(
    make: Any,
    logits: Any,
    target: Any,
    ignore_index: int,
    label_smoothing: float,
    z_loss: float,
    reduction: str,
) -> tuple[Any, ...]:
    check_target(logits, target)
    check_reduction(reduction)
    rows = tuple(target.shape)
    return (
        make(rows if reduction == "none" else (), "float32"),
        make(rows, "float32"),
        make((), "float32"),
    )


def _launch(
    run: Launcher,
    loss: Any,
    lse: Any,
    count: Any,
    logits: Array,
    target: Array,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    z_loss: float = 0.0,
    reduction: str = "mean",
) -> None:
    n_rows, n_classes = count_rows(logits.shape), logits.shape[-1]
    logits, stride = with_rows(logits)
    target = contiguous(target)
    losses = loss if reduction == "none" else run.empty((n_rows,), "float32")
    run_forward(
        run,
        n_rows,
        logits,
        target,
        losses,
        lse,
        None,
        stride,
        n_classes,
        0,
        ignore_index,
        label_smoothing,
        z_loss,
    )
    if reduction != "none":
        launch_reduction(run, reduction, losses, target, loss, count, n_rows, ignore_index)


def run_forward(
    run: Launcher,
    n_rows: int,
    logits: Any,
    target: Any,
    loss: Any,
    lse: Any,
    chosen: Any,
    stride: int,
    n_classes: int,
    first_class: int,
    ignore_index: int,
    smoothing: float,
    z_loss: float,
) -> None:
    """Launch the forward pass; without ``loss``, that of a shard."""
    block = min(_BLOCK, tw.next_power_of_2(max(n_classes, 1)))
    run(
        cross_entropy_kernel,
        (n_rows,),
        logits,
        target,
        loss,
        lse,
        chosen,
        stride,
        n_classes,
        first_class,
        ignore_index,
        smoothing,
        z_loss,
        SMOOTH=smoothing != 0,
        STAGES=loop_stages(logits),
        BLOCK=block,
        num_warps=min(max(block // 512, 1), 8),
    )


def run_backward(
    run: Launcher,
    d_logits: Any,
    logits: Any,
    target: Any,
    lse: Any,
    d_loss: Any,
    d_chosen: Any,
    count: Any,
    d_loss_stride: int,
    first_class: int,
    ignore_index: int,
    smoothing: float,
    z_loss: float,
) -> None:
    """Launch the backward pass; with ``d_chosen``, that of a shard."""
    n_rows, n_classes = count_rows(logits.shape), logits.shape[-1]
    logits, stride = with_rows(logits)
    largest = _BACKWARD_BLOCK if is_on_gpu(logits) else 2 * _BACKWARD_BLOCK
    block = min(largest, tw.next_power_of_2(max(n_classes, 1)))
    run(
        cross_entropy_backward_kernel,
        (n_rows * tw.cdiv(n_classes, block),),
        logits,
        contiguous(target),
        lse,
        d_loss,
        d_chosen,
        count,
        d_logits,
        stride,
        d_loss_stride,
        n_classes,
        first_class,
        ignore_index,
        smoothing,
        z_loss,
        BLOCK=block,
        num_warps=min(max(block // 512, 1), 4),
    )


CROSS_ENTROPY = Operation(
    "cross_entropy",
    ("loss", "lse", "count"),
    _shapes,
    _launch,
    residuals=("lse", "count"),
    reference=cross_entropy_reference,
)


def backward_shapes(make: Any, d_loss: Any, logits: Any, *others: Any) -> tuple[Any, ...]:
    """Return the shape of the gradient of the logits."""
    return (make(logits.shape, logits.dtype),)


def _backward_launch(
    run: Launcher,
    d_logits: Any,
    d_loss: Array,
    logits: Array,
    target: Array,
    lse: Array,
    count: Array,
    ignore_index: int,
    label_smoothing: float,
    z_loss: float,
    reduction: str,
) -> None:
    run_backward(
        run,
        d_logits,
        logits,
        target,
        lse,
        contiguous(d_loss),
        None,
        count if reduction == "mean" else None,
        int(reduction == "none"),
        0,
        ignore_index,
        label_smoothing,
        z_loss,
    )


CROSS_ENTROPY_BACKWARD = Operation(
    "cross_entropy_backward", ("d_logits",), backward_shapes, _backward_launch
)


@CROSS_ENTROPY.differentiate(saved=("logits", "target", "lse", "count"))
def _gradients(saved: Any, d_loss: Any) -> Mapping[str, Any]:
    return {
        "logits": CROSS_ENTROPY_BACKWARD(
            d_loss,
            saved.logits,
            saved.target,
            saved.lse,
            saved.count,
            saved.ignore_index,
            saved.label_smoothing,
            saved.z_loss,
            saved.reduction,
        )
    }


def cross_entropy(
    logits: Any,
    target: Any,
    *,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    z_loss: float = 0.0,
    reduction: str = "mean",
    out: Any = None,
) -> Any:
    """Return the cross entropy of the softmax of each row with respect to a target class.

    Args:
        logits: of shape (..., classes), of float16, bfloat16 or float32, of any strides.
        target: the class of each row, of int32 or int64. If a target is not a valid class number,
            the loss is NaN.
        ignore_index: rows with this target do not count in the loss, and the forward pass does not
            read their logits.
        label_smoothing: the fraction of the target's weight that is distributed over all classes.
        z_loss: the factor of the z-loss. The z-loss of a row is the square of the logarithm of the
            row's sum of exponentials. The product of factor and z-loss is added to the loss.
        reduction: "mean" over the rows whose target is not ``ignore_index``, "sum", or "none".
        out: the array for the result.

    Returns:
        A float32 array: if ``reduction`` is ``"none"``, it has an element for each row, and
        otherwise it is a scalar.

    Raises:
        ValueError: the shapes of the arguments do not match, or ``reduction`` is unknown.

    Source: Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018.
    """
    return CROSS_ENTROPY(logits, target, ignore_index, label_smoothing, z_loss, reduction, out=out)
