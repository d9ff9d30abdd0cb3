"""Analysis of descriptors that may pad with zero or with NaN."""

from __future__ import annotations

import pytest

from tilewright.ir import Module, verify
from tilewright.ir.parser import parse_module
from tilewright.ir.printer import print_module
from tilewright.passes.descriptor_padding import mixed_paddings
from tilewright.passes.descriptor_pointers import Expansion

SIGNATURE = (
    '%z: desc<4x8xf32>, %n: desc<4x8xf32> {padding = "nan"}, %i: desc<4x8xi32>, %j: '
    'desc<4x8xi32> {padding = "nan"}, %c: i1, %k: i32, %p: ptr<f32>'
)
MADE = (
    "%e = cast %k : i64\n"
    '%m = make_descriptor %p, shape=[%e, %e], strides=[%e, %e] {padding = "nan"} : '
    "desc<4x8xf32>\n"
)
TWO = "desc<4x8xf32>, desc<4x8xf32>"
FOR = (
    "%r, %s = for %k, %k, %k, inits=[{inits}] : "
    + TWO
    + " body(%at: i32, %a: desc<4x8xf32>, %b: desc<4x8xf32>) {{\nyield {yields}\n}}"
)
WHILE = (
    "%r = while %z : desc<4x8xf32> before(%a: desc<4x8xf32>) {{\n"
    "condition %c, values=[{forwarded}]\n}} after(%d: desc<4x8xf32>) {{\nyield {yields}\n}}"
)


def module_of(body: str) -> Module:
    module = parse_module(f"tilewright.ir 1.0\nkernel @k({SIGNATURE}) {{\n{body}\nreturn\n}}")
    verify(module)
    return module


def mixed(body: str) -> set[str]:
    return {value.name for value in mixed_paddings(module_of(body).kernel)}


CASES: dict[str, tuple[str, set[str]]] = {
    "paddings alike": ("%r = if %c : desc<4x8xf32> then {\nyield %z\n} else {\nyield %z\n}", set()),
    "a branch": ("%r = if %c : desc<4x8xf32> then {\nyield %z\n} else {\nyield %n\n}", {"r"}),
    "a branch that makes one": (
        f"%r = if %c : desc<4x8xf32> then {{\n{MADE}yield %m\n}} else {{\nyield %z\n}}",
        {"r"},
    ),
    "integers": ("%r = if %c : desc<4x8xi32> then {\nyield %i\n} else {\nyield %j\n}", set()),
    "a selection": (
        (
            "%r = select %c, %z, %n : desc<4x8xf32>\n%s = select %c, %r, %z : desc<4x8xf32>\n"
            "%t = select %c, %z, %z : desc<4x8xf32>"
        ),
        {"r", "s"},
    ),
    "a loop that replaces": (FOR.format(inits="%z, %n", yields="%n, %n"), {"r", "a"}),
    "a loop that swaps": (FOR.format(inits="%z, %n", yields="%b, %a"), {"r", "a", "s", "b"}),
    "a loop that keeps": (FOR.format(inits="%z, %n", yields="%a, %b"), set()),
    "a loop that waits": (WHILE.format(forwarded="%a", yields="%n"), {"r", "a", "d"}),
    "a loop that hands on another": (WHILE.format(forwarded="%n", yields="%d"), {"a"}),
}


@pytest.mark.parametrize("name", CASES)
def test_which_paddings_meet(name: str) -> None:
    body, expected = CASES[name]
    assert mixed(body) == expected


def test_a_padding_that_the_kernel_decides_is_carried_beside_the_descriptor() -> None:
    module = module_of(
        f"{CASES['a branch'][0]}\n%o = cast %k : i64\n"
        "%x = descriptor_load %r, offsets=[%k, %k] : tile<4x8xf32>\n"
        "descriptor_store %z, %x, offsets=[%k, %k]"
    )
    Expansion(module.kernel).run()
    verify(module)
    text = print_module(module)
    assert "i64, i1 then {" in text and "constant nan" in text
