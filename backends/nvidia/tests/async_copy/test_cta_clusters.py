"""Matmuls by clusters of two CTAs: the generated code.

Results are tested in the emulator (``core/tests/simt/passes/test_cta_clusters.py``) and on the GPU
(``gpu/test_gpu_clusters.py``).
"""

from __future__ import annotations

import re

import pytest
from kernel_case import Case
from known_kernels import built, described

from tilewright.ir.types import F16, F32
from tilewright.plugins.manifest import CodeObject
from tilewright.plugins.registry import registry
from tilewright.runtime.compiler.compile import lower_module
from tilewright.simt.layouts.linear_layout import SharedLayout
from tilewright_nvidia.architectures import ARCHITECTURES, target_of
from tilewright_nvidia.async_copy.swizzle_atoms import SwizzleAtoms, swizzled_layout
from tilewright_nvidia.async_copy.tma_boxes import boxes, shares


def compiled(case: Case, arch: str = "sm_90a") -> CodeObject:
    backend, target = registry().get("nvidia"), target_of(ARCHITECTURES[arch])
    module, options = built(case, target)
    return lower_module(module, options, backend, target).code


def test_blocks_of_a_cluster_bring_each_other_the_left_operand() -> None:
    code = compiled(described((128, 128, 64, 4, 6, True, "blocks", False, 2), "fp16"))
    ptx = code.stages["ptx"]
    assert isinstance(ptx, str)
    assert (
        re.search(r"\.reqnctapercluster\s+2, 1, 1", ptx)
        and "%clusterid.x" in ptx
        and "%ctaid" not in ptx
    )
    assert code.metadata["cluster"] == 2
    # before objects are made, when they were, and at the end
    assert ptx.count("barrier.cluster.arrive") == 3
    assert (
        ptx.count("multicast::cluster") == 1
        and ptx.count("cp.async.bulk.tensor.2d.shared::cluster") == 2
    )
    # each block arrives at both's objects, in the loop and after it
    assert ptx.count("mbarrier.arrive.release.cta.shared::cluster") == 4
    boxes_of = {tuple(facts["box"]) for facts in code.metadata["tensor_maps"]}
    assert boxes_of == {
        (64, 64),
        (128, 64),
    }  # halves of 128 rows of a and of 128 columns of b; the result, 128 x 64


@pytest.mark.parametrize("options", [{"asynchronous": False}, {"num_ctas": 16}])
def test_other_machines_and_greater_clusters_run_in_one_block(options: dict[str, object]) -> None:
    case = described((128, 128, 64, 4, 4, False, "pointers", False, 2), "fp16")
    code = compiled(
        Case(case.file, case.kernel, case.signature, case.constants, {**case.options, **options})
    )
    assert code.metadata["cluster"] == 1 and "cluster" not in str(code.stages["ptx"]).replace(
        "shared::cluster", ""
    ).replace("init.release.cluster", "")
    assert any("has no clusters of" in note for note in code.metadata["notes"])


def test_parts_are_whole_repeats_of_the_swizzle() -> None:
    slabs = swizzled_layout((128, 64), 2, SwizzleAtoms(1, 128))
    assert slabs is not None
    half = boxes(slabs, F16, 2)
    assert half is not None and half.shape == (64, 64) and half.starts == ((0, (0, 0)),)
    wide = swizzled_layout((64, 128), 2, SwizzleAtoms(1, 128))
    assert wide is not None
    parts = boxes(wide, F16, 2)  # two swizzle atoms, half of each per CTA
    assert (
        parts is not None
        and parts.shape == (32, 64)
        and [start for start, _ in parts.starts] == [0, 64 * 128]
    )
    few = swizzled_layout((8, 256), 4, SwizzleAtoms(1, 128))
    assert few is not None and boxes(few, F32) is not None and not shares(few, F32, 2)
    assert not shares(SharedLayout.row_major((1024,)), F32, 2)
