"""A module's kernel with its loop over programs.

    void NAME(ptr args, i64 lo, i64 hi, ptr memory)

runs the programs lo .. hi-1 of a grid, numbered x + gx * (y + gy * z). ``memory`` is the thread's
for its large tiles, the same at all its calls of a launch, 64-byte aligned, and its first bytes are
zero before the first of them (:class:`KernelText`). ``args`` is an array of 8-byte slots: the
grid's extents (3), a pointer to the status block, the list of packed operands (see
:mod:`.gemm.prepack_lookup`) or 0, then the arguments in order: integers and floats in the low
bytes, pointers, and for a descriptor its base, extents and strides. Behind them are the arguments'
bounds in kernels that are compiled with ``debug`` (see :mod:`.sanitizer.bounds`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.ir.core import Function, Module, Value
from tilewright.ir.ops.arithmetic import ProgramId
from tilewright.ir.ops.control import Call
from tilewright.ir.ops.debug import Assert, Print
from tilewright.ir.types import I1, DescriptorType
from tilewright.llvm.emission.debug_locations import LineTable
from tilewright.llvm.emission.registers import register_type
from tilewright.llvm.emission.writer import ModuleWriter
from tilewright.plugins.manifest import Target
from tilewright_cpu.codegen.context import Context, KernelState
from tilewright_cpu.codegen.control.flush_denormals import (
    MACHINES,
    PARAMETERS,
    inner_symbol,
    write_flushing_entry,
)
from tilewright_cpu.codegen.control.functions import begin_function, end_function, load_grid
from tilewright_cpu.codegen.control.region import lower_region
from tilewright_cpu.codegen.intrinsics.soft_half import SOFT_HALF
from tilewright_cpu.codegen.ops.descriptors import Descriptor
from tilewright_cpu.codegen.registry import METHODS
from tilewright_cpu.codegen.sanitizer.bounds import record_accesses
from tilewright_cpu.hardware import hardware_of

#: Slots of the argument array before the first argument.
FIRST_ARGUMENT = 5


@dataclass(frozen=True, slots=True)
class KernelText:
    """LLVM IR of a module and what is to be known about it.

    Attributes:
        text: the module.
        symbol: the kernel's name.
        messages: what assertions say, by index.
        memory_bytes: heap memory that a thread yields to the kernel's function.
        cleared_bytes: how much of it must be zero at first.
        arena_bytes: heap memory a running kernel takes a thread, that of the functions which it
        calls with it. prepackable: whether it looks up operands that were packed before the launch.
        polls: whether its loops have cancellation checks: see
        :func:`tilewright_cpu.status.poll_symbol`.
    """

    text: str
    symbol: str
    messages: list[str]
    memory_bytes: int
    cleared_bytes: int
    arena_bytes: int
    prepackable: bool
    polls: bool


def write_module(module: Module, target: Target, options: Mapping[str, Any]) -> KernelText:
    """The LLVM IR of a module with one kernel."""
    hardware = hardware_of(target)
    attributes = ["nounwind", '"no-trapping-math"="true"']
    if hardware.x86:
        attributes += [
            f'"prefer-vector-width"="{hardware.vector_bits}"',
            f'"min-legal-vector-width"="{hardware.vector_bits}"',
        ]
    if target.cpu:
        attributes.append(f'"target-cpu"="{target.cpu}"')
    if target.features:
        attributes.append(f'"target-features"="{",".join(target.features)}"')
    text = ModuleWriter(" ".join(attributes), plain_loops=hardware.x86)
    if not hardware.can("half"):
        text.add_global(SOFT_HALF)
    kernel = module.kernel
    symbol = (
        kernel.name
        if all(c.isalnum() or c == "_" for c in kernel.name) and kernel.name.isascii()
        else "kernel"
    )
    state = KernelState(text, module.functions, hardware, options, METHODS, symbol)
    if options.get("debug"):
        record_accesses(state, module, FIRST_ARGUMENT)
    if options.get("flush_denormals") and hardware.arch in MACHINES:
        write_flushing_entry(text, symbol, hardware.arch)
        _write_kernel(state, kernel, inner_symbol(symbol), "internal")
    else:
        _write_kernel(state, kernel, symbol)
    sizes = state.memory_bytes, state.cleared_bytes, state.arena_bytes
    return KernelText(text.text(), symbol, state.messages, *sizes, state.prepackable, state.polls)


def _write_kernel(state: KernelState, function: Function, symbol: str, linkage: str = "") -> None:
    attributes = "noinline #0" if linkage else "#0"
    writer = state.module.function(symbol, PARAMETERS, linkage=linkage, attributes=attributes)
    frame = begin_function(state, writer, function)
    context = frame.context
    if state.options.get("line_info") and function.location is not None:
        context.lines = LineTable(writer, function.location)
    grid = load_grid(context)
    slot = FIRST_ARGUMENT
    for argument, facts in zip(function.arguments, function.argument_attributes, strict=True):
        slot = _load_argument(context, argument, slot, facts.get("padding") == "nan")
    used = {
        operation.axis for operation in context.analysis.start if isinstance(operation, ProgramId)
    }
    if state.checks.accesses or any(
        isinstance(operation, Print | Assert | Call) for operation in context.analysis.start
    ):
        used = {0, 1, 2}
    _program_loop(context, function, used, grid)
    end_function(frame, "void", "void", memory="%memory")
    state.cleared_bytes, state.memory_bytes = (
        context.cleared_bytes,
        context.cleared_bytes + context.arena_bytes,
    )


def _load_argument(context: Context, argument: Value, slot: int, pads_nan: bool) -> int:
    """Bind a kernel argument; the slot after it.

    ``pads_nan``: whether loads from a descriptor yield NaN outside the tensor.
    """
    writer = context.writer

    def load(type_: str, number: int) -> str:
        return writer.load(type_, writer.gep("i64", "%args", number), 8)

    if isinstance(argument.type, DescriptorType):
        rank = argument.type.rank
        shape = tuple(load("i64", slot + 1 + axis) for axis in range(rank))
        strides = tuple(load("i64", slot + 1 + rank + axis) for axis in range(rank))
        context.descriptors[argument] = Descriptor(
            load("ptr", slot), shape, strides, str(pads_nan).lower()
        )
        return slot + 1 + 2 * rank
    if argument.type is I1:
        context.bind_scalar(argument, writer.emit(f"trunc i8 {load('i8', slot)} to i1"))
    else:
        context.bind_scalar(argument, load(register_type(argument.type), slot))
    return slot + 1


def _program_loop(
    context: Context, function: Function, used: set[int], grid: Sequence[str]
) -> None:
    """The loop over programs: the linear number is divided once, then the coordinates count on."""
    writer = context.writer
    gx, gy, _ = grid
    carried: list[tuple[str, str]] = []
    if used:
        x = writer.emit(f"urem i64 %lo, {gx}")
        rest = writer.emit(f"udiv i64 %lo, {gx}")
        y, z = writer.emit(f"urem i64 {rest}, {gy}"), writer.emit(f"udiv i64 {rest}, {gy}")
        carried = [("i64", x), ("i64", y), ("i64", z)]
    loop = writer.begin_loop("%lo", "%hi", 1, carried)
    if carried:
        x, y, z = (writer.emit(f"trunc i64 {name} to i32") for name in loop.values)
        context.program_ids = (x, y, z)
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
        wrapped_y = writer.emit(f"select i1 {wrap_y}, i64 0, i64 {next_y}")
        following = [
            writer.emit(f"select i1 {wrap_x}, i64 0, i64 {next_x}"),
            writer.emit(f"select i1 {wrap_x}, i64 {wrapped_y}, i64 {y}"),
            writer.emit(f"select i1 {both}, i64 {next_z}, i64 {z}"),
        ]
    writer.end_loop(loop, following)
