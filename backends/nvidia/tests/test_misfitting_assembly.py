"""Inline assembly whose constraints do not fit blames the line of the kernel, and not the backend."""

import pytest

import tilewright as tw
import tilewright.language as tl
from tilewright.errors import LoweringError
from tilewright.plugins.registry import registry
from tilewright.runtime import devices
from tilewright.runtime.compile import compile_kernel
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
        ("=r,r", 3, "it takes 3 elements at once"),
        ("=r,r", 2, "2 elements of 32 bits do not fit a register of 32"),
    ],
)
def test_the_line_of_the_kernel_is_blamed(constraints, pack, reason):
    backend = registry().get("nvidia")
    specialization = specialize(assembled, "*fp32, *fp32", {"C": constraints, "P": pack}, backend)
    with pytest.raises(LoweringError) as raised:
        compile_kernel(specialization, backend, devices.named_target(backend, "sm_80"), anew=True)
    line = assembled.fn.__code__.co_firstlineno + 4
    told = str(raised.value)
    assert told.startswith(f"inline assembly at {__file__}:{line}:") and reason in told and "defect" not in told
