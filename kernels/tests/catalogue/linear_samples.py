"""Samples of matmuls and convolutions."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

import tilewright as tw
import tilewright.language as tl
import tilewright_kernels as tk
from catalogue.sample import Sample, integers, normal

M, N, K = 37, 45, 70
GROUP_ENDS = np.array([0, 5, 5, 23], np.int32)


@tw.jit
def squared_relu(x):
    positive = tl.maximum(x, 0.0)
    return positive * positive


def _matmul_with_activation(**given: Any) -> Any:
    return tk.matmul(**given, activation=squared_relu)


def _matmul_with_activation_reference(**given: Any) -> Any:
    return tk.matmul_reference(**given, activation=lambda x: x.clip(0) * x.clip(0))


def _times_transposed(a: Any, b: Any) -> Any:
    return tk.matmul(a, b.T)


def _times_transposed_reference(a: Any, b: Any) -> Any:
    return a @ b.T


def _scaled_by_transposed(
    a: Any, b: Any, a_scale: Any, b_scale: Any, bias: Any, out_dtype: str
) -> Any:
    return tk.scaled_matmul(a, b.T, a_scale, b_scale, bias, out_dtype=out_dtype)


def _scaled_by_transposed_reference(a: Any, b: Any, a_scale: Any, b_scale: Any, bias: Any) -> Any:
    return tk.scaled_matmul_reference(a, b.T, a_scale, b_scale, bias)


def _quantize_reference(x: Any, block: Any, dtype: str) -> Any:
    return tk.quantize_reference(x, block or (1, x.shape[1]), dtype)


def _matmuls() -> list[Sample]:
    operands = {"a": normal(M, K), "b": normal(K, N, seed=1)}
    added = {"bias": normal(N, seed=2), "residual": normal(M, N, seed=3)}
    batch = {"a": normal(2, 9, 33), "b": normal(2, 33, 17, seed=1)}
    update = {
        "x": normal(2, 9, 33), "weight": normal(33, 20, seed=1), "a": normal(33, 4, seed=2),
        "b": normal(4, 20, seed=3), "bias": normal(20, seed=4),
    }  # fmt: skip
    matmul = (tk.matmul, tk.matmul_reference)
    return [
        Sample("matmul", *matmul, operands, wrt=("a", "b"), tolerance=20),
        Sample(
            "matmul epilogue", _matmul_with_activation, _matmul_with_activation_reference,
            {**operands, **added}, wrt=(*operands, *added), tolerance=100,
        ),
        Sample(
            "matmul wide", *matmul, {"a": normal(520, 264), "b": normal(264, 520, seed=1)},
            wrt=("a", "b"), tolerance=50, is_wide=True,
        ),
        Sample("matmul batch", *matmul, batch, wrt=("a", "b"), tolerance=20),
        Sample(
            "matmul row", _times_transposed, _times_transposed_reference,
            {"a": normal(1, 130), "b": normal(50, 130, seed=1)}, wrt=("a", "b"), tolerance=20,
            takes_out=False,
        ),
        Sample("matmul invariant", *matmul, operands, own={"invariant": True}, tolerance=20),
        Sample(
            "rms_norm_matmul", tk.rms_norm_matmul, tk.rms_norm_matmul_reference,
            {"x": normal(M, K), "w": normal(K, N, seed=1)}, wrt=("x", "w"), tolerance=50,
        ),
        Sample(
            "lora_matmul", tk.lora_matmul, tk.lora_matmul_reference, update, {"scale": 0.5},
            wrt=tuple(update), tolerance=50,
        ),
    ]  # fmt: skip


def _quantized() -> list[Sample]:
    q = integers(0, 16, 45, 96)
    words = {
        "a": normal(7, 96), "words": tk.pack_weights(q, 4),
        "scales": 0.5 + np.random.default_rng(1).random((45, 3)),
        "zeros": integers(0, 16, 45, 3, seed=2).astype(np.float64),
    }  # fmt: skip
    a, b = integers(-128, 128, 9, 256), integers(-128, 128, 256, 33, seed=1)
    scales = np.random.default_rng(2)
    blocks = {
        "a": a.astype(np.int8), "b": b.astype(np.int8), "a_scale": 0.5 + scales.random((9, 2)),
        "b_scale": 0.5 + scales.random((2, 1)), "bias": normal(33),
    }  # fmt: skip
    rows = {**blocks, "a_scale": blocks["a_scale"][:, :1], "b_scale": 0.5 + scales.random((1, 33))}
    row = {**blocks, "a": blocks["a"][:1], "b": np.ascontiguousarray(blocks["b"].T),
           "a_scale": blocks["a_scale"][:1]}  # fmt: skip
    scaled = (tk.scaled_matmul, tk.scaled_matmul_reference)
    quantized = (tk.quantized_matmul, tk.quantized_matmul_reference)
    result = {"out_dtype": "float32"}
    few = {**words, "a": normal(1, 96)}
    return [
        # half a step of int8
        Sample(
            "matmul_quantized", tk.matmul_quantized, tk.matmul_quantized_reference,
            {"a": normal(M, K), "b": normal(K, N, seed=1), "bias": normal(N, seed=2)},
            {"block": 32, "dtype": "int8"}, dtypes=("float32",), tolerance=5.2e4,
        ),
        Sample("quantized_matmul", *quantized, words, wrt=("a",), tolerance=500),
        Sample("quantized_matmul row", *quantized, few, wrt=("a",), tolerance=500),
        Sample(
            "scaled_matmul", *scaled, blocks, own=result, dtypes=("float32",), tolerance=1000,
        ),
        Sample(
            "scaled_matmul rows", *scaled, rows, own=result, dtypes=("float32",), tolerance=1000,
        ),
        Sample(
            "scaled_matmul row", _scaled_by_transposed, _scaled_by_transposed_reference, row,
            own=result, dtypes=("float32",), tolerance=1000, takes_out=False,
        ),
        # half a step of int8
        Sample(
            "quantize", tk.quantize, _quantize_reference, {"x": normal(9, 70)},
            {"block": (1, 32), "dtype": "int8"}, dtypes=("float32",), tolerance=5.1e4,
        ),
        # half a step of three bits behind the point
        Sample(
            "quantize_mx", tk.quantize_mx, tk.quantize_mx_reference, {"x": normal(9, 96)},
            dtypes=("float32",), tolerance=6.3e3,
        ),
    ]  # fmt: skip


def _groups() -> list[Sample]:
    grouped = (tk.grouped_matmul, tk.grouped_matmul_reference)
    packed = {"a": normal(23, 40), "b": normal(3, 40, 24, seed=1), "rows": GROUP_ENDS}
    padded = {
        "a": normal(3, 19, 33), "b": normal(3, 33, 21, seed=1),
        "rows": np.array([0, 19, 7], np.int32),
    }  # fmt: skip
    along_k = {"a": normal(23, 20), "b": normal(23, 17, seed=1), "rows": GROUP_ENDS}
    return [
        Sample("grouped_matmul", *grouped, packed, wrt=("a", "b"), tolerance=20),
        Sample("grouped_matmul padded", *grouped, padded, wrt=("a", "b"), tolerance=20),
        Sample(
            "k_grouped_matmul", tk.k_grouped_matmul, tk.k_grouped_matmul_reference, along_k,
            wrt=("a", "b"), tolerance=20,
        ),
    ]  # fmt: skip


def _convolutions() -> list[Sample]:
    image = {"x": normal(2, 7, 6, 5), "weight": normal(9, 7, 3, 2, seed=1), "bias": normal(9)}
    last = {**image, "x": np.ascontiguousarray(np.moveaxis(image["x"], 1, 3))}
    convolution = (tk.conv2d, tk.conv2d_reference)
    return [
        Sample(
            "conv2d", *convolution, image, {"stride": 2, "padding": 1}, wrt=tuple(image),
            tolerance=30,
        ),
        Sample(
            "conv2d channels_last", *convolution, last,
            {"padding": 2, "dilation": 2, "layout": "NHWC"}, wrt=tuple(image), tolerance=30,
        ),
    ]  # fmt: skip


@functools.cache
def linear_samples() -> list[Sample]:
    """Return samples of matmuls of floats, integers, packed weights and groups; convolutions."""
    return [*_matmuls(), *_quantized(), *_groups(), *_convolutions()]
