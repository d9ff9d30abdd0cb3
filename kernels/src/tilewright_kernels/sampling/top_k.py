"""The k largest or smallest elements along an axis, with positions and with a payload."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import array_api_compat

from tilewright_kernels.operations import Array, Launcher, Operation
from tilewright_kernels.sampling.packed_keys import check_keys
from tilewright_kernels.sampling.row_sorts import Sorted, sort_rows
from tilewright_kernels.sampling.scatter import SCATTER
from tilewright_kernels.sampling.sorting import argsort_reference, moved_back, moved_last


def topk_reference(
    x: Any, k: int, axis: int = -1, *, largest: bool = True, payload: Any = None
) -> tuple[Any, ...]:
    """Return the first k of the elements in order along an axis, and their positions."""
    xp = array_api_compat.array_namespace(x)
    order = argsort_reference(x, axis, descending=largest)
    first = xp.take(order, xp.arange(k, device=array_api_compat.device(x)), axis=axis)
    found = (xp.take_along_axis(x, first, axis=axis), first)
    return found if payload is None else (*found, xp.take_along_axis(payload, first, axis=axis))


def _by_formula(x: Any, k: int, largest: bool, payload: Any = None) -> tuple[Any, ...]:
    return topk_reference(x, k, largest=largest, payload=payload)


def _shapes(make: Any, x: Any, k: int, largest: bool) -> tuple[Any, ...]:
    shape = (*x.shape[:-1], k)
    return make(shape, x.dtype), make(shape, "int64")


def _launch(
    run: Launcher, values: Any, indices: Any, x: Array, k: int, largest: bool = True
) -> None:
    sort_rows(run, x, None, Sorted(values, indices), k, descending=largest)


TOPK = Operation("topk", ("values", "indices"), _shapes, _launch, reference=_by_formula)


@TOPK.differentiate(saved=("x", "indices"))
def _gradients(saved: Any, dvalues: Any, _dindices: Any) -> Mapping[str, Any]:
    if dvalues is None:
        return {}
    return {"x": SCATTER(dvalues, saved.indices, saved.x.shape[-1])}


def _payload_shapes(make: Any, x: Any, payload: Any, k: int, largest: bool) -> tuple[Any, ...]:
    shape = (*x.shape[:-1], k)
    return make(shape, x.dtype), make(shape, "int64"), make(shape, payload.dtype)


def _payload_launch(
    run: Launcher,
    values: Any,
    indices: Any,
    payloads: Any,
    x: Array,
    payload: Array,
    k: int,
    largest: bool = True,
) -> None:
    sort_rows(run, x, payload, Sorted(values, indices, payloads), k, descending=largest)


TOPK_WITH_PAYLOAD = Operation(
    "topk_with_payload",
    ("values", "indices", "payloads"),
    _payload_shapes,
    _payload_launch,
    reference=_by_formula,
)


@TOPK_WITH_PAYLOAD.differentiate(saved=("x", "indices"))
def _payload_gradients(
    saved: Any, dvalues: Any, _dindices: Any, dpayloads: Any
) -> Mapping[str, Any]:
    found = {"x": dvalues, "payload": dpayloads}
    return {
        name: SCATTER(cotangent, saved.indices, saved.x.shape[-1])
        for name, cotangent in found.items()
        if cotangent is not None and name in saved.needed
    }


def topk(
    x: Any, k: int, axis: int = -1, *, largest: bool = True, payload: Any = None
) -> tuple[Any, ...]:
    """Return the k largest elements along an axis, in order.

    Args:
        x: of float16, bfloat16, float32, or integers of at most 32 bits; of any strides.
        k: how many elements to return.
        axis: the axis.
        largest: whether to return the largest elements; otherwise the smallest.
        payload: None, or an array of the shape of ``x`` and of any type.

    Returns:
        The elements and their positions (int64). If ``payload`` is given, the third result contains
        the elements of ``payload`` at these positions. Among equal elements, the one with the lower
        position comes first. NaN counts as larger than every number. The function is differentiable
        with respect to ``x`` and ``payload``.

    Raises:
        TypeError: the elements of ``x`` have more than 32 bits.
        ValueError: k is negative or larger than the extent of the axis, or the shapes of ``x`` and
            ``payload`` differ.
    """
    check_keys("topk", x)
    moved = moved_last(x, axis)
    if not 0 <= k <= moved.shape[-1]:
        raise ValueError(f"topk: k must be between 0 and {moved.shape[-1]}, not {k}")
    if payload is None:
        found = TOPK(moved, k, largest)
    else:
        if tuple(payload.shape) != tuple(x.shape):
            raise ValueError(
                f"topk: the payload has the shape {tuple(payload.shape)}, the array "
                f"{tuple(x.shape)}"
            )
        found = TOPK_WITH_PAYLOAD(moved, moved_last(payload, axis), k, largest)
    return tuple(moved_back(each, axis) for each in found)
