"""Rows that an index names are accessed as widely as rows in order: the conversion of index
arithmetic to another layout hides nothing."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import pytest
from nvidia_support import compile_kernel

from tilewright_conformance.kernels.indexed_rows import KERNELS

ARCHITECTURES = ("sm_80", "sm_90a", "sm_100a")


def accesses(name: str, arch: str, type_: str = "fp16", **constants: Any) -> Counter[str]:
    """Count PTX accesses of each kind: ``ld``, ``st`` and ``cp.async``, with their bytes."""
    kernel, signature, defaults = KERNELS[name]
    types = {name: text.replace("fp16", type_) for name, text in signature.items()}
    ptx = str(
        compile_kernel(kernel, types, arch, constants={**defaults, **constants}).stages["ptx"]
    )
    found: Counter[str] = Counter()
    for kind, count, bits in re.findall(r"\b(ld|st)\.global\S*?(?:\.v(\d))?\.b(\d+)", ptx):
        found[f"{kind} {int(count or 1) * int(bits) // 8}"] += 1
    for size in re.findall(
        r"\bcp\.async\.c[ag]\.shared\.global\S* \[[^]]*\], \[[^]]*\], (?:0x)?(\w+)", ptx
    ):
        found[f"cp.async {size}"] += 1
    return found


@pytest.mark.each_value
@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize(
    ("rows", "columns", "type_"),
    [(32, 128, "fp16"), (64, 64, "bf16"), (32, 128, "fp32"), (128, 256, "fp8e4nv")],
)
def test_rows_are_gathered_and_scattered_16_bytes_at_a_time(
    arch: str, rows: int, columns: int, type_: str
) -> None:
    size = {"fp32": 4, "fp8e4nv": 1}.get(type_, 2)
    each = rows * columns * size // (128 * 16)
    for name, kind in (("gather", "ld"), ("scatter", "st")):
        found = accesses(name, arch, type_, ROWS=rows, COLUMNS=columns)
        assert found[f"{kind} 16"] >= each
        assert {one for one in found if one not in ("ld 16", "st 16")} <= {"ld 4", "ld 8"}, (
            found
        )  # the index
        assert found["ld 4"] <= 2


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_pages_of_keys_and_values_are_read_16_bytes_at_a_time(arch: str) -> None:
    found = accesses("paged", arch)
    assert not found.keys() & {"ld 1", "ld 2"}
    assert found["ld 16"] + found["cp.async 16"] >= 2 * 8


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_rows_of_experts_are_copied_asynchronously(arch: str) -> None:
    found = accesses("experts", arch)
    assert not found.keys() & {"ld 1", "ld 2", "st 2", "cp.async 4", "cp.async 8"}
    assert (
        found["cp.async 16"] % (4 + 4) == 0 < found["cp.async 16"]
    )  # as many of the rows as of the matrix
