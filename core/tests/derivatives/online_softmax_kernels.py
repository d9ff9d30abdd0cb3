"""Kernels of the online softmax, and mutants of them whose references are no gauge."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

from tilewright.frontend.compile import compile_function
from tilewright.ir.core import Module
from tilewright.passes.pipeline import run as run_passes

HEADER = """
import tilewright as tw
import tilewright.language as tl


@tw.jit
"""

ATTENTION = (
    HEADER
    + """
def attention(
    q_ptr, k_ptr, v_ptr, out_ptr, lse_ptr, extra_ptr, scale, length,
    M: tl.constexpr, N: tl.constexpr, D: tl.constexpr,
):
    rows = tl.program_id(0) * M + tl.arange(0, M)
    dims = tl.arange(0, D)
    inside = rows < length
    q = tl.load(q_ptr + rows[:, None] * D + dims[None, :], mask=inside[:, None], other=0.0)
    highest = tl.full([M], -float("inf"), dtype=tl.float32)
    total = tl.zeros([M], dtype=tl.float32)
    acc = tl.zeros([M, D], dtype=tl.float32)
    for start in range(0, length, N):
        columns = start + tl.arange(0, N)
        there = columns < length
        at = columns[:, None] * D + dims[None, :]
        k = tl.load(k_ptr + at, mask=there[:, None], other=0.0)
        v = tl.load(v_ptr + at, mask=there[:, None], other=0.0)
        scores = tl.dot(q, tl.trans(k)) * scale
        scores = tl.where(there[None, :], scores, -float("inf"))
        higher = tl.maximum(highest, tl.max(scores, axis=1))
        correction = tl.exp2(highest - higher)
        weights = tl.exp2(scores - higher[:, None])
        total = total * correction + tl.sum(weights, axis=1)
        acc = tl.dot(weights, v, acc * correction[:, None])
        highest = higher
    out = acc / total[:, None]
    tl.store(lse_ptr + rows, highest + tl.log2(total), mask=inside)
    tl.store(out_ptr + rows[:, None] * D + dims[None, :], out, mask=inside[:, None])
"""
)

#: A loop over the keys of whole blocks, then one over the rest, with the same state.
TWO_LOOPS = (
    HEADER
    + """
def attention(
    q_ptr, k_ptr, v_ptr, out_ptr, lse_ptr, extra_ptr, scale, length,
    M: tl.constexpr, N: tl.constexpr, D: tl.constexpr,
):
    rows = tl.program_id(0) * M + tl.arange(0, M)
    dims = tl.arange(0, D)
    inside = rows < length
    q = tl.load(q_ptr + rows[:, None] * D + dims[None, :], mask=inside[:, None], other=0.0)
    highest = tl.full([M], -float("inf"), dtype=tl.float32)
    total = tl.full([M], 1.0, dtype=tl.float32)
    acc = tl.zeros([M, D], dtype=tl.float32)
    k_at = k_ptr + tl.arange(0, N)[:, None] * D + dims[None, :]
    for start in range(0, length // N * N, N):
        k = tl.load(k_at)
        v = tl.load(v_ptr + (start + tl.arange(0, N))[:, None] * D + dims[None, :])
        scores = tl.dot(q, tl.trans(k)) * scale
        higher = tl.maximum(highest, tl.max(scores, axis=1))
        correction = tl.exp2(highest - higher)
        weights = tl.exp2(scores - higher[:, None])
        total = total * correction + tl.sum(weights, axis=1)
        acc = tl.dot(weights, v, acc * correction[:, None])
        highest = higher
        k_at += N * D
    for start in range(length // N * N, length, N):
        columns = start + tl.arange(0, N)
        there = columns < length
        k = tl.load(k_at, mask=there[:, None], other=0.0)
        v = tl.load(v_ptr + columns[:, None] * D + dims[None, :], mask=there[:, None], other=0.0)
        scores = tl.where(there[None, :], tl.dot(q, tl.trans(k)) * scale, -float("inf"))
        higher = tl.maximum(highest, tl.max(scores, axis=1))
        correction = tl.exp2(highest - higher)
        weights = tl.exp2(scores - higher[:, None])
        total = total * correction + tl.sum(weights, axis=1)
        acc = tl.dot(weights, v, acc * correction[:, None])
        highest = higher
        k_at += N * D
    out = acc / total[:, None]
    tl.store(lse_ptr + rows, highest + tl.log2(total), mask=inside)
    tl.store(out_ptr + rows[:, None] * D + dims[None, :], out, mask=inside[:, None])
"""
)

SOFTMAX = (
    HEADER
    + """
def softmax(x_ptr, out_ptr, extra_ptr, columns, BLOCK: tl.constexpr):
    at = tl.program_id(0) * columns + tl.arange(0, BLOCK)
    inside = tl.arange(0, BLOCK) < columns
    x = tl.load(x_ptr + at, mask=inside, other=-float("inf"))
    e = tl.exp(x - tl.max(x, axis=0))
    tl.store(out_ptr + at, e / tl.sum(e, axis=0), mask=inside)
"""
)

ATTENTION_TYPES = {
    **dict.fromkeys(("q_ptr", "k_ptr", "v_ptr", "out_ptr", "lse_ptr", "extra_ptr"), "*fp32"),
    "scale": "fp32",
    "length": "i32",
}
SOFTMAX_TYPES = {**dict.fromkeys(("x_ptr", "out_ptr", "extra_ptr"), "*fp32"), "columns": "i32"}


def module_of(
    folder: Path, source: str, types: dict[str, str], constants: dict[str, Any]
) -> Module:
    """Compile the kernel of a source text to Tile IR."""
    name = next(line for line in source.split("\n") if line.startswith("def "))[4:].split("(")[0]
    path = folder / "kernel_source.py"
    path.write_text(source)
    spec = importlib.util.spec_from_file_location("kernel_source", path)
    assert spec is not None
    assert spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    kernel = getattr(loaded, name)
    types = {**types, **dict.fromkeys(constants, "constexpr")}
    module = compile_function(kernel, {name: types[name] for name in kernel.arg_names}, constants)
    run_passes(module)
    return module
