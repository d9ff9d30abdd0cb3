"""Targets keep nothing between questions: what follows a stage does the same with the kernel's text."""

from __future__ import annotations

import pytest

from tilewright.passes.pipeline import STANDARD, run
from tilewright.plugins.registry import registry
from tilewright.runtime.compile import Specialization, build_module
from tilewright.runtime.devices import named_target
from tilewright.runtime.jit import JITFunction
from tilewright.runtime.options import resolve
from tilewright.testing.read_back import changes_in, check_read_back
from tilewright.tools.inspect import bind_types
from tilewright_conformance.kernels.pipelined import SIGNATURES, attention
from tilewright_nvidia.architectures import ARCHITECTURES
from tilewright_nvidia.target import PtxTarget


@pytest.mark.parametrize("kernel", SIGNATURES, ids=lambda kernel: kernel.__name__)
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_text_of_every_stage_compiles_to_the_same_code(arch: str, kernel: JITFunction) -> None:
    backend = registry().get("nvidia")
    target = named_target(backend, arch)
    signature, constants = SIGNATURES[kernel]
    types, attributes, values = bind_types(kernel, signature, constants)
    options = resolve(backend, kernel.__name__, {}, {})
    module = build_module(Specialization(kernel, types, values, attributes, options), backend, target)
    run(module, STANDARD)
    check_read_back(module, lambda: PtxTarget(target, options), options)


def test_a_target_that_answers_otherwise_is_found() -> None:
    backend = registry().get("nvidia")
    target = named_target(backend, "sm_90a")
    signature, constants = SIGNATURES[attention]
    types, attributes, values = bind_types(attention, signature, constants)
    options = resolve(backend, "attention", {}, {})
    module = build_module(Specialization(attention, types, values, attributes, options), backend, target)
    kinds = iter(["relaxed", "relaxed"])

    def new_target() -> PtxTarget:
        return PtxTarget(target, {**options, "math": next(kinds, "strict")})

    with pytest.raises(AssertionError, match=r"sm_90a: kernel attention compiles to other code where .* after stage prepare, "):
        check_read_back(module, new_target, options)


def test_no_method_changes_a_target() -> None:
    assert changes_in(PtxTarget) == []
