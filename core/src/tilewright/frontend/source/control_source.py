"""Source of branches and counted loops, whose values are plain assignments."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

from tilewright.frontend.source.expression_text import (
    SourceExpression,
    call_text,
    keeps_value,
    words,
)
from tilewright.frontend.source.function_writer import SourceWriter, region_of
from tilewright.frontend.source.operand_forms import exact, loose, tensor_of_constant
from tilewright.frontend.source.source_rows import SourceForm, written
from tilewright.frontend.source.value_names import name_hint, stored_name
from tilewright.ir.core import Operation, Region, Value
from tilewright.ir.ops.control import Call, For, If
from tilewright.ir.types import I32, IntType, Type
from tilewright.language.value_types.dtypes import from_ir
from tilewright.language.value_types.promotion import integer_promote

#: attribute of a loop -> the keyword of ``tl.range``
_LOOP_HINTS = {
    "num_stages": "num_stages",
    "unroll": "loop_unroll_factor",
    "single_accumulator": "disallow_acc_multi_buffer",
    "flatten": "flatten",
    "warp_specialize": "warp_specialize",
    "no_licm": "disable_licm",
}


@written("yield", "condition", "return", form=SourceForm.TERMINATOR)
def _terminator(writer: SourceWriter, operation: Operation) -> None:
    """Write nothing: the operation around it does."""


# -- assignments of what a block leaves ------------------------------------------------------------


def plan_assignments(writer: SourceWriter, names: Sequence[str], values: Sequence[Value]) -> None:
    """Let the operations that define the values assign them to the variables, where they can."""
    seen: set[Value] = set()
    for name, value in zip(names, values, strict=True):
        if value not in seen:
            seen.add(value)
            writer.wish(value, name)


def assign_values(writer: SourceWriter, names: Sequence[str], values: Sequence[Value]) -> None:
    """Assign values to variables at once; those that have theirs already stay."""
    texts = {
        name: initial_text(writer, value)
        for name, value in zip(names, values, strict=True)
        if writer.names.get(value) != name
    }
    assigned: set[str] = set()
    clash = False
    for name, text in texts.items():
        clash |= bool(words(text) & assigned)
        assigned.add(name)
    if clash:
        writer.assign(list(texts), list(texts.values()))
        return
    for name, text in texts.items():
        writer.assign([name], [text])


def initial_text(writer: SourceWriter, value: Value) -> str:
    """Return what is assigned to a variable, which has the type of the value."""
    found = loose(writer, value)
    if found.is_number and value.definition is not None and value.type is found.type:
        assert found.number is not None
        if keeps_value(found.number, value.type):
            return found.text
    return exact(writer, value).text


# -- if --------------------------------------------------------------------------------------------


@written("if", form=SourceForm.STATEMENT)
def _if(writer: SourceWriter, operation: If) -> None:
    condition = exact(writer, operation.condition).text
    writer.mark(operation)
    then, other = operation.then, operation.else_
    names = [_result_name(writer, operation, k) for k in range(len(operation.results))]
    writer.line(f"if {condition}:")
    _side(writer, then, names)
    if not _leaves_nothing(writer, other, names):
        start = len(writer.lines)
        writer.line("else:")
        _side(writer, other, names)
        writer.lines[start:] = _as_elif(writer.lines[start:])
    for name, value in zip(names, operation.results, strict=True):
        writer.bind(value, name)


def _as_elif(lines: list[str]) -> list[str]:
    """Return ``else:`` and its block as an ``elif``, where the block is one ``if``."""
    head, *block = lines
    indent = len(head) - len(head.lstrip())
    here = [line[indent + 4 :] for line in block if line[indent + 4] != " "]
    if not here[0].startswith("if ") or not all(
        line.startswith(("else:", "elif ", ")")) for line in here[1:]
    ):
        return lines
    return [f"{' ' * indent}el{here[0]}", *(line[4:] for line in block[1:])]


def _result_name(writer: SourceWriter, operation: If, k: int) -> str:
    """Return the variable of a result: that of a value which one side leaves as it is, if free."""
    result = operation.results[k]
    wanted = writer.wanted_result(operation, result)
    if wanted is not None:
        return wanted
    for region in (operation.else_, operation.then):
        assert region.last is not None
        value = region.last.operands[k]
        name = writer.names.get(value)
        if name is None or name in writer.module.parameters:
            continue
        inside, users = set(operation.walk()), writer.readers(value)
        free = all(user in inside or not writer.is_pending(user) for user in users)
        own = region_of(value) is operation.parent
        if own and free and users.count(region.last) == 1:
            writer.keep(region.last, value)
            return name
    return writer.new_name(name_hint(result), operation.parent if result.name else None)


def _side(writer: SourceWriter, region: Region, names: Sequence[str]) -> None:
    assert region.last is not None
    values = region.last.operands
    with writer.indented():
        plan_assignments(writer, names, values)
        writer.body(region)
        writer.settle(region.last)
        assign_values(writer, names, values)
    writer.mark(region.last)


def _leaves_nothing(writer: SourceWriter, region: Region, names: Sequence[str]) -> bool:
    """Return whether a side does nothing, and leaves the variables as they are."""
    assert region.last is not None
    same = all(
        writer.names.get(value) == name
        for name, value in zip(names, region.last.operands, strict=True)
    )
    return same and all(not inner.spec.effects and not inner.regions for inner in region)


# -- for -------------------------------------------------------------------------------------------


@written("for", form=SourceForm.STATEMENT)
def _for(writer: SourceWriter, operation: For) -> None:
    (body,) = operation.regions
    variable, carried = body.arguments[0], body.arguments[1:]
    names = carry(writer, operation, operation.inits, carried, operation.results)
    counter = writer.new_name(variable.name or "i", body)
    writer.bind(variable, counter)
    writer.line(f"for {counter} in {_range_text(writer, operation)}:")
    writer.mark(operation)
    assert body.last is not None
    values = body.last.operands
    with writer.indented():
        plan_assignments(writer, names, values)
        writer.body(body)
        writer.settle(body.last)
        assign_values(writer, names, values)
    writer.mark(body.last)
    for name, value in zip(names, operation.results, strict=True):
        writer.bind(value, name)


def carry(
    writer: SourceWriter,
    operation: Operation,
    inits: Sequence[Value],
    arguments: Sequence[Value],
    results: Sequence[Value] = (),
) -> list[str]:
    """Assign the first values of what a loop carries, and return the variables.

    A variable that holds the first value, which nothing else reads any more, goes on as the
    variable of the loop.
    """
    names: list[str] = []
    fresh: list[tuple[str, Value]] = []
    for init, argument, result in zip_longest(inits, arguments, results[: len(inits)]):
        name = writer.names.get(init)
        if name is None or not _may_reuse(writer, operation, init, name):
            named = argument if argument.name else init
            stored = None if named.name or result is None else stored_name(result)
            region = operation.parent if named.name else None
            name = writer.new_name(stored or name_hint(named), region)
            fresh.append((name, init))
        names.append(name)
        writer.bind(argument, name)
    for name, init in fresh:
        writer.assign([name], [initial_text(writer, init)])
    return names


def _may_reuse(writer: SourceWriter, operation: Operation, init: Value, name: str) -> bool:
    if name in writer.module.parameters or region_of(init) is not operation.parent:
        return False
    pending = [user for user in writer.readers(init) if writer.is_pending(user)]
    return pending == [operation]


def _range_text(writer: SourceWriter, operation: For) -> str:
    type_ = operation.body.arguments[0].type
    bounds = _bounds(writer, operation, type_)
    lower, upper, step = (bound.text for bound in bounds)
    parts = [upper] if (lower, step) == ("0", "1") else [lower, upper]
    parts += [step] if step != "1" else []
    hints = {
        keyword: repr(operation.attribute(name))
        for name, keyword in _LOOP_HINTS.items()
        if operation.attribute(name)
    }
    return call_text("tl.range" if hints else "range", *parts, **hints)


def _bounds(writer: SourceWriter, operation: For, type_: Type) -> list[SourceExpression]:
    """Return the bounds and the step, of which the language promotes the type of the variable."""
    values = (operation.lower, operation.upper, operation.step)
    forms = [loose(writer, value) for value in values]
    assert isinstance(type_, IntType)
    types = [from_ir(I32 if form.is_number else form.type) for form in forms]
    promoted = integer_promote(integer_promote(types[0], types[1]), types[2])
    small = all(form.number is None or I32.minimum <= form.number <= I32.maximum for form in forms)
    if small and promoted.ir_type is type_:
        return forms
    return [
        form if form.number is None else tensor_of_constant(form.number, type_) for form in forms
    ]


# -- calls -----------------------------------------------------------------------------------------


@written("call", form=SourceForm.STATEMENT)
def _call(writer: SourceWriter, operation: Call) -> None:
    function = writer.module.callee(operation)
    arguments = [exact(writer, x).text for x in operation.arguments]
    text = call_text(function, *arguments)
    if not operation.results:
        writer.line(text)
        return
    writer.line(f"{', '.join(writer.new_variable(x) for x in operation.results)} = {text}")
