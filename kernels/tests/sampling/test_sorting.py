"""Sorts and largest elements against NumPy's stable sort, and their gradients."""

import numpy as np
import pytest

import tilewright_kernels as tk


def keys(shape, dtype=np.float32, seed=0):
    """Return numbers of which many are equal."""
    return np.random.default_rng(seed).integers(-50, 50, shape).astype(dtype)


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("shape", [(1,), (3, 7), (2, 3, 100), (1, 9001), (0, 4), (3, 0)])
def test_sorts_are_stable(shape, descending):
    x = keys(shape)
    order = np.argsort(-x if descending else x, axis=-1, stable=True)
    np.testing.assert_array_equal(tk.argsort(x, descending=descending), order)
    np.testing.assert_array_equal(
        tk.sort(x, descending=descending), np.take_along_axis(x, order, -1)
    )
    payload = np.arange(x.size, dtype=np.int64).reshape(shape)
    ordered, rearranged = tk.sort_by_key(x, payload, descending=descending)
    np.testing.assert_array_equal(ordered, np.take_along_axis(x, order, -1))
    np.testing.assert_array_equal(rearranged, np.take_along_axis(payload, order, -1))
    expected = tk.sort_by_key_reference(x, payload, descending=descending)
    np.testing.assert_array_equal(ordered, expected[0])
    np.testing.assert_array_equal(rearranged, expected[1])


@pytest.mark.parametrize("n", [60, 5000, 65537])
@pytest.mark.parametrize("dtype", [np.int8, np.uint16, np.uint32, np.int32, np.float16, np.bool_])
def test_sorts_take_types_of_at_most_32_bits(dtype, n):
    x = (keys((2, n)) if dtype is np.float16 else abs(keys((2, n)))).astype(dtype)
    if np.dtype(dtype).kind in "iu":
        x[0, :2] = np.iinfo(dtype).min, np.iinfo(dtype).max
    np.testing.assert_array_equal(tk.sort(x), np.sort(x, -1))
    np.testing.assert_array_equal(tk.sort(x.T, 0), np.sort(x.T, 0))
    order = np.argsort(-x.astype(np.float64), -1, stable=True)
    np.testing.assert_array_equal(tk.argsort(x, descending=True), order)
    with pytest.raises(TypeError, match="not int64"):
        tk.sort(np.zeros(3, np.int64))


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("n", [60, 4096, 4097, 8193, 40001])
@pytest.mark.parametrize(("dtype", "nan"), [(np.float32, 0x7FC00000), (np.float16, 0x7E00)])
def test_sorts_keep_the_bits_of_zeros_and_nan(dtype, nan, n, descending):
    rng = np.random.default_rng(n)
    x = rng.standard_normal((2, n)).astype(dtype)
    x[0, rng.integers(0, n, n // 3)], x[0, ::5] = 0.0, -0.0
    bits = x.view(f"i{x.itemsize}")
    bits[1, rng.integers(0, n, n // 4)] = nan + rng.integers(0, 400, n // 4)
    keys = np.where(np.isnan(x), np.float64(1e300), x)
    order = np.argsort(-keys if descending else keys, axis=-1, stable=True)
    np.testing.assert_array_equal(tk.argsort(x, descending=descending), order)
    found = tk.sort(x, descending=descending).view(bits.dtype)
    np.testing.assert_array_equal(found, np.take_along_axis(bits, order, -1))


def test_nan_is_above_every_number():
    x = np.array([np.nan, np.inf, 0.0, -0.0, -np.inf, np.nan, 1], np.float32)
    np.testing.assert_array_equal(tk.argsort(x), [4, 2, 3, 6, 1, 0, 5])
    np.testing.assert_array_equal(tk.argsort(x, descending=True), [0, 5, 1, 6, 2, 3, 4])


@pytest.mark.parametrize("largest", [False, True])
@pytest.mark.parametrize(("shape", "k"), [((5,), 5), ((3, 50), 3), ((2, 40001), 20), ((2, 5), 0)])
def test_topk_equals_the_first_of_a_stable_sort(shape, k, largest):
    x, payload = keys(shape), keys(shape, np.float64, 1)
    found = tk.topk(x, k, largest=largest, payload=payload)
    order = np.argsort(-x if largest else x, axis=-1, stable=True)[..., :k]
    for each, of in zip(found, (x, None, payload), strict=True):
        np.testing.assert_array_equal(
            each, order if of is None else np.take_along_axis(of, order, -1)
        )
    for each, expected in zip(
        found, tk.topk_reference(x, k, largest=largest, payload=payload), strict=True
    ):
        np.testing.assert_array_equal(each, expected)
    with pytest.raises(ValueError, match="k must be between"):
        tk.topk(x, shape[-1] + 1)


def test_gradients_go_back_to_positions():
    torch = pytest.importorskip("torch")
    x = torch.randn(4, 33).requires_grad_()
    exact = x.detach().clone().requires_grad_()
    weight = torch.randn(4, 33)
    (tk.sort(x, 1) * weight).sum().backward()
    (torch.sort(exact, 1)[0] * weight).sum().backward()
    torch.testing.assert_close(x.grad, exact.grad)
    x.grad = exact.grad = None
    (tk.topk(x, 5)[0] * weight[:, :5]).sum().backward()
    (torch.topk(exact, 5)[0] * weight[:, :5]).sum().backward()
    torch.testing.assert_close(x.grad, exact.grad)
    values = torch.randn(4, 33).requires_grad_()
    (tk.sort_by_key(x.detach(), values)[1] * weight).sum().backward()
    expected = torch.empty_like(weight).scatter_(1, torch.argsort(x.detach(), 1), weight)
    torch.testing.assert_close(values.grad, expected)


def test_sorts_are_operators_of_torch():
    torch = pytest.importorskip("torch")
    x = torch.randn(3, 20)
    compiled = torch.compile(lambda x: tk.topk(x, 4), fullgraph=True, backend="aot_eager")
    for found, expected in zip(compiled(x), torch.topk(x, 4), strict=True):
        torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("k", [1, 700])
def test_topk_of_wide_rows_keeps_the_first_of_equal_elements(k, largest):
    rng = np.random.default_rng(0)
    integers = rng.integers(-(1 << 31), (1 << 31) - 1, (2, 9001)).astype(np.int32)
    few = rng.integers(0, 3, (2, 9001)).astype(np.float32)
    nan = np.full((1, 9001), np.nan, np.float32)
    for x in (integers, few, nan):
        _, found = tk.topk(x, k, largest=largest)
        keys = -x.astype(np.float64) if largest else x
        np.testing.assert_array_equal(found, np.argsort(keys, -1, kind="stable")[:, :k])


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize(
    ("columns", "k"), [(600, 5), (5000, 20), (70001, 50), (5000, 700), (70001, 1500), (200001, 20)]
)
def test_topk_of_rows_whose_largest_elements_lie_together(columns, k, largest):
    rng = np.random.default_rng(0)
    ordered = np.sort(rng.standard_normal((2, columns)).astype(np.float32))
    few = np.where(ordered > 3, ordered, 0).astype(np.float32)
    for x in (ordered, ordered[:, ::-1], rng.permuted(ordered, axis=1), few, 0 * ordered):
        found = tk.topk(x, k, largest=largest)
        for one, other in zip(found, tk.topk_reference(x, k, largest=largest), strict=True):
            np.testing.assert_array_equal(one, other)
