"""Time the library's matmuls beside PyTorch's (cuBLAS, oneDNN).

    linear.py                       all cases on a GPU
    linear.py --device cpu          on one thread of a CPU
    linear.py matmul decode         those whose names begin so

A line for each case: our time, the rate and its part of the roof, the rival's time by ours, the
largest error relative to the largest result, and whether 20 launches into poisoned memory gave the
same bits. Times on a GPU are of the device alone, with the L2 cache overwritten before each call;
rivals alternate. The status is 1 where a result is wrong or bits differ.
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from device_times import DeviceTimer
from results import Result, Results

import tilewright_kernels as tk

Call = Callable[[], Any]
REPEATS = 20
#: Name of a device -> multiplications and additions per second in 16 bits, twice; bytes per second.
ROOFS = {"H100": (989e12, 3.35e12), "H200": (989e12, 4.8e12), "A100": (312e12, 2.0e12)}


@dataclass
class Case:
    """A call beside its rival.

    Attributes:
        name: its name.
        call: takes ``out=``, an array or None.
        rival: the rival's call, or None.
        expected: returns the result in float64 of the first rows.
        operations: multiplications and additions, each counted.
        moved: bytes read and written at least.
        tolerance: largest error relative to the largest result.
        speed: of the operand type relative to 16 bits.
    """

    name: str
    call: Callable[..., Any]
    rival: Call | None
    expected: Call
    operations: float
    moved: float
    tolerance: float
    speed: float = 1.0


def drawn(*shape: int, dtype: torch.dtype, device: str) -> torch.Tensor:
    return torch.randn(*shape, device=device).to(dtype)


def matmul_case(
    name: str, m: int, n: int, k: int, dtype: torch.dtype, device: str, *, transposed: bool = True
) -> Case:
    a = drawn(m, k, dtype=dtype, device=device)
    b = drawn(n, k, dtype=dtype, device=device).T
    b = b if transposed else b.contiguous()
    size = a.element_size()
    return Case(
        f"{name} {str(dtype)[6:]} {m}x{n}x{k}{'' if transposed else ' nn'}",
        lambda out=None: tk.matmul(a, b, out=out),
        lambda: torch.mm(a, b),
        lambda: a[:64].double() @ b.double(),
        2.0 * m * n * k,
        size * (m * k + n * k + m * n),
        1e-4 if dtype is torch.float32 else 1e-2,
    )


def epilogue_case(m: int, n: int, k: int, dtype: torch.dtype, device: str) -> Case:
    a, b = drawn(m, k, dtype=dtype, device=device), drawn(n, k, dtype=dtype, device=device)
    bias, residual = drawn(n, dtype=dtype, device=device), drawn(m, n, dtype=dtype, device=device)
    return Case(
        f"matmul with bias and residual {m}x{n}x{k}",
        lambda out=None: tk.matmul(a, b.T, bias, residual, out=out),
        lambda: torch.nn.functional.linear(a, b, bias) + residual,
        lambda: a[:64].double() @ b.double().T + bias.double() + residual[:64].double(),
        2.0 * m * n * k,
        a.element_size() * (m * k + n * k + 2 * m * n),
        1e-2,
    )


def scaled_case(m: int, n: int, k: int, device: str, *, blocks: bool) -> Case:
    x, y = (drawn(rows, k, dtype=torch.bfloat16, device=device) for rows in (m, n))
    one = (1, 128) if blocks else (m, k)
    other = (128, 128) if blocks else (n, k)
    if blocks:
        (a, a_scale), (b, b_scale) = tk.quantize(x, one), tk.quantize(y, other)
        b_scale = b_scale.T.contiguous()
    else:
        a, b = x.to(torch.float8_e4m3fn), y.to(torch.float8_e4m3fn)
        a_scale = b_scale = torch.ones((), device=device)

    def expected() -> torch.Tensor:
        if not blocks:
            return a[:64].double() @ b.double().T
        left = a[:64].double() * a_scale[:64].double().repeat_interleave(128, 1)[:, :k]
        spread = b_scale.T.double().repeat_interleave(128, 0).repeat_interleave(128, 1)
        return left @ (b.double() * spread[:n, :k]).T

    rival = None
    if not blocks and device == "cuda" and m >= 16:
        rival = lambda: torch._scaled_mm(  # noqa: E731
            a, b.T, a_scale, b_scale, out_dtype=torch.bfloat16, use_fast_accum=True
        )
    return Case(
        f"fp8 {'blocks' if blocks else 'tensor'} {m}x{n}x{k}",
        lambda out=None: tk.scaled_matmul(a, b.T, a_scale, b_scale, out=out),
        rival,
        expected,
        2.0 * m * n * k,
        m * k + n * k + 2 * m * n,
        1e-2,
        2.0,
    )


def quantized_case(m: int, n: int, k: int, device: str) -> Case:
    a = drawn(m, k, dtype=torch.float16, device=device)
    words = torch.randint(-(1 << 31), 1 << 31, (k // 128, n, 16), device=device, dtype=torch.int64)
    words = words.to(torch.int32)
    scales = torch.rand(k // 128, n, device=device).to(torch.float16).T  # as conversions leave them
    full = drawn(n, k, dtype=torch.float16, device=device)
    return Case(
        f"w4a16 {m}x{n}x{k} (rival f16)",
        lambda out=None: tk.quantized_matmul(a, words, scales, out=out),
        lambda: torch.mm(a, full.T),
        lambda: tk.quantized_matmul_reference(a[:64].double(), words, scales.double()),
        2.0 * m * n * k,
        n * k / 2 + 2 * (n * k / 128 + m * k + m * n),
        1e-2,
    )


def grouped_case(groups: int, n: int, k: int, rows: int, device: str, *, along_k: bool) -> Case:
    dtype = torch.bfloat16
    cuts = torch.sort(torch.randint(0, rows + 1, (groups - 1,), device=device)).values
    ends = torch.cat([cuts, torch.tensor([rows], device=device)]).to(torch.int32)
    first = torch.cat([torch.zeros(1, device=device, dtype=torch.int32), ends])
    a = drawn(rows, k, dtype=dtype, device=device)
    grouped_mm = getattr(torch, "_grouped_mm", None) if device == "cuda" else None
    operations = 2.0 * rows * n * k
    if along_k:
        dy = drawn(rows, n, dtype=dtype, device=device)
        return Case(
            f"grouped along K {groups} of {k}x{n}, {rows} rows",
            lambda out=None: tk.k_grouped_matmul(a, dy, first, out=out),
            None if grouped_mm is None else lambda: grouped_mm(a.T, dy, offs=ends),
            lambda: a[: first[1]].double().T @ dy[: first[1]].double(),
            operations,
            2.0 * (rows * (n + k) + groups * n * k),
            1e-2,
        )
    b = drawn(groups, n, k, dtype=dtype, device=device).transpose(1, 2)
    return Case(
        f"grouped {groups} of {k}x{n}, {rows} rows",
        lambda out=None: tk.grouped_matmul(a, b, first, out=out),
        None if grouped_mm is None else lambda: grouped_mm(a, b, offs=ends),
        lambda: tk.grouped_matmul_reference(
            a[:64].double(), b.double(), torch.clamp(first, max=64)
        ),
        operations,
        2.0 * (rows * (n + k) + groups * n * k),
        1e-2,
    )


def gpu_cases() -> Iterator[Callable[[], Case]]:
    f16, bf16, device = torch.float16, torch.bfloat16, "cuda"
    for size in (2048, 4096, 8192):
        for dtype in (f16, bf16):
            yield lambda s=size, d=dtype: matmul_case("matmul", s, s, s, d, device)
    yield lambda: matmul_case("matmul", 4096, 4096, 4096, bf16, device, transposed=False)
    for m, n, k in (
        (8192, 1280, 8192),
        (8192, 8192, 1024),
        (1024, 1024, 4096),
        (512, 4096, 4096),
        (1000, 3000, 2008),
        (4095, 4097, 1003),
    ):
        yield lambda m=m, n=n, k=k: matmul_case("shape", m, n, k, f16, device)
    for size in (4096, 8192):
        for rows in (1, 8, 16, 64):
            yield lambda s=size, r=rows: matmul_case("decode", r, s, s, bf16, device)
    yield lambda: epilogue_case(4096, 4096, 4096, bf16, device)
    yield lambda: scaled_case(8192, 8192, 4096, device, blocks=False)
    yield lambda: scaled_case(4096, 7168, 16384, device, blocks=True)
    for rows in (1, 16, 128):
        yield lambda r=rows: scaled_case(r, 4096, 4096, device, blocks=True)
    for rows in (1, 16, 4096):
        yield lambda r=rows: quantized_case(r, 8192, 8192, device)
    yield lambda: grouped_case(32, 7168, 4096, 32768, device, along_k=False)
    yield lambda: grouped_case(128, 768, 2048, 32768, device, along_k=False)
    yield lambda: grouped_case(128, 768, 2048, 32768, device, along_k=True)


def cpu_cases() -> Iterator[Callable[[], Case]]:
    f32, bf16, device = torch.float32, torch.bfloat16, "cpu"
    for size in (256, 512, 1024):
        yield lambda s=size: matmul_case("matmul", s, s, s, f32, device)
    yield lambda: matmul_case("matmul", 512, 512, 512, f32, device, transposed=False)
    yield lambda: matmul_case("matmul", 512, 512, 512, bf16, device)
    yield lambda: matmul_case("shape", 333, 555, 777, f32, device)
    for rows in (1, 8, 64):
        yield lambda r=rows: matmul_case("decode", r, 2048, 2048, f32, device)
    yield lambda: epilogue_case(512, 512, 512, f32, device)
    yield lambda: grouped_case(8, 256, 256, 512, device, along_k=False)


def gpu_times(calls: Mapping[str, Call], rounds: int = 12) -> dict[str, float]:
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


def has_same_bits(case: Case, first: torch.Tensor) -> bool:
    """Return whether repeated launches into poisoned memory give the bits of the first one."""
    out = torch.empty_like(first)
    for _ in range(REPEATS):
        out.fill_(float("nan"))
        case.call(out=out)
        if not torch.equal(out, first):
            return False
    return True


def measure(case: Case, device: str, results: Results) -> tuple[bool, float | None]:
    """Print a line; return whether the result is right, and the rival's time by ours."""
    result = case.call()
    expected = case.expected()
    found = (result[0] if expected.shape == result.shape[1:] else result[: len(expected)]).double()
    wrong = float((found - expected).abs().max() / expected.abs().max())
    same = has_same_bits(case, result)
    calls: dict[str, Call] = {"ours": case.call}
    if case.rival is not None:
        try:
            case.rival()
            calls["rival"] = case.rival
        except RuntimeError as error:
            print(f"  {case.name}: no rival: {str(error)[:100]}")
    times = (gpu_times if device == "cuda" else cpu_times)(calls)
    ours = times["ours"]
    ratio = times["rival"] / ours if "rival" in times else None
    roof = ""
    if device == "cuda":
        name = torch.cuda.get_device_name()
        rates = next((each for key, each in ROOFS.items() if key in name), None)
        if rates is not None:
            bound = max(case.operations / rates[0] / case.speed, case.moved / rates[1])
            roof = f"{bound / ours:6.1%} of the roof  "
    is_right = wrong <= case.tolerance and same
    results.add(
        Result(
            "linear",
            case.name,
            ours,
            case.moved,
            case.operations,
            {"torch": times["rival"]} if "rival" in times else {},
            wrong,
            same,
            case.speed,
        )
    )
    print(
        f"{case.name:48s} {ours * 1e6:9.1f} us  {case.operations / ours / 1e12:8.2f} TFLOP/s  "
        f"{case.moved / ours / 1e12:6.3f} TB/s  {roof}"
        f"rival/ours {'-' if ratio is None else format(ratio, '.3f'):6s} error {wrong:.1e}  "
        f"{'same bits' if same else 'BITS DIFFER'}{'' if wrong <= case.tolerance else '  WRONG'}",
        flush=True,
    )
    return is_right, ratio


def host_time(device: str) -> None:
    """Print the time of the host for a small call, and of PyTorch's."""
    a, b = (drawn(64, 64, dtype=torch.float32, device=device) for _ in range(2))
    out = torch.empty_like(a)
    for name, call in (
        ("ours", lambda: tk.matmul(a, b, out=out)),
        ("rival", lambda: torch.mm(a, b, out=out)),
    ):
        for _ in range(50):
            call()
        least = math.inf
        for _ in range(10):
            started = time.perf_counter()
            for _ in range(100):
                call()
            least = min(least, time.perf_counter() - started)
        print(f"host time of 64x64x64, {name}: {least / 100 * 1e6:.1f} us")
        if device == "cuda":
            torch.cuda.synchronize()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*", help="the beginnings of cases' names; all by default")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--json", type=Path, help="the file for results")
    options = parser.parse_args()
    if options.device == "cpu":
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        torch.set_num_threads(1)
    ratios, is_right, results = [], True, Results()
    for make in gpu_cases() if options.device == "cuda" else cpu_cases():
        case = make()
        if options.names and not any(case.name.startswith(each) for each in options.names):
            continue
        try:
            right, ratio = measure(case, options.device, results)
        except Exception as error:
            print(f"{case.name}: FAILED: {type(error).__name__}: {str(error)[:300]}", flush=True)
            right, ratio = False, None
        is_right &= right
        if ratio is not None:
            ratios.append(ratio)
    if ratios:
        mean = math.exp(statistics.fmean(map(math.log, ratios)))
        print(f"geometric mean {mean:.3f}, least {min(ratios):.3f}")
    host_time(options.device)
    if options.json:
        results.write(options.json, options.device)
    sys.exit(0 if is_right else 1)


if __name__ == "__main__":
    main()
