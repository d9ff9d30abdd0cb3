"""Targets keep nothing between questions: what follows a stage does the same with the kernel's
text."""

from __future__ import annotations

import pytest

from tilewright.runtime.launch.jit import JITFunction
from tilewright.testing.read_back import changes_by, check_read_back
from tilewright.testing.target_size import oversized
from tilewright_amd.architectures import ARCHITECTURES, target_of
from tilewright_amd.target import GcnTarget
from tilewright_conformance.kernels.prefetch_kernels import SIGNATURES, tile_ir


@pytest.mark.each_value
@pytest.mark.parametrize("kernel", SIGNATURES, ids=lambda kernel: kernel.__name__)
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_text_of_every_stage_compiles_to_the_same_code(arch: str, kernel: JITFunction) -> None:
    module, target, options = tile_ir(kernel, "amd", arch)
    check_read_back(module, lambda: GcnTarget(target, options), options)


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_no_method_changes_a_target(arch: str) -> None:
    assert changes_by(GcnTarget(target_of(ARCHITECTURES[arch]))) == []


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_target_and_capabilities_have_few_members(arch: str) -> None:
    assert not oversized(GcnTarget(target_of(ARCHITECTURES[arch])))
