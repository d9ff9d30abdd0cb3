"""Functions of bitcode libraries that a launch gives: how they are called, that ptxas takes the
whole, what is refused."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm
import pytest
from gpu_support import gpu_is_there

import tilewright as tw
import tilewright.language as tl
from tilewright.errors import LoweringError
from tilewright.plugins.manifest import Target
from tilewright.plugins.registry import registry
from tilewright.runtime.compiler.compile import Specialization, cache_key
from tilewright_nvidia.architectures import ARCHITECTURES, target_of
from tilewright_nvidia.manifest import OPTIONS
from tilewright_nvidia.target import TRIPLE

LIBRARY = """
@device_state = addrspace(4) externally_initialized global i64 5

define float @tripled(float %x) alwaysinline {
  %y = fmul float %x, 3.0
  ret float %y
}

define i32 @send(ptr %to, ptr %from, i64 %bytes) noinline {
  %state = load i64, ptr addrspace(4) @device_state
  %sum = add i64 %state, %bytes
  %value = load float, ptr %from
  store float %value, ptr %to
  %found = trunc i64 %sum to i32
  ret i32 %found
}

define i1 @above(bfloat %x, i1 %strictly) {
  %greater = fcmp ogt bfloat %x, 1.0
  %equal = fcmp oeq bfloat %x, 1.0
  %loosely = xor i1 %strictly, true
  %counts = and i1 %equal, %loosely
  %found = or i1 %greater, %counts
  ret i1 %found
}

define void @quiet() noinline {
  call void asm sideeffect "membar.sys;", ""()
  ret void
}

define float @unused(float %x) {
  ret float %x
}
"""


def function(symbol: str, result: Any, *types: Any, pure: bool = True) -> Any:
    """A function of a library, for kernels."""

    @tl.core.extern
    def call(*operands: Any, _semantic: Any = None) -> Any:
        return tl.core.extern_elementwise(
            "lib", "", list(operands), {types: (symbol, result)}, is_pure=pure, _semantic=_semantic
        )

    return call


tripled, many = (
    function("tripled", tl.float32, tl.float32),
    function("tripled", tl.float32, tl.float32, tl.float32),
)
send, quiet = (
    function("send", tl.int32, tl.int64, tl.int64, tl.int64, pure=False),
    function("quiet", tl.int32, pure=False),
)
above, absent = (
    function("above", tl.int1, tl.bfloat16, tl.int1),
    function("absent", tl.float32, tl.float32),
)


@tw.jit
def all_of_them(x, out, flags, sent, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    value = tl.load(x + at)
    tl.store(out + at, tripled(value))
    tl.store(flags + at, above(value.to(tl.bfloat16), value < 2).to(tl.int8))
    code = send(
        (out + BLOCK).to(tl.int64, bitcast=True),
        x.to(tl.int64, bitcast=True),
        tl.full((), 8, tl.int64),
    )
    tl.store(sent, code + quiet())


@tw.jit
def one(x, out, FUNCTION: tl.constexpr):
    tl.store(out, FUNCTION(tl.load(x)))


@tw.jit
def of_two(x, out):
    value = tl.load(x)
    tl.store(out, many(value, value))


SIGNATURE = {"x": "*fp32", "out": "*fp32", "flags": "*i8", "sent": "*i32"}


@pytest.fixture
def library(tmp_path: Path) -> Callable[..., dict[str, str]]:
    def make(text: str = LIBRARY, triple: str = TRIPLE) -> dict[str, str]:
        llvm.initialize_all_targets()
        module = llvm.parse_assembly(text)
        module.triple = triple
        path = tmp_path / "lib.bc"
        path.write_bytes(module.as_bitcode())
        return {"lib": str(path)}

    return make


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a", "sm_100a"])
def test_functions_are_part_of_the_code(ptx: Any, library: Any, arch: str) -> None:
    text = ptx(all_of_them, SIGNATURE, arch, constants={"BLOCK": 128}, extern_libs=library())
    assert (
        re.findall(r"\.visible \.entry (\w+)", text) == ["all_of_them"]
        and "tripled" not in text
        and "unused" not in text
    )
    assert (
        "mul.rn.f32" in text
        and re.search(r"call\.uni \(retval0\), send, \(param0, param1, param2\);", text)
        and "call.uni quiet" in text
    )
    assert len(re.findall(r"^\.func .*\b(send|quiet)\b", text, re.M)) >= 2 and not re.search(
        r"\.visible \.func", text
    )
    assert re.search(r"\.visible \.const .* device_state", text)  # a host finds it


@pytest.mark.gpu
@pytest.mark.skipif(not gpu_is_there(), reason="there is no NVIDIA GPU here")
def test_functions_run(library: Any) -> None:
    torch = pytest.importorskip("torch")
    x = torch.linspace(0, 3, 128, device="cuda")
    x[5] = 1.0
    out, flags, sent = (
        torch.zeros(129, device="cuda"),
        torch.zeros(128, dtype=torch.int8, device="cuda"),
        torch.zeros(1, dtype=torch.int32, device="cuda"),
    )
    all_of_them[(1,)](x, out, flags, sent, BLOCK=128, extern_libs=library())
    rounded = x.bfloat16()
    assert torch.equal(out[:128], x * 3) and out[128] == x[0] and sent.item() == 13
    assert torch.equal(flags.bool(), (rounded > 1) | ((rounded == 1) & ~(x < 2)))


@pytest.mark.parametrize(
    ("kernel", "constants", "given", "said"),
    [
        (
            one,
            {"FUNCTION": tripled},
            False,
            (
                r"extern at .*test_external_functions.py:\d+:\d+ in one: no library is given "
                r"that has 'tripled'; launch with extern_libs="
            ),
        ),
        (
            one,
            {"FUNCTION": absent},
            True,
            (
                r"in one: none of the libraries of extern_libs \(lib\) has 'absent'; launch with "
                r"extern_libs="
            ),
        ),
        (
            of_two,
            {},
            True,
            (
                r"in of_two: it calls 'tripled' as float \(float, float\), and the library's is "
                r"float \(float\)"
            ),
        ),
    ],
    ids=["none", "absent", "types"],
)
def test_what_libraries_lack_is_refused(
    ptx: Any, library: Any, kernel: Any, constants: Any, given: bool, said: str
) -> None:
    with pytest.raises(LoweringError, match=said):
        ptx(
            kernel,
            {"x": "*fp32", "out": "*fp32"},
            constants=constants,
            extern_libs=library() if given else (),
        )


def test_libraries_of_other_machines_are_refused(ptx: Any, library: Any) -> None:
    with pytest.raises(
        LoweringError,
        match="is for amdgcn-amd-amdhsa, and the kernel is compiled for nvptx64-nvidia-cuda",
    ):
        ptx(
            one,
            {"x": "*fp32", "out": "*fp32"},
            constants={"FUNCTION": tripled},
            extern_libs=library(triple="amdgcn-amd-amdhsa"),
        )


@tw.jit
def calls_nothing(x, out):
    tl.store(out, tl.load(x))


def test_libraries_that_are_not_called_are_not_read(ptx: Any) -> None:
    assert ".entry calls_nothing" in ptx(
        calls_nothing, {"x": "*fp32", "out": "*fp32"}, extern_libs={"lib": "/nowhere/lib.bc"}
    )


def test_other_contents_are_other_code(library: Any) -> None:
    def key(paths: dict[str, str]) -> str | None:
        options = {**OPTIONS, "extern_libs": paths}
        target: Target = target_of(ARCHITECTURES["sm_90a"])
        specialization = Specialization(
            one,
            {"x": "*fp32", "out": "*fp32", "FUNCTION": "constexpr"},
            {"FUNCTION": 1},
            options=options,
        )
        return cache_key(specialization, registry().get("nvidia"), target)

    first, again = key(library()), key(library())
    other = key(library(LIBRARY.replace("3.0", "4.0")))
    assert first == again and first is not None and other not in (first, None)
