"""Moving elements: shapes of every rank, and reductions and scans of several tiles along every
axis."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tilewright.language as tl
from tilewright.ir import Builder, Function, Location, Module, verify
from tilewright.ir.types import F32, I32, PointerType, TileType
from tilewright.language.definitions.callable import device_function

Check = Callable[..., list[Any]]


def numbers(count: int, dtype: Any = np.int32, seed: int = 0) -> Any:
    return np.random.default_rng(seed).integers(-50, 50, count).astype(dtype)


# ---- chains of operations that move elements


@device_function
def shuffled(x, o, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    v = tl.load(x + at)
    a = tl.reshape(v, (2, BLOCK // 8, 4))
    b = tl.permute(a, (2, 0, 1))
    c = tl.join(b, b * 2)
    even, odd = tl.split(tl.permute(c, (3, 1, 2, 0)).reshape((BLOCK, 2)))
    tl.store(o + tl.arange(0, 2 * BLOCK), tl.interleave(even, odd))
    e = tl.broadcast_to(b[:, :, None, :], (4, 2, 2, BLOCK // 8)) + tl.reshape(
        v, (4, 2, 1, BLOCK // 8)
    )
    tl.store(
        o + 2 * BLOCK + tl.arange(0, 2 * BLOCK),
        tl.reshape(tl.permute(e, (3, 2, 0, 1)), (2 * BLOCK,)),
    )
    index = tl.reshape((v % 4 + 4) % 4, (2, BLOCK // 8, 4))
    tl.store(o + 4 * BLOCK + at, tl.reshape(tl.gather(a, index, 2), (BLOCK,)))


@pytest.mark.parametrize("block", [8, 16, 64, 256])
def test_chains_of_moves(block: int, kernel_agrees: Check) -> None:
    kernel_agrees(shuffled, [numbers(block), np.zeros(5 * block, np.int32)], BLOCK=block)


@st.composite
def shapes(draw: Any) -> tuple[int, ...]:
    return tuple(
        draw(st.lists(st.sampled_from((1, 1, 2, 3, 4, 5, 8, 16, 17)), min_size=1, max_size=5))
    )


def moved(data: Any) -> tuple[Module, int, int]:
    """A module that loads a tile, moves its elements through random operations of ranks 1 to 5 and
    stores it; with the sizes of input and output."""
    shape = data.draw(shapes().filter(lambda s: np.prod(s) <= 2048))
    count = int(np.prod(shape))
    function = Function(
        "moved",
        [PointerType(I32), PointerType(I32)],
        argument_names=["x", "o"],
        location=Location("moved.py", 1, 0, "moved"),
    )
    b = Builder(function.body)

    def like(value: Any, shape: tuple[int, ...]) -> TileType:
        return TileType(
            shape, value.type.element if isinstance(value.type, TileType) else value.type
        )

    def at(pointer: Any, count: int) -> Any:
        return b.addptr(
            b.splat(pointer, result=like(pointer, (count,))), b.arange(start=0, end=count)
        )

    value = b.load(at(function.arguments[0], count))
    value = b.reshape(value, result=like(value, shape))
    for _ in range(data.draw(st.integers(1, 7))):
        here = value.type.shape if isinstance(value.type, TileType) else ()
        choice = data.draw(
            st.sampled_from(("permute", "reshape", "expand", "broadcast", "double", "self"))
        )
        if choice == "permute":
            value = b.permute(value, order=tuple(data.draw(st.permutations(range(len(here))))))
        elif choice == "reshape":
            flat = [f for extent in here for f in _factors(extent)]
            flat = list(data.draw(st.permutations(flat)))
            groups = data.draw(st.integers(1, min(5, max(1, len(flat)))))
            target = [1] * groups
            for factor in flat:
                target[data.draw(st.integers(0, groups - 1))] *= factor
            value = b.reshape(value, result=like(value, tuple(target)))
        elif choice == "expand" and len(here) < 5:
            value = b.expand_dims(value, axis=data.draw(st.integers(0, len(here))))
        elif choice == "broadcast" and 1 in here and int(np.prod(here)) <= 1024:
            axis = here.index(1)
            value = b.broadcast(
                value,
                result=like(
                    value, (*here[:axis], data.draw(st.sampled_from((2, 3, 4))), *here[axis + 1 :])
                ),
            )
        elif choice == "double":
            value = b.add(value, value)
        elif choice == "self" and len(here) >= 2 and here[0] == here[-1]:
            value = b.sub(
                value, b.permute(value, order=(len(here) - 1, *range(1, len(here) - 1), 0))
            )
    total = value.type.numel
    b.store(at(function.arguments[1], total), b.reshape(value, result=like(value, (total,))))
    b.return_([])
    module = Module()
    module.add(function)
    verify(module)
    return module, count, total


def _factors(number: int) -> list[int]:
    found = []
    divisor = 2
    while number > 1:
        while number % divisor == 0:
            found.append(divisor)
            number //= divisor
        divisor += 1
    return found


@settings(
    max_examples=120,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)
@given(data=st.data())
def test_random_chains_of_moves(data: Any, same_as_reference: Check) -> None:
    module, count, total = moved(data)
    same_as_reference(module, [numbers(count), np.zeros(total, np.int32)])


# ---- scans of several tiles whose combination does not commute, and reductions, which may take any
# order


@device_function
def compose(a, b, c, d):
    """Composition of the maps ``t -> a * t + b``: associative, and its order matters."""
    return a * c, b * c + d


@device_function
def product_rule(a, b, c, d):
    """Multiply dual numbers (values with derivatives).

    Associative and commutative, with distinct operands.
    """
    return a * c, a * d + b * c


@device_function
def composed(
    x,
    y,
    o,
    R: tl.constexpr,
    S: tl.constexpr,
    T: tl.constexpr,
    AXIS: tl.constexpr,
    REVERSE: tl.constexpr,
):
    at = (
        tl.arange(0, R)[:, None, None] * (S * T)
        + tl.arange(0, S)[None, :, None] * T
        + tl.arange(0, T)[None, None, :]
    )
    a, b = tl.load(x + at), tl.load(y + at)
    p, q = tl.associative_scan((a, b), AXIS, compose, reverse=REVERSE)
    tl.store(o + at, p)
    tl.store(o + R * S * T + at, q)
    s, t = tl.reduce((a, b), AXIS, product_rule, keep_dims=True)
    tl.store(o + 2 * R * S * T + at, a + s)
    tl.store(o + 3 * R * S * T + at, b + t)
    u, w = tl.reduce(
        (tl.permute(b, (2, 0, 1)), tl.permute(a, (2, 0, 1))),
        (AXIS + 1) % 3,
        product_rule,
        keep_dims=True,
    )
    tl.store(o + 4 * R * S * T + at, tl.permute(tl.permute(a, (2, 0, 1)) * u + w, (1, 2, 0)))


@pytest.mark.each_value
@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize(
    "shape", [(1, 1, 1), (2, 4, 8), (16, 1, 4), (4, 32, 2), (1, 2, 64), (32, 2, 1)]
)
@pytest.mark.parametrize("reverse", [False, True])
def test_composition_along_each_axis(
    shape: tuple[int, int, int], axis: int, reverse: bool, kernel_agrees: Check
) -> None:
    r, s, t = shape
    x, y = numbers(r * s * t), numbers(r * s * t, seed=1)
    kernel_agrees(
        composed,
        [x, y, np.zeros(5 * r * s * t, np.int32)],
        R=r,
        S=s,
        T=t,
        AXIS=axis,
        REVERSE=reverse,
    )


# ---- rows of extent 1 around a kept tile


@device_function
def softmax_of_one_row(x, o, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)[None, :]
    v = tl.load(x + at, mask=at < n, other=-float("inf"))
    e = tl.exp(v - tl.max(v, 1, keep_dims=True))
    tl.store(o + at, e / tl.sum(e, 1, keep_dims=True), mask=at < n)
    tl.store(o + BLOCK + at, e)


@pytest.mark.parametrize("n", [1, 17, 63, 64])
def test_softmax_of_a_tile_with_one_row(n: int, kernel_agrees: Check) -> None:
    kernel_agrees(
        softmax_of_one_row,
        [numbers(64, np.float32), np.zeros(128, np.float32), n],
        BLOCK=64,
        relative=1e-6,
    )


def test_sums_of_a_transposed_tile_with_itself_are_linear_in_the_number_of_operations(
    compiled: Any,
) -> None:
    """Each level reads the one before along both ways round: code must not double with every
    level."""
    sizes = []
    for levels in (4, 8, 16):
        function = Function("levels", [PointerType(F32)], argument_names=["x"], location=None)
        b = Builder(function.body)
        rows = b.broadcast(
            b.expand_dims(b.arange(start=0, end=8), axis=1), result=TileType((8, 8), I32)
        )
        columns = b.broadcast(
            b.expand_dims(b.arange(start=0, end=8), axis=0), result=TileType((8, 8), I32)
        )
        eight = b.splat(b.constant(value=8, result=I32), result=TileType((8, 8), I32))
        base = b.splat(function.arguments[0], result=TileType((8, 8), PointerType(F32)))
        pointers = b.addptr(base, b.add(b.mul(rows, eight), columns))
        value = b.load(pointers)
        for _ in range(levels):
            value = b.add(value, b.permute(value, order=(1, 0)))
        b.store(pointers, value)
        b.return_([])
        module = Module()
        module.add(function)
        sizes.append(len(compiled(module).code.stages["llir"]))
    assert sizes[2] < 6 * sizes[0]
