"""Asynchronous products: each is started, and waited for where its result is read.

Outside of pipelined loops that is at once. A product in such a loop that only adds to an accumulator is waited for in the next iteration, after that one's
product was started: one is always under way.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.ir.builder import Builder
from tilewright.ir.core import Function, Operation, Value
from tilewright.simt.ops import PRODUCTS, SIMT_TABLE
from tilewright.simt.products import plan_of
from tilewright.simt.target import SimtTarget


def start_products(function: Function, target: SimtTarget) -> bool:
    """Start the products of a function whose plans are asynchronous, and wait for each; whether there was one."""
    found = False
    for operation in list(function.walk()):
        if operation.name == "simt.dot" and plan_of(operation, target).asynchronous:
            tile, token = start(operation)
            wait(Builder(operation.parent, operation.next, operation.location), [token], [tile], operation.results[0])
            operation.erase()
            found = True
    return found


def start(product: Operation) -> tuple[Value, Value]:
    """Start a product in place of computing it; (the tile in flight, the token). The product stays, for its readers to be given something else."""
    builder = Builder.at(product)
    made = builder.create(SIMT_TABLE["simt.dot_start"], [[operand] for operand in product.operands], product.attributes)
    tile, token = made.results
    tile.name, tile.layout = product.results[0].name, product.results[0].layout
    return tile, token


def wait(builder: Builder, tokens: list[Value], tiles: list[Value], readers: Value | None = None) -> list[Value]:
    """Wait for tokens; the tiles that may be read then, the first of which the readers of ``readers`` get."""
    made = builder.create(SIMT_TABLE["simt.wait"], [tokens, tiles], {}).results
    for tile, before in zip(made, tiles, strict=True):
        tile.name, tile.layout = before.name, before.layout
    if readers is not None:
        readers.replace_all_uses(made[0])
    return made


@dataclass(frozen=True, slots=True)
class Accumulation:
    """A product of a loop that only adds to what the loop carries as number ``index``."""

    product: Operation
    index: int


def accumulation(loop: Operation, target: SimtTarget) -> Accumulation | None:
    """The only asynchronous product of a loop, if it only adds to an accumulator that nothing else in the loop reads."""
    (body,) = loop.regions
    products = [operation for operation in body if operation.name == "simt.dot" and plan_of(operation, target).asynchronous]
    last = body.terminator
    assert last is not None
    if len(products) != 1:
        return None
    (product,) = products
    accumulator, result = product.operands[2], product.results[0]
    if accumulator.owner is not body or accumulator.index == 0 or len(accumulator.uses) != 1 or set(result.uses) != {last} or result.uses[last] != 1:
        return None
    index = accumulator.index - 1
    return Accumulation(product, index) if last.operands[index] is result else None


def no_product(builder: Builder) -> Value:
    """A token of products of which there are none."""
    return builder.create(SIMT_TABLE["simt.commit"], [], {}, (PRODUCTS,)).results[0]
