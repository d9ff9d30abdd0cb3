"""Operands outside of what an operation's result is computed for have one meaning on the reference,
CPUs and GPUs."""

from __future__ import annotations

from typing import Any

import pytest

from tilewright_conformance.oracles.dtypes import INTEGERS
from tilewright_conformance.testlib import out_of_range


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", INTEGERS)
def test_divisors_of_0_and_shifts_past_the_width(launch: Any, name: str) -> None:
    for session in (launch.session, launch.session.reference):
        out_of_range.check_integers(name, session)


@pytest.mark.parametrize("name", ["float16", "float32", "float64"])
def test_floats_that_no_integer_is(launch: Any, name: str) -> None:
    for session in (launch.session, launch.session.reference):
        out_of_range.check_casts(name, session)
