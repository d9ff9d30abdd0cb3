"""Decoder: readers of an instruction's sources, writers of its results, registers it touches."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright_amd_emulator.code.operand_types import (
    KINDS,
    Kind,
    constant,
    flushed,
    halves,
    join,
    modified,
)
from tilewright_amd_emulator.code.operands import M0, VCC
from tilewright_amd_emulator.code.program import Decoded, Step
from tilewright_amd_emulator.decode.dpp import Lanes
from tilewright_amd_emulator.errors import WaveError

if TYPE_CHECKING:
    from tilewright_amd_emulator.code.operands import Operand
    from tilewright_amd_emulator.code.program import Instruction, Program
    from tilewright_amd_emulator.state.machine import Machine, Modes

Array = np.ndarray[Any, np.dtype[Any]]
Reader = Callable[["Machine"], Array]
Writer = Callable[["Machine", Array], None]

#: addresses of code and of constants in it: s_getpc yields this, whatever the place
CODE_BASE = 0x0000_1A00_0000_0000

_VALU_MODIFIERS = {"clamp", "mul", "div", "op_sel", "op_sel_hi", "neg_lo", "neg_hi"}
_DPP = {
    "quad_perm",
    "row_shl",
    "row_shr",
    "row_ror",
    "row_bcast",
    "wave_shr",
    "wave_shl",
    "wave_rol",
    "wave_ror",
    "row_mirror",
    "row_half_mirror",
}
_DPP |= {
    "row_newbcast",
    "row_share",
    "row_xmask",
    "dpp8",
    "row_mask",
    "bank_mask",
    "bound_ctrl",
    "fi",
}
_SDWA = {"dst_sel", "dst_unused", "src0_sel", "src1_sel"}


class Decoder:
    """Reads the operands of one instruction for the builder of its step."""

    def __init__(
        self, instruction: Instruction, program: Program, modes: Modes, symbols: dict[str, int]
    ) -> None:
        self.instruction, self.program, self.modes, self.symbols = (
            instruction,
            program,
            modes,
            symbols,
        )
        self.generation, self.lanes = program.generation, program.wave_size
        self.reads: set[int] = set()
        self.writes: set[int] = set()
        self.counter: str | None = None
        self.role = ""
        #: what M0 is added to (SRC0, DST), where the instruction is between s_set_gpr_idx_on and
        #: off
        self.indexed: frozenset[str] = frozenset()
        #: set by builders of vector instructions: where lanes read others
        self.dpp: Lanes | None = None
        if instruction.encoding in ("dpp", "e64_dpp"):
            self.dpp = Lanes(instruction, self.lanes)

    # -- general

    @property
    def operands(self) -> tuple[Operand, ...]:
        return self.instruction.operands

    def fail(self, message: str) -> WaveError:
        return self.instruction.error(message)

    def expect(self, count: int) -> None:
        if len(self.operands) != count:
            raise self.fail(f"{len(self.operands)} operands, but {count} are expected")

    def allow(self, *names: str) -> None:
        """An error for a modifier that is not among these."""
        for name in self.instruction.modifiers:
            if name not in names:
                raise self.fail(f"the modifier {name!r} is not known here")

    def allow_vector(self) -> None:
        """The modifiers of vector instructions, by encoding."""
        encoding = self.instruction.encoding
        self.allow(
            *(
                _VALU_MODIFIERS
                | (_DPP if "dpp" in encoding else set())
                | (_SDWA if encoding == "sdwa" else set())
            )
        )

    def note_read(self, operand: Operand, count: int | None = None) -> None:
        for i in range(operand.count if count is None else count):
            if operand.kind == "v":
                self.reads.add(operand.index + i)
            elif operand.kind == "s":
                self.reads.add(-(operand.index + i) - 1)

    def note_write(self, operand: Operand, count: int | None = None) -> None:
        for i in range(operand.count if count is None else count):
            if operand.kind == "v":
                self.writes.add(operand.index + i)
            elif operand.kind == "s":
                self.writes.add(-(operand.index + i) - 1)

    def note_vcc(self, written: bool) -> None:
        for i in range(self.lanes // 32):
            (self.writes if written else self.reads).add(-(VCC + i) - 1)

    def note_m0(self) -> None:
        self.reads.add(-M0 - 1)

    def symbol(self, operand: Operand) -> int:
        """The value of a symbolic operand."""
        name, _, how = operand.text.partition("@")
        if name not in self.symbols:
            raise self.fail(f"the symbol {name!r} is not known")
        address = self.symbols[name]
        if how.startswith("rel32@lo"):
            return (address - CODE_BASE) & 0xFFFFFFFF
        if how.startswith("rel32@hi"):
            return ((address - CODE_BASE) >> 32) & 0xFFFFFFFF
        raise self.fail(f"{operand.text!r}: only rel32@lo and rel32@hi are supported")

    # -- sources

    def uniform(self, place: int, kind_name: str = "b32") -> Reader:
        """A scalar source: [waves] or [1]."""
        return self.uniform_operand(self.operands[place], kind_name)

    def whole(self, place: int) -> Reader:
        """Return all 32 bits of a source, without its selection: [waves, lanes] or [waves, 1]."""
        operand = self.operands[place]
        if operand.kind == "v":
            self.note_read(operand, 1)
            register = operand.index
            return lambda m: m.vector(register)
        uniform = self.uniform_operand(operand)
        return lambda m: uniform(m)[:, None]

    def uniform_operand(self, operand: Operand, kind_name: str = "b32") -> Reader:
        kind = KINDS[kind_name]
        if operand.kind == "s":
            self.note_read(operand, kind.words)
            index = operand.index
            if kind.width == 64:
                return lambda m: m.scalar64(index).view(kind.dtype)
            if kind.width == 16:
                return lambda m: m.scalar(index).astype(np.uint16).view(kind.dtype)
            if kind.dtype is np.uint32:
                return lambda m: m.scalar(index)
            return lambda m: m.scalar(index).view(kind.dtype)
        if operand.kind == "special":
            name = operand.text
            return lambda m: m.condition(name).astype(kind.dtype)
        bits = self._constant(operand, kind)
        value = np.array([bits], kind.unsigned).view(kind.dtype)
        return lambda m: value

    def _constant(self, operand: Operand, kind: Kind) -> int:
        if operand.kind in ("number", "real"):
            return constant(operand, kind)
        if operand.kind == "null":
            return 0
        if operand.kind == "symbol":
            return self.symbol(operand)
        raise self.fail(f"the operand {operand.text!r} is not understood")

    def source(self, place: int, kind_name: str, index: int) -> Reader:
        """Return source ``index`` (from 0), operand ``place``: [waves or 1, lanes or 1]."""
        operand, kind = self.operands[place], KINDS[kind_name]
        read = self._bits(operand, kind, index)
        if self.dpp is not None and index == 0:
            permuted, lanes = read, self.dpp
            read = lambda m: lanes.permuted(m, permuted(m))  # noqa: E731
        if operand.negated or operand.absolute:
            plain, negated, absolute = read, operand.negated, operand.absolute
            read = lambda m: modified(plain(m), kind.width, negated, absolute)  # noqa: E731
        final = read
        if kind.dtype is kind.unsigned:
            return final
        if kind.name == "f32" and self.modes.denormals32 in (0, 2):
            return lambda m: flushed(final(m).view(np.float32))
        if kind.name in ("f16", "f64") and self.modes.denormals16 in (0, 2):
            return lambda m: flushed(final(m).view(kind.dtype))
        return lambda m: final(m).view(kind.dtype)

    def _bits(self, operand: Operand, kind: Kind, index: int) -> Reader:
        """The source as unsigned words of the kind's width."""
        if operand.kind == "v":
            register = operand.index
            self.note_read(operand, kind.words)
            if self.instruction.encoding == "sdwa":
                return self._selected(operand, kind, index)
            if kind.width == 64:
                return lambda m: join(m.vector(register), m.vector(register + 1))
            if kind.width == 16:
                half = self._half(operand, index)
                return lambda m: m.vector(register).view(np.uint16)[:, half::2]
            return lambda m: m.vector(register)
        if self.instruction.encoding == "sdwa" and operand.kind == "s":
            return self._selected(operand, kind, index)
        read = (
            self.uniform_operand(operand, {16: "b32", 32: "b32", 64: "b64"}[kind.width])
            if operand.kind in ("s", "special")
            else None
        )
        if read is not None:
            uniform = read
            if kind.width == 16:
                shift = np.uint32(16 * self._half(operand, index))
                return lambda m: (uniform(m) >> shift).astype(np.uint16)[:, None]
            return lambda m: uniform(m)[:, None]
        value = np.array([[self._constant(operand, kind)]], kind.unsigned)
        return lambda m: value

    def _half(self, operand: Operand, index: int) -> int:
        if operand.half is not None:
            return operand.half
        chosen = self.instruction.numbers("op_sel")
        return chosen[index] if chosen is not None and index < len(chosen) else 0

    def _selected(self, operand: Operand, kind: Kind, index: int) -> Reader:
        """A byte, a half or all of a word (SDWA)."""
        what = self.instruction.modifiers.get(f"src{index}_sel", "DWORD")
        signed = operand.signed
        if operand.kind == "v":
            register = operand.index
            read: Reader = lambda m: m.vector(register)  # noqa: E731
        else:
            uniform = self.uniform_operand(operand)
            read = lambda m: uniform(m)[:, None]  # noqa: E731

        def selected(m: Machine) -> Array:
            word = read(m)
            if what.startswith("BYTE"):
                word = (word >> np.uint32(8 * int(what[-1]))) & np.uint32(0xFF)
                word = (
                    word.astype(np.uint8).view(np.int8).astype(np.int32).view(np.uint32)
                    if signed
                    else word
                )
            elif what.startswith("WORD"):
                word = (word >> np.uint32(16 * int(what[-1]))) & np.uint32(0xFFFF)
                word = (
                    word.astype(np.uint16).view(np.int16).astype(np.int32).view(np.uint32)
                    if signed
                    else word
                )
            return word.astype(kind.unsigned)

        return selected

    def lane_mask(self, place: int) -> Reader:
        """A mask of lanes in a scalar register: bool [waves, lanes]."""
        operand = self.operands[place]
        if operand.kind == "s":
            self.note_read(operand, self.lanes // 32)
            index = operand.index
            return lambda m: m.mask_of(index)
        bits = self._constant(operand, KINDS["u64" if self.lanes == 64 else "u32"])
        value = np.array([[bool(bits >> lane & 1) for lane in range(self.lanes)]])
        return lambda m: value

    # -- results

    def result(self, place: int, kind_name: str, sources: int = 0) -> Writer:
        """Return the vector result at operand ``place``.

        ``sources`` is the number of sources, which is the position of the result in op_sel.
        """
        operand, kind = self.operands[place], KINDS[kind_name]
        if operand.kind == "null":
            return lambda m, value: None
        if operand.kind != "v":
            raise self.fail(f"the result {operand.text!r} must be a vector register")
        self.note_write(operand, kind.words)
        write = self._written(operand, kind, sources)
        return self._finished(kind, write) if kind.floating else write

    def _finished(self, kind: Kind, write: Writer) -> Writer:
        """Output modifiers of floats, and denormals."""
        modifiers = self.instruction.modifiers
        factor = 1.0
        if "mul" in modifiers:
            factor = float(modifiers["mul"])
        elif "div" in modifiers:
            factor = 1 / float(modifiers["div"])
        clamped = "clamp" in modifiers
        nan_is_zero = self.modes.clamp_nan or self.generation >= 12
        flush = (self.modes.denormals32 if kind.name == "f32" else self.modes.denormals16) in (0, 1)
        if factor == 1.0 and not clamped and not flush:
            return write

        def finished(m: Machine, value: Array) -> None:
            if factor != 1.0:
                value = value * kind.dtype(factor)
            if clamped:
                value = np.clip(value, kind.dtype(0), kind.dtype(1))
                if nan_is_zero:
                    value = np.where(np.isnan(value), kind.dtype(0), value)
            write(m, flushed(value) if flush else value)

        return finished

    def _written(self, operand: Operand, kind: Kind, sources: int) -> Writer:
        register = operand.index
        if self.instruction.encoding == "sdwa":
            return self._placed(register, kind)
        if kind.width == 64:

            def wide(m: Machine, value: Array) -> None:
                low, high = halves(value)
                m.set_vector(register, low)
                m.set_vector(register + 1, high)

            return wide
        if kind.width == 32:
            return lambda m, value: m.set_vector(register, value.view(np.uint32))
        half = self._half(operand, sources)
        if self.generation == 9 and half == 0:  # the upper half becomes 0
            return lambda m, value: m.set_vector(register, value.view(np.uint16).astype(np.uint32))
        shift, kept = np.uint32(16 * half), np.uint32(0xFFFF if half else 0xFFFF0000)
        return lambda m, value: m.set_vector(
            register, (m.vector(register) & kept) | value.view(np.uint16).astype(np.uint32) << shift
        )

    def _placed(self, register: int, kind: Kind) -> Writer:
        """A byte or a half of the result (SDWA)."""
        what = self.instruction.modifiers.get("dst_sel", "DWORD")
        unused = self.instruction.modifiers.get("dst_unused", "UNUSED_PAD")
        if what == "DWORD":
            return lambda m, value: m.set_vector(
                register, value.view(kind.unsigned).astype(np.uint32)
            )
        width = 8 if what.startswith("BYTE") else 16
        shift = np.uint32(width * int(what[-1]))
        ones = np.uint32((1 << width) - 1)

        def placed(m: Machine, value: Array) -> None:
            part = (value.view(kind.unsigned).astype(np.uint32) & ones) << shift
            if unused == "UNUSED_PRESERVE":
                part = part | (m.vector(register) & ~(ones << shift))
            elif unused == "UNUSED_SEXT":
                raise self.fail("dst_unused:UNUSED_SEXT is not supported")
            m.set_vector(register, part)

        return placed

    def mask_result(self, place: int) -> Writer:
        """A mask of lanes written to a scalar register."""
        operand = self.operands[place]
        if operand.kind == "null":
            return lambda m, value: None
        if operand.kind != "s":
            raise self.fail(f"the result {operand.text!r} must be a scalar register")
        self.note_write(operand, self.lanes // 32)
        index = operand.index
        return lambda m, value: m.set_mask(index, value)

    def uniform_result(self, place: int, kind_name: str = "b32") -> Writer:
        """The scalar result at operand ``place``: [waves] or [1]."""
        operand, kind = self.operands[place], KINDS[kind_name]
        if operand.kind == "null":
            return lambda m, value: None
        if operand.kind != "s":
            raise self.fail(f"the result {operand.text!r} must be a scalar register")
        self.note_write(operand, kind.words)
        index = operand.index
        if kind.width == 64:
            return lambda m, value: m.set_scalar64(index, value.view(np.uint64))
        return lambda m, value: m.set_scalar(index, value.view(kind.unsigned))

    def decoded(self, step: Step) -> Decoded:
        reads, writes = frozenset(self.reads), frozenset(self.writes)
        if self.dpp is not None:
            step = self.dpp.around(step)
        return Decoded(
            self.instruction, step, reads, writes, reads | writes, self.counter, self.role
        )


Builder = Callable[[Decoder], Step]
TABLE: dict[str, Builder] = {}


def builds(*names: str) -> Callable[[Builder], Builder]:
    """Register the builder of these instructions."""

    def register(builder: Builder) -> Builder:
        for name in names:
            if name in TABLE:
                raise WaveError(f"{name} has two builders")
            TABLE[name] = builder
        return builder

    return register
