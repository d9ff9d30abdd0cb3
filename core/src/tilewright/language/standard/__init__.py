"""The standard library, written in the language itself, by what its functions do.

The functions that run while a kernel is compiled are in ``extents`` and ``result_types``. What does
not live here: builtins, which give operations of the IR (``language.core``), mathematics of single
elements (``language.math``) and random numbers (``language.random``).
"""

from tilewright.language.standard.activations import sigmoid, softmax
from tilewright.language.standard.extents import log2 as _log2
from tilewright.language.standard.extrema import argmax, argmin, max, min
from tilewright.language.standard.extrema import argmax_combine as _argmax_combine
from tilewright.language.standard.extrema import argmin_combine as _argmin_combine
from tilewright.language.standard.indices import cdiv, swizzle2d
from tilewright.language.standard.rearrange import flip, interleave, ravel, squeeze, unsqueeze
from tilewright.language.standard.reductions import reduce_or, sum, xor_sum
from tilewright.language.standard.scans import cumprod, cumsum
from tilewright.language.standard.sorting import bitonic_merge, sort, sort_impl, topk
from tilewright.language.standard.zero_tensors import zeros, zeros_like

__all__ = [
    "_argmax_combine",
    "_argmin_combine",
    "_log2",
    "argmax",
    "argmin",
    "bitonic_merge",
    "cdiv",
    "cumprod",
    "cumsum",
    "flip",
    "interleave",
    "max",
    "min",
    "ravel",
    "reduce_or",
    "sigmoid",
    "softmax",
    "sort",
    "sort_impl",
    "squeeze",
    "sum",
    "swizzle2d",
    "topk",
    "unsqueeze",
    "xor_sum",
    "zeros",
    "zeros_like",
]
