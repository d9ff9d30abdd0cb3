"""Making a failing program small: operations are deleted, or give way to one of their operands or a constant, while the failure stays."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator

from tilewright.ir import Builder, Module, Operation, Value, VerificationError, verify
from tilewright.ir.types import I1, FloatType, IntType, element_type
from tilewright.passes.dce import dce
from tilewright_conformance.faulty.rewriting import copy_of
from tilewright_conformance.programs import Program

#: Operations whose results hold only for operands that were made to fit: sums in any order, signs of zero, bounds of functions.
_DELICATE = frozenset({"reduce", "scan", "dot", "min", "max", "exp", "exp2", "log", "log2", "sin", "cos", "tanh", "erf", "rsqrt"})
#: Operations that make operands fit.
_PROTECTING = frozenset({"select", "cmp", "min", "max", "neg", "add", "sub", "constant", "splat", "permute"})

#: Whether a program still fails as the one to be made small did.
Fails = Callable[[Program], bool]


@dataclasses.dataclass(frozen=True)
class Fewer(Program):
    """A program that takes some of the arguments of another, ``whole``: those at the positions ``kept``."""

    whole: Program
    kept: tuple[int, ...]

    def arguments(self) -> list[object]:
        made = self.whole.arguments()
        return [made[index] for index in self.kept]


def minimise(program: Program, fails: Fails, attempts: int = 1000) -> Program:
    """A smaller program for which ``fails`` still holds; ``program`` itself where there is none.

    The program stays what its outputs' bounds were derived for: operands that were clamped or made finite for an operation stay so.

    Args:
        attempts: how often ``fails`` may be asked. A number, not a time, so that the result is the same on every machine.
    """
    asked = 0

    def still_fails(smaller: Program) -> bool:
        nonlocal asked
        asked += 1
        return asked <= attempts and fails(smaller)

    everything = tuple(range(len(program.module.kernel.arguments)))
    current = _without_outputs(
        Fewer(program.module, program.grid, program.inputs, program.scalars, program.outputs, program.seed, program, everything), still_fails
    )
    changed = True
    while changed and asked < attempts:
        changed = False
        position = _count(current.module) - 1
        while position >= 0 and asked < attempts:
            smaller = next((one for one in _attempts(current, position) if still_fails(one)), None)
            if smaller is None:
                position -= 1
            else:
                current, changed = smaller, True
                position = min(position, _count(current.module)) - 1
    return _without_unused_arguments(current)


def _count(module: Module) -> int:
    return sum(1 for _ in module.walk())


def _at(module: Module, position: int) -> Operation:
    return next(operation for index, operation in enumerate(module.walk()) if index == position)


def _with(program: Fewer, module: Module) -> Fewer | None:
    """The program with another module, if that is well formed and smaller."""
    dce(module)
    try:
        verify(module)
    except VerificationError:
        return None
    return dataclasses.replace(program, module=module)


def _without_outputs(program: Fewer, fails: Fails) -> Fewer:
    """The program with as few of its stores as the failure needs."""
    for output in program.outputs:
        if len(program.outputs) == 1:
            break
        module = copy_of(program.module)
        argument = module.kernel.arguments[output.index]
        for operation in [found for found in module.walk() if found.name == "store"]:
            if _base(operation.operands[0]) is argument:
                operation.erase()
        smaller = _with(dataclasses.replace(program, outputs=tuple(one for one in program.outputs if one is not output)), module)
        if smaller is not None and fails(smaller):
            program = smaller
    return program


def _base(pointer: Value) -> Value:
    """The argument that an address was computed from."""
    while (definition := pointer.definition) is not None:
        pointer = definition.operands[0]
    return pointer


def _attempts(program: Fewer, position: int) -> Iterator[Fewer]:
    """Programs with one operation less, the boldest first."""
    original = _at(program.module, position)
    if not original.results or original.spec.terminator or original.name in ("constant", "arange", "program_id"):
        return
    if _is_protecting(original) or original in _addressing(program.module):
        return
    if original.name == "load" and len(original.operands) > 1:
        module = copy_of(program.module)
        operation = _at(module, position)
        operation.replace_operands(operation.operands[:1], (1, 0, 0))
        unmasked = _with(program, module)
        if unmasked is not None:
            yield unmasked
    for index in range(len(original.results)):
        for choice in range(-1, len(original.operands)):
            module = copy_of(program.module)
            operation = _at(module, position)
            result = operation.results[index]
            if not result.uses:
                break
            replacement = _constant(operation, result) if choice < 0 else operation.operands[choice]
            if replacement is None or replacement.type is not result.type or (choice < 0 and _is_constant(result)):
                continue
            result.replace_all_uses(replacement)
            smaller = _with(program, module)
            if smaller is not None:
                yield smaller


def _addressing(module: Module) -> set[Operation]:
    """What the addresses of stores are computed from: two lanes that came to write one address would make the program undefined."""
    found: set[Operation] = set()
    pending = [operation.operands[0] for operation in module.walk() if operation.name == "store"]
    while pending:
        definition = pending.pop().definition
        if definition is not None and definition not in found:
            found.add(definition)
            pending += definition.operands
    return found


def _is_constant(value: Value) -> bool:
    definition = value.definition
    return definition is not None and (definition.name == "constant" or (definition.name == "splat" and _is_constant(definition.operands[0])))


def _constant(operation: Operation, result: Value) -> Value | None:
    """One, in front of the operation; not for addresses."""
    element = element_type(result.type)
    if not isinstance(element, IntType | FloatType) or any(reader.name == "addptr" for reader in result.uses):
        return None
    return Builder.at(operation).constant_like(result.type, element is I1 or 1)


def _is_protecting(operation: Operation) -> bool:
    """Whether the operation may be what makes an operand of a delicate one fit."""
    if operation.name not in _PROTECTING:
        return False
    pending, seen = [operation], {operation}
    while pending:
        for result in pending.pop().results:
            for reader in result.uses:
                if reader.name in _DELICATE:
                    return True
                if reader.name in _PROTECTING and reader not in seen:
                    seen.add(reader)
                    pending.append(reader)
    return False


def _without_unused_arguments(program: Fewer) -> Fewer:
    """The program without arguments that nobody reads."""
    module = copy_of(program.module)
    function = module.kernel
    used = [index for index, argument in enumerate(function.arguments) if argument.uses]
    function.body.arguments[:] = [function.arguments[index] for index in used]
    function.argument_attributes[:] = [function.argument_attributes[index] for index in used]
    outputs = tuple(dataclasses.replace(output, index=used.index(output.index)) for output in program.outputs)
    return dataclasses.replace(program, module=module, outputs=outputs, kept=tuple(program.kept[index] for index in used))
