"""Targets keep nothing between questions: what follows a stage does the same with the kernel's
text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from tilewright.ir.core import Function
from tilewright.plugins.manifest import Target
from tilewright.runtime.launch.jit import JITFunction
from tilewright.testing.read_back import changes_by, check_read_back
from tilewright.testing.target_size import oversized
from tilewright_conformance.kernels.prefetch_kernels import SIGNATURES, attention, tile_ir
from tilewright_nvidia.architectures import ARCHITECTURES, target_of
from tilewright_nvidia.codegen.kernel_state import KernelState
from tilewright_nvidia.target import PtxTarget


@pytest.mark.each_value
@pytest.mark.parametrize("kernel", SIGNATURES, ids=lambda kernel: kernel.__name__)
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_text_of_every_stage_compiles_to_the_same_code(arch: str, kernel: JITFunction) -> None:
    module, target, options = tile_ir(kernel, "nvidia", arch)
    check_read_back(module, lambda: PtxTarget(target, options), options)


def test_kernels_have_loops_matmuls_gathers_and_descriptors_of_every_kind() -> None:
    names = {
        operation.name
        for kernel in SIGNATURES
        for operation in tile_ir(kernel, "nvidia", "sm_90a")[0].walk()
    }
    assert {"for", "dot", "dot_scaled", "gather", "make_descriptor"} <= names
    assert {"descriptor_load", "descriptor_store", "descriptor_gather"} <= names


def test_a_target_that_answers_otherwise_is_found() -> None:
    module, target, options = tile_ir(attention, "nvidia", "sm_90a")
    kinds = iter(["relaxed", "relaxed"])

    def new_target() -> PtxTarget:
        return PtxTarget(target, {**options, "math": next(kinds, "strict")})

    with pytest.raises(
        AssertionError,
        match=r"sm_90a: kernel attention compiles to other code where .* after stage prepare, ",
    ):
        check_read_back(module, new_target, options)


class Counts(PtxTarget):
    """Keeps what it is asked in a container, out of sight of :func:`changes_in`."""

    def __init__(self, target: Target, options: Mapping[str, Any]) -> None:
        super().__init__(target, options)
        self.asked: list[str] = []

    def prepare(self, function: Function) -> KernelState:
        keep = self.asked.append
        keep(function.name)
        return super().prepare(function)


def test_a_target_that_a_compilation_changes_is_found() -> None:
    module, target, options = tile_ir(attention, "nvidia", "sm_90a")
    with pytest.raises(AssertionError, match=r"^sm_90a has changed: asked\b"):
        check_read_back(module, lambda: Counts(target, options), options)


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_no_method_changes_a_target(arch: str) -> None:
    assert changes_by(PtxTarget(target_of(ARCHITECTURES[arch]))) == []


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_target_and_capabilities_have_few_members(arch: str) -> None:
    assert not oversized(PtxTarget(target_of(ARCHITECTURES[arch])))
