"""Undocumented names of Triton that published programs use: supported, or rejected with a reason.

Also tests the attributes of runtime objects that they read. ``python test_program_names.py`` prints
both tables.
"""

import functools
import importlib

import pytest

import tilewright.language as tl
from tilewright.compat import triton
from tilewright.compat.triton.outside import OutsideError
from tilewright.errors import LoweringError
from tilewright.language import core

pytest.importorskip("torch")

#: What of Triton's is refused as a whole, name by name or until it is there; names below others
#: must be there.
REFUSED = ("_C.libtriton.gluon_ir", "backends.nvidia.driver.make_tensordesc_arg")

#: name -> who reads it
NAMES = {
    "_C": "torch",
    "_C.libtriton": "torch, DeepSpeed",
    "_C.libtriton.amd": "torch",
    "_C.libtriton.amd.supports_tdm": "torch",
    "_C.libtriton.get_cache_invalidating_env_vars": "vLLM, tritonparse",
    "_C.libtriton.gluon_ir.make_cga_layout": "aiter",
    "_C.libtriton.ir": "torch",
    "_C.libtriton.ir.context": "torch",
    "_C.libtriton.ir.load_dialects": "torch",
    "_C.libtriton.ir.module": "torch",
    "_C.libtriton.ir.operation": "torch",
    "_C.libtriton.nvidia": "tritonbench",
    "_C.libtriton.nvidia.cublas": "tritonbench",
    "_C.libtriton.nvidia.cublas.CublasLt": "tritonbench",
    "backends.amd.compiler.HIPOptions": "jax-triton",
    "backends.amd.compiler.get_min_dot_size": "helion",
    "backends.nvidia.compiler": "TransformerEngine",
    "backends.nvidia.compiler.CUDAOptions": "TransformerEngine",
    "backends.nvidia.compiler.CUDABackend": "jax-triton",
    "backends.nvidia.compiler.get_ptxas": "vLLM",
    "backends.nvidia.compiler.min_dot_size": "helion",
    "backends.nvidia.driver.libcuda_dirs": "unsloth",
    "backends.nvidia.driver.make_tensordesc_arg": "torch",
    "experimental.gluon": "aiter, SGLang, tritonbench",
    "knobs.nvidia.nvdisasm": "tritonparse",
    "knobs.nvidia.nvdisasm.path": "tritonparse",
    "language.core._unwrap_iterable": "aiter",
    "profiler": "aiter, tritonbench, FBGEMM",
    "profiler.activate": "tritonbench, aiter",
    "profiler.deactivate": "tritonbench, aiter",
    "profiler.enter_scope": "tritonbench",
    "profiler.exit_scope": "tritonbench",
    "profiler.finalize": "aiter, FBGEMM, tritonbench",
    "profiler.language": "FBGEMM",
    "profiler.language.enter_scope": "FBGEMM",
    "profiler.language.exit_scope": "FBGEMM",
    "profiler.mode": "FBGEMM",
    "profiler.mode.Default": "FBGEMM",
    "profiler.scope": "tritonbench",
    "profiler.start": "aiter, tritonbench, FBGEMM",
    "runtime.autotuner.Autotuner.restore_copies": "triton-viz",
    "runtime.jit.compute_cache_key": "vLLM",
    "runtime.jit.find_paths_if": "helion",
    "runtime.jit.get_iterable_path": "helion",
    "runtime.jit.serialize_specialization_data": "vLLM",
    "testing._summarize_statistics": "helion",
    "testing.runtime": "aiter",
    "testing.runtime.driver": "aiter",
    "testing.runtime.driver.active": "aiter",
    "testing.runtime.driver.active.get_device_interface": "aiter",
    "testing.runtime.driver.active.get_empty_cache_for_benchmark": "aiter",
    "tools.compile.CompileArgs": "aiter",
    "tools.compile.compile_kernel": "aiter",
}

#: attribute of an object of the runtime, below its class -> who reads it
ATTRIBUTES = {
    "CompiledKernel.__init__": "aiter, unsloth",
    "CompiledKernel.__dict__": "PyTorch, helion",
    "CompiledKernel._init_handles": "PyTorch, helion",
    "CompiledKernel.asm": "PyTorch, aiter, TransformerEngine",
    "CompiledKernel.function": "PyTorch, SGLang, unsloth",
    "CompiledKernel.hash": "PyTorch, helion",
    "CompiledKernel.kernel": "aiter",
    "CompiledKernel.launch_metadata": "PyTorch",
    "CompiledKernel.launch_metadata_schema": "PyTorch",
    "CompiledKernel.metadata.cluster_dims": "PyTorch",
    "CompiledKernel.metadata.global_scratch_size": "PyTorch",
    "CompiledKernel.metadata.launch_cooperative_grid": "PyTorch",
    "CompiledKernel.metadata.launch_pdl": "PyTorch",
    "CompiledKernel.metadata.name": "PyTorch",
    "CompiledKernel.metadata.num_ctas": "PyTorch",
    "CompiledKernel.metadata.num_stages": "FlagGems",
    "CompiledKernel.metadata.num_warps": "PyTorch, FlagGems",
    "CompiledKernel.metadata.profile_scratch_size": "PyTorch",
    "CompiledKernel.metadata.shared": "PyTorch, FlagGems, helion",
    "CompiledKernel.metadata.target.backend": "tritonparse",
    "CompiledKernel.metadata.tensordesc_meta": "PyTorch",
    "CompiledKernel.metadata.triton_version": "tritonparse",
    "CompiledKernel.metadata_group": "aiter, tritonparse",
    "CompiledKernel.module": "PyTorch",
    "CompiledKernel.n_regs": "PyTorch, unsloth, aiter, FlagGems",
    "CompiledKernel.n_spills": "PyTorch, unsloth, aiter, FlagGems",
    "CompiledKernel.name": "unsloth, SGLang, vLLM",
    "CompiledKernel.packed_metadata": "PyTorch, SGLang, unsloth",
    "CompiledKernel.run": "PyTorch, SGLang, unsloth, helion",
    "CompiledKernel.src.constants": "PyTorch",
    "CompiledKernel.src.fn.arg_names": "PyTorch",
    "CompiledKernel.src.hash": "tritonparse",
    "CompiledKernel.src.signature": "PyTorch, SGLang",
    "JITFunction.ASTSource": "helion",
    "JITFunction.__globals__": "PyTorch",
    "JITFunction._fn_name": "vLLM",
    "JITFunction._hash_lock": "PyTorch",
    "JITFunction._pack_args": "helion",
    "JITFunction._unsafe_update_src": "vLLM",
    "JITFunction.arg_names": "PyTorch, SGLang, unsloth, vLLM",
    "JITFunction.cache_key": "FlagGems, vLLM, tritonparse",
    "JITFunction.compile": "helion",
    "JITFunction.constexprs": "PyTorch, vLLM",
    "JITFunction.debug": "vLLM, helion",
    "JITFunction.device_caches": "PyTorch, helion, vLLM",
    "JITFunction.fn.__code__": "PyTorch",
    "JITFunction.get_capture_scope": "vLLM",
    "JITFunction.launch_metadata": "tritonparse",
    "JITFunction.params": "PyTorch, SGLang, FlagGems, vLLM, helion",
    "JITFunction.raw_src": "tritonparse",
    "JITFunction.repr": "vLLM, PyTorch",
    "JITFunction.run": "SGLang, helion, FlagGems, PyTorch",
    "JITFunction.src": "PyTorch, vLLM",
    "JITFunction.starting_line_number": "tritonparse",
    "JITFunction.used_global_vals": "PyTorch",
    "JITFunction.warmup": "vLLM, unsloth",
    "Autotuner._bench": "FlagGems",
    "Autotuner._do_bench": "triton-viz",
    "Autotuner.arg_names": "fla, FlagGems, vLLM, PyTorch",
    "Autotuner.base_fn": "PyTorch, FlagGems, vLLM",
    "Autotuner.bench_time": "FlagGems",
    "Autotuner.best_config": "unsloth, vLLM, liger, FlagGems",
    "Autotuner.cache": "fla, FlagGems, unsloth",
    "Autotuner.configs": "fla, FlagGems, torchao, unsloth, vLLM, PyTorch",
    "Autotuner.configs_timings": "FlagGems, tritonparse",
    "Autotuner.configs_top_k": "PyTorch",
    "Autotuner.early_config_prune": "fla, PyTorch",
    "Autotuner.fn": "fla, FlagGems, unsloth, vLLM, PyTorch",
    "Autotuner.keys": "fla, FlagGems, vLLM, PyTorch",
    "Autotuner.nargs": "FlagGems, vLLM",
    "Autotuner.perf_model": "PyTorch",
    "Autotuner.post_hook": "PyTorch",
    "Autotuner.pre_hook": "FlagGems, PyTorch",
    "Autotuner.prune_configs": "FlagGems, vLLM, PyTorch",
    "Autotuner.reset_to_zero": "fla, PyTorch",
    "Autotuner.restore_value": "fla, PyTorch",
    "Autotuner.run": "vLLM, fla, FlagGems",
    "Autotuner.user_defined_post_hook": "fla, PyTorch",
    "Autotuner.user_defined_pre_hook": "fla, PyTorch",
    "Heuristics.fn": "vLLM, unsloth, PyTorch",
    "Heuristics.values": "vLLM, unsloth, PyTorch",
    "Config.all_kwargs": "vLLM, FlagGems, fla, PyTorch",
    "Config.kwargs": "vLLM, FlagGems, PyTorch",
    "Config.maxnreg": "PyTorch",
    "Config.num_ctas": "PyTorch",
    "Config.num_stages": "PyTorch, FlagGems",
    "Config.num_warps": "PyTorch, FlagGems",
    "Config.pre_hook": "vLLM, FlagGems, PyTorch",
    "KernelParam.annotation": "PyTorch",
    "KernelParam.default": "SGLang, vLLM",
    "KernelParam.do_not_specialize": "PyTorch",
    "KernelParam.do_not_specialize_on_alignment": "PyTorch",
    "KernelParam.is_const": "PyTorch",
    "KernelParam.is_constexpr": "PyTorch, FlagGems, vLLM",
    "KernelParam.name": "PyTorch, FlagGems, vLLM, helion",
    "KernelParam.num": "PyTorch",
    "driver.active.clear_cache": "helion",
    "driver.active.get_active_torch_device": "FlagGems",
    "driver.active.get_current_device": "PyTorch, vLLM",
    "driver.active.get_current_stream": "SGLang, PyTorch",
    "driver.active.get_current_target": "helion, unsloth, fla, SGLang, PyTorch",
    "driver.active.get_device_interface": "helion, aiter",
    "driver.active.get_empty_cache_for_benchmark": "helion, aiter",
    "driver.active.map_python_to_cpp_type": "aiter",
    "driver.active.utils.get_device_properties": "torchao, unsloth, fla, liger",
    "driver.active.utils.load_binary": "unsloth",
    "knobs.amd.use_async_copy": "SGLang",
    "knobs.amd.use_buffer_ops": "SGLang",
    "knobs.autotuning.listener": "tritonparse",
    "knobs.compilation.instrumentation_mode": "vLLM",
    "knobs.compilation.listener": "tritonparse, SGLang",
    "knobs.runtime.add_stages_inspection_hook": "vLLM",
    "knobs.runtime.jit_post_compile_hook": "vLLM, tritonparse, PyTorch",
    "knobs.runtime.kernel_load_start_hook.calls": "SGLang",
    "knobs.runtime.launch_enter_hook.calls": "unsloth, SGLang, PyTorch",
    "knobs.runtime.launch_exit_hook.calls": "unsloth, SGLang, PyTorch",
}


def found(name):
    """What a name is, as a program reads it: the longest part that is a module is imported, the
    rest are attributes."""
    parts = ["triton", *name.split(".")]
    refused = None
    for count in range(len(parts), 0, -1):
        try:
            module = importlib.import_module(".".join(parts[:count]))
        except ModuleNotFoundError as error:
            if (
                isinstance(error, OutsideError)
                and count == len(parts)
                and "No module named" not in str(error)
            ):
                refused = error
            continue
        if refused is not None and not hasattr(module, parts[count]):
            raise refused
        return functools.reduce(getattr, parts[count:], module)
    raise AssertionError(name)


@pytest.fixture
def nvdisasm(tmp_path, monkeypatch):
    """A program that is asked for its version."""
    program = tmp_path / "nvdisasm"
    program.write_text("#!/bin/sh\necho 'Cuda compilation tools, release 12.4, V12.4.131'\n")
    program.chmod(0o755)
    monkeypatch.setenv("TRITON_NVDISASM_PATH", str(program))


@pytest.mark.usefixtures("nvdisasm")
@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_there_or_is_refused_with_a_reason(name):
    try:
        found(name)
    except OutsideError as error:
        assert any(name == refused or name.startswith(f"{refused}.") for refused in REFUSED), error
        assert len(str(error)) > 60 and "tilewright" in str(error)


def test_options_of_a_kind_of_target():
    from triton.backends.amd.compiler import HIPOptions
    from triton.backends.nvidia.compiler import CUDAOptions

    options = CUDAOptions(num_warps=8, extern_libs={"libdevice": "there"})
    assert (options.num_warps, options.num_stages, options.backend_name, options.warp_size) == (
        8,
        3,
        "cuda",
        32,
    )
    assert (
        options.extern_libs == (("libdevice", "there"),)
        and HIPOptions().waves_per_eu == 0
        and HIPOptions.warp_size == 64
    )
    assert options.hash() != CUDAOptions(num_warps=4).hash()
    with pytest.raises(TypeError, match="CUDAOptions has no option waves_per_eu"):
        CUDAOptions(waves_per_eu=1)


def test_least_products():
    import triton.language as tl
    from triton.backends.compiler import GPUTarget
    from triton.backends.nvidia.compiler import min_dot_size

    least = min_dot_size(GPUTarget("cuda", 90, 32))
    assert least(tl.float16, tl.float16) == (1, 1, 16) and least(
        tl.block_type(tl.int8, [4]), tl.int8
    ) == (1, 1, 32)
    assert min_dot_size(GPUTarget("cpu", "x", 1))(tl.float16, tl.float16) == (1, 1, 1)


def test_compilers_of_installed_backends():
    from triton.backends import backends
    from triton.backends.nvidia import compiler

    assert compiler.CUDABackend is backends["nvidia"].compiler
    with pytest.raises(OutsideError, match="a part of Triton's compiler"):
        compiler.ptx_get_version


def test_directories_of_the_driver(monkeypatch, tmp_path):
    from triton import knobs
    from triton.backends.nvidia import driver

    for function in (driver.libcuda_dirs, driver.library_dirs):
        function.cache_clear()
    monkeypatch.setenv("TRITON_LIBCUDA_PATH", str(tmp_path))
    assert driver.library_dirs() == [str(tmp_path)] == [knobs.nvidia.libcuda_path]
    driver.libcuda_dirs.cache_clear()
    monkeypatch.delenv("TRITON_LIBCUDA_PATH")
    (tmp_path / "libcuda.so.1").touch()
    monkeypatch.setenv("LD_LIBRARY_PATH", f"/nowhere:{tmp_path}")
    assert driver.libcuda_dirs()[0] == str(tmp_path)
    driver.libcuda_dirs.cache_clear()
    monkeypatch.delenv("LD_LIBRARY_PATH")
    monkeypatch.setattr(
        driver.subprocess, "check_output", lambda *args, **kwargs: "nothing of the kind"
    )
    with pytest.raises(AssertionError, match="TRITON_LIBCUDA_PATH"):
        driver.libcuda_dirs()
    driver.libcuda_dirs.cache_clear()


def test_small_functions(monkeypatch):
    import triton
    from triton.language.core import _unwrap_iterable

    assert (
        _unwrap_iterable([(1, 2)]) == (1, 2)
        and _unwrap_iterable((3,)) == (3,)
        and _unwrap_iterable((4, 5)) == (4, 5)
    )
    assert triton.testing._summarize_statistics([3.0, 1.0, 2.0], None, "min") == 1.0
    assert triton.testing._summarize_statistics([3.0, 1.0, 2.0], [0.5], "mean") == 2.0
    assert triton.testing.runtime is triton.runtime
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert triton.knobs.nvidia.nvdisasm is None
    with pytest.raises(RuntimeError, match="Cannot find cuobjdump"):
        triton.knobs.nvidia.cuobjdump


@triton.jit
def _filled(x):
    tl.store(x, 1.0)


@functools.cache
def objects():
    """An object of each class, whose kernel was compiled and launched."""
    import torch

    kernel = triton.jit(_filled.fn)
    tuned = triton.autotune([triton.Config({})], key=[])(kernel)
    tuned[(1,)](torch.zeros(1))
    return {
        "CompiledKernel": kernel[(1,)](torch.zeros(1)),
        "JITFunction": kernel,
        "Autotuner": tuned,
        "Heuristics": triton.heuristics({})(kernel),
        "Config": tuned.configs[0],
        "KernelParam": kernel.params[0],
        "driver": triton.runtime.driver,
        "knobs": triton.knobs,
    }


def attribute(name):
    class_, *parts = name.split(".")
    return functools.reduce(getattr, parts, objects()[class_])


@pytest.mark.parametrize("name", ATTRIBUTES)
def test_an_attribute_is_there(name):
    pytest.importorskip("tilewright_cpu")
    attribute(name)


@core.extern
def _put(dest, source, size_bytes, pe, _semantic=None):
    int32, int64 = core.dtype("int32"), core.dtype("int64")
    functions = {(int64, int64, int64, int32): ("nvshmemx_putmem_block", int32)}
    return core.extern_elementwise(
        "", "", [dest, source, size_bytes, pe], functions, is_pure=False, _semantic=_semantic
    )


@triton.jit
def _sent(dest, source, n, pe):
    _put(dest.to(tl.int64), source.to(tl.int64), n.to(tl.int64), pe)


def test_symmetric_memory_finds_the_modules_of_kernels(monkeypatch):
    """PyTorch's own hook, for a kernel that it has registered."""
    import torch

    nvshmem = pytest.importorskip("torch.distributed._symmetric_memory._nvshmem_triton")
    distributed = pytest.importorskip("torch._C._distributed_c10d")
    seen = []
    monkeypatch.setattr(distributed, "_nvshmemx_cumodule_init", seen.append, raising=False)
    monkeypatch.setattr(triton.knobs.runtime, "jit_post_compile_hook", nvshmem._nvshmem_init_hook)
    nvshmem.NvshmemKernelRegistry.register("_filled")
    x = torch.zeros(4)
    kernel = nvshmem.GridCallableWithExtern(
        _filled, {"libnvshmem_device": "/nowhere/libnvshmem_device.bc"}
    )[(1,)](x)
    assert x.tolist() == [1, 0, 0, 0] and seen == [kernel.module] and kernel.module is not None


#: As NVSHMEM's: it reads a variable that the host fills in the loaded module.
SYMMETRIC = """
@nvshmemi_device_state_d = addrspace(4) externally_initialized global { i64, ptr } zeroinitializer

define i32 @nvshmemx_putmem_block(ptr %dest, ptr %source, i64 %bytes, i32 %pe) {
  %world = load i64, ptr addrspace(4) @nvshmemi_device_state_d
  call void @llvm.memcpy.p0.p0.i64(ptr %dest, ptr %source, i64 %world, i1 false)
  ret i32 %pe
}
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
"""


def test_functions_of_symmetric_memory_are_linked(tmp_path):
    import llvmlite.binding as llvm
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    pytest.importorskip("tilewright_nvidia")
    source = ASTSource(_sent, {"dest": "*fp32", "source": "*fp32", "n": "i32", "pe": "i32"})
    path = tmp_path / "libnvshmem_device.bc"
    options = {"extern_libs": {"libnvshmem_device": str(path)}}
    with pytest.raises(
        LoweringError, match=r"library 'libnvshmem_device' of extern_libs \(.*\) cannot be read"
    ):
        triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)
    path.write_bytes(llvm.parse_assembly(SYMMETRIC).as_bitcode())
    compiled = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)
    assert (
        ".visible .const" in compiled.asm["ptx"]
        and "nvshmemi_device_state_d" in compiled.asm["ptx"]
        and "_sent" in compiled.asm["ptx"]
    )
    assert compiled.metadata.extern_libs == (("libnvshmem_device", str(path)),)


def print_table():
    for name, users in NAMES.items():
        try:
            answer = f"resolves: {type(found(name)).__name__}"
        except OutsideError as error:
            answer = f"refused: {error}"
        except RuntimeError as error:  # what it needs is not on this machine
            answer = f"resolves, and says: {error}"
        except AttributeError:
            answer = "refused: the program is not on this machine, and its setting is None"
        print(f"{name:62} {users:28} {answer}")
    for name, users in ATTRIBUTES.items():
        try:
            answer = f"is there: {type(attribute(name)).__name__}"
        except AttributeError as error:
            answer = f"missing: {error}"
        print(f"{name:62} {users:28} {answer}")


if __name__ == "__main__":
    from tilewright.compat.triton import hook

    hook.activate()
    print_table()


def test_directories_of_headers(monkeypatch, tmp_path):
    (tmp_path / "include").mkdir()
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    from triton.backends.nvidia import driver

    assert str(tmp_path / "include") not in driver.include_dirs
    (tmp_path / "include" / "cuda.h").touch()
    assert str(tmp_path / "include") in driver.include_dirs
