"""The gated delta rule: states that forget, and write what a key does not recall yet."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import array_api_compat

from tilewright_kernels.attention.heads import head_strides, rows_of
from tilewright_kernels.operations import Array, Launcher, Operation, strides
from tilewright_kernels.rows.l2_norm import l2_norm, l2_norm_reference
from tilewright_kernels.sequence.chunk_launches import (
    Recurrence,
    check_sequences,
    launch_decay_gradients,
    launch_log_decay,
    launch_outputs,
    launch_query_key_gradients,
    launch_state_gradients,
    launch_states,
    launch_value_gradients,
    recurrence_of,
    tile_options,
)
from tilewright_kernels.sequence.delta_rule_kernels import (
    triangle_kernel,
    wy_gradient_kernel,
    wy_kernel,
)
from tilewright_kernels.sequence.reference_scan import scan_by_formula


def gated_delta_rule_reference(
    q: Any,
    k: Any,
    v: Any,
    g: Any,
    beta: Any,
    scale: float | None = None,
    initial_state: Any = None,
    cu_seqlens: Any = None,
    seq_idx: Any = None,
    output_final_state: bool = False,
    use_qk_l2norm: bool = False,
) -> Any:
    """Return the rows step by step, and the last states if wanted."""
    xp = array_api_compat.array_namespace(q)
    scale = k.shape[3] ** -0.5 if scale is None else scale
    if use_qk_l2norm:
        q, k = l2_norm_reference(q), l2_norm_reference(k)
    group = v.shape[2] // k.shape[2]

    def step(state: Any, v: Any, q: Any, k: Any, g: Any, beta: Any) -> tuple[Any, Any]:
        query, key = (xp.repeat(each, group, axis=1)[..., None] for each in (q, k))
        state = state * xp.exp(g)[..., None, None]
        u = (v - xp.sum(state * key, axis=2)) * beta[..., None]
        state = state + key * u[:, :, None, :]
        return xp.sum(state * query, axis=2) * scale, state

    state_shape = (v.shape[2], k.shape[3], v.shape[3])
    rows, states = scan_by_formula(
        step, (v, q, k, g, beta), initial_state, state_shape, cu_seqlens, seq_idx
    )
    out = xp.stack(rows, axis=1) if rows else v * 0
    return (out, states) if output_final_state else out


def _shapes(
    make: Any, q: Any, k: Any, v: Any, g: Any, beta: Any, initial_state: Any, cu_seqlens: Any,
    seq_idx: Any, scale: float, output_final_state: bool,
) -> tuple[Any, ...]:  # fmt: skip
    r = recurrence_of(k, v, cu_seqlens)
    dtype = "float32" if initial_state is None else initial_state.dtype
    state = (r.sequences, r.heads, r.dims, r.value_dims)
    return (
        make(v.shape, v.dtype),
        make(state, dtype) if output_final_state else None,
        make((r.heads, r.tokens), "float32"),
        make((r.chunks, r.heads, r.steps, r.steps), v.dtype),
        make((*v.shape[:3], r.dims), v.dtype),
        make(v.shape, v.dtype),
        make(r.states_shape, v.dtype),
    )


def _constants(r: Recurrence, kernel: str) -> dict[str, Any]:
    return {**r.constants, "PADDED_V": r.padded_values, **tile_options(r, kernel)}


def _launch(
    run: Launcher, out: Any, final_state: Any, a: Any, inverse: Any, w: Any, u: Any, states: Any,
    q: Array, k: Array, v: Array, g: Array, beta: Array, initial_state: Array | None = None,
    cu_seqlens: Array | None = None, seq_idx: Array | None = None, scale: float = 1.0,
    output_final_state: bool = False,
) -> None:  # fmt: skip
    r = recurrence_of(k, v, cu_seqlens)
    if r.is_empty and (final_state is None or 0 in final_state.shape):
        return
    a = run.empty((r.heads, r.tokens), "float32") if a is None else a
    w = run.empty((*v.shape[:3], r.dims), v.dtype) if w is None else w
    u = run.empty(v.shape, v.dtype) if u is None else u
    first = run.empty(v.shape, v.dtype)
    states = run.empty(r.states_shape, v.dtype) if states is None else states
    if not r.is_empty:
        if inverse is None:
            inverse = run.empty((r.chunks, r.heads, r.steps, r.steps), v.dtype)
        launch_log_decay(run, r, g, a, seq_idx=seq_idx)
        k, v = rows_of(k), rows_of(v)
        options = (r.sequences, *r.sizes)
        run(
            triangle_kernel,
            (r.chunks, r.heads),
            k, beta, a, inverse, r.cu_seqlens, *head_strides(k), *strides(beta), *options,
            PRECISION="ieee" if r.steps == 32 else "tf32x3", GROUP=r.heads // r.groups, T=r.steps,
            D=r.dims, PADDED=r.padded, num_warps=1 if r.device.family == "cpu" else 2,
        )  # fmt: skip
        run(
            wy_kernel,
            (r.chunks, r.heads),
            k, v, beta, a, inverse, w, first, r.cu_seqlens, *head_strides(k), *head_strides(v),
            *strides(beta), *options, **_constants(r, "wy"),
        )  # fmt: skip
    launch_states(run, r, k, first, w, a, None, initial_state, states, u, final_state, False)
    if not r.is_empty:
        launch_outputs(run, r, q, k, u, a, None, states, out, scale)


#: The rule, with what the backward pass reads.
GATED_DELTA_RULE = Operation(
    "gated_delta_rule",
    ("out", "final_state", "a", "inverse", "w", "u", "states"),
    _shapes,
    _launch,
    residuals=("a", "inverse", "w", "u", "states"),
    optional=("final_state",),
    reference=gated_delta_rule_reference,
)


def _backward_shapes(
    make: Any, dout: Any, dfinal: Any, q: Any, k: Any, v: Any, g: Any, beta: Any,
    initial_state: Any, cu_seqlens: Any, a: Any, inverse: Any, w: Any, u: Any, states: Any,
    scale: float,
) -> tuple[Any, ...]:  # fmt: skip
    made = [make(each.shape, each.dtype) for each in (q, k, v, g, beta)]
    initial = initial_state
    return (*made, None if initial is None else make(initial.shape, initial.dtype))


def _backward_launch(
    run: Launcher, dq: Any, dk: Any, dv: Any, dg: Any, dbeta: Any, dinitial: Any,
    dout: Array, dfinal: Array | None, q: Array, k: Array, v: Array, g: Array, beta: Array,
    initial_state: Array | None, cu_seqlens: Array | None, a: Array, inverse: Array, w: Array,
    u: Array, states: Array, scale: float,
) -> None:  # fmt: skip
    r = recurrence_of(k, v, cu_seqlens)
    du, dstates = run.empty(u.shape, u.dtype), run.empty(r.states_shape, v.dtype)
    k, v = rows_of(k), rows_of(v)
    if not r.is_empty:
        launch_value_gradients(run, r, q, k, v, dout, a, None, None, du, scale=scale)
    if dinitial is not None or not r.is_empty:
        launch_state_gradients(
            run, r, q, k, dout, w, du, a, dfinal, dstates, dinitial, False, scale
        )
    if r.is_empty:
        return
    through = run.empty((*v.shape[:3], r.dims), "float32")
    row_through = run.empty((r.heads, r.tokens), "float32")
    run(
        wy_gradient_kernel,
        (r.chunks, r.heads),
        k, v, beta, a, inverse, u, du, states, dv, dbeta, through, row_through, r.cu_seqlens,
        *head_strides(k), *head_strides(v), *strides(beta), r.sequences, *r.sizes,
        **_constants(r, "wy_gradient"),
    )  # fmt: skip
    sums = launch_query_key_gradients(
        run, r, q, k, u, dout, a, None, states, dstates, dq, dk, through, row_through, scale
    )
    launch_decay_gradients(run, r, sums, g, dg)


GATED_DELTA_RULE_BACKWARD = Operation(
    "gated_delta_rule_backward",
    ("dq", "dk", "dv", "dg", "dbeta", "dinitial"),
    _backward_shapes,
    _backward_launch,
    optional=("dinitial",),
)


@GATED_DELTA_RULE.differentiate(
    saved=(
        "q", "k", "v", "g", "beta", "initial_state", "cu_seqlens", "a", "inverse", "w", "u",
        "states",
    )
)  # fmt: skip
def _gradients(saved: Any, dout: Any, dfinal: Any) -> Mapping[str, Any]:
    if dout is None:
        dout = saved.v * 0
    given = GATED_DELTA_RULE_BACKWARD(
        dout, dfinal, saved.q, saved.k, saved.v, saved.g, saved.beta, saved.initial_state,
        saved.cu_seqlens, saved.a, saved.inverse, saved.w, saved.u, saved.states, saved.scale,
    )  # fmt: skip
    names = ("q", "k", "v", "g", "beta", "initial_state")
    return {name: each for name, each in zip(names, given, strict=True) if each is not None}


def gated_delta_rule(
    q: Any,
    k: Any,
    v: Any,
    g: Any,
    beta: Any,
    *,
    scale: float | None = None,
    initial_state: Any = None,
    cu_seqlens: Any = None,
    seq_idx: Any = None,
    output_final_state: bool = False,
    use_qk_l2norm: bool = False,
    out: Any = None,
) -> Any:
    """Compute the gated delta rule: each step decays a state and updates its value for one key.

    For each step t, ``S = exp(g[t]) S[t - 1]`` and ``S[t] = S + beta[t] k[t] (v[t] - S' k[t])'``.
    Row t of the result is ``scale S[t]' q[t]``. The sign ``'`` means the transpose.

    Args:
        q, k: queries and keys, of shape (batch, length, key_heads, key_dim), of float16, bfloat16
            or float32.
        v: values, of shape (batch, length, heads, value_dim) and the type of ``q``. ``heads`` is a
            multiple of ``key_heads``.
        g: logarithms of the decay factors, of shape (batch, length, heads).
        beta: which fraction of a value is written to the state, of shape (batch, length, heads).
        scale: the factor of the result; ``key_dim ** -0.5`` if None.
        initial_state: the state before the first step, of shape (batch, heads, key_dim, value_dim);
            zeros if None.
        cu_seqlens: the bounds of packed sequences, of shape (sequences + 1,): integers from 0 to
            ``length``. ``batch`` must then be 1, and the first axis of states is the number of
            sequences instead of ``batch``.
        seq_idx: the number of the sequence of each step, of shape (batch, length) and an integer
            type. Where this number changes, the state is set to zero before the step. The initial
            state belongs to the first sequence of a row, and the last state to its last sequence.
        output_final_state: whether to also return the last states.
        use_qk_l2norm: whether to divide queries and keys by their Euclidean norms first.
        out: the array for the result; a pair of arrays if the last states are returned, too.

    Returns:
        The result, with the shape and element type of ``v``. With ``output_final_state``, the
        function returns a pair: the result and the last states. The last states have the type of
        ``initial_state``, or float32 if ``initial_state`` is None. Sums and states are computed in
        float32. All arguments that are arrays of floats have gradients.

    Raises:
        ValueError: the shapes of the arguments do not match.

    Source: Yang, Kautz and Hatamizadeh, "Gated Delta Networks: Improving Mamba2 with Delta Rule",
    2024.
    """
    _check(q, k, v, g, beta, initial_state, cu_seqlens, seq_idx)
    if use_qk_l2norm:
        q, k = l2_norm(q), l2_norm(k)
    scale = k.shape[3] ** -0.5 if scale is None else scale
    if out is not None and not output_final_state:
        out = (out,)
    found = GATED_DELTA_RULE(
        q, k, v, g, beta, initial_state, cu_seqlens, seq_idx, float(scale), output_final_state,
        out=out,
    )  # fmt: skip
    if output_final_state:
        return found
    return found[0] if isinstance(found, (tuple, list)) else found


def _check(
    q: Any, k: Any, v: Any, g: Any, beta: Any, initial: Any, cu_seqlens: Any, seq_idx: Any
) -> None:
    shape, keys = tuple(v.shape), tuple(k.shape)
    if len(shape) != 4 or len(keys) != 4 or keys[2] == 0 or shape[2] % keys[2]:
        raise ValueError(
            f"gated_delta_rule: k of {keys} and v of {shape} are not of (batch, length, key_heads, "
            "key_dim) and (batch, length, heads, value_dim), with heads a multiple of key_heads"
        )
    batch, length, heads, dims = shape
    check_sequences("gated_delta_rule", batch, length, cu_seqlens, seq_idx)
    sequences = batch if cu_seqlens is None else cu_seqlens.shape[0] - 1
    expected = {
        "q": (q, keys),
        "k": (k, (batch, length, *keys[2:])),
        "g": (g, (batch, length, heads)),
        "beta": (beta, (batch, length, heads)),
        "initial_state": (initial, (sequences, heads, keys[3], dims)),
    }
    for name, (array, wanted) in expected.items():
        if array is not None and tuple(array.shape) != wanted:
            raise ValueError(
                f"gated_delta_rule: {name} has the shape {tuple(array.shape)}, not {wanted}"
            )
    for name, array in (("q", q), ("k", k)):
        if array.dtype != v.dtype:
            raise ValueError(
                f"gated_delta_rule: {name} is of {array.dtype}, and v of {v.dtype}: convert one"
            )
