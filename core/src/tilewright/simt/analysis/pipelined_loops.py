"""Selection of loops for software pipelining, by their requested stages and their matmuls."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tilewright.ir.core import Function, Operation
from tilewright.ir.ops.control import LOOPS, For
from tilewright.simt.dialect.loop_carried import operations_of_program
from tilewright.simt.target.matmul_plan import MULTIPLYING


def stages_of(loop: Operation, options: Mapping[str, Any]) -> int:
    """Return the pipeline depth of a loop: its own number of stages, or the option's."""
    return int(loop.num_stages or options.get("num_stages", 0)) if isinstance(loop, For) else 0


def pipelined_loops(
    function: Function,
    options: Mapping[str, Any],
    matmuls: tuple[type[Operation], ...] = MULTIPLYING,
) -> Iterator[For]:
    """Innermost ``for`` loops to pipeline that contain operations of the classes ``matmuls``."""
    for loop in operations_of_program(function.body):
        if (
            isinstance(loop, For)
            and stages_of(loop, options) >= 2
            and _has(loop, matmuls)
            and _is_innermost(loop)
        ):
            yield loop


def streaming_loops(function: Function) -> Iterator[For]:
    """Innermost ``for`` loops to pipeline that contain no matmul.

    The loop itself must request stages; the option does not apply.
    """
    for loop in operations_of_program(function.body):
        if (
            isinstance(loop, For)
            and loop.num_stages >= 2
            and not _has(loop, MULTIPLYING)
            and _is_innermost(loop)
        ):
            yield loop


def _has(loop: For, matmuls: tuple[type[Operation], ...]) -> bool:
    return any(isinstance(operation, matmuls) for operation in loop.body)


def _is_innermost(loop: For) -> bool:
    return not any(isinstance(inner, LOOPS) for inner in loop.body.walk())
