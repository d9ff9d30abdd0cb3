"""Outlining of long kernels: they stay right, and no function grows with its kernel."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright
import tilewright.language as tl
from tilewright.frontend.compile import compile_function
from tilewright.language.options import Options
from tilewright.llvm.emission.outline import LONG, LONGEST, cut_function
from tilewright.plugins.manifest import Target
from tilewright_cpu.codegen.control import functions
from tilewright_cpu.codegen.kernel import write_module
from tilewright_cpu.manifest import CAPABILITIES
from tilewright_cpu.target import host


@tilewright.jit
def stores(x, out, k, COUNT: tl.constexpr):
    """A tile, a mask, a number and a pointer that all live from link to link."""
    lanes = tl.arange(0, 64)
    v = tl.load(x + lanes)
    few = lanes < k
    p = out + tl.program_id(0) * (64 * COUNT + 64)
    n = k
    for i in tl.static_range(COUNT):
        v = v * 0.5 + i
        n = n + k
        tl.store(p + lanes, v + n, mask=few)
        p = p + 64
    tl.store(p + lanes, v + n)


@tilewright.jit
def branches(x, out, k, COUNT: tl.constexpr):
    """Tiles and numbers that branches give, and branches that store."""
    lanes = tl.arange(0, 64)
    v = tl.load(x + lanes)
    p = out + tl.program_id(0) * (64 * COUNT + 64)
    n = k
    for i in tl.static_range(COUNT):
        if k > i:
            v = v * 0.5 + i
            n = n + k
            tl.store(p + i * 64 + lanes, v)
        else:
            n = n * 2
    tl.store(p + COUNT * 64 + lanes, v + n)


@tilewright.jit
def reductions(x, out, k, COUNT: tl.constexpr):
    lanes = tl.arange(0, 64)
    v = tl.load(x + lanes)
    p = out + tl.program_id(0) * (64 * COUNT + 64)
    for i in tl.static_range(COUNT):
        v = v * 0.5 + tl.sum(v) / 64 + k
        tl.store(p + i * 64 + lanes, v)
    tl.store(p + COUNT * 64 + lanes, v)


@tilewright.jit
def within(x, out, k, COUNT: tl.constexpr):
    """A long body of a loop inside a branch, with tiles, pointers and numbers that the loop
    carries."""
    lanes = tl.arange(0, 64)
    v = tl.load(x + lanes)
    p = out + tl.program_id(0) * (64 * COUNT + 64)
    n = k
    if k > 2:
        for turn in range(k):
            for i in tl.static_range(COUNT):
                v = v * 0.5 + tl.max(v) + turn
                n = n + i
                tl.store(p + i * 64 + lanes, v, mask=lanes > turn)
                if n > 40:
                    n = n - 30
    tl.store(p + COUNT * 64 + lanes, v + n)


@tilewright.jit
def called(x, out, k, COUNT: tl.constexpr):
    """Return a long function that may stop the kernel."""
    _called(x, out + tl.program_id(0) * (64 * COUNT + 64), k, COUNT)


@tilewright.jit(noinline=True)
def _called(x, out, k, COUNT: tl.constexpr):
    lanes = tl.arange(0, 64)
    v = tl.load(x + lanes)
    for i in tl.static_range(COUNT):
        tl.device_assert(i < k + 9, "too many")
        v = v * 0.5 + k
        tl.store(out + i * 64 + lanes, v)
    tl.store(out + COUNT * 64 + lanes, v)


def longest_function(text: str) -> int:
    return max(body.count("\n") for body in re.findall(r"^define.*?^}", text, re.M | re.S))


def arguments_for(count: int) -> list[Any]:
    return [
        np.random.default_rng(count).random(64, dtype=np.float32),
        np.zeros(3 * 64 * (count + 1), np.float32),
        11,
    ]


@pytest.mark.each_value
@pytest.mark.parametrize("kernel", [stores, branches, reductions, within, called])
@pytest.mark.parametrize("longest", [5, 40, LONGEST])
def test_a_cut_kernel_gives_what_the_reference_gives(
    kernel: Any,
    longest: int,
    monkeypatch: pytest.MonkeyPatch,
    module_of: Callable[..., Any],
    same_as_reference: Callable[..., list[Any]],
) -> None:
    made: list[int] = []

    def cut(*arguments: Any) -> int:
        made.append(cut_function(*arguments, long=0, longest=longest, shortest=1))
        return made[-1]

    monkeypatch.setattr(functions, "cut_function", cut)
    arguments = arguments_for(16)
    same_as_reference(
        module_of(kernel, arguments, optimise=True, COUNT=16), arguments, (3, 1, 1), relative=1e-5
    )
    assert sum(made) > (3 if longest < LONGEST else 0)


def test_a_cut_function_stops_in_the_middle(
    monkeypatch: pytest.MonkeyPatch, module_of: Callable[..., Any], compiled: Any
) -> None:
    monkeypatch.setattr(
        functions, "cut_function", functools.partial(cut_function, long=0, longest=40, shortest=1)
    )
    arguments = [*arguments_for(16)[:2], 0]
    debugged = Options(
        target=Target("cpu", "x86-64", kind="cpu", capabilities=CAPABILITIES), debug=True
    )
    kernel = compiled(
        compile_function(
            called,
            {"x": "*fp32", "out": "*fp32", "k": "i32", "COUNT": "constexpr"},
            {"COUNT": 16},
            None,
            debugged,
        )
    )
    assert re.search(r"call i1 @\S+\.cut\d+\(", kernel.code.stages["llir"])
    kernel(arguments, (1, 1, 1))
    written = arguments[1][: 17 * 64].reshape(17, 64).any(axis=1)
    assert kernel.status[0]
    assert list(written) == [number < 9 for number in range(17)]


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("kernel", "count"), [(stores, 400), (branches, 250), (reductions, 200), (within, 120)]
)
def test_no_function_of_a_long_kernel_is_long(
    kernel: Any, count: int, module_of: Callable[..., Any]
) -> None:
    text = write_module(
        module_of(kernel, arguments_for(count), optimise=True, COUNT=count), host(), {}
    ).text
    assert text.count("\n") > LONG
    assert longest_function(text) < LONGEST + 500


def test_a_short_kernel_stays_as_it_is(
    monkeypatch: pytest.MonkeyPatch, module_of: Callable[..., Any]
) -> None:
    module = module_of(branches, arguments_for(8), optimise=True, COUNT=8)
    as_it_is = write_module(module, host(), {}).text
    monkeypatch.setattr(functions, "cut_function", lambda *_: 0)
    assert write_module(module, host(), {}).text == as_it_is
    monkeypatch.setattr(
        functions, "cut_function", functools.partial(cut_function, long=0, longest=40, shortest=1)
    )
    assert write_module(module, host(), {}).text != as_it_is
