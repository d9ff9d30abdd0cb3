"""Rejection of undeclared features before a backend's lowering, however the module was created."""

import copy
import dataclasses

import pytest

import tilewright as tw
import tilewright.language as tl
from tilewright.errors import LoweringError
from tilewright.ir.parser import parse_module
from tilewright.plugins.manifest import Capabilities
from tilewright.plugins.registry import registry
from tilewright.runtime.compiler.capability_check import (
    atomic_element,
    check_declared,
    check_options,
)
from tilewright.runtime.compiler.compile import lower_module
from tilewright.runtime.devices.device_registry import named_target
from tilewright_conformance.op_samples import samples

ALL = Capabilities(
    dtypes=frozenset({"i8", "u8", "u32", "f16", "f32", "bf16"}),
    dot={"f16": ("f32",), "f32": ("f32",)},
    dot_precisions=("ieee", "tf32"),
    min_dot=(8, 8, 8),
    atomics={
        "f16": frozenset({"add"}),
        "f32": frozenset({"add", "max"}),
        "i64": frozenset({"xchg"}),
    },
    max_tile_elements=1024,
    features=frozenset({"descriptors", "print"}),
)


def sample(name):
    return next(one for one in samples(name.partition("/")[0]) if one.name == name)


def refusal(name, **changed):
    with pytest.raises(LoweringError) as found:
        check_declared(sample(name).module, dataclasses.replace(ALL, **changed), "small")
    return str(found.value)


@pytest.mark.parametrize(
    ("name", "changed", "text"),
    [
        (
            "add/f64/scalar",
            {},
            (
                "backend 'small' does not declare element type f64 (of ptr<f64>); it has bf16, "
                "f16, f32, i1, i32, i64, i8, u32, u8"
            ),
        ),
        (
            "atomic_rmw/max/f64/16",
            {"dtypes": ALL.dtypes | {"f64"}},
            "does not declare atomic max on f64; on f64 it has none, and atomic max on f32",
        ),
        (
            "atomic_cas/f32/scalar",
            {},
            "does not declare atomic cas on f32; on f32 it has add, max, and atomic cas on none",
        ),
        ("descriptor_reduce/min/f32/2x3x4x8", {"power_of_two": False}, "descriptor_reduce at"),
        (
            "descriptor_reduce/min/f32/2x3x4x8",
            {"power_of_two": False},
            "does not declare atomic min on f32",
        ),
        (
            "descriptor_extent/i8/argument/32/0",
            {"features": frozenset({"print"})},
            "does not declare feature 'descriptors' (for desc<16xi8>); it has print",
        ),
        (
            "print/i32/scalar",
            {"features": frozenset()},
            "does not declare feature 'print'; it has none",
        ),
        ("assert/4x8/mask", {}, "does not declare feature 'assert'; it has descriptors, print"),
        (
            "dot/f32_f32_f32/16x16x16",
            {"min_dot": (8, 8, 32)},
            "does not declare a dot of M x N x K = 16 x 16 x 16; the minimum is 8 x 8 x 32",
        ),
        (
            "dot/f32_f32_f32/16x16x16",
            {"dot": {"f16": ("f32",)}},
            "does not declare matmul of f32 accumulated in f32; it multiplies f16",
        ),
        (
            "dot/bf16_bf16_f32/2x16x16x16",
            {"dot": {"bf16": ("bf16",)}},
            "does not declare matmul of bf16 accumulated in f32; bf16 goes into bf16",
        ),
    ],
)
def test_each_kind_of_need_is_refused_by_name(name, changed, text):
    assert text in refusal(name, **changed)


def module_of(body, arguments=""):
    return parse_module(f"tilewright.ir 1.0\n\nkernel @odd({arguments}) {{\n{body}\n  return\n}}\n")


def test_tiles_of_a_size_that_is_not_declared():
    odd = module_of("  %a = constant 1.0 : tile<20xf32>")
    with pytest.raises(
        LoweringError,
        match=(
            r"constant: backend 'small' does not declare tile extents that are no powers of two "
            r"\(20 of tile<20xf32>\)"
        ),
    ):
        check_declared(odd, ALL, "small")
    check_declared(odd, dataclasses.replace(ALL, power_of_two=False), "small")
    large = module_of("  %a = constant 1.0 : tile<64x32xf32>")
    with pytest.raises(
        LoweringError, match=r"tiles of 2048 elements \(tile<64x32xf32>\); they have 1024 at most"
    ):
        check_declared(large, ALL, "small")


def test_precisions_of_a_dot():
    text = str(sample("dot/f32_f32_f32/16x16x16").module)
    found = [one.module for one in samples("dot") if "bf16x6" in str(one.module)]
    assert found and "bf16x6" not in text
    with pytest.raises(LoweringError, match=r"precision 'bf16x6' of a dot; it has ieee, tf32"):
        check_declared(found[0], ALL, "small")


def test_masks_and_indices_are_for_everyone_and_pointers_are_integers():
    body = (
        "  %p = program_id {axis = 0} : i32\n  %c = constant 5 : i64\n"
        "  %t = constant true : tile<8xi1>"
    )
    check_declared(module_of(body), Capabilities(frozenset()), "none")
    argument = module_of("", "%x: ptr<ptr<f32>>").kernel.arguments[0]
    assert atomic_element(argument.type) == "i64"


def test_every_backend_is_held_to_its_manifest():
    found = registry().get("reference")
    target = found.require("tilewright_target", device=found.require("tilewright_devices")[0])
    module = parse_module(str(next(one for one in samples("print")).module))
    small = dataclasses.replace(
        found.manifest,
        capabilities=dataclasses.replace(found.manifest.capabilities, features=frozenset()),
    )
    backend = copy.copy(found)
    backend.manifest = small
    with pytest.raises(LoweringError, match="does not declare feature 'print'"):
        lower_module(module, small.options, backend, target)


@tw.jit
def doubled(x):
    return x.to(tl.float64) * 2


@tw.jit
def outer(x_ptr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(x_ptr + at, doubled(tl.load(x_ptr + at)).to(tl.float32))


def test_an_error_in_a_called_function_says_where_it_was_called():
    from tilewright.runtime.compiler.compile import Specialization, build_module

    found = registry().get("reference")
    target = found.require("tilewright_target", device=found.require("tilewright_devices")[0])
    module = build_module(
        Specialization(
            outer,
            {"x_ptr": "*fp32", "BLOCK": "constexpr"},
            {"BLOCK": 16},
            options=found.manifest.options,
        ),
        found,
        target,
    )
    with pytest.raises(
        LoweringError, match=r"test_capability_check.py:\d+:\d+ in doubled: .*element type f64"
    ) as caught:
        check_declared(module, ALL, "small")
    assert any("in outer" in note for note in caught.value.__notes__)


def test_it_costs_next_to_nothing(steps_in):
    from tilewright.runtime.compiler.compile import Specialization, build_module

    found = registry().get("reference")
    target = found.require("tilewright_target", device=found.require("tilewright_devices")[0])

    @tw.jit
    def long(x_ptr, N: tl.constexpr):
        at = tl.arange(0, 64)
        x = tl.load(x_ptr + at)
        for i in tl.static_range(N):
            x = x * 1.5 + i
        tl.store(x_ptr + at, x)

    module = build_module(
        Specialization(
            long, {"x_ptr": "*fp32", "N": "constexpr"}, {"N": 250}, options=found.manifest.options
        ),
        found,
        target,
    )
    operations = sum(1 for _ in module.walk())
    assert operations > 500
    assert (
        steps_in(lambda: check_declared(module, found.manifest.capabilities, "reference"))
        < 12 * operations
    )  # 9 on Python 3.11


@pytest.mark.parametrize("features", [frozenset(), frozenset({"print"})])
def test_options_that_promise_what_is_not_declared(features):
    small = dataclasses.replace(ALL, features=features)
    for options in ({}, {"cooperative": False}):
        check_options(options, small, "small", "k")
    has = ", ".join(features) or "none"
    with pytest.raises(
        LoweringError,
        match=(
            "kernel k: option cooperative: backend 'small' does not declare feature "
            f"'cooperative'; it has {has}"
        ),
    ):
        check_options({"cooperative": True}, small, "small", "k")
    check_options(
        {"cooperative": True},
        dataclasses.replace(small, features=features | {"cooperative"}),
        "small",
        "k",
    )


def test_launches_are_held_to_the_features_that_their_options_take():
    backend = registry().get("reference")
    less = dataclasses.replace(
        backend.manifest.capabilities,
        features=backend.manifest.capabilities.features - {"cooperative"},
    )
    target = dataclasses.replace(named_target(backend, "numpy"), capabilities=less)
    module = module_of("")
    lower_module(copy.deepcopy(module), dict(backend.manifest.options), backend, target)
    with pytest.raises(
        LoweringError,
        match="option cooperative: backend 'reference' does not declare feature 'cooperative'",
    ):
        lower_module(module, {**backend.manifest.options, "cooperative": True}, backend, target)
