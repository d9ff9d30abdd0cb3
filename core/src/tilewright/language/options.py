"""What the compilation of one kernel depends on besides its source and arguments."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tilewright.plugins.manifest import Capabilities


@dataclass(frozen=True)
class Options:
    """Options of one compilation, as builtins see them.

    Attributes:
        backend: the backend's name; empty where none is chosen yet.
        capabilities: what the backend can do; None allows everything.
        debug: ``device_assert`` is compiled, and so are overflow checks where ``sanitize_overflow`` holds.
        sanitize_overflow: in debug mode, check integer ``+ - *`` narrower than 64 bits.
        arch: the target's architecture, for ``target_info``.
        default_dot_precision: ``input_precision`` of a ``dot`` that states none.
        supported_fp8_dtypes: names of the fp8 kinds that kernels may use, of those the target has; None is all of them.
        deprecated_fp8_dot_operand_dtypes: names of the fp8 kinds that a ``dot`` warns of.
        min_dot_size: (bits of an operand's element, the smallest (M, N, K) of a ``dot``), where that is more than the target needs.
        plain_loops: loops have no ``break`` and ``continue``, and no ``return`` unless they are unrolled: the language of Triton.
        num_warps: warps of a program, where the target has warps.
        extra: further options of the backend.
    """

    backend: str = ""
    capabilities: Capabilities | None = None
    debug: bool = False
    sanitize_overflow: bool = True
    arch: Any = None
    default_dot_precision: str = "ieee"
    supported_fp8_dtypes: tuple[str, ...] | None = None
    deprecated_fp8_dot_operand_dtypes: tuple[str, ...] = ()
    min_dot_size: tuple[tuple[int, tuple[int, int, int]], ...] = ()
    plain_loops: bool = False
    num_warps: int = 4
    extra: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))


#: Names of the options above that a compilation may give, besides those of its backend.
GIVEN = (
    "debug",
    "sanitize_overflow",
    "default_dot_precision",
    "supported_fp8_dtypes",
    "deprecated_fp8_dot_operand_dtypes",
    "min_dot_size",
    "plain_loops",
    "num_warps",
)
