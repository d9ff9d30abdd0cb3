"""Running a kernel on the reference and on a device, and comparing the two."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilewright.errors import TilewrightError
from tilewright.plugins.registry import registry
from tilewright_conformance.suite.placement import Addresses
from tilewright_conformance.suite.session import Session, Subject


def _is_there(name: str) -> bool:
    """Return whether a backend has a device here."""
    try:
        found = registry().get(name)
        return not found.manifest.status and bool(found.call("tilewright_devices"))
    except TilewrightError:
        return False


_DEVICES = [
    "cpu",
    *(pytest.param(name, marks=pytest.mark.gpu) for name in ("nvidia", "amd") if _is_there(name)),
]


class Launch:
    """``launch(kernel, grid, *args, **options)``: runs on copies with the reference, then on a
    backend, which changes the arrays themselves."""

    def __init__(self, backend: str) -> None:
        self.session = Session(Subject(backend), "launch")

    def __call__(
        self,
        kernel: Any,
        grid: tuple[int, ...],
        *args: Any,
        rtol: float = 1e-5,
        atol: float = 1e-5,
        exact: bool = False,
        **options: Any,
    ) -> None:
        """Launch twice and compare.

        Args:
            rtol, atol: how far the floats of the two may be apart; everything else is equal.
            exact: the backend's functions may not be less accurate than the shared ones.

        Raises:
            AssertionError: an array differs; says which.
        """
        copies: dict[int, tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]] = {}
        self.session.reference.launch(
            kernel, grid, *[_copied(value, copies) for value in args], **options
        )
        self.session.launch(
            kernel, grid, *args, **{**options, **(self.session.strict if exact else {})}
        )
        for position, (array, expected) in enumerate(copies.values()):
            message = (
                f"array {position} of the arguments: {self.session.backend} and reference differ"
            )
            if array.dtype.kind == "f":
                np.testing.assert_allclose(array, expected, rtol=rtol, atol=atol, err_msg=message)
            elif (
                array.dtype.isbuiltin == 2
            ):  # a float that NumPy does not know as one: its NaN would not equal itself
                np.testing.assert_array_equal(
                    array.astype(np.float64), expected.astype(np.float64), err_msg=message
                )
            else:
                np.testing.assert_array_equal(array, expected, err_msg=message)


def _copied(
    value: Any, copies: dict[int, tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]]
) -> Any:
    """An argument with its arrays copied, an array given twice once."""
    if isinstance(value, Addresses):
        return Addresses([_copied(array, copies) for array in value.arrays])
    if not isinstance(value, np.ndarray):
        return value
    return copies.setdefault(id(value), (value, value.copy()))[1]


@pytest.fixture(params=_DEVICES)
def launch(request: pytest.FixtureRequest) -> Launch:
    """The CPU, and the GPU where there is one."""
    return Launch(request.param)
