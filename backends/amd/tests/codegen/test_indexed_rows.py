"""Rows that an index names are accessed as widely as rows in order, and the kernels compute what
they should on emulated waves."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import numpy as np
import pytest
from amd_emulated import launched
from amd_support import listed

from tilewright.plugins.manifest import CodeObject
from tilewright_conformance.kernels.indexed_rows import KERNELS

ARCHS = ("gfx942", "gfx950", "gfx1100", "gfx1201")
#: Bytes of one access, by how its name ends.
BYTES = {
    "dwordx4": 16,
    "b128": 16,
    "dwordx2": 8,
    "b64": 8,
    "dword": 4,
    "b32": 4,
    "ushort": 2,
    "u16": 2,
    "short": 2,
    "b16": 2,
}


def code_of(name: str, arch: str, **constants: Any) -> CodeObject:
    kernel, signature, defaults = KERNELS[name]
    types = ", ".join(f"{parameter}={type_}:16" for parameter, type_ in signature.items())
    return listed(kernel, types, arch, {**defaults, **constants})


def accesses(code: CodeObject) -> Counter[str]:
    """Count a listing's accesses of each kind.

    ``load``, ``load_lds`` and ``store``, with their bytes.
    """
    found: Counter[str] = Counter()
    for kind, how in re.findall(
        r"^\s*(?:global|buffer|flat)_(load_lds|load|store)_(?:d16_hi_)?(\w+)",
        str(code.stages["amdgcn"]),
        re.M,
    ):
        found[f"{kind} {BYTES[how]}"] += 1
    return found


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("name", ["gather", "scatter"])
def test_rows_are_gathered_and_scattered_16_bytes_at_a_time(arch: str, name: str) -> None:
    found = accesses(code_of(name, arch, ROWS=128))
    assert found.keys() <= {"load 4", "load 16", "store 16"}, found
    assert found["load 16"] == found["store 16"] >= 4


@pytest.mark.each_value
@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("name", ["paged", "experts"])
def test_operands_of_products_are_gathered_16_bytes_at_a_time(arch: str, name: str) -> None:
    found = accesses(code_of(name, arch))
    assert found.keys() <= {"load 4", "load 16", "load_lds 16", "store 16"}, found
    assert (found["load_lds 16"] > 0) == (arch == "gfx950")


@pytest.mark.parametrize("arch", ARCHS)
def test_pages_are_multiplied(arch: str) -> None:
    rng = np.random.default_rng(7)
    heads, depth, page, pages, n = 16, 128, 16, 9, 133
    q, keys, values = (
        rng.integers(-2, 3, (rows, depth)).astype(np.float16)
        for rows in (heads, pages * page, pages * page)
    )
    table = rng.permutation(pages).astype(np.int32)
    rows = (table[:, None] * page + np.arange(page)).reshape(-1)[:n]
    found = np.full((heads, depth), np.nan, np.float32)
    launched(
        code_of("paged", arch),
        [q, keys, values, table, found, n, page * depth, depth],
        schedule="random",
    )
    weights = (q.astype(np.float32) @ keys[rows].T.astype(np.float32)).astype(np.float16)
    np.testing.assert_array_equal(
        found, weights.astype(np.float32) @ values[rows].astype(np.float32)
    )


@pytest.mark.parametrize("arch", ARCHS)
def test_rows_of_experts_are_multiplied(arch: str) -> None:
    rng = np.random.default_rng(8)
    tokens, top, n, k, rows = 24, 2, 64, 192, 64
    a, b = (
        rng.integers(-2, 3, (tokens, k)).astype(np.float16),
        rng.integers(-2, 3, (3, n, k)).astype(np.float16),
    )
    order = rng.permutation(rows).astype(np.int32)  # slots of which some are padding
    expert = np.array([2], np.int32)
    found = np.full((tokens * top, n), np.nan, np.float16)
    launched(
        code_of("experts", arch, TOP=top),
        [a, b, order, expert, found, tokens, n, k],
        schedule="random",
    )
    wanted = a.astype(np.float32) @ b[2].T.astype(np.float32)
    np.testing.assert_array_equal(found, np.repeat(wanted, top, axis=0).astype(np.float16))
