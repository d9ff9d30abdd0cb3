"""The hardware that code is generated for: vectors, caches, and the blocks that follow.

Everything that code generation asks of a processor is answered here, from a
:class:`~tilewright.plugins.manifest.Target`: the instruction set from its features, the caches from
its limits. A decision depends on quantities of the hardware (registers, ways, bytes), never on a
processor's name, so a processor that nobody has seen gets blocks and depths of its own. Processors
that code can be made for without having one are rows of :data:`NAMED`.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field

from tilewright.plugins.manifest import Target


@dataclass(frozen=True, slots=True)
class VectorUnit:
    """The vector registers of an architecture's feature: their width in bits, their number."""

    feature: str
    bits: int
    registers: int


#: By architecture, the widest first; the last row is what every processor of the architecture has.
_VECTORS: dict[str, tuple[VectorUnit, ...]] = {
    "x86-64": (VectorUnit("avx512f", 512, 32), VectorUnit("avx", 256, 16), VectorUnit("", 128, 16)),
    "aarch64": (VectorUnit("", 128, 32),),
    "riscv64": (
        VectorUnit("zvl512b", 512, 32),
        VectorUnit("zvl256b", 256, 32),
        VectorUnit("v", 128, 32),
        VectorUnit("", 128, 16),
    ),
}
_USUAL_VECTORS = (VectorUnit("", 128, 16),)

#: What a processor can do: by architecture, the features one of which brings it; an empty name is
#: of the architecture itself.
_ABILITIES: dict[str, dict[str, frozenset[str]]] = {
    "fused": {
        "x86-64": frozenset({"fma", "avx512f"}),
        "aarch64": frozenset({""}),
        "riscv64": frozenset({"f"}),
    },
    "half": {
        "x86-64": frozenset({"f16c", "avx512f", "avx512fp16"}),
        "aarch64": frozenset({""}),
        "riscv64": frozenset({"zvfhmin", "zvfh"}),
    },
    "ldexp": {"x86-64": frozenset({"avx512vl"})},
    "range": {"x86-64": frozenset({"avx512dq"})},
    "bf16": {"x86-64": frozenset({"avx512bf16"})},
    "mask": {"x86-64": frozenset({"avx512bw"})},
}

#: Caches of a machine that does not tell.
USUAL_CACHES: Mapping[str, int] = {
    "l1d_bytes": 32 << 10,
    "l1d_ways": 8,
    "l2_bytes": 1 << 20,
    "l2_ways": 8,
    "l3_bytes": 8 << 20,
    "line_bytes": 64,
}


@dataclass(frozen=True, slots=True)
class Hardware:
    """See the module's text.

    Attributes:
        arch: the architecture, as :func:`tilewright_cpu.target.architecture` names it.
        features: names of what the instruction set has, without signs.
        vector_bits, registers: of the vector registers that code uses.
        limits: bytes, ways and line length of the data caches, by the names of
        :data:`USUAL_CACHES`.
    """

    arch: str
    features: frozenset[str]
    vector_bits: int
    registers: int
    limits: Mapping[str, int] = field(default_factory=lambda: USUAL_CACHES, hash=False)

    def can(self, ability: str) -> bool:
        """Return whether there is an instruction for an ability.

        Abilities are ``fused`` multiply-add, conversion of ``half``, ``ldexp``, ``range``,
        conversion to ``bf16``, loads and stores of vectors of any element under a ``mask``.
        """
        wanted = _ABILITIES[ability].get(self.arch, frozenset())
        return "" in wanted or bool(wanted & self.features)

    @property
    def x86(self) -> bool:
        return self.arch == "x86-64"

    @property
    def vector_bytes(self) -> int:
        return self.vector_bits // 8

    @property
    def tables(self) -> bool:
        """Return whether an instruction looks up lanes of f32 in a vector register of sixteen."""
        return self.x86 and self.vector_bits == 512

    def limit(self, name: str) -> int:
        """A quantity of the caches, a usual one where the target does not state it."""
        return self.limits.get(name) or USUAL_CACHES[name]

    # ---- what follows

    @property
    def block(self) -> tuple[int, int]:
        """Rows and vectors of a matmul's register block: the most multiply-adds for a step's loads.

        A step reads ``vectors`` of B and one element of A a row, each used for all of the other
        side; so the best block is the one with the most accumulators for what it reads, among those
        that leave a register for each vector of B and one for the broadcast. Vectors are a power of
        two, so that the usual tiles have no remainder, and rows even.
        """
        return _block(self.registers)

    @property
    def far_bytes(self) -> int:
        """Distance of rows beyond which packing pays.

        Fewer than four such rows lie in one way of the L1 cache, so that reading a few dozen rows
        takes all ways of a few sets.
        """
        return self.limit("l1d_bytes") // self.limit("l1d_ways") // 4

    @property
    def tiled_panel_bytes(self) -> int:
        """Maximum size of a panel of B that a matrix unit reads.

        It is half of the L1 cache, beside rows of A and accumulators.
        """
        return self.limit("l1d_bytes") // 2

    @property
    def panel_bytes(self) -> int:
        """Maximum size of a panel of B that vector instructions read: an eighth of the L2 cache.

        A step along K takes as many cycles as it reads vectors of B, or more, and a panel is read
        straight through, so that the L2 cache delivers it in time. The larger it is, the fewer
        times accumulators are loaded and stored.
        """
        return self.limit("l2_bytes") // 8

    @property
    def packed_bytes(self) -> int:
        """Maximum size of a thread's packed-operand cache: half of its own L2 cache."""
        return self.limit("l2_bytes") // 2

    @property
    def kept_bytes(self) -> int:
        """Maximum size of packed rows of A that a thread keeps for the next columns.

        Beyond its own cache it reads them straight through at little cost.
        """
        return 4 * self.limit("l2_bytes")

    @property
    def column_rows(self) -> int:
        """Rows read side by side along K: as many as the L1 cache has ways.

        Rows may lie a power of two apart.
        """
        return min(8, self.limit("l1d_ways"))


@functools.cache
def _block(registers: int) -> tuple[int, int]:
    best, found = (0.0, 0), (2, 1)
    for vectors in (1, 2, 4):
        for rows in range(2, registers, 2):
            if rows * vectors + vectors + 1 <= registers:
                score = rows * vectors / (rows + vectors), rows * vectors
                if score > best:
                    best, found = score, (rows, vectors)
    return found


def hardware_of(target: Target) -> Hardware:
    """The hardware that a target describes.

    Its limit ``vector_bits`` narrows the vectors below what the features allow.
    """
    features = frozenset(feature[1:] for feature in target.features if feature.startswith("+"))
    unit = vector_unit(target.arch, features)
    bits = int(target.limits.get("vector_bits", unit.bits))
    registers = unit.registers
    if bits < unit.bits and target.arch == "x86-64" and "avx512vl" not in features:
        registers = 16
    return Hardware(
        target.arch,
        features,
        bits,
        registers,
        {name: int(target.limits.get(name, usual)) for name, usual in USUAL_CACHES.items()},
    )


def vector_unit(arch: str, features: frozenset[str]) -> VectorUnit:
    """The widest vectors of a processor with these features, named without signs."""
    return next(
        unit
        for unit in _VECTORS.get(arch, _USUAL_VECTORS)
        if not unit.feature or unit.feature in features
    )


# ---- processors by name

_V1 = ("cmov", "cx8", "fxsr", "mmx", "sse", "sse2")
_V2 = (*_V1, "cx16", "popcnt", "sahf", "sse3", "ssse3", "sse4.1", "sse4.2")
_V3 = (*_V2, "avx", "avx2", "bmi", "bmi2", "crc32", "f16c", "fma", "lzcnt", "movbe", "xsave")
_V4 = (*_V3, "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl")
_SERVER = (*_V4, "avx512vnni")
_AMX = ("avx512bf16", "avx512fp16", "amx-tile", "amx-int8", "amx-bf16")
_ARM = ("neon", "fp-armv8")
_ARM_DOT = (*_ARM, "lse", "fullfp16", "dotprod")
_ARM_V1 = (*_ARM_DOT, "bf16", "i8mm", "sve")
_RISCV = ("m", "a", "f", "d", "c")

#: Levels of the x86-64 psABI that code may be limited to, for machines of a fleet that share one
#: cache or to try a narrower instruction set.
LEVELS: dict[str, tuple[str, ...]] = {
    "x86-64": _V1,
    "x86-64-v2": _V2,
    "x86-64-v3": _V3,
    "x86-64-v4": _V4,
}


@dataclass(frozen=True, slots=True)
class Processor:
    """A processor that code can be made for by name.

    Attributes:
        arch: its architecture.
        cpu: LLVM's name.
        features: what code may use.
        caches: where they are not the usual ones.
    """

    arch: str
    cpu: str
    features: tuple[str, ...]
    caches: Mapping[str, int] = field(default_factory=dict)


def _caches(
    l1d_kib: int, l1d_ways: int, l2_kib: int, l2_ways: int, l3_mib: int, line_bytes: int = 64
) -> Mapping[str, int]:
    return {
        "l1d_bytes": l1d_kib << 10, "l1d_ways": l1d_ways, "l2_bytes": l2_kib << 10,
        "l2_ways": l2_ways, "l3_bytes": l3_mib << 20, "line_bytes": line_bytes,
    }  # fmt: skip


#: name -> processor. Caches as their makers document them.
NAMED: dict[str, Processor] = {
    **{name: Processor("x86-64", name, features) for name, features in LEVELS.items()},
    "skylake-avx512": Processor("x86-64", "skylake-avx512", _V4, _caches(32, 8, 1024, 16, 24)),
    "icelake-server": Processor("x86-64", "icelake-server", _SERVER, _caches(48, 12, 1280, 20, 36)),
    "sapphirerapids": Processor(
        "x86-64", "sapphirerapids", (*_SERVER, *_AMX), _caches(48, 12, 2048, 16, 60)
    ),
    "graniterapids": Processor(
        "x86-64", "graniterapids", (*_SERVER, *_AMX, "amx-fp16"), _caches(48, 12, 2048, 16, 120)
    ),
    "znver2": Processor("x86-64", "znver2", _V3, _caches(32, 8, 512, 8, 16)),
    "znver3": Processor("x86-64", "znver3", _V3, _caches(32, 8, 512, 8, 32)),
    "znver4": Processor("x86-64", "znver4", (*_SERVER, "avx512bf16"), _caches(32, 8, 1024, 8, 32)),
    "znver5": Processor(
        "x86-64", "znver5", (*_SERVER, "avx512bf16", "avxvnni"), _caches(48, 12, 1024, 16, 32)
    ),
    "aarch64": Processor("aarch64", "generic", _ARM),
    "neoverse-n1": Processor("aarch64", "neoverse-n1", _ARM_DOT, _caches(64, 4, 1024, 8, 32)),
    "neoverse-v1": Processor("aarch64", "neoverse-v1", _ARM_V1, _caches(64, 4, 1024, 8, 32)),
    "neoverse-v2": Processor(
        "aarch64", "neoverse-v2", (*_ARM_V1, "sve2"), _caches(64, 4, 2048, 8, 36)
    ),
    "apple-m1": Processor("aarch64", "apple-m1", _ARM_DOT, _caches(128, 8, 12288, 12, 8, 128)),
    "riscv64": Processor("riscv64", "generic-rv64", _RISCV),
    "riscv64-v": Processor("riscv64", "generic-rv64", (*_RISCV, "v", "zvl128b")),
}


def named_target(name: str) -> Target:
    """The target of a row of :data:`NAMED`."""
    processor = NAMED[name]
    unit = vector_unit(processor.arch, frozenset(processor.features))
    limits = {"vector_bits": unit.bits, **USUAL_CACHES, **processor.caches}
    return Target(
        "cpu",
        processor.arch,
        processor.cpu,
        tuple(f"+{feature}" for feature in processor.features),
        1,
        limits,
        kind="cpu",
    )
