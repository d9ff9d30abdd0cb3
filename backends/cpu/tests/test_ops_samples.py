"""Every sample of the operations lowered by themselves agrees with the reference."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tilewright.testing.op_samples import Sample, samples

_OPERATIONS = (
    "dot",
    "dot_scaled",
    "scan",
    "unsplat",
    "cat",
    "join",
    "split",
    "gather",
    "reshape",
    "histogram",
    "atomic_rmw",
    "atomic_cas",
    "make_descriptor",
    "descriptor_load",
    "descriptor_store",
    "descriptor_reduce",
    "descriptor_gather",
    "descriptor_scatter",
    "map",
    "assert",
    "assume",
    "barrier",
)
_SAMPLES = [sample for name in _OPERATIONS for sample in samples(name) if sample.runnable]


@pytest.mark.parametrize("sample", _SAMPLES, ids=lambda sample: sample.name)
def test_sample_agrees_with_the_reference(sample: Sample, agree: Callable[..., Any]) -> None:
    agree(sample, seed=1)
