"""Block sizes of attention kernels, by a rule from head dimension, type and device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import tilewright as tw
from tilewright_kernels.operations.block_rules import block_rule
from tilewright_kernels.operations.devices import Device


@dataclass(frozen=True)
class AttentionBlocks:
    """Block sizes and launch options of an attention kernel.

    Attributes:
        m: rows of queries in a block.
        n: keys in a block.
        num_warps: warps of a program.
        num_stages: stages of the multi-buffered operands.
    """

    m: int
    n: int
    num_warps: int
    num_stages: int

    @property
    def constants(self) -> dict[str, Any]:
        """The constants and options of a launch."""
        return {
            "M": self.m,
            "N": self.n,
            "num_warps": self.num_warps,
            "num_stages": self.num_stages,
        }


#: What a block of rows takes besides its keys, in blocks of keys, alone and persistently: an H200
#: had 3.1 alone.
_BESIDE_KEYS = (3.0, 1.5)

#: What a part of latent rows takes besides them, in rows, as fitted to an H200.
_BESIDE_ROWS = 256
#: What a merge of parts takes in all, and for each program of a processor, in latent rows.
_MERGE = (160, 150)


def padded_head(dims: int) -> int:
    """Return the extent of tiles that hold heads of ``dims`` elements."""
    return max(int(tw.next_power_of_2(dims)), 16)


@block_rule("attention", rounded=("n_q", "n_k"))
def forward_blocks(
    n_q: int, n_k: int, dims: int, itemsize: int, is_causal: bool, device: Device
) -> AttentionBlocks:
    """Return the blocks of the forward pass.

    ``dims`` is the larger extent of padded heads. Blocks of keys divide those of queries.
    """
    if device.family == "cpu":
        side = 64 if itemsize > 2 or is_causal else 128
        return AttentionBlocks(_fitting(n_q, side, 16), _fitting(min(n_q, n_k), side, 16), 1, 1)
    if itemsize > 2:
        m, n = (32, 32) if dims <= 128 else (16, 16)
        return AttentionBlocks(m, n, 4, 2)
    if device.family in ("hopper", "blackwell"):
        if n_q <= 64:
            return AttentionBlocks(64, 64, 4, 2)
        if 64 < dims <= 128:
            return AttentionBlocks(128, 128, 8, 2)
        # for 64 dims, two programs of an SM, whose first and last blocks overlap
        return AttentionBlocks(128, 64, 8, 2)
    if device.family.startswith(("cdna", "rdna")):
        return AttentionBlocks(_fitting(n_q, 128 if dims <= 128 else 64, 16), 32, 4, 1)
    m = _fitting(n_q, 128 if dims <= 128 else 64, 16)
    return AttentionBlocks(m, min(m, 64 if dims <= 64 else 32), 4, 3 if dims <= 64 else 2)


def forward_programs(
    tiles: int, n_k: int, blocks: AttentionBlocks, dims: int, itemsize: int, is_causal: bool,
    device: Device,
) -> int:  # fmt: skip
    """Return the number of persistent programs for ``tiles`` blocks of rows, 0 for one a block.

    They pay where a processor has room for one program: the next block's first keys and queries
    arrive while results are stored. Causal ones take two blocks at a time, and wait for those with
    one more; single programs start where one has ended.
    """
    keys = n_k / blocks.n / (2 if is_causal else 1)
    if device.family != "hopper" or itemsize > 2 or not 64 < dims <= 128:
        return 0
    each = 2 if is_causal else 1
    rounds = tw.cdiv(tw.cdiv(tiles, each), device.processors)
    alone = tiles / device.processors if is_causal else rounds
    is_faster = rounds * each * (keys + _BESIDE_KEYS[1]) < alone * (keys + _BESIDE_KEYS[0])
    return device.processors if is_faster else 0


def fuses_gradients(dims: int, itemsize: int, device: Device) -> bool:
    """Return whether one kernel computes all gradients, where it may add in any order.

    It pays where copies add to memory asynchronously, and where the sums of dK and dV and two
    tiles of scores fit in registers.
    """
    return device.family in ("hopper", "blackwell") and itemsize == 2 and dims <= 128


@block_rule("attention_gradients")
def fused_blocks(dims: int, device: Device) -> AttentionBlocks:
    """Return the blocks of the kernel of all gradients."""
    if device.family == "cpu":
        return AttentionBlocks(64, 64, 1, 1)
    return AttentionBlocks(128 if dims <= 64 else 64, 128, 8, 2)


@block_rule("attention_key_gradients")
def key_blocks(dims: int, itemsize: int, device: Device) -> AttentionBlocks:
    """Return the blocks of the kernel of the gradients of keys and values."""
    if device.family == "cpu":
        return AttentionBlocks(64, 64, 1, 1)
    if itemsize > 2:
        return AttentionBlocks(*((32, 32) if dims <= 64 else (16, 16)), 4, 1)
    if device.family in ("hopper", "blackwell"):
        if dims <= 64:
            # two programs of an SM; a warp's lanes hold the sums of 32 rows
            return AttentionBlocks(32, 128, 4, 3)
        return AttentionBlocks(64, 128, 8, 2) if dims <= 128 else AttentionBlocks(64, 64, 8, 1)
    return AttentionBlocks(32, 64 if dims <= 128 else 32, 4, 1)


@block_rule("attention_query_gradients")
def query_blocks(dims: int, itemsize: int, device: Device) -> AttentionBlocks:
    """Return the blocks of the kernel of the gradient of queries."""
    if device.family == "cpu":
        return AttentionBlocks(64, 64, 1, 1)
    if itemsize > 2:
        return AttentionBlocks(*((32, 32) if dims <= 64 else (16, 16)), 4, 1)
    if device.family in ("hopper", "blackwell"):
        if dims <= 64:
            return AttentionBlocks(128, 32, 4, 3)
        return AttentionBlocks(128, 64, 8, 3) if dims <= 128 else AttentionBlocks(64, 64, 8, 1)
    return AttentionBlocks(64 if dims <= 128 else 32, 32, 4, 1)


@block_rule("attention_bias_gradient")
def bias_blocks(dims: int, itemsize: int, of_scores: bool, device: Device) -> AttentionBlocks:
    """Return the blocks of the kernel of the gradient of a bias, ``of_scores`` if none share it."""
    if device.family == "cpu":
        return AttentionBlocks(64, 64, 1, 1)
    if itemsize > 2:
        return AttentionBlocks(*((32, 32) if dims <= 64 else (16, 16)), 4, 1)
    if device.family in ("hopper", "blackwell"):
        if dims > 128:
            return AttentionBlocks(64, 64, 8, 1)
        # several programs on an SM: some store while others compute
        return AttentionBlocks(64, 64, 4, 2) if of_scores else AttentionBlocks(128, 64, 8, 2)
    return AttentionBlocks(64 if dims <= 128 else 32, 32, 4, 1)


def bias_columns(rows: int, columns: int, device: Device) -> int:
    """Return how many of ``columns`` blocks a program computes of the gradient of a bias.

    ``rows`` is the number of blocks of rows of all heads and batches. Loads of the next block are
    in flight while a program computes one; 32 programs for each processor, which holds up to four
    at a time, balance the load of masks.
    """
    return max(min(tw.cdiv(rows * columns, 32 * device.processors), columns), 1)


def _fitting(extent: int, maximum: int, minimum: int) -> int:
    """Return the power of two from ``minimum`` to ``maximum`` that holds an extent, if one does."""
    return max(min(int(tw.next_power_of_2(max(extent, 1))), maximum), minimum)


@block_rule("attention_with_kv_cache", rounded=("pairs", "n_k"))
def decode_blocks(
    pairs: int, n_k: int, dims: int, itemsize: int, page: int, device: Device, rope: int = 0
) -> AttentionBlocks:
    """Return the blocks over a cache, for ``pairs`` of rows and heads that share keys.

    ``rope`` is how many elements keys have that the values, which are in them, have not.
    """
    if device.family == "cpu":
        return AttentionBlocks(_fitting(pairs, 64, 1), 64, 1, 1)
    if itemsize > 2:
        return AttentionBlocks(16, 16 if dims > 128 else 32, 4, 1)
    m = _fitting(pairs, 64 if dims <= 256 else 16, 16)
    if dims > 256:
        if rope and dims + rope <= 576 and device.family == "hopper":
            if pairs > 32:
                # 64 heads read a block of keys once, and their matmuls are those of warpgroups
                return AttentionBlocks(64, 64 if page >= 64 else 32, 8, 2)
            return AttentionBlocks(m, 32, 8, 4)
        return AttentionBlocks(m, 32, 8, 2)
    if device.family in ("hopper", "blackwell", "ampere"):
        n = 64 if dims <= 128 else 32
        return AttentionBlocks(m, n, 4, 3 if dims <= 128 else 2)
    return AttentionBlocks(m, 32, 4, 1)


def latent_blocks(page: int, device: Device) -> AttentionBlocks:
    """Return the blocks over a cache of latent rows by TMA: of heads, and of rows of one page.

    ``page`` is 0 without pages.
    """
    return AttentionBlocks(64, 32, 8, 4) if page % 64 else AttentionBlocks(64, 64, 8, 2)


def latent_parts(programs: int, n_k: int, n: int, device: Device) -> int:
    """Return the number of parts of ``n_k`` latent rows that minimizes the time.

    There are ``programs`` for each part, one at a time on a processor. A part has a minimum of 4
    blocks of ``n`` rows, if there are so many.
    """

    def rows(parts: int) -> float:
        rounds = tw.cdiv(programs * parts, device.processors)
        merge = _MERGE[0] + _MERGE[1] * programs * parts / device.processors if parts > 1 else 0
        return rounds * (tw.cdiv(n_k, parts) + _BESIDE_ROWS) + merge

    return min(range(1, max(min(n_k // (4 * n), 64), 1) + 1), key=rows)


def decode_parts(programs: int, n_k: int, n: int, dims: int, device: Device) -> int:
    """Return how many parts of ``n_k`` keys keep a device busy with ``programs`` for each part."""
    if device.family == "cpu":
        wanted = -(-device.processors // max(programs, 1))
    else:
        # a processor has room for one program of the largest heads
        wanted = (4 if dims <= 256 else 2) * device.processors // max(programs, 1)
    longest = max(n_k // (4 * n), 1)
    return max(min(wanted, longest, 64), 1)
