"""Tensor maps that kernels make, as PTX that is assembled: what a map says, who may copy by it, and
where it is."""

from __future__ import annotations

import re
from typing import Any

import pytest
from device_descriptor_kernels import batched, copied, grouped, surrounded, updated
from hopper_support import ASYNCHRONOUS, TARGET

import tilewright.language as tl
from tilewright.frontend.compile import compile_function
from tilewright.language.definitions.callable import device_function
from tilewright.passes import pipeline
from tilewright.plugins.manifest import CodeObject
from tilewright_nvidia.lower import lower
from tilewright_nvidia.toolchain.linking import assemble

TABLES = {"addresses": "*i64", "numbers": "*i32", "count": "i32"}


def assembled(
    fn: Any, signature: dict[str, str], constants: dict[str, Any], **options: Any
) -> CodeObject:
    """Return a kernel's PTX, which ptxas accepts without spills or warnings."""
    module = compile_function(device_function(fn), signature, constants)
    pipeline.run(module)
    code = lower(module, TARGET, {**ASYNCHRONOUS, "num_warps": 4, "num_stages": 3, **options})
    linked = assemble(str(code.stages["ptx"]), "sm_90a")
    assert linked.spills == 0 and not re.search(r"\bwarning\b|C75\d\d", linked.log, re.I), (
        linked.log
    )
    return code


def fields(code: CodeObject) -> list[dict[str, str]]:
    """The fields of each map that are numbers in the instruction."""
    found: list[dict[str, str]] = []
    for name, value in re.findall(
        r"tensormap\.replace\.tile\.(\w+)\.shared::cta\.b1024\.b\d\d \[%\w+\],(?: \d,)? (%?\w+);",
        str(code.stages["ptx"]),
    ):
        if name == "global_address":
            found.append({})
        elif not value.startswith("%"):
            found[-1][name] = value
    return found


@pytest.mark.parametrize(("blocks", "warps"), [((128, 128, 64), 4), ((128, 256, 64), 8)], ids=str)
def test_products_of_groups_are_copied_and_multiplied_as_those_of_descriptors_of_the_launch(
    blocks: tuple[int, int, int], warps: int
) -> None:
    m, n, k = blocks
    constants = {"TYPE": tl.float16, "PROGRAMS": 132, "M": m, "N": n, "K": k, "WIDTH": 8}
    code = assembled(
        grouped, {"addresses": "*i64", "sizes": "*i32", "groups": "i32"}, constants, num_warps=warps
    )
    ptx = str(code.stages["ptx"])
    assert (
        "wgmma.mma_async" in ptx
        and "cp.async.bulk.tensor.2d.shared::cluster" in ptx
        and "cp.async.bulk.tensor.2d.global.shared::cta" in ptx
    )
    assert code.metadata["tensor_maps"] == []
    assert [one["swizzle_mode"] for one in fields(code)] == ["3"] * 3
    # one place, of three maps, for each program that finds room
    programs = min(2048 // (32 * warps), (228 << 10) // code.metadata["shared"])
    assert f"tilewright_maps0[{144 * programs * 3 * 128}];" in ptx
    # each map is brought to its place and shown before it is read
    order = re.findall(
        r"tensormap\.cp_fenceproxy|fence\.proxy\.tensormap::generic\.acquire\.gpu|"
        r"cp\.async\.bulk\.tensor",
        ptx,
    )
    assert order[:6] == [
        "tensormap.cp_fenceproxy",
        "fence.proxy.tensormap::generic.acquire.gpu",
    ] * 3 and set(order[6:]) == {"cp.async.bulk.tensor"}


def test_rows_that_may_end_within_sixteen_bytes_are_stored_by_threads() -> None:
    """TMA would write beyond their ends. TMA may load later what threads wrote."""
    constants = {"TYPE": tl.float16, "PROGRAMS": 132, "M": 128, "N": 128, "K": 64}
    signature = {"addresses": "*i64", "sizes": "*i32", "groups": "i32"}
    for width, maps in ((1, 2), (4, 2), (8, 3)):
        code = assembled(grouped, signature, {**constants, "WIDTH": width}, num_warps=4)
        ptx = str(code.stages["ptx"])
        assert len(fields(code)) == maps and (
            "cp.async.bulk.tensor.2d.global.shared::cta" in ptx
        ) == (maps == 3)
        assert bool(re.search(r"fence\.proxy\.async;.*?bar(rier)?[.\w]*sync", ptx, re.DOTALL)) == (
            maps == 2
        )


#: Element types, and the numbers by which a tensor map names them.
ELEMENTS = {
    tl.float16: 6, tl.bfloat16: 10, tl.float32: 7, tl.float64: 9, tl.int8: 0, tl.uint8: 0,
    tl.int16: 1, tl.uint16: 1, tl.int32: 3, tl.uint32: 2,
    tl.int64: 5, tl.uint64: 4, tl.float8e4nv: 0, tl.float8e5: 0,
}  # fmt: skip


@pytest.mark.parametrize("type_", ELEMENTS, ids=str)
def test_maps_say_what_elements_are(type_: Any) -> None:
    code = assembled(
        copied,
        TABLES,
        {"TYPE": type_, "RANK": 2, "B": 8, "LAST": 1024 // type_.primitive_bitwidth, "WIDTH": 16},
    )
    assert [one["elemtype"] for one in fields(code)] == [str(ELEMENTS[type_])] * 2


@pytest.mark.parametrize("rank", [1, 2, 3, 4, 5])
def test_maps_have_all_axes(rank: int) -> None:
    code = assembled(
        copied,
        TABLES,
        {"TYPE": tl.float32, "RANK": rank, "B": 8, "LAST": 256 if rank == 1 else 32, "WIDTH": 4},
    )
    assert [one["rank"] for one in fields(code)] == [str(rank - 1)] * 2
    for field, count in (
        ("box_dim", rank),
        ("global_dim", rank),
        ("element_stride", rank),
        ("global_stride", rank - 1),
    ):
        assert len(re.findall(rf"tile\.{field}\.", str(code.stages["ptx"]))) == 2 * count


@pytest.mark.parametrize("padding", ["zero", "nan"])
def test_what_is_outside_is_said_by_the_map(padding: str) -> None:
    signature = {**TABLES, "y": "*fp16"}
    code = assembled(
        surrounded, signature, {"TYPE": tl.float16, "PADDING": padding, "B": 8, "LAST": 64}
    )
    assert [one["fill_mode"] for one in fields(code)] == [str(int(padding == "nan"))]
    # what is made of the launch's numbers alone is the launch's
    assert ("tilewright_nan_f16" in str(code.stages["ptx"])) == (padding == "nan")


@pytest.mark.parametrize(
    ("type_", "name", "kind"),
    [
        (tl.float32, "fp32", "add"),
        (tl.bfloat16, "bf16", "add"),
        (tl.int32, "i32", "min"),
        (tl.uint64, "u64", "xor"),
    ],
    ids=str,
)
def test_updates_by_the_engine(type_: Any, name: str, kind: str) -> None:
    signature = {"addresses": "*i64", "numbers": "*i32", "x": f"*{name}", "count": "i32"}
    code = assembled(
        updated,
        signature,
        {"TYPE": type_, "KIND": kind, "B": 8, "LAST": 1024 // type_.primitive_bitwidth, "WIDTH": 8},
    )
    assert (
        f"cp.reduce.async.bulk.tensor.2d.global.shared::cta.{kind}" in str(code.stages["ptx"])
        and len(fields(code)) == 1
    )


def test_parts_that_copy_make_their_own_maps() -> None:
    signature = dict.fromkeys(("a_ptr", "b_ptr", "c_ptr"), "*fp16") | dict.fromkeys(
        ("batches", "m", "n", "k"), "i32"
    )
    code = assembled(
        batched,
        signature,
        {"TYPE": tl.float16, "M": 128, "N": 128, "K": 64, "SPECIALIZE": True, "WIDTH": 8},
    )
    ptx = str(code.stages["ptx"])
    assert str(code.stages["simt"]).count("simt.part ") == 2 and len(fields(code)) == 3
    assert len(re.findall(r"\.global \.align 128 \.b8 tilewright_maps\d", ptx)) == 2
    assert (
        ptx.count("atom.acquire.gpu.global.or.b32")
        == ptx.count("red.release.gpu.global.and.b32")
        == 2
    )
