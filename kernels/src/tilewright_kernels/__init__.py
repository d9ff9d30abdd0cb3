"""Kernels for training and serving, on every backend of Tilewright."""

from __future__ import annotations

from tilewright_kernels.linear.grouped_matmul import (
    grouped_matmul,
    grouped_matmul_reference,
    k_grouped_matmul,
    k_grouped_matmul_reference,
)
from tilewright_kernels.linear.matmul import matmul, matmul_reference
from tilewright_kernels.linear.quantize import quantize, quantize_reference
from tilewright_kernels.linear.scaled_matmul import scaled_matmul, scaled_matmul_reference
from tilewright_kernels.reductions.extrema import (
    argmax,
    argmax_reference,
    argmin,
    argmin_reference,
    max,
    max_reference,
    min,
    min_reference,
)
from tilewright_kernels.reductions.sum_and_mean import mean, mean_reference, sum, sum_reference
from tilewright_kernels.reductions.variances import var, var_reference
from tilewright_kernels.rows.rms_norm import rms_norm, rms_norm_reference

__all__ = [
    "argmax",
    "argmax_reference",
    "argmin",
    "argmin_reference",
    "grouped_matmul",
    "grouped_matmul_reference",
    "k_grouped_matmul",
    "k_grouped_matmul_reference",
    "matmul",
    "matmul_reference",
    "max",
    "max_reference",
    "mean",
    "mean_reference",
    "min",
    "min_reference",
    "quantize",
    "quantize_reference",
    "rms_norm",
    "rms_norm_reference",
    "scaled_matmul",
    "scaled_matmul_reference",
    "sum",
    "sum_reference",
    "var",
    "var_reference",
]
