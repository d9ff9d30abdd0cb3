"""Calls whose blocks are tuned: sizes that models and servers have."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

import tilewright_kernels as tk

#: Rules of the blocks of attention's backward pass.
_GRADIENT_RULES = (
    "attention_gradients",
    "attention_key_gradients",
    "attention_query_gradients",
)

#: Name -> function of a matrix whose tiles of rows are tuned.
_ROWS: dict[str, Callable[[Any], Any]] = {
    "rms_norm": tk.rms_norm,
    "layer_norm": tk.layer_norm,
    "softmax": tk.softmax,
    "l2_norm": tk.l2_norm,
    "rms_norm_quantized": functools.partial(tk.rms_norm_quantized, dtype="int8"),
}
#: Elements of a tile of rows or of a reduction at most, where there are several.
_MOST = 1 << 15


class Arrays:
    """Makes random arrays: of NumPy, or of PyTorch on a GPU.

    Args:
        is_on_gpu: whether they lie on the GPU.
    """

    def __init__(self, is_on_gpu: bool) -> None:
        self.is_on_gpu = is_on_gpu
        self.floats = "bfloat16" if is_on_gpu else "float32"
        self._rng = np.random.default_rng(0)

    def normal(self, *shape: int, dtype: str = "") -> Any:
        """Return normally distributed numbers, of :attr:`floats` unless another type is named."""
        if not self.is_on_gpu:
            return self._rng.standard_normal(shape, np.float32).astype(dtype or self.floats)
        import torch

        return torch.randn(shape, device="cuda").to(getattr(torch, dtype or self.floats))

    def integers(self, high: int, *shape: int) -> Any:
        """Return integers of int32 from 0 to below ``high``."""
        return self.moved(self._rng.integers(0, high, shape).astype(np.int32))

    def moved(self, array: Any) -> Any:
        """Return an array of NumPy where the others are."""
        if not self.is_on_gpu:
            return array
        import torch

        return torch.from_numpy(array).cuda()


@dataclass(frozen=True)
class TuningCase:
    """A call that reaches a rule.

    Attributes:
        rule: the name of the rule.
        name: what the call is, for people.
        prepare: makes the arrays, and returns the call.
    """

    rule: str
    name: str
    prepare: Callable[[], Callable[[], Any]]


def is_legal(rule: str, blocks: Any, arguments: Mapping[str, Any]) -> bool:
    """Return whether kernels are right with blocks of a rule for all sizes that a record covers."""
    if rule == "attention":
        return bool(blocks.m % blocks.n == 0)
    if rule in ("matmul", "scaled_matmul"):
        has_two_accumulators = blocks.n != blocks.first
        if has_two_accumulators and (rule == "scaled_matmul" or not blocks.is_persistent):
            return False
        may_split = arguments.get("may_split", True) and not blocks.is_persistent
        return blocks.split == 1 or may_split
    if rule == "rows":
        return blocks.rows == 1 or (not blocks.is_wide and blocks.rows * blocks.block <= _MOST)
    if rule == "reductions":
        return bool(blocks.kept * blocks.reduced <= _MOST)
    if rule == "quantized_matmul":
        return 32 <= blocks.k <= 128  # groups of scales may be as short as 128
    return True


def cases(arrays: Arrays) -> Iterator[TuningCase]:
    """Yield the cases of a device, small ones on a CPU."""
    gpu = arrays.is_on_gpu
    sides = (1024, 2048, 4096) if gpu else (256, 512)
    for m, n, k in [(side, side, side) for side in sides] + [
        (m, sides[-1], sides[-1]) for m in ((16, 64, 256) if gpu else (16,))
    ]:
        name = f"{m} x {n} x {k}"
        yield TuningCase("matmul", name, functools.partial(_matmul, arrays, m, n, k))
    width = 4096 if gpu else 512
    for m in (4, 16, 256) if gpu else (16,):
        name = f"{m} x {width} x {width}"
        prepare = functools.partial(_quantized, arrays, m, width, width)
        yield TuningCase("quantized_matmul", name, prepare)
        if gpu:
            prepare = functools.partial(_scaled, arrays, m, width, width)
            yield TuningCase("scaled_matmul", name, prepare)
    for rows in (2048, 8192) if gpu else (256,):
        for dims in (64, 128):
            for causal in (False, True):
                name = f"{rows} rows of {dims}{', causal' if causal else ''}"
                prepare = functools.partial(_attention, arrays, rows, dims, causal)
                yield TuningCase("attention", name, prepare)
    for dims in (64, 128):
        for rule in _GRADIENT_RULES if gpu else ():
            deterministic = rule != "attention_gradients"
            prepare = functools.partial(_gradients, arrays, 4096, dims, deterministic)
            yield TuningCase(rule, f"4096 rows of {dims}", prepare)
    for batch, keys in ((16, 8192), (128, 2048)) if gpu else ((4, 1024),):
        prepare = functools.partial(_decode, arrays, batch, keys)
        yield TuningCase("attention_with_kv_cache", f"{batch} sequences of {keys}", prepare)
    yield from _row_cases(arrays)


def _row_cases(arrays: Arrays) -> Iterator[TuningCase]:
    """Yield the cases of rows and of reductions."""
    gpu = arrays.is_on_gpu
    elements = 1 << (26 if gpu else 18)
    for columns in (256, 1024, 4096, 8192, 16384) if gpu else (256, 4096):
        shape = (elements // columns, columns)
        for name, function in _ROWS.items():
            prepare = functools.partial(_of_rows, arrays, function, shape)
            yield TuningCase("rows", f"{name} of {columns} columns", prepare)
    side = math.isqrt(elements)
    for shape in ((side, side), (elements >> 6, 1 << 6), (1 << 6, elements >> 6)):
        for axis in (0, 1):
            name = f"sum of {shape[0]} x {shape[1]}, axis {axis}"
            function = functools.partial(tk.sum, axis=axis)
            yield TuningCase(
                "reductions", name, functools.partial(_of_rows, arrays, function, shape)
            )


def _of_rows(arrays: Arrays, function: Any, shape: tuple[int, int]) -> Callable[[], Any]:
    x = arrays.normal(*shape)
    return lambda: function(x)


def _matmul(arrays: Arrays, m: int, n: int, k: int) -> Callable[[], Any]:
    a, b = arrays.normal(m, k), arrays.normal(n, k).T
    return lambda: tk.matmul(a, b)


def _quantized(arrays: Arrays, m: int, n: int, k: int) -> Callable[[], Any]:
    words = tk.pack_weights(arrays.integers(16, n, k), 4)
    a, scales = arrays.normal(m, k), arrays.normal(n, k // 128)
    return lambda: tk.quantized_matmul(a, words, scales)


def _scaled(arrays: Arrays, m: int, n: int, k: int) -> Callable[[], Any]:
    a, b = (arrays.normal(*shape, dtype="float8_e4m3fn") for shape in ((m, k), (n, k)))
    a_scale = arrays.normal(m, k // 128, dtype="float32")
    b_scale = arrays.normal(k // 128, n // 128, dtype="float32")
    return lambda: tk.scaled_matmul(a, b.T, a_scale, b_scale)


def _heads(arrays: Arrays, rows: int, dims: int) -> tuple[Any, Any, Any]:
    heads = 2048 // dims if arrays.is_on_gpu else 2
    batch = max(16384 // rows, 1) if arrays.is_on_gpu else 1
    shape = (batch, rows, heads, dims)
    return arrays.normal(*shape), arrays.normal(*shape), arrays.normal(*shape)


def _attention(arrays: Arrays, rows: int, dims: int, causal: bool) -> Callable[[], Any]:
    q, k, v = _heads(arrays, rows, dims)
    return lambda: tk.attention(q, k, v, causal=causal)


def _gradients(arrays: Arrays, rows: int, dims: int, deterministic: bool) -> Callable[[], Any]:
    q, k, v = given = [each.requires_grad_() for each in _heads(arrays, rows, dims)]
    out = tk.attention(q, k, v, causal=True, deterministic=deterministic)
    dout = arrays.normal(*out.shape)

    def call() -> Any:
        import torch

        return torch.autograd.grad(out, given, dout, retain_graph=True)

    return call


def _decode(arrays: Arrays, batch: int, keys: int) -> Callable[[], Any]:
    page, heads, key_heads, dims = 16, (32 if arrays.is_on_gpu else 8), 4, 128
    pages = batch * keys // page
    q = arrays.normal(batch, 1, heads, dims)
    k, v = (arrays.normal(pages, page, key_heads, dims) for _ in range(2))
    order = np.random.default_rng(1).permutation(pages).astype(np.int32)
    table = arrays.moved(order.reshape(batch, math.ceil(keys / page)))
    lengths = arrays.moved(np.full(batch, keys, np.int32))
    return lambda: tk.attention_with_kv_cache(q, k, v, lengths, table, causal=True)
