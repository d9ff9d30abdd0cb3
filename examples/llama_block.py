"""Train a block of Llama by the library's kernels, and by PyTorch's operators, and compare.

    python examples/llama_block.py --device cuda --dtype bfloat16

The block has RMS norms, rotary embeddings, causal attention of grouped heads and SwiGLU; the loss
is the cross entropy of the next token, and the optimizer AdamW. All of these are operations of
``tilewright_kernels``. The program trains the same block by PyTorch's eager operators from the same
parameters, in the same type and in float64, and prints the losses. It exits with 1 where those of
the kernels are further from float64's than rounding explains: more than four times as far as
PyTorch's own, and more than 1e-5 of the loss.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# the folder triton beside this file is not the module
sys.path[:] = [folder for folder in sys.path if folder != str(Path(__file__).resolve().parent)]

import torch
from torch import Tensor
from torch.nn import functional

import tilewright_kernels as tk

HEADS, KEY_HEADS, HEAD, HIDDEN, TOKENS = 4, 2, 32, 256, 64
WIDTH = HEADS * HEAD
TIMES_ROUNDING, RELATIVE = 4.0, 1e-5

Parameters = dict[str, Tensor]


def initial_parameters(device: str) -> Parameters:
    """Return the parameters in float64: matrices of (in, out), weights of norms."""
    generator = torch.Generator().manual_seed(0)

    def matrix(rows: int, columns: int) -> Tensor:
        return torch.randn(rows, columns, generator=generator, dtype=torch.float64) * rows**-0.5

    found = {
        "embedding": matrix(TOKENS, WIDTH) * TOKENS**0.5,
        "norm_1": torch.ones(WIDTH, dtype=torch.float64),
        "qkv": matrix(WIDTH, (HEADS + 2 * KEY_HEADS) * HEAD),
        "out": matrix(WIDTH, WIDTH),
        "norm_2": torch.ones(WIDTH, dtype=torch.float64),
        "gate_up": matrix(WIDTH, 2 * HIDDEN),
        "down": matrix(HIDDEN, WIDTH),
        "norm": torch.ones(WIDTH, dtype=torch.float64),
        "head": matrix(WIDTH, TOKENS),
    }
    return {name: each.to(device) for name, each in found.items()}


def batches(steps: int, batch: int, length: int, device: str) -> Tensor:
    """Return tokens of (steps, batch, length + 1): each is a function of two before it."""
    tokens = torch.randint(
        0, TOKENS, (steps, batch, length + 1), generator=torch.Generator().manual_seed(1)
    )
    for place in range(2, length + 1):
        tokens[..., place] = (5 * tokens[..., place - 1] + tokens[..., place - 2] + 3) % TOKENS
    return tokens.to(device)


def angles(length: int, like: Tensor) -> tuple[Tensor, Tensor]:
    """Return the cosines and sines of rotary embeddings, of (length, half a head)."""
    frequencies = 10000.0 ** (-torch.arange(0, HEAD, 2, dtype=torch.float64) / HEAD)
    found = torch.arange(length, dtype=torch.float64)[:, None] * frequencies
    dtype = torch.float64 if like.dtype == torch.float64 else torch.float32
    return found.cos().to(like.device, dtype), found.sin().to(like.device, dtype)


class Kernels:
    """The block's operations by the library."""

    rms_norm = staticmethod(tk.rms_norm)
    add_rms_norm = staticmethod(tk.add_rms_norm)
    matmul = staticmethod(tk.matmul)
    rotary = staticmethod(tk.rotary)
    embedding = staticmethod(tk.embedding)
    swiglu = staticmethod(tk.swiglu)
    cross_entropy = staticmethod(tk.cross_entropy)

    @staticmethod
    def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return tk.attention(q, k, v, causal=True)

    def __init__(self, parameters: Sequence[Tensor], lr: float) -> None:
        self._parameters, self._lr, self._steps = parameters, lr, 0
        self._moments = [[torch.zeros_like(each) for each in parameters] for _ in range(2)]

    def step(self) -> None:
        """Change the parameters by their gradients."""
        self._steps += 1
        gradients = [each.grad for each in self._parameters]
        with torch.no_grad():
            tk.adamw(self._parameters, gradients, *self._moments, self._steps, lr=self._lr)


class Eager:
    """The block's operations by PyTorch."""

    matmul = staticmethod(torch.matmul)
    cross_entropy = staticmethod(functional.cross_entropy)

    @staticmethod
    def embedding(index: Tensor, table: Tensor) -> Tensor:
        return functional.embedding(index, table)

    @staticmethod
    def rms_norm(x: Tensor, weight: Tensor) -> Tensor:
        return functional.rms_norm(x, (WIDTH,), weight, 1e-6)

    @staticmethod
    def add_rms_norm(x: Tensor, residual: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        total = x + residual
        return functional.rms_norm(total, (WIDTH,), weight, 1e-6), total

    @staticmethod
    def rotary(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        first, second = x.chunk(2, dim=-1)
        cos, sin = cos[:, None], sin[:, None]
        rotated = (first * cos - second * sin, second * cos + first * sin)
        return torch.cat(rotated, dim=-1).to(x.dtype)

    @staticmethod
    def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        q, k, v = (each.transpose(1, 2) for each in (q, k, v))
        return functional.scaled_dot_product_attention(
            q, k, v, is_causal=True, enable_gqa=True
        ).transpose(1, 2)

    @staticmethod
    def swiglu(gate: Tensor, up: Tensor) -> Tensor:
        return functional.silu(gate) * up

    def __init__(self, parameters: Sequence[Tensor], lr: float) -> None:
        self._optimizer = torch.optim.AdamW(parameters, lr=lr)

    def step(self) -> None:
        """Change the parameters by their gradients."""
        self._optimizer.step()


def loss_of(ops: Any, parameters: Parameters, tokens: Tensor) -> Tensor:
    """Return the mean loss of each token of (batch, length + 1) from those before it."""
    p, (batch, length) = parameters, (tokens.shape[0], tokens.shape[1] - 1)
    cos, sin = angles(length, p["embedding"])
    x = ops.embedding(tokens[:, :-1], p["embedding"])
    qkv = ops.matmul(ops.rms_norm(x, p["norm_1"]), p["qkv"])
    heads = qkv.reshape(batch, length, HEADS + 2 * KEY_HEADS, HEAD)
    q, k, v = heads.split((HEADS, KEY_HEADS, KEY_HEADS), dim=2)
    mixed = ops.attention(ops.rotary(q, cos, sin), ops.rotary(k, cos, sin), v)
    mixed = ops.matmul(mixed.reshape(batch, length, WIDTH), p["out"])
    y, x = ops.add_rms_norm(mixed, x, p["norm_2"])
    gate, up = ops.matmul(y, p["gate_up"]).chunk(2, dim=-1)
    mixed = ops.matmul(ops.swiglu(gate, up), p["down"])
    y, _ = ops.add_rms_norm(mixed, x, p["norm"])
    logits = ops.matmul(y, p["head"]).reshape(-1, TOKENS)
    return ops.cross_entropy(logits, tokens[:, 1:].reshape(-1))


@dataclass
class Training:
    """Losses of a training run, and the seconds that it took."""

    losses: Tensor
    seconds: float


def train(kind: Any, tokens: Tensor, dtype: torch.dtype, lr: float = 3e-3) -> Training:
    """Train the block by the operations of a class from the initial parameters."""
    start = time.perf_counter()
    given = initial_parameters(str(tokens.device))
    parameters = {name: each.to(dtype).requires_grad_() for name, each in given.items()}
    ops, losses = kind(list(parameters.values()), lr), []
    for batch in tokens:
        for each in parameters.values():
            each.grad = None
        loss = loss_of(ops, parameters, batch)
        loss.backward()
        ops.step()
        losses.append(loss.detach())
    return Training(torch.stack(losses).double().cpu(), time.perf_counter() - start)


def is_right(found: Tensor, eager: Tensor, exact: Tensor) -> bool:
    """Return whether losses are as near to those in float64 as rounding explains."""
    rounding = (eager - exact).abs().cummax(0)[0]
    return bool(((found - exact).abs() <= TIMES_ROUNDING * rounding + RELATIVE * exact).all())


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--length", type=int, default=64)
    given = parser.parse_args(arguments)
    torch.set_float32_matmul_precision("highest")
    tokens = batches(given.steps, given.batch, given.length, given.device)
    dtype = getattr(torch, given.dtype)
    runs = {
        "float64": train(Eager, tokens, torch.float64),
        "PyTorch": train(Eager, tokens, dtype),
        "kernels": train(Kernels, tokens, dtype),
    }
    print(f"{'step':>5}" + "".join(f"{name:>12}" for name in runs))
    for step in sorted({*range(0, given.steps, 5), given.steps - 1}):
        print(f"{step:5}" + "".join(f"{each.losses[step]:12.7f}" for each in runs.values()))
    for name, run in runs.items():
        print(f"{name}: {run.seconds:.1f} s", flush=True)
    exact = runs["float64"].losses
    right = is_right(runs["kernels"].losses, runs["PyTorch"].losses, exact)
    print("right" if right else "WRONG: the losses differ by more than rounding")
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
