"""Every operation of the table in an instrumented kernel: same results, and records of its
floats."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tilewright.ir import TABLE
from tilewright.ir.types import FloatType, element_type
from tilewright.ir.verifier import verify
from tilewright.passes.clone import clone_module
from tilewright.passes.watch import record
from tilewright.passes.watch.instrument import instrument
from tilewright.reference.interpreter import run
from tilewright_conformance.op_samples import samples

#: Operations that only a target can give a meaning, and one whose results are never the same.
SKIPPED = {"inline_asm", "extern", "clock"}
NAMES = [spec.name for spec in TABLE if spec.name not in SKIPPED]


@pytest.mark.parametrize("name", NAMES)
def test_an_instrumented_kernel_computes_the_same(name: str) -> None:
    for count, sample in enumerate(itertools.islice(samples(name), 0, None, 23)):
        expected, found = (sample.make_arguments(np.random.default_rng(count)) for _ in range(2))
        watched_module = clone_module(sample.module)
        watched = instrument(watched_module)
        verify(watched_module)
        records = record.empty(max(len(watched), 1))
        sums = np.zeros(len(records), np.float32)
        with np.errstate(all="ignore"):
            run(sample.module, expected, sample.grid)
            run(watched_module, [*found, records, sums], sample.grid)
        for one, other in zip(expected, found, strict=True):
            if isinstance(one, np.ndarray):
                np.testing.assert_array_equal(one.view(np.uint8), other.view(np.uint8))
        for value, words in zip(watched, records, strict=False):
            assert isinstance(element_type(value.type), FloatType)
            bad = words[record.Field.NAN] + words[record.Field.INF]
            assert 0 <= bad <= words[record.Field.COUNT]
            assert words[record.Field.NAN_ORIGINS] <= max(words[record.Field.NAN], 0)
