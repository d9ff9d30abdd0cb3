"""Functions that are compiled on their own, and calls of them.

    i1 tw.NAME(ptr args, i32 x, i32 y, i32 z, parts of each argument …, ptr where each part of each
    result goes …)

``args`` are the kernel's slots and x, y, z the running program. Tiles are passed by the addresses
of buffers, of which the callee writes only those of results. It returns true where the kernel must
stop. A function is written when it is first called.
"""

from __future__ import annotations

from tilewright.ir.core import Function, Operation, Value
from tilewright.ir.ops.control import Call
from tilewright.ir.types import TileType
from tilewright_cpu.codegen.context import Buffer, Context, KernelState
from tilewright_cpu.codegen.control.control_flow import assign
from tilewright_cpu.codegen.control.functions import begin_function, end_function, load_grid
from tilewright_cpu.codegen.control.region import lower_region
from tilewright_cpu.codegen.control.scalar_operands import bind_parts, part_types, typed_parts


def callee_symbol(name: str) -> str:
    """The LLVM name of a function of the module, in quotes where it needs them."""
    plain = f"tw.{name}"
    return (
        plain
        if all(c.isalnum() or c in "._-$" for c in plain)
        else '"' + "".join(c if c.isprintable() and c not in '"\\' else "_" for c in plain) + '"'
    )


def lower_call(context: Context, operation: Call) -> None:
    """``call``."""
    writer = context.writer
    symbol = _symbol(context.state, operation.callee)
    operands: list[tuple[str, str]] = [
        ("ptr", "%args"),
        *(("i32", name) for name in context.program_ids),
    ]
    for value in operation.arguments:
        operands.extend(
            [("ptr", context.materialize(value).pointer)]
            if isinstance(value.type, TileType)
            else typed_parts(context, value)
        )
    buffers: dict[Value, Buffer] = {}
    places: dict[Value, list[str]] = {}
    for result in operation.results:
        if isinstance(result.type, TileType):
            buffers[result] = context.new_buffer(result.type.shape, result.type.element)
            operands.append(("ptr", buffers[result].pointer))
        else:
            places[result] = [writer.alloca(type_, 1, 8) for type_ in part_types(result.type)]
            operands.extend(("ptr", place) for place in places[result])
    stopped = writer.call(symbol, "i1", operands)
    with writer.when(stopped, likely=False):
        context.stop()
    for result in operation.results:
        if result in buffers:
            context.bind_buffer(result, buffers[result])
            continue
        loaded = [
            writer.load(type_, place, 8)
            for type_, place in zip(part_types(result.type), places[result], strict=True)
        ]
        bind_parts(context, result, iter(loaded))


def _symbol(state: KernelState, name: str) -> str:
    """The LLVM name of a function, which is written if this is its first call."""
    symbol = state.callees.get(name)
    if symbol is None:
        symbol = state.callees[name] = callee_symbol(name)
        _write(state, state.functions[name], symbol)
    return symbol


def _write(state: KernelState, function: Function, symbol: str) -> None:
    """Write a function."""
    tiles = [isinstance(argument.type, TileType) for argument in function.arguments]
    parameters: list[tuple[str, str]] = [("ptr", "args"), ("i32", "x"), ("i32", "y"), ("i32", "z")]
    names: list[list[str]] = []
    for argument, is_tile in zip(function.arguments, tiles, strict=True):
        types = ["ptr"] if is_tile else part_types(argument.type)
        names.append([f"%in.{len(parameters) + at}" for at in range(len(types))])
        parameters += [(type_, name[1:]) for type_, name in zip(types, names[-1], strict=True)]
    results = [
        ["ptr"] if isinstance(type_, TileType) else part_types(type_)
        for type_ in function.result_types
    ]
    places: list[list[str]] = []
    for types in results:
        places.append([f"%out.{len(parameters) + at}" for at in range(len(types))])
        parameters += [("ptr", name[1:]) for name in places[-1]]
    writer = state.module.function(symbol, parameters, "i1", linkage="internal")
    frame = begin_function(state, writer, function)
    context = frame.context
    context.program_ids = ("%x", "%y", "%z")
    load_grid(context)
    for argument, own in zip(function.arguments, names, strict=True):
        if isinstance(argument.type, TileType):
            context.bind_buffer(
                argument, context.adopt(own[0], argument.type.shape, argument.type.element)
            )
        else:
            bind_parts(context, argument, iter(own))

    def finish(terminator: Operation) -> None:
        pairs: list[tuple[Value, Buffer]] = []
        for value, own in zip(terminator.operands, places, strict=True):
            if isinstance(value.type, TileType):
                pairs.append((value, context.adopt(own[0], value.type.shape, value.type.element)))
                continue
            for (type_, text), place in zip(typed_parts(context, value), own, strict=True):
                writer.store(type_, text, place, 8)
        assign(context, pairs)

    lower_region(context, function.body, finish)
    end_function(frame, "i1 false", "i1 true")


LOWERINGS = {"call": lower_call}
