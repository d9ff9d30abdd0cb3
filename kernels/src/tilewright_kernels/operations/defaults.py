"""Settings of the library for the whole process."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any


class Defaults:
    """The settings that calls have which name no others.

    Attributes:
        deterministic: whether the same arguments give the same bits in every launch, where that
            takes longer.
        invariant: whether an element of a result has the same bits whatever else is in the batch.
        references: whether operations compute by their reference twins, not by kernels.
    """

    def __init__(self) -> None:
        self.deterministic, self.invariant, self.references = False, False, False


#: The settings of this process.
DEFAULTS = Defaults()
#: Settings that parameters of operations may have: of the type ``bool | None``.
OPTIONS = ("deterministic", "invariant")


def set_defaults(*, deterministic: bool | None = None, invariant: bool | None = None) -> None:
    """Set the library's defaults for the whole process; None leaves a default unchanged.

    Args:
        deterministic: whether operations that have an argument ``deterministic=`` return the same
            bits in every call with the same arguments. All other operations always return the same
            bits.
        invariant: whether the bits of an element do not depend on the rest of the batch, for
            operations that have an argument ``invariant=``.
    """
    if deterministic is not None:
        DEFAULTS.deterministic = deterministic
    if invariant is not None:
        DEFAULTS.invariant = invariant


@contextlib.contextmanager
def use_defaults(**settings: Any) -> Iterator[None]:
    """Set defaults within a ``with`` block; the arguments are those of :func:`set_defaults`."""
    before = {name: getattr(DEFAULTS, name) for name in OPTIONS}
    set_defaults(**settings)
    try:
        yield
    finally:
        set_defaults(**before)


@contextlib.contextmanager
def use_references() -> Iterator[None]:
    """Use reference versions of all functions within a ``with`` block, in all threads.

    Such a block is useful on devices that have no backend, and for comparisons with the kernels. A
    reference version computes a function's formula with the operations of NumPy, PyTorch or JAX, in
    the element types of its arguments.
    """
    before, DEFAULTS.references = DEFAULTS.references, True
    try:
        yield
    finally:
        DEFAULTS.references = before
