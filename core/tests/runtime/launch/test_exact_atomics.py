"""Exact launches that update arrays atomically, of every library that they may be of."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tilewright.errors import LaunchError
from tilewright.runtime.arguments.array_protocols import ArrayView
from tilewright.testing.exact import embed, exact_mode, fractions


@tw.jit
def totals(x_ptr, total_ptr, lowest_ptr, n, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + place, mask=place < n)
    tl.atomic_add(total_ptr + 2 * (place % 3), x, mask=place < n)
    tl.atomic_min(lowest_ptr + place * 0, x, mask=place < n)


def _view(array: np.ndarray[Any, Any]) -> ArrayView:
    strides = tuple(stride // array.itemsize for stride in array.strides)
    return ArrayView(array, array.ctypes.data, "fp32", array.shape, strides, ("cpu", 0))


def _wrapped(array: np.ndarray[Any, Any]) -> Any:
    return tw.reinterpret(array.view(np.uint32), tl.float32)


def _tensor(array: np.ndarray[Any, Any]) -> Any:
    return pytest.importorskip("torch").from_numpy(array)


@pytest.mark.parametrize("argument", [lambda x: x, _view, _wrapped, _tensor])
def test_arrays_of_every_library_are_updated(argument) -> None:
    x = embed(np.arange(-3, 9, dtype=np.float32))
    whole = embed(np.arange(6, dtype=np.float32))
    lowest = embed(np.array([7], np.float32))
    with exact_mode("reference"):
        totals[(2,)](*map(argument, (x, whole[::2], lowest)), x.size, BLOCK=8)
    sums = [2 * place + sum(range(place - 3, 9, 3)) for place in range(3)]
    assert [float(value) for value in fractions(whole)] == [sums[0], 1, sums[1], 3, sums[2], 5]
    assert fractions(lowest)[0] == -3


def test_a_backend_without_memory_is_an_error(monkeypatch) -> None:
    from tilewright.plugins.registry import Backend

    plain = Backend.call
    monkeypatch.setattr(
        Backend,
        "call",
        lambda self, hook, /, **more: (
            None if hook == "tilewright_memory" else plain(self, hook, **more)
        ),
    )
    x = embed(np.ones(4, np.float32))
    with (
        pytest.raises(LaunchError, match="does not copy arrays of type ArrayView"),
        exact_mode("reference"),
    ):
        totals[(1,)](_view(x), _view(x.copy()), _view(x.copy()), 4, BLOCK=4)
