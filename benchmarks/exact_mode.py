"""Measure the cost of exact mode: first launch and time of a launch, beside ordinary launches.

    exact_mode.py                      on the CPU
    exact_mode.py --one-thread         on one thread of the CPU, in processor time
    exact_mode.py --device cuda        on the first NVIDIA or AMD GPU, with PyTorch's arrays
    exact_mode.py --json OUT.json      write the figures
    exact_mode.py --only matmul        kernels whose name contains the text

Each line has the median of a launch's time in milliseconds, on one thread the minimum, which other
processes hardly change, and the ratio to the ordinary launch.
Kernels are those of ``examples/kernels``, with tiles of 64. The exact results of a kernel with
native dots and with i8 dots must have the same bits, and those of matmuls must equal NumPy's
residues in a row and a column, or the script fails.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "examples")]
from kernels.attention import attention
from kernels.layer_norm import layer_norm
from kernels.matmul import matmul
from kernels.softmax import softmax

from tilewright.passes.exact.ring import ring_of
from tilewright.runtime.exact.payloads import bits_of, float_type
from tilewright.testing.exact import agree, draw, exact_mode

RNG = np.random.default_rng(0)


@dataclass(frozen=True)
class Case:
    """A kernel at one size.

    Attributes:
        name: of the kernel and its size.
        run: launches it.
        inputs, outputs: its arrays; ``run`` is called with both.
        has_dots: whether the way of dots matters.
        check: raises if the outputs of an exact launch are wrong; None where nothing is known.
    """

    name: str
    run: Callable[..., object]
    inputs: tuple[Any, ...]
    outputs: tuple[Any, ...]
    has_dots: bool = False
    check: Callable[..., None] | None = None


def numbers(array: Any) -> Any:
    """The balanced numbers that the payloads of an array stand for, as Python's integers."""
    ring = ring_of(float_type(array))
    residues = bits_of(array).astype(object)
    return np.where(residues > ring.half, residues - ring.modulus, residues)


def check_matmul(a: Any, b: Any, c: Any) -> None:
    modulus = ring_of(float_type(c)).modulus
    for row, column in ((0, 1), (3, 7), (-1, -1)):
        expected = numbers(a[row]) @ numbers(b[:, column]) % modulus
        found = int(bits_of(c[row, column].reshape(1))[0])
        if found != expected:
            raise SystemExit(f"matmul: {found} at {row, column}, not {expected}")


def cases(gpu: bool, made: Callable[..., Any]) -> Iterator[Case]:
    size = 2048 if gpu else 512
    for dtype in (np.float16, np.float32):
        a, b, c = (made((size, size), dtype) for _ in range(3))
        yield Case(
            f"matmul {size} cubed, {'f16' if dtype is np.float16 else 'f32'}",
            lambda a, b, c: matmul(a, b, c, block=(64, 64, 64)),
            (a, b),
            (c,),
            has_dots=True,
            check=check_matmul,
        )
    rows = 8192 if gpu else 512
    x, out = (made((rows, 1024), np.float32) for _ in range(2))
    yield Case(f"softmax {rows}x1024", softmax, (x,), (out,))
    vectors = [made((1024,), np.float32) for _ in range(2)]
    statistics_ = [made((rows,), np.float32) for _ in range(2)]
    yield Case(
        f"layer norm {rows}x1024",
        layer_norm,
        (x, *vectors),
        (made((rows, 1024), np.float32), *statistics_),
    )
    heads, length = (32, 2048) if gpu else (4, 512)
    q, k, v, out = (made((heads, length, 64), np.float16) for _ in range(4))
    yield Case(
        f"causal flash attention, {heads} heads, {length}, d64, f16",
        lambda *arrays: attention(*arrays, causal=True, block=(64, 64)),
        (q, k, v),
        (out, made((heads, length), np.float32)),
        has_dots=True,
    )


class Device:
    """The arrays' device, and its clock."""

    def __init__(self, name: str, clock: Callable[[], float]) -> None:
        self.name, self._clock = name, clock
        if name != "cpu":
            import torch

            self._torch = torch

    def array(self, shape: tuple[int, ...], dtype: Any) -> Any:
        found = RNG.standard_normal(shape).astype(dtype)
        return found if self.name == "cpu" else self._torch.from_numpy(found).to(self.name)

    def wait(self) -> None:
        if self.name != "cpu":
            self._torch.cuda.synchronize()

    def milliseconds(self, launch: Callable[[], object], budget: float) -> float:
        """The time of a launch, of several within a budget in seconds."""
        times = []
        ends = time.perf_counter() + budget
        while len(times) < 5 or (time.perf_counter() < ends and len(times) < 200):
            if self.name == "cpu":
                started = self._clock()
                launch()
                times.append((self._clock() - started) * 1e3)
            else:
                begin, end = (self._torch.cuda.Event(enable_timing=True) for _ in range(2))
                begin.record()
                launch()
                end.record()
                end.synchronize()
                times.append(begin.elapsed_time(end))
        return min(times) if self._clock is time.process_time else statistics.median(times)


def measured(case: Case, device: Device, budget: float) -> dict[str, Any]:
    """The times of a case, ordinary and exact."""

    def launch() -> None:
        case.run(*case.inputs, *case.outputs)

    launch()
    device.wait()
    figures: dict[str, Any] = {"ordinary": device.milliseconds(launch, budget)}
    for array in case.inputs:
        array[...] = draw(array, RNG)
    results: list[list[Any]] = []
    for dot in ("native", "i8") if case.has_dots else ("native",):
        with exact_mode(dot=dot):
            started = time.perf_counter()
            launch()
            device.wait()
            first = time.perf_counter() - started
            figures[dot] = device.milliseconds(launch, budget)
        figures[f"{dot} first launch"] = first
        results.append([bits_of(array) for array in case.outputs])
        if case.check is not None:
            case.check(*case.inputs, *case.outputs)
    for other in results[1:]:
        for one, two, array in zip(results[0], other, case.outputs, strict=True):
            dtype = np.dtype(str(array.dtype).rpartition(".")[2])
            if not agree(one.view(dtype), two.view(dtype)).all():
                raise SystemExit(f"{case.name}: native and i8 dots differ")
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cpu", help="cpu, or a device of PyTorch's")
    parser.add_argument("--one-thread", action="store_true")
    parser.add_argument("--only", default="", metavar="TEXT")
    parser.add_argument("--seconds", type=float, default=0.5, help="for each median")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    if options.one_thread:
        os.environ["TILEWRIGHT_NUM_THREADS"] = "1"
    clock = time.process_time if options.one_thread else time.perf_counter
    device = Device(options.device, clock)
    found = {}
    print(f"{'kernel':48} {'ordinary':>9} {'native':>18} {'i8':>18}    first launch, s")
    for case in cases(options.device != "cpu", device.array):
        if options.only not in case.name:
            continue
        one = found[case.name] = measured(case, device, options.seconds)
        columns = [
            f"{one[dot]:9.3f} ({one[dot] / one['ordinary']:5.1f}x)" if dot in one else " " * 18
            for dot in ("native", "i8")
        ]
        firsts = [f"{one[key]:.2f}" for key in one if key.endswith("first launch")]
        print(f"{case.name:48} {one['ordinary']:9.3f} {' '.join(columns)}    {' '.join(firsts)}")
    print("results are right: residues of matmuls, and native dots against i8 ones")
    if options.json:
        options.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
