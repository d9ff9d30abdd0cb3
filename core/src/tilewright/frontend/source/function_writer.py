"""The writer of one function: what stands on a line of its own, and what within an expression."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from tilewright.frontend.source.expression_text import SourceExpression
from tilewright.frontend.source.line_breaks import broken
from tilewright.frontend.source.source_rows import (
    CalledFunctions,
    SourceForm,
    SourceRow,
    is_implied_check,
    row_of,
    unwritable,
)
from tilewright.frontend.source.value_names import VariableNames, identifier, name_hint
from tilewright.ir.core import Operation, Region, Value
from tilewright.ir.ops.control import If
from tilewright.ir.table import Effect, Trait
from tilewright.ir.types import shape_of

#: The maximum length of an expression that is written within another one.
_INLINE = 56


class SourceWriter:
    """Writes the operations of a function, in their order.

    Attributes:
        module: writes the functions that this one calls.
        names: value -> the variable that holds it.
        lines: of the body.
    """

    def __init__(self, module: CalledFunctions, region: Region, taken: Iterable[str] = ()) -> None:
        self.module = module
        self._dead = dead_operations(region)
        self.names: dict[Value, str] = {}
        self._held: dict[str, list[Value]] = {}
        self.lines: list[str] = []
        self._variables = VariableNames(taken)
        self._inlined: dict[Value, SourceExpression] = {}
        #: operations within expressions whose order is kept
        self._placed: list[Operation] = []
        self._done: set[Operation] = set()
        self._wanted: dict[Value, str] = {}
        self._kept: set[tuple[Operation, Value]] = set()
        self._depth = 1
        self._forced = 0

    # -- names -------------------------------------------------------------------------------------

    def bind(self, value: Value, name: str) -> None:
        """Let a variable hold a value."""
        self.names[value] = name
        self._held.setdefault(name, []).append(value)

    def new_name(self, wanted: str, region: Region | None = None) -> str:
        """Return a name for what is assigned in a region.

        A variable of that name which nobody reads any more is assigned anew; else the name gets a
        number. Without a region no other variable has the name.
        """
        name = identifier(wanted)
        held = self._held.get(name)
        if region is not None and held and self._is_free(held, region):
            return name
        return self._variables.new(wanted)

    def _is_free(self, held: list[Value], region: Region) -> bool:
        """Return whether a variable may be assigned anew in a region.

        Not so if it was assigned in a region around it, which may be run again.
        """
        around = {operation.parent for operation in _owners(region)}
        outside = not any(region_of(value) in around for value in held)
        own = not any(self.names[value] in self.module.parameters for value in held)
        return outside and own and not self.is_read_later(held, region)

    def new_variable(self, value: Value) -> str:
        """Let a new variable hold a value."""
        name = self.new_name(name_hint(value), region_of(value) if value.name else None)
        self.bind(value, name)
        return name

    def name_of(self, value: Value) -> str:
        """Return the variable that holds a value."""
        name = self.names.get(value)
        if name is None:
            raise self.module.captured(value)
        return name

    def wish(self, value: Value, name: str) -> None:
        """Let the operation that defines ``value`` assign it to a variable that exists already."""
        self._wanted[value] = name

    # -- expressions -------------------------------------------------------------------------------

    def is_inlined(self, value: Value) -> bool:
        """Return whether a value is written within the expression that reads it."""
        return value in self._inlined

    def expression(self, value: Value) -> SourceExpression:
        """Return the expression of a value that no variable holds."""
        found = self._inlined.get(value)
        if found is not None:
            return found
        definition = value.definition
        if definition is None or row_of(definition).form is not SourceForm.IMPLIED:
            raise self.module.captured(value)
        expression: SourceExpression = row_of(definition).write(self, definition)
        return expression

    @contextmanager
    def one_expression(self) -> Iterator[None]:
        """Write every operation within the expressions that read it, however long they get."""
        self._forced += 1
        yield
        self._forced -= 1

    # -- lines -------------------------------------------------------------------------------------

    def line(self, text: str) -> None:
        """Write a line at the current indentation, broken where it is long."""
        self.lines.extend(broken(text, 4 * self._depth))

    @contextmanager
    def indented(self) -> Iterator[None]:
        """Write a block: ``pass`` where nothing is written."""
        self._depth += 1
        count = len(self.lines)
        yield
        if len(self.lines) == count:
            self.line("pass")
        self._depth -= 1

    def assign(self, targets: Sequence[str], texts: Sequence[str]) -> None:
        """Write an assignment."""
        self.line(f"{', '.join(targets)} = {', '.join(texts)}")

    # -- operations --------------------------------------------------------------------------------

    def body(self, region: Region) -> None:
        """Write the operations of a region, without its terminator."""
        for operation in region:
            if not operation.spec.terminator:
                self.operation(operation)

    def operation(self, operation: Operation) -> None:
        """Write an operation, or keep its expression for the one that reads it."""
        if operation in self._dead:
            return
        row = row_of(operation)
        for value in operation.results:
            if any(extent & (extent - 1) for extent in shape_of(value.type)):
                raise unwritable(operation, f"extents are powers of two, not those of {value.type}")
        if row.form is SourceForm.STATEMENT:
            self.settle(operation)
            row.write(self, operation)
            self.mark(operation)
        elif row.form is SourceForm.EXPRESSION:
            self._expression(operation, row)

    def _expression(self, operation: Operation, row: SourceRow) -> None:
        pure = is_pure(operation)
        uses = [user for value in operation.results for user in self.readers(value)]
        if pure and not uses:
            return
        expression: SourceExpression = row.write(self, operation)
        if self._is_inlined(operation, uses, pure, expression):
            self._inlined[operation.result] = expression
            if _keeps_its_place(operation):
                self._placed.append(operation)
            return
        if self.settle(operation):
            expression = row.write(self, operation)
        if not uses:
            self.line(expression.text)
        else:
            # what the operation reads is written: its variables may be assigned anew
            self.mark(operation)
            targets = [self._target(value) for value in operation.results]
            self.line(f"{', '.join(targets)} = {expression.text}")
        self.mark(operation)

    def _is_inlined(
        self, operation: Operation, uses: list[Operation], pure: bool, expression: SourceExpression
    ) -> bool:
        if len(operation.results) != 1:
            return False
        if self._forced:
            return bool(uses)
        value = operation.result
        return (
            pure
            and value not in self._wanted
            and len(uses) == 1
            and uses[0].parent is operation.parent
            and not (value.name and not uses[0].spec.terminator)
            and len(expression.text) <= _INLINE
        )

    def settle(self, operation: Operation) -> bool:
        """Write what has to stand before an operation; return whether there was something.

        Matmuls, reductions and the like stay in their order, for code generation goes by it: those
        that the operation does not read at once get lines of their own.
        """
        pending = self._placed = [placed for placed in self._placed if placed not in self._done]
        read = self._read_at_once(operation)
        kept = 0
        while kept < min(len(pending), len(read)) and pending[-1 - kept] is read[-1 - kept]:
            kept += 1
        moved = pending[: len(pending) - kept]
        for placed in moved:
            self._write_before(placed)
        return bool(moved)

    def _read_at_once(self, operation: Operation) -> list[Operation]:
        """Return the operations of :attr:`_placed` in the expressions of an operation, in order."""
        found: list[Operation] = []
        for operand in operation.operands:
            definition = operand.definition
            if definition is None or operand in self.names or definition in self._done:
                continue
            found += self._read_at_once(definition)
            if operand in self._inlined and _keeps_its_place(definition):
                found.append(definition)
        return found

    def _write_before(self, operation: Operation) -> None:
        """Write an operation that was within an expression as a line of its own."""
        expression = self._inlined.pop(operation.result)
        self.mark(operation)
        self.line(f"{self.new_variable(operation.result)} = {expression.text}")
        for value in self._inlined:
            definition = value.definition
            if definition is not None and definition not in self._done:
                self._inlined[value] = row_of(definition).write(self, definition)

    def _target(self, value: Value) -> str:
        """Return the variable to which a value is assigned."""
        wanted = self._wanted.get(value)
        if wanted is not None and not self.is_read_later(
            self.holders(value, wanted), region_of(value)
        ):
            self.bind(value, wanted)
            return wanted
        return self.new_variable(value)

    def holders(self, value: Value, name: str) -> list[Value]:
        """Return the values that a variable holds so far, other than ``value``."""
        return [other for other in self._held.get(name, ()) if other is not value]

    def readers(self, value: Value) -> list[Operation]:
        """Return the operations that read a value, once for each operand.

        What the language implies is looked through.
        """
        found: list[Operation] = []
        pending = list(value.uses.items())
        while pending:
            user, count = pending.pop()
            if user in self._dead:
                continue
            if row_of(user).form is SourceForm.IMPLIED:
                for _ in range(count):
                    pending.extend(user.result.uses.items())
            else:
                found.extend([user] * count)
        return found

    # -- what has been read ------------------------------------------------------------------------

    def mark(self, operation: Operation) -> None:
        """Note that an operation is written, with all that is written within it."""
        pending = [operation]
        while pending:
            current = pending.pop()
            self._done.add(current)
            for operand in current.operands:
                definition = operand.definition
                if definition is not None and operand not in self.names:
                    pending.append(definition)

    def is_pending(self, operation: Operation) -> bool:
        """Return whether an operation is not written yet."""
        return operation not in self._done

    def is_read_later(self, values: Iterable[Value], region: Region | None) -> bool:
        """Return whether an operation that is not written yet reads one of the values.

        The other side of an ``if`` around ``region``, where the variable is assigned, does not
        count.
        """
        sides = dict(_sides(region)) if region is not None else {}
        return any(
            user not in self._done
            and (user, value) not in self._kept
            and not _is_on_the_other_side(user, sides)
            for value in values
            for user in self.readers(value)
        )

    def wanted_result(self, operation: Operation, value: Value) -> str | None:
        """Return the variable that a branch shall assign, if nothing else reads it."""
        wanted = self._wanted.get(value)
        if wanted is None:
            return None
        inside = set(operation.walk())
        free = all(
            user in inside or user in self._done
            for other in self.holders(value, wanted)
            for user in self.readers(other)
        )
        return wanted if free else None

    def keep(self, terminator: Operation, value: Value) -> None:
        """Note that a side leaves a value in its variable: its terminator does not read it."""
        self._kept.add((terminator, value))


def region_of(value: Value) -> Region | None:
    """Return the region in which a value is defined."""
    return value.owner.parent if isinstance(value.owner, Operation) else value.owner


def _sides(region: Region) -> Iterator[tuple[Operation, Region]]:
    """Yield the branches around a region, each with the side in which it is."""
    current: Region | None = region
    while current is not None and isinstance(current.owner, Operation):
        if isinstance(current.owner, If):
            yield current.owner, current
        current = current.owner.parent


def _is_on_the_other_side(operation: Operation, sides: Mapping[Operation, Region]) -> bool:
    """Return whether an operation is on another side of one of the branches."""
    if not sides or operation.parent is None:
        return False
    return any(sides.get(branch, side) is not side for branch, side in _sides(operation.parent))


def _owners(region: Region) -> Iterator[Operation]:
    """Yield the operations around a region, from the inside."""
    if isinstance(region.owner, Operation):
        yield region.owner
        yield from region.owner.ancestors()


def dead_operations(region: Region) -> set[Operation]:
    """Return the operations of a region that nothing reads, and the checks that are implied."""
    dead: set[Operation] = set()
    for operation in reversed(list(region.walk())):
        if is_implied_check(operation):
            dead.add(operation)
        elif is_pure(operation) and not operation.spec.terminator:
            users = (user for value in operation.results for user in value.uses)
            if all(user in dead for user in users):
                dead.add(operation)
    return dead


def _keeps_its_place(operation: Operation) -> bool:
    """Return whether the order of an operation among others of its kind is kept."""
    traits = operation.spec.traits
    computes = not (operation.spec.elementwise or Trait.SHAPE in traits)
    return computes and bool(operation.operands)


def is_pure(operation: Operation) -> bool:
    """Return whether an operation, with its regions, has no effect and reads no memory."""
    return all(inner.spec.effects in (Effect.NONE, Effect.REGION) for inner in operation.walk())
