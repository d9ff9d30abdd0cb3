"""Names that only the module ``triton`` has, through the shim: drivers, cache, compiler, tools."""

# The names of the shim are not known to a checker of types.
# mypy: ignore-errors

from __future__ import annotations

import concurrent.futures
import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import tilewright as tw
import tilewright.language as tl
from tilewright_conformance.api_coverage.machines import Machine
from tilewright_conformance.api_coverage.probe import probe
from tilewright_conformance.api_coverage.probes.launching import adds_one, plain_kernel
from tilewright_conformance.api_coverage.shim import shim

_ERRORS = "CompilationError TritonError OutOfResources InterpreterError"
_PACKAGE = (
    "__version__ cdiv next_power_of_2 set_allocator reinterpret MockTensor TensorWrapper "
    "JITFunction KernelInterface Config heuristics autotune"
)
_SUBMODULES = "language runtime compiler testing tools backends errors"


@probe(*(f"triton.{name}" for name in f"{_PACKAGE} {_SUBMODULES}".split()), host=True)
def package(on: Machine, rng: Any) -> None:
    with shim():
        import triton
        import triton.compiler
        import triton.errors
        import triton.language
        import triton.runtime
        import triton.testing
        import triton.tools
        from triton.backends import backends

        assert tuple(map(int, triton.__version__.split(".")[:2])) >= (3, 8)
        assert triton.language is tl and "cpu" in backends
        assert triton.cdiv(7, 2) == 4 and triton.next_power_of_2(5) == 8
        x = rng.standard_normal(32, dtype=np.float32)
        assert (
            isinstance(triton.reinterpret(x, tl.int32), triton.TensorWrapper)
            and triton.MockTensor(tl.int32).data_ptr() == 0
        )
        triton.set_allocator(lambda size, alignment, stream: np.empty(size, np.int8))
        tw.set_allocator(None)
        kernel, out = triton.jit(plain_kernel.fn), np.zeros(32, np.float32)
        assert isinstance(kernel, triton.JITFunction) and isinstance(kernel, triton.KernelInterface)
        tuned = triton.autotune([triton.Config({"BLOCK": 32}, num_warps=2)], key=[])(
            triton.heuristics({"n": lambda args: 32})(kernel)
        )
        with tw.backend("reference"):
            tuned[(1,)](x, out)
        np.testing.assert_array_equal(out, 2 * x)


@probe(*(f"triton.{name}" for name in _ERRORS.split()), host=True)
def errors(on: Machine, rng: Any) -> None:
    import pickle

    with shim():
        import triton
        import triton.errors

        for name in _ERRORS.split():
            assert issubclass(getattr(triton, name), Exception)
        for name in ("CompilationError", "OutOfResources"):
            assert issubclass(getattr(triton, name), triton.TritonError)
        error = triton.OutOfResources(300, 200, "shared memory")
        again = pickle.loads(pickle.dumps(error))
        assert (again.required, again.limit, again.name) == (
            300,
            200,
            "shared memory",
        ) and "shared memory" in str(again)


@probe("triton.AsyncCompileMode", "triton.FutureKernel", host=True)
def compiling_elsewhere(on: Machine, rng: Any) -> None:
    with shim(), concurrent.futures.ThreadPoolExecutor(1) as executor:
        import triton

        kernel = triton.jit(adds_one.fn)
        x = rng.integers(0, 99, 64)
        expected = x + 1
        with tw.backend("reference"):
            with triton.AsyncCompileMode(executor):
                made = kernel.warmup(x, BLOCK=64, grid=(1,))
                try:
                    with triton.AsyncCompileMode(executor):
                        raise AssertionError("one mode was entered inside another")
                except RuntimeError:
                    pass
            kernel[(1,)](x, BLOCK=64)
        assert made is None or isinstance(made, triton.FutureKernel) or hasattr(made, "asm")
        np.testing.assert_array_equal(x, expected)


@probe("JITFunction.preload", host=True)
def preload(on: Machine, rng: Any) -> None:
    with shim():
        import triton
        from triton import knobs

        kernel = triton.jit(adds_one.fn)
        kept: list[str] = []
        with knobs.runtime.scope():
            knobs.runtime.jit_post_compile_hook = lambda **keywords: (
                kept.append(keywords["compile"]["specialization_data"]) and None
            )
            with tw.backend("reference"):
                kernel.warmup(tw.MockTensor(tl.float32), BLOCK=32, grid=(1,))
        again = triton.jit(adds_one.fn)
        with tw.backend("reference"):
            assert again.preload(kept[0]) is not None


_RUNTIME = (
    "autotune Autotuner Config Heuristics heuristics driver JITFunction KernelInterface "
    "MockTensor TensorWrapper reinterpret OutOfResources"
)


@probe(
    *(
        f"triton.runtime.{name}"
        for name in (
            *_RUNTIME.split(),
            "InterpreterError",
            "RedisRemoteCacheBackend",
            "RemoteCacheBackend",
        )
    ),
    host=True,
)
def runtime(on: Machine, rng: Any) -> None:
    with shim():
        import triton
        from triton import runtime as rt
        from triton.runtime import autotuner, cache, jit

        for name in [
            "autotune",
            "Config",
            "heuristics",
            "JITFunction",
            "KernelInterface",
            "MockTensor",
            "TensorWrapper",
            "reinterpret",
            "OutOfResources",
            "InterpreterError",
        ]:
            assert getattr(rt, name) is getattr(triton, name), name
        assert (
            rt.Autotuner is autotuner.Autotuner
            and rt.Heuristics is autotuner.Heuristics
            and rt.JITFunction is jit.JITFunction
        )
        assert rt.RemoteCacheBackend is cache.RemoteCacheBackend and issubclass(
            rt.RedisRemoteCacheBackend, rt.RemoteCacheBackend
        )
        wrapped = rt.heuristics({"BLOCK": lambda args: 16})(triton.jit(adds_one.fn))
        assert isinstance(wrapped, rt.Heuristics)
        assert isinstance(
            rt.autotune([rt.Config({"BLOCK": 16})], key=[])(triton.jit(adds_one.fn)), rt.Autotuner
        )


_DRIVER = """active default set_active reset_active active.get_current_target
active.get_current_device active.set_current_device active.get_current_stream
active.get_active_torch_device active.get_benchmarker active.get_device_interface
active.get_empty_cache_for_benchmark active.clear_cache active.map_python_to_cpp_type active.utils
active.launcher_cls"""


@probe(*(f"triton.runtime.driver.{name}" for name in _DRIVER.split()), host=True)
def driver(on: Machine, rng: Any) -> None:
    with shim():
        from triton.runtime import driver

        active = driver.active
        target = active.get_current_target()
        assert isinstance(target.backend, str) and target.arch is not None and target.warp_size >= 1
        device = active.get_current_device()
        active.set_current_device(device)
        assert active.get_current_device() == device
        assert active.get_current_stream(device) is None or isinstance(
            active.get_current_stream(device), int
        )
        assert callable(active.get_benchmarker()) and active.launcher_cls is not None
        assert (
            active.map_python_to_cpp_type("*fp32")
            and active.map_python_to_cpp_type("i64") == "int64_t"
        )
        properties = active.utils.get_device_properties(device)
        assert {"max_shared_mem", "multiprocessor_count", "warpSize"} <= set(properties)
        active.clear_cache(active.get_empty_cache_for_benchmark())
        assert str(active.get_active_torch_device())
        assert active.get_device_interface() is not None
        default = driver.default
        try:
            driver.set_active(active)
            assert driver.active is active
        finally:
            driver.reset_active()
        assert driver.default is default


_CACHE = """CacheManager FileCacheManager RemoteCacheManager RemoteCacheBackend get_cache_manager
get_override_manager get_dump_manager get_cache_key triton_key _base32"""


@probe(*(f"triton.runtime.cache.{name}" for name in _CACHE.split()), host=True)
def cache(on: Machine, rng: Any) -> None:
    import base64

    with shim(), tempfile.TemporaryDirectory() as folder:
        from triton import knobs
        from triton.compiler import ASTSource, make_backend
        from triton.runtime import cache
        from triton.runtime.driver import driver

        assert cache.triton_key() and cache._base32("00ff" * 16) == base64.b32encode(
            bytes.fromhex("00ff" * 16)
        ).decode().rstrip("=")
        with knobs.cache.scope():
            knobs.cache.dir = folder
            key = "ab" * 32
            for manager in (cache.get_cache_manager(key), cache.FileCacheManager(key)):
                assert isinstance(manager, cache.CacheManager)
                path = manager.put(b"bytes", "probe.bin")
                assert (
                    open(path, "rb").read() == b"bytes"  # noqa: SIM115
                    and manager.get_file("probe.bin") == path
                    and manager.get_file("absent") is None
                )
                manager.put_group("probe.json", {"probe.bin": path})
                assert manager.get_group("probe.json") == {"probe.bin": path}
            knobs.cache.override_dir = knobs.cache.dump_dir = folder
            assert isinstance(cache.get_override_manager(key), cache.CacheManager) and isinstance(
                cache.get_dump_manager(key), cache.CacheManager
            )
        assert (
            issubclass(cache.RemoteCacheManager, cache.CacheManager)
            and cache.RemoteCacheBackend.get is not None
        )
        backend = make_backend(driver.active.get_current_target())
        source = ASTSource(adds_one, {"x": "*fp32", "BLOCK": "constexpr"}, {"BLOCK": 16})
        assert len(cache.get_cache_key(source, backend, backend.parse_options({}), {})) > 0


_COMPILER = (
    "compile make_backend ASTSource IRSource CompiledKernel CompilationError LazyDict "
    "get_cache_key max_shared_mem"
)
_COMPILE_ERRORS = "CompilationError CompileTimeAssertionFailure UnsupportedLanguageConstruct"


@probe(
    "triton.compile",
    *(f"triton.compiler.{name}" for name in _COMPILER.split()),
    *(f"triton.compiler.errors.{name}" for name in _COMPILE_ERRORS.split()),
    host=True,
)
def compiler(on: Machine, rng: Any) -> None:
    with shim():
        import triton
        from triton import compiler
        from triton.backends.compiler import GPUTarget
        from triton.compiler import errors
        from triton.runtime.driver import driver

        target = driver.active.get_current_target()
        source = compiler.ASTSource(
            triton.jit(adds_one.fn),
            {"x": "*fp32", "BLOCK": "constexpr"},
            {"BLOCK": 16},
            {(0,): [["tt.divisibility", 16]]},
        )
        kernel = triton.compile(source, target=target)
        assert (
            isinstance(kernel, compiler.CompiledKernel)
            and kernel.metadata.name == "adds_one"
            and kernel.asm.keys()
        )
        assert triton.compile is compiler.compile and isinstance(target, GPUTarget)
        backend = compiler.make_backend(target)
        assert backend.hash() and backend.parse_options({"num_warps": 2}).num_warps == 2
        assert compiler.get_cache_key(source, backend, backend.parse_options({}), {})
        assert compiler.max_shared_mem(driver.active.get_current_device()) >= 0
        lazy = compiler.LazyDict({"a": 1})
        lazy.add(lambda b: {"b": b}, (2,))
        assert lazy.get() == {"a": 1, "b": 2}
        assert (
            issubclass(errors.CompileTimeAssertionFailure, errors.CompilationError)
            and errors.CompilationError is compiler.CompilationError
        )
        assert (
            issubclass(errors.UnsupportedLanguageConstruct, errors.CompilationError)
            and compiler.CompilationError is triton.CompilationError
        )
        assert compiler.IRSource is not None
        try:
            triton.compile(
                compiler.ASTSource(triton.jit(breaks_a_rule.fn), {"x": "*fp32"}, {}), target=target
            )
        except compiler.CompilationError as error:
            assert "at 2:" in str(error)
        else:
            raise AssertionError("a kernel that breaks a rule was compiled")


@tw.jit
def breaks_a_rule(x):
    tl.store(x, undefined_name)  # noqa: F821


_BACKENDS = (
    "backends compiler.GPUTarget compiler.BaseBackend compiler.Language driver.DriverBase "
    "driver.GPUDriver driver.Benchmarker"
)


@probe(*(f"triton.backends.{name}" for name in _BACKENDS.split()), host=True)
def backends(on: Machine, rng: Any) -> None:
    with shim():
        from triton.backends import backends
        from triton.backends.compiler import BaseBackend, GPUTarget, Language
        from triton.backends.driver import Benchmarker, DriverBase, GPUDriver

        for found in backends.values():
            assert issubclass(found.compiler, BaseBackend) and issubclass(found.driver, DriverBase)
            assert isinstance(found.driver.is_active(), bool)
        target = GPUTarget("cpu", "x86", 1)
        assert (target.backend, target.arch, target.warp_size) == (
            "cpu",
            "x86",
            1,
        ) and target == GPUTarget("cpu", "x86", 1)
        assert (
            issubclass(GPUDriver, DriverBase)
            and Benchmarker is not None
            and len(list(Language)) >= 1
        )


_TESTING = "do_bench assert_close Benchmark perf_report Mark"


@probe(*(f"triton.testing.{name}" for name in _TESTING.split()), host=True)
def testing(on: Machine, rng: Any) -> None:
    import time

    with shim():
        import triton.testing

        assert (
            triton.testing.do_bench(lambda: time.sleep(1e-3), warmup=1, rep=5, return_mode="median")
            >= 0.9
        )
        assert (
            len(triton.testing.do_bench(lambda: None, warmup=1, rep=2, quantiles=[0.2, 0.8])) == 2
        )
        triton.testing.assert_close(np.ones(3), np.ones(3))
        benchmark = triton.testing.Benchmark(["n"], [1], "way", ["a"], ["A"], "probe", {})
        assert isinstance(
            triton.testing.perf_report(benchmark)(lambda n, way: 1.0), triton.testing.Mark
        )


_HARDWARE = (
    "do_bench_cudagraph do_bench_proton do_bench_cudagraph_proton nvsmi get_dram_gbps "
    "get_max_tensorcore_tflops get_max_simd_tflops cuda_memcheck set_gpu_clock"
)


@probe(*(f"triton.testing.{name}" for name in _HARDWARE.split()), host=True)
def testing_of_hardware(on: Machine, rng: Any) -> None:
    with shim():
        import triton.testing
        from triton.runtime import driver

        decorated = triton.testing.cuda_memcheck(a=1)
        assert callable(decorated) and callable(triton.testing.set_gpu_clock)
        with_device = driver.active.get_current_target().backend in ("cuda", "hip")
        for call in (
            lambda: triton.testing.do_bench_cudagraph(lambda: None),
            lambda: triton.testing.do_bench_proton(lambda: None),
            lambda: triton.testing.do_bench_cudagraph_proton(lambda: None),
            lambda: triton.testing.nvsmi(["clocks.max.sm"]),
            lambda: triton.testing.get_dram_gbps(0),
            lambda: triton.testing.get_max_tensorcore_tflops(tl.float16, 1.0e6, 0),
            lambda: triton.testing.get_max_simd_tflops(tl.float32, 1.0e6, 0),
        ):
            try:
                call()
            except Exception as error:  # what asks a GPU says what is missing where there is none
                assert str(error) and not with_device, error


_TOOLS = """tensor_descriptor.TensorDescriptor tensor_descriptor.TensorDescriptor.from_tensor
mxfp.MXFP4Tensor mxfp.MXScaleTensor ragged_tma.create_ragged_descriptor ragged_tma.load_ragged
ragged_tma.store_ragged ragged_tma.atomic_add_ragged compile link disasm.get_sass"""


@probe(
    *(f"triton.tools.{name}" for name in _TOOLS.split() if name.startswith("tensor_descriptor")),
    host=True,
)
def host_descriptors(on: Machine, rng: Any) -> None:
    with shim():
        from triton.tools.tensor_descriptor import TensorDescriptor

        x = rng.standard_normal((8, 16)).astype(np.float32)
        made = TensorDescriptor(x, [8, 16], [16, 1], [4, 8])
        assert (made.shape, made.strides, made.block_shape, made.padding) == (
            [8, 16],
            [16, 1],
            [4, 8],
            "zero",
        )
        try:
            import torch
        except ImportError:
            torch = None
        if torch is not None:
            same = TensorDescriptor.from_tensor(torch.from_numpy(x), [4, 8])
            assert (list(same.shape), list(same.strides)) == ([8, 16], [16, 1])
        for arguments in (
            ([8, 16], [16, 2], [4, 8]),
            ([8, 16], [16, 1], [3, 8]),
            ([8, 16], [15, 1], [4, 8]),
            ([8], [16, 1], [4, 8]),
        ):
            try:
                TensorDescriptor(x, *arguments)
            except (AssertionError, ValueError):
                continue
            raise AssertionError(f"a descriptor of {arguments} was made")


@probe("triton.tools.mxfp.MXFP4Tensor", "triton.tools.mxfp.MXScaleTensor", host=True)
def microscaling(on: Machine, rng: Any) -> None:
    try:
        import torch
    except ImportError as error:
        raise AssertionError("the tensors of mxfp are PyTorch's, which is not installed") from error
    with shim():
        from triton.tools.mxfp import MXFP4Tensor, MXScaleTensor

        values = torch.tensor(
            [0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.5, -1, -1.5, -2, -3, -4, -6, 0]
        ).reshape(2, 8)
        packed = MXFP4Tensor(data=values)
        assert torch.equal(packed.to(torch.float32), values)
        bits = packed.to_packed_tensor(dim=1)
        assert bits.shape == (2, 4) and bits.dtype == torch.uint8
        assert torch.equal(packed.unpack_packed_tensor(bits, 1, (2, 8)), packed.data)
        scales = torch.tensor([0.25, 1.0, 8.0])
        assert torch.equal(MXScaleTensor(scales).to(torch.float32), scales)
        assert MXFP4Tensor(size=(4, 4), device="cpu").random().to(torch.float32).shape == (4, 4)
        assert (
            MXScaleTensor(size=(4,), device="cpu").random(low=1.0, high=2.0).to(torch.float32) > 0
        ).all()


@probe("triton.tools.disasm.get_sass", host=True)
def disassembly(on: Machine, rng: Any) -> None:
    with shim():
        import importlib

        assert callable(importlib.import_module("triton.tools.disasm").get_sass)


@probe("triton.tools.compile", host=True)
def functions_of_c(on: Machine, rng: Any) -> None:
    with shim():
        import importlib

        tool = importlib.import_module("triton.tools.compile")
        assert callable(tool.compile_kernel) and callable(tool.main)
        assert (
            tool.CompileArgs(
                path="kernels.py", kernel_name="scale", signature="*fp32, i32", grid="n, 1, 1"
            ).num_warps
            >= 1
        )


@probe("triton.tools.link", host=True)
def linked_functions_of_c(on: Machine, rng: Any) -> None:
    with shim(), tempfile.TemporaryDirectory() as folder:
        import importlib

        tool = importlib.import_module("triton.tools.link")
        other = Path(folder, "other.h")
        other.write_text("int other(void);\n")
        try:
            tool.link([other], Path(folder, "linked"))
        except tool.LinkerError as error:
            assert "no header that triton.tools.compile wrote" in str(error)
        else:
            raise AssertionError("a header that is none of the compiler's was linked")
        assert callable(tool.main) and os.listdir(folder) == ["other.h"]


@probe(
    *(f"triton.tools.{name}" for name in _TOOLS.split() if name.startswith("ragged_tma")), host=True
)
def ragged(on: Machine, rng: Any) -> None:
    with shim():
        from triton.tools import ragged_tma

        for name in (
            "create_ragged_descriptor",
            "load_ragged",
            "store_ragged",
            "atomic_add_ragged",
        ):
            assert callable(getattr(ragged_tma, name))


@probe("tl.semantic.TritonSemantic", host=True)
def semantic(on: Machine, rng: Any) -> None:
    assert callable(tl.semantic.TritonSemantic)
