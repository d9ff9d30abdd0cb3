"""Atomic updates of global memory and LDS; lanes with the same address update in lane order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright_amd_emulator.code.program import Step
from tilewright_amd_emulator.decode.decoder import TABLE, Decoder
from tilewright_amd_emulator.formats import arithmetic as a
from tilewright_amd_emulator.instructions.accesses import Form, Lanes, deposit, stored_words
from tilewright_amd_emulator.instructions.global_memory import (
    CACHE_MODIFIERS,
    Addressing,
    buffer_addressing,
    flat_addressing,
    global_addressing,
    start,
)
from tilewright_amd_emulator.instructions.lds import local_address, local_lanes

if TYPE_CHECKING:
    from tilewright_amd_emulator.state.machine import Machine

Array = np.ndarray[Any, np.dtype[Any]]
#: (old, data, compared) -> new
Update = Callable[[Array, Array, Array], Array]


@dataclass(frozen=True)
class Kind:
    """An update: element type, and words of data; compare-and-swap has as many to compare with."""

    update: Update
    dtype: Any
    words: int
    compares: bool = False


def _increment(old: Array, data: Array, _: Array) -> Array:
    return np.where(old >= data, old.dtype.type(0), old + old.dtype.type(1))


def _decrement(old: Array, data: Array, _: Array) -> Array:
    return np.where((old == 0) | (old > data), data, old - old.dtype.type(1))


def _brain_sum(old: Array, data: Array, _: Array) -> Array:
    """Two bf16 of a word."""
    out = np.zeros(old.shape, np.uint32)
    for shift in (np.uint32(0), np.uint32(16)):
        total = a.bfloat_value((old >> shift).astype(np.uint16)) + a.bfloat_value(
            (data >> shift).astype(np.uint16)
        )
        out |= a.bfloat_bits(total).astype(np.uint32) << shift
    return out


def _half_sum(old: Array, data: Array, _: Array) -> Array:
    """Add the two f16 numbers that each 32-bit word holds."""
    return (
        np.ascontiguousarray(old).view(np.float16) + np.ascontiguousarray(data).view(np.float16)
    ).view(np.uint32)


_UPDATES: dict[str, Update] = {
    "add": lambda old, data, _: old + data,
    "sub": lambda old, data, _: old - data,
    "rsub": lambda old, data, _: data - old,
    "min": lambda old, data, _: np.minimum(old, data),
    "max": lambda old, data, _: np.maximum(old, data),
    "fmin": lambda old, data, _: a.minimum_number(old, data),
    "fmax": lambda old, data, _: a.maximum_number(old, data),
    "and": lambda old, data, _: old & data,
    "or": lambda old, data, _: old | data,
    "xor": lambda old, data, _: old ^ data,
    "swap": lambda old, data, _: data,
    "inc": _increment,
    "dec": _decrement,
    "sub_clamp": lambda old, data, _: np.where(old < data, old.dtype.type(0), old - data),
    "cond_sub": lambda old, data, _: np.where(old >= data, old - data, old),
    "cmpswap": lambda old, data, compared: np.where(old == compared, data, old),
}
_TYPES = {
    "i32": np.int32,
    "u32": np.uint32,
    "b32": np.uint32,
    "f32": np.float32,
    "i64": np.int64,
    "u64": np.uint64,
    "b64": np.uint64,
    "f64": np.float64,
}


def _kinds() -> dict[str, Kind]:
    """Operations by the name after ``global_atomic_``."""
    out: dict[str, Kind] = {
        "pk_add_f16": Kind(_half_sum, np.uint32, 1),
        "pk_add_bf16": Kind(_brain_sum, np.uint32, 1),
    }

    def put(name: str, update: str, kind: str) -> None:
        out[name] = Kind(
            _UPDATES[update], _TYPES[kind], 2 if kind.endswith("64") else 1, update == "cmpswap"
        )

    for old, new, update, kind in (
        ("add", "add", "add", "u"), ("sub", "sub", "sub", "u"), ("smin", "min", "min", "i"),
        ("umin", "min", "min", "u"), ("smax", "max", "max", "i"),
        ("umax", "max", "max", "u"), ("and", "and", "and", "b"), ("or", "or", "or", "b"),
        ("xor", "xor", "xor", "b"), ("inc", "inc", "inc", "u"),
        ("dec", "dec", "dec", "u"), ("swap", "swap", "swap", "b"),
        ("cmpswap", "cmpswap", "cmpswap", "b"),
    ):  # fmt: skip
        for width, suffix in (("32", ""), ("64", "_x2")):
            put(old + suffix, update, kind + width)
            put(f"{new}_{kind}{width}", update, kind + width)
    for kind in ("f32", "f64"):
        put(f"add_{kind}", "add", kind)
        for name in ("min", "min_num"):
            put(f"{name}_{kind}", "fmin", kind)
        for name in ("max", "max_num"):
            put(f"{name}_{kind}", "fmax", kind)
    put("fmin", "fmin", "f32")
    put("fmax", "fmax", "f32")
    put("csub_u32", "sub_clamp", "u32")
    put("sub_clamp_u32", "sub_clamp", "u32")
    put("cond_sub_u32", "cond_sub", "u32")
    return out


KINDS = _kinds()


def _typed(words: Array, kind: Kind) -> Array:
    """Words [count, n] as an array [n] of the kind's type."""
    return np.ascontiguousarray(np.moveaxis(words, 0, -1)).view(kind.dtype)[..., 0]


def _words(values: Array, kind: Kind) -> Array:
    """The inverse of :func:`_typed`."""
    return np.moveaxis(np.ascontiguousarray(values)[..., None].view(np.uint32), -1, 0)


def updated(lanes: Lanes, kind: Kind, data: Array, compared: Array) -> Array:
    """Update memory by ``data`` ([count, waves, lanes] words); return each lane's old words.

    Lanes with one address take turns: in each round every address has the first of those that are
    left.
    """
    size = kind.words * 4
    chosen = np.flatnonzero(lanes.mask.reshape(-1))
    offsets = lanes.offsets.reshape(-1)
    values, against = (_typed(x.reshape(len(x), -1), kind) for x in (data, compared))
    before = np.zeros(values.shape, kind.dtype)
    while chosen.size:
        _, first = np.unique(offsets[chosen], return_index=True)
        now = chosen[first]
        old = _typed(lanes.space.gather(offsets[now], size), kind)
        before[now] = old
        new = kind.update(old, values[now], against[now]).astype(kind.dtype)
        lanes.space.scatter(offsets[now], size, _words(new, kind))
        left = np.ones(len(chosen), np.bool_)
        left[first] = False
        chosen = chosen[left]
    return _words(before, kind).reshape(kind.words, *lanes.mask.shape)


def _returns(d: Decoder) -> bool:
    modifiers = d.instruction.modifiers
    return "TH_ATOMIC_RETURN" in modifiers.get("th", "") or "sc0" in modifiers or "glc" in modifiers


def _global(way: str, kind: Kind) -> Callable[[Decoder], Step]:
    ways = {"global": global_addressing, "flat": flat_addressing}

    def build(d: Decoder) -> Step:
        d.allow("offset", "offen", "idxen", *CACHE_MODIFIERS)
        returns, operands = _returns(d), d.operands
        width = kind.words * (2 if kind.compares else 1)
        addressing: Addressing
        if way == "buffer":
            d.expect(4)
            result, data = operands[0], operands[0]
            addressing = buffer_addressing(d, *operands[1:])
        else:
            shift = int(returns)
            result, data = operands[0], operands[1 + shift]
            addressing = ways[way](
                d, operands[shift], operands[2 + shift] if len(operands) > 2 + shift else None
            )
        read = stored_words(d, data, Form(4 * width))
        if returns:
            d.note_write(result, kind.words)
        counter = "load" if returns or d.generation == 9 else "store"
        counters = (counter, "ds") if way == "flat" else (counter,)
        d.counter = counters[0]
        register, size = result.index, kind.words * 4

        def step(m: Machine) -> None:
            lanes, words, waves = addressing(m, size), read(m), m.numbers
            values, against = words[: kind.words], words[kind.words :] if kind.compares else words

            def perform(rows: Array | slice) -> None:
                part = lanes.at(rows)
                part = Lanes(part.space, part.offsets, part.mask & (part.offsets >= 0))
                old = updated(part, kind, values[:, rows], against[:, rows][: kind.words])
                if returns:
                    for i in range(kind.words):
                        deposit(m, register + i, waves[rows], old[i], lanes.at(rows).mask)

            registers = tuple(range(register, register + kind.words)) if returns else ()
            start(m, d, perform, registers, lanes.span(size), True, counters)

        return step

    return build


def _local(kind: Kind, returns: bool, new_first: bool) -> Callable[[Decoder], Step]:
    """Return the builder of an atomic on local memory.

    With ``new_first`` (from gfx11 on) a compare-and-exchange gets the new value before the value to
    compare with.
    """

    def build(d: Decoder) -> Step:
        d.allow("offset", "gds")
        shift = int(returns)
        d.expect(2 + shift + int(kind.compares))
        address = local_address(d, d.operands[shift], d.instruction.number("offset"))
        reads = [
            stored_words(d, operand, Form(4 * kind.words)) for operand in d.operands[1 + shift :]
        ]
        if returns:
            d.note_write(d.operands[0], kind.words)
        register, size = d.operands[0].index, 4 * kind.words
        d.counter = "ds"

        def step(m: Machine) -> None:
            waves, lanes = m.numbers, local_lanes(m, address(m), size, m.mask.copy())
            given = [read(m) for read in reads]
            values, against = (given[0], given[-1]) if new_first else (given[-1], given[0])

            def perform(rows: Array | slice) -> None:
                old = updated(lanes.at(rows), kind, values[:, rows], against[:, rows])
                if returns:
                    for i in range(kind.words):
                        deposit(m, register + i, waves[rows], old[i], lanes.at(rows).mask)

            m.pending.start(
                "ds",
                d.instruction,
                perform,
                tuple(range(register, register + kind.words)) if returns else (),
            )

        return step

    return build


for _name, _kind in KINDS.items():
    for _way in ("global", "flat", "buffer"):
        TABLE[f"{_way}_atomic_{_name}"] = _global(_way, _kind)
_LOCAL = [
    f"{n}_{t}{w}"
    for w in ("32", "64")
    for n, t in (
        ("add", "u"),
        ("sub", "u"),
        ("min", "i"),
        ("min", "u"),
        ("max", "i"),
        ("max", "u"),
        ("and", "b"),
        ("or", "b"),
        ("xor", "b"),
        ("inc", "u"),
        ("dec", "u"),
    )
]
_LOCAL += [
    "add_f32",
    "add_f64",
    "min_f32",
    "max_f32",
    "min_f64",
    "max_f64",
    "min_num_f32",
    "max_num_f32",
    "pk_add_f16",
    "pk_add_bf16",
    "cond_sub_u32",
]
for _name in _LOCAL:
    _first, _, _type = _name.rpartition("_")
    TABLE[f"ds_{_name}"] = _local(KINDS[_name], False, False)
    TABLE[f"ds_{_first}_rtn_{_type}"] = _local(KINDS[_name], True, False)
for _width in ("32", "64"):
    TABLE[f"ds_rsub_u{_width}"] = _local(
        Kind(_UPDATES["rsub"], _TYPES[f"u{_width}"], int(_width) // 32), False, False
    )
    TABLE[f"ds_wrxchg_rtn_b{_width}"] = TABLE[f"ds_storexchg_rtn_b{_width}"] = _local(
        KINDS[f"swap_b{_width}"], True, False
    )
    for _returning, _suffix in ((False, ""), (True, "_rtn")):
        TABLE[f"ds_cmpst{_suffix}_b{_width}"] = _local(
            KINDS[f"cmpswap_b{_width}"], _returning, False
        )
        TABLE[f"ds_cmpstore{_suffix}_b{_width}"] = _local(
            KINDS[f"cmpswap_b{_width}"], _returning, True
        )
