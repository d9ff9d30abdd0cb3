"""Matmuls start before the results of the previous iteration's are used."""

from __future__ import annotations

import pytest
from block_scale_kernels import module_of, run_scaled, scaled, stepping
from matmul_kernels import BK, MODES, by_blocks, matmul_module, operations

from tilewright.ir import Module
from tilewright.simt.compile import STAGES, run_stages
from tilewright.testing.toy_targets import BulkTarget

SIZES = [(16, 8, blocks * BK - odd) for blocks, odd in ((0, 0), (1, 3), (3, 0), (4, 0), (9, 1))]


@pytest.mark.each_value
@pytest.mark.parametrize("completion", MODES)
@pytest.mark.parametrize("kernel, before", [(scaled, True), (scaled, False), (stepping, False)])
@pytest.mark.parametrize("groups", [False, True])
@pytest.mark.parametrize("stages", [2, 3, 5])
@pytest.mark.parametrize("size", [*SIZES, (19, 11, 6 * BK)], ids=str)
def test_results_are_used_while_the_next_matmul_runs(
    size: tuple[int, int, int],
    stages: int,
    groups: bool,
    kernel: object,
    before: bool,
    completion: str,
) -> None:
    """For numbers of iterations that are multiples of those that are written out, and others."""
    module = run_scaled(
        kernel,
        size,
        BulkTarget(8, groups=groups),
        {"PARTS": True, "BEFORE": before},
        num_stages=stages,
        completion=completion,
    )
    main, rest = dict.fromkeys(matmul.parent for matmul in operations(module, "simt.dot_start"))
    assert main is not None and rest is not None
    order = [
        operation.name.removeprefix("simt.")
        for operation in main
        if operation.name in ("simt.dot_start", "simt.arrive", "simt.own_load")
        or (operation.name == "simt.wait" and operation.results)
    ]
    start = ["dot_start", *(["own_load"] * 2 if groups else [])]
    use = ["wait", "wait", "arrive"]
    assert order == [*start, *[*start, *use] * 3, "wait", "arrive"]
    overwriting = [one for one in main if one.attributes.get("overwrites")]
    waits = [one for one in main if one.name == "simt.wait" and one.results]
    assert [one.operands[2].definition for one in overwriting] == [waits[0], waits[2]]
    assert sum(operation.name == "simt.dot_start" for operation in rest) == 1


def compiled(module: Module, target: BulkTarget, warps: int) -> Module:
    names = [stage.name for stage in STAGES]
    run_stages(module, target, {"num_warps": warps, "num_stages": 3}, names)
    return module


def test_matmuls_that_only_add_are_not_written_out() -> None:
    """Their waits are deferred to the next iteration."""
    module = compiled(matmul_module(by_blocks, blocks=True, PARTS=True), BulkTarget(8), 2)
    assert operations(module, "simt.part") and len(operations(module, "simt.dot_start")) == 1


def test_loops_of_all_warps_are_not_written_out() -> None:
    module = module_of(scaled, PARTS=False, BEFORE=False)
    compiled(module, BulkTarget(8, groups=True), 2)
    assert len(operations(module, "simt.dot_start")) == 1
