"""Liveness and control flow of a function, computed from its syntax tree alone.

For each statement: the names it assigns, the names read later, and the jumps that may leave it.

The results depend only on the source, so they are computed once per function and shared by every
specialisation. Loops carry, and branches merge, only names that are both assigned inside and live
afterwards; no loop body is ever visited twice to find that out.

Liveness is the classical backward analysis over structured code: a bottom-up sweep finds, for each
statement, the names it reads before it assigns them (``reads``) and those it is sure to assign
(``kills``); a top-down sweep then fixes the names live after each statement. Both are linear. Where
a ``break``, ``continue`` or ``return`` may cut a statement short, nothing after the cut counts as
assigned, and what is live at the jump's target is live there.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from typing import Any

from tilewright.language.definitions.callable import JitCallable

Names = frozenset[str]
NONE: Names = frozenset()

BREAK, CONTINUE, RETURN = "break", "continue", "return"


class Facts:
    """Dataflow facts of one statement.

    Attributes:
        assigned: names it may assign.
        reads: names it may read before it assigns them.
        kills: names it surely assigns, if control leaves it at its end.
        jumps: how control may leave it elsewhere: ``break``, ``continue``, ``return``, as seen from
            outside the statement.
        live_after: names read after it, at its end or at the target of its jumps.
        live_head: of a loop: names live where an iteration begins.
        each_sets: of a loop: names that every iteration surely assigns, also one that a jump cuts
            short.
    """

    __slots__ = ("assigned", "each_sets", "jumps", "kills", "live_after", "live_head", "reads")

    def __init__(self, reads: Names, kills: Names, assigned: Names, jumps: Names = NONE) -> None:
        self.reads, self.kills, self.assigned, self.jumps = reads, kills, assigned, jumps
        self.live_after: Names = NONE
        self.live_head: Names = NONE
        self.each_sets: Names = NONE

    @staticmethod
    def of_loop(once: Names, each_time: Names, heads: set[str], body: Facts, other: Facts) -> Facts:
        """Compute the dataflow facts of a loop from those of its parts.

        ``once`` is read before the first iteration, ``each_time`` in every iteration; the loop's
        head assigns ``heads``.
        """
        facts = Facts(
            once | each_time,
            NONE,
            body.assigned | other.assigned | heads,
            (body.jumps - {BREAK, CONTINUE}) | other.jumps,
        )
        facts.live_head = each_time
        facts.each_sets = body.kills | heads
        return facts


class Analysis:
    """The dataflow analysis of one function.

    Attributes:
        body: the statements, without the docstring.
        locals: names that are parameters or assigned somewhere.
        facts: by statement.
    """

    __slots__ = ("body", "facts", "locals", "tree")

    def __init__(self, tree: ast.FunctionDef) -> None:
        self.tree = tree
        self.facts: dict[ast.stmt, Facts] = {}
        body: list[ast.stmt] = tree.body
        first = body[0]
        if (
            isinstance(first, ast.Expr)
            and isinstance(first.value, ast.Constant)
            and isinstance(first.value.value, str)
        ):
            body = body[1:]
        self.body = body
        whole = self._summarise(body)
        arguments = tree.args
        names = {
            argument.arg
            for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)
        }
        names.update(
            argument.arg for argument in (arguments.vararg, arguments.kwarg) if argument is not None
        )
        self.locals: Names = whole.assigned | names
        self._spread(body, NONE, NONE, NONE)

    # -- bottom up ---------------------------------------------------------------------------------

    def _summarise(self, statements: Sequence[ast.stmt]) -> Facts:
        """Return the facts of a sequence of statements."""
        reads: Names = NONE
        kills: Names = NONE
        assigned: set[str] = set()
        jumps: Names = NONE
        each = [self._statement(statement) for statement in statements]
        for facts in each:
            if not jumps:
                kills |= facts.kills
            assigned |= facts.assigned
            jumps |= facts.jumps
        for facts in reversed(each):
            reads = facts.reads | (reads - facts.kills)
        return Facts(reads, kills, frozenset(assigned), jumps)

    def _statement(self, node: ast.stmt) -> Facts:
        made: Facts = _SUMMARIES.get(type(node), Analysis._simple)(self, node)
        self.facts[node] = made
        return made

    def _simple(self, node: ast.stmt) -> Facts:
        reads, stores = names_in([node])
        return Facts(frozenset(reads), frozenset(stores), frozenset(stores))

    def _augmented(self, node: ast.AugAssign) -> Facts:
        reads, stores = names_in([node])
        return Facts(frozenset(reads | stores), frozenset(stores), frozenset(stores))

    def _annotated(self, node: ast.AnnAssign) -> Facts:
        if node.value is None:
            return Facts(NONE, NONE, NONE)
        reads, stores = names_in([node.target, node.value])
        return Facts(frozenset(reads), frozenset(stores), frozenset(stores))

    def _if(self, node: ast.If) -> Facts:
        reads, stores = names_in([node.test])
        then, other = self._summarise(node.body), self._summarise(node.orelse)
        return Facts(
            frozenset(reads) | then.reads | other.reads,
            then.kills & other.kills,
            then.assigned | other.assigned | stores,
            then.jumps | other.jumps,
        )

    def _for(self, node: ast.For) -> Facts:
        reads, _ = names_in([node.iter])
        _, targets = names_in([node.target])
        body, other = self._summarise(node.body), self._summarise(node.orelse)
        return Facts.of_loop(
            frozenset(reads), (body.reads - targets) | other.reads, targets, body, other
        )

    def _while(self, node: ast.While) -> Facts:
        reads, stores = names_in([node.test])
        body, other = self._summarise(node.body), self._summarise(node.orelse)
        return Facts.of_loop(
            NONE, frozenset(reads) | (body.reads - stores) | other.reads, stores, body, other
        )

    def _with(self, node: ast.With) -> Facts:
        reads, stores = names_in(
            [
                part
                for item in node.items
                for part in (item.context_expr, item.optional_vars)
                if part is not None
            ]
        )
        body = self._summarise(node.body)
        return Facts(
            frozenset(reads) | (body.reads - stores),
            body.kills | stores,
            body.assigned | stores,
            body.jumps,
        )

    def _jump(self, node: ast.stmt) -> Facts:
        reads: set[str] = set()
        if isinstance(node, ast.Return):
            if node.value is not None:
                reads, _ = names_in([node.value])
            return Facts(frozenset(reads), NONE, NONE, frozenset({RETURN}))
        return Facts(
            NONE, NONE, NONE, frozenset({BREAK if isinstance(node, ast.Break) else CONTINUE})
        )

    # -- top down ----------------------------------------------------------------------------------

    def _spread(
        self, statements: Sequence[ast.stmt], live: Names, at_break: Names, at_continue: Names
    ) -> None:
        """Set ``live_after`` of each statement, given the names live after the sequence."""
        for node in reversed(statements):
            facts = self.facts[node]
            if BREAK in facts.jumps:
                live |= at_break
            if CONTINUE in facts.jumps:
                live |= at_continue
            facts.live_after = live
            if isinstance(node, ast.If):
                self._spread(node.body, live, at_break, at_continue)
                self._spread(node.orelse, live, at_break, at_continue)
            elif isinstance(node, ast.For | ast.While):
                facts.live_head = head = facts.live_head | live
                self._spread(node.body, head, live, head)
                self._spread(node.orelse, live, at_break, at_continue)
            elif isinstance(node, ast.With):
                self._spread(node.body, live, at_break, at_continue)
            if isinstance(node, ast.Return):
                live = facts.reads
            elif isinstance(node, ast.Break):
                live = at_break
            elif isinstance(node, ast.Continue):
                live = at_continue
            else:
                live = facts.reads | (live - facts.kills)


_SUMMARIES: dict[type[ast.stmt], Any] = {
    ast.AugAssign: Analysis._augmented,
    ast.AnnAssign: Analysis._annotated,
    ast.If: Analysis._if,
    ast.For: Analysis._for,
    ast.While: Analysis._while,
    ast.With: Analysis._with,
    ast.Return: Analysis._jump,
    ast.Break: Analysis._jump,
    ast.Continue: Analysis._jump,
}


def names_in(nodes: Iterable[ast.AST]) -> tuple[set[str], set[str]]:
    """Return (names read, names assigned) in expressions or simple statements.

    Variables of comprehensions are in neither set.
    """
    reads: set[str] = set()
    stores: set[str] = set()
    pending = list(nodes)
    while pending:
        node = pending.pop()
        kind = type(node)
        if kind is ast.Name:
            names = reads if type(node.ctx) is ast.Load else stores  # type: ignore[attr-defined]
            names.add(node.id)  # type: ignore[attr-defined]
        elif kind in (ast.ListComp, ast.GeneratorExp, ast.SetComp, ast.DictComp):
            inner, bound = names_in(ast.iter_child_nodes(node))
            reads |= inner - bound
            # evaluated outside, where a bound name means another variable
            pending.append(node.generators[0].iter)  # type: ignore[attr-defined]
        elif kind is ast.comprehension:
            # The variables of a comprehension are its own: as stores here they hide its reads of
            # the same name in the case above.
            pending.extend((node.target, node.iter, *node.ifs))  # type: ignore[attr-defined]
        elif kind is ast.Constant:
            continue
        else:
            for name in node._fields:
                child = getattr(node, name)
                if type(child) is list:
                    pending.extend(item for item in child if isinstance(item, ast.AST))
                elif isinstance(child, ast.AST):
                    pending.append(child)
    return reads, stores


def analyse(function: JitCallable) -> Analysis:
    """Return the analysis of ``function``, cached on it until its source changes."""
    found: Analysis | None = function.analysis
    if found is None:
        found = function.analysis = Analysis(function.parse())
    return found
