"""The table of instructions, filled by importing the families, and decoding by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilewright_amd_emulator.code.program import Decoded
from tilewright_amd_emulator.decode.decoder import TABLE, Decoder
from tilewright_amd_emulator.instructions import (
    atomics,
    compare,
    control,
    cross_lane,
    division,
    global_memory,
    lds,
    matrix,
    narrow_floats,
    packed_math,
    scalar,
    scalar_memory,
    vector,
)

if TYPE_CHECKING:
    from tilewright_amd_emulator.state.machine import Machine

GROUPS = (
    atomics,
    compare,
    control,
    cross_lane,
    division,
    global_memory,
    lds,
    narrow_floats,
    packed_math,
    scalar,
    scalar_memory,
    vector,
)


def known() -> frozenset[str]:
    """The names of the instructions that can be executed."""
    return frozenset(TABLE)


def decode(d: Decoder) -> Decoded:
    """Decode an instruction; raises an error where it is unknown."""
    instruction = d.instruction
    if instruction.second is not None:
        return _decode_pair(d)
    build = TABLE.get(instruction.name)
    if instruction.name.startswith("v_mfma_"):
        build = matrix.build_mfma
    elif instruction.name.startswith("v_wmma_"):
        build = matrix.build_wmma
    if d.indexed and instruction.name.startswith("v_"):
        build = cross_lane.build_indexed
    if build is None:
        raise d.fail(f"the instruction {instruction.name} is not known to the emulator")
    return d.decoded(build(d))


def _decode_pair(d: Decoder) -> Decoded:
    """Two instructions at once (VOPD): both read before either writes.

    Their registers are kept, and the first result is put back for the second to read.
    """
    first, second = d.instruction, d.instruction.second
    assert second is not None
    parts = []
    for one in (first, second):
        name = one.name.replace("v_dual_", "v_")
        build = TABLE.get(name)
        if build is None or not one.name.startswith("v_dual_"):
            raise d.fail(f"the instruction {one.name} is not known to the emulator")
        own = Decoder(
            type(one)(
                one.line, first.text, one.mnemonic, name, one.encoding, one.operands, one.modifiers
            ),
            d.program,
            d.modes,
            d.symbols,
        )
        parts.append((build(own), own))
    (one_step, one_part), (two_step, two_part) = parts
    results = sorted(one_part.writes)

    def step(m: Machine) -> None:
        before = [m.vectors[r, m.selected].copy() for r in results]
        one_step(m)
        after = [m.vectors[r, m.selected].copy() for r in results]
        for register, value in zip(results, before, strict=True):
            m.vectors[register, m.selected] = value
        two_step(m)
        for register, value in zip(results, after, strict=True):
            m.vectors[register, m.selected] = value

    clashes = bool(one_part.writes & two_part.reads)

    def plain(m: Machine) -> None:
        one_step(m)
        two_step(m)

    d.reads, d.writes = one_part.reads | two_part.reads, one_part.writes | two_part.writes
    return d.decoded(step if clashes else plain)
