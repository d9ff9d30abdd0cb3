"""A few steps of the transformer of kernels, and the verdict on its losses."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("tilewright_cpu")

PROGRAM = Path(__file__).resolve().parents[1] / "train_transformer.py"


@pytest.fixture(scope="module")
def program() -> dict[str, Any]:
    path = list(sys.path)
    found = runpy.run_path(str(PROGRAM))
    # the program removes its folder, where other tests may have put it
    sys.path[:] = path
    return found


@pytest.mark.parametrize(
    "way", ["aot_eager", *(pytest.param(way, marks=pytest.mark.full) for way in ("", "jax"))]
)
def test_kernels_train_as_pytorch_does(program: Any, way: str, capsys: Any) -> None:
    options = ["--size", "tiny", "--steps", "4"]
    if way == "jax":
        pytest.importorskip("jax")
        options += ["--framework", "jax"]
    else:
        options += ["--backend", way]
    assert program["main"](options) == 0
    *_, verdict = capsys.readouterr().out.splitlines()
    assert verdict == "right"


def test_other_losses_are_wrong(program: Any) -> None:
    double = np.array([4.0, 3.0, 2.0])
    single = double + np.array([1e-4, 0.0, 0.0])
    for error, right in ((4e-4, True), (1e-3, False), (np.nan, False)):
        # rounding of an early step is in the parameters of later ones
        found = double + np.array([0.0, error, 0.0])
        assert program["is_right"](found, single, double) == right
