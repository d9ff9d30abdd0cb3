"""Options of one kernel's compilation, besides its source and arguments."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from tilewright.ir.order import ANY

if TYPE_CHECKING:
    from tilewright.plugins.manifest import Capabilities, Target


@dataclass(frozen=True)
class Options:
    """Options of one compilation, as builtins see them.

    Attributes:
        target: what is compiled for; None where nothing is chosen yet.
        debug: ``device_assert`` is compiled, and so are overflow checks where ``sanitize_overflow``
            holds.
        sanitize_overflow: in debug mode, check integer ``+ - *`` narrower than 64 bits.
        default_dot_precision: ``input_precision`` of a ``dot`` that states none.
        default_order: ``order`` of a reduction or scan that states none.
        supported_fp8_dtypes: names of the fp8 kinds that kernels may use, of those the target has;
            None is all of them.
        deprecated_fp8_dot_operand_dtypes: names of the fp8 kinds that a ``dot`` warns of.
        min_dot_size: (bits of an operand's element, the smallest (M, N, K) of a ``dot``), where
            that is more than the target needs.
        plain_loops: loops have no ``break`` and ``continue``, and no ``return`` unless they are
            unrolled: the language of Triton.
        named_values: a name declared ``tl.constexpr`` may have a value that is computed at run
            time, which it then names: the language of Triton, whose programs get places by
            lines of the function, too.
        thread_prints: every thread of a program executes a print of scalars, or of no values: the
            language of Triton.
        differentiated: calls of functions that have a derivative of their own stay calls, for the
            passes of derivatives.
        num_warps: warps of a program, where the target has warps.
        extra: further options of the backend, for its own part of the language.
    """

    target: Target | None = None
    debug: bool = False
    sanitize_overflow: bool = True
    default_dot_precision: str = "ieee"
    default_order: str = ANY
    supported_fp8_dtypes: tuple[str, ...] | None = None
    deprecated_fp8_dot_operand_dtypes: tuple[str, ...] = ()
    min_dot_size: tuple[tuple[int, tuple[int, int, int]], ...] = ()
    plain_loops: bool = False
    named_values: bool = False
    thread_prints: bool = False
    differentiated: bool = False
    num_warps: int = 4
    extra: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def backend(self) -> str:
        """The name of the backend, for messages; empty where none is chosen yet."""
        return "" if self.target is None else self.target.backend

    @property
    def capabilities(self) -> Capabilities | None:
        """Return the capabilities of the target; None allows everything."""
        return None if self.target is None else self.target.capabilities


#: Names of the options above that a compilation may give, besides those of its backend.
GIVEN = (
    "debug",
    "sanitize_overflow",
    "default_dot_precision",
    "supported_fp8_dtypes",
    "deprecated_fp8_dot_operand_dtypes",
    "min_dot_size",
    "plain_loops",
    "named_values",
    "thread_prints",
    "num_warps",
)
