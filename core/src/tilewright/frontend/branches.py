"""``if`` and everything lowered to it: two regions visited with copies of the scope, then merged.

A name is merged where the two scopes differ and something later reads it. Jumps are values too:
where one side of an ``if`` has left the block by ``break``, ``continue`` or ``return``, the
statements that follow are visited inside the other side; where a side may or may not have left, an
i1 flag records it, and the statements that follow are guarded by an ``if`` on the flag.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any, NoReturn

from tilewright import ir
from tilewright.errors import CompilationError, with_help
from tilewright.frontend.analysis import Names
from tilewright.frontend.errors import located
from tilewright.frontend.frame import (
    NORMAL,
    RETURN_FLAG,
    RETURN_VALUE,
    Completion,
    Scope,
    Undefined,
    is_hidden,
)
from tilewright.frontend.generator import ModuleGenerator
from tilewright.frontend.values import (
    decay,
    describe_type,
    flatten,
    is_number,
    name_values,
    placeholder,
    type_of,
    unflatten,
)
from tilewright.language.builtin_functions.block_pointers import block_pointer
from tilewright.language.core import constexpr, tensor

#: Visits statements at the current insertion point, in the current scope.
Continuation = Callable[[], Completion]

_MISSING = object()
_FALSE = constexpr(False)
_TRUE = constexpr(True)


class Branch:
    """One side of an ``if``: its region, still without terminator, and what holds at its end.

    ``value`` is the side's own value, where the ``if`` is an expression.
    """

    __slots__ = ("completion", "region", "scope", "value")

    def __init__(self) -> None:
        self.region = ir.Region()
        self.scope: Scope = {}
        self.completion: Completion = NORMAL
        self.value: Any = None

    def visit(self, g: ModuleGenerator, scope: Scope, visit: Continuation | None) -> None:
        """Visit the side, starting from ``scope``."""
        self.scope = dict(scope)
        if visit is not None:
            self.extend(g, visit)

    def extend(self, g: ModuleGenerator, visit: Continuation) -> None:
        """Visit more statements at the end of the side.

        ``visit`` completes with the jumps that the side may have taken before as well, as by
        :func:`guarded`.
        """
        builder, outer = g.builder, g.scope
        saved = builder.region, builder.before, builder.location
        builder.region, builder.before, g.scope = self.region, None, self.scope
        self.completion = visit()
        self.scope, g.scope = g.scope, outer
        builder.region, builder.before, builder.location = saved


def if_statement(
    g: ModuleGenerator,
    node: ast.If,
    live: Names,
    rest: Continuation | None,
    live_end: Names,
    follows: bool,
) -> tuple[Completion, bool]:
    """Visit an ``if``.

    Args:
        live: names live after it.
        rest: visits the statements that follow in its block.
        live_end: names live after its block.
        follows: statements of enclosing blocks follow that block before the target of a jump, so
            the jump's flag is needed.

    Returns:
        How it completes, and whether ``rest`` was visited already.
    """
    test = g.condition(node.test)
    inner_follows = follows or rest is not None
    if isinstance(test, bool):
        chosen = node.body if test else node.orelse
        return g.block(chosen, live, inner_follows), False
    then, other = Branch(), Branch()
    then.visit(g, g.scope, lambda: g.block(node.body, live, inner_follows))
    other.visit(
        g, g.scope, (lambda: g.block(node.orelse, live, inner_follows)) if node.orelse else None
    )
    absorbed = False
    if rest is not None and then.completion.falls != other.completion.falls:
        # One side has left: what follows belongs to the other alone.
        side, pending = then if then.completion.falls else other, rest
        side.extend(g, lambda: guarded(g, node, side.completion, pending, live_end, follows))
        absorbed, live = True, live_end
    elif not then.completion.falls and not other.completion.falls:
        absorbed = True  # nothing reaches what follows
    flags = follows or (rest is not None and not absorbed)
    return merge(g, node, test, then, other, live, flags), absorbed


def guarded(
    g: ModuleGenerator,
    node: ast.stmt,
    completion: Completion,
    rest: Continuation,
    live: Names,
    follows: bool,
) -> Completion:
    """Visit ``rest`` under an ``if`` that no jump of ``completion`` was taken.

    Returns:
        How both complete: by the jumps of ``completion`` too, unless it is known that none of them
        was taken.
    """
    active = not_taken(g, completion)
    if active is None:
        return rest()
    then, other = Branch(), Branch()
    then.visit(g, g.scope, rest)
    other.visit(g, g.scope, None)
    other.completion = Completion(False, completion.jumps)
    return merge(g, node, active, then, other, live, follows)


def not_taken(g: ModuleGenerator, completion: Completion) -> Any:
    """Return the condition that none of the jumps was taken; None where that is certain."""
    taken = None
    for flag in sorted(completion.jumps):
        value = g.scope.get(flag, _FALSE)
        if type(value) is constexpr:
            if not value.value:
                continue
            value = g.semantic.to_tensor(value)
        taken = value if taken is None else g.semantic.or_(taken, value)
    return None if taken is None else g.semantic.unary("not", taken)


def merge(
    g: ModuleGenerator,
    node: ast.AST,
    condition: tensor,
    then: Branch,
    other: Branch,
    live: Names | None,
    flags: bool,
) -> Completion:
    """Join two sides: emit the ``if``, and make the scope after it the current one.

    Args:
        live: names to merge; None merges all.
        flags: code that follows reads the flags of jumps.
    """
    g.locate(node)
    before, a, b = g.scope, then.scope, other.scope
    joined: list[tuple[str, Any, Any]] = []
    # variables to which both sides assign one value, such as that of another variable
    alike: Scope = {}
    for name, value in a.items():
        against = b.get(name, _MISSING)
        if is_hidden(name):
            continue
        if against is not value:
            joined.append((name, value, against))
        elif before.get(name, _MISSING) is not value:
            alike[name] = value
    joined.extend(
        (name, _MISSING, value)
        for name, value in b.items()
        if name not in a and not is_hidden(name)
    )
    after = {**before, **alike}
    yields = _Yields(g, node, then, other)
    for name, mine, theirs in joined:
        if live is not None and name not in live:
            after[name] = Undefined("is not read after the `if` that assigns it", dead=True)
        else:
            yields.variable(name, mine, theirs, before.get(name, _MISSING), after)
    jumps = then.completion.jumps | other.completion.jumps
    for flag in sorted(jumps):
        # A loop always reads the flags of its own breaks and of returns.
        if flags or flag.startswith("?break") or (flag == RETURN_FLAG and g.frame.loops):
            yields.flag(flag, after)
    if RETURN_FLAG in jumps:
        yields.returned(after)
    if then.value is not None:
        yields.expression(then.value, other.value, after)
    yields.emit(condition, after)
    g.scope = after
    return Completion(then.completion.falls or other.completion.falls, jumps)


class _Yields:
    """The values that two sides yield, gathered name by name."""

    def __init__(self, g: ModuleGenerator, node: ast.AST, then: Branch, other: Branch) -> None:
        self.g, self.node, self.then, self.other = g, node, then, other
        self.names: list[str] = []
        self.types: list[Any] = []
        self.mine: list[ir.Value] = []
        self.theirs: list[ir.Value] = []

    def add(self, name: str, type_: Any, mine: Any, theirs: Any) -> None:
        self.names.append(name)
        self.types.append(type_)
        self.mine.extend(flatten(mine))
        self.theirs.extend(flatten(theirs))

    def within(self, branch: Branch, make: Callable[[], Any]) -> Any:
        """Return the result of ``make``, emitted at the end of a side."""
        builder = self.g.builder
        saved = builder.region, builder.before
        builder.region, builder.before = branch.region, None
        made = make()
        builder.region, builder.before = saved
        return made

    def variable(self, name: str, mine: Any, theirs: Any, initial: Any, after: Scope) -> None:
        """Merge a variable whose values differ between the two sides."""
        sides = [(self.then, mine), (self.other, theirs)]
        missing = [value is _MISSING or type(value) is Undefined for _, value in sides]
        if all(missing):
            after[name] = mine if mine is not _MISSING else theirs
            return
        if any(missing):
            lacking, having = (0, 1) if missing[0] else (1, 0)
            if sides[lacking][0].completion.falls:
                after[name] = self._undefined(lacking, sides[lacking][1])
                return
            self._fill(name, having, sides, after)
            return
        mine, theirs = self._agree(mine, theirs)
        type_a, type_b = type_of(mine), type_of(theirs)
        if type_a != type_b:
            # A side that has left the function will not read the variable again.
            for gone, (branch, _) in enumerate(sides):
                if branch.completion.returns_only:
                    self._fill(name, 1 - gone, sides, after)
                    return
            self._mismatch(name, mine, theirs, initial)
        if not type_a.flatten() and type(mine) is constexpr:
            after[name] = mine
            return
        self.add(name, type_a, mine, theirs)

    def _undefined(self, lacking: int, left: Any) -> Undefined:
        if type(left) is Undefined:
            return left
        line = getattr(self.node, "lineno", 0) + self.g.frame.line_offset
        assigned = "then" if lacking else "else"
        return Undefined(
            f"is assigned only in the {assigned} block of the `if` at line {line}; assign it on "
            "both paths, or before the `if`"
        )

    def _fill(self, name: str, having: int, sides: list[tuple[Branch, Any]], after: Scope) -> None:
        """Yield a placeholder from the side that has left; nothing reads it."""
        value = sides[having][1]
        type_ = type_of(value)
        if not type_.flatten():
            after[name] = value
            return
        try:
            blank = self.within(sides[1 - having][0], lambda: placeholder(self.g.builder, type_))
        except TypeError as error:
            after[name] = Undefined(f"cannot be kept past a conditional jump: {error}")
            return
        pair = (value, blank) if having == 0 else (blank, value)
        self.add(name, type_, *pair)

    def _agree(self, mine: Any, theirs: Any) -> tuple[Any, Any]:
        """Convert compile-time numbers that differ between the sides to tensors.

        This includes the numbers within block pointers.
        """
        if isinstance(mine, block_pointer) and isinstance(theirs, block_pointer):
            return self._agree_deep(mine, theirs)
        if is_number(mine) and is_number(theirs) and type_of(mine) == type_of(theirs):
            return mine, theirs
        if is_number(mine):
            value = mine
            mine = self.within(self.then, lambda: decay(self.g.semantic, value))
        if is_number(theirs):
            value_b = theirs
            theirs = self.within(self.other, lambda: decay(self.g.semantic, value_b))
        return mine, theirs

    def _mismatch(self, name: str, mine: Any, theirs: Any, initial: Any) -> NoReturn:
        a, b = describe_type(type_of(mine)), describe_type(type_of(theirs))
        if initial is not _MISSING and type(initial) is not Undefined:
            start = describe_type(type_of(initial))
            if theirs is initial or start == b:
                message = (
                    f"initial value for `{name}` is of type {start}, but the then block "
                    f"redefines it as {a}"
                )
            elif mine is initial or start == a:
                message = (
                    f"initial value for `{name}` is of type {start}, but the else block "
                    f"redefines it as {b}"
                )
            else:
                message = (
                    f"Mismatched type for {name} between then block ({a}) and else block ({b})"
                )
        else:
            message = f"Mismatched type for {name} between then block ({a}) and else block ({b})"
        remedy = (
            "a variable keeps one type on all paths; convert with `.to(dtype)`, or use another name"
        )
        raise located(self.g.frame, self.node, with_help(message, remedy), CompilationError)

    def flag(self, flag: str, after: Scope) -> None:
        """Merge a jump's flag."""
        mine = self.then.scope.get(flag, _FALSE) if flag in self.then.completion.jumps else _FALSE
        theirs = (
            self.other.scope.get(flag, _FALSE) if flag in self.other.completion.jumps else _FALSE
        )
        if mine is theirs or (is_number(mine) and is_number(theirs) and mine.value == theirs.value):
            after[flag] = mine
            return
        mine, theirs = self._agree(mine, theirs)
        self.add(flag, mine.type, mine, theirs)

    def returned(self, after: Scope) -> None:
        """Merge the value that the function returns."""
        sides = [
            branch.scope.get(RETURN_VALUE, _MISSING)
            if RETURN_FLAG in branch.completion.jumps
            else _MISSING
            for branch in (self.then, self.other)
        ]
        mine, theirs = sides
        if mine is _MISSING or theirs is _MISSING:
            having = 1 if mine is _MISSING else 0
            self._fill(RETURN_VALUE, having, [(self.then, mine), (self.other, theirs)], after)
            left = after.get(RETURN_VALUE)
            if type(left) is Undefined:
                raise located(
                    self.g.frame,
                    self.node,
                    f"the value returned here {left.reason}",
                    CompilationError,
                )
            return
        if mine is theirs:
            after[RETURN_VALUE] = mine
            return
        mine, theirs = self._agree_deep(mine, theirs)
        type_a, type_b = type_of(mine), type_of(theirs)
        if type_a != type_b:
            a, b = describe_type(type_a), describe_type(type_b)
            raise located(
                self.g.frame,
                self.node,
                with_help(
                    f"Inconsistent return types. Return type mismatch: {a} and {b}", _RETURNS
                ),
                CompilationError,
            )
        if not type_a.flatten():
            after[RETURN_VALUE] = mine
            return
        self.add(RETURN_VALUE, type_a, mine, theirs)

    def _agree_deep(self, mine: Any, theirs: Any) -> tuple[Any, Any]:
        """Apply :meth:`_agree` to a value, and recursively to the items of tuples."""
        if type_of(mine) == type_of(theirs):
            return mine, theirs
        semantic = self.g.semantic
        if isinstance(mine, block_pointer) and isinstance(theirs, block_pointer):
            return self.within(self.then, lambda: mine.alike(semantic, theirs)), self.within(
                self.other, lambda: theirs.alike(semantic, mine)
            )
        return self.within(self.then, lambda: decay(semantic, mine)), self.within(
            self.other, lambda: decay(semantic, theirs)
        )

    def expression(self, mine: Any, theirs: Any, after: Scope) -> None:
        """Merge the value of a conditional expression."""
        mine, theirs = self._agree_deep(mine, theirs)
        type_a, type_b = type_of(mine), type_of(theirs)
        if type_a != type_b:
            message = (
                "Ternary expression with dynamic condition has inconsistent types "
                f"{describe_type(type_a)} and {describe_type(type_b)}"
            )
            raise located(
                self.g.frame,
                self.node,
                with_help(message, "convert one side with `.to(dtype)`"),
                CompilationError,
            )
        if not type_a.flatten():
            after["?expression"] = mine
            return
        self.add("?expression", type_a, mine, theirs)

    def emit(self, condition: tensor, after: Scope) -> None:
        """Emit the ``if`` and bind its results; emit nothing where both sides are empty."""
        builder = self.g.builder
        if not self.mine and self.then.region.first is None and self.other.region.first is None:
            for name, type_ in zip(self.names, self.types, strict=True):
                (after[name],) = unflatten([type_], [])
            return
        self.within(self.then, lambda: builder.yield_(self.mine))
        self.within(self.other, lambda: builder.yield_(self.theirs))
        regions = (self.then.region, self.other.region)
        operation = builder.region_op(
            "if", condition.handle, regions=regions, results=[value.type for value in self.mine]
        )
        for name, value in zip(self.names, unflatten(self.types, operation.results), strict=True):
            after[name] = value
            if not is_hidden(name):
                name_values(value, name)


_RETURNS = "every `return` of a function must return one type; convert with `.to(dtype)`"
