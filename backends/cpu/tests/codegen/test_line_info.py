"""The option ``line_info``: code has debug locations, runs, and is the same code without."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tilewright.plugins.registry import registry
from tilewright.tools.inspect import inspect_kernel, place

SOURCE = Path(__file__).read_text().splitlines()


@tw.jit(noinline=True)
def apart(x):
    return x * 2


@tw.jit
def kernel(out, a, b, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    x = tl.load(a + i[:, None] * BLOCK + i[None, :])
    y = tl.load(b + i[:, None] * BLOCK + i[None, :], mask=i[None, :] < n)
    total = tl.dot(x, y)
    k = 0
    while k < n:
        total += tl.sqrt(tl.abs(total))  # the root
        k += 16
    tl.store(out + i[:, None] * BLOCK + i[None, :], total + apart(tl.sum(total)))


@tw.jit
def long(out, n: tl.constexpr):
    for k in tl.static_range(n):
        tl.store(out + k, tl.load(out + k) * 2 + k)


def asm(line_info: bool) -> str:
    backend, target = place("cpu", None)
    stage = inspect_kernel(
        kernel, "*fp32, *fp32, *fp32, i32", {"BLOCK": 32}, backend, target, {"line_info": line_info}
    ).code.stages["asm"]
    assert isinstance(stage, str)
    return stage


def instructions(text: str) -> list[str]:
    """The instructions of assembly, without labels, directives and comments."""
    return re.findall(r"^\t(\w[^#\n]*?)\s*(?:#.*)?$", text, re.M)


def test_code_is_the_same_and_says_its_lines() -> None:
    lined, plain = asm(True), asm(False)
    assert instructions(lined) == instructions(plain) != []
    (root,) = (number for number, line in enumerate(SOURCE, 1) if line.endswith("# the root"))
    at, found = 0, set()
    for line in lined.splitlines():
        if said := re.match(r"\t\.loc\t\d+ (\d+) ", line):
            at = int(said[1])
        elif "vsqrtps" in line or "sqrtps" in line:
            found.add(at)
    assert found == {root} and ".loc" not in plain


@pytest.mark.parametrize("line_info", [False, True])
def test_it_runs(line_info: bool) -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((32, 32), dtype=np.float32) for _ in range(2))
    out = np.full((32, 32), np.nan, np.float32)
    kernel[(1,)](out, a, b, 20, BLOCK=32, line_info=line_info, backend="cpu")
    masked = b.astype(np.float64)
    masked[:, 20:] = 0
    total = a @ masked
    for _ in range(2):
        total += np.sqrt(np.abs(total))
    np.testing.assert_allclose(out, total + 2 * total.sum(), rtol=1e-4, atol=1e-2)


def test_a_long_kernel_runs() -> None:
    x = np.arange(1500, dtype=np.float32)
    long[(1,)](x, 1500, line_info=True, backend="cpu")
    assert np.array_equal(x, 3 * np.arange(1500, dtype=np.float32))


def test_the_listing_is_a_stage_of_inspect_alone() -> None:
    assert (
        "asm" not in kernel.warmup(*[np.zeros(1, np.float32)] * 3, 1, BLOCK=32, backend="cpu").asm
    )
    assert registry().get("cpu").implements("tilewright_listing")
