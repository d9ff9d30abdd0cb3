"""The option ``line_info``: code says which lines of the source it comes from, and is the same code
without."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import tilewright as tw
import tilewright.language as tl
from tilewright.errors import LoweringError
from tilewright.tools.inspect import inspect_kernel, place

SOURCE = Path(__file__).read_text().splitlines()


@tw.jit
def kernel(out, x, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    a = tl.load(x + i, mask=i < n)  # the load
    tl.store(out + i, a / tl.sum(a, axis=0), mask=i < n)  # the store


def listing(line_info: object, arch: str) -> str:
    backend, target = place("amd", arch)
    stage = inspect_kernel(
        kernel, "*fp32:16, *fp32:16, i32", {"BLOCK": 512}, backend, target, {"line_info": line_info}
    ).code.stages["amdgcn"]
    assert isinstance(stage, str)
    return stage


def instructions(text: str) -> list[str]:
    return re.findall(r"^\t((?:v|s|ds|global|buffer|flat)_\w+.*)$", text, re.M)


@pytest.mark.parametrize("arch", ["gfx942", "gfx1100"])
def test_code_is_the_same_and_says_its_lines(arch: str) -> None:
    lined, plain = listing(True, arch), listing(False, arch)
    assert instructions(lined) == instructions(plain) != []
    at, found = 0, {}
    for line in lined.splitlines():
        if said := re.match(r"\t\.loc\t\d+ (\d+) ", line):
            at = int(said[1])
        elif access := re.match(r"\t(?:global|buffer|flat)_(load|store)", line):
            found.setdefault(access[1], set()).add(at)
    assert found == {
        name: {number for number, line in enumerate(SOURCE, 1) if line.endswith(f"# the {name}")}
        for name in ("load", "store")
    }
    assert ".loc" not in plain


def test_what_is_no_switch_is_refused() -> None:
    with pytest.raises(
        LoweringError, match="kernel kernel: line_info must be True or False, not 'all'"
    ):
        listing("all", "gfx942")
