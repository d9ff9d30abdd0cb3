"""Mamba-2's state space duality: a scan of states of scalar decay, in chunks by matmuls."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import array_api_compat

from tilewright_kernels.operations import Array, Launcher, Operation
from tilewright_kernels.rows.shapes import contiguous
from tilewright_kernels.rows.swiglu import SWIGLU_BACKWARD
from tilewright_kernels.sequence.chunk_launches import (
    add_parts,
    check_sequences,
    launch_decay_gradients,
    launch_log_decay,
    launch_outputs,
    launch_query_key_gradients,
    launch_state_gradients,
    launch_states,
    launch_value_gradients,
    recurrence_of,
)
from tilewright_kernels.sequence.reference_scan import scan_by_formula


def ssd_reference(
    x: Any,
    dt: Any,
    A: Any,
    B: Any,
    C: Any,
    D: Any = None,
    z: Any = None,
    dt_bias: Any = None,
    initial_states: Any = None,
    cu_seqlens: Any = None,
    seq_idx: Any = None,
    dt_softplus: bool = False,
    dt_min: float = 0.0,
    dt_max: float = float("inf"),
    return_final_states: bool = False,
) -> Any:
    """Return the rows ``y[t] = S[t] C[t] + D x[t]`` step by step, and the last states if wanted."""
    xp = array_api_compat.array_namespace(x)
    if dt_bias is not None:
        dt = dt + dt_bias
    if dt_softplus:
        dt = xp.log1p(xp.exp(-xp.abs(dt))) + (dt + xp.abs(dt)) / 2
    dt = xp.maximum(xp.minimum(dt, xp.full_like(dt, dt_max)), xp.full_like(dt, dt_min))
    group = x.shape[2] // B.shape[2]

    def step(state: Any, x: Any, dt: Any, b: Any, c: Any) -> tuple[Any, Any]:
        b, c = (xp.repeat(each, group, axis=1)[:, :, None, :] for each in (b, c))
        state = xp.exp(dt * A)[..., None, None] * state + (dt[..., None] * x)[..., None] * b
        return xp.sum(state * c, axis=-1), state

    rows, states = scan_by_formula(
        step, (x, dt, B, C), initial_states, (*x.shape[2:], B.shape[3]), cu_seqlens, seq_idx
    )
    y = xp.stack(rows, axis=1) if rows else x * 0
    if D is not None:
        y = y + x * (D if len(D.shape) == 2 else D[:, None])
    if z is not None:
        y = y * z / (1 + xp.exp(-z))
    return (y, states) if return_final_states else y


def _shapes(
    make: Any, x: Any, dt: Any, A: Any, B: Any, C: Any, D: Any, z: Any, dt_bias: Any,
    initial_states: Any, cu_seqlens: Any, seq_idx: Any, dt_softplus: bool, dt_min: float,
    dt_max: float, return_final_states: bool,
) -> tuple[Any, ...]:  # fmt: skip
    r = recurrence_of(B, x, cu_seqlens)
    dtype = "float32" if initial_states is None else initial_states.dtype
    state = (r.sequences, r.heads, r.value_dims, r.dims)
    return (
        make(x.shape, x.dtype),
        make(state, dtype) if return_final_states else None,
        None if z is None else make(x.shape, x.dtype),
        make((r.heads, r.tokens), "float32"),
        make((r.heads, r.tokens), "float32"),
        make(r.states_shape, x.dtype),
    )


def _launch(
    run: Launcher, y: Any, final_states: Any, ungated: Any, a: Any, weight: Any, states: Any,
    x: Array, dt: Array, A: Array, B: Array, C: Array, D: Array | None = None,
    z: Array | None = None, dt_bias: Array | None = None, initial_states: Array | None = None,
    cu_seqlens: Array | None = None, seq_idx: Array | None = None, dt_softplus: bool = False,
    dt_min: float = 0.0, dt_max: float = float("inf"), return_final_states: bool = False,
) -> None:  # fmt: skip
    r = recurrence_of(B, x, cu_seqlens)
    if r.is_empty and (final_states is None or 0 in final_states.shape):
        return
    a = run.empty((r.heads, r.tokens), "float32") if a is None else a
    weight = run.empty((r.heads, r.tokens), "float32") if weight is None else weight
    states = run.empty(r.states_shape, x.dtype) if states is None else states
    if not r.is_empty:
        A, dt_bias = contiguous(A), contiguous(dt_bias)
        launch_log_decay(run, r, dt, a, weight, A, dt_bias, dt_softplus, dt_min, dt_max, seq_idx)
    launch_states(run, r, B, x, None, a, weight, initial_states, states, None, final_states, True)
    if not r.is_empty:
        launch_outputs(run, r, C, B, x, a, weight, states, y, skip=D, z=z, ungated=ungated)


#: The scan, with what the backward pass reads.
SSD = Operation(
    "ssd",
    ("y", "final_states", "ungated", "a", "weight", "states"),
    _shapes,
    _launch,
    residuals=("ungated", "a", "weight", "states"),
    optional=("final_states", "ungated"),
    reference=ssd_reference,
)


def _backward_shapes(
    make: Any, dy: Any, dfinal: Any, x: Any, dt: Any, A: Any, B: Any, C: Any, D: Any,
    dt_bias: Any, initial_states: Any, cu_seqlens: Any, a: Any, weight: Any, states: Any,
    dt_softplus: bool, dt_min: float, dt_max: float,
) -> tuple[Any, ...]:  # fmt: skip
    def like(each: Any) -> Any:
        return None if each is None else make(each.shape, each.dtype)

    return (*map(like, (x, dt, A, B, C)), *map(like, (D, dt_bias, initial_states)))


def _backward_launch(
    run: Launcher, dx: Any, ddt: Any, dA: Any, dB: Any, dC: Any, dD: Any, ddt_bias: Any,
    dinitial: Any, dy: Array, dfinal: Array | None, x: Array, dt: Array, A: Array, B: Array,
    C: Array, D: Array | None, dt_bias: Array | None, initial_states: Array | None,
    cu_seqlens: Array | None, a: Array, weight: Array, states: Array,
    dt_softplus: bool, dt_min: float, dt_max: float,
) -> None:  # fmt: skip
    r = recurrence_of(B, x, cu_seqlens)
    dstates = run.empty(r.states_shape, x.dtype)
    if dinitial is not None or not r.is_empty:
        launch_state_gradients(run, r, C, B, dy, None, None, a, dfinal, dstates, dinitial, True)
    if r.is_empty:
        return
    A, dt_bias = contiguous(A), contiguous(dt_bias)
    dweight = run.empty((r.heads, r.tokens), "float32")
    dskip = None if D is None else run.empty((r.chunks, *D.shape), "float32")
    launch_value_gradients(run, r, C, B, x, dy, a, weight, dstates, dx, dweight, D, dskip)
    sums = launch_query_key_gradients(run, r, C, B, x, dy, a, weight, states, dstates, dC, dB)
    launch_decay_gradients(
        run, r, sums, dt, ddt, A, dt_bias, weight, dweight, dA, ddt_bias, dt_softplus,
        dt_min, dt_max,
    )  # fmt: skip
    if D is not None:
        count = r.heads * (r.value_dims if len(D.shape) == 2 else 1)
        add_parts(run, dskip, dD, r.chunks, count)


SSD_BACKWARD = Operation(
    "ssd_backward",
    ("dx", "ddt", "dA", "dB", "dC", "dD", "ddt_bias", "dinitial"),
    _backward_shapes,
    _backward_launch,
    optional=("dD", "ddt_bias", "dinitial"),
)

_SAVED = (
    "x", "dt", "A", "B", "C", "D", "z", "dt_bias", "initial_states", "cu_seqlens",
    "ungated", "a", "weight", "states",
)  # fmt: skip


@SSD.differentiate(saved=_SAVED)
def _gradients(saved: Any, dy: Any, dfinal: Any) -> Mapping[str, Any]:
    if dy is None:
        dy = saved.x * 0
    found = {}
    if saved.z is not None:
        found["z"], dy = SWIGLU_BACKWARD(dy, saved.z, saved.ungated)
    names = ("x", "dt", "A", "B", "C", "D", "dt_bias", "initial_states")
    given = SSD_BACKWARD(
        dy, dfinal, saved.x, saved.dt, saved.A, saved.B, saved.C, saved.D, saved.dt_bias,
        saved.initial_states, saved.cu_seqlens, saved.a, saved.weight, saved.states,
        saved.dt_softplus, saved.dt_min, saved.dt_max,
    )  # fmt: skip
    found.update(zip(names, given, strict=True))
    return {name: each for name, each in found.items() if each is not None}


def ssd(
    x: Any,
    dt: Any,
    A: Any,
    B: Any,
    C: Any,
    *,
    D: Any = None,
    z: Any = None,
    dt_bias: Any = None,
    initial_states: Any = None,
    cu_seqlens: Any = None,
    seq_idx: Any = None,
    dt_softplus: bool = False,
    dt_limit: tuple[float, float] = (0.0, float("inf")),
    return_final_states: bool = False,
    out: Any = None,
) -> Any:
    """Compute ``y = S C + D x`` for the states ``S[t] = exp(dt[t] A) S[t - 1] + dt[t] x[t] B[t]'``.

    Args:
        x: of shape (batch, length, heads, head_dim), of float16, bfloat16 or float32.
        dt: step sizes, of shape (batch, length, heads).
        A: the rates of the states, of shape (heads,); negative rates make states decay.
        B, C: of shape (batch, length, groups, state_dim) and the type of ``x``; each group is
            shared by ``heads / groups`` heads.
        D: the factor of the skip connection, of shape (heads,) or (heads, head_dim). If None, there
            is no skip connection.
        z: a gate of the shape of ``x``: the result is multiplied by the sigmoid linear unit (SiLU)
            of ``z``.
        dt_bias: a bias that is added to the step sizes, of shape (heads,).
        initial_states: the states before the first step, of shape (batch, heads, head_dim,
            state_dim); zeros if None.
        cu_seqlens: the bounds of packed sequences, of shape (sequences + 1,): integers from 0 to
            ``length``. ``batch`` must then be 1, and the first axis of states is the number of
            sequences instead of ``batch``.
        seq_idx: the number of the sequence of each step, of shape (batch, length) and an integer
            type. Where this number changes, the state is set to zero before the step. The initial
            state belongs to the first sequence of a row, and the last state to its last sequence.
        dt_softplus: whether to apply softplus to ``dt``.
        dt_limit: the smallest and the largest step size, to which step sizes are clamped.
        return_final_states: whether to also return the last states.
        out: the array for the result; a pair of arrays if the last states are returned, too.

    Returns:
        The result, with the shape and element type of ``x``. With ``return_final_states``, the
        function returns a pair: the result and the last states. The last states have the type of
        ``initial_states``, or float32 if ``initial_states`` is None. Sums and states are computed
        in float32. All arguments that are arrays of floats have gradients.

    Raises:
        ValueError: the shapes of the arguments do not match.

    Source: Dao and Gu, "Transformers are SSMs", 2024.
    """
    _check(x, dt, A, B, C, D, z, dt_bias, initial_states, cu_seqlens, seq_idx)
    if out is not None and not return_final_states:
        out = (out,)
    found = SSD(
        x, dt, A, B, C, D, z, dt_bias, initial_states, cu_seqlens, seq_idx, dt_softplus,
        float(dt_limit[0]), float(dt_limit[1]), return_final_states, out=out,
    )  # fmt: skip
    if return_final_states:
        return found
    return found[0] if isinstance(found, (tuple, list)) else found


def _check(
    x: Any, dt: Any, A: Any, B: Any, C: Any, D: Any, z: Any, dt_bias: Any, initial: Any,
    cu_seqlens: Any, seq_idx: Any,
) -> None:  # fmt: skip
    shape, state = tuple(x.shape), tuple(B.shape)
    if len(shape) != 4 or len(state) != 4 or state[2] == 0 or shape[2] % state[2]:
        raise ValueError(
            f"ssd: x of {shape} and B of {state} are not of (batch, length, heads, head_dim) and "
            "(batch, length, groups, state_dim), with heads a multiple of groups"
        )
    batch, length, heads, dims = shape
    check_sequences("ssd", batch, length, cu_seqlens, seq_idx)
    sequences = batch if cu_seqlens is None else cu_seqlens.shape[0] - 1
    expected = {
        "dt": (dt, (batch, length, heads)),
        "A": (A, (heads,)),
        "B": (B, (batch, length, *state[2:])),
        "C": (C, state),
        "D": (D, (heads, dims) if D is not None and len(D.shape) == 2 else (heads,)),
        "z": (z, shape),
        "dt_bias": (dt_bias, (heads,)),
        "initial_states": (initial, (sequences, heads, dims, state[3])),
    }
    for name, (array, wanted) in expected.items():
        if array is not None and tuple(array.shape) != wanted:
            raise ValueError(f"ssd: {name} has the shape {tuple(array.shape)}, not {wanted}")
    for name, array in (("B", B), ("C", C)):
        if array.dtype != x.dtype:
            raise ValueError(f"ssd: {name} is of {array.dtype}, and x of {x.dtype}: convert one")
