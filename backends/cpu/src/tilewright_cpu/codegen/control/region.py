"""Lowering of a region, operation by operation."""

from __future__ import annotations

from collections.abc import Callable

from tilewright.errors import LoweringError, TilewrightError
from tilewright.ir.core import Operation, Region
from tilewright.ir.ops.arithmetic import Rem
from tilewright.ir.ops.debug import Hint
from tilewright.ir.ops.memory import Load
from tilewright.ir.types import TileType
from tilewright_cpu.codegen.analysis.contiguity import emit_contiguity_check
from tilewright_cpu.codegen.analysis.tiles import is_lazy
from tilewright_cpu.codegen.context import Context
from tilewright_cpu.codegen.loops.materialize import materialize
from tilewright_cpu.codegen.ops.memory import before_write
from tilewright_cpu.codegen.ops.store_group import lower_store_group
from tilewright_cpu.codegen.sanitizer.bounds import stop_on_violation


def lower_region(
    context: Context, region: Region, finish: Callable[[Operation], None] | None = None
) -> Operation:
    """Lower a region's operations, then call ``finish`` with its terminator; the terminator.

    ``finish`` may still read tiles of the region. A region of scalars that an operation runs on
    elements (a combine, a map) is part of that operation: see ``in_elements`` of the context.
    """
    analysis = context.analysis
    saved = (
        context.operation,
        context.position,
        context.buffers,
        context.pending,
        context.partial,
        context.partial_sums,
        context.consecutive,
    )
    # what is put into memory in this region is in memory in this region only
    context.buffers, context.pending = dict(context.buffers), dict(context.pending)
    context.partial, context.partial_sums, context.consecutive = (
        dict(context.partial),
        dict(context.partial_sums),
        dict(context.consecutive),
    )
    passed = context.checks.passed
    terminator: Operation | None = None
    lines, mark = context.lines, context.writer.mark
    for operation in region:
        context.operation = operation
        if lines is not None:
            context.writer.mark = lines.mark(operation.location)
        if not context.in_elements:
            context.position = analysis.start[operation]
        if operation.spec.terminator:
            terminator = operation
            if finish is not None:
                finish(operation)
            break
        try:
            _lower(context, operation)
        except TilewrightError:
            raise
        except (
            AssertionError,
            KeyError,
            ValueError,
            TypeError,
            IndexError,
            AttributeError,
        ) as error:
            message = (
                f"the CPU backend could not lower {operation.name} at {operation.location}, a "
                f"defect of its own: {type(error).__name__}: {error}"
            )
            raise LoweringError(message) from error
        if not context.in_elements:
            stop_on_violation(context)
            context.release()
    (
        context.operation,
        context.position,
        context.buffers,
        context.pending,
        context.partial,
        context.partial_sums,
        context.consecutive,
    ) = saved
    context.writer.mark, context.checks.passed = mark, passed
    assert terminator is not None
    return terminator


def _lower(context: Context, operation: Operation) -> None:
    results, methods = operation.results, context.state.methods
    group = context.analysis.groups.get(operation)
    if group is not None:
        if operation is group[-1]:
            lower_store_group(context, group)
        return
    if operation in context.analysis.writes:
        before_write(context, operation)
    if results and isinstance(results[0].type, TileType) and is_lazy(operation):
        if isinstance(operation, Load):
            context.pending[results[0]] = operation
        if context.analysis.is_kept_at_once(results[0]):
            materialize(context, results[0])
        if isinstance(operation, Rem | Hint):
            emit_contiguity_check(context, operation)
        return
    lowering = methods.statements.get(operation.name)
    if lowering is not None:
        lowering(context, operation)
    elif operation.spec.elementwise:
        methods.scalar(context, operation)
    else:
        raise LoweringError(
            f"the CPU backend does not lower {operation.name}, at {operation.location}"
        )
