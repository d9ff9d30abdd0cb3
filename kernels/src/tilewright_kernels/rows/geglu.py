"""GeGLU: the Gaussian error linear unit of a gate times another array."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import array_api_compat

from tilewright_kernels.operations import Array, Launcher, Operation
from tilewright_kernels.rows.gated_activation import (
    gated_backward_shapes,
    gated_shapes,
    gelu,
    gelu_tanh,
    launch_gated,
    launch_gated_backward,
)
from tilewright_kernels.rows.reference_functions import erf

#: Value of ``approximate`` -> the activation, as those of ``torch.nn.functional.gelu``.
_ACTIVATIONS = {"none": gelu, "tanh": gelu_tanh}


def geglu_reference(gate: Any, up: Any, approximate: str = "tanh") -> Any:
    """Return ``gelu(gate) * up``."""
    xp = array_api_compat.array_namespace(gate)
    if approximate == "tanh":
        inner = 0.7978845608028654 * (gate + 0.044715 * gate * gate * gate)
        return 0.5 * gate * (1 + xp.tanh(inner)) * up
    return 0.5 * gate * (1 + erf(gate * 0.7071067811865476)) * up


def _shapes(make: Any, gate: Any, up: Any, approximate: str) -> tuple[Any, ...]:
    return gated_shapes(make, gate, up)


def _launch(run: Launcher, y: Any, gate: Array, up: Array, approximate: str = "tanh") -> None:
    launch_gated(run, _ACTIVATIONS[approximate], y, gate, up)


def _backward_shapes(make: Any, dy: Any, gate: Any, up: Any, approximate: str) -> tuple[Any, ...]:
    return gated_backward_shapes(make, dy, gate, up)


def _backward_launch(
    run: Launcher, d_gate: Any, d_up: Any, dy: Array, gate: Array, up: Array, approximate: str
) -> None:
    launch_gated_backward(run, _ACTIVATIONS[approximate], d_gate, d_up, dy, gate, up)


GEGLU = Operation("geglu", ("y",), _shapes, _launch, reference=geglu_reference)
GEGLU_BACKWARD = Operation("geglu_backward", ("d_gate", "d_up"), _backward_shapes, _backward_launch)


@GEGLU.differentiate(saved=("gate", "up"))
def _gradients(saved: Any, dy: Any) -> Mapping[str, Any]:
    d_gate, d_up = GEGLU_BACKWARD(dy, saved.gate, saved.up, saved.approximate)
    return {"gate": d_gate, "up": d_up}


def geglu(gate: Any, up: Any, *, approximate: str = "tanh", out: Any = None) -> Any:
    """Multiply ``up`` by the Gaussian error linear unit (GELU) of ``gate``.

    Args:
        gate: of any shape, of float16, bfloat16 or float32. Only the elements of a row must be
            contiguous, so ``gate`` and ``up`` may be the two halves of one matrix.
        up: of the shape of ``gate``.
        approximate: ``"tanh"`` for the approximation by tanh, ``"none"`` for the exact function.
        out: the array for the result.

    Returns:
        An array with the shape and element type of ``gate``. The arithmetic is in float32.

    Raises:
        ValueError: ``gate`` and ``up`` have different shapes, or ``approximate`` is neither
            ``"tanh"`` nor ``"none"``.

    Source: Shazeer, "GLU Variants Improve Transformer", 2020.
    """
    if approximate not in _ACTIVATIONS:
        raise ValueError(f"approximate is {approximate!r}: give 'tanh' or 'none'")
    return GEGLU(gate, up, approximate, out=out)
