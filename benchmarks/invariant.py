"""Bits of invariant launches on a device, and what invariance costs.

    python benchmarks/invariant.py --device cpu|cuda [--speed-only | --bits-only | --rival vllm]

Bits: each kernel is tuned with ``invariant=True`` over block sizes, ``num_warps`` and
``num_stages``. Then every configuration that may be chosen computes every batch size from 1 to 70
and every power of two up to 4096, and a batch whose rows are permuted: all rows must have one
pattern of bits. Speed: the tuned invariant matmul in relation to the one that may take any
configuration, beside a persistent matmul with one configuration, as vLLM has it. Rival: the matmul
of an installed vLLM itself, under Triton, beside the tuned invariant one: times, and whether its
bits depend on the number of rows, from 1 to 64.

Needs PyTorch. Exit status 1 where bits differ, or the invariant matmul has less than 0.95 of the
speed.
"""

from __future__ import annotations

import argparse
import itertools
import math
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

import tilewright as tw
from tilewright.runtime.compiler.parallel_compile import compile_trials, trials_of
from tilewright_conformance.kernels import invariant_kernels as kernels

BATCHES = (*range(1, 71), 128, 256, 512, 1024, 2048, 4096)
LARGEST = 4096
#: Speed of the invariant matmul in relation to the unconstrained one that is asked for.
ASKED = 0.95


@dataclass
class Family:
    """A kernel, and how to launch it for the first rows of a batch.

    Attributes:
        arguments: makes the arguments before the number of rows, and the output, of x's first rows.
        extents: arguments behind the number of rows.
        grid: the grid for a number of rows and meta-parameters.
    """

    name: str
    kernel: Any
    configs: list[tw.Config]
    x: torch.Tensor
    arguments: Callable[[torch.Tensor], tuple[tuple[Any, ...], torch.Tensor]]
    extents: tuple[Any, ...]
    grid: Callable[[int, dict[str, Any]], tuple[int, ...]]
    finish: Callable[[torch.Tensor], torch.Tensor] = lambda out: out

    def launch(self, launched: Any, x: torch.Tensor, **options: Any) -> torch.Tensor:
        arguments, out = self.arguments(x)
        rows = x.shape[0]
        grid = lambda meta: self.grid(meta["M"], meta)  # noqa: E731
        launched[grid](*arguments, rows, *self.extents, **options)
        return self.finish(out)


def spread(*shape: int, dtype: torch.dtype, device: str, seed: int) -> torch.Tensor:
    """Random numbers whose sums depend on their order."""
    generator = torch.Generator().manual_seed(seed)
    exponents = torch.randint(-6, 6, shape, generator=generator)
    values = torch.randn(shape, generator=generator) * torch.exp2(exponents.float())
    return values.to(dtype).to(device)


def options(warps: Sequence[int], stages: Sequence[int], **axes: Sequence[int]) -> list[tw.Config]:
    """Every combination of launch options and meta-parameters."""
    return [
        tw.Config(dict(zip(axes, values, strict=True)), num_warps=w, num_stages=s)
        for w, s in itertools.product(warps, stages)
        for values in itertools.product(*axes.values())
    ]


def families(device: str) -> list[Family]:
    on_gpu = device != "cpu"
    n, k = (512, 1024) if on_gpu else (64, 256)
    warps, stages = ((4, 8), (2, 3)) if on_gpu else ((4,), (3,))
    found = []

    def tiles(rows: int, meta: dict[str, Any]) -> int:
        return math.ceil(rows / meta["BLOCK_M"]) * math.ceil(n / meta["BLOCK_N"])

    for dtype in (torch.float16, torch.bfloat16, torch.float32):
        depth = 64 if dtype is not torch.float32 else 32
        x = spread(LARGEST, k, dtype=dtype, device=device, seed=0)
        w = spread(n, k, dtype=dtype, device=device, seed=1)

        def matmul_arguments(x: torch.Tensor, w: torch.Tensor = w) -> Any:
            out = torch.zeros(x.shape[0], n, dtype=x.dtype, device=device)
            return (x, w, out), out

        blocks = {"BLOCK_M": (16, 64, 128), "BLOCK_N": (64, 128)} if on_gpu else {
            "BLOCK_M": (4, 16, 64), "BLOCK_N": (16, 64)
        }  # fmt: skip
        found.append(
            Family(
                f"matmul {dtype}".replace("torch.", ""),
                kernels.matmul,
                options(warps, stages, **blocks, BLOCK_K=(depth,)),
                x,
                matmul_arguments,
                (n, k),
                lambda rows, meta: (tiles(rows, meta),),
            )
        )
    half = torch.float16
    x, w = (
        spread(LARGEST, k, dtype=half, device=device, seed=2),
        spread(n, k, dtype=half, device=device, seed=3),
    )

    def split_arguments(x: torch.Tensor) -> Any:
        out = torch.zeros(x.shape[0], 4, n, dtype=torch.float32, device=device)
        return (x, w, out), out

    def added(parts: torch.Tensor) -> torch.Tensor:
        return parts[:, 0] + parts[:, 1] + parts[:, 2] + parts[:, 3]

    found.append(
        Family(
            "split-K matmul",
            kernels.split_k_matmul,
            options(warps, stages, BLOCK_M=(16, 64), BLOCK_N=(64,), BLOCK_K=(64,), SPLIT=(4,)),
            x,
            split_arguments,
            (n, k),
            lambda rows, meta: (tiles(rows, meta), 4),
            added,
        )
    )
    width, by_rows = 1000, {"ROWS": (1, 4, 16), "BLOCK": (1024,)}
    x = spread(LARGEST, width, dtype=half, device=device, seed=4)
    weight = spread(width, dtype=half, device=device, seed=5)

    def row_grid(rows: int, meta: dict[str, Any]) -> tuple[int, ...]:
        return (math.ceil(rows / meta["ROWS"]),)

    def norm_arguments(x: torch.Tensor) -> Any:
        out = torch.zeros_like(x)
        return (x, weight, out), out

    def softmax_arguments(x: torch.Tensor) -> Any:
        out = torch.zeros_like(x)
        return (x, out), out

    row_configs = options((1, 4, 8) if on_gpu else (4,), (2,), **by_rows)
    for kernel, arguments in (
        (kernels.layer_norm, norm_arguments),
        (kernels.rms_norm, norm_arguments),
        (kernels.softmax, softmax_arguments),
    ):
        found.append(Family(kernel.__name__, kernel, row_configs, x, arguments, (width,), row_grid))
    head, length = 64, 500 if on_gpu else 150
    q, keys, values = (
        (spread(rows, head, dtype=half, device=device, seed=seed) / 8).contiguous()
        for rows, seed in ((LARGEST, 6), (length, 7), (length, 8))
    )

    def attention_arguments(q: torch.Tensor) -> Any:
        out = torch.zeros_like(q)
        return (q, keys, values, out), out

    found.append(
        Family(
            "attention",
            kernels.attention,
            options(warps, stages, BLOCK_M=(16, 64, 128), BLOCK_N=(64,), HEAD=(head,)),
            q,
            attention_arguments,
            (length, 0.125),
            lambda rows, meta: (math.ceil(rows / meta["BLOCK_M"]),),
        )
    )
    return found


def bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.view({2: torch.int16, 4: torch.int32}[tensor.element_size()])


def compile_at_once(family: Family, configs: Sequence[tw.Config]) -> None:
    """Compile the kernels of configurations for all batch sizes, by all processors."""

    def warm_up(config: tw.Config) -> None:
        for rows in (1, 3, 16):
            arguments, _ = family.arguments(family.x[:rows])
            grid = family.grid(rows, config.all_kwargs())
            family.kernel.run(
                *arguments, rows, *family.extents, grid=grid, warmup=True, **config.all_kwargs()
            )

    def fail(config: tw.Config, error: Exception) -> None:
        raise error

    for _ in compile_trials(trials_of(configs, warm_up, fail), on_error=fail):
        pass


def check_bits(family: Family) -> bool:
    """Return whether all rows have one pattern of bits, and print the result."""
    started = time.perf_counter()

    def bench(call: Callable[[], None], quantiles: Any) -> list[float]:
        call()
        return [1.0] * 3

    tuner = tw.autotune(family.configs, ["M"], do_bench=bench, mode="memory", invariant=True)(
        family.kernel
    )
    expected = bits(family.launch(tuner, family.x))
    excluded = [config for config, _ in tuner.failures]
    chosen = [config for config in tuner.configs if config not in excluded]
    compile_at_once(family, chosen)
    wrong: list[str] = []
    launches = 0
    for config in chosen:
        for rows in BATCHES:
            out = bits(family.launch(family.kernel, family.x[:rows], **config.all_kwargs()))
            launches += 1
            if not torch.equal(out, expected[:rows]):
                wrong.append(f"{rows} rows with [{config}]")
        order = torch.randperm(LARGEST, generator=torch.Generator().manual_seed(9))
        order = order.to(family.x.device)
        out = bits(family.launch(family.kernel, family.x[order], **config.all_kwargs()))
        if not torch.equal(out, expected[order]):
            wrong.append(f"permuted rows with [{config}]")
    patterns = "one pattern" if not wrong else f"DIFFERENT: {'; '.join(wrong[:3])}"
    print(
        f"bits  {family.name:16} {len(chosen):3} of {len(family.configs)} configurations may be "
        f"chosen, {launches + len(chosen)} launches: {patterns} "
        f"({time.perf_counter() - started:.1f} s)",
        flush=True,
    )
    reasons = {str(error.args[0]).splitlines()[0][:120] for _, error in tuner.failures}
    for reason in sorted(reasons):
        print(f"        excluded: {reason}")
    return not wrong


# ---- speed


def speed_configs(device: str) -> list[tw.Config]:
    if device == "cpu":
        return options((4,), (3,), BLOCK_M=(4, 32, 64), BLOCK_N=(64,), BLOCK_K=(64, 128))
    return [
        tw.Config({"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k}, num_warps=w, num_stages=s)
        for m, n, k, w, s in (
            (128, 256, 64, 8, 3),
            (128, 256, 64, 8, 4),
            (128, 128, 64, 8, 4),
            (128, 128, 64, 4, 4),
            (64, 256, 64, 4, 4),
            (64, 128, 64, 4, 4),
            (64, 64, 128, 4, 4),
            (16, 64, 128, 4, 4),
            (16, 128, 128, 4, 4),
        )
    ]


def tuned(kernel: Any, x: Any, w: Any, out: Any) -> Callable[[], None]:
    """Return a launch of a tuned matmul."""
    (m, k), n = x.shape, w.shape[0]

    def grid(meta: dict[str, Any]) -> tuple[int, ...]:
        return (math.ceil(meta["M"] / meta["BLOCK_M"]) * math.ceil(n / meta["BLOCK_N"]),)

    return lambda: kernel[grid](x, w, out, m, n, k)


def persistent(x: Any, w: Any, out: Any) -> Callable[[], None]:
    """Return a launch of the matmul that has one configuration for all sizes."""
    (m, k), n = x.shape, w.shape[0]
    on_gpu = x.device.type != "cpu"
    block = 128 if on_gpu else 64
    programs = torch.cuda.get_device_properties(0).multi_processor_count if on_gpu else 1 << 20
    tiles = math.ceil(m / block) * math.ceil(n / block)
    blocks = {"BLOCK_M": block, "BLOCK_N": block, "BLOCK_K": 64}
    launched = kernels.persistent_matmul[(min(programs, tiles),)]
    options = {"num_warps": 8, "num_stages": 3, "invariant": True}
    return lambda: launched(x, w, out, m, n, k, PROGRAMS=programs, **blocks, **options)


def check_speed(device: str) -> bool:
    """Return whether the invariant matmul has the speed asked for, and print the times."""
    from tilewright.testing import do_bench

    sizes = (
        ((1, 1024, 1024), (64, 1024, 1024), (512, 1024, 1024))
        if device == "cpu"
        else ((64, 4096, 4096), (1024, 4096, 4096), (4096, 4096, 4096), (8192, 4096, 4096))
    )
    dtypes = (torch.float32, torch.float16) if device == "cpu" else (torch.float16, torch.bfloat16)
    fits = True
    print("speed: milliseconds of matmuls, and the unconstrained one's time / the invariant one's")
    for dtype in dtypes:
        tuners = {
            name: tw.autotune(speed_configs(device), ["M", "N", "K"], mode="memory", invariant=on)(
                kernels.matmul
            )
            for name, on in (("free", False), ("invariant", True))
        }
        ratios = []
        for m, n, k in reversed(sizes):
            x, w = (torch.randn(rows, k, device=device).to(dtype) for rows in (m, n))
            out = torch.empty(m, n, dtype=dtype, device=device)

            calls = {name: tuned(one, x, w, out) for name, one in tuners.items()}
            calls["persistent"] = persistent(x, w, out)
            times = dict.fromkeys(calls, math.inf)
            for _ in range(3):
                for name, call in calls.items():
                    found = do_bench(call, warmup=20, rep=60, return_mode="median")
                    times[name] = min(times[name], found)
            ratios.append(times["free"] / times["invariant"])
            shown = "  ".join(f"{name} {ms:.4f}" for name, ms in times.items())
            print(
                f"speed {str(dtype)[6:]:9} {m:5} x {n} x {k}: {shown}  ratio {ratios[-1]:.3f}  "
                f"[{tuners['invariant'].best_config}]",
                flush=True,
            )
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
        verdict = "ok" if mean >= ASKED else f"LESS THAN {ASKED}"
        excluded = len(tuners["invariant"].failures)
        print(f"speed {str(dtype)[6:]}: mean ratio {mean:.3f}, {excluded} excluded: {verdict}")
        fits &= mean >= ASKED
    return fits


# ---- vLLM's matmul

#: (N, K) of the matmuls beside vLLM's: one with its block sizes for all shapes, one with those that
#: it has tuned for the shape.
RIVAL_SHAPES = ((5120, 4096), (4096, 4096))


def check_rival(device: str) -> bool:
    """Compare the tuned invariant matmul with vLLM's; return whether ours has constant bits."""
    import vllm_matmul

    theirs = vllm_matmul.load(device)
    on_gpu = device != "cpu"
    constant = True
    for dtype in (torch.float16, torch.bfloat16):
        kernel = tw.autotune(speed_configs(device), ["M", "N", "K"], mode="memory", invariant=True)(
            kernels.matmul
        )
        for n, k in RIVAL_SHAPES if on_gpu else ((256, 512),):
            sizes = (8192, 4096, 1024, 64, 1) if on_gpu else (64, 1)
            x = spread(sizes[0], k, dtype=dtype, device=device, seed=0)
            w = spread(n, k, dtype=dtype, device=device, seed=1)
            configs = rival_times(kernel, theirs, x, w, sizes)
            launches = {
                "ours": partial(launch_one_of, configs, x, w),
                "vllm": partial(rows_by, theirs, x, w),
            }
            for name, first_rows in launches.items():
                expected = bits(first_rows(64))
                other = [
                    rows
                    for rows in range(1, 64)
                    if not torch.equal(bits(first_rows(rows)), expected[:rows])
                ]
                told = f"DIFFERENT for {other} rows" if other else "constant for 1 to 64 rows"
                print(f"rival {str(dtype)[6:]:9} N {n} K {k}: bits of {name}: {told}", flush=True)
                constant &= name != "ours" or not other
    return constant


def launch_one_of(
    configs: Sequence[tw.Config], x: torch.Tensor, w: torch.Tensor, rows: int
) -> torch.Tensor:
    """Multiply the first rows of x with one of the configurations, by their number."""
    (n, k), config = w.shape, configs[rows % len(configs)]
    out = torch.empty(rows, n, dtype=x.dtype, device=x.device)
    meta = config.kwargs
    grid = (math.ceil(rows / meta["BLOCK_M"]) * math.ceil(n / meta["BLOCK_N"]),)
    kernels.matmul[grid](x, w, out, rows, n, k, **config.all_kwargs())
    return out


def rows_by(
    matmul: Callable[..., torch.Tensor], x: torch.Tensor, w: torch.Tensor, rows: int
) -> torch.Tensor:
    """Multiply the first rows of x with vLLM's matmul."""
    return matmul(x[:rows], w.t())


def rival_times(
    kernel: Any, theirs: Callable[..., Any], x: torch.Tensor, w: torch.Tensor, sizes: Sequence[int]
) -> list[tw.Config]:
    """Print the times of both matmuls of the first rows of x; return the configurations of ours."""
    from tilewright.testing import do_bench

    (n, k), dtype = w.shape, str(x.dtype)[6:]
    configs = []
    for rows in sizes:
        part = x[:rows]
        out = torch.empty(rows, n, dtype=x.dtype, device=x.device)
        wanted = part.double() @ w.double().t()
        calls = {"ours": tuned(kernel, part, w, out), "vllm": partial(theirs, part, w.t())}
        times = dict.fromkeys(calls, math.inf)
        for _ in range(3):
            for name, call in calls.items():
                times[name] = min(
                    times[name], do_bench(call, warmup=10, rep=40, return_mode="median")
                )
        configs.append(kernel.best_config)
        scale = wanted.abs().max()
        errors = [float((found.double() - wanted).abs().max() / scale)
                  for found in (out, theirs(part, w.t()))]  # fmt: skip
        print(
            f"rival {dtype:9} {rows:5} x {n} x {k}: ours {times['ours']:.4f} ms  vllm "
            f"{times['vllm']:.4f} ms  vllm / ours {times['vllm'] / times['ours']:.3f}  errors "
            f"{errors[0]:.1e} {errors[1]:.1e}  [{kernel.best_config}]",
            flush=True,
        )
    return configs


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--bits-only", action="store_true")
    parser.add_argument("--speed-only", action="store_true")
    parser.add_argument("--rival", choices=("vllm",))
    chosen = parser.parse_args()
    if chosen.rival:
        right = check_rival(chosen.device)
        print("verdict:", "ok" if right else "FAILED")
        return 0 if right else 1
    right = True
    if not chosen.speed_only:
        for family in families(chosen.device):
            right &= check_bits(family)
    if not chosen.bits_only:
        right &= check_speed(chosen.device)
    print("verdict:", "ok" if right else "FAILED")
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
