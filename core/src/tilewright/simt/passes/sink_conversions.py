"""Sinking of layout conversions of loaded tiles past views, to the reader."""

from __future__ import annotations

from tilewright.ir.builder import Builder
from tilewright.ir.core import Operation, Region
from tilewright.ir.ops.arithmetic import Bitcast
from tilewright.ir.ops.memory import DescriptorLoad, Load
from tilewright.simt.analysis.shared_views import renames
from tilewright.simt.dialect.attributes import layout_of
from tilewright.simt.dialect.layout_rules import result_layout
from tilewright.simt.dialect.ops.buffers import Convert


def sink_conversions(body: Region) -> None:
    """Sink conversions past shape operations, and bitcasts of loaded tiles past conversions.

    A reader directly behind a conversion can load its own layout from shared memory.
    """
    for operation in list(body):
        _let_convert_first(operation, body)
    convert_last(body)


def convert_last(body: Region) -> None:
    """Sink conversions past shape operations in a region."""
    for operation in list(body):
        if not renames(operation):
            continue
        conversion, (result,) = operation.x.definition, operation.results
        if (
            not isinstance(conversion, Convert)
            or conversion.parent is not body
            or len(conversion.results[0].uses) > 1
        ):
            continue
        source = conversion.x
        builder = Builder.at(operation)
        view = builder.create(
            operation.spec,
            ((source,),),
            operation.attributes,
            (result.type,) if operation.spec.explicit_results else (),
        ).results[0]
        view.layout = result_layout(operation, layout_of(source))
        moved = builder.create(conversion.spec, ((view,),), conversion.attributes).results[0]
        moved.layout = result.layout
        result.replace_all_uses(moved)
        operation.erase()
        conversion.erase()


def _let_convert_first(conversion: Operation, body: Region) -> None:
    """Sink a bitcast of a loaded tile past its conversion, if that is the only user."""
    cast = conversion.x.definition if isinstance(conversion, Convert) else None
    if not isinstance(cast, Bitcast) or cast.parent is not body or len(cast.results[0].uses) > 1:
        return
    source, (result,) = cast.x, conversion.results
    if (
        not isinstance(source.definition, Load | DescriptorLoad)
        or source.definition.parent is not body
    ):
        return
    builder = Builder.at(conversion)
    moved = builder.create(conversion.spec, ((source,),), conversion.attributes).results[0]
    moved.layout = result.layout
    named = builder.create(cast.spec, ((moved,),), cast.attributes, (result.type,)).results[0]
    named.layout = result.layout
    result.replace_all_uses(named)
    conversion.erase()
    cast.erase()
