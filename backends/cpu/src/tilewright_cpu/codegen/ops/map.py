"""Running a scalar region on the elements of tiles."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright.ir.core import Region
from tilewright.ir.ops.control import Map
from tilewright.ir.types import TileType
from tilewright_cpu.codegen.context import Buffer, Context
from tilewright_cpu.codegen.loops.strip_loop import for_each, for_strips, viewed


def lower_map(context: Context, operation: Map) -> None:
    """Run the body on every group of ``pack`` elements.

    It runs on vectors of groups where it is straight-line code on single elements.
    """
    body, pack = operation.body, operation.pack
    inputs = [context.materialize(operand) for operand in operation.inputs]
    results = []
    for value in operation.results:
        assert isinstance(value.type, TileType)
        results.append(context.new_buffer(value.type.shape, value.type.element))
    groups = inputs[0].numel // pack
    if pack == 1 and context.is_straight_line(body):
        width = min(context.elements_for(buffer.element) for buffer in (*inputs, *results))
        for_strips(
            context.writer,
            groups,
            width,
            lambda index, lanes: _strip(context, body, inputs, results, index, lanes),
        )
    else:
        for_each(
            context.writer,
            groups,
            lambda index: _group(context, body, inputs, results, index, pack),
        )
    for value, buffer in zip(operation.results, results, strict=True):
        context.bind_buffer(value, buffer)


def _strip(
    context: Context,
    body: Region,
    inputs: list[Buffer],
    results: list[Buffer],
    index: str,
    lanes: int,
) -> None:
    flat_inputs, flat_results = (
        [viewed(buffer, buffer.numel) for buffer in buffers] for buffers in (inputs, results)
    )
    if lanes:
        values = context.evaluate_vectors(
            body, [context.load_vector(buffer, (index,), lanes) for buffer in flat_inputs], lanes
        )
        for buffer, value in zip(flat_results, values, strict=True):
            context.store_vector(buffer, (index,), value, lanes)
        return
    values = context.evaluate_vectors(
        body, [context.load_element(buffer, (index,)) for buffer in flat_inputs], 0
    )
    for buffer, value in zip(flat_results, values, strict=True):
        context.store_element(buffer, (index,), value)


def _group(
    context: Context,
    body: Region,
    inputs: list[Buffer],
    results: list[Buffer],
    index: str,
    pack: int,
) -> None:
    def grouped(buffer: Buffer) -> Buffer:
        return viewed(buffer, buffer.numel // pack, pack)

    arguments = [
        context.load_element(grouped(buffer), (index, position))
        for buffer in inputs
        for position in range(pack)
    ]
    values = context.evaluate_scalars(body, arguments)
    for number, buffer in enumerate(results):
        for position in range(pack):
            context.store_element(
                grouped(buffer), (index, position), values[number * pack + position]
            )


LOWERINGS: dict[str, Callable[[Context, Any], None]] = {"map": lower_map}
