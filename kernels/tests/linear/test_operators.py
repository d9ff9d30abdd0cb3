"""Operators of matmuls in PyTorch: their schemas, compiled functions, and layouts of arguments."""

import checks
import numpy as np
import pytest

import tilewright as tw
import tilewright_kernels as tk
from tilewright_kernels.linear.grouped_matmul import GROUPED_MATMUL, K_GROUPED_MATMUL
from tilewright_kernels.linear.matmul import MATMUL
from tilewright_kernels.linear.quantize import QUANTIZE
from tilewright_kernels.linear.quantized_matmul import QUANTIZED_MATMUL
from tilewright_kernels.linear.scaled_matmul import SCALED_MATMUL

ROWS = np.array([0, 3, 3, 10], np.int32)


@tw.jit
def square(x):
    return x * x


def drawn(*shape):
    return np.random.default_rng(0).standard_normal(shape)


def test_layouts_of_arguments():
    arrays = {"a": drawn(5, 7), "b": drawn(7, 9), "bias": drawn(9), "residual": drawn(5, 9)}
    checks.check_operation(tk.matmul, tk.matmul_reference, arrays)
    batch = {"a": drawn(2, 3, 5, 7), "b": drawn(7, 9)}
    checks.check_operation(tk.matmul, tk.matmul_reference, batch)
    words = {"a": drawn(2, 3, 64), "words": np.ones((1, 5, 8), np.int32), "scales": drawn(5, 2)}
    checks.check_operation(
        tk.quantized_matmul, tk.quantized_matmul_reference, words, layouts=("rows", "columns")
    )
    groups = {"a": drawn(10, 7), "b": drawn(3, 7, 4), "rows": ROWS}
    checks.check_operation(tk.grouped_matmul, tk.grouped_matmul_reference, groups)


@pytest.mark.slow
@pytest.mark.parametrize(
    "operation, arguments",
    [
        (MATMUL, (drawn(5, 7), drawn(7, 9), drawn(9), drawn(5, 9), None, None, None, square)),
        (MATMUL, (drawn(2, 5, 7), drawn(2, 7, 9), None, None, *[None] * 5)),
        (MATMUL, (drawn(5, 7), drawn(7, 9), None, None, drawn(5), *[None] * 3, tk.row_scale)),
        (GROUPED_MATMUL, (drawn(10, 7), drawn(3, 7, 4), ROWS, "ieee", True)),
        (K_GROUPED_MATMUL, (drawn(10, 7), drawn(10, 4), ROWS, 3, "ieee")),
        (QUANTIZED_MATMUL, (drawn(3, 64), np.ones((1, 5, 8), np.int32), drawn(5, 2), None, 4)),
        (QUANTIZE, (drawn(4, 64), 1, 32, "int8")),
        (
            SCALED_MATMUL,
            (*np.ones((2, 8, 8), np.int8), *np.ones((2, 1), np.float32), None, "float32"),
        ),
    ],
    ids=lambda each: getattr(each, "name", ""),
)
def test_operators(operation, arguments):
    pytest.importorskip("torch")
    checks.check_operator(
        operation,
        *(
            each.astype(np.float32)
            if isinstance(each, np.ndarray) and each.dtype == np.float64
            else each
            for each in arguments
        ),
    )


@pytest.mark.slow
def test_compiled_functions():
    pytest.importorskip("torch")
    arrays = {"a": drawn(2, 3, 5, 7), "b": drawn(7, 9), "bias": drawn(9)}
    checks.check_compiled(tk.matmul, arrays, {"activation": square}, wrt=tuple(arrays))
    groups = {"a": drawn(10, 7), "b": drawn(3, 7, 4), "rows": ROWS}
    checks.check_compiled(tk.grouped_matmul, groups, wrt=("a", "b"))
    words = {"a": drawn(2, 3, 64), "words": np.ones((1, 5, 8), np.int32), "scales": drawn(5, 2)}
    checks.check_compiled(tk.quantized_matmul, words, wrt=("a",))
