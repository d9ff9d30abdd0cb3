"""Calls of kernels by JAX on a GPU, and their derivatives."""

from __future__ import annotations

import pytest
from gpu_support import gpu_is_there

jax = pytest.importorskip("jax")
jnp = jax.numpy

import tilewright as tw  # noqa: E402
import tilewright.jax  # noqa: E402
import tilewright.language as tl  # noqa: E402

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        not gpu_is_there() or jax.default_backend() != "gpu", reason="JAX has no NVIDIA GPU here"
    ),
]


@tw.jit
def softmax_kernel(x, w, out, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    mask = columns < n
    a = tl.load(x + row * n + columns, mask=mask, other=-float("inf"))
    e = tl.exp(a - tl.max(a, axis=0))
    b = tl.load(w + columns, mask=mask)
    tl.store(out + row * n + columns, e / tl.sum(e, axis=0) * b, mask=mask)


def weighted(x, w):
    rows, n = x.shape
    return tilewright.jax.call(
        softmax_kernel, x, w, n, grid=(rows,), out={"out": x}, differentiable=("x", "w"), BLOCK=128
    )


def expected(x, w):
    return jax.nn.softmax(x, axis=1) * w


def arrays():
    keys = jax.random.split(jax.random.key(0), 2)
    return jax.random.normal(keys[0], (700, 100)), jax.random.normal(keys[1], (100,))


def loss(function):
    return lambda x, w: (function(x, w) ** 3).sum()


@pytest.mark.parametrize("jit", [False, True])
def test_both_modes(jit: bool) -> None:
    x, w = arrays()
    compiled = jax.jit if jit else lambda function: function
    found, wanted = (
        compiled(jax.value_and_grad(loss(function), (0, 1)))(x, w)
        for function in (weighted, expected)
    )
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        assert jnp.allclose(one, other, rtol=1e-4, atol=1e-4)
    found, wanted = (
        compiled(lambda x, w, f=function: jax.jvp(f, (x, w), (x + 1, w - 1)))(x, w)
        for function in (weighted, expected)
    )
    for one, other in zip(found, wanted, strict=True):
        assert jnp.allclose(one, other, rtol=1e-4, atol=1e-5)


def test_second_derivatives_and_batches() -> None:
    x, w = arrays()
    found, wanted = (
        jax.jit(jax.jvp, static_argnums=0)(jax.grad(loss(function)), (x, w), (w + x, w))
        for function in (weighted, expected)
    )
    for one, other in zip(found, wanted, strict=True):
        assert jnp.allclose(one, other, rtol=1e-3, atol=1e-4)
    stacked = jnp.stack([x, 2 * x, 3 * x])
    found, wanted = (
        jax.vmap(jax.grad(loss(function)), (0, None))(stacked, w)
        for function in (weighted, expected)
    )
    assert jnp.allclose(found, wanted, rtol=1e-4, atol=1e-5)
