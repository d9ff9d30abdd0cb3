"""Loop-invariant code: what leaves a loop and what must not."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tilewright.passes.licm import licm


def loop(body: str, *, attributes: str = "", lower: str = "%i", upper: str = "%j") -> str:
    return f"for {lower}, {upper}, %n{attributes} body(%0: i32) {{\n{body}\nyield\n}}"


BOUNDS = "%lo = constant 0 : i32\n%hi = constant 4 : i32\n"


def certain(body: str) -> str:
    """A loop that is sure to run."""
    return loop(body, lower="%lo", upper="%hi")


CASES: dict[str, tuple[str, str]] = {
    "chains of pure operations": (
        loop("%x = neg %f : f32\n%y = exp %x : f32\n%z = add %0, %i : i32\nuse %y, %z"),
        "%x = neg %f : f32\n%y = exp %x : f32\n" + loop("%z = add %0, %i : i32\nuse %y, %z"),
    ),
    "out of two loops": (
        loop(loop("%x = neg %f : f32\n%y = neg %0 : i32\nuse %x, %y").replace("%0", "%9")),
        "%x = neg %f : f32\n" + loop(loop("%y = neg %0 : i32\nuse %x, %y").replace("%0", "%9")),
    ),
    "out of the inner loop only": (
        loop(loop("%x = neg %0 : i32\nuse %x, %9").replace("body(%0", "body(%9")),
        loop("%x = neg %0 : i32\n" + loop("use %x, %9").replace("body(%0", "body(%9")),
    ),
    "reductions": (
        loop(
            "%x = reduce %t {axis = 0} : f32 combine(%1: f32, %2: f32) {\n"
            "%3 = add %1, %2 : f32\nyield %3\n}\nuse %x"
        ),
        (
            "%x = reduce %t {axis = 0} : f32 combine(%1: f32, %2: f32) {\n%3 = add %1, %2 : f32\n"
            "yield %3\n}\n"
        )
        + loop("use %x"),
    ),
    "divisions by constants": (
        loop("%x = constant 3 : i32\n%y = div %i, %x : i32\nuse %y"),
        "%x = constant 3 : i32\n%y = div %i, %x : i32\n" + loop("use %y"),
    ),
    "float divisions": (
        loop("%y = div %f, %g : f32\nuse %y"),
        "%y = div %f, %g : f32\n" + loop("use %y"),
    ),
    "divisions where the loop is sure to run": (
        BOUNDS + certain("%y = div %i, %j : i32\nuse %y"),
        BOUNDS + "%y = div %i, %j : i32\n" + certain("use %y"),
    ),
    "loads where the loop is sure to run and writes nothing": (
        BOUNDS + certain("%y = load %p : f32\nuse %y"),
        BOUNDS + "%y = load %p : f32\n" + certain("use %y"),
    ),
    "from both regions of a while, loads from the first": (
        "while before {\n%x = load %p : f32\n%y = neg %g : f32\n"
        "%z = cmp %x, %y {predicate = lt} : i1\ncondition %z\n} "
        "after {\n%x = neg %f : f32\n%y = load %q : tile<8xf32>\nuse %x, %y\nyield\n}",
        "%x = load %p : f32\n%y = neg %g : f32\n%z = cmp %x, %y {predicate = lt} : i1\n"
        "%x1 = neg %f : f32\n"
        "while before {\ncondition %z\n} after {\n%y1 = load %q : tile<8xf32>\nuse %x1, %y1\n"
        "yield\n}",
    ),
}

STAYS: dict[str, str] = {
    "what depends on the iteration": loop("%x = neg %0 : i32\n%y = neg %x : i32\nuse %y"),
    "what depends on a carried value": (
        "%r = for %i, %j, %n, inits=[%f] : f32 body(%0: i32, %1: f32) {\n%2 = neg %1 : f32\n"
        "yield %2\n}\nuse %r"
    ),
    "with no_licm": loop("%x = neg %f : f32\nuse %x", attributes=" {no_licm = true}"),
    "a load of a loop that may not run": loop("%y = load %p : f32\nuse %y"),
    "a load of a loop of no iteration": "%lo = constant 4 : i32\n%hi = constant 4 : i32\n"
    + certain("%y = load %p : f32\nuse %y"),
    "a load of a loop that stores": BOUNDS + certain("%y = load %p : f32\nuse %y\nstore %p, %f"),
    "a load of a loop with a barrier": BOUNDS + certain("barrier\n%y = load %p : f32\nuse %y"),
    "a volatile load": BOUNDS + certain("%y = load %p {volatile = true} : f32\nuse %y"),
    "a division of a loop that may not run": loop("%y = div %i, %j : i32\nuse %y"),
    "a division by a constant -1": "%x = constant -1 : i32\n"
    + loop("%y = rem %i, %x : i32\nuse %y"),
    "a gather of a loop that may not run": loop(
        "%y = gather %t, %v {axis = 0} : tile<8xf32>\nuse %y"
    ),
    "effects": loop("use %f"),
    "assembly that is not known to be sure to run": loop(
        '%x = inline_asm %i {assembly = "a", constraints = "c"} : i32\nuse %x'
    ),
    "what a branch may not reach": BOUNDS
    + certain("if %c then {\n%x = load %p : f32\nuse %x\nyield\n} else {\nyield\n}"),
    "a reduction whose combination may trap": loop(
        "%x = reduce %v {axis = 0} : i32 combine(%1: i32, %2: i32) {\n%3 = div %1, %2 : i32\n"
        "yield %3\n}\nuse %x"
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_hoisted(name: str, check_pass: Callable[..., None]) -> None:
    check_pass(licm, *CASES[name])


@pytest.mark.parametrize("name", STAYS)
def test_stays(name: str, check_pass: Callable[..., None]) -> None:
    check_pass(licm, STAYS[name], STAYS[name])
