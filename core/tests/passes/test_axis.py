"""Axis analysis: known cases, and random index arithmetic whose every claim is checked against the reference's numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilewright.ir import Builder, Function, Module, Region, Value, verify
from tilewright.ir.parser import parse_module
from tilewright.ir.types import F16, I1, I32, I64, IntType, PointerType, TileType, element_type, shape_of, with_element
from tilewright.passes.axis import UNBOUNDED, AxisInfo, axis_info
from tilewright.reference.interpreter import run
from tilewright.reference.numerics import numpy_dtype

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
    ("%1 = constant 3 : i32 %2 = add %1, %n : i32 %3 = constant 2 : i32 %x = shr %2, %3 : i32", (1,), (4,), (1,)),
    ("%1 = constant 3 : i32 %2 = add %1, %n : i32 %x = div %2, %four : i32", (1,), (1,), (1,)),  # n may be below zero
    ("%1 = constant 4 : i32 %2 = add %start, %1 : i32 %x = div %2, %four : i32", (1,), (1,), (1,)),
    ("%1 = constant 5 : i32 %2 = add %start, %1 : i32 %3 = constant 6 : i32 %x = div %2, %3 : i32", (1,), (1,), (1,)),
    ("%1 = arange {start = 64, end = 68} : tile<4xi32> %2 = splat %four : tile<4xi32> %x = div %1, %2 : tile<4xi32>", (1,), (16,), (4,)),
    ("%x = rem %n, %block : i32", (1,), (16,), (1,)),
    ("%x = min %n, %block : i32", (1,), (16,), (1,)),
    ("%x = max %offsets, %r : tile<128xi32>", (128,), (128,), (1,)),
    ("%x = max %offsets, %ns : tile<128xi32>", (1,), (1,), (1,)),
    ("%x = rem %offsets, %ns : tile<128xi32>", (16,), (16,), (1,)),
    ("%x = rem %offsets, %ss : tile<128xi32>", (1,), (1,), (1,)),
    ("%1 = constant 31 : i32 %2 = splat %1 : tile<128xi32> %x = and %offsets, %2 : tile<128xi32>", (32,), (32,), (1,)),
    ("%1 = constant -32 : i32 %2 = splat %1 : tile<128xi32> %x = and %offsets, %2 : tile<128xi32>", (1,), (32,), (32,)),
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
    ("%1 = arange {start = 0, end = 512} : tile<512xi32> %x = cast %1 : tile<512xi8>", (256,), (256,), (1,)),
    ("%x = expand_dims %offsets {axis = 0} : tile<1x128xi32>", (1, 128), (1, 128), (1, 1)),
    ("%1 = expand_dims %ns {axis = 1} : tile<128x1xi32> %x = broadcast %1 : tile<128x64xi32>", (1, 1), (16, 16), (128, 64)),
    (
        "%1 = expand_dims %offsets {axis = 1} : tile<128x1xi32> %2 = broadcast %1 : tile<128x4xi32> %x = permute %2 {order = [1, 0]} : tile<4x128xi32>",
        (1, 128),
        (1, 128),
        (4, 1),
    ),
    ("%x = reshape %offsets : tile<4x32xi32>", (1, 32), (1, 32), (1, 1)),
    ("%x = reshape %ns : tile<4x32xi32>", (1, 1), (16, 16), (4, 32)),
    ("%x = reshape %offsets : tile<128x1xi32>", (128, 1), (128, 1), (1, 1)),
    (
        "%1 = expand_dims %offsets {axis = 1} : tile<128x1xi32> %2 = broadcast %1 : tile<128x4xi32> %x = reshape %2 : tile<32x4x4xi32>",
        (1, 4, 1),
        (1, 4, 1),
        (1, 1, 4),
    ),
    (
        "%1 = expand_dims %offsets {axis = 1} : tile<128x1xi32> %2 = broadcast %1 : tile<128x4xi32> %x = reshape %2 : tile<512xi32>",
        (1,),
        (1,),
        (4,),
    ),
    ("%1 = reshape %offsets : tile<64x2xi32> %x, %y = split %1 : tile<64xi32>, tile<64xi32>", (1,), (1,), (1,)),
    (
        "%1 = expand_dims %offsets {axis = 1} : tile<128x1xi32> %2 = broadcast %1 : tile<128x2xi32> %x, %y = split %2 : tile<128xi32>, tile<128xi32>",
        (128,),
        (128,),
        (1,),
    ),
    ("%x = join %offsets, %ns : tile<128x2xi32>", (1, 1), (1, 1), (1, 1)),
    ("%x = join %offsets, %r : tile<128x2xi32>", (128, 1), (128, 1), (1, 1)),
    ("%x = join %fours, %fours : tile<128x2xi32>", (1, 1), (4, 4), (128, 2)),
    ("%1 = arange {start = 16, end = 32} : tile<16xi32> %x = cat %r, %1 {axis = 0} : tile<144xi32>", (16,), (16,), (1,)),
    ("%x = cat %ns, %fours {axis = 0} : tile<256xi32>", (1,), (4,), (128,)),
    ("%x = gather %ns, %r {axis = 0} : tile<128xi32>", (1,), (16,), (128,)),
    ("%x = gather %r, %fours {axis = 0} : tile<128xi32>", (1,), (1,), (128,)),
    ("%x = hint %s {divisibility = [8]} : i32", (1,), (8,), (1,)),
    ("%1 = rem %offsets, %ss : tile<128xi32> %x = hint %1 {contiguity = [64], divisibility = [32]} : tile<128xi32>", (64,), (32,), (1,)),
    ("%1 = load %q : tile<128xf16> %x = cast %1 : tile<128xi32>", (1,), (1,), (1,)),
    ("%1 = load %base : tile<128xf16> %x = cast %1 : tile<128xi32>", (1,), (1,), (128,)),
    (
        "%x = if %c : tile<128xi32> then { %1 = add %r, %ns : tile<128xi32> yield %1 } else { %1 = add %r, %fours : tile<128xi32> yield %1 }",
        (128,),
        (4,),
        (1,),
    ),
    ("%1 = splat %c : tile<128xi1> %x = select %1, %offsets, %r : tile<128xi32>", (128,), (128,), (1,)),
    (
        "%x = for %zero, %n, %block, inits=[%q] : tile<128xptr<f16>> body(%i: i32, %c1: tile<128xptr<f16>>) "
        "{ %2 = splat %block : tile<128xi32> %3 = addptr %c1, %2 : tile<128xptr<f16>> yield %3 }",
        (128,),
        (16,),
        (1,),
    ),
    (
        "%x = for %zero, %n, %block, inits=[%q] : tile<128xptr<f16>> body(%i: i32, %c1: tile<128xptr<f16>>) "
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
        "%x = while %n : i32 before(%1: i32) { %2 = cmp %1, %s {predicate = lt} : i1 condition %2, values=[%1] } "
        "after(%1: i32) { %2 = add %1, %four : i32 yield %2 }",
        (1,),
        (4,),
        (1,),
    ),
]


def value_called(function: Function, name: str) -> Value:
    return next(result for operation in function.walk() for result in operation.results if result.name == name)


@pytest.mark.parametrize(("text", "contiguity", "divisibility", "constancy"), CASES)
def test_known_cases(text: str, contiguity: tuple[int, ...], divisibility: tuple[int, ...], constancy: tuple[int, ...]) -> None:
    module = parse_module(f"{HEAD}{text}\nreturn }}")
    verify(module)
    info = axis_info(module.kernel)[value_called(module.kernel, "x")]
    assert (info.contiguity, info.divisibility, info.constancy) == (contiguity, divisibility, constancy)


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
def test_a_row_of_a_number_of_columns_that_is_not_known_is_one_for_groups_that_divide_it(divides: int, run: int) -> None:
    """The elements of an array one after the other: ``lanes // columns`` and ``lanes % columns`` lead to pointers that run on within a row."""
    text = """tilewright.ir 1.0 kernel @k(%p: ptr<f32>, %columns: i32, %stride: i32, %m: i32) {
      %r = arange {start = 0, end = 64} : tile<64xi32> %n = splat %columns : tile<64xi32> %s = splat %stride : tile<64xi32>
      %row = div %r, %n : tile<64xi32> %column = rem %r, %n : tile<64xi32> %1 = mul %row, %s : tile<64xi32>
      %at = add %1, %column : tile<64xi32> %base = splat %p : tile<64xptr<f32>> %q = addptr %base, %at : tile<64xptr<f32>>
      %b = splat %m : tile<64xi32> %any = add %b, %r : tile<64xi32> %unsigned = div %any, %n : tile<64xi32> return }"""
    function = parse_module(text).kernel
    function.argument_attributes[:3] = [{"divisibility": 16}, {"divisibility": divides}, {"divisibility": divides}]
    info = axis_info(function)
    assert info[value_called(function, "row")].constancy == (run,)
    assert info[value_called(function, "q")].contiguity == (run,)
    assert info[value_called(function, "unsigned")].constancy == (1,)  # groups around zero would not be rounded down


def test_a_remainder_runs_on_as_an_address_only() -> None:
    """Of ``s + lanes``, whose sign is not known, modulo a multiple of 16: pointers made of it are contiguous; a mask made of it must not rely on that."""
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
    from tilewright_conformance.samples import all_samples

    for sample in all_samples():
        function = sample.module.kernel
        info = axis_info(function)
        for operation in function.walk():
            for value in (*operation.results, *(argument for region in operation.regions for argument in region.arguments)):
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


class Indices:
    """Random index arithmetic that does not overflow."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self.module = Module()
        self.function = self.module.add(Function("k", [PointerType(F16), I32, I32], argument_names=["p", "n", "s"]))
        self.divisibility = int(rng.choice([1, 4, 16]))
        self.function.argument_attributes = [{"divisibility": 16}, {"divisibility": self.divisibility}, {}]
        self.b = Builder.at_end(self.function.body)
        self.shape = [(32,), (4, 8), (8, 16)][rng.integers(3)]
        self.scalars: list[Value] = []
        self.pool: list[Value] = []
        self.pointers: list[Value] = []

    def pick(self, pool: list[Value]) -> Value:
        return pool[self.rng.integers(len(pool))]

    def leaf(self) -> Value:
        """A tile of the shape: a constant, an argument, or positions along an axis."""
        b, rng = self.b, self.rng
        kind = rng.integers(4)
        tile = TileType(self.shape, I32)
        if kind == 0:
            return b.constant_like(tile, int(rng.choice([0, 1, 2, 3, 4, 8, 12, 16, 31, 63, -16])))
        if kind == 1:
            return b.splat(self.scalar(int(rng.integers(5))), result=tile)  # type: ignore[no-any-return]
        axis = int(rng.integers(len(self.shape)))
        start = int(rng.choice([0, 0, 4, 16, -8, 3]))
        value = b.arange(start=start, end=start + self.shape[axis])
        if len(self.shape) == 2:
            value = b.broadcast(b.expand_dims(value, axis=1 - axis), result=tile)
        return value  # type: ignore[no-any-return]

    def scalar(self, depth: int) -> Value:
        self.scalars.append(self._scalar(depth))
        return self.scalars[-1]

    def _scalar(self, depth: int) -> Value:
        """Arithmetic as kernels do it with extents and strides: halves, tiles that cover, what is left, the smaller and the greater."""
        b, rng = self.b, self.rng
        if depth == 0:
            found = [b.program_id(axis=0), *self.function.arguments[1:]][rng.integers(3)]
            return b.mul(found, b.constant(value=int(rng.choice([1, 1, 4, 24, 32, -32])), result=I32))  # type: ignore[no-any-return]

        def constant(*choices: int) -> Value:
            return b.constant(value=int(rng.choice(choices)), result=I32)  # type: ignore[no-any-return]

        x = self.scalar(depth - 1)
        name = str(rng.choice(["div", "cdiv", "shr", "rem", "min", "max", "mul", "add", "sub", "select"]))
        if name == "cdiv":
            amount = int(rng.choice([2, 4, 8, 16, 12]))
            ahead = b.constant(value=int(rng.choice([amount - 1, amount - 1, amount // 2, amount])), result=I32)
            found = b.add(x, ahead) if rng.random() < 0.5 else b.add(ahead, x)
            if amount != 12 and rng.random() < 0.3:
                return b.shr(found, b.constant(value=amount.bit_length() - 1, result=I32))  # type: ignore[no-any-return]
            return b.div(found, b.constant(value=amount, result=I32))  # type: ignore[no-any-return]
        if name == "select":
            condition = b.cmp(self.function.arguments[2], constant(0, 16), predicate="lt")
            return b.select(condition, x, self.scalar(int(rng.integers(depth))))  # type: ignore[no-any-return]
        constants = {"div": (2, 4, 8, 16, 12, -4, -1), "shr": (1, 2, 3), "rem": (4, 16, 24, 64), "mul": (2, 4, 6)}
        other = constant(*constants[name]) if name in constants else self.scalar(0) if rng.random() < 0.5 else constant(-16, 0, 7, 16, 64)
        return getattr(b, name)(x, other)  # type: ignore[no-any-return]

    def step(self) -> Value:
        b, rng = self.b, self.rng
        x, y = self.pick(self.pool), self.pick(self.pool)
        tile = x.type

        def constant(*choices: int) -> Value:
            return b.constant_like(tile, int(rng.choice(choices)))

        kind = rng.integers(22)
        if kind == 0:
            return b.sub(x, y)  # type: ignore[no-any-return]
        if kind == 1:
            return b.mul(x, constant(1, 2, 4, 6))  # type: ignore[no-any-return]
        if kind == 2:
            return b.div(x, constant(1, 2, 4, 12, 16, -2, -8))  # type: ignore[no-any-return]
        if kind == 3:
            return b.rem(x, constant(4, 8, 12, 16))  # type: ignore[no-any-return]
        if kind == 4:
            return b.and_(x, constant(3, 15, -4, -16, 12, 255))  # type: ignore[no-any-return]
        if kind == 5:
            return getattr(b, str(rng.choice(["shl", "shr"])))(x, constant(0, 1, 2))  # type: ignore[no-any-return]
        if kind == 6:
            mask = b.cmp(x, y, predicate=str(rng.choice(["eq", "ne", "lt", "le", "gt", "ge"])))
            self.masks.append(mask)
            return b.select(mask, self.pick(self.pool), self.pick(self.pool))  # type: ignore[no-any-return]
        if kind == 7:
            return getattr(b, str(rng.choice(["min", "max", "min", "max", "or_", "xor"])))(x, y)  # type: ignore[no-any-return]
        if kind == 8:
            return b.cast(b.cast(x, result=with_element(tile, I64)), result=tile)  # type: ignore[no-any-return]
        if kind == 9:
            shape = shape_of(tile)
            numel = x.type.numel  # type: ignore[attr-defined]
            middle = [(numel,), (numel, 1), (2, numel // 2), (numel // 8, 2, 4), (numel // 16, 16), (*shape[:-1], shape[-1] // 2, 2)]
            other = b.reshape(x, result=TileType(middle[rng.integers(len(middle))], I32))
            self.others.append(other)
            return b.reshape(other, result=TileType(shape, I32))  # type: ignore[no-any-return]
        if kind == 10:
            return b.neg(x) if rng.random() < 0.3 else b.abs(x)  # type: ignore[no-any-return]
        if kind == 11:
            regions = []
            for value in (x, y):
                region = Region()
                with b.at_region(region):
                    b.yield_([b.add(value, constant(0, 1, 16))])
                regions.append(region)
            condition = b.cmp(self.function.arguments[1], self.function.arguments[2], predicate="lt")
            return b.region_op("if", condition, regions=regions, results=[tile]).result
        if kind == 12:
            body = Region([I32, tile, tile])
            with b.at_region(body):
                moved = b.add(body.arguments[1], self.pick([constant(1, 16, 0), b.splat(body.arguments[0], result=tile), y]))
                b.yield_([body.arguments[2], moved] if rng.random() < 0.5 else [moved, y])
            bounds = [b.constant(value=value, result=I32) for value in (0, 12, 4)]
            return b.region_op("for", *bounds, [x, y], regions=[body]).results[int(rng.integers(2))]
        last = len(self.shape) - 1
        if kind == 13:
            halves = b.split(b.reshape(x, result=TileType((*self.shape[:-1], self.shape[-1] // 2, 2), I32)))
            self.others += halves
            return b.cat(*halves, axis=last)  # type: ignore[no-any-return]
        if kind == 14:
            joined = b.join(x, y)
            self.others.append(joined)
            return b.split(joined)[int(rng.integers(2))]  # type: ignore[no-any-return]
        if kind == 15:
            self.others.append(b.cat(x, y, axis=int(rng.integers(last + 1))))
            return x
        if kind == 16:
            axis = int(rng.integers(last + 1))
            return b.gather(x, b.and_(y, constant(self.shape[axis] - 1, self.shape[axis] // 4)), axis=axis)  # type: ignore[no-any-return]
        if kind == 17:
            amount = int(rng.choice([2, 4, 8]))
            return b.div(b.add(x, b.constant_like(tile, amount - 1)), b.constant_like(tile, amount))  # type: ignore[no-any-return]
        if kind == 18:  # by a number that is not known, but a multiple of one that is
            factor = b.constant(value=int(rng.choice([8, 16, 24, -16])), result=I32)
            divisor = b.add(b.mul(self.function.arguments[1], factor), factor)
            return getattr(b, str(rng.choice(["div", "div", "rem"])))(x, b.splat(divisor, result=tile))  # type: ignore[no-any-return]
        return b.add(x, y)  # type: ignore[no-any-return]

    def build(self) -> list[Value]:
        """Values to check."""
        self.masks: list[Value] = []
        #: tiles of other shapes
        self.others: list[Value] = []
        self.pool = [self.leaf() for _ in range(5)]
        for _ in range(14):
            self.pool.append(self.step())
        b = self.b
        base = b.splat(self.function.arguments[0], result=TileType(self.shape, PointerType(F16)))
        first = b.addptr(base, self.pick(self.pool))
        self.pointers = [first, b.addptr(first, self.pick(self.pool))]
        return [*self.pool, *self.masks, *self.pointers, *self.others]

    def finish(self, values: list[Value]) -> list[np.ndarray[Any, Any]]:
        """Store each of the values in an array of its own, an argument of the program, and end the program."""
        b, arrays = self.b, []
        for value in values:
            stored = b.bitcast(value, result=with_element(value.type, I64)) if isinstance(element_type(value.type), PointerType) else value
            element, shape = element_type(stored.type), shape_of(value.type)
            out = self.function.body.add_argument(PointerType(element))
            self.function.argument_attributes.append({})
            offsets = b.reshape(b.arange(start=0, end=int(np.prod(shape))), result=TileType(shape, I32))
            b.store(b.addptr(b.splat(out, result=TileType(shape, out.type)), offsets), stored)
            arrays.append(np.zeros(shape, numpy_dtype(element)))
        b.return_([])
        return arrays


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
            assert np.abs(array.astype(np.int64)).max() < 2**31 - 1 or element is I1  # nothing overflowed
        unit = 2 if isinstance(element, PointerType) else 1
        check_claims(info[value].apart_from_addresses(unit), array.astype(np.int64), unit)


def test_a_wrong_claim_is_found() -> None:
    info = AxisInfo((4,), (4,), (1,))
    check_claims(info, np.arange(8), 1)
    for wrong in (np.arange(8) + 1, np.arange(8)[::-1]):
        with pytest.raises(AssertionError):
            check_claims(info, wrong, 1)
