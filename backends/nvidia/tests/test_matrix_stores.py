"""Stores by ``stmatrix``: each word goes where its elements belong, run in NumPy as the instruction set describes it; what ptxas says."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import pytest
from hopper_support import compiled, matrix_store_kernel, plan_of
from test_warpgroups import Recorder

from tilewright.ir.type_text import parse_type
from tilewright.llvm.writer import ModuleWriter
from tilewright.simt.linear_layout import LinearLayout, SharedLayout, combine
from tilewright_nvidia.linking import assemble
from tilewright_nvidia.matrix_stores import can_store, store_matrices
from tilewright_nvidia.slabs import Slabs, slab_layout
from tilewright_nvidia.words import Words

#: Shapes of accumulators, warps, slabs that the tile goes to: by rows, or transposed.
CASES = [
    ((64, 64), 4, Slabs(1, 128)),
    ((64, 64), 4, Slabs(1, 64)),
    ((64, 8), 4, Slabs(1, 0)),
    ((64, 16), 4, Slabs(1, 32)),
    ((128, 256), 8, Slabs(1, 128)),
    ((64, 64), 4, Slabs(0, 128)),
    ((128, 128), 8, Slabs(0, 128)),
    ((64, 128), 8, Slabs(0, 32)),
]


class Recorded(Recorder):
    def thread_part(self, lanes: Sequence[int], warps: Sequence[int]) -> str:
        self.lanes, self.warps = tuple(lanes), tuple(warps)
        return "%thread"


def accumulators(shape: tuple[int, int], warps: int) -> LinearLayout:
    return plan_of(shape, 64, "f16", "f16", "f32", warps).c


@pytest.mark.parametrize(("shape", "warps", "slabs"), CASES, ids=str)
def test_words_go_where_their_elements_belong(shape: tuple[int, int], warps: int, slabs: Slabs) -> None:
    layout, shared, half = accumulators(shape, warps), slab_layout(shape, 2, slabs), parse_type("f16")
    assert shared is not None and can_store(layout, shared, half)
    module = ModuleWriter()
    w = module.function("f", [("ptr addrspace(3)", "to"), *(("half", f"r{i}") for i in range(layout.register_count))])
    context = Recorded(w)
    names = [f"%r{i}" for i in range(layout.register_count)]
    store_matrices(context, Words(), layout, half, "%to", shared, names)  # type: ignore[arg-type]
    w.ret()
    text = module.text()
    places = dict(re.findall(r"(%\w+) = getelementptr i8, ptr addrspace\(3\) %to, i32 (%\w+)", text))
    bits = {"%thread": 0} | {name: int(mask) for name, mask in re.findall(r"(%\w+) = xor i32 %thread, (\d+)", text)}
    further = {name: (base, int(by)) for name, base, by in re.findall(r"(%\w+) = getelementptr i8, ptr addrspace\(3\) (%\w+), i32 (\d+)", text)}
    pairs = dict(re.findall(r"(%\w+) = bitcast <2 x half> (%\w+) to i32", text))
    vectors = {
        name: (vector, element, int(i)) for name, vector, element, i in re.findall(r"(%\w+) = insertelement <2 x half> (%?\w+), half %r(\d+), i32 (\d)", text)
    }
    memory = np.full(shape[0] * shape[1], -1)
    calls = re.findall(r"@llvm\.nvvm\.stmatrix\.sync\.aligned\.m8n8\.x(\d)(\.trans)?\.b16\.p3\(ptr addrspace\(3\) (%\w+), ([^)]*)\)", text)
    assert len(calls) == layout.register_count // 2 // int(calls[0][0])
    for count, transposed, place, words in calls:
        assert (transposed == ".trans") == (slabs.inner == 0)
        base, offset = further.get(place, (place, 0))
        mask = bits[places[base]]
        held = []
        for word in re.findall(r"i32 (%\w+)", words):
            vector, second, one = vectors[pairs[word]]
            assert one == 1 and vectors[vector][2] == 0
            held.append((int(vectors[vector][1]), int(second)))
        assert len(held) == int(count)
        for warp in range(warps):
            rows = [(combine(context.warps, warp) ^ combine(context.lanes, lane) ^ mask) + offset for lane in range(32)]
            for j, registers in enumerate(held):
                for lane in range(32):
                    group, thread = divmod(lane, 4)
                    for i, register in enumerate(registers):
                        row, column = (2 * thread + i, group) if transposed else (group, 2 * thread + i)
                        at = rows[8 * j + row]
                        assert at % 16 == 0 and memory[at // 2 + column] == -1
                        memory[at // 2 + column] = layout.element(register, lane, warp)
    assert all(memory[shared.offset(element)] == element for element in range(memory.size))


def test_tiles_that_it_does_not_fit() -> None:
    layout = accumulators((64, 64), 4)
    assert not can_store(layout, _scattered(), parse_type("f16"))
    # every warp has each element
    repeated = LinearLayout(layout.shape, (*layout.registers, *layout.warps), layout.lanes, (0, 0))
    shared = slab_layout((64, 64), 2, Slabs(1, 128))
    assert shared is not None and not can_store(repeated, shared, parse_type("f16"))


def _scattered() -> SharedLayout:
    """Neighbours along rows far from each other."""
    plain = SharedLayout.row_major((64, 64)).images
    return SharedLayout((64, 64), (plain[3], *plain[1:3], plain[0], *plain[4:]))


@pytest.mark.parametrize(("shape", "warps", "slabs"), CASES, ids=str)
@pytest.mark.parametrize("element", ["f16", "bf16"])
def test_what_is_written_assembles(shape: tuple[int, int], warps: int, slabs: Slabs, element: str) -> None:
    ptx = str(compiled(*matrix_store_kernel(shape, element, slabs, warps)).stages["ptx"])
    found = re.findall(r"stmatrix\.sync\.aligned\.m8n8\.x\d(\.trans)?\.shared\.b16", ptx)
    assert set(found) == {".trans" if slabs.inner == 0 else ""}
    # sums are narrowed by twos; of those of bf16, the assembler makes pairs
    assert element == "bf16" or len(re.findall(rf"cvt\.rn\.{element}x2\.f32", ptx)) == shape[0] * shape[1] // (64 * warps)
    assert assemble(ptx, "sm_90a").spills == 0
