"""The frontend's share of the work to compile, in lines of Python that run: a figure that is the
same on every machine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

ADD = """
@jit
def kernel(x, y, out, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    a = tl.load(x + offsets, mask=mask)
    b = tl.load(y + offsets, mask=mask)
    tl.store(out + offsets, a + b, mask=mask)
"""

ATTENTION = """
@jit
def inner(acc, total, largest, q, k_ptr, v_ptr, stride, low, high, scale, row, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr, CAUSAL: tl.constexpr):
    offs_m = row * BM + tl.arange(0, BM)
    offs_n = tl.arange(0, BN)
    offs_d = tl.arange(0, D)
    for start in tl.range(low, high, BN):
        start = tl.multiple_of(start, BN)
        k = tl.load(k_ptr + (start + offs_n)[None, :] * stride + offs_d[:, None])
        qk = tl.dot(q, k)
        if CAUSAL:
            qk = qk * scale + tl.where(offs_m[:, None] >= (start + offs_n[None, :]), 0, -1.0e6)
            above = tl.maximum(largest, tl.max(qk, 1))
            qk -= above[:, None]
        else:
            above = tl.maximum(largest, tl.max(qk, 1) * scale)
            qk = qk * scale - above[:, None]
        p = tl.math.exp2(qk)
        alpha = tl.math.exp2(largest - above)
        v = tl.load(v_ptr + (start + offs_n)[:, None] * stride + offs_d[None, :])
        acc = tl.dot(p.to(v.dtype), v, acc * alpha[:, None])
        total = total * alpha + tl.sum(p, 1)
        largest = above
    return acc, total, largest

@jit
def kernel(q_ptr, k_ptr, v_ptr, out, sm_scale, stride_z, stride_h, stride, heads, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr):
    row = tl.program_id(0)
    z = tl.program_id(1) // heads
    h = tl.program_id(1) % heads
    base = z.to(tl.int64) * stride_z + h.to(tl.int64) * stride_h
    offs_m = row * BM + tl.arange(0, BM)
    offs_d = tl.arange(0, D)
    largest = tl.zeros([BM], dtype=tl.float32) - float("inf")
    total = tl.zeros([BM], dtype=tl.float32) + 1.0
    acc = tl.zeros([BM, D], dtype=tl.float32)
    scale = sm_scale * 1.44269504
    q = tl.load(q_ptr + base + offs_m[:, None] * stride + offs_d[None, :])
    acc, total, largest = inner(acc, total, largest, q, k_ptr + base, v_ptr + base, stride, 0, row * BM, scale, row, BM, BN, D, False)
    acc, total, largest = inner(acc, total, largest, q, k_ptr + base, v_ptr + base, stride, row * BM, (row + 1) * BM, scale, row, BM, BN, D, True)
    acc = acc / total[:, None]
    tl.store(out + base + offs_m[:, None] * stride + offs_d[None, :], acc.to(out.dtype.element_ty))
"""


def compiling(made: Any, **arguments: Any) -> Callable[[], object]:
    """Compiles without verification; the modules that it needs are imported."""
    from tilewright.frontend import compile_function

    signature = {
        name: value if isinstance(value, str) else "constexpr" for name, value in arguments.items()
    }
    constants = {name: value for name, value in arguments.items() if not isinstance(value, str)}
    compile_function(made.kernel, signature, constants)
    return lambda: compile_function(made.kernel, signature, constants)


def test_vector_add(source: Any, steps_in: Callable[[Callable[[], object]], int]) -> None:
    assert (
        steps_in(compiling(source(ADD), x="*fp32", y="*fp32", out="*fp32", n="i32", BLOCK=1024))
        < 6_000
    )  # 4,120 on Python 3.11


def test_flash_attention(source: Any, steps_in: Callable[[Callable[[], object]], int]) -> None:
    pointers = dict.fromkeys(("q_ptr", "k_ptr", "v_ptr", "out"), "*fp16")
    scalars = dict.fromkeys(("stride_z", "stride_h", "stride", "heads"), "i32")
    assert (
        steps_in(
            compiling(source(ATTENTION), **pointers, sm_scale="fp32", **scalars, BM=64, BN=32, D=64)
        )
        < 70_000
    )  # 48,141 on Python 3.11


def test_work_grows_in_proportion_to_the_program(
    source: Any, steps_in: Callable[[Callable[[], object]], int]
) -> None:
    """Nested loops and branches are visited once, however deep."""

    def nested(depth: int) -> str:
        lines = ["@jit", "def kernel(out, n):", "    acc = 0"]
        for level in range(depth):
            lines.append(
                "    " * (level + 1)
                + (f"for i{level} in range(n):" if level % 2 else f"if acc < {level + n}:")
            )
            lines.append("    " * (level + 2) + f"acc += {level}")
        lines.append("    tl.store(out, acc)")
        return "\n".join(lines) + "\n"

    n = 3
    few, many = (
        steps_in(compiling(source(nested(depth)), out="*i32", n="i32")) for depth in (4, 16)
    )
    assert many < few * 4 * 1.5
