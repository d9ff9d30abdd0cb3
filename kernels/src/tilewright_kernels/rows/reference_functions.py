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
