"""The supported AMD GPU architectures and their properties."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tilewright.errors import LoweringError
from tilewright.ir.types import BF16, F8E4M3FN, F8E4M3FNUZ, F8E5M2, F8E5M2FNUZ, F16, Type
from tilewright.plugins.manifest import Target

#: The families of matrix instructions: MFMA on data center GPUs (wave64), WMMA on RDNA (wave32).
MFMA: Final = "mfma"
WMMA: Final = "wmma"

#: Nanoseconds per tick of the device's constant-rate clock.
TICK: Final = 10

_OCP: Final[tuple[Type, Type]] = (F8E4M3FN, F8E5M2)
_FNUZ: Final[tuple[Type, Type]] = (F8E4M3FNUZ, F8E5M2FNUZ)


@dataclass(frozen=True, slots=True)
class Architecture:
    """The properties of one GPU architecture.

    Attributes:
        name: its name, as LLVM and the HIP runtime spell it.
        generation: the generation of its matrix instructions: CDNA 2, 3 or 4; RDNA 3 or 4.
        matrix: the family of its matrix instructions, MFMA or WMMA.
        wave: lanes of a wave.
        shared_memory: bytes of LDS that a program may use.
        shared_total: bytes of LDS that all programs of a compute unit share.
        banks: banks of LDS, of 4 bytes each.
        registers: maximum number of vector registers of a thread, including accumulator registers.
        file: 32-bit vector registers of a compute unit, counted for each lane.
        granule: allocation granularity of a wave's vector registers, counted per lane.
        simds: SIMDs of a compute unit; each has its own register file.
        waves: maximum number of waves of a compute unit.
        fp8: the fp8 types that it converts and multiplies natively, the one with four exponent bits
            first; empty if it has no fp8 instructions.
        direct: copy widths, in bytes per lane, of ``global_load_lds``; empty if the backend does
            not use it. A target whose widest copy has 4 bytes needs four copies to replace one load
            and one store, so the backend does not use copies there.
        turns: whether it has transposed LDS loads of 16-bit elements (``ds_read_b64_tr``).
        swaps: whether it has ``v_permlane16_swap`` and ``v_permlane32_swap``.
        features: the LLVM target features to generate code with.
        packed_adds: 16-bit types that have a packed atomic add (``global_atomic_pk_add_f16``).
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
    packed_adds: tuple[Type, ...] = ()

    @property
    def pair_dots(self) -> frozenset[Type]:
        """Types with an instruction that adds two products to an f32 number (``v_dot2_f32_bf16``).

        The f16 instruction is not used, since it may flush subnormals to zero.
        """
        return (
            frozenset({BF16})
            if self.generation >= (4 if self.matrix == MFMA else 3)
            else frozenset()
        )

    @property
    def propagates_nan(self) -> bool:
        """Return whether the target has f32 minimum and maximum instructions that propagate NaN."""
        return self.generation >= 4

    @property
    def few_registers(self) -> bool:
        """Return whether accumulators share the 256 addressable registers (no AccVGPRs)."""
        return self.registers <= 256


#: RDNA programs run in CU mode, on one of the two compute units of a workgroup processor. All waves
#: that a barrier synchronizes then share one L0 cache, so global loads stay in flight across it.
_ONE_UNIT: Final = ("+cumode", "-real-true16")
_K: Final = 1024
_F16: Final[tuple[Type, ...]] = (F16,)
_F16_BF16: Final[tuple[Type, ...]] = (F16, BF16)


def _rdna(name: str, generation: int, registers: int, fp8: tuple[Type, ...] = ()) -> Architecture:
    """Return the properties of an RDNA architecture.

    Args:
        registers: vector registers of a lane of a SIMD that waves share: 1536 or 1024.
    """
    packed = _F16_BF16 if generation >= 4 else ()
    return Architecture(
        name, generation, WMMA, 32, 64 * _K, 64 * _K, 32, 256, 2 * 32 * registers, registers // 64,
        2, 32, fp8, _ONE_UNIT, packed_adds=packed
    )  # fmt: skip


ARCHITECTURES: Final[dict[str, Architecture]] = {
    row.name: row
    for row in (
        Architecture(
            "gfx90a", 2, MFMA, 64, 64 * _K, 64 * _K, 32, 512, 128 * _K, 8, 4, 32, packed_adds=_F16
        ),
        Architecture(
            "gfx942",
            3,
            MFMA,
            64,
            64 * _K,
            64 * _K,
            32,
            512,
            128 * _K,
            8,
            4,
            32,
            _FNUZ,
            packed_adds=_F16_BF16,
        ),
        Architecture(
            "gfx950",
            4,
            MFMA,
            64,
            160 * _K,
            160 * _K,
            64,
            512,
            128 * _K,
            8,
            4,
            32,
            _OCP,
            direct=(4, 16),
            turns=True,
            swaps=True,
            packed_adds=_F16_BF16,
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
    """Return the properties of an architecture, ignoring features as in ``gfx942:sramecc+:xnack-``.

    Raises:
        LoweringError: there is no code for it.
    """
    row = ARCHITECTURES.get(name.partition(":")[0])
    if row is None:
        raise LoweringError(
            f"there is no code for {name!r}; targets are {', '.join(ARCHITECTURES)}"
        )
    return row


def target_of(row: Architecture) -> Target:
    """Return the compilation target for an architecture."""
    limits = {
        "shared_memory": row.shared_memory,
        "registers": row.file,
        "max_threads": 1024,
        "threads": row.waves * row.wave,
        "shared_total": row.shared_total,
    }
    return Target("amd", row.name, row.name, row.features, row.wave, limits, kind="hip")
