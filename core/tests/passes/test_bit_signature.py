"""Signatures of modules: equal for equal bits, absent where the backend chooses an order."""

from __future__ import annotations

import tilewright as tw
import tilewright.language as tl
from tilewright.ir.parser import parse_module
from tilewright.passes.analysis.bit_signature import bit_signature, unordered_addition
from tilewright.plugins.manifest import Target
from tilewright.plugins.registry import registry
from tilewright.runtime.compiler.compile import Specialization, build_module


@tw.jit
def scaled(x, out, n, BLOCK: tl.constexpr, FACTOR: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + places, tl.load(x + places, mask=places < n) * FACTOR, mask=places < n)


@tw.jit
def summed(x, out, n, BLOCK: tl.constexpr, FACTOR: tl.constexpr):
    total = 0.0
    for start in range(0, n, BLOCK):
        total += tl.sum(tl.load(x + start + tl.arange(0, BLOCK)), order=FACTOR)
    tl.store(out, total)


@tw.jit
def multiplied(x, out, n, BLOCK: tl.constexpr, FACTOR: tl.constexpr):
    places = tl.arange(0, BLOCK)[:, None] * BLOCK + tl.arange(0, BLOCK)[None, :]
    tile = tl.load(x + places)
    tl.store(out + places, tl.dot(tile, tile, order=FACTOR))


@tw.jit
def added(x, out, n, BLOCK: tl.constexpr, FACTOR: tl.constexpr):
    tl.atomic_add(out + tl.arange(0, BLOCK), tl.load(x + tl.arange(0, BLOCK)))


def module(kernel, block, factor, element="fp32", **options):
    backend = registry().get("reference")
    signature = {"x": f"*{element}", "out": f"*{element}", "n": "i32"}
    signature |= {"BLOCK": "constexpr", "FACTOR": "constexpr"}
    constants = {"BLOCK": block, "FACTOR": factor}
    target = Target("reference", "numpy", kind="cpu")
    return build_module(
        Specialization(kernel, signature, constants, {}, {**backend.manifest.options, **options}),
        backend,
        target,
    )


def test_elementwise_kernels_have_one_signature_for_all_tiles() -> None:
    small, large, other = (
        bit_signature(module(scaled, *values, invariant=True))
        for values in ((16, 3.0), (64, 3.0), (16, 5.0))
    )
    assert small == large != other
    assert small is not None
    assert small.startswith("elementwise")


def test_a_module_whose_operations_may_be_fused_has_no_signature() -> None:
    free, invariant = (module(scaled, 16, 3.0, invariant=on) for on in (False, True))
    assert bit_signature(free) is None
    assert "attributes {contract = false}" in str(invariant)
    assert "contract" not in str(free)
    assert bit_signature(parse_module(str(invariant))) == bit_signature(invariant)


def test_a_stated_order_has_one_signature_for_each_tile() -> None:
    assert bit_signature(module(summed, 16, "any")) is None
    assert bit_signature(module(summed, 16, "tree")) is None
    assert bit_signature(module(summed, 16, "any", "i32", invariant=True)) is not None
    tree, again, wider = (
        bit_signature(module(summed, size, "tree", invariant=True)) for size in (16, 16, 32)
    )
    assert tree == again != wider
    assert bit_signature(module(summed, 16, "sequential", invariant=True)) not in (None, tree)


def test_matmuls_have_a_signature_with_a_stated_order_alone() -> None:
    assert bit_signature(module(multiplied, 16, "any")) is None
    assert bit_signature(module(multiplied, 16, "sequential", invariant=True)) is not None


def test_an_invariant_launch_states_the_order_of_reductions() -> None:
    free, invariant = module(summed, 16, None), module(summed, 16, None, invariant=True)
    assert bit_signature(free) is None
    assert bit_signature(invariant) == bit_signature(module(summed, 16, "tree", invariant=True))


def test_atomic_additions_of_floats_depend_on_the_order_of_programs() -> None:
    assert unordered_addition(module(added, 16, 0)) is not None
    assert unordered_addition(module(added, 16, 0, "i32")) is None
    assert unordered_addition(module(scaled, 16, 1.0)) is None
