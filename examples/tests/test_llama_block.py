"""A few steps of the block of the library's kernels, and the verdict on its losses."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("tilewright_cpu")

PROGRAM = Path(__file__).resolve().parents[1] / "llama_block.py"


@pytest.fixture(scope="module")
def program() -> dict[str, Any]:
    path = list(sys.path)
    found = runpy.run_path(str(PROGRAM))
    sys.path[:] = path
    return found


def test_kernels_train_as_pytorch_does(program: Any, capsys: Any) -> None:
    assert program["main"](["--steps", "3", "--batch", "2", "--length", "17"]) == 0
    *_, verdict = capsys.readouterr().out.splitlines()
    assert verdict == "right"


def test_other_losses_are_wrong(program: Any) -> None:
    exact = torch.tensor([4.0, 3.0, 2.0], dtype=torch.float64)
    eager = exact + torch.tensor([1e-4, 0.0, 0.0])
    for error, right in ((3.9e-4, True), (1e-3, False), (float("nan"), False)):
        found = exact + torch.tensor([0.0, error, 0.0])
        assert program["is_right"](found, eager, exact) == right
