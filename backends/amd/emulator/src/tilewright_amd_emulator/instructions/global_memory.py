"""Vector loads and stores: global, flat, scratch and buffer; asynchronous copies to LDS."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright_amd_emulator.code.operands import PRIVATE_APERTURE, SHARED_APERTURE
from tilewright_amd_emulator.code.program import Step
from tilewright_amd_emulator.decode.decoder import TABLE, Decoder, Reader
from tilewright_amd_emulator.errors import WaveError
from tilewright_amd_emulator.instructions.accesses import (
    Form,
    Lanes,
    Space,
    deposit,
    form,
    result_register,
    stored_words,
)
from tilewright_amd_emulator.instructions.lds import lds_limit, local_lanes

if TYPE_CHECKING:
    from tilewright_amd_emulator.code.operands import Operand
    from tilewright_amd_emulator.state.machine import Machine

Array = np.ndarray[Any, np.dtype[Any]]
#: what an instruction accesses: lanes of the selected waves, for so many bytes
Addressing = Callable[["Machine", int], Lanes]

CACHE_MODIFIERS = ("glc", "slc", "dlc", "sc0", "sc1", "nt", "th", "scope", "nv")
#: bit of word 3 of a resource: each lane has its own part of the memory (scratch)
ADD_THREAD = 1 << 23


def _offset(d: Decoder) -> int:
    return d.instruction.number("offset")


def vector_address(
    d: Decoder, address: Operand, base: Operand | None
) -> Callable[[Machine], Array]:
    """uint64 [waves, lanes]: a pair of vector registers, or a scalar base and a vector offset."""
    offset = np.uint64(_offset(d) & 0xFFFFFFFFFFFFFFFF)
    if address.kind != "v":
        raise d.fail(f"the address {address.text!r} must be a vector register")
    if base is None or base.kind in ("off", "null"):
        d.note_read(address, 2)
        register = address.index
        return lambda m: (
            (m.vector(register) | m.vector(register + 1).astype(np.uint64) << np.uint64(32))
            + offset
        )
    d.note_read(address, 1)
    scalar, register = d.uniform_operand(base, "b64"), address.index
    return lambda m: scalar(m)[:, None] + m.vector(register).astype(np.uint64) + offset


def global_addressing(d: Decoder, address: Operand, base: Operand | None) -> Addressing:
    """Addresses of the arena."""
    read = vector_address(d, address, base)
    what = d.instruction.name

    def lanes(m: Machine, size: int) -> Lanes:
        mask = m.mask.copy()
        return Lanes(m.arena, m.arena.offsets(read(m), size, mask, what), mask)

    return lanes


class _Generic:
    """Access memory by generic addresses: global memory, then local and private memory."""

    def __init__(self, m: Machine) -> None:
        self.spaces: tuple[Space, ...] = (m.arena, m.lds, m.private)

    def gather(self, offsets: Array, size: int) -> Array:
        out = np.zeros((max(size // 4, 1), *offsets.shape), np.uint32)
        for number, space in enumerate(self.spaces):
            here = (offsets >> 48) == number
            if here.any():
                out[:, here] = space.gather(offsets[here] & ((1 << 48) - 1), size)
        return out

    def scatter(self, offsets: Array, size: int, values: Array) -> None:
        for number, space in enumerate(self.spaces):
            here = (offsets >> 48) == number
            if here.any():
                space.scatter(offsets[here] & ((1 << 48) - 1), size, values[:, here])


def flat_addressing(d: Decoder, address: Operand, base: Operand | None) -> Addressing:
    """Generic addresses: of the arena, or of the aperture of local or private memory."""
    read = vector_address(d, address, base)
    what = d.instruction.name

    def lanes(m: Machine, size: int) -> Lanes:
        addresses, mask = read(m), m.mask.copy()
        high = (addresses >> np.uint64(32)).astype(np.uint32)
        shared, private = mask & (high == SHARED_APERTURE), mask & (high == PRIVATE_APERTURE)
        plain = mask & ~shared & ~private
        offsets = m.arena.offsets(addresses, size, plain, what)
        if not (shared.any() or private.any()):
            return Lanes(m.arena, offsets, mask)
        low = addresses.astype(np.uint32).astype(np.int64)
        if shared.any():
            offsets = np.where(shared, local_lanes(m, low, size, shared).offsets | 1 << 48, offsets)
        if private.any():
            offsets = np.where(
                private, private_lanes(m, low, size, private, what).offsets | 2 << 48, offsets
            )
        return Lanes(_Generic(m), offsets, mask)

    return lanes


def private_lanes(m: Machine, offsets: Array, size: int, mask: Array, what: str) -> Lanes:
    """Accesses of each lane's own memory at ``offsets`` (int64 [waves, lanes])."""
    offsets = np.broadcast_to(offsets, mask.shape)
    inside = (offsets >= 0) & (offsets + size <= m.private_bytes)
    if not (inside | ~mask).all():
        where = np.argwhere(mask & ~inside)[0]
        raise WaveError(
            f"{what} of {size} bytes at {int(offsets[tuple(where)])} (lane {int(where[1])}) is "
            f"outside of the {m.private_bytes} bytes of scratch"
        )
    if (mask & ((offsets & (min(size, 4) - 1)) != 0)).any():
        raise WaveError(f"{what} of {size} bytes of scratch is not aligned to {min(size, 4)} bytes")
    first = (m.numbers[:, None] * m.lanes + np.arange(m.lanes)[None]) * m.private_stride
    return Lanes(m.private, np.where(mask, first + offsets, 0), mask)


def scratch_addressing(d: Decoder, address: Operand, base: Operand | None) -> Addressing:
    """Offsets into the lane's own memory: a vector register, a scalar register, both or neither."""
    offset, what = _offset(d), d.instruction.name
    parts: list[Reader] = []
    if address.kind == "v":
        d.note_read(address, 1)
        register = address.index
        parts.append(lambda m: m.vector(register).view(np.int32).astype(np.int64))
    if base is not None and base.kind not in ("off", "null"):
        scalar = d.uniform_operand(base, "i32")
        parts.append(lambda m: scalar(m).astype(np.int64)[:, None])

    def lanes(m: Machine, size: int) -> Lanes:
        total: Array = np.full((1, 1), offset, np.int64)
        for part in parts:
            total = total + part(m)
        return private_lanes(m, total, size, m.mask.copy(), what)

    return lanes


class _Bounded:
    """Access a buffer resource: out-of-bounds loads yield 0, stores have no effect (offset -1)."""

    def __init__(self, m: Machine) -> None:
        self.arena = m.arena

    def gather(self, offsets: Array, size: int) -> Array:
        return np.where(offsets >= 0, self.arena.gather(np.maximum(offsets, 0), size), np.uint32(0))

    def scatter(self, offsets: Array, size: int, values: Array) -> None:
        inside = offsets >= 0
        self.arena.scatter(offsets[inside], size, values[:, inside])


def buffer_addressing(d: Decoder, address: Operand, resource: Operand, base: Operand) -> Addressing:
    """Return the function that computes the addresses of a buffer access.

    The operands are a resource of four scalar registers, a scalar offset, and an offset, an index
    or both in vector registers.

    An access that is not wholly below the number of records is out of bounds.
    """
    modifiers, offset, what = d.instruction.modifiers, _offset(d), d.instruction.name
    if resource.kind != "s" or resource.count != 4:
        raise d.fail(f"the resource {resource.text!r} must be four scalar registers")
    d.note_read(resource)
    words, scalar = resource.index, d.uniform_operand(base, "u32")
    indexed, offsets_given = "idxen" in modifiers, "offen" in modifiers
    if indexed or offsets_given:
        d.note_read(address, int(indexed) + int(offsets_given))
    register = address.index

    def lanes(m: Machine, size: int) -> Lanes:
        mask = m.mask.copy()
        zero: Array = np.zeros((1, 1), np.int64)
        index = m.vector(register).astype(np.int64) if indexed else zero
        inside = (
            m.vector(register + int(indexed)).astype(np.int64) if offsets_given else zero
        ) + offset
        extra = scalar(m).astype(np.int64)[:, None]
        second, last = m.scalar(words + 1), m.scalar(words + 3)
        if (last & np.uint32(ADD_THREAD)).any():
            return private_lanes(m, inside + extra, size, mask, what)
        start = (
            m.scalar(words) | (second & np.uint32(0xFFFF)).astype(np.uint64) << np.uint64(32)
        ).astype(np.int64)[:, None]
        stride = ((second >> np.uint32(16)) & np.uint32(0x3FFF)).astype(np.int64)[:, None]
        records = m.scalar(words + 2).astype(np.int64)[:, None]
        if indexed:
            good = (index < records) & ((stride == 0) | (inside + size <= stride))
        else:
            good = inside + extra + size <= records
        at = np.broadcast_to(start + extra + inside + index * stride, mask.shape)
        good = np.broadcast_to(good, mask.shape)
        checked = m.arena.offsets(at.astype(np.uint64), size, mask & good, what)
        return Lanes(_Bounded(m), np.where(good, checked, -1), mask)

    return lanes


def _counter(d: Decoder, writes: bool) -> tuple[str, ...]:
    """The counters of a load or a store."""
    counters = ("store",) if writes and d.generation > 9 else ("load",)
    return (*counters, "ds") if d.instruction.name.startswith("flat_") else counters


def _start_load(
    m: Machine,
    d: Decoder,
    lanes: Lanes,
    data: Form,
    register: int,
    half: int | None,
    counters: tuple[str, ...],
) -> None:
    waves = m.numbers

    def perform(rows: Array | slice) -> None:
        part, some = lanes.at(rows), waves[rows]
        values = data.loaded(part.load(data.size))
        for i in range(data.words):
            deposit(m, register + i, some, values[i], part.mask, half)

    registers = tuple(range(register, register + data.words))
    start(m, d, perform, registers, lanes.span(data.size), False, counters)


def start(
    m: Machine,
    d: Decoder,
    perform: Callable[[Array | slice], None],
    registers: tuple[int, ...],
    span: tuple[int, int],
    writes: bool,
    counters: tuple[str, ...],
) -> None:
    """Issue an effect of global memory.

    With a second counter (flat), its registers are free after waits for both counters.
    """
    for extra in counters[1:]:
        m.pending.start(extra, d.instruction, lambda rows: None, registers)
    m.pending.start(counters[0], d.instruction, perform, registers, span, writes)


def load_step(d: Decoder, data: Form, addressing: Addressing) -> Step:
    register, half = result_register(d, d.operands[0], data)
    counters = _counter(d, False)
    d.counter = counters[0]
    return lambda m: _start_load(m, d, addressing(m, data.size), data, register, half, counters)


def store_step(d: Decoder, data: Form, value: Operand, addressing: Addressing) -> Step:
    read = stored_words(d, value, data)
    counters = _counter(d, True)

    def step(m: Machine) -> None:
        lanes, values = addressing(m, data.size), read(m)

        def perform(rows: Array | slice) -> None:
            lanes.at(rows).store(data.size, values if isinstance(rows, slice) else values[:, rows])

        start(m, d, perform, (), lanes.span(data.size), True, counters)

    return step


def copy_step(d: Decoder, data: Form, addressing: Addressing) -> Step:
    """Copy to local memory: lane i writes at M0 + the instruction's offset + i * size."""
    d.note_m0()
    offset = _offset(d)
    # as many bits of M0 count as the memory has addresses
    reach = np.uint32((1 << (lds_limit(d.program.target) - 1).bit_length()) - 1)

    def step(m: Machine) -> None:
        lanes = addressing(m, data.size)
        width = max(data.size, 4)
        first = (m.m0() & reach).astype(np.int64) + offset
        there = local_lanes(m, first[:, None] + np.arange(m.lanes)[None] * width, width, lanes.mask)

        def perform(rows: Array | slice) -> None:
            values = data.loaded(lanes.at(rows).load(data.size))
            there.at(rows).store(width, values)

        m.pending.start("load", d.instruction, perform, (), lanes.span(data.size), False)

    return step


def _build_plain(kind: str, which: str, data: Form) -> Callable[[Decoder], Step]:
    ways = {"global": global_addressing, "flat": flat_addressing, "scratch": scratch_addressing}

    def build(d: Decoder) -> Step:
        d.allow("offset", "lds", *CACHE_MODIFIERS)
        operands, way = d.operands, ways[kind]
        if which == "lds" or (which == "load" and "lds" in d.instruction.modifiers):
            d.expect(2)
            return copy_step(d, data, way(d, operands[0], operands[1]))
        d.expect(2 if kind == "flat" and len(operands) == 2 else 3)
        base = operands[2] if len(operands) == 3 else None
        if which == "load":
            return load_step(d, data, way(d, operands[1], base))
        return store_step(d, data, operands[1], way(d, operands[0], base))

    return build


def _build_buffer(which: str, data: Form) -> Callable[[Decoder], Step]:
    def build(d: Decoder) -> Step:
        d.allow("offset", "offen", "idxen", "lds", *CACHE_MODIFIERS)
        operands = d.operands
        if which == "load" and ("lds" in d.instruction.modifiers or len(operands) == 3):
            d.expect(3)
            return copy_step(d, data, buffer_addressing(d, *operands))
        d.expect(4)
        addressing = buffer_addressing(d, *operands[1:])
        return (
            load_step(d, data, addressing)
            if which == "load"
            else store_step(d, data, operands[0], addressing)
        )

    return build


_LOADS: tuple[str, ...] = (
    "ubyte",
    "sbyte",
    "ushort",
    "sshort",
    "dword",
    "dwordx2",
    "dwordx3",
    "dwordx4",
    "u8",
    "i8",
    "u16",
    "i16",
    "b32",
    "b64",
    "b96",
    "b128",
)
_LOADS += ("ubyte_d16", "ubyte_d16_hi", "sbyte_d16", "sbyte_d16_hi", "short_d16", "short_d16_hi")
_LOADS += ("d16_u8", "d16_i8", "d16_b16", "d16_hi_u8", "d16_hi_i8", "d16_hi_b16")
_STORES: tuple[str, ...] = (
    "byte",
    "short",
    "dword",
    "dwordx2",
    "dwordx3",
    "dwordx4",
    "byte_d16_hi",
    "short_d16_hi",
)
_STORES += ("b8", "b16", "b32", "b64", "b96", "b128", "d16_hi_b8", "d16_hi_b16")

for _suffixes, _which in ((_LOADS, "load"), (_STORES, "store")):
    for _suffix in _suffixes:
        _data = form(_suffix)
        assert _data is not None
        for _kind in ("global", "flat", "scratch"):
            TABLE[f"{_kind}_{_which}_{_suffix}"] = _build_plain(_kind, _which, _data)
        TABLE[f"buffer_{_which}_{_suffix}"] = _build_buffer(_which, _data)
for _suffix in ("ubyte", "sbyte", "ushort", "sshort", "dword", "dwordx3", "dwordx4"):
    _data = form(_suffix)
    assert _data is not None
    TABLE[f"global_load_lds_{_suffix}"] = _build_plain("global", "lds", _data)
