"""How long importing takes, and compiling a kernel for the first time: the whole way from source to a callable, on the CPU backend.

The interpreter is warm (Tilewright imported, another kernel compiled), the disk cache empty. Each figure is the median of several fresh kernels.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

os.environ["TILEWRIGHT_CACHE_DIR"] = tempfile.mkdtemp(prefix="tilewright-bench-")
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples"))

import numpy as np
from kernels import attention, layer_norm, matmul, softmax, vector_add

import tilewright as tw
import tilewright.language as tl
from tilewright.runtime.cache import disk_cache

REPETITIONS = 7
F32 = np.float32


@tw.jit
def warm_up_kernel(x_ptr, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    tl.store(x_ptr + offsets, tl.load(x_ptr + offsets) + 1)


def import_time() -> float:
    """Milliseconds of ``import tilewright`` in a fresh process, less a bare interpreter's start; the best of several."""

    def seconds(code: str) -> float:
        start = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], check=True)
        return time.perf_counter() - start

    return 1e3 * (min(seconds("import tilewright") for _ in range(REPETITIONS)) - min(seconds("pass") for _ in range(REPETITIONS)))


def launches() -> dict[str, Callable[[int], object]]:
    """Each launches a kernel on small arrays; the number makes a compilation of its own (it changes a block size's companion)."""
    x, y, out = np.zeros((3, 64), F32)
    row = np.zeros((1, 64), F32)
    one = np.zeros(1, F32)
    square = np.zeros((64, 64), F32)
    heads = np.zeros((1, 64, 64), F32)
    return {
        "vector add": lambda k: vector_add.add(x, y, out, block=1024),
        "fused softmax": lambda k: softmax.softmax(row, np.empty_like(row)),
        "layer norm": lambda k: layer_norm.layer_norm(row, x, y, np.empty_like(row), one, one.copy()),
        "matmul": lambda k: matmul.matmul(square, square, np.empty_like(square), "leaky_relu"),
        "flash attention": lambda k: attention.attention(heads, heads, heads, np.empty_like(heads), np.empty((1, 64), F32)),
    }


def forget() -> None:
    """Make every kernel new: drop compiled kernels in memory and on disk."""
    for kernel in (vector_add.add_kernel, softmax.softmax_kernel, layer_norm.layer_norm_kernel, matmul.matmul_kernel, attention.attention_kernel):
        kernel.device_caches.clear()
    disk_cache().clear()


def main() -> None:
    limits = {"vector add": 40.0, "flash attention": 150.0}
    print(f"import tilewright: {import_time():.1f} ms (limit 100)")
    warm_up_kernel[(1,)](np.zeros(16, F32), BLOCK=16)
    for name, launch in launches().items():
        cold, warm = [], []
        for repetition in range(REPETITIONS):
            forget()
            start = time.perf_counter()
            launch(repetition)
            cold.append(time.perf_counter() - start)
            start = time.perf_counter()
            launch(repetition)
            warm.append(time.perf_counter() - start)
        limit = f" (limit {limits[name]:.0f})" if name in limits else ""
        print(f"{name}: first {1e3 * cold[0]:.1f} ms, median of {REPETITIONS} {1e3 * statistics.median(cold):.1f} ms{limit}, launch {1e6 * min(warm):.0f} us")


if __name__ == "__main__":
    main()
