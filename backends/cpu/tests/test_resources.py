"""Resources of a program on a CPU, read off assembly."""

from __future__ import annotations

import re

import pytest

import tilewright as tw
import tilewright.language as tl
from tilewright_cpu.resources import frame_bytes, functions

X86 = """
.LCPI0_0:
        .long 1
kernel:
        pushq   %rbp
        movq    %rsp, %rbp
        pushq   %r15
        andq    $-64, %rsp
        subq    $27136, %rsp
        callq   *%rax
        subq    $16, %rax
        popq    %r15
.LBB0_1:
        retq
kernel.part0:
        pushq   %rbx
        subq    $8, %rsp
        retq
"""
ARM = """
_kernel:
        stp     d15, d14, [sp, #-160]!
        sub     x9, sp, #6, lsl #12
        sub     sp, sp, #48
        add     x11, sp, #3, lsl #12
        ret
"""


def test_frames_are_what_is_pushed_and_what_is_taken() -> None:
    assert {name: frame_bytes(body, "x86-64") for name, body in functions(X86)} == {
        "kernel": 27152,
        "kernel.part0": 16,
    }
    assert {name: frame_bytes(body, "aarch64") for name, body in functions(ARM)} == {
        "kernel": 160 + 6 * 4096 + 48
    }


@tw.jit
def fill_kernel(x_ptr, out_ptr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out_ptr + i, i * tl.load(x_ptr))


@tw.jit
def copy_kernel(x_ptr, out_ptr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out_ptr + i, tl.load(x_ptr + i))


@tw.jit
def reversed_kernel(x_ptr, out_ptr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out_ptr + i, tl.gather(tl.load(x_ptr + i) * 2, BLOCK - 1 - i, axis=0))


@pytest.mark.parametrize("arch", ["x86-64", "x86-64-v4", "aarch64"])
def test_a_tile_in_stack_memory_is_part_of_the_frame(arch: str) -> None:
    small, large = (
        tw.explain(kernel, "*fp32, *fp32", BLOCK=1024, backend="cpu", arch=arch).facts
        for kernel in (fill_kernel, reversed_kernel)
    )
    bytes_of = [
        int(re.fullmatch(r"(\d+) bytes a thread", facts["stack"])[1]) for facts in (small, large)
    ]  # type: ignore[index]
    assert bytes_of[0] < 512
    assert bytes_of[1] >= 4096
    used, there = (int(number) for number in re.findall(r"\d+", large["vector registers"]))
    assert 0 < used <= there
    assert there == (16 if arch == "x86-64" else 32)


def test_heap_memory_is_reported_and_other_architectures_have_no_frame() -> None:
    facts = tw.explain(
        reversed_kernel, "*fp32, *fp32", BLOCK=1 << 18, backend="cpu", arch="x86-64"
    ).facts
    assert int(facts["heap"].split()[0]) >= 1 << 20
    assert (
        "stack"
        not in tw.explain(
            copy_kernel, "*fp32, *fp32", BLOCK=1024, backend="cpu", arch="riscv64"
        ).facts
    )
