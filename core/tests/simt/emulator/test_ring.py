"""A ring of buffers between a producer and a consumer partition.

It is correct for every completion order of copies and matmuls, and mutants without a wait, an
arrival or a phase fail visibly.
"""

from __future__ import annotations

from typing import Any

import pytest

from tilewright.errors import KernelError
from tilewright.simt.emulator.layout import MODES

#: what is changed -> (the changes, modes in which it shows, part of the message where it is no
#: wrong result)
MUTANTS: dict[str, tuple[dict[str, str], tuple[str, ...], str]] = {
    "no wait before a slot is filled again": ({"empty": ""}, ("late", "crossed"), ""),
    "the wait for another slot than the one that is filled": (
        {"empty": "simt.await %empty, %zero, %ph {alone = true}"},
        ("crossed",),
        "",
    ),
    "no wait for a slot to be filled": ({"full": ""}, ("late",), "more arrivals at mbarrier 0"),
    "the first phase is waited for before it is over": (
        {"first phase": "false"},
        MODES,
        "part load: 8 threads of warps 0 wait for",
    ),
    "the other phase is waited for": (
        {
            "full": (
                "%yes = constant true : i1\n%other = xor %qh, %yes : i1\n"
                "simt.await %full, %t, %other"
            )
        },
        ("late",),
        "",
    ),
    "slots are never given back": (
        {"arrive": ""},
        MODES,
        "2 of 2 arrivals and 0 bytes are missing",
    ),
    "slots are given back while a product reads them": (
        {"arrive": "simt.arrive %empty, %t"},
        ("crossed",),
        "",
    ),
    "no product is waited for before its slots are given back": (
        {"wait": ""},
        ("late", "crossed"),
        "",
    ),
    "no bytes are announced": (
        {"expect": "simt.arrive %full, %s"},
        ("late", "early", "crossed"),
        "",
    ),
    "too many bytes are announced": (
        {"expect": "simt.expect %full, %s {bytes = 1024}"},
        MODES,
        "0 of 1 arrivals and 512 bytes are missing",
    ),
    "too few bytes are announced": (
        {"expect": "simt.expect %full, %s {bytes = 256}"},
        ("late", "early", "crossed"),
        "",
    ),
    "more arrivals are counted than come": (
        {"init": "%empty = simt.barriers 3 : barriers<2>"},
        MODES,
        "1 of 3 arrivals and 0 bytes are missing",
    ),
    "the result is read while it is made": (
        {"last": "%r = add %acc, %c : tile<8x8xf32, #L0>"},
        ("late", "crossed"),
        "",
    ),
}


@pytest.mark.parametrize(
    ("mode", "seed"),
    [("late", 0), ("early", 0), ("crossed", 0), *(("random", seed) for seed in range(4))],
)
def test_a_ring_between_parts(ring: Any, mode: str, seed: int) -> None:
    assert ring().run(mode, seed)


@pytest.mark.parametrize(
    ("name", "mode"), [(name, mode) for name, (_, modes, _) in MUTANTS.items() for mode in modes]
)
def test_a_mistake_in_a_ring_shows(ring: Any, name: str, mode: str) -> None:
    changes, _, message = MUTANTS[name]
    try:
        right = ring(**changes).run(mode)
    except KernelError as error:
        assert message in str(error), str(error)
    else:
        assert not message and not right


def test_a_race_ends_alike_with_the_same_seed(ring: Any) -> None:
    def ends(seed: int) -> str:
        try:
            return str(ring(full="").run("random", seed))
        except KernelError as error:
            return str(error)

    found = [ends(seed) for seed in range(8)]
    assert len(set(found)) > 1
    assert [ends(seed) for seed in range(8)] == found


def test_a_deadlock_says_who_waits_for_what(ring: Any) -> None:
    with pytest.raises(KernelError) as caught:
        ring(arrive="").run("late")
    missing = "{0} of {0} arrivals and 0 bytes are missing".format
    assert str(caught.value).splitlines() == [
        "threads are stuck:",
        (
            "  part load: 8 threads of warps 0 wait for the end of a phase of parity 0 of "
            f"mbarrier 2, which is in phase 0, of parity 0: {missing(2)}"
        ),
        (
            "  part math: 16 threads of warps 1, 2 wait for the end of a phase of parity 1 of "
            f"mbarrier 0, which is in phase 1, of parity 1: {missing(1)}"
        ),
    ]
