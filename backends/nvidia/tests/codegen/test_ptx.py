"""PTX of kernels: widths, predicates and hints of accesses; ptxas accepts all of it."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from typing import Any

import gpu_kernels as kernels
import pytest

import tilewright.language as tl
from tilewright.errors import LoweringError, OutOfResources
from tilewright.language import libdevice
from tilewright.language.definitions.callable import device_function
from tilewright.plugins.manifest import PORTABLE_OPTIONS
from tilewright_conformance.op_samples import FAMILIES, samples
from tilewright_nvidia.architectures import ARCHITECTURES, target_of
from tilewright_nvidia.lower import lower
from tilewright_nvidia.manifest import OPTIONS
from tilewright_nvidia.toolchain.linking import assemble

Ptx = Callable[..., str]
GENERATIONS = ("sm_75", "sm_80", "sm_90a", "sm_100a", "sm_120a")


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


@pytest.mark.each_value
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a", "sm_100a"])
@pytest.mark.parametrize(
    ("element", "result", "precision", "instruction"),
    [
        ("fp16", "fp16", "ieee", "m16n8k16.row.col.f32.f16.f16.f32"),
        ("bf16", "bf16", "ieee", "m16n8k16.row.col.f32.bf16.bf16.f32"),
        ("fp32", "fp32", "tf32", "m16n8k8.row.col.f32.tf32.tf32.f32"),
        ("fp32", "fp32", "tf32x3", "m16n8k8.row.col.f32.tf32.tf32.f32"),
        ("i8", "i32", "ieee", "m16n8k32.row.col.satfinite.s32.s8.s8.s32"),
    ],
)
def test_products_use_matrix_instructions(
    assembled: Callable[..., Any],
    arch: str,
    element: str,
    result: str,
    precision: str,
    instruction: str,
) -> None:
    signature = {
        "a": f"*{element}",
        "b": f"*{element}",
        "c": f"*{result}",
        "M": "i32",
        "N": "i32",
        "K": "i32",
    }
    constants = {"BM": 64, "BN": 64, "BK": 32, "GROUP": 4, "PRECISION": precision}
    code, linked = assembled(
        kernels.matmul, signature, arch, constants=constants, asynchronous=False
    )
    text = code.stages["ptx"]
    assert f"mma.sync.aligned.{instruction}" in text
    assert "cp.async.cg.shared.global" in text and "cp.async.wait_group" in text
    assert "ldmatrix.sync.aligned.m8n8.x4" in text
    assert linked.spills == 0


@device_function
def rounded_product(a, b, out, M: tl.constexpr, PRECISION: tl.constexpr):
    rows = tl.arange(0, M)
    places = rows[:, None] * M + rows[None, :]
    x, y = tl.load(a + places), tl.load(b + places)
    tl.store(out + places, tl.dot(x * 3.0, y * 5.0, input_precision=PRECISION))


@pytest.mark.parametrize(
    ("arch", "conversion"),
    [("sm_80", "cvt.rna.tf32.f32"), ("sm_90a", "cvt.rn.tf32.f32"), ("sm_120a", "cvt.rn.tf32.f32")],
)
@pytest.mark.parametrize(("precision", "parts"), [("tf32", 1), ("tf32x3", 2)])
def test_operands_are_rounded_to_tf32_by_one_instruction_where_there_is_one(
    assembled: Callable[..., Any], arch: str, conversion: str, precision: str, parts: int
) -> None:
    signature = dict.fromkeys(("a", "b", "out"), "*fp32")
    code, _ = assembled(
        rounded_product, signature, arch, constants={"M": 16, "PRECISION": precision}, num_warps=1
    )
    assert str(code.stages["ptx"]).count(conversion) == 2 * parts * 16 * 16 // 32


def test_the_great_product_does_not_spill(assembled: Callable[..., Any]) -> None:
    signature = {"a": "*fp16", "b": "*fp16", "c": "*fp16", "M": "i32", "N": "i32", "K": "i32"}
    for constants, warps in (
        ({"BM": 128, "BN": 128, "BK": 64, "GROUP": 8, "PRECISION": "ieee"}, 4),
        ({"BM": 128, "BN": 256, "BK": 64, "GROUP": 8, "PRECISION": "ieee"}, 8),
    ):
        code, linked = assembled(
            kernels.matmul, signature, "sm_90a", constants=constants, num_warps=warps
        )
        assert linked.spills == 0, linked.log
        # every operand comes by ldmatrix: no load of single elements from shared memory in the loop
        assert code.stages["ptx"].count("ld.shared.b16") == 0
        assert "warning" not in linked.log


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a", "sm_100a"])
def test_attention_assembles_without_spills(assembled: Callable[..., Any], arch: str) -> None:
    signature = {
        **dict.fromkeys(("q_ptr", "k_ptr", "v_ptr", "o_ptr"), "*fp16"),
        "lse_ptr": "*fp32",
        "length": "i32",
        "scale": "fp32",
    }
    _, linked = assembled(
        kernels.attention_forward,
        signature,
        arch,
        constants={"D": 64, "BM": 64, "BN": 32, "CAUSAL": False},
    )
    assert linked.spills == 0, linked.log


def test_functions_of_the_machine_where_their_error_is_allowed(ptx: Ptx) -> None:
    signature = {"x": "*fp32", "z": "*fp32", "columns": "i32"}
    relaxed = ptx(kernels.softmax, signature, constants={"BLOCK": 1024})
    strict = ptx(kernels.softmax, signature, constants={"BLOCK": 1024}, math="strict")
    assert "ex2.approx" in relaxed and "ex2.approx" not in strict


@pytest.mark.parametrize("math", ["relaxed", "strict"])
def test_divisions_are_rounded_where_the_kernel_says_so(ptx: Ptx, math: str) -> None:
    def division(name: str) -> set[str]:
        text = ptx(
            kernels.function,
            {"x": "*fp32", "y": "*fp32", "z": "*fp32"},
            constants={"NAME": name, "BLOCK": 128},
            math=math,
        )
        return set(re.findall(r"(?:div|sqrt)[.a-z0-9]+", text))

    assert division("quotient") == ({"div.full.f32"} if math == "relaxed" else {"div.rn.f32"})
    assert division("fast quotient") == (
        {"div.approx.f32"} if math == "relaxed" else {"div.rn.f32"}
    )
    assert division("rounded quotient") == {"div.rn.f32"}
    assert division("rounded root") == {"sqrt.rn.f32"}


def test_both_halves_of_a_product_are_computed_at_once(ptx: Ptx) -> None:
    text = ptx(
        kernels.dropout,
        {"x": "*fp32", "z": "*fp32", "n": "i32", "p": "fp32", "seed": "i32"},
        constants={"BLOCK": 1024},
    )
    whole, high = text.count("mul.wide.u32"), text.count("mul.hi.u32")
    assert whole > 4 * high > 0  # of the last round only one half is wanted


def test_a_comparison_is_computed_once_for_neighbours_that_share_it(ptx: Ptx) -> None:
    signature = {"x": "*fp32", "z": "*fp32", "n": "i32"}
    counts = [
        ptx(kernels.inside, signature, constants={"BLOCK": 1024}, aligned=aligned).count("setp.")
        for aligned in (True, False)
    ]
    assert counts == [
        2,
        8,
    ]  # a thread has two vectors of four; where n may be any number, each element is compared


def test_negations_and_magnitudes_of_16_bits_are_made_of_what_the_assembler_does_not_widen(
    ptx: Ptx,
) -> None:
    text = ptx(kernels.negated, {"x": "*i16", "z": "*i32"}, constants={"BLOCK": 128})
    assert not re.search(r"(neg|abs)\.s16", text)
    assert re.search(r"not\.b16 \t(%rs\d+), %rs\d+;\n\tadd\.s16 \t\1, \1, 1;", text)
    assert re.search(
        (
            r"shr\.s16 \t%sign, (%rs\d+), 15;\n\tadd\.s16 \t(%rs\d+), \1, %sign;\n\txor\.b16 "
            r"\t\2, \2, %sign;"
        ),
        text,
    )


def test_assembly_of_kernels(ptx: Ptx) -> None:
    assert "shl.b32" in ptx(kernels.assembly, {"x": "*i32", "z": "*i32"}, constants={"BLOCK": 128})
    text = ptx(kernels.packed_assembly, {"x": "*i8", "z": "*i8"}, constants={"BLOCK": 512})
    assert text.count("not.b32") == 1  # four elements a register, 128 threads


def test_reports_go_through_the_device_runtime(ptx: Ptx) -> None:
    text = ptx(kernels.says, {"x": "*fp32", "n": "i32"}, debug=True)
    assert "vprintf" in text and "__assertfail" in text


def test_register_limit_is_passed_on(ptx: Ptx) -> None:
    text = ptx(
        kernels.add,
        {"x": "*fp32", "y": "*fp32", "z": "*fp32", "n": "i32"},
        constants={"BLOCK": 1024},
        maxnreg=64,
    )
    assert ".maxnreg 64" in text


def test_overlapping_kernels_wait_before_they_read(ptx: Ptx) -> None:
    signature = {"x": "*fp32", "y": "*fp32", "z": "*fp32", "n": "i32"}
    text = ptx(kernels.add, signature, constants={"BLOCK": 1024}, launch_pdl=True)
    assert text.index("griddepcontrol.wait") < text.index("ld.global")
    assert "griddepcontrol" not in ptx(
        kernels.add, signature, "sm_80", constants={"BLOCK": 1024}, launch_pdl=True
    )


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("num_warps", 3, "num_warps must be 1, 2, 4, 8, 16 or 32, not 3"),
        ("num_ctas", 3, "num_ctas must be 1, 2, 4, 8 or 16, not 3"),
        ("maxnreg", 1000, "maxnreg must be None or a number of registers from 24 to 255, not 1000"),
        ("math", "fast", "math must be 'relaxed' or 'strict', not 'fast'"),
    ],
)
def test_options_out_of_range_are_refused(ptx: Ptx, option: str, value: Any, words: str) -> None:
    with pytest.raises(LoweringError, match=re.escape(words)):
        sample = next(samples("add"))
        lower(
            sample.module,
            target_of(ARCHITECTURES["sm_90a"]),
            {**PORTABLE_OPTIONS, **OPTIONS, option: value},
        )


@pytest.mark.parametrize("blocks", [2, 4])
def test_several_blocks_a_program_are_a_hint(blocks: int) -> None:
    sample, target = next(samples("add")), target_of(ARCHITECTURES["sm_90a"])
    one, several = (
        lower(sample.module, target, {**PORTABLE_OPTIONS, **OPTIONS, "num_ctas": count})
        for count in (1, blocks)
    )
    assert several.binary == one.binary and several.metadata["cluster"] == 1
    (told,) = set(several.metadata["notes"]) - set(one.metadata["notes"])
    assert told.endswith(
        f"num_ctas={blocks}: each program runs in one block all the same (it multiplies no "
        "matrices)"
    )


def test_too_much_shared_memory_names_the_kernel_and_its_configuration() -> None:
    """Stages are given up where they do not fit; what a conversion needs cannot be."""
    sample = next(sample for sample in samples("scan") if "64x16" in sample.name)
    whole = target_of(ARCHITECTURES["sm_86"])
    small = dataclasses.replace(whole, limits={**whole.limits, "shared_memory": 16})
    with pytest.raises(
        OutOfResources,
        match=(
            r"shared memory, Required: \d+, Hardware limit: 16, in kernel \w+ \(num_warps=8, "
            r"num_stages=3\)"
        ),
    ):
        lower(sample.module, small, {**PORTABLE_OPTIONS, **OPTIONS, "num_warps": 8})


def test_functions_of_no_library_are_refused() -> None:
    sample = next(samples("extern"))
    with pytest.raises(
        LoweringError,
        match=r"extern at .*: no library is given that has 'hypotf'; launch with extern_libs=",
    ):
        lower(sample.module, target_of(ARCHITECTURES["sm_90a"]), {**PORTABLE_OPTIONS, **OPTIONS})


def _power_of_two_refusal(error: LoweringError) -> bool:
    return "powers of two" in str(error)


@pytest.mark.each_value
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a", "sm_100a"])
@pytest.mark.parametrize(
    "name", [name for name in FAMILIES if name not in ("extern", "inline_asm")]
)
def test_every_operation_assembles(arch: str, name: str) -> None:
    """Every sample is lowered; of each operation several are assembled, other ones for each
    target."""
    target, count = target_of(ARCHITECTURES[arch]), 0
    every = 12 if arch == "sm_90a" else 40
    for number, sample in enumerate(samples(name)):
        if arch != "sm_90a" and number % every != len(arch) % 3:
            continue
        try:
            code = lower(sample.module, target, {**PORTABLE_OPTIONS, **OPTIONS})
        except LoweringError as error:
            assert _power_of_two_refusal(error)
            continue
        count += 1
        if number % every == len(arch) % 3 or number == 0:
            assert assemble(code.stages["ptx"], arch).binary.startswith(b"\x7fELF")
    assert count or arch != "sm_90a"


def test_lowering_leaves_the_module_as_it_is() -> None:
    sample = next(samples("dot"))
    before = str(sample.module)
    first = lower(
        sample.module, target_of(ARCHITECTURES["sm_90a"]), {**PORTABLE_OPTIONS, **OPTIONS}
    )
    assert str(sample.module) == before
    second = lower(
        sample.module, target_of(ARCHITECTURES["sm_90a"]), {**PORTABLE_OPTIONS, **OPTIONS}
    )
    assert first.stages["ptx"] == second.stages["ptx"] and first.metadata == second.metadata


@pytest.mark.parametrize(("type_", "kind"), [("fp8e4nv", "e4m3x2"), ("fp8e5", "e5m2x2")])
def test_neighbours_are_widened_and_multiplied_together(ptx: Ptx, type_: str, kind: str) -> None:
    def kernel(x: Any, scale: Any, z: Any, BLOCK: tl.constexpr) -> None:
        at = tl.arange(0, BLOCK)
        tl.store(z + at, tl.load(x + at).to(tl.bfloat16) * tl.load(scale))

    signature = {"x": f"*{type_}", "scale": "*bf16", "z": "*bf16"}
    text = ptx(device_function(kernel), signature, "sm_90a", constants={"BLOCK": 1024})
    # eight elements of a thread, by twos: of a pair the first is the low half of a word
    assert (
        len(re.findall(rf"cvt\.rn\.f16x2\.{kind}", text))
        == len(re.findall(r"mul\.(?:rn\.)?bf16x2", text))
        == 4
    )
    assert not re.search(r"mul\.(?:rn\.)?bf16 |mul\.rn\.f32|cvt\.rn\.bf16\.f32", text)
    halves = (
        r"cvt\.f32\.f16\s+(%r\d+), %rs\d+;\s+cvt\.f32\.f16\s+(%r\d+), "
        r"%rs\d+;[^;]*cvt\.rn\.bf16x2\.f32 %r\d+, (%r\d+), (%r\d+);"
    )
    pairs = re.findall(halves, text)
    assert len(pairs) == 4 and all(
        (low, high) == (second, first) for low, high, first, second in pairs
    )
    assert assemble(text, "sm_90a").spills == 0
    older = ptx(device_function(kernel), signature, "sm_80", constants={"BLOCK": 1024})
    assert "f16x2.e" not in older and len(re.findall(r"bf16x2", older)) == len(
        re.findall(r"fma\.rn\.bf16x2", older)
    )


@pytest.mark.parametrize("source", ["fp32", "fp16"])
@pytest.mark.parametrize(("type_", "kind"), [("fp8e4nv", "e4m3x2"), ("fp8e5", "e5m2x2")])
def test_conversions_to_fp8_saturate_as_the_instruction_does(
    ptx: Ptx, type_: str, kind: str, source: str
) -> None:
    def kernel(x: Any, z: Any, BLOCK: tl.constexpr) -> None:
        at = tl.arange(0, BLOCK)
        tl.store(z + at, tl.load(x + at).to(z.dtype.element_ty))

    text = ptx(
        device_function(kernel),
        {"x": f"*{source}", "z": f"*{type_}"},
        "sm_90a",
        constants={"BLOCK": 1024},
    )
    assert len(re.findall(rf"cvt\.rn\.satfinite\.{kind}\.f32", text)) == 4
    # nothing is done about those that are too great, nor for the sign of a NaN
    assert "setp" not in text and "selp" not in text


@pytest.mark.parametrize(
    ("type_", "width"), [("fp8e4nv", 8), ("fp8e5", 8), ("fp8e4nv", 4), ("fp8e4nv", 2)]
)
def test_neighbours_are_rounded_to_fp8_together(ptx: Ptx, type_: str, width: int) -> None:
    """The words that are stored are made by nothing but the conversions of pairs."""

    def kernel(x: Any, z: Any, BLOCK: tl.constexpr) -> None:
        at = tl.arange(0, BLOCK)
        tl.store(z + at, tl.minimum(tl.load(x + at), 3.0).to(z.dtype.element_ty))

    text = ptx(
        device_function(kernel),
        {"x": "*fp32", "z": f"*{type_}"},
        "sm_90a",
        constants={"BLOCK": 128 * width},
    )
    pairs = re.findall(r"cvt\.rn\.satfinite\.\w+\.f32\s+(%rs\d+), (%r\d+), (%r\d+);", text)
    assert (
        len(pairs) == width // 2
        and "prmt" not in text
        and "selp" not in text
        and "setp" not in text
    )
    loaded = {
        name: int(source[2:]) for name, source in re.findall(r"min\.f32\s+(%r\d+), (%r\d+)", text)
    }
    assert all(loaded[low] < loaded[high] for _, high, low in pairs)


@pytest.mark.parametrize("source", ["i32", "i16"])
def test_small_integers_become_bf16_by_pairs(ptx: Ptx, source: str) -> None:
    """Four bits of a packed number as bf16: by way of f32, two of which one instruction rounds to a
    word; nothing is rounded by integer arithmetic."""

    def kernel(x: Any, z: Any, BLOCK: tl.constexpr) -> None:
        at = tl.arange(0, BLOCK)
        tl.store(z + at, ((tl.load(x + at) >> 4) & 15).to(tl.bfloat16))

    text = ptx(
        device_function(kernel),
        {"x": f"*{source}", "z": "*bf16"},
        "sm_90a",
        constants={"BLOCK": 512},
    )
    assert len(re.findall(r"cvt\.rn\.bf16x2\.f32", text)) == 2 and "32767" not in text
    assert len(re.findall(r"cvt\.rn\.f32\.[us]16" if source == "i16" else r"lop3\.b32", text)) == 4


def test_bf16_numbers_become_f32_in_one_instruction(ptx: Ptx) -> None:
    def kernel(x: Any, z: Any, BLOCK: tl.constexpr) -> None:
        at = tl.arange(0, BLOCK)
        tl.store(z + at, tl.load(x + at).to(tl.float32))

    text = ptx(
        device_function(kernel), {"x": "*bf16", "z": "*fp32"}, "sm_90a", constants={"BLOCK": 1024}
    )
    assert (
        len(re.findall(r"shl\.b32\s+%r\d+, %r\d+, 16;", text))
        == len(re.findall(r"and\.b32\s+%r\d+, %r\d+, -65536;", text))
        == 4
    )
    assert "%rs" not in text


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


@pytest.mark.parametrize("math", ["relaxed", "strict"])
def test_tanh_uses_the_exponential_of_the_machine(ptx: Ptx, math: str) -> None:
    def kernel(x: Any, z: Any) -> None:
        at = tl.arange(0, 128)
        tl.store(z + at, libdevice.tanh(tl.load(x + at)))

    text = ptx(
        device_function(kernel), dict.fromkeys("xz", "*fp32"), "sm_90a", constants={}, math=math
    )
    assert (
        len(re.findall(r"ex2\.approx\.ftz\.f32", text))
        == len(re.findall(r"div\.approx\.f32", text))
        == (math == "relaxed")
    )


def test_rounding_to_integers_takes_no_rounding_to_whole_floats(ptx: Ptx) -> None:
    def kernel(x: Any, z: Any) -> None:
        at = tl.arange(0, 128)
        tl.store(z + at, libdevice.round(tl.load(x + at)).to(tl.int8))

    text = ptx(device_function(kernel), {"x": "*fp32", "z": "*i8"}, "sm_90a", constants={})
    assert (
        len(re.findall(r"\bcvt\.rzi\.s16\.f32", text)) == 1
        and "cvt.rzi.f32" not in text
        and "setp" not in text
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


def test_numbers_of_one_word_are_multiplied_by_those_of_another(ptx: Ptx) -> None:
    def kernel(x: Any, y: Any, z: Any, BLOCK: tl.constexpr) -> None:
        at = tl.arange(0, BLOCK)
        tl.store(z + at, tl.load(x + at) * tl.load(y + at))

    text = ptx(
        device_function(kernel), dict.fromkeys("xyz", "*bf16"), "sm_90a", constants={"BLOCK": 1024}
    )
    assert (
        len(re.findall(r"mul\.(?:rn\.)?bf16x2", text)) == 4
        and "mov.b32" not in text.partition("bf16x2")[2]
    )


def test_neighbours_that_are_rounded_become_words(ptx: Ptx) -> None:
    """As in SwiGLU: what was computed in f32 is rounded, by twos, and multiplied by what was
    loaded."""

    def kernel(x: Any, y: Any, z: Any, BLOCK: tl.constexpr) -> None:
        at = tl.arange(0, BLOCK)
        wide = tl.load(x + at).to(tl.float32)
        tl.store(z + at, (wide * wide).to(tl.bfloat16) * tl.load(y + at))

    text = ptx(
        device_function(kernel), dict.fromkeys("xyz", "*bf16"), "sm_90a", constants={"BLOCK": 1024}
    )
    assert (
        len(re.findall(r"cvt\.rn\.bf16x2\.f32", text))
        == len(re.findall(r"\bmul\.bf16x2", text))
        == 4
    )
    assert "cvt.rn.bf16.f32" not in text and not re.search(r"mov\.b32 \s*%r\d+, \{", text)


def test_numbers_rounded_to_bf16_go_on_as_f32_in_one_instruction(ptx: Ptx) -> None:
    """The number is rounded into the upper half of a word, which is the f32: no conversion of a
    single number, at a quarter of the rate, and no shift. What is stored as bf16 is rounded by
    pairs from the same f32."""

    def kernel(x: Any, y: Any, z: Any, BLOCK: tl.constexpr) -> None:
        at = tl.arange(0, BLOCK)
        rounded = (tl.load(x + at) * 3.0).to(tl.bfloat16)
        tl.store(y + at, rounded)
        tl.store(z + at, rounded.to(tl.float32) + 1.0)

    signature = {"x": "*fp32", "y": "*bf16", "z": "*fp32"}
    text = ptx(device_function(kernel), signature, "sm_90a", constants={"BLOCK": 512})
    assert len(re.findall(r"cvt\.rn\.bf16x2\.f32", text)) == 4 + 2
    assert not re.search(r"cvt\.rn\.bf16\.f32|shl\.b32 \s*%r\d+, %r\d+, 16;", text)


@pytest.mark.parametrize("fuse", [True, False])
@pytest.mark.parametrize(("arch", "has_sum"), [("sm_80", False), ("sm_90a", True)])
@pytest.mark.parametrize("type_", ["bf16", "fp16"])
def test_halves_of_words_are_computed_together(
    ptx: Ptx, type_: str, arch: str, has_sum: bool, fuse: bool
) -> None:
    """Eight elements of a thread of a rotation, as rotary embeddings are: four words of each
    operand, stored as they were computed."""

    def kernel(x: Any, y: Any, c: Any, s: Any, z: Any, BLOCK: tl.constexpr) -> None:
        at = tl.arange(0, BLOCK)
        tl.store(z + at, tl.load(x + at) * tl.load(c + at) - tl.load(y + at) * tl.load(s + at))

    signature = dict.fromkeys(("x", "y", "c", "s", "z"), f"*{type_}")
    text = ptx(
        device_function(kernel), signature, arch, constants={"BLOCK": 1024}, enable_fp_fusion=fuse
    )
    pair = {"bf16": "bf16x2", "fp16": "f16x2"}[type_]
    count = {
        name: len(re.findall(rf"\b{name}(?:\.rn)?\.{pair} ", text))
        for name in ("fma", "mul", "sub")
    }
    if fuse and (has_sum or type_ == "fp16"):
        assert count == {"fma": 4, "mul": 4, "sub": 0}
    elif type_ == "bf16" and not has_sum:  # products and differences are made of fma
        assert count == {"fma": 8 if fuse else 12, "mul": 0, "sub": 0}
    else:
        assert count == {"fma": 0, "mul": 8, "sub": 4}
    assert not re.search(
        r"cvt\.|prmt|\.f32|\bshl\.b32 |mov\.b32 \s*\{", text.partition("ld.global")[2]
    )
    last = [
        re.search(rf"\S+{pair}\s+{word},", text)
        for word in re.findall(r"%r\d+", re.findall(r"st\.global\.v4\.b32 \S+ \{(.*?)\}", text)[0])
    ]
    starts = [found.start() for found in last if found is not None]
    assert len(starts) == 4 and starts == sorted(starts)


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


@device_function
def _rounded_before_a_sum(x, y, z, out, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out + at, libdevice.mul_rn(tl.load(x + at), tl.load(y + at)) + tl.load(z + at))


def test_a_rounded_product_is_not_contracted(ptx: Ptx) -> None:
    text = ptx(
        _rounded_before_a_sum,
        dict.fromkeys(("x", "y", "z", "out"), "*fp32"),
        constants={"BLOCK": 128},
    )
    assert (
        "fma" not in text
        and len(re.findall(r"mul\.rn\.f32|mul\.f32", text))
        == len(re.findall(r"add\.rn\.f32|add\.f32", text))
        == 1
    )
