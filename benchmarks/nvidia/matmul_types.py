"""Matmuls by wgmma for each combination of operand and accumulator types, against cuBLAS.

Operands are loaded through descriptors (``asynchronous=True``), and cuBLAS is called through torch.
``nt`` matmuls take B as the transpose of an [N, K] matrix, ``nn`` ones as a [K, N] matrix. Each
configuration is checked against float64 on random rows and columns; then the fastest one and cuBLAS
are timed in alternation. If cuBLAS lacks a combination (block-scaled operands, narrow weights), its
bf16 matmul of the same shape is used instead.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import outputs
import torch
from side_by_side import milliseconds, report

import tilewright as tw
import tilewright.language as tl
from tilewright.runtime.arguments.descriptor import TensorDescriptor

#: (BM, BN, bytes of a block along K, num_warps, num_stages, divided, persistent): ``divided`` means
#: warp-specialized; ``persistent`` means one program per SM, each of which computes several blocks.
CONFIGURATIONS = (
    (128, 256, 128, 8, 3, False, False),
    (128, 256, 128, 8, 3, True, True),
    (128, 256, 128, 8, 4, True, False),
    (128, 128, 128, 4, 3, False, False),
    (256, 128, 128, 8, 4, True, True),
)
#: For operands that threads convert.
CONVERTING = (
    (128, 128, 128, 8, 3, False, False),
    (128, 128, 64, 8, 3, False, False),
    (128, 128, 64, 4, 3, False, False),
    (256, 128, 128, 8, 4, True, False),
    (256, 128, 128, 8, 4, True, True),
)
#: Number of rows and columns of the result to check.
CHECKED = 48


@tw.jit
def place(program, M, N, BM: tl.constexpr, BN: tl.constexpr, GROUP: tl.constexpr):
    across = tl.cdiv(N, BN)
    first = program // (GROUP * across) * GROUP
    height = min(tl.cdiv(M, BM) - first, GROUP)
    return (first + program % (GROUP * across) % height) * BM, program % (
        GROUP * across
    ) // height * BN


@tw.jit
def put(c, total, row, column, M, N, BM: tl.constexpr, BN: tl.constexpr):
    rows, columns = row + tl.arange(0, BM), column + tl.arange(0, BN)
    tl.store(
        c + rows[:, None] * N + columns[None, :],
        total.to(c.dtype.element_ty),
        mask=(rows[:, None] < M) & (columns[None, :] < N),
    )


@tw.jit
def matmul(
    a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
    TURNED: tl.constexpr, DIVIDED: tl.constexpr, SUMS: tl.constexpr,
    IMPRECISE: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    for program in range(tl.program_id(0), tl.cdiv(M, BM) * tl.cdiv(N, BN), tl.num_programs(0)):
        row, column = place(program, M, N, BM, BN, 16)
        total = tl.zeros((BM, BN), dtype=SUMS)
        for k in tl.range(0, K, BK, warp_specialize=DIVIDED):
            x = a.load([row, k])
            y = b.load([column, k]).T if TURNED else b.load([k, column])
            if x.dtype.primitive_bitwidth != y.dtype.primitive_bitwidth:
                y = y.to(x.dtype)
            total = tl.dot(
                x,
                y,
                total,
                out_dtype=SUMS,
                max_num_imprecise_acc=IMPRECISE,
                input_precision=PRECISION,
            )
        put(c, total, row, column, M, N, BM, BN)


@tw.jit
def scaled_matmul(
    a, a_scales, b, b_scales, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
    PACKED: tl.constexpr, FORMAT: tl.constexpr, DIVIDED: tl.constexpr,
):  # fmt: skip
    row, column = place(tl.program_id(0), M, N, BM, BN, 16)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    groups = tl.arange(0, BK // 32)
    rows, columns = (
        (row + tl.arange(0, BM))[:, None] * (K // 32),
        (column + tl.arange(0, BN))[:, None] * (K // 32),
    )
    for k in tl.range(0, K, BK, warp_specialize=DIVIDED):
        at = k // 32 + groups[None, :]
        x, y = a.load([row, k // PACKED]), b.load([column, k // PACKED])
        total = tl.dot_scaled(
            x,
            tl.load(a_scales + rows + at),
            FORMAT,
            y.T,
            tl.load(b_scales + columns + at),
            FORMAT,
            total,
        )
    put(c, total, row, column, M, N, BM, BN)


@dataclass(frozen=True)
class Kind:
    """A combination of types of a matmul.

    Attributes:
        name: the name of the row.
        a, b: element types of the operands; ``e2m1`` and ``e4m3`` are block-scaled.
        sums: element type of the accumulator.
        out: element type of the result.
        turned: whether B is the transpose of an [N, K] matrix.
        imprecise: ``max_num_imprecise_acc``.
        precision: ``input_precision``.
        converting: whether threads convert operands.
    """

    name: str
    a: Any
    b: Any
    sums: Any
    out: Any
    turned: bool = True
    imprecise: int | None = None
    precision: str = "tf32"
    converting: bool = False


E4M3, E5M2, F16, BF16, F32, I8 = (
    torch.float8_e4m3fn,
    torch.float8_e5m2,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.int8,
)
KINDS = (
    Kind("fp8 e4m3", E4M3, E4M3, tl.float32, BF16),
    Kind("fp8 e4m3 x e5m2", E4M3, E5M2, tl.float32, BF16),
    Kind("fp8 e4m3 nn", E4M3, E4M3, tl.float32, BF16, turned=False),
    Kind("fp8 promoted 128", E4M3, E4M3, tl.float32, BF16, imprecise=128),
    Kind("fp8 promoted 64", E4M3, E4M3, tl.float32, BF16, imprecise=64),
    Kind("fp8 promoted 32", E4M3, E4M3, tl.float32, BF16, imprecise=32),
    Kind("int8", I8, I8, tl.int32, torch.int32),
    Kind("bf16", BF16, BF16, tl.float32, BF16),
    Kind("bf16 nn", BF16, BF16, tl.float32, BF16, turned=False),
    Kind("f16, sums f16", F16, F16, tl.float16, F16),
    Kind("tf32", F32, F32, tl.float32, F32),
    Kind("tf32 nn", F32, F32, tl.float32, F32, turned=False),
    Kind("tf32x3", F32, F32, tl.float32, F32, precision="tf32x3"),
    Kind("bf16x3", F32, F32, tl.float32, F32, precision="bf16x3"),
    Kind("bf16x6", F32, F32, tl.float32, F32, precision="bf16x6"),
    Kind("bf16 x int8 weights", BF16, I8, tl.float32, BF16, turned=False, converting=True),
    Kind("bf16 x fp8 weights", BF16, E4M3, tl.float32, BF16, converting=True),
    Kind("mxfp8", "e4m3", "e4m3", tl.float32, BF16, converting=True),
    Kind("mxfp4", "e2m1", "e2m1", tl.float32, BF16, converting=True),
)
_E2M1 = (0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6)


@dataclass(frozen=True)
class Matrix:
    """An operand: its memory, its scales for groups of 32 elements, and its float64 values."""

    memory: torch.Tensor
    scales: torch.Tensor | None = None
    packed: int = 1

    def values(self, rows: torch.Tensor) -> torch.Tensor:
        """Return the float64 values of some rows."""
        memory = self.memory[rows]
        if self.scales is None:
            return memory.double()
        if self.packed == 2:
            worth = torch.tensor(_E2M1, dtype=torch.float64, device=memory.device)
            numbers = torch.stack(
                [worth[(memory & 15).long()], worth[(memory >> 4).long()]], -1
            ).reshape(len(rows), -1)
        else:
            numbers = memory.double()
        return numbers * torch.exp2(self.scales[rows].double() - 127).repeat_interleave(32, 1)


def drawn(rows: int, columns: int, type_: Any) -> Matrix:
    if type_ in ("e4m3", "e2m1"):
        scales = torch.randint(120, 130, (rows, columns // 32), dtype=torch.uint8, device="cuda")
        if type_ == "e2m1":
            return Matrix(
                torch.randint(0, 256, (rows, columns // 2), dtype=torch.uint8, device="cuda"),
                scales,
                2,
            )
        return Matrix(torch.randn(rows, columns, device="cuda").to(E4M3), scales)
    if type_ is I8:
        return Matrix(torch.randint(-128, 128, (rows, columns), dtype=I8, device="cuda"))
    # all of it in float32 would not fit beside the other operands
    return Matrix(
        torch.randn(rows, columns, device="cuda", dtype=BF16 if type_ is not F32 else F32).to(type_)
    )


def rival(kind: Kind, a: Matrix, b: Matrix) -> tuple[str, Callable[[], Any]]:
    """Return the name and the call of cuBLAS's matmul."""
    x, y = a.memory, b.memory.T if kind.turned else b.memory
    one = torch.ones((), device="cuda")
    if kind.a in (E4M3, E5M2):
        y = y if kind.turned else y.T.contiguous().T  # the only supported order
        fast = kind.imprecise is None
        return "scaled_mm" if fast else "scaled_mm, exact sums", lambda: torch._scaled_mm(
            x, y, one, one, out_dtype=BF16, use_fast_accum=fast
        )
    if kind.a is I8:
        return "int_mm", lambda: torch._int_mm(x, y)
    if kind.precision != "tf32" or kind.converting:
        m, k, n = x.shape[0], x.shape[1] * a.packed, b.memory.shape[0 if kind.turned else 1]
        if kind.a is F32:
            torch.backends.cuda.matmul.allow_tf32 = False
            return "mm in f32", lambda: torch.mm(x, y)
        left, right = (
            torch.randn(m, k, device="cuda", dtype=BF16),
            torch.randn(n, k, device="cuda", dtype=BF16),
        )
        return "mm in bf16", lambda: torch.mm(left, right.T)
    torch.backends.cuda.matmul.allow_tf32 = True
    if kind.a is F16 and hasattr(torch.backends.cuda.matmul, "allow_fp16_accumulation"):
        torch.backends.cuda.matmul.allow_fp16_accumulation = True
    return "mm", lambda: torch.mm(x, y)


def call_of(
    kind: Kind, a: Matrix, b: Matrix, c: torch.Tensor, configuration: tuple[Any, ...]
) -> Callable[[], None]:
    bm, bn, row, warps, stages, divided, persistent = configuration
    m, n, k = c.shape[0], c.shape[1], a.memory.shape[1] * a.packed
    bk = row // a.memory.element_size() if a.scales is None else row
    options = {"num_warps": warps, "num_stages": stages, "asynchronous": True}
    programs = -(-m // bm) * -(-n // bn)
    grid = (
        min(programs, torch.cuda.get_device_properties(0).multi_processor_count)
        if persistent
        else programs,
    )
    if a.scales is not None:
        blocks = (
            TensorDescriptor.from_tensor(a.memory, [bm, bk // a.packed]),
            TensorDescriptor.from_tensor(b.memory, [bn, bk // b.packed]),
        )
        constants = {
            "BM": bm,
            "BN": bn,
            "BK": bk,
            "PACKED": a.packed,
            "FORMAT": kind.a,
            "DIVIDED": divided,
        }
        return lambda: scaled_matmul[grid](
            blocks[0], a.scales, blocks[1], b.scales, c, m, n, k, **constants, **options
        )
    blocks = (
        TensorDescriptor.from_tensor(a.memory, [bm, bk]),
        TensorDescriptor.from_tensor(b.memory, [bn, bk] if kind.turned else [bk, bn]),
    )
    constants = {"BM": bm, "BN": bn, "BK": bk, "TURNED": kind.turned, "DIVIDED": divided}
    constants |= {"SUMS": kind.sums, "IMPRECISE": kind.imprecise, "PRECISION": kind.precision}
    return lambda: matmul[grid](*blocks, c, m, n, k, **constants, **options)


def error_of(kind: Kind, a: Matrix, b: Matrix, c: torch.Tensor) -> float:
    """Return the maximum error of the checked rows and columns, relative to sums of magnitudes."""
    rows, columns = (torch.randint(0, extent, (CHECKED,), device="cuda") for extent in c.shape)
    left = a.values(rows)
    right = b.values(columns).T if kind.turned else b.memory[:, columns].double()
    found = c[rows][:, columns].double()
    worst = ((found - left @ right).abs() / (left.abs() @ right.abs())).max()
    return float(worst) if bool(torch.isfinite(found).all()) else float("nan")


def measure(kind: Kind, shape: tuple[int, int, int]) -> dict[str, Any]:
    (m, n, k) = shape
    a = drawn(m, k, kind.a)
    b = drawn(n, k, kind.b) if kind.turned else drawn(k, n, kind.b)
    c = torch.empty(m, n, device="cuda", dtype=kind.out)
    best: tuple[float, str, Callable[[], None], float] | None = None
    for configuration in CONVERTING if kind.converting else CONFIGURATIONS:
        call, shown = (
            call_of(kind, a, b, c, configuration),
            "x".join(map(str, configuration[:3]))
            + " w{} s{}{}{}".format(
                *configuration[3:5], " divided" * configuration[5], " persistent" * configuration[6]
            ),
        )
        c.fill_(float("nan") if c.dtype.is_floating_point else 77)
        try:
            call()
            torch.cuda.synchronize()
        except Exception as error:
            print(f"{kind.name} {shown}: {type(error).__name__}: {str(error)[:160]}")
            continue
        wrong = error_of(kind, a, b, c)
        limit = {
            torch.int32: 0.0,
            F16: 2e-2,
            BF16: 8e-3,
            F32: {"tf32": 2.5e-3, "tf32x3": 1e-5, "bf16x3": 2e-4, "bf16x6": 1e-5}[kind.precision],
        }[kind.out]
        assert wrong <= limit, f"{kind.name} {shown}: an error of {wrong} of the sum of magnitudes"
        taken = milliseconds({"": call}, 5)[""]
        print(
            f"{kind.name} {shown}: {2 * m * n * k / taken / 1e9:.0f} TFLOP/s, error {wrong:.2e}",
            flush=True,
        )
        if best is None or taken < best[0]:
            best = taken, shown, call, wrong
    if best is None:
        return {"kind": kind.name}
    name, other = rival(kind, a, b)
    row: dict[str, Any] = {
        "kind": kind.name,
        "shape": "x".join(map(str, shape)),
        "configuration": best[1],
        "error": f"{best[3]:.1e}",
    }
    try:
        other()
        calls = {"tilewright": best[2], "cublas": other}
    except RuntimeError as error:
        print(f"{kind.name}, {name}: {str(error)[:160]}")
        calls = {"tilewright": best[2]}
    times = milliseconds(calls, 15)
    row |= {f"{library}_TFLOPs": 2 * m * n * k / taken / 1e9 for library, taken in times.items()}
    if "cublas" in times:
        row |= {"against": name, "of_cublas": times["cublas"] / times["tilewright"]}
    return row


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument(
        "names",
        nargs="*",
        help="kinds that are measured, by the beginnings of their names; all by default",
    )
    parser.add_argument(
        "--shape", type=int, nargs=3, default=(8192, 8192, 4096), metavar=("M", "N", "K")
    )
    outputs.add_options(parser)
    options = parser.parse_args()
    wanted = [
        kind
        for kind in KINDS
        if not options.names or any(kind.name.startswith(name) for name in options.names)
    ]
    report(
        "products of each kind",
        [measure(kind, tuple(options.shape)) for kind in wanted],
        ("of_cublas",),
        options,
    )


if __name__ == "__main__":
    main()
