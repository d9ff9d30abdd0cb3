"""71 comparisons of kernels that are the same algebra: their bits are the same on each backend."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest

import tilewright as tw
from tilewright.testing import same_algebra
from tilewright_conformance.kernels import exact_kernels as kernels

BACKENDS = ["reference", "cpu"]


class Launch(NamedTuple):
    kernel: Any
    arguments: tuple[Any, ...]
    grid: tuple[int, ...]
    constants: dict[str, Any]


class Pair(NamedTuple):
    """Two launches, and the number of their outputs."""

    name: str
    a: Launch
    b: Launch
    outputs: int = 1


def filled(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    """An array whose elements are drawn before each launch."""
    return np.ones(shape, dtype)


def matmuls() -> Iterator[Pair]:
    m, n, k = 35, 27, 45
    for dtype in (np.float16, np.float32):
        a, b, c = filled(m, k, dtype=dtype), filled(k, n, dtype=dtype), filled(m, n)

        def tiled(bm: int, bn: int, bk: int, group: int, args=(a, b, c, m, n, k)) -> Launch:
            grid = (tw.cdiv(m, bm) * tw.cdiv(n, bn),)
            block = {"BM": bm, "BN": bn, "BK": bk, "GROUP": group}
            return Launch(kernels.matmul_tiled, args, grid, block)

        name = f"matmul of {np.dtype(dtype)}"
        base = tiled(16, 16, 16, 1)
        for block in ((32, 32, 32, 2), (64, 16, 64, 1), (16, 32, 16, 3)):
            yield Pair(f"{name}: blocks of {block}", base, tiled(*block))
        scalar = Launch(kernels.matmul_scalar, (a, b, c, m, n, k), (m, n), {})
        yield Pair(f"{name}: element by element", scalar, base)
        split = Launch(split_k, (a, b, c, filled(3, m, n), m, n, k), (), {})
        yield Pair(f"{name}: split along K", base, split)


def split_k(a, b, c, parts, m, n, k) -> None:
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

            def flash(bm: int, bn: int, arguments=arguments, causal=causal) -> Launch:
                block = {"CAUSAL": causal, "BM": bm, "BN": bn, "HEAD": head}
                return Launch(kernels.flash, arguments, (tw.cdiv(length, bm), heads), block)

            for block in ((16, 16), (32, 16), (16, 32), (64, 64)):
                yield Pair(f"{name}: flash {block}", plain, flash(*block), 2)
                if block != (16, 16):
                    yield Pair(f"{name}: flash {block} and (16, 16)", flash(16, 16), flash(*block))


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


FAMILIES = (matmuls, softmaxes, layer_norms, attentions, cross_entropies, scans, activations)


def verdict_on(a: Launch, b: Launch, backend: str, **options: Any) -> Any:
    return same_algebra(
        a.kernel, b.kernel, a.arguments, b.arguments, grid=a.grid, grid_b=b.grid,
        constants=a.constants, constants_b=b.constants, backend=backend, **options,
    )  # fmt: skip


def test_there_are_71_comparisons() -> None:
    assert sum(pair.outputs for family in FAMILIES for pair in family()) == 71


@pytest.mark.each_value
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("family", FAMILIES, ids=[family.__name__ for family in FAMILIES])
def test_the_same_algebra_has_the_same_bits(family, backend) -> None:
    for pair in family():
        found = verdict_on(pair.a, pair.b, backend)
        assert found.status == "equal", f"{pair.name}: {found}"


@pytest.mark.parametrize("options", [{"carry": "int"}, {"dot": "i8"}], ids=["int", "i8"])
def test_other_carriers_and_dots_agree(options) -> None:
    pairs = [*matmuls(), *attentions()]
    for pair in (pairs[0], pairs[5], pairs[10]):
        found = verdict_on(pair.a, pair.b, "cpu", **options)
        assert found.status == "equal", f"{pair.name}: {found}"


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", [np.float16, np.float32])
@pytest.mark.parametrize("split", [1, 2, 5])
def test_atomic_split_k_adds_in_any_order(split, dtype, backend) -> None:
    m, n, k = 35, 27, 90
    a, b, c = (
        filled(m, k, dtype=np.float16),
        filled(k, n, dtype=np.float16),
        np.zeros((m, n), dtype),
    )
    whole = Launch(kernels.matmul_tiled, (a, b, c, m, n, k), (6,), {"BM": 16, "BN": 16, "BK": 16})
    parts = Launch(
        kernels.matmul_parts, (a, b, c, m, n, k), (3, 2, split),
        {"SPLIT": split, "BLOCK": 16, "ATOMIC": True},
    )  # fmt: skip
    found = verdict_on(whole, parts, backend)
    assert found.status == "equal", found
