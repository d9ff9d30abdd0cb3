"""Random kernels into which one construct is put that has no derivative, at a random place."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from random_kernels import ELEMENTS, RandomKernel

from tilewright.ir.builder import Builder
from tilewright.ir.core import Location, Region, Value
from tilewright.ir.types import F64, I32, I64, PointerType, TileType, shape_of, with_element

#: The place of the construct, which errors have to name.
PLACE = Location("faulty.py", 7, 4, "faulty")

#: ``construct(b, x, at)`` appends the construct for a float or tile ``x`` and returns a float or
#: tile. ``at(name)`` returns addresses of the shape of x in an array of floats: ``x``, which is an
#: input; ``out``, an output; or ``s``, which is neither; ``lock`` is an address of an i32.
Construct = Callable[[Builder, Value, Callable[[str], Value]], Value]


def bits(b: Builder, x: Value, at: Callable[[str], Value]) -> Value:
    found = b.bitcast(x, result=with_element(x.type, I64))
    even = b.and_(found, b.constant_like(found.type, -2))
    made: Value = b.bitcast(even, result=x.type)
    return made


def bits_as_numbers(b: Builder, x: Value, at: Callable[[str], Value]) -> Value:
    found = b.bitcast(x, result=with_element(x.type, I64))
    made: Value = b.mul(b.cast(found, result=x.type), b.constant_like(x.type, 2.0**-63))
    return made


def while_loop(b: Builder, x: Value, at: Callable[[str], Value]) -> Value:
    """Halve x three times, counted."""
    before, after = Region([x.type, I32]), Region([x.type, I32])
    with b.at_region(before):
        value, count = before.arguments
        b.condition(b.cmp(count, b.constant_like(I32, 3), predicate="lt"), [value, count])
    with b.at_region(after):
        value, count = after.arguments
        half = b.mul(value, b.constant_like(x.type, 0.5))
        b.yield_([half, b.add(count, b.constant_like(I32, 1))])
    zero = b.constant_like(I32, 0)
    return b.region_op("while", [x, zero], regions=[before, after], results=[x.type, I32]).results[
        0
    ]


def assembly(b: Builder, x: Value, at: Callable[[str], Value]) -> Value:
    return b.inline_asm(inputs=[x], results=[x.type], assembly="nop", constraints="=d,d")


def in_place(b: Builder, x: Value, at: Callable[[str], Value]) -> Value:
    b.store(at("x"), x)
    return x


def read_back(b: Builder, x: Value, at: Callable[[str], Value]) -> Value:
    b.store(at("s"), x)
    made: Value = b.load(at("s"))
    return made


def volatile_of_others(b: Builder, x: Value, at: Callable[[str], Value]) -> Value:
    """Add to what other programs wrote."""
    known = b.load(at("s"), volatile=True)
    b.store(at("s"), b.add(known, x))
    made: Value = b.add(known, x)
    return made


def old_value(b: Builder, x: Value, at: Callable[[str], Value]) -> Value:
    made: Value = b.atomic_rmw(at("s"), x, kind="add", order="relaxed")
    return made


def atomic_maximum(b: Builder, x: Value, at: Callable[[str], Value]) -> Value:
    b.atomic_rmw(at("out"), x, kind="max", order="relaxed")
    return x


def exchange(b: Builder, x: Value, at: Callable[[str], Value]) -> Value:
    made: Value = b.atomic_rmw(at("s"), x, kind="xchg", order="relaxed")
    return made


def lock(b: Builder, x: Value, at: Callable[[str], Value]) -> Value:
    """Take a lock, add to an array, and give it back."""
    zero, one = (b.constant_like(I32, number) for number in (0, 1))
    before, after = Region(), Region()
    with b.at_region(before):
        taken = b.atomic_cas(at("lock"), zero, one, order="acquire")
        b.condition(b.cmp(taken, zero, predicate="ne"), [])
    with b.at_region(after):
        b.yield_([])
    b.region_op("while", [], regions=[before, after], results=[])
    total = b.add(b.load(at("s")), x)
    b.store(at("s"), total)
    b.atomic_rmw(at("lock"), zero, kind="xchg", order="release")
    made: Value = total
    return made


def reinterpreted(b: Builder, x: Value, at: Callable[[str], Value]) -> Value:
    """Store the bits of a float to an output of floats."""
    pointer = at("out")
    wide = b.bitcast(pointer, result=with_element(pointer.type, PointerType(I64)))
    b.store(wide, b.bitcast(x, result=with_element(x.type, I64)))
    return x


#: Construct -> what errors say of it.
CONSTRUCTS: dict[Construct, str] = {
    bits: "makes a float of the bits of one that has a derivative",
    bits_as_numbers: "makes a float of the bits of one that has a derivative",
    while_loop: "computes what has a derivative, and how often it runs is not known before",
    assembly: "has no derivative",
    in_place: "reads x, to which the kernel writes",
    read_back: "reads s, to which the kernel writes",
    volatile_of_others: "reads s, to which the kernel writes",
    old_value: "the old value of what has a derivative is read",
    atomic_maximum: "atomic max has no derivative, only add has",
    exchange: "the old value of what has a derivative is read",
    lock: "reads s, to which the kernel writes",
    reinterpreted: "writes what has a derivative to an output as another type",
}


class FaultyKernel(RandomKernel):
    """A random kernel with a construct, on which its results depend.

    Its parameters are ``x y out n``, then ``c``, whose elements are constants; ``s`` and ``lock``.
    """

    def __init__(self, seed: int, construct: Construct, *, active: bool) -> None:
        """Build the kernel.

        Args:
            active: whether the construct is of what varies with ``x`` or ``y``, or of ``c``.
        """
        self._construct, self._active = construct, active
        self._left = int(np.random.default_rng(seed).integers(0, 8))
        self._first: Value | None = None
        self._carrier: Value | None = None
        self._due: Value | None = None
        self._is_put = False
        super().__init__(seed)

    def _grow(self, steps: int) -> None:
        if self._first is None:
            self._first = self._values[3]  # the first element of x
        is_outer = self._depth == 0
        around, self._carrier = self._carrier, None
        for step in range(steps):
            if not self._is_put and (self._left <= 0 or (is_outer and step == steps - 1)):
                self._put()
            self._left -= 1
            super()._grow(1)
        # the next value that is asked for is yielded or stored
        self._due, self._carrier = self._carrier, around

    def _of(self, shape: tuple[int, ...]) -> Value:
        found, due = super()._of(shape), self._due
        if due is None:
            return found
        outer, self._values, self._due = self._values, [due], None
        fitted = super()._of(shape)
        self._values = outer
        return self._b.mul(found, self._b.add(found, self._b.tanh(fitted)))

    def _loop(self) -> None:
        self._around(super()._loop)

    def _branch(self) -> None:
        self._around(super()._branch)

    def _around(self, build: Callable[[], None]) -> None:
        before, count = self._is_put, len(self._values)
        build()
        if self._is_put and not before:
            self._carrier = self._values[count]

    def _put(self) -> None:
        """Append the construct."""
        b = self._b
        function = self._steps.owner.owner
        arguments = {value.name: value for value in function.arguments}

        def parameter(name: str, type_: PointerType) -> Value:
            if name not in arguments:
                function.argument_attributes.append({})
                arguments[name] = function.body.add_argument(type_, name)
            return arguments[name]

        x = self._pick()
        if self._active:  # what is picked may be made of integers
            varied = self._first
            x = b.add(x, b.splat(varied, result=x.type) if shape_of(x.type) else varied)

        def at(name: str) -> Value:
            if name == "lock":
                return parameter("lock", PointerType(I32))
            pointer = parameter(name, PointerType(F64))
            shape = shape_of(x.type)
            if not shape:
                return pointer
            offsets = b.reshape(
                b.arange(start=0, end=int(np.prod(shape))), result=TileType(shape, I32)
            )
            return b.addptr(b.splat(pointer, result=TileType(shape, pointer.type)), offsets)

        location, b.location = b.location, PLACE
        try:
            self._carrier = self._construct(b, x if self._active else b.load(at("c")), at)
        finally:
            b.location = location
        self._is_put = True
        self._values.append(self._carrier)


__all__ = ["CONSTRUCTS", "ELEMENTS", "PLACE", "Construct", "FaultyKernel"]
