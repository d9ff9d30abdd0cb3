"""Measure the time of the import and of first compilations on the CPU backend.

The interpreter is warm (Tilewright is imported and has compiled another kernel), and the disk cache
is empty. Each figure is the median of several compilations from the Python function to a callable:
source, analyses, code and launch plans are discarded before each. A figure above its limit is
marked. Limits are for an idle machine, and exceeding one does not fail the program.
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
from tilewright.runtime.storage.disk_cache import disk_cache

REPETITIONS = 7
#: Limits in milliseconds of a kernel's first launch, and of the import.
LIMITS = {"import tilewright": 100.0, "vector add": 40.0, "flash attention": 150.0}
F32 = np.float32


@tw.jit
def warm_up_kernel(x_ptr, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    tl.store(x_ptr + offsets, tl.load(x_ptr + offsets) + 1)


def import_time() -> float:
    """Return the milliseconds of ``import tilewright`` in a new process.

    The start of the interpreter is subtracted; the minimum of several runs counts.
    """

    def seconds(code: str) -> float:
        start = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], check=True)
        return time.perf_counter() - start

    return 1e3 * (
        min(seconds("import tilewright") for _ in range(REPETITIONS))
        - min(seconds("pass") for _ in range(REPETITIONS))
    )


def launches() -> dict[str, Callable[[], object]]:
    """Return functions that each launch a kernel on small arrays."""
    x, y, out = np.zeros((3, 64), F32)
    row = np.zeros((1, 64), F32)
    one = np.zeros(1, F32)
    square = np.zeros((64, 64), F32)
    heads = np.zeros((1, 64, 64), F32)
    return {
        "vector add": lambda: vector_add.add(x, y, out, block=1024),
        "fused softmax": lambda: softmax.softmax(row, np.empty_like(row)),
        "layer norm": lambda: layer_norm.layer_norm(row, x, y, np.empty_like(row), one, one.copy()),
        "matmul": lambda: matmul.matmul(square, square, np.empty_like(square), "leaky_relu"),
        "flash attention": lambda: attention.attention(
            heads, heads, heads, np.empty_like(heads), np.empty((1, 64), F32)
        ),
    }


def forget() -> None:
    """Discard all compiled kernels, in memory and on disk."""
    for module, name in (
        (vector_add, "add_kernel"),
        (softmax, "softmax_kernel"),
        (layer_norm, "layer_norm_kernel"),
        (matmul, "matmul_kernel"),
        (attention, "attention_kernel"),
    ):
        kernel = getattr(module, name)
        kernel.clear_cache()
        setattr(module, name, tw.jit(kernel.fn))  # the source is read again
    disk_cache().clear()


def report(name: str, milliseconds: float, details: str = "") -> None:
    """Print a figure with its limit, and whether it is within the limit."""
    limit = LIMITS.get(name)
    verdict = (
        ""
        if limit is None
        else f"limit {limit:.0f} ms: {'within' if milliseconds < limit else 'ABOVE'}"
    )
    print(f"{name:<18} {milliseconds:7.1f} ms  {verdict:21} {details}".rstrip())


def main() -> None:
    report("import tilewright", import_time())
    warm_up_kernel[(1,)](np.zeros(16, F32), BLOCK=16)
    for name, launch in launches().items():
        cold, warm = [], []
        for _ in range(REPETITIONS):
            forget()
            start = time.perf_counter()
            launch()
            cold.append(1e3 * (time.perf_counter() - start))
            start = time.perf_counter()
            launch()
            warm.append(1e6 * (time.perf_counter() - start))
        details = (
            f"median of {REPETITIONS}, {min(cold):.1f} to {max(cold):.1f}; a later launch "
            f"{min(warm):.0f} us"
        )
        report(name, statistics.median(cold), details)


if __name__ == "__main__":
    main()
