"""Unchanged programs of ``examples/triton_programs`` on Triton and on Tilewright.

A case names a program and its arguments.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from both_libraries import Calls, main

ROOT = Path(__file__).resolve().parents[2]
SIZES = (2048, 4096, 8192)
#: (batch, heads, length) of attention
SEQUENCES = ((4, 32, 4096), (1, 16, 16384))


def cases() -> Iterator[str]:
    """Yield the names of all cases, which :func:`calls_of` parses."""
    for size in SIZES:
        for dtype in ("float16", "bfloat16"):
            yield f"matmul {size} {dtype}"
        for way in ("pointers", "host", "device"):
            yield f"persistent_matmul {size} {way}"
    for size in (1024, 4096):
        for way in ("pointers", "descriptors"):
            yield f"grouped_gemm {size} {way}"
    for batch, heads, length in SEQUENCES:
        for depth in (64, 128):
            for mask in ("full", "causal"):
                yield f"attention {batch} {heads} {length} {depth} {mask} forward"
    for depth in (64, 128):
        for mask in ("full", "causal"):
            yield f"attention 4 32 4096 {depth} {mask} backward"
    for columns in (1024, 4096, 8192):
        yield f"softmax 4096 {columns}"
        yield f"layer_norm 4096 {columns}"


def calls_of(case: str) -> Calls:
    """Return (operations of a call, 0 if it is no matmul; the program's call, and PyTorch's).

    Both calls do the same work.
    """
    import torch

    program, *words = case.split()
    sys.path.insert(0, str(ROOT / "examples" / "triton_programs"))
    module = __import__(program)

    def normal(*shape: int, dtype: Any = torch.float16) -> Any:
        return torch.randn(*shape, device="cuda", dtype=dtype)

    if program == "matmul":
        size = int(words[0])
        a, b = (normal(size, size, dtype=getattr(torch, words[1])) for _ in range(2))
        return 2 * size**3, {"program": lambda: module.matmul(a, b), "torch": lambda: a @ b}
    if program == "persistent_matmul":
        size = int(words[0])
        a, b = normal(size, size), normal(size, size)
        return 2 * size**3, {
            "program": lambda: module.matmul(a, b, words[1]),
            "torch": lambda: a @ b.T,
        }
    if program == "grouped_gemm":
        size, descriptors = int(words[0]), words[1] == "descriptors"
        lefts, rights = ([normal(size, size) for _ in range(4)] for _ in range(2))
        factors = [right.T for right in rights] if descriptors else rights
        calls = {
            "program": lambda: module.grouped_gemm(lefts, rights, descriptors),
            "torch": lambda: [a @ b for a, b in zip(lefts, factors, strict=True)],
        }
        return 4 * 2 * size**3, calls
    if program == "attention":
        batch, heads, length, depth = map(int, words[:4])
        return _attention(
            module, (batch, heads, length, depth), words[4] == "causal", words[5] == "backward"
        )
    rows, columns = map(int, words)
    if program == "softmax":
        x = normal(rows, columns, dtype=torch.float32)
        return 0, {"program": lambda: module.softmax(x), "torch": lambda: torch.softmax(x, 1)}
    x, weight, bias = (
        normal(*shape).requires_grad_() for shape in ((rows, columns), (columns,), (columns,))
    )
    slope = normal(rows, columns)
    mine, theirs = (
        module.layer_norm(x, weight, bias, 1e-5),
        torch.nn.functional.layer_norm(x, (columns,), weight, bias, 1e-5),
    )
    return 0, {
        name: _backward(out, (x, weight, bias), slope)
        for name, out in (("program", mine), ("torch", theirs))
    }


def _attention(
    module: Any, shape: tuple[int, int, int, int], causal: bool, backward: bool
) -> Calls:
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    batch, heads, length, depth = shape
    q, k, v, slope = (torch.randn(shape, device="cuda", dtype=torch.float16) for _ in range(4))
    inputs = [tensor.requires_grad_() for tensor in (q, k, v)] if backward else [q, k, v]
    scale, work = depth**-0.5, 4 * batch * heads * length * length * depth / (2 if causal else 1)

    def program() -> Any:
        return module.attention(*inputs, causal, scale)

    def cudnn() -> Any:
        with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
            return torch.nn.functional.scaled_dot_product_attention(
                inputs[0], inputs[1], inputs[2], is_causal=causal, scale=scale
            )

    if not backward:
        return work, {"program": program, "torch": cudnn}
    return 2.5 * work, {
        name: _backward(call(), inputs, slope)
        for name, call in (("program", program), ("torch", cudnn))
    }


def _backward(out: Any, inputs: Any, slope: Any) -> Callable[[], Any]:
    import torch

    return lambda: torch.autograd.grad(out, inputs, slope, retain_graph=True)


if __name__ == "__main__":
    main("programs of examples/triton_programs", list(cases()), calls_of, __file__)
