"""Whole functions: the kernel with its loop over programs, and callees.

    void NAME(ptr args, i64 lo, i64 hi)

runs the programs lo .. hi-1 of a grid, numbered x + gx * (y + gy * z). ``args`` is an array of 8-byte slots: the grid's extents (3), a pointer to the
status block, one that is reserved, then the arguments in order: integers and floats in the low bytes, pointers, and for a descriptor its base, extents
and strides.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilewright.ir.core import Function, Module, Operation, Value
from tilewright.ir.types import I1, DescriptorType, TileType
from tilewright.llvm.writer import Block, FunctionWriter, ModuleWriter
from tilewright_cpu.lowering.analysis import Analysis, is_tile
from tilewright_cpu.lowering.context import Buffer, Context, KernelState
from tilewright_cpu.lowering.control import assign
from tilewright_cpu.lowering.registers import register_type
from tilewright_cpu.lowering.soft_half import SOFT_HALF, needs_soft_half
from tilewright_cpu.lowering.statements import lower_region

#: Slots of the argument array before the first argument.
FIRST_ARGUMENT = 5
#: What the status block's first word says when memory for large tiles could not be had.
OUT_OF_MEMORY = 2


class KernelText:
    """LLVM IR of a module and what is to be known about it.

    Attributes:
        text: the module.
        symbol: the kernel's name.
        messages: what assertions say, by index.
        arena_bytes: heap memory a running kernel takes a thread.
    """

    __slots__ = ("arena_bytes", "messages", "symbol", "text")

    def __init__(self, text: str, symbol: str, messages: list[str], arena_bytes: int) -> None:
        self.text, self.symbol, self.messages, self.arena_bytes = text, symbol, messages, arena_bytes


def callee_symbol(name: str) -> str:
    """The LLVM name of a function of the module, in quotes where it needs them."""
    plain = f"tw.{name}"
    return plain if all(c.isalnum() or c in "._-$" for c in plain) else '"' + "".join(c if c.isprintable() and c not in '"\\' else "_" for c in plain) + '"'


def write_module(module: Module, arch: str, cpu: str, features: tuple[str, ...], vector_bits: int, options: Mapping[str, Any]) -> KernelText:
    """The LLVM IR of a module with one kernel."""
    attributes = ["nounwind", '"no-trapping-math"="true"']
    if arch == "x86-64":
        attributes += [f'"prefer-vector-width"="{vector_bits}"', f'"min-legal-vector-width"="{vector_bits}"']
    if cpu:
        attributes.append(f'"target-cpu"="{cpu}"')
    if features:
        attributes.append(f'"target-features"="{",".join(features)}"')
    text = ModuleWriter(" ".join(attributes))
    names = frozenset(feature[1:] for feature in features if feature.startswith("+"))
    if needs_soft_half(arch, names):
        text.add_global(SOFT_HALF)
    state = KernelState(text, arch, vector_bits // 8, names, options)
    arena = 0
    kernel = module.kernel
    for function in module.functions.values():
        if function is not kernel:
            arena += _write_callee(state, function)
    symbol = kernel.name if all(c.isalnum() or c == "_" for c in kernel.name) and kernel.name.isascii() else "kernel"
    arena += _write_kernel(state, kernel, symbol)
    return KernelText(text.text(), symbol, state.messages, arena)


def _start(state: KernelState, writer: FunctionWriter, function: Function) -> tuple[Context, Analysis, Block]:
    analysis = Analysis(function, state.vector_bytes)
    context = Context(state, writer, function, analysis)
    start = writer.new_block("start")
    writer.current.terminator = f"  br label %{start.label}"
    writer.place(start)
    context.stop_block = writer.new_block("stop")
    return context, analysis, start


def _finish(context: Context, entry: Block, start: Block, result: str, stopped: str) -> int:
    """Write the ends of a function and, in its entry, the allocation of its heap memory; bytes of that."""
    writer = context.writer
    parts, size = context.arena_parts, context.arena_bytes
    assert context.stop_block is not None

    def leave(text: str) -> None:
        if size:
            writer.call("free", "void", [("ptr", "%arena.raw")])
        writer.ret(text)

    leave(result)
    writer.place(context.stop_block)
    leave(stopped)
    if size:
        writer.module.declare("malloc", "ptr", ["i64"])
        entry.lines += [
            f"  %arena.raw = call ptr @malloc(i64 {size + 64})",
            "  %arena.missing = icmp eq ptr %arena.raw, null",
            "  %arena.number = ptrtoint ptr %arena.raw to i64",
            "  %arena.up = add i64 %arena.number, 63",
            "  %arena.aligned = and i64 %arena.up, -64",
            "  %arena = inttoptr i64 %arena.aligned to ptr",
            *(f"  {name} = getelementptr i8, ptr %arena, i64 {offset}" for name, offset in parts),
        ]
        entry.terminator = f"  br i1 %arena.missing, label %arena.fail, label %{start.label}"
        fail = Block("arena.fail")
        fail.lines = [
            "  %fail.slot = getelementptr i64, ptr %args, i64 3",
            "  %fail.status = load ptr, ptr %fail.slot, align 8",
            f"  %fail.old = cmpxchg ptr %fail.status, i32 0, i32 {OUT_OF_MEMORY} monotonic monotonic, align 4",
        ]
        fail.terminator = f"  ret {stopped}"
        writer.blocks.append(fail)
    return size


def _load_grid(context: Context) -> None:
    writer = context.writer
    grid = []
    for axis in range(3):
        wide = writer.load("i64", writer.gep("i64", "%args", axis), 8)
        grid.append(wide)
    context.grid = tuple(writer.emit(f"trunc i64 {name} to i32") for name in grid)  # type: ignore[assignment]
    context.status = writer.load("ptr", writer.gep("i64", "%args", 3), 8)
    context.state.extra["grid64"] = grid


def _write_kernel(state: KernelState, function: Function, symbol: str) -> int:
    writer = state.module.function(symbol, [("ptr", "args"), ("i64", "lo"), ("i64", "hi")])
    entry = writer.current
    context, analysis, start = _start(state, writer, function)
    _load_grid(context)
    slot = FIRST_ARGUMENT
    for argument, facts in zip(function.arguments, function.argument_attributes, strict=True):
        slot = _load_argument(context, argument, slot, facts.get("padding", "zero"))
    used = {operation.attribute("axis") for operation in analysis.start if operation.name == "program_id"}
    if any(operation.name in ("print", "assert", "call") for operation in analysis.start):
        used = {0, 1, 2}
    _program_loop(context, function, used)
    size = _finish(context, entry, start, "void", "void")
    analysis.detach()
    return size


def _load_argument(context: Context, argument: Value, slot: int, padding: str) -> int:
    """Bind a kernel argument; the slot after it. ``padding`` is what loads from a descriptor give outside the tensor."""
    writer = context.writer

    def load(type_: str, number: int) -> str:
        return writer.load(type_, writer.gep("i64", "%args", number), 8)

    if isinstance(argument.type, DescriptorType):
        from tilewright_cpu.lowering.descriptors import Descriptor

        rank = argument.type.rank
        shape = tuple(load("i64", slot + 1 + axis) for axis in range(rank))
        strides = tuple(load("i64", slot + 1 + rank + axis) for axis in range(rank))
        context.descriptors[argument] = Descriptor(load("ptr", slot), shape, strides, padding)
        return slot + 1 + 2 * rank
    if argument.type is I1:
        context.bind_scalar(argument, writer.emit(f"trunc i8 {load('i8', slot)} to i1"))
    else:
        context.bind_scalar(argument, load(register_type(argument.type), slot))
    return slot + 1


def _program_loop(context: Context, function: Function, used: set[int]) -> None:
    """The loop over programs: the linear number is divided once, then the coordinates count on."""
    writer = context.writer
    gx, gy, _ = context.state.extra["grid64"]
    carried: list[tuple[str, str]] = []
    if used:
        x = writer.emit(f"urem i64 %lo, {gx}")
        rest = writer.emit(f"udiv i64 %lo, {gx}")
        y, z = writer.emit(f"urem i64 {rest}, {gy}"), writer.emit(f"udiv i64 {rest}, {gy}")
        carried = [("i64", x), ("i64", y), ("i64", z)]
    loop = writer.begin_loop("%lo", "%hi", 1, carried)
    if carried:
        context.program_ids = tuple(writer.emit(f"trunc i64 {name} to i32") for name in loop.values)  # type: ignore[assignment]
    lower_region(context, function.body)
    following: list[str] = []
    if carried:
        x, y, z = loop.values
        next_x = writer.emit(f"add i64 {x}, 1")
        wrap_x = writer.emit(f"icmp eq i64 {next_x}, {gx}")
        next_y = writer.emit(f"add i64 {y}, 1")
        wrap_y = writer.emit(f"icmp eq i64 {next_y}, {gy}")
        both = writer.emit(f"and i1 {wrap_x}, {wrap_y}")
        next_z = writer.emit(f"add i64 {z}, 1")
        turned_y = writer.emit(f"select i1 {wrap_y}, i64 0, i64 {next_y}")
        following = [
            writer.emit(f"select i1 {wrap_x}, i64 0, i64 {next_x}"),
            writer.emit(f"select i1 {wrap_x}, i64 {turned_y}, i64 {y}"),
            writer.emit(f"select i1 {both}, i64 {next_z}, i64 {z}"),
        ]
    writer.end_loop(loop, following)


# ---- callees


def argument_operands(context: Context, value: Value) -> list[tuple[str, str]]:
    """(type, operand) of what is passed for one argument of a call."""
    if isinstance(value.type, TileType):
        return [("ptr", context.materialize(value).pointer)]
    if isinstance(value.type, DescriptorType):
        descriptor = context.descriptors[value]
        return [("ptr", descriptor.base), *(("i64", name) for name in (*descriptor.shape, *descriptor.strides))]
    return [(context.llvm_type(value.type), context.scalar(value))]


def _write_callee(state: KernelState, function: Function) -> int:
    parameters: list[tuple[str, str]] = [("ptr", "args"), ("i32", "x"), ("i32", "y"), ("i32", "z")]
    for number, argument in enumerate(function.arguments):
        if isinstance(argument.type, TileType):
            parameters.append(("ptr", f"p{number}"))
        elif isinstance(argument.type, DescriptorType):
            rank = argument.type.rank
            parameters += [("ptr", f"p{number}"), *(("i64", f"p{number}.{part}") for part in range(2 * rank))]
        else:
            parameters.append((register_type(argument.type), f"p{number}"))
    parameters += [("ptr", f"r{number}") for number in range(len(function.result_types))]
    writer = state.module.function(callee_symbol(function.name), parameters, "i1", linkage="internal")
    entry = writer.current
    context, analysis, start = _start(state, writer, function)
    context.program_ids = ("%x", "%y", "%z")
    _load_grid(context)
    for number, argument in enumerate(function.arguments):
        if isinstance(argument.type, TileType):
            buffer = context.adopt(f"%p{number}", argument.type.shape, argument.type.element)
            context.bind_buffer(argument, buffer)
        elif isinstance(argument.type, DescriptorType):
            from tilewright_cpu.lowering.descriptors import Descriptor

            rank = argument.type.rank
            parts = [f"%p{number}.{part}" for part in range(2 * rank)]
            context.descriptors[argument] = Descriptor(f"%p{number}", tuple(parts[:rank]), tuple(parts[rank:]))
        else:
            context.bind_scalar(argument, f"%p{number}")

    def finish(terminator: Operation) -> None:
        pairs: list[tuple[Value, Buffer]] = []
        for number, value in enumerate(terminator.operands):
            if is_tile(value):
                assert isinstance(value.type, TileType)
                pairs.append((value, context.adopt(f"%r{number}", value.type.shape, value.type.element)))
            else:
                writer.store(context.llvm_type(value.type), context.scalar(value), f"%r{number}", 8)
        assign(context, pairs)

    lower_region(context, function.body, finish)
    size = _finish(context, entry, start, "i1 false", "i1 true")
    analysis.detach()
    return size
