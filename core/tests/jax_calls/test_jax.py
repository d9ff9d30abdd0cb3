"""Kernels on JAX's arrays, and in functions that JAX compiles."""

import re
from pathlib import Path

import numpy as np
import pytest

jax = pytest.importorskip("jax")
pytest.importorskip("tilewright_cpu")

jnp = jax.numpy

import tilewright as tw  # noqa: E402
import tilewright.jax  # noqa: E402
import tilewright.language as tl  # noqa: E402
from tilewright.errors import LaunchError  # noqa: E402
from tilewright.runtime.arguments.array_protocols import array_kind  # noqa: E402


@tw.jit
def added(x, y, out, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < n
    tl.store(
        out + offsets,
        tl.load(x + offsets, mask=inside) + tl.load(y + offsets, mask=inside),
        mask=inside,
    )


@tw.jit
def counted(x, counts, total, n, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    values = tl.load(x + offsets, mask=offsets < n, other=0)
    tl.store(
        counts + offsets, tl.load(counts + offsets, mask=offsets < n) + values, mask=offsets < n
    )
    tl.store(total, tl.sum(values) + tl.num_programs(2))


def add(x, y):
    return tilewright.jax.call(
        added,
        x,
        y,
        x.size,
        grid=lambda meta: (tw.cdiv(meta["n"], meta["BLOCK"]),),
        out={"out": x},
        BLOCK=64,
    )


def random(seed, *shape):
    return jnp.asarray(np.random.default_rng(seed).standard_normal(shape).astype(np.float32))


def test_arrays_are_arguments_that_do_not_change():
    x, y, out = random(0, 100), random(1, 100), np.zeros(100, np.float32)
    for _ in range(3):
        added[(2,)](x, y, out, 100, BLOCK=64)
    np.testing.assert_array_equal(out, np.asarray(x) + np.asarray(y))
    with pytest.raises(LaunchError, match="'out' is a read-only ArrayImpl"):
        added[(2,)](x, y, jnp.zeros(100), 100, BLOCK=64)
    assert array_kind(jnp.zeros(4, jnp.bfloat16)).dtype == "bf16"


def test_arrays_that_are_still_computed_are_waited_for():
    @jax.jit
    def later(x):
        for _ in range(20):
            x = jnp.tanh(x @ x)
        return x

    x, zeros, out = (
        random(0, 256, 256),
        np.zeros((256, 256), np.float32),
        np.zeros((256, 256), np.float32),
    )
    expected = np.asarray(later(x))
    added[(1024,)](x, zeros, out, 65536, BLOCK=64)
    for _ in range(3):
        added[(1024,)](later(x), zeros, out, 65536, BLOCK=64)
        np.testing.assert_array_equal(out, expected)
        out[:] = 0


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "int32", "uint8"])
def test_calls_with_and_without_jit(dtype):
    x, y = (random(seed, 10, 13).astype(dtype) for seed in (0, 1))
    np.testing.assert_array_equal(np.asarray(add(x, y)), np.asarray(x + y))
    compiled = jax.jit(lambda x, y: add(add(x, y), y) * 2)
    for seed in range(3):
        x = random(seed, 10, 13).astype(dtype)
        np.testing.assert_allclose(
            np.asarray(compiled(x, y), np.float64),
            np.asarray((x + y + y) * 2, np.float64),
            rtol=2e-2,
            atol=2e-2,
        )


def test_vmap():
    x, y = random(0, 3, 5, 7), random(1, 7)
    both = jax.vmap(jax.vmap(add, in_axes=(0, None)), in_axes=(0, None))
    np.testing.assert_array_equal(both(x, y), x + y)
    np.testing.assert_array_equal(jax.jit(both)(x, y), x + y)
    other = jax.vmap(jax.vmap(add, in_axes=(None, 0)), in_axes=(0, None))
    np.testing.assert_array_equal(other(x[:, 0], x[0]), x[:, None, 0] + x[0])
    np.testing.assert_array_equal(jax.vmap(add, in_axes=1, out_axes=1)(x[0], x[1]), x[0] + x[1])


def test_several_results_and_arrays_that_are_changed():
    def count(x, counts):
        total = jax.ShapeDtypeStruct((1,), np.float32)
        return tilewright.jax.call(
            counted, x, counts, x.size, grid=(1,), out={"total": total}, inout=("counts",), BLOCK=16
        )

    x, counts = random(0, 4, 10), random(1, 4, 10)
    total, after = jax.jit(count)(x[0], counts[0])
    np.testing.assert_allclose(total, [float(x[0].sum()) + 1], rtol=1e-5)
    np.testing.assert_array_equal(after, counts[0] + x[0])
    # the kernel reads all axes of the grid, so that none can number the elements
    totals, after = jax.vmap(count, in_axes=(0, None))(x, counts[0])
    np.testing.assert_allclose(totals[:, 0], x.sum(axis=1) + 1, rtol=1e-5)
    np.testing.assert_array_equal(after, counts[0] + x)


def test_loops_and_gradients_around_calls():
    @jax.custom_vjp
    def double(x):
        return add(x, x)

    double.defvjp(lambda x: (double(x), None), lambda _, gradient: (add(gradient, gradient),))
    x = random(0, 50)
    np.testing.assert_allclose(jax.grad(lambda x: (double(x) ** 2).sum())(x), 8 * x, rtol=1e-6)
    found = jax.jit(lambda x: jax.lax.fori_loop(0, 5, lambda _, x: double(x), x))(x)
    np.testing.assert_allclose(found, 32 * x, rtol=1e-6)


def test_what_is_wrong_is_said():
    x, shape = random(0, 10), jax.ShapeDtypeStruct((10,), np.float32)
    with pytest.raises(
        LaunchError, match="may store to 'out', and arrays of JAX do not change; name it in inout="
    ):
        tilewright.jax.call(added, x, x, x, 10, grid=(1,), out={}, BLOCK=16)
    with pytest.raises(LaunchError, match="argument 'n' is missing"):
        tilewright.jax.call(added, x, x, grid=(1,), out={"out": shape}, BLOCK=16)
    with pytest.raises(LaunchError, match="takes 4 arguments beside those in out=, not 5"):
        tilewright.jax.call(added, x, x, 1, 2, 3, grid=(1,), out={"out": shape})
    with pytest.raises(LaunchError, match="out= names 'z', which is no parameter"):
        tilewright.jax.call(added, x, x, 10, grid=(1,), out={"z": shape}, BLOCK=16)
    with pytest.raises(LaunchError, match="inout= names 'n', which is given no array"):
        tilewright.jax.call(added, x, x, 10, grid=(1,), out={"out": shape}, inout=("n",), BLOCK=16)
    with pytest.raises(TypeError, match="a kernel made by jit, not a function"):
        tilewright.jax.call(add, x, grid=(1,), out={})


def test_kernels_that_fail_fail_the_program():
    @tw.jit
    def checks(x, out):
        tl.device_assert(tl.load(x) > 0, "not positive")
        tl.store(out, tl.load(x))

    def run(x):
        return tilewright.jax.call(checks, x, grid=(1,), out={"out": x}, debug=True)

    assert run(jnp.ones(1)) == 1
    with pytest.raises(Exception, match="not positive"):
        jax.block_until_ready(jax.jit(run)(-jnp.ones(1)))


@pytest.mark.parametrize("name", ["reference/jax.md", "guides/jax.md"])
def test_a_page_of_the_documentation_prints_what_it_shows(name, capsys, tmp_path):
    page = (Path(__file__).resolve().parents[3] / "docs" / "site" / name).read_text()
    code, expected = (
        "".join(re.findall(rf"^```{kind}\n(.*?)^```$", page, re.M | re.S))
        for kind in ("py", "output")
    )
    file = tmp_path / "page.py"
    file.write_text(code)
    exec(compile(code, str(file), "exec"), {"__name__": "__page__", "__file__": str(file)})
    assert capsys.readouterr().out == expected
