"""The kernels of the benchmarks, examples and tests, as their users launch them: what tests that
compile for GPUs compile."""

from __future__ import annotations

import contextlib
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from kernel_case import Case, descriptors, pointers, sizes
from triton_kernels import TRITON

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
