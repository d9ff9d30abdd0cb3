"""71 comparisons of kernels that are the same algebra: their bits are the same on each backend."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright_conformance.exact.equal_pairs import (
    FAMILIES,
    atomic_split_k,
    attentions,
    matmuls,
)
from tilewright_conformance.exact.launches import verdict_on
from tilewright_conformance.suite.session import Session, Subject

BACKENDS = ["reference", "cpu"]


def session_of(backend: str) -> Session:
    return Session(Subject(backend), "exact")


def test_there_are_71_comparisons() -> None:
    assert sum(pair.outputs for family in FAMILIES for pair in family()) == 71


@pytest.mark.each_value
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("family", FAMILIES, ids=[family.__name__ for family in FAMILIES])
def test_the_same_algebra_has_the_same_bits(family, backend) -> None:
    for pair in family():
        found = verdict_on(session_of(backend), pair.a, pair.b)
        assert found.status == "equal", f"{pair.name}: {found}"


@pytest.mark.parametrize("options", [{"carry": "int"}, {"dot": "i8"}], ids=["int", "i8"])
def test_other_carriers_and_dots_agree(options) -> None:
    pairs = [*matmuls(), *attentions()]
    for pair in (pairs[0], pairs[5], pairs[10]):
        found = verdict_on(session_of("cpu"), pair.a, pair.b, **options)
        assert found.status == "equal", f"{pair.name}: {found}"


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", [np.float16, np.float32])
@pytest.mark.parametrize("split", [1, 2, 5])
def test_atomic_split_k_adds_in_any_order(split, dtype, backend) -> None:
    pair = atomic_split_k(split, dtype)
    found = verdict_on(session_of(backend), pair.a, pair.b)
    assert found.status == "equal", found
