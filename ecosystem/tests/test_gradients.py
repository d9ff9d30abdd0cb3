"""Gradients of programs' kernels: launches are recorded, and judged by what the kernel does."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

import tilewright as tw
import tilewright.language as tl

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import gradients

torch = pytest.importorskip("torch")


@tw.jit
def scaled(x, out, n, KIND: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    inside = at < n
    v = tl.load(x + at, mask=inside)
    if KIND == "in place":
        tl.store(x + at, 2 * v, mask=inside)
    elif KIND == "bits":
        bits = v.to(tl.int32, bitcast=True) & 0x7FFFFFFF
        tl.store(out + at, bits.to(tl.float32, bitcast=True), mask=inside)
    elif KIND == "no input":
        tl.store(out + at, at.to(tl.float32), mask=inside)
    else:
        tl.store(out + at, v * v, mask=inside)


def rows(*kinds: str) -> list[gradients.Row | None]:
    x = torch.linspace(-1, 1, 10)
    with gradients.recorded() as launches:
        for kind in kinds:
            scaled[(1,)](x.clone(), torch.empty(10), 10, KIND=kind, BLOCK=16)
    return [gradients.check("tests", launch) for launch in gradients.chosen(launches)]


def test_what_a_launch_changes_is_an_output() -> None:
    with gradients.recorded() as launches:
        scaled[(1,)](torch.ones(10), torch.zeros(10), 10, KIND="", BLOCK=16)
    assert (launches[0].outputs, launches[0].wrt) == (("out",), ("x",))
    assert torch.equal(launches[0].arguments["out"], torch.zeros(10))


def test_verdicts() -> None:
    right, again, refused = rows("", "in place", "bits", "")
    assert right is not None and again is not None and refused is not None
    assert (right.verdict, right.constants) == ("right", "KIND=")
    assert again.verdict == "refused" and "to which the kernel writes" in again.detail
    assert refused.verdict == "refused" and "bits" in refused.detail


def test_a_kernel_without_inputs_has_no_row(monkeypatch: pytest.MonkeyPatch) -> None:
    assert rows("no input") == [None]


def test_a_wrong_derivative_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    class Wrong:
        wrong: Any = ("the cotangent of x[3] is 1 in reverse mode, and 2 in forward mode",)

        def __bool__(self) -> bool:
            return False

    monkeypatch.setattr(tw.testing, "gradcheck", lambda *args, **keywords: Wrong())
    (row,) = rows("")
    assert row is not None
    assert (row.verdict, row.detail[:21]) == ("wrong", "the cotangent of x[3]")
    assert "1 wrong" in gradients.page([row])
