"""The source of kernels: what it looks like, and that it compiles to the same operations."""

from __future__ import annotations

from typing import Any

import pytest
from source_kernels import KERNELS, TYPES
from source_round_trip import color, compiled, round_trip

from tilewright.frontend.compile import compile_function
from tilewright.frontend.source.module_source import source_of_kernels, source_of_module
from tilewright.ir.core import Module
from tilewright.ir.parser import parse_module
from tilewright.passes.pipeline import run as run_passes


def module_of(kernel: Any, **constants: Any) -> Module:
    signature = {name: TYPES.get(name, "constexpr") for name in kernel.arg_names}
    return compile_function(kernel, signature, constants)


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("passes", [False, True], ids=["frontend", "passes"])
def test_kernels_compile_to_the_same_operations(name: str, passes: bool) -> None:
    kernel, constants = KERNELS[name]
    module = module_of(kernel, **constants)
    if passes:
        run_passes(module)
    original, again, text = round_trip(module)
    assert color(original) == color(again), f"{text}\n{original}\n{again}"


def body_of(name: str) -> str:
    kernel, constants = KERNELS[name]
    text = source_of_module(module_of(kernel, **constants))
    return text.partition('    """\n')[2]


def test_a_matmul_reads_as_its_author_wrote_it() -> None:
    assert (
        body_of("matmul")
        == """\
    pid = tl.program_id(0)
    rows = pid * 16 + tl.arange(0, 16)
    ks = tl.arange(0, 16)
    acc = tl.zeros([16, 16], tl.float32)
    for k in tl.range(0, n, 16, num_stages=3):
        inside = (rows[:, None] < n) & (k + ks[None, :] < n)
        x = tl.load(h + rows[:, None] * n + (k + ks)[None, :], mask=inside, other=0.0)
        acc = tl.dot(x, tl.trans(x), acc)
    acc = tl.where(acc > 0.0, acc, acc * 0.0099945068359375)
    tl.store(h + rows[:, None] * n + ks[None, :], acc)
"""
    )


def test_branches_and_loops_are_plain_assignments() -> None:
    assert (
        body_of("collatz")
        == """\
    value = tl.load(i)
    count = 0
    while value > 1:
        if value % 2 == 0:
            value = value // 2
        else:
            value = value * 3 + 1
        count = count + 1
    tl.store(i, count)
"""
    )


def test_accumulators_without_a_name_are_called_by_what_they_are_stored_to() -> None:
    module = parse_module(
        """tilewright.ir 1.0

kernel @k(%x: ptr<f32>, %d_x_ptr: ptr<f32>, %n: i32) {
  %0 = constant 0 : i32
  %1 = constant 1 : i32
  %2 = constant 0.0 : f32
  %3 = for %0, %n, %1, inits=[%2] : f32 body(%i: i32, %4: f32) {
    %5 = addptr %x, %i : ptr<f32>
    %6 = load %5 : f32
    %7 = add %4, %6 : f32
    yield %7
  }
  store %d_x_ptr, %3
  return
}
"""
    )
    assert source_of_module(module).partition('    """\n')[2] == (
        """\
    d_x = 0.0
    for i in range(n):
        x_1 = tl.load(x + i)
        d_x = d_x + x_1
    tl.store(d_x_ptr, d_x)
"""
    )


def test_general_combinations_are_functions_that_equal_regions_share() -> None:
    kernel, constants = KERNELS["welford"]
    text = source_of_module(module_of(kernel, **constants))
    assert text.count("@tw.jit\ndef combine") == 1
    assert text.count(" combine\n") + text.count(", combine)") == 2


def test_matmuls_and_reductions_stay_in_their_order() -> None:
    assert (
        body_of("ordered")
        == """\
    k = tl.arange(0, 16)
    v = tl.load(x + k)
    total = tl.sum(v, axis=0)
    tl.store(out + k, v * tl.max(v, axis=0))
    tl.store(out, total + tl.min(v, axis=0))
"""
    )


def test_several_modules_are_one_text_without_names_twice() -> None:
    kernel, constants = KERNELS["welford"]
    module = module_of(kernel, **constants)
    text = source_of_kernels([(module, ["First."]), (module, ["Second."])], "Two kernels.")
    assert text.startswith('"""Two kernels."""\n\nimport tilewright as tw\n')
    assert text.index("def welford(") < text.index("def welford_1(")
    assert text.count("def combine(") == 1
    assert '    """First.\n' in text


def test_the_comparison_tells_modules_apart() -> None:
    """Mutants of a kernel are not taken for it."""
    kernel, _ = KERNELS["matmul"]
    module = module_of(kernel)
    colors = {color(module)}
    text = source_of_module(module)
    for old, new in (
        ("pid * 16", "pid * 32"),
        ("other=0.0", "other=1.0"),
        ("acc > 0.0", "acc >= 0.0"),
        ("num_stages=3", "num_stages=2"),
        ("tl.dot(x, tl.trans(x), acc)", "tl.dot(tl.trans(x), x, acc)"),
    ):
        assert old in text
        colors.add(color(compiled(text.replace(old, new), module)))
    assert len(colors) == 6
