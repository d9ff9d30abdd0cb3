"""Alignment of operands in memory, and copies of those that can only be loaded by elements."""

from __future__ import annotations

from typing import Any

import tilewright as tw
import tilewright.language as tl
from tilewright_kernels.linear.blocks import LINE
from tilewright_kernels.linear.element_types import bits_of, name_of
from tilewright_kernels.operations import Launcher, strides

#: Smallest extent for which the matmul reads an operand often enough to pay for its copy.
_SMALLEST = 256
#: Elements along K of a copy are a multiple, so that no load needs a mask along K.
_MULTIPLE = 128
#: Rows and columns of a block that a program copies.
COPIED_BLOCK = 64


@tw.jit
def copy_rows_kernel(
    x_ptr, y_ptr, N, K, PITCH, stride_n, stride_k, BLOCK: tl.constexpr,
):  # fmt: skip
    """Copy a matrix [N, K] of any strides to ``y`` [N, PITCH], with zeros beyond K."""
    rows = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    k = tl.program_id(1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = (rows < N)[:, None] & (k < K)[None, :]
    x = tl.load(x_ptr + rows[:, None] * stride_n + k[None, :] * stride_k, mask=inside, other=0.0)
    kept = (rows < N)[:, None] & (k < PITCH)[None, :]
    tl.store(y_ptr + rows[:, None] * PITCH + k[None, :], x, mask=kept)


def with_aligned_rows(run: Launcher, a: Any, b: Any) -> tuple[Any, Any]:
    """Return large operands [M, K] and [K, N] that can be loaded by 16 bytes.

    Those that cannot are copied to rows along K. Where K itself is not a multiple of 16 bytes, both
    are, with zeros up to a longer K. Arrays of JAX, which are not in memory yet, are returned as
    they are.
    """
    (m, k), n = a.shape[-2:], b.shape[-1]
    bits = bits_of(name_of(a))
    if (
        min(m, n, k) < _SMALLEST
        or bits > 16
        or name_of(a) != name_of(b)
        or not all(hasattr(each, "strides") or hasattr(each, "stride") for each in (a, b))
    ):
        return a, b
    is_copied = [is_transposed_in_memory(each) is None for each in (a, b)]
    if not any(is_copied):
        return a, b
    if k * bits % 128:
        is_copied, pitch = [True, True], tw.cdiv(k, _MULTIPLE) * _MULTIPLE
    else:
        pitch = k
    return (
        _copied(run, a, pitch) if is_copied[0] else a,
        _copied(run, b.T if b.ndim == 2 else b[0].T, pitch).T if is_copied[1] else b,
    )


def _copied(run: Launcher, x: Any, pitch: int) -> Any:
    x = x if x.ndim == 2 else x[0]
    y = run.empty((x.shape[0], pitch), x.dtype)
    run(
        copy_rows_kernel,
        (tw.cdiv(x.shape[0], COPIED_BLOCK), tw.cdiv(pitch, COPIED_BLOCK)),
        x,
        y,
        *x.shape,
        pitch,
        *strides(x),
        BLOCK=COPIED_BLOCK,
    )
    return y


def row_alignment(*arrays: Any) -> int:
    """Return the power of two up to 128 bytes at whose multiples rows of matrices begin."""
    found = LINE
    for array in arrays:
        step = max(strides(array)[-2:]) * bits_of(name_of(array)) // 8
        while step % found:
            found //= 2
    return found


def is_transposed_in_memory(array: Any) -> bool | None:
    """Return whether a descriptor of matrices is one of their transposes.

    It is None where there is no descriptor, for TMA takes addresses and strides that are multiples
    of 16 bytes.
    """
    *leading, outer, inner = strides(array)
    size = bits_of(name_of(array)) // 8
    pointer = getattr(array, "data_ptr", None)
    if (pointer is not None and pointer() % 16) or any(each * size % 16 for each in leading):
        return None
    for is_transposed, (step, along) in ((False, (outer, inner)), (True, (inner, outer))):
        extent = array.shape[-2 if is_transposed else -1]
        if along == 1 and step >= extent and step * size % 16 == 0:
            return is_transposed
    return None
