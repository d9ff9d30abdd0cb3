"""Compare kernels with NumPy, PyTorch, torch.compile and Numba over a range of sizes.

Each line has the rivals' times divided by ours (above 1: ours is faster), from the medians and in
brackets from the best rounds, and the fraction of the measured peak rates that our kernel reaches.
All contenders run in one process in alternating rounds, so that they run under the same conditions.
Rivals that are not installed are omitted.

    sweep.py                          all kernels, all threads
    sweep.py --threads 1 --only matmul --json matmul.json
    sweep.py --compile --plot sweep.png
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples"))

# Threads of NumPy's library that spin for more work would take the processors from the contender
# that runs next. The library reads this setting when it is loaded.
if "numpy" not in sys.modules:
    os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "4")

import numpy as np

import tilewright as tw
import tilewright.language as tl

F32 = np.float32
RNG = np.random.default_rng(0)
#: Calls after which a kernel uses its final launcher, and a library has started its threads.
_CALLS_TO_LEARN = 10
Calls = dict[str, Callable[[], object]]


@tw.jit
def byte_matmul_kernel(
    a_ptr,
    b_ptr,
    c_ptr,
    M,
    N,
    K,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    k = tl.arange(0, BLOCK_K)
    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.int32)
    for start in range(0, K, BLOCK_K):
        here = start + k
        a = tl.load(
            a_ptr + rows[:, None] * K + here[None, :],
            mask=(rows[:, None] < M) & (here[None, :] < K),
            other=0,
        )
        b = tl.load(
            b_ptr + here[:, None] * N + columns[None, :],
            mask=(here[:, None] < K) & (columns[None, :] < N),
            other=0,
        )
        total = tl.dot(a, b, total)
    tl.store(
        c_ptr + rows[:, None] * N + columns[None, :],
        total,
        mask=(rows[:, None] < M) & (columns[None, :] < N),
    )


def byte_matmul(a: Any, b: Any, c: Any, block: tuple[int, int, int] = (128, 128, 64)) -> Any:
    """Compute ``c = a @ b`` of bytes with a 32-bit accumulator."""
    (m, k), n = a.shape, b.shape[1]
    byte_matmul_kernel[tw.cdiv(m, block[0]), tw.cdiv(n, block[1])](
        a, b, c, m, n, k, BLOCK_M=block[0], BLOCK_N=block[1], BLOCK_K=block[2]
    )
    return c


@dataclass(frozen=True)
class Case:
    """One kernel at one size, with its contenders, operations and minimum memory traffic."""

    kernel: str
    size: str
    calls: Calls
    flops: float
    bytes: float


@dataclass(frozen=True)
class Row:
    """Measured case: median and minimum seconds per call, and our best fraction of the roofline."""

    kernel: str
    size: str
    seconds: dict[str, float]
    least: dict[str, float]
    of_roof: float


def normal(*shape: int) -> Any:
    return RNG.standard_normal(shape, dtype=F32)


class Sweep:
    """Cases of the sweep.

    ``torch`` and ``numba`` are the modules, or None if they are omitted; ``compiled`` adds
    torch.compile.
    """

    def __init__(self, torch: Any, numba: Any, compiled: bool) -> None:
        self.torch, self.numba, self.compiled = torch, numba, compiled

    def rivals(self, calls: Calls, function: Callable[..., Any], *arrays: Any) -> Calls:
        """Add a PyTorch function, both eager and compiled."""
        if self.torch is not None:
            given = [
                self.torch.from_numpy(array) if isinstance(array, np.ndarray) else array
                for array in arrays
            ]
            calls["torch"] = lambda: function(*given)
            if self.compiled:
                fused = self.torch.compile(function, dynamic=False)
                calls["torch.compile"] = lambda: fused(*given)
        return calls

    def vector_add(self) -> Iterator[Case]:
        from kernels.vector_add import add

        together: Any = None
        if self.numba is not None:
            prange = self.numba.prange

            @self.numba.njit(parallel=True, fastmath=True)
            def together(x: Any, y: Any, out: Any) -> None:
                for i in prange(x.size):
                    out[i] = x[i] + y[i]

        for n in (1 << 12, 1 << 16, 1 << 18, 1 << 20, 1 << 24):
            x, y, out = normal(n), normal(n), np.empty(n, F32)
            calls: Calls = {
                "tilewright": lambda x=x, y=y, out=out: add(x, y, out),
                "numpy": lambda x=x, y=y, out=out: np.add(x, y, out=out),
            }
            if self.torch is not None:
                tx, ty, to = map(self.torch.from_numpy, (x, y, out))
                calls["torch"] = lambda tx=tx, ty=ty, to=to: self.torch.add(tx, ty, out=to)
            if together is not None:
                calls["numba"] = lambda x=x, y=y, out=out, together=together: together(x, y, out)
            yield Case("vector add", str(n), calls, n, 12 * n)

    def softmax(self) -> Iterator[Case]:
        from kernels.softmax import softmax

        for rows, columns in ((512, 1024), (4096, 781), (2048, 4096)):
            x, out = normal(rows, columns), np.empty((rows, columns), F32)

            def by_hand(x: Any = x, out: Any = out) -> None:
                np.subtract(x, x.max(axis=1, keepdims=True), out=out)
                np.exp(out, out=out)
                np.divide(out, out.sum(axis=1, keepdims=True), out=out)

            calls: Calls = {"tilewright": lambda x=x, out=out: softmax(x, out), "numpy": by_hand}
            if self.torch is not None:
                self.rivals(calls, lambda t: self.torch.softmax(t, 1), x)
            yield Case("softmax", f"{rows}x{columns}", calls, 12 * x.size, 8 * x.size)

    def layer_norm(self) -> Iterator[Case]:
        from kernels.layer_norm import layer_norm

        for rows, columns in ((512, 1024), (4096, 781), (2048, 4096)):
            x, weight, bias, out = (
                normal(rows, columns),
                normal(columns),
                normal(columns),
                np.empty((rows, columns), F32),
            )
            mean, rstd = np.empty((2, rows), F32)

            def by_hand(x: Any = x, weight: Any = weight, bias: Any = bias) -> Any:
                centred = x - x.mean(axis=1, keepdims=True)
                return (
                    centred
                    / np.sqrt((centred * centred).mean(axis=1, keepdims=True) + 1e-5)
                    * weight
                    + bias
                )

            ours = (x, weight, bias, out, mean, rstd)
            calls: Calls = {"tilewright": lambda ours=ours: layer_norm(*ours), "numpy": by_hand}
            if self.torch is not None:
                self.rivals(
                    calls,
                    lambda t, w, b: self.torch.nn.functional.layer_norm(
                        t, (t.shape[-1],), w, b, 1e-5
                    ),
                    x,
                    weight,
                    bias,
                )
            yield Case("layer norm", f"{rows}x{columns}", calls, 8 * x.size, 8 * x.size)

    def fused(self) -> Iterator[Case]:
        from fused import cross_entropy, dropout, gelu, rms_norm

        functions = None if self.torch is None else self.torch.nn.functional
        for rows, columns in ((512, 1024), (4096, 781), (2048, 4096)):
            x, weight, out, loss = (
                normal(rows, columns),
                normal(columns),
                np.empty((rows, columns), F32),
                np.empty(rows, F32),
            )
            target = RNG.integers(0, columns, rows)
            cases: tuple[tuple[str, Calls, Callable[..., Any], tuple[Any, ...], int], ...] = (
                ("rms norm", {"tilewright": lambda x=x, w=weight, o=out: rms_norm(x, w, o)},
                 lambda t, w: functions.rms_norm(t, (t.shape[-1],), w, 1e-5), (x, weight), 8),
                ("gelu", {"tilewright": lambda x=x, o=out: gelu(x, o)},
                 lambda t: functions.gelu(t), (x,), 8),
                ("dropout", {"tilewright": lambda x=x, o=out: dropout(x, o)},
                 lambda t: functions.dropout(t, 0.1), (x,), 8),
                ("cross entropy",
                 {"tilewright": lambda x=x, t=target, o=loss: cross_entropy(x, t, o)},
                 lambda t, target: functions.cross_entropy(t, target, reduction="none"),
                 (x, target), 4),
            )  # fmt: skip
            for kernel, calls, function, arrays, moved in cases:
                if functions is not None:
                    self.rivals(calls, function, *arrays)
                yield Case(kernel, f"{rows}x{columns}", calls, 12 * x.size, moved * x.size)

    def matmul(self) -> Iterator[Case]:
        from kernels.matmul import matmul

        sizes = [(n, n, n) for n in (130, 256, 512, 1000, 1023, 1024, 2048)]
        for m, n, k in (*sizes, (77, 4096, 4096), (1, 4096, 4096)):
            a, b, c = normal(m, k), normal(k, n), np.empty((m, n), F32)
            calls: Calls = {
                "tilewright": lambda a=a, b=b, c=c: matmul(a, b, c),
                "numpy": lambda a=a, b=b, c=c: np.matmul(a, b, out=c),
            }
            if self.torch is not None:
                self.rivals(calls, self.torch.mm, a, b)
            yield Case(
                "matmul f32", f"{m}x{n}x{k}", calls, 2 * m * n * k, 4 * (m * k + k * n + m * n)
            )

    def narrow_matmul(self) -> Iterator[Case]:
        from kernels.matmul import matmul

        if self.torch is None:
            return
        torch = self.torch
        cubes = [(n, n, n) for n in (130, 256, 512, 1000, 1023, 1024, 2048, 4096)]
        for kind, shapes in (
            ("bfloat16", (*cubes, (77, 4096, 4096), (1, 4096, 4096))),
            ("float16", cubes[2:6]),
        ):
            for m, n, k in shapes:
                a, b = (torch.randn(*shape).to(getattr(torch, kind)) for shape in ((m, k), (k, n)))
                c = torch.empty(m, n, dtype=a.dtype)
                calls: Calls = {
                    "tilewright": lambda a=a, b=b, c=c: matmul(a, b, c),
                    "torch": lambda a=a, b=b: torch.mm(a, b),
                }
                yield Case(
                    f"matmul {kind}",
                    f"{m}x{n}x{k}",
                    calls,
                    2 * m * n * k,
                    2 * (m * k + k * n + m * n),
                )
        for n in (512, 1000, 1024, 2048):
            a, b = (torch.randint(-128, 128, (n, n), dtype=torch.int8) for _ in range(2))
            c = torch.empty(n, n, dtype=torch.int32)
            calls = {
                "tilewright": lambda a=a, b=b, c=c: byte_matmul(a, b, c),
                "torch": lambda a=a, b=b: torch._int_mm(a, b),
            }
            yield Case("matmul int8", f"{n}x{n}x{n}", calls, 2 * n**3, 6 * n * n)

    def tile_sizes(self) -> Iterator[Case]:
        from kernels.matmul import matmul

        for kind in ("f32", *(("bf16",) if self.torch is not None else ())):
            matrices = [normal(1024, 1024), normal(1024, 1024), np.empty((1024, 1024), F32)]
            if kind == "bf16":
                matrices = [
                    self.torch.from_numpy(matrix).to(self.torch.bfloat16) for matrix in matrices
                ]
            for block in (
                (32, 32, 32),
                (64, 64, 32),
                (64, 64, 64),
                (128, 128, 32),
                (128, 128, 64),
                (128, 256, 64),
                (256, 256, 32),
            ):
                calls: Calls = {
                    "tilewright": lambda block=block, matrices=matrices: matmul(
                        *matrices, block=block
                    ),
                    "128x128x64": lambda matrices=matrices: matmul(*matrices),
                }
                yield Case(
                    f"tile size {kind}", "x".join(map(str, block)), calls, 2 * 1024**3, 12 << 20
                )

    def attention(self) -> Iterator[Case]:
        from kernels.attention import attention

        for kind in ("f32", *(("bf16",) if self.torch is not None else ())):
            for heads, length, head, causal in (
                (16, 512, 64, False),
                (8, 2048, 64, False),
                (8, 2048, 64, True),
            ):
                given: list[Any] = [normal(heads, length, head) for _ in range(4)]
                if kind == "bf16":
                    given = [self.torch.from_numpy(each).to(self.torch.bfloat16) for each in given]
                ours = (*given, np.empty((heads, length), F32), causal)
                calls: Calls = {"tilewright": lambda ours=ours: attention(*ours)}
                if self.torch is not None:
                    function = self.torch.nn.functional.scaled_dot_product_attention
                    self.rivals(
                        calls,
                        lambda q, k, v, causal=causal, function=function: function(
                            q, k, v, is_causal=causal
                        ),
                        *(x[None] for x in given[:3]),
                    )
                flops = 4 * heads * length * length * head // (2 if causal else 1)
                moved = 4 * heads * length * head * (4 if kind == "f32" else 2)
                yield Case(
                    f"attention {kind}" + (" causal" if causal else ""),
                    f"{heads}x{length}x{head}",
                    calls,
                    flops,
                    moved,
                )


KERNELS = {
    "add": Sweep.vector_add,
    "softmax": Sweep.softmax,
    "layer_norm": Sweep.layer_norm,
    "fused": Sweep.fused,
    "matmul": Sweep.matmul,
    "narrow_matmul": Sweep.narrow_matmul,
    "tile_sizes": Sweep.tile_sizes,
    "attention": Sweep.attention,
}


def measured(calls: Calls, rounds: int, window: float) -> dict[str, list[float]]:
    """Return the seconds per call of each contender and round.

    Rounds are interleaved, and take about ``window`` seconds per contender.

    """
    repetitions: dict[str, int] = {}
    found: dict[str, list[float]] = {name: [] for name in calls}
    for name, call in calls.items():
        # the first call compiles a kernel, the second one makes its launcher
        call()
        call()
        least, until = float("inf"), time.perf_counter() + window
        for _ in range(_CALLS_TO_LEARN):
            began = time.perf_counter()
            call()
            ended = time.perf_counter()
            least = min(least, ended - began)
            if ended > until:
                break
        repetitions[name] = max(1, int(window / max(least, 1e-7)))
    for _ in range(rounds):
        for name, call in calls.items():
            began = time.perf_counter()
            for _ in range(repetitions[name]):
                call()
            found[name].append((time.perf_counter() - began) / repetitions[name])
    return found


def plot(rows: list[Row], path: Path) -> None:
    """Plot the ratios as bars, with one panel per rival."""
    import matplotlib.pyplot as plt  # imported only for a plot

    rivals = sorted({name for row in rows for name in row.seconds if name != "tilewright"})
    figure, axes = plt.subplots(
        1,
        len(rivals),
        figsize=(4 * len(rivals) + 3, 0.25 * len(rows) + 1),
        sharey=True,
        squeeze=False,
    )
    labels = [f"{row.kernel} {row.size}" for row in rows]
    for axis, rival in zip(axes[0], rivals, strict=True):
        axis.barh(labels, [row.seconds.get(rival, 0.0) / row.seconds["tilewright"] for row in rows])
        axis.axvline(1.0, color="black", linewidth=0.8)
        axis.set_xlabel(f"{rival}'s time over ours")
    axes[0][0].invert_yaxis()
    figure.tight_layout()
    figure.savefig(path)


def imported(name: str) -> Any:
    """Return a module, or None if it is not installed."""
    try:
        return __import__(name)
    except ImportError:
        return None


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--only", choices=KERNELS, action="append", help="these kernels; may be repeated"
    )
    parser.add_argument(
        "--threads", type=int, default=0, help="threads of every contender; all by default"
    )
    parser.add_argument(
        "--compile",
        action="store_true",
        help="torch.compile too, which needs a C++ compiler and some seconds a size",
    )
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--window", type=float, default=0.01, help="seconds a contender and round")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument(
        "--plot", type=Path, help="write a picture of the ratios to this file; needs matplotlib"
    )
    options = parser.parse_args()
    if options.threads:
        for name in (
            "TILEWRIGHT_NUM_THREADS",
            "OMP_NUM_THREADS",
            "OPENBLAS_NUM_THREADS",
            "MKL_NUM_THREADS",
            "NUMBA_NUM_THREADS",
        ):
            os.environ[name] = str(options.threads)
        if "numpy" in sys.modules and os.environ.get("SWEEP_STARTED") != "1":
            # NumPy and OpenMP read their number of threads when they are loaded
            os.environ["SWEEP_STARTED"] = "1"
            os.execv(sys.executable, [sys.executable, *sys.argv])
    from peaks import measure

    from tilewright_cpu.target import available_cores, devices

    sweep = Sweep(imported("torch"), imported("numba"), options.compile)
    (device,) = devices()
    peaks = measure(options.threads or available_cores())
    print(
        f"{device.name}, {peaks.threads} threads: {peaks.flops / 1e9:.0f} GFLOP/s of f32, "
        f"{peaks.bytes / 1e9:.1f} GB/s copied",
        flush=True,
    )
    rows = []
    for name in options.only or KERNELS:
        for case in KERNELS[name](sweep):
            times = measured(case.calls, options.rounds, options.window)
            seconds = {name: statistics.median(found) for name, found in times.items()}
            least = {name: min(found) for name, found in times.items()}
            ours, best = seconds["tilewright"], least["tilewright"]
            row = Row(
                case.kernel, case.size, seconds, least, peaks.seconds(case.flops, case.bytes) / best
            )
            rows.append(row)
            ratios = "".join(
                f"  {rival} {seconds[rival] / ours:5.2f} ({least[rival] / best:.2f})"
                for rival in seconds
                if rival != "tilewright"
            )
            print(
                f"{row.kernel:17s} {row.size:15s} {ours * 1e6:10.1f} us  {row.of_roof:4.2f} of the "
                f"roof{ratios}",
                flush=True,
            )
    if options.json:
        machine = {"name": device.name, **device.properties}
        options.json.write_text(
            json.dumps(
                {"machine": machine, "peaks": asdict(peaks), "rows": [asdict(row) for row in rows]},
                indent=1,
            )
        )
    if options.plot:
        plot(rows, options.plot)


if __name__ == "__main__":
    main()
