"""Dead code: what goes and what stays."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tilewright.passes.dce import dce

CASES: dict[str, tuple[str, str]] = {
    "unread operations": ("%x = add %i, %j : i32\n%y = neg %x : i32\nuse %i", "use %i"),
    "unread loads": ("%x = load %p : f32\nuse %i", "use %i"),
    "pure assembly": (
        '%x = inline_asm %i {assembly = "a", constraints = "c"} : i32\nuse %i',
        "use %i",
    ),
    "loops without effect": (
        (
            "%r = for %i, %j, %n, inits=[%f] : f32 body(%0: i32, %1: f32) {\n%2 = neg %1 : f32\n"
            "yield %2\n}\nuse %i"
        ),
        "use %i",
    ),
    "a reduction": (
        (
            "%x = reduce %t {axis = 0} : f32 combine(%0: f32, %1: f32) {\n%2 = add %0, %1 : f32\n"
            "yield %2\n}\nuse %i"
        ),
        "use %i",
    ),
    "results of if": (
        (
            "%x, %y = if %c : f32, i32 then {\n%0 = neg %f : f32\n%1 = neg %i : i32\n"
            "yield %0, %1\n} else {\nyield %g, %j\n}\nuse %y"
        ),
        "%y = if %c : i32 then {\n%1 = neg %i : i32\nyield %1\n} else {\nyield %j\n}\nuse %y",
    ),
    "an if whose results all go keeps its effects": (
        "%x = if %c : f32 then {\nstore %p, %f\nyield %f\n} else {\nyield %g\n}",
        "if %c then {\nstore %p, %f\nyield\n} else {\nyield\n}",
    ),
    "values a loop carries for themselves alone": (
        (
            "%x, %y = for %i, %j, %n, inits=[%f, %g] : f32, f32 body(%0: i32, %1: f32, %2: f32) "
            "{\n%3 = neg %1 : f32\n%4 = exp %2 : f32\nyield %3, %4\n}\nuse %y"
        ),
        (
            "%y = for %i, %j, %n, inits=[%g] : f32 body(%0: i32, %2: f32) {\n%4 = exp %2 : f32\n"
            "yield %4\n}\nuse %y"
        ),
    ),
    "values two of which feed each other": (
        (
            "%x, %y, %z = for %i, %j, %n, inits=[%f, %g, %f] : f32, f32, f32 body(%0: i32, %1: "
            "f32, %2: f32, %3: f32) {\nyield %2, %1, %3\n}\nuse %z"
        ),
        "%z = for %i, %j, %n, inits=[%f] : f32 body(%0: i32, %3: f32) {\nyield %3\n}\nuse %z",
    ),
    "what a while carries": (
        "%x, %y = while %i, %f : i32, f32 before(%0: i32, %1: f32) {\n"
        "%2 = cmp %0, %j {predicate = lt} : i1\ncondition %2, values=[%0, %1]\n} "
        "after(%0: i32, %1: f32) {\n%2 = add %0, %n : i32\n%3 = neg %1 : f32\nyield %2, %3\n}\n"
        "use %x",
        "%x = while %i : i32 before(%0: i32) {\n%2 = cmp %0, %j {predicate = lt} : i1\n"
        "condition %2, values=[%0]\n} "
        "after(%0: i32) {\n%2 = add %0, %n : i32\nyield %2\n}\nuse %x",
    ),
    "what a while forwards to nobody": (
        "%x, %y = while %i : i32, i32 before(%0: i32) {\n%1 = neg %0 : i32\n"
        "%2 = cmp %0, %j {predicate = lt} : i1\ncondition %2, values=[%0, %1]\n} "
        "after(%0: i32, %1: i32) {\n%2 = add %0, %n : i32\nyield %2\n}\nuse %x",
        "%x = while %i : i32 before(%0: i32) {\n%2 = cmp %0, %j {predicate = lt} : i1\n"
        "condition %2, values=[%0]\n} "
        "after(%0: i32) {\n%2 = add %0, %n : i32\nyield %2\n}\nuse %x",
    ),
    "inside loops with effects": (
        "for %i, %j, %n body(%0: i32) {\n%1 = neg %0 : i32\nuse %0\nyield\n}",
        "for %i, %j, %n body(%0: i32) {\nuse %0\nyield\n}",
    ),
    "chains across regions": (
        (
            "%x = neg %f : f32\nif %c then {\n%y = exp %x : f32\n%z = if %e : f32 then {\n"
            "yield %y\n} else {\nyield %x\n}\nuse %i\nyield\n} else {\nyield\n}"
        ),
        "if %c then {\nuse %i\nyield\n} else {\nyield\n}",
    ),
}

KEPT: dict[str, str] = {
    "stores": "store %p, %f",
    "atomics": "%x = atomic_rmw %p, %f {kind = add} : f32",
    "volatile loads": "%x = load %p {volatile = true} : f32",
    "prints, asserts, assumptions, barriers": (
        'use %i\nassert %c {message = "m"}\nassume %c\nbarrier'
    ),
    "impure assembly": '%x = inline_asm %i {assembly = "a", constraints = "c", pure = false} : i32',
    "what an effect in a region reads": (
        "%x = neg %f : f32\nif %c then {\nstore %p, %x\nyield\n} else {\nyield\n}"
    ),
    "a value carried for another": (
        "%x, %y = for %i, %j, %n, inits=[%f, %g] : f32, f32 body(%0: i32, %1: f32, %2: f32) "
        "{\n%3 = neg %2 : f32\nyield %2, %3\n}\nuse %x"
    ),
    "a carried value read by an effect": (
        "%x = for %i, %j, %n, inits=[%f] : f32 body(%0: i32, %1: f32) {\n%2 = neg %1 : f32\n"
        "store %p, %1\nyield %2\n}"
    ),
    "both inputs of a reduction of which one result is read": (
        "%x, %y = reduce %t, %v {axis = 0} : f32, i32 combine(%0: f32, %1: i32, %2: f32, %3: "
        "i32) {\n"
        "%4 = cmp %0, %2 {predicate = gt} : i1\n%5 = select %4, %0, %2 : f32\n"
        "%6 = select %4, %1, %3 : i32\nyield %5, %6\n}\nuse %y"
    ),
    "what the condition of a while reads": (
        "while %i before(%0: i32) {\n%1 = cmp %0, %j {predicate = lt} : i1\ncondition %1\n"
        "} after {\nstore %p, %f\nyield %i\n}"
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_removed(name: str, check_pass: Callable[..., None]) -> None:
    check_pass(dce, *CASES[name])


@pytest.mark.parametrize("name", KEPT)
def test_kept(name: str, check_pass: Callable[..., None]) -> None:
    check_pass(dce, KEPT[name], KEPT[name])
