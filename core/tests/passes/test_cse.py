"""Common subexpressions: what merges and what must not."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tilewright.ir import Module
from tilewright.passes.cse import cse

CASES: dict[str, tuple[str, str]] = {
    "equal operations": (
        "%x = add %i, %j : i32\n%y = add %i, %j : i32\nuse %x, %y",
        "%x = add %i, %j : i32\nuse %x, %x",
    ),
    "operands exchanged where that is allowed": (
        "%x = mul %f, %g : f32\n%y = mul %g, %f : f32\nuse %x, %y",
        "%x = mul %f, %g : f32\nuse %x, %x",
    ),
    "chains": (
        "%x = neg %f : f32\n%y = exp %x : f32\n%z = neg %f : f32\n%r = exp %z : f32\nuse %y, %r",
        "%x = neg %f : f32\n%y = exp %x : f32\nuse %y, %y",
    ),
    "a default written out": (
        "%x = max %f, %g : f32\n%y = max %f, %g {nan = ignore} : f32\nuse %x, %y",
        "%x = max %f, %g : f32\nuse %x, %x",
    ),
    "from the surroundings": (
        (
            "%x = neg %f : f32\nif %c then {\n%y = neg %f : f32\nuse %y\nyield\n} else {\nyield\n"
            "}\nuse %x"
        ),
        "%x = neg %f : f32\nif %c then {\nuse %x\nyield\n} else {\nyield\n}\nuse %x",
    ),
    "loads with nothing in between": (
        "%x = load %p : f32\n%y = load %p : f32\nuse %x, %y",
        "%x = load %p : f32\nuse %x, %x",
    ),
    "loads around a print and a call of nothing": (
        "%x = load %p : f32\nuse %i\nassume %c\n%y = load %p : f32\nuse %x, %y",
        "%x = load %p : f32\nuse %i\nassume %c\nuse %x, %x",
    ),
    "a load in a loop that only reads": (
        (
            "%x = load %p : f32\nfor %i, %j, %n body(%0: i32) {\n%y = load %p : f32\nuse %y\n"
            "yield\n}\nuse %x"
        ),
        "%x = load %p : f32\nfor %i, %j, %n body(%0: i32) {\nuse %x\nyield\n}\nuse %x",
    ),
    "pure assembly": (
        (
            '%x = inline_asm %i {assembly = "a", constraints = "c"} : i32\n'
            '%y = inline_asm %i {assembly = "a", constraints = "c"} : i32\nuse %x, %y'
        ),
        '%x = inline_asm %i {assembly = "a", constraints = "c"} : i32\nuse %x, %x',
    ),
    "reductions with equal regions": (
        "%x = reduce %t {axis = 0} : f32 combine(%0: f32, %1: f32) {\n%2 = add %0, %1 : f32\n"
        "yield %2\n}\n"
        "%y = reduce %t {axis = 0} : f32 combine(%0: f32, %1: f32) {\n%2 = add %0, %1 : f32\n"
        "yield %2\n}\nuse %x, %y",
        (
            "%x = reduce %t {axis = 0} : f32 combine(%0: f32, %1: f32) {\n%2 = add %0, %1 : f32\n"
            "yield %2\n}\nuse %x, %x"
        ),
    ),
    "inside a combination": (
        (
            "%x = reduce %t {axis = 0} : f32 combine(%0: f32, %1: f32) {\n%2 = add %0, %1 : f32\n"
            "%3 = add %1, %0 : f32\n%4 = mul %2, %3 : f32\nyield %4\n}\nuse %x"
        ),
        (
            "%x = reduce %t {axis = 0} : f32 combine(%0: f32, %1: f32) {\n%2 = add %0, %1 : f32\n"
            "%4 = mul %2, %2 : f32\nyield %4\n}\nuse %x"
        ),
    ),
}

APART: dict[str, str] = {
    "other attributes": "%x = program_id 0 : i32\n%y = program_id 1 : i32\nuse %x, %y",
    "other result types": "%x = cast %i : i64\n%y = cast %i : i16\nuse %x, %y",
    "operands exchanged where that matters": (
        "%x = sub %f, %g : f32\n%y = sub %g, %f : f32\nuse %x, %y"
    ),
    "zeros of either sign": "%x = constant 0.0 : f32\n%y = constant -0.0 : f32\nuse %x, %y",
    "one and true": "%x = constant 1 : i32\n%y = constant true : i1\nuse %x, %y",
    "optional operands": (
        "%x = load %p : f32\n%y = load %p, mask=%c : f32\n%z = load %p, mask=%c, other=%f : f32\n"
        "use %x, %y, %z"
    ),
    "a store in between": "%x = load %p : f32\nstore %p, %f\n%y = load %p : f32\nuse %x, %y",
    "an atomic in between": (
        "%x = load %p : f32\n%r = atomic_rmw %p, %f {kind = add} : f32\n%y = load %p : f32\n"
        "use %x, %y, %r"
    ),
    "a barrier in between": "%x = load %p : f32\nbarrier\n%y = load %p : f32\nuse %x, %y",
    "a store in a branch in between": (
        "%x = load %p : f32\nif %c then {\nstore %p, %f\nyield\n} else {\nyield\n}\n"
        "%y = load %p : f32\nuse %x, %y"
    ),
    "impure assembly in between": (
        "%x = load %p : f32\n"
        '%r = inline_asm %i {assembly = "a", constraints = "c", pure = false} : i32\n'
        "%y = load %p : f32\nuse %x, %y, %r"
    ),
    "a store later in the loop": (
        "%x = load %p : f32\nfor %i, %j, %n body(%0: i32) {\n%y = load %p : f32\nuse %y\n"
        "store %p, %f\nyield\n}\nuse %x"
    ),
    "volatile loads": (
        "%x = load %p {volatile = true} : f32\n%y = load %p {volatile = true} : f32\nuse %x, %y"
    ),
    "atomics": (
        "%x = atomic_rmw %p, %f {kind = add} : f32\n%y = atomic_rmw %p, %f {kind = add} : f32\n"
        "use %x, %y"
    ),
    "impure assembly": (
        '%x = inline_asm %i {assembly = "a", constraints = "c", pure = false} : i32\n'
        '%y = inline_asm %i {assembly = "a", constraints = "c", pure = false} : i32\nuse %x, %y'
    ),
    "sibling branches": (
        "if %c then {\n%x = neg %f : f32\nuse %x\nyield\n} else {\n%x = neg %f : f32\nuse %x\n"
        "yield\n}"
    ),
    "behind the branch": (
        "if %c then {\n%x = neg %f : f32\nuse %x\nyield\n} else {\nyield\n}\n%y = neg %f : f32\n"
        "use %y"
    ),
    "reductions with other regions": (
        "%x = reduce %t {axis = 0} : f32 combine(%0: f32, %1: f32) {\n%2 = add %0, %1 : f32\n"
        "yield %2\n}\n"
        "%y = reduce %t {axis = 0} : f32 combine(%0: f32, %1: f32) {\n%2 = mul %0, %1 : f32\n"
        "yield %2\n}\nuse %x, %y"
    ),
    "combinations stay closed": (
        "%z = constant 1.0 : f32\n%x = reduce %t {axis = 0} : f32 combine(%0: f32, %1: f32) {\n"
        "%2 = constant 1.0 : f32\n"
        "%3 = max %0, %2 : f32\nyield %3\n}\nuse %x, %z"
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_merged(name: str, check_pass: Callable[..., None]) -> None:
    check_pass(cse, *CASES[name])


@pytest.mark.parametrize("name", APART)
def test_kept_apart(name: str, check_pass: Callable[..., None]) -> None:
    check_pass(cse, APART[name], APART[name])


def test_the_hint_of_the_second_survives(kernel_of: Callable[[str], Module]) -> None:
    module = kernel_of("%0 = neg %f : f32\n%wanted = neg %f : f32\nuse %0, %wanted")
    cse(module)
    assert module.kernel.body.first is not None
    assert module.kernel.body.first.result.name == "wanted"


def test_a_shared_constant_loses_its_hint(kernel_of: Callable[[str], Module]) -> None:
    module = kernel_of("%acc = constant 0.0 : f32\n%other = constant 0.0 : f32\nuse %acc, %other")
    cse(module)
    assert module.kernel.body.first is not None
    assert module.kernel.body.first.result.name == ""
