"""Functions of references that the array API standard does not have."""

from __future__ import annotations

import math
from typing import Any

import array_api_compat
import numpy as np


def erf(x: Any) -> Any:
    """Return the error function of each element."""
    if array_api_compat.is_torch_array(x):
        return x.erf()
    if array_api_compat.is_jax_array(x):
        from jax.scipy.special import erf as jax_erf

        return jax_erf(x)
    return np.vectorize(math.erf, otypes=[x.dtype])(x)


def uniform4x(counters: Any, seed: int) -> Any:
    """Return ``tl.rand4x(seed, counters)`` along a last axis: Philox of ten rounds, in NumPy."""
    low = np.uint64(0xFFFFFFFF)
    shift = np.uint64(32)
    words = [counters & low, counters >> shift, counters * np.uint64(0), counters * np.uint64(0)]
    keys = [np.uint64(seed & 0xFFFFFFFF), np.uint64((seed >> 32) & 0xFFFFFFFF)]
    for _ in range(10):
        even = words[0] * np.uint64(0xD2511F53)
        odd = words[2] * np.uint64(0xCD9E8D57)
        words = [
            (odd >> shift) ^ words[1] ^ keys[0],
            odd & low,
            (even >> shift) ^ words[3] ^ keys[1],
            even & low,
        ]
        keys = [
            (keys[0] + np.uint64(0x9E3779B9)) & low,
            (keys[1] + np.uint64(0xBB67AE85)) & low,
        ]
    signed = np.stack(words, axis=-1).astype(np.uint32).view(np.int32)
    magnitude = np.where(signed < 0, -signed - 1, signed)
    return magnitude.astype(np.float32) * np.float32(4.6566127342e-10)
