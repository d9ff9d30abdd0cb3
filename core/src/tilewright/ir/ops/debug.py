"""Printing, checks, hints to the compiler, and code of the target's own."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.ir.ops.rules import require, require_mask
from tilewright.ir.table import Attribute, Effect, Kind, Operand, OpSpec, Shape, Trait
from tilewright.ir.types import I1, TileType, Type, element_type, shape_of


def _condition_and_mask(shape: Shape) -> Sequence[Type]:
    condition = shape.type("condition")
    require(element_type(condition) is I1, f"condition must be i1, not {condition}")
    require_mask(shape.optional("mask"), condition)
    return ()


def _assume(shape: Shape) -> Sequence[Type]:
    require(shape.type("condition") is I1, f"condition must be i1, not {shape.type('condition')}")
    return ()


def _hint(shape: Shape) -> Sequence[Type]:
    operand = shape.type("x")
    rank = max(1, len(shape_of(operand)))
    for name in ("divisibility", "contiguity", "constancy"):
        values = shape.attributes[name]
        require(len(values) in (0, rank), f"{name} has one entry an axis, not {len(values)} for {operand}")
        require(all(value >= 1 for value in values), f"{name} must be positive, not {values}")
    return (operand,)


def _one_shape(shape: Shape) -> Sequence[Type]:
    shapes = {shape_of(type_) for type_ in (*shape.groups["inputs"], *shape.results)}
    require(len(shapes) <= 1, "inputs and results must have one shape")
    return shape.results


def _inline_asm(shape: Shape) -> Sequence[Type]:
    require(shape.attributes["pack"] >= 1, "pack must be positive")
    return _one_shape(shape)


def _print(shape: Shape) -> Sequence[Type]:
    require(all(isinstance(type_, TileType) or type_.is_scalar for type_ in shape.groups["values"]), "values must be scalars or tiles")
    return ()


OPS: tuple[OpSpec, ...] = (
    OpSpec(
        "print",
        "print, for each value and element, 'pid (x, y, z) idx (i, ...) prefix: element'; without values 'pid (x, y, z) prefix'",
        (Operand("values", kind=Kind.VARIADIC),),
        _print,
        (Attribute("prefix", "str"), Attribute("hex", "bool", "integers in hexadecimal", False)),
        effects=Effect.ORDER,
    ),
    OpSpec(
        "assert",
        "stop the kernel with an error where condition is false and the mask holds",
        (Operand("condition"), Operand("mask", kind=Kind.OPTIONAL)),
        _condition_and_mask,
        (Attribute("message", "str"),),
        effects=Effect.ORDER,
    ),
    OpSpec("assume", "the compiler may rely on condition", (Operand("condition"),), _assume, effects=Effect.ORDER),
    OpSpec(
        "hint",
        "x itself, with a promise an axis: values divisible by, runs of consecutive values of length, runs of equal values of length",
        (Operand("x"),),
        _hint,
        (
            Attribute("divisibility", "ints", "the first value of each contiguous run is a multiple of this", ()),
            Attribute("contiguity", "ints", "", ()),
            Attribute("constancy", "ints", "", ()),
        ),
        traits=Trait.ELEMENTWISE,
        cost=0,
    ),
    OpSpec(
        "inline_asm",
        "the target's assembly, run on every group of pack elements",
        (Operand("inputs", kind=Kind.VARIADIC),),
        _inline_asm,
        (
            Attribute("assembly", "str"),
            Attribute("constraints", "str"),
            Attribute("pure", "bool", "may be merged or dropped", True),
            Attribute("pack", "int", "elements a run", 1),
        ),
        effects=Effect.ORDER,
        explicit_results=True,
    ),
    OpSpec(
        "extern",
        "a function of a library of the target's, element by element",
        (Operand("inputs", kind=Kind.VARIADIC),),
        _one_shape,
        (Attribute("symbol", "str"), Attribute("library", "str", "", ""), Attribute("pure", "bool", "may be merged or dropped", True)),
        effects=Effect.ORDER,
        explicit_results=True,
    ),
)
