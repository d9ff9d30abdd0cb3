"""Source of ``while`` loops: a test, or a loop that is left where its condition fails."""

from __future__ import annotations

from tilewright.frontend.source.control_source import assign_values, carry, plan_assignments
from tilewright.frontend.source.expression_text import Binding
from tilewright.frontend.source.function_writer import SourceWriter, is_pure
from tilewright.frontend.source.operand_forms import exact
from tilewright.frontend.source.source_rows import SourceForm, row_of, written
from tilewright.frontend.source.value_names import name_hint
from tilewright.ir.core import Region, Value
from tilewright.ir.ops.control import Condition, While


@written("while", form=SourceForm.STATEMENT)
def _while(writer: SourceWriter, operation: While) -> None:
    before = operation.before
    end = before.last
    assert isinstance(end, Condition)
    names = carry(writer, operation, operation.inits, before.arguments)
    writer.mark(operation)
    kept = len({*end.values} & {*before.arguments}) == len(end.values)
    if kept and _is_one_expression(writer, before):
        forwarded = [writer.name_of(value) for value in end.values]
        _tested(writer, operation, end, forwarded, names)
    else:
        forwarded = _left(writer, operation, end, names)
    for name, value in zip(forwarded, operation.results, strict=True):
        writer.bind(value, name)


def _left(writer: SourceWriter, operation: While, end: Condition, names: list[str]) -> list[str]:
    """Write a loop that is left where its condition fails, and return what then holds values."""
    before = operation.before
    writer.line("while True:")
    with writer.indented():
        forwarded = [_forwarded_name(writer, value, names) for value in end.values]
        writer.body(before)
        writer.settle(end)
        condition = exact(writer, end.condition)
        assign_values(writer, forwarded, end.values)
        writer.mark(end)
        writer.line(f"if not {condition.within(Binding.SIGN)}:")
        with writer.indented():
            writer.line("break")
        _iteration(writer, operation.after, forwarded, names)
    return forwarded


def _tested(
    writer: SourceWriter,
    operation: While,
    end: Condition,
    forwarded: list[str],
    names: list[str],
) -> None:
    """Write a loop whose region before is its test, and leaves its variables as they are."""
    with writer.one_expression():
        writer.body(operation.before)
    test = exact(writer, end.condition).text
    writer.mark(end)
    if operation.no_licm:
        test = f"tl.condition({test}, disable_licm=True)"
    writer.line(f"while {test}:")
    with writer.indented():
        _iteration(writer, operation.after, forwarded, names)


def _iteration(writer: SourceWriter, after: Region, entered: list[str], names: list[str]) -> None:
    assert after.last is not None
    for name, value in zip(entered, after.arguments, strict=True):
        writer.bind(value, name)
    values = after.last.operands
    plan_assignments(writer, names, values)
    writer.body(after)
    writer.settle(after.last)
    assign_values(writer, names, values)
    writer.mark(after.last)


def _forwarded_name(writer: SourceWriter, value: Value, names: list[str]) -> str:
    """Return the variable of a forwarded value: that of the argument which it is, if any."""
    name = writer.names.get(value)
    return name if name in names else writer.new_name(f"{name_hint(value)}_now")


def _is_one_expression(writer: SourceWriter, region: Region) -> bool:
    """Return whether a region can be evaluated as one expression: it has one effect at most."""
    effects = 0
    for operation in region:
        if operation.spec.terminator:
            continue
        if row_of(operation).form not in (SourceForm.EXPRESSION, SourceForm.IMPLIED):
            return False
        if len(operation.results) != 1 or (operation.regions and not is_pure(operation)):
            return False
        if not is_pure(operation):
            effects += 1
            if len(writer.readers(operation.result)) != 1:
                return False
    return effects <= 1
