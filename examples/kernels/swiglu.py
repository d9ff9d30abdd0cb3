"""SwiGLU: the gate of a transformer's feed-forward layer, silu(gate) · up (Shazeer, 2020)."""

from __future__ import annotations

from typing import Any

import tilewright as tw
import tilewright.language as tl


@tw.jit
def swiglu_kernel(gate_ptr, up_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < n
    gate = tl.load(gate_ptr + offsets, mask=inside).to(tl.float32)
    up = tl.load(up_ptr + offsets, mask=inside).to(tl.float32)
    result = gate * tl.sigmoid(gate) * up
    tl.store(out_ptr + offsets, result.to(out_ptr.dtype.element_ty), mask=inside)


def swiglu(gate: Any, up: Any, out: Any, block: int = 1024) -> Any:
    """``out = silu(gate) * up`` for C-contiguous arrays of one shape."""
    n = out.size if isinstance(out.size, int) else out.numel()
    swiglu_kernel[(tw.cdiv(n, block),)](gate, up, out, n, BLOCK=block)
    return out
