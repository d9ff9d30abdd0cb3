"""Minimizer of failing programs.

It deletes operations, or replaces them by one of their operands or by a constant, while the failure
stays.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator

from tilewright.ir import Builder, Module, Operation, Value, VerificationError, verify
from tilewright.ir.table import Effect
from tilewright.ir.types import I1, FloatType, IntType, element_type
from tilewright.passes.dce import dce
from tilewright_conformance.mutation.rewriting import copy_of
from tilewright_conformance.random_programs import Output, Program, is_guard

#: Whether a program still fails as the one to be made small did.
Fails = Callable[[Program], bool]


@dataclasses.dataclass(frozen=True)
class Fewer(Program):
    """The program ``whole`` with only the arguments at the positions ``kept``."""

    whole: Program
    kept: tuple[int, ...]

    def arguments(self) -> list[object]:
        made = self.whole.arguments()
        return [made[index] for index in self.kept]


def minimise(program: Program, fails: Fails, attempts: int = 1000) -> Program:
    """A smaller program for which ``fails`` still holds; ``program`` itself where there is none.

    The program stays what its outputs' bounds were derived for: operations that keep others defined
    (``random_programs.is_guard``) go only when those are gone.

    Args:
        attempts: how often ``fails`` may be asked. A number, not a time, so that the result is the
            same on every machine.
    """
    asked = 0

    def still_fails(smaller: Program) -> bool:
        nonlocal asked
        asked += 1
        return asked <= attempts and fails(smaller)

    everything = tuple(range(len(program.module.kernel.arguments)))
    current = _without_outputs(
        Fewer(
            program.module,
            program.grid,
            program.parameters,
            program.outputs,
            program.seed,
            program,
            everything,
        ),
        still_fails,
    )
    current = _on_one_program(current, still_fails)
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
    """The program with as few of its outputs as the failure needs: one alone where that will do."""
    for output in program.outputs:
        alone = _keeping(program, (output,))
        if len(program.outputs) > 1 and alone is not None and fails(alone):
            return alone
    for output in program.outputs:
        smaller = _keeping(program, tuple(one for one in program.outputs if one is not output))
        if len(program.outputs) > 1 and smaller is not None and fails(smaller):
            program = smaller
    return program


def _keeping(program: Fewer, outputs: tuple[Output, ...]) -> Fewer | None:
    """The program without the writes to other outputs; an update whose old value is read stays."""
    module = copy_of(program.module)
    kept = {output.index for output in outputs}
    others = {
        module.kernel.arguments[output.index]
        for output in program.outputs
        if output.index not in kept
    }
    for operation in [
        found for found in module.walk() if Effect.WRITE in found.spec.effects and found.operands
    ]:
        if _base(operation.operands[0]) in others and not any(
            result.uses for result in operation.results
        ):
            operation.erase()
    return _with(dataclasses.replace(program, outputs=outputs), module)


def _on_one_program(program: Fewer, fails: Fails) -> Fewer:
    """The program on a grid of one, if that fails too."""
    smaller = dataclasses.replace(program, grid=(1, 1, 1))
    return smaller if program.grid != smaller.grid and fails(smaller) else program


def _base(pointer: Value) -> Value:
    """The argument that an address was computed from."""
    while (definition := pointer.definition) is not None and definition.operands:
        pointer = definition.operands[0]
    return pointer


def _attempts(program: Fewer, position: int) -> Iterator[Fewer]:
    """Programs with one operation less, the boldest first."""
    original = _at(program.module, position)
    if original.spec.terminator or original.name in ("constant", "arange", "program_id"):
        return
    if is_guard(original) or original in _addressing(program.module):
        return
    if not original.spec.pure and not any(result.uses for result in original.results):
        module = copy_of(program.module)
        _at(module, position).erase()
        without = _with(program, module)
        if without is not None:
            yield without
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
            if (
                replacement is None
                or replacement.type is not result.type
                or (choice < 0 and _is_constant(result))
            ):
                continue
            result.replace_all_uses(replacement)
            smaller = _with(program, module)
            if smaller is not None:
                yield smaller


def _addressing(module: Module) -> set[Operation]:
    """Collect the operations that compute the addresses of writes.

    They stay as they are: two lanes that came to write one address would make the program
    undefined.
    """
    found: set[Operation] = set()
    pending = [
        operation.operands[0]
        for operation in module.walk()
        if Effect.WRITE in operation.spec.effects and operation.operands
    ]
    while pending:
        definition = pending.pop().definition
        if definition is not None and definition not in found and not definition.regions:
            found.add(definition)
            pending += definition.operands
    return found


def _is_constant(value: Value) -> bool:
    definition = value.definition
    return definition is not None and (
        definition.name == "constant"
        or (definition.name == "splat" and _is_constant(definition.operands[0]))
    )


def _constant(operation: Operation, result: Value) -> Value | None:
    """One, in front of the operation; not for addresses."""
    element = element_type(result.type)
    if not isinstance(element, IntType | FloatType) or any(
        reader.name == "addptr" for reader in result.uses
    ):
        return None
    return Builder.at(operation).constant_like(result.type, element is I1 or 1)


def _without_unused_arguments(program: Fewer) -> Fewer:
    """Remove unread arguments, unless they are outputs, and functions that nobody calls."""
    module = copy_of(program.module)
    function = module.kernel
    outputs = {output.index for output in program.outputs}
    used = [
        index
        for index, argument in enumerate(function.arguments)
        if argument.uses or index in outputs
    ]
    function.body.arguments[:] = [function.arguments[index] for index in used]
    function.argument_attributes[:] = [function.argument_attributes[index] for index in used]
    called = {
        operation.attribute("callee") for operation in module.walk() if operation.name == "call"
    }
    for name in [
        name for name, other in module.functions.items() if not other.kernel and name not in called
    ]:
        del module.functions[name]
    moved = tuple(
        dataclasses.replace(output, index=used.index(output.index)) for output in program.outputs
    )
    parameters, kept = (
        tuple(program.parameters[index] for index in used),
        tuple(program.kept[index] for index in used),
    )
    return dataclasses.replace(
        program, module=module, parameters=parameters, outputs=moved, kept=kept
    )
