"""A walk over the catalogue: twins take the place of kernels, and operations are traced by JAX."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from catalogue import SAMPLES, Sample
from checks import FRAMEWORKS, TOLERANCES, rounded, to_framework, to_numpy

import tilewright_kernels as tk
from tilewright_kernels.operations.operation import Operation

NARROW = [each for each in SAMPLES.values() if not each.is_wide]
#: Operations that change arrays, which JAX has not.
IN_PLACE = {"adamw", "adamw_8bit"}


def arrays_of(sample: Sample, framework: str) -> dict[str, Any]:
    return {
        name: to_framework(rounded(each, "float32"), framework)
        for name, each in sample.arrays.items()
    }


def called(sample: Sample, arrays: dict[str, Any]) -> list[Any]:
    """Return the results of the sample's function."""
    found = sample.function(**arrays, **sample.settings, **sample.own)
    return list(found) if isinstance(found, tuple) else [found]


def assert_equal(sample: Sample, found: list[Any], expected: list[Any]) -> None:
    tolerance = TOLERANCES["float32"] * max(sample.tolerance, 10)
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == other.dtype
        assert one.shape == other.shape
        np.testing.assert_allclose(to_numpy(one), to_numpy(other), rtol=tolerance, atol=tolerance)


@contextmanager
def references_alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Compute by references, and refuse launches."""

    def refuse(operation: Operation, *_: Any, **__: Any) -> None:
        raise AssertionError(f"{operation.name} is launched")

    with tk.use_references(), monkeypatch.context() as patched:
        patched.setattr(Operation, "launched", refuse)
        yield


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("sample", NARROW, ids=str)
def test_references_take_the_place_of_kernels(sample, framework, monkeypatch):
    if sample.exported in IN_PLACE and framework == "jax":
        with tk.use_references(), pytest.raises(TypeError, match="do not change"):
            called(sample, arrays_of(sample, framework))
        return
    found = called(sample, arrays_of(sample, framework))
    with references_alone(monkeypatch):
        expected = called(sample, arrays_of(sample, framework))
    assert_equal(sample, found, expected)


@pytest.mark.parametrize(
    "sample", [each for each in NARROW if each.exported not in IN_PLACE], ids=str
)
def test_operations_are_functions_of_jax(sample):
    """Results and gradients within ``jax.jit`` are those of the formulas."""
    jax = pytest.importorskip("jax")
    given = arrays_of(sample, "jax")
    found = jax.jit(lambda arrays: called(sample, arrays))(given)
    with tk.use_references():
        expected = called(sample, given)
    assert_equal(sample, found, expected)
    if not sample.wrt:
        return

    def pulled(tracked: dict[str, Any]) -> Any:
        results, pull = jax.vjp(lambda each: called(sample, {**given, **each}), tracked)
        return pull([_cotangent(each) for each in results])[0]

    tracked = {name: given[name] for name in sample.wrt}
    found = jax.jit(pulled)(tracked)
    with tk.use_references():
        expected = pulled(tracked)
    assert_equal(sample, list(found.values()), list(expected.values()))


def _cotangent(result: Any) -> Any:
    import jax

    if not jax.numpy.issubdtype(result.dtype, jax.numpy.floating):
        return np.zeros(result.shape, jax.dtypes.float0)
    drawn = np.random.default_rng(0).standard_normal(result.shape)
    return jax.numpy.asarray(drawn, result.dtype)
