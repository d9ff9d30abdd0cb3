"""The five classic kernels over a range of sizes against NumPy and PyTorch, in one process: ratios (rival's time over ours).

``--json FILE`` keeps the figures.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples"))

import numpy as np
from demo import best_times, torch
from kernels.attention import attention
from kernels.layer_norm import layer_norm
from kernels.matmul import matmul
from kernels.softmax import softmax
from kernels.vector_add import add

Calls = dict[str, Callable[[], object]]
RNG = np.random.default_rng(0)
F32 = np.float32


def normal(*shape: int) -> Any:
    return RNG.standard_normal(shape, dtype=F32)


def vector_add(n: int) -> Calls:
    x, y, out = normal(n), normal(n), np.empty(n, F32)
    calls: Calls = {"tilewright": lambda: add(x, y, out), "numpy": lambda: np.add(x, y, out=out)}
    if torch is not None:
        tx, ty, to = map(torch.from_numpy, (x, y, out))
        calls["torch"] = lambda: torch.add(tx, ty, out=to)
    return calls


def fused_softmax(rows: int, columns: int) -> Calls:
    x, out = normal(rows, columns), np.empty((rows, columns), F32)

    def by_hand() -> None:
        np.subtract(x, x.max(axis=1, keepdims=True), out=out)
        np.exp(out, out=out)
        np.divide(out, out.sum(axis=1, keepdims=True), out=out)

    calls: Calls = {"tilewright": lambda: softmax(x, out), "numpy": by_hand}
    if torch is not None:
        tx, to = map(torch.from_numpy, (x, out))
        calls["torch"] = lambda: torch.softmax(tx, 1, out=to)
    return calls


def norm(rows: int, columns: int) -> Calls:
    x, weight, bias, out = normal(rows, columns), normal(columns), normal(columns), np.empty((rows, columns), F32)
    mean, rstd = np.empty((2, rows), F32)

    def by_hand() -> Any:
        centred = x - x.mean(axis=1, keepdims=True)
        return centred / np.sqrt((centred * centred).mean(axis=1, keepdims=True) + 1e-5) * weight + bias

    calls: Calls = {"tilewright": lambda: layer_norm(x, weight, bias, out, mean, rstd), "numpy": by_hand}
    if torch is not None:
        tx, tw, tb = map(torch.from_numpy, (x, weight, bias))
        calls["torch"] = lambda: torch.nn.functional.layer_norm(tx, (columns,), tw, tb, 1e-5)
    return calls


def product(m: int, n: int, k: int) -> Calls:
    a, b, c = normal(m, k), normal(k, n), np.empty((m, n), F32)
    calls: Calls = {"tilewright": lambda: matmul(a, b, c), "numpy": lambda: np.matmul(a, b, out=c)}
    if torch is not None:
        ta, tb, tc = map(torch.from_numpy, (a, b, c))
        calls["torch"] = lambda: torch.mm(ta, tb, out=tc)
    return calls


def flash_attention(heads: int, length: int, head: int, causal: bool = False) -> Calls:
    q, k, v = normal(heads, length, head), normal(heads, length, head), normal(heads, length, head)
    out, lse = np.empty_like(q), np.empty((heads, length), F32)
    hidden = np.where(np.tril(np.ones((length, length), bool)), F32(0), F32(-np.inf)) if causal else F32(0)

    def by_hand() -> Any:
        scores = (q @ k.transpose(0, 2, 1)) * F32(head**-0.5) + hidden
        np.exp(scores - scores.max(axis=-1, keepdims=True), out=scores)
        scores /= scores.sum(axis=-1, keepdims=True)
        return scores @ v

    calls: Calls = {"tilewright": lambda: attention(q, k, v, out, lse, causal), "numpy": by_hand}
    if torch is not None:
        tq, tk, tv = (torch.from_numpy(array[None]) for array in (q, k, v))
        calls["torch"] = lambda: torch.nn.functional.scaled_dot_product_attention(tq, tk, tv, is_causal=causal)
    return calls


PROBLEMS: dict[str, tuple[Callable[..., Calls], list[tuple[int, ...]]]] = {
    "vector add": (vector_add, [(1 << 12,), (1 << 18,), (1 << 24,)]),
    "softmax": (fused_softmax, [(512, 1024), (4096, 781), (2048, 4096)]),
    "layer norm": (norm, [(512, 1024), (4096, 781), (2048, 4096)]),
    "matmul": (product, [(256, 256, 256), (512, 512, 512), (1000, 1000, 1000), (1024, 1024, 1024)]),
    "attention": (flash_attention, [(16, 512, 64), (8, 2048, 64)]),
    "causal": (partial(flash_attention, causal=True), [(8, 2048, 64)]),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--only", choices=PROBLEMS, help="one kernel")
    options = parser.parse_args()
    records = []
    for name, (make, sizes) in PROBLEMS.items():
        for size in sizes if options.only in (None, name) else []:
            times = best_times(make(*size))
            rivals = "".join(f"  {rival} {times[rival] / times['tilewright']:6.2f}x" for rival in times if rival != "tilewright")
            print(f"{name:12s} {'x'.join(map(str, size)):16s} {times['tilewright'] * 1e3:9.3f} ms{rivals}", flush=True)
            records.append({"kernel": name, "size": size, "seconds": times})
    if options.json:
        options.json.write_text(json.dumps(records, indent=1))


if __name__ == "__main__":
    main()
