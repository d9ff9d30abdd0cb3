"""Quantization, and matmuls of scaled operands against their formula in float64."""

import itertools

import ml_dtypes
import numpy as np
import pytest
from checks import check_architectures

import tilewright.language as tl
import tilewright_kernels as tk
from tilewright_kernels.linear import scaled_matmul as module
from tilewright_kernels.linear.blocks import Blocks
from tilewright_kernels.linear.scaled_kernels import persistent_scaled_kernel
from tilewright_kernels.operations.devices import Device

E4M3 = ml_dtypes.float8_e4m3fn


def operands(m, n, k, dtype=E4M3, seed=0):
    rng = np.random.default_rng(seed)
    if dtype is np.int8:
        return (rng.integers(-128, 128, shape).astype(dtype) for shape in ((m, k), (k, n)))
    return (
        rng.standard_normal(shape).astype(np.float32).astype(dtype) for shape in ((m, k), (k, n))
    )


def scales(kind, shape, blocks):
    rng = np.random.default_rng(1)
    extents = {"tensor": (), "row": shape, "block": blocks}[kind]
    return np.asarray(rng.uniform(0.5, 2.0, extents), np.float32)


def doubled(*arrays):
    return [None if each is None else each.astype(np.float64) for each in arrays]


KINDS = ("tensor", "row", "block")


@pytest.mark.parametrize("a_kind, b_kind", list(itertools.product(KINDS, KINDS)))
def test_scales_of_each_kind(a_kind, b_kind):
    m, n, k = 21, 150, 300
    a, b = operands(m, n, k)
    a_scale, b_scale = scales(a_kind, (m, 1), (m, 3)), scales(b_kind, (1, n), (3, 2))
    out = np.full((m, n), np.nan, np.float32)
    tk.scaled_matmul(a, b, a_scale, b_scale, out_dtype="float32", out=out)
    expected = tk.scaled_matmul_reference(*doubled(a, b, a_scale, b_scale))
    np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-3)


@pytest.mark.parametrize("kind", ["row", "block"])
def test_integers_with_a_bias(kind):
    m, n, k = 9, 33, 256
    a, b = operands(m, n, k, np.int8)
    a_scale, b_scale = scales(kind, (m, 1), (m, 2)), scales(kind, (1, n), (2, 1))
    bias = np.random.default_rng(2).standard_normal(n).astype(np.float32)
    found = tk.scaled_matmul(a, b, a_scale, b_scale, bias, out_dtype="float32")
    expected = tk.scaled_matmul_reference(*doubled(a, b, a_scale, b_scale, bias))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-2)


@pytest.mark.parametrize("kind", ["tensor", "block"])
def test_parts_along_k(kind, monkeypatch):
    m, n, k = 5, 40, 700
    monkeypatch.setattr(module, "_blocks", lambda *_: Blocks(16, 32, 128, split=3))
    a, b = operands(m, n, k)
    a_scale, b_scale = scales(kind, (m, 1), (m, 6)), scales(kind, (1, n), (6, 1))
    bias = np.ones(n, np.float32)
    found = tk.scaled_matmul(a, b, a_scale, b_scale, bias, out_dtype="float32")
    expected = tk.scaled_matmul_reference(*doubled(a, b, a_scale, b_scale, bias))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-3)


def launched_row(monkeypatch, n, k, kinds, dtype=E4M3, step=1, has_bias=False):
    """Check one row by the kernel that a GPU of 132 processors runs, in memory of NaN."""
    monkeypatch.setattr(module, "device_of", lambda _: Device("hopper", 132))
    launches = []
    vector = module._launch_vector
    monkeypatch.setattr(
        module, "_launch_vector", lambda *given: launches.append(1) or vector(*given)
    )
    blocks = -(-k // 128)
    a, b = operands(1, step * n, k, dtype)
    b = np.asfortranarray(b)[:, ::step]
    a_scale = scales(kinds[0], (1, 1), (1, step * blocks))
    a_scale = a_scale[:, ::step] if kinds[0] == "block" else a_scale
    b_scale = scales(kinds[1], (1, step * n), (blocks, step * -(-n // 128)))
    b_scale = b_scale if kinds[1] == "tensor" else b_scale[:, ::step]
    bias = np.random.default_rng(2).standard_normal(n).astype(np.float32) if has_bias else None
    memory = np.full((1, step * n), np.nan, np.float32)
    out = memory[:, ::step]
    tk.scaled_matmul(a, b, a_scale, b_scale, bias, out_dtype="float32", out=out)
    assert launches
    expected = tk.scaled_matmul_reference(*doubled(a, b, a_scale, b_scale, bias))
    np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-3)
    assert np.isnan(memory[:, 1::step]).all() or step == 1


@pytest.mark.parametrize("kinds", list(itertools.product(KINDS, KINDS)))
def test_one_row_with_scales_of_each_kind(kinds, monkeypatch):
    launched_row(monkeypatch, 197, 1301, kinds)


@pytest.mark.parametrize("n, k", [(1, 1), (5, 128), (130, 2048), (2113, 384)])
@pytest.mark.parametrize("step", [1, 2])
def test_one_row_of_any_extents_and_strides(n, k, step, monkeypatch):
    launched_row(monkeypatch, n, k, ("block", "block"), step=step, has_bias=True)


@pytest.mark.parametrize("kind", ["row", "block"])
def test_one_row_of_integers(kind, monkeypatch):
    launched_row(monkeypatch, 33, 700, (kind, kind), np.int8)


@pytest.mark.parametrize("n, columns", [(1024, 4), (4096, 8), (65536, 8)])
def test_rows_of_the_matrix_keep_processors_busy(n, columns, monkeypatch):
    """Programs have 64 bytes a thread; there are two for each processor, or few columns in each."""
    found = {}
    a, b = np.ones((1, 4096), E4M3), np.ones((n, 4096), E4M3).T
    scale = np.ones((), np.float32)

    def run(kernel, grid, *arguments, **constants):
        found.update(grid=grid, **constants)

    c = np.empty((1, n), np.float32)
    device = Device("hopper", 132)
    module._launch_vector(run, c, a, b, scale, scale, None, ("tensor", "tensor"), device)
    assert found["BLOCK_N"] == columns and found["grid"] == (n // columns,)
    assert found["BLOCK_N"] * found["BLOCK_K"] == 64 * 32 * found["num_warps"]


@pytest.mark.parametrize("kind, block_n", [("tensor", 64), ("block", 64), ("block", 256)])
def test_persistent_programs_equal_the_formula(kind, block_n):
    m, n, k = 70, 272, 256
    a, b = operands(m, n, k)
    memory = np.ascontiguousarray(b.T)
    a_scale, b_scale = scales(kind, (m, 1), (m, 2)), scales(kind, (1, n), (2, 3))
    out = np.full((m, n), np.nan, np.float32)
    steps = (0, 0, 0, 0) if kind == "tensor" else (2, 1, 3, 1)
    persistent_scaled_kernel[(3,)](
        a, memory, out, a_scale, b_scale, None, m, n, k, k, k, n, *steps,
        BLOCK_M=32, BLOCK_N=block_n, BLOCK_K=128, GROUP_M=2, PROGRAMS=3,
        A_SCALES=kind, B_SCALES=kind, SUM=tl.float32,
    )  # fmt: skip
    expected = tk.scaled_matmul_reference(*doubled(a, b, a_scale, b_scale))
    np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-3)


@pytest.mark.parametrize("order, copies", [("C", 1), ("F", 0)])
def test_persistent_programs_read_scales_by_columns(order, copies, monkeypatch):
    """Scales of any strides are copied so that those of consecutive rows are consecutive."""
    m, n, k = 70, 272, 256
    found = []
    copy = module._by_columns
    monkeypatch.setattr(module, "_by_columns", lambda *given: found.append(1) or copy(*given))
    monkeypatch.setattr(
        module, "_blocks", lambda *_: Blocks(128, 64, 128, 4, 2, is_persistent=True)
    )
    a, b = operands(m, n, k)
    a_scale, b_scale = scales("block", (m, 1), (m, 2)), scales("block", (1, n), (2, 3))
    out = np.full((m, n), np.nan, np.float32)
    given = np.asarray(a_scale, order=order)
    tk.scaled_matmul(a, np.asarray(b, order="F"), given, b_scale, out_dtype="float32", out=out)
    assert len(found) == copies
    expected = tk.scaled_matmul_reference(*doubled(a, b, a_scale, b_scale))
    np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-3)


@pytest.mark.parametrize("block", [None, (1, 128), (128, 128), (3, 50)])
@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2", "int8"])
def test_quantized_matrices_are_near(block, dtype):
    x = np.random.default_rng(3).standard_normal((130, 200)).astype(np.float32)
    x[7] = 0
    q, scale = tk.quantize(x[:, ::-1], block, dtype=dtype)
    ratios, expected = tk.quantize_reference(
        x[:, ::-1].astype(np.float64), block or (1, 200), dtype
    )
    np.testing.assert_allclose(scale, expected, rtol=1e-6)
    step = {"float8_e4m3fn": 2**-4, "float8_e5m2": 2**-3, "int8": 0.0}[dtype]
    smallest = {"float8_e4m3fn": 2**-10, "float8_e5m2": 2**-17, "int8": 0.5001}[dtype]
    wrong = np.abs(q.astype(np.float64) - ratios)
    assert (wrong <= np.abs(ratios) * step * 1.001 + smallest).all()
    assert not q[7].astype(np.float32).any()


@pytest.mark.parametrize("m", [1, 16, 128, 1024])
def test_kernels_with_scales_of_blocks_compile_for_gpus(m):
    a, b = np.ones((m, 1024), E4M3), np.ones((1024, 1024), E4M3)
    check_architectures(
        module.SCALED_MATMUL, a, b.T, np.ones((m, 8), np.float32), np.ones((8, 8), np.float32),
        None, "bfloat16", architectures=["sm_90a", "gfx942"] if m == 128 else ["sm_90a"],
    )  # fmt: skip


def test_quantized_matmul_is_near_the_matmul():
    rng = np.random.default_rng(4)
    a, b = (rng.standard_normal(shape).astype(np.float32) for shape in ((20, 256), (256, 130)))
    found = tk.scaled_matmul(
        *(both := (tk.quantize(a, (1, 128)), tk.quantize(b, (128, 128))))[0][:1],
        both[1][0], both[0][1], both[1][1], out_dtype="float32",
    )  # fmt: skip
    assert np.abs(found - a @ b).max() < 0.05 * np.abs(a @ b).max()


def test_wrong_arguments_are_refused():
    a, b = operands(4, 6, 8)
    one = np.ones((), np.float32)
    with pytest.raises(ValueError, match="a_scale has the shape"):
        tk.scaled_matmul(a, b, np.ones(4, np.float32), one)
    with pytest.raises(TypeError, match="must be of float32"):
        tk.scaled_matmul(a, b, one, one.astype(np.float64))
    with pytest.raises(TypeError, match="operands are of"):
        tk.scaled_matmul(a.astype(np.float16), b, one, one)
    with pytest.raises(ValueError, match="must be a matrix"):
        tk.quantize(one)
    with pytest.raises(ValueError, match="dtype must be"):
        tk.quantize(a.astype(np.float32), dtype="int4")


def test_strides_are_any():
    m, n, k = 9, 40, 256
    a, b = operands(2 * m, 2 * n, k)
    a_scale, b_scale = scales("block", (), (m, 4))[:, ::2], scales("block", (), (1, 2)).T
    bias = np.random.default_rng(5).standard_normal(2 * n).astype(np.float32)
    found = tk.scaled_matmul(a[::2], b[:, ::2], a_scale, b_scale, bias[::2], out_dtype="float32")
    expected = tk.scaled_matmul_reference(*doubled(a[::2], b[:, ::2], a_scale, b_scale, bias[::2]))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-3)


@pytest.mark.parametrize(
    "m, n, k, blocks",
    [
        (64, 4096, 4096, (64, 32)),
        (128, 4096, 4096, (64, 64)),
        (256, 4096, 4096, (64, 128)),
        (512, 4096, 4096, (128, 128)),
        (768, 4096, 4096, (64, 128)),
        (4096, 7168, 16384, (128, 128)),
    ],
)
def test_blocks_with_scales_take_few_rounds(m, n, k, blocks):
    found = module._blocks(m, n, k, Device("hopper", 132), True, True)
    assert (found.m, found.n) == blocks and found.is_persistent
