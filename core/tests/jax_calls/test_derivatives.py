"""Derivatives of kernel calls in JAX, of both modes and of higher order."""

from __future__ import annotations

import numpy as np
import pytest

jax = pytest.importorskip("jax")
pytest.importorskip("tilewright_cpu")

jnp = jax.numpy

import tilewright as tw  # noqa: E402
import tilewright.jax  # noqa: E402
import tilewright.language as tl  # noqa: E402
from tilewright.errors import LaunchError  # noqa: E402
from tilewright.jax.derivative_launch import _numpy_of  # noqa: E402
from tilewright.runtime.arguments.array_protocols import ArrayView  # noqa: E402


@tw.jit
def softmax_kernel(x, w, index, out, chosen, n, factor, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    mask = columns < n
    a = tl.load(x + row * n + columns, mask=mask, other=-float("inf")) * factor
    e = tl.exp(a - tl.max(a, axis=0))
    b = tl.load(w + columns, mask=mask)
    result = e / tl.sum(e, axis=0)
    tl.store(out + row * n + columns, (result * b).to(out.dtype.element_ty), mask=mask)
    tl.store(chosen + row, tl.load(index + row) + 1)


INDEX = jnp.arange(4, dtype=jnp.int32)


def kernel(x, w, differentiable=("x", "w"), **keywords):
    rows, n = x.shape
    out, chosen = tilewright.jax.call(
        softmax_kernel,
        x,
        w,
        INDEX[:rows],
        n,
        0.5,
        grid=(rows,),
        out={"out": x, "chosen": INDEX[:rows]},
        differentiable=differentiable,
        BLOCK=16,
        **keywords,
    )
    return out, chosen


def outputs(x, w):
    return kernel(x, w)[0]


def expected(x, w):
    return (jax.nn.softmax(x * 0.5, axis=1) * w).astype(x.dtype)


def loss(function):
    return lambda x, w: (function(x, w).astype(jnp.float32) ** 2).sum()


def arrays(dtype=np.float32):
    rng = np.random.default_rng(0)
    return jnp.asarray(rng.normal(size=(4, 10)), dtype), jnp.asarray(rng.normal(size=10), dtype)


def assert_same(transform, tolerance=1e-5, inputs=None):
    found, wanted = (transform(each)(*(inputs or arrays())) for each in (outputs, expected))
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(
            np.asarray(a, np.float64), np.asarray(b, np.float64), rtol=tolerance, atol=tolerance
        ),
        found,
        wanted,
    )


def test_reverse_and_forward_mode() -> None:
    x, w = arrays()
    assert_same(lambda f: jax.jit(jax.grad(loss(f), (0, 1))))
    assert_same(lambda f: lambda x, w: jax.jvp(f, (x, w), (w * x, x[0])))
    narrow = arrays(jnp.bfloat16)
    assert_same(lambda f: jax.grad(loss(f), (0, 1)), 2e-2, narrow)
    assert jax.grad(loss(outputs))(*narrow).dtype == jnp.bfloat16
    # an output of integers has no derivative
    (_, chosen), tangents = jax.jvp(lambda x: kernel(x, w), (x,), (x,))
    np.testing.assert_array_equal(chosen, INDEX + 1)
    assert tangents[1].dtype == jax.dtypes.float0


def test_second_derivatives() -> None:
    def hessian_vector(f):
        def along(x, w):
            return (jax.grad(loss(f))(x, w) * w).sum()

        return jax.grad(along, (0, 1))

    assert_same(hessian_vector)
    assert_same(
        lambda f: (
            lambda x, w: jax.jvp(
                lambda x: jax.jvp(lambda x: f(x, w), (x,), (x,))[1], (x,), (x * w,)
            )
        )
    )


@pytest.mark.full
def test_batches() -> None:
    x, w = arrays()
    inputs = jnp.stack([x, x * w, -x]), w
    assert_same(
        lambda f: jax.grad(lambda x, w: jax.vmap(loss(f), (0, None))(x, w).sum(), (0, 1)),
        inputs=inputs,
    )


def test_saved_outputs_are_read() -> None:
    @tw.jit
    def exponential(x, out, BLOCK: tl.constexpr):
        offsets = tl.arange(0, BLOCK)
        tl.store(out + offsets, tl.exp(tl.load(x + offsets)))

    def call(x, saved):
        return tilewright.jax.call(
            exponential, x, grid=(1,), out={"out": x}, differentiable="x", saved=saved, BLOCK=8
        )

    x = jnp.linspace(-1, 1, 8)
    for saved in ((), "out"):
        found = jax.grad(lambda x, saved=saved: (call(x, saved) ** 2).sum())(x)
        np.testing.assert_allclose(found, 2 * jnp.exp(2 * x), rtol=1e-5)
        second = jax.grad(jax.grad(lambda x, saved=saved: call(x[None].repeat(8), saved).sum()))
        np.testing.assert_allclose(second(x[1]), 8 * jnp.exp(x[1]), rtol=1e-5)


def test_wrong_calls_are_refused() -> None:
    x, w = arrays()
    with pytest.raises(LaunchError, match="with respect to 'w' is wanted, and differentiable="):
        jax.grad(lambda w: kernel(x, w, differentiable="x")[0].sum())(w)
    with pytest.raises(LaunchError, match="differentiable= names 'n', which is given no array"):
        kernel(x, w, differentiable="n")
    with pytest.raises(LaunchError, match="saved= names 'x', which is not in out="):
        kernel(x, w, saved="x")
    with pytest.raises(LaunchError, match="a kernel that changes arrays has no derivatives here"):
        kernel(x, w, inout=("w",))
    third = jax.grad(lambda x: jax.grad(lambda x: jax.grad(lambda x: f(x))(x))(x))

    def f(x):
        return outputs(x[None, None].repeat(10, 1), w).sum()

    with pytest.raises(LaunchError, match="third derivatives by reverse mode are not known"):
        third(x[0, 0])


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float8_e5m2", "int8", "uint32", "bool"])
def test_memory_of_the_host_is_numpys(dtype) -> None:
    array = np.asarray(jnp.asarray([[0, 1, 2], [3, 1, 0]], dtype))
    text = {
        "float32": "fp32", "bfloat16": "bf16", "float8_e5m2": "fp8e5", "int8": "i8",
        "uint32": "u32", "bool": "i1",
    }[dtype]  # fmt: skip
    view = ArrayView(None, array.ctypes.data, text, (2, 3), (3, 1), ("cpu", 0))
    found = _numpy_of(view)
    assert found.dtype == array.dtype and found.ctypes.data == array.ctypes.data
    np.testing.assert_array_equal(found, array)
