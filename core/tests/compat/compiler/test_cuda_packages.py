"""Kernels in PyTorch's ahead-of-time packages for CUDA, launched without hidden parameters."""

import copy
import pickle
import re
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("tilewright_nvidia")

import tilewright.language as tl
from tilewright.compat import triton
from tilewright.compat.triton.backends.compiler import GPUTarget
from tilewright.compat.triton.compiler import ASTSource
from tilewright.errors import BackendError
from tilewright_nvidia.toolchain.linking import find_ptxas


@triton.jit
def multiply(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m, n, k = (
        tl.program_id(0) * BM + tl.arange(0, BM),
        tl.program_id(1) * BN + tl.arange(0, BN),
        tl.arange(0, BK),
    )
    total = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK):
        x = tl.load(a + m[:, None] * K + (start + k), (m[:, None] < M) & (start + k < K), 0.0)
        y = tl.load(b + (start + k)[:, None] * N + n, (n < N) & (start + k < K)[:, None], 0.0)
        total = tl.dot(x, y, total)
    tl.store(c + m[:, None] * N + n, total.to(tl.float16), (m[:, None] < M) & (n < N))


TYPES = {
    **dict.fromkeys(("a", "b", "c"), "*fp16"),
    **dict.fromkeys(("M", "N", "K"), "i32"),
    **dict.fromkeys(("BM", "BN", "BK"), "constexpr"),
}
BLOCKS = {"BM": 128, "BN": 128, "BK": 64}
ALIGNED = {(position,): [["tt.divisibility", 16]] for position in range(6)}


@pytest.fixture
def kernel():
    found = triton.compile(
        ASTSource(multiply, TYPES, BLOCKS, ALIGNED), target=GPUTarget("cuda", 90, 32)
    )
    assert found.artifact.code.metadata["tensor_maps"], "the launcher brings nothing"
    return found


def parameters(text):
    return re.findall(r"\.param [^,]*?(\w+_param_\d+)", text[: text.index(".reqntid")])


def packed(kernel, folder, **settings):
    """Return the data that PyTorch keeps of a packaged kernel."""
    config = pytest.importorskip("torch._inductor.config")
    from torch._inductor.codecache import CudaKernelParamCache
    from torch._inductor.runtime.triton_heuristics import CachingAutotuner

    if find_ptxas() is None:
        pytest.skip("there is no ptxas")
    configuration = SimpleNamespace(kwargs={}, num_warps=kernel.metadata.num_warps, num_stages=3)
    launcher = SimpleNamespace(
        bin=kernel,
        config=configuration,
        def_args=[*TYPES],
        call_args=[*TYPES][:6],
        global_scratch=None,
        profile_scratch=None,
    )
    tuner = SimpleNamespace(
        inductor_meta={"kernel_name": "multiply"},
        triton_meta={},
        device_props=SimpleNamespace(type="cuda"),
    )
    with config.patch({"aot_inductor.output_path": str(folder / "model"), **settings}):
        CachingAutotuner.save_gpu_kernel(tuner, 0, launcher)
    return CudaKernelParamCache.cache.pop("multiply")


@pytest.mark.sampled(1)
def test_a_package_has_code_that_takes_the_arguments_alone(kernel, tmp_path):
    stages = kernel.asm["ptx"]
    assert len(parameters(stages)) > 6
    found = packed(kernel, tmp_path)
    code = Path(found["cubin_path"]).read_bytes()
    alone = kernel.asm
    assert (
        code.startswith(b"\x7fELF")
        and code == alone["cubin"]
        and found["mangled_name"].encode() in code
    )
    assert parameters(alone["ptx"]) == [f"multiply_param_{number}" for number in range(6)]
    threads, shared = (
        re.search(r"\.reqntid (\d+)", alone["ptx"])[1],
        kernel.launch_metadata_schema["shared_mem"],
    )
    assert found["num_warps"] * 32 == int(threads) and found["shared_mem"] == shared > 0
    assert kernel.artifact.code.stages["ptx"] == stages, "Tilewright's launches run what they ran"


def test_one_for_several_architectures_has_the_text_of_the_same_code(kernel, tmp_path):
    found = packed(kernel, tmp_path, **{"aot_inductor.emit_multi_arch_kernel": True})
    assert (
        Path(found["asm"]).read_text() == kernel.asm["ptx"]
        and len(parameters(kernel.asm["ptx"])) == 6
    )


def test_code_that_takes_nothing_more_is_packaged_as_it_is(tmp_path):
    plain = triton.compile(ASTSource(multiply, TYPES, BLOCKS), target=GPUTarget("cuda", 80, 32))
    text = plain.asm["ptx"]
    found = packed(plain, tmp_path)
    assert plain.asm["ptx"] == text and Path(found["cubin_path"]).read_bytes() == plain.asm["cubin"]
    assert (found["num_warps"], found["shared_mem"]) == (
        plain.metadata.num_warps,
        plain.metadata.shared,
    )


def test_so_does_one_that_another_process_compiled(kernel, monkeypatch, tmp_path):
    """As PyTorch's compile workers send kernels: without the Python function."""
    function = triton.jit(multiply.fn)
    kernel = triton.compile(
        ASTSource(function, TYPES, BLOCKS, ALIGNED), target=GPUTarget("cuda", 90, 32)
    )
    came = pickle.loads(pickle.dumps(kernel))
    assert came.specialization.fn.fn is None
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path / "empty"))
    assert came.launch_metadata_schema == kernel.launch_metadata_schema
    assert came.asm["ptx"].split(".visible")[1] == kernel.asm["ptx"].split(".visible")[1]
    lost = copy.copy(came)
    lost._here, lost.artifact = type(came._here)(), copy.deepcopy(came.artifact)
    lost.artifact.code.stages = {}
    with pytest.raises(
        BackendError, match="kernel multiply came from another process without its Tile IR"
    ):
        lost.launch_metadata_schema
