"""Proofs that gradients need no atomics, and that outputs are stored once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tilewright.derivatives.analysis.write_modes import WriteMode, write_modes
from tilewright.derivatives.reverse_mode import AdjointRequest, consumed_outputs, vjp
from tilewright.errors import DefinitionError
from tilewright.frontend.compile import compile_function
from tilewright.ir.builder import Builder
from tilewright.ir.core import Function, Module, Region, Value
from tilewright.ir.types import F64, I32, PointerType, TileType
from tilewright.reference.interpreter import run


@tw.jit
def rows(x, out, n, stride, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    here = tl.program_id(0) * stride + at
    tl.store(out + here, tl.load(x + here, mask=at < n), mask=at < n)


@tw.jit
def elements(x, out, n, stride, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n), mask=at < n)


@tw.jit
def neighbours(x, out, n, stride, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at) + tl.load(x + at + 1))


@tw.jit
def masked_neighbours(x, out, n, stride, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) + tl.load(x + at + 1, mask=at < n))


@tw.jit
def repeated_lanes(x, out, n, stride, BLOCK: tl.constexpr):
    """The rows of a tile load the same elements; the mask tells them apart."""
    at, row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), tl.arange(0, 4)
    pointers = tl.broadcast_to((x + at)[None, :], [4, BLOCK])
    v = tl.load(pointers, mask=row[:, None] * at[None, :] < n)
    tl.store(out + at, tl.sum(v, 0))


@tw.jit
def neighbours_in_a_row(x, out, n, stride, BLOCK: tl.constexpr):
    at = tl.program_id(0) * stride + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at) * tl.load(x + at + 1))


@tw.jit
def two_gaits(x, out, n, stride, BLOCK: tl.constexpr):
    """Two loads, each of which is injective, that meet in different programs."""
    pid, at = tl.program_id(0), tl.arange(0, BLOCK)
    first = tl.load(x + pid * 128 + at)
    tl.store(out + pid * BLOCK + at, first * tl.load(x + pid * 64 + at))


@tw.jit
def one_gait(x, out, n, stride, BLOCK: tl.constexpr):
    """The program and the iteration have one coefficient."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], tl.float32)
    for i in range(n):
        total += tl.load(x + at + i * BLOCK)
    tl.store(out + at, total)


@tw.jit
def blocks_of_rows(x, out, n, stride, BLOCK: tl.constexpr):
    row = tl.program_id(0) * stride
    for start in range(0, n, BLOCK):
        at = start + tl.arange(0, BLOCK)
        tl.store(out + row + at, tl.load(x + row + at, mask=at < n), mask=at < n)


@tw.jit
def repeated_rows(x, out, n, stride, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], tl.float32)
    for i in range(n):
        total += tl.load(x + at) * i
        tl.store(out + at, total)


@tw.jit
def shared(x, out, n, stride, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out + tl.program_id(0) * BLOCK + at, tl.load(x + at))


@tw.jit
def indexed(x, out, n, stride, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    index = tl.load(out + n + pid).to(tl.int32)
    tl.store(out + pid, tl.load(x + index))


@tw.jit
def modular(x, out, n, stride, BLOCK: tl.constexpr):
    at = tl.program_id(0) % n * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at))


@tw.jit
def reversed_rows(x, out, n, stride, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + n - at))


@tw.jit
def three_stores(x, out, n, stride, BLOCK: tl.constexpr):
    at = tl.program_id(0) * 192 + tl.arange(0, BLOCK)
    v = tl.load(x + at)
    for part in tl.static_range(3):
        tl.store(out + at + 64 * part, v * part)


@tw.jit
def meeting_stores(x, out, n, stride, BLOCK: tl.constexpr):
    at = tl.program_id(0) * 192 + tl.arange(0, BLOCK)
    v = tl.load(x + at)
    tl.store(out + at, v)
    tl.store(out + at + 63, 2 * v)


@tw.jit
def halves_of_rows(x, out, n, stride, BLOCK: tl.constexpr):
    lane, row = tl.arange(0, BLOCK)[None, :], tl.arange(0, 4)[:, None]
    offsets = tl.program_id(0) * 8 * BLOCK + row * 2 * BLOCK + lane
    first, second = tl.load(x + offsets), tl.load(x + offsets + BLOCK)
    tl.store(out + offsets, first - second)
    tl.store(out + offsets + BLOCK, first + second)


@tw.jit
def meeting_halves(x, out, n, stride, BLOCK: tl.constexpr):
    lane, row = tl.arange(0, BLOCK)[None, :], tl.arange(0, 4)[:, None]
    offsets = tl.program_id(0) * 8 * BLOCK + row * 2 * BLOCK + lane
    first, second = tl.load(x + offsets), tl.load(x + offsets + BLOCK)
    tl.store(out + offsets, first - second)
    tl.store(out + offsets + BLOCK - 1, first + second)


@tw.jit
def halves_of_other_rows(x, out, n, stride, BLOCK: tl.constexpr):
    lane, row = tl.arange(0, BLOCK)[None, :], tl.arange(0, 4)[:, None]
    offsets = tl.program_id(0) * 8 * BLOCK + row * 2 * BLOCK + lane
    first, second = tl.load(x + offsets), tl.load(x + offsets + BLOCK)
    tl.store(out + offsets, first - second)
    tl.store(out + offsets + BLOCK + BLOCK // 2, first + second)


ALONE = "1 >= num_programs(1) and 1 >= num_programs(2)"

#: Kernel -> mode, reason, and the first conditions; and whether its output is stored again.
PROOFS: list[tuple[Any, str, str, str, bool]] = [
    (
        rows,
        "store",
        "one program alone loads each element, once",
        f"{ALONE} and stride >= n",
        False,
    ),
    (elements, "store", "one program alone loads each element, once", ALONE, False),
    (neighbours, "atomic", "programs may load one element", "", False),
    (masked_neighbours, "atomic", "programs may load one element", "", False),
    (
        repeated_lanes,
        "atomic",
        "lanes along axis 0 of the tile access one element",
        "",
        False,
    ),
    (
        neighbours_in_a_row,
        "add",
        "one program alone loads each element",
        f"{ALONE} and stride >= 65",
        False,
    ),
    (two_gaits, "atomic", "programs may load one element", "", False),
    (
        one_gait,
        "store",
        "one program alone loads each element, once",
        f"{ALONE} and 64 >= 64 * num_programs(0)",  # which more than one program do not satisfy
        False,
    ),
    (
        blocks_of_rows,
        "store",
        "one program alone loads each element, once",
        f"{ALONE} and stride >= n",
        False,
    ),
    (repeated_rows, "add", "one program alone loads each element", ALONE, True),
    (shared, "atomic", "all programs along axis 0 of the grid load it", "", False),
    (indexed, "atomic", "its address depends on what was computed or loaded", "", False),
    (
        modular,
        "atomic",
        "its address takes a number apart by a division, minimum or maximum",
        "",
        False,
    ),
    (reversed_rows, "atomic", "programs may load one element", "", False),
    (three_stores, "store", "one program alone loads each element, once", ALONE, False),
    (halves_of_rows, "store", "one program alone loads each element, once", ALONE, False),
    (meeting_halves, "store", "one program alone loads each element, once", ALONE, True),
    (halves_of_other_rows, "store", "one program alone loads each element, once", ALONE, True),
    (meeting_stores, "store", "one program alone loads each element, once", ALONE, True),
]


def module_of(kernel: Any) -> Module:
    signature = {"x": "*fp32", "out": "*fp32", "n": "i32", "stride": "i32", "BLOCK": "constexpr"}
    return compile_function(kernel, signature, {"BLOCK": 64})


@pytest.mark.parametrize(("kernel", "mode", "why", "conditions", "repeated"), PROOFS)
def test_proofs(kernel: Any, mode: str, why: str, conditions: str, repeated: bool) -> None:
    module = module_of(kernel)
    found = write_modes(module, ("x",))["x"]
    assert (found.mode, found.why) == (mode, why)
    first = found.alternatives[0]
    assert " and ".join(condition.text for condition in first) == conditions
    assert consumed_outputs(module, ("out",)) == ({"out"} if repeated else set())


def test_conditions_are_checked_with_the_arguments_of_a_launch() -> None:
    mode = write_modes(module_of(rows), ("x",))["x"]
    grid = {f"num_programs({axis})": size for axis, size in enumerate((4, 1, 1))}
    assert mode.at({"n": 50, "stride": 50, **grid}).mode == "store"
    refused = mode.at({"n": 50, "stride": 49, **grid})
    assert refused.mode == "atomic"
    assert refused.why == f"the arguments do not satisfy {ALONE} and stride >= n"
    assert mode.at({"n": 50, "stride": 50, **grid, "num_programs(1)": 2}).mode == "atomic"
    assert mode.at({"n": 50, **grid}).mode == "atomic"


# ---- random addresses

GRID, LANES, TRIPS = (3, 2), 4, 2


class RandomAccess:
    """A kernel that loads ``x`` twice at random affine addresses, and stores what it loads apart.

    Attributes:
        module: its module.
        numbers: its scalar arguments, and the sizes of the grid.
    """

    def __init__(self, seed: int) -> None:
        self._rng = rng = np.random.default_rng(seed)
        names = ["x", "out", "a", "b"]
        types = [PointerType(F64), PointerType(F64), I32, I32]
        function = Function("k", types, (), names)
        self.numbers = {"a": int(rng.choice([1, 4, 8, 13])), "b": int(rng.choice([4, 8, 24, 40]))}
        self.numbers |= {f"num_programs({i})": n for i, n in enumerate((*GRID, 1))}
        self._b = b = Builder.at_end(function.body)
        x, out, *self._scalars = function.arguments
        self._lane = b.arange(start=0, end=LANES)
        self._places = [b.program_id(axis=axis) for axis in (0, 1)]
        region = Region([I32])
        zero, one, trips = (b.constant_like(I32, n) for n in (0, 1, TRIPS))
        with b.at_region(region):
            self._iteration = region.arguments[0]
            program = b.add(self._places[0], b.mul(self._places[1], self._number(GRID[0])))
            row = b.add(b.mul(program, trips), self._iteration)
            second = bool(rng.random() < 0.5)
            shift = int(rng.integers(0, 3)) if rng.random() < 0.8 else None
            first = self._address(None)
            addresses = [first] if not second else [first, self._address(first, shift)]
            total: Value | None = None
            for address, mask in addresses:
                pointer = b.addptr(b.splat(x, result=TileType((LANES,), x.type)), address)
                value = b.load(pointer, mask=mask)
                total = value if total is None else b.add(total, value)
            here = b.add(
                b.splat(b.mul(row, self._number(LANES)), result=self._lane.type), self._lane
            )
            b.store(b.addptr(b.splat(out, result=TileType((LANES,), out.type)), here), total)
            b.yield_([])
        b.region_op("for", zero, trips, one, [], regions=[region])
        b.return_([])
        self.module = Module()
        self.module.add(function)
        self._adjoints: dict[str, Module] = {}

    def _number(self, number: int) -> Value:
        return self._b.constant_like(I32, number)

    def _scaled(self, value: Value, number: int) -> Value:
        """Multiply by a number, often by one that another argument has, or by a wrong one."""
        chance = self._rng.random()
        if chance < 0.15:
            return self._b.mul(value, self._scalars[int(self._rng.integers(2))])
        if chance < 0.3:
            number = int(self._rng.choice([0, 1, 4, 8, 16, 32]))
        return self._b.mul(value, self._number(number))

    def _address(
        self, like: tuple[Value, Value | None] | None, shift: int | None = None
    ) -> tuple[Value, Value | None]:
        b = self._b
        if like is not None and shift is not None:
            moved = b.add(like[0], b.constant_like(like[0].type, shift))
            return moved, like[1]
        uniform = self._number(int(self._rng.integers(3)))
        extents = list(zip((*self._places, self._iteration), (*GRID, TRIPS), strict=True))
        number = LANES
        for place in self._rng.permutation(len(extents)):
            value, extent = extents[place]
            uniform = b.add(uniform, self._scaled(value, number))
            number *= extent
        step = b.constant_like(self._lane.type, int(self._rng.choice([1, 1, 1, 1, 2])))
        lanes = b.mul(self._lane, step)
        mask = None
        if self._rng.random() < 0.4:
            limit = b.constant_like(self._lane.type, int(self._rng.integers(1, LANES + 1)))
            mask = b.cmp(self._lane, limit, predicate="lt")
        return b.add(b.splat(uniform, result=lanes.type), lanes), mask

    def gradient(self, mode: str, cotangent: np.ndarray) -> np.ndarray:
        if mode not in self._adjoints:
            request = AdjointRequest(("out",), ("x",), modes={"x": mode})
            self._adjoints[mode] = vjp(self.module, request)
        adjoint = self._adjoints[mode]
        dx = np.zeros(1000)
        arrays = {"d_out": cotangent.copy(), "d_x": dx}
        values = [
            arrays.get(argument.name, self.numbers.get(argument.name, np.zeros(1000)))
            for argument in adjoint.kernel.arguments
        ]
        run(adjoint, values, (*GRID, 1))
        return dx


def found_mode(access: RandomAccess) -> WriteMode:
    return write_modes(access.module, ("x",))["x"].at(access.numbers)


def test_random_addresses_that_are_proven_apart_are() -> None:
    """Two programs never add to one element, and nobody stores to one twice."""
    modes = dict.fromkeys(("store", "add", "atomic"), 0)
    size = TRIPS * LANES
    for seed in range(160):
        access = RandomAccess(seed)
        mode = found_mode(access).mode
        modes[mode] += 1
        if mode == "atomic":
            continue
        cotangents = np.arange(1.0, 1 + GRID[0] * GRID[1] * size)
        expected = access.gradient("atomic", cotangents)
        assert (access.gradient(mode, cotangents) == expected).all(), seed
        programs = np.zeros(1000)
        for program in range(GRID[0] * GRID[1]):
            own = np.zeros_like(cotangents)
            own[program * size : (program + 1) * size] = 1
            programs += access.gradient("atomic", own) > 0
        assert programs.max() <= 1, seed
    assert all(count > 2 for count in modes.values()), modes


@tw.jit
def permuted(x, index, out, BLOCK: tl.constexpr, TWICE: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    here = x + tl.load(index + at)
    v = tl.load(here)
    if TWICE:
        for i in range(2):
            v += tl.load(here, mask=at % 2 == i, other=0.0)
    tl.store(out + at, v * v)


@pytest.mark.parametrize(("twice", "way", "factor"), [(False, "store", 1), (True, "add", 4)])
def test_a_promise_that_programs_are_apart_takes_the_place_of_a_proof(
    twice: bool, way: str, factor: int
) -> None:
    rng = np.random.default_rng(0)
    x, index = rng.normal(size=64).astype(np.float32), rng.permutation(64).astype(np.int32)
    out, dx, ones = np.empty_like(x), np.full_like(x, np.nan), np.ones_like(x)
    arguments, named = (x, index, out, 16, twice), {"d_out": ones, "d_x": dx}
    with tw.backend("reference"):
        plain = tw.vjp(permuted, outputs="out", wrt="x", deterministic=True)
        with pytest.raises(tw.DerivativeError, match="its address is not affine"):
            plain[(4,)](*arguments, **named)
        promised = tw.vjp(permuted, outputs="out", wrt="x", deterministic=True, disjoint="x")
        promised[(4,)](*arguments, **named)
        plan = promised.plan(*arguments, grid=(4,), **named)
    np.testing.assert_allclose(dx, 2 * x * factor, rtol=1e-6)
    note = plan.inputs["x"]
    assert note.way == way
    assert note.why.startswith("assumed because of disjoint: one program alone loads each element")


def test_promises_are_of_inputs() -> None:
    with pytest.raises(DefinitionError, match="disjoint names 'index', which wrt does not"):
        tw.vjp(permuted, outputs="out", wrt="x", disjoint="index")
