"""Rules of branches and of maps, whose regions are transposed in place."""

from __future__ import annotations

from tilewright.derivatives.adjoint.adjoint_builder import AdjointBuilder
from tilewright.derivatives.adjoint.rules import transposes
from tilewright.derivatives.cotangent_types import is_float
from tilewright.derivatives.refusals import refusal
from tilewright.ir.core import Region, Value
from tilewright.ir.ops.control import If, Map
from tilewright.ir.types import element_type


@transposes(If, "of the region that runs")
def branch(builder: AdjointBuilder, operation: If, *cotangents: Value | None) -> None:
    closure = builder.closure(operation)
    before = [builder.take_cotangent(value) for value in closure]
    outer, primal = builder.cotangents, dict(builder.primal)
    regions = []
    for region in operation.regions:
        assert region.last is not None
        made = Region()
        builder.cotangents = dict(zip(closure, before, strict=True))
        with builder.b.at_region(made):
            for value, cotangent in zip(region.last.operands, cotangents, strict=True):
                builder.add_cotangent(value, cotangent)
            builder.replay(region)
            builder.transpose(region)
            builder.b.yield_([builder.cotangents[value] for value in closure])
        builder.primal = dict(primal)
        regions.append(made)
    builder.cotangents = outer
    found = builder.b.region_op(
        "if",
        builder.primal[operation.condition],
        regions=regions,
        results=[value.type for value in before],
    ).results
    builder.cotangents.update(zip(closure, found, strict=True))


@transposes(Map, "the derivative of the body, for each group of elements")
def map_(builder: AdjointBuilder, operation: Map, *cotangents: Value | None) -> None:
    if builder.closure(operation):
        raise refusal(
            operation,
            "its function reads what has a derivative from outside of it",
            "pass the value to map_elementwise as one more tile",
        )
    b, body, pack = builder.b, operation.body, operation.pack
    assert body.last is not None
    floats = [i for i, result in enumerate(operation.results) if is_float(result)]
    dys = [builder.or_zero(cotangents[i], operation.results[i]) for i in floats]
    wanted = [i for i, value in enumerate(operation.inputs) if value in builder.varied]
    inputs = [*(builder.primal[value] for value in operation.inputs), *dys]
    made = Region([element_type(value.type) for value in inputs for _ in range(pack)])
    count = len(body.arguments)
    outer, primal = builder.cotangents, dict(builder.primal)
    builder.cotangents = {}
    builder.primal.update(zip(body.arguments, made.arguments[:count], strict=True))
    with b.at_region(made):
        for place, i in enumerate(floats):
            for j in range(pack):
                cotangent = made.arguments[count + place * pack + j]
                builder.add_cotangent(body.last.operands[i * pack + j], cotangent)
        builder.replay(body)
        builder.transpose(body)
        own = [body.arguments[i * pack + j] for i in wanted for j in range(pack)]
        b.yield_([builder.take_cotangent(value) for value in own])
    builder.cotangents, builder.primal = outer, primal
    types = [builder.zero(operation.inputs[i].type).type for i in wanted]
    found = b.region_op("map", inputs, regions=[made], results=types, pack=pack).results
    for i, cotangent in zip(wanted, found, strict=True):
        builder.add_cotangent(operation.inputs[i], cotangent)
