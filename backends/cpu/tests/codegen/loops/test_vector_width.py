"""Vectors of loop nests: how many lanes they have, along which axis, and what is read once."""

from __future__ import annotations

import re
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


@device_function
def unpack(words, y, COUNT: tl.constexpr):
    place, element = tl.arange(0, COUNT), tl.arange(0, 8)
    packed = tl.load(words + place)
    unpacked = ((packed[:, None] >> (4 * element)[None, :]) & 15).to(tl.float32)
    tl.store(y + tl.arange(0, COUNT * 8), unpacked.reshape(COUNT * 8))


def test_a_tile_in_memory_is_written_along_its_contiguous_axis(
    module_of: Callable[..., Module], kernel_agrees: Callable[..., Any]
) -> None:
    words = np.random.default_rng(0).integers(0, 1 << 31, 32, np.int32)
    arguments = [words, np.zeros(256, np.float32)]
    kernel_agrees(unpack, arguments, COUNT=32)
    text = write_module(
        module_of(unpack, arguments, COUNT=32), named_target("skylake-avx512"), {}
    ).text
    assert "scatter" not in text


@device_function
def weighted_rows(x, factors, y):
    row, column = tl.arange(0, 8), tl.arange(0, 64)
    factor = tl.load(factors + 3 * column)
    weighted = tl.load(x + row[:, None] * 64 + column[None, :]) * factor[None, :]
    tl.store(y + row, tl.sum(weighted, 1))


def test_what_each_row_gathers_alike_is_gathered_once(
    module_of: Callable[..., Module], kernel_agrees: Callable[..., Any]
) -> None:
    rng = np.random.default_rng(0)
    x, factors = (rng.integers(-9, 9, count).astype(np.float32) for count in (512, 192))
    arguments = [x, factors, np.zeros(8, np.float32)]
    kernel_agrees(weighted_rows, arguments)
    text = write_module(
        module_of(weighted_rows, arguments), named_target("skylake-avx512"), {}
    ).text
    gathered = re.findall(r"(%[\w.]+) = call <16 x float> @llvm.masked.gather", text)
    assert gathered and all(f"store <16 x float> {each}," in text for each in gathered)
