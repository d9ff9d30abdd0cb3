"""Philox-4x in Python's integers, and random numbers derived from its words.

The algorithm is J. Salmon et al., Parallel random numbers: as easy as 1, 2, 3, SC 2011.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: bits of a word -> the two multipliers, the increments of the two words of the key
_CONSTANTS = {
    32: (0xD2511F53, 0xCD9E8D57, 0x9E3779B9, 0xBB67AE85),
    64: (0xD2E7470EE14C6C93, 0xCA5A826395121157, 0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B),
}


def philox(
    counter: Sequence[Any], key: tuple[int, int], bits: int = 32, rounds: int = 10
) -> NDArray[Any]:
    """The four words of each counter, shape [4, n].

    Args:
        counter: its four words, each a number or an array of n.
        key: its two words.
    """
    dtype = np.uint32 if bits == 32 else np.uint64
    mask = (1 << bits) - 1
    first, second, step0, step1 = _CONSTANTS[bits]
    c0, c1, c2, c3 = (
        np.array([int(value) for value in np.ravel(word)], object)
        for word in np.broadcast_arrays(*map(np.atleast_1d, counter))
    )
    k0, k1 = key
    for _ in range(rounds):
        a, b = c0 * first, c2 * second
        c0, c1, c2, c3 = (b >> bits) ^ c1 ^ k0, b & mask, (a >> bits) ^ c3 ^ k1, a & mask
        k0, k1 = (k0 + step0) & mask, (k1 + step1) & mask
    return np.array([c0, c1, c2, c3]).astype(dtype)


def words(seed: int, offset: NDArray[Any], rounds: int = 10) -> NDArray[np.uint32]:
    """Compute the words that ``randint4x`` returns.

    The seed's 64 bits are the key, an offset's lower and upper 32 bits the first two words of the
    counter.
    """
    unsigned = offset.view(f"u{offset.dtype.itemsize}").astype(np.uint64)
    low, high = (unsigned >> np.uint64(shift) & np.uint64(0xFFFFFFFF) for shift in (0, 32))
    return philox((low, high, 0, 0), (seed & 0xFFFFFFFF, seed >> 32 & 0xFFFFFFFF), rounds=rounds)


def uniform(bits: NDArray[Any]) -> NDArray[np.float32]:
    """Random bits as fp32 in [0, 1).

    The negative half is folded onto the other, times just less than 2**-31 or 2**-63.
    """
    signed = bits.view(f"i{bits.dtype.itemsize}")
    scale = np.float32(4.6566127342e-10 if bits.dtype.itemsize == 4 else 1.0842020432385337e-19)
    return np.asarray(np.where(signed < 0, ~signed, signed).astype(np.float32) * scale)


def normal(
    first: NDArray[np.float32], second: NDArray[np.float32]
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Two numbers of the normal distribution from two uniform ones, and the length of their vector.

    The method is that of G. Box and M. Muller (1958).
    """
    radius = np.sqrt(-2.0 * np.log(np.maximum(first, np.float32(1e-7)).astype(np.float64)))
    angle = 6.283185307179586 * second.astype(np.float64)
    return radius * np.cos(angle), radius * np.sin(angle), radius
