"""Memory for the results of operations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol


class HasResults(Protocol):
    """An operation, as far as its results go.

    Attributes:
        name: its name.
        results: the names of what it makes.
        residuals: those of them that callers do not get.
    """

    name: str
    results: tuple[str, ...]
    residuals: tuple[str, ...]


def described(shape: Sequence[int], dtype: Any) -> tuple[tuple[int, ...], Any]:
    """Return a result that is not made yet: its shape and element type."""
    return tuple(shape), dtype


def unpacked(results: tuple[Any, ...]) -> Any:
    """Return what callers get: the array where there is one, None where there is none."""
    if len(results) == 1:
        return results[0]
    return results or None


def memory_for(
    operation: HasResults, framework: Any, made: Sequence[Any], out: Any, first: Any
) -> tuple[list[Any], list[Any]]:
    """Return the arrays of ``out``, and those to compute in.

    These are the same where an array of ``out`` lies row by row, and None for residuals and for
    what is not made.

    Args:
        made: the results, as :func:`described`.
        first: an array on the device.

    Raises:
        ValueError: ``out`` does not fit the results, or nothing can be stored to it.
    """
    given: list[Any] = []
    results: list[Any] = []
    arrays = list(out) if isinstance(out, (tuple, list)) else [out]
    wanted = [
        each is not None and name not in operation.residuals
        for name, each in zip(operation.results, made, strict=True)
    ]
    if len(arrays) != sum(wanted):
        raise ValueError(
            f"{operation.name}: out= has {len(arrays)} arrays, and there are {sum(wanted)} results"
        )
    for name, each, is_wanted in zip(operation.results, made, wanted, strict=True):
        if not is_wanted:
            given.append(None)
            results.append(None)
            continue
        array = arrays.pop(0)
        if array is None:
            array = framework.empty(*each, first)
        _check(operation.name, name, framework, each, array, first)
        given.append(array)
        results.append(array if framework.is_contiguous(array) else framework.empty(*each, first))
    return given, results


def _check(
    operation: str, name: str, framework: Any, result: tuple[Any, Any], array: Any, first: Any
) -> None:
    shape, dtype = result
    if not isinstance(array, framework.array_type()):
        raise ValueError(
            f"{operation}: out= for {name} is a {type(array).__qualname__}, and the arguments are "
            f"arrays of {framework.name}: pass one of those"
        )
    if tuple(array.shape) != shape:
        raise ValueError(
            f"{operation}: out= has the shape {tuple(array.shape)}, and {name} is of {shape}: pass "
            "an array of that shape"
        )
    expected = framework.dtype(dtype)
    if array.dtype != expected:
        raise ValueError(
            f"{operation}: out= is of {array.dtype}, and {name} of {expected}: pass an array of "
            "that type"
        )
    if array.device != first.device:
        raise ValueError(
            f"{operation}: out= is on {array.device}, and the arguments on {first.device}: pass an "
            "array there"
        )
    why = framework.why_no_result(array)
    if why is not None:
        raise ValueError(f"{operation}: out= for {name} {why}")


def stored(framework: Any, results: Sequence[Any], given: Sequence[Any]) -> list[Any]:
    """Copy results to the arrays of ``out`` that lie otherwise, and return these."""
    changed = []
    for target, source in zip(given, results, strict=True):
        if target is None:
            continue
        if target is not source:
            framework.copy(target, source)
        else:
            changed.append(target)
    framework.mark_changed(changed)
    return list(given)
