"""Scalar loads, which complete out of order: only a wait for all of them ensures one."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright_amd_emulator.code.program import Step
from tilewright_amd_emulator.decode.decoder import TABLE, Decoder, builds
from tilewright_amd_emulator.instructions.accesses import Form
from tilewright_amd_emulator.instructions.global_memory import CACHE_MODIFIERS

if TYPE_CHECKING:
    from tilewright_amd_emulator.state.machine import Machine

Array = np.ndarray[Any, np.dtype[Any]]


def scalar_counter(d: Decoder) -> str:
    """The counter of scalar loads: their own from GFX12 on."""
    return "km" if d.generation >= 12 else "ds"


def _deliver(m: Machine, d: Decoder, register: int, values: Array) -> None:
    """``values`` [words, waves] are in the registers when the counter has been waited for."""
    waves = m.numbers

    def perform(rows: Array | slice) -> None:
        for i in range(len(values)):
            m.scalars[register + i, waves[rows]] = values[i][rows]

    m.pending.start(
        scalar_counter(d),
        d.instruction,
        perform,
        tuple(-(register + i) - 1 for i in range(len(values))),
        unordered=True,
    )


def _load(data: Form, words: int, buffer: bool) -> Callable[[Decoder], Step]:
    def build(d: Decoder) -> Step:
        d.allow("offset", *CACHE_MODIFIERS)
        result, base, *rest = d.operands
        if result.kind != "s":
            raise d.fail("the result must be scalar registers")
        d.note_write(result, words)
        d.note_read(base)
        d.counter = scalar_counter(d)
        extra = [
            d.uniform_operand(o, "i64") if o.kind == "number" else d.uniform_operand(o, "u32")
            for o in rest
            if o.kind not in ("null", "off")
        ]
        register, start, constant = result.index, base.index, d.instruction.number("offset")

        def step(m: Machine) -> None:
            offset: Array = np.full(1, constant, np.int64)
            for part in extra:
                offset = offset + part(m).astype(np.int64)
            if buffer:
                first = (
                    m.scalar(start)
                    | (m.scalar(start + 1) & np.uint32(0xFFFF)).astype(np.uint64) << np.uint64(32)
                ).astype(np.int64)
                records = m.scalar(start + 2).astype(np.int64)
            else:
                first, records = m.scalar64(start).astype(np.int64), np.full(1, 1 << 62)
            values = []
            for i in range(words):
                inside = np.broadcast_to(offset + 4 * i + min(data.size, 4) <= records, (m.count,))
                values.append(_word(m, d, first + offset + 4 * i, data, inside, i))
            _deliver(m, d, register, np.stack(values))

        return step

    return build


def _word(m: Machine, d: Decoder, address: Array, data: Form, inside: Array, place: int) -> Array:
    """One word of each wave.

    The machine loads aligned words: one of which a byte is allocated may be read, and so may what
    is behind the first.
    """
    if data.size < 4:
        offsets = m.arena.offsets(
            address.astype(np.uint64)[:, None], data.size, inside[:, None], d.instruction.name
        )
        return np.where(
            inside, data.loaded(m.arena.gather(offsets, data.size))[0, :, 0], np.uint32(0)
        )
    aligned = address & ~np.int64(3)
    offsets = np.where(inside, aligned - m.arena.base, 0)
    known = m.arena.touched(offsets)
    if place == 0 and not (known | ~inside).all():
        m.arena.offsets(aligned.astype(np.uint64)[:, None], 4, inside[:, None], d.instruction.name)
    value = m.arena.gather(np.where(known, offsets, 0), 4)[0]
    return np.where(inside, np.where(known, value, np.uint32(0xDEADBEEF)), np.uint32(0))


for _count, _old, _new in (
    (1, "dword", "b32"),
    (2, "dwordx2", "b64"),
    (3, "dwordx3", "b96"),
    (4, "dwordx4", "b128"),
    (8, "dwordx8", "b256"),
    (16, "dwordx16", "b512"),
):
    for _name in (_old, _new):
        TABLE[f"s_load_{_name}"] = _load(Form(4), _count, False)
        TABLE[f"s_buffer_load_{_name}"] = _load(Form(4), _count, True)
for _name, _size, _signed in (
    ("u8", 1, False),
    ("i8", 1, True),
    ("u16", 2, False),
    ("i16", 2, True),
):
    TABLE[f"s_load_{_name}"] = _load(Form(_size, _signed), 1, False)
    TABLE[f"s_buffer_load_{_name}"] = _load(Form(_size, _signed), 1, True)


@builds("s_memtime", "s_memrealtime", "s_sendmsg_rtn_b64", "s_sendmsg_rtn_b32")
def _clock(d: Decoder) -> Step:
    """A clock of 100 MHz, by which a microsecond goes by between two looks."""
    result = d.operands[0] if d.operands[0].kind == "s" else None
    if result is None:  # the notation of messages is left as text
        match = re.match(r"^s\[?(\d+)", d.operands[0].text)
        if match is None:
            raise d.fail("the result must be scalar registers")
        index, words = int(match.group(1)), 2 if d.instruction.name.endswith("b64") else 1
    else:
        index, words = result.index, 2
    for i in range(words):
        d.writes.add(-(index + i) - 1)

    def step(m: Machine) -> None:
        m.clock += 100
        now = np.array([m.clock & 0xFFFFFFFF, m.clock >> 32][:words], np.uint32)
        _deliver(m, d, index, np.broadcast_to(now[:, None], (words, m.count)))

    return step
