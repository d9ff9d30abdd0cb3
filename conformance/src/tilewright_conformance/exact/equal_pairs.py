"""71 comparisons of kernels that are the same algebra: their bits are the same on each backend."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

import tilewright as tw
from tilewright_conformance.exact.launches import Launch, filled
from tilewright_conformance.kernels import exact_kernels as kernels


class Pair(NamedTuple):
    """Two launches of one algebra.

    Attributes:
        outputs: the number of arrays that are compared.
    """

    name: str
    a: Launch
    b: Launch
    outputs: int = 1


def matmuls() -> Iterator[Pair]:
    m, n, k = 35, 27, 45
    for dtype in (np.float16, np.float32):
        a, b, c = filled(m, k, dtype=dtype), filled(k, n, dtype=dtype), filled(m, n)

        name = f"matmul of {np.dtype(dtype)}"
        arguments = (a, b, c, m, n, k)
        base = tiled(arguments, 16, 16, 16, 1)
        for block in ((32, 32, 32, 2), (64, 16, 64, 1), (16, 32, 16, 3)):
            yield Pair(f"{name}: blocks of {block}", base, tiled(arguments, *block))
        scalar = Launch(kernels.matmul_scalar, arguments, (m, n), {})
        yield Pair(f"{name}: element by element", scalar, base)
        split = Launch(split_k, (a, b, c, filled(3, m, n), m, n, k), (), {})
        yield Pair(f"{name}: split along K", base, split)


def tiled(arguments: tuple[Any, ...], bm: int, bn: int, bk: int, group: int) -> Launch:
    *_, m, n, _ = arguments
    grid = (tw.cdiv(m, bm) * tw.cdiv(n, bn),)
    block = {"BM": bm, "BN": bn, "BK": bk, "GROUP": group}
    return Launch(kernels.matmul_tiled, arguments, grid, block)


def split_k(a: Any, b: Any, c: Any, parts: Any, m: int, n: int, k: int) -> None:
    grid = (tw.cdiv(m, 16), tw.cdiv(n, 16), 3)
    kernels.matmul_parts[grid](a, b, parts, m, n, k, SPLIT=3, BLOCK=16, ATOMIC=False)
    kernels.add_parts[(tw.cdiv(m * n, 256),)](parts, c, m * n, SPLIT=3, BLOCK=256)


def softmaxes() -> Iterator[Pair]:
    rows, n = 6, 301
    arguments = (filled(rows, n), filled(rows, n), n)
    base = Launch(kernels.softmax, arguments, (rows,), {"BLOCK": 512})
    yield Pair(
        "softmax: without a maximum",
        base,
        base._replace(constants={"BLOCK": 512, "MAXIMUM": False}),
    )
    for block in (64, 128, 512):
        online = Launch(kernels.softmax_online, arguments, (rows,), {"BLOCK": block})
        yield Pair(f"softmax: online, blocks of {block}", base, online)


def layer_norms() -> Iterator[Pair]:
    rows, n = 6, 300
    x, w, b = filled(rows, n, dtype=np.float16), filled(n), filled(n)
    out, mean, rstd = filled(rows, n), filled(rows), filled(rows)
    arguments = (x, out, w, b, mean, rstd, n)
    base = Launch(kernels.layer_norm, (*arguments, 1e-5), (rows,), {"BLOCK": 128})
    welford = Launch(kernels.layer_norm_welford, (*arguments, 1e-5), (rows,), {"BLOCK": 64})
    moments = Launch(
        kernels.layer_norm_moments, (*arguments, 1 / 300, 1e-5), (rows,), {"BLOCK": 512}
    )
    yield Pair("layer norm: Welford", base, welford, 3)
    yield Pair("layer norm: moments", base, moments, 3)


def attentions() -> Iterator[Pair]:
    heads, length, head = 2, 50, 16
    for dtype in (np.float32, np.float16):
        for causal in (False, True):
            q, k, v, out = (filled(heads, length, head, dtype=dtype) for _ in range(4))
            arguments = (q, k, v, out, filled(heads, length), head**-0.5, length)
            name = f"attention of {np.dtype(dtype)}{', causal' if causal else ''}"
            plain = Launch(
                kernels.attention, arguments, (length, heads),
                {"CAUSAL": causal, "LENGTH": 64, "HEAD": head},
            )  # fmt: skip
            smallest = (16, 16)
            for block in (smallest, (32, 16), (16, 32), (64, 64)):
                found = flash(arguments, causal, *block)
                yield Pair(f"{name}: flash {block}", plain, found, 2)
                if block != smallest:
                    first = flash(arguments, causal, *smallest)
                    yield Pair(f"{name}: flash {block} and {smallest}", first, found)


def flash(arguments: tuple[Any, ...], causal: bool, bm: int, bn: int) -> Launch:
    heads, length, head = arguments[0].shape
    block = {"CAUSAL": causal, "BM": bm, "BN": bn, "HEAD": head}
    return Launch(kernels.flash, arguments, (tw.cdiv(length, bm), heads), block)


def cross_entropies() -> Iterator[Pair]:
    rows, n = 6, 301
    target = np.arange(0, rows * 50, 50, dtype=np.int32)
    arguments = (filled(rows, n), target, filled(rows), n)
    base = Launch(kernels.cross_entropy, arguments, (rows,), {"BLOCK": 512})
    for block in (64, 128):
        online = Launch(kernels.cross_entropy_online, arguments, (rows,), {"BLOCK": block})
        yield Pair(f"cross entropy: online, blocks of {block}", base, online)


def scans() -> Iterator[Pair]:
    x, out = filled(1000), filled(1000)
    whole = Launch(kernels.prefix_whole, (x, out, 1000), (1,), {"BLOCK": 1024})
    for block in (32, 256):
        blocks = Launch(kernels.prefix_blocks, (x, out, 1000), (1,), {"BLOCK": block})
        yield Pair(f"prefix sum: blocks of {block}", whole, blocks)
    arguments = (filled(200), filled(200), filled(200), 200)
    loop = Launch(kernels.recurrence_loop, arguments, (1,), {})
    scan = Launch(kernels.recurrence_scan, arguments, (1,), {"BLOCK": 256})
    yield Pair("linear recurrence: scan", loop, scan)


def activations() -> Iterator[Pair]:
    arguments = (filled(500), filled(500), 500)
    for forms in (("silu", "silu by exp2"), ("gelu", "gelu by sigmoid")):
        a, b = (
            Launch(kernels.activation, arguments, (2,), {"BLOCK": 256, "FORM": form})
            for form in forms
        )
        yield Pair(f"{forms[0]}: {forms[1]}", a, b)


def atomic_split_k(split: int, dtype: Any) -> Pair:
    """A matmul whose parts along K are added atomically, beside the 71."""
    m, n, k = 35, 27, 90
    a, b = filled(m, k, dtype=np.float16), filled(k, n, dtype=np.float16)
    c = np.zeros((m, n), dtype)
    whole = Launch(kernels.matmul_tiled, (a, b, c, m, n, k), (6,), {"BM": 16, "BN": 16, "BK": 16})
    parts = Launch(
        kernels.matmul_parts, (a, b, c, m, n, k), (3, 2, split),
        {"SPLIT": split, "BLOCK": 16, "ATOMIC": True},
    )  # fmt: skip
    return Pair(f"matmul: {split} parts added atomically in {np.dtype(dtype)}", whole, parts)


FAMILIES = (matmuls, softmaxes, layer_norms, attentions, cross_entropies, scans, activations)
