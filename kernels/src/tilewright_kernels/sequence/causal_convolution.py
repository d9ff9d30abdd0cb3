"""Causal convolutions of each channel along a sequence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import array_api_compat

import tilewright as tw
import tilewright.language as tl
from tilewright_kernels.operations import Array, Launcher, Operation, strides
from tilewright_kernels.operations.devices import device_of
from tilewright_kernels.rows.shapes import contiguous


@tw.jit
def of_one_sequence(seq_idx_ptr, step, other, length):
    """Return whether two steps are of one sequence; steps before the first are of its sequence."""
    one = tl.load(seq_idx_ptr + tl.maximum(step, 0), mask=step < length, other=0)
    return one == tl.load(seq_idx_ptr + tl.maximum(other, 0), mask=other < length, other=0)


@tw.jit
def convolved(
    x_ptr,
    weight_ptr,
    bias_ptr,
    state_ptr,
    seq_idx_ptr,
    channel,
    step,
    is_channel,
    length,
    x_t,
    WIDTH: tl.constexpr,
):
    """Return the convolution of some channels at some steps, in float32."""
    total = tl.zeros([channel.shape[0], step.shape[0]], tl.float32)
    if bias_ptr is not None:
        total += tl.load(bias_ptr + channel, mask=is_channel, other=0.0).to(tl.float32)[:, None]
    for tap in tl.static_range(WIDTH):
        weight = tl.load(weight_ptr + channel * WIDTH + tap, mask=is_channel, other=0.0)
        place = (step - (WIDTH - 1 - tap))[None, :]
        is_seen = is_channel[:, None]
        if seq_idx_ptr is not None:
            is_seen = is_seen & of_one_sequence(seq_idx_ptr, step[None, :], place, length)
        is_inside = is_seen & (place >= 0) & (place < length)
        x = tl.load(x_ptr + place * x_t, mask=is_inside, other=0.0).to(tl.float32)
        if state_ptr is not None:
            at = state_ptr + channel[:, None] * (WIDTH - 1) + place + (WIDTH - 1)
            is_before = is_seen & (place < 0)
            x += tl.load(at, mask=is_before, other=0.0).to(tl.float32)
        total += weight.to(tl.float32)[:, None] * x
    return total


@tw.jit
def causal_conv_kernel(
    x_ptr,
    weight_ptr,
    bias_ptr,
    state_ptr,
    seq_idx_ptr,
    dy_ptr,
    y_ptr,
    n_channels,
    length,
    x_b,
    x_d,
    x_t,
    SILU: tl.constexpr,
    WIDTH: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_T: tl.constexpr,
):
    """Store the convolution, or the gradient before the activation where ``dy_ptr`` is given."""
    batch = tl.program_id(0).to(tl.int64)
    channel = tl.program_id(1) * BLOCK_D + tl.arange(0, BLOCK_D)
    step = tl.program_id(2) * BLOCK_T + tl.arange(0, BLOCK_T)
    is_channel = channel < n_channels
    if state_ptr is not None:
        state_ptr += batch * n_channels * (WIDTH - 1)
    if seq_idx_ptr is not None:
        seq_idx_ptr += batch * length
    at_x = x_ptr + batch * x_b + channel.to(tl.int64)[:, None] * x_d
    y = convolved(
        at_x, weight_ptr, bias_ptr, state_ptr, seq_idx_ptr, channel, step, is_channel, length, x_t,
        WIDTH,
    )  # fmt: skip
    at = (batch * n_channels + channel)[:, None] * length + step[None, :]
    is_inside = is_channel[:, None] & (step < length)[None, :]
    if dy_ptr is not None:
        dy = tl.load(dy_ptr + at, mask=is_inside, other=0.0).to(tl.float32)
        if SILU:
            gate = tl.sigmoid(y)
            dy *= gate * (1.0 + y * (1.0 - gate))
        tl.store(y_ptr + at, dy, mask=is_inside)
    else:
        if SILU:
            y *= tl.sigmoid(y)
        tl.store(y_ptr + at, y, mask=is_inside)


@tw.jit
def input_gradient_kernel(
    dz_ptr,
    weight_ptr,
    seq_idx_ptr,
    dx_ptr,
    dstate_ptr,
    n_channels,
    length,
    WIDTH: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_T: tl.constexpr,
):
    batch = tl.program_id(0).to(tl.int64)
    channel = tl.program_id(1) * BLOCK_D + tl.arange(0, BLOCK_D)
    step = tl.program_id(2) * BLOCK_T + tl.arange(0, BLOCK_T) - (WIDTH - 1)
    is_channel = channel < n_channels
    row = (batch * n_channels + channel)[:, None]
    if seq_idx_ptr is not None:
        seq_idx_ptr += batch * length
    total = tl.zeros([BLOCK_D, BLOCK_T], tl.float32)
    for tap in tl.static_range(WIDTH):
        weight = tl.load(weight_ptr + channel * WIDTH + tap, mask=is_channel, other=0.0)
        place = (step + (WIDTH - 1 - tap))[None, :]
        is_inside = is_channel[:, None] & (place >= 0) & (place < length)
        if seq_idx_ptr is not None:
            is_inside &= of_one_sequence(seq_idx_ptr, step[None, :], place, length)
        dz = tl.load(dz_ptr + row * length + place, mask=is_inside, other=0.0)
        total += weight.to(tl.float32)[:, None] * dz
    is_inside = is_channel[:, None] & ((step >= 0) & (step < length))[None, :]
    tl.store(dx_ptr + row * length + step[None, :], total, mask=is_inside)
    if dstate_ptr is not None:
        at = row * (WIDTH - 1) + (step + (WIDTH - 1))[None, :]
        tl.store(dstate_ptr + at, total, mask=is_channel[:, None] & (step < 0)[None, :])


@tw.jit
def weight_gradient_kernel(
    dz_ptr,
    x_ptr,
    state_ptr,
    seq_idx_ptr,
    dweight_ptr,
    dbias_ptr,
    n_batches,
    n_channels,
    length,
    x_b,
    x_d,
    x_t,
    WIDTH: tl.constexpr,
    BLOCK_T: tl.constexpr,
):
    channel, tap = tl.program_id(0).to(tl.int64), tl.program_id(1)
    total = tl.zeros([BLOCK_T], tl.float32)
    bias = tl.zeros([BLOCK_T], tl.float32)
    for batch in range(n_batches):
        row = tl.cast(batch, tl.int64) * n_channels + channel
        base = x_ptr + tl.cast(batch, tl.int64) * x_b + channel * x_d
        for start in range(0, length, BLOCK_T):
            step = start + tl.arange(0, BLOCK_T)
            is_inside = step < length
            place = step - (WIDTH - 1) + tap
            is_seen = is_inside
            if seq_idx_ptr is not None:
                own = seq_idx_ptr + tl.cast(batch, tl.int64) * length
                is_seen &= of_one_sequence(own, step, place, length)
            dz = tl.load(dz_ptr + row * length + step, mask=is_inside, other=0.0)
            x = tl.load(base + place * x_t, mask=is_seen & (place >= 0), other=0.0)
            x = x.to(tl.float32)
            if state_ptr is not None:
                at = state_ptr + row * (WIDTH - 1) + place + (WIDTH - 1)
                x += tl.load(at, mask=is_seen & (place < 0), other=0.0).to(tl.float32)
            total += dz * x
            bias += dz
    tl.store(dweight_ptr + channel * WIDTH + tap, tl.sum(total, axis=0))
    if dbias_ptr is not None:
        tl.store(dbias_ptr + channel, tl.sum(bias, axis=0), mask=tap == 0)


def causal_conv1d_reference(
    x: Any,
    weight: Any,
    bias: Any = None,
    state: Any = None,
    seq_idx: Any = None,
    *,
    activation: str | None = None,
) -> Any:
    """Return the convolution of each channel with its taps, over the state and the sequence."""
    xp = array_api_compat.array_namespace(x)
    width, length = weight.shape[1], x.shape[2]
    if state is None:
        taps = xp.ones((width - 1,), dtype=x.dtype, device=array_api_compat.device(x))
        state = xp.zeros_like(x[:, :, :1]) * taps
    padded = xp.concat([state, x], axis=2)
    taps = [weight[:, tap, None] * padded[:, :, tap : tap + length] for tap in range(width)]
    if seq_idx is not None:
        indices = xp.concat([seq_idx[:, :1]] * (width - 1) + [seq_idx], axis=1)
        for tap in range(width):
            is_seen = indices[:, tap : tap + length] == seq_idx
            taps[tap] = xp.where(is_seen[:, None, :], taps[tap], 0 * taps[tap])
    y = sum(taps)
    if bias is not None:
        y = y + bias[:, None]
    return y / (1 + xp.exp(-y)) if activation == "silu" else y


def _blocks(x: Any, n_channels: int, length: int) -> dict[str, Any]:
    on_cpu, (_, x_d, x_t) = device_of(x).family == "cpu", strides(x)
    if x_t <= x_d:
        block_t = min(tw.next_power_of_2(length), 256 if on_cpu else 1024)
        block_d = 1 if on_cpu else max(min(tw.next_power_of_2(n_channels), 1024 // block_t), 1)
    else:
        block_d = min(tw.next_power_of_2(n_channels), 64)
        block_t = min(tw.next_power_of_2(length), 16)
    return {"BLOCK_D": block_d, "BLOCK_T": block_t}


def _by_formula(x: Any, weight: Any, bias: Any, state: Any, seq_idx: Any, silu: bool) -> Any:
    activation = "silu" if silu else None
    return causal_conv1d_reference(x, weight, bias, state, seq_idx, activation=activation)


def _shapes(
    make: Any, x: Any, weight: Any, bias: Any, state: Any, seq_idx: Any, silu: bool
) -> tuple[Any, ...]:
    return (make(x.shape, x.dtype),)


def _convolve(
    run: Launcher,
    y: Any,
    x: Any,
    weight: Any,
    bias: Any,
    state: Any,
    seq_idx: Any,
    dy: Any,
    silu: bool,
) -> None:
    batch, n_channels, length = x.shape
    blocks = _blocks(x, n_channels, length)
    run(
        causal_conv_kernel,
        (batch, tw.cdiv(n_channels, blocks["BLOCK_D"]), tw.cdiv(length, blocks["BLOCK_T"])),
        x,
        weight,
        bias,
        state,
        seq_idx,
        dy,
        y,
        n_channels,
        length,
        *strides(x),
        SILU=silu,
        WIDTH=weight.shape[1],
        **blocks,
    )


def _launch(
    run: Launcher,
    y: Any,
    x: Array,
    weight: Array,
    bias: Array | None = None,
    state: Array | None = None,
    seq_idx: Array | None = None,
    silu: bool = False,
) -> None:
    if 0 in x.shape:
        return
    weight, bias, state, seq_idx = map(contiguous, (weight, bias, state, seq_idx))
    _convolve(run, y, x, weight, bias, state, seq_idx, None, silu)


CAUSAL_CONV1D = Operation("causal_conv1d", ("y",), _shapes, _launch, reference=_by_formula)


def _gradient_shapes(
    make: Any, dy: Any, x: Any, weight: Any, bias: Any, state: Any, seq_idx: Any, silu: bool
) -> tuple[Any, ...]:
    return (
        make(x.shape, x.dtype),
        make(weight.shape, weight.dtype),
        None if bias is None else make(bias.shape, bias.dtype),
        None if state is None else make(state.shape, state.dtype),
    )


def _gradient_launch(
    run: Launcher,
    dx: Any,
    dweight: Any,
    dbias: Any,
    dstate: Any,
    dy: Array,
    x: Array,
    weight: Array,
    bias: Array | None = None,
    state: Array | None = None,
    seq_idx: Array | None = None,
    silu: bool = False,
) -> None:
    batch, n_channels, length = x.shape
    weight, bias, state, seq_idx = map(contiguous, (weight, bias, state, seq_idx))
    dz = run.empty(x.shape, "float32")
    if 0 not in x.shape:
        _convolve(run, dz, x, weight, bias, state, seq_idx, contiguous(dy), silu)
    width, blocks = weight.shape[1], _blocks(dx, n_channels, max(length, 1))
    if batch * n_channels:
        steps = tw.cdiv(length + width - 1, blocks["BLOCK_T"])
        run(
            input_gradient_kernel,
            (batch, tw.cdiv(n_channels, blocks["BLOCK_D"]), max(steps, 1)),
            dz,
            weight,
            seq_idx,
            dx,
            dstate,
            n_channels,
            length,
            WIDTH=width,
            **blocks,
        )
    if n_channels:
        run(
            weight_gradient_kernel,
            (n_channels, width),
            dz,
            x,
            state,
            seq_idx,
            dweight,
            dbias,
            batch,
            n_channels,
            length,
            *strides(x),
            WIDTH=width,
            BLOCK_T=min(tw.next_power_of_2(max(length, 1)), 512),
        )


CAUSAL_CONV1D_GRADIENT = Operation(
    "causal_conv1d_gradient",
    ("dx", "dweight", "dbias", "dstate"),
    _gradient_shapes,
    _gradient_launch,
    optional=("dbias", "dstate"),
)


@CAUSAL_CONV1D.differentiate(saved=("x", "weight", "bias", "state", "seq_idx"))
def _gradients(saved: Any, dy: Any) -> Mapping[str, Any]:
    found = CAUSAL_CONV1D_GRADIENT(
        dy, saved.x, saved.weight, saved.bias, saved.state, saved.seq_idx, saved.silu
    )
    return dict(zip(("x", "weight", "bias", "state"), found, strict=True))


def causal_conv1d(
    x: Any,
    weight: Any,
    bias: Any = None,
    state: Any = None,
    seq_idx: Any = None,
    *,
    activation: str | None = None,
    out: Any = None,
) -> Any:
    """Convolve each channel with its own filter, whose last tap applies to the current step.

    Args:
        x: of shape (batch, channels, length) and any strides, of float16, bfloat16 or float32.
        weight: of shape (channels, width).
        bias: of shape (channels,), or None.
        state: the width - 1 steps before the first step of ``x``, of shape (batch, channels, width
            - 1); zeros if None. To compute one step of a decoder, call the function with an ``x``
            of length 1. The next state is then the last width - 1 steps of the state and ``x``
            together.
        seq_idx: the number of the sequence of each step, of shape (batch, length) and an integer
            type. Steps of other sequences count as zero. ``state`` belongs to the sequence of the
            first step.
        activation: None, or ``"silu"``.
        out: the array for the result.

    Returns:
        An array with the shape and element type of ``x``, computed in float32. All arrays have
        gradients.

    Raises:
        ValueError: the shapes of the arguments do not match, or the activation is not supported.

    Source: Gu and Dao, "Mamba: linear-time sequence modeling with selective state spaces", 2023.
    """
    if activation not in (None, "silu"):
        raise ValueError(f"causal_conv1d: activation must be None or 'silu', not {activation!r}")
    shape = tuple(x.shape)
    if len(shape) != 3 or len(weight.shape) != 2 or weight.shape[0] != shape[1]:
        raise ValueError(
            f"causal_conv1d: x of shape {shape} and weights of {tuple(weight.shape)} are not of "
            "(batch, channels, length) and (channels, width)"
        )
    expected = (shape[0], shape[1], weight.shape[1] - 1)
    if weight.shape[1] < 1 or (state is not None and tuple(state.shape) != expected):
        found = None if state is None else tuple(state.shape)
        raise ValueError(f"causal_conv1d: the state has the shape {found}, not {expected}")
    if seq_idx is not None and tuple(seq_idx.shape) != (shape[0], shape[2]):
        raise ValueError(
            f"causal_conv1d: seq_idx has the shape {tuple(seq_idx.shape)}, not "
            f"{(shape[0], shape[2])}"
        )
    return CAUSAL_CONV1D(x, weight, bias, state, seq_idx, activation == "silu", out=out)
