"""The programs of ``examples/triton``, unchanged, on Triton and on Tilewright, each in a process of its own, PyTorch's libraries in turns in both.

A case names a program and what it is called with. A child process times its calls and PyTorch's in turns; ``speedup`` is Triton's time over ours, both
divided by PyTorch's in the same process, which takes the clocks of two moments out of the figure. Host time is in the calls, as users make them.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import outputs

ROOT = Path(__file__).resolve().parents[2]
SIZES = (2048, 4096, 8192)
#: (batch, heads, length) of attention
SEQUENCES = ((4, 32, 4096), (1, 16, 16384))
#: what a child prints its figures after
MARK = "figures:"
Calls = tuple[float, dict[str, Callable[[], Any]]]


def cases() -> Iterator[str]:
    """The names of all cases: words that :func:`calls_of` takes apart."""
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
    """(operations of a call, or 0 where it is no product; the program's call and PyTorch's, the same work)."""
    import torch

    program, *words = case.split()
    sys.path.insert(0, str(ROOT / "examples" / "triton"))
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
        return 2 * size**3, {"program": lambda: module.matmul(a, b, words[1]), "torch": lambda: a @ b.T}
    if program == "grouped_gemm":
        size, descriptors = int(words[0]), words[1] == "descriptors"
        lefts, rights = ([normal(size, size) for _ in range(4)] for _ in range(2))
        factors = [right.T for right in rights] if descriptors else rights
        calls = {"program": lambda: module.grouped_gemm(lefts, rights, descriptors), "torch": lambda: [a @ b for a, b in zip(lefts, factors, strict=True)]}
        return 4 * 2 * size**3, calls
    if program == "attention":
        batch, heads, length, depth = map(int, words[:4])
        return _attention(module, (batch, heads, length, depth), words[4] == "causal", words[5] == "backward")
    rows, columns = map(int, words)
    if program == "softmax":
        x = normal(rows, columns, dtype=torch.float32)
        return 0, {"program": lambda: module.softmax(x), "torch": lambda: torch.softmax(x, 1)}
    x, weight, bias = (normal(*shape).requires_grad_() for shape in ((rows, columns), (columns,), (columns,)))
    slope = normal(rows, columns)
    mine, theirs = module.layer_norm(x, weight, bias, 1e-5), torch.nn.functional.layer_norm(x, (columns,), weight, bias, 1e-5)
    return 0, {name: _backward(out, (x, weight, bias), slope) for name, out in (("program", mine), ("torch", theirs))}


def _attention(module: Any, shape: tuple[int, int, int, int], causal: bool, backward: bool) -> Calls:
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
            return torch.nn.functional.scaled_dot_product_attention(inputs[0], inputs[1], inputs[2], is_causal=causal, scale=scale)

    if not backward:
        return work, {"program": program, "torch": cudnn}
    return 2.5 * work, {name: _backward(call(), inputs, slope) for name, call in (("program", program), ("torch", cudnn))}


def _backward(out: Any, inputs: Any, slope: Any) -> Callable[[], Any]:
    import torch

    return lambda: torch.autograd.grad(out, inputs, slope, retain_graph=True)


def child(names: list[str], rounds: int) -> None:
    """Check and time cases on the library that this process has as ``triton``; a line for each."""
    import torch
    from side_by_side import milliseconds

    for name in names:
        try:
            work, calls = calls_of(name)
            found, wanted = (_flat(call()) for call in (calls["program"], calls["torch"]))
            error = float((found - wanted).norm() / wanted.norm())
            if not error < 2e-2:
                raise AssertionError(f"the results differ by {error:.1e} of their norm")
            figures: dict[str, Any] = {"ms": milliseconds(calls, rounds), "operations": work, "error": error}
        except Exception as failure:
            figures = {"failure": f"{type(failure).__name__}: {str(failure)[:200]}"}
        print(MARK, json.dumps({"case": name, **figures}), flush=True)
        torch.cuda.empty_cache()


def _flat(result: Any) -> Any:
    import torch

    return torch.cat([one.detach().flatten().float() for one in (result if isinstance(result, list | tuple) else [result])])


def run(library: str, names: list[str], rounds: int) -> dict[str, dict[str, Any]]:
    """The figures of cases, by name, from a process of a library."""
    shim = ["-m", "tilewright.compat.triton"] if library == "tilewright" else []
    command = [sys.executable, *shim, str(Path(__file__).resolve()), "--child", "--rounds", str(rounds), *names]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parent, check=False)
    lines = [json.loads(line[len(MARK) :]) for line in done.stdout.splitlines() if line.startswith(MARK)]
    return {line["case"]: line for line in lines}


def rows_of(found: dict[str, dict[str, dict[str, Any]]], names: list[str]) -> Iterator[dict[str, Any]]:
    """A row for each case from the figures of the libraries."""
    for name in names:
        row: dict[str, Any] = {"case": name}
        parts = {}
        for library, figures in found.items():
            one = figures.get(name, {"failure": "the process ended"})
            if "failure" in one:
                row[f"{library}_failure"] = one["failure"]
                continue
            taken, rival = one["ms"]["program"], one["ms"]["torch"]
            parts[library] = taken / rival
            row[f"{library}_TFLOPs" if one["operations"] else f"{library}_us"] = one["operations"] / taken / 1e9 if one["operations"] else taken * 1e3
            row[f"{library}_of_torch"] = rival / taken
        if len(parts) == 2:
            row["speedup"] = parts["triton"] / parts["tilewright"]
        yield row


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("cases", nargs="*", default=["*"], help="names or patterns, such as 'attention * forward'")
    parser.add_argument("--libraries", nargs="*", default=["tilewright", "triton"])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    outputs.add_options(parser)
    options = parser.parse_args()
    if options.child:
        child(options.cases, options.rounds)
        return
    from side_by_side import report

    names = [name for name in cases() if any(fnmatch.fnmatch(name, pattern) for pattern in options.cases)]
    rows = list(rows_of({library: run(library, names, options.rounds) for library in options.libraries}, names))
    report("programs of examples/triton", rows, ("speedup", "tilewright_of_torch"), options)
    speedups = [row["speedup"] for row in rows if "speedup" in row]
    if speedups:
        print(f"geometric mean of the speedups: {statistics.geometric_mean(speedups):.3f}")


if __name__ == "__main__":
    main()
