"""Construction of IR ``while`` loops, for ``while`` and for ``for`` loops left early."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import Any

from tilewright import ir
from tilewright.errors import CompilationError, with_help
from tilewright.frontend.analysis import BREAK, RETURN, Facts
from tilewright.frontend.branches import Branch, merge
from tilewright.frontend.errors import located
from tilewright.frontend.frame import (
    NORMAL,
    RETURN_FLAG,
    RETURN_VALUE,
    Completion,
    Scope,
    Undefined,
    break_flag,
    end_of_iteration,
    is_hidden,
)
from tilewright.frontend.generator import ModuleGenerator
from tilewright.frontend.loop_carried import CarriedVariables, LastValues
from tilewright.frontend.values import flatten, name_values, placeholder, type_of, unflatten
from tilewright.ir import types as ir_types
from tilewright.ir.ops.arithmetic import Div, Rem
from tilewright.ir.table import Effect
from tilewright.language.core import constexpr, int1, tensor


class WhileLoop:
    """Builder of an IR ``while``.

    It carries counters, then variables, then the jump flags, then the value returned from inside.
    """

    def __init__(
        self,
        g: ModuleGenerator,
        node: ast.For | ast.While,
        facts: Facts,
        carried: CarriedVariables,
        jumps: frozenset[str],
        no_licm: bool,
        runs: bool = False,
    ) -> None:
        self.g, self.node, self.facts, self.carried, self.no_licm = g, node, facts, carried, no_licm
        #: known to run at least once
        self.runs = runs
        depth = g.frame.loops + 1
        self.flags = [
            flag
            for kind, flag in ((BREAK, break_flag(depth)), (RETURN, RETURN_FLAG))
            if kind in jumps
        ]
        self.depth = depth
        #: variables that only the test assigns, which a jump must leave as they are
        self.kept: dict[str, Any] = {}

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
        initial = [
            *counters,
            *carried.initial_values(),
            *(builder.constant(value=False, result=ir_types.I1) for _ in self.flags),
        ]
        before = ir.Region([*counter_types, *carried.flat_types, *flag_types])
        start, end = len(counters), len(counters) + len(carried.flat_types)

        # The test, in the region before.
        outer_scope, saved = g.enter(before)
        g.scope = carried.bind(before.arguments[start:end])
        flags = before.arguments[end:]
        stop = self._any(flags)
        entry_scope = dict(g.scope)
        go_on = self._test(before, test, before.arguments[:start], stop)
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
        for name, value in zip(
            forwarded, unflatten(types, after.arguments[start:body_end]), strict=True
        ):
            g.scope[name] = value
            name_values(value, name)
        enter(after.arguments[:start])
        g.frame.loops += 1
        iteration = g.block(node.body, self.facts.live_head, False)
        body = end_of_iteration(iteration, self.depth)
        g.frame.loops -= 1
        g.locate(node)
        body_scope = g.scope
        if go_on is True and not body.jumps:
            message = with_help(
                "this loop never ends: its condition always holds",
                "leave it by `break`, or test a value the loop changes",
            )
            raise located(g.frame, node, message, CompilationError)
        values = self._blank(carried) if body.returns_only else carried.collect()
        flag_values = [self._flag(flag, body) for flag in self.flags]
        kept = [flat for name, type_ in self.kept.items() for flat in carried.at_end(name, type_)]
        result = self._result(body)
        last = (
            carried.last_values(self.facts, iteration.jumps) if self.runs or go_on is True else None
        )
        following = advance(after.arguments[:start])
        builder.yield_(
            [
                *following,
                *values,
                *flag_values,
                *kept,
                *flatten(result),
                *(() if last is None else last.values),
            ]
        )
        results_before = [before.add_argument(value.type) for value in flatten(result)]
        for value in flatten(result):
            after.add_argument(value.type)
        result_end = len(after.arguments)
        if last is not None:
            results_before.extend(last.add_arguments(before))
            last.add_arguments(after)

        # The end of the region before, now that everything carried is known.
        builder.region = before
        holds = self._holds(go_on, stop)
        builder.condition(
            holds, [*before.arguments[:start], *forwarded_values, *flags, *results_before]
        )
        g.leave(outer_scope, saved)
        g.locate(node)
        for type_ in (*self.kept.values(), *(() if result is None else (type_of(result),))):
            initial.extend(flatten(placeholder(builder, type_)))
        if last is not None:
            initial.extend(last.initial(builder))
        operation = builder.region_op(
            "while",
            initial,
            regions=[before, after],
            results=[value.type for value in after.arguments],
            no_licm=self.no_licm,
        )
        builder.location = outer_location
        return self._finish(
            operation,
            forwarded,
            types,
            body,
            body_scope,
            result,
            (start, body_end, result_end),
            go_on is True,
            last,
        )

    def _any(self, flags: Sequence[ir.Value]) -> ir.Value | None:
        """Emit the disjunction of the flags; None where there are none."""
        found: ir.Value | None = None
        for flag in flags:
            found = flag if found is None else self.g.builder.or_(found, flag)
        return found

    def _test(
        self,
        before: ir.Region,
        test: Callable[[list[ir.Value]], Any],
        counters: list[ir.Value],
        stop: ir.Value | None,
    ) -> Any:
        """Emit the loop's test: a bool or an i1 value.

        After a jump the source does not evaluate the test again. So it stands under an ``if`` where
        it assigns variables, which then keep the values they had at the jump, and where evaluating
        it once more could do harm.
        """
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
        assigned = [
            name
            for name, now in then.scope.items()
            if not is_hidden(name) and g.scope.get(name) is not now
        ]
        if not assigned and (
            isinstance(value, bool) or all(_harmless(operation) for operation in then.region)
        ):
            assert g.builder.region is not None
            for operation in then.region:
                then.region._unlink(operation)
                g.builder.region.append(operation)
            g.scope = then.scope
            return value if isinstance(value, bool) else value.handle
        other.visit(g, g.scope, None)
        other.completion = Completion(False, frozenset())
        for name in assigned:
            if type(g.scope.get(name, _NOTHING)) is Undefined:
                self.kept[name] = type_ = type_of(then.scope[name])
                (other.scope[name],) = unflatten(
                    [type_], [before.add_argument(flat, name) for flat in type_.flatten()]
                )
        if not isinstance(value, bool):
            then.value, other.value = value, constexpr(False)
        run = tensor(g.builder.xor(stop, g.builder.constant(value=True, result=ir_types.I1)), int1)
        merge(g, self.node, run, then, other, None, False)
        return value if isinstance(value, bool) else g.scope.pop("?expression").handle

    def _holds(self, go_on: Any, stop: ir.Value | None) -> ir.Value:
        """Emit the condition under which the loop continues."""
        builder = self.g.builder
        true: ir.Value = builder.constant(value=True, result=ir_types.I1)
        if stop is None:
            holds: ir.Value = true if go_on is True else go_on
            return holds
        running = builder.xor(stop, true)
        found: ir.Value = running if go_on is True else builder.and_(running, go_on)
        return found

    def _forwarded(self, entry_scope: Scope) -> Scope:
        """Return the carried variables and those that the test assigned, with their new values."""
        scope = self.g.scope
        found = {name: scope[name] for name in self.carried.names}
        for name, value in scope.items():
            if name not in found and not is_hidden(name) and entry_scope.get(name) is not value:
                found[name] = value
        return found

    def _blank(self, carried: CarriedVariables) -> list[ir.Value]:
        """Emit placeholders for the variables where the body always returns."""
        return [
            flat for type_ in carried.types for flat in flatten(placeholder(self.g.builder, type_))
        ]

    def _flag(self, flag: str, body: Completion) -> ir.Value:
        value = self.g.scope.get(flag, constexpr(False)) if flag in body.jumps else constexpr(False)
        handle: ir.Value = self.g.semantic.to_tensor(value).handle
        return handle

    def _result(self, body: Completion) -> Any:
        """Return the value of a ``return`` in the loop; None if the loop carries no such value."""
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
        span: tuple[int, int, int],
        endless: bool,
        last: LastValues | None,
    ) -> Completion:
        g, results = self.g, operation.results
        start, end, result_end = span
        finals = unflatten(types, results[start:end])
        count = len(self.carried.names)
        self.carried.finish(finals[:count], body_scope, last, results[result_end:])
        for name, value in list(zip(forwarded, finals, strict=True))[count:]:
            g.scope[name] = value
            name_values(value, name)
        for flag, value in zip(self.flags, results[end : end + len(self.flags)], strict=True):
            g.scope[flag] = tensor(value, int1)
        jumps = frozenset(flag for flag in self.flags if flag in body.jumps)
        if RETURN_FLAG in jumps:
            value = (
                body_scope[RETURN_VALUE]
                if result is None
                else unflatten([type_of(result)], results[end + len(self.flags) : result_end])[0]
            )
            g.scope[RETURN_VALUE] = value
        return Completion(not endless, jumps)


_NOTHING = Undefined("has no value before the loop")


def _harmless(operation: ir.Operation) -> bool:
    """Return whether an operation may be executed speculatively."""
    return operation.spec.effects is Effect.NONE and not isinstance(operation, Div | Rem)
