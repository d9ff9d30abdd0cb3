"""Errors of the verifier in the structure of modules: values, regions, kernels and links."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tilewright.ir import TABLE, Function, Module, Operation, VerificationError, verify
from tilewright.ir.parser import parse_module
from tilewright.ir.types import F32, I32, PointerType
from tilewright.ir.verifier import verify_uses


def one_kernel() -> tuple[Module, Function]:
    module = Module()
    return module, module.add(Function("k", [I32, PointerType(F32)]))


def test_the_location_is_named() -> None:
    text = (
        'tilewright.ir 1.0 kernel @k(%i: i32, %j: i64) { %x = add %i, %j : i32 loc("k.py":7:4 in '
        '"k") return }'
    )
    with pytest.raises(
        VerificationError,
        match=r"^add in @k at k\.py:7:4 in k: operands must have one type, not i32 and i64$",
    ):
        verify(parse_module(text))


def refused(module: Module, message: str) -> None:
    with pytest.raises(VerificationError) as caught:
        verify(module)
    assert str(caught.value) == message


def test_barrier_with_an_operand() -> None:
    module, function = one_kernel()
    function.body.append(Operation(TABLE["barrier"], [function.arguments[0]], (1,), {}, []))
    refused(module, "barrier in @k: has segments (1,) for 1 operands")


def test_use_before_definition() -> None:
    module, function = one_kernel()
    i = function.arguments[0]
    first = Operation(TABLE["neg"], [i], (1,), {}, [I32])
    second = Operation(TABLE["neg"], [first.result], (1,), {}, [I32])
    function.body.append(second)
    function.body.append(first)
    refused(module, "neg in @k: reads a value of type i32 that is not defined before it")


def test_value_of_another_region() -> None:
    text = """tilewright.ir 1.0
    kernel @k(%c: i1, %i: i32) {
      if %c then { %x = neg %i : i32 yield } else { yield }
      return
    }"""
    module = parse_module(text)
    conditional = module.kernel.body.first
    assert conditional is not None
    inner = conditional.regions[0].first
    assert inner is not None
    module.kernel.body.insert_before(
        Operation(TABLE["neg"], [inner.result], (1,), {}, [I32]), module.kernel.body.last
    )  # type: ignore[arg-type]
    refused(module, "neg in @k: reads a value of type i32 that is not defined before it")


def test_missing_return() -> None:
    module, function = one_kernel()
    refused(module, "a region of k has no terminator")
    function.body.append(Operation(TABLE["yield"], [], (0,), {}, []))
    refused(module, "@k does not end with return")


def test_kernel_with_results() -> None:
    refused(
        parse_module("tilewright.ir 1.0 kernel @k(%i: i32) -> i32 { return %i }"),
        "kernel @k has results",
    )


def test_attributes_for_other_arguments() -> None:
    module, function = one_kernel()
    function.argument_attributes.pop()
    refused(module, "@k has 2 arguments and attributes for 1")


def test_name_it_is_filed_under() -> None:
    module, function = one_kernel()
    function.name = "other"
    refused(module, "function @other is filed under the name @k")


def test_unknown_attribute() -> None:
    module, function = one_kernel()
    function.body.append(
        Operation(TABLE["neg"], [function.arguments[0]], (1,), {"fast": True}, [I32])
    )
    refused(module, "neg in @k: has no attribute 'fast'")


def test_region_count_and_owner() -> None:
    module = parse_module(
        "tilewright.ir 1.0 kernel @k(%c: i1) { if %c then { yield } else { yield } return }"
    )
    conditional = module.kernel.body.first
    assert conditional is not None
    removed = conditional.regions.pop()
    refused(module, "if in @k: has 2 regions, not 1")
    removed.owner = None
    conditional.regions.append(removed)
    refused(module, "if in @k: does not own its region")


def test_uses_are_kept() -> None:
    module = parse_module("tilewright.ir 1.0 kernel @k(%i: i32) { %x = neg %i : i32 return }")
    module.kernel.arguments[0].uses.clear()
    refused(module, "neg in @k: is missing from the uses of a value it reads")


def test_links_are_kept() -> None:
    module = parse_module("tilewright.ir 1.0 kernel @k(%i: i32) { %x = neg %i : i32 return }")
    assert module.kernel.body.last is not None
    module.kernel.body.last.previous = None
    refused(module, "return in @k: is linked wrongly into its region")


SCOPES = """tilewright.ir 1.0 kernel @k(%c: i1, %i: i32) {
  %x = neg %i : i32
  %r = if %c : i32 then { %y = neg %x : i32 yield %y } else { %z = neg %x : i32 yield %z }
  %w = neg %r : i32
  return
}"""


@pytest.mark.parametrize("check", [verify, verify_uses])
def test_values_are_defined_before_they_are_read(check: Callable[[Module], None]) -> None:
    module = parse_module(SCOPES)
    check(module)
    x, branches, w, _ = module.kernel.body
    first, second = (next(iter(region)) for region in branches.regions)
    own = w.operands[0]
    for other in (first.results[0], second.results[0], w.results[0]):  # out of a region, of its own
        w.set_operand(0, other)
        with pytest.raises(
            VerificationError,
            match=r"^neg in @k: reads a value of type i32 that is not defined before it$",
        ):
            check(module)
    w.set_operand(0, own)
    check(module)
    x.move_before(w)
    with pytest.raises(VerificationError, match=r"^neg in @k: reads"):
        check(module)
    x.move_before(branches)
    second.set_operand(0, first.results[0])  # from the region beside
    with pytest.raises(VerificationError, match=r"^neg in @k: reads"):
        check(module)


@pytest.mark.parametrize("check", [verify, verify_uses])
def test_regions_end_with_a_terminator(check: Callable[[Module], None]) -> None:
    module = parse_module(SCOPES)
    _, branches, *_ = module.kernel.body
    last = branches.regions[1].terminator
    assert last is not None
    last.erase()
    with pytest.raises(VerificationError, match=r"^a region of if has no terminator$"):
        check(module)
