"""Tile IR to C. A kernel is one function that runs all programs of a grid, one after the other.

A scalar is a C variable. A tile is an array in row-major order, a field of a struct on the heap, so
that large ones do not overflow the stack. An operation on tiles is a loop. Every value has a
*place*: the C expression of its variable, or ``t->`` and its field. Operations that change no
element and no order (``splat``, ``reshape``, ``hint`` ...) give their operand's place another name:
no value is changed while something reads it.

A long kernel is written in parts, functions that run one after the other: a compiler's time grows
with the square of a function's length.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from tilewright.ir import Function, Operation, Region, Value
from tilewright.ir.types import I1, TileType, Type, element_type, shape_of
from tilewright.plugins.lowerings import Lowerings
from tilewright_c.c_types import kept, literal
from tilewright_c.elementwise import EXPRESSIONS, elementwise
from tilewright_c.prelude import CONVERSIONS, HEADERS

#: The function of every kernel, whose arguments are words of 8 bytes; it returns zero where all is
#: well.
SYMBOL = "tilewright_kernel"
HEAD = f"int {SYMBOL}(const int32_t *grid, const char *words) {{"

#: Statements from which on a kernel is written in parts.
LONG = 500
#: Statements of a part, but for the last ones of its last operation.
LONGEST = 250

#: operation -> what writes its C. The others are taken apart.
lowers: Lowerings[Emitter] = Lowerings("c", __file__)


def lower_kernel(function: Function) -> str:
    """C source of a kernel, all of whose operations are lowered."""
    emitter = Emitter()
    lines, parts = _statements(emitter, function), []
    if len(lines) > LONG:
        emitter = parted = PartedEmitter()
        lines = ["struct scalars scalars, *s = &scalars;", *_statements(parted, function)]
        parts = [f"struct scalars {{ {' '.join(parted.scalars)} }};", *parted.parts]
    tiles = f"struct tiles {{ {' '.join(emitter.tiles)} char end; }};"
    start, end = (
        ["struct tiles *t = malloc(sizeof *t);", "if (!t) return 1;"],
        ["free(t);", "return 0;", "}"],
    )
    return HEADERS + CONVERSIONS + indented([tiles, *parts, HEAD, *start, *lines, *end])


def _statements(emitter: Emitter, function: Function) -> list[str]:
    """All programs of a grid, one after the other."""
    for position, argument in enumerate(function.arguments):
        emitter.define(argument)
        emitter.add(
            f"memcpy(&{emitter.at(argument)}, words + {8 * position}, sizeof "
            f"{emitter.at(argument)});"
        )
    emitter.add("int32_t pid[3];")
    for axis in (2, 1, 0):
        emitter.open(f"for (pid[{axis}] = 0; pid[{axis}] < grid[{axis}]; pid[{axis}]++)")
    emitter.region(function.body)
    for _ in range(3):
        emitter.close()
    return emitter.lines


def indented(lines: Sequence[str]) -> str:
    depth, text = 0, ""
    for line in lines:
        depth -= line.startswith("}")
        text += "  " * depth + line + "\n"
        depth += line.endswith("{")
    return text


class Emitter:
    """The statements of a kernel, and the places of its values."""

    lowerings = lowers

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.tiles: list[str] = []
        self.places: dict[Value, str] = {}
        self._numbers = itertools.count()

    def add(self, line: str) -> None:
        self.lines.append(line)

    def open(self, head: str) -> None:
        self.add(f"{head} {{")

    def close(self) -> None:
        self.add("}")

    # ---- places

    def new_place(self, type_: Type) -> str:
        """A variable, or a field for a tile."""
        name = f"v{next(self._numbers)}"
        if isinstance(type_, TileType):
            self.tiles.append(f"{kept(type_)} {name}[{type_.numel}];")
            return f"t->{name}"
        self.add(f"{kept(type_)} {name};")
        return name

    def define(self, value: Value, expression: str = "") -> None:
        """Give a value a place, and the elements of an expression of ``i``."""
        self.places[value] = self.new_place(value.type)
        if expression:
            self.each(value.type, f"{self.at(value)} = {expression};")

    def at(self, value: Value, index: str = "i") -> str:
        """An element of a value, as it is kept; a scalar is its own, and so is the place of a
        scalar that a tile shares.
        """
        return self.element(self.places[value], index)

    @staticmethod
    def element(place: str, index: str = "i") -> str:
        return f"{place}[{index}]" if place.startswith("t->") else place

    # ---- statements

    def each(self, type_: Type, statement: str) -> None:
        """Run a statement for each element ``i`` of a type."""
        self.add(
            f"for (uint32_t i = 0; i < {type_.numel}; i++) {{ {statement} }}"
            if isinstance(type_, TileType)
            else statement
        )

    def assign(self, targets: Sequence[Value], region: Region) -> None:
        """Give the values that a region yields to ``targets``, as if all were read before any is
        written.
        """
        assert region.terminator is not None
        written = {self.places[target] for target in targets}
        sources = []
        for target, value in zip(targets, region.terminator.group("values"), strict=True):
            place = self.places[value]
            if place in written and place != self.places[target]:
                place = self.new_place(value.type)
                self.each(value.type, f"{self.element(place)} = {self.at(value)};")
            sources.append(place)
        for target, place in zip(targets, sources, strict=True):
            if place != self.places[target]:
                self.each(target.type, f"{self.at(target)} = {self.element(place)};")

    def region(self, region: Region) -> None:
        """The operations of a region, without its terminator."""
        for operation in region:
            if operation.spec.terminator:
                return
            self.operation(operation)

    def operation(self, operation: Operation) -> None:
        """An operation, with its regions."""
        self.lowerings.functions[operation.name](self, operation)


class PartedEmitter(Emitter):
    """Writes a long kernel: stretches of its statements are functions, ``parts``, which share the
    scalars, fields of a struct too.
    """

    def __init__(self) -> None:
        super().__init__()
        self.scalars: list[str] = []
        self.parts: list[str] = []
        #: where the next part begins: all before it, in the same region, is in parts
        self._begin = 0

    def new_place(self, type_: Type) -> str:
        place = super().new_place(type_)
        if isinstance(type_, TileType):
            return place
        self.scalars.append(self.lines.pop())
        return f"s->{place}"

    def region(self, region: Region) -> None:
        outer, self._begin = self._begin, len(self.lines)
        super().region(region)
        self._begin = outer

    def operation(self, operation: Operation) -> None:
        super().operation(operation)
        if len(self.lines) - self._begin >= LONGEST:
            name, shared = (
                f"part{len(self.parts)}",
                "const int32_t *grid, const int32_t *pid, struct tiles *t, struct scalars *s",
            )
            self.parts += [
                f"static __attribute__((noinline)) void {name}({shared}) {{",
                *self.lines[self._begin :],
                "}",
            ]
            self.lines[self._begin :] = [f"{name}(grid, pid, t, s);"]
            self._begin += 1


# ---- elements


@lowers(*EXPRESSIONS, "cast")
def _elementwise(e: Emitter, operation: Operation) -> None:
    e.define(
        operation.result, elementwise(operation, [e.at(operand) for operand in operation.operands])
    )


@lowers("bitcast")
def _bitcast(e: Emitter, operation: Operation) -> None:
    (source,) = operation.operands
    e.define(operation.result)
    e.each(
        source.type,
        f"{{ {kept(source.type)} x = {e.at(source)}; memcpy(&{e.at(operation.result)}, &x, "
        "sizeof x); }",
    )


@lowers("constant")
def _constant(e: Emitter, operation: Operation) -> None:
    e.places[operation.result] = literal(operation.attribute("value"), operation.result.type)


@lowers("arange")
def _arange(e: Emitter, operation: Operation) -> None:
    e.define(
        operation.result,
        f"{literal(operation.attribute('start'), element_type(operation.result.type))} + "
        "(int32_t)i",
    )


@lowers("program_id", "num_programs")
def _program(e: Emitter, operation: Operation) -> None:
    e.places[operation.result] = (
        f"{'pid' if operation.name == 'program_id' else 'grid'}[{operation.attribute('axis')}]"
    )


# ---- shapes


@lowers("splat", "reshape")
def _same_elements(e: Emitter, operation: Operation) -> None:
    e.places[operation.result] = e.places[operation.operands[0]]


def strides_of(shape: Sequence[int]) -> list[int]:
    """Elements from one index of an axis to the next, in row-major order."""
    return [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]


def _strided(e: Emitter, operation: Operation, strides: Sequence[int]) -> None:
    """Select for each element the operand's element at the dot product with ``strides``."""
    shape = shape_of(operation.result.type)
    coordinates = [
        f"i / {stride} % {extent}" for stride, extent in zip(strides_of(shape), shape, strict=True)
    ]
    terms = [f"{at} * {stride}" for at, stride in zip(coordinates, strides, strict=True) if stride]
    e.define(operation.result, e.at(operation.operands[0], " + ".join(terms) or "0"))


@lowers("broadcast")
def _broadcast(e: Emitter, operation: Operation) -> None:
    shape = shape_of(operation.operands[0].type)
    _strided(
        e,
        operation,
        [
            0 if extent == 1 else stride
            for extent, stride in zip(shape, strides_of(shape), strict=True)
        ],
    )


@lowers("permute")
def _permute(e: Emitter, operation: Operation) -> None:
    strides = strides_of(shape_of(operation.operands[0].type))
    _strided(e, operation, [strides[axis] for axis in operation.attribute("order")])


# ---- memory


@lowers("load")
def _load(e: Emitter, operation: Operation) -> None:
    result, mask, other = operation.result, operation.operand("mask"), operation.operand("other")
    e.define(result)
    to, pointer = e.at(result), e.at(operation.operands[0])
    read = (
        f"{to} = *(uint8_t *){pointer} != 0;"
        if element_type(result.type) is I1
        else f"memcpy(&{to}, (void *){pointer}, sizeof {to});"
    )
    if mask is not None:
        read = f"if ({e.at(mask)}) {read} else {to} = {e.at(other) if other is not None else 0};"
    e.each(result.type, read)


@lowers("store")
def _store(e: Emitter, operation: Operation) -> None:
    (pointer, value), mask = operation.operands[:2], operation.operand("mask")
    write = (
        f"{{ {kept(value.type)} x = {e.at(value)}; memcpy((void *){e.at(pointer)}, &x, "
        "sizeof x); }"
    )
    e.each(value.type, f"if ({e.at(mask)}) {write}" if mask is not None else write)


@lowers("barrier")
def _nothing(e: Emitter, operation: Operation) -> None:
    """One program runs at a time, one element after the other."""


# ---- reductions


@lowers("reduce")
def _reduce(e: Emitter, operation: Operation) -> None:
    axis, shape, (combine,) = (
        operation.attribute("axis"),
        shape_of(operation.operands[0].type),
        operation.regions,
    )
    count, extent, inner = len(operation.operands), shape[axis], math.prod(shape[axis + 1 :])
    lefts, rights = combine.arguments[:count], combine.arguments[count:]
    for result in operation.results:
        e.define(result)
    e.open(
        f"for (uint32_t o = 0; o < {math.prod(shape[:axis])}; o++) for (uint32_t n = 0; n < "
        f"{inner}; n++)"
    )
    for left, source in zip(lefts, operation.operands, strict=True):
        e.define(left, e.at(source, f"o * {extent * inner} + n"))
    e.open(f"for (uint32_t k = 1; k < {extent}; k++)")
    for right, source in zip(rights, operation.operands, strict=True):
        e.define(right, e.at(source, f"(o * {extent} + k) * {inner} + n"))
    e.region(combine)
    e.assign(lefts, combine)
    e.close()
    for result, left in zip(operation.results, lefts, strict=True):
        e.add(f"{e.at(result, f'o * {inner} + n')} = {e.at(left)};")
    e.close()


# ---- control flow


@lowers("if")
def _if(e: Emitter, operation: Operation) -> None:
    for result in operation.results:
        e.define(result)
    for region, head in zip(
        operation.regions, (f"if ({e.at(operation.operands[0])}) {{", "} else {"), strict=True
    ):
        e.add(head)
        e.region(region)
        e.assign(operation.results, region)
    e.close()


@lowers("for")
def _for(e: Emitter, operation: Operation) -> None:
    (body,), (lower, upper, step) = (
        operation.regions,
        (e.at(value) for value in operation.operands[:3]),
    )
    counter, *carried = body.arguments
    for argument, result, init in zip(
        carried, operation.results, operation.group("inits"), strict=True
    ):
        e.define(result, e.at(init))
        e.places[argument] = e.places[result]
    e.define(counter, lower)
    # Counted beforehand: the counter of a narrow type may pass its limit in the step after the last
    # iteration.
    trips = (
        f"{lower} < {upper} && {step} > 0 ? ((uint64_t){upper} - (uint64_t){lower} - 1) / "
        f"(uint64_t){step} + 1 : 0"
    )
    e.open(f"for (uint64_t trips = {trips}; trips; trips--, {e.at(counter)} += {step})")
    e.region(body)
    e.assign(operation.results, body)
    e.close()


@lowers("while")
def _while(e: Emitter, operation: Operation) -> None:
    before, after = operation.regions
    assert before.terminator is not None
    for argument, init in zip(before.arguments, operation.operands, strict=True):
        e.define(argument, e.at(init))
    for argument, result in zip(after.arguments, operation.results, strict=True):
        e.define(result)
        e.places[argument] = e.places[result]
    e.open("for (;;)")
    e.region(before)
    e.assign(operation.results, before)
    e.add(f"if (!{e.at(before.terminator.operands[0])}) break;")
    e.region(after)
    e.assign(before.arguments, after)
    e.close()
