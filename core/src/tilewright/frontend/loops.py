"""Loops: ``for`` over ranges, unrolled loops over what is known at compile time, and ``while``.

A loop carries the variables that it assigns, that have a value before it, and that are live where
an iteration begins. A ``for`` that is left only at its end is an IR ``for``. With a ``break`` or
``return`` inside, it is a ``while`` whose loop-carried values include one flag per kind of jump.
``continue`` needs neither: it is an ``if`` around the rest of the body.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Sequence
from typing import Any

from tilewright import ir
from tilewright.errors import CompilationError, integer_text, with_help
from tilewright.frontend.analysis import BREAK, RETURN, Facts
from tilewright.frontend.assignments import assign_target
from tilewright.frontend.branches import Branch, guarded, merge, not_taken
from tilewright.frontend.calls import iterable, loop_condition
from tilewright.frontend.errors import located, unsupported
from tilewright.frontend.frame import (
    NORMAL,
    Completion,
    Undefined,
    break_flag,
    continue_flag,
    end_of_iteration,
    is_hidden,
)
from tilewright.frontend.generator import ModuleGenerator
from tilewright.frontend.loop_carried import CarriedVariables, assigned_names, walrus_names
from tilewright.frontend.values import describe, is_number, lift, name_values, unflatten
from tilewright.frontend.while_loop import WhileLoop
from tilewright.ir import types as ir_types
from tilewright.ir.integer_ranges import is_known_positive, known_integer
from tilewright.ir.ops.arithmetic import Constant
from tilewright.ir.ops.debug import IMPLIED_ASSERTS
from tilewright.language.builtin_functions.iteration import condition as tl_condition
from tilewright.language.builtin_functions.iteration import range as tl_range
from tilewright.language.builtin_functions.iteration import static_range
from tilewright.language.core import constexpr, dtype, int1, tensor
from tilewright.language.core import tuple as tl_tuple
from tilewright.language.value_types.promotion import integer_promote

_STEP_IS_ZERO = "the step of a range must not be zero"
STEP_IS_NOT_POSITIVE = (
    "the step of a range must be positive where it is known at run time alone "
    "(a loop that counts down takes a constexpr, as `range(n, 0, -1)`)"
)

#: Maximum number of iterations of an unrolled loop; more is an error.
_UNROLL_LIMIT = 1 << 16


# -- for -------------------------------------------------------------------------------------------


def for_statement(g: ModuleGenerator, node: ast.For, facts: Facts, follows: bool) -> Completion:
    """Visit a ``for`` loop and its ``else``."""
    iterated = iterable(g, node.iter)
    if isinstance(iterated, tl_range):
        completion = _dynamic_for(g, node, facts, iterated)
    else:
        completion = _unrolled(g, node, facts, _static_items(g, node, iterated))
    return _otherwise(g, node, facts, completion)


def _static_items(g: ModuleGenerator, node: ast.For, iterated: Any) -> Sequence[Any]:
    """Return the items that an unrolled loop iterates over."""
    if isinstance(iterated, static_range):
        if iterated.step.value == 0:
            raise located(g.frame, node.iter, _STEP_IS_ZERO, CompilationError)
        items: Sequence[Any] = range(iterated.start.value, iterated.end.value, iterated.step.value)
    elif isinstance(iterated, tl_tuple):
        items = iterated.values
    elif type(iterated) is constexpr and isinstance(iterated.value, tuple | list | range | str):
        items = iterated.value
    else:
        raise located(
            g.frame,
            node.iter,
            with_help(
                f"a loop cannot go through {describe(iterated)}",
                "iterate over range, tl.range, tl.static_range or a tuple",
            ),
            CompilationError,
        )
    # a range may be longer than Python counts
    count = (
        (items[-1] - items[0]) // items.step + 1
        if isinstance(items, range) and items
        else len(items)
    )
    if count > _UNROLL_LIMIT:
        raise located(
            g.frame,
            node.iter,
            with_help(
                f"a loop of {integer_text(count)} iterations is not unrolled", "use tl.range"
            ),
            CompilationError,
        )
    return items


def _unrolled(g: ModuleGenerator, node: ast.For, facts: Facts, items: Sequence[Any]) -> Completion:
    """Visit the body once for each item, in the scope around the loop."""
    frame = g.frame
    frame.loops += 1
    frame.unrolled += 1
    depth = frame.loops

    outside = _defined(g)
    done = NORMAL
    for item in items:
        visit = functools.partial(_iteration, g, node, facts, depth, lift(item))
        done = guarded(g, node, done, visit, facts.live_head, True)
        if not done.falls:
            break
    frame.loops -= 1
    frame.unrolled -= 1
    if break_flag(depth) in done.jumps:
        _forget(
            g,
            outside | facts.each_sets,
            "may be left without a value by a `break` of the loop at line "
            f"{node.lineno + frame.line_offset}",
        )
    return done


def _iteration(
    g: ModuleGenerator,
    node: ast.For,
    facts: Facts,
    depth: int,
    item: Any,
) -> Completion:
    """Visit the body of an unrolled loop for one item."""
    outside = _defined(g)
    assign_target(g, node.target, item, plain=False)
    body = g.block(node.body, facts.live_head, False)
    if continue_flag(depth) in body.jumps:
        _forget(
            g,
            outside | facts.each_sets,
            "may be left without a value by a `continue` of the loop at line "
            f"{node.lineno + g.frame.line_offset}",
        )
    return end_of_iteration(body, depth)


def _defined(g: ModuleGenerator) -> frozenset[str]:
    """Return the names of the variables that have a value."""
    return frozenset(name for name, value in g.scope.items() if type(value) is not Undefined)


def _forget(g: ModuleGenerator, known: frozenset[str], reason: str) -> None:
    """Mark variables outside ``known`` as undefined: the paths that jumped left them unassigned."""
    for name, value in g.scope.items():
        if name not in known and not is_hidden(name) and type(value) is not Undefined:
            g.scope[name] = Undefined(f"{reason}; assign it before the loop")


def _otherwise(
    g: ModuleGenerator, node: ast.For | ast.While, facts: Facts, completion: Completion
) -> Completion:
    """Visit the ``else`` of a loop, which runs unless a ``break`` was taken.

    The flag of the ``break`` is consumed here.
    """
    flag = break_flag(g.frame.loops + 1)
    broken = flag in completion.jumps
    others = completion.jumps - {flag}
    if not node.orelse:
        return Completion(completion.falls or broken, others)
    if not completion.falls and not broken:
        return completion
    if not completion.falls:
        return Completion(True, others)  # only by break
    active = not_taken(g, completion)
    if active is None:
        return g.block(node.orelse, facts.live_after, True)
    then, other = Branch(), Branch()
    then.visit(g, g.scope, lambda: g.block(node.orelse, facts.live_after, True))
    other.visit(g, g.scope, None)
    other.completion = Completion(broken, others)
    return merge(g, node, active, then, other, facts.live_after, True)


def _dynamic_for(g: ModuleGenerator, node: ast.For, facts: Facts, bounds: tl_range) -> Completion:
    if not isinstance(node.target, ast.Name):
        raise unsupported(
            g.frame, node.target, "unpacking the variable of a range is", "use one name"
        )
    lower, upper, step, descending, iv_type = _bounds(g, node, bounds)
    assigned, jumps = assigned_names(g, node.body, frozenset({node.target.id}))
    # The variable itself is carried only where its last value is read after the loop.
    carried = CarriedVariables(g, node, facts, assigned)
    if jumps & {BREAK, RETURN}:
        return _for_as_while(
            g, node, facts, carried, jumps, (lower, upper, step, descending), iv_type, bounds
        )
    g.locate(node)
    region = ir.Region(
        [iv_type.ir_type, *carried.flat_types], ["" if descending is not None else node.target.id]
    )
    outer_scope, saved = g.enter(region)
    g.frame.loops += 1
    g.scope = carried.bind(region.arguments[1:])
    variable = tensor(region.arguments[0], iv_type)
    if descending is not None:
        # Values start, start + step, ... above stop; the loop runs from stop up to start.
        variable = _counted_down(g, tensor(descending, iv_type), variable, tensor(lower, iv_type))
        name_values(variable, node.target.id)
    g.scope[node.target.id] = variable
    body = g.block(node.body, facts.live_head, False)
    values = carried.collect()
    last = carried.last_values(facts, body.jumps) if _runs(lower, upper) else None
    carries = len(values)
    if last is not None:
        last.add_arguments(region)
        values.extend(last.values)
    g.locate(node)
    g.builder.yield_(values)
    inner_scope = g.scope
    g.frame.loops -= 1
    g.leave(outer_scope, saved)
    g.locate(node)
    operation = g.builder.region_op(
        "for",
        lower,
        upper,
        step,
        [*carried.initial_values(), *(() if last is None else last.initial(g.builder))],
        regions=[region],
        num_stages=bounds.num_stages or 0,
        unroll=bounds.loop_unroll_factor or 0,
        flatten=bounds.flatten,
        warp_specialize=bounds.warp_specialize,
        single_accumulator=bounds.disallow_acc_multi_buffer,
        no_licm=bounds.disable_licm,
    )
    carried.finish(
        unflatten(carried.types, operation.results[:carries]),
        inner_scope,
        last,
        operation.results[carries:],
    )
    return NORMAL


def _runs(lower: ir.Value, upper: ir.Value) -> bool:
    """Return whether it is known that the loop from ``lower`` to ``upper`` runs at least once."""
    first, end = known_integer(lower), known_integer(upper)
    return first is not None and end is not None and first < end


def _bounds(
    g: ModuleGenerator, node: ast.For, bounds: tl_range
) -> tuple[ir.Value, ir.Value, ir.Value, ir.Value | None, dtype]:
    """Normalize a range to bounds of one type and a positive step.

    Returns (lower, upper, step, start of a descending loop or None, type of the variable).
    """
    g.locate(node.iter)
    start, end, step = bounds.start, bounds.end, bounds.step
    sign = 1
    if is_number(lift(step)):
        amount = lift(step).value
        if amount == 0:
            raise located(g.frame, node.iter, _STEP_IS_ZERO, CompilationError)
        sign = -1 if amount < 0 else 1
        step = constexpr(abs(amount))
    parts = []
    for name, value in (("start", start), ("end", end), ("step", step)):
        value = lift(value)
        part = (
            g.semantic.to_tensor(value) if is_number(value) or isinstance(value, tensor) else None
        )
        if part is not None and part.extents and part.numel.value == 1:
            part = g.semantic.scalar_of(part)
        if part is None or part.extents or not part.dtype.is_int():
            message = f"the {name} of a range is a scalar integer, not {describe(value)}"
            raise located(g.frame, node.iter, message, CompilationError)
        parts.append(part)
    _assert_positive(g, parts[2])
    iv_type = integer_promote(integer_promote(parts[0].dtype, parts[1].dtype), parts[2].dtype)
    if iv_type is int1:
        raise located(
            g.frame,
            node.iter,
            with_help("the bounds of a range are booleans", "convert them with `.to(tl.int32)`"),
            CompilationError,
        )
    first, last, stride = (g.semantic.cast(part, iv_type).handle for part in parts)
    if sign < 0:
        return last, first, stride, first, iv_type
    return first, last, stride, None, iv_type


def _assert_positive(g: ModuleGenerator, step: tensor) -> None:
    """Assert that a step known only at run time is positive.

    A step of 0 never ends the loop, and the direction is fixed at compile time. GPUs, on which
    assertions cost time, check only in debug mode.
    """
    options = g.semantic.options
    implied = options.capabilities is not None and IMPLIED_ASSERTS in options.capabilities.features
    if not (options.debug or implied) or is_known_positive(step.handle):
        return
    condition = g.semantic.compare("gt", step, g.semantic.to_tensor(0))
    g.builder.assert_(condition.handle, mask=None, message=STEP_IS_NOT_POSITIVE)


def _for_as_while(
    g: ModuleGenerator,
    node: ast.For,
    facts: Facts,
    carried: CarriedVariables,
    jumps: frozenset[str],
    bounds: tuple[ir.Value, ir.Value, ir.Value, ir.Value | None],
    iv_type: dtype,
    hints: tl_range,
) -> Completion:
    """Lower a ``for`` that may be left early to an IR ``while``."""
    assert isinstance(node.target, ast.Name)
    name = node.target.id
    lower, upper, step, descending = bounds
    builder = g.builder
    g.locate(node)
    unit = (
        step.definition is not None
        and isinstance(step.definition, Constant)
        and step.definition.attribute("value") == 1
    )
    unsigned = ir_types.IntType(iv_type.int_bitwidth, signed=False)
    counters = [lower]
    if not unit:
        # Counting iterations keeps the test sound where lower + n * step would wrap around.
        counters.append(_iterations(builder, lower, upper, step, unsigned))

    def more(arguments: list[ir.Value]) -> ir.Value:
        left, right, predicate = (
            (arguments[0], upper, "lt")
            if unit
            else (arguments[1], builder.constant(value=0, result=unsigned), "ne")
        )
        goes_on: ir.Value = builder.cmp(left, right, predicate=predicate)
        return goes_on

    def enter(arguments: list[ir.Value]) -> None:
        variable = tensor(arguments[0], iv_type)
        if descending is not None:
            variable = _counted_down(
                g, tensor(descending, iv_type), variable, tensor(lower, iv_type)
            )
        g.scope[name] = variable
        name_values(variable, name)

    def advance(arguments: list[ir.Value]) -> list[ir.Value]:
        following = [builder.add(arguments[0], step)]
        if not unit:
            following.append(builder.sub(arguments[1], builder.constant(value=1, result=unsigned)))
        return following

    def test(arguments: list[ir.Value]) -> Any:
        return tensor(more(arguments), int1)

    loop = WhileLoop(g, node, facts, carried, jumps, hints.disable_licm, runs=_runs(lower, upper))
    return loop.build(counters, test, enter, advance)


def _counted_down(g: ModuleGenerator, start: tensor, counter: tensor, stop: tensor) -> tensor:
    """Return ``start - (counter - stop)``, the variable of a descending loop.

    The difference may wrap around although the value is in range.
    """
    distance = g.semantic.sub(counter, stop, sanitize_overflow=False)
    return g.semantic.sub(start, distance, sanitize_overflow=False)


def _iterations(
    builder: ir.Builder,
    lower: ir.Value,
    upper: ir.Value,
    step: ir.Value,
    unsigned: ir_types.IntType,
) -> ir.Value:
    """Emit the trip count of a ``for``, exact for any bounds.

    It is (upper - lower - 1) / step + 1 modulo 2**bits if lower < upper, else 0. A run-time step
    that is not positive yields 0."""

    def plain(value: ir.Value) -> ir.Value:
        return value if value.type is unsigned else builder.bitcast(value, result=unsigned)

    one = builder.constant(value=1, result=unsigned)
    some = builder.cmp(lower, upper, predicate="lt")
    if not is_known_positive(step):
        some = builder.and_(
            some, builder.cmp(step, builder.constant(value=0, result=step.type), predicate="gt")
        )
    span = builder.sub(builder.sub(plain(upper), plain(lower)), one)
    count = builder.add(builder.div(span, plain(step)), one)
    found: ir.Value = builder.select(some, count, builder.constant(value=0, result=unsigned))
    return found


# -- while -----------------------------------------------------------------------------------------


def while_statement(g: ModuleGenerator, node: ast.While, facts: Facts, follows: bool) -> Completion:
    """Visit a ``while`` loop and its ``else``."""
    assigned, jumps = assigned_names(g, node.body, frozenset(walrus_names(node.test)))
    loop = WhileLoop(g, node, facts, CarriedVariables(g, node, facts, assigned), jumps, False)

    def test(arguments: list[ir.Value]) -> Any:
        value = loop_condition(g, node.test)
        if isinstance(value, tl_condition):
            loop.no_licm = value.disable_licm
            value = value.condition
        return g.truth(node.test, value)

    completion = loop.build([], test, lambda arguments: None, lambda arguments: [])
    return _otherwise(g, node, facts, completion)
