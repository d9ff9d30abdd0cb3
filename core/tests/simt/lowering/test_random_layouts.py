"""Every operation's samples with tiles in random layouts, on machines of several warp sizes,
against the reference interpreter."""

from __future__ import annotations

import random
import zlib
from typing import Any

import numpy as np
import pytest

from tilewright.ir.core import Module
from tilewright.ir.types import TileType
from tilewright.reference.interpreter import run as run_reference
from tilewright.testing.random_layouts import run
from tilewright_conformance.op_samples import Sample, check_outputs, samples

#: Operations whose samples run, and the number of samples to skip after each one.
OPERATIONS = {
    **dict.fromkeys(("if", "for", "while", "call", "assume", "hint", "assert"), 1),
    **dict.fromkeys(
        (
            "splat",
            "unsplat",
            "broadcast",
            "expand_dims",
            "reshape",
            "permute",
            "cat",
            "join",
            "split",
            "gather",
            "histogram",
            "map",
        ),
        2,
    ),
    **dict.fromkeys(("arange", "constant", "program_id", "num_programs"), 1),
    **dict.fromkeys(("reduce", "scan"), 2),
    **dict.fromkeys(
        (
            "make_descriptor",
            "descriptor_load",
            "descriptor_store",
            "descriptor_reduce",
            "descriptor_gather",
            "descriptor_scatter",
        ),
        3,
    ),
    **dict.fromkeys(("load", "store", "atomic_rmw", "atomic_cas", "select", "cast", "add"), 19),
}
#: (warps, lanes of a warp)
MACHINES = ((1, 4), (2, 4), (8, 4), (4, 8), (1, 16), (2, 16), (1, 32), (1, 64))


#: Elements of the largest tile: every conversion of a large one in a few threads is thousands of
#: instructions.
LARGEST = 256


def is_fit(module: Module) -> bool:
    """Return whether extents are powers of two, and tiles are small."""
    types = [
        value.type
        for operation in module.walk()
        for value in (*operation.results, *operation.operands)
    ]
    tiles = [type_ for type_ in types if isinstance(type_, TileType)]
    return all(extent & (extent - 1) == 0 for tile in tiles for extent in tile.shape) and all(
        tile.numel <= LARGEST for tile in tiles
    )


def expanded(sample: Sample, arguments: list[Any]) -> list[Any]:
    """Arguments with descriptors as the values they become."""
    found: list[Any] = []
    for declared, argument in zip(sample.arguments, arguments, strict=True):
        found += (
            [argument.base, *map(int, argument.shape), *map(int, argument.strides)]
            if declared.kind == "descriptor"
            else [argument]
        )
    return found


@pytest.mark.sampled(19)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_samples_in_random_layouts(operation: str) -> None:
    runnable = [
        sample for sample in samples(operation) if sample.runnable and is_fit(sample.module)
    ]
    assert runnable
    for sample in runnable[:: OPERATIONS[operation] + 1]:
        seed = zlib.crc32(sample.name.encode())
        rng = random.Random(seed)
        num_warps, warp_size = rng.choice(MACHINES)
        expected, found = (sample.make_arguments(np.random.default_rng(seed)) for _ in range(2))
        run_reference(sample.module, expected, sample.grid)
        run(sample.module, expanded(sample, found), sample.grid, rng, num_warps, warp_size)
        check_outputs(sample, expected, found)
