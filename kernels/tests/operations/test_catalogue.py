"""A walk over all operations: twins in place of kernels, and functions of JAX."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from catalogue import CASES, Case, exported_operations
from checks import FRAMEWORKS, to_numpy

import tilewright_kernels as tk
from tilewright_kernels.operations.operation import Operation

#: Roundings of float32 in kernels and in formulas, in other orders.
TOLERANCE = 1e-4


def results_of(case: Case, arrays: dict[str, Any]) -> list[Any]:
    """Call a case's function, and return its results, or the arrays that it changes."""
    found = case.function(**arrays)
    if case.mutated:
        assert found is None
        return [each for name in case.mutated for each in arrays[name]]
    return list(found) if isinstance(found, tuple) else [found]


def assert_equal(case: Case, found: list[Any], expected: list[Any]) -> None:
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == other.dtype
        assert one.shape == other.shape
        if case.is_exact:
            np.testing.assert_array_equal(to_numpy(one), to_numpy(other))
        else:
            np.testing.assert_allclose(
                to_numpy(one), to_numpy(other), rtol=TOLERANCE, atol=TOLERANCE
            )


@contextmanager
def references_alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Compute by references, and refuse launches."""

    def refuse(operation: Operation, *_: Any, **__: Any) -> None:
        raise AssertionError(f"{operation.name} is launched")

    with tk.use_references(), monkeypatch.context() as patched:
        patched.setattr(Operation, "launched", refuse)
        yield


def test_every_exported_operation_has_a_case_and_a_twin():
    assert {case.function_name for case in CASES} == set(exported_operations())
    for name in exported_operations():
        assert f"{name}_reference" in tk.__all__


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_references_take_the_place_of_kernels(case, framework, monkeypatch):
    if case.mutated and framework == "jax":
        with tk.use_references(), pytest.raises(TypeError, match="do not change"):
            case.function(**case.given(framework))
        return
    found = results_of(case, case.given(framework))
    with references_alone(monkeypatch):
        expected = results_of(case, case.given(framework))
    assert_equal(case, found, expected)


@pytest.mark.parametrize("case", [each for each in CASES if not each.mutated], ids=lambda c: c.name)
def test_operations_are_functions_of_jax(case):
    """Results and gradients within ``jax.jit`` are those of the formulas."""
    jax = pytest.importorskip("jax")
    given = case.given("jax")
    tracked = {name: given[name] for name in case.wrt}

    def called(arrays: dict[str, Any]) -> list[Any]:
        return results_of(case, {**given, **arrays})

    found = jax.jit(called)(given)
    with tk.use_references():
        expected = called(given)
    assert_equal(case, found, expected)
    if not tracked:
        return

    def pulled(arrays: dict[str, Any]) -> Any:
        results, pull = jax.vjp(called, arrays)
        return pull([_cotangent(each) for each in results])[0]

    found = jax.jit(pulled)(tracked)
    with tk.use_references():
        expected = pulled(tracked)
    assert_equal(case, list(found.values()), list(expected.values()))


def _cotangent(result: Any) -> Any:
    import jax

    if not jax.numpy.issubdtype(result.dtype, jax.numpy.floating):
        return np.zeros(result.shape, jax.dtypes.float0)
    drawn = np.random.default_rng(0).standard_normal(result.shape)
    return jax.numpy.asarray(drawn, result.dtype)
