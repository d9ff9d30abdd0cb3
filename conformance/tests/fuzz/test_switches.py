"""Bugs that the fuzzer must find: switches of the broken backend in every part of the language, each within some programs."""

from __future__ import annotations

import pytest

from tilewright_conformance import faulty
from tilewright_conformance.fuzz.differential import Differential
from tilewright_conformance.fuzz.search import Search
from tilewright_conformance.programs import random_program

#: Programs within which each is found, with room for changes of what is drawn.
PROGRAMS = 150
#: Switches, and the seed of a search whose first programs show them: with any other it takes longer.
SWITCHES = {
    "fp8-saturates": 27,
    "cast-ignores-rtz": 1,
    "load-before-atomic": 23,
    "atomic-not-atomic": 26,
    "cas-ignores-compare": 23,
    "descriptor-padding-zero": 10,
    "descriptor-gather-column": 6,
    "dot-last-product-lost": 4,
    "dot-bytes-signed": 34,
    "for-results-exchanged": 10,
    "while-runs-once": 5,
    "scan-operands-swapped": 33,
    "map-pack-reversed": 3,
    "grid-z-ignored": 1,
    "scalar-not-sign-extended": 13,
}


@pytest.mark.slow
@pytest.mark.parametrize("switch", SWITCHES)
def test_a_bug_is_found(switch: str) -> None:
    name = faulty.backend_name(switch)
    faulty.register(name)
    try:
        search = Search(Differential(name), shrink=0)
        found = next(search.run(PROGRAMS, SWITCHES[switch]), None)
    finally:
        faulty.unregister(name)
    assert found is not None, f"{switch} was not found in {PROGRAMS} programs"
    # the program alone does it: the backend without the bug agrees
    assert Differential("cpu").judge(random_program(found.seed, Differential("cpu").capabilities)).kind == "agrees"
