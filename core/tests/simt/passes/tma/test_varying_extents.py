"""Descriptors that differ in an extent alone, as tensor maps of the launch, in the emulator."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from varying_extent_kernels import copied_rows, multiplied_along_rows

from tilewright.frontend.compile import compile_function
from tilewright.ir import Module
from tilewright.language.definitions.callable import device_function
from tilewright.passes.pipeline import run as run_passes
from tilewright.simt import emulator
from tilewright.simt.compile import kernel_of
from tilewright.testing.toy_targets import BulkTarget

ENDS = [0, 5, 5, 13, 22, 38, 39]


def compiled(fn: Any, signature: dict[str, str], constants: dict[str, Any]) -> Module:
    module = compile_function(device_function(fn), signature, constants)
    run_passes(module)
    return module


def names_in(module: Module) -> list[str]:
    return [operation.name for operation in kernel_of(module).walk()]


@pytest.mark.each_value
@pytest.mark.parametrize("completion", ["late", "early", "crossed", "random"])
@pytest.mark.parametrize("assumes", [True, False])
def test_products_along_rows_of_groups(completion: str, assumes: bool) -> None:
    rng = np.random.default_rng(3)
    m, n, groups = 20, 36, len(ENDS) - 1
    a = rng.integers(-3, 4, (ENDS[-1], m)).astype(np.float32)
    b = rng.integers(-3, 4, (ENDS[-1], n)).astype(np.float32)
    # what other groups have is not read
    a[ENDS[3] : ENDS[4]] = np.nan
    b[ENDS[4] : ENDS[5]] = np.inf
    c = np.full((groups, m, n), 7, np.float32)
    constants = {"B_M": 16, "B_N": 16, "B_K": 8, "PROGRAMS": 2, "ASSUMES": assumes}
    signature = {"ends": "*i32", "groups": "i32", "M": "i32", "N": "i32"}
    module = compiled(
        multiplied_along_rows, {**dict.fromkeys("abc", "*fp32"), **signature}, constants
    )
    emulator.run(
        module,
        [a, b, c, np.array(ENDS, np.int32), groups, m, n],
        (2, 1, 1),
        target=BulkTarget(8, completion=completion),
        num_warps=2,
        num_stages=3,
    )
    for group in (0, 1, 2, 5):
        rows = slice(ENDS[group], ENDS[group + 1])
        np.testing.assert_array_equal(c[group], a[rows].T @ b[rows])
    assert np.isnan(c[3]).all() and not np.isfinite(c[4]).any()
    names = names_in(module)
    # a first row that may be negative cannot be told from one behind the tensor
    assert names.count("simt.make_descriptor") == (0 if assumes else 2)
    assert names.count("simt.tensor") == (3 if assumes else 1)


@pytest.mark.parametrize("shift", [0, 3, -2])
def test_rows_outside_are_zero_and_are_not_written(shift: int) -> None:
    ends = np.array([0, 1, 7, 8, 9, 16], np.int32)
    rng = np.random.default_rng(4)
    x = rng.integers(-9, 9, (6, 16, 8)).astype(np.float32)
    y = np.full_like(x, 99)
    constants = {"B_M": 8, "B_K": 8, "SHIFT": shift}
    signature = {"x": "*fp32", "y": "*fp32", "ends": "*i32", "groups": "i32", "K": "i32"}
    module = compiled(copied_rows, signature, constants)
    emulator.run(module, [x, y, ends, 6, 8], (2, 1, 1), target=BulkTarget(8), num_warps=1)
    expected = np.full_like(x, 99)
    for group, end in enumerate(ends):
        first = max(shift, 0)
        expected[group, first:end] = x[group, first:end] + 1
    np.testing.assert_array_equal(y, expected)
    names = names_in(module)
    assert names.count("simt.make_descriptor") == (2 if shift < 0 else 0)
