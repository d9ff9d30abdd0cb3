"""Running a kernel on the reference and on the CPU backend, and comparing the two."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright as tw


def _launch(kernel: Any, grid: tuple[int, ...], *args: Any, rtol: float = 1e-5, atol: float = 1e-5, **options: Any) -> None:
    copies = [arg.copy() if isinstance(arg, np.ndarray) else arg for arg in args]
    with tw.backend("reference"), np.errstate(all="ignore"):
        kernel[grid](*copies, **options)
    with tw.backend("cpu"):
        kernel[grid](*args, **options)
    for position, (expected, found) in enumerate(zip(copies, args, strict=True)):
        if not isinstance(found, np.ndarray):
            continue
        if found.dtype.kind == "f":
            np.testing.assert_allclose(found, expected, rtol=rtol, atol=atol, err_msg=f"argument {position}: cpu and reference differ")
        else:
            np.testing.assert_array_equal(found, expected, err_msg=f"argument {position}: cpu and reference differ")


@pytest.fixture
def launch() -> Callable[..., None]:
    """``launch(kernel, grid, *args, **options)``: runs on copies with the reference, then on the arrays themselves with the CPU backend.

    Arrays that the two leave different fail the test: floats beyond ``rtol`` and ``atol``, all else at once.
    """
    return _launch
