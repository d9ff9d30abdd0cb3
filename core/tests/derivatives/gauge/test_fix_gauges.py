"""Gauge fixing: what a fixed kernel computes, and the mutants that are refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import online_softmax_kernels as kernels
import pytest

from tilewright.derivatives.gauge.fix_gauges import fix_gauges
from tilewright.ir.core import Module
from tilewright.ir.ops.control import For
from tilewright.ir.verifier import verify
from tilewright.passes.clone import clone_module
from tilewright.passes.dce import dce
from tilewright.reference.interpreter import run

BLOCKS = {"M": 16, "N": 16, "D": 8}
LENGTH = 37


def attention_of(folder: Path, source: str) -> Module:
    return kernels.module_of(folder, source, kernels.ATTENTION_TYPES, BLOCKS)


def outputs(module: Module, lse: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Run attention on the same inputs; return ``out`` and ``lse``."""
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((LENGTH, 8)).astype(np.float32) for _ in range(3))
    out, lse, extra = np.zeros_like(q), lse.astype(np.float32), np.zeros(LENGTH, np.float32)
    run(module, [q, k, v, out, lse, extra, 0.5, LENGTH], (3, 1, 1))
    return out, lse


@pytest.mark.parametrize("source", [kernels.ATTENTION, kernels.TWO_LOOPS], ids=["one", "two"])
@pytest.mark.parametrize("saved", [(), ("lse_ptr",)], ids=["last reference", "stored logarithm"])
def test_attention_is_the_same_in_one_gauge(
    tmp_path: Path, source: str, saved: tuple[str, ...]
) -> None:
    """With ``lse`` saved the gauge is whatever memory holds: here any number for each row."""
    module = attention_of(tmp_path, source)
    fixed = clone_module(module)
    found = fix_gauges(fixed, saved)
    verify(fixed)
    (remark,) = found.remarks
    assert remark.fixed
    gauge = np.random.default_rng(1).standard_normal(LENGTH) * 5
    for actual, expected in zip(
        outputs(fixed, gauge), outputs(module, np.zeros(LENGTH)), strict=True
    ):
        np.testing.assert_allclose(actual, expected, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("source", [kernels.ATTENTION, kernels.TWO_LOOPS], ids=["one", "two"])
def test_a_stored_logarithm_leaves_plain_sums_alone(tmp_path: Path, source: str) -> None:
    module = attention_of(tmp_path, source)
    count = sum(isinstance(operation, For) for operation in module.walk())
    fix_gauges(module, ("lse_ptr",))
    dce(module)
    loops = [operation for operation in module.walk() if isinstance(operation, For)]
    assert len(loops) == count  # those that rescale are gone
    names = {operation.name for loop in loops for operation in loop.walk()}
    assert not {"max", "mul"} & {
        operation.name for loop in loops for operation in loop.body if operation.name == "max"
    }
    assert "exp2" in names
    for loop in loops:
        exponentials = [operation for operation in loop.walk() if operation.name == "exp2"]
        assert len(exponentials) == 1  # the weights, and no correction


def test_values_of_the_last_reference_are_those_of_the_loop(tmp_path: Path) -> None:
    module = attention_of(tmp_path, kernels.ATTENTION)
    (old,) = (operation for operation in module.walk() if isinstance(operation, For))
    found = fix_gauges(module)
    assert found.constants == set(old.results)
    assert set(found.values.values()) == set(old.results[1:])
    assert not found.undefined


def test_the_sum_of_the_stored_logarithm_is_one(tmp_path: Path) -> None:
    module = attention_of(tmp_path, kernels.ATTENTION)
    found = fix_gauges(module, ("lse_ptr",))
    ((total, one),) = found.values.items()
    assert total.definition is not None
    assert one.definition is not None
    assert one.definition.name == "splat"
    assert "total" in total.definition.regions[0].arguments[1 + total.index].name


def test_a_narrow_mask_does_not_choose_the_gauge(tmp_path: Path) -> None:
    """Rows whose logarithm is not stored are observed: memory holds no gauge for them."""
    source = kernels.ATTENTION.replace(
        "tl.log2(total), mask=inside)", "tl.log2(total), mask=inside & (rows % 2 == 0))"
    )
    assert source != kernels.ATTENTION
    (remark,) = fix_gauges(attention_of(tmp_path, source), ("lse_ptr",)).remarks
    assert "its last reference" in remark.text


def test_a_logarithm_that_is_stored_twice_does_not_choose_the_gauge(tmp_path: Path) -> None:
    source = kernels.ATTENTION + "    tl.store(lse_ptr + length + rows, total / total)\n"
    (remark,) = fix_gauges(attention_of(tmp_path, source), ("lse_ptr",)).remarks
    assert "its last reference" in remark.text


#: change of attention -> why its reference is no gauge
MUTANTS: dict[str, tuple[str, str, str]] = {
    "stores the sum": ("", "tl.store(extra_ptr + rows, total, mask=inside)", "the store at"),
    "stores the reference": ("", "tl.store(extra_ptr + rows, highest, mask=inside)", "the store"),
    "stores the reference in a branch": (
        "",
        "if length > 5:\n        tl.store(extra_ptr + rows, highest + 1.0, mask=inside)",
        "the store at",
    ),
    "stores the sum's logarithm from a branch": (
        "",
        "if length > 5:\n        total = tl.log2(total)\n    else:\n        total = total * 2\n"
        "    tl.store(extra_ptr + rows, total, mask=inside)",
        "the store at",
    ),
    "adds the sum atomically": ("", "tl.atomic_add(extra_ptr + rows, total)", "the atomic_rmw at"),
    "prints the reference": ("", 'tl.device_print("m", highest)', "the print at"),
    "stores where the reference says": (
        "",
        "tl.store(extra_ptr + rows, out_sum, mask=highest > 0)".replace("out_sum", "rows * 1.0"),
        "the store at",
    ),
    "stores a difference of rows": (
        "",
        "tl.store(extra_ptr + rows, highest - tl.sum(highest, axis=0) / M, mask=inside)",
        "the store at",
    ),
    "normalizes by the sum of all rows": (
        "out = acc / total[:, None]",
        "out = acc / tl.sum(total, axis=0)",
        "the store at",
    ),
    "rounds the reference to an integer": (
        "",
        "tl.store(extra_ptr + rows, (highest - (highest.to(tl.int32)).to(tl.float32)))",
        "the store at",
    ),
    "weights under a root": (
        "weights = tl.exp2(scores - higher[:, None])",
        "weights = tl.sqrt(tl.exp2(scores - higher[:, None]))",
        "what it carries as total is not scaled",
    ),
    "weights squared": (
        "weights = tl.exp2(scores - higher[:, None])",
        "weights = tl.exp2(scores - higher[:, None])\n        weights = weights * weights",
        "what it carries as total is not scaled",
    ),
    "weights of another base": (
        "weights = tl.exp2(scores",
        "weights = tl.exp(scores",
        "what it carries as total is not scaled",
    ),
    "weights by the old reference": (
        "weights = tl.exp2(scores - higher[:, None])",
        "weights = tl.exp2(scores - highest[:, None])",
        "what it carries as total is not scaled",
    ),
    "weights by the reference of another row": (
        "weights = tl.exp2(scores - higher[:, None])",
        "weights = tl.exp2(scores - higher[None, :])",
        "what it carries as total is not scaled",
    ),
    "a sum that reads the correction": (
        "+ tl.sum(weights, axis=1)",
        "+ tl.sum(weights, axis=1) * correction",
        "what it carries as total is not scaled",
    ),
    "a constant in the sum": (
        "+ tl.sum(weights, axis=1)",
        "+ tl.sum(weights, axis=1) + 1.0",
        "what it carries as total is not scaled",
    ),
    "a state that is not rescaled": (
        "acc = tl.dot(weights, v, acc * correction[:, None])",
        "acc = tl.dot(weights, v, acc)",
        "what it carries as acc depends on the reference",
    ),
    "weights clipped": (
        "weights = tl.exp2(scores - higher[:, None])",
        "weights = tl.minimum(tl.exp2(scores - higher[:, None]), 0.5)",
        "what it carries as total is not scaled",
    ),
    "a prefix sum over rows": (
        "out = acc / total[:, None]",
        "out = tl.cumsum(acc, axis=0) / tl.cumsum(total, axis=0)[:, None]",
        "the store at",
    ),
    "effects in the loop": (
        "        highest = higher",
        "        highest = higher\n        tl.store(extra_ptr + rows, start * 1.0)",
        "it has effects beside its results",
    ),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_mutants_of_attention_are_refused(tmp_path: Path, name: str) -> None:
    old, new, reason = MUTANTS[name]
    source = kernels.ATTENTION.replace(old, new) if old else f"{kernels.ATTENTION}    {new}\n"
    assert source != kernels.ATTENTION
    module = attention_of(tmp_path, source)
    before = str(module)
    found = fix_gauges(module, ("lse_ptr",))
    loops = [remark for remark in found.remarks if remark.subject == "loop"]
    assert [remark.fixed for remark in loops] == [False]
    assert reason in loops[0].text
    assert str(loops[0]).startswith("missed: loop at ")
    assert str(module) == before
    assert not found.values


def test_a_reference_that_leaves_through_an_outer_loop_is_refused(tmp_path: Path) -> None:
    body = kernels.ATTENTION.split("    for start in")[1]
    inner = "    for start in" + body.split("    out = ")[0]
    outer = "    for _ in range(length):\n" + "".join(
        f"    {line}\n" for line in inner.rstrip().split("\n")
    )
    source = kernels.ATTENTION.replace(inner, outer)
    assert source != kernels.ATTENTION
    found = fix_gauges(attention_of(tmp_path, source), ("lse_ptr",))
    (remark,) = (remark for remark in found.remarks if remark.subject == "loop")
    assert not remark.fixed
    assert "leaves the region" in remark.text


# ---- rows


def softmax_of(folder: Path, source: str = kernels.SOFTMAX) -> Module:
    return kernels.module_of(folder, source, kernels.SOFTMAX_TYPES, {"BLOCK": 16})


def test_a_row_maximum_is_a_constant(tmp_path: Path) -> None:
    module = softmax_of(tmp_path)
    before = str(module)
    found = fix_gauges(module)
    assert [value.definition.name for value in found.constants if value.definition] == ["reduce"]
    assert not found.values
    assert str(module) == before


def test_a_stored_row_is_loaded(tmp_path: Path) -> None:
    module = softmax_of(tmp_path)
    found = fix_gauges(module, ("out_ptr",))
    verify(module)
    assert found.undefined == found.constants
    origins = {
        value.definition.name: other.definition.name
        for value, other in found.values.items()
        if value.definition is not None
        if other.definition is not None
    }
    assert origins == {"exp": "load", "div": "load", "reduce": "constant"}


ROW_MUTANTS: dict[str, tuple[str, str]] = {
    "stores an exponential": ("", "tl.store(extra_ptr + at, e, mask=inside)"),
    "stores the sum": ("", "tl.store(extra_ptr + tl.program_id(0), tl.sum(e, axis=0))"),
    "a constant in the sum": ("tl.sum(e, axis=0)", "(tl.sum(e, axis=0) + 1.0)"),
    "stores the maximum": ("", "tl.store(extra_ptr, tl.max(x, axis=0))"),
}


@pytest.mark.parametrize("name", ROW_MUTANTS)
def test_mutants_of_softmax_are_refused(tmp_path: Path, name: str) -> None:
    old, new = ROW_MUTANTS[name]
    source = kernels.SOFTMAX.replace(old, new) if old else f"{kernels.SOFTMAX}    {new}\n"
    found = fix_gauges(softmax_of(tmp_path, source), ("out_ptr",))
    (remark,) = found.remarks
    assert not remark.fixed
    assert "depends on the reference" in remark.text
    assert not found.constants
    assert not found.values


def test_a_row_that_is_not_zero_outside_of_the_mask_is_not_loaded(tmp_path: Path) -> None:
    """Masked-off lanes add to the sum, and memory does not hold them."""
    source = kernels.SOFTMAX.replace('other=-float("inf")', "other=0.0")
    found = fix_gauges(softmax_of(tmp_path, source), ("out_ptr",))
    assert found.constants
    assert not found.values
