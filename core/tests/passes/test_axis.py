"""Axis analysis: known cases, and random index arithmetic whose every claim is checked against the
reference's numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from index_arithmetic import Indices

from tilewright.ir import Function, Value, verify
from tilewright.ir.parser import parse_module
from tilewright.ir.types import I1, IntType, PointerType, element_type, shape_of
from tilewright.passes.analysis.axis import AxisInfo, axis_info
from tilewright.passes.analysis.axis_info import UNBOUNDED
from tilewright.reference.interpreter import run

HEAD = """tilewright.ir 1.0
kernel @k(%p: ptr<f16> {divisibility = 16}, %n: i32 {divisibility = 16}, %s: i32, %c: i1) {
  %pid = program_id 0 : i32
  %block = constant 128 : i32
  %r = arange {start = 0, end = 128} : tile<128xi32>
  %start = mul %pid, %block : i32
  %starts = splat %start : tile<128xi32>
  %offsets = add %starts, %r : tile<128xi32>
  %ns = splat %n : tile<128xi32>
  %ss = splat %s : tile<128xi32>
  %base = splat %p : tile<128xptr<f16>>
  %q = addptr %base, %offsets : tile<128xptr<f16>>
  %zero = constant 0 : i32
  %four = constant 4 : i32
  %fours = splat %four : tile<128xi32>
"""

#: (operations that end with %x, contiguity, divisibility, constancy)
CASES: list[tuple[str, tuple[int, ...], tuple[int, ...], tuple[int, ...]]] = [
    ("%x = add %starts, %r : tile<128xi32>", (128,), (128,), (1,)),
    ("%x = add %r, %ss : tile<128xi32>", (128,), (1,), (1,)),
    ("%x = sub %offsets, %ns : tile<128xi32>", (128,), (16,), (1,)),
    ("%x = sub %ns, %offsets : tile<128xi32>", (1,), (1,), (1,)),
    ("%x = mul %offsets, %fours : tile<128xi32>", (1,), (4,), (1,)),
    ("%x = mul %ns, %fours : tile<128xi32>", (1,), (64,), (128,)),
    ("%x = div %offsets, %fours : tile<128xi32>", (1,), (1,), (4,)),
    ("%x = div %n, %four : i32", (1,), (4,), (1,)),
    ("%x = div %ns, %fours : tile<128xi32>", (1,), (4,), (128,)),
    ("%1 = constant -8 : i32 %x = div %n, %1 : i32", (1,), (2,), (1,)),
    ("%1 = constant 12 : i32 %x = div %n, %1 : i32", (1,), (1,), (1,)),
    ("%1 = constant 64 : i32 %x = div %n, %1 : i32", (1,), (1,), (1,)),
    ("%1 = constant 6 : i32 %x = div %n, %1 : i32", (1,), (1,), (1,)),  # 16 / 6 is 2, 32 / 6 is 5
    ("%1 = constant 6 : i32 %x = div %start, %1 : i32", (1,), (1,), (1,)),
    ("%1 = constant 2 : i32 %x = shr %n, %1 : i32", (1,), (4,), (1,)),
    ("%x = shr %s, %n : i32", (1,), (1,), (1,)),
    ("%1 = div %n, %four : i32 %x = mul %1, %n : i32", (1,), (64,), (1,)),
    ("%1 = constant 3 : i32 %2 = add %start, %1 : i32 %x = div %2, %four : i32", (1,), (32,), (1,)),
    (
        "%1 = constant 3 : i32 %2 = add %1, %n : i32 %3 = constant 2 : i32 %x = shr %2, %3 : i32",
        (1,),
        (4,),
        (1,),
    ),
    (
        "%1 = constant 3 : i32 %2 = add %1, %n : i32 %x = div %2, %four : i32",
        (1,),
        (1,),
        (1,),
    ),  # n may be below zero
    ("%1 = constant 4 : i32 %2 = add %start, %1 : i32 %x = div %2, %four : i32", (1,), (1,), (1,)),
    (
        (
            "%1 = constant 5 : i32 %2 = add %start, %1 : i32 %3 = constant 6 : i32 %x = div %2, "
            "%3 : i32"
        ),
        (1,),
        (1,),
        (1,),
    ),
    (
        (
            "%1 = arange {start = 64, end = 68} : tile<4xi32> %2 = splat %four : tile<4xi32> %x "
            "= div %1, %2 : tile<4xi32>"
        ),
        (1,),
        (16,),
        (4,),
    ),
    ("%x = rem %n, %block : i32", (1,), (16,), (1,)),
    ("%x = min %n, %block : i32", (1,), (16,), (1,)),
    ("%x = max %offsets, %r : tile<128xi32>", (128,), (128,), (1,)),
    ("%x = max %offsets, %ns : tile<128xi32>", (1,), (1,), (1,)),
    ("%x = rem %offsets, %ns : tile<128xi32>", (16,), (16,), (1,)),
    ("%x = rem %offsets, %ss : tile<128xi32>", (1,), (1,), (1,)),
    (
        (
            "%1 = constant 31 : i32 %2 = splat %1 : tile<128xi32> %x = and %offsets, %2 : "
            "tile<128xi32>"
        ),
        (32,),
        (32,),
        (1,),
    ),
    (
        (
            "%1 = constant -32 : i32 %2 = splat %1 : tile<128xi32> %x = and %offsets, %2 : "
            "tile<128xi32>"
        ),
        (1,),
        (32,),
        (32,),
    ),
    ("%x = shl %ns, %fours : tile<128xi32>", (1,), (256,), (128,)),
    ("%x = shr %offsets, %fours : tile<128xi32>", (1,), (1,), (16,)),
    ("%x = cmp %offsets, %ns {predicate = lt} : tile<128xi1>", (1,), (1,), (16,)),
    ("%x = cmp %ns, %offsets {predicate = gt} : tile<128xi1>", (1,), (1,), (16,)),
    ("%x = cmp %offsets, %ns {predicate = ge} : tile<128xi1>", (1,), (1,), (16,)),
    ("%x = cmp %offsets, %ns {predicate = le} : tile<128xi1>", (1,), (1,), (1,)),
    ("%x = cmp %offsets, %ss {predicate = lt} : tile<128xi1>", (1,), (1,), (1,)),
    ("%x = addptr %base, %offsets : tile<128xptr<f16>>", (128,), (16,), (1,)),
    ("%x = addptr %q, %ns : tile<128xptr<f16>>", (128,), (16,), (1,)),
    ("%x = addptr %q, %ss : tile<128xptr<f16>>", (128,), (2,), (1,)),
    ("%x = addptr %q, %fours : tile<128xptr<f16>>", (128,), (8,), (1,)),
    ("%x = addptr %p, %n : ptr<f16>", (1,), (16,), (1,)),
    ("%x = cast %offsets : tile<128xi64>", (128,), (128,), (1,)),
    ("%x = cast %offsets : tile<128xi8>", (128,), (128,), (1,)),
    ("%1 = add %r, %ss : tile<128xi32> %x = cast %1 : tile<128xi8>", (1,), (1,), (1,)),
    (
        "%1 = arange {start = 0, end = 512} : tile<512xi32> %x = cast %1 : tile<512xi8>",
        (256,),
        (256,),
        (1,),
    ),
    ("%x = expand_dims %offsets {axis = 0} : tile<1x128xi32>", (1, 128), (1, 128), (1, 1)),
    (
        "%1 = expand_dims %ns {axis = 1} : tile<128x1xi32> %x = broadcast %1 : tile<128x64xi32>",
        (1, 1),
        (16, 16),
        (128, 64),
    ),
    (
        (
            "%1 = expand_dims %offsets {axis = 1} : tile<128x1xi32> %2 = broadcast %1 : "
            "tile<128x4xi32> %x = permute %2 {order = [1, 0]} : tile<4x128xi32>"
        ),
        (1, 128),
        (1, 128),
        (4, 1),
    ),
    ("%x = reshape %offsets : tile<4x32xi32>", (1, 32), (1, 32), (1, 1)),
    ("%x = reshape %ns : tile<4x32xi32>", (1, 1), (16, 16), (4, 32)),
    ("%x = reshape %offsets : tile<128x1xi32>", (128, 1), (128, 1), (1, 1)),
    (
        (
            "%1 = expand_dims %offsets {axis = 1} : tile<128x1xi32> %2 = broadcast %1 : "
            "tile<128x4xi32> %x = reshape %2 : tile<32x4x4xi32>"
        ),
        (1, 4, 1),
        (1, 4, 1),
        (1, 1, 4),
    ),
    (
        (
            "%1 = expand_dims %offsets {axis = 1} : tile<128x1xi32> %2 = broadcast %1 : "
            "tile<128x4xi32> %x = reshape %2 : tile<512xi32>"
        ),
        (1,),
        (1,),
        (4,),
    ),
    (
        "%1 = reshape %offsets : tile<64x2xi32> %x, %y = split %1 : tile<64xi32>, tile<64xi32>",
        (1,),
        (1,),
        (1,),
    ),
    (
        (
            "%1 = expand_dims %offsets {axis = 1} : tile<128x1xi32> %2 = broadcast %1 : "
            "tile<128x2xi32> %x, %y = split %2 : tile<128xi32>, tile<128xi32>"
        ),
        (128,),
        (128,),
        (1,),
    ),
    ("%x = join %offsets, %ns : tile<128x2xi32>", (1, 1), (1, 1), (1, 1)),
    ("%x = join %offsets, %r : tile<128x2xi32>", (128, 1), (128, 1), (1, 1)),
    ("%x = join %fours, %fours : tile<128x2xi32>", (1, 1), (4, 4), (128, 2)),
    (
        (
            "%1 = arange {start = 16, end = 32} : tile<16xi32> %x = cat %r, %1 {axis = 0} : "
            "tile<144xi32>"
        ),
        (16,),
        (16,),
        (1,),
    ),
    ("%x = cat %ns, %fours {axis = 0} : tile<256xi32>", (1,), (4,), (128,)),
    ("%x = gather %ns, %r {axis = 0} : tile<128xi32>", (1,), (16,), (128,)),
    ("%x = gather %r, %fours {axis = 0} : tile<128xi32>", (1,), (1,), (128,)),
    ("%x = hint %s {divisibility = [8]} : i32", (1,), (8,), (1,)),
    (
        (
            "%1 = rem %offsets, %ss : tile<128xi32> %x = hint %1 {contiguity = [64], "
            "divisibility = [32]} : tile<128xi32>"
        ),
        (64,),
        (32,),
        (1,),
    ),
    ("%1 = load %q : tile<128xf16> %x = cast %1 : tile<128xi32>", (1,), (1,), (1,)),
    ("%1 = load %base : tile<128xf16> %x = cast %1 : tile<128xi32>", (1,), (1,), (128,)),
    (
        (
            "%x = if %c : tile<128xi32> then { %1 = add %r, %ns : tile<128xi32> yield %1 } else "
            "{ %1 = add %r, %fours : tile<128xi32> yield %1 }"
        ),
        (128,),
        (4,),
        (1,),
    ),
    (
        "%1 = splat %c : tile<128xi1> %x = select %1, %offsets, %r : tile<128xi32>",
        (128,),
        (128,),
        (1,),
    ),
    (
        "%x = for %zero, %n, %block, inits=[%q] : tile<128xptr<f16>> body(%i: i32, %c1: "
        "tile<128xptr<f16>>) "
        "{ %2 = splat %block : tile<128xi32> %3 = addptr %c1, %2 : tile<128xptr<f16>> yield %3 }",
        (128,),
        (16,),
        (1,),
    ),
    (
        "%x = for %zero, %n, %block, inits=[%q] : tile<128xptr<f16>> body(%i: i32, %c1: "
        "tile<128xptr<f16>>) "
        "{ %3 = addptr %c1, %ss : tile<128xptr<f16>> yield %3 }",
        (128,),
        (2,),
        (1,),
    ),
    (
        # The loss reaches the first of two carried values only in the second round.
        "%x, %y = for %zero, %n, %block, inits=[%ns, %fours] : tile<128xi32>, tile<128xi32> "
        "body(%i: i32, %1: tile<128xi32>, %2: tile<128xi32>) { yield %2, %ss }",
        (1,),
        (1,),
        (128,),
    ),
    (
        "%x = while %n : i32 before(%1: i32) { %2 = cmp %1, %s {predicate = lt} : i1 condition "
        "%2, values=[%1] } "
        "after(%1: i32) { %2 = add %1, %four : i32 yield %2 }",
        (1,),
        (4,),
        (1,),
    ),
]


def value_called(function: Function, name: str) -> Value:
    return next(
        result
        for operation in function.walk()
        for result in operation.results
        if result.name == name
    )


@pytest.mark.parametrize(("text", "contiguity", "divisibility", "constancy"), CASES)
def test_known_cases(
    text: str,
    contiguity: tuple[int, ...],
    divisibility: tuple[int, ...],
    constancy: tuple[int, ...],
) -> None:
    module = parse_module(f"{HEAD}{text}\nreturn }}")
    verify(module)
    info = axis_info(module.kernel)[value_called(module.kernel, "x")]
    assert (info.contiguity, info.divisibility, info.constancy) == (
        contiguity,
        divisibility,
        constancy,
    )


def test_constants() -> None:
    module = parse_module(f"{HEAD}return }}")
    info = axis_info(module.kernel)
    assert info[value_called(module.kernel, "fours")].constant == 4
    assert info[value_called(module.kernel, "zero")].divisibility == (UNBOUNDED,)
    assert info[value_called(module.kernel, "starts")].nonnegative
    assert not info[value_called(module.kernel, "ss")].nonnegative


def test_below_zero_rounding_towards_zero_is_not_rounding_down() -> None:
    text = """tilewright.ir 1.0 kernel @k(%o: ptr<i32>) {
      %r = arange {start = -8, end = 8} : tile<16xi32> %four = constant 4 : i32 %fours = splat %four : tile<16xi32>
      %x = div %r, %fours : tile<16xi32> %y = rem %r, %fours : tile<16xi32> return }"""
    function = parse_module(text).kernel
    info = axis_info(function)
    assert info[value_called(function, "x")].constancy == (1,)
    assert info[value_called(function, "y")].apart_from_addresses().contiguity == (1,)


@pytest.mark.parametrize(("divides", "run"), [(16, 16), (4, 4), (1, 1)])
def test_a_row_of_a_number_of_columns_that_is_not_known_is_one_for_groups_that_divide_it(
    divides: int, run: int
) -> None:
    """The elements of an array one after the other: ``lanes // columns`` and ``lanes % columns``
    lead to pointers that run on within a row."""
    text = """tilewright.ir 1.0 kernel @k(%p: ptr<f32>, %columns: i32, %stride: i32, %m: i32) {
      %r = arange {start = 0, end = 64} : tile<64xi32> %n = splat %columns : tile<64xi32> %s = splat %stride : tile<64xi32>
      %row = div %r, %n : tile<64xi32> %column = rem %r, %n : tile<64xi32> %1 = mul %row, %s : tile<64xi32>
      %at = add %1, %column : tile<64xi32> %base = splat %p : tile<64xptr<f32>> %q = addptr %base, %at : tile<64xptr<f32>>
      %b = splat %m : tile<64xi32> %any = add %b, %r : tile<64xi32> %unsigned = div %any, %n : tile<64xi32> return }"""
    function = parse_module(text).kernel
    function.argument_attributes[:3] = [
        {"divisibility": 16},
        {"divisibility": divides},
        {"divisibility": divides},
    ]
    info = axis_info(function)
    assert info[value_called(function, "row")].constancy == (run,)
    assert info[value_called(function, "q")].contiguity == (run,)
    assert info[value_called(function, "unsigned")].constancy == (
        1,
    )  # groups around zero would not be rounded down


def test_a_remainder_runs_on_as_an_address_only() -> None:
    """Of ``s + lanes``, whose sign is not known, modulo a multiple of 16: pointers made of it are
    contiguous; a mask made of it must not rely on that."""
    text = """tilewright.ir 1.0 kernel @k(%p: ptr<f32>, %m: i32, %n: i32) {
      %r = arange {start = 0, end = 64} : tile<64xi32> %k = constant 64 : i32 %w = mul %m, %k : i32
      %ws = splat %w : tile<64xi32> %ns = mul %n, %k : i32 %nn = splat %ns : tile<64xi32>
      %at = add %ws, %r : tile<64xi32> %x = rem %at, %nn : tile<64xi32> %b = splat %p : tile<64xptr<f32>>
      %q = addptr %b, %x : tile<64xptr<f32>> %kk = splat %k : tile<64xi32> %inside = cmp %x, %kk {predicate = lt} : tile<64xi1>
      %half = div %x, %kk : tile<64xi32> return }"""
    function = parse_module(text).kernel
    function.argument_attributes[0] = {"divisibility": 16}
    info = axis_info(function)
    pointers = info[value_called(function, "q")]
    assert (pointers.contiguity, pointers.divisibility, pointers.addressing) == ((64,), (16,), True)
    assert info[value_called(function, "inside")].constancy == (1,)
    assert info[value_called(function, "half")].constancy == (1,)


def test_every_value_has_an_entry() -> None:
    from tilewright_conformance.op_samples import all_samples

    for sample in all_samples():
        function = sample.module.kernel
        info = axis_info(function)
        for operation in function.walk():
            for value in (
                *operation.results,
                *(argument for region in operation.regions for argument in region.arguments),
            ):
                assert info[value].rank == max(1, len(shape_of(value.type)))


def check_claims(info: AxisInfo, values: np.ndarray[Any, Any], unit: int) -> None:
    """Every claim, read off the numbers."""
    if values.ndim == 0:
        values = values.reshape(1)
    if info.constant is not None:
        assert (values == info.constant).all()
    if info.nonnegative:
        assert (values >= 0).all()
    for axis in range(values.ndim):
        along = np.moveaxis(values, axis, 0)
        place = np.arange(along.shape[0])
        inside = place % info.contiguity[axis] != 0
        np.testing.assert_array_equal(along[inside], along[place[inside] - 1] + unit)
        assert (along[~inside].astype(object) % info.divisibility[axis] == 0).all()
        inside = place % info.constancy[axis] != 0
        np.testing.assert_array_equal(along[inside], along[place[inside] - 1])


@pytest.mark.parametrize("seed", range(150))
def test_random_index_arithmetic(seed: int) -> None:
    rng = np.random.default_rng(seed)
    program = Indices(rng)
    values = program.build()
    info = axis_info(program.function)
    arrays = program.finish(values)
    verify(program.module)
    base = np.zeros(64, np.float16)
    assert base.ctypes.data % 16 == 0
    n = int(rng.integers(0, 9)) * program.divisibility
    run(program.module, [base, n, int(rng.integers(-50, 50)), *arrays], (1, 1, 1))
    for value, array in zip(values, arrays, strict=True):
        element = element_type(value.type)
        if isinstance(element, IntType):
            assert (
                np.abs(array.astype(np.int64)).max() < 2**31 - 1 or element is I1
            )  # nothing overflowed
        unit = 2 if isinstance(element, PointerType) else 1
        check_claims(info[value].apart_from_addresses(unit), array.astype(np.int64), unit)


def test_a_wrong_claim_is_found() -> None:
    info = AxisInfo((4,), (4,), (1,))
    check_claims(info, np.arange(8), 1)
    for wrong in (np.arange(8) + 1, np.arange(8)[::-1]):
        with pytest.raises(AssertionError):
            check_claims(info, wrong, 1)
