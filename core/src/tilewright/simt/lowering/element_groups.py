"""Lowering of operations on groups of elements: ``map``, inline assembly, external functions."""

from __future__ import annotations

from collections.abc import Callable

from tilewright.errors import LoweringError
from tilewright.ir.core import Operation
from tilewright.ir.ops.control import Map
from tilewright.ir.ops.debug import Extern, InlineAsm
from tilewright.ir.types import TileType, element_type
from tilewright.llvm.assembly.assembly_operands import from_operands, operand_types, to_operands
from tilewright.llvm.assembly.assembly_sites import blamed_at
from tilewright.llvm.emission.registers import constant
from tilewright.simt.assign_layouts import shape_rules
from tilewright.simt.dialect.layout_rules import one_layout, packed, tile_layouts
from tilewright.simt.dialect.op_interface import Interface
from tilewright.simt.dialect.registry import register_interfaces
from tilewright.simt.lowering.emission.context import SimtContext
from tilewright.simt.target.simt_target import SimtTarget, required

#: One group: for each operand, or each result, its elements.
Group = list[list[str]]


def _by_groups(
    context: SimtContext, operation: Operation, pack: int, run: Callable[[Group], Group]
) -> None:
    """Run code on scalars, or on every ``pack`` row-major neighbors of tiles.

    An incomplete group is padded with zeros.
    """
    elements = [element_type(operand.type) for operand in operation.operands]
    tile = next(
        (
            value
            for value in (*operation.operands, *operation.results)
            if isinstance(value.type, TileType)
        ),
        None,
    )
    numbers = context.layout(tile).register_elements() if tile is not None else [0]
    found: Group = [[""] * len(numbers) for _ in operation.results]
    groups: dict[int, list[int]] = {}
    for register, number in enumerate(numbers):
        groups.setdefault(number // pack, []).append(register)
    for registers in groups.values():
        registers.sort(key=numbers.__getitem__)
        padding = pack - len(registers)
        operands = [
            [context.registers[operand][register] for register in registers]
            + [constant(element, 0)] * padding
            for operand, element in zip(operation.operands, elements, strict=True)
        ]
        for names, values in zip(found, run(operands), strict=True):
            for register, value in zip(registers, values, strict=False):
                names[register] = value
    for result, names in zip(operation.results, found, strict=True):
        context.bind(result, names)


def lower_map(context: SimtContext, operation: Map) -> None:
    """Emit the body for each group, from the inputs' elements to the results'."""
    body, pack = operation.body, operation.pack

    def run(group: Group) -> Group:
        values = context.evaluate(body, [name for names in group for name in names])
        context.operation = operation
        return [values[start : start + pack] for start in range(0, len(values), pack)]

    _by_groups(context, operation, pack, run)


# ---- assembly


def lower_inline_asm(context: SimtContext, operation: InlineAsm) -> None:
    """Emit inline assembly for every group of ``pack`` elements.

    See :mod:`tilewright.llvm.assembly.assembly_operands`.
    """
    pack, assembly, constraints = operation.pack, operation.assembly, operation.constraints
    if not (assembly + constraints).isascii():
        raise blamed_at(operation.location, "the text and its constraints must be ASCII")
    results = [element_type(result.type) for result in operation.results]

    def run(group: Group) -> Group:
        operands = [
            part
            for operand, names in zip(operation.inputs, group, strict=True)
            for part in to_operands(context.writer, element_type(operand.type), names)
        ]
        types = [operand_types(element, pack) for element in results]
        made = [result for part in types for result in part]
        try:
            names = required(context.target.assembly, context.target, "inline assembly").emit(
                context, assembly, constraints.replace(" ", ""), made, operands
            )
        except LoweringError as error:
            raise blamed_at(operation.location, str(error)) from None
        found, position = [], 0
        for element, part in zip(results, types, strict=True):
            found.append(
                from_operands(context.writer, element, names[position : position + len(part)], pack)
            )
            position += len(part)
        return found

    _by_groups(context, operation, pack, run)


# ---- functions of libraries


def lower_extern(context: SimtContext, operation: Extern) -> None:
    """Call an external function for every element."""
    symbol, library = operation.symbol, operation.library
    if len(operation.results) != 1:
        raise LoweringError(
            f"extern function {symbol!r} must give one result, not {len(operation.results)}, at "
            f"{operation.location}"
        )
    result = element_type(operation.results[0].type)

    def run(group: Group) -> Group:
        operands = [
            (element_type(operand.type), names[0])
            for operand, names in zip(operation.inputs, group, strict=True)
        ]
        return [[context.target.externs.call(context, symbol, library, result, operands)]]

    _by_groups(context, operation, 1, run)


def _check_packed(operation: Map | InlineAsm, target: SimtTarget) -> str:
    layouts, pack = tile_layouts(operation), operation.pack
    together = pack == 1 or not layouts or packed(layouts[0], pack) == layouts[0]
    return one_layout(operation, target) or (
        "" if together else f"{pack} elements in a row must be {pack} registers in a row"
    )


INTERFACES = register_interfaces(
    {
        "map": Interface(lower_map, shape_rules.grouped, _check_packed),
        "inline_asm": Interface(lower_inline_asm, shape_rules.grouped, _check_packed),
        "extern": Interface(lower_extern, shape_rules.uniform, one_layout),
    }
)
