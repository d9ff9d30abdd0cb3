"""Bugs that the fuzzer must find: switches of the broken backend in every part of the language, each within some programs."""

from __future__ import annotations

import pytest

from tilewright_conformance import faulty
from tilewright_conformance.fuzz.differential import Differential
from tilewright_conformance.fuzz.search import Search
from tilewright_conformance.programs import random_program

#: Programs within which each is found, with room for changes of what is drawn.
PROGRAMS = 150
SWITCHES = (
    "fp8-saturates",
    "cast-ignores-rtz",
    "load-before-atomic",
    "atomic-not-atomic",
    "cas-ignores-compare",
    "descriptor-padding-zero",
    "descriptor-gather-column",
    "dot-last-product-lost",
    "dot-bytes-signed",
    "for-results-exchanged",
    "while-runs-once",
    "scan-operands-swapped",
    "map-pack-reversed",
    "grid-z-ignored",
    "scalar-not-sign-extended",
)


@pytest.mark.slow
@pytest.mark.parametrize("switch", SWITCHES)
def test_a_bug_is_found(switch: str) -> None:
    name = faulty.backend_name(switch)
    faulty.register(name)
    try:
        search = Search(Differential(name), shrink=0)
        found = next(search.run(PROGRAMS, 1), None)
    finally:
        faulty.unregister(name)
    assert found is not None, f"{switch} was not found in {PROGRAMS} programs"
    # the program alone does it: the backend without the bug agrees
    assert Differential("cpu").judge(random_program(found.seed, Differential("cpu").capabilities)).kind == "agrees"
