"""Steps with regions that hold steps: branches, loops, calls; assertions and assumptions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tilewright.ir import Builder, Function, Region, Value
from tilewright.ir.types import I1, I32, IntType, Type, element_type, shape_of
from tilewright_conformance.random_programs import (
    descriptors,
    expressions,
    gathers,
    memory,
    reductions_and_scans,
    shapes,
)
from tilewright_conformance.random_programs.expressions import computes
from tilewright_conformance.random_programs.reductions_and_scans import steps
from tilewright_conformance.random_programs.state import Item, State, is_int

#: How deep regions with steps nest.
_DEEPEST = 2


def _carried(state: State, most: int = 3) -> list[Value]:
    """Pick exact values that a loop carries, or whose types a branch returns."""
    found = [state.exact(lambda type_: True) for _ in range(state.number(1, most))]
    if found[0] is not None and state.chance(
        3
    ):  # two of one type, which must not come out in each other's place
        found.append(state.partner(found[0]))
    return [value for value in found if value is not None]


def _made(state: State, types: Sequence[Type], before: int) -> list[Value]:
    """A value of each type, one that was made in the region rather."""
    chosen: list[Value] = []
    for type_ in types:
        fresh = [
            item.value
            for item in state.pool[before:]
            if item.bound is None and item.type is type_ and item.value not in chosen
        ]
        chosen.append(state.one_of(fresh) if fresh else state.of(type_))
    return chosen


def _changed(state: State, values: Sequence[Value]) -> list[Value]:
    """Each value, or for numbers one step of arithmetic on it."""
    changed: list[Value] = []
    for value in values:
        if computes(element_type(value.type)) and state.number(0, 2):
            value = getattr(state.builder, state.one_of(("add", "sub", "mul")))(
                value, state.partner(value)
            )
        changed.append(value)
    return changed


def _condition(state: State) -> Value:
    """A boolean that programs or data decide."""
    b = state.builder
    found = state.exact_of(I1)
    if found is not None and state.chance(2):
        return found
    number = state.pick(
        lambda item: item.bound is None and isinstance(item.type, IntType) and item.type is not I1
    )
    value = (
        number.value
        if number is not None and state.chance(2)
        else b.program_id(axis=state.number(0, 2))
    )
    return b.cmp(
        value, state.constant(value.type), predicate=state.one_of(("lt", "eq", "ne", "ge"))
    )


def branch(state: State) -> None:
    if state.depth >= _DEEPEST:
        return
    condition = _condition(state)
    types = [value.type for value in _carried(state)] if state.number(0, 3) else []
    regions = []
    for _ in range(2):
        region = Region()
        with state.inside(region, ()):
            before = len(state.pool)
            steps(state, state.number(0, 3), inner())
            if not types:
                memory.store(state)
            state.builder.yield_(_changed(state, _made(state, types, before)))
        regions.append(region)
    for result in state.builder.region_op("if", condition, regions=regions, results=types).results:
        state.add(result)


def _bounds(state: State) -> tuple[Value, Value, Value]:
    """Bounds and step of a loop of a few iterations, in any integer type.

    They are constants, or the lower bound is a value of the program.
    """
    type_ = state.one_of((I32, I32, *state.language.integers))
    step = state.number(1, 3)
    low = state.one_of(
        [type_.minimum, 0, 1, type_.maximum // 2 - 2, type_.maximum - 20, type_.maximum // 2 + 1]
    )
    trips = state.number(-1, 5)
    high = min(max(low + trips * step - state.number(0, 1), type_.minimum), type_.maximum)
    b = state.builder
    with state.guarding():
        values = [b.constant_like(type_, number) for number in (low, high, step)]
        kind = state.number(0, 3)
        if kind == 0 and low in (
            0,
            1,
        ):  # an argument that a backend loses must not make a loop that hardly ends
            values[1] = state.scalar(type_, high, "n").value
        elif kind == 1 and low == 0:
            program = (
                b.cast(b.program_id(axis=state.number(0, 2)), result=type_)
                if type_ is not I32
                else b.program_id(axis=0)
            )
            values[0] = program
    return values[0], values[1], values[2]


def counted(state: State) -> None:
    """A counted loop that carries some values."""
    if state.depth >= _DEEPEST:
        return
    inits = _carried(state)
    if not inits:
        return
    low, high, step = _bounds(state)
    types = [value.type for value in inits]
    body = Region([low.type, *types], ["i", *(f"c{index}" for index in range(len(types)))])
    with state.inside(body, body.arguments):
        before = len(state.pool) - len(types) - 1
        steps(state, state.number(0, 3), inner())
        state.builder.yield_(_changed(state, _made(state, types, before)))
    attributes: dict[str, Any] = (
        {"num_stages": state.number(1, 3)}
        if state.chance(4)
        else {"unroll": state.one_of((1, 2, 4))}
        if state.chance(4)
        else {}
    )
    for result in state.builder.region_op(
        "for", low, high, step, inits, regions=[body], **attributes
    ).results:
        state.add(result)


def conditional(state: State) -> None:
    """A loop that goes on while a counter is above zero, and may end earlier by what it carries."""
    if state.depth >= _DEEPEST:
        return
    inits = _carried(state, 2)
    if not inits:
        return
    with state.guarding() as b:
        number = state.pick(lambda item: item.bound is None and item.type is I32)
        count = number.value if number is not None else b.program_id(axis=0)
        count = b.and_(count, b.constant_like(I32, 7))
    types = [value.type for value in inits]
    head, body = (
        Region([I32, *types], ["left", *(f"c{i}" for i in range(len(types)))]),
        Region([I32, *types], ["left", *(f"f{i}" for i in range(len(types)))]),
    )
    with state.inside(head, head.arguments[1:]):
        before = len(state.pool) - len(types)
        with state.guarding() as b:
            more = b.cmp(head.arguments[0], b.constant_like(I32, 0), predicate="gt")
        if state.chance(3):
            more = state.builder.and_(more, _condition(state))
        forwarded = (
            _changed(state, _made(state, types, before)) if state.chance(3) else head.arguments[1:]
        )
        state.builder.condition(more, [head.arguments[0], *forwarded])
    with state.inside(body, body.arguments[1:]):
        before = len(state.pool) - len(types)
        steps(state, state.number(0, 3), inner())
        changed = _changed(state, _made(state, types, before))
        with state.guarding() as b:
            left = b.sub(body.arguments[0], b.constant_like(I32, 1))
        state.builder.yield_([left, *changed])
    results = state.builder.region_op(
        "while", [count, *inits], regions=[head, body], results=[I32, *types]
    ).results
    for result in results:
        state.add(result)


def call(state: State) -> None:
    """A function of the module, of steps that compute and move."""
    if not state.language.feature("noinline") or state.depth:
        return
    arguments = _carried(state, 2)
    if not arguments:
        return
    name = f"part{len(state.module.functions)}"
    function = Function(
        name,
        [value.type for value in arguments],
        argument_names=[f"a{i}" for i in range(len(arguments))],
        kernel=False,
    )
    outer = state.builder, state.pool, state.linear
    state.builder = Builder.at_end(function.body, state.builder.location)
    state.pool = [Item(value) for value in function.arguments]
    state.depth, state.linear = state.depth + _DEEPEST, None
    steps(
        state,
        state.number(1, 4),
        {**expressions.STEPS, shapes.permute: 3, shapes.reshape: 3, reductions_and_scans.reduce: 2},
    )
    chosen = [
        item.value
        for item in (state.pick(lambda item: item.bound is None) for _ in range(state.number(1, 2)))
        if item is not None
    ]
    state.builder.return_(chosen)
    state.depth -= _DEEPEST
    state.builder, state.pool, state.linear = outer
    types = [value.type for value in chosen]
    function.result_types = tuple(types)
    state.module.add(function)
    found = state.builder.call(arguments, callee=name, results=types)
    for result in found if isinstance(found, tuple) else (found,):
        state.add(result)


def promises(state: State) -> None:
    """Assert or assume a true condition, which the compiler may use or check."""
    b = state.builder
    with state.guarding():
        program = b.program_id(axis=state.number(0, 2))
        holds = b.cmp(program, b.constant_like(I32, 0), predicate="ge")
    if state.chance(2) and state.language.feature("assert"):
        b.assert_(holds, message="programs are counted from zero")
    else:
        b.assume(holds)
    number = state.exact(is_int)
    if number is not None:
        rank = max(1, len(shape_of(number.type)))
        state.add(b.hint(number, divisibility=(1,) * rank, constancy=(1,) * rank))
    state.add(program)
    state.add(b.num_programs(axis=state.number(0, 2)))


STEPS: dict[Callable[[State], None], int] = {
    branch: 5,
    counted: 6,
    conditional: 4,
    call: 2,
    promises: 2,
}


def inner() -> dict[Callable[[State], None], int]:
    """The steps of the inside of a loop or branch."""
    return everything()


def everything() -> dict[Callable[[State], None], int]:
    """All steps, with how often each is drawn."""
    return {
        **expressions.STEPS,
        **shapes.STEPS,
        **reductions_and_scans.STEPS,
        **memory.STEPS,
        **descriptors.STEPS,
        **gathers.STEPS,
        **STEPS,
    }
