"""PTX of whole kernels: matrix instructions, spills, launch options, errors and math functions."""

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
