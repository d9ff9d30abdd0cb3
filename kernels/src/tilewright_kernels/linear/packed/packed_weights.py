"""Layouts of weights of 2, 4 and 8 bits, and their conversion to the one that kernels read."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import array_api_compat

#: Position in a word of AWQ -> column of the eight.
_AWQ_COLUMNS = (0, 2, 4, 6, 1, 3, 5, 7)


def pack_weights(q: Any, bits: int) -> Any:
    """Pack unsigned integers of shape (N, K) to int32 words of shape (K / run, N, run * bits / 32).

    The K axis is divided into runs of ``run`` elements each. The length ``run`` is the largest
    power of two that divides K, but at most 128. For each run, the words of all rows are contiguous
    in memory. Each word holds consecutive elements of a row. The lower 16 bits of a word hold
    elements 0, 2, 4 …, with element 0 in the lowest bits, and the upper 16 bits hold elements 1, 3,
    5 ….

    Raises:
        ValueError: a row does not fill a whole number of words, or ``bits`` is not 2, 4 or 8.
    """
    per_word = _per_word(bits)
    n, k = q.shape
    if k % per_word:
        raise ValueError(f"rows of {k} elements of {bits} bits do not fill words of 32")
    xp = array_api_compat.array_namespace(q)
    run = min(k & -k, 128) if k else per_word
    parts = xp.reshape(xp.astype(q, xp.int32), (n, k // run, run // per_word, per_word))
    words = parts[..., 0]
    for place, shift in enumerate(_shifts(bits)[1:], 1):
        words = words | (parts[..., place] << shift)
    return _copied(xp, xp.permute_dims(words, (1, 0, 2)))


def unpack_weights(words: Any, bits: int) -> Any:
    """Return the unsigned integers of packed words as int32 of shape (N, K)."""
    xp = array_api_compat.array_namespace(words)
    rows = xp.reshape(xp.permute_dims(words, (1, 0, 2)), (words.shape[1], -1))
    return _unpacked(rows, bits, _shifts(bits))


def columns_of(words: Any, bits: int) -> int:
    """Return K of packed weights."""
    return int(words.shape[0] * words.shape[2] * 32 // bits)


def weights_from_gptq(
    qweight: Any, qzeros: Any, scales: Any, *, bits: int = 4, zero_offset: int = 1
) -> tuple[Any, Any, Any]:
    """Convert GPTQ weights that are not permuted along K (``desc_act=False``).

    Args:
        qweight: int32 of shape (K * bits / 32, N): a word holds consecutive elements along K.
        qzeros: int32 of shape (groups, N * bits / 32): a word holds consecutive elements along N.
        scales: of shape (groups, N).
        bits: 2, 4 or 8.
        zero_offset: a number that is added to the zeros in ``qzeros``. Pass 1 for the first version
            of the GPTQ format, which stores each zero minus 1.

    Returns:
        Three arrays for :func:`.quantized_matmul`: ``words``, ``scales`` and ``zeros``.
    """
    xp = array_api_compat.array_namespace(qweight)
    in_order = [bits * place for place in range(_per_word(bits))]
    q = _unpacked(xp.permute_dims(qweight, (1, 0)), bits, in_order)
    zeros = xp.astype(_unpacked(qzeros, bits, in_order) + zero_offset, scales.dtype)
    return pack_weights(q, bits), xp.permute_dims(scales, (1, 0)), xp.permute_dims(zeros, (1, 0))


def weights_from_awq(qweight: Any, qzeros: Any, scales: Any) -> tuple[Any, Any, Any]:
    """Convert 4-bit weights of AWQ.

    Args:
        qweight: int32 of shape (K, N / 8). A word holds eight neighbouring columns, from its lowest
            bits on in the order 0, 2, 4, 6, 1, 3, 5, 7.
        qzeros: int32 of shape (groups, N / 8), packed in the same way.
        scales: of shape (groups, N).

    Returns:
        Three arrays for :func:`.quantized_matmul`: ``words``, ``scales`` and ``zeros``.
    """
    xp = array_api_compat.array_namespace(qweight)

    def columns(words: Any) -> Any:
        parts = [(words >> (4 * _AWQ_COLUMNS.index(column))) & 15 for column in range(8)]
        return xp.permute_dims(xp.reshape(xp.stack(parts, axis=-1), (words.shape[0], -1)), (1, 0))

    return (
        pack_weights(columns(qweight), 4),
        xp.permute_dims(scales, (1, 0)),
        xp.astype(columns(qzeros), scales.dtype),
    )


def weights_from_hqq(
    qweight: Any, scale: Any, zero: Any, shape: tuple[int, int]
) -> tuple[Any, Any, Any]:
    """Convert 4-bit HQQ weights that are grouped along K (``axis=1``).

    Args:
        qweight: uint8 of shape (N * groups / 2, K / groups). The upper 4 bits of each byte belong
            to the first half of all groups, and the lower 4 bits to the second half.
        scale: an array of N * groups elements.
        zero: an array of N * groups elements, of the type of the scales.
        shape: (N, K).

    Returns:
        Three arrays for :func:`.quantized_matmul`: ``words``, ``scales`` and ``zeros``.
    """
    xp = array_api_compat.array_namespace(qweight)
    wide = xp.astype(qweight, xp.int32)
    q = xp.reshape(xp.concat([wide >> 4, wide & 15], axis=0), shape)
    return pack_weights(q, 4), *(
        xp.permute_dims(
            _copied(xp, xp.permute_dims(xp.reshape(each, (shape[0], -1)), (1, 0))), (1, 0)
        )
        for each in (scale, zero)
    )


def _shifts(bits: int) -> list[int]:
    """Return the lowest bit of each element of a word."""
    return [bits * (place // 2) + 16 * (place % 2) for place in range(_per_word(bits))]


def _unpacked(words: Any, bits: int, shifts: Iterable[int]) -> Any:
    """Return the elements of words of shape (N, words), those of a word at ``shifts`` in order."""
    xp = array_api_compat.array_namespace(words)
    parts = [(words >> shift) & ((1 << bits) - 1) for shift in shifts]
    return xp.reshape(xp.stack(parts, axis=-1), (words.shape[0], -1))


def _per_word(bits: int) -> int:
    if bits not in (2, 4, 8):
        raise ValueError(f"weights are of 2, 4 or 8 bits, not of {bits}")
    return 32 // bits


def _copied(xp: Any, array: Any) -> Any:
    """Return an array of C order."""
    return xp.reshape(xp.reshape(array, (-1,)), array.shape)
