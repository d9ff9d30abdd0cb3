"""Shared fixtures: a target with a matrix instruction, and well-known kernels.

The tests of layout assignment, barriers and shared memory use them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

import tilewright as tw
import tilewright.language as tl
from tilewright.frontend.compile import compile_function
from tilewright.ir import Module
from tilewright.ir.types import bit_width
from tilewright.passes import pipeline
from tilewright.simt.emulator import EmulatedMatrix, EmulatedTarget
from tilewright.simt.layouts.linear_layout import Basis, LinearLayout, axis_shifts, log2
from tilewright.simt.target.matmul_plan import Matmul, MatmulPlan
from tilewright.tools.inspect import find_kernel


class MatrixTarget(EmulatedTarget):
    """An emulated machine with a matrix instruction of 16 x 8 x 16 for a warp of 32, as layouts
    only. Warps are stacked along M."""

    def __init__(self, *sizes: int) -> None:
        super().__init__(*sizes)
        self.matrix = EmulatedMatrix(self._plans)

    def _plans(self, product: Matmul) -> Sequence[MatmulPlan]:
        shape, k, num_warps = product.shape, product.k, product.warps
        if (
            len(shape) != 2
            or self.resources.warp_size != 32
            or bit_width(product.a) != 16
            or shape[0] < 16
            or shape[1] < 8
            or k < 16
        ):
            return ()
        m, n = shape
        warps = [(16 << bit, 0) if 16 << bit < m else (0, 0) for bit in range(log2(num_warps))]
        none = [(0, 0)] * len(warps)
        rows = [(0, 2), (0, 4), (1, 0), (2, 0), (4, 0)]
        columns = [(2, 0), (4, 0), (0, 1), (0, 2), (0, 4)]
        plan = MatmulPlan(
            "16x8x16",
            _layout((m, k), [(0, 1), (8, 0), (0, 8)], rows, warps),
            _layout((k, n), [(1, 0), (8, 0)], columns, none),
            _layout((m, n), [(0, 1), (8, 0)], rows, warps),
            _no_instructions,
        )
        return (plan,)


def _no_instructions(*operands: Any) -> list[str]:
    raise AssertionError("a plan of layouts only")


def _layout(
    shape: tuple[int, int],
    registers: list[tuple[int, int]],
    lanes: list[tuple[int, int]],
    warps: list[tuple[int, int]],
) -> LinearLayout:
    """The images given as (row, column), and what is left of the tile in more registers."""
    shift = axis_shifts(shape)[0]
    images = [
        tuple(row << shift | column for row, column in part) for part in (registers, lanes, warps)
    ]
    basis = Basis(image for part in images for image in part)
    rest = tuple(1 << bit for bit in range(log2(shape[0] * shape[1])) if basis.add(1 << bit))
    return LinearLayout(shape, (*images[0], *rest), images[1], images[2])


@tw.jit
def add_mixed(x, y, out, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < n
    value = tl.load(x + offsets, mask=inside).to(tl.float32) * tl.load(y + offsets, mask=inside)
    tl.store(out + offsets, value.to(tl.float16), mask=inside)


@tw.jit
def matmul(
    a, b, c, bias, M, N, K, sa, sb, sc, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    inner = tl.arange(0, BK)
    a_tile = a + rows[:, None] * sa + inner[None, :]
    b_tile = b + inner[:, None] * sb + columns[None, :]
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(0, K, BK):
        left = tl.load(a_tile, mask=(rows[:, None] < M) & (inner[None, :] < K - start), other=0.0)
        right = tl.load(
            b_tile, mask=(inner[:, None] < K - start) & (columns[None, :] < N), other=0.0
        )
        total = tl.dot(left, right, total)
        a_tile += BK
        b_tile += BK * sb
    total += tl.load(bias + columns, mask=columns < N, other=0.0)[None, :]
    tl.store(
        c + rows[:, None] * sc + columns[None, :],
        total.to(c.dtype.element_ty),
        mask=(rows[:, None] < M) & (columns[None, :] < N),
    )


@tw.jit
def transpose(x, out, M, N, BM: tl.constexpr, BN: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    tile = tl.load(x + rows[:, None] * N + columns[None, :])
    tl.store(out + rows[:, None] + columns[None, :] * M, tile)


@tw.jit
def gather_rows(x, index, out, N, BM: tl.constexpr, BN: tl.constexpr):
    rows = tl.load(index + tl.arange(0, BM))
    columns = tl.arange(0, BN)
    tl.store(
        out + tl.arange(0, BM)[:, None] * N + columns[None, :],
        tl.load(x + rows[:, None] * N + columns[None, :]),
    )


_EXAMPLES = Path(__file__).resolve().parents[3] / "examples/kernels"

#: name -> (kernel, types of pointers and scalars that are no i32, constants, integers that are
#: multiples of 16)
KERNELS: dict[str, tuple[Any, dict[str, str], dict[str, int], tuple[str, ...]]] = {
    "add": (
        find_kernel(f"{_EXAMPLES}/vector_add.py"),
        dict.fromkeys(("x_ptr", "y_ptr", "out_ptr"), "*fp32"),
        {"BLOCK": 1024},
        ("n",),
    ),
    "add_mixed": (add_mixed, {"x": "*fp16", "y": "*fp32", "out": "*fp16"}, {"BLOCK": 1024}, ("n",)),
    "softmax": (
        find_kernel(f"{_EXAMPLES}/softmax.py"),
        dict.fromkeys(("x_ptr", "out_ptr"), "*fp32"),
        {"BLOCK": 1024},
        ("x_stride", "out_stride", "n_columns"),
    ),
    "layer_norm": (
        find_kernel(f"{_EXAMPLES}/layer_norm.py"),
        {
            **dict.fromkeys(("x_ptr", "out_ptr", "weight_ptr", "bias_ptr"), "*fp16"),
            **dict.fromkeys(("mean_ptr", "rstd_ptr"), "*fp32"),
            "eps": "fp32",
        },
        {"BLOCK": 1024},
        ("stride", "n"),
    ),
    "matmul": (
        matmul,
        {"a": "*fp16", "b": "*fp16", "c": "*fp16", "bias": "*fp32"},
        {"BM": 128, "BN": 128, "BK": 64},
        ("M", "N", "K", "sa", "sb", "sc"),
    ),
    "matmul_f32_out": (
        matmul,
        {"a": "*fp16", "b": "*fp16", "c": "*fp32", "bias": "*fp32"},
        {"BM": 128, "BN": 128, "BK": 64},
        ("M", "N", "K", "sa", "sb", "sc"),
    ),
    "attention": (
        find_kernel(f"{_EXAMPLES}/attention.py"),
        {
            **dict.fromkeys(("q_ptr", "k_ptr", "v_ptr", "out_ptr"), "*fp16"),
            "lse_ptr": "*fp32",
            "scale": "fp32",
        },
        {"CAUSAL": True, "BLOCK_M": 64, "BLOCK_N": 64, "HEAD": 64},
        ("length",),
    ),
    "transpose": (transpose, {"x": "*fp32", "out": "*fp32"}, {"BM": 64, "BN": 64}, ("M", "N")),
    "gather_rows": (
        gather_rows,
        {"x": "*fp32", "index": "*i32", "out": "*fp32"},
        {"BM": 32, "BN": 64},
        ("N",),
    ),
}


def compile_kernel_named(name: str, constants: Mapping[str, int] | None = None) -> Module:
    """Tile IR of a kernel of this file after the standard passes; pointers are multiples of 16."""
    fn, types, defaults, aligned = KERNELS[name]
    known = {**defaults, **(constants or {})}
    signature = {
        parameter: "constexpr" if parameter in known else types.get(parameter, "i32")
        for parameter in fn.arg_names
    }
    attributes = {
        parameter: {"divisibility": 16}
        for parameter, type_ in signature.items()
        if type_.startswith("*") or parameter in aligned
    }
    module = compile_function(fn, signature, known, attributes)
    pipeline.run(module)
    return module


@pytest.fixture
def kernel() -> Callable[..., Module]:
    """Gives the Tile IR of one of KERNELS by name."""
    return compile_kernel_named


@pytest.fixture(params=sorted(KERNELS))
def kernel_name(request: pytest.FixtureRequest) -> str:
    name = request.param
    assert isinstance(name, str)
    return name


@pytest.fixture
def matrix_target() -> MatrixTarget:
    return MatrixTarget(32, 228 * 1024)
