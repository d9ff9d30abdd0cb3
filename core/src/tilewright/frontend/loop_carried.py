"""Loop-carried values: the variables a loop passes from one iteration to the next."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any, NoReturn

from tilewright import ir
from tilewright.errors import CompilationError, with_help
from tilewright.frontend.analysis import BREAK, CONTINUE, Facts
from tilewright.frontend.errors import located
from tilewright.frontend.frame import RETURN_FLAG, Scope, Undefined, is_hidden
from tilewright.frontend.generator import ModuleGenerator
from tilewright.frontend.host_calls import names_assigned_by_calls
from tilewright.frontend.values import (
    decay,
    describe_type,
    flatten,
    has_placeholder,
    is_number,
    name_values,
    placeholder,
    type_of,
    unflatten,
)
from tilewright.language.definitions.open_copies import holds_aggregate


class LastValues:
    """Variables that only a loop's body assigns, and that are read after the loop.

    The loop carries them, though no iteration reads what another one left.

    Attributes:
        names, types: of the variables.
        values: their values at the end of an iteration.
    """

    def __init__(self) -> None:
        self.names: list[str] = []
        self.types: list[Any] = []
        self.values: list[ir.Value] = []
        self._ends: list[Any] = []

    def add(self, name: str, type_: Any, value: Any) -> None:
        """Carry a variable, with its value at the end of an iteration."""
        self.names.append(name)
        self.types.append(type_)
        self.values.extend(flatten(value))
        self._ends.append(value)

    def initial(self, builder: ir.Builder) -> list[ir.Value]:
        """Return placeholders for the first iteration's arguments; nothing reads them."""
        return [flat for type_ in self.types for flat in flatten(placeholder(builder, type_))]

    def add_arguments(self, region: ir.Region) -> list[ir.Value]:
        """Add the iteration arguments of the variables to ``region``."""
        return [region.add_argument(value.type) for value in self.values]

    def bound(self, results: Sequence[ir.Value]) -> list[Any]:
        """Return the variables' values after the loop; compile-time values stay as they are."""
        carried = unflatten(self.types, results)
        return [
            now if type_.flatten() else end
            for end, type_, now in zip(self._ends, self.types, carried, strict=True)
        ]


class CarriedVariables:
    """The loop-carried variables, in the order of the scope, with their types."""

    def __init__(
        self, g: ModuleGenerator, node: ast.For | ast.While, facts: Facts, assigned: frozenset[str]
    ) -> None:
        self.g, self.node = g, node
        head = () if isinstance(node, ast.For) else (node.test,)
        self.assigned = assigned = assigned | names_assigned_by_calls(g, (*head, *node.body))
        self.outer = g.scope
        live = facts.live_head
        self.names: list[str] = []
        self.initial: list[Any] = []
        g.locate(node)
        for name, value in g.scope.items():
            if name in assigned and name in live and type(value) is not Undefined:
                self.names.append(name)
                self.initial.append(decay(g.semantic, value))
        self.types = [type_of(value) for value in self.initial]
        self.flat_types = [flat for type_ in self.types for flat in type_.flatten()]

    def initial_values(self) -> list[ir.Value]:
        return [flat for value in self.initial for flat in flatten(value)]

    def bind(self, arguments: Sequence[ir.Value]) -> Scope:
        """Return the scope of an iteration, given the region's iteration arguments."""
        scope = dict(self.outer)
        for name, value in zip(self.names, unflatten(self.types, arguments), strict=True):
            scope[name] = value
            name_values(value, name)
        return scope

    def collect(self) -> list[ir.Value]:
        """Return the loop-carried values at the end of an iteration.

        Raises:
            CompilationError: a variable changed its type.
        """
        return [
            flat
            for name, type_ in zip(self.names, self.types, strict=True)
            for flat in self.at_end(name, type_)
        ]

    def at_end(self, name: str, type_: Any) -> list[ir.Value]:
        """Return the IR values of the variable ``name`` at the end of an iteration.

        Raises:
            CompilationError: it changed its type, or has no value.
        """
        g, value = self.g, self.g.scope[name]
        if type(value) is Undefined and value.dead:
            # Every path from there leaves the loop: the next iteration that would read it does not
            # come.
            return flatten(placeholder(g.builder, type_))
        if type(value) is Undefined:
            message = with_help(
                f"Loop-carried variable {name} has no value at the end of the loop's body: it "
                f"{value.reason}",
                _KEEP,
            )
            raise located(g.frame, self._assignment(name), message, CompilationError)
        if is_number(value):
            value = decay(g.semantic, value)
        final = type_of(value)
        if final != type_:
            self._mismatch(name, type_, final)
        return flatten(value)

    def last_values(self, facts: Facts, jumps: frozenset[str]) -> LastValues:
        """Collect variables first assigned in the body of a loop that runs at least once.

        They have no value before the loop; code after it reads the values of the last iteration.

        Args:
            facts: of the loop.
            jumps: the flags of the jumps that the body may have taken: a ``break`` or ``continue``
                leaves only what is assigned before it.
        """
        g, found = self.g, LastValues()
        cut = any(flag != RETURN_FLAG for flag in jumps)
        for name, value in g.scope.items():
            if (
                name in self.names
                or name not in facts.live_head
                or self.outer.get(name) is value
                or is_hidden(name)
                or type(value) is Undefined
            ):
                continue
            if cut and name not in facts.each_sets:
                continue
            type_ = type_of(value)
            if has_placeholder(type_):
                found.add(name, type_, value)
        return found

    def finish(
        self,
        finals: Sequence[Any],
        inner: Scope,
        last: LastValues | None,
        results: Sequence[ir.Value] = (),
    ) -> None:
        """Update the scope to the state after the loop.

        Variables that only the loop's body assigns have no value there, unless the loop runs at
        least once.

        Args:
            finals: the carried variables' last values.
            inner: the scope at the end of the body.
            last: of a loop that runs at least once; ``results`` are its values.
        """
        self._refuse_unforeseen(inner)
        scope = dict(self.outer)
        line = self.node.lineno + self.g.frame.line_offset
        why = (
            "may run zero times" if last is None else "a `break` or `continue` may leave before it"
        )
        for name, value in inner.items():
            if is_hidden(name) or scope.get(name) is value:
                continue
            if last is not None and type(value) is Undefined:
                scope[name] = value
            else:
                scope[name] = Undefined(
                    f"is assigned only inside the loop at line {line}, which {why}; assign it "
                    "before the loop"
                )
        kept = [] if last is None else list(zip(last.names, last.bound(results), strict=True))
        for name, value in (*zip(self.names, finals, strict=True), *kept):
            scope[name] = value
            name_values(value, name)
        self.g.scope = scope

    def _refuse_unforeseen(self, inner: Scope) -> None:
        """Raise if a call assigned a field of a variable that the loop does not carry.

        The assignment could not be foreseen before the loop.
        """
        for name, value in self.outer.items():
            if (
                name not in self.assigned
                and not is_hidden(name)
                and inner[name] is not value
                and holds_aggregate(value)
            ):
                message = (
                    f"a call in this loop assigns to a field of {name}, which the call "
                    "does not show"
                )
                raise located(
                    self.g.frame,
                    self.node,
                    with_help(
                        message, f"call a method on {name}, or assign the variable: {name} = ..."
                    ),
                    CompilationError,
                )

    def _assignment(self, name: str) -> ast.AST:
        """Return the node of the loop's last assignment to ``name``."""
        found: ast.AST = self.node
        for statement in self.node.body:
            for inner in ast.walk(statement):
                if (
                    isinstance(inner, ast.Name)
                    and inner.id == name
                    and not isinstance(inner.ctx, ast.Load)
                ):
                    found = inner
        return found

    def _mismatch(self, name: str, initial: Any, final: Any) -> NoReturn:
        start, end = describe_type(initial), describe_type(final)
        message = (
            f"Loop-carried variable {name} has initial type {start} but is re-assigned to "
            f"{end} in loop! Please make sure that the type stays consistent."
        )
        raise located(
            self.g.frame, self._assignment(name), with_help(message, _KEEP), CompilationError
        )


_KEEP = (
    "a variable that a loop carries keeps its type; give it the final type before the loop, or "
    "convert with `.to(dtype)` inside"
)


def assigned_names(
    g: ModuleGenerator, body: Sequence[ast.stmt], heads: frozenset[str]
) -> tuple[frozenset[str], frozenset[str]]:
    """Return (names a loop's body may assign, jumps that leave an iteration early).

    Sides of an ``if`` that are known not to be taken are skipped.

    Only tests on names that the loop does not assign are evaluated, so the result agrees with the
    later visit.
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
                assigned.update(walrus_names(statement.test))
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
    """Return the names that a loop's body assigns, without its target's."""
    inside = frozenset().union(
        *(facts[statement].assigned for statement in (*loop.body, *loop.orelse))
    )
    if isinstance(loop, ast.For):
        return inside - {name.id for name in ast.walk(loop.target) if isinstance(name, ast.Name)}
    return inside - set(walrus_names(loop.test))


def walrus_names(node: ast.expr) -> list[str]:
    """Return the names that the walrus operators of an expression assign."""
    return [inner.target.id for inner in ast.walk(node) if isinstance(inner, ast.NamedExpr)]
