"""Matmul against its formula in float64: types, strides, epilogues, parts along K, gradients."""

import itertools

import checks
import ml_dtypes
import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
import tilewright_kernels as tk
from tilewright_kernels.linear import matmul as module
from tilewright_kernels.linear.alignment import row_alignment
from tilewright_kernels.linear.blocks import Blocks, k_grouped_blocks, matmul_blocks
from tilewright_kernels.linear.element_types import OPERANDS
from tilewright_kernels.operations.devices import Device
from tilewright_kernels.operations.frameworks import NUMPY
from tilewright_kernels.operations.launcher import DirectLauncher

TOLERANCES = {"float32": 1e-5, "float16": 2e-3, "bfloat16": 2e-2}


@tw.jit
def squared_relu(x):
    positive = tl.maximum(x, 0.0)
    return positive * positive


def squared_relu_reference(x):
    positive = x.clip(0)
    return positive * positive


def drawn(seed, dtype, *shapes):
    rng = np.random.default_rng(seed)
    kind = getattr(ml_dtypes, dtype, dtype)
    return [rng.standard_normal(shape).astype(kind) for shape in shapes]


def check(found, expected, dtype):
    limit = TOLERANCES[dtype]
    scale = np.abs(expected).max(initial=1.0)
    np.testing.assert_allclose(found.astype(np.float64), expected, rtol=limit, atol=limit * scale)


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("shape", [(1, 1, 1), (37, 71, 53), (5, 130, 64), (0, 4, 3), (3, 4, 0)])
def test_results_equal_the_formula(dtype, shape):
    m, n, k = shape
    a, b, bias, residual = drawn(0, dtype, (m, k), (k, n), (n,), (m, n))
    out = np.full((m, n), np.nan, a.dtype)
    found = tk.matmul(a, b, bias, residual, activation=squared_relu, out=out)
    assert found is out
    exact = (each.astype(np.float64) for each in (a, b, bias, residual))
    check(out, tk.matmul_reference(*exact, activation=squared_relu_reference), dtype)


@pytest.mark.parametrize("dtype", (*TOLERANCES, "float64", "int8"))
@pytest.mark.parametrize("k", [1, 4, 5, 8, 9])
def test_few_rank_1_updates_are_added_up(dtype, k):
    (a, b), batch, (m, n) = drawn(14, "float32", (2, 70, k), (2, k, 521)), 2, (70, 521)
    kind = getattr(ml_dtypes, dtype, dtype)
    a, b = (np.rint(10 * each).astype(kind) for each in (a.swapaxes(1, 2), b))
    a = a.swapaxes(1, 2)
    out = np.full((batch, m, n), -1, np.int32 if dtype == "int8" else kind)
    found = tk.matmul(a, b, out=out)
    exact = a.astype(np.float64) @ b.astype(np.float64)
    np.testing.assert_array_equal(found.astype(np.float64), exact.astype(out.dtype))


@pytest.mark.parametrize(
    "a_order, b_order, sliced", list(itertools.product("CF", "CF", (False, True)))
)
def test_strides_are_any(a_order, b_order, sliced):
    a, b = drawn(1, "float32", (40, 60), (60, 50))
    a, b = np.asarray(a, order=a_order), np.asarray(b, order=b_order)
    if sliced:
        a, b = a[::2, 1::3], b[1::3, ::-1][:, ::2]
        b = b[:, ::-1]
    check(tk.matmul(a, b), a.astype(np.float64) @ b.astype(np.float64), "float32")


def test_strides_of_the_epilogue_are_any():
    a, b, bias, residual = drawn(11, "float32", (5, 7), (7, 9), (18,), (18, 5))
    residual, memory = residual[::2], np.full((5, 18), np.nan, np.float32)
    found = tk.matmul(a, b, bias[::2], residual.T, out=memory[:, ::2])
    check(found, a.astype(np.float64) @ b + bias[::2] + residual.T, "float32")
    assert np.isnan(memory[:, 1::2]).all()


@pytest.mark.parametrize(
    "shapes", [((3, 5, 7), (3, 7, 4)), ((2, 3, 5, 7), (7, 4)), ((0, 2, 3), (0, 3, 2))]
)
def test_batches(shapes):
    a, b = drawn(2, "float32", *shapes)
    residual = np.asarray(drawn(3, "float32", (*shapes[0][:-1], shapes[1][-1]))[0])
    out = np.full(residual.shape, np.nan, np.float32)
    tk.matmul(a, b, residual=residual, out=out)
    check(out, a.astype(np.float64) @ b + residual, "float32")


def test_leading_axes_of_two_batches():
    a, b = drawn(4, "float32", (2, 3, 4, 5), (2, 3, 5, 6))
    check(tk.matmul(a, b), a.astype(np.float64) @ b, "float32")


def test_integers_are_exact():
    rng = np.random.default_rng(5)
    a, b = (rng.integers(-128, 128, shape).astype(np.int8) for shape in ((19, 300), (300, 33)))
    found = tk.matmul(a, b)
    assert found.dtype == np.int32
    np.testing.assert_array_equal(found, a.astype(np.int32) @ b.astype(np.int32))


def test_weights_of_integers_are_converted():
    (a,) = drawn(6, "float16", (9, 64))
    b = np.random.default_rng(6).integers(-128, 128, (64, 32)).astype(np.int8)
    found = tk.matmul(a, b, out_dtype="float32")
    check(found, a.astype(np.float64) @ b, "float16")


def test_float8_results_are_of_bfloat16():
    a, b = drawn(7, "float8_e4m3fn", (20, 64), (64, 24))
    found = tk.matmul(a, b)
    assert found.dtype == ml_dtypes.bfloat16
    check(found, a.astype(np.float64) @ b.astype(np.float64), "bfloat16")


def launched(launch, m, n, k, has_epilogue=True):
    a, b, bias, residual = drawn(8, "float32", (m, k), (k, n), (n,), (m, n))
    c, z = np.full((m, n), np.nan, np.float32), np.full((m, n), np.nan, np.float32)
    activation = squared_relu if has_epilogue else None
    results = (c, z, bias, residual) if has_epilogue else (c, None, None, None)
    results = (*results, None, None, None)
    constants = {"SUM": tl.float32, "PRECISION": "ieee", "ACTIVATION": activation}
    constants["EPILOGUE"] = None
    launch(DirectLauncher(NUMPY, a), a, b, results, constants)
    exact = [each.astype(np.float64) for each in (a, b, bias, residual)]
    if not has_epilogue:
        return check(c, exact[0] @ exact[1], "float32")
    check(z, exact[0] @ exact[1], "float32")
    check(c, tk.matmul_reference(*exact, activation=squared_relu_reference), "float32")


@pytest.mark.parametrize("has_epilogue", [False, True])
@pytest.mark.parametrize("split", [2, 3, 16])
def test_parts_along_k_equal_the_formula(has_epilogue, split):
    def launch(run, a, b, results, constants):
        blocks = Blocks(16, 32, 16, split=split)
        module.launch_blocks(run, blocks, a, b, results, OPERANDS["float32"], constants, False)

    launched(launch, 21, 40, 150, has_epilogue)


@pytest.mark.parametrize("has_epilogue", [False, True])
@pytest.mark.parametrize("columns", [32, 48, 40])
def test_persistent_programs_equal_the_formula(has_epilogue, columns):
    def launch(run, a, b, results, constants):
        blocks = Blocks(32, columns, 16, is_persistent=True)
        module.launch_persistent(run, blocks, a, b, results, 3, constants)
        a, b = (np.asfortranarray(each) for each in (a, b))
        module.launch_persistent(run, blocks, a, b, results, 3, constants)

    launched(launch, 76, 72, 52, has_epilogue)


def test_one_row_equals_the_formula():
    def launch(run, a, b, results, constants):
        module.launch_vector(run, a, np.asfortranarray(b), results, constants)

    launched(launch, 1, 30, 700)


def test_invariant_results_do_not_depend_on_the_number_of_rows():
    a, b = drawn(9, "float32", (70, 300), (300, 40))
    whole = tk.matmul(a, b, invariant=True)
    for rows in (1, 2, 17, 33):
        np.testing.assert_array_equal(tk.matmul(a[:rows], b, invariant=True), whole[:rows])


def test_invariant_results_of_batches_do_not_depend_on_their_extents():
    a, b = drawn(9, "float32", (70, 300), (300, 40))
    whole = tk.matmul(a, b, invariant=True)
    for count, rows in ((1, 70), (3, 1), (5, 17)):
        left, right = np.stack([a[:rows]] * count), np.stack([b] * count)
        found = tk.matmul(left, right, invariant=True)
        np.testing.assert_array_equal(found[-1], whole[:rows])


def test_gradients_equal_those_of_the_formula():
    torch = pytest.importorskip("torch")
    generator = torch.Generator().manual_seed(0)
    shapes = ((2, 13, 37), (37, 29), (29,), (2, 13, 29))
    given = [torch.randn(each, generator=generator).requires_grad_() for each in shapes]
    exact = [each.detach().double().requires_grad_() for each in given]
    dy = torch.randn(shapes[-1], generator=generator)
    tk.matmul(*given, activation=squared_relu).backward(dy)
    tk.matmul_reference(*exact, activation=squared_relu_reference).backward(dy.double())
    for found, expected in zip(given, exact, strict=True):
        torch.testing.assert_close(found.grad.double(), expected.grad, rtol=1e-4, atol=1e-4)


def test_gradients_of_batches_in_bfloat16():
    torch = pytest.importorskip("torch")
    generator = torch.Generator().manual_seed(1)
    a, b = (
        torch.randn(shape, generator=generator, dtype=torch.bfloat16).requires_grad_()
        for shape in ((3, 9, 17), (3, 17, 5))
    )
    dy = torch.randn((3, 9, 5), generator=generator)
    tk.matmul(a, b, out_dtype="float32").backward(dy)
    expected = dy @ b.detach().float().mT, a.detach().float().mT @ dy
    for found, gradient in zip((a, b), expected, strict=True):
        torch.testing.assert_close(found.grad.float(), gradient, rtol=2e-2, atol=6e-2)


def test_wrong_shapes_and_types_are_refused():
    a, b = drawn(10, "float32", (3, 4), (5, 6))
    with pytest.raises(ValueError, match=r"b must be of shape \(4, N\)"):
        tk.matmul(a, b)
    with pytest.raises(ValueError, match="bias has the shape"):
        tk.matmul(a, b[:4], b[0, :5])
    with pytest.raises(ValueError, match="residual has the shape"):
        tk.matmul(a, b[:4], residual=b)
    with pytest.raises(TypeError, match="cannot be multiplied"):
        tk.matmul(a.astype(np.float16), b[:4].astype(ml_dtypes.bfloat16))


@pytest.mark.parametrize(
    "m, n, k, family, expected",
    [
        (8192, 8192, 8192, "hopper", (128, 256, True, 1)),
        (1024, 1024, 4096, "hopper", (128, 64, True, 1)),
        (1024, 3072, 1024, "hopper", (128, 192, True, 1)),
        (1536, 1536, 1536, "hopper", (128, 160, True, 1)),
        (768, 768, 8192, "hopper", (128, 128, False, 3)),
        (8, 4096, 4096, "hopper", (16, 16, False, 1)),
        (8, 8192, 8192, "hopper", (16, 32, False, 1)),
        (64, 8192, 8192, "hopper", (64, 32, False, 1)),
    ],
)
def test_blocks_follow_the_shape(m, n, k, family, expected):
    device = Device(family, 132)
    found = matmul_blocks(m, n, k, 16, device, may_persist=True, may_widen=True)
    assert (found.m, found.n, found.is_persistent, found.split) == expected


@pytest.mark.parametrize(
    ("m", "n", "b_is_row_major", "columns"),
    [(1, 4096, True, 1024), (8, 1024, True, 512), (9, 4096, True, 128), (8, 4096, False, 128)],
)
def test_few_rows_stream_rows_of_the_other_operand(m, n, b_is_row_major, columns):
    found = matmul_blocks(m, n, 512, 32, Device("cpu", 2), b_is_row_major=b_is_row_major)
    assert found.n == columns


@pytest.mark.parametrize("rows", [8, 16, 32, 64])
@pytest.mark.parametrize("columns", [4096, 8192, 16384])
def test_operands_of_few_rows_fit_a_processor(rows, columns):
    found = matmul_blocks(rows, columns, 8192, 16, Device("hopper", 132))
    resident = min(-(-columns // found.n // 132), 3)
    operands = (found.m + found.n) * found.k * 2
    assert resident * operands * found.num_stages <= 220 << 10


@pytest.mark.parametrize(
    "family",
    ["cpu", "ampere", "ada", "hopper", "blackwell", "cdna2", "cdna3", "cdna4", "rdna3", "rdna4"],
)
def test_blocks_of_invariant_matmuls_do_not_follow_the_rows(family):
    device = Device(family, 100)
    options = {"is_invariant": True, "may_split": False}
    chosen = {
        matmul_blocks(m, 512, 512, 16, device, batch=batch, **options)
        for m in (1, 16, 300, 4096)
        for batch in (1, 7, 128)
    }
    assert len(chosen) == 1


def test_rows_apart_from_lines_of_the_cache_ask_for_fewer_reads():
    options = {"may_persist": True, "may_widen": True}
    device = Device("hopper", 132)
    aligned = matmul_blocks(1000, 3000, 2048, 16, device, alignment=128, **options)
    others = matmul_blocks(1000, 3000, 2008, 16, device, alignment=16, **options)
    assert aligned.n == 192 and others.n == 256
    # pointers whose steps are not known to be multiples of 32 bytes do not become descriptors
    for m in (100, 300, 2000):
        found = matmul_blocks(m, 640, 1000, 16, device, alignment=16, **options)
        assert found.is_persistent


@pytest.mark.parametrize("m, n, k", [(1000, 3000, 2008), (3000, 3000, 3000), (5000, 5000, 5000)])
def test_clusters_read_columns_once_where_rows_are_apart_from_lines(m, n, k):
    options = {"may_persist": True, "may_widen": True, "may_cluster": True}
    device = Device("hopper", 132)
    found = matmul_blocks(m, n, k, 16, device, alignment=16, **options)
    assert found.ctas == found.options["num_ctas"] == 2
    assert matmul_blocks(m, n, 2048, 16, device, alignment=128, **options).ctas == 1


@pytest.mark.parametrize(
    "m, n, k, alignment, blocks",
    [
        (3000, 1000, 3000, 16, (256, 256, 2)),
        (5000, 5000, 5000, 16, (256, 256, 2)),
        (1000, 1000, 1000, 16, (128, 128, 2)),
        (2000, 2000, 2000, 32, (128, 256, 1)),
    ],
)
def test_rows_apart_from_lines_cost_by_their_sectors(m, n, k, alignment, blocks):
    options = {"may_persist": True, "may_widen": True, "may_cluster": True}
    found = matmul_blocks(m, n, k, 16, Device("hopper", 132), alignment=alignment, **options)
    assert (found.m, found.n, found.ctas) == blocks


@pytest.mark.parametrize(
    "m, n, ctas, columns, rows",
    [
        (128, 128, 1, 1280, 4),
        (128, 128, 1, 1536, 16),
        (256, 128, 2, 1280, 4),
        (128, 256, 1, 2048, 4),
        (128, 256, 1, 4096, 16),
    ],
)
def test_few_rows_of_blocks_are_together_where_a_round_has_all_columns(m, n, ctas, columns, rows):
    blocks = Blocks(m, n, 64, is_persistent=True, ctas=ctas)
    assert module._rows_together(blocks, columns, 132) == rows


def test_blocks_of_short_groups_along_k_share_a_processor():
    device = Device("hopper", 132)
    short = k_grouped_blocks(2048, 768, 256, 16, device, 128)
    assert 3 * (short.m + short.n) * short.k * 2 * short.num_stages < 220 << 10
    assert k_grouped_blocks(2048, 768, 4096, 16, device, 8).n == 256


def test_alignment_of_rows():
    a = np.empty((64, 320), np.float16)
    assert row_alignment(a, a) == 128
    assert row_alignment(a, a[:, :64].T) == 128
    assert row_alignment(a, np.empty((64, 328), np.float16)) == 16
    assert row_alignment(np.empty((64, 336), np.float16)) == 32


@pytest.mark.slow
@pytest.mark.parametrize("m, n, k", [(1024, 3072, 1024), (1536, 1536, 1536), (1024, 1024, 4096)])
def test_persistent_programs_compile_for_hopper(m, n, k):
    a, b, bias = drawn(12, "float16", (m, k), (n, k), (n,))
    checks.check_architectures(
        module.MATMUL, a, b.T, bias, activation=squared_relu, architectures=("sm_90a",)
    )


@pytest.mark.slow
@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize("m, n, k", [(1000, 3000, 2008), (3000, 1000, 3000), (1000, 1000, 1000)])
def test_programs_of_clusters_compile_for_hopper(m, n, k, has_bias):
    a, b, bias, residual = drawn(12, "float16", (m, k), (n, k), (n,), (m, n))
    more = (bias, residual) if has_bias else ()
    checks.check_architectures(module.MATMUL, a, b.T, *more, architectures=("sm_90a",))
