"""Lanes of the vectors of a loop nest: those of the widest values that differ from lane to lane."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright.language as tl
from tilewright.ir import Module
from tilewright.language.definitions.callable import device_function
from tilewright_cpu.codegen.kernel import write_module
from tilewright_cpu.hardware import named_target


@device_function
def copy_rows(x, y, starts, BLOCK: tl.constexpr):
    row, column = tl.arange(0, 4), tl.arange(0, BLOCK)
    start = tl.load(starts + row)
    a = tl.load(x + start[:, None] + column[None, :])
    tl.store(y + row[:, None] * BLOCK + column[None, :], a)


@pytest.mark.parametrize("index", ["int32", "int64"])
def test_the_addresses_of_rows_do_not_narrow_the_vectors(
    index: str, module_of: Callable[..., Module], kernel_agrees: Callable[..., Any]
) -> None:
    starts = np.array([70, 3, 200, 129]).astype(index)
    x = np.random.default_rng(0).standard_normal(264).astype(np.float32)
    arguments = [x, np.zeros(256, np.float32), starts]
    kernel_agrees(copy_rows, arguments, BLOCK=64)
    module = module_of(copy_rows, arguments, BLOCK=64)
    text = write_module(module, named_target("skylake-avx512"), {}).text
    assert "load <16 x float>" in text and "load <8 x float>" not in text
