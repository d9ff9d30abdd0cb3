"""Block sizes of matmuls: the candidate of a family that a model of its time prefers."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import Any

import tilewright as tw
from tilewright_kernels.operations.block_rules import BlockRule
from tilewright_kernels.operations.devices import Device

#: Minimum extent along K of a dot's tiles.
MIN_DOT_K = 16


@dataclass(frozen=True)
class Blocks:
    """Block sizes and launch options of a matmul.

    Attributes:
        m, n: extents of a block of the result: powers of two, or the sum of two for ``n`` of
            persistent programs.
        k: elements along K per iteration.
        num_warps: warps of a program.
        num_stages: stages of the multi-buffered operands.
        split: parts along K.
        is_persistent: whether each program computes several blocks, loaded through descriptors.
        ctas: CTAs of a program's cluster, which divide its rows and read its columns once.
    """

    m: int
    n: int
    k: int
    num_warps: int = 4
    num_stages: int = 3
    split: int = 1
    is_persistent: bool = False
    ctas: int = 1

    @property
    def first(self) -> int:
        """The columns of the first accumulator: the largest power of two in ``n``."""
        return 1 << self.n.bit_length() - 1

    @property
    def updates_by_rank_1(self) -> bool:
        """Return whether ``k`` is all of K, which is too small for the tiles of a dot."""
        return self.k < MIN_DOT_K

    @property
    def options(self) -> dict[str, Any]:
        """The launch options."""
        cluster = {"num_ctas": self.ctas} if self.ctas > 1 else {}
        return {"num_warps": self.num_warps, "num_stages": self.num_stages, **cluster}


@dataclass(frozen=True)
class _Family:
    """Rates of a processor of a family, and candidates for operands of 16 bits.

    Attributes:
        multiplications: multiplications and additions per cycle of 16-bit operands.
        cache_bytes: bytes per cycle from the L2 cache to a processor.
        memory_bytes: bytes per cycle from memory to all processors.
        start: cycles before the first multiplication of a block and after the last.
        candidates: blocks for many rows.
        descriptor_candidates: more of them, of persistent programs of matmuls.
        cluster_candidates: those of clusters, where the L2 cache bounds the time.
        by_pointers: time of an iteration of programs that do not persist, by that of those that do.
    """

    multiplications: int
    cache_bytes: int
    memory_bytes: int
    start: int
    candidates: tuple[Blocks, ...]
    descriptor_candidates: tuple[Blocks, ...] = ()
    by_pointers: float = 1.0
    cluster_candidates: tuple[Blocks, ...] = ()


_AMPERE = (
    Blocks(128, 256, 32, 8, 3),
    Blocks(128, 128, 32, 4, 4),
    Blocks(128, 128, 64, 8, 3),
    Blocks(128, 64, 64, 4, 3),
    Blocks(64, 128, 64, 4, 3),
    Blocks(64, 64, 64, 4, 4),
)
_CDNA = (
    Blocks(256, 256, 32, 8, 2),
    Blocks(128, 256, 32, 8, 2),
    Blocks(128, 128, 64, 4, 2),
    Blocks(128, 64, 64, 4, 2),
    Blocks(64, 64, 64, 4, 2),
)
_RDNA = (
    Blocks(128, 128, 32, 8, 2),
    Blocks(64, 128, 32, 4, 2),
    Blocks(128, 64, 32, 4, 2),
    Blocks(64, 64, 32, 4, 2),
)
_HOPPER = (
    Blocks(128, 256, 64, 8, 4, is_persistent=True),
    Blocks(128, 256, 64, 8, 4),
    Blocks(128, 128, 64, 4, 5),
    Blocks(128, 64, 64, 4, 6),
    Blocks(64, 256, 64, 4, 4),
    Blocks(64, 128, 64, 4, 6),
    Blocks(64, 64, 64, 4, 8),
)
#: For any matmul: two accumulators make blocks of 160 and 192 columns, for fuller last rounds.
_HOPPER_DESCRIPTORS = (
    Blocks(256, 128, 64, 8, 4, is_persistent=True),
    Blocks(256, 192, 64, 8, 3, is_persistent=True),
    Blocks(256, 160, 64, 8, 4, is_persistent=True),
    Blocks(128, 192, 64, 8, 5, is_persistent=True),
    Blocks(128, 160, 64, 8, 5, is_persistent=True),
    Blocks(128, 128, 64, 8, 6, is_persistent=True),
    Blocks(128, 64, 64, 8, 8, is_persistent=True),
    Blocks(64, 128, 64, 4, 8, is_persistent=True),
)
_HOPPER_CLUSTERS = (
    Blocks(256, 192, 64, 8, 4, is_persistent=True, ctas=2),
    Blocks(256, 256, 64, 8, 4, is_persistent=True, ctas=2),
    Blocks(128, 128, 64, 4, 8, is_persistent=True, ctas=2),
)
#: For groups of rows, beside blocks of 128x256, and the part of their time that is less for sure:
#: the number of blocks is known on the average only.
_NARROWER = Blocks(128, 192, 64, 8, 5, is_persistent=True)
_CLEARLY = 0.95
#: For groups along K, whose operands' rows are along K.
_K_GROUPED = (
    Blocks(128, 256, 64, 8, 4, is_persistent=True),
    Blocks(128, 128, 64, 8, 5, is_persistent=True),
)
#: Rows and columns of a result from which persistent programs compute it.
_SMALLEST_PERSISTENT = 128
_FAMILIES = {
    "hopper": _Family(2048, 70, 2100, 1600, _HOPPER, _HOPPER_DESCRIPTORS, 1.1, _HOPPER_CLUSTERS),
    "blackwell": _Family(4096, 64, 4000, 3000, _HOPPER),
    "ampere": _Family(1024, 40, 1100, 1500, _AMPERE),
    "ada": _Family(512, 32, 400, 1500, _AMPERE),
    "cdna2": _Family(1024, 64, 950, 2500, _CDNA),
    "cdna3": _Family(1024, 64, 2500, 2500, _CDNA),
    "cdna4": _Family(2048, 64, 3300, 2500, _CDNA),
    "rdna3": _Family(512, 64, 400, 2000, _RDNA),
    "rdna4": _Family(1024, 64, 250, 2000, _RDNA),
}
#: Rows up to which reading B bounds the time.
FEW_ROWS = 64
#: Parts along K at most.
MOST_PARTS = 16
#: Elements along K of a loop in which starting and ending take much of the time.
SHORT_LOOP = 512
#: A block of a sum of rank-1 updates on a CPU: the rows of B that it reads again for each row of C
#: take a third of the nearest cache.
_SUM_ROWS, _SUM_COLUMNS = 64, 512
#: Rows up to which a CPU reads B in place, and the columns of a block of as many.
_STREAMING_ROWS = 8
_STREAMED_COLUMNS = 1024
#: Part of the cost of copies that multiplications do not hide.
_EXPOSED = 0.05
#: Bytes at whose multiples rows lie in as few lines of the cache as there can be.
LINE = 128
#: Alignment of rows -> cost of the lines that they straddle: 128 bytes at a multiple of 32 are in
#: four sectors of the cache, and others in five.
_STRADDLING = {16: 2.3, 32: 1.6, 64: 1.6, LINE: 1.0}
#: Bytes to whose multiples steps between rows must be known so that pointers become descriptors.
_KNOWN = 32


@functools.lru_cache(4096)
def matmul_blocks(
    m: int,
    n: int,
    k: int,
    bits: int,
    device: Device,
    *,
    batch: int = 1,
    may_split: bool = True,
    may_persist: bool = False,
    is_invariant: bool = False,
    columns: int = 1,
    may_widen: bool = False,
    may_cluster: bool = False,
    alignment: int = LINE,
    b_is_row_major: bool = False,
    may_update_by_rank_1: bool = False,
) -> Blocks:
    """Return the blocks of a matmul.

    Args:
        m, n, k: extents.
        bits: of an element of the wider operand.
        device: that it runs on.
        batch: number of matmuls.
        may_split: whether K may be divided among programs.
        may_persist: whether operands and result can be accessed through descriptors.
        is_invariant: whether the choice must be the same for any ``m`` and ``batch``.
        columns: the power of two that columns of a block must be a multiple of.
        may_widen: whether columns of a block of persistent programs may be those of two
            accumulators, the sum of two powers of two.
        may_cluster: whether a program may be that of a cluster.
        alignment: the power of two up to 128 bytes at whose multiples rows of operands begin.
        b_is_row_major: whether rows of the right operand are contiguous, on a CPU.
        may_update_by_rank_1: whether a kernel that adds up rank-1 updates for the smallest K is
            faster, on a CPU.
    """
    if device.family == "cpu":
        rows, count = (64, 1) if is_invariant else (m, batch)
        if may_update_by_rank_1 and 0 < k <= _rank_1_updates(bits):
            return _rank_1_blocks(rows, n, k, count, device, columns)
        return _cpu_blocks(rows, n, k, count, device, columns, b_is_row_major)
    family = _FAMILIES[device.family]
    candidates = [
        each
        for each in (
            *family.candidates,
            *(family.descriptor_candidates if may_widen else ()),
            *(family.cluster_candidates if may_cluster and alignment < LINE else ()),
        )
        if each.n % columns == 0 and (may_persist or not each.is_persistent)
    ] or [replace(family.candidates[-1], n=columns)]
    if is_invariant:
        wide = [each for each in candidates if each.n > 64 and not each.is_persistent]
        chosen = min(wide, key=lambda each: (each.m * each.n, each.m))
        return _of_type(chosen, bits)
    if m <= FEW_ROWS:
        return _few_rows_blocks(m, n, k, bits, device, batch, may_split, columns)
    persistent = [each for each in candidates if each.is_persistent]
    if persistent and alignment < _KNOWN:
        candidates = persistent
    best = min(
        (
            (
                _cycles(each, split, m, n, k, bits, batch, device.processors, family, alignment),
                number,
                split,
            )
            for number, each in enumerate(candidates)
            for split in _splits(each, k, bits, may_split and not each.is_persistent)
        )
    )
    return _of_type(replace(candidates[best[1]], split=best[2]), bits)


def grouped_blocks(
    m: int,
    n: int,
    k: int,
    bits: int,
    device: Device,
    n_groups: int,
    *,
    may_widen: bool = False,
    is_invariant: bool = False,
) -> Blocks:
    """Return the blocks of matmuls of contiguous groups of rows.

    The last block of a group has half of its rows, on the average. With these blocks counted, 192
    columns in place of 256 may make clearly fuller rounds, where these are few.

    Args:
        m: rows of a group, on the average.
        n, k: extents.
        bits: of an element.
        device: that it runs on.
        n_groups: number of groups.
        may_widen: whether columns of a block may be those of two accumulators.
        is_invariant: whether the choice must be the same for any ``m`` and ``n_groups``.
    """
    found = matmul_blocks(
        m, n, k, bits, device, batch=n_groups, may_split=False, is_invariant=is_invariant
    )
    if device.family != "hopper" or not may_widen or bits != 16 or (found.m, found.n) != (128, 256):
        return found
    rows = m * n_groups + n_groups * found.m // 2
    wide, narrow = (
        _cycles(each, 1, rows, n, k, bits, 1, device.processors, _FAMILIES[device.family], LINE)
        for each in (replace(found, is_persistent=True), _NARROWER)
    )
    return _NARROWER if narrow < _CLEARLY * wide else found


def k_grouped_blocks(
    m: int,
    n: int,
    k: int,
    bits: int,
    device: Device,
    n_groups: int,
    *,
    may_persist: bool = False,
    is_invariant: bool = False,
) -> Blocks:
    """Return the blocks of matmuls of groups along K.

    Persistent programs load a block's operands while the previous one is stored. Groups differ, so
    that some programs have about a round more to do than the average. Other blocks are so small, in
    loops of few iterations, that several programs of a processor hide each other's first loads and
    last stores.

    Args:
        m, n: extents of a result.
        k: rows of a group, on the average.
        bits: of an element.
        device: that it runs on.
        n_groups: number of groups.
        may_persist: whether operands and result can be accessed through descriptors.
        is_invariant: whether the choice must be the same for any ``k`` and ``n_groups``.
    """
    if may_persist and bits == 16 and min(m, n) >= _SMALLEST_PERSISTENT:
        family = _FAMILIES[device.family]
        return min(
            _K_GROUPED,
            key=lambda each: _cycles(
                each, 1, m, n, k, bits, n_groups, device.processors, family, LINE, more_rounds=1
            ),
        )
    is_short = k <= SHORT_LOOP and min(m, n) >= 128 and not is_invariant
    if device.family == "hopper" and is_short:
        return _of_type(Blocks(128, 128, 32, 4, 3), bits)
    return matmul_blocks(
        m, n, k, bits, device, batch=n_groups, may_split=False, is_invariant=is_invariant
    )


def _splits(blocks: Blocks, k: int, bits: int, may_split: bool) -> range:
    steps = tw.cdiv(k, max(blocks.k * 16 // bits, 16))
    return range(1, min(MOST_PARTS, max(steps // 4, 1)) + 1 if may_split else 2)


def _cycles(
    blocks: Blocks,
    split: int,
    m: int,
    n: int,
    k: int,
    bits: int,
    batch: int,
    processors: int,
    family: _Family,
    alignment: int,
    more_rounds: int = 0,
) -> float:
    """Return the modelled cycles: rounds of the busiest processor, the cache's, or the memory's.

    Instructions for few columns wait for the left operand, which each accumulator reads again.
    """
    tiles = tw.cdiv(m, blocks.m) * tw.cdiv(n, blocks.n) * batch
    inner = max(blocks.k * 16 // bits, 16)
    steps = tw.cdiv(tw.cdiv(k, inner), split)
    second, rows = blocks.n - blocks.first, blocks.m // blocks.ctas
    columns = blocks.n + (512 // second if second else 0)
    multiplied = rows * columns * inner * bits / 16 / family.multiplications
    copied = (rows + blocks.n) * inner * bits / 8 / family.cache_bytes
    stored = rows * blocks.n * (4 if split > 1 else bits / 8) / family.cache_bytes
    iteration = max(multiplied, copied) + _EXPOSED * copied
    rounds = tw.cdiv(tiles * split, processors // blocks.ctas) + more_rounds
    if blocks.is_persistent:
        computed = rounds * (steps * iteration + 2 * stored) + family.start
    else:
        computed = rounds * (steps * iteration * family.by_pointers + family.start + stored)
    lines = tiles * (blocks.m + blocks.n) * k * bits / 8 / family.cache_bytes / processors
    computed = max(computed, lines * _STRADDLING[max(alignment, 16)])
    moved = batch * (m * k + n * k + m * n) * bits / 8
    summed = 0.0
    if split > 1:
        summed = family.start * 2 + batch * m * n * 4 * (2 * split + 1) / family.memory_bytes
    return max(computed, moved / family.memory_bytes) + summed


def _few_rows_blocks(
    m: int,
    n: int,
    k: int,
    bits: int,
    device: Device,
    batch: int,
    may_split: bool,
    minimum_columns: int,
) -> Blocks:
    """Return blocks for which enough loads of B are in flight."""
    rows = max(16, tw.next_power_of_2(m))
    is_narrow = rows <= 32 and tw.cdiv(n, 32) * batch < 1.5 * device.processors
    columns = 16 if is_narrow else 32
    inner = (256 if is_narrow else 128) * 16 // bits
    if device.family[:4] in ("cdna", "rdna"):
        columns = 32
    columns = max(columns, minimum_columns)
    programs = tw.cdiv(n, columns) * batch
    if device.family[:4] in ("cdna", "rdna"):
        stages = 2
    else:
        # all programs of a processor share its memory for operands: where they do not fit at the
        # same time, the last of them run alone, with too few loads in flight
        if device.family in ("hopper", "blackwell"):
            room = min(160, 216 // min(max(tw.cdiv(programs, device.processors), 1), 3)) << 10
        else:
            room = 80 << 10
        stages = 4 if is_narrow else 6
        stages = max(2, min(stages, room // ((rows + columns) * inner * bits // 8)))
    split = 1
    if may_split:
        steps = tw.cdiv(k, inner)
        split = max(1, min(device.processors // max(programs, 1), MOST_PARTS, steps // 4))
    return Blocks(rows, columns, max(inner, 16), 4, stages, split)


def _of_type(blocks: Blocks, bits: int) -> Blocks:
    """Return blocks of the same bytes along K for elements of a number of bits."""
    return replace(blocks, k=max(blocks.k * 16 // bits, 16))


def _cpu_blocks(
    m: int,
    n: int,
    k: int,
    batch: int,
    device: Device,
    minimum_columns: int,
    b_is_row_major: bool,
) -> Blocks:
    """Return blocks that occupy all threads, the largest where there are enough.

    Few rows stream B: in blocks of up to 4 KiB of its rows, each page is looked up a few times.
    """
    rows = min(128, max(16, tw.next_power_of_2(m)))
    widest = _STREAMED_COLUMNS if b_is_row_major and m <= _STREAMING_ROWS else 128
    columns = max(min(widest, max(16, tw.next_power_of_2(n))), minimum_columns)
    inner = min(64, max(16, tw.next_power_of_2(k)))

    def programs() -> int:
        return tw.cdiv(m, rows) * tw.cdiv(n, columns) * batch

    narrowest = max(32, minimum_columns)
    while programs() < device.processors and (rows > 32 or columns > narrowest):
        if rows > columns or columns <= narrowest:
            rows //= 2
        else:
            columns //= 2
    return Blocks(rows, columns, inner)


def _rank_1_updates(bits: int) -> int:
    """Return how many rank-1 updates a CPU adds up at most: each row of C converts narrow ones."""
    return 8 if bits >= 32 else 4


def _rank_1_blocks(
    m: int, n: int, k: int, batch: int, device: Device, minimum_columns: int
) -> Blocks:
    """Return blocks of which the rows of B lie in the nearest cache while rows of C are written."""
    rows = min(_SUM_ROWS, tw.next_power_of_2(m))
    columns = max(min(_SUM_COLUMNS, tw.next_power_of_2(n)), minimum_columns)

    def programs() -> int:
        return tw.cdiv(m, rows) * tw.cdiv(n, columns) * batch

    while programs() < device.processors and rows > 8:
        rows //= 2
    return Blocks(rows, columns, k)


#: The blocks of matmuls that nothing else bounds: by the model, or by a record.
plain_matmul_blocks = BlockRule("matmul", matmul_blocks, rounded=("m", "batch"))
