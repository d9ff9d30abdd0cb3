"""Arrays of heads: strides, and settings of attention that kernels take."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tilewright_kernels.operations import strides


def rows_of(array: Any) -> Any:
    """Return an array whose last axis has the stride 1: itself, or a copy."""
    if array.shape[-1] > 1 and strides(array)[-1] != 1:
        return array.contiguous() if hasattr(array, "contiguous") else array.copy(order="C")
    return array


def head_strides(array: Any) -> tuple[int, int, int]:
    """Return the strides of batches, rows and heads, 0 for batches of packed sequences."""
    found = strides(array)
    return (found[0], found[1], found[2]) if len(found) == 4 else (0, found[0], found[1])


@dataclass(frozen=True)
class Extents:
    """Extents of an attention's arrays.

    Attributes:
        batch: sequences.
        n_q, n_k: rows of queries and keys of a sequence; the largest of packed ones.
        total_q, total_k: rows of a batch, or of all packed sequences.
        heads, key_heads: heads of queries, and of keys and values.
        dims, value_dims: elements of a head of queries and keys, and of values.
        is_packed: whether sequences lie one after the other.
    """

    batch: int
    n_q: int
    n_k: int
    total_q: int
    total_k: int
    heads: int
    key_heads: int
    dims: int
    value_dims: int
    is_packed: bool

    @property
    def group(self) -> int:
        """Heads of queries that share one of keys."""
        return self.heads // max(self.key_heads, 1)

    @property
    def lse_strides(self) -> tuple[int, int]:
        """The strides of batches and heads of the logarithms of row sums."""
        return 0 if self.is_packed else self.heads * self.total_q, self.total_q

    def block_strides(self, rows: int) -> tuple[int, int]:
        """Return the strides of batches and heads of queries in whole blocks of ``rows`` rows.

        A packed sequence begins at the multiple of ``rows`` below its first row, after as many
        blocks as there are sequences before it: each may end in a block of its own.
        """
        if self.is_packed:
            return rows, (self.total_q // rows + self.batch) * rows
        padded = -(-self.n_q // rows) * rows
        return padded, self.batch * padded


def extents_of(q: Any, k: Any, v: Any, cu_seqlens_q: Any, max_q: int, max_k: int) -> Extents:
    """Return the extents of q, k, v of (batch, rows, heads, dims), or packed: of (rows, ...)."""
    heads, key_heads = q.shape[-2], k.shape[-2]
    total_q, total_k = q.shape[-3], k.shape[-3]
    if cu_seqlens_q is None:
        batch, n_q, n_k = q.shape[0], total_q, total_k
    else:
        batch, n_q, n_k = cu_seqlens_q.shape[0] - 1, max_q, max_k
    return Extents(
        batch, n_q, n_k, total_q, total_k, heads, key_heads, q.shape[-1], v.shape[-1],
        cu_seqlens_q is not None,
    )  # fmt: skip


def checked(name: str, q: Any, k: Any, v: Any, scale: float, rank: int) -> None:
    """Check what attention is given.

    Raises:
        ValueError: the shapes of the arguments do not match, or ``softmax_scale`` is not positive.
    """
    if not len(q.shape) == len(k.shape) == len(v.shape) == rank:
        raise ValueError(f"{name}: q, k and v have {rank} axes")
    if rank == 4 and not q.shape[0] == k.shape[0] == v.shape[0]:
        raise ValueError(
            f"{name}: q, k and v have {q.shape[0]}, {k.shape[0]}, {v.shape[0]} batches"
        )
    if k.shape[:-1] != v.shape[:-1]:
        raise ValueError(f"{name}: k is of {tuple(k.shape)}, and v of {tuple(v.shape)}")
    if q.shape[-1] != k.shape[-1]:
        raise ValueError(f"{name}: heads of q have {q.shape[-1]} elements, of k {k.shape[-1]}")
    if not k.shape[-2] or q.shape[-2] % k.shape[-2]:
        raise ValueError(f"{name}: {q.shape[-2]} heads of q are no multiple of {k.shape[-2]} of k")
    if not scale > 0:
        raise ValueError(f"{name}: softmax_scale is positive, not {scale}")
