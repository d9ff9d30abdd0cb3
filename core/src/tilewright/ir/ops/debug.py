"""Printing, checks, hints to the compiler, and code of the target's own."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.ir.core import Operation
from tilewright.ir.declare import (
    Declarations,
    OptionalOperand,
    SingleOperand,
    TypedAttribute,
    VariadicOperand,
)
from tilewright.ir.ops.arithmetic import Unary
from tilewright.ir.ops.rules import require, require_mask
from tilewright.ir.table import Effect, Shape, Trait
from tilewright.ir.types import I1, TileType, Type, element_type, shape_of

#: The feature of a target whose kernels assert what the language implies (that the step of a loop
#: is positive) without debug mode too.
IMPLIED_ASSERTS = "implied_asserts"


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
        require(
            len(values) in (0, rank),
            f"{name} has one entry an axis, not {len(values)} for {operand}",
        )
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
    require(
        all(isinstance(type_, TileType) or type_.is_scalar for type_ in shape.groups["values"]),
        "values must be scalars or tiles",
    )
    return ()


OPS = Declarations()


@OPS.operation(
    "print",
    "print a line of the form 'pid (x, y, z) idx (i, ...) prefix: element' for each element of "
    "each value. If there are several values, the number of the value stands before the element: "
    "'(operand 0) element'. Without values, print one line of the form 'pid (x, y, z) prefix'",
    _print,
    effects=Effect.ORDER,
    traits=Trait.NO_MEMORY | Trait.BITWISE,
)
class Print(Operation):
    __slots__ = ()

    values = VariadicOperand()
    prefix = TypedAttribute[str]()
    hex = TypedAttribute[bool]("whether to print integers in hexadecimal", False)
    each_thread = TypedAttribute[bool](
        "whether every thread of a program instance prints scalars; targets without threads print "
        "them once",
        False,
    )


@OPS.operation(
    "assert",
    "stop the kernel with an error if `condition` is false for an element whose mask is true",
    _condition_and_mask,
    effects=Effect.ORDER,
    traits=Trait.NO_MEMORY | Trait.BITWISE,
)
class Assert(Operation):
    __slots__ = ()

    condition = SingleOperand()
    mask = OptionalOperand()
    message = TypedAttribute[str]()


@OPS.operation(
    "assume",
    "state that `condition` is true. The compiler may rely on this statement",
    _assume,
    effects=Effect.ORDER,
    traits=Trait.NO_MEMORY | Trait.BITWISE,
)
class Assume(Operation):
    __slots__ = ()

    condition = SingleOperand()


@OPS.operation(
    "hint",
    "x unchanged. The attributes tell the compiler what is known about the values of x along each "
    "axis: the length of runs of consecutive values (`contiguity`), a number that divides the "
    "first value of each of these runs (`divisibility`), and the length of runs of equal values "
    "(`constancy`)",
    _hint,
    traits=Trait.ELEMENTWISE | Trait.ADDRESSING | Trait.BITWISE,
    cost=0,
    forwards="x",
)
class Hint(Unary):
    __slots__ = ()

    divisibility = TypedAttribute[tuple[int, ...]](
        "the first value of each contiguous run is a multiple of this", ()
    )
    contiguity = TypedAttribute[tuple[int, ...]]("", ())
    constancy = TypedAttribute[tuple[int, ...]]("", ())


@OPS.operation(
    "inline_asm",
    "run assembly code of the target once for every group of `pack` elements",
    _inline_asm,
    effects=Effect.ORDER,
    explicit_results=True,
)
class InlineAsm(Operation):
    __slots__ = ()

    inputs = VariadicOperand()
    assembly = TypedAttribute[str]()
    constraints = TypedAttribute[str]()
    pure = TypedAttribute[bool](
        "whether the operation may be merged with an equal one, or dropped", True
    )
    pack = TypedAttribute[int](
        "the number of consecutive elements that one run of body processes", 1
    )


@OPS.operation(
    "extern",
    "call a function of a target's library, such as libdevice, once for each element",
    _one_shape,
    effects=Effect.ORDER,
    explicit_results=True,
)
class Extern(Operation):
    __slots__ = ()

    inputs = VariadicOperand()
    symbol = TypedAttribute[str]()
    library = TypedAttribute[str]("", "")
    pure = TypedAttribute[bool](
        "whether the operation may be merged with an equal one, or dropped", True
    )
