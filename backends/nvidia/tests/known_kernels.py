"""The kernels of the benchmarks, examples and tests, as their users launch them: what tests that
compile for GPUs compile."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.util
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import tilewright.language
from tilewright.ir import Module
from tilewright.plugins.manifest import Target
from tilewright.plugins.registry import registry
from tilewright.runtime.compiler.compile import build_module
from tilewright.runtime.launch.jit import JITFunction
from tilewright.tools.inspect import specialize

ROOT = Path(__file__).resolve().parents[3]
PORTABLE = "conformance/src/tilewright_conformance/kernels/portable_kernels.py"
TESTS = "backends/nvidia/tests/gpu_kernels.py"
ROWS = "conformance/src/tilewright_conformance/kernels/rowwise_kernels.py"
MATRICES = "conformance/src/tilewright_conformance/kernels/matrices.py"
ATOMICS = "conformance/src/tilewright_conformance/cases/atomics/atomics/order.py"
REDUCTIONS = "conformance/tests/language/test_language_reductions.py"
SCANS = "conformance/src/tilewright_conformance/cases/control/scans.py"
SORTING = "conformance/src/tilewright_conformance/cases/memory/sorting.py"
#: the modules imported so far, by file
modules: dict[str, ModuleType] = {}


@dataclasses.dataclass(frozen=True)
class Case:
    """A kernel as its users launch it. ``signature`` names the runtime parameters; ``p`` stands for
    a pointer that is a multiple of 16."""

    file: str
    kernel: str
    signature: str
    constants: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def __str__(self) -> str:
        size = "x".join(
            str(value)
            for value in self.constants.values()
            if isinstance(value, int) and not isinstance(value, bool)
        )
        return f"{Path(self.file).parent.name}-{Path(self.file).stem}-{self.kernel}-{size}"


def pointers(names: str, type_: str) -> str:
    return ", ".join(f"{name}=*{type_}:16" for name in names.split())


def sizes(names: str, divisibility: int = 16) -> str:
    return ", ".join(f"{name}=i32:{divisibility}" for name in names.split())


def row(kernel: str, signature: str, block: int, warps: int) -> Case:
    return Case(PORTABLE, kernel, signature, {"BLOCK": block}, {"num_warps": warps})


def product(bm: int, bn: int, bk: int, warps: int, stages: int) -> Case:
    constants = {"BM": bm, "BN": bn, "BK": bk, "GROUP": 8}
    return Case(
        PORTABLE,
        "matmul",
        f"{pointers('a b c', 'fp16')}, {sizes('M N K')}",
        constants,
        {"num_warps": warps, "num_stages": stages},
    )


def attention(bm: int, bn: int, d: int, causal: bool, warps: int, stages: int) -> Case:
    constants = {"D": d, "BM": bm, "BN": bn, "CAUSAL": causal}
    return Case(
        PORTABLE,
        "attention",
        f"{pointers('q k v out', 'fp16')}, {sizes('n')}, scale=fp32",
        constants,
        {"num_warps": warps, "num_stages": stages},
    )


def attention_blocks(bm: int, bn: int, d: int, causal: bool, warps: int, stages: int) -> Case:
    blocks = ", ".join(
        f"{name}=tensordesc<fp16[{rows},{d}]>:16"
        for name, rows in (("q", bm), ("k", bn), ("v", bn), ("out", bm))
    )
    constants = {"D": d, "BM": bm, "BN": bn, "CAUSAL": causal}
    return Case(
        PORTABLE,
        "attention_blocks",
        f"{blocks}, lse=*fp32:16, {sizes('n')}, scale=fp32",
        constants,
        {"num_warps": warps, "num_stages": stages},
    )


#: As the scripts of benchmarks/nvidia launch them.
BENCHMARKED = (
    Case(PORTABLE, "ten", f"{pointers('a b c d e', 'fp32')}, {sizes('n m k s t', 1)}"),
    row("add", f"{pointers('x y z', 'fp32')}, {sizes('n')}", 1024, 4),
    row("add", f"{pointers('x y z', 'fp16')}, {sizes('n')}", 1024, 4),
    row("softmax", f"{pointers('x z', 'fp32')}, {sizes('columns')}", 1024, 4),
    row("softmax", f"{pointers('x z', 'fp16')}, {sizes('columns')}", 16384, 16),
    row("layer_norm", f"{pointers('x w b z', 'fp16')}, {sizes('columns')}, eps=fp32", 4096, 8),
    row("layer_norm", f"{pointers('x w b z', 'fp16')}, {sizes('columns')}, eps=fp32", 8192, 8),
    row("rms_norm", f"{pointers('x w z', 'fp16')}, {sizes('columns')}, eps=fp32", 4096, 8),
    row("dropout", f"{pointers('x z', 'fp32')}, {sizes('n')}, p=fp32, seed=i32", 1024, 4),
    row(
        "cross_entropy",
        (
            f"{pointers('logits', 'fp16')}, {pointers('labels', 'i64')}, "
            f"{pointers('losses', 'fp32')}, {sizes('columns')}"
        ),
        32768,
        16,
    ),
    product(128, 128, 64, 4, 3),
    product(128, 128, 64, 8, 3),
    product(128, 128, 32, 4, 4),
    product(64, 128, 64, 4, 4),
    attention(128, 64, 64, True, 8, 3),
    attention(64, 64, 64, True, 4, 3),
    attention(64, 32, 128, False, 4, 3),
)

#: Kernels whose blocks have the shapes of wgmma.
GREAT = (
    product(128, 256, 64, 8, 3),
    attention_blocks(128, 64, 64, True, 8, 3),
    attention_blocks(128, 128, 64, True, 8, 3),
    attention_blocks(256, 64, 64, False, 16, 3),
    attention_blocks(128, 128, 128, False, 8, 2),
    attention_blocks(128, 128, 128, True, 8, 2),
)

_ATTENTION = (
    f"{pointers('q_ptr k_ptr v_ptr out_ptr', 'fp16')}, {pointers('lse_ptr', 'fp32')}, "
    f"scale=fp32, {sizes('length')}"
)
_GRADIENTS = (
    f"{pointers('q_ptr k_ptr v_ptr dout_ptr', 'fp16')}, {pointers('lse_ptr delta_ptr', 'fp32')}, "
    f"scale=fp32, {sizes('length')}"
)

OTHERS = (
    Case(
        "examples/kernels/vector_add.py",
        "add_kernel",
        f"{pointers('x_ptr y_ptr out_ptr', 'fp32')}, {sizes('n')}",
        {"BLOCK": 1024},
    ),
    Case(
        "examples/kernels/softmax.py",
        "softmax_kernel",
        f"{pointers('x_ptr out_ptr', 'fp32')}, {sizes('x_stride out_stride n_columns', 1)}",
        {"BLOCK": 1024},
    ),
    Case(
        "examples/kernels/layer_norm.py",
        "layer_norm_kernel",
        (
            f"{pointers('x_ptr out_ptr weight_ptr bias_ptr', 'fp16')}, "
            f"{pointers('mean_ptr rstd_ptr', 'fp32')}, {sizes('stride n')}, eps=fp32"
        ),
        {"BLOCK": 1024},
    ),
    Case(
        "examples/kernels/matmul.py",
        "matmul_kernel",
        f"{pointers('a_ptr b_ptr c_ptr', 'fp16')}, {sizes('M N K stride_am stride_bk stride_cm')}",
        {
            "stride_ak": 1,
            "stride_bn": 1,
            "stride_cn": 1,
            "BLOCK_M": 64,
            "BLOCK_N": 64,
            "BLOCK_K": 32,
            "GROUP_M": 8,
            "ACTIVATION": "leaky_relu",
        },
    ),
    Case(
        "examples/kernels/split_k_matmul.py",
        "part_kernel",
        f"{pointers('a_ptr b_ptr', 'fp16')}, {pointers('parts_ptr', 'fp32')}, {sizes('M N K')}",
        {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32, "SPLIT": 4},
    ),
    Case(
        "examples/kernels/split_k_matmul.py",
        "sum_kernel",
        f"{pointers('parts_ptr c_ptr', 'fp32')}, {sizes('size')}",
        {"SPLIT": 4, "BLOCK": 1024},
    ),
    Case(
        "examples/kernels/attention.py",
        "attention_kernel",
        _ATTENTION,
        {"CAUSAL": True, "BLOCK_M": 64, "BLOCK_N": 64, "HEAD": 64},
    ),
    Case(
        "examples/kernels/attention.py",
        "attention_kernel",
        _ATTENTION,
        {"CAUSAL": False, "BLOCK_M": 128, "BLOCK_N": 64, "HEAD": 64},
        {"num_warps": 8},
    ),
    Case(
        "examples/kernels/attention_backward.py",
        "delta_kernel",
        (
            f"{pointers('out_ptr dout_ptr', 'fp16')}, {pointers('delta_ptr', 'fp32')}, "
            f"{sizes('length')}"
        ),
        {"BLOCK": 64, "HEAD": 64},
    ),
    Case(
        "examples/kernels/attention_backward.py",
        "keys_and_values_kernel",
        f"{_GRADIENTS}, {pointers('dk_ptr dv_ptr', 'fp16')}",
        {"CAUSAL": True, "BLOCK_M": 32, "BLOCK_N": 64, "HEAD": 64},
    ),
    Case(
        "examples/kernels/attention_backward.py",
        "queries_kernel",
        f"{_GRADIENTS}, {pointers('dq_ptr', 'fp16')}",
        {"CAUSAL": True, "BLOCK_M": 64, "BLOCK_N": 32, "HEAD": 64},
    ),
    Case(
        TESTS,
        "copy",
        pointers("x z", "bf16"),
        {"BLOCK": 2048, "CACHE": "", "EVICT": "evict_first", "STORE": ""},
    ),
    Case(TESTS, "volatile_copy", pointers("x z", "fp32")),
    Case(TESTS, "masked_with_other", f"{pointers('x z', 'fp32')}, n=i32", {"BLOCK": 512}),
    Case(
        PORTABLE,
        "layer_norm",
        f"{pointers('x w b z', 'bf16')}, {sizes('columns')}, eps=fp32",
        {"BLOCK": 2048},
    ),
    Case(
        TESTS,
        "matmul",
        f"{pointers('a b', 'fp8e5')}, {pointers('c', 'fp16')}, {sizes('M N K')}",
        {"BM": 64, "BN": 64, "BK": 32, "GROUP": 4},
    ),
    Case(
        TESTS,
        "matmul",
        f"{pointers('a b c', 'fp32')}, {sizes('M N K')}",
        {"BM": 64, "BN": 64, "BK": 32, "GROUP": 4, "PRECISION": "tf32x3"},
    ),
    Case(
        PORTABLE,
        "dropout",
        f"{pointers('x z', 'fp32')}, n=i32, p=fp32, seed=i32",
        {"BLOCK": 1024},
    ),
    Case(TESTS, "assembly", pointers("x z", "i32"), {"BLOCK": 128}),
    Case(TESTS, "packed_assembly", pointers("x z", "i8"), {"BLOCK": 512}),
    Case(TESTS, "says", f"{pointers('x', 'fp32')}, n=i32", {}, {"debug": True}),
    Case(
        TESTS,
        "sums",
        f"{pointers('x z', 'bf16')}, n=i32",
        {"BLOCK": 128, "ORDER": "acq_rel", "SCOPE": "gpu"},
    ),
    Case(TESTS, "extremes", pointers("x z", "fp32"), {"BLOCK": 128}),
    Case(
        ROWS,
        "rms_norm_forward",
        f"{pointers('x_ptr w_ptr y_ptr rstd_ptr', 'fp32')}, {sizes('stride columns', 1)}, eps=fp32",
        {"BLOCK": 256},
    ),
    Case(
        ROWS,
        "dropout",
        f"{pointers('x_ptr y_ptr', 'fp32')}, n=i32, p=fp32, seed=i32",
        {"BLOCK": 256},
    ),
    Case(
        ROWS,
        "top_k",
        f"{pointers('x_ptr values_ptr', 'fp32')}, {pointers('places_ptr', 'i32')}, columns=i32",
        {"K": 8, "BLOCK": 128},
    ),
    Case(
        ROWS,
        "bitonic_rows",
        f"{pointers('x_ptr y_ptr', 'fp32')}, columns=i32",
        {"DESCENDING": True, "ROWS": 4, "BLOCK": 64},
    ),
    Case(
        ROWS,
        "selective_scan",
        (
            f"{pointers('x_ptr delta_ptr a_ptr b_ptr c_ptr y_ptr', 'fp32')}, "
            f"{sizes('length channels', 1)}"
        ),
        {"REVERSE": False, "STATES": 8, "CHUNK": 16},
    ),
    Case(
        MATRICES,
        "split_k",
        f"{pointers('a b c', 'fp32')}, {sizes('M N K sam sak sbk sbn scm scn', 1)}",
        {"BM": 32, "BN": 32, "BK": 16, "SPLIT": 2},
    ),
    Case(ATOMICS, "copy", f"{pointers('x out', 'fp16')}, n=i32", {"BLOCK": 32}),
    Case(ATOMICS, "message", pointers("flag data out", "i32"), {"BLOCK": 64}),
    Case(
        ATOMICS,
        "swap",
        pointers("target compare value old", "i16"),
        {"SEM": "acq_rel", "SCOPE": "gpu", "BLOCK": 128},
    ),
    Case(REDUCTIONS, "moments", pointers("x_ptr out", "fp32"), {"ROWS": 4, "COLUMNS": 64}),
    Case(
        SCANS,
        "recurrence",
        pointers("x_ptr y_ptr out", "i32"),
        {"SHAPE": (8, 32), "AXIS": 0, "REVERSE": True},
    ),
    Case(SORTING, "in_order", pointers("x_ptr up down", "bf16"), {"SHAPE": (4, 64)}),
    Case(
        REDUCTIONS,
        "moved",
        (
            f"{pointers('x_ptr y_ptr', 'fp16')}, {pointers('index_ptr', 'i32')}, "
            f"{pointers('flipped gathered joined stacked turned', 'fp16')}"
        ),
        {"R": 8, "C": 16, "AXIS": 1},
    ),
    Case(
        REDUCTIONS,
        "mapped",
        (
            f"{pointers('x_ptr y_ptr', 'u32')}, {pointers('orders', 'i32')}, "
            f"{pointers('quotients remainders', 'u32')}"
        ),
        {"N": 256},
    ),
    Case(
        MATRICES,
        "attention_forward",
        (
            f"{pointers('q_ptr k_ptr v_ptr o_ptr', 'bf16')}, {pointers('lse_ptr', 'fp32')}, "
            f"{sizes('length')}, scale=fp32"
        ),
        {"D": 64, "BM": 64, "BN": 32, "CAUSAL": False},
    ),
    Case(
        MATRICES,
        "attention_forward",
        f"{pointers('q_ptr k_ptr v_ptr o_ptr lse_ptr', 'fp32')}, length=i32, scale=fp32",
        {"D": 32, "BM": 32, "BN": 16},
    ),
)

TRITON = "examples/triton_programs/"
_FORWARD = {"CAUSAL": True, "HEAD": 64, "BLOCK_M": 128, "BLOCK_N": 64}
_BACKWARD = {"CAUSAL": True, "HEAD": 64, "BLOCK_HELD": 64, "BLOCK_STEP": 64}
_PERSISTENT = {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64, "GROUP": 8, "PROGRAMS": 132}
_GROUPED = {"TYPE": "float16", "PROGRAMS": 132, "BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 32}


def descriptors(names: str, element: str, *block: int) -> str:
    return ", ".join(f"{name}=tensordesc<{element}{list(block)}>:16" for name in names.split())


#: Kernels of the benchmark of matmuls through descriptors.
DESCRIBED = "benchmarks/nvidia/descriptor_kernels.py"


def described(configuration: tuple[Any, ...], element: str) -> Case:
    """A matmul through descriptors in one of the benchmark's configurations."""
    bm, bn, bk, warps, stages, divided, store, persistent, cluster = configuration
    result = (
        pointers("c", element)
        if store == "pointers"
        else descriptors("c", element, bm, bn // 2 if store == "halves" else bn)
    )
    constants = {
        "BM": bm,
        "BN": bn,
        "BK": bk,
        "GROUP": 16,
        "DIVIDED": divided,
        "STORE": store,
        **({"PROGRAMS": 132} if persistent else {}),
    }
    signature = (
        f"{descriptors('a', element, bm, bk)}, {descriptors('b', element, bk, bn)}, {result}, "
        f"{sizes('M N K')}"
    )
    options = {"num_warps": warps, "num_stages": stages, "num_ctas": cluster, "asynchronous": True}
    return Case(
        DESCRIBED, "persistent_matmul" if persistent else "matmul", signature, constants, options
    )


def scaled(a_format: str, b_format: str, group: int) -> Case:
    """A matmul of block-scaled operands in blocks of 128 x 128 x 128."""
    scale, tiles = (
        ("u8", (1, 1, 128 // group // 4, 2, 256)) if group == 32 else ("fp8e4nv", (1, 1, 2, 2, 256))
    )
    parts = [
        descriptors(name, *(("u8", 128, 64) if format_ == "e2m1" else ("fp8e4nv", 128, 128)))
        + ", "
        + descriptors(f"{name}_scales", scale, *tiles)
        for name, format_ in (("a", a_format), ("b", b_format))
    ]
    constants = {
        "A_FORMAT": a_format,
        "B_FORMAT": b_format,
        "GROUP": group,
        "BLOCK_M": 128,
        "BLOCK_N": 128,
        "BLOCK_K": 128,
        "STAGES": 2,
    }
    return Case(
        f"{TRITON}block_scaled_matmul.py",
        "block_scaled_kernel",
        f"{', '.join(parts)}, {descriptors('c', 'fp16', 128, 128)}, {sizes('M N K')}",
        constants,
        {"num_warps": 8},
    )


def triton_matmul(
    element: str, result: str, m: int, n: int, k: int, warps: int, stages: int, strides: str
) -> Case:
    constants = {
        "BLOCK_M": m,
        "BLOCK_N": n,
        "BLOCK_K": k,
        "GROUP": 8,
        "ACTIVATION": "leaky_relu",
        "a_column": 1,
        "c_column": 1,
        strides: 1,
    }
    other = {"b_row": "b_column", "b_column": "b_row"}[strides]
    signature = (
        f"{pointers('a_ptr b_ptr', element)}, {pointers('c_ptr', result)}, "
        f"{sizes(f'M N K a_row {other} c_row')}"
    )
    return Case(
        f"{TRITON}matmul.py",
        "matmul_kernel",
        signature,
        constants,
        {"num_warps": warps, "num_stages": stages},
    )


#: The kernels written for Triton, as their host functions launch them.
TRITON_EXAMPLES = (
    Case(
        f"{TRITON}vector_add.py",
        "add_kernel",
        f"{pointers('left_ptr right_ptr sum_ptr', 'fp32')}, {sizes('length')}",
        {"BLOCK": 1024},
    ),
    Case(
        f"{TRITON}softmax.py",
        "softmax_kernel",
        f"{pointers('out_ptr in_ptr', 'fp32')}, {sizes('in_stride out_stride rows columns')}",
        {"BLOCK": 1024, "STAGES": 2},
    ),
    Case(
        f"{TRITON}softmax.py",
        "softmax_kernel",
        f"{pointers('out_ptr in_ptr', 'fp32')}, {sizes('in_stride out_stride rows columns', 1)}",
        {"BLOCK": 16384, "STAGES": 2},
        {"num_warps": 16},
    ),
    triton_matmul("fp16", "fp16", 128, 256, 64, 8, 3, "b_column"),
    triton_matmul("fp16", "fp16", 128, 128, 32, 4, 4, "b_column"),
    triton_matmul("fp8e5", "fp16", 128, 128, 32, 4, 4, "b_row"),
    Case(
        f"{TRITON}dropout.py",
        "masked_dropout_kernel",
        (
            f"{pointers('x_ptr out_ptr', 'fp32')}, {pointers('keep_ptr', 'i32')}, "
            f"{sizes('length')}, p=fp32"
        ),
        {"BLOCK": 1024},
    ),
    Case(
        f"{TRITON}dropout.py",
        "seeded_dropout_kernel",
        f"{pointers('x_ptr out_ptr', 'fp32')}, {sizes('length')}, p=fp32, seed=i32",
        {"BLOCK": 1024},
    ),
    Case(
        f"{TRITON}dropout.py",
        "row_seeded_dropout_kernel",
        (
            f"{pointers('x_ptr out_ptr', 'fp32')}, {pointers('seeds_ptr', 'i32')}, "
            f"{sizes('columns')}, p=fp32"
        ),
        {"BLOCK": 1024},
    ),
    Case(
        f"{TRITON}layer_norm.py",
        "forward_kernel",
        (
            f"{pointers('x_ptr weight_ptr bias_ptr y_ptr', 'fp16')}, "
            f"{pointers('mean_ptr rstd_ptr', 'fp32')}, {sizes('stride N')}, eps=fp32"
        ),
        {"BLOCK": 8192},
        {"num_warps": 8},
    ),
    Case(
        f"{TRITON}layer_norm.py",
        "rows_backward_kernel",
        f"{pointers('dx_ptr dy_ptr x_ptr weight_ptr', 'fp16')}, "
        f"{pointers('mean_ptr rstd_ptr partial_dweight_ptr partial_dbias_ptr', 'fp32')}, "
        f"{pointers('locks_ptr', 'i32')}, {sizes('stride N')}",
        {"GROUPS": 96, "BLOCK": 8192},
        {"num_warps": 8},
    ),
    Case(
        f"{TRITON}layer_norm.py",
        "columns_backward_kernel",
        (
            f"{pointers('partial_dweight_ptr partial_dbias_ptr', 'fp32')}, "
            f"{pointers('dweight_ptr dbias_ptr', 'fp16')}, {sizes('groups N')}"
        ),
        {"BLOCK_M": 32, "BLOCK_N": 128},
    ),
    Case(
        f"{TRITON}attention.py",
        "forward_kernel",
        f"{descriptors('q out', 'fp16', 1, 128, 64)}, {descriptors('k v', 'fp16', 1, 64, 64)}, "
        f"{pointers('lse_ptr', 'fp32')}, scale=fp32, "
        f"{sizes('matrices length')}",
        _FORWARD,
        {"num_warps": 8},
    ),
    Case(
        f"{TRITON}attention.py",
        "forward_kernel",
        (
            f"{pointers('q k v out', 'bf16')}, {pointers('lse_ptr', 'fp32')}, scale=fp32, "
            f"{sizes('matrices length')}"
        ),
        {**_FORWARD, "CAUSAL": False},
        {"num_warps": 8},
    ),
    Case(
        f"{TRITON}attention.py",
        "products_kernel",
        (
            f"{pointers('out_ptr dout_ptr', 'fp16')}, {pointers('delta_ptr', 'fp32')}, "
            f"{sizes('length')}"
        ),
        {"HEAD": 64, "BLOCK": 64},
    ),
    Case(
        f"{TRITON}attention.py",
        "keys_backward_kernel",
        (
            f"{pointers('q_ptr k_ptr v_ptr dout_ptr dk_ptr dv_ptr', 'fp16')}, "
            f"{pointers('lse_ptr delta_ptr', 'fp32')}, scale=fp32, {sizes('length')}"
        ),
        _BACKWARD,
        {"num_stages": 2},
    ),
    Case(
        f"{TRITON}attention.py",
        "queries_backward_kernel",
        (
            f"{pointers('q_ptr k_ptr v_ptr dout_ptr dq_ptr', 'fp16')}, "
            f"{pointers('lse_ptr delta_ptr', 'fp32')}, scale=fp32, {sizes('length')}"
        ),
        _BACKWARD,
        {"num_stages": 2},
    ),
    Case(
        f"{TRITON}extern_functions.py",
        "asin_kernel",
        f"{pointers('x_ptr out_ptr', 'fp32')}, {sizes('length')}",
        {"BLOCK": 1024},
    ),
    Case(
        f"{TRITON}extern_functions.py",
        "asin_kernel",
        f"{pointers('x_ptr out_ptr', 'fp64')}, {sizes('length')}",
        {"BLOCK": 1024},
    ),
    Case(
        f"{TRITON}extern_functions.py",
        "two_argument_kernel",
        f"{pointers('x_ptr y_ptr out_ptr', 'fp32')}, {sizes('length')}",
        {"FUNCTION": "atan2", "BLOCK": 1024},
    ),
    Case(
        f"{TRITON}grouped_gemm.py",
        "grouped_kernel",
        (
            f"{pointers('addresses_ptr strides_ptr', 'i64')}, {pointers('sizes_ptr', 'i32')}, "
            "groups=i32"
        ),
        {**_GROUPED, "ALIGNED": True},
    ),
    Case(
        f"{TRITON}grouped_gemm.py",
        "grouped_descriptor_kernel",
        (
            f"{pointers('addresses_ptr strides_ptr', 'i64')}, {pointers('sizes_ptr', 'i32')}, "
            "groups=i32"
        ),
        _GROUPED,
    ),
    Case(
        f"{TRITON}persistent_matmul.py",
        "pointer_kernel",
        f"{pointers('a_ptr b_ptr c_ptr', 'fp16')}, {sizes('M N K a_row b_row c_row')}",
        _PERSISTENT,
    ),
    Case(
        f"{TRITON}persistent_matmul.py",
        "host_descriptor_kernel",
        (
            f"{descriptors('a b', 'fp16', 128, 64)}, {descriptors('c', 'fp16', 128, 64)}, "
            f"{sizes('M N K')}"
        ),
        {**_PERSISTENT, "HALVES": True, "SPECIALIZE": False},
    ),
    Case(
        f"{TRITON}persistent_matmul.py",
        "host_descriptor_kernel",
        (
            f"{descriptors('a', 'fp8e4nv', 128, 64)}, {descriptors('b', 'fp8e4nv', 256, 64)}, "
            f"{descriptors('c', 'fp16', 128, 256)}, {sizes('M N K')}"
        ),
        {**_PERSISTENT, "BLOCK_N": 256, "HALVES": False, "SPECIALIZE": False},
        {"num_warps": 8},
    ),
    Case(
        f"{TRITON}persistent_matmul.py",
        "device_descriptor_kernel",
        f"{pointers('a_ptr b_ptr c_ptr', 'fp16')}, {sizes('M N K')}",
        {**_PERSISTENT, "HALVES": False, "SPECIALIZE": True},
    ),
    scaled("e4m3", "e4m3", 32),
    scaled("e2m1", "e2m1", 32),
    scaled("e2m1", "e2m1", 16),
    scaled("e4m3", "e2m1", 32),
)


@contextlib.contextmanager
def written_for_triton(folder: Path) -> Iterator[None]:
    """``import triton`` finds Tilewright, and modules of ``folder`` each other."""
    from tilewright.compat.triton import hook

    active = hook.is_active()
    hook.activate()
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))
        if not active:
            hook.deactivate()


def kernel_of(case: Case) -> JITFunction:
    """The kernel of a file; those for Triton are read through the shim."""
    if case.file not in modules:
        path = ROOT / case.file
        spec = importlib.util.spec_from_file_location(
            f"assembled_{path.parent.name}_{path.stem}", path
        )
        assert spec is not None and spec.loader is not None
        module = modules[case.file] = importlib.util.module_from_spec(spec)
        sys.modules[module.__name__] = module
        with (
            written_for_triton(path.parent)
            if case.file.startswith(TRITON)
            else contextlib.nullcontext()
        ):
            spec.loader.exec_module(module)
    kernel = getattr(modules[case.file], case.kernel)
    return getattr(kernel, "base_kernel", kernel)


def forget() -> None:
    """Let go of the modules that were imported."""
    for module in modules.values():
        sys.modules.pop(module.__name__, None)
    modules.clear()


def built(case: Case, target: Target) -> tuple[Module, dict[str, Any]]:
    """(Tile IR, launch options) of a kernel."""
    backend = registry().get(target.backend)
    kernel = kernel_of(case)
    constants = dict(case.constants)
    if case.constants.get("ACTIVATION") and not case.file.startswith(TRITON):
        constants["ACTIVATION"] = getattr(modules[case.file], case.constants["ACTIVATION"])
    if case.constants.get("TYPE"):
        constants["TYPE"] = getattr(tilewright.language, case.constants["TYPE"])
    specialization = specialize(kernel, case.signature, constants, backend, case.options)
    return build_module(specialization, backend, target), dict(specialization.options)
