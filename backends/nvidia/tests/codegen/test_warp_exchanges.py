"""PTX of reductions and sorts across the threads of warps."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from nvidia_support import GENERATIONS

import tilewright.language as tl
from tilewright.language.definitions.callable import device_function
from tilewright_nvidia.toolchain.linking import assemble

Ptx = Callable[..., str]


@pytest.mark.parametrize(
    ("type_", "kind"),
    [("i32", "add.s32"), ("i32", "max.s32"), ("u32", "min.u32"), ("u32", "xor.b32")],
)
def test_integers_of_a_warp_are_reduced_by_one_instruction(ptx: Ptx, type_: str, kind: str) -> None:
    def kernel(x: Any, z: Any, BLOCK: tl.constexpr, KIND: tl.constexpr) -> None:
        row = tl.load(x + tl.arange(0, BLOCK))
        if KIND == "add":
            tl.store(z, tl.sum(row))
        elif KIND == "max":
            tl.store(z, tl.max(row))
        elif KIND == "min":
            tl.store(z, tl.min(row))
        else:
            tl.store(z, tl.xor_sum(row))

    arguments = device_function(kernel), {"x": f"*{type_}", "z": f"*{type_}"}
    constants = {"BLOCK": 1024, "KIND": kind[:3]}
    text = ptx(*arguments, "sm_90a", constants=constants)
    assert len(re.findall(rf"redux\.sync\.{re.escape(kind)}", text)) == 1 and "shfl" not in text
    assemble(text, "sm_90a")
    assert "redux" not in ptx(*arguments, "sm_75", constants=constants)


def test_lanes_share_the_loads_of_what_warps_reduced(ptx: Ptx) -> None:
    def kernel(x: Any, z: Any, BLOCK: tl.constexpr) -> None:
        tl.store(z, tl.sum(tl.load(x + tl.arange(0, BLOCK))))

    text = ptx(
        device_function(kernel),
        {"x": "*fp32", "z": "*fp32"},
        "sm_90a",
        constants={"BLOCK": 4096},
        num_warps=16,
    )
    assert (
        re.findall(r"ld\.shared\.\S+", text) == ["ld.shared.v4.b32"]
        and text.count("shfl.sync.bfly") == 7
        and text.count("bar.sync") == 1
    )


@device_function
def _sorted_rows(x, out, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.sort(tl.load(x + at)))


@pytest.mark.parametrize("arch", GENERATIONS)
def test_one_warp_sorts_by_shuffles_alone(ptx: Ptx, arch: str) -> None:
    text = ptx(
        _sorted_rows, {"x": "*i32", "out": "*i32"}, arch, constants={"BLOCK": 128}, num_warps=1
    )
    # of seven bits of the element's number two are in registers; a network of seven stages
    # exchanges over bits 2 to 6 in 5 + 4 + 3 + 2 + 1 steps
    assert text.count("shfl.sync.bfly") == 4 * 15
    assert "st.shared" not in text and "bar." not in text


def test_threads_hold_the_elements_that_networks_exchange_most(ptx: Ptx) -> None:
    text = ptx(_sorted_rows, {"x": "*i32", "out": "*i32"}, constants={"BLOCK": 2048}, num_warps=4)
    # a thread holds 16 neighbours; bits 4 to 8 of the element's number are in lanes, over which a
    # network of eleven stages exchanges in 7 + 6 + 5 + 4 + 3 steps
    assert text.count("shfl.sync.bfly") == 16 * 25


def test_several_warps_meet_only_where_they_exchange(ptx: Ptx) -> None:
    text = ptx(_sorted_rows, {"x": "*i32", "out": "*i32"}, constants={"BLOCK": 1024}, num_warps=4)
    # bits 7 and 8 of the element's number are in warps: 3 + 2 of 55 steps cross them, with two
    # barriers each at most
    assert 5 <= len(re.findall(r"bar\.sync|barrier\.sync", text)) <= 2 * 5
    assert len(re.findall(r"st\.shared", text)) <= 5 * 8


@device_function
def _sorted_rows_in_turn(x, out, BLOCK: tl.constexpr):
    for row in range(4):
        at = row * BLOCK + tl.arange(0, BLOCK)
        tl.store(out + at, tl.sort(tl.load(x + at)))


def test_a_loop_around_a_sort_stays_a_loop(ptx: Ptx) -> None:
    text = ptx(
        _sorted_rows_in_turn, {"x": "*i32", "out": "*i32"}, constants={"BLOCK": 128}, num_warps=1
    )
    assert text.count("shfl.sync.bfly") == 4 * 15
    assert len(re.findall(r"^\s*@%p\d+ bra", text, re.MULTILINE)) == 1


@device_function
def _with_partners(x, out, distance, BLOCK: tl.constexpr, OF: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tile, carried = tl.load(x + at), distance
    for step in range(4):
        if OF == "argument":
            tile += tl.gather(tile, at ^ distance, 0)
        if OF == "program":
            tile += tl.gather(tile, at ^ (step ^ tl.program_id(0)), 0)
        if OF == "carried":
            tile += tl.gather(tile, at ^ (step ^ carried), 0)
            carried = tl.sum(tile, 0)
    tl.store(out + at, tile)


@pytest.mark.parametrize("of", ["argument", "program", "carried"])
def test_a_loop_of_exchanges_over_what_is_no_constant_stays_a_loop(ptx: Ptx, of: str) -> None:
    text = ptx(
        _with_partners,
        {"x": "*i32", "out": "*i32", "distance": "i32"},
        constants={"BLOCK": 128, "OF": of},
        num_warps=1,
    )
    assert text.count("bar.warp.sync") + text.count("bar.sync") <= 2
