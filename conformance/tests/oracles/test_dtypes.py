"""The table of element types: both names of each, and arrays that hold its numbers or bits."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright.language as tl
from tilewright.ir import types
from tilewright_conformance.oracles import dtypes


@pytest.mark.parametrize("text", dtypes.ELEMENTS)
def test_both_names_of_a_type_are_taken(text: str) -> None:
    name = dtypes.ELEMENTS[text]
    assert dtypes.IR[name] == text and str(dtypes.language(text).ir_type) == text
    for one in (dtypes.language, dtypes.storage, dtypes.is_integer):
        assert one(name) == one(text)


def test_the_table_has_every_type_of_tile_ir() -> None:
    assert list(dtypes.ELEMENTS) == [str(one) for one in (*types.INTEGERS, *types.FLOATS)]
    assert (dtypes.ELEMENTS["f8e5m2"], dtypes.language("bool")) == ("float8e5", tl.int1)


@pytest.mark.parametrize(
    "name", [*dtypes.NUMBERS, *(one for one in dtypes.FP8 if one != "f8e4b15")]
)
def test_numbers_and_bits_are_of_one_size(name: str) -> None:
    assert dtypes.kind(name).itemsize == dtypes.storage(name).itemsize


@pytest.mark.parametrize("name", dtypes.FLOATS)
def test_the_spacing_is_that_of_the_numbers(name: str) -> None:
    number = dtypes.kind(name).type
    assert number(1 + dtypes.spacing(name)) > 1 and number(1 + dtypes.spacing(name) / 4) == 1


def test_bits_of_floats_that_numpy_lacks_are_reinterpreted() -> None:
    array = np.zeros(4, np.uint16)
    assert dtypes.given(array, "u16") is array and dtypes.given(array, "bf16").base is array
