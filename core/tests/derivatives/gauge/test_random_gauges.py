"""Random mutants of attention: those that are accepted do not depend on the gauge.

The gauge of an accepted kernel is shifted, by another number in each row. All that it writes is to
stay the same.
"""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import numpy as np
import online_softmax_kernels as kernels
import pytest

from tilewright.derivatives.gauge import gauge_weights
from tilewright.derivatives.gauge.fix_gauges import fix_gauges
from tilewright.errors import TilewrightError
from tilewright.ir.builder import Builder
from tilewright.ir.core import Module, Value
from tilewright.ir.ops.control import For
from tilewright.ir.verifier import verify
from tilewright.passes.clone import clone_module
from tilewright.reference.interpreter import run

TYPES = {name: type_.replace("fp32", "fp64") for name, type_ in kernels.ATTENTION_TYPES.items()}
#: Numbers of rows that are known after the loop.
ROWS = (
    "highest",
    "total",
    "rows * 0.5",
    "1.5",
    "(highest + tl.log2(total))",
    "(tl.exp2(highest) * total)",
    "tl.sum(acc, axis=1)",
    "tl.max(acc, axis=1)",
    "(tl.sum(acc, axis=1) / total)",
    "tl.sum(acc / total[:, None], axis=1)",
)
#: Numbers of rows A, B and C.
COMBINED = (
    "(A + B)",
    "(A - B)",
    "(A * B)",
    "(A / B)",
    "(-A)",
    "tl.exp2(A)",
    "tl.log2(tl.abs(A))",
    "tl.maximum(A, B)",
    "tl.where(inside, A, B)",
    "tl.where(A > 0.25, A, 0.0)",
    "tl.fma(A, B, C)",
    "(A - tl.sum(B, axis=0))",
    "(A / tl.sum(B + 0 * rows, axis=0))",
    "tl.cumsum(A + 0 * rows, axis=0)",
)
#: Changes of the weights.
WEIGHTS = (
    "weights",
    "weights + 0.0",
    "weights * weights / (weights + 0.0)",
    "weights * (columns * 0.1)[None, :]",
    "weights * tl.exp2(scores - higher[:, None])",
    "weights * tl.exp2(higher)[:, None]",
    "weights * highest[:, None]",
    "tl.where(there[None, :], weights, 0.0)",
    "tl.maximum(weights, 0.0)",
    "tl.exp2(scores) * tl.exp2(-higher)[:, None]",
    "tl.exp2(tl.trans(tl.trans(scores) - higher[None, :]))",
    "tl.exp2(tl.trans(scores) - higher[:, None])",
)


def rows_of(rng: random.Random, depth: int) -> str:
    """Return a random expression for a number of each row."""
    if depth == 0 or rng.random() < 0.15:
        return rng.choice(ROWS)
    text = rng.choice(COMBINED)
    for part in "ABC":
        text = text.replace(part, rows_of(rng, depth - 1))
    return text


def source_of(weights: str, extra: str) -> str:
    """Return the source of attention with other weights, and one more store."""
    source = kernels.ATTENTION.replace("tl.float32", "tl.float64").replace(
        "        total = total *", f"        weights = {weights}\n        total = total *"
    )
    return f"{source}    tl.store(extra_ptr + rows, {extra} + rows * 0.0, mask=inside)\n"


def random_source(seed: int) -> str:
    rng = random.Random(seed)
    weights = rng.choice(WEIGHTS) if rng.random() < 0.6 else "weights"
    return source_of(weights, rows_of(rng, rng.choice([1, 2, 3])))


def shift_gauge(module: Module, gauge: Value) -> None:
    """Add another number to each row of a gauge, for all that reads it."""
    assert gauge.definition is not None
    assert gauge.definition.next is not None
    readers = list(gauge.uses)
    b = Builder.at(gauge.definition.next)
    index = b.arange(start=0, end=16)
    numbers = b.cast(index, result=gauge.type)
    shifted = b.add(gauge, b.mul(numbers, b.constant_like(gauge.type, 0.37)))
    for reader in readers:
        for position, operand in enumerate(reader.operands):
            if operand is gauge:
                reader.set_operand(position, shifted)
    verify(module)


def written(module: Module) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((37, 16)) for _ in range(3))
    outputs = [np.zeros((37, 16)), np.zeros(37), np.zeros(37)]
    run(module, [q, k, v, *outputs, 0.5, 37], (3, 1, 1))
    return outputs


def outcome(folder: Path, source: str) -> str:
    """Return ``same``, ``different`` or ``refused``, or ``invalid`` for what is no kernel."""
    try:
        module = kernels.module_of(folder, source, TYPES, {"M": 16, "N": 16, "D": 16})
    except TilewrightError:
        return "invalid"
    fixed = clone_module(module)
    loop = next(operation for operation in fixed.walk() if isinstance(operation, For))
    found = fix_gauges(fixed)
    if not any(remark.fixed and remark.subject == "loop" for remark in found.remarks):
        return "refused"
    (gauge,) = set(loop.results) - set(found.values.values())
    shift_gauge(fixed, gauge)
    pairs = zip(written(fixed), written(module), strict=True)
    same = all(np.allclose(a, b, rtol=1e-9, atol=1e-9, equal_nan=True) for a, b in pairs)
    return "same" if same else "different"


def count(folder: Path, seeds: range) -> Counter[str]:
    return Counter(outcome(folder, random_source(seed)) for seed in seeds)


def test_random_mutants(tmp_path: Path) -> None:
    found = count(tmp_path, range(24))
    assert not found["different"]
    assert found["same"] >= 4
    assert found["refused"] >= 4


def test_a_shift_of_the_gauge_finds_kernels_that_mix_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An analysis that does not know which row a lane belongs to would accept them."""
    source = source_of("weights", "total / tl.sum(total, axis=0)")
    assert outcome(tmp_path, source) == "refused"
    monkeypatch.setattr(gauge_weights, "axes_of_result", lambda operation, facts: (0,))
    assert outcome(tmp_path, source) == "different"


@pytest.mark.full
@pytest.mark.slow
def test_hundreds_of_random_mutants(tmp_path: Path) -> None:
    found = count(tmp_path, range(100, 900))
    assert not found["different"]
    assert found["same"] > 100
