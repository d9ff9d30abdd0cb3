"""Triton code of PyTorch's compiler, on Triton and on Tilewright (:mod:`both_libraries`).

Matmuls are Inductor's templates, tuned among themselves (``max-autotune`` without PyTorch's own
libraries). Attention is flex attention, forward and backward, compared with PyTorch's fused
attention. A case names the function, its sizes, and the type or the mask. ``first_s`` is the time
until the first result of a case, including compilation and tuning.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

from both_libraries import Calls, main

#: (rows, columns, inner extent) of matmuls
PRODUCTS = ((4096, 4096, 4096), (2048, 8192, 1024), (8192, 2048, 2048))
#: (batch, heads, length, depth) of attention
SEQUENCES = ((4, 16, 4096, 64), (4, 16, 4096, 128))


def cases() -> Iterator[str]:
    """Yield the names of all cases, which :func:`calls_of` parses."""
    for (m, n, k), dtype in zip(PRODUCTS, ("float16", "bfloat16", "float16"), strict=True):
        yield f"mm {m} {n} {k} {dtype}"
    yield "bmm 16 1024 1024 512 bfloat16"
    for shape in SEQUENCES:
        sizes = " ".join(map(str, shape))
        for mask, way in (("full", "forward"), ("causal", "forward"), ("causal", "backward")):
            yield f"flex {sizes} {mask} {way}"


def calls_of(case: str) -> Calls:
    """Return (operations of a call; the compiled function's call, and PyTorch's equivalent)."""
    import torch
    from torch._inductor import config

    config.max_autotune_gemm_backends = "TRITON"
    config.fx_graph_cache = False
    config.autotune_local_cache = False
    torch._dynamo.reset()
    torch.manual_seed(0)
    function, *words = case.split()
    if function == "flex":
        batch, heads, length, depth = map(int, words[:4])
        return _flex((batch, heads, length, depth), words[4] == "causal", words[5] == "backward")
    *sizes, dtype = words
    *batch, m, n, k = map(int, sizes)
    a, b = (
        torch.randn(*batch, *shape, device="cuda", dtype=getattr(torch, dtype))
        for shape in ((m, k), (k, n))
    )
    compiled = torch.compile(torch.matmul, mode="max-autotune-no-cudagraphs")
    return 2 * m * n * k * (batch[0] if batch else 1), {
        "program": lambda: compiled(a, b),
        "torch": lambda: a @ b,
    }


def _flex(shape: tuple[int, int, int, int], causal: bool, backward: bool) -> Calls:
    import torch
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    batch, heads, length, depth = shape
    q, k, v, slope = (torch.randn(shape, device="cuda", dtype=torch.bfloat16) for _ in range(4))
    inputs = [tensor.requires_grad_() for tensor in (q, k, v)] if backward else [q, k, v]
    mask = (
        create_block_mask(lambda b, h, i, j: i >= j, None, None, length, length, device="cuda")
        if causal
        else None
    )
    compiled = torch.compile(flex_attention)

    def program() -> Any:
        return compiled(*inputs, block_mask=mask)

    def rival() -> Any:
        return torch.nn.functional.scaled_dot_product_attention(*inputs, is_causal=causal)

    work = 4 * batch * heads * length * length * depth / (2 if causal else 1)
    if not backward:
        return work, {"program": program, "torch": rival}
    return 2.5 * work, {
        name: _backward(call(), inputs, slope)
        for name, call in (("program", program), ("torch", rival))
    }


def _backward(out: Any, inputs: Any, slope: Any) -> Callable[[], Any]:
    import torch

    return lambda: torch.autograd.grad(out, inputs, slope, retain_graph=True)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="inductor-benchmark-") as folder:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = folder  # every process its own
        main("PyTorch's compiler", list(cases()), calls_of, __file__)
