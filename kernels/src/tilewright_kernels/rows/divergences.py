"""Divergences of distributions over classes that are given by logarithms: KL and JSD."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import array_api_compat

import tilewright as tw
import tilewright.language as tl
from tilewright_kernels.operations import Array, Launcher, Operation
from tilewright_kernels.rows.losses import check_reduction, launch_reduction, reduced, spread
from tilewright_kernels.rows.shapes import contiguous, count_rows

_BLOCK = 4096


@tw.jit
def kl_div_kernel(
    x_ptr, target_ptr, losses_ptr, n_columns, LOG_TARGET: tl.constexpr, BLOCK: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    parts = tl.zeros([BLOCK], tl.float32)
    for start in range(0, n_columns, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        inside = columns < n_columns
        x = tl.load(x_ptr + row * n_columns + columns, mask=inside, other=0.0).to(tl.float32)
        target = tl.load(target_ptr + row * n_columns + columns, mask=inside, other=0.0)
        target = target.to(tl.float32)
        if LOG_TARGET:
            parts += tl.where(inside, tl.exp(target) * (target - x), 0.0)
        else:
            is_positive = target > 0
            log_target = tl.log(tl.where(is_positive, target, 1.0))
            parts += tl.where(is_positive, target * (log_target - x), 0.0)
    tl.store(losses_ptr + row, tl.sum(parts, axis=0))


@tw.jit
def weighted_logarithms(x, target, beta):
    """Return the logarithms of ``q / m`` and ``p / m``, times the parts of q and p in m.

    q is ``exp(x)``, p is ``exp(target)``, and m is ``beta p + (1 - beta) q``.
    """
    q, p = (1 - beta) * tl.exp(x), beta * tl.exp(target)
    log_mean = tl.log(q + p)
    return q * (x - log_mean), p * (target - log_mean)


@tw.jit
def jsd_kernel(x_ptr, target_ptr, losses_ptr, n_columns, beta, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    parts = tl.zeros([BLOCK], tl.float32)
    for start in range(0, n_columns, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        inside = columns < n_columns
        x = tl.load(x_ptr + row * n_columns + columns, mask=inside, other=0.0).to(tl.float32)
        target = tl.load(target_ptr + row * n_columns + columns, mask=inside, other=0.0)
        of_x, of_target = weighted_logarithms(x, target.to(tl.float32), beta)
        parts += tl.where(inside, of_x + of_target, 0.0)
    tl.store(losses_ptr + row, tl.sum(parts, axis=0))


@tw.jit
def jsd_gradients_kernel(
    x_ptr, target_ptr, d_losses_ptr, n_columns, beta, d_x_ptr, d_target_ptr, BLOCK: tl.constexpr
):
    """Compute the gradients of a row: the derivatives of the logarithm of m add up to none."""
    row = tl.program_id(0).to(tl.int64)
    d_loss = tl.load(d_losses_ptr + row).to(tl.float32)
    for start in range(0, n_columns, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        inside = columns < n_columns
        places = row * n_columns + columns
        x = tl.load(x_ptr + places, mask=inside, other=0.0).to(tl.float32)
        target = tl.load(target_ptr + places, mask=inside, other=0.0).to(tl.float32)
        of_x, of_target = weighted_logarithms(x, target, beta)
        tl.store(d_x_ptr + places, (of_x * d_loss).to(d_x_ptr.dtype.element_ty), mask=inside)
        if d_target_ptr is not None:
            d_target = (of_target * d_loss).to(d_target_ptr.dtype.element_ty)
            tl.store(d_target_ptr + places, d_target, mask=inside)


def kl_div_reference(x: Any, target: Any, log_target: bool = False, reduction: str = "mean") -> Any:
    """Return the sum over classes of ``target * (log(target) - x)``."""
    xp = array_api_compat.array_namespace(x)
    if log_target:
        losses = xp.exp(target) * (target - x)
    else:
        is_positive = target > 0
        log = xp.log(xp.where(is_positive, target, 0 * target + 1))
        losses = xp.where(is_positive, target * (log - x), 0 * target)
    return reduced(xp, xp.sum(losses, axis=-1), reduction)


def jsd_reference(x: Any, target: Any, beta: float = 0.5, reduction: str = "mean") -> Any:
    """Return ``beta KL(p, m) + (1 - beta) KL(q, m)`` for the mean m of p and q by beta."""
    xp = array_api_compat.array_namespace(x)
    q, p = xp.exp(x), xp.exp(target)
    log_mean = xp.log(beta * p + (1 - beta) * q)
    losses = beta * p * (target - log_mean) + (1 - beta) * q * (x - log_mean)
    return reduced(xp, xp.sum(losses, axis=-1), reduction)


def _check(x: Any, target: Any, reduction: str) -> None:
    check_reduction(reduction)
    if tuple(x.shape) != tuple(target.shape):
        raise ValueError(
            f"x has the shape {tuple(x.shape)}, and target {tuple(target.shape)}: give arrays of "
            "one shape"
        )


def _shapes(make: Any, x: Any, target: Any, setting: Any, reduction: str) -> tuple[Any, ...]:
    _check(x, target, reduction)
    return (make(x.shape[:-1] if reduction == "none" else (), "float32"),)


def _run(
    run: Launcher,
    kernel: Any,
    x: Any,
    target: Any,
    losses: Any,
    settings: Mapping[str, Any],
    **gradients: Any,
) -> None:
    n_columns = x.shape[-1]
    block = min(_BLOCK, tw.next_power_of_2(max(n_columns, 1)))
    # sums alone are reads: more warps have more of them in flight
    of_warp = 512 if gradients else 256
    run(
        kernel,
        (count_rows(x.shape),),
        contiguous(x),
        contiguous(target),
        losses,
        n_columns,
        **settings,
        BLOCK=block,
        num_warps=max(block // of_warp, 1),
        **gradients,
    )


def _launch(
    run: Launcher,
    kernel: Any,
    loss: Any,
    x: Any,
    target: Any,
    reduction: str,
    settings: Mapping[str, Any],
) -> None:
    n_rows = count_rows(x.shape)
    losses = loss if reduction == "none" else run.empty((n_rows,), "float32")
    _run(run, kernel, x, target, losses, settings)
    if reduction != "none":
        launch_reduction(run, reduction, losses, None, loss, None, n_rows, 0)


@functools.cache
def _kl_div_adjoint(has_target: bool) -> Any:
    """Return the derived backward pass, with a gradient of the target or none."""
    return tw.vjp(
        kl_div_kernel,
        outputs="losses_ptr",
        wrt=("x_ptr", "target_ptr") if has_target else "x_ptr",
        deterministic=True,
    )


def _of_rows(run: Launcher, d_loss: Any, x: Any, reduction: str) -> Any:
    """Return the cotangents of the losses of rows."""
    d_loss = contiguous(d_loss)
    return d_loss if reduction == "none" else spread(run, reduction, d_loss, count_rows(x.shape))


def _kl_div_launch(
    run: Launcher,
    loss: Any,
    x: Array,
    target: Array,
    log_target: bool = False,
    reduction: str = "mean",
) -> None:
    _launch(run, kl_div_kernel, loss, x, target, reduction, {"LOG_TARGET": log_target})


def _jsd_launch(
    run: Launcher,
    loss: Any,
    x: Array,
    target: Array,
    beta: float = 0.5,
    reduction: str = "mean",
) -> None:
    _launch(run, jsd_kernel, loss, x, target, reduction, {"beta": beta})


KL_DIV = Operation("kl_div", ("loss",), _shapes, _kl_div_launch, reference=kl_div_reference)
JSD = Operation("jsd", ("loss",), _shapes, _jsd_launch, reference=jsd_reference)


def _backward_shapes(
    make: Any, d_loss: Any, x: Any, target: Any, setting: Any, reduction: str, both: bool
) -> tuple[Any, ...]:
    return make(x.shape, x.dtype), make(target.shape, target.dtype) if both else None


def _kl_div_backward_launch(
    run: Launcher,
    dx: Any,
    d_target: Any,
    d_loss: Array,
    x: Array,
    target: Array,
    log_target: bool,
    reduction: str,
    both: bool,
) -> None:
    d_losses = _of_rows(run, d_loss, x, reduction)
    gradients = {"d_losses_ptr": d_losses, "d_x_ptr": dx}
    if both:
        gradients["d_target_ptr"] = d_target
    settings = {"LOG_TARGET": log_target}
    _run(run, _kl_div_adjoint(both), x, target, d_losses, settings, **gradients)


def _jsd_backward_launch(
    run: Launcher,
    dx: Any,
    d_target: Any,
    d_loss: Array,
    x: Array,
    target: Array,
    beta: float,
    reduction: str,
    both: bool,
) -> None:
    d_losses = _of_rows(run, d_loss, x, reduction)
    gradients = {"d_x_ptr": dx, "d_target_ptr": d_target}
    _run(run, jsd_gradients_kernel, x, target, d_losses, {"beta": beta}, **gradients)


KL_DIV_BACKWARD = Operation(
    "kl_div_backward",
    ("dx", "d_target"),
    _backward_shapes,
    _kl_div_backward_launch,
    optional=("d_target",),
)
JSD_BACKWARD = Operation(
    "jsd_backward",
    ("dx", "d_target"),
    _backward_shapes,
    _jsd_backward_launch,
    optional=("d_target",),
)


def _found(dx: Any, d_target: Any) -> Mapping[str, Any]:
    return {"x": dx} if d_target is None else {"x": dx, "target": d_target}


@KL_DIV.differentiate(saved=("x", "target"))
def _kl_div_gradients(saved: Any, d_loss: Any) -> Mapping[str, Any]:
    both = "target" in saved.needed
    return _found(
        *KL_DIV_BACKWARD(d_loss, saved.x, saved.target, saved.log_target, saved.reduction, both)
    )


@JSD.differentiate(saved=("x", "target"))
def _jsd_gradients(saved: Any, d_loss: Any) -> Mapping[str, Any]:
    both = "target" in saved.needed
    return _found(*JSD_BACKWARD(d_loss, saved.x, saved.target, saved.beta, saved.reduction, both))


def kl_div(
    x: Any, target: Any, *, log_target: bool = False, reduction: str = "mean", out: Any = None
) -> Any:
    """Return the Kullback-Leibler divergence of ``target`` from the distribution ``exp(x)``.

    Args:
        x: logarithms of probabilities, of shape (..., classes), of float16, bfloat16 or float32.
        target: probabilities of the shape of ``x``.
        log_target: whether ``target`` contains logarithms of probabilities.
        reduction: how the divergences of the rows are combined: ``"mean"`` (PyTorch calls it
            ``"batchmean"``), ``"sum"``, or ``"none"``.
        out: the array for the result.

    Returns:
        A float32 array: if ``reduction`` is ``"none"``, it has an element for each row, and
        otherwise it is a scalar.

    Raises:
        ValueError: the shapes of the arguments do not match, or ``reduction`` is unknown.
    """
    return KL_DIV(x, target, log_target, reduction, out=out)


def jsd(x: Any, target: Any, *, beta: float = 0.5, reduction: str = "mean", out: Any = None) -> Any:
    """Return the generalized Jensen-Shannon divergence of two distributions.

    The divergence is ``beta KL(p, m) + (1 - beta) KL(q, m)``, where KL is the Kullback-Leibler
    divergence, q is ``exp(x)``, p is ``exp(target)``, and m is ``beta p + (1 - beta) q``.

    Args:
        x: logarithms of the student's probabilities, of shape (..., classes), of float16, bfloat16
            or float32.
        target: logarithms of the teacher's probabilities, of the shape of ``x``.
        beta: the weight of the teacher in the mean, above 0 and below 1.
        reduction: how the divergences of the rows are combined: ``"mean"``, ``"sum"`` or
            ``"none"``.
        out: the array for the result.

    Returns:
        A float32 array: if ``reduction`` is ``"none"``, it has an element for each row, and
        otherwise it is a scalar.

    Raises:
        ValueError: the shapes of the arguments do not match, ``reduction`` is unknown, or ``beta``
            is not above 0 and below 1.

    Source: Agarwal et al., "On-Policy Distillation of Language Models", 2024.
    """
    if not 0 < beta < 1:
        raise ValueError(f"beta is {beta}: give a number between 0 and 1, or use kl_div")
    return JSD(x, target, beta, reduction, out=out)
