"""One step of a decoder by the recurrences of Mamba-2 and of the gated delta rule."""

from __future__ import annotations

from typing import Any

import tilewright as tw
from tilewright_kernels.operations import Array, Launcher, Operation, strides
from tilewright_kernels.operations.devices import device_of
from tilewright_kernels.rows.shapes import contiguous
from tilewright_kernels.sequence.chunk_launches import padded, skip_strides
from tilewright_kernels.sequence.gated_delta_rule import gated_delta_rule_reference
from tilewright_kernels.sequence.state_space_duality import ssd_reference
from tilewright_kernels.sequence.step_kernels import delta_step_kernel, ssd_step_kernel

#: Added to sums of squares, as by :func:`tilewright_kernels.l2_norm`.
_EPS = 1e-6


def _width(values: int, programs: int, keys: int, array: Any) -> int:
    """Return the values of a program: few enough that all processors have several programs."""
    device = device_of(array)
    width = min(padded(values), max(8192 // padded(keys), 16))
    if device.family == "cpu":
        return width
    while width > 16 and programs * tw.cdiv(values, width) < 4 * device.processors:
        width //= 2
    return width


def _shapes(make: Any, state: Any, x: Any, *others: Any) -> tuple[Any, ...]:
    return make(x.shape, x.dtype), make(state.shape, state.dtype)


def _delta_shapes(make: Any, state: Any, q: Any, k: Any, v: Any, *others: Any) -> tuple[Any, ...]:
    return make(v.shape, v.dtype), make(state.shape, state.dtype)


def _launch(
    run: Launcher, y: Any, new_state: Any, state: Array, x: Array, dt: Array, A: Array, B: Array,
    C: Array, D: Array | None = None, z: Array | None = None, dt_bias: Array | None = None,
    dt_softplus: bool = False, dt_min: float = 0.0, dt_max: float = float("inf"),
) -> None:  # fmt: skip
    batch, heads, values, keys = state.shape
    if 0 in (batch, heads, values):
        return
    x, B, C, z = (_rows(each) for each in (x, B, C, z))
    width = _width(values, batch * heads, keys, state)
    run(
        ssd_step_kernel,
        (batch, heads, tw.cdiv(values, width)),
        state, x, dt, contiguous(A), B, C, D, z, contiguous(dt_bias), y, new_state,
        *strides(state), *strides(x)[:2], *strides(dt), *strides(B)[:2], *strides(C)[:2],
        *((0, 0) if z is None else strides(z)[:2]), *skip_strides(D), heads, dt_min, dt_max,
        GROUP=heads // B.shape[1], SOFTPLUS=dt_softplus, D=keys, D_V=values, PADDED=padded(keys),
        WIDTH=width, num_warps=_warps(state),
    )  # fmt: skip


def _delta_launch(
    run: Launcher, out: Any, new_state: Any, state: Array, q: Array, k: Array, v: Array, g: Array,
    beta: Array, scale: float = 1.0, use_qk_l2norm: bool = False,
) -> None:  # fmt: skip
    batch, heads, keys, values = state.shape
    if 0 in (batch, heads, values):
        return
    q, k, v = (_rows(each) for each in (q, k, v))
    width = _width(values, batch * heads, keys, state)
    run(
        delta_step_kernel,
        (batch, heads, tw.cdiv(values, width)),
        state, q, k, v, g, beta, out, new_state,
        *strides(state), *strides(q)[:2], *strides(k)[:2], *strides(v)[:2], *strides(g),
        *strides(beta), heads, scale, _EPS,
        GROUP=heads // k.shape[1], NORM=use_qk_l2norm, D=keys, D_V=values, PADDED=padded(keys),
        WIDTH=width, num_warps=_warps(state),
    )  # fmt: skip


def _rows(array: Any) -> Any:
    """Return an array whose last axis has the stride 1: itself, or a copy."""
    return array if array is None or strides(array)[-1] == 1 else contiguous(array)


def _warps(array: Any) -> int:
    return 1 if device_of(array).family == "cpu" else 4


def ssd_step_reference(
    state: Any,
    x: Any,
    dt: Any,
    A: Any,
    B: Any,
    C: Any,
    D: Any = None,
    z: Any = None,
    dt_bias: Any = None,
    dt_softplus: bool = False,
    dt_min: float = 0.0,
    dt_max: float = float("inf"),
) -> tuple[Any, Any]:
    """Return the row and the state after it: a scan of one step."""
    z = None if z is None else z[:, None]
    y, state = ssd_reference(
        x[:, None], dt[:, None], A, B[:, None], C[:, None], D, z, dt_bias, state,
        dt_softplus=dt_softplus, dt_min=dt_min, dt_max=dt_max, return_final_states=True,
    )  # fmt: skip
    return y[:, 0], state


def gated_delta_rule_step_reference(
    state: Any,
    q: Any,
    k: Any,
    v: Any,
    g: Any,
    beta: Any,
    scale: float | None = None,
    use_qk_l2norm: bool = False,
) -> tuple[Any, Any]:
    """Return the row and the state after it: the rule on one step."""
    out, state = gated_delta_rule_reference(
        q[:, None], k[:, None], v[:, None], g[:, None], beta[:, None], scale, state,
        output_final_state=True, use_qk_l2norm=use_qk_l2norm,
    )  # fmt: skip
    return out[:, 0], state


SSD_STEP = Operation("ssd_step", ("y", "new_state"), _shapes, _launch, reference=ssd_step_reference)
GATED_DELTA_RULE_STEP = Operation(
    "gated_delta_rule_step",
    ("out", "new_state"),
    _delta_shapes,
    _delta_launch,
    reference=gated_delta_rule_step_reference,
)


def ssd_step(
    state: Any,
    x: Any,
    dt: Any,
    A: Any,
    B: Any,
    C: Any,
    *,
    D: Any = None,
    z: Any = None,
    dt_bias: Any = None,
    dt_softplus: bool = False,
    dt_limit: tuple[float, float] = (0.0, float("inf")),
    out: Any = None,
) -> tuple[Any, Any]:
    """Compute one step of :func:`ssd`, and the states after it.

    Args:
        state: of shape (batch, heads, head_dim, state_dim).
        x, z: of shape (batch, heads, head_dim).
        dt: of shape (batch, heads).
        A, D, dt_bias, dt_softplus, dt_limit: as in :func:`ssd`.
        B, C: of shape (batch, groups, state_dim).
        out: a pair of arrays for the results. If the second one is ``state``, the states are
            updated in place.

    Returns:
        A pair: the output of the step, with the shape and element type of ``x``, and the new
        states, with the shape and element type of ``state``. There are no gradients.

    Raises:
        ValueError: the shapes of the arguments do not match.
    """
    if len(state.shape) != 4 or len(B.shape) != 3 or B.shape[1] == 0:
        raise ValueError(
            f"ssd_step: the state of {tuple(state.shape)} and B of {tuple(B.shape)} are not of "
            "(batch, heads, head_dim, state_dim) and (batch, groups, state_dim)"
        )
    batch, heads, values, keys = state.shape
    groups = B.shape[1]
    skip = (heads, values) if D is not None and len(D.shape) == 2 else (heads,)
    _check_shapes(
        "ssd_step",
        x=(x, (batch, heads, values)), dt=(dt, (batch, heads)), A=(A, (heads,)),
        B=(B, (batch, groups, keys)), C=(C, (batch, groups, keys)), D=(D, skip),
        z=(z, (batch, heads, values)), dt_bias=(dt_bias, (heads,)),
    )  # fmt: skip
    if heads % groups:
        raise ValueError(f"ssd_step: {heads} heads are no multiple of {groups} groups")
    return SSD_STEP(
        state, x, dt, A, B, C, D, z, dt_bias, dt_softplus, float(dt_limit[0]), float(dt_limit[1]),
        out=out,
    )  # fmt: skip


def gated_delta_rule_step(
    state: Any,
    q: Any,
    k: Any,
    v: Any,
    g: Any,
    beta: Any,
    *,
    scale: float | None = None,
    use_qk_l2norm: bool = False,
    out: Any = None,
) -> tuple[Any, Any]:
    """Compute one step of :func:`gated_delta_rule`, and the states after it.

    Args:
        state: of shape (batch, heads, key_dim, value_dim).
        q, k: of shape (batch, key_heads, key_dim).
        v: of shape (batch, heads, value_dim).
        g, beta: of shape (batch, heads).
        scale, use_qk_l2norm: as in :func:`gated_delta_rule`.
        out: a pair of arrays for the results. If the second one is ``state``, the states are
            updated in place.

    Returns:
        A pair: the output of the step, with the shape and element type of ``v``, and the new
        states, with the shape and element type of ``state``. There are no gradients.

    Raises:
        ValueError: the shapes of the arguments do not match.
    """
    if len(state.shape) != 4 or len(k.shape) != 3 or k.shape[1] == 0:
        raise ValueError(
            f"gated_delta_rule_step: the state of {tuple(state.shape)} and k of {tuple(k.shape)} "
            "are not of (batch, heads, key_dim, value_dim) and (batch, key_heads, key_dim)"
        )
    batch, heads, keys, values = state.shape
    groups = k.shape[1]
    _check_shapes(
        "gated_delta_rule_step",
        q=(q, (batch, groups, keys)), k=(k, (batch, groups, keys)), v=(v, (batch, heads, values)),
        g=(g, (batch, heads)), beta=(beta, (batch, heads)),
    )  # fmt: skip
    if heads % groups:
        raise ValueError(f"gated_delta_rule_step: {heads} heads are no multiple of {groups}")
    scale = keys**-0.5 if scale is None else float(scale)
    return GATED_DELTA_RULE_STEP(state, q, k, v, g, beta, scale, use_qk_l2norm, out=out)


def _check_shapes(name: str, **arrays: tuple[Any, tuple[int, ...]]) -> None:
    for argument, (array, expected) in arrays.items():
        if array is not None and tuple(array.shape) != expected:
            raise ValueError(
                f"{name}: {argument} has the shape {tuple(array.shape)}, not {expected}"
            )
