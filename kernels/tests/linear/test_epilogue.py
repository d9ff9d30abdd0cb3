"""Epilogues of matmuls as users' functions, and ready-made ones, against formulas in float64."""

import checks
import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
import tilewright_kernels as tk
from tilewright_kernels.linear import matmul as module
from tilewright_kernels.linear.blocks import Blocks, matmul_blocks
from tilewright_kernels.linear.element_types import OPERANDS
from tilewright_kernels.linear.matmul import MATMUL
from tilewright_kernels.operations.devices import Device
from tilewright_kernels.operations.frameworks import NUMPY
from tilewright_kernels.operations.launcher import DirectLauncher


@tw.jit
def relu(x):
    return tl.maximum(x, 0.0)


@tw.jit
def shifted(x, rows, columns, M, N, shift_ptr, scale_ptr):
    shift = tl.load(shift_ptr + columns, mask=columns < N, other=0.0)
    inside = (rows < M)[:, None] & (columns < N)[None, :]
    scale = tl.load(scale_ptr + rows[:, None] * N + columns[None, :], mask=inside, other=0.0)
    return relu(x) * scale.to(tl.float32) + shift[None, :] * tl.sigmoid(x)


def drawn(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def angles(positions, half):
    angle = np.arange(positions)[:, None] / 100.0 ** (np.arange(half) / half)
    return np.cos(angle), np.sin(angle)


def test_a_function_gets_tiles_and_arrays():
    a, b, bias, residual = (drawn(*each) for each in ((33, 40), (40, 50), (50,), (33, 50)))
    shift, scale = drawn(50), drawn(33, 50)
    given = [each.astype(np.float32) for each in (a, b, bias, residual, shift, scale)]
    out = np.full((33, 50), np.nan, np.float32)
    tk.matmul(*given[:4], activation=relu, epilogue=shifted, arrays=given[4:], out=out)
    x = np.maximum(a @ b + bias, 0)
    np.testing.assert_allclose(out, x * scale + shift * sigmoid(x) + residual, rtol=1e-4, atol=1e-4)


EPILOGUES = {
    "user's": (shifted, lambda: [drawn(48), drawn(21, 48)]),
    "row scale": (tk.row_scale, lambda: [drawn(21)]),
    "rms norm": (tk.rms_norm_epilogue(16), lambda: [drawn(16)]),
    "rotary": (tk.rotary_epilogue(16, 32), lambda: [*angles(21, 8)]),
    "interleaved": (tk.rotary_epilogue(8, 40, interleaved=True), lambda: [*angles(21, 4)]),
}


@pytest.mark.parametrize("name", EPILOGUES)
def test_results_and_gradients_equal_the_twin(name):
    epilogue, make = EPILOGUES[name]
    arrays = {f"x{number}": each for number, each in enumerate(make())}
    arrays = {"a": drawn(21, 40), "b": drawn(40, 48), **arrays}

    def function(a, b, out=None, **others):
        return tk.matmul(a, b, epilogue=epilogue, arrays=list(others.values()), out=out)

    def reference(a, b, **others):
        return tk.matmul_reference(a, b, epilogue=epilogue, arrays=list(others.values()))

    options = {"rtol": 1e-4, "atol": 1e-4}
    checks.check_operation(function, reference, arrays, layouts=("contiguous", "rows"), **options)
    checks.check_gradients(function, reference, arrays, layouts=("contiguous",), **options)


@pytest.mark.parametrize("interleaved", [False, True])
def test_rotary_equals_the_operation(interleaved):
    a, w = (drawn(*each).astype(np.float32) for each in ((2, 9, 40), (40, 6 * 16)))
    cos, sin = (each.astype(np.float32) for each in angles(9, 8))
    positions = np.tile(np.arange(9, dtype=np.int32), 2)
    epilogue = tk.rotary_epilogue(16, 4 * 16, interleaved=interleaved)
    found = tk.matmul(a, w, epilogue=epilogue, arrays=(cos, sin, positions)).reshape(2, 9, 6, 16)
    plain = (a.astype(np.float64) @ w).reshape(2, 9, 6, 16)
    rotated = tk.rotary_reference(plain[:, :, :4], cos, sin, interleaved)
    np.testing.assert_allclose(found[:, :, :4], rotated, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(found[:, :, 4:], plain[:, :, 4:], rtol=1e-4, atol=1e-4)


def test_a_norm_before_the_matmul_is_a_scale_of_rows_after_it():
    x, weight, w = drawn(30, 64), drawn(64), drawn(64, 20)
    rstd = 1 / np.sqrt((x * x).mean(1) + 1e-6)
    given = [each.astype(np.float32) for each in (x, weight[:, None] * w, rstd)]
    found = tk.matmul(*given[:2], epilogue=tk.row_scale, arrays=given[2:])
    np.testing.assert_allclose(found, tk.rms_norm_reference(x, weight) @ w, rtol=1e-4, atol=1e-4)


def test_rows_are_those_of_a_matrix_of_a_batch():
    a, b, scale = (drawn(*each).astype(np.float32) for each in ((3, 5, 8), (3, 8, 6), (5,)))
    found = tk.matmul(a, b, epilogue=tk.row_scale, arrays=(scale,))
    np.testing.assert_allclose(found, a @ b * scale[:, None], rtol=1e-4, atol=1e-4)
    torch = pytest.importorskip("torch")
    tensors = [torch.from_numpy(each).requires_grad_() for each in (a, b, scale)]
    tk.matmul(*tensors[:2], epilogue=tk.row_scale, arrays=tensors[2:]).sum().backward()
    np.testing.assert_allclose(tensors[2].grad, (a @ b).sum((0, 2)), rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("kind", ["parts along K", "persistent", "one row"])
def test_every_kernel_applies_the_epilogue(kind):
    m = 1 if kind == "one row" else 37
    a, b, scale = (drawn(*each).astype(np.float32) for each in ((m, 200), (200, 64), (m,)))
    b = np.asfortranarray(b)
    c = np.full((m, 64), np.nan, np.float32)
    results = (c, None, None, None, scale, None, None)
    constants = {"SUM": tl.float32, "PRECISION": "ieee", "ACTIVATION": relu}
    constants["EPILOGUE"] = tk.row_scale
    run = DirectLauncher(NUMPY, a)
    if kind == "persistent":
        module.launch_persistent(run, Blocks(32, 32, 16), a, b, results, 3, constants)
    elif kind == "one row":
        module.launch_vector(run, a, b, results, constants)
    else:
        blocks = Blocks(16, 32, 16, split=3)
        module.launch_blocks(run, blocks, a, b, results, OPERANDS["float32"], constants, False)
    expected = np.maximum(a.astype(np.float64) @ b, 0) * scale[:, None]
    np.testing.assert_allclose(c, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("family", ["cpu", "ampere", "ada", "hopper", "cdna3", "rdna3"])
@pytest.mark.parametrize("columns", [64, 256])
def test_blocks_are_multiples_of_the_columns_of_an_epilogue(family, columns):
    for m, n in ((1, 64), (16, 1024), (300, 300), (4096, 4096)):
        for invariant in (False, True):
            found = matmul_blocks(
                m, n, 512, 16, Device(family, 64), is_invariant=invariant, columns=columns
            )
            assert found.n % columns == 0


def test_activations_of_twins_are_evaluated_on_arrays():
    a, b = drawn(5, 6), drawn(6, 7)
    expected = np.maximum(a @ b, 0)
    np.testing.assert_allclose(tk.matmul_reference(a, b, activation=relu), expected)
    with tk.use_references():
        np.testing.assert_allclose(tk.matmul(a, b, activation=relu), expected)
        torch = pytest.importorskip("torch")
        x, y = (torch.from_numpy(each).requires_grad_() for each in (a, b))
        tk.matmul(x, y, activation=relu).sum().backward()
    np.testing.assert_allclose(x.grad, (expected > 0) @ b.T)


def test_wrong_epilogues_are_refused():
    a, b = drawn(5, 6).astype(np.float32), drawn(6, 7).astype(np.float32)
    with pytest.raises(ValueError, match="power of two up to 256 columns, not of 48"):
        tk.Epilogue(relu, 48)
    with pytest.raises(ValueError, match="3 arrays at most, not 4"):
        tk.matmul(a, b, epilogue=shifted, arrays=[a] * 4)
    with pytest.raises(ValueError, match="there is none"):
        tk.matmul(a, b, arrays=[a])


@pytest.mark.slow
@pytest.mark.parametrize("m, n", [(300, 768), (4, 4096)])
def test_architectures(m, n):
    a, b = (drawn(*each).astype(np.float16) for each in ((m, 256), (n, 256)))
    cos, sin = (each.astype(np.float32) for each in angles(m, 32))
    functions = {"activation": relu, "epilogue": tk.rotary_epilogue(64, 512).function}
    checks.check_architectures(
        MATMUL, a, b.T, None, None, cos, sin, epilogue_columns=64, **functions
    )
