"""Repeated launches of earlier calls."""

import gc
import weakref

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
import tilewright_kernels as tk
from tilewright_kernels.linear.matmul import MATMUL
from tilewright_kernels.operations.block_rules import RULES, trying
from tilewright_kernels.operations.prepared_calls import call_key
from tilewright_kernels.rows.rms_norm import RMS_NORM

torch = pytest.importorskip("torch")
RNG = np.random.default_rng(0)


@pytest.fixture
def launched(monkeypatch):
    """Names of operations whose launch functions have run."""
    found = []
    for operation in (RMS_NORM, MATMUL.specialized(activation=None)):

        def launch(*arguments, operation=operation, function=operation.launch):
            found.append(operation.name)
            return function(*arguments)

        monkeypatch.setattr(operation, "launch", launch)
    return found


def tensor(*shape):
    return torch.from_numpy(RNG.standard_normal(shape).astype(np.float32))


def norm(x, weight):
    return tk.rms_norm_reference(x.double(), weight.double()).float()


@pytest.mark.parametrize("framework", ["numpy", "torch"])
def test_calls_of_the_same_kind_repeat_the_launches_of_the_first(launched, framework):
    for count in (1, 1, 1, 1):
        x, weight = tensor(5, 33), tensor(33)
        given = (x, weight) if framework == "torch" else (x.numpy(), weight.numpy())
        found = torch.as_tensor(tk.rms_norm(*given))
        torch.testing.assert_close(found, norm(x, weight), rtol=1e-5, atol=1e-5)
        assert launched.count("rms_norm") <= count + 1
    assert 1 <= launched.count("rms_norm") <= 2  # PyTorch's types are known from the first call on


def test_other_shapes_strides_types_and_numbers_are_other_kinds(launched):
    weight = tensor(32)
    wide, odd = tensor(4, 64), tensor(4 * 32 + 1)
    kinds = [
        lambda: (tensor(4, 32), {}),
        lambda: (tensor(5, 32), {}),
        lambda: (wide[:, :32], {}),
        lambda: (odd[1:].reshape(4, 32), {}),
        lambda: (tensor(4, 32), {"eps": 1e-2}),
        lambda: (tensor(4, 32), {"offset": 1.0}),
    ]
    tk.rms_norm(tensor(1, 32), weight)
    for repetition in (1, 2):
        before = len(launched)
        for make in kinds:
            x, options = make()
            found = tk.rms_norm(x, weight, **options)
            expected = tk.rms_norm_reference(x.double(), weight.double(), **options).float()
            torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
        assert len(launched) - before == (len(kinds) if repetition == 1 else 0)


def test_calls_that_copy_an_argument_are_not_repeated(launched):
    weight = tensor(32)
    for _ in range(3):
        x = tensor(4, 64)[:, ::2]
        torch.testing.assert_close(tk.rms_norm(x, weight), norm(x, weight), rtol=1e-5, atol=1e-5)
    assert launched == ["rms_norm"] * 3


def test_an_array_that_is_two_arguments_is_another_kind():
    a, b = tensor(16, 16), tensor(16, 16)
    for left, right in ((a, a), (a, b), (b, b), (b, a), (a, b)):
        expected = (left.double() @ right.double()).float()
        torch.testing.assert_close(tk.matmul(left, right), expected, rtol=1e-4, atol=1e-4)


def test_results_go_to_out_of_any_strides(launched):
    weight = tensor(32)
    for _ in range(3):
        x, row_by_row = tensor(4, 32), torch.full((4, 32), torch.nan)
        columns, odd = torch.full((32, 4), torch.nan).T, torch.full((4 * 32 + 1,), torch.nan)
        for out in (row_by_row, columns, odd[1:].reshape(4, 32), x.clone()):
            assert tk.rms_norm(x, weight, out=out) is out
            torch.testing.assert_close(out, norm(x, weight), rtol=1e-5, atol=1e-5)
        expected = norm(x, weight)
        tk.rms_norm(x, weight, out=x)
        torch.testing.assert_close(x, expected, rtol=1e-5, atol=1e-5)
    count = len(launched)
    tk.rms_norm(x, weight, out=row_by_row)
    assert len(launched) == count
    with pytest.raises(ValueError, match="has the shape"):
        tk.rms_norm(x, weight, out=row_by_row[:2])


def test_scratch_memory_is_allocated_anew(monkeypatch):
    from tilewright_kernels.linear import matmul as module
    from tilewright_kernels.linear.blocks import Blocks

    blocks = Blocks(16, 16, 16, split=3)
    monkeypatch.setattr(module, "plain_matmul_blocks", lambda *_, **__: blocks)
    for _ in range(3):
        a, b = tensor(20, 96), tensor(96, 24)
        torch.testing.assert_close(
            tk.matmul(a, b), (a.double() @ b.double()).float(), rtol=1e-4, atol=1e-4
        )


@tw.jit
def scaled(x, rows, columns, M, N, scale_ptr):
    return x * tl.load(scale_ptr + rows, mask=rows < M, other=0.0)[:, None]


@tw.jit
def shifted(x, rows, columns, M, N, scale_ptr):
    return x + tl.load(scale_ptr + rows, mask=rows < M, other=0.0)[:, None]


@pytest.mark.parametrize("framework", ["numpy", "torch"])
def test_each_epilogue_is_a_kind_whose_calls_are_repeated(monkeypatch, framework):
    launched = []
    epilogues = {
        tk.Epilogue(scaled): lambda c, s: c * s[:, None],
        tk.Epilogue(scaled, 16): lambda c, s: c * s[:, None],
        shifted: lambda c, s: c + s[:, None],
    }
    for function in (scaled, shifted):
        operation = MATMUL.specialized(activation=None, epilogue=function)

        def launch(*arguments, function=operation.launch):
            launched.append(arguments)
            return function(*arguments)

        monkeypatch.setattr(operation, "launch", launch)
    tk.matmul(tensor(2, 2), tensor(2, 2))  # PyTorch's types are known from the first call on
    for _ in range(3):
        for epilogue, formula in epilogues.items():
            given = tensor(8, 16), tensor(16, 32), tensor(8)
            expected = formula(given[0] @ given[1], given[2])
            a, b, scale = given if framework == "torch" else [each.numpy() for each in given]
            found = torch.as_tensor(tk.matmul(a, b, epilogue=epilogue, arrays=(scale,)))
            torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    assert len(launched) == len(epilogues)


def test_gradients_follow_calls_without_them(launched):
    x, weight = tensor(3, 32), tensor(32)
    x.requires_grad_()
    with torch.no_grad():
        for _ in range(3):
            tk.rms_norm(x, weight)
    for _ in range(3):
        x.grad = None
        tk.rms_norm(x, weight).sum().backward()
        exact = x.detach().double().requires_grad_()
        tk.rms_norm_reference(exact, weight.double()).sum().backward()
        torch.testing.assert_close(x.grad, exact.grad.float(), rtol=1e-4, atol=1e-4)
    count = launched.count("rms_norm")
    tk.rms_norm(x, weight).sum().backward()
    assert launched.count("rms_norm") == count


def test_plans_and_references_are_no_prepared_calls():
    x, weight = tensor(3, 32), tensor(32)
    for _ in range(3):
        tk.rms_norm(x, weight)
    plan = tk.plan(tk.rms_norm, x, weight)
    with tk.use_references():
        assert torch.equal(tk.rms_norm(x, weight), tk.rms_norm_reference(x, weight))
    x.copy_(tensor(3, 32))
    torch.testing.assert_close(plan.run(), norm(x, weight), rtol=1e-5, atol=1e-5)


def test_tuners_and_new_records_choose_other_blocks():
    a, b = tensor(20, 96), tensor(96, 24)
    for _ in range(3):
        tk.matmul(a, b)
    with trying("matmul") as trial:
        tk.matmul(a, b)
    assert trial.calls
    count = len(MATMUL.prepared)
    RULES["matmul"].forget()
    assert (count, len(MATMUL.prepared)) == (1, 0)


def test_no_array_is_kept():
    a, b = RNG.standard_normal((2, 8, 8)).astype(np.float32)
    a, b = a.copy(), b.copy()
    kept = [weakref.ref(each) for each in (a, b, tk.matmul(a, b))]
    tk.matmul(a, b)
    del a, b
    gc.collect()
    assert [each() for each in kept] == [None, None, None]


def test_numbers_of_a_key_have_types_and_signs():
    keys = [call_key([], (each,), None) for each in (0, 0.0, -0.0, False, 1, True, 1.0, "1", None)]
    assert len(set(keys)) == len(keys)
    assert call_key([], (object(),), None) is None
    assert call_key([[1]], (), None) is None
