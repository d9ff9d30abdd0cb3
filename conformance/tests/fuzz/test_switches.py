"""Bugs that the fuzzer must find: switches of the broken backend in every part of the language,
each within some programs."""

from __future__ import annotations

import pytest

from tilewright_conformance import mutation
from tilewright_conformance.fuzz.differential import Differential
from tilewright_conformance.random_programs import random_program

#: Programs within which each is found, with room for changes of what is drawn.
PROGRAMS = 150
#: Switches, and the number of a program that shows them: where others are drawn some day, one of
#: those that follow it does.
SWITCHES = {
    "fp8-overflows": 27000081,
    "cast-ignores-rtz": 1000068,
    "load-before-atomic": 23000069,
    "atomic-not-atomic": 26000078,
    "cas-ignores-compare": 23000069,
    "descriptor-padding-zero": 10000117,
    "descriptor-gather-column": 6000037,
    "dot-last-term-lost": 4000012,
    "dot-bytes-signed": 34000131,
    "for-results-exchanged": 10000049,
    "while-runs-once": 5000021,
    "scan-operands-swapped": 33000099,
    "map-pack-reversed": 3000016,
    "grid-z-ignored": 1000003,
    "scalar-not-sign-extended": 13000039,
}


@pytest.mark.parametrize("switch", SWITCHES)
def test_a_bug_is_found(switch: str) -> None:
    name = mutation.backend_name(switch)
    mutation.register(name)
    try:
        differential = Differential(name)
        numbers = range(SWITCHES[switch], SWITCHES[switch] + PROGRAMS)
        found = next(
            (
                number
                for number in numbers
                if differential.judge(random_program(number, differential.capabilities)).fails
            ),
            None,
        )
    finally:
        mutation.unregister(name)
    assert found is not None, f"{switch} was not found in {PROGRAMS} programs"
    # the program alone does it: the backend without the bug agrees
    assert (
        Differential("cpu").judge(random_program(found, Differential("cpu").capabilities)).kind
        == "agrees"
    )
