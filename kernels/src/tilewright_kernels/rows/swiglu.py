"""SwiGLU: the sigmoid linear unit of a gate times another array."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import array_api_compat

from tilewright_kernels.operations import Array, Launcher, Operation
from tilewright_kernels.rows.gated_activation import (
    gated_backward_shapes,
    gated_shapes,
    launch_gated,
    launch_gated_backward,
    silu,
)


def swiglu_reference(gate: Any, up: Any) -> Any:
    """Return ``gate * sigmoid(gate) * up``."""
    xp = array_api_compat.array_namespace(gate)
    return gate / (1 + xp.exp(-gate)) * up


def _launch(run: Launcher, y: Any, gate: Array, up: Array) -> None:
    launch_gated(run, silu, y, gate, up)


def _backward_launch(
    run: Launcher, d_gate: Any, d_up: Any, dy: Array, gate: Array, up: Array
) -> None:
    launch_gated_backward(run, silu, d_gate, d_up, dy, gate, up)


SWIGLU = Operation("swiglu", ("y",), gated_shapes, _launch, reference=swiglu_reference)
SWIGLU_BACKWARD = Operation(
    "swiglu_backward", ("d_gate", "d_up"), gated_backward_shapes, _backward_launch
)


@SWIGLU.differentiate(saved=("gate", "up"))
def _gradients(saved: Any, dy: Any) -> Mapping[str, Any]:
    d_gate, d_up = SWIGLU_BACKWARD(dy, saved.gate, saved.up)
    return {"gate": d_gate, "up": d_up}


def swiglu(gate: Any, up: Any, *, out: Any = None) -> Any:
    """Multiply ``up`` by the sigmoid linear unit (SiLU) of ``gate``.

    Args:
        gate: of any shape, of float16, bfloat16 or float32. Only the elements of a row must be
            contiguous, so ``gate`` and ``up`` may be the two halves of one matrix.
        up: of the shape of ``gate``.
        out: the array for the result.

    Returns:
        An array with the shape and element type of ``gate``. The arithmetic is in float32.

    Raises:
        ValueError: ``gate`` and ``up`` have different shapes.

    Source: Shazeer, "GLU Variants Improve Transformer", 2020.
    """
    return SWIGLU(gate, up, out=out)
