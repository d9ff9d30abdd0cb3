"""PTX of loads, stores and atomics: widths, predicates, cache hints, order and scope."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import gpu_kernels as kernels
import pytest
from nvidia_support import GENERATIONS

import tilewright.language as tl
from tilewright.language.definitions.callable import device_function

Ptx = Callable[..., str]


@pytest.mark.parametrize("arch", GENERATIONS)
def test_accesses_are_16_bytes_wide_and_predicated(ptx: Ptx, arch: str) -> None:
    text = ptx(
        kernels.add,
        {"x": "*fp32", "y": "*fp32", "z": "*fp32", "n": "i32"},
        arch,
        constants={"BLOCK": 1024},
    )
    assert len(re.findall(r"@%p\d+ ld\.global\.v4\.b32 ", text)) == 4
    assert len(re.findall(r"@%p\d+ st\.global\.v4\.b32 ", text)) == 2
    assert f".target {arch}" in text and ".reqntid 128" in text


def test_unaligned_pointers_are_accessed_element_by_element(ptx: Ptx) -> None:
    text = ptx(
        kernels.add,
        {"x": "*fp32", "y": "*fp32", "z": "*fp32", "n": "i32"},
        constants={"BLOCK": 256},
        aligned=False,
    )
    assert ".v4" not in text and text.count("ld.global.b32") == 4


@pytest.mark.parametrize(
    ("type_", "words"),
    [
        ("*fp16", "v4.b32"),
        ("*i8", "v4.b32"),
        ("*fp64", "v2.b64"),
        ("*bf16", "v4.b32"),
        ("*u1", "v4.b32"),
    ],
)
def test_narrow_elements_share_words(ptx: Ptx, type_: str, words: str) -> None:
    text = ptx(
        kernels.copy,
        {"x": type_, "z": type_},
        constants={"BLOCK": 2048, "CACHE": "", "EVICT": "", "STORE": ""},
    )
    assert f"ld.global.{words}" in text and f"st.global.{words}" in text
    if type_ not in ("*u1",):  # what was read in words is written in the same words
        assert "prmt" not in text and "bfe" not in text


@pytest.mark.parametrize(
    ("cache", "evict", "store", "load_text", "store_text"),
    [
        (".ca", "", ".wb", "ld.global.ca.v4", "st.global.wb.v4"),
        (".cg", "", ".cg", "ld.global.cg.v4", "st.global.cg.v4"),
        (".cs", "", ".cs", "ld.global.cs.v4", "st.global.cs.v4"),
        (".cv", "", ".wt", "ld.global.cv.v4", "st.global.wt.v4"),
        (
            "",
            "evict_first",
            "",
            "ld.global.L1::evict_first.L2::cache_hint.v4",
            "st.global.L1::evict_first.L2::cache_hint.v4",
        ),
        (
            "",
            "evict_last",
            "",
            "ld.global.L1::evict_last.L2::cache_hint.v4",
            "st.global.L1::evict_last.L2::cache_hint.v4",
        ),
        (
            ".cg",
            "evict_first",
            ".cs",
            "ld.global.cg.L2::cache_hint.v4",
            "st.global.cs.L2::cache_hint.v4",
        ),
    ],
)
def test_cache_hints_are_said(
    ptx: Ptx, cache: str, evict: str, store: str, load_text: str, store_text: str
) -> None:
    text = ptx(
        kernels.copy,
        {"x": "*fp32", "z": "*fp32"},
        constants={"BLOCK": 512, "CACHE": cache, "EVICT": evict, "STORE": store},
    )
    assert load_text in text and store_text in text
    assert text.count("createpolicy") == (1 if evict else 0)


def test_hints_for_the_second_level_cache_begin_with_compute_capability_8(ptx: Ptx) -> None:
    text = ptx(
        kernels.copy,
        {"x": "*fp32", "z": "*fp32"},
        "sm_75",
        constants={"BLOCK": 512, "CACHE": "", "EVICT": "evict_first", "STORE": ""},
    )
    assert "ld.global.L1::evict_first.v4" in text and "createpolicy" not in text


def test_volatile_accesses(ptx: Ptx) -> None:
    assert "ld.volatile.global.b32" in ptx(kernels.volatile_copy, {"x": "*fp32", "z": "*fp32"})


def test_masked_lanes_start_with_the_other_value(ptx: Ptx) -> None:
    text = ptx(
        kernels.masked_with_other,
        {"x": "*fp32", "z": "*fp32", "n": "i32"},
        constants={"BLOCK": 512},
    )
    assert "1088421888" in text or "0f40E00000" in text  # 7.0


@pytest.mark.parametrize("seen", [False, True])
def test_lanes_that_a_mask_leaves_out_start_with_zero_where_they_are_seen(
    ptx: Ptx, seen: bool
) -> None:
    """Sixteen loads of 16 bytes by each thread: their registers are written before, or not at all
    where registers are not scarce enough to keep loads apart."""
    signature = {"x": "*fp32", "z": "*fp32", "n": "i32"}
    text = ptx(kernels.left_out, signature, constants={"BLOCK": 8192, "SEEN": seen})
    loads = re.findall(r"ld\.global\.v4\.b32 \{([^}]*)\}", text)
    assert len(loads) == 16
    starts = re.findall(r"mov\.b32\s+%r\d+, (?:0|%r\d+);", text.split("ld.global")[0])
    assert bool(starts) is seen


@pytest.mark.parametrize("order", ["relaxed", "acquire", "release", "acq_rel"])
@pytest.mark.parametrize(("scope", "word"), [("cta", "cta"), ("gpu", "gpu"), ("sys", "sys")])
def test_atomics_have_order_and_scope(ptx: Ptx, order: str, scope: str, word: str) -> None:
    text = ptx(
        kernels.sums,
        {"x": "*fp32", "z": "*fp32", "n": "i32"},
        constants={"BLOCK": 128, "ORDER": order, "SCOPE": scope},
    )
    # nothing follows: an order that acquires is left without that
    left = {"acquire": "relaxed", "acq_rel": "release"}.get(order, order)
    assert f"red.global.{word}.{left}.add.f32" in text and "fence" not in text


@pytest.mark.parametrize(
    ("type_", "arch", "expected"),
    [
        ("fp16", "sm_75", "add.noftz.f16"),
        ("bf16", "sm_90a", "add.noftz.bf16"),
        ("bf16", "sm_80", "cas.b16"),
        ("fp64", "sm_80", "add.f64"),
        ("i64", "sm_80", "add.u64"),
        ("u32", "sm_80", "add.u32"),
    ],
)
def test_sums_of_every_type(ptx: Ptx, type_: str, arch: str, expected: str) -> None:
    text = ptx(
        kernels.sums,
        {"x": f"*{type_}", "z": f"*{type_}", "n": "i32"},
        arch,
        constants={"BLOCK": 128, "ORDER": "relaxed", "SCOPE": "gpu"},
    )
    assert re.search(rf"(atom|red)\.global\.gpu\.relaxed\.{re.escape(expected)}", text)


@pytest.mark.each_value
@pytest.mark.parametrize(("type_", "bits"), [("i8", 8), ("fp16", 16), ("i32", 32), ("fp64", 64)])
@pytest.mark.parametrize("scope", ["cta", "gpu", "sys"])
def test_reads_and_writes_have_order_and_scope(ptx: Ptx, type_: str, bits: int, scope: str) -> None:
    signature = {"flag": f"*{type_}", "data": "*i32", "z": f"*{type_}"}
    text = ptx(kernels.handshake, signature, "sm_80", constants={"BLOCK": 128, "SCOPE": scope})
    assert (
        f"st.release.{scope}.global.b{bits}" in text
        and f"st.relaxed.{scope}.global.b{bits}" in text
    )
    assert f"ld.acquire.{scope}.global.b{bits}" in text and f"ld.relaxed.gpu.global.b{bits}" in text
    assert "mov.u64" in text and "%globaltimer" in text
    # What the whole program wrote is released: its threads wait for each other before the first of
    # them writes the flag.
    start = text.index("st.global", text.index("$entry") if "$entry" in text else 0)
    assert "bar.sync" in text[start : text.index(f"st.release.{scope}")]


def test_extremes_of_floats_are_those_of_integers(ptx: Ptx) -> None:
    text = ptx(kernels.extremes, {"x": "*fp32", "z": "*fp32"}, constants={"BLOCK": 128})
    for name in ("acq_rel.max.s32", "acq_rel.min.u32", "release.min.s32", "release.max.u32"):
        assert f"global.gpu.{name}" in text


def test_overlapping_kernels_wait_before_they_read(ptx: Ptx) -> None:
    signature = {"x": "*fp32", "y": "*fp32", "z": "*fp32", "n": "i32"}
    text = ptx(kernels.add, signature, constants={"BLOCK": 1024}, launch_pdl=True)
    assert text.index("griddepcontrol.wait") < text.index("ld.global")
    assert "griddepcontrol" not in ptx(
        kernels.add, signature, "sm_80", constants={"BLOCK": 1024}, launch_pdl=True
    )


@pytest.mark.parametrize("stages", [1, 4])
def test_rows_are_copied_ahead_in_loops_that_ask(ptx: Ptx, stages: int) -> None:
    def kernel(x: Any, z: Any, n: Any, BLOCK: tl.constexpr, STAGES: tl.constexpr) -> None:
        at = tl.arange(0, BLOCK)
        for i in tl.range(0, n, num_stages=STAGES):
            tl.store(z + i * BLOCK + at, tl.load(x + i * BLOCK + at) * 2)

    signature = {"x": "*bf16", "z": "*bf16", "n": "i32"}
    text = ptx(
        device_function(kernel), signature, "sm_90a", constants={"BLOCK": 1024, "STAGES": stages}
    )
    # those before the loop, and that of the iteration three ahead
    assert len(re.findall(r"cp\.async\.c\w\.shared\.global \[", text)) == (4 if stages > 1 else 0)
    assert len(re.findall(r"ld\.global", text)) == (0 if stages > 1 else 1)
