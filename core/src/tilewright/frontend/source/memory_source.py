"""Source of loads, stores, atomics and descriptors."""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.frontend.source.elementwise_source import converted_to
from tilewright.frontend.source.expression_text import (
    Binding,
    SourceExpression,
    atom,
    call_text,
    list_text,
)
from tilewright.frontend.source.function_writer import SourceWriter
from tilewright.frontend.source.operand_forms import converted, exact, loose, spread, strong, uncast
from tilewright.frontend.source.source_rows import SourceForm, unwritable, written
from tilewright.ir.core import Value
from tilewright.ir.ops.arithmetic import Cast
from tilewright.ir.ops.memory import (
    AtomicCas,
    AtomicLoad,
    AtomicRmw,
    AtomicStore,
    Barrier,
    Clock,
    DescriptorExtent,
    DescriptorGather,
    DescriptorLoad,
    DescriptorReduce,
    DescriptorScatter,
    DescriptorStore,
    DescriptorStride,
    Load,
    MakeDescriptor,
    Store,
)
from tilewright.ir.types import I32, I64, DescriptorType, element_type, shape_of
from tilewright.language.builtin_functions.atomics import UPDATED_ELEMENTS
from tilewright.language.builtin_functions.descriptors import REDUCED_ELEMENTS
from tilewright.language.value_types.dtypes import from_ir

_EVICTION = {"normal": None, "first": '"evict_first"', "last": '"evict_last"'}
_SCOPES = {"device": None, "program": '"cta"', "system": '"sys"'}


def _quoted(value: str, default: str) -> str | None:
    return None if value == default else f'"{value}"'


def _cache(modifier: str) -> str | None:
    return f'".{modifier}"' if modifier else None


def _mask(writer: SourceWriter, mask: Value | None, pointer: Value) -> str | None:
    return None if mask is None else spread(writer, mask, pointer).text


def _value(writer: SourceWriter, value: Value, pointer: Value) -> str:
    """Return what is written to memory, without the cast and broadcast that a store makes."""
    found = converted(writer, value, element_type(value.type))
    if not found.is_number and not _broadcasts(shape_of(found.type), shape_of(pointer.type)):
        found = exact(writer, value)
    return found.text


def _broadcasts(mine: tuple[int, ...], target: tuple[int, ...]) -> bool:
    """Return whether a shape broadcasts to another."""
    if len(mine) > len(target):
        return False
    pairs = zip(reversed(mine), reversed(target), strict=False)
    return all(a in (1, b) for a, b in pairs)


@written("load")
def _load(writer: SourceWriter, operation: Load) -> SourceExpression:
    pointer = exact(writer, operation.pointer)
    other = operation.other
    keywords = {
        "mask": _mask(writer, operation.mask, operation.pointer),
        "other": None if other is None else _value(writer, other, operation.pointer),
        "cache_modifier": _cache(operation.cache),
        "eviction_policy": _EVICTION[operation.eviction],
        "volatile": "True" if operation.volatile else None,
    }
    return atom(call_text("tl.load", pointer.text, **keywords), operation.result.type)


@written("store", form=SourceForm.STATEMENT)
def _store(writer: SourceWriter, operation: Store) -> None:
    keywords = {
        "mask": _mask(writer, operation.mask, operation.pointer),
        "cache_modifier": _cache(operation.cache),
        "eviction_policy": _EVICTION[operation.eviction],
    }
    pointer = exact(writer, operation.pointer).text
    value = _value(writer, operation.value, operation.pointer)
    writer.line(call_text("tl.store", pointer, value, **keywords))


@written("atomic_rmw")
def _atomic_rmw(writer: SourceWriter, operation: AtomicRmw) -> SourceExpression:
    element = from_ir(element_type(operation.value.type))
    if element not in UPDATED_ELEMENTS[operation.kind]:
        raise unwritable(operation, f"tl.atomic_{operation.kind} does not take {element}")
    keywords = {
        "mask": _mask(writer, operation.mask, operation.pointer),
        "sem": _quoted(operation.order, "acq_rel"),
        "scope": _SCOPES[operation.scope],
    }
    pointer = exact(writer, operation.pointer).text
    value = _value(writer, operation.value, operation.pointer)
    text = call_text(f"tl.atomic_{operation.kind}", pointer, value, **keywords)
    return atom(text, operation.result.type)


@written("atomic_cas")
def _atomic_cas(writer: SourceWriter, operation: AtomicCas) -> SourceExpression:
    keywords = {
        "sem": _quoted(operation.order, "acq_rel"),
        "scope": _SCOPES[operation.scope],
    }
    pointer = exact(writer, operation.pointer).text
    values = [_value(writer, x, operation.pointer) for x in (operation.compare, operation.value)]
    return atom(call_text("tl.atomic_cas", pointer, *values, **keywords), operation.result.type)


@written("atomic_load")
def _atomic_load(writer: SourceWriter, operation: AtomicLoad) -> SourceExpression:
    keywords = {
        "mask": _mask(writer, operation.mask, operation.pointer),
        "sem": _quoted(operation.order, "acquire"),
        "scope": _SCOPES[operation.scope],
    }
    pointer = exact(writer, operation.pointer).text
    return atom(call_text("tl.atomic_load", pointer, **keywords), operation.result.type)


@written("atomic_store", form=SourceForm.STATEMENT)
def _atomic_store(writer: SourceWriter, operation: AtomicStore) -> None:
    keywords = {
        "mask": _mask(writer, operation.mask, operation.pointer),
        "sem": _quoted(operation.order, "release"),
        "scope": _SCOPES[operation.scope],
    }
    pointer = exact(writer, operation.pointer).text
    value = _value(writer, operation.value, operation.pointer)
    writer.line(call_text("tl.atomic_store", pointer, value, **keywords))


@written("clock")
def _clock(writer: SourceWriter, operation: Clock) -> SourceExpression:
    raise unwritable(operation, "it is no function of the language, but a part of others")


@written("barrier", form=SourceForm.STATEMENT)
def _barrier(writer: SourceWriter, operation: Barrier) -> None:
    writer.line("tl.debug_barrier()")


# -- descriptors -----------------------------------------------------------------------------------


@written("make_descriptor")
def _make_descriptor(writer: SourceWriter, operation: MakeDescriptor) -> SourceExpression:
    type_ = operation.result.type
    assert isinstance(type_, DescriptorType)
    if not operation.aligned:
        raise unwritable(operation, "the language's descriptors are aligned to 16 bytes")
    last = loose(writer, without_cast(operation.strides[-1]))
    if last.number != 1:
        raise unwritable(operation, "the last stride of a descriptor is the constant 1")
    keywords: Mapping[str, str | None] = {
        "shape": list_text(_wide(writer, x) for x in operation.shape),
        "strides": list_text([*(_wide(writer, x) for x in operation.strides[:-1]), "1"]),
        "block_shape": list_text(type_.block_shape),
        "padding_option": _quoted(operation.padding, "zero"),
    }
    base = exact(writer, operation.base).text
    return atom(call_text("tl.make_tensor_descriptor", base, **keywords), type_)


def without_cast(value: Value) -> Value:
    """Return the operand of a cast; another value as it is."""
    definition = value.definition
    return definition.x if isinstance(definition, Cast) else value


def _wide(writer: SourceWriter, value: Value) -> str:
    """Return an extent or stride, which is cast to 64 bits where it is read."""
    source = uncast(writer, value)
    if source is not None and element_type(source.type) is I32:
        return exact(writer, source).text
    found = loose(writer, value)
    return found.text


@written("descriptor_extent")
def _extent(writer: SourceWriter, operation: DescriptorExtent) -> SourceExpression:
    text = f"{exact(writer, operation.descriptor).text}.shape[{operation.axis}]"
    return converted_to(atom(text, I32), I64)


@written("descriptor_stride")
def _stride(writer: SourceWriter, operation: DescriptorStride) -> SourceExpression:
    text = f"{exact(writer, operation.descriptor).text}.strides[{operation.axis}]"
    return atom(text, I64)


def _offsets(writer: SourceWriter, values: list[Value]) -> str:
    return list_text(strong(writer, x).text for x in values)


def _member(writer: SourceWriter, descriptor: Value, name: str) -> str:
    return f"{exact(writer, descriptor).within(Binding.ATOM)}.{name}"


@written("descriptor_load")
def _descriptor_load(writer: SourceWriter, operation: DescriptorLoad) -> SourceExpression:
    function = _member(writer, operation.descriptor, "load")
    return atom(call_text(function, _offsets(writer, operation.offsets)), operation.result.type)


def _block(writer: SourceWriter, value: Value) -> str:
    """Return a block that is written, without the cast that the descriptor makes."""
    found = converted(writer, value, element_type(value.type))
    if not found.is_number and shape_of(found.type) not in ((), shape_of(value.type)):
        found = exact(writer, value)
    return found.text


@written("descriptor_store", form=SourceForm.STATEMENT)
def _descriptor_store(writer: SourceWriter, operation: DescriptorStore) -> None:
    function = _member(writer, operation.descriptor, "store")
    offsets, value = _offsets(writer, operation.offsets), _block(writer, operation.value)
    writer.line(call_text(function, offsets, value))


@written("descriptor_reduce", form=SourceForm.STATEMENT)
def _descriptor_reduce(writer: SourceWriter, operation: DescriptorReduce) -> None:
    element = from_ir(element_type(operation.value.type))
    if element not in REDUCED_ELEMENTS[operation.kind]:
        raise unwritable(operation, f"atomic_{operation.kind} of a descriptor takes no {element}")
    function = _member(writer, operation.descriptor, f"atomic_{operation.kind}")
    offsets, value = _offsets(writer, operation.offsets), _block(writer, operation.value)
    writer.line(call_text(function, offsets, value))


@written("descriptor_gather")
def _descriptor_gather(writer: SourceWriter, operation: DescriptorGather) -> SourceExpression:
    function = _member(writer, operation.descriptor, "gather")
    rows, column = exact(writer, operation.rows), strong(writer, operation.column)
    return atom(call_text(function, rows.text, column.text), operation.result.type)


@written("descriptor_scatter", form=SourceForm.STATEMENT)
def _descriptor_scatter(writer: SourceWriter, operation: DescriptorScatter) -> None:
    function = _member(writer, operation.descriptor, "scatter")
    value, rows = exact(writer, operation.value), exact(writer, operation.rows)
    column = strong(writer, operation.column)
    writer.line(call_text(function, value.text, rows.text, column.text))
