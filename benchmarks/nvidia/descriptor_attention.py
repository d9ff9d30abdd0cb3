"""Attention forward through host-side descriptors on Hopper, with ``asynchronous=True``.

The rivals are cuDNN, PyTorch's flash attention, and Triton on the same source. Each side uses the
fastest of a few configurations, all of which are checked against float64 first. For causal
attention, half of the matmul operations are counted.
"""

from __future__ import annotations

import argparse
import itertools
import math
from collections.abc import Callable
from typing import Any

import outputs

#: (BM, BN, num_warps, num_stages)
OURS = {
    64: ((256, 64, 16, 3), (128, 128, 8, 3), (128, 128, 8, 2)),
    128: ((128, 128, 8, 2), (128, 64, 8, 4)),
}
TRITON = {
    64: ((128, 64, 4, 3), (128, 64, 8, 3), (64, 64, 4, 3), (128, 128, 8, 3)),
    128: ((128, 64, 8, 3), (128, 64, 4, 3), (128, 128, 8, 2), (64, 64, 4, 3)),
}


def exact(q: Any, k: Any, v: Any, causal: bool, head: int) -> tuple[Any, Any]:
    """Return a head's attention and the base-2 logarithms of its softmax sums, in float64."""
    import torch

    a, b, c = (x.flatten(0, 1)[head].double() for x in (q, k, v))
    scores = a @ b.T / math.sqrt(q.shape[-1])
    if causal:
        scores.masked_fill_(torch.ones_like(scores, dtype=torch.bool).triu_(1), -math.inf)
    return scores.softmax(-1) @ c, scores.logsumexp(-1) / math.log(2)


def measure(
    batch: int,
    heads: int,
    length: int,
    depth: int,
    causal: bool,
    dtype: str,
    rounds: int,
    only: int | None,
) -> dict[str, Any]:
    """Return one row, after checking and timing every configuration.

    The fastest configuration of each side is timed again, alternating with the rivals.
    """
    import torch
    from side_by_side import kernels, milliseconds
    from torch.nn.attention import SDPBackend, sdpa_kernel

    q, k, v = (
        torch.randn(batch, heads, length, depth, device="cuda", dtype=getattr(torch, dtype))
        for _ in range(3)
    )
    out, lse = (
        torch.empty_like(q),
        torch.empty(batch * heads * length, device="cuda", dtype=torch.float32),
    )
    operations = 4 * batch * heads * length * length * depth / (2 if causal else 1)
    checked = {head: exact(q, k, v, causal, head) for head in (0, batch * heads - 1)}
    scale = depth**-0.5 * 1.4426950408889634

    def rival(backend: SDPBackend) -> Callable[[], Any]:
        def call() -> Any:
            with sdpa_kernel(backend):
                return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)

        return call

    def make(
        library: str, module: Any, bm: int, bn: int, warps: int, stages: int
    ) -> Callable[[], Any]:
        if library == "tilewright":
            from tilewright.runtime.arguments.descriptor import TensorDescriptor
        else:
            from triton.tools.tensor_descriptor import TensorDescriptor
        blocks = [
            TensorDescriptor.from_tensor(x.view(-1, depth), [rows, depth])
            for x, rows in ((q, bm), (k, bn), (v, bn), (out, bm))
        ]
        options: dict[str, Any] = {"num_warps": warps, "num_stages": stages} | (
            {"asynchronous": True} if library == "tilewright" else {}
        )
        grid = (length // bm, batch * heads)
        return lambda: module.attention_blocks[grid](
            *blocks, lse, length, scale, D=depth, BM=bm, BN=bn, CAUSAL=causal, **options
        )

    print(
        f"\nbatch {batch}, heads {heads}, length {length}, head dimension {depth}, "
        f"{'causal' if causal else 'full'}, {dtype}"
    )
    best: dict[str, Callable[[], Any]] = {}
    chosen: dict[str, str] = {}
    for library, module in kernels().items():
        fastest = math.inf
        for configuration in (OURS if library == "tilewright" else TRITON)[depth][:only]:
            shown = (
                "x".join(map(str, configuration[:2])) + f" w{configuration[2]} s{configuration[3]}"
            )
            call = make(library, module, *configuration)
            out.fill_(math.nan)
            lse.fill_(math.nan)
            try:
                call()
                torch.cuda.synchronize()
            except Exception as error:
                print(f"{library} {shown}: {type(error).__name__}: {str(error)[:160]}")
                continue
            assert out.isfinite().all() and lse.isfinite().all(), (
                f"{library} {shown} leaves elements unwritten"
            )
            error = 0.0
            for head, (attention, logarithms) in checked.items():
                error = max(
                    error, (out.flatten(0, 1)[head].double() - attention).abs().max().item()
                )
                torch.testing.assert_close(
                    out.flatten(0, 1)[head].double(),
                    attention,
                    rtol=2e-2,
                    atol=1e-2 if dtype == "bfloat16" else 2e-3,
                )
                torch.testing.assert_close(
                    lse.view(-1, length)[head].double(), logarithms, rtol=1e-4, atol=1e-3
                )
            taken = milliseconds({library: call}, 10)[library]
            print(
                f"{library} {shown}: {operations / taken / 1e9:.1f} TFLOP/s, error {error:.2e}",
                flush=True,
            )
            if taken < fastest:
                fastest, best[library], chosen[library] = taken, call, shown
    calls = dict(best)
    for name, backend in (
        ("cudnn", SDPBackend.CUDNN_ATTENTION),
        ("flash", SDPBackend.FLASH_ATTENTION),
    ):
        try:
            rival(backend)()
            calls[name] = rival(backend)
        except RuntimeError as error:  # PyTorch was built without it
            print(f"{name}: {str(error)[:160]}")
    times = milliseconds(calls, rounds)
    mask = "causal" if causal else "full"
    row: dict[str, Any] = {"attention": f"b{batch} h{heads} n{length} d{depth} {mask} {dtype}"}
    row |= {f"{library}_TFLOPs": operations / taken / 1e9 for library, taken in times.items()}
    row |= {
        f"of_{library}": times[library] / times["tilewright"]
        for library in calls
        if library != "tilewright"
    }
    return row | {
        "configurations": ", ".join(f"{library} {shown}" for library, shown in chosen.items())
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument(
        "--shapes",
        nargs="*",
        default=["4x32x4096", "1x16x16384"],
        help="batch x heads x length; lengths are multiples of 128",
    )
    parser.add_argument(
        "--depths",
        nargs="*",
        type=int,
        default=[64, 128],
        choices=[64, 128],
        help="head dimensions",
    )
    parser.add_argument("--dtype", default="float16", choices=["float16", "bfloat16"])
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--only", type=int, help="how many configurations of each side")
    outputs.add_options(parser)
    options = parser.parse_args()
    from side_by_side import report

    cases = itertools.product(options.shapes, options.depths, (False, True))
    rows = [
        measure(
            *map(int, shape.split("x")), depth, causal, options.dtype, options.rounds, options.only
        )
        for shape, depth, causal in cases
    ]
    report(
        f"{options.dtype} attention by descriptors, forward",
        rows,
        ("of_cudnn", "of_triton"),
        options,
    )


if __name__ == "__main__":
    main()
