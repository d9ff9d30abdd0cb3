"""Comparing arrays within tolerances."""

from __future__ import annotations

from typing import Any


def assert_close(
    x: Any, y: Any, atol: float | None = None, rtol: float | None = None, err_msg: str = ""
) -> None:
    """Assert that two arrays are equal within ``atol + rtol * |y|``.

    ``x`` and ``y`` may be NumPy arrays, PyTorch tensors on any device, nested lists, or numbers.

    By default, ``atol`` is 1e-2 and ``rtol`` is 0. A NaN equals a NaN. The shapes must be equal,
    unless ``x`` or ``y`` is a number, or both have one element. The element types may differ.

    Raises:
        AssertionError: the arrays differ; for more than one element, the message states the number
            of different elements and the largest difference.
    """
    import numpy as np

    left, right = as_array(x), as_array(y)
    atol = 1e-2 if atol is None else float(_scalar(atol))
    rtol = 0.0 if rtol is None else float(_scalar(rtol))
    if left.size > 1 or right.size > 1:
        np.testing.assert_allclose(
            left, right, atol=atol, rtol=rtol, equal_nan=True, err_msg=err_msg
        )
    elif not np.allclose(left, right, atol=atol, rtol=rtol, equal_nan=True):
        raise AssertionError(f"{err_msg} {left} is not close to {right} (atol={atol}, rtol={rtol})")


def _scalar(value: Any) -> Any:
    return value() if callable(value) else value


def as_array(value: Any) -> Any:
    """A NumPy array of the values; element types that NumPy lacks are widened to float32."""
    import numpy as np

    if hasattr(value, "detach"):
        value = value.detach().cpu()
        name = str(value.dtype)
        if "bfloat16" in name or "float8" in name:
            value = value.float()
        value = value.numpy()
    found = np.asarray(value)
    if found.dtype.kind == "V" or found.dtype.name in (
        "bfloat16",
        "float8_e4m3fn",
        "float8_e5m2",
        "float8_e4m3fnuz",
        "float8_e5m2fnuz",
    ):
        found = found.astype(np.float32)
    return found
