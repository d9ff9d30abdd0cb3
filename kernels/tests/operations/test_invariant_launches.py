"""Launches of invariant calls on GPUs: the same kernels and constants for any number of rows.

A CPU has no reason to divide K or a cache, so that calls on it are invariant anyway. Here rules
choose for GPUs that are not there, and launches are recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from checks import mock_device

import tilewright_kernels as tk
from tilewright_kernels.operations.frameworks import NUMPY
from tilewright_kernels.operations.launcher import plan_launchers

COUNTS = (1, 40, 300, 5000)
ARCHITECTURES = ("sm_90a", "gfx942")
#: Constants that tell which program computes a block, not how.
NO_ARITHMETIC = ("PROGRAMS",)


class _Recorder:
    """Records kernels and their constants."""

    def __init__(self) -> None:
        self.found: list[Any] = []

    def launcher(self, framework: Any, first: Any, results: Sequence[Any]) -> _Recorder:
        return self

    def empty(self, shape: Sequence[int], dtype: Any) -> Any:
        return NUMPY.empty(shape, dtype, None)

    zeros = empty

    def __call__(
        self, kernel: Any, grid: Any, *arguments: Any, updates: Sequence[str] = (), **keywords: Any
    ) -> None:
        constants = {
            name: each
            for name, each in keywords.items()
            if name not in NO_ARITHMETIC and not isinstance(each, np.ndarray)
        }
        self.found.append((kernel, constants))


def half(*shape: int) -> Any:
    return np.zeros(shape, np.float16)


def _grouped(rows: int, invariant: bool) -> Any:
    return tk.grouped_matmul(
        half(rows, 8192), half(2, 8192, 256), np.array([0, rows // 2, rows], np.int32),
        invariant=invariant,
    )  # fmt: skip


def _k_grouped(rows: int, invariant: bool) -> Any:
    bounds = np.arange(rows + 1, dtype=np.int32) * 16
    return tk.k_grouped_matmul(
        half(16 * rows, 64), half(16 * rows, 128), bounds, invariant=invariant
    )


def _cached(rows: int, invariant: bool) -> Any:
    lengths, table = np.full(rows, 4096, np.int32), np.zeros((rows, 256), np.int32)
    pages = half(4, 16, 2, 64)
    return tk.attention_with_kv_cache(
        half(rows, 1, 8, 64), pages, pages, lengths, table, invariant=invariant
    )


def _latent(rows: int, invariant: bool) -> Any:
    lengths, table = np.full(rows, 4096, np.int32), np.zeros((rows, 256), np.int32)
    return tk.mla_decode(
        half(rows, 1, 16, 576), half(4, 16, 576), cache_seqlens=lengths, page_table=table,
        value_dims=512, invariant=invariant,
    )  # fmt: skip


def _of_rows(function: Callable[..., Any]) -> Callable[[int, bool], Any]:
    b = half(8192, 256)
    return lambda rows, invariant: function(half(rows, 8192), b, invariant=invariant)


def _lora(rows: int, invariant: bool) -> Any:
    return tk.lora_matmul(
        half(rows, 8192), half(8192, 256), half(8192, 16), half(16, 256), invariant=invariant
    )


CALLS = {
    "matmul": _of_rows(tk.matmul),
    "rms_norm_matmul": _of_rows(tk.rms_norm_matmul),
    "matmul_quantized": _of_rows(tk.matmul_quantized),
    "lora_matmul": _lora,
    "grouped_matmul": _grouped,
    "k_grouped_matmul": _k_grouped,
    "attention_with_kv_cache": _cached,
    "mla_decode": _latent,
}


def launches(call: Callable[[int, bool], Any], rows: int, invariant: bool) -> list[Any]:
    """Return the kernels that a call launches, with their constants."""
    recorder = _Recorder()
    token = plan_launchers.set(recorder)
    try:
        with np.errstate(all="ignore"):  # of memory that no kernel has filled
            call(rows, invariant)
    finally:
        plan_launchers.reset(token)
    assert recorder.found
    return recorder.found


@pytest.mark.parametrize("name", CALLS)
def test_rows_change_no_constant_of_an_invariant_call(name):
    depends = False
    for architecture in ARCHITECTURES:
        with mock_device(architecture):
            invariant, others = (
                [launches(CALLS[name], rows, each) for rows in COUNTS] for each in (True, False)
            )
        for found in invariant:
            assert found == invariant[0]
        depends |= any(found != others[0] for found in others)
    assert depends, "without invariant nothing depends on the rows either"
