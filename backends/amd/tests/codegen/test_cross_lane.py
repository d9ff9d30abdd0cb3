"""Values of other lanes: every exchange, of every lane, executed on emulated waves."""

from __future__ import annotations

import dataclasses
import re
import struct

import numpy as np
import pytest

from tilewright.llvm.codegen.compile import assembly
from tilewright.llvm.emission.writer import ModuleWriter
from tilewright_amd.architectures import ARCHITECTURES, target_of
from tilewright_amd.codegen import cross_lane
from tilewright_amd.codegen.kernel_state import KernelState
from tilewright_amd.target import TRIPLE, GcnTarget
from tilewright_amd_emulator import Arena, load, run


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_every_lane_gets_what_the_lane_across_has(arch: str) -> None:
    row = ARCHITECTURES[arch]
    module = ModuleWriter()
    attributes = (
        f'"amdgpu-flat-work-group-size"="{row.wave},{row.wave}" "amdgpu-no-implicitarg-ptr"'
    )
    w = module.function(
        "k", [("ptr addrspace(1)", "out")], linkage="amdgpu_kernel", attributes=attributes
    )
    lane = w.call("llvm.amdgcn.workitem.id.x", "i32", [])
    value = w.emit(f"mul i32 {lane}, 3")
    turned = w.emit(f"sub i32 {row.wave - 1}, {lane}")
    found = [cross_lane.exchange(w, row, value, lambda: lane, mask) for mask in range(1, row.wave)]
    found.append(cross_lane.bpermute(w, value, turned))
    for number, name in enumerate(found):
        place = w.emit(
            "getelementptr i32, ptr addrspace(1) %out, i32 "
            f"{w.emit(f'add i32 {lane}, {number * row.wave}')}"
        )
        w.do(f"store i32 {name}, ptr addrspace(1) {place}, align 4")
    w.ret()
    text = assembly(module.text(), triple=TRIPLE, cpu=arch, opt=3)
    arena = Arena()
    address = arena.put(np.zeros((row.wave, row.wave), np.int32))
    run(
        load(text),
        "k",
        grid=(1, 1, 1),
        threads=row.wave,
        arguments=struct.pack("<Q", address),
        arena=arena,
    )
    results = arena.get(address, np.int32, (row.wave, row.wave))
    number = np.arange(row.wave)
    for mask in range(1, row.wave):
        np.testing.assert_array_equal(results[mask - 1], (number ^ mask) * 3, str(mask))
    np.testing.assert_array_equal(results[-1], number[::-1] * 3)


@pytest.mark.parametrize(
    ("mask", "copies", "swaps", "written"),
    [
        (16, True, False, ["asm", "swizzle", "swizzle", "asm"]),
        (32, True, False, ["asm", "bpermute", "bpermute", "asm"]),
        (16, False, False, ["swizzle", "swizzle"]),
        (2, True, False, ["dpp", "dpp"]),
        (16, True, True, ["swap", "swap"]),
    ],
)
def test_permutes_of_lds_are_pinned_beside_copies_to_lds(
    mask: int, copies: bool, swaps: bool, written: list[str]
) -> None:
    """No target of the table has copies to LDS and lacks the exchange of rows: a row without it
    stands for one."""
    target = GcnTarget(target_of(ARCHITECTURES["gfx950"]))
    lanes = cross_lane.GcnLanes(
        dataclasses.replace(ARCHITECTURES["gfx950"], swaps=swaps), target.threads
    )
    module = ModuleWriter()
    module.state = KernelState(
        4,
        frozenset(),
        counts=False,
        copies=copies,
        announces=False,
        asserts=False,
        record_words=0,
        vectors={},
    )
    w = module.function("k", [("i32", "a"), ("i32", "b")])
    found = lanes.shuffle_all_xor(w, ["%a", "%b"], mask)
    w.ret()
    calls = re.findall(
        r"call .*?(asm sideeffect|ds\.swizzle|ds\.bpermute|dpp|permlane\d*\.swap)[^\n]*",
        module.text().partition("declare")[0],
    )
    assert [call.split()[0].rpartition(".")[2] for call in calls] == written and len(found) == 2
