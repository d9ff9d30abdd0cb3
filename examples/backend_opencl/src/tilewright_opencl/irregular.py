"""Lowerings that ``tilewright_c`` does without: scans, maps, ``while``, gathers, histograms."""

from __future__ import annotations

import math

from tilewright_c.lower import Emitter, Lowering, coordinates, strides_of

from tilewright.ir import Operation
from tilewright.ir.types import I1, element_type, shape_of


def _scan(e: Emitter, operation: Operation) -> None:
    axis, shape, (combine,) = operation.attribute("axis"), shape_of(operation.operands[0].type), operation.regions
    count, extent, inner = len(operation.operands), shape[axis], math.prod(shape[axis + 1 :])
    earlier, later = combine.arguments[:count], combine.arguments[count:]

    def element(k: str) -> str:
        return f"(o * {extent} + {f'{extent - 1} - {k}' if operation.attribute('reverse') else k}) * {inner} + n"

    for result in operation.results:
        e.define(result)
    e.open(f"for (uint32_t o = 0; o < {math.prod(shape[:axis])}; o++) for (uint32_t n = 0; n < {inner}; n++)")
    for total, source, result in zip(earlier, operation.operands, operation.results, strict=True):
        e.define(total, e.at(source, element("0")))
        e.add(f"{e.at(result, element('0'))} = {e.at(total)};")
    e.open(f"for (uint32_t k = 1; k < {extent}; k++)")
    for value, source in zip(later, operation.operands, strict=True):
        e.define(value, e.at(source, element("k")))
    e.region(combine)
    e.assign(earlier, combine)
    for total, result in zip(earlier, operation.results, strict=True):
        e.add(f"{e.at(result, element('k'))} = {e.at(total)};")
    e.close()
    e.close()


def _map(e: Emitter, operation: Operation) -> None:
    (body,), pack = operation.regions, operation.attribute("pack")
    assert body.terminator is not None
    for result in operation.results:
        e.define(result)
    e.open(f"for (uint32_t g = 0; g < {math.prod(shape_of(operation.operands[0].type))}; g += {pack})")
    for number, argument in enumerate(body.arguments):
        e.define(argument, e.at(operation.operands[number // pack], f"g + {number % pack}"))
    e.region(body)
    for number, value in enumerate(body.terminator.group("values")):
        e.add(f"{e.at(operation.results[number // pack], f'g + {number % pack}')} = {e.at(value)};")
    e.close()


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


def _gather(e: Emitter, operation: Operation) -> None:
    (source, index), axis = operation.operands, operation.attribute("axis")
    shape, at = shape_of(source.type), coordinates(shape_of(operation.result.type))
    # An index out of range is undefined; so that it does no harm, it is the last one.
    picked = f"min((uint64_t){e.at(index)}, (uint64_t){shape[axis] - 1})"
    terms = [f"({picked if position == axis else at[position]}) * {stride}" for position, stride in enumerate(strides_of(shape))]
    e.define(operation.result, e.at(source, " + ".join(terms)))


def _histogram(e: Emitter, operation: Operation) -> None:
    values, mask, bins = operation.operands[0], operation.operand("mask"), operation.attribute("bins")
    e.define(operation.result, "0")
    counted = f"(uint64_t){e.at(values)} < {bins}"
    if element_type(values.type) is not I1:
        counted = f"{e.at(values)} >= 0 && {counted}"
    if mask is not None:
        counted = f"{e.at(mask)} && {counted}"
    e.each(values.type, f"if ({counted}) {e.at(operation.result, f'(uint32_t){e.at(values)}')}++;")


LOWERINGS: dict[str, Lowering] = {"scan": _scan, "map": _map, "while": _while, "gather": _gather, "histogram": _histogram}
