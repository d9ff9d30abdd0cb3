"""Time derived backward passes beside those by hand, Liger's and PyTorch's own.

    gradients.py --device cuda              all cases
    gradients.py --device cpu softmax swiglu

For each case it prints the time of the derived backward pass, the ratio to each rival (below 1: the
derived pass is faster), the largest error relative to the largest gradient in float64, whether
launches into poisoned gradients give the same bits, and the atomic operations in the plan. Times
are of the device: a CUDA graph of the call, replayed; processor time of one process on the CPU.
Rivals alternate. The status is 1 where a result is wrong or bits differ.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from gradient_cases import Call, Case, Cases

#: Launches into poisoned gradients whose bits are compared.
REPEATS = 20
#: Error relative to the largest gradient, by the type of inputs.
TOLERANCE = {torch.float32: 1e-4, torch.float16: 4e-3}
#: Rounds in which rivals alternate.
ROUNDS = 15


def captured(call: Call, replays: int = 5) -> Call:
    """Return a call that replays a CUDA graph of some launches."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            call()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(replays):
            call()
    return graph.replay


def gpu_times(calls: Mapping[str, Call]) -> dict[str, float]:
    """Return the median device time of each call in microseconds."""
    replays, ready = 5, {}
    for name, call in calls.items():
        try:
            ready[name] = captured(call, replays)
        except Exception as error:
            torch.cuda.synchronize()
            print(f"  {name}: measured without a graph ({type(error).__name__}: {error})")
            ready[name] = lambda call=call: [call() for _ in range(replays)]
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(ROUNDS):
        for name, call in ready.items():
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            call()
            end.record()
            end.synchronize()
            times[name].append(begin.elapsed_time(end) * 1e3 / replays)
    return {name: statistics.median(values) for name, values in times.items()}


def cpu_times(calls: Mapping[str, Call]) -> dict[str, float]:
    """Return the minimum processor time of each call in microseconds."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        call()
    for _ in range(ROUNDS):
        for name, call in calls.items():
            started = time.process_time()
            call()
            times[name].append((time.process_time() - started) * 1e6)
    return {name: min(values) for name, values in times.items()}


def error_of(case: Case, gradients: Iterable[torch.Tensor]) -> float:
    """Return the largest error of gradients relative to the largest gradient."""
    worst = 0.0
    for found, expected in zip(gradients, case.expected().values(), strict=True):
        difference = (found.double() - expected).abs().max()
        worst = max(worst, float(difference / expected.abs().max()))
        if not torch.isfinite(found).all():
            return float("nan")
    return worst


def has_same_bits(case: Case) -> bool:
    """Return whether launches into poisoned gradients give the same bits."""
    first = {name: value.clone() for name, value in case.gradients.items()}
    for _ in range(REPEATS):
        for value in case.gradients.values():
            value.fill_(float("nan"))
        case.derived()
        if not all(torch.equal(first[name], value) for name, value in case.gradients.items()):
            return False
    return True


def atomics_of(plan: Any) -> int:
    """Return the number of atomic operations in the kernels of a plan."""
    names = ("atomic_rmw", "atomic_cas", "descriptor_reduce")
    return sum(
        operation.name in names for kernel in plan.kernels for operation in kernel.module.walk()
    )


def measure(case: Case, device: str) -> tuple[bool, dict[str, float]]:
    """Measure a case and print a line; return whether it is right, and the ratios."""
    case.forward()
    case.derived()
    error, same = error_of(case, case.gradients.values()), has_same_bits(case)
    calls: dict[str, Call] = {"derived": case.derived}
    if case.hand is not None:
        calls["hand"] = case.hand
    if case.liger is not None and device != "cpu":
        calls["liger"] = case.through(case.liger)
    calls["torch"] = case.through(case.formula)
    times = (cpu_times if device == "cpu" else gpu_times)(calls)
    dtype = next(iter(case.inputs.values())).dtype
    is_right = error <= TOLERANCE[dtype] and same
    ratios = {name: times["derived"] / value for name, value in times.items() if name != "derived"}
    columns = " ".join(f"{name} {ratio:5.2f}" for name, ratio in ratios.items())
    plan = case.plan()
    print(
        f"{case.name:22} {times['derived']:9.1f} us  {columns:38} error {error:.1e} "
        f"{'same bits' if same else 'BITS DIFFER'}  {len(plan.kernels)} kernels "
        f"{atomics_of(plan)} atomics{'' if is_right else '  WRONG'}",
        flush=True,
    )
    return is_right, ratios


def main() -> int:
    """Measure the cases that are named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--kernels", action="store_true", help="print the kernels of each plan")
    options = parser.parse_args()
    torch.set_num_threads(1)  # idle threads of PyTorch spin, which processor time would count
    makers = Cases(options.device).all()
    wrong = 0
    found: dict[str, list[float]] = {}
    for name in options.names or makers:
        try:
            case = makers[name]()
            is_right, ratios = measure(case, options.device)
        except Exception as error:
            print(f"{name}: {type(error).__name__}: {error}", flush=True)
            wrong += 1
            continue
        if options.kernels:
            for kernel in case.plan().kernels:
                print("   ", kernel.name, [str(extent) for extent in kernel.grid], *kernel.reasons)
        wrong += not is_right
        for rival, ratio in ratios.items():
            found.setdefault(rival, []).append(ratio)
    for rival, ratios in found.items():
        print(f"geometric mean beside {rival}: {statistics.geometric_mean(ratios):.3f}")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
