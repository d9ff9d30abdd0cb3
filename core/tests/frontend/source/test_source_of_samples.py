"""Source of the op table's samples and of random programs: the same operations, or the same bits.

Where the language has other operations for the same values, such as f32 for an extremum of bf16,
both modules run on the reference.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from source_round_trip import color, round_trip

from tilewright.frontend.source.source_rows import SourceError
from tilewright.ir import TABLE
from tilewright.ir.core import Module
from tilewright.reference.interpreter import run
from tilewright_conformance.op_samples import samples
from tilewright_conformance.random_programs import PORTABLE, random_program

#: What the language refuses of the samples: other errors are defects.
_REFUSED = (
    "aligned to 16 bytes",
    "powers of two",
    "does not take",
    "takes operands of one type",
    "takes no",
    "tiles of one shape",
    "no function of the language",
    "refuses the prefix",
)
#: Programs have no descriptors: theirs are not aligned.
_PROGRAMS = replace(PORTABLE, features=PORTABLE.features - {"descriptors"})


def agree(
    module: Module, arguments: Callable[[], Sequence[Any]], grid: tuple[int, int, int]
) -> bool:
    """Check that the source computes the same; return whether the language has such a source."""
    try:
        original, again, text = round_trip(module)
    except SourceError as error:
        assert any(part in str(error) for part in _REFUSED), error
        return False
    if color(original) == color(again):
        return True
    found = []
    for one in (original, again):
        values = arguments()
        run(one, values, grid)
        found.append([x.tobytes() for x in map(array_of, values) if x is not None])
    assert found[0] == found[1], text
    return True


def array_of(value: Any) -> np.ndarray[Any, Any] | None:
    """Return the array of an argument, or that a descriptor is of."""
    array = value if isinstance(value, np.ndarray) else getattr(value, "base", None)
    return array if isinstance(array, np.ndarray) else None


def check_samples(name: str, most: int) -> None:
    found = list(samples(name))
    if len(found) > most:
        found = random.Random(name).sample(found, most)
    kept = [
        agree(
            sample.module,
            lambda sample=sample: sample.make_arguments(np.random.default_rng(0)),
            sample.grid,
        )
        for sample in found
    ]
    assert kept


@pytest.mark.parametrize("name", [spec.name for spec in TABLE])
def test_some_samples_of_each_operation_compute_the_same(name: str) -> None:
    check_samples(name, 6)


@pytest.mark.full
@pytest.mark.parametrize("name", [spec.name for spec in TABLE])
def test_all_samples_of_each_operation_compute_the_same(name: str) -> None:
    check_samples(name, 10_000)


def check_programs(seeds: range) -> None:
    kept = 0
    for seed in seeds:
        program = random_program(seed, _PROGRAMS, 12)
        kept += agree(program.module, program.arguments, program.grid)
    assert kept > 0.9 * len(seeds)


def test_random_programs_compute_the_same_bits() -> None:
    check_programs(range(24))


@pytest.mark.slow
@pytest.mark.full
def test_many_random_programs_compute_the_same_bits() -> None:
    check_programs(range(24, 300))
