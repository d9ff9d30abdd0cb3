"""The kernels of the benchmarks, examples and tests, compiled for three generations and taken by ptxas; those of the benchmarks without a spill or warning."""

from __future__ import annotations

import dataclasses
import importlib.util
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tilewright.plugins.registry import registry
from tilewright.runtime.compile import Specialization, build_module, lower_module
from tilewright.runtime.jit import JITFunction
from tilewright.runtime.options import resolve
from tilewright.tools.inspect import bind_types
from tilewright_nvidia.architectures import ARCHITECTURES, target_of
from tilewright_nvidia.linking import Linked, assemble

ROOT = Path(__file__).resolve().parents[3]
BENCHMARKS = "benchmarks/nvidia/kernels.py"
TESTS = "backends/nvidia/tests/gpu_kernels.py"
ROWS = "conformance/tests/test_row_kernels.py"
MATRICES = "conformance/tests/test_matrix_kernels.py"
ARCHS = ("sm_80", "sm_90a", "sm_100a")

_modules: dict[str, ModuleType] = {}


@dataclasses.dataclass(frozen=True)
class Case:
    """A kernel as its users launch it. ``signature`` names the runtime parameters; ``p`` stands for a pointer that is a multiple of 16."""

    file: str
    kernel: str
    signature: str
    constants: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def __str__(self) -> str:
        size = "x".join(str(value) for value in self.constants.values() if isinstance(value, int) and not isinstance(value, bool))
        return f"{Path(self.file).parent.name}-{Path(self.file).stem}-{self.kernel}-{size}"


def pointers(names: str, type_: str) -> str:
    return ", ".join(f"{name}=*{type_}:16" for name in names.split())


def sizes(names: str, divisibility: int = 16) -> str:
    return ", ".join(f"{name}=i32:{divisibility}" for name in names.split())


def row(kernel: str, signature: str, block: int, warps: int) -> Case:
    return Case(BENCHMARKS, kernel, signature, {"BLOCK": block}, {"num_warps": warps})


def product(bm: int, bn: int, bk: int, warps: int, stages: int) -> Case:
    constants = {"BM": bm, "BN": bn, "BK": bk, "GROUP": 8}
    return Case(BENCHMARKS, "matmul", f"{pointers('a b c', 'fp16')}, {sizes('M N K')}", constants, {"num_warps": warps, "num_stages": stages})


def attention(bm: int, bn: int, d: int, causal: bool, warps: int, stages: int) -> Case:
    constants = {"D": d, "BM": bm, "BN": bn, "CAUSAL": causal}
    return Case(BENCHMARKS, "attention", f"{pointers('q k v out', 'fp16')}, {sizes('n')}, scale=fp32", constants, {"num_warps": warps, "num_stages": stages})


#: As the scripts of benchmarks/nvidia launch them.
BENCHMARKED = (
    Case(BENCHMARKS, "ten", f"{pointers('a b c d e', 'fp32')}, {sizes('n m k s t', 1)}"),
    row("add", f"{pointers('x y z', 'fp32')}, {sizes('n')}", 1024, 4),
    row("add", f"{pointers('x y z', 'fp16')}, {sizes('n')}", 1024, 4),
    row("softmax", f"{pointers('x z', 'fp32')}, {sizes('columns')}", 1024, 4),
    row("softmax", f"{pointers('x z', 'fp16')}, {sizes('columns')}", 16384, 16),
    row("layer_norm", f"{pointers('x w b z', 'fp16')}, {sizes('columns')}, eps=fp32", 4096, 8),
    row("layer_norm", f"{pointers('x w b z', 'fp16')}, {sizes('columns')}, eps=fp32", 8192, 8),
    row("rms_norm", f"{pointers('x w z', 'fp16')}, {sizes('columns')}, eps=fp32", 4096, 8),
    row("dropout", f"{pointers('x z', 'fp32')}, {sizes('n')}, p=fp32, seed=i32", 1024, 4),
    row("cross_entropy", f"{pointers('logits', 'fp16')}, {pointers('labels', 'i64')}, {pointers('losses', 'fp32')}, {sizes('columns')}", 32768, 16),
    product(128, 128, 64, 4, 3),
    product(128, 128, 64, 8, 3),
    product(128, 128, 32, 4, 4),
    product(64, 128, 64, 4, 4),
    attention(128, 64, 64, True, 8, 3),
    attention(64, 64, 64, True, 4, 3),
    attention(64, 32, 128, False, 4, 3),
)

_ATTENTION = f"{pointers('q_ptr k_ptr v_ptr out_ptr', 'fp16')}, {pointers('lse_ptr', 'fp32')}, scale=fp32, {sizes('length')}"
_GRADIENTS = f"{pointers('q_ptr k_ptr v_ptr dout_ptr', 'fp16')}, {pointers('lse_ptr delta_ptr', 'fp32')}, scale=fp32, {sizes('length')}"

OTHERS = (
    Case("examples/kernels/vector_add.py", "add_kernel", f"{pointers('x_ptr y_ptr out_ptr', 'fp32')}, {sizes('n')}", {"BLOCK": 1024}),
    Case("examples/kernels/softmax.py", "softmax_kernel", f"{pointers('x_ptr out_ptr', 'fp32')}, {sizes('x_stride out_stride n_columns', 1)}", {"BLOCK": 1024}),
    Case(
        "examples/kernels/layer_norm.py",
        "layer_norm_kernel",
        f"{pointers('x_ptr out_ptr weight_ptr bias_ptr', 'fp16')}, {pointers('mean_ptr rstd_ptr', 'fp32')}, {sizes('stride n')}, eps=fp32",
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
    Case("examples/kernels/attention.py", "attention_kernel", _ATTENTION, {"CAUSAL": True, "BLOCK_M": 64, "BLOCK_N": 64, "HEAD": 64}),
    Case("examples/kernels/attention.py", "attention_kernel", _ATTENTION, {"CAUSAL": False, "BLOCK_M": 128, "BLOCK_N": 64, "HEAD": 64}, {"num_warps": 8}),
    Case(
        "examples/kernels/attention_backward.py",
        "delta_kernel",
        f"{pointers('out_ptr dout_ptr', 'fp16')}, {pointers('delta_ptr', 'fp32')}, {sizes('length')}",
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
    Case(TESTS, "copy", pointers("x z", "bf16"), {"BLOCK": 2048, "CACHE": "", "EVICT": "evict_first", "STORE": ""}),
    Case(TESTS, "volatile_copy", pointers("x z", "fp32")),
    Case(TESTS, "masked_with_other", f"{pointers('x z', 'fp32')}, n=i32", {"BLOCK": 512}),
    Case(TESTS, "softmax", f"{pointers('x z', 'fp32')}, {sizes('stride columns')}", {"BLOCK": 1024}),
    Case(TESTS, "layer_norm", f"{pointers('x w b z', 'bf16')}, {sizes('columns')}, eps=fp32", {"BLOCK": 2048}),
    Case(TESTS, "matmul", f"{pointers('a b', 'fp8e5')}, {pointers('c', 'fp16')}, {sizes('M N K')}", {"BM": 64, "BN": 64, "BK": 32, "GROUP": 4}),
    Case(TESTS, "matmul", f"{pointers('a b c', 'fp32')}, {sizes('M N K')}", {"BM": 64, "BN": 64, "BK": 32, "GROUP": 4, "PRECISION": "tf32x3"}),
    Case(TESTS, "attention", f"{pointers('q k v out', 'bf16')}, {sizes('n')}, scale=fp32", {"D": 64, "BM": 64, "BN": 32}),
    Case(TESTS, "dropout", f"{pointers('x z', 'fp32')}, n=i32, p=fp32, seed=i32", {"BLOCK": 1024}),
    Case(TESTS, "assembly", pointers("x z", "i32"), {"BLOCK": 128}),
    Case(TESTS, "packed_assembly", pointers("x z", "i8"), {"BLOCK": 512}),
    Case(TESTS, "says", f"{pointers('x', 'fp32')}, n=i32", {}, {"debug": True}),
    Case(TESTS, "sums", f"{pointers('x z', 'bf16')}, n=i32", {"BLOCK": 128, "ORDER": "acq_rel", "SCOPE": "gpu"}),
    Case(TESTS, "extremes", pointers("x z", "fp32"), {"BLOCK": 128}),
    Case(
        ROWS,
        "rms_norm_forward",
        f"{pointers('x_ptr w_ptr y_ptr rstd_ptr', 'fp32')}, {sizes('stride columns', 1)}, eps=fp32",
        {"BLOCK": 256},
    ),
    Case(ROWS, "dropout", f"{pointers('x_ptr y_ptr', 'fp32')}, n=i32, p=fp32, seed=i32", {"BLOCK": 256}),
    Case(ROWS, "top_k", f"{pointers('x_ptr values_ptr', 'fp32')}, {pointers('places_ptr', 'i32')}, columns=i32", {"K": 8, "BLOCK": 128}),
    Case(ROWS, "bitonic_rows", f"{pointers('x_ptr y_ptr', 'fp32')}, columns=i32", {"DESCENDING": True, "ROWS": 4, "BLOCK": 64}),
    Case(
        ROWS,
        "selective_scan",
        f"{pointers('x_ptr delta_ptr a_ptr b_ptr c_ptr y_ptr', 'fp32')}, {sizes('length channels', 1)}",
        {"REVERSE": False, "STATES": 8, "CHUNK": 16},
    ),
    Case(
        MATRICES,
        "split_k",
        f"{pointers('a b c', 'fp32')}, {sizes('M N K sam sak sbk sbn scm scn', 1)}",
        {"BM": 32, "BN": 32, "BK": 16, "SPLIT": 2},
    ),
    Case(
        MATRICES,
        "attention_forward",
        f"{pointers('q_ptr k_ptr v_ptr o_ptr lse_ptr', 'fp32')}, length=i32, scale=fp32",
        {"D": 32, "BM": 32, "BN": 16},
    ),
)


@pytest.fixture(scope="module", autouse=True)
def forget_modules() -> Iterator[None]:
    yield
    for module in _modules.values():
        sys.modules.pop(module.__name__, None)
    _modules.clear()


def kernel_of(case: Case, folder: Path) -> JITFunction:
    """The kernel of a file; the benchmarks' are written in Triton's words, which are put into ours."""
    if case.file not in _modules:
        path = ROOT / case.file
        if case.file == BENCHMARKS:
            text = path.read_text().replace("import triton.language", "import tilewright.language").replace("import triton\n", "import tilewright as triton\n")
            path = folder / "benchmark_kernels.py"
            path.write_text(text)
        spec = importlib.util.spec_from_file_location(f"assembled_{path.parent.name}_{path.stem}", path)
        assert spec is not None and spec.loader is not None
        module = _modules[case.file] = importlib.util.module_from_spec(spec)
        sys.modules[module.__name__] = module
        spec.loader.exec_module(module)
    kernel = getattr(_modules[case.file], case.kernel)
    return getattr(kernel, "base_fn", kernel)


def assembled(case: Case, arch: str, folder: Path) -> Linked:
    backend, target = registry().get("nvidia"), target_of(ARCHITECTURES[arch])
    kernel = kernel_of(case, folder)
    constants = dict(case.constants)
    if case.constants.get("ACTIVATION"):
        constants["ACTIVATION"] = getattr(_modules[case.file], case.constants["ACTIVATION"])
    types, attributes, values = bind_types(kernel, case.signature, constants)
    options = resolve(backend, case.kernel, case.options, {})
    module = build_module(Specialization(kernel, types, values, attributes, options), backend, target)
    artifact = lower_module(module, options, backend, target)
    return assemble(artifact.code.stages["ptx"], arch)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("kernels")


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("case", BENCHMARKED, ids=str)
def test_kernels_of_the_benchmarks_assemble_without_spills_or_warnings(case: Case, arch: str, folder: Path) -> None:
    linked = assembled(case, arch, folder)
    assert linked.spills == 0, linked.log
    assert not re.search(r"\bwarning\b", linked.log, re.I), linked.log
    assert "0 bytes stack frame" in linked.log, linked.log


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("case", OTHERS, ids=str)
def test_kernels_of_examples_and_tests_assemble(case: Case, arch: str, folder: Path) -> None:
    assert assembled(case, arch, folder).cubin.startswith(b"\x7fELF")


def test_every_kernel_of_the_benchmarks_is_here(folder: Path) -> None:
    kernel_of(BENCHMARKED[0], folder)
    found = {name for name, value in vars(_modules[BENCHMARKS]).items() if isinstance(value, JITFunction)}
    assert found - {"attention_span"} == {case.kernel for case in BENCHMARKED}  # that one is called by another
