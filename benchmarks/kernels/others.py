"""Time the library's reductions, sorts, optimizers and mixtures of experts beside PyTorch's.

    others.py                       all cases on a GPU
    others.py --device cpu          on one thread of a CPU
    others.py sum topk              those whose names begin so

A line for each case: our time, bytes per second and their part of the roof, the rival's time by
ours, the largest error relative to the largest result, and whether 20 launches (into poisoned
memory where there is an ``out=``) gave the same bits. Times on a GPU are of the device alone, with
the L2 cache overwritten before each call; rivals alternate. The status is 1 where a result is wrong
or bits differ.
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from linear import ROOFS, cpu_times, gpu_times
from results import Result, Results

import tilewright_kernels as tk

Call = Callable[[], Any]
REPEATS = 20


@dataclass
class Case:
    """A call beside its rival.

    Attributes:
        name: its name.
        call: the call.
        rival: PyTorch's.
        expected: returns the result, in float64 or of integers; None where it is the rival's.
        moved: bytes read and written at least.
        tolerance: largest error relative to the largest result.
        out: whether ``call`` takes ``out=``.
        timed: what is timed in place of ``call``.
    """

    name: str
    call: Callable[..., Any]
    rival: Call
    expected: Call | None
    moved: float
    tolerance: float = 1e-5
    out: bool = False
    timed: Call | None = None


def _bytes(*tensors: torch.Tensor) -> int:
    return sum(each.numel() * each.element_size() for each in tensors)


def reduction_cases(shape: tuple[int, int], device: str) -> Iterator[Callable[[], Case]]:
    functions: dict[str, Any] = {
        "sum": lambda x, axis: torch.sum(x, axis),
        "mean": lambda x, axis: torch.mean(x, axis),
        "max": lambda x, axis: torch.amax(x, axis if axis is not None else (0, 1)),
        "argmax": lambda x, axis: torch.argmax(x, axis),
        "var": lambda x, axis: torch.var(x, axis, correction=0),
    }

    def make(name: str, axis: int | None) -> Case:
        x = torch.randn(shape, device=device)
        ours, rival = getattr(tk, name), functions[name]
        return Case(
            f"{name} {shape[0]}x{shape[1]} axis {axis}",
            lambda out=None: ours(x, axis, out=out),
            lambda: rival(x, axis),
            lambda: rival(x.double(), axis),
            _bytes(x),
            1e-4,
            out=True,
        )

    for name in functions:
        for axis in (1, 0, None):
            yield lambda n=name, a=axis: make(n, a)


def prefix_case(shape: tuple[int, int], device: str) -> Case:
    x = torch.randn(shape, device=device)
    return Case(
        f"cumsum {shape[0]}x{shape[1]}",
        lambda out=None: tk.cumsum(x, out=out),
        lambda: torch.cumsum(x, -1),
        lambda: torch.cumsum(x.double(), -1),
        2 * _bytes(x),
        1e-4,
        out=True,
    )


def segment_case(rows: int, columns: int, segments: int, device: str) -> Case:
    x = torch.randn(rows, columns, device=device)
    bounds = torch.randint(0, rows + 1, (segments + 1,), device=device).sort()[0]
    bounds[0], bounds[-1] = 0, rows
    return Case(
        f"segment_sum {rows}x{columns} in {segments}",
        lambda out=None: tk.segment_sum(x, bounds, out=out),
        lambda: torch.segment_reduce(x, "sum", offsets=bounds, axis=0),
        lambda: torch.segment_reduce(x.double(), "sum", offsets=bounds, axis=0),
        _bytes(x),
        1e-4,
        out=True,
    )


def histogram_case(n: int, bins: int, device: str) -> Case:
    x = torch.randint(0, bins, (n,), device=device, dtype=torch.int32)
    return Case(
        f"histogram {n} in {bins}",
        lambda out=None: tk.histogram(x, bins, out=out),
        lambda: torch.bincount(x, minlength=bins),
        None,
        _bytes(x),
        0,
    )


def sort_cases(shape: tuple[int, int], k: int, device: str) -> Iterator[Callable[[], Case]]:
    def sort() -> Case:
        x = torch.randn(shape, device=device)
        return Case(
            f"sort {shape[0]}x{shape[1]}",
            lambda out=None: tk.sort(x),
            lambda: torch.sort(x, dim=-1, stable=True)[0],
            None,
            2 * _bytes(x),
            0,
        )

    def topk() -> Case:
        x = torch.randn(shape, device=device)
        return Case(
            f"topk {k} of {shape[0]}x{shape[1]}",
            lambda out=None: tk.topk(x, k)[0],
            lambda: torch.topk(x, k)[0],
            None,
            _bytes(x),
            0,
        )

    def top_p() -> Case:
        x = torch.softmax(torch.randn(shape, device=device), -1)

        def rival() -> torch.Tensor:
            ordered, order = torch.sort(x, -1, descending=True)
            kept = torch.where(ordered.cumsum(-1) - ordered < 0.9, ordered, 0)
            kept /= kept.sum(-1, keepdim=True)
            return torch.zeros_like(x).scatter_(-1, order, kept)

        return Case(
            f"top_p {shape[0]}x{shape[1]}",
            lambda out=None: tk.top_p(x, 0.9, out=out),
            rival,
            lambda: tk.top_p_reference(x.double(), 0.9),
            2 * _bytes(x),
            out=True,
        )

    def multinomial() -> Case:
        x = torch.softmax(torch.randn(shape, device=device), -1)
        ours = lambda out=None: tk.multinomial(x, seed=1, out=out)  # noqa: E731
        return Case(
            f"multinomial {shape[0]}x{shape[1]}",
            ours,
            lambda: torch.multinomial(x, 1),
            ours,
            _bytes(x),
            0,
            out=True,
        )

    yield sort
    yield topk
    yield top_p
    yield multinomial


def optimizer_cases(sizes: list[int], device: str) -> Iterator[Callable[[], Case]]:
    def make(in_8_bits: bool) -> Case:
        parameters = [torch.randn(size, device=device) for size in sizes]
        gradients = [torch.randn_like(each) for each in parameters]
        theirs = [torch.nn.Parameter(each.clone()) for each in parameters]
        for each, gradient in zip(theirs, gradients, strict=True):
            each.grad = gradient
        optimizer = torch.optim.AdamW(theirs, lr=1e-3, fused=True)
        begun = [each.clone() for each in parameters]
        first, second = ([torch.zeros_like(each) for each in parameters] for _ in range(2))
        states = [tk.adamw_8bit_state(each) for each in parameters] if in_8_bits else []

        def step(out: Any = None) -> Any:
            if in_8_bits:
                tk.adamw_8bit(parameters, gradients, states, 1)
            else:
                tk.adamw(parameters, gradients, first, second, 1)

        def checked(out: Any = None) -> torch.Tensor:
            for each, source in zip(parameters, begun, strict=True):
                each.copy_(source)
            for each in (*first, *second):
                each.zero_()
            if in_8_bits:
                states[:] = [tk.adamw_8bit_state(each) for each in parameters]
            step()
            return parameters[0].clone()

        def expected() -> torch.Tensor:
            zeros = torch.zeros_like(begun[0]).double()
            gradient = gradients[0].double()
            return tk.adamw_reference(begun[0].double(), gradient, zeros, zeros, 1)[0]

        return Case(
            f"adamw{' in 8 bits' if in_8_bits else ''} {len(sizes)} arrays of {sizes[0]}",
            checked,
            optimizer.step,
            expected,
            (16 if in_8_bits else 28) * sum(sizes),
            1e-4,
            timed=step,
        )

    yield lambda: make(False)
    yield lambda: make(True)


def expert_case(
    tokens: int, k: int, experts: int, columns: int, hidden: int, device: str, dtype: torch.dtype
) -> Case:
    x = torch.randn(tokens, columns, device=device).to(dtype)
    gate_up = (torch.randn(experts, columns, 2 * hidden, device=device) / columns**0.5).to(dtype)
    down = (torch.randn(experts, hidden, columns, device=device) / hidden**0.5).to(dtype)
    logits = torch.randn(tokens, experts, device=device)

    def ours(out: Any = None) -> torch.Tensor:
        return tk.expert_swiglu(x, *tk.route(logits, k), gate_up, down)

    def rival() -> torch.Tensor:
        weights, chosen = torch.topk(torch.softmax(logits, -1), k)
        weights = weights / weights.sum(-1, keepdim=True)
        flat, order = torch.sort(chosen.reshape(-1), stable=True)
        ends = torch.bincount(flat, minlength=experts).cumsum(0).to(torch.int32)
        rows = x[order // k]
        if device == "cuda":
            both = torch._grouped_mm(rows, gate_up, offs=ends)
            inner = torch.nn.functional.silu(both[:, :hidden]) * both[:, hidden:]
            y = torch._grouped_mm(inner, down, offs=ends)
        else:
            parts = []
            for expert, part in enumerate(
                rows.split(ends.diff(prepend=ends.new_zeros(1)).tolist())
            ):
                both = part @ gate_up[expert]
                inner = torch.nn.functional.silu(both[:, :hidden]) * both[:, hidden:]
                parts.append(inner @ down[expert])
            y = torch.cat(parts)
        scaled = y.float() * weights.reshape(-1)[order, None]
        return torch.zeros_like(x, dtype=torch.float32).index_add_(0, order // k, scaled).to(dtype)

    size = x.element_size()
    return Case(
        f"experts {experts} of {columns}x{hidden}, {tokens} tokens, {k} each",
        ours,
        rival,
        None,
        size * (gate_up.numel() + down.numel() + 2 * tokens * columns),
        2e-2,
    )


def cases(device: str) -> Iterator[Callable[[], Case]]:
    gpu = device == "cuda"
    yield from reduction_cases((8192, 8192) if gpu else (512, 2048), device)
    yield lambda: prefix_case((4096, 8192) if gpu else (256, 2048), device)
    yield lambda: prefix_case((1, 1 << 26) if gpu else (1, 1 << 20), device)
    yield lambda: segment_case(262144 if gpu else 8192, 256, 4096 if gpu else 128, device)
    yield lambda: histogram_case(1 << 26 if gpu else 1 << 20, 256, device)
    yield from sort_cases((4096, 2048) if gpu else (64, 512), 8, device)
    yield from sort_cases((64, 131072) if gpu else (4, 16384), 64, device)
    yield from optimizer_cases([1 << 22] * 32 if gpu else [1 << 16] * 8, device)
    if gpu:
        yield lambda: expert_case(32768, 8, 128, 2048, 768, device, torch.bfloat16)
        yield lambda: expert_case(32768, 2, 32, 4096, 3584, device, torch.bfloat16)
    else:
        yield lambda: expert_case(256, 2, 8, 128, 128, device, torch.float32)


def measure(case: Case, device: str, results: Results) -> tuple[bool, float]:
    """Print a line; return whether the result is right, and the rival's time by ours."""
    result = case.call()
    expected = (case.expected or case.rival)()
    error = float((result.double() - expected.double()).abs().max())
    wrong = error / max(float(expected.double().abs().max()), 1e-30)
    same = True
    poisoned = torch.empty_like(result)
    for _ in range(REPEATS):
        poisoned.fill_(float("nan") if result.is_floating_point() else -1)
        same &= torch.equal(case.call(out=poisoned) if case.out else case.call(), result)
    calls = {"ours": case.timed or case.call, "rival": case.rival}
    times = (gpu_times if device == "cuda" else cpu_times)(calls)
    ours, ratio = times["ours"], times["rival"] / times["ours"]
    roof = ""
    if device == "cuda":
        name = torch.cuda.get_device_name()
        rate = next((rates[1] for key, rates in ROOFS.items() if key in name), None)
        roof = f"{case.moved / rate / ours:6.1%} of the roof  " if rate else ""
    rivals = {"torch": times["rival"]}
    results.add(Result("others", case.name, ours, case.moved, None, rivals, wrong, same))
    print(
        f"{case.name:52s} {ours * 1e6:9.1f} us  {case.moved / ours / 1e12:6.3f} TB/s  {roof}"
        f"rival/ours {ratio:6.3f}  error {wrong:.1e}  {'same bits' if same else 'BITS DIFFER'}"
        f"{'' if wrong <= case.tolerance else '  WRONG'}",
        flush=True,
    )
    return wrong <= case.tolerance and same, ratio


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*", help="the beginnings of cases' names; all by default")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--json", type=Path, help="the file for results")
    options = parser.parse_args()
    if options.device == "cpu":
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        torch.set_num_threads(1)
    torch.manual_seed(0)
    ratios, is_right, results = [], True, Results()
    for make in cases(options.device):
        case = make()
        if options.names and not any(case.name.startswith(each) for each in options.names):
            continue
        try:
            right, ratio = measure(case, options.device, results)
        except Exception as error:
            print(f"{case.name}: FAILED: {type(error).__name__}: {str(error)[:300]}", flush=True)
            is_right = False
            continue
        is_right &= right
        ratios.append(ratio)
    if ratios:
        mean = math.exp(statistics.fmean(map(math.log, ratios)))
        print(f"geometric mean {mean:.3f}, least {min(ratios):.3f}")
    if options.json:
        results.write(options.json, options.device)
    sys.exit(0 if is_right else 1)


if __name__ == "__main__":
    main()
