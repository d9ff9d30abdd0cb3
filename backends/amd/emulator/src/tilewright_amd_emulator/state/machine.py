"""State of the waves of some workgroups: registers, masks, and operations in flight.

Vector registers are arrays [register, wave, lane] of uint32, scalar registers [register, wave]. An
instruction is executed for the waves that are selected: ``selected`` is a slice of all or an array
of their numbers, and what operands read has the shape [selected waves, lanes], or 1 in a dimension
where it is the same for all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright_amd_emulator.code.operands import ACCUMULATION, EXEC, M0, SCALARS, VCC
from tilewright_amd_emulator.errors import WaveError
from tilewright_amd_emulator.memory.arena import Memory

if TYPE_CHECKING:
    from tilewright_amd_emulator.code.program import Program
    from tilewright_amd_emulator.memory.arena import Arena
    from tilewright_amd_emulator.state.outstanding import Pending

Array = np.ndarray[Any, np.dtype[Any]]

_GARBAGE = (
    0x7FC0BAD1  # what a register holds that was never written: a NaN as f32, an improbable integer
)


class Modes:
    """Floating-point modes of a kernel, from its descriptor."""

    def __init__(self, directives: dict[str, int], generation: int) -> None:
        self.denormals32 = directives.get("float_denorm_mode_32", 3)
        self.denormals16 = directives.get("float_denorm_mode_16_64", 3)
        self.clamp_nan = bool(directives.get("dx10_clamp", 1))
        self.directives, self.generation = directives, generation
        if directives.get("float_round_mode_32", 0) or directives.get("float_round_mode_16_64", 0):
            raise WaveError(
                "only rounding to nearest, ties to even, is emulated; leave the rounding modes of "
                "the kernel alone"
            )

    def copy(self) -> Modes:
        """The same modes as they are now."""
        other = Modes(self.directives, self.generation)
        other.denormals32, other.denormals16 = self.denormals32, self.denormals16
        return other


class Machine:
    """Waves of ``groups`` workgroups that run together."""

    def __init__(
        self,
        program: Program,
        modes: Modes,
        arena: Arena,
        groups: int,
        threads: int,
        lds_bytes: int,
        private_bytes: int,
        vectors: int,
        seed: int,
    ) -> None:
        lanes = program.wave_size
        self.program, self.modes, self.arena = program, modes, arena
        self.generation, self.lanes = program.generation, lanes
        self.per_group = -(-threads // lanes)
        waves = groups * self.per_group
        self.waves, self.groups = waves, groups
        #: the workgroup of each wave, among those that run together
        self.group = np.repeat(np.arange(groups), self.per_group)
        self.vectors = np.full((max(vectors, 1), waves, lanes), _GARBAGE, np.uint32)
        self.scalars = np.full((SCALARS, waves), _GARBAGE, np.uint32)
        self.scc = np.zeros(waves, np.bool_)
        self.pc = np.zeros(waves, np.int64)
        self.execute = np.zeros((waves, lanes), np.bool_)
        self.lds_bytes, self.lds_stride = lds_bytes, -(-max(lds_bytes, 8) // 16) * 16
        self.lds = Memory(self.lds_stride * groups, unaligned=arena.unaligned)
        self.private_bytes, self.private_stride = (
            private_bytes,
            -(-max(private_bytes, 8) // 16) * 16,
        )
        self.private = Memory(self.private_stride * waves * lanes)
        self.pending: Pending
        self.clock = 0
        self.taken = np.zeros(waves, np.bool_)
        self.random = np.random.default_rng(seed)
        self.lane = np.arange(lanes, dtype=np.uint32)[None]
        self.select(slice(None))

    # -- which waves and lanes

    def select(self, waves: slice | Array) -> None:
        """Execute for these waves from now on."""
        self.selected = waves
        self.numbers: Array = np.arange(self.waves) if isinstance(waves, slice) else waves
        self.everything = isinstance(waves, slice)
        self.masked()

    def masked(self) -> None:
        """Take over what EXEC of the selected waves is."""
        self.mask: Array = self.execute[self.selected]
        self.full = bool(self.mask.all())

    @property
    def count(self) -> int:
        """Number of selected waves."""
        return len(self.numbers)

    # -- vector registers

    def vector(self, register: int) -> Array:
        """uint32 [waves, lanes]."""
        return self.vectors[register, self.selected]

    def set_vector(self, register: int, value: Array) -> None:
        """Write ``value`` (uint32) where EXEC says so."""
        if self.full:
            self.vectors[register, self.selected] = value
        elif self.everything:
            np.copyto(self.vectors[register], value, where=self.mask)
        else:
            kept = self.vectors[register, self.selected]
            np.copyto(kept, value, where=self.mask)
            self.vectors[register, self.selected] = kept

    # -- scalar registers

    def scalar(self, register: int) -> Array:
        """uint32 [waves]."""
        if register in (EXEC, EXEC + 1):
            return (
                self.mask_words(self.mask)[min(register - EXEC, self.lanes // 32 - 1)]
                if register == EXEC or self.lanes == 64
                else self._zeros()
            )
        return self.scalars[register, self.selected]

    def scalar64(self, register: int) -> Array:
        """uint64 [waves] of two registers."""
        return self.scalar(register) | self.scalar(register + 1).astype(np.uint64) << np.uint64(32)

    def set_scalar(self, register: int, value: Array) -> None:
        """Write uint32 [waves] or [1]."""
        if register in (EXEC, EXEC + 1):
            if register == EXEC + 1 and self.lanes == 32:
                return
            words = [self.scalar(EXEC + i) for i in range(self.lanes // 32)]
            words[register - EXEC] = np.broadcast_to(value, (self.count,)).astype(np.uint32)
            self.execute[self.selected] = self.lane_mask(words)
            self.masked()
            return
        self.scalars[register, self.selected] = value

    def set_scalar64(self, register: int, value: Array) -> None:
        """Write uint64 [waves] or [1] into two registers."""
        low, high = (
            (value & np.uint64(0xFFFFFFFF)).astype(np.uint32),
            (value >> np.uint64(32)).astype(np.uint32),
        )
        if register == EXEC:
            words = [np.broadcast_to(w, (self.count,)) for w in (low, high)]
            self.execute[self.selected] = self.lane_mask(words[: self.lanes // 32])
            self.masked()
            return
        self.scalars[register, self.selected] = low
        self.scalars[register + 1, self.selected] = high

    def _zeros(self) -> Array:
        return np.zeros(self.count, np.uint32)

    # -- masks of lanes

    def mask_words(self, mask: Array) -> list[Array]:
        """uint32 [waves] words of a mask [waves, lanes]."""
        words = np.packbits(mask, axis=1, bitorder="little").view(np.uint32)
        return [words[:, i] for i in range(words.shape[1])]

    def lane_mask(self, words: list[Array]) -> Array:
        """bool [waves, lanes] of the words of a mask."""
        packed = np.ascontiguousarray(np.stack(words, axis=1)).view(np.uint8)
        return np.unpackbits(packed, axis=1, bitorder="little").view(np.bool_)

    def mask_of(self, register: int) -> Array:
        """Return the mask in a scalar register (two for 64 lanes) as bool [waves, lanes]."""
        if register == EXEC:
            return self.mask
        return self.lane_mask([self.scalar(register + i) for i in range(self.lanes // 32)])

    def set_mask(self, register: int, mask: Array) -> None:
        """Write a mask into a scalar register; lanes outside of EXEC become 0."""
        kept = mask if self.full else mask & self.mask
        if register == EXEC:
            self.execute[self.selected] = kept
            self.masked()
            return
        kept = np.broadcast_to(kept, (self.count, self.lanes))
        for i, word in enumerate(self.mask_words(kept)):
            self.scalars[register + i, self.selected] = word

    def condition(self, name: str) -> Array:
        """bool [waves]: what a branch or a special operand looks at."""
        if name == "scc":
            return self.scc[self.selected]
        if name == "execz":
            return np.logical_not(self.mask.any(axis=1))
        if name == "vccz":
            words = [self.scalars[VCC + i, self.selected] for i in range(self.lanes // 32)]
            return np.equal(np.stack(words).sum(axis=0, dtype=np.uint64), 0)
        raise WaveError(f"{name} is not known")

    def m0(self) -> Array:
        """uint32 [waves]: what M0 holds."""
        return self.scalars[M0, self.selected]


def register_name(number: int) -> str:
    """The name of a register in :attr:`Decoded.reads`: scalar registers are below 0."""
    if number < 0:
        scalar = -number - 1
        return {
            VCC: "vcc_lo",
            VCC + 1: "vcc_hi",
            M0: "m0",
            EXEC: "exec_lo",
            EXEC + 1: "exec_hi",
        }.get(scalar, f"s{scalar}")
    return f"v{number}" if number < ACCUMULATION else f"a{number - ACCUMULATION}"
