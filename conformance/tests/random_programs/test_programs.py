"""Random programs hold to what a backend declares, are defined, and are made of the whole
language."""

from __future__ import annotations

import dataclasses
from collections import Counter

import numpy as np
import pytest

from tilewright.ir import TABLE
from tilewright.ir.types import (
    BF16,
    F16,
    F32,
    I32,
    FloatType,
    IntType,
    TileType,
    Type,
    element_type,
)
from tilewright.plugins.manifest import Capabilities
from tilewright.plugins.registry import registry
from tilewright.reference.checks.checked_mode import CheckedOptions
from tilewright.reference.interpreter import run
from tilewright.reference.numerics import encode
from tilewright_conformance.random_programs import (
    PORTABLE,
    Output,
    is_guard,
    mismatch,
    random_program,
)
from tilewright_conformance.random_programs.program import FILLS
from tilewright_conformance.suite.requirements import needs_of

#: Operations that programs are not made of: what they print, or what they read of the machine, is
#: not the same everywhere.
ABSENT = {"print", "clock", "inline_asm", "extern"}


def test_programs_are_made_of_the_whole_table() -> None:
    found: Counter[str] = Counter()
    for number in range(250):
        found.update(
            {
                operation.name
                for operation in random_program(
                    number, registry().get("cpu").manifest.capabilities
                ).module.walk()
            }
        )
    assert {spec.name for spec in TABLE} - ABSENT <= set(found), sorted(
        {spec.name for spec in TABLE} - ABSENT - set(found)
    )
    assert not ABSENT & set(found)


def test_programs_gather_rows_by_indices_that_they_use_again() -> None:
    """At every number of stages, in loops over matmuls."""
    stages: set[int] = set()
    for number in range(120):
        for loop in random_program(number).module.walk():
            if loop.name != "for" or not any(
                operation.name == "dot" for operation in loop.regions[0]
            ):
                continue
            indices = [
                operation.results[0]
                for operation in loop.regions[0]
                if operation.name == "load" and element_type(operation.results[0].type) is I32
            ]
            if any(sum(index.uses.values()) > 1 for index in indices):
                stages.add(loop.attributes["num_stages"])
    assert stages == {1, 2, 3, 4}


def test_programs_are_defined() -> None:
    for number in range(1000, 1060):
        program = random_program(number)
        with np.errstate(all="ignore"):
            run(
                program.module,
                program.arguments(),
                program.grid,
                checked=CheckedOptions(overflow=False),
            )


SMALL = Capabilities(dtypes=frozenset({"i1", "i32", "i64", "f32"}), max_tile_elements=256)


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "capabilities",
    [
        SMALL,
        dataclasses.replace(PORTABLE, min_dot=(16, 16, 16)),
        registry().get("cpu").manifest.capabilities,
    ],
)
def test_programs_need_what_is_declared(capabilities: Capabilities) -> None:
    for number in range(60):
        assert needs_of(random_program(number, capabilities).module).missing(capabilities) == ()


def test_a_number_gives_one_program() -> None:
    first, second, other = (random_program(number) for number in (5, 5, 6))
    assert str(first.module) == str(second.module) != str(other.module)
    for one, two in zip(first.arguments(), second.arguments(), strict=True):
        assert np.asarray(one).tobytes() == np.asarray(two).tobytes()


def test_operations_that_protect_others_are_told_apart() -> None:
    kinds = Counter(
        is_guard(operation)
        for number in range(5)
        for operation in random_program(number).module.walk()
    )
    assert kinds[True] > 50 and kinds[False] > 50


@pytest.mark.parametrize("fill", [fill for fill in FILLS if fill != "poison"])
@pytest.mark.parametrize("name", sorted(PORTABLE.dtypes - {"i1"}))
def test_data(fill: str, name: str) -> None:
    from tilewright.ir.type_text import parse_type
    from tilewright.reference.numerics import decode, numpy_dtype

    element = parse_type(name)
    data = FILLS[fill](np.random.default_rng(1), element, 2000)
    assert data.dtype == numpy_dtype(element) and len(data) == 2000
    numbers = (
        np.asarray(decode(data, element), np.float64)
        if isinstance(element, FloatType)
        else data.astype(np.float64)
    )
    assert len(np.unique(numbers)) > 2
    if fill != "random":
        assert np.isfinite(numbers).all()
    elif isinstance(element, FloatType):
        assert np.isnan(numbers).any() and (numbers == 0).any()
    if fill == "whole":
        assert (numbers == np.rint(numbers)).all() and np.abs(numbers).max() <= 9


def _kept(values: list[float], element: FloatType) -> np.ndarray:
    return np.asarray(encode(np.array(values), element))


@pytest.mark.parametrize("element", [F32, F16, BF16])
def test_outputs_are_compared_by_their_bound(element: FloatType) -> None:
    unit = 2.0**-element.mantissa
    expected = _kept([1.0, np.nan, -0.0, 2.0**-10], element)
    assert not mismatch(
        Output(0, element), expected, _kept([1.0, -np.nan, -0.0, 2.0**-10], element)
    )
    assert mismatch(Output(0, element), expected, _kept([1.0, np.nan, 0.0, 2.0**-10], element))
    near = _kept([1.0 + 2 * unit, np.nan, 0.0, 2.0**-10], element)
    assert mismatch(Output(0, element, 1.0), expected, near)
    assert not mismatch(Output(0, element, 2.0), expected, near)
    off = _kept([1.0, np.nan, -0.0, 2.0**-10 + unit], element)
    assert mismatch(Output(0, element, 2.0), expected, off)
    assert not mismatch(Output(0, element, 2.0, 1.0), expected, off)
    assert mismatch(Output(0, I32), np.array([1, 2], np.int32), np.array([1, 3], np.int32))


def test_the_shares_of_types_and_shapes() -> None:
    elements: Counter[Type] = Counter()
    extents: Counter[bool] = Counter()
    for number in range(120):
        for operation in random_program(
            number, registry().get("cpu").manifest.capabilities
        ).module.walk():
            for result in operation.results:
                if isinstance(result.type, TileType):
                    elements[result.type.element] += 1
                    extents[any(extent & (extent - 1) for extent in result.type.shape)] += 1
    present = {str(element) for element in elements if isinstance(element, IntType | FloatType)}
    assert present == set(registry().get("cpu").manifest.capabilities.dtypes)
    assert extents[True] > 100
