"""Launches that are compared in exact mode, on a backend's own arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from tilewright.testing.exact import Verdict, same_algebra
from tilewright_conformance.suite.session import Session


class Launch(NamedTuple):
    """A kernel on a grid; or a function that launches kernels, whose grid is empty."""

    kernel: Any
    arguments: tuple[Any, ...]
    grid: tuple[int, ...]
    constants: dict[str, Any]

    def placed(self, session: Session) -> Callable[..., None]:
        """Return a function that runs the launch on copies of arrays in the device's memory."""

        def run(*arguments: Any) -> None:
            place = session.placement()
            launched = self.kernel[self.grid] if self.grid else self.kernel
            launched(*[place(value) for value in arguments], **self.constants)
            place.fetch()

        return run


def filled(*shape: int, dtype: Any = np.float32) -> np.ndarray[Any, Any]:
    """An array whose elements are drawn before each launch."""
    return np.ones(shape, dtype)


def verdict_on(session: Session, a: Launch, b: Launch, **options: Any) -> Verdict:
    """Return the verdict on two launches on a session's backend.

    Args:
        options: as of :func:`~tilewright.testing.exact.same_algebra`.
    """
    return same_algebra(
        a.placed(session),
        b.placed(session),
        a.arguments,
        b.arguments,
        backend=session.backend,
        **options,
    )
