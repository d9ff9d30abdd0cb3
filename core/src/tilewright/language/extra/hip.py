"""Functions of targets that run GCN assembly. ``num_warps`` works everywhere; the other is assembly of those targets."""

from __future__ import annotations

from typing import Any

from tilewright.language import libdevice
from tilewright.language.binding import builtin
from tilewright.language.core import inline_asm_elementwise
from tilewright.language.dtypes import int64
from tilewright.language.extra.cuda import num_warps
from tilewright.language.tensors import tensor


@builtin
def memrealtime(_semantic: Any = None) -> tensor:
    """The device's clock of constant rate, as int64."""
    return inline_asm_elementwise("s_memrealtime $0\ns_waitcnt lgkmcnt(0)", "=s", [], int64, False, 1, _semantic=_semantic)


__all__ = ["libdevice", "memrealtime", "num_warps"]
