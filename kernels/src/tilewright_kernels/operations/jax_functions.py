"""Operations as functions of JAX, with gradients in reverse mode."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_derivatives import SymbolicZero

import tilewright.jax
from tilewright_kernels.operations.frameworks import JAX
from tilewright_kernels.operations.operation import Operation
from tilewright_kernels.operations.parameters import Array, Arrays


class _Memory:
    """Elements that kernels make; None before the first launch that stores to them."""

    def __init__(self) -> None:
        self.elements: Any = None


class _Cell:
    """An array that kernels make: a shape, and after a launch the elements.

    Cells of several shapes may share their memory.
    """

    def __init__(self, shape: Sequence[int], dtype: Any, memory: _Memory | None = None) -> None:
        self.shape, self.dtype = tuple(shape), jnp.dtype(dtype)
        self.ndim, self.size = len(self.shape), math.prod(self.shape)
        self._memory = _Memory() if memory is None else memory

    @property
    def elements(self) -> Any:
        """The elements in this shape; None where no launch has stored any."""
        found = self._memory.elements
        return None if found is None else found.reshape(self.shape)

    def store(self, elements: Any) -> None:
        """Set the elements."""
        self._memory.elements = elements

    def reshape(self, *shape: Any) -> _Cell:
        """Return a cell of another shape on the same memory."""
        extents = list(shape[0] if len(shape) == 1 and not isinstance(shape[0], int) else shape)
        if -1 in extents:
            known = math.prod(each for each in extents if each != -1)
            extents[extents.index(-1)] = self.size // known if known else 0
        return _Cell(extents, self.dtype, self._memory)


def _result(shape: Sequence[int], dtype: Any) -> _Cell:
    return _Cell(shape, JAX.dtype(dtype))


class _TracingLauncher:
    """Makes calls of XLA of launches: kernels store to cells."""

    def empty(self, shape: Sequence[int], dtype: Any) -> _Cell:
        return _Cell(shape, dtype)

    def zeros(self, shape: Sequence[int], dtype: Any) -> _Cell:
        cell = _Cell(shape, dtype)
        cell.store(jnp.zeros(cell.shape, cell.dtype))
        return cell

    def __call__(
        self, kernel: Any, grid: Any, *arguments: Any, updates: Sequence[str] = (), **keywords: Any
    ) -> None:
        named = dict(zip(kernel.arg_names, arguments, strict=False)) | keywords
        cells = {name: each for name, each in named.items() if isinstance(each, _Cell)}
        out = {
            name: jax.ShapeDtypeStruct(each.shape, each.dtype)
            for name, each in cells.items()
            if each.elements is None
        }
        for name in cells.keys() - out.keys():
            named[name] = cells[name].elements
        found = tilewright.jax.call(
            kernel,
            grid=grid,
            out=out,
            inout=updates,
            **{name: each for name, each in named.items() if name not in out},
        )
        made = found if isinstance(found, tuple) else (found,)
        for name, elements in zip([*out, *updates], made, strict=True):
            cells[name].store(elements)


def call(operation: Operation, arguments: Sequence[Any], out: Any) -> tuple[Any, ...]:
    """Compute the results of an operation on arrays, but the residuals.

    Raises:
        TypeError: ``out`` is given, or the operation changes its arguments.
    """
    if out is not None or any(each.is_mutated for each in operation.parameters):
        raise TypeError(
            f"{operation.name}: arrays of JAX do not change: call functions that return new "
            "arrays, without out="
        )
    values = dict(zip((each.name for each in operation.parameters), arguments, strict=True))
    names = [each.name for each in operation.parameters if each.kind in (Array, Arrays)]
    settings = {name: value for name, value in values.items() if name not in names}
    arrays = {name: values[name] for name in names}

    def compute(given: Mapping[str, Any]) -> tuple[Any, ...]:
        results = _launched(operation, {**settings, **given}, with_residuals=False)
        return operation.without_residuals(results)

    def forward(tracked: Mapping[str, Any]) -> tuple[Any, Any]:
        given = jax.tree.map(lambda each: each.value, tracked, is_leaf=_is_primal)
        needed = [
            name
            for name, value in tracked.items()
            if any(each.perturbed for each in jax.tree.leaves(value, is_leaf=_is_primal))
        ]
        results = _launched(operation, {**settings, **given}, with_residuals=True)
        named = {**given, **dict(zip(operation.results, results, strict=True))}
        saved = {name: named[name] for name in operation.saved}
        # the keys of a dictionary are no values of JAX, which it would trace
        return operation.without_residuals(results), (saved, given, dict.fromkeys(needed))

    def backward(kept: Any, cotangents: tuple[Any, ...]) -> tuple[Any]:
        saved, given, names = kept
        if operation.gradients is None:
            raise TypeError(
                f"{operation.name} has no gradient: apply jax.lax.stop_gradient to its arguments, "
                "or differentiate within tilewright_kernels.use_references()"
            )
        space = SimpleNamespace(**saved, **settings, needed=frozenset(names))
        found = operation.gradients(
            space, *(None if isinstance(each, SymbolicZero) else each for each in cotangents)
        )
        return ({name: _cotangents(each, found.get(name)) for name, each in given.items()},)

    computed = jax.custom_vjp(compute)
    computed.defvjp(forward, backward, symbolic_zeros=True)
    found: tuple[Any, ...] = computed(arrays)
    return found


def _is_primal(value: Any) -> bool:
    return hasattr(value, "perturbed")


def _cotangents(primal: Any, found: Any) -> Any:
    """Return the cotangent of an argument, in its structure."""
    if primal is None:
        return None
    if isinstance(primal, (list, tuple)):
        each = [None] * len(primal) if found is None else found
        return type(primal)(map(_cotangents, primal, each))
    if not jnp.issubdtype(primal.dtype, jnp.floating):
        return np.zeros(primal.shape, jax.dtypes.float0)
    if found is None:
        return jnp.zeros_like(primal)
    return found.reshape(primal.shape).astype(primal.dtype)


def _launched(
    operation: Operation, values: Mapping[str, Any], *, with_residuals: bool
) -> list[Any]:
    """Return all results; None for those that are not asked for."""
    arguments = [values[each.name] for each in operation.parameters]
    omitted = () if with_residuals else operation.residuals
    cells = [
        None if each is None or name in omitted else each
        for name, each in zip(operation.results, operation.shapes(_result, *arguments), strict=True)
    ]
    operation.launch(_TracingLauncher(), *cells, *arguments)
    return [None if each is None else each.elements for each in cells]
