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
        num_warps: warps of a program, where the target has warps.
        extra: further options of the backend.
    """

    backend: str = ""
    capabilities: Capabilities | None = None
    debug: bool = False
    sanitize_overflow: bool = True
    arch: Any = None
    default_dot_precision: str = "ieee"
    num_warps: int = 4
    extra: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
