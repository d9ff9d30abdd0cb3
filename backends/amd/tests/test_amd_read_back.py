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
from tilewright_amd.architectures import ARCHITECTURES
from tilewright_amd.target import GcnTarget
from tilewright_conformance.kernels.pipelined import SIGNATURES


@pytest.mark.parametrize("kernel", SIGNATURES, ids=lambda kernel: kernel.__name__)
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_text_of_every_stage_compiles_to_the_same_code(arch: str, kernel: JITFunction) -> None:
    backend = registry().get("amd")
    target = named_target(backend, arch)
    signature, constants = SIGNATURES[kernel]
    types, attributes, values = bind_types(kernel, signature, constants)
    options = resolve(backend, kernel.__name__, {}, {})
    module = build_module(Specialization(kernel, types, values, attributes, options), backend, target)
    run(module, STANDARD)
    check_read_back(module, lambda: GcnTarget(target, options), options)


def test_no_method_changes_a_target() -> None:
    assert changes_in(GcnTarget) == []
