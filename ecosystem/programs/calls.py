"""Programs that cannot be installed here, by the very calls that each makes of Triton; each case is
named after the program.
"""

import base64
import os
import pickle
import sys
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace

import torch
import triton
import triton.language as tl

from programs import close, random


@triton.jit
def scaled(x, out, factor, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + offsets, tl.load(x + offsets, mask=offsets < n) * factor, mask=offsets < n)


def launched(device, kernel=scaled):
    x = torch.arange(100.0, device=device)
    out = torch.empty_like(x)
    found = kernel[(triton.cdiv(100, 64),)](x, out, 3.0, 100, BLOCK=64)
    close(out, x * 3)
    return found, x, out


def case_vllm_watches_compilations(device):
    from triton.runtime.jit import compute_cache_key, serialize_specialization_data  # noqa: F401

    told = []
    before = triton.knobs.runtime.jit_post_compile_hook
    triton.knobs.runtime.jit_post_compile_hook = lambda **facts: told.append(
        (facts["fn"].name, facts["compile"]["key"])
    )
    try:
        launched(device, triton.jit(scaled.fn))
    finally:
        triton.knobs.runtime.jit_post_compile_hook = before
    assert [name for name, _ in told] == ["scaled"]


def case_vllm_looks_for_one_active_driver(device):
    """It switches Triton off unless exactly one driver that is not the CPU's is active."""
    from triton.backends import backends

    active = [
        x.driver
        for name, x in backends.items()
        if name != "cpu" and x.driver and x.driver.is_active()
    ]
    assert len(active) == (device != "cpu")


def case_vllm_takes_the_first_configuration(device):
    """It puts a function of its own in the place of ``Autotuner.run``."""
    from triton.compiler.errors import CompileTimeAssertionFailure
    from triton.runtime.autotuner import Autotuner
    from triton.runtime.errors import OutOfResources, PTXASError

    assert all(
        issubclass(each, Exception)
        for each in (CompileTimeAssertionFailure, OutOfResources, PTXASError)
    )
    hooked = []
    configs = [
        triton.Config({"BLOCK": size}, pre_hook=lambda given: hooked.append(given["BLOCK"]))
        for size in (32, 64)
    ]
    tuned = triton.autotune(configs, key=["n"])(triton.jit(scaled.fn))
    run = Autotuner.run

    def first(self, *args, **keywords):
        config = self.configs[0]
        self.nargs = dict(zip(self.arg_names, args, strict=False))
        given = {**self.nargs, **keywords, **config.all_kwargs()}
        if config.pre_hook is not None:
            config.pre_hook(given)
        assert self.keys == ["n"] and self.base_fn.__name__ == "scaled"
        return self.fn.run(*args, **keywords, **config.all_kwargs())

    Autotuner.run = first
    try:
        x = torch.arange(100.0, device=device)
        out = torch.empty_like(x)
        tuned[lambda given: (triton.cdiv(100, given["BLOCK"]),)](x, out, 3.0, 100)
    finally:
        Autotuner.run = run
    close(out, x * 3)
    assert hooked == [32]


def case_vllm_names_what_was_compiled(device):
    """Its monitor tells what of a kernel's parameters was special, from the facts of the hook."""
    told = []
    before = triton.knobs.runtime.jit_post_compile_hook
    triton.knobs.runtime.jit_post_compile_hook = (
        lambda *, key, repr, fn, compile, is_manual_warmup, already_compiled: told.append(
            [parameter.name for parameter in fn.jit_function.params if parameter.is_constexpr]
        )
    )
    try:
        launched(device, triton.jit(scaled.fn))
    finally:
        triton.knobs.runtime.jit_post_compile_hook = before
    assert told == [["BLOCK"]]


def case_vllm_compiles_ahead_and_forgets(device):
    """It asks for the key of a launch without launching, and deletes compiled kernels, whose code
    is to be unloaded.
    """
    from triton.runtime.jit import MockTensor, compute_cache_key

    kernel = triton.jit(scaled.fn)
    kernel.warmup(
        MockTensor(torch.float32), MockTensor(torch.float32), 3.0, 100, BLOCK=64, grid=(1,)
    )
    ((kernels, keys, *_, binder),) = kernel.device_caches.values()
    _, specialization, options = binder(
        MockTensor(torch.float32), MockTensor(torch.float32), 3.0, 100, BLOCK=64
    )
    key = compute_cache_key(keys, specialization, options)
    assert list(kernels) == [key]
    del kernels[key]
    launched(device, kernel)
    assert key in kernels


def case_vllm_s_triton_kernels_write_source(device):
    """The package makes functions of the language of texts."""
    from triton.runtime.jit import JITFunction

    made = JITFunction(scaled.fn)
    made._unsafe_update_src(scaled.src.replace("* factor", "* factor + 1"))
    x = torch.arange(100.0, device=device)
    out = torch.empty_like(x)
    made[(2,)](x, out, 3.0, 100, BLOCK=64)
    close(out, x * 3 + 1)
    assert made._fn_name.endswith("scaled")


def case_sglang_sets_names_and_knobs(device):
    before = triton.next_power_of_2
    triton.next_power_of_2 = lambda n: 1 << (n - 1).bit_length()
    try:
        assert triton.next_power_of_2(33) == 64
    finally:
        triton.next_power_of_2 = before
    with triton.knobs.amd.scope():
        triton.knobs.amd.use_async_copy = triton.knobs.amd.use_buffer_ops = True
        launched(device)


def case_sglang_records_launches_and_repeats_them(device):
    seen = []
    run = triton.runtime.jit.JITFunction.run

    def record(self, *args, **keywords):
        found = run(self, *args, **keywords)
        seen.append(found)
        return found

    triton.runtime.jit.JITFunction.run = record
    try:
        compiled, x, out = launched(device)
    finally:
        triton.runtime.jit.JITFunction.run = run
    assert seen == [compiled]
    out.zero_()
    stream = triton.runtime.driver.active.get_current_stream(0) if device != "cpu" else None
    compiled.run(
        2,
        1,
        1,
        stream,
        compiled.function,
        compiled.packed_metadata,
        None,
        None,
        None,
        x,
        out,
        3.0,
        100,
        64,
    )
    close(out, x * 3)


def case_helion_binds_arguments(device):
    kernel = triton.jit(scaled.fn)
    _, x, out = launched(device, kernel)
    *_, binder = next(iter(kernel.device_caches.values()))
    bound, specialization, options = binder(x, out, 3.0, 100, BLOCK=64)
    assert list(bound) == ["x", "out", "factor", "n", "BLOCK"] and [
        type_ for type_, _ in specialization
    ][:3] == ["*fp32", "*fp32", "fp32"]
    assert isinstance(options, dict)


def case_helion_looks_at_memory_and_times(device):
    from triton.runtime._allocation import NullAllocator, _allocator

    assert isinstance(_allocator.get(), NullAllocator)
    assert triton.testing._summarize_statistics([3.0, 1.0, 2.0], None, "median") == 2.0
    driver = triton.runtime.driver.active
    cache = driver.get_empty_cache_for_benchmark()
    driver.clear_cache(cache)
    assert driver.get_device_interface() is getattr(torch, device.partition(":")[0])


def case_helion_names_files_by_hashes(device):
    """A kernel's hash, in hexadecimal, is its directory's name in base 32."""
    compiled, _, _ = launched(device)
    name = base64.b32encode(bytes.fromhex(compiled.hash)).decode().rstrip("=")
    assert len(name) == 52


def case_transformer_engine_compiles_for_a_target(device):
    from triton.backends.compiler import GPUTarget
    from triton.backends.nvidia.compiler import CUDAOptions
    from triton.compiler import ASTSource

    options = CUDAOptions(num_warps=4, num_stages=2)
    source = ASTSource(
        scaled,
        {"x": "*fp32", "out": "*fp32", "factor": "fp32", "n": "i32", "BLOCK": "constexpr"},
        {"BLOCK": 64},
    )
    compiled = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options.__dict__)
    assert (
        ".entry scaled" in compiled.asm["ptx"]
        and compiled.metadata.shared == 0
        and compiled.name == "scaled"
    )


def case_flaggems_launches_compiled_kernels(device):
    compiled, x, out = launched(device)
    out.zero_()
    compiled[(2, 1, 1)](x, out, 3.0, 100, 64)
    close(out, x * 3)


def case_flaggems_dispatches_by_itself(device):
    """Its ``libentry`` keeps compiled kernels by keys of its own and launches them without
    constants, or with them, as the version says.
    """
    from triton.runtime import Autotuner, Heuristics, JITFunction, KernelInterface

    assert (
        issubclass(Autotuner, KernelInterface)
        and issubclass(JITFunction, KernelInterface)
        and issubclass(Heuristics, KernelInterface)
    )
    major, minor = map(int, triton.__version__.split(".")[:2])
    assert (major, minor) >= (3, 5)
    kept = {}
    for _ in range(2):
        x = torch.arange(100.0, device=device)
        out = torch.empty_like(x)
        key = tuple((each.dtype, each.data_ptr() % 16 == 0) for each in (x, out))
        if key not in kept:
            kept[key] = (
                scaled.run(x, out, 3.0, 100, BLOCK=64, grid=(2,), warmup=False),
                {"BLOCK": 64},
            )
        kernel, constants = kept[key]
        assert [parameter.name for parameter in scaled.params if parameter.is_constexpr] == list(
            constants
        )
        kernel[(2, 1, 1)](x, out, 3.0, 100, *constants.values())
        close(out, x * 3)
    assert len(kept) == 1


def case_unsloth_completes_compiled_kernels(device):
    """It gives kernels the attributes that PyTorch's launcher reads, where the class has none."""
    from triton.compiler.compiler import CompiledKernel

    construct = CompiledKernel.__init__

    def completed(self, *args, **keywords):
        construct(self, *args, **keywords)
        for name, value in (("num_ctas", 1), ("cluster_dims", (1, 1, 1))):
            if not hasattr(self, name):
                setattr(self, name, value)

    CompiledKernel.__init__ = completed
    try:
        compiled, _, _ = launched(device, triton.jit(scaled.fn))
    finally:
        CompiledKernel.__init__ = construct
    assert compiled.num_ctas == 1 and compiled.cluster_dims == (1, 1, 1)


def case_unsloth_reads_registers_and_metadata(device):
    compiled, _, _ = launched(device)
    assert compiled.n_regs >= 0 and compiled.n_spills >= 0 and compiled.metadata.num_warps == 4


def case_aiter_writes_functions_of_c(device):
    from triton.tools.compile import CompileArgs, compile_kernel

    with TemporaryDirectory() as folder:
        path = Path(folder, "kernels.py")
        path.write_text(
            "import triton\nimport triton.language as tl\n\n@triton.jit\ndef one(x):\n    "
            "tl.store(x, 1.0)\n"
        )
        triton.runtime.driver.set_active_to_cpu()
        try:
            name, files = compile_kernel(
                CompileArgs(str(path), "one", "*fp32", "1, 1, 1", out_path=Path(folder, "out"))
            )
        finally:
            triton.runtime.driver.reset_active()
        assert name.startswith("one_") and all(file.is_file() for file in files)


def case_aiter_compiles_for_targets_of_its_own(device):
    """It asks a backend what its code is called, and the driver what C calls a type."""
    from triton.compiler import make_backend

    driver = triton.runtime.driver.active
    backend = make_backend(driver.get_current_target())
    assert backend.binary_ext in launched(device)[0].asm
    assert [driver.map_python_to_cpp_type(text) for text in ("i32", "fp32")] == [
        "int32_t",
        "double",
    ]


@contextmanager
def environment(**values):
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


def case_liger_keeps_files_by_itself(device):
    """It names a class of its own as the manager of cache files."""
    from triton.runtime.cache import FileCacheManager

    written = []

    class Manager(FileCacheManager):
        def put(self, data, filename, binary=True):
            assert self.cache_dir in self._make_path(filename) and self.lock_path
            written.append(filename)
            return super().put(data, filename, binary)

    sys.modules["managers"] = SimpleNamespace(Manager=Manager)
    with (
        TemporaryDirectory() as folder,
        environment(
            TRITON_CACHE_DIR=folder,
            TRITON_CACHE_MANAGER="managers:Manager",
            TILEWRIGHT_CACHE_DIR=folder,
        ),
    ):
        launched(device, triton.jit(scaled.fn))
    del sys.modules["managers"]
    assert "scaled.json" in written and any(name.startswith("__grp__") for name in written)


def case_tritonparse_listens(device):
    """It hears of compilations with the paths of their files, and of launches."""
    heard, entered = [], []

    def compiled(*, src, metadata, metadata_group, times, cache_hit):
        heard.append(
            (
                src.fn.__name__,
                {name.rpartition(".")[2] for name in metadata_group},
                all(Path(path).is_file() for path in metadata_group.values()),
            )
        )

    def enter(metadata):
        entered.append(metadata.get()["name"])

    with TemporaryDirectory() as folder, environment(TRITON_CACHE_DIR=folder):
        before = triton.knobs.compilation.listener
        triton.knobs.compilation.listener = compiled
        triton.knobs.runtime.launch_enter_hook.add(enter)
        try:
            launched(device, triton.jit(scaled.fn))
        finally:
            triton.knobs.compilation.listener = before
            triton.knobs.runtime.launch_enter_hook.remove(enter)
    ((name, endings, there),) = heard
    assert name == "scaled" and there and {"json", "source"} <= endings
    assert entered == ["scaled"]


def case_symmetric_memory_initialises_modules(device):
    """PyTorch's hook for NVSHMEM finds the compiled kernel by the key that it is told, and its
    module.
    """
    found = []

    def initialise(*, key, fn, compile, **facts):
        kernel = fn.jit_function.device_caches[compile["device"]][0].get(key)
        if kernel is not None:
            kernel.run  # noqa: B018  # loads the module
            found.append(kernel.module)

    kernel = triton.jit(scaled.fn)
    before = triton.knobs.runtime.jit_post_compile_hook
    triton.knobs.runtime.jit_post_compile_hook = initialise
    try:
        x = random(device, 100)
        out = torch.empty_like(x)
        compiled = kernel[(2,)](
            x,
            out,
            3.0,
            100,
            BLOCK=64,
            extern_libs={"libnvshmem_device": "/nowhere/libnvshmem_device.bc"},
        )
    finally:
        triton.knobs.runtime.jit_post_compile_hook = before
    close(out, x * 3)
    assert found == [compiled.module] and compiled.module is not None


def case_tritonbench_profiles_scopes(device):
    import triton.profiler as proton

    with TemporaryDirectory() as folder:
        session = proton.start(f"{folder}/profile")
        proton.deactivate(session)
        with proton.scope("outer"):
            proton.activate(session)
            proton.enter_scope("inner")
            launched(device)
            proton.exit_scope()
            proton.deactivate(session)
        assert (
            proton.data(session)[0]["children"][0]["children"][0]["children"][0]["metrics"]["count"]
            == 1
        )
        proton.finalize()


def case_pytorch_sends_kernels_between_processes(device):
    compiled, x, out = launched(device)
    restored = pickle.loads(pickle.dumps(compiled))
    out.zero_()
    restored[(2, 1, 1)](x, out, 3.0, 100, 64)
    close(out, x * 3)


def case_pytorch_asks_what_kernels_store_to(device):
    from torch._higher_order_ops import triton_kernel_wrap

    x = torch.ones(100, device=device)
    given = (scaled, {"x": x, "out": x, "factor": 3.0, "n": 100, "BLOCK": 64}, {})
    if hasattr(triton_kernel_wrap, "identify_accessed_tensors"):
        written = {
            each.name
            for each in triton_kernel_wrap.identify_accessed_tensors(*given).read_writes.writes
        }
    else:  # before PyTorch 2.13
        written = set(triton_kernel_wrap.identify_mutated_tensors(*given))
    assert written == {"out"}
