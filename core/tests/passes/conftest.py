"""Text in, text out: what the tests of passes share."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tilewright.ir import Module, verify
from tilewright.ir.parser import parse_module
from tilewright.ir.printer import print_module

SIGNATURE = (
    "%i: i32, %j: i32, %n: i32, %u: u32, %l: i64, %f: f32, %g: f32, %h: f16, %c: i1, %e: i1, %p: "
    "ptr<f32>, "
    "%t: tile<8xf32>, %s: tile<8xf32>, %v: tile<8xi32>, %w: tile<8xi32>, %m: tile<8xi1>, %q: "
    "tile<8xptr<f32>>, "
    "%a: tile<4x8xf32>, %b: tile<8x16xf32>, %k: tile<4x16xf32>, %o: tile<1xf32>, %x2: "
    "tile<8x2xf32>, %e4: f8e4m3fn, %e5: f8e5m2"
)


def module_of(body: str) -> Module:
    """A kernel with the arguments of SIGNATURE; ``use`` is a print without prefix, which keeps
    values alive."""
    body = "\n".join(
        f'{line.replace("use ", "print ", 1)} {{prefix = ""}}'
        if line.strip().startswith("use ")
        else line
        for line in body.split("\n")
    )
    return parse_module(f"tilewright.ir 1.0\nkernel @k({SIGNATURE}) {{\n{body}\nreturn\n}}")


def without_names(module: Module) -> str:
    """The module's text with values numbered in order, so that only the structure counts."""
    for function in module.functions.values():
        for argument in function.arguments:
            argument.name = argument.name or "x"
        for operation in function.walk():
            for value in (
                *operation.results,
                *(argument for region in operation.regions for argument in region.arguments),
            ):
                value.name = ""
    return print_module(module, locations=False)


Check = Callable[[Callable[[Module], bool], str, str], None]


@pytest.fixture
def kernel_of() -> Callable[[str], Module]:
    """A function that makes a kernel's body into a module."""
    return module_of


@pytest.fixture
def check_pass() -> Check:
    """A function that checks that a pass makes ``before`` into ``after``, verified on either
    side."""

    def check(pass_: Callable[[Module], bool], before: str, after: str) -> None:
        module, expected = module_of(before), module_of(after)
        verify(module)
        verify(expected)
        original = without_names(module_of(before))
        changed = pass_(module)
        verify(module)
        found = without_names(module)
        assert found == without_names(expected)
        assert changed == (found != original)

    return check
