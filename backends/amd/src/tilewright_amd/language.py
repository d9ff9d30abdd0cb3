"""``tl.extra.hip``: functions of targets that run GCN assembly. ``num_warps`` works everywhere; the other is assembly of those targets."""

from __future__ import annotations

from typing import Any

from tilewright.language import libdevice
from tilewright.language.binding import builtin
from tilewright.language.core import inline_asm_elementwise
from tilewright.language.dtypes import int64
from tilewright.language.tensors import tensor
from tilewright.language.values import constexpr


@builtin
def memrealtime(_semantic: Any = None) -> tensor:
    """The device's clock of constant rate, as int64."""
    return inline_asm_elementwise("s_memrealtime $0\ns_waitcnt lgkmcnt(0)", "=s", [], int64, False, 1, _semantic=_semantic)


@builtin
def num_warps(_semantic: Any = None) -> constexpr:
    """The warps that run a program, a constexpr."""
    return constexpr(_semantic.options.num_warps)


__all__ = ["libdevice", "memrealtime", "num_warps"]
