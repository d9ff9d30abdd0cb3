"""Loops: ``for`` over ranges, unrolled loops over what is known at compile time, and ``while``.

A loop carries the variables that it assigns, that have a value before it, and that are live where an iteration begins. A ``for`` that is left only at
its end is an IR ``for``. With a ``break`` or ``return`` inside, it is a ``while`` whose carried values include one flag a kind of jump. ``continue`` needs
neither: it is an ``if`` around the rest of the body.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from tilewright import ir
from tilewright.errors import CompilationError
from tilewright.frontend.analysis import BREAK, CONTINUE, RETURN, Facts
from tilewright.frontend.branches import Branch, Continuation, guarded, merge, not_taken
from tilewright.frontend.errors import located, unsupported, with_help
from tilewright.frontend.frame import NORMAL, RETURN_FLAG, RETURN_VALUE, Completion, Scope, Undefined, break_flag, continue_flag, is_hidden
from tilewright.frontend.values import decay, describe, describe_type, flatten, is_number, lift, name_values, placeholder, type_of, unflatten
from tilewright.ir import types as ir_types
from tilewright.ir.table import Effect
from tilewright.language.core import constexpr, dtype, int1, tensor
from tilewright.language.core import tuple as tl_tuple
from tilewright.language.iteration import condition as tl_condition
from tilewright.language.iteration import range as tl_range
from tilewright.language.iteration import static_range
from tilewright.language.promotion import integer_promote

if TYPE_CHECKING:
    from tilewright.frontend.generator import Generator

#: A loop unrolled further than this is a mistake.
_UNROLL_LIMIT = 1 << 16


# -- for ----------------------------------------------------------------------------------------------------------------------------------------------


def for_statement(g: Generator, node: ast.For, facts: Facts, follows: bool) -> Completion:
    """Visit a ``for`` loop and its ``else``."""
    iterated = g.iterable(node.iter)
    if isinstance(iterated, tl_range):
        completion = _dynamic_for(g, node, facts, iterated)
    else:
        completion = _unrolled(g, node, facts, _static_items(g, node, iterated))
    return _otherwise(g, node, facts, completion)


def _static_items(g: Generator, node: ast.For, iterated: Any) -> Sequence[Any]:
    """What an unrolled loop goes through."""
    if isinstance(iterated, static_range):
        items: Sequence[Any] = range(iterated.start.value, iterated.end.value, iterated.step.value)
    elif isinstance(iterated, tl_tuple):
        items = iterated.values
    elif type(iterated) is constexpr and isinstance(iterated.value, tuple | list | range | str):
        items = iterated.value
    else:
        raise located(
            g.frame,
            node.iter,
            with_help(f"a loop cannot go through {describe(iterated)}", "iterate over range, tl.range, tl.static_range or a tuple"),
            CompilationError,
        )
    if len(items) > _UNROLL_LIMIT:
        raise located(g.frame, node.iter, with_help(f"a loop of {len(items)} iterations is not unrolled", "use tl.range"), CompilationError)
    return items


def _unrolled(g: Generator, node: ast.For, facts: Facts, items: Sequence[Any]) -> Completion:
    """Visit the body once for each item, in the scope around the loop."""
    frame = g.frame
    frame.loops += 1
    depth = frame.loops

    def iterate(index: int) -> Completion:
        jumps: frozenset[str] = frozenset()
        while index < len(items):
            g.assign_target(node.target, lift(items[index]), plain=False)
            done = _end_of_iteration(g.block(node.body, facts.live_head, False), depth)
            index += 1
            if not done.falls or (done.jumps and index == len(items)):
                return Completion(done.falls, jumps | done.jumps)
            if done.jumps:
                rest = guarded(g, node, done, functools.partial(iterate, index), facts.live_head, True)
                return Completion(rest.falls, jumps | rest.jumps)
        return Completion(True, jumps)

    completion = iterate(0)
    frame.loops -= 1
    return completion


def _end_of_iteration(completion: Completion, depth: int) -> Completion:
    """A body's completion once its ``continue`` has come to its target."""
    flag = continue_flag(depth)
    if flag not in completion.jumps:
        return completion
    return Completion(True, completion.jumps - {flag})


def _otherwise(g: Generator, node: ast.For | ast.While, facts: Facts, completion: Completion) -> Completion:
    """The ``else`` of a loop, which runs unless a ``break`` was taken; and the end of the break's life."""
    flag = break_flag(g.frame.loops + 1)
    broken = flag in completion.jumps
    others = completion.jumps - {flag}
    if not node.orelse:
        return Completion(completion.falls or broken, others)
    if not completion.falls and not broken:
        return completion
    if not completion.jumps:
        return g.block(node.orelse, facts.live_after, True)
    if not completion.falls:
        return Completion(True, others)  # only by break
    active = not_taken(g, completion)
    if active is None:
        return g.block(node.orelse, facts.live_after, True)
    then, other = Branch(), Branch()
    then.visit(g, g.scope, lambda: g.block(node.orelse, facts.live_after, True))
    other.visit(g, g.scope, None)
    other.completion = Completion(broken, others)
    done = merge(g, node, active, then, other, facts.live_after, True)
    return Completion(done.falls, done.jumps | others)


def _dynamic_for(g: Generator, node: ast.For, facts: Facts, bounds: tl_range) -> Completion:
    if not isinstance(node.target, ast.Name):
        raise unsupported(g.frame, node.target, "unpacking the variable of a range is", "use one name")
    lower, upper, step, descending, iv_type = _bounds(g, node, bounds)
    assigned, jumps = assigned_names(g, node.body, frozenset({node.target.id}))
    # The variable itself is carried only where its last value is read after the loop.
    carried = Carried(g, node, facts, assigned)
    if jumps & {BREAK, RETURN}:
        return _for_as_while(g, node, facts, carried, jumps, (lower, upper, step, descending), iv_type, bounds)
    g.locate(node)
    region = ir.Region([iv_type.ir_type, *carried.flat_types], ["" if descending is not None else node.target.id])
    outer_scope, saved = g.enter(region)
    g.frame.loops += 1
    g.scope = carried.bind(region.arguments[1:])
    variable = tensor(region.arguments[0], iv_type)
    if descending is not None:
        # Values start, start + step, ... above stop; the loop runs from stop up to start.
        variable = g.semantic.sub(tensor(descending, iv_type), g.semantic.sub(variable, tensor(lower, iv_type)))
        name_values(variable, node.target.id)
    g.scope[node.target.id] = variable
    g.block(node.body, facts.live_head, False)
    values = carried.collect()
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
        carried.initial_values(),
        regions=[region],
        num_stages=bounds.num_stages or 0,
        unroll=bounds.loop_unroll_factor or 0,
        flatten=bounds.flatten,
        warp_specialize=bounds.warp_specialize,
        single_accumulator=bounds.disallow_acc_multi_buffer,
        no_licm=bounds.disable_licm,
    )
    carried.finish(unflatten(carried.types, operation.results), inner_scope)
    return NORMAL


def _bounds(g: Generator, node: ast.For, bounds: tl_range) -> tuple[ir.Value, ir.Value, ir.Value, ir.Value | None, dtype]:
    """(lower, upper, step, start of a descending loop or None, type of the variable) with bounds in one type and a positive step."""
    g.locate(node.iter)
    start, end, step = bounds.start, bounds.end, bounds.step
    sign = 1
    if is_number(lift(step)):
        amount = lift(step).value
        if amount == 0:
            raise located(g.frame, node.iter, "the step of a range must not be zero", CompilationError)
        sign = -1 if amount < 0 else 1
        step = constexpr(abs(amount))
    parts = []
    for name, value in (("start", start), ("end", end), ("step", step)):
        value = lift(value)
        part = g.semantic.to_tensor(value) if is_number(value) or isinstance(value, tensor) else None
        if part is not None and part.extents and part.numel.value == 1:
            part = g.semantic.scalar_of(part)
        if part is None or part.extents or not part.dtype.is_int():
            message = f"the {name} of a range is a scalar integer, not {describe(value)}"
            raise located(g.frame, node.iter, message, CompilationError)
        parts.append(part)
    iv_type = integer_promote(integer_promote(parts[0].dtype, parts[1].dtype), parts[2].dtype)
    if iv_type is int1:
        raise located(g.frame, node.iter, with_help("the bounds of a range are booleans", "convert them with `.to(tl.int32)`"), CompilationError)
    first, last, stride = (g.semantic.cast(part, iv_type).handle for part in parts)
    if sign < 0:
        return last, first, stride, first, iv_type
    return first, last, stride, None, iv_type


def _for_as_while(
    g: Generator,
    node: ast.For,
    facts: Facts,
    carried: Carried,
    jumps: frozenset[str],
    bounds: tuple[ir.Value, ir.Value, ir.Value, ir.Value | None],
    iv_type: dtype,
    hints: tl_range,
) -> Completion:
    """A ``for`` that may be left early."""
    assert isinstance(node.target, ast.Name)
    name = node.target.id
    lower, upper, step, descending = bounds
    builder = g.builder
    g.locate(node)
    unit = step.definition is not None and step.definition.name == "constant" and step.definition.attribute("value") == 1
    unsigned = ir_types.IntType(iv_type.int_bitwidth, signed=False)
    counters = [lower]
    if not unit:
        # Counting iterations keeps the test sound where lower + n * step would wrap around.
        counters.append(_iterations(builder, lower, upper, step, unsigned))

    def more(arguments: list[ir.Value]) -> ir.Value:
        if unit:
            return builder.cmp(arguments[0], upper, predicate="lt")
        return builder.cmp(arguments[1], builder.constant(value=0, result=unsigned), predicate="ne")

    def enter(arguments: list[ir.Value]) -> None:
        variable = tensor(arguments[0], iv_type)
        if descending is not None:
            variable = g.semantic.sub(tensor(descending, iv_type), g.semantic.sub(variable, tensor(lower, iv_type)))
        g.scope[name] = variable
        name_values(variable, name)

    def advance(arguments: list[ir.Value]) -> list[ir.Value]:
        following = [builder.add(arguments[0], step)]
        if not unit:
            following.append(builder.sub(arguments[1], builder.constant(value=1, result=unsigned)))
        return following

    def test(arguments: list[ir.Value]) -> Any:
        return tensor(more(arguments), int1)

    loop = _While(g, node, facts, carried, jumps, hints.disable_licm)
    return loop.build(counters, test, enter, advance)


def _iterations(builder: ir.Builder, lower: ir.Value, upper: ir.Value, step: ir.Value, unsigned: ir_types.IntType) -> ir.Value:
    """How often a ``for`` runs: (upper - lower - 1) / step + 1 modulo 2**bits where lower < upper, else 0; exact for any bounds."""

    def plain(value: ir.Value) -> ir.Value:
        return value if value.type is unsigned else builder.bitcast(value, result=unsigned)

    one = builder.constant(value=1, result=unsigned)
    span = builder.sub(builder.sub(plain(upper), plain(lower)), one)
    count = builder.add(builder.div(span, plain(step)), one)
    some = builder.cmp(lower, upper, predicate="lt")
    found: ir.Value = builder.select(some, count, builder.constant(value=0, result=unsigned))
    return found


# -- while --------------------------------------------------------------------------------------------------------------------------------------------


def while_statement(g: Generator, node: ast.While, facts: Facts, follows: bool) -> Completion:
    """Visit a ``while`` loop and its ``else``."""
    assigned, jumps = assigned_names(g, node.body, frozenset(_walrus_names(node.test)))
    loop = _While(g, node, facts, Carried(g, node, facts, assigned), jumps, False)

    def test(arguments: list[ir.Value]) -> Any:
        value = g.loop_condition(node.test)
        if isinstance(value, tl_condition):
            loop.no_licm = value.disable_licm
            value = value.condition
        return g.truth(node.test, value)

    completion = loop.build([], test, lambda arguments: None, lambda arguments: [])
    return _otherwise(g, node, facts, completion)


def _walrus_names(node: ast.expr) -> list[str]:
    return [inner.target.id for inner in ast.walk(node) if isinstance(inner, ast.NamedExpr)]


class _While:
    """Builds an IR ``while``: counters, then variables, then the jump flags, then the value returned from inside."""

    def __init__(self, g: Generator, node: ast.For | ast.While, facts: Facts, carried: Carried, jumps: frozenset[str], no_licm: bool) -> None:
        self.g, self.node, self.facts, self.carried, self.no_licm = g, node, facts, carried, no_licm
        depth = g.frame.loops + 1
        self.flags = [flag for kind, flag in ((BREAK, break_flag(depth)), (RETURN, RETURN_FLAG)) if kind in jumps]
        self.depth = depth

    def build(
        self,
        counters: list[ir.Value],
        test: Callable[[list[ir.Value]], Any],
        enter: Callable[[list[ir.Value]], None],
        advance: Callable[[list[ir.Value]], list[ir.Value]],
    ) -> Completion:
        """Build the loop.

        Args:
            counters: initial values of counters the source does not see.
            test: emits the test, given the counters: a tensor, or a bool known at compile time.
            enter: binds what an iteration begins with.
            advance: emits the counters' next values.
        """
        g, carried, node = self.g, self.carried, self.node
        builder, outer_location = g.builder, g.builder.location
        g.locate(node)
        counter_types = [counter.type for counter in counters]
        flag_types = [ir_types.I1 for _ in self.flags]
        initial = [*counters, *carried.initial_values(), *(builder.constant(value=False, result=ir_types.I1) for _ in self.flags)]
        before = ir.Region([*counter_types, *carried.flat_types, *flag_types])
        start, end = len(counters), len(counters) + len(carried.flat_types)

        # The test, in the region before.
        outer_scope, saved = g.enter(before)
        g.scope = carried.bind(before.arguments[start:end])
        stop = self._any(before.arguments[end:])
        entry_scope = g.scope
        go_on = self._test(test, before.arguments[:start], stop)
        g.locate(node)
        if go_on is False:
            # Known never to run: nothing of the loop is left.
            g.leave(outer_scope, saved)
            for operation in reversed(list(before)):
                operation.erase()
            return NORMAL
        forwarded = self._forwarded(entry_scope)
        forwarded_values = [flat for value in forwarded.values() for flat in flatten(value)]
        tested_scope = g.scope

        # The body, in the region after.
        types = [type_of(value) for value in forwarded.values()]
        flat_types = [flat for type_ in types for flat in type_.flatten()]
        after = ir.Region([*counter_types, *flat_types, *flag_types])
        body_end = start + len(flat_types)
        builder.region = after
        g.scope = dict(tested_scope)
        for name, value in zip(forwarded, unflatten(types, after.arguments[start:body_end]), strict=True):
            g.scope[name] = value
            name_values(value, name)
        enter(after.arguments[:start])
        g.frame.loops += 1
        body = _end_of_iteration(g.block(node.body, self.facts.live_head, False), self.depth)
        g.frame.loops -= 1
        g.locate(node)
        body_scope = g.scope
        if go_on is True and not body.jumps:
            message = with_help("this loop never ends: its condition always holds", "leave it by `break`, or test a value the loop changes")
            raise located(g.frame, node, message, CompilationError)
        values = self._blank(carried) if body.returns_only else carried.collect()
        flag_values = [self._flag(flag, body) for flag in self.flags]
        result = self._result(body)
        following = advance(after.arguments[:start])
        builder.yield_([*following, *values, *flag_values, *flatten(result)])
        result_types = [value.type for value in flatten(result)]
        for type_ in result_types:
            before.add_argument(type_)
            after.add_argument(type_)

        # The end of the region before, now that everything carried is known.
        builder.region = before
        holds = self._holds(go_on, stop)
        passed = [*before.arguments[:start], *forwarded_values, *before.arguments[end:]]
        builder.condition(holds, passed)
        g.leave(outer_scope, saved)
        g.locate(node)
        if result is not None:
            initial.extend(flatten(placeholder(g, type_of(result))))
        operation = builder.region_op(
            "while", initial, regions=[before, after], results=[value.type for value in after.arguments], no_licm=self.no_licm
        )
        builder.location = outer_location
        return self._finish(operation, forwarded, types, body, body_scope, result, (start, body_end), go_on is True)

    def _any(self, flags: Sequence[ir.Value]) -> ir.Value | None:
        """Whether any flag is set."""
        found: ir.Value | None = None
        for flag in flags:
            found = flag if found is None else self.g.builder.or_(found, flag)
        return found

    def _test(self, test: Callable[[list[ir.Value]], Any], counters: list[ir.Value], stop: ir.Value | None) -> Any:
        """The test's value, evaluated only where no jump was taken if that can be told: a bool or an i1 value."""
        g = self.g
        if stop is None:
            value = test(counters)
            return value if isinstance(value, bool) else value.handle
        then, other = Branch(), Branch()
        results: list[Any] = []

        def visit() -> Completion:
            results.append(test(counters))
            return NORMAL

        then.visit(g, g.scope, visit)
        (value,) = results
        if isinstance(value, bool) or all(_harmless(operation) for operation in then.region):
            assert g.builder.region is not None
            for operation in then.region:
                then.region._unlink(operation)
                g.builder.region.append(operation)
            g.scope = then.scope
            return value if isinstance(value, bool) else value.handle
        other.visit(g, g.scope, None)
        other.completion = Completion(False, frozenset())
        then.value, other.value = value, constexpr(False)
        run = tensor(g.builder.xor(stop, g.builder.constant(value=True, result=ir_types.I1)), int1)
        merge(g, self.node, run, then, other, None, False)
        return g.scope.pop("?expression").handle

    def _holds(self, go_on: Any, stop: ir.Value | None) -> ir.Value:
        """The condition of going on."""
        builder = self.g.builder
        true = builder.constant(value=True, result=ir_types.I1)
        if stop is None:
            return true if go_on is True else go_on
        running = builder.xor(stop, true)
        found: ir.Value = running if go_on is True else builder.and_(running, go_on)
        return found

    def _forwarded(self, entry_scope: Scope) -> Scope:
        """The variables as the test leaves them: the carried ones, and those it assigned."""
        scope = self.g.scope
        found = {name: scope[name] for name in self.carried.names}
        for name, value in scope.items():
            if name not in found and not is_hidden(name) and entry_scope.get(name) is not value:
                found[name] = value
        return found

    def _blank(self, carried: Carried) -> list[ir.Value]:
        """Values for the variables where the body always returns."""
        return [flat for type_ in carried.types for flat in flatten(placeholder(self.g, type_))]

    def _flag(self, flag: str, body: Completion) -> ir.Value:
        value = self.g.scope.get(flag, constexpr(False)) if flag in body.jumps else constexpr(False)
        handle: ir.Value = self.g.semantic.to_tensor(value).handle
        return handle

    def _result(self, body: Completion) -> Any:
        """The value returned from inside; None where nothing is carried for it."""
        if RETURN_FLAG not in body.jumps:
            return None
        value = self.g.scope[RETURN_VALUE]
        return value if type_of(value).flatten() else None

    def _finish(
        self,
        operation: ir.Operation,
        forwarded: Scope,
        types: list[Any],
        body: Completion,
        body_scope: Scope,
        result: Any,
        span: tuple[int, int],
        endless: bool,
    ) -> Completion:
        g, results = self.g, operation.results
        start, end = span
        finals = unflatten(types, results[start:end])
        count = len(self.carried.names)
        self.carried.finish(finals[:count], body_scope)
        for name, value in list(zip(forwarded, finals, strict=True))[count:]:
            g.scope[name] = value
            name_values(value, name)
        for flag, value in zip(self.flags, results[end : end + len(self.flags)], strict=True):
            g.scope[flag] = tensor(value, int1)
        jumps = frozenset(flag for flag in self.flags if flag in body.jumps)
        if RETURN_FLAG in jumps:
            value = body_scope[RETURN_VALUE] if result is None else unflatten([type_of(result)], results[end + len(self.flags) :])[0]
            g.scope[RETURN_VALUE] = value
        return Completion(not endless, jumps)


def _harmless(operation: ir.Operation) -> bool:
    """Whether an operation may run where the source would not have run it."""
    return operation.spec.effects is Effect.NONE and operation.name not in ("div", "rem")


# -- what is carried ----------------------------------------------------------------------------------------------------------------------------------


class Carried:
    """The variables a loop carries, in the order of the scope, with the types they keep."""

    def __init__(self, g: Generator, node: ast.For | ast.While, facts: Facts, assigned: frozenset[str]) -> None:
        self.g, self.node, self.assigned = g, node, assigned
        self.outer = g.scope
        live = facts.live_head
        self.names: list[str] = []
        self.initial: list[Any] = []
        g.locate(node)
        for name, value in g.scope.items():
            if name in assigned and name in live and type(value) is not Undefined:
                self.names.append(name)
                self.initial.append(decay(g, value))
        self.types = [type_of(value) for value in self.initial]
        self.flat_types = [flat for type_ in self.types for flat in type_.flatten()]

    def initial_values(self) -> list[ir.Value]:
        return [flat for value in self.initial for flat in flatten(value)]

    def bind(self, arguments: Sequence[ir.Value]) -> Scope:
        """The scope of an iteration, given the region's arguments."""
        scope = dict(self.outer)
        for name, value in zip(self.names, unflatten(self.types, arguments), strict=True):
            scope[name] = value
            name_values(value, name)
        return scope

    def collect(self) -> list[ir.Value]:
        """The values at the end of an iteration.

        Raises:
            CompilationError: a variable changed its type.
        """
        g, found = self.g, []
        for name, type_ in zip(self.names, self.types, strict=True):
            value = g.scope[name]
            if type(value) is Undefined and value.dead:
                # Every path from there leaves the loop: the next iteration that would read it does not come.
                found.extend(flatten(placeholder(g, type_)))
                continue
            if type(value) is Undefined:
                message = with_help(f"Loop-carried variable {name} has no value at the end of the loop's body: it {value.reason}", _KEEP)
                raise located(g.frame, self._assignment(name), message, CompilationError)
            if is_number(value):
                value = decay(g, value)
            final = type_of(value)
            if final != type_:
                self._mismatch(name, type_, final)
            found.extend(flatten(value))
        return found

    def finish(self, finals: Sequence[Any], inner: Scope) -> None:
        """The scope after the loop, given the carried variables' last values. Variables that only the loop's body assigns have no value there."""
        scope = dict(self.outer)
        node = self.node
        for name, value in inner.items():
            if not is_hidden(name) and scope.get(name) is not value:
                line = node.lineno + self.g.frame.line_offset
                scope[name] = Undefined(f"is assigned only inside the loop at line {line}, which may run zero times; assign it before the loop")
        for name, value in zip(self.names, finals, strict=True):
            scope[name] = value
            name_values(value, name)
        self.g.scope = scope

    def _assignment(self, name: str) -> ast.AST:
        """Where the loop assigns ``name`` last."""
        found: ast.AST = self.node
        for statement in self.node.body:
            for inner in ast.walk(statement):
                if isinstance(inner, ast.Name) and inner.id == name and not isinstance(inner.ctx, ast.Load):
                    found = inner
        return found

    def _mismatch(self, name: str, initial: Any, final: Any) -> NoReturn:
        start, end = describe_type(initial), describe_type(final)
        message = f"Loop-carried variable {name} has initial type {start} but is re-assigned to {end} in the loop"
        raise located(self.g.frame, self._assignment(name), with_help(message, _KEEP), CompilationError)


_KEEP = "a variable that a loop carries keeps its type; give it the final type before the loop, or convert with `.to(dtype)` inside"


def assigned_names(g: Generator, body: Sequence[ast.stmt], heads: frozenset[str]) -> tuple[frozenset[str], frozenset[str]]:
    """(names that a loop's body may assign, jumps that leave an iteration early), without the sides of ``if`` that are known not to be taken.

    A side is known by a test on names that the loop does not assign, so that the answer is that of the visit to come.
    """
    facts = g.frame.analysis.facts
    everything = frozenset().union(heads, *(facts[statement].assigned for statement in body))
    assigned: set[str] = set(heads)
    jumps: set[str] = set()

    def add(statements: Sequence[ast.stmt], hidden: frozenset[str]) -> None:
        for statement in statements:
            own = facts[statement]
            if isinstance(statement, ast.If):
                test = g.known_test(statement.test, everything)
                if test is not None:
                    add(statement.body if test else statement.orelse, hidden)
                    continue
                assigned.update(_walrus_names(statement.test))
                add(statement.body, hidden)
                add(statement.orelse, hidden)
            elif isinstance(statement, ast.For | ast.While):
                assigned.update(own.assigned - _assigned_inside(facts, statement))
                add(statement.body, frozenset({BREAK, CONTINUE}))
                add(statement.orelse, hidden)
            else:
                assigned.update(own.assigned)
                jumps.update(own.jumps - hidden)

    add(body, frozenset())
    return frozenset(assigned), frozenset(jumps)


def _assigned_inside(facts: dict[ast.stmt, Facts], loop: ast.For | ast.While) -> frozenset[str]:
    """Names assigned by the statements of a loop, without its head's."""
    inside = frozenset().union(*(facts[statement].assigned for statement in (*loop.body, *loop.orelse)))
    if isinstance(loop, ast.For):
        return inside - {name.id for name in ast.walk(loop.target) if isinstance(name, ast.Name)}
    return inside - set(_walrus_names(loop.test))


__all__ = ["Continuation", "for_statement", "while_statement"]
