"""Time each step of the tutorial on matmuls beside PyTorch's matmul (cuBLAS, oneDNN).

    matmul_ladder.py                    f16 matrices of 4096 rows and columns, on a GPU
    matmul_ladder.py 4096 8192          those sizes
    matmul_ladder.py --device cpu 512   f32 matrices, on all threads of a CPU
    matmul_ladder.py --json FILE        writes the figures, too

The kernels are those of the page. Each step has a few configurations; a line is printed for each,
with the rate and its part of the rival's. Times on a GPU are of the device alone, with a cold L2
cache; the rival alternates. Every configuration is compared with float64, and runs 20 times into
poisoned memory; the status is 1 where a result is wrong or bits differ.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch

sys.path[:0] = [str(Path(__file__).resolve().parents[1] / "kernels")]
from page_kernels import kernels_of
from results import Result, Results
from stopwatch import Stopwatch

import tilewright as tw

REPEATS = 20
#: Matrices from this size on are not given to the naive kernel.
LARGEST_NAIVE = 4096


class Blocks(NamedTuple):
    """Extents of a block, and launch options."""

    rows: int
    columns: int
    inner: int
    group: int
    options: dict[str, int]

    def __str__(self) -> str:
        options = " ".join(f"{name}={value}" for name, value in self.options.items())
        return f"{self.rows}x{self.columns}x{self.inner} GROUP={self.group} {options}".strip()


def gpu_blocks(*configurations: tuple[int, int, int, int, int, int]) -> list[Blocks]:
    """Return blocks of (rows, columns, inner, group, warps, stages)."""
    return [
        Blocks(rows, columns, inner, group, {"num_warps": warps, "num_stages": stages})
        for rows, columns, inner, group, warps, stages in configurations
    ]


SINGLE = gpu_blocks((128, 128, 64, 8, 4, 1), (128, 128, 64, 8, 8, 1), (128, 256, 64, 8, 8, 1))
STAGED = gpu_blocks((128, 128, 64, 8, 4, 4), (128, 256, 64, 8, 8, 3), (128, 256, 64, 8, 8, 4))
SPECIALIZED = gpu_blocks((128, 256, 64, 8, 8, 3), (128, 256, 64, 8, 8, 4), (128, 256, 64, 16, 8, 4))
#: Step -> its configurations on GPUs.
ON_GPU = {
    "naive": gpu_blocks((1, 1, 256, 1, 1, 1), (1, 1, 512, 1, 4, 1)),
    "tiled": SINGLE,
    "grouped": SINGLE,
    "pipelined": STAGED,
    "descriptors": SPECIALIZED,
    "persistent": SPECIALIZED,
}
#: Step -> its configurations on CPUs.
ON_CPU = {
    "naive": [Blocks(1, 1, 512, 1, {})],
    **{step: [Blocks(64, 64, 64, 4, {}), Blocks(128, 128, 64, 4, {})] for step in list(ON_GPU)[1:]},
}


def launches(
    step: str, blocks: Blocks, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, programs: int
) -> Callable[[], Any]:
    """Return a call of a step's kernel."""
    page = kernels_of("matmul")
    (m, k), n = a.shape, b.shape[1]
    shape = {"BLOCK_M": blocks.rows, "BLOCK_N": blocks.columns, "BLOCK_K": blocks.inner}
    down, across = tw.cdiv(m, blocks.rows), tw.cdiv(n, blocks.columns)
    group, options = {"GROUP": blocks.group}, blocks.options
    if step == "naive":
        return lambda: page.naive_kernel[(n, m)](a, b, c, m, n, k, BLOCK_K=blocks.inner, **options)
    if step == "tiled":
        return lambda: page.tiled_kernel[(across, down)](a, b, c, m, n, k, **shape, **options)
    if step in ("grouped", "pipelined"):
        return lambda: page.grouped_kernel[(across * down,)](
            a, b, c, m, n, k, **shape, **group, **options
        )
    operands = list(page.descriptors(a, b, c, **shape))
    if step == "descriptors":
        return lambda: page.descriptor_kernel[(across * down,)](
            *operands, m, n, k, **shape, **group, **options
        )
    return lambda: page.persistent_kernel[(min(programs, across * down),)](
        *operands, m, n, k, **shape, **group, **options
    )


def measured(size: int, device: str, steps: list[str], rounds: int) -> Iterator[Result]:
    """Yield a result for each configuration of the steps."""
    dtype = torch.float16 if device == "cuda" else torch.float32
    a, b = (torch.randn(size, size, device=device).to(dtype) for _ in range(2))
    c, out = torch.empty_like(a), torch.empty_like(a)
    exact = a[:128].double() @ b.double()
    programs = torch.get_num_threads()
    if device == "cuda":
        programs = torch.cuda.get_device_properties(0).multi_processor_count
    stopwatch = Stopwatch(device)
    for step in steps:
        for blocks in (ON_GPU if device == "cuda" else ON_CPU)[step]:
            call = launches(step, blocks, a, b, c, programs)
            call()
            first, has_same_bits = c.clone(), True
            for _ in range(min(REPEATS, rounds)):
                c.fill_(float("nan"))
                call()
                has_same_bits &= torch.equal(c, first)
            error = float((first[:128].double() - exact).abs().max() / exact.abs().max())
            if rounds:
                rival = "cuBLAS" if device == "cuda" else "PyTorch"
                times = stopwatch.alternating(
                    {"ours": call, rival: lambda: torch.mm(a, b, out=out)},
                    min(rounds, 3) if step == "naive" else rounds,
                )
                yield Result(
                    family=f"{step} {size}",
                    case=str(blocks),
                    seconds=times.pop("ours"),
                    operations=2.0 * size**3,
                    rivals=times,
                    error=error,
                    has_same_bits=has_same_bits,
                )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sizes", nargs="*", type=int)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--steps", default=",".join(ON_GPU), help="separated by commas")
    parser.add_argument("--rounds", type=int, default=15, help="0 compiles without measuring")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    results, is_right = Results(), True
    for size in options.sizes or [4096 if options.device == "cuda" else 512]:
        steps = options.steps.split(",")
        if size > LARGEST_NAIVE:
            steps = [step for step in steps if step != "naive"]
        for row in measured(size, options.device, steps, options.rounds):
            results.add(row)
            ((name, rival),) = row.rivals.items()
            rate, part = 2e-12 * size**3 / row.seconds, rival / row.seconds
            right = row.error < 2e-3 and row.has_same_bits
            is_right &= right
            print(
                f"{row.family:18} {row.case:44} {row.seconds * 1e6:10.1f} us {rate:8.2f} TFLOP/s "
                f"{part:.3f} of {name}  error {row.error:.1e}{'' if right else '  WRONG'}",
                flush=True,
            )
    if options.json:
        results.write(options.json, options.device)
    sys.exit(not is_right)


if __name__ == "__main__":
    main()
