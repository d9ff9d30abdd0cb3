"""The amd backend registers its targets, and says why it has no devices where there is no
runtime."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import amd_kernels as kernels
import numpy as np
import pytest
from amd_emulated import launched
from amd_support import compiled

from tilewright.errors import BackendError, LoweringError
from tilewright.llvm.codegen.compile import assembly
from tilewright.plugins.manifest import Target
from tilewright.plugins.registry import registry
from tilewright.runtime.compiler.compile import build_module
from tilewright.runtime.devices.device_registry import find, forget, named_target
from tilewright.tools.inspect import specialize
from tilewright_amd.architectures import ARCHITECTURES
from tilewright_amd.host import devices
from tilewright_amd.host.driver_table import ENTRIES
from tilewright_amd.lower import lower
from tilewright_amd.target import TRIPLE
from tilewright_amd.toolchain.resources import usage_of

#: Targets of one instruction set each, RDNA 3 or 4.
RDNA = (
    "gfx1100",
    "gfx1101",
    "gfx1102",
    "gfx1103",
    "gfx1150",
    "gfx1151",
    "gfx1152",
    "gfx1153",
    "gfx1200",
    "gfx1201",
)


def test_is_listed_with_its_targets_and_a_reason_it_cannot_run() -> None:
    manifest = registry().get("amd").manifest
    assert manifest.device_kinds == ("hip",)
    assert manifest.targets == ("gfx90a", "gfx942", "gfx950", *RDNA)
    assert "no device is present" in manifest.status


def test_finds_no_devices() -> None:
    assert list(registry().get("amd").call("tilewright_devices")) == []


@pytest.mark.parametrize(
    ("arch", "lanes", "shared"), [("gfx90a", 64, 64), ("gfx950", 64, 160), ("gfx1151", 32, 64)]
)
def test_targets_say_what_the_machine_has(arch: str, lanes: int, shared: int) -> None:
    target = named_target(registry().get("amd"), arch)
    assert (target.warp_size, target.limits["shared_memory"], target.kind) == (
        lanes,
        shared << 10,
        "hip",
    )


def test_a_gpu_outside_the_list_is_named() -> None:
    with pytest.raises(BackendError, match="no target 'gfx906'; it has gfx90a, gfx942"):
        named_target(registry().get("amd"), "gfx906")


def test_a_gpu_that_is_there_and_not_served_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    class Hip:
        """A driver of a machine with one GPU."""

        entries = ENTRIES

        def __call__(self, entry: Any, *arguments: Any) -> Any:
            name = entry if isinstance(entry, str) else entry.name
            return {
                "hipGetDeviceCount": 1,
                "hipDeviceGet": 0,
                "hipDeviceGetName": "AMD Radeon RX 6800",
                "hipGetDeviceProperties": "gfx1030",
            }[name]

    monkeypatch.setattr(devices, "driver", Hip)
    monkeypatch.setattr(devices, "why_not", str)
    backend = registry().get("amd")
    monkeypatch.setattr(backend, "manifest", dataclasses.replace(backend.manifest, status=""))
    assert devices.devices() == []
    expected = (
        "found no device: there is no code for AMD Radeon RX 6800 (gfx1030); targets are gfx90a, "
        "gfx942, gfx950, gfx1100, "
    )
    forget()
    try:
        for place in (None, ("hip", 0)):
            with pytest.raises(BackendError, match=re.escape(expected)):
                find(backend, place)
    finally:
        forget()


@pytest.mark.parametrize("arch", RDNA)
def test_registers_of_a_compute_unit_are_those_that_llvm_counts_with(arch: str) -> None:
    """Of 16 waves for each compute unit, eight for each SIMD, LLVM gives each a share of the
    registers."""
    count = 250
    loads = "\n".join(f"  %v{i} = load volatile i32, ptr addrspace(1) %q" for i in range(count))
    stores = "\n".join(f"  store volatile i32 %v{i}, ptr addrspace(1) %q" for i in range(count))
    text = f"""
declare i32 @llvm.amdgcn.workitem.id.x()
define amdgpu_kernel void @k(ptr addrspace(1) %p) "amdgpu-waves-per-eu"="8,8" {{
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %q = getelementptr i32, ptr addrspace(1) %p, i32 %t
{loads}
{stores}
  ret void
}}
"""
    row = ARCHITECTURES[arch]
    share = usage_of(assembly(text, triple=TRIPLE, cpu=arch, opt=3)).registers
    assert (row.file, row.granule) == (row.simds * 8 * share * row.wave, share // 8)


@pytest.mark.parametrize("arch", ["gfx1102", "gfx1153", "gfx1200"])
def test_kernels_run_on_every_chip_of_an_instruction_set(arch: str) -> None:
    """The code is for the chip's own name, which is what its runtime loads."""
    x, y = np.random.default_rng(0).standard_normal((2, 1000)).astype(np.float32)
    out = np.zeros_like(x)
    code = compiled(kernels.add, "*fp32, *fp32, *fp32, i32", arch, {"BLOCK": 256})
    assert f"amdgcn-amd-amdhsa--{arch}" in str(code.stages["amdgcn"])
    launched(code, [x, y, out, 1000], (4,), schedule="random")
    np.testing.assert_array_equal(out, x + y)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"warp_size": 64}, "cpu 'gfx942', not ''"),
        ({"cpu": "gfx942"}, "warp_size 64, not 1"),
        ({"cpu": "gfx942", "warp_size": 64}, "limit shared_memory"),
    ],
)
def test_an_incomplete_target_is_refused_before_code_generation(
    given: dict[str, Any], reason: str
) -> None:
    backend = registry().get("amd")
    found = specialize(kernels.where_programs_are, "*i32", {}, backend, {})
    module = build_module(found, backend, named_target(backend, "gfx942"))
    with pytest.raises(LoweringError, match=reason):
        lower(module, Target("amd", "gfx942", kind="hip", **given), found.options)
