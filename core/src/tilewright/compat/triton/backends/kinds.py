"""Common parts of ``triton.backends.<vendor>.compiler``: options, minimal dots, compilers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from tilewright.compat.triton.backends.compiler import BaseBackend, GPUTarget
from tilewright.compat.triton.backends.options import (
    BY_KIND,
    COMMON,
    MIN_DOT,
    TritonOptions,
    frozen,
)
from tilewright.compat.triton.outside import OutsideNameError
from tilewright.plugins.registry import registry


class KindOptions(TritonOptions):
    """The options of a compilation for one kind of target: the defaults, and what is given by name.

    Raises:
        TypeError: an option is unknown.
    """

    kind: ClassVar[str]
    warp_size: ClassVar[int] = 32

    def __init__(self, **given: Any) -> None:
        known = {**COMMON, **BY_KIND.get(self.kind, {})}
        unknown = sorted(given.keys() - known.keys())
        if unknown:
            raise TypeError(
                f"{type(self).__name__} has no option {', '.join(unknown)}; there are "
                f"{', '.join(sorted(known))}"
            )
        super().__init__({name: frozen(given.get(name, value)) for name, value in known.items()})

    @property
    def backend_name(self) -> str:
        return self.kind


def least_dot(target: GPUTarget) -> Callable[[Any, Any], tuple[int, int, int]]:
    """(lhs type, rhs type) -> the smallest (M, N, K) of a ``dot`` of such operands for a target."""
    by_bits = MIN_DOT.get(target.backend, {})
    return lambda lhs, rhs: by_bits.get(lhs.scalar.primitive_bitwidth, (1, 1, 1))


def compiler_for(kind: str, module: str, name: str) -> type[BaseBackend]:
    """Return the compiler class of the backend for a kind of target: ``module.name`` here.

    Raises:
        OutsideNameError: there is none.
    """
    from tilewright.compat.triton.backends import backends

    for backend in backends:
        if kind in registry().get(backend).manifest.device_kinds:
            return backends[backend].compiler
    raise OutsideNameError(
        f"{module}.{name} is the compiler of an installed backend for targets of kind {kind!r}, "
        "and there is none"
    )
