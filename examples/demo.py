"""The five classic kernels on this machine's CPU.

Results are checked against float64, and times are compared with NumPy's, and with PyTorch's if it
is installed.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import platform
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.plugins.registry import registry
from tilewright.runtime.devices import device_registry

sys.path.insert(0, str(Path(__file__).resolve().parent))

from kernels.attention import attention
from kernels.layer_norm import layer_norm
from kernels.matmul import matmul
from kernels.softmax import softmax
from kernels.vector_add import add

# PyTorch is timed beside the rest where it is installed
torch: Any = importlib.import_module("torch") if importlib.util.find_spec("torch") else None

Array = np.ndarray[Any, np.dtype[np.float32]]

#: characters of the longest bar of a plot
BAR = 50

NEXT = (
    ("make demo PLOT=1", "the times as bars"),
    (
        (
            "{tilewright} inspect {examples}/kernels/vector_add.py:add_kernel --signature '*fp32, "
            "*fp32, *fp32, i32' --constants BLOCK=1024"
        ),
        "from Tile IR to machine code",
    ),
    ("{tilewright} backends", "the devices that kernels run on here"),
    ("docs/site/quickstart.md", "a kernel of your own; then docs/site/tutorials"),
    ("{examples}/kernels", "these five, to copy from"),
)


@dataclass(frozen=True)
class Case:
    """One kernel on one problem.

    ``run`` fills ``out``; ``reference`` gives the float64 result; ``rivals`` are timed beside it,
    in float32; ``tolerance`` bounds the largest absolute error.
    """

    name: str
    shape: str
    run: Callable[[], object]
    out: Array
    reference: Callable[[], np.ndarray[Any, np.dtype[np.float64]]]
    rivals: dict[str, Callable[[], object]]
    tolerance: float


def best_times(
    calls: dict[str, Callable[[], object]], rounds: int = 61, window: float = 0.008
) -> dict[str, float]:
    """Seconds a call, the best of interleaved rounds, so that all meet the same machine."""
    repetitions = {}
    for name, call in calls.items():
        call()
        start = time.perf_counter()
        call()
        repetitions[name] = max(1, int(window / max(time.perf_counter() - start, 1e-7)))
    best = dict.fromkeys(calls, float("inf"))
    for _ in range(rounds):
        for name, call in calls.items():
            start = time.perf_counter()
            for _ in range(repetitions[name]):
                call()
            best[name] = min(best[name], (time.perf_counter() - start) / repetitions[name])
    return best


def tensors(*arrays: Array) -> list[Any]:
    """The arrays as PyTorch tensors on the same memory."""
    return [torch.from_numpy(array) for array in arrays]


def vector_add_case(rng: np.random.Generator) -> Case:
    n = (1 << 22) - 37
    x, y = rng.standard_normal((2, n), dtype=np.float32)
    out, other = np.full(n, np.nan, np.float32), np.empty(n, np.float32)
    rivals: dict[str, Callable[[], object]] = {"numpy": lambda: np.add(x, y, out=other)}
    if torch is not None:
        tx, ty, to = tensors(x, y, other)
        rivals["torch"] = lambda: torch.add(tx, ty, out=to)
    return Case(
        "vector add",
        f"{n}",
        lambda: add(x, y, out),
        out,
        lambda: x.astype(np.float64) + y,
        rivals,
        1e-6,
    )


def softmax_case(rng: np.random.Generator) -> Case:
    x = rng.standard_normal((2048, 2000), dtype=np.float32) * 4
    out, other = np.full_like(x, np.nan), np.empty_like(x)

    def by_hand(x: Any, out: Any) -> Any:
        np.subtract(x, x.max(axis=1, keepdims=True), out=out)
        np.exp(out, out=out)
        return np.divide(out, out.sum(axis=1, keepdims=True), out=out)

    rivals: dict[str, Callable[[], object]] = {"numpy": lambda: by_hand(x, other)}
    if torch is not None:
        tx, to = tensors(x, other)
        rivals["torch"] = lambda: torch.softmax(tx, 1, out=to)
    return Case(
        "fused softmax",
        "2048 x 2000",
        lambda: softmax(x, out),
        out,
        lambda: by_hand(x.astype(np.float64), np.empty(x.shape)),
        rivals,
        1e-6,
    )


def layer_norm_case(rng: np.random.Generator) -> Case:
    x = rng.standard_normal((2048, 3000), dtype=np.float32) + 1
    weight, bias = rng.standard_normal((2, 3000), dtype=np.float32)
    out, mean, rstd = (
        np.full_like(x, np.nan),
        np.empty(2048, np.float32),
        np.empty(2048, np.float32),
    )

    def by_hand(x: Any) -> Any:
        centred = x - x.mean(axis=1, keepdims=True)
        return (
            centred / np.sqrt((centred * centred).mean(axis=1, keepdims=True) + 1e-5) * weight
            + bias
        )

    rivals: dict[str, Callable[[], object]] = {"numpy": lambda: by_hand(x)}
    if torch is not None:
        tx, tw, tb = tensors(x, weight, bias)
        rivals["torch"] = lambda: torch.nn.functional.layer_norm(tx, (3000,), tw, tb, 1e-5)
    return Case(
        "layer norm",
        "2048 x 3000",
        lambda: layer_norm(x, weight, bias, out, mean, rstd),
        out,
        lambda: by_hand(x.astype(np.float64)),
        rivals,
        1e-4,
    )


def matmul_case(rng: np.random.Generator) -> Case:
    m, n, k = 1000, 1024, 1016
    a, b = (
        rng.standard_normal((m, k), dtype=np.float32),
        rng.standard_normal((k, n), dtype=np.float32),
    )
    out, other = np.full((m, n), np.nan, np.float32), np.empty((m, n), np.float32)

    def by_hand(a: Any, b: Any, out: Any) -> Any:
        np.matmul(a, b, out=out)
        return np.maximum(out, 0.01 * out, out=out)

    rivals: dict[str, Callable[[], object]] = {"numpy": lambda: by_hand(a, b, other)}
    if torch is not None:
        ta, tb, to = tensors(a, b, other)
        rivals["torch"] = lambda: torch.nn.functional.leaky_relu_(torch.mm(ta, tb, out=to), 0.01)
    exact = lambda: by_hand(a.astype(np.float64), b.astype(np.float64), np.empty((m, n)))  # noqa: E731
    return Case(
        "matmul + leaky relu",
        f"{m} x {n} x {k}",
        lambda: matmul(a, b, out, "leaky_relu"),
        out,
        exact,
        rivals,
        1e-3,
    )


def attention_case(rng: np.random.Generator) -> Case:
    heads, length, head = 8, 1000, 64
    q, k, v = rng.standard_normal((3, heads, length, head), dtype=np.float32)
    out, lse = (
        np.full((heads, length, head), np.nan, np.float32),
        np.empty((heads, length), np.float32),
    )

    def by_hand(q: Any, k: Any, v: Any) -> Any:
        scores = (q @ k.transpose(0, 2, 1)) * q.dtype.type(head**-0.5)
        scores -= scores.max(axis=-1, keepdims=True)
        np.exp(scores, out=scores)
        scores /= scores.sum(axis=-1, keepdims=True)
        return scores @ v

    rivals: dict[str, Callable[[], object]] = {"numpy": lambda: by_hand(q, k, v)}
    if torch is not None:
        tq, tk, tv = tensors(q[None], k[None], v[None])
        rivals["torch"] = lambda: torch.nn.functional.scaled_dot_product_attention(tq, tk, tv)
    exact = lambda: by_hand(*(array.astype(np.float64) for array in (q, k, v)))  # noqa: E731
    return Case(
        "flash attention",
        f"{heads} heads x {length} x {head}",
        lambda: attention(q, k, v, out, lse),
        out,
        exact,
        rivals,
        1e-4,
    )


def machine() -> str:
    """The processor that the kernels run on and what the rivals are, in a line."""
    device = device_registry.find(registry().get("cpu"), None)
    cores, bits = device.properties.get("cores"), device.properties.get("vector_bits")
    rivals = f"NumPy {np.__version__}" + (
        f", PyTorch {torch.__version__}" if torch is not None else ""
    )
    return (
        f"{device.name}, {cores} {'core' if cores == 1 else 'cores'}, vectors of {bits} bits; "
        f"Python {platform.python_version()}, {rivals}"
    )


def plot(rows: list[tuple[str, dict[str, float]]]) -> list[str]:
    """The times of each kernel as bars, the longest of a kernel as long as a bar may be."""
    lines: list[str] = []
    for name, times in rows:
        longest = max(times.values())
        lines.append(name)
        for who, seconds in times.items():
            length = max(1, round(BAR * seconds / longest))
            lines.append(f"  {who:10s} {'#' * length} {seconds * 1e3:.3f} ms")
    return lines


def what_next() -> list[str]:
    """Print suggestions after the demo, as commands for the folder it was started in."""
    examples = Path(__file__).resolve().parent
    beside = Path(sys.executable).with_name("tilewright")
    places = {
        "tilewright": _shown(beside) if beside.exists() else "tilewright",
        "examples": _shown(examples),
    }
    return [
        "what to try next:",
        *(f"  {command.format(**places)}\n      {what}" for command, what in NEXT),
    ]


def _shown(path: Path) -> str:
    """The path as it is typed from here."""
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=(
            "The five classic kernels on this machine's CPU, right against float64, timed "
            "beside NumPy and PyTorch."
        )
    )
    parser.add_argument("--plot", action="store_true", help="draw the times as bars, too")
    wants = parser.parse_args(arguments)
    rng = np.random.default_rng(0)
    wrong: list[str] = []
    rows: list[tuple[str, dict[str, float]]] = []
    print(machine())
    header = (
        f"{'kernel':21s} {'shape':22s} {'largest error':>13s} {'tilewright':>12s} "
        f"{'numpy':>12s} {'ratio':>7s}"
    )
    print(header + (f" {'torch':>12s} {'ratio':>7s}" if torch is not None else ""))
    for make in (vector_add_case, softmax_case, layer_norm_case, matmul_case, attention_case):
        case = make(rng)
        case.run()
        error = float(np.abs(case.out - case.reference()).max())
        times = best_times({"tilewright": case.run, **case.rivals})
        rows.append((case.name, times))
        right = error <= case.tolerance  # NaN is not
        if not right:
            wrong.append(case.name)
        columns = [
            f"{case.name:21s} {case.shape:22s} {error:13.2e} {times['tilewright'] * 1e3:9.3f} ms"
        ]
        columns += [
            f"{times[name] * 1e3:9.3f} ms {times[name] / times['tilewright']:6.2f}x"
            for name in case.rivals
        ]
        print(
            " ".join(columns),
            "" if right else f" WRONG: the error may be {case.tolerance:g}",
            flush=True,
        )
    print("ratio: how many times as long as Tilewright the other took")
    if wants.plot:
        print("", *plot(rows), sep="\n")
    print("", f"wrong: {', '.join(wrong)}" if wrong else "all are right", sep="\n")
    if not wrong:
        print("", *what_next(), sep="\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
