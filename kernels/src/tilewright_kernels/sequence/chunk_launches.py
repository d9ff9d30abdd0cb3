"""Launches of the kernels of chunks: extents, block sizes by a rule, and scratch memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import tilewright as tw
from tilewright_kernels.attention.heads import head_strides, rows_of
from tilewright_kernels.operations import Launcher, strides
from tilewright_kernels.operations.devices import Device, device_of
from tilewright_kernels.rows.shapes import contiguous
from tilewright_kernels.sequence.chunk_gradient_kernels import (
    decay_gradient_kernel,
    key_gradient_kernel,
    part_sums_kernel,
    query_gradient_kernel,
    state_gradient_kernel,
    value_gradient_kernel,
)
from tilewright_kernels.sequence.chunk_kernels import (
    chunk_output_kernel,
    chunk_state_kernel,
    log_decay_kernel,
)

#: Heads of which a program computes log decays.
_HEADS = 8


@dataclass(frozen=True)
class Recurrence:
    """Extents of a recurrence over heads, and its chunks.

    Attributes:
        sequences: of a batch, or packed ones.
        length: rows of a sequence of a batch, or of all packed ones.
        tokens: rows of the whole batch.
        heads: of values and states.
        groups: heads of queries and keys.
        dims, value_dims: elements of a head of keys, and of values.
        steps: rows of a chunk.
        chunks: how many numbers chunks may have.
        values: the array of values.
        cu_seqlens: bounds of packed sequences, or None.
    """

    sequences: int
    length: int
    tokens: int
    heads: int
    groups: int
    dims: int
    value_dims: int
    steps: int
    chunks: int
    values: Any
    cu_seqlens: Any

    @property
    def device(self) -> Device:
        """The device that the kernels run on."""
        return device_of(self.values)

    @property
    def states_shape(self) -> tuple[int, ...]:
        """The shape of the states before all chunks."""
        return self.chunks, self.heads, self.dims, self.value_dims

    @property
    def is_empty(self) -> bool:
        """Return whether there is nothing to compute."""
        return 0 in (self.tokens, self.heads, self.value_dims)

    @property
    def padded(self) -> int:
        """Keys of a tile."""
        return padded(self.dims)

    @property
    def padded_values(self) -> int:
        """Values of a tile that has all of a head."""
        return padded(self.value_dims)

    @property
    def constants(self) -> dict[str, Any]:
        """Constants of all kernels but those of log decays."""
        return {
            "GROUP": self.heads // max(self.groups, 1),
            "T": self.steps,
            "D": self.dims,
            "D_V": self.value_dims,
            "PADDED": self.padded,
        }

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Arguments of kernels: rows of a sequence, all rows, heads."""
        return self.length, self.tokens, self.heads


def padded(dims: int) -> int:
    """Return the extent of tiles that hold ``dims`` elements."""
    return max(int(tw.next_power_of_2(max(dims, 1))), 16)


def chunk_steps(values: Any) -> int:
    """Return the rows of a chunk: work within it grows with them, traffic of states shrinks."""
    return 32 if values.dtype.itemsize > 2 else 64


def recurrence_of(k: Any, v: Any, cu_seqlens: Any) -> Recurrence:
    """Return the extents of keys and values of (batch, rows, heads, dims)."""
    steps = chunk_steps(v)
    batch, length = v.shape[:2]
    sequences = batch if cu_seqlens is None else cu_seqlens.shape[0] - 1
    if cu_seqlens is None:
        chunks = batch * tw.cdiv(length, steps)
    else:
        chunks = length // steps + sequences
    return Recurrence(
        sequences, length, batch * length, v.shape[2], k.shape[2], k.shape[3], v.shape[3],
        steps, chunks, v, contiguous(cu_seqlens),
    )  # fmt: skip


def check_sequences(name: str, batch: int, length: int, cu_seqlens: Any, seq_idx: Any) -> None:
    """Check what tells sequences apart.

    Raises:
        ValueError: packed sequences are in a batch, or shapes do not fit.
    """
    if cu_seqlens is not None and batch != 1:
        raise ValueError(f"{name}: the batch of packed sequences is 1, not {batch}")
    if cu_seqlens is not None and seq_idx is not None:
        raise ValueError(f"{name}: cu_seqlens and seq_idx both tell sequences apart: give one")
    if seq_idx is not None and tuple(seq_idx.shape) != (batch, length):
        raise ValueError(
            f"{name}: seq_idx has the shape {tuple(seq_idx.shape)}, not {(batch, length)}"
        )


def _state_options(r: Recurrence, stages: int) -> dict[str, Any]:
    """Return the block of values of kernels that walk along sequences.

    Blocks of states are independent, so that they shrink until all processors have one.
    """
    if r.device.family == "cpu":
        return {"WIDTH": min(r.padded_values, 64), "num_warps": 1}
    width = min(r.padded_values, 64, max(8192 // r.padded, 16))
    programs = r.sequences * r.heads
    while width > 16 and programs * tw.cdiv(r.value_dims, width) < r.device.processors:
        width //= 2
    return {"WIDTH": width, "num_warps": 4, "num_stages": stages}


def tile_options(r: Recurrence, kernel: str) -> dict[str, Any]:
    """Return the block of values, warps and stages of a kernel of chunks on their own.

    The gradients of keys fill the registers, so that no loads of the next head are in flight.
    """
    if r.device.family == "cpu":
        return {"WIDTH": min(r.padded_values, 64), "num_warps": 1}
    width = min(r.padded_values, 128 if r.steps == 64 else 64, max(16384 // r.padded, 16))
    warps = 8 if kernel == "wy_gradient" and width == 128 else 4
    return {"WIDTH": width, "num_warps": warps, "num_stages": 1 if kernel == "key" else 2}


def _members(r: Recurrence) -> int:
    """Return how many heads of a group a program adds up: as many as leave work for all."""
    group, members = r.heads // max(r.groups, 1), 1
    wanted = 4 * r.device.processors
    while group % (2 * members) == 0 and r.chunks * r.heads // (2 * members) >= wanted:
        members *= 2
    return members


def _state_strides(state: Any, is_value_first: bool) -> tuple[int, int, int, int]:
    """Return the strides of sequences, heads, keys and values of a state."""
    if state is None:
        return 0, 0, 0, 0
    found = strides(state)
    key, value = (found[3], found[2]) if is_value_first else (found[2], found[3])
    return found[0], found[1], key, value


def launch_log_decay(
    run: Launcher, r: Recurrence, g: Any, a: Any, weight: Any = None, rate: Any = None,
    bias: Any = None, softplus: bool = False, lower: float = 0.0, upper: float = 0.0,
    seq_idx: Any = None,
) -> None:  # fmt: skip
    """Store prefix sums of log decays in chunks."""
    run(
        log_decay_kernel,
        (r.chunks, tw.cdiv(r.heads, _HEADS)),
        g, rate, bias, a, weight, r.cu_seqlens, contiguous(seq_idx),
        *strides(g), r.sequences, *r.sizes, lower, upper,
        SOFTPLUS=softplus, T=r.steps, HEADS=_HEADS,
    )  # fmt: skip


def launch_states(
    run: Launcher, r: Recurrence, k: Any, v: Any, w: Any, a: Any, weight: Any, initial: Any,
    states: Any, u: Any, final: Any, is_value_first: bool,
) -> None:  # fmt: skip
    """Store the states before chunks, and the last one."""
    k, v, options = rows_of(k), rows_of(v), _state_options(r, 2)
    run(
        chunk_state_kernel,
        (r.sequences, r.heads, tw.cdiv(r.value_dims, options["WIDTH"])),
        k, v, w, a, weight, initial, states, u, final, r.cu_seqlens,
        *head_strides(k), *head_strides(v), *_state_strides(initial, is_value_first),
        *_state_strides(final, is_value_first), *r.sizes, **r.constants, **options,
    )  # fmt: skip


def launch_outputs(
    run: Launcher, r: Recurrence, q: Any, k: Any, v: Any, a: Any, weight: Any, states: Any,
    out: Any, scale: float = 1.0, skip: Any = None, z: Any = None, ungated: Any = None,
) -> None:  # fmt: skip
    """Store the rows of all chunks."""
    q, k, v, options = rows_of(q), rows_of(k), rows_of(v), tile_options(r, "output")
    z, members = None if z is None else rows_of(z), _members(r)
    run(
        chunk_output_kernel,
        (r.chunks, r.heads // members, tw.cdiv(r.value_dims, options["WIDTH"])),
        q, k, v, a, weight, states, skip, z, out, ungated, r.cu_seqlens,
        *head_strides(q), *head_strides(k), *head_strides(v),
        *((0, 0, 0) if z is None else head_strides(z)), *skip_strides(skip),
        r.sequences, *r.sizes, scale, MEMBERS=members, **r.constants, **options,
    )  # fmt: skip


def skip_strides(skip: Any) -> tuple[int, int]:
    """Return the strides of heads and of values of a skip connection's factors."""
    if skip is None:
        return 0, 0
    found = strides(skip)
    return (found[0], found[1]) if len(found) == 2 else (found[0], 0)


def launch_state_gradients(
    run: Launcher, r: Recurrence, q: Any, k: Any, dout: Any, w: Any, du: Any, a: Any, dfinal: Any,
    dstates: Any, dinitial: Any, is_value_first: bool, scale: float = 1.0,
) -> None:  # fmt: skip
    """Store the gradients of the states after chunks, and of the initial ones."""
    q, k, dout, options = rows_of(q), rows_of(k), rows_of(dout), _state_options(r, 1)
    run(
        state_gradient_kernel,
        (r.sequences, r.heads, tw.cdiv(r.value_dims, options["WIDTH"])),
        q, k, dout, w, du, a, dfinal, dstates, dinitial, r.cu_seqlens,
        *head_strides(q), *head_strides(k), *head_strides(dout),
        *_state_strides(dfinal, is_value_first), *_state_strides(dinitial, is_value_first),
        *r.sizes, scale, updates=() if du is None else ("du_ptr",), **r.constants, **options,
    )  # fmt: skip


def launch_value_gradients(
    run: Launcher, r: Recurrence, q: Any, k: Any, v: Any, dout: Any, a: Any, weight: Any,
    dstates: Any, dv: Any, dweight: Any = None, skip: Any = None, dskip: Any = None,
    scale: float = 1.0,
) -> None:  # fmt: skip
    """Store the gradients of values; of all of a head at once where there are weights."""
    q, k, v, dout = rows_of(q), rows_of(k), rows_of(v), rows_of(dout)
    options = tile_options(r, "value")
    if weight is not None:
        options = {**options, "WIDTH": r.padded_values}
    members = _members(r)
    run(
        value_gradient_kernel,
        (r.chunks, r.heads // members, tw.cdiv(r.value_dims, options["WIDTH"])),
        q, k, v, dout, a, weight, dstates, skip, dv, dweight, dskip, r.cu_seqlens,
        *head_strides(q), *head_strides(k), *head_strides(v), *head_strides(dout),
        *skip_strides(skip), r.sequences, *r.sizes, scale, MEMBERS=members,
        SKIPS=skip is not None and len(skip.shape) == 2, **r.constants, **options,
    )  # fmt: skip


@dataclass(frozen=True)
class DecaySums:
    """Sums from which the gradients of log decays follow, each of a head and a row.

    Attributes:
        rows: of queries times their gradients.
        inner, outer: of keys times their gradients within a chunk, and through the state after it.
        ends: of the state before a chunk times the gradient of that after it: (chunks, heads).
        through: what else belongs to a row, or None.
    """

    rows: Any
    inner: Any
    outer: Any
    ends: Any
    through: Any = None


def launch_query_key_gradients(
    run: Launcher, r: Recurrence, q: Any, k: Any, v: Any, dout: Any, a: Any, weight: Any,
    states: Any, dstates: Any, dq: Any, dk: Any, through: Any = None, row_through: Any = None,
    scale: float = 1.0,
) -> DecaySums:  # fmt: skip
    """Store the gradients of queries and keys, and return the sums for those of log decays.

    Args:
        through: what heads add to the gradients of keys, of (rows, heads, dims), or None.
        row_through: what each row of a head adds to those of log decays, or None.
    """
    q, k, v, dout = rows_of(q), rows_of(k), rows_of(v), rows_of(dout)
    members = _members(r)
    parts = r.heads // r.groups // members
    rows, inner, outer = (run.empty((r.heads, r.tokens), "float32") for _ in range(3))
    sums = DecaySums(rows, inner, outer, run.empty((r.chunks, r.heads), "float32"), row_through)
    if parts == 1:
        dq_parts, dk_parts = dq, dk
    else:
        shape = (parts, r.tokens, r.groups, r.dims)
        dq_parts, dk_parts = run.empty(shape, "float32"), run.empty(shape, "float32")
    common = (
        r.cu_seqlens, *head_strides(q), *head_strides(k), *head_strides(v), *head_strides(dout),
        r.sequences, r.length, r.tokens, r.groups, scale,
    )  # fmt: skip
    constants = {**r.constants, "MEMBERS": members, "PADDED_V": r.padded_values}
    grid = (r.chunks, r.groups, parts)
    run(
        query_gradient_kernel, grid,
        q, k, v, dout, a, weight, states, dq_parts, rows, *common, **constants,
        **tile_options(r, "query"),
    )  # fmt: skip
    run(
        key_gradient_kernel, grid,
        q, k, v, dout, a, weight, states, dstates, through, dk_parts, inner, outer, sums.ends,
        *common, **constants, **tile_options(r, "key"),
    )  # fmt: skip
    if parts > 1:
        for source, target in ((dq_parts, dq), (dk_parts, dk)):
            add_parts(run, source, target, parts, r.tokens * r.groups * r.dims)
    return sums


def launch_decay_gradients(
    run: Launcher, r: Recurrence, sums: DecaySums, g: Any, dg: Any, rate: Any = None,
    bias: Any = None, weight: Any = None, dweight: Any = None, drate: Any = None,
    dbias: Any = None, softplus: bool = False, lower: float = 0.0, upper: float = 0.0,
) -> None:  # fmt: skip
    """Store the gradients of log decays, or of steps, rates and biases."""
    has_rate = rate is not None
    drate_parts = run.empty((r.chunks, r.heads), "float32") if has_rate else None
    dbias_parts = run.empty((r.chunks, r.heads), "float32") if bias is not None else None
    run(
        decay_gradient_kernel,
        (r.chunks, tw.cdiv(r.heads, _HEADS)),
        sums.rows, sums.inner, sums.outer, sums.ends, sums.through,
        g, rate, bias, weight, dweight, dg, drate_parts, dbias_parts, r.cu_seqlens,
        *strides(g), r.sequences, *r.sizes, lower, upper,
        SOFTPLUS=softplus, T=r.steps, HEADS=_HEADS,
    )  # fmt: skip
    for parts, target in ((drate_parts, drate), (dbias_parts, dbias)):
        if parts is not None:
            add_parts(run, parts, target, r.chunks, r.heads)


def add_parts(run: Launcher, parts: Any, total: Any, n_parts: int, n_columns: int) -> None:
    """Add up partial results in float32, in a fixed order."""
    rows = min(int(tw.next_power_of_2(n_parts)), 64)
    columns = min(int(tw.next_power_of_2(n_columns)), max(4096 // rows, 16))
    run(
        part_sums_kernel,
        (tw.cdiv(n_columns, columns),),
        parts, total, n_parts, n_columns, ROWS=rows, COLUMNS=columns,
    )  # fmt: skip
