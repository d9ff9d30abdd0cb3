"""LDS: loads and stores, pairs of them, and ds_permute, ds_bpermute and ds_swizzle."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright_amd_emulator.code.program import Step
from tilewright_amd_emulator.decode.decoder import TABLE, Decoder, builds
from tilewright_amd_emulator.errors import WaveError
from tilewright_amd_emulator.instructions.accesses import (
    Form,
    Lanes,
    deposit,
    form,
    result_register,
    stored_words,
)

if TYPE_CHECKING:
    from tilewright_amd_emulator.code.operands import Operand
    from tilewright_amd_emulator.state.machine import Machine

Array = np.ndarray[Any, np.dtype[Any]]


def lds_limit(target: str) -> int:
    """Bytes of local memory that a workgroup may have."""
    return 160 * 1024 if target == "gfx950" else 64 * 1024


def local_lanes(m: Machine, offsets: Array, size: int, mask: Array) -> Lanes:
    """Accesses of the workgroup's local memory at ``offsets`` (int64 [waves, lanes])."""
    offsets = np.broadcast_to(offsets, mask.shape)
    inside = (offsets >= 0) & (offsets <= m.lds_bytes - size)
    if not (inside | ~mask).all():
        where = np.argwhere(mask & ~inside)[0]
        raise WaveError(
            f"{size} bytes at {int(offsets[tuple(where)])} (lane {int(where[1])}) are outside of "
            f"the workgroup's {m.lds_bytes} bytes of local memory"
        )
    if not m.lds.unaligned and (mask & ((offsets & (min(size, 4) - 1)) != 0)).any():
        raise WaveError(
            f"an access of {size} bytes of local memory is not aligned to {min(size, 4)} bytes"
        )
    return Lanes(
        m.lds, np.where(mask, offsets + (m.group[m.selected] * m.lds_stride)[:, None], 0), mask
    )


def local_address(d: Decoder, operand: Operand, offset: int) -> Callable[[Machine], Array]:
    """int64 [waves, lanes]: a vector register and the instruction's offset."""
    if operand.kind != "v":
        raise d.fail(f"the address {operand.text!r} must be a vector register")
    d.note_read(operand, 1)
    register, shift = (
        operand.index,
        np.uint32(offset),
    )  # modulo 2**32: LLVM yields offsets to addresses below 0
    return lambda m: (m.vector(register) + shift).astype(np.int64)


def _load(data: Form) -> Callable[[Decoder], Step]:
    def build(d: Decoder) -> Step:
        d.allow("offset", "gds")
        d.expect(2)
        register, half = result_register(d, d.operands[0], data)
        address = local_address(d, d.operands[1], d.instruction.number("offset"))
        registers = tuple(range(register, register + data.words))
        d.counter = "ds"

        def step(m: Machine) -> None:
            waves, lanes = m.numbers, local_lanes(m, address(m), data.size, m.mask.copy())

            def perform(rows: Array | slice) -> None:
                part = lanes.at(rows)
                values = data.loaded(part.load(data.size))
                for i in range(data.words):
                    deposit(m, register + i, waves[rows], values[i], part.mask, half)

            m.pending.start("ds", d.instruction, perform, registers)

        return step

    return build


def _store(data: Form) -> Callable[[Decoder], Step]:
    def build(d: Decoder) -> Step:
        d.allow("offset", "gds")
        d.expect(2)
        address = local_address(d, d.operands[0], d.instruction.number("offset"))
        read = stored_words(d, d.operands[1], data)

        def step(m: Machine) -> None:
            lanes, values = local_lanes(m, address(m), data.size, m.mask.copy()), read(m)

            def perform(rows: Array | slice) -> None:
                lanes.at(rows).store(
                    data.size, values if isinstance(rows, slice) else values[:, rows]
                )

            m.pending.start("ds", d.instruction, perform)

        return step

    return build


def _two_loads(size: int, stride: int) -> Callable[[Decoder], Step]:
    def build(d: Decoder) -> Step:
        d.allow("offset0", "offset1")
        d.expect(2)
        words = size // 4
        register, _ = result_register(d, d.operands[0], Form(2 * size))
        reads = [
            local_address(d, d.operands[1], d.instruction.number(f"offset{i}") * size * stride)
            for i in range(2)
        ]
        registers = tuple(range(register, register + 2 * words))
        d.counter = "ds"

        def step(m: Machine) -> None:
            waves, mask = m.numbers, m.mask.copy()
            both = [local_lanes(m, read(m), size, mask) for read in reads]

            def perform(rows: Array | slice) -> None:
                for i, lanes in enumerate(both):
                    part = lanes.at(rows)
                    values = part.load(size)
                    for j in range(words):
                        deposit(m, register + i * words + j, waves[rows], values[j], part.mask)

            m.pending.start("ds", d.instruction, perform, registers)

        return step

    return build


def _two_stores(size: int, stride: int) -> Callable[[Decoder], Step]:
    def build(d: Decoder) -> Step:
        d.allow("offset0", "offset1")
        d.expect(3)
        reads = [
            local_address(d, d.operands[0], d.instruction.number(f"offset{i}") * size * stride)
            for i in range(2)
        ]
        values_of = [stored_words(d, d.operands[1 + i], Form(size)) for i in range(2)]

        def step(m: Machine) -> None:
            mask = m.mask.copy()
            both = [
                (local_lanes(m, read(m), size, mask), values(m))
                for read, values in zip(reads, values_of, strict=True)
            ]

            def perform(rows: Array | slice) -> None:
                for lanes, values in both:
                    lanes.at(rows).store(
                        size, values if isinstance(rows, slice) else values[:, rows]
                    )

            m.pending.start("ds", d.instruction, perform)

        return step

    return build


for _old, _new in (
    ("b32", "b32"), ("b64", "b64"), ("b96", "b96"), ("b128", "b128"), ("u8", "u8"), ("i8", "i8"),
    ("u16", "u16"), ("i16", "i16"),
    ("u8_d16", "u8_d16"), ("u8_d16_hi", "u8_d16_hi"), ("i8_d16", "i8_d16"),
    ("i8_d16_hi", "i8_d16_hi"), ("u16_d16", "u16_d16"), ("u16_d16_hi", "u16_d16_hi"),
):  # fmt: skip
    _data = form(_old)
    assert _data is not None
    TABLE[f"ds_read_{_old}"] = TABLE[f"ds_load_{_new}"] = _load(_data)
for _old in ("b8", "b16", "b32", "b64", "b96", "b128", "b8_d16_hi", "b16_d16_hi"):
    _data = form(_old)
    assert _data is not None
    TABLE[f"ds_write_{_old}"] = TABLE[f"ds_store_{_old}"] = _store(_data)
for _size, _suffix in ((4, "b32"), (8, "b64")):
    TABLE[f"ds_read2_{_suffix}"] = TABLE[f"ds_load_2addr_{_suffix}"] = _two_loads(_size, 1)
    TABLE[f"ds_read2st64_{_suffix}"] = TABLE[f"ds_load_2addr_stride64_{_suffix}"] = _two_loads(
        _size, 64
    )
    TABLE[f"ds_write2_{_suffix}"] = TABLE[f"ds_store_2addr_{_suffix}"] = _two_stores(_size, 1)
    TABLE[f"ds_write2st64_{_suffix}"] = TABLE[f"ds_store_2addr_stride64_{_suffix}"] = _two_stores(
        _size, 64
    )


def _transposed_loads(width: int) -> Callable[[Decoder], Step]:
    """gfx950: load a transposed tile by 16 lanes; each lane gets a column.

    The tile has 16 columns, and as many rows as a lane has elements of ``width`` bytes, which are
    contiguous in a row."""
    count = 8 // width
    shares = 16 // count

    def build(d: Decoder) -> Step:
        d.allow("offset")
        d.expect(2)
        register, _ = result_register(d, d.operands[0], Form(8))
        address = local_address(d, d.operands[1], d.instruction.number("offset"))
        lane, row = np.arange(d.lanes)[:, None], np.arange(count)[None]
        source, element = (lane & ~15) + shares * row + (lane & 15) // count, lane % count + 0 * row
        d.counter = "ds"

        def step(m: Machine) -> None:
            if not m.full:
                raise d.fail("a load that transposes needs all lanes")
            waves, lanes = m.numbers, local_lanes(m, address(m), 8, m.mask.copy())

            def perform(rows: Array | slice) -> None:
                part = lanes.at(rows)
                parts = np.ascontiguousarray(np.moveaxis(part.load(8), 0, -1)).view(f"u{width}")
                words = np.ascontiguousarray(parts[:, source, element]).view(np.uint32)
                for i in range(2):
                    deposit(m, register + i, waves[rows], words[..., i], part.mask)

            m.pending.start("ds", d.instruction, perform, (register, register + 1))

        return step

    return build


TABLE["ds_read_b64_tr_b16"] = _transposed_loads(2)
TABLE["ds_read_b64_tr_b8"] = _transposed_loads(1)


def exchanged(m: Machine, d: Decoder, register: int, value: Array) -> None:
    """Complete a cross-lane exchange when its counter is waited for."""
    waves, mask = m.numbers, m.mask.copy()
    m.pending.start(
        "ds",
        d.instruction,
        lambda rows: deposit(m, register, waves[rows], value[rows], mask[rows]),
        (register,),
    )


def _exchange(d: Decoder) -> tuple[int, Callable[[Machine], Array], Callable[[Machine], Array]]:
    """Return the operands of a word exchange: the result register, the source lanes, the words.

    The lanes are those that byte addresses name.
    """
    d.allow("offset")
    d.expect(3)
    register, _ = result_register(d, d.operands[0], Form(4))
    address = local_address(d, d.operands[1], d.instruction.number("offset"))
    d.counter = "ds"
    return (
        register,
        lambda m: (address(m) >> 2) & (m.lanes - 1),
        stored_words(d, d.operands[2], Form(4)),
    )


@builds("ds_bpermute_b32", "ds_bpermute_fi_b32")
def _pull(d: Decoder) -> Step:
    """Read, in each lane, the lane that its byte address names; 0 if that lane is inactive."""
    register, named, read = _exchange(d)
    inactive = d.instruction.name == "ds_bpermute_fi_b32"

    def step(m: Machine) -> None:
        there = named(m)
        value = np.take_along_axis(read(m)[0], there, axis=1)
        if not m.full and not inactive:
            value = np.where(np.take_along_axis(m.mask, there, axis=1), value, np.uint32(0))
        exchanged(m, d, register, value)

    return step


@builds("ds_permute_b32")
def _push(d: Decoder) -> Step:
    """Send each lane's value to the lane that its byte address names.

    The highest lane wins. A lane that gets no value has 0.
    """
    register, named, read = _exchange(d)

    def step(m: Machine) -> None:
        there, source = named(m), read(m)[0]
        value = np.zeros_like(source)
        for lane in range(m.lanes):
            rows = np.flatnonzero(m.mask[:, lane])
            value[rows, there[rows, lane]] = source[rows, lane]
        exchanged(m, d, register, value)

    return step


@builds("ds_swizzle_b32")
def _swizzle(d: Decoder) -> Step:
    """A fixed pattern in groups of 32 lanes."""
    d.allow("offset")
    d.expect(2)
    lane = np.arange(d.lanes)
    text = d.instruction.modifiers.get("offset", "0")
    if text.startswith("swizzle("):
        how, *numbers = text[len("swizzle(") : -1].replace('"', "").split(",")
        if how == "QUAD_PERM":
            there = (lane & ~3) + np.array([int(n) for n in numbers])[lane & 3]
        elif how == "BITMASK_PERM":
            pattern = numbers[0]
            there = lane & ~31
            for place, what in enumerate(reversed(pattern)):
                bit = (lane >> place) & 1
                there = (
                    there | {"0": 0 * bit, "1": 0 * bit + 1, "p": bit, "i": 1 - bit}[what] << place
                )
        elif how == "SWAP":
            there = lane ^ int(numbers[0])
        elif how == "REVERSE":
            there = lane ^ (int(numbers[0]) - 1)
        elif how == "BROADCAST":
            there = lane // int(numbers[0]) * int(numbers[0]) + int(numbers[1])
        else:
            raise d.fail(f"the pattern {how} is not supported")
    else:
        code = int(text, 0)
        if code & 0x8000:
            there = (lane & ~3) + ((code >> (2 * (lane & 3))) & 3)
        else:
            there = (lane & ~31) | (
                ((lane & 31 & (code & 31)) | ((code >> 5) & 31)) ^ ((code >> 10) & 31)
            )
    register, _ = result_register(d, d.operands[0], Form(4))
    read = stored_words(d, d.operands[1], Form(4))
    d.counter = "ds"

    def step(m: Machine) -> None:
        value = np.where(m.mask[:, there], read(m)[0][:, there], np.uint32(0))
        exchanged(m, d, register, value)

    return step
