"""A transformer in JAX, of four kernels."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from kernels.attention import attention_kernel
from kernels.cross_entropy import cross_entropy_kernel
from kernels.layer_norm import layer_norm_kernel
from kernels.swiglu import swiglu_kernel
from numpy.typing import NDArray

import tilewright as tw
import tilewright.jax
from transformer.task import Sizes

EPS = 1e-5


def _statistics(x: Any) -> Any:
    """Return the shape of a float32 for each row."""
    return jax.ShapeDtypeStruct(x.shape[:-1], jnp.float32)


def layer_norm(x: Any, weight: Any, bias: Any) -> Any:
    width = x.shape[-1]
    out, _, _ = tilewright.jax.call(
        layer_norm_kernel, x, weight, bias, width, width, EPS,
        grid=(x.size // width,),
        out={"out_ptr": x, "mean_ptr": _statistics(x), "rstd_ptr": _statistics(x)},
        differentiable=("x_ptr", "weight_ptr", "bias_ptr"),
        saved=("mean_ptr", "rstd_ptr"),
        BLOCK=min(1024, tw.next_power_of_2(width)),
    )  # fmt: skip
    return out


def attention(q: Any, k: Any, v: Any) -> Any:
    """Causal attention of [batch, heads, length, head dimension]."""
    length, head = q.shape[-2:]
    block = 64 if length >= 64 else 16
    out, _ = tilewright.jax.call(
        attention_kernel, q, k, v, head**-0.5, length,
        grid=(tw.cdiv(length, block), q.size // (length * head)),
        out={"out_ptr": q, "lse_ptr": _statistics(q)},
        differentiable=("q_ptr", "k_ptr", "v_ptr"),
        saved=("out_ptr", "lse_ptr"),
        CAUSAL=True, BLOCK_M=block, BLOCK_N=block, HEAD=head,
    )  # fmt: skip
    return out


def swiglu(gate: Any, up: Any) -> Any:
    return tilewright.jax.call(
        swiglu_kernel, gate, up, gate.size,
        grid=(tw.cdiv(gate.size, 1024),),
        out={"out_ptr": gate},
        differentiable=("gate_ptr", "up_ptr"),
        BLOCK=1024,
    )  # fmt: skip


def cross_entropy(logits: Any, target: Any) -> Any:
    classes = logits.shape[-1]
    loss, _ = tilewright.jax.call(
        cross_entropy_kernel, logits, target, classes, classes,
        grid=(target.size,),
        out={"loss_ptr": _statistics(logits), "lse_ptr": _statistics(logits)},
        differentiable="logits_ptr",
        saved="lse_ptr",
        BLOCK=min(1024, tw.next_power_of_2(classes)),
    )  # fmt: skip
    return loss.mean()


def loss_of(sizes: Sizes, parameters: dict[str, Any], tokens: Any) -> Any:
    """Return the mean loss of predicting each token [batch, length + 1] from those before it."""

    def norm(name: str, x: Any) -> Any:
        return layer_norm(x, parameters[f"{name}.weight"], parameters[f"{name}.bias"])

    x = parameters["embedding"][tokens[:, :-1]]
    for layer in range(sizes.layers):
        qkv = norm(f"{layer}.norm1", x) @ parameters[f"{layer}.qkv"]
        q, k, v = (
            each.reshape(*each.shape[:-1], sizes.heads, sizes.head).swapaxes(1, 2)
            for each in jnp.split(qkv, 3, -1)
        )
        mixed = attention(q, k, v).swapaxes(1, 2).reshape(x.shape)
        x = x + mixed @ parameters[f"{layer}.out"]
        y = norm(f"{layer}.norm2", x)
        gated = swiglu(y @ parameters[f"{layer}.gate"], y @ parameters[f"{layer}.up"])
        x = x + gated @ parameters[f"{layer}.down"]
    logits = norm("norm", x) @ parameters["head"]
    return cross_entropy(logits.reshape(-1, sizes.classes), tokens[:, 1:].reshape(-1))


def train(
    sizes: Sizes,
    initial: dict[str, NDArray[np.float32]],
    tokens: NDArray[np.int32],
    *,
    device: str = "cpu",
    rate: float = 1e-3,
) -> list[float]:
    """Train with Adam, as PyTorch's with its defaults, and return the loss of each step.

    Args:
        device: the platform of JAX, ``"cpu"`` or ``"cuda"``.
    """
    jax.config.update("jax_default_matmul_precision", "highest")
    jax.config.update("jax_default_device", jax.devices(device)[0])
    parameters = {name: jnp.asarray(value) for name, value in initial.items()}
    zeros = jax.tree.map(jnp.zeros_like, parameters)

    @jax.jit
    def step(state: Any, batch: Any) -> Any:
        count, parameters, means, squares = state
        count = count + 1
        loss, gradients = jax.value_and_grad(partial(loss_of, sizes))(parameters, batch)
        means = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, means, gradients)
        squares = jax.tree.map(lambda s, g: 0.999 * s + 0.001 * g * g, squares, gradients)

        def updated(parameter: Any, mean: Any, square: Any) -> Any:
            root = jnp.sqrt(square) / jnp.sqrt(-jnp.expm1(count * np.log(0.999))) + 1e-8
            return parameter - rate * mean / (-jnp.expm1(count * np.log(0.9)) * root)

        parameters = jax.tree.map(updated, parameters, means, squares)
        return (count, parameters, means, squares), loss

    state = jnp.float32(0), parameters, zeros, zeros
    losses = []
    for batch in tokens:
        state, loss = step(state, jnp.asarray(batch))
        losses.append(loss)
    return [float(loss) for loss in losses]
