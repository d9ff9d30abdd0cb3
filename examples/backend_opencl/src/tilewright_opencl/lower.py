"""Tile IR to OpenCL C.

The statements of a kernel are those of ``tilewright_c``, from its
:class:`~tilewright_c.lower.Emitter`; this module replaces the ones that OpenCL writes differently,
or leaves undefined where a C compiler has an option.

A work-item runs several programs one after the other, at a fixed stride through the grid. Its tiles
are in memory that the launch provides.
"""

from __future__ import annotations

from tilewright_c import lower as c
from tilewright_c.c_types import kept, kind
from tilewright_c.elementwise import elementwise
from tilewright_c.prelude import CONVERSIONS

from tilewright.ir import Function, Operation
from tilewright.ir.types import F32, F64, I1, TileType, Type, bit_width, element_type
from tilewright.plugins.lowerings import Lowerings
from tilewright_opencl.prelude import HEADERS

#: The function of every kernel. A grid, the memory of the first work-item, and the address of the
#: arguments, a word of 8 bytes each.
SYMBOL = "tilewright_kernel"
HEAD = (
    f"__kernel void {SYMBOL}(uint32_t x, uint32_t y, uint32_t z, uint64_t memory, uint64_t given)"
)

lowers: Lowerings[c.Emitter] = Lowerings("opencl", __file__)
lowers.functions.update(c.lowers.functions)


class Emitter(c.Emitter):
    """The statements of a kernel.

    Attributes:
        bytes: that the tiles of a work-item take at most.
    """

    lowerings = lowers

    def __init__(self) -> None:
        super().__init__()
        self.bytes = 8

    def new_place(self, type_: Type) -> str:
        if isinstance(type_, TileType):
            self.bytes += -(-type_.numel * max(1, bit_width(type_.element) // 8) // 8) * 8
        return super().new_place(type_)


def lower_kernel(function: Function) -> tuple[str, int]:
    """Return a kernel's OpenCL C, and the bytes of memory per work-item.

    All of the kernel's operations must have lowerings.
    """
    e = Emitter()
    for position, argument in enumerate(function.arguments):
        e.define(
            argument, _argument(f"((__global const uint64_t *)given)[{position}]", argument.type)
        )
    e.open("for (uint64_t p = get_global_id(0); p < (uint64_t)x * y * z; p += get_global_size(0))")
    e.add("const int32_t pid[3] = {p % x, p / x % y, p / x / y}, grid[3] = {x, y, z};")
    e.region(function.body)
    e.close()
    tiles = f"struct tiles {{ {' '.join(e.tiles)} char end; }};"
    own = (
        "__global struct tiles *t = (__global struct tiles *)(memory + get_global_id(0) * "
        f"{e.bytes});"
    )
    return HEADERS + CONVERSIONS + c.indented([tiles, f"{HEAD} {{", own, *e.lines, "}"]), e.bytes


def _argument(word: str, type_: Type) -> str:
    """An argument as it is kept."""
    if type_ is F32 or type_ is F64:
        return f"as_float((uint32_t){word})" if type_ is F32 else f"as_double({word})"
    return f"{word} != 0" if type_ is I1 else f"({kept(type_)}){word}"


def _in_memory(type_: Type, address: str) -> str:
    """What is at an address: a value, as it is kept, or for i1 a byte."""
    return f"*(__global at_{'uint8_t' if element_type(type_) is I1 else kept(type_)} *){address}"


@lowers("load")
def _load(e: c.Emitter, operation: Operation) -> None:
    result, mask, other = operation.result, operation.operand("mask"), operation.operand("other")
    e.define(result)
    truth = " != 0" if element_type(result.type) is I1 else ""
    read = f"{e.at(result)} = {_in_memory(result.type, e.at(operation.operands[0]))}{truth};"
    if mask is not None:
        read = (
            f"if ({e.at(mask)}) {read} else {e.at(result)} = "
            f"{e.at(other) if other is not None else 0};"
        )
    e.each(result.type, read)


@lowers("store")
def _store(e: c.Emitter, operation: Operation) -> None:
    (pointer, value), mask = operation.operands[:2], operation.operand("mask")
    write = f"{_in_memory(value.type, e.at(pointer))} = {e.at(value)};"
    e.each(value.type, f"if ({e.at(mask)}) {write}" if mask is not None else write)


@lowers("bitcast")
def _bitcast(e: c.Emitter, operation: Operation) -> None:
    (source,), result = operation.operands, operation.result
    e.define(result)
    copied = (
        f"{kept(source.type)} x = {e.at(source)}; {kept(result.type)} y; memcpy(&y, &x, sizeof x);"
    )
    e.each(result.type, f"{{ {copied} {e.at(result)} = y; }}")


@lowers("add", "sub", "mul")
def _arithmetic(e: c.Emitter, operation: Operation) -> None:
    """Signed integers wrap around here as they do without a sign."""
    type_, read = operation.result.type, [e.at(operand) for operand in operation.operands]
    if kind(type_) == "i":
        read = [f"(uint64_t){text}" for text in read]
    found = elementwise(operation, read)
    e.define(operation.result, f"({kept(type_)})({found})" if kind(type_) == "i" else found)
