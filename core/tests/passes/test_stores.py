"""Analysis of the arguments that a kernel may store to."""

from __future__ import annotations

import pytest

from tilewright.ir import Module, verify
from tilewright.ir.parser import parse_module
from tilewright.passes.analysis.argument_access import stored_arguments
from tilewright.passes.pipeline import run

SIGNATURE = (
    "%a: ptr<f32>, %b: ptr<f32>, %c: ptr<f32>, %i: i32, %n: i64, %f: f32, %t: i1, %d: "
    "desc<4x8xf32>, %e: desc<4x8xf32>, %row: desc<1x8xf32>, "
    "%pp: ptr<ptr<f32>>, %q: ptr<i64>"
)
ALL_ADDRESSES = {"a", "b", "c", "d", "e", "row", "pp", "q"}


def module_of(body: str, functions: str = "") -> Module:
    module = parse_module(
        f"tilewright.ir 1.0\n{functions}\nkernel @k({SIGNATURE}) {{\n{body}\nreturn\n}}"
    )
    verify(module)
    return module


def stored(body: str, functions: str = "") -> set[str]:
    """The names of the arguments found, before and after the standard passes, which must agree."""
    module = module_of(body, functions)
    names = [argument.name for argument in module.kernel.arguments]
    found = {names[position] for position in stored_arguments(module)}
    run(module)
    assert {names[position] for position in stored_arguments(module)} == found
    return found


TILE = (
    "%z = splat %f : tile<4x8xf32>\n%r8 = splat %i : tile<8xi32>\n"
    "%z8 = splat %f : tile<8x8xf32>\n%j = splat %f : tile<8xf32>\n"
)
CASES: dict[str, tuple[str, str]] = {
    "nothing": ("", ""),
    "a load": ("%x = load %a {volatile = true} : f32", ""),
    "a store": ("%x = load %a : f32\nstore %b, %x", "b"),
    "pointer arithmetic": (
        (
            "%x = addptr %a, %i : ptr<f32>\n%y = load %x : f32\n%w = addptr %b, %i : ptr<f32>\n"
            "store %w, %y"
        ),
        "b",
    ),
    "a tile of pointers": (
        (
            "%o = arange {start = 0, end = 8} : tile<8xi32>\n%p = splat %c : tile<8xptr<f32>>\n"
            "%x = addptr %p, %o : tile<8xptr<f32>>\n"
        )
        + TILE
        + "store %x, %j",
        "c",
    ),
    "a select": ("%x = select %t, %a, %b : ptr<f32>\nstore %x, %f", "a b"),
    "a select by an address": (
        (
            "%z = constant 0 : i64\n%x = bitcast %a : i64\n"
            "%y = cmp %x, %z {predicate = eq} : i1\n%w = select %y, %c, %b : ptr<f32>\n"
            "store %w, %f"
        ),
        "b c",
    ),
    "a bitcast": ("%x = bitcast %b : ptr<i32>\nstore %x, %i", "b"),
    "an address as an integer and back": (
        "%x = bitcast %b : i64\n%y = add %x, %n : i64\n%w = bitcast %y : ptr<f32>\nstore %w, %f",
        "b",
    ),
    "an integer of the host": ("%w = bitcast %n : ptr<f32>\nstore %w, %f", ""),
    "the offset of a load": (
        "%x = load %q : i64\n%y = addptr %c, %x : ptr<f32>\nstore %y, %f",
        "c",
    ),
    "a table of pointers": ("%x = load %pp : ptr<f32>\nstore %x, %f", ""),
    "an atomic": ("%x = atomic_rmw %b, %f {kind = add} : f32", "b"),
    "a compare and swap": ("%x = atomic_cas %q, %n, %n : i64", "q"),
    "an address put in memory": (
        (
            "store %pp, %a\n%y = load %q {volatile = true} : i64\n%w = bitcast %y : ptr<f32>\n"
            "store %w, %f"
        ),
        "pp a",
    ),
    "an address put in memory after the load": (
        "%lo = constant 0 : i32\n%one = constant 1 : i32\nfor %lo, %i, %one body(%k: i32) {\n"
        "%x = load %pp {volatile = true} : ptr<f32>\nstore %x, %f\n"
        "store %pp, %c\nyield\n}",
        "pp c",
    ),
    "an address exchanged in memory": (
        (
            "%y = bitcast %a : i64\n%x = atomic_cas %q, %n, %y : i64\n"
            "%w = bitcast %x : ptr<f32>\nstore %w, %f"
        ),
        "q a",
    ),
    "an address put in memory and not read": ("store %pp, %a\nstore %b, %f", "pp b"),
    "a descriptor": (TILE + "descriptor_store %d, offsets=[%i, %i], %z", "d"),
    "descriptors read": (
        TILE + "%x = descriptor_load %e, offsets=[%i, %i] : tile<4x8xf32>\n"
        "%y = descriptor_gather %row, %r8, %i : tile<8x8xf32>\n"
        "descriptor_store %d, offsets=[%i, %i], %x",
        "d",
    ),
    "an atomic on a descriptor": (
        TILE + "descriptor_reduce %e, offsets=[%i, %i], %z {kind = add}",
        "e",
    ),
    "a scatter": (TILE + "descriptor_scatter %row, %r8, %i, %z8", "row"),
    "a descriptor made here": (
        TILE + "%m = make_descriptor %a, shape=[%n, %n], strides=[%n, %n] : desc<4x8xf32>\n"
        "%w = make_descriptor %b, shape=[%n, %n], strides=[%n, %n] : desc<4x8xf32>\n"
        "%x = descriptor_load %m, offsets=[%i, %i] : tile<4x8xf32>\n"
        "descriptor_store %w, offsets=[%i, %i], %x",
        "b",
    ),
    "a stride is no address": (
        "%x = descriptor_stride %d {axis = 0} : i64\n%y = addptr %a, %x : ptr<f32>\nstore %y, %f",
        "a",
    ),
    "branches": (
        (
            "%x, %y = if %t : ptr<f32>, ptr<f32> then {\nyield %a, %b\n} else {\nyield %a, %c\n"
            "}\n%w = load %x : f32\nstore %y, %w"
        ),
        "b c",
    ),
    "a store in a branch": ("if %t then {\nstore %c, %f\nyield\n} else {\nyield\n}", "c"),
    "carried pointers side by side": (
        "%lo = constant 0 : i32\n%one = constant 1 : i32\n"
        "%x, %y = for %lo, %i, %one, inits=[%a, %b] : ptr<f32>, ptr<f32> "
        "body(%k: i32, %p: ptr<f32>, %r: ptr<f32>) {\n%w = load %p : f32\nstore %r, %w\n"
        "%p1 = addptr %p, %i : ptr<f32>\n%r1 = addptr %r, %i : ptr<f32>\n"
        "yield %p1, %r1\n}",
        "b",
    ),
    "pointers that change places": (
        "%lo = constant 0 : i32\n%one = constant 1 : i32\n"
        "%x, %y, %z = for %lo, %i, %one, inits=[%a, %b, %c] : ptr<f32>, ptr<f32>, ptr<f32> "
        "body(%k: i32, %p: ptr<f32>, %r: ptr<f32>, %s: ptr<f32>) {\n%w = load %s : f32\n"
        "store %p, %w\nyield %r, %p, %s\n}",
        "a b",
    ),
    "a pointer that reaches the store in the third trip": (
        "%lo = constant 0 : i32\n%one = constant 1 : i32\n"
        "%x, %y, %z = for %lo, %i, %one, inits=[%a, %b, %c] : ptr<f32>, ptr<f32>, ptr<f32> "
        "body(%k: i32, %p: ptr<f32>, %r: ptr<f32>, %s: ptr<f32>) {\nstore %p, %f\n"
        "yield %r, %s, %s\n}",
        "a b c",
    ),
    "the result of a loop": (
        "%lo = constant 0 : i32\n%one = constant 1 : i32\n"
        "%x = for %lo, %i, %one, inits=[%a] : ptr<f32> "
        "body(%k: i32, %p: ptr<f32>) {\n%r = addptr %b, %k : ptr<f32>\nyield %r\n}\nstore %x, %f",
        "a b",
    ),
    "a while loop": (
        "%x, %y = while %a, %b : ptr<f32>, ptr<f32> before(%p: ptr<f32>, %r: ptr<f32>) {\n"
        "%v = load %p {volatile = true} : f32\n"
        "%w = cmp %v, %f {predicate = lt} : i1\ncondition %w, values=[%r, %p]\n"
        "} after(%r2: ptr<f32>, %p2: ptr<f32>) {\nstore %r2, %f\n"
        "%p3 = addptr %p2, %i : ptr<f32>\nyield %p3, %r2\n}",
        "b",
    ),
    "the result of a while loop": (
        "%x = while %a : ptr<f32> before(%p: ptr<f32>) {\n%v = load %p {volatile = true} : f32\n"
        "%w = cmp %v, %f {predicate = lt} : i1\ncondition %w, values=[%c]\n"
        "} after(%r: ptr<f32>) {\nyield %b\n}\nstore %x, %f",
        "c",
    ),
    "a store in a combination": (
        TILE
        + (
            "%x = reduce %j {axis = 0} : f32 combine(%1: f32, %2: f32) {\nstore %b, %1\n"
            "%3 = add %1, %2 : f32\nyield %3\n}"
        ),
        "b",
    ),
    "addresses in a map": (
        "%p = splat %a : tile<8xptr<f32>>\n%r = splat %b : tile<8xptr<f32>>\n"
        "%o = bitcast %p : tile<8xi64>\n"
        "%x = map %o : tile<8xi64> body(%1: i64) {\n%2 = add %1, %n : i64\nyield %2\n}\n"
        "%y = bitcast %x : tile<8xptr<f32>>\n" + TILE + "store %y, %j",
        "a",
    ),
    "assembly with effects": (
        (
            '%x = inline_asm inputs=[%a, %i] {assembly = "st", constraints = "=r,r,r", pure = '
            "false} : i32\n%y = load %b : f32"
        ),
        "a",
    ),
    "pure assembly": (
        (
            '%x = inline_asm inputs=[%a] {assembly = "mov", constraints = "=r,r"} : i64\n'
            "%y = bitcast %x : ptr<f32>\n%w = load %b : f32\nstore %y, %w"
        ),
        "a",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_case(name: str) -> None:
    body, expected = CASES[name]
    assert stored(body) == set(expected.split())


FUNCTIONS = """
function @copy(%to: ptr<f32>, %from: ptr<f32>) {
  %x = load %from : f32
  store %to, %x
  return
}
function @moved(%p: ptr<f32>, %k: i32) -> ptr<f32> {
  %x = addptr %p, %k : ptr<f32>
  return %x
}
function @deep(%to: ptr<f32>, %from: ptr<f32>) {
  call %to, %from {callee = "copy"}
  return
}
function @block(%to: desc<4x8xf32>, %from: desc<4x8xf32>, %k: i32) {
  %x = descriptor_load %from, offsets=[%k, %k] : tile<4x8xf32>
  descriptor_store %to, offsets=[%k, %k], %x
  return
}
"""
CALLS: dict[str, tuple[str, str]] = {
    "stores of a callee": ('call %b, %a {callee = "copy"}', "b"),
    "two calls": ('call %b, %a {callee = "copy"}\ncall %c, %b {callee = "copy"}', "b c"),
    "a call in a call": ('call %c, %a {callee = "deep"}', "c"),
    "a pointer that is returned": (
        '%x = call %b, %i {callee = "moved"} : ptr<f32>\n%y = load %a : f32\nstore %x, %y',
        "b",
    ),
    "descriptors": ('call %e, %d, %i {callee = "block"}', "e"),
}


@pytest.mark.parametrize("name", CALLS)
def test_calls(name: str) -> None:
    body, expected = CALLS[name]
    assert stored(body, FUNCTIONS) == set(expected.split())


def test_every_address_may_be_found() -> None:
    body = TILE + (
        "descriptor_store %d, offsets=[%i, %i], %z\n"
        "descriptor_store %e, offsets=[%i, %i], %z\ndescriptor_scatter %row, %r8, %i, %z8\n"
    )
    body += (
        "store %a, %f\nstore %b, %f\nstore %c, %f\nstore %q, %n\n%p = load %pp : ptr<f32>\n"
        "store %pp, %p"
    )
    assert stored(body) == ALL_ADDRESSES


def test_a_vendor_operation_that_writes_may_write_to_all_its_operands() -> None:
    from tilewright.ir import TABLE, OpSpec
    from tilewright.ir.ops.rules import nothing
    from tilewright.ir.table import Effect, Operand

    table = TABLE.extended(
        [
            OpSpec(
                "vendor.put",
                "writes",
                (Operand("source"), Operand("target")),
                nothing,
                effects=Effect.WRITE,
            )
        ]
    )
    text = (
        f"tilewright.ir 1.0\nkernel @k({SIGNATURE}) {{\n%x = addptr %b, %i : ptr<f32>\n"
        f"vendor.put %x, %c\n%y = load %a : f32\nreturn\n}}"
    )
    module = parse_module(text, table)
    names = [argument.name for argument in module.kernel.arguments]
    assert {names[position] for position in stored_arguments(module)} == {"b", "c"}


def test_outputs_of_every_sample_are_found() -> None:
    from tilewright.ir import TABLE
    from tilewright_conformance.op_samples import samples

    for spec in TABLE:
        for sample in samples(spec.name):
            found = stored_arguments(sample.module)
            if "ptr/table" in sample.name:  # fills its table of pointers first
                assert found > set(sample.outputs), sample.name
            else:
                assert found == set(sample.outputs), sample.name
