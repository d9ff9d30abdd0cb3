"""Cross entropy where devices have a shard of the classes each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import array_api_compat

from tilewright_kernels.operations import Array, Launcher, Operation
from tilewright_kernels.rows.cross_entropy import (
    backward_shapes,
    check_target,
    chosen_logits,
    log_sum_exp,
    run_backward,
    run_forward,
)
from tilewright_kernels.rows.shapes import contiguous, count_rows, with_rows


def cross_entropy_shard_reference(
    logits: Any, target: Any, first_class: int = 0
) -> tuple[Any, Any]:
    """Return the logarithm of the sum of exponentials, and the target's logit or 0."""
    xp = array_api_compat.array_namespace(logits)
    return log_sum_exp(xp, logits), chosen_logits(xp, logits, target - first_class)


def _shard_shapes(make: Any, logits: Any, target: Any, first_class: int) -> tuple[Any, ...]:
    check_target(logits, target)
    return make(target.shape, "float32"), make(target.shape, "float32")


def _shard_launch(
    run: Launcher, lse: Any, chosen: Any, logits: Array, target: Array, first_class: int = 0
) -> None:
    n_rows, n_classes = count_rows(logits.shape), logits.shape[-1]
    logits, stride = with_rows(logits)
    run_forward(
        run,
        n_rows,
        logits,
        contiguous(target),
        None,
        lse,
        chosen,
        stride,
        n_classes,
        first_class,
        -1,
        0.0,
        0.0,
    )


CROSS_ENTROPY_SHARD = Operation(
    "cross_entropy_shard",
    ("lse", "chosen"),
    _shard_shapes,
    _shard_launch,
    reference=cross_entropy_shard_reference,
)


def _shard_backward_launch(
    run: Launcher,
    d_logits: Any,
    d_lse: Array,
    logits: Array,
    d_chosen: Array,
    target: Array,
    lse: Array,
    first_class: int,
) -> None:
    run_backward(
        run,
        d_logits,
        logits,
        target,
        lse,
        contiguous(d_lse),
        contiguous(d_chosen),
        None,
        1,
        first_class,
        -1,
        0.0,
        0.0,
    )


CROSS_ENTROPY_SHARD_BACKWARD = Operation(
    "cross_entropy_shard_backward", ("d_logits",), backward_shapes, _shard_backward_launch
)


@CROSS_ENTROPY_SHARD.differentiate(saved=("logits", "target", "lse"))
def _shard_gradients(saved: Any, d_lse: Any, d_chosen: Any) -> Mapping[str, Any]:
    given = [0 * saved.lse if each is None else each for each in (d_lse, d_chosen)]
    found = CROSS_ENTROPY_SHARD_BACKWARD(
        given[0], saved.logits, given[1], saved.target, saved.lse, saved.first_class
    )
    return {"logits": found}


def cross_entropy_shard(
    logits: Any, target: Any, *, first_class: int = 0, out: Any = None
) -> tuple[Any, Any]:
    """Return the contribution of a shard of the classes to each row's cross entropy.

    The function returns two arrays. To compute the loss of each row, combine the first arrays of
    all shards by ``logaddexp``, and subtract the sum of the second arrays of all shards. If each
    device has a shard, compute ``logaddexp`` and the sum as reductions over the devices.

    Args:
        logits: of shape (..., classes of the shard).
        target: the class of each row among all classes, of int32 or int64.
        first_class: the first class of the shard.
        out: a pair of arrays for the results.

    Returns:
        A pair of float32 arrays with an element for each row. The first array contains the
        logarithm of the sum of the exponentials of the row's logits in this shard. The second array
        contains the logit of the row's target, or 0 if another shard contains the target. Both
        arrays have gradients.

    Raises:
        ValueError: the shapes of the arguments do not match.

    Source: Shoeybi et al., "Megatron-LM", 2019.
    """
    found: tuple[Any, Any] = CROSS_ENTROPY_SHARD(logits, target, first_class, out=out)
    return found
