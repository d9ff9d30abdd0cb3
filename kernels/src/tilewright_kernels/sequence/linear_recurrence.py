"""First-order linear recurrences, by associative scans of blocks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import array_api_compat

import tilewright as tw
import tilewright.language as tl
from tilewright_kernels.operations import Array, Launcher, Operation
from tilewright_kernels.operations.devices import device_of
from tilewright_kernels.reductions.views import contiguous


@tw.jit
def _composed(factor_1, term_1, factor_2, term_2):
    """Return the map that takes a state through one affine map after another."""
    return factor_1 * factor_2, term_1 * factor_2 + term_2


@tw.jit
def recurrence_kernel(
    a_ptr,
    x_ptr,
    initial_ptr,
    h_ptr,
    length,
    width,
    BLOCK_T: tl.constexpr,
    BLOCK_D: tl.constexpr,
):
    batch = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK_D + tl.arange(0, BLOCK_D)
    is_column = column < width
    state = tl.zeros([BLOCK_D], tl.float32)
    if initial_ptr is not None:
        state += tl.load(initial_ptr + batch * width + column, mask=is_column, other=0.0)
    for start in range(0, length, BLOCK_T):
        step = start + tl.arange(0, BLOCK_T)
        at = (batch * length + step)[:, None] * width + column[None, :]
        is_inside = (step < length)[:, None] & is_column[None, :]
        # a masked-off step keeps the state
        a = tl.load(a_ptr + at, mask=is_inside, other=1.0).to(tl.float32)
        x = tl.load(x_ptr + at, mask=is_inside, other=0.0).to(tl.float32)
        factor, term = tl.associative_scan((a, x), 0, _composed)
        h = factor * state[None, :] + term
        tl.store(h_ptr + at, h, mask=is_inside)
        is_last = tl.arange(0, BLOCK_T)[:, None] == BLOCK_T - 1
        state = tl.sum(tl.where(is_last, h, 0.0), axis=0)


@tw.jit
def recurrence_gradient_kernel(
    dh_ptr,
    a_ptr,
    h_ptr,
    initial_ptr,
    da_ptr,
    dx_ptr,
    dinitial_ptr,
    length,
    width,
    BLOCK_T: tl.constexpr,
    BLOCK_D: tl.constexpr,
):
    batch = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK_D + tl.arange(0, BLOCK_D)
    is_column = column < width
    state = tl.zeros([BLOCK_D], tl.float32)
    for start in range(0, length, BLOCK_T):
        step = length - 1 - start - tl.arange(0, BLOCK_T)
        at = (batch * length + step)[:, None] * width + column[None, :]
        is_inside = (step >= 0)[:, None] & is_column[None, :]
        has_next = is_inside & (step < length - 1)[:, None]
        a = tl.load(a_ptr + at + width, mask=has_next, other=1.0).to(tl.float32)
        dh = tl.load(dh_ptr + at, mask=is_inside, other=0.0).to(tl.float32)
        factor, term = tl.associative_scan((a, dh), 0, _composed)
        gradient = factor * state[None, :] + term
        before = tl.load(h_ptr + at - width, mask=is_inside & (step > 0)[:, None], other=0.0).to(
            tl.float32
        )
        if initial_ptr is not None:
            initial = tl.load(initial_ptr + batch * width + column, mask=is_column, other=0.0)
            before = tl.where((step == 0)[:, None], initial.to(tl.float32)[None, :], before)
        tl.store(da_ptr + at, gradient * before, mask=is_inside)
        tl.store(dx_ptr + at, gradient, mask=is_inside)
        is_last = tl.arange(0, BLOCK_T)[:, None] == BLOCK_T - 1
        state = tl.sum(tl.where(is_last, gradient, 0.0), axis=0)
    if dinitial_ptr is not None:
        at = batch * length * width + column
        a = tl.load(a_ptr + at, mask=is_column & (length > 0), other=1.0).to(tl.float32)
        tl.store(dinitial_ptr + batch * width + column, state * a, mask=is_column)


def linear_recurrence_reference(a: Any, x: Any, initial: Any = None) -> Any:
    """Return ``h[t] = a[t] * h[t - 1] + x[t]`` along the second axis."""
    xp = array_api_compat.array_namespace(a)
    state = xp.zeros_like(x[:, 0]) if initial is None else initial
    states = []
    for step in range(x.shape[1]):
        state = a[:, step] * state + x[:, step]
        states.append(state)
    return xp.stack(states, axis=1)


def _blocks(x: Any, length: int, width: int) -> dict[str, Any]:
    if device_of(x).family == "cpu":
        return {"BLOCK_T": 1, "BLOCK_D": min(tw.next_power_of_2(width), 256)}
    block_d = min(tw.next_power_of_2(width), 32)
    block_t = min(tw.next_power_of_2(length), 2048 // block_d)
    return {"BLOCK_T": block_t, "BLOCK_D": block_d, "num_warps": 4}


def _shapes(make: Any, a: Any, x: Any, initial: Any) -> tuple[Any, ...]:
    return (make(x.shape, x.dtype),)


def _launch(run: Launcher, h: Any, a: Array, x: Array, initial: Array | None = None) -> None:
    batch, length, width = x.shape
    if batch * length * width == 0:
        return
    blocks = _blocks(x, length, width)
    run(
        recurrence_kernel,
        (batch, tw.cdiv(width, blocks["BLOCK_D"])),
        contiguous(a),
        contiguous(x),
        None if initial is None else contiguous(initial),
        h,
        length,
        width,
        **blocks,
    )


RECURRENCE = Operation(
    "linear_recurrence", ("h",), _shapes, _launch, reference=linear_recurrence_reference
)


def _gradient_shapes(make: Any, dh: Any, a: Any, h: Any, initial: Any) -> tuple[Any, ...]:
    state = None if initial is None else make(initial.shape, initial.dtype)
    return make(a.shape, a.dtype), make(h.shape, h.dtype), state


def _gradient_launch(
    run: Launcher,
    da: Any,
    dx: Any,
    dinitial: Any,
    dh: Array,
    a: Array,
    h: Array,
    initial: Array | None = None,
) -> None:
    batch, length, width = h.shape
    if batch * length * width == 0:
        return
    blocks = _blocks(h, length, width)
    run(
        recurrence_gradient_kernel,
        (batch, tw.cdiv(width, blocks["BLOCK_D"])),
        contiguous(dh),
        contiguous(a),
        contiguous(h),
        None if initial is None else contiguous(initial),
        da,
        dx,
        dinitial,
        length,
        width,
        **blocks,
    )


RECURRENCE_GRADIENT = Operation(
    "linear_recurrence_gradient",
    ("da", "dx", "dinitial"),
    _gradient_shapes,
    _gradient_launch,
    optional=("dinitial",),
)


@RECURRENCE.differentiate(saved=("a", "h", "initial"))
def _gradients(saved: Any, dh: Any) -> Mapping[str, Any]:
    found = RECURRENCE_GRADIENT(dh, saved.a, saved.h, saved.initial)
    return dict(zip(("a", "x", "initial"), found, strict=True))


def linear_recurrence(a: Any, x: Any, initial: Any = None, *, out: Any = None) -> Any:
    """Compute the states ``h[t] = a[t] * h[t - 1] + x[t]``.

    Args:
        a: factors, of shape (batch, length, width), of float16, bfloat16 or float32.
        x: terms, of the same shape.
        initial: the state before the first step, of shape (batch, width); zeros if None.
        out: the array for the result.

    Returns:
        The states, with the shape and element type of ``x``, computed in float32. To continue the
        sequence in another call, pass the last state as ``initial``. All arguments have gradients.
        The backward pass computes the gradients by a recurrence in reverse direction.

    Raises:
        ValueError: the shapes of the arguments do not match.

    Source: Martin and Cundy, "Parallelizing linear recurrent neural nets over sequence length",
    2018.
    """
    shape = tuple(x.shape)
    state = None if initial is None else tuple(initial.shape)
    if len(shape) != 3 or tuple(a.shape) != shape or state not in (None, (shape[0], shape[2])):
        raise ValueError(
            f"linear_recurrence: factors of shape {tuple(a.shape)}, terms of {shape} and a state "
            f"of {state} are not of (batch, length, width) and (batch, width)"
        )
    return RECURRENCE(a, x, initial, out=out)
