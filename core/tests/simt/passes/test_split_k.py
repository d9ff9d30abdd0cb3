"""Matmuls split along K, on targets with too little shared memory for whole ones."""

from __future__ import annotations

import numpy as np
import pytest
from matmul_kernels import dot_module

from tilewright.errors import OutOfResources
from tilewright.ir import Module
from tilewright.ir.types import F32, TileType
from tilewright.simt import emulator
from tilewright.simt.compile import compile_fitting, compile_kernel, kernel_of
from tilewright.simt.dialect.attributes import SHARED_BYTES, notes_of
from tilewright.simt.passes.split_k import slice_along_k

OPTIONS = {"num_warps": 2, "num_stages": 1, "enable_fp_fusion": False}


class Small(emulator.EmulatedTarget):
    def __init__(self, memory: int) -> None:
        super().__init__(8, memory)


def module(batches: tuple[int, ...], k: int) -> Module:
    return dot_module(
        *(TileType((*batches, *shape), F32) for shape in ((16, k), (k, 8), (16, 8))), chain=2
    )


@pytest.mark.each_value
@pytest.mark.parametrize("batches", [(), (2,)], ids=str)
@pytest.mark.parametrize(
    ("k", "part", "pieces"), [(64, 4, 2), (256, 6, 4), (256, 12, 2), (256, 0, 8)]
)
def test_pieces_take_less_memory_and_give_the_same_sums(
    batches: tuple[int, ...], k: int, part: int, pieces: int
) -> None:
    count = int(np.prod(batches, dtype=int))
    whole, made = module(batches, k), module(batches, k)
    assert slice_along_k(kernel_of(made), part * 1024 * count)
    assert sum(operation.name == "dot" for operation in kernel_of(made).walk()) == 2 * pieces
    rng = np.random.default_rng(k)
    given = [
        rng.normal(size=(*batches, *shape)).astype(np.float32)
        for shape in ((16, k), (k, 8), (16, 8))
    ]
    results, memory = [], []
    for each in (whole, made):
        text = compile_kernel(each, Small(1 << 20), OPTIONS)
        results.append(np.full_like(given[2], np.nan))
        memory.append(kernel_of(each).attributes[SHARED_BYTES])
        emulator.run_text(
            text,
            Small(1 << 20),
            [argument.type for argument in kernel_of(each).arguments],
            [*given, results[-1]],
            (1, 1, 1),
            2,
        )
    np.testing.assert_array_equal(results[0], results[1])
    np.testing.assert_allclose(
        results[0], 2 * (given[0].astype(np.float64) @ given[1]) + given[2], atol=1e-4 * k
    )
    assert memory[1] <= memory[0] // pieces


def test_a_program_that_needs_too_much_is_compiled_in_pieces() -> None:
    given = module((), 256)
    before, needed = str(given), 24 * 256 * 4
    made, _ = compile_fitting(given, Small(needed - 16), OPTIONS)
    assert str(given) == before and kernel_of(made).attributes[SHARED_BYTES] <= needed // 2
    assert {text for _, text in notes_of(kernel_of(made)) if "pieces" in text} == {
        "in 2 pieces along K, for want of shared memory"
    }
    made, _ = compile_fitting(given, Small(needed), OPTIONS)
    assert not [text for _, text in notes_of(kernel_of(made)) if "pieces" in text]


def test_what_does_not_fit_in_pieces_either_is_said_as_it_was_asked() -> None:
    with pytest.raises(OutOfResources, match="Required: 24576, Hardware limit: 1024"):
        compile_fitting(module((), 256), Small(1024), OPTIONS)
