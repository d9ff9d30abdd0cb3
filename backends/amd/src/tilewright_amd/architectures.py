"""The GPU architectures code is generated for, and what each has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tilewright.errors import LoweringError
from tilewright.ir.types import BF16, F8E4M3FN, F8E4M3FNUZ, F8E5M2, F8E5M2FNUZ, F16, Type
from tilewright.plugins.manifest import Target

#: Instructions that multiply matrices: of data center GPUs (64 lanes), and of RDNA (32 lanes).
MFMA: Final = "mfma"
WMMA: Final = "wmma"

#: Nanoseconds between two ticks of the device's clock of constant rate.
TICK: Final = 10

_OCP: Final[tuple[Type, Type]] = (F8E4M3FN, F8E5M2)
_FNUZ: Final[tuple[Type, Type]] = (F8E4M3FNUZ, F8E5M2FNUZ)


@dataclass(frozen=True, slots=True)
class Architecture:
    """One target.

    Attributes:
        name: as LLVM and the HIP runtime call it.
        generation: of its family of matrix instructions: CDNA 2, 3 or 4; RDNA 3 or 4.
        matrix: that family.
        wave: lanes of a wave.
        shared_memory: bytes of LDS that a program may use.
        shared_total: bytes of LDS that programs of a compute unit share.
        banks: banks of LDS, of 4 bytes each.
        registers: vector registers that a thread may have, those for accumulators with them.
        file: vector registers of a compute unit, of 32 bits, counted for each lane.
        granule: a wave gets vector registers in steps of this many, counted for a lane.
        simds: parts of a compute unit with registers of their own.
        waves: waves that a compute unit holds.
        fp8: the fp8 kinds it has instructions for, with four bits of exponent and with five; empty: none.
        direct: bytes that a lane may copy from memory straight to LDS at once, where that is used; where a lane copies 4 at most, four copies bring what one
            load and one store do, and it is not.
        turns: whether elements of 16 bits are turned as they are read from LDS.
        swaps: whether rows of lanes change places between two registers (``v_permlane16_swap``, ``v_permlane32_swap``).
        features: of LLVM's, by which code is generated.
        packed_sums: types of 16 bits of which an atomic instruction adds two at once (``global_atomic_pk_add_f16``).
    """

    name: str
    generation: int
    matrix: str
    wave: int
    shared_memory: int
    shared_total: int
    banks: int
    registers: int
    file: int
    granule: int
    simds: int
    waves: int
    fp8: tuple[Type, ...] = ()
    features: tuple[str, ...] = ()
    direct: tuple[int, ...] = ()
    turns: bool = False
    swaps: bool = False
    packed_sums: tuple[Type, ...] = ()

    @property
    def pair_products(self) -> frozenset[Type]:
        """Types of which an instruction adds two products to an f32 number (``v_dot2_f32_bf16``); that of f16 is left, which may take subnormals for zeros."""
        return frozenset({BF16}) if self.generation >= (4 if self.matrix == MFMA else 3) else frozenset()

    @property
    def propagates_nan(self) -> bool:
        """Whether there are instructions for the least and the greatest of f32 numbers of which a NaN is the result where one is among them."""
        return self.generation >= 4

    @property
    def few_registers(self) -> bool:
        """Whether accumulators are among the 256 registers that an instruction can name, and have none of their own."""
        return self.registers <= 256


#: Programs of RDNA run on one compute unit of the two that are joined: what a barrier orders is then in one cache, and loads from memory stay under way
#: across it.
_ONE_UNIT: Final = ("+cumode", "-real-true16")
_K: Final = 1024
_F16: Final[tuple[Type, ...]] = (F16,)
_F16_BF16: Final[tuple[Type, ...]] = (F16, BF16)


def _rdna(name: str, generation: int, registers: int, fp8: tuple[Type, ...] = ()) -> Architecture:
    """A row of RDNA.

    Args:
        registers: vector registers of a lane of a SIMD that waves share: 1536 or 1024.
    """
    packed = _F16_BF16 if generation >= 4 else ()
    return Architecture(
        name, generation, WMMA, 32, 64 * _K, 64 * _K, 32, 256, 2 * 32 * registers, registers // 64, 2, 32, fp8, _ONE_UNIT, packed_sums=packed
    )  # fmt: skip


ARCHITECTURES: Final[dict[str, Architecture]] = {
    row.name: row
    for row in (
        Architecture("gfx90a", 2, MFMA, 64, 64 * _K, 64 * _K, 32, 512, 128 * _K, 8, 4, 32, packed_sums=_F16),
        Architecture("gfx942", 3, MFMA, 64, 64 * _K, 64 * _K, 32, 512, 128 * _K, 8, 4, 32, _FNUZ, packed_sums=_F16_BF16),
        Architecture(
            "gfx950", 4, MFMA, 64, 160 * _K, 160 * _K, 64, 512, 128 * _K, 8, 4, 32, _OCP, direct=(4, 16), turns=True, swaps=True, packed_sums=_F16_BF16
        ),
        _rdna("gfx1100", 3, 1536),
        _rdna("gfx1101", 3, 1536),
        _rdna("gfx1102", 3, 1024),
        _rdna("gfx1103", 3, 1024),
        _rdna("gfx1150", 3, 1024),
        _rdna("gfx1151", 3, 1536),
        _rdna("gfx1152", 3, 1024),
        _rdna("gfx1153", 3, 1024),
        _rdna("gfx1200", 4, 1536, _OCP),
        _rdna("gfx1201", 4, 1536, _OCP),
    )
}


def architecture(name: str) -> Architecture:
    """The row of an architecture; features behind its name, as in ``gfx942:sramecc+:xnack-``, change nothing here.

    Raises:
        LoweringError: there is no code for it.
    """
    row = ARCHITECTURES.get(name.partition(":")[0])
    if row is None:
        raise LoweringError(f"there is no code for {name!r}; targets are {', '.join(ARCHITECTURES)}")
    return row


def target_of(row: Architecture) -> Target:
    """The target for an architecture."""
    limits = {"shared_memory": row.shared_memory, "registers": row.file, "max_threads": 1024, "threads": row.waves * row.wave, "shared_total": row.shared_total}
    return Target("amd", row.name, row.name, row.features, row.wave, limits, kind="hip")
