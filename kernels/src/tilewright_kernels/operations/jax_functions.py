"""Operations as functions of JAX, with gradients in reverse mode."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import tilewright.jax
from tilewright_kernels.operations.frameworks import JAX
from tilewright_kernels.operations.operation import Operation
from tilewright_kernels.operations.parameters import Array


class _Cell:
    """An array that kernels make: a shape, and after a launch the elements."""

    def __init__(self, shape: Sequence[int], dtype: Any) -> None:
        self.shape, self.dtype = tuple(shape), jnp.dtype(dtype)
        self.ndim = len(self.shape)
        self.elements: Any = None


class _TracingLauncher:
    """Makes calls of XLA of launches: kernels store to cells."""

    def empty(self, shape: Sequence[int], dtype: Any) -> _Cell:
        return _Cell(shape, dtype)

    def zeros(self, shape: Sequence[int], dtype: Any) -> _Cell:
        cell = _Cell(shape, dtype)
        cell.elements = jnp.zeros(cell.shape, cell.dtype)
        return cell

    def __call__(
        self, kernel: Any, grid: Any, *arguments: Any, updates: Sequence[str] = (), **keywords: Any
    ) -> None:
        named = dict(zip(kernel.arg_names, arguments, strict=False)) | keywords
        cells = {name: each for name, each in named.items() if isinstance(each, _Cell)}
        out = {name: each for name, each in cells.items() if each.elements is None}
        for name in cells.keys() - out.keys():
            named[name] = cells[name].elements
        found = tilewright.jax.call(
            kernel,
            grid=grid,
            out={name: jax.ShapeDtypeStruct(each.shape, each.dtype) for name, each in out.items()},
            inout=updates,
            **{name: each for name, each in named.items() if name not in out},
        )
        made = found if isinstance(found, tuple) else (found,)
        for name, elements in zip([*out, *updates], made, strict=True):
            cells[name].elements = elements


def call(operation: Operation, arguments: Sequence[Any], out: Any) -> tuple[Any, ...]:
    """Compute the results of an operation on arrays, but the residuals.

    Raises:
        TypeError: ``out`` is given.
    """
    if out is not None:
        raise TypeError(f"{operation.name}: arrays of JAX do not change: out= takes none")
    values = dict(zip((each.name for each in operation.parameters), arguments, strict=True))
    names = tuple(each.name for each in operation.parameters if each.kind is Array)
    settings = {name: value for name, value in values.items() if name not in names}
    arrays = {name: values[name] for name in names}

    def compute(given: Mapping[str, Any]) -> tuple[Any, ...]:
        return _launched(operation, {**settings, **given}, with_residuals=False)

    def forward(given: Mapping[str, Any]) -> tuple[Any, Any]:
        results = _launched(operation, {**settings, **given}, with_residuals=True)
        named = {**given, **dict(zip(operation.results, results, strict=True))}
        return _without_residuals(operation, results), (
            {name: named[name] for name in operation.saved},
            given,
        )

    def backward(kept: Any, cotangents: tuple[Any, ...]) -> tuple[Any]:
        saved, given = kept
        if operation.gradients is None:
            raise TypeError(f"{operation.name} has no gradient")
        needed = frozenset(name for name, each in given.items() if each is not None)
        space = SimpleNamespace(**saved, **settings, needed=needed)
        found = operation.gradients(space, *cotangents)
        return ({name: _cotangent(each, found.get(name)) for name, each in given.items()},)

    computed = jax.custom_vjp(compute)
    computed.defvjp(forward, backward)
    found: tuple[Any, ...] = computed(arrays)
    return found


def _cotangent(primal: Any, found: Any) -> Any:
    if primal is None or found is not None:
        return found
    if jnp.issubdtype(primal.dtype, jnp.floating):
        return jnp.zeros_like(primal)
    return np.zeros(primal.shape, jax.dtypes.float0)


def _launched(
    operation: Operation, values: Mapping[str, Any], *, with_residuals: bool
) -> tuple[Any, ...]:
    arguments = [values[each.name] for each in operation.parameters]
    cells = [
        _Cell(each.shape, each.dtype)
        for each in operation.shapes(lambda shape, dtype: JAX.empty(shape, dtype, None), *arguments)
    ]
    given = [
        None if name in operation.residuals and not with_residuals else cell
        for name, cell in zip(operation.results, cells, strict=True)
    ]
    operation.launch(_TracingLauncher(), *given, *arguments)
    return tuple(each.elements for each in given if each is not None)


def _without_residuals(operation: Operation, results: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(
        each
        for name, each in zip(operation.results, results, strict=True)
        if name not in operation.residuals
    )
