"""Source of operations that move or repeat elements."""

from __future__ import annotations

from tilewright.frontend.source.expression_text import (
    Binding,
    SourceExpression,
    atom,
    call_text,
    list_text,
)
from tilewright.frontend.source.function_writer import SourceWriter
from tilewright.frontend.source.operand_forms import exact, spread
from tilewright.frontend.source.source_rows import SourceForm, unwritable, written
from tilewright.ir.core import Value
from tilewright.ir.ops.shape import (
    Cat,
    ExpandDims,
    Gather,
    Histogram,
    Join,
    Moved,
    Permute,
    Reshape,
    Split,
    Unsplat,
)
from tilewright.ir.types import TileType, shape_of


@written("splat", "broadcast", form=SourceForm.IMPLIED)
def _repeated(writer: SourceWriter, operation: Moved) -> SourceExpression:
    return exact(writer, operation.result)


@written("expand_dims", form=SourceForm.IMPLIED)
def _expand_dims(writer: SourceWriter, operation: ExpandDims) -> SourceExpression:
    """Write ``x[:, None]``; new axes from the first to the last share one subscript."""
    axes = [operation.axis]
    source: Value = operation.x
    inner = source.definition
    while isinstance(inner, ExpandDims) and source not in writer.names and inner.axis < axes[0]:
        axes.insert(0, inner.axis)
        source = inner.x
        inner = source.definition
    rank = len(shape_of(operation.result.type))
    index = ", ".join("None" if axis in axes else ":" for axis in range(rank))
    x = exact(writer, source)
    return atom(f"{x.within(Binding.ATOM)}[{index}]", operation.result.type)


@written("unsplat")
def _unsplat(writer: SourceWriter, operation: Unsplat) -> SourceExpression:
    x = exact(writer, operation.x)
    return atom(f"{x.within(Binding.ATOM)}.item()", operation.result.type)


@written("reshape")
def _reshape(writer: SourceWriter, operation: Reshape) -> SourceExpression:
    type_ = operation.result.type
    reorder = "True" if operation.reorder else None
    shape = list_text(shape_of(type_))
    text = call_text("tl.reshape", exact(writer, operation.x).text, shape, can_reorder=reorder)
    return atom(text, type_)


@written("permute")
def _permute(writer: SourceWriter, operation: Permute) -> SourceExpression:
    x, rank = exact(writer, operation.x).text, len(operation.order)
    swapped = (*range(rank - 2), rank - 1, rank - 2) if rank > 1 else ()
    text = (
        call_text("tl.trans", x)
        if operation.order == swapped
        else call_text("tl.permute", x, list_text(operation.order))
    )
    return atom(text, operation.result.type)


@written("cat")
def _cat(writer: SourceWriter, operation: Cat) -> SourceExpression:
    if operation.a.type is not operation.b.type:
        raise unwritable(operation, "tl.cat takes tiles of one shape")
    dim = str(operation.axis) if operation.axis else None
    a, b = exact(writer, operation.a), exact(writer, operation.b)
    return atom(call_text("tl.cat", a.text, b.text, dim=dim), operation.result.type)


@written("join")
def _join(writer: SourceWriter, operation: Join) -> SourceExpression:
    a, b = exact(writer, operation.a), exact(writer, operation.b)
    return atom(call_text("tl.join", a.text, b.text), operation.result.type)


@written("split")
def _split(writer: SourceWriter, operation: Split) -> SourceExpression:
    return atom(call_text("tl.split", exact(writer, operation.x).text), operation.results[0].type)


@written("gather")
def _gather(writer: SourceWriter, operation: Gather) -> SourceExpression:
    x, index = exact(writer, operation.x), exact(writer, operation.index)
    text = call_text("tl.gather", x.text, index.text, str(operation.axis))
    return atom(text, operation.result.type)


@written("histogram")
def _histogram(writer: SourceWriter, operation: Histogram) -> SourceExpression:
    mask = None if operation.mask is None else spread(writer, operation.mask, operation.x).text
    x = exact(writer, operation.x).text
    assert isinstance(operation.result.type, TileType)
    text = call_text("tl.histogram", x, str(operation.bins), mask=mask)
    return atom(text, operation.result.type)
