"""Embedding and dropout against their references."""

import numpy as np
import pytest
from checks import (
    check_architectures,
    check_compiled,
    check_gradients,
    check_operation,
    check_operator,
)

import tilewright_kernels as tk
from tilewright_kernels.rows.dropout import DROPOUT
from tilewright_kernels.rows.embedding import EMBEDDING, EMBEDDING_BACKWARD


def arrays(tokens, rows, columns):
    rng = np.random.default_rng(0)
    index = rng.integers(0, rows, tokens)
    index.reshape(-1)[::2] = 0  # a row that many tokens name
    return {"index": index, "table": rng.standard_normal((rows, columns))}


@pytest.mark.parametrize(
    ("tokens", "rows", "columns"), [((3, 5), 7, 9), ((300,), 11, 300), ((0,), 4, 8)]
)
def test_embedding_and_its_gradient(tokens, rows, columns):
    given = arrays(tokens, rows, columns)
    check_operation(tk.embedding, tk.embedding_reference, given)
    check_gradients(tk.embedding, tk.embedding_reference, given, rtol=1e-4)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_embedding_of_narrow_types(dtype):
    given = arrays((40,), 7, 9)
    check_operation(tk.embedding, tk.embedding_reference, given, dtype=dtype)
    check_gradients(tk.embedding, tk.embedding_reference, given, dtype=dtype, rtol=0.01, atol=0.01)


def test_the_row_of_padding_has_no_gradient():
    torch = pytest.importorskip("torch")
    given = arrays((3, 50), 7, 9)
    index, table = (torch.from_numpy(each) for each in given.values())
    ours, theirs = (table.float().requires_grad_() for _ in range(2))
    dy = torch.randn(3, 50, 9)
    tk.embedding(index, ours, padding_index=0).backward(dy)
    torch.nn.functional.embedding(index, theirs, padding_idx=0).backward(dy)
    torch.testing.assert_close(ours.grad, theirs.grad)
    assert not ours.grad[0].any()


@pytest.mark.parametrize("shape", [(5,), (3, 4000), (0, 3)])
@pytest.mark.parametrize("rate", [0.0, 0.3, 1.0])
def test_dropout_and_its_gradient(shape, rate):
    given = {"x": np.random.default_rng(0).standard_normal(shape)}
    settings = {"rate": rate, "seed": 12345}
    check_operation(tk.dropout, tk.dropout_reference, given, settings)
    check_gradients(tk.dropout, tk.dropout_reference, given, settings)


def test_dropout_keeps_the_part_that_is_asked_for():
    x = np.ones(100_000, np.float32)
    masks = [tk.dropout(x, 0.3, seed) != 0 for seed in (1, 2)]
    for mask in masks:
        assert abs(mask.mean() - 0.7) < 0.01
    assert abs((masks[0] & masks[1]).mean() - 0.49) < 0.01
    with pytest.raises(ValueError, match="a probability"):
        tk.dropout(x, 1.5, 0)


def test_embedding_and_dropout_are_operators_of_torch():
    pytest.importorskip("torch")
    index, table = np.zeros((3, 4), np.int64), np.ones((5, 6), np.float32)
    check_operator(EMBEDDING, index, table, -1)
    check_operator(DROPOUT, table, 0.3, 7)
    check_compiled(tk.embedding, arrays((3, 4), 5, 6), wrt=("table",))


def test_kernels_of_embedding_and_dropout_compile_for_gpus():
    index, table = np.zeros(300, np.int64), np.ones((50, 600), np.float32)
    check_architectures(EMBEDDING, index, table, -1)
    check_architectures(DROPOUT, table, 0.3, 7)
    dy = np.ones((300, 600), np.float32)
    check_architectures(
        EMBEDDING_BACKWARD, dy, index, 50, -1, architectures=["sm_90a", "gfx942", "gfx1100"]
    )
