"""A transformer in PyTorch, of four kernels or of PyTorch's own operators."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from kernels.attention import attention_kernel
from kernels.cross_entropy import cross_entropy_kernel
from kernels.layer_norm import layer_norm_kernel
from kernels.swiglu import swiglu_kernel
from numpy.typing import NDArray
from torch.nn import functional

import tilewright as tw
import tilewright.torch
from tilewright.torch import like
from transformer.task import Sizes

EPS = 1e-5
Tensor = torch.Tensor


def _row_statistics(name: str) -> Any:
    return like(name, shape=lambda x: x.shape[:-1], dtype=torch.float32)


_layer_norm = tilewright.torch.function(
    layer_norm_kernel,
    outputs={
        "out_ptr": like("x_ptr"),
        "mean_ptr": _row_statistics("x_ptr"),
        "rstd_ptr": _row_statistics("x_ptr"),
    },
    wrt=("x_ptr", "weight_ptr", "bias_ptr"),
    saved=("mean_ptr", "rstd_ptr"),
    grid=lambda meta: (meta["x_ptr"].numel() // meta["n"],),
)
_attention = tilewright.torch.function(
    attention_kernel,
    outputs={"out_ptr": like("q_ptr"), "lse_ptr": _row_statistics("q_ptr")},
    wrt=("q_ptr", "k_ptr", "v_ptr"),
    saved=("out_ptr", "lse_ptr"),
    grid=lambda meta: (
        tw.cdiv(meta["length"], meta["BLOCK_M"]),
        meta["q_ptr"].numel() // (meta["length"] * meta["HEAD"]),
    ),
)
_swiglu = tilewright.torch.function(
    swiglu_kernel,
    outputs={"out_ptr": like("gate_ptr")},
    wrt=("gate_ptr", "up_ptr"),
    grid=lambda meta: (tw.cdiv(meta["n"], meta["BLOCK"]),),
    BLOCK=1024,
)
_cross_entropy = tilewright.torch.function(
    cross_entropy_kernel,
    outputs={
        "loss_ptr": _row_statistics("logits_ptr"),
        "lse_ptr": _row_statistics("logits_ptr"),
    },
    wrt="logits_ptr",
    saved="lse_ptr",
    grid=lambda meta: (meta["target_ptr"].numel(),),
)


class Operators(NamedTuple):
    """The parts of a transformer that are no matmuls of matrices of parameters."""

    layer_norm: Any
    attention: Any
    swiglu: Any
    cross_entropy: Any


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    width = x.shape[-1]
    block = min(1024, tw.next_power_of_2(width))
    out, _, _ = _layer_norm(x, weight, bias, width, width, EPS, BLOCK=block)
    return out


def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Causal attention of [batch, heads, length, head dimension]."""
    length, head = q.shape[-2:]
    block = 64 if length >= 64 else 16
    out, _ = _attention(
        q.contiguous(), k.contiguous(), v.contiguous(), head**-0.5, length,
        CAUSAL=True, BLOCK_M=block, BLOCK_N=block, HEAD=head,
    )  # fmt: skip
    return out


def swiglu(gate: Tensor, up: Tensor) -> Tensor:
    return _swiglu(gate, up, gate.numel())


def cross_entropy(logits: Tensor, target: Tensor) -> Tensor:
    classes = logits.shape[-1]
    block = min(1024, tw.next_power_of_2(classes))
    return _cross_entropy(logits, target, classes, classes, BLOCK=block)[0].mean()


#: Tilewright's kernels.
KERNELS = Operators(layer_norm, attention, swiglu, cross_entropy)
#: PyTorch's own operators.
PYTORCH = Operators(
    lambda x, weight, bias: functional.layer_norm(x, weight.shape, weight, bias, EPS),
    lambda q, k, v: functional.scaled_dot_product_attention(q, k, v, is_causal=True),
    lambda gate, up: functional.silu(gate) * up,
    functional.cross_entropy,
)


def loss_of(
    operators: Operators, sizes: Sizes, parameters: dict[str, Tensor], tokens: Tensor
) -> Tensor:
    """Return the mean loss of predicting each token [batch, length + 1] from those before it."""

    def norm(name: str, x: Tensor) -> Tensor:
        return operators.layer_norm(x, parameters[f"{name}.weight"], parameters[f"{name}.bias"])

    x = parameters["embedding"][tokens[:, :-1]]
    for layer in range(sizes.layers):
        qkv = norm(f"{layer}.norm1", x) @ parameters[f"{layer}.qkv"]
        q, k, v = (
            each.unflatten(-1, (sizes.heads, sizes.head)).transpose(1, 2)
            for each in qkv.chunk(3, -1)
        )
        mixed = operators.attention(q, k, v).transpose(1, 2).flatten(-2)
        x = x + mixed @ parameters[f"{layer}.out"]
        y = norm(f"{layer}.norm2", x)
        gated = operators.swiglu(y @ parameters[f"{layer}.gate"], y @ parameters[f"{layer}.up"])
        x = x + gated @ parameters[f"{layer}.down"]
    logits = norm("norm", x) @ parameters["head"]
    return operators.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())


def train(
    operators: Operators,
    sizes: Sizes,
    initial: dict[str, NDArray[np.float32]],
    tokens: NDArray[np.int32],
    *,
    device: str,
    dtype: torch.dtype = torch.float32,
    backend: str = "",
    rate: float = 1e-3,
) -> list[float]:
    """Train with Adam, and return the loss of each step.

    Args:
        backend: of ``torch.compile``; eager execution where it is empty.
    """
    parameters = {
        name: torch.tensor(value, dtype=dtype, device=device, requires_grad=True)
        for name, value in initial.items()
    }
    optimizer = torch.optim.Adam(parameters.values(), lr=rate)

    def loss(batch: Tensor) -> Tensor:
        return loss_of(operators, sizes, parameters, batch)

    step = torch.compile(loss, fullgraph=True, backend=backend) if backend else loss
    losses = []
    for batch in tokens:
        value = step(torch.tensor(batch, dtype=torch.int64, device=device))
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        losses.append(value.detach())
    return [float(value) for value in losses]
