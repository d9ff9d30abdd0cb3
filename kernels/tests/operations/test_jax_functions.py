"""Operations as functions of JAX: jit, gradients, batches."""

import numpy as np
import pytest

import tilewright_kernels as tk

jax = pytest.importorskip("jax")
jnp = pytest.importorskip("jax.numpy")


def arrays(dtype="float32"):
    rng = np.random.default_rng(0)
    x, weight = rng.standard_normal((4, 3, 40)), rng.standard_normal(40)
    return jnp.asarray(x, dtype), jnp.asarray(weight, dtype)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_gradients_under_jit_equal_those_of_the_reference(dtype):
    x, weight = arrays(dtype)
    dy = jnp.asarray(np.random.default_rng(1).standard_normal(x.shape), dtype)

    def pulled(function, *given):
        result, pull = jax.vjp(function, *given)
        return result, *pull(dy.astype(result.dtype))

    found = jax.jit(lambda *given: pulled(tk.rms_norm, *given))(x, weight)
    wide = [each.astype("float32") for each in (x, weight)]
    expected = pulled(tk.rms_norm_reference, *wide)
    tolerance = {"float32": 1e-4, "float16": 4e-3, "bfloat16": 4e-2}[dtype]
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == dtype
        np.testing.assert_allclose(
            np.asarray(one, np.float32), other, rtol=tolerance, atol=2 * tolerance
        )


def test_batches_are_those_of_the_reference():
    x, weight = arrays()
    found = jax.jit(jax.vmap(tk.rms_norm, in_axes=(1, None), out_axes=1))(x, weight)
    np.testing.assert_allclose(found, tk.rms_norm_reference(x, weight), rtol=1e-5, atol=1e-5)
    gradient = jax.grad(lambda x: jax.vmap(tk.rms_norm, in_axes=(0, None))(x, weight).sum())
    expected = jax.grad(lambda x: tk.rms_norm_reference(x, weight).sum())
    np.testing.assert_allclose(gradient(x), expected(x), rtol=1e-4, atol=1e-5)


def test_arrays_of_jax_do_not_change():
    x, weight = arrays()
    with pytest.raises(TypeError, match="do not change"):
        tk.rms_norm(x, weight, out=x)
    target = jnp.zeros(x.shape[:-1], "int32")
    with pytest.raises(TypeError, match="do not change"):
        tk.linear_cross_entropy(x, x, target, out=jnp.zeros(()))
    with pytest.raises(TypeError, match="of jax and numpy"):
        tk.rms_norm(x, np.asarray(weight))
    with pytest.raises(tk.PlanError, match=r"jax\.jit plans"):
        tk.plan(tk.rms_norm, x)
