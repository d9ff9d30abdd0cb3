"""Programs that cannot be installed here, by the very calls that each makes of Triton; each case is named after the program."""

import pickle
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
import triton
import triton.language as tl

from programs import close


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
    triton.knobs.runtime.jit_post_compile_hook = lambda **facts: told.append((facts["fn"].name, facts["compile"]["key"]))
    try:
        launched(device, triton.jit(scaled.fn))
    finally:
        triton.knobs.runtime.jit_post_compile_hook = before
    assert [name for name, _ in told] == ["scaled"]


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
    compiled.run(2, 1, 1, stream, compiled.function, compiled.packed_metadata, None, None, None, x, out, 3.0, 100, 64)
    close(out, x * 3)


def case_helion_binds_arguments(device):
    kernel = triton.jit(scaled.fn)
    _, x, out = launched(device, kernel)
    *_, binder = next(iter(kernel.device_caches.values()))
    bound, specialization, options = binder(x, out, 3.0, 100, BLOCK=64)
    assert list(bound) == ["x", "out", "factor", "n", "BLOCK"] and [type_ for type_, _ in specialization][:3] == ["*fp32", "*fp32", "fp32"]
    assert isinstance(options, dict)


def case_transformer_engine_compiles_for_a_target(device):
    from triton.backends.compiler import GPUTarget
    from triton.backends.nvidia.compiler import CUDAOptions
    from triton.compiler import ASTSource

    options = CUDAOptions(num_warps=4, num_stages=2)
    source = ASTSource(scaled, {"x": "*fp32", "out": "*fp32", "factor": "fp32", "n": "i32", "BLOCK": "constexpr"}, {"BLOCK": 64})
    compiled = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options.__dict__)
    assert ".entry scaled" in compiled.asm["ptx"] and compiled.metadata.shared == 0 and compiled.name == "scaled"


def case_flaggems_launches_compiled_kernels(device):
    compiled, x, out = launched(device)
    out.zero_()
    compiled[(2, 1, 1)](x, out, 3.0, 100, 64)
    close(out, x * 3)


def case_unsloth_reads_registers_and_metadata(device):
    compiled, _, _ = launched(device)
    assert compiled.n_regs >= 0 and compiled.n_spills >= 0 and compiled.metadata.num_warps == 4


def case_aiter_writes_functions_of_c(device):
    from triton.tools.compile import CompileArgs, compile_kernel

    with TemporaryDirectory() as folder:
        path = Path(folder, "kernels.py")
        path.write_text("import triton\nimport triton.language as tl\n\n@triton.jit\ndef one(x):\n    tl.store(x, 1.0)\n")
        triton.runtime.driver.set_active_to_cpu()
        try:
            name, files = compile_kernel(CompileArgs(str(path), "one", "*fp32", "1, 1, 1", out_path=Path(folder, "out")))
        finally:
            triton.runtime.driver.reset_active()
        assert name.startswith("one_") and all(file.is_file() for file in files)


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
        assert proton.data(session)[0]["children"][0]["children"][0]["children"][0]["metrics"]["count"] == 1
        proton.finalize()


def case_pytorch_sends_kernels_between_processes(device):
    compiled, x, out = launched(device)
    restored = pickle.loads(pickle.dumps(compiled))
    out.zero_()
    restored[(2, 1, 1)](x, out, 3.0, 100, 64)
    close(out, x * 3)


def case_pytorch_asks_what_kernels_store_to(device):
    from torch._higher_order_ops.triton_kernel_wrap import identify_accessed_tensors

    x = torch.ones(100, device=device)
    found = identify_accessed_tensors(scaled, {"x": x, "out": x, "factor": 3.0, "n": 100, "BLOCK": 64}, {})
    assert {each.name for each in found.read_writes.writes} == {"out"}
