"""Time the library's operations on rows beside PyTorch's and Liger's, forward and backward.

    rows.py                         all cases on a GPU
    rows.py --device cpu            on one thread of a CPU
    rows.py cross_entropy softmax   those of these names
    rows.py --compile               with torch.compile of the formulas as a rival

Two lines for each case, one for each pass: our time, the rate by the bytes that must be read and
written and its part of the roof, each rival's time by ours, the largest error relative to the
largest element, and whether 20 launches gave the same bits. Times on a GPU are of the device alone,
with the L2 cache overwritten before each call; rivals alternate. The status is 1 where a result
is wrong or bits differ. The rate of linear_cross_entropy is of the matmuls of both passes by the
time until then: its forward pass computes gradients, too.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from device_times import DeviceTimer
from results import Result, Results
from row_cases import Case, Cases, liger

Call = Callable[[], Any]
REPEATS = 20
#: Name of a device -> bytes per second.
ROOFS = {"H100": 3.35e12, "H200": 4.8e12, "A100": 2.0e12}
TOLERANCES = {torch.float32: 1e-4, torch.float16: 4e-3, torch.bfloat16: 3e-2}


def gpu_times(calls: Mapping[str, Call], rounds: int = 9) -> dict[str, float]:
    """Return the median seconds of the device."""
    timer = DeviceTimer()
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            times[name].append(timer.seconds(name, call))
    timer.print_exposed()
    return {name: statistics.median(taken) for name, taken in times.items()}


def cpu_times(calls: Mapping[str, Call], rounds: int = 9) -> dict[str, float]:
    """Return the minimum seconds of the process."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            started = time.process_time()
            call()
            times[name].append(time.process_time() - started)
    return {name: min(taken) for name, taken in times.items()}


def first_rows(case: Case, value: Any) -> Any:
    """Return an input with the rows alone whose results are checked."""
    is_row = value.ndim > 1 or not value.is_floating_point()
    return value[: case.checked] if is_row else value


def error_of(found: torch.Tensor, expected: torch.Tensor) -> float:
    """Return the largest error relative to the largest element."""
    if not torch.isfinite(found).all():
        return float("nan")
    difference = (found.double() - expected.double()).abs().max()
    return float(difference / expected.double().abs().max())


def differentiable(case: Case) -> list[torch.Tensor]:
    return [each for each in case.inputs if each.requires_grad]


def checked_errors(case: Case, y: torch.Tensor, dy: torch.Tensor) -> tuple[float, float]:
    """Return the errors of the result and of the gradients, on the first rows in float64."""
    if case.checked:
        given = [first_rows(case, each.detach()) for each in case.inputs]
        dy = dy[: case.checked]
    else:
        given = [each.detach() for each in case.inputs]
    wanted = [each.requires_grad for each in case.inputs]
    ours = [a.clone().requires_grad_(w) for a, w in zip(given, wanted, strict=True)]
    # float64 where it fits into memory, else float32
    exact = torch.float64 if sum(each.numel() for each in given) < 1 << 28 else torch.float32
    theirs = [
        (a.to(exact) if a.is_floating_point() else a.clone()).requires_grad_(w)
        for a, w in zip(given, wanted, strict=True)
    ]
    found, expected = case.function(*ours), case.reference(*theirs)
    leaves = [each for each in ours if each.requires_grad]
    exact_leaves = [each for each in theirs if each.requires_grad]
    error = error_of(found.detach(), expected.detach())
    got = torch.autograd.grad(found, leaves, dy.to(found.dtype))
    wanted_gradients = torch.autograd.grad(expected, exact_leaves, dy.to(expected.dtype))
    pairs = zip(got, wanted_gradients, strict=True)
    return error, max(error_of(a, b) for a, b in pairs)


def chunked_errors(case: Case, y: torch.Tensor, dy: torch.Tensor) -> tuple[float, float]:
    """Return the errors of a mean over rows and of its gradient, in float64 chunk by chunk."""
    rows, *others = (each.detach() for each in case.inputs)
    (gradient,) = torch.autograd.grad(y, case.inputs[0], dy, retain_graph=True)
    total, difference, largest = 0.0, 0.0, 0.0
    for start in range(0, len(rows), case.chunk):
        part = slice(start, start + case.chunk)
        exact = rows[part].double().requires_grad_()
        mean = case.reference(exact, *(each[part] for each in others))
        mean = mean * (len(exact) / len(rows))
        (expected,) = torch.autograd.grad(mean, exact, dy.double())
        found = gradient[part].double()
        if not torch.isfinite(found).all():
            return float("nan"), float("nan")
        total += float(mean.detach())
        difference = max(difference, float((found - expected).abs().max()))
        largest = max(largest, float(expected.abs().max()))
    return abs(float(y.detach()) - total) / abs(total), difference / largest


def measure(
    case: Case, device: str, roof: float | None, results: Results, *, compiled: bool
) -> bool:
    """Measure a case, print its lines, and return whether it is right."""
    leaves = differentiable(case)
    y = case.function(*case.inputs)
    dy = torch.randn_like(y)
    errors = (chunked_errors if case.chunk else checked_errors)(case, y, dy)
    first = [y.detach().clone(), *torch.autograd.grad(y, leaves, dy, retain_graph=True)]
    same = True
    for _ in range(REPEATS):
        poison = [torch.full_like(each, float("nan")) for each in first]
        del poison
        again = case.function(*case.inputs)
        found = [again.detach(), *torch.autograd.grad(again, leaves, dy)]
        same &= all(torch.equal(a, b) for a, b in zip(found, first, strict=True))
    del first, found, again
    functions = {"ours": case.function, **case.rivals}
    if compiled:
        functions["compile"] = torch.compile(case.reference)
    forward: dict[str, Call] = {}
    backward: dict[str, Call] = {}
    for name, function in functions.items():
        inputs = case.inputs
        if name in case.inplace:
            inputs = tuple(
                each.detach().clone().requires_grad_(each.requires_grad) for each in inputs
            )
        try:
            made = function(*inputs)
            wrt = [each for each in inputs if each.requires_grad]
            torch.autograd.grad(made, wrt, dy.to(made.dtype), retain_graph=True)
        except Exception as error:
            print(f"  {name}: skipped ({type(error).__name__}: {str(error)[:100]})", flush=True)
            continue

        def run_forward(function: Any = function, inputs: Any = inputs) -> None:
            function(*inputs)

        def run_backward(made: Any = made, wrt: Any = wrt) -> None:
            torch.autograd.grad(made, wrt, dy.to(made.dtype), retain_graph=True)

        forward[name], backward[name] = run_forward, run_backward
    times_of = cpu_times if device == "cpu" else gpu_times
    is_right, total = same, 0.0
    for label, calls, moved, error in (
        ("forward", forward, case.forward_bytes, errors[0]),
        ("backward", backward, case.backward_bytes, errors[1]),
    ):
        times = times_of(calls)
        ours = times.pop("ours")
        dtype = next(each.dtype for each in case.inputs if each.is_floating_point())
        is_close = error <= TOLERANCES[dtype]
        is_right &= is_close
        ratios = " ".join(f"{name} {taken / ours:5.2f}" for name, taken in times.items())
        of_roof = f" {100 * moved / ours / roof:3.0f} %" if roof else ""
        rate = f"{moved / ours / 1e12:6.3f} TB/s{of_roof}"
        total += ours
        if case.operations:
            rate = f"{case.operations / total / 1e12:6.1f} TFLOP/s"
        case_name = f"{case.name} {label}"
        results.add(Result("rows", case_name, ours, moved, None, times, error, same))
        print(
            f"{case.name:34} {label:8} {ours * 1e6:9.1f} us {rate}  {ratios:36} "
            f"error {error:.1e}{'' if is_close else ' WRONG'} "
            f"{'same bits' if same else 'BITS DIFFER'}",
            flush=True,
        )
    return is_right


def main() -> int:
    """Measure the cases that are named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    parser.add_argument("--compile", action="store_true", help="torch.compile as a rival")
    parser.add_argument("--json", type=Path, help="the file for results")
    options = parser.parse_args()
    roof, results = None, Results()
    if options.device == "cpu":
        torch.set_num_threads(1)
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    else:
        name = torch.cuda.get_device_name()
        roof = next((value for key, value in ROOFS.items() if key in name), None)
        print(name, f"liger {'found' if liger else 'absent'}", flush=True)
    torch.manual_seed(0)
    wrong = 0
    for name, make in Cases(options.device).all().items():
        if options.names and name.split()[0] not in options.names:
            continue
        try:
            is_right = measure(make(), options.device, roof, results, compiled=options.compile)
        except Exception as error:
            print(f"{name}: {type(error).__name__}: {error}", flush=True)
            is_right = False
        wrong += not is_right
        if options.device == "cuda":
            torch.cuda.empty_cache()
    if options.json:
        results.write(options.json, options.device)
    print("all right" if not wrong else f"{wrong} cases WRONG")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
