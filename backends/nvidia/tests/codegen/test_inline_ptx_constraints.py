"""Constraints of inline assembly: those that do not fit blame the line of the kernel, and not the
backend; constants are written into the text."""

import re

import pytest

import tilewright as tw
import tilewright.language as tl
from tilewright.errors import LoweringError
from tilewright.plugins.registry import registry
from tilewright.runtime.compiler.compile import compile_kernel
from tilewright.runtime.devices import device_registry
from tilewright.tools.inspect import specialize


@tw.jit
def assembled(x, o, C: tl.constexpr, P: tl.constexpr):
    i = tl.arange(0, 16)
    v = tl.load(x + i)
    r = tl.inline_asm_elementwise("mov.b32 $0, $1;", C, [v], dtype=tl.float32, is_pure=True, pack=P)
    tl.store(o + i, r)


@pytest.mark.parametrize(
    ("constraints", "pack", "reason"),
    [
        ("=r,r,r", 1, "have 2 inputs, which 1 elements do not fill"),
        ("r", 1, "have 0 results, which 1 elements do not fill"),
        ("=r", 1, "have 0 inputs, which 1 elements do not fill"),
        ("=q7,r", 1, "constraint 'q7' in '=q7,r' is none of"),
        ("nonsense (", 1, "have 0 results"),
        ("=h,h", 1, "an element of 32 bits does not fit a register of 16"),
        ("=r,n", 1, "constraint 'n' in '=r,n' takes one integer that is a constant of the kernel"),
        ("=r,r", 3, "it takes 3 elements at once"),
        ("=r,r", 2, "2 elements of 32 bits do not fit a register of 32"),
    ],
)
def test_the_line_of_the_kernel_is_blamed(constraints, pack, reason):
    backend = registry().get("nvidia")
    specialization = specialize(assembled, "*fp32, *fp32", {"C": constraints, "P": pack}, backend)
    with pytest.raises(LoweringError) as raised:
        compile_kernel(
            specialization, backend, device_registry.named_target(backend, "sm_80"), anew=True
        )
    line = assembled.fn.__code__.co_firstlineno + 4
    told = str(raised.value)
    assert (
        told.startswith(f"inline assembly at {__file__}:{line}:")
        and reason in told
        and "defect" not in told
    )


@tw.jit
def masked(x, o, MASK: tl.constexpr, C: tl.constexpr):
    i = tl.arange(0, 128)
    v = tl.load(x + i)
    r = tl.inline_asm_elementwise(
        "lop3.b32 $0, $1, $2, $3, 234;", C, [v, MASK, -7], dtype=tl.int32, is_pure=True, pack=1
    )
    tl.store(o + i, r)


@pytest.mark.parametrize("constraints", ["=r,r,n,n", "=r,r,i,n"])
def test_constants_are_written_into_the_text(constraints):
    backend = registry().get("nvidia")
    specialization = specialize(
        masked, "*i32, *i32", {"MASK": 0x000F000F, "C": constraints}, backend
    )
    compiled = compile_kernel(
        specialization, backend, device_registry.named_target(backend, "sm_90a"), anew=True
    )
    assert re.search(r"lop3\.b32 \s*%r\d+, %r\d+, 983055, -7, 234;", compiled.code.stages["ptx"])


def test_an_integer_that_is_no_constant_is_not_written_into_the_text():
    backend = registry().get("nvidia")
    specialization = specialize(
        masked, "*i32, *i32", {"MASK": 0x000F000F, "C": "=r,n,n,n"}, backend
    )
    with pytest.raises(
        LoweringError, match="constraint 'n' in '=r,n,n,n' takes one integer that is a constant"
    ):
        compile_kernel(
            specialization, backend, device_registry.named_target(backend, "sm_90a"), anew=True
        )
