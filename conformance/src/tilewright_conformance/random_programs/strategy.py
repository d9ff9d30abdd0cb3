"""Random tile programs by number, and as a hypothesis strategy."""

from __future__ import annotations

import random

from hypothesis import strategies as st

from tilewright.ir import Builder, Function, Location, Module, verify
from tilewright.ir.types import I64, FloatType, IntType
from tilewright.plugins.manifest import Capabilities
from tilewright_conformance.random_programs import control, memory
from tilewright_conformance.random_programs.language import PORTABLE, Language
from tilewright_conformance.random_programs.program import ArrayArgument, Output, Program
from tilewright_conformance.random_programs.reductions_and_scans import steps
from tilewright_conformance.random_programs.state import Slot, State

_GRIDS = (
    (1, 1, 1),
    (1, 1, 1),
    (2, 1, 1),
    (3, 1, 1),
    (1, 2, 1),
    (1, 1, 2),
    (2, 3, 1),
    (3, 1, 2),
    (2, 2, 2),
    (1, 3, 2),
)

#: Most of the values that nothing reads that are stored at a program's end.
_MOST_RESULTS = 10


def random_program(
    seed: int, capabilities: Capabilities = PORTABLE, max_steps: int = 24
) -> Program:
    """The program of a number: well defined by construction, and the same one in every process.

    Args:
        capabilities: what it may need of a backend.
        max_steps: steps besides the first loads and the last stores; a step makes some operations.
    """
    source = random.Random(seed)
    module, function = Module(), Function("program", [], kernel=True)
    module.add(function)
    state = State(
        source,
        Language(capabilities),
        source.choice(_GRIDS),
        module,
        function,
        Builder.at_end(function.body, Location("program", 1)),
    )
    state.linear = state.linear_program()
    _begin(state)
    table = control.everything()
    for _ in range(state.number(min(4, max_steps), max_steps)):
        state.line += 1
        state.builder.location = Location("program", state.line)
        steps(state, 1, table)
    _end(state)
    verify(module)
    return _program(state)


def programs(
    capabilities: Capabilities = PORTABLE, max_steps: int = 24
) -> st.SearchStrategy[Program]:
    """Random programs as a hypothesis strategy over their seeds; see :func:`random_program`."""
    return st.integers(0, 2**64 - 1).map(lambda seed: random_program(seed, capabilities, max_steps))


def _begin(state: State) -> None:
    """Loads of one to three arrays in one shape or two, and arguments that are numbers."""
    shapes = [state.one_of(state.language.shapes) for _ in range(state.number(1, 2))]
    element = state.one_of(state.language.stored)
    for _ in range(state.number(1, 4)):
        memory.load(state, state.one_of(shapes), element)
        element = element if state.chance(2) else state.one_of(state.language.stored)
    for _ in range(20 if state.chance(12) else state.number(0, 3)):
        type_ = state.one_of(state.language.scalars)
        state.add(state.scalar(type_, _number(state, type_), "s").value)
    state.add(state.builder.program_id(axis=state.number(0, 2)))


def _number(state: State, type_: IntType | FloatType) -> int | float | bool:
    if isinstance(type_, FloatType):
        return state.one_of(
            (0.0, 1.0, -1.5, 0.1 if type_.bits == 64 else 0.10000000149011612, 2.0**100, 2.0**-140)
        )
    if type_.bits == 1:
        return state.chance(2)
    edges = [0, 1, type_.minimum, type_.maximum, 5, *([-1, -7] if type_.signed else [])]
    return state.one_of([*edges, 2**31, 2**32 + 3, -(2**33)] if type_ is I64 else edges)


def _end(state: State) -> None:
    """Store unread values and some of the rest: values that reach no store are not tested."""
    unread = [item for item in state.pool if not item.value.uses]
    rest = [item for item in state.pool if item.value.uses]
    for item in [*unread[-_MOST_RESULTS:], *state.random.sample(rest, min(2, len(rest)))]:
        memory.store_result(state, item)
    state.builder.return_()


def _program(state: State) -> Program:
    """The program, its arguments in order: arrays, then numbers."""
    function = state.function
    slots = sorted(state.slots, key=lambda slot: not isinstance(slot.parameter, ArrayArgument))
    function.arguments[:] = [slot.value for slot in slots]
    outputs = tuple(
        _output(index, slot) for index, slot in enumerate(slots) if slot.written is not None
    )
    return Program(
        state.module,
        state.grid,
        tuple(slot.parameter for slot in slots),
        outputs,
        state.number(0, 2**32 - 1),
    )


def _output(index: int, slot: Slot) -> Output:
    assert isinstance(slot.parameter, ArrayArgument) and slot.written is not None
    return Output(index, slot.parameter.element, *slot.written)
