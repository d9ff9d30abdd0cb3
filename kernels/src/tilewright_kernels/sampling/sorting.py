"""Stable sorts along an axis, with positions and with payloads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import array_api_compat

from tilewright_kernels.operations import Array, Launcher, Operation
from tilewright_kernels.sampling.packed_keys import check_keys
from tilewright_kernels.sampling.row_sorts import Sorted, sort_rows
from tilewright_kernels.sampling.scatter import SCATTER


def sort_reference(x: Any, axis: int = -1, *, descending: bool = False, stable: bool = True) -> Any:
    """Return the elements in order along an axis."""
    xp = array_api_compat.array_namespace(x)
    return xp.sort(x, axis=axis, descending=descending, stable=stable)


def argsort_reference(x: Any, axis: int = -1, *, descending: bool = False) -> Any:
    """Return the positions of the elements in order along an axis, equal ones from the left."""
    xp = array_api_compat.array_namespace(x)
    return xp.argsort(x, axis=axis, descending=descending, stable=True)


def sort_by_key_reference(
    keys: Any, values: Any, axis: int = -1, *, descending: bool = False
) -> tuple[Any, Any]:
    """Return the keys in order along an axis, and the values in the order of the keys."""
    xp = array_api_compat.array_namespace(keys, values)
    order = xp.argsort(keys, axis=axis, descending=descending, stable=True)
    return xp.take_along_axis(keys, order, axis=axis), xp.take_along_axis(values, order, axis=axis)


def _by_formula(x: Any, descending: bool) -> Any:
    return sort_reference(x, descending=descending)


def _index_by_formula(x: Any, descending: bool) -> Any:
    return argsort_reference(x, descending=descending)


def _key_by_formula(keys: Any, values: Any, descending: bool) -> tuple[Any, Any]:
    return sort_by_key_reference(keys, values, descending=descending)


def _shapes(make: Any, x: Any, descending: bool) -> tuple[Any, ...]:
    return make(x.shape, x.dtype), make(x.shape, "int64")


def _launch(run: Launcher, values: Any, indices: Any, x: Array, descending: bool = False) -> None:
    sort_rows(run, x, None, Sorted(values, indices), x.shape[-1], descending=descending)


SORT = Operation(
    "sort",
    ("values", "indices"),
    _shapes,
    _launch,
    residuals=("indices",),
    reference=_by_formula,
)


@SORT.differentiate(saved=("indices",))
def _gradients(saved: Any, dvalues: Any) -> Mapping[str, Any]:
    return {"x": SCATTER(dvalues, saved.indices, saved.indices.shape[-1])}


def _index_shapes(make: Any, x: Any, descending: bool) -> tuple[Any, ...]:
    return (make(x.shape, "int64"),)


def _index_launch(run: Launcher, indices: Any, x: Array, descending: bool = False) -> None:
    sort_rows(run, x, None, Sorted(indices=indices), x.shape[-1], descending=descending)


ARGSORT = Operation(
    "argsort", ("indices",), _index_shapes, _index_launch, reference=_index_by_formula
)


def _key_shapes(make: Any, keys: Any, values: Any, descending: bool) -> tuple[Any, ...]:
    return make(keys.shape, keys.dtype), make(keys.shape, values.dtype), make(keys.shape, "int64")


def _key_launch(
    run: Launcher,
    ordered: Any,
    rearranged: Any,
    indices: Any,
    keys: Array,
    values: Array,
    descending: bool = False,
) -> None:
    sort_rows(
        run,
        keys,
        values,
        Sorted(ordered, indices, rearranged),
        keys.shape[-1],
        descending=descending,
    )


SORT_BY_KEY = Operation(
    "sort_by_key",
    ("ordered", "rearranged", "indices"),
    _key_shapes,
    _key_launch,
    residuals=("indices",),
    reference=_key_by_formula,
)


@SORT_BY_KEY.differentiate(saved=("indices",))
def _key_gradients(saved: Any, dordered: Any, drearranged: Any) -> Mapping[str, Any]:
    n = saved.indices.shape[-1]
    found = {"keys": dordered, "values": drearranged}
    return {
        name: SCATTER(cotangent, saved.indices, n)
        for name, cotangent in found.items()
        if cotangent is not None and name in saved.needed
    }


def moved_last(x: Any, axis: int) -> Any:
    """Return a view of an array with an axis as its last.

    Raises:
        ValueError: the axis is out of range.
    """
    rank = len(x.shape)
    if not -rank <= axis < rank:
        raise ValueError(f"axis {axis} is out of range: the array has {rank} axes")
    if axis % rank == rank - 1:
        return x
    return array_api_compat.array_namespace(x).moveaxis(x, axis, -1)


def moved_back(x: Any, axis: int) -> Any:
    """Return a view of an array with its last axis where :func:`moved_last` took it from."""
    if axis % len(x.shape) == len(x.shape) - 1:
        return x
    return array_api_compat.array_namespace(x).moveaxis(x, -1, axis)


def sort(x: Any, axis: int = -1, *, descending: bool = False) -> Any:
    """Sort along an axis.

    Args:
        x: of float16, bfloat16, float32, or integers of at most 32 bits; of any strides.
        axis: the axis.
        descending: whether the largest elements come first.

    Returns:
        An array with the shape and element type of ``x``. NaN counts as larger than every number.

    Raises:
        TypeError: the elements of ``x`` have more than 32 bits.
        ValueError: the axis is out of range.

    Source: Batcher, "Sorting networks and their applications", 1968; Odeh, Green, Mwassi, Shmueli
    and Birk, "Merge path: parallel merging made simple", 2012, for rows of more than 4096 elements.
    """
    check_keys("sort", x)
    return moved_back(SORT(moved_last(x, axis), descending), axis)


def argsort(x: Any, axis: int = -1, *, descending: bool = False) -> Any:
    """Return the positions of the elements in sorted order: an array of int64.

    Among equal elements, the one with the lower position comes first, also in descending order.
    Arguments and exceptions are those of :func:`sort`.
    """
    check_keys("argsort", x)
    return moved_back(ARGSORT(moved_last(x, axis), descending), axis)


def sort_by_key(
    keys: Any, values: Any, axis: int = -1, *, descending: bool = False
) -> tuple[Any, Any]:
    """Sort keys along an axis, and reorder values in the same way.

    Args:
        keys: of float16, bfloat16, float32, or integers of at most 32 bits; of any strides.
        values: of the shape of ``keys`` and of any type.
        axis: the axis.
        descending: whether the largest keys come first.

    Returns:
        A pair: the sorted keys, and the values in the order of their keys. If keys are equal, their
        values keep their order. The function is differentiable with respect to ``keys`` and
        ``values``.

    Raises:
        TypeError: keys have more than 32 bits.
        ValueError: the shapes differ, or the axis is out of range.
    """
    check_keys("sort_by_key", keys)
    if tuple(keys.shape) != tuple(values.shape):
        raise ValueError(
            f"sort_by_key: the keys have the shape {tuple(keys.shape)}, the values "
            f"{tuple(values.shape)}"
        )
    found = SORT_BY_KEY(moved_last(keys, axis), moved_last(values, axis), descending)
    return moved_back(found[0], axis), moved_back(found[1], axis)
