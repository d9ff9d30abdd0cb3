"""Matmuls whose mask leaves few columns of a panel: only the vectors that hold them are
computed."""

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[5] / "examples"))

from kernels.matmul import matmul


@pytest.mark.each_value
@pytest.mark.parametrize("columns", [1, 2, 15, 16, 17, 33, 64, 65, 79, 80, 81, 130])
@pytest.mark.parametrize("rows, depth", [(40, 130), (128, 64), (3, 70)])
def test_columns_left_over(columns: int, rows: int, depth: int) -> None:
    random = np.random.default_rng(columns)
    a, b = (
        random.integers(-8, 8, shape).astype(np.float32)
        for shape in ((rows, depth), (depth, columns))
    )
    memory = np.full(rows * columns + 128, 7.0, np.float32)
    matmul(a, b, memory[: rows * columns].reshape(rows, columns))
    np.testing.assert_array_equal(memory[: rows * columns], (a @ b).reshape(-1))
    assert (memory[rows * columns :] == 7.0).all()


@pytest.mark.parametrize("columns", [2, 16, 17, 82])
def test_bytes_and_their_correction(columns: int) -> None:
    torch = pytest.importorskip("torch")
    sys.path.insert(0, str(Path(__file__).resolve().parents[5] / "benchmarks" / "cpu"))
    from sweep import byte_matmul

    a = torch.randint(-128, 128, (40, 100), dtype=torch.int8)
    b = torch.randint(-128, 128, (100, columns), dtype=torch.int8)
    c = torch.zeros(40, columns, dtype=torch.int32)
    byte_matmul(a, b, c)
    assert torch.equal(c, a.int() @ b.int())


@pytest.mark.parametrize("columns", [2, 16, 17, 82])
def test_bf16(columns: int) -> None:
    torch = pytest.importorskip("torch")
    a, b = (torch.randint(-8, 8, shape).to(torch.bfloat16) for shape in ((40, 100), (100, columns)))
    c = torch.zeros(40, columns, dtype=torch.bfloat16)
    matmul(a, b, c)
    assert torch.equal(c, (a.float() @ b.float()).to(torch.bfloat16))
