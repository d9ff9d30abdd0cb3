"""Loops that carry sums of digits: exact for any number of iterations, and of the floats' shape."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tilewright.ir.core import Module
from tilewright.ir.ops.control import For, If
from tilewright.ir.ops.linear import Dot
from tilewright.ir.type_text import parse_type
from tilewright.passes.exact.context import ExactOptions
from tilewright.passes.exact.rewrite import exact
from tilewright.passes.exact.ring import Ring, ring_of
from tilewright.runtime.arguments.dtypes import IR_TEXT
from tilewright.testing.emulator_check import build
from tilewright.testing.exact import exact_mode

DTYPES = {
    "fp16": tl.float16, "bf16": tl.bfloat16, "fp32": tl.float32, "fp64": tl.float64,
    "fp8e5": tl.float8e5,
}  # fmt: skip


@tw.jit
def matmul(a_ptr, b_ptr, c_ptr, out_ptr, K, BK: tl.constexpr, FORM: tl.constexpr):
    m, n, k = tl.arange(0, 16), tl.arange(0, 16), tl.arange(0, BK)
    places = m[:, None] * 16 + n[None, :]
    acc = tl.load(c_ptr + places)
    if FORM == "zero":
        acc = tl.zeros((16, 16), c_ptr.dtype.element_ty)
    for start in range(0, K, BK):
        a = tl.load(a_ptr + m[:, None] * K + (start + k)[None, :])
        b = tl.load(b_ptr + (start + k)[:, None] * 16 + n[None, :])
        if FORM == "added":
            acc += tl.dot(a, b, out_dtype=acc.dtype)
        elif FORM == "scaled":
            acc = tl.dot(a, b, acc * 2.0, out_dtype=acc.dtype)
        elif FORM == "twice":
            acc = tl.dot(a, b, tl.dot(a, b, acc, out_dtype=acc.dtype), out_dtype=acc.dtype)
        else:
            acc = tl.dot(a, b, acc, out_dtype=acc.dtype)
    tl.store(out_ptr + places, acc)


def ring_named(name: str) -> Ring:
    return ring_of(parse_type(IR_TEXT[name]))


def payloads(rng: np.random.Generator, ring: Ring, shape: tuple[int, ...]) -> np.ndarray:
    return rng.integers(0, ring.modulus, shape, dtype=np.uint64).astype(f"uint{ring.bits}")


def balanced(ring: Ring, x: np.ndarray) -> np.ndarray:
    numbers = x.astype(object)
    return np.where(numbers > ring.half, numbers - ring.modulus, numbers)


def launched(a, b, c, names: tuple[str, str], form: str, block: int, **options) -> np.ndarray:
    operand, result = (DTYPES[name] for name in names)
    out = np.zeros_like(c)
    with exact_mode("reference", **options):
        matmul[(1,)](
            *(tw.reinterpret(x, operand) for x in (a, b)),
            *(tw.reinterpret(x, result) for x in (c, out)),
            a.shape[1], BK=block, FORM=form,
        )  # fmt: skip
    return out


@pytest.mark.parametrize("way", ["native", "i8"])
@pytest.mark.parametrize(
    ("names", "form", "k", "block"),
    [
        (("fp16", "fp32"), "dot", 1264, 16),
        (("fp16", "fp32"), "zero", 1264, 16),
        (("fp16", "fp32"), "added", 1264, 16),
        (("fp16", "fp32"), "twice", 640, 16),
        (("fp16", "fp32"), "dot", 16, 16),
        (("fp16", "fp16"), "dot", 640, 16),
        (("bf16", "fp32"), "dot", 640, 64),
        (("fp32", "fp32"), "added", 640, 64),
        (("fp64", "fp64"), "dot", 128, 32),
        (("fp8e5", "fp32"), "dot", 128, 32),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, tuple) else str(value),
)
def test_any_number_of_iterations_is_exact(names, form, k, block, way) -> None:
    rng = np.random.default_rng(7)
    source, target = (ring_named(name) for name in names)
    a, b, c = (payloads(rng, ring, s) for ring, s in (
        (source, (16, k)), (source, (k, 16)), (target, (16, 16)),
    ))  # fmt: skip
    a[3], b[:, 5] = source.half, source.half  # whose digits are all 125
    product = balanced(source, a) @ balanced(source, b) * (2 if form == "twice" else 1)
    exact_sum = product + (0 if form == "zero" else balanced(target, c))
    found = launched(a, b, c, names, form, block, dot=way)
    assert (found.astype(object) == exact_sum % target.modulus).all()


@pytest.mark.parametrize("way", ["native", "i8"])
def test_codes_of_any_iteration_stay_in_their_rows_and_columns(way) -> None:
    rng = np.random.default_rng(9)
    source, target = ring_named("fp16"), ring_named("fp32")
    a, b = payloads(rng, source, (16, 1264)), payloads(rng, source, (1264, 16))
    c = payloads(rng, target, (16, 16))
    a[2, 5], b[1200, 3], b[40, 7] = source.nan, source.infinity, source.undefined
    c[9, 9], c[9, 10], c[9, 11] = target.infinity, target.negative_infinity, target.nan
    found = launched(a, b, c, ("fp16", "fp32"), "dot", 16, dot=way)
    assert (np.delete(found[2], [3, 7]) == target.nan).all()
    assert (np.delete(found[:, [3, 7]], 2, 0) == target.undefined).all()
    assert (found[9, 9:12] == c[9, 9:12]).all()
    rest = np.delete(np.delete(found, 2, 0), [3, 7], 1)
    assert (rest < target.modulus).sum() == rest.size - 3


def rewritten(form: str, way: str = "native", **constants) -> Module:
    types = dict.fromkeys(("a_ptr", "b_ptr"), "*fp16")
    types |= dict.fromkeys(("c_ptr", "out_ptr"), "*fp32")
    module = build(matmul, {**types, "K": "i32"}, BK=16, FORM=form, **constants)
    exact(module, ExactOptions(dot=way))
    return module


def matmul_loop(module: Module) -> For:
    (found,) = (operation for operation in module.walk() if isinstance(operation, For))
    return found


@pytest.mark.parametrize("way", ["native", "i8"])
@pytest.mark.parametrize("form", ["dot", "added", "zero"])
def test_the_loop_has_dots_alone_between_its_sums(form, way) -> None:
    loop = matmul_loop(rewritten(form, way))
    dots = [operation for operation in loop.body if isinstance(operation, Dot)]
    assert len(dots) == 4
    carried = {*loop.body.arguments}
    for dot in dots:
        assert dot.c in carried or isinstance(dot.c.definition, Dot)
    # residues of sums are computed as often as their type requires alone
    (periodic,) = (operation for operation in loop.body if isinstance(operation, If))
    last = {dots[0].result, dots[2].result, dots[3].result}
    assert last <= set(periodic.else_.last.operands)


def test_a_loop_of_few_iterations_has_no_branch() -> None:
    loop = matmul_loop(rewritten("dot", K=512))
    assert not any(isinstance(operation, If) for operation in loop.body)
    loop = matmul_loop(rewritten("dot", K=560))
    assert any(isinstance(operation, If) for operation in loop.body)


def test_an_accumulator_with_other_uses_is_a_payload() -> None:
    loop = matmul_loop(rewritten("scaled"))
    assert len(loop.results) == 1
