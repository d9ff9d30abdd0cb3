"""Time the kernels of the tutorials over sizes, beside PyTorch's functions.

    sweeps.py                   all of them, on a GPU
    sweeps.py softmax dropout   those tutorials
    sweeps.py --json FILE       writes the figures, too

The kernels are those of the pages. A line for each size: our time, the rate, and the rivals' times
by ours. Times are of the device alone, with a cold L2 cache; rivals alternate. Every result is
compared with PyTorch's in float64, and runs 20 times into poisoned memory; the status is 1 where
one is wrong or bits differ.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional

sys.path[:0] = [str(Path(__file__).resolve().parents[1] / "kernels")]
from page_kernels import kernels_of
from results import Result, Results
from stopwatch import Stopwatch

import tilewright as tw
import tilewright_kernels as tk

REPEATS = 20
Call = Callable[[], Any]


@dataclass
class Case:
    """A kernel of a page at a size, beside rivals.

    Attributes:
        series: its line in the figure.
        size: its place on the axis.
        call: launches the kernel, which fills ``out``.
        out: the results.
        expected: returns them in float64, or at least their first rows.
        rivals: name -> call.
        tolerance: the largest error relative to the largest result.
    """

    series: str
    size: int
    call: Call
    out: torch.Tensor
    expected: Call
    rivals: dict[str, Call] = field(default_factory=dict)
    bytes_moved: float | None = None
    operations: float | None = None
    tolerance: float = 1e-5


def drawn(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*shape, device="cuda").to(dtype)


def vector_add(power: int) -> Iterator[Case]:
    page, n = kernels_of("vector_add"), 1 << power
    x, y, out, other = (drawn(n) for _ in range(4))
    yield Case(
        *("Tilewright", n),
        lambda: page.add_kernel[(tw.cdiv(n, 1024),)](x, y, out, n, BLOCK=1024),
        *(out, lambda: x.double() + y.double()),
        {"PyTorch": lambda: torch.add(x, y, out=other)},
        bytes_moved=12 * n,
    )


def softmax(columns: int, is_fixed: bool) -> Iterator[Case]:
    page, rows = kernels_of("softmax"), (1 << 26) // columns
    x = drawn(rows, columns)
    out = torch.empty_like(x)
    warps = 4 if is_fixed else min(max(columns // 1024, 1), 32)
    yield Case(
        *("4 warps" if is_fixed else "a warp for 1024 columns", columns),
        lambda: page.softmax_kernel[(rows,)](
            x, out, columns, columns, BLOCK=columns, num_warps=warps
        ),
        *(out, lambda: torch.softmax(x[:64].double(), 1)),
        {"PyTorch": lambda: torch.softmax(x, 1)},
        bytes_moved=8 * rows * columns,
    )


def layer_norm(n: int) -> Iterator[Case]:
    page, rows = kernels_of("layer_norm"), (1 << 25) // n
    x, dy = drawn(rows, n), drawn(rows, n)
    w, b = drawn(n), drawn(n)
    y, dx = torch.empty_like(x), torch.empty_like(x)
    mean, rstd = (torch.empty(rows, device="cuda") for _ in range(2))
    programs = 264
    sums = torch.empty(programs, 2, n, device="cuda")
    gradients = torch.empty(2, n, device="cuda")
    options = {"BLOCK": n, "num_warps": min(max(n // 512, 4), 16)}
    yield Case(
        *("forward", n),
        lambda: page.forward_kernel[(rows,)](x, w, b, y, mean, rstd, n, 1e-5, **options),
        *(y, lambda: functional.layer_norm(x[:64].double(), (n,), w.double(), b.double())),
        {"PyTorch": lambda: functional.layer_norm(x, (n,), w, b)},
        bytes_moved=8 * rows * n,
    )

    def backward() -> None:
        page.backward_kernel[(programs,)](
            *(x, w, dy, mean, rstd, dx, sums, rows, n), **options, num_stages=3
        )
        page.add_sums_kernel[(tw.cdiv(2 * n, 256),)](sums, gradients, programs, 2 * n, 256)

    def exact(mask: list[bool]) -> Any:
        doubles = [each.double() for each in (dy, x, w, b)]
        _, centre, scale = torch.ops.aten.native_layer_norm(doubles[1], (n,), *doubles[2:], 1e-5)
        return torch.ops.aten.native_layer_norm_backward(
            *doubles[:2], (n,), centre, scale, *doubles[2:], mask
        )

    def rival() -> None:
        torch.ops.aten.native_layer_norm_backward(
            dy, x, (n,), mean[:, None], rstd[:, None], w, b, [True] * 3
        )

    moved = 12 * rows * n
    yield Case(
        *("backward", n, backward, dx),
        lambda: exact([True, False, False])[0],
        {"PyTorch": rival},
        bytes_moved=moved,
    )
    yield Case(
        *("backward of weight and bias", n, backward, gradients),
        lambda: torch.stack(exact([False, True, True])[1:]),
        bytes_moved=moved,
    )


def attention(length: int, configuration: tuple[int, int]) -> Iterator[Case]:
    page, dims, (block_n, stages) = kernels_of("attention"), 128, configuration
    heads = max(16, (1 << 16) // length)
    q, k, v = (drawn(heads, length, dims, dtype=torch.float16) for _ in range(3))
    out, library = torch.empty_like(q), [each[None].transpose(1, 2) for each in (q, k, v)]

    def exact() -> torch.Tensor:
        scores = q[0, :64].double() @ k[0].double().T * dims**-0.5
        visible = torch.ones(64, length, device="cuda").tril().bool()
        return torch.where(visible, scores, -float("inf")).softmax(1) @ v[0].double()

    yield Case(
        *(f"128 x {block_n}, num_stages={stages}", length),
        lambda: page.attention_kernel[(tw.cdiv(length, 128), heads)](
            *(q, k, v, out, dims**-0.5, length),
            CAUSAL=True,
            DIMS=dims,
            BLOCK_M=128,
            BLOCK_N=block_n,
            num_warps=8,
            num_stages=stages,
        ),
        *(out, exact),
        {
            "PyTorch": lambda: functional.scaled_dot_product_attention(
                q[None], k[None], v[None], is_causal=True
            ),
            "tk.attention": lambda: tk.attention(*library, causal=True),
        },
        operations=2.0 * heads * length * length * dims,
        tolerance=3e-3,
    )


def dropout(power: int) -> Iterator[Case]:
    page, n = kernels_of("dropout"), 1 << power
    x = torch.ones(n, device="cuda")
    out = torch.empty_like(x)

    def exact() -> torch.Tensor:
        with tw.backend("cpu"):
            return torch.from_numpy(page.dropout(x[:4096].cpu().numpy(), 0.3, 7)).double()

    yield Case(
        *("Tilewright", n),
        lambda: page.dropout_kernel[(tw.cdiv(n, 1024),)](x, out, n, 0.3, 7, BLOCK=1024),
        *(out, exact),
        {"PyTorch": lambda: functional.dropout(x, 0.3)},
        bytes_moved=8 * n,
    )


def grouped_gemm(groups: int) -> Iterator[Case]:
    page, rows, n, k = kernels_of("grouped_gemm"), 8192, 4096, 2048
    x = drawn(rows, k, dtype=torch.bfloat16)
    w = drawn(groups, k, n, dtype=torch.bfloat16)
    y, other = (torch.empty(rows, n, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    cuts = torch.randperm(rows - 1)[: groups - 1].sort().values + 1
    starts = [0, *cuts.tolist(), rows]
    ends = torch.tensor(starts[1:], dtype=torch.int32, device="cuda")
    bounds = torch.tensor(starts, dtype=torch.int32, device="cuda")
    block = 128 if groups < 64 else 64

    def each_by_itself() -> None:
        for group in range(groups):
            part = slice(starts[group], starts[group + 1])
            torch.mm(x[part], w[group], out=other[part])

    yield Case(
        *("Tilewright", groups),
        lambda: page.grouped_kernel[(rows // block + groups, n // 128)](
            *(x, w, y, ends, n, k),
            GROUPS=groups,
            BLOCK_M=block,
            BLOCK_N=128,
            BLOCK_K=64,
            num_warps=8 if block == 128 else 4,
            num_stages=4,
        ),
        *(y, lambda: x[: starts[1]].double() @ w[0].double()),
        {
            "a launch for each group": each_by_itself,
            "torch._grouped_mm": lambda: torch._grouped_mm(x, w, offs=ends),
            "tk.grouped_matmul": lambda: tk.grouped_matmul(x, w, bounds),
        },
        operations=2.0 * rows * n * k,
        tolerance=1e-2,
    )


def quantized_weights(rows: int, configuration: tuple[int, int]) -> Iterator[Case]:
    page, n, k, (columns, inner) = kernels_of("quantized_weights"), 8192, 8192, configuration
    x, w = drawn(rows, k, dtype=torch.float16), drawn(n, k, dtype=torch.float16)
    levels = torch.randint(0, 16, (n, k), device="cuda", dtype=torch.int32)
    shifts = 4 * torch.arange(8, device="cuda", dtype=torch.int32)
    words = (levels.reshape(n, k // 8, 8) << shifts).sum(2, dtype=torch.int32)
    scales = torch.rand(n, k // 32, device="cuda") + 0.5
    y = torch.empty(rows, n, device="cuda")
    library = tk.pack_weights(levels, 4), scales.half(), torch.full_like(scales, 8).half()

    def exact() -> torch.Tensor:
        grouped = levels.reshape(n, k // 32, 32) - 8.0
        restored = (grouped * scales[:, :, None]).reshape(n, k).half().double()
        return x[:64].double() @ restored.T

    block = 16 if rows <= 16 else 64
    yield Case(
        *(f"blocks of {block} x {columns} x {inner}", rows),
        lambda: page.quantized_kernel[(tw.cdiv(rows, block), n // columns)](
            *(x, words, scales, y, rows, n, k),
            GROUP=32,
            BLOCK_M=block,
            BLOCK_N=columns,
            BLOCK_K=inner,
            num_warps=4,
            num_stages=3,
        ),
        *(y, exact),
        {
            "PyTorch, 16-bit weights": lambda: torch.mm(x, w.T),
            "tk.quantized_matmul": lambda: tk.quantized_matmul(x, *library),
        },
        bytes_moved=n * k / 2 + scales.numel() * 4,
        operations=2.0 * rows * n * k,
        tolerance=2e-3,
    )


def autotuning(columns: int, number: int) -> Iterator[Case]:
    kernel, rows = kernels_of("autotuning").row_sums_kernel, (1 << 25) // columns
    x, out = drawn(rows, columns), torch.empty(rows, device="cuda")
    shape = kernel.configs[number].kwargs
    yield Case(
        *(f"ROWS={shape['ROWS']}, BLOCK={shape['BLOCK']}", columns),
        lambda: kernel.fn[(tw.cdiv(rows, shape["ROWS"]),)](x, out, rows, columns, **shape),
        *(out, lambda: x[:4096].double().sum(1)),
        {"PyTorch": lambda: x.sum(1)},
        bytes_moved=4 * rows * columns,
    )


#: Tutorial -> its cases, and the values of their arguments.
SWEEPS: dict[str, tuple[Callable[..., Iterator[Case]], Sequence[Sequence[Any]]]] = {
    "vector_add": (vector_add, [range(12, 28, 3)]),
    "softmax": (softmax, [(256, 1024, 2048, 4096, 8192, 16384, 32768), (True, False)]),
    "layer_norm": (layer_norm, [(512, 1024, 2048, 4096, 8192, 16384)]),
    "attention": (
        attention,
        [(512, 1024, 2048, 4096, 8192, 16384), ((64, 2), (64, 3), (128, 2))],
    ),
    "dropout": (dropout, [range(14, 28, 3)]),
    "grouped_gemm": (grouped_gemm, [(4, 16, 64, 128)]),
    "quantized_weights": (
        quantized_weights,
        [(1, 16, 64, 256, 1024), ((32, 128), (64, 128), (128, 64))],
    ),
    "autotuning": (autotuning, [(128, 512, 2048, 8192, 32768), range(4)]),
}


def measured(name: str, case: Case, stopwatch: Stopwatch, rounds: int) -> Result:
    """Return the result of a case, after a check."""
    case.call()
    first, has_same_bits = case.out.clone(), True
    for _ in range(min(REPEATS, rounds)):
        case.out.fill_(float("nan"))
        case.call()
        has_same_bits &= torch.equal(case.out, first)
    exact = case.expected().to(first.device)
    got = first.reshape(-1, *first.shape[-exact.dim() + 1 :]) if exact.dim() > 1 else first
    error = float((got[: len(exact)].double() - exact).abs().max() / exact.abs().max())
    times = stopwatch.alternating({"ours": case.call, **case.rivals}, max(rounds, 1))
    return Result(
        family=name,
        case=f"{case.series}: {case.size}",
        seconds=times.pop("ours"),
        bytes_moved=case.bytes_moved,
        operations=case.operations,
        rivals=times,
        error=error,
        has_same_bits=has_same_bits,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tutorials", nargs="*", choices=[*SWEEPS, []], default=[])
    parser.add_argument("--rounds", type=int, default=15, help="0 compiles, and measures once")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    results, stopwatch, is_right = Results(), Stopwatch("cuda"), True
    for name in options.tutorials or SWEEPS:
        function, values = SWEEPS[name]
        for case in itertools.chain.from_iterable(
            itertools.starmap(function, itertools.product(*values))
        ):
            row = measured(name, case, stopwatch, options.rounds)
            results.add(row)
            rates = [
                f"{total / row.seconds / 1e12:.3f} {unit}"
                for total, unit in ((row.bytes_moved, "TB/s"), (row.operations, "TFLOP/s"))
                if total
            ]
            rivals = [f"{rival} {taken / row.seconds:.3f}" for rival, taken in row.rivals.items()]
            right = row.error < case.tolerance and row.has_same_bits
            is_right &= right
            print(
                f"{row.family:18} {row.case:34} {row.seconds * 1e6:10.1f} us "
                f"{', '.join(rates)}  {', '.join(rivals)}  error {row.error:.1e}"
                f"{'' if right else '  WRONG'}",
                flush=True,
            )
        if options.json:
            results.write(options.json, "cuda")
    sys.exit(not is_right)


if __name__ == "__main__":
    main()
