"""What PyTorch's compiler needs of Triton, each in a process of its own."""

import os
import shutil
import subprocess
import sys
import textwrap

import pytest

pytest.importorskip("torch")
pytest.importorskip("tilewright_cpu")


def run(code, tmp_path):
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "inductor"),
        "TILEWRIGHT_CACHE_DIR": str(tmp_path / "tilewright"),
    }
    found = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=500)
    assert found.returncode == 0, found.stderr[-4000:]
    return found.stdout


def test_everything_inductor_imports_is_there(tmp_path):
    said = run(
        """
        import tilewright.compat.triton
        import torch._inductor.runtime.triton_compat as compat
        import torch._inductor.runtime.triton_helpers, torch._inductor.runtime.triton_heuristics, torch._inductor.runtime.hints as hints
        from torch.utils._triton import has_triton_package
        import triton

        assert compat.HAS_TRITON and has_triton_package()
        assert compat.JITFunction is triton.runtime.jit.JITFunction and compat.ASTSource is triton.compiler.ASTSource
        assert compat.GPUTarget is triton.backends.compiler.GPUTarget and compat.knobs is triton.knobs
        assert compat.builtins_use_semantic_kwarg
        assert hints.attrs_descriptor_from_configs if hasattr(hints, "attrs_descriptor_from_configs") else True
        print("complete")
        """,
        tmp_path,
    )
    assert said.strip() == "complete"


@pytest.mark.slow
def test_compiled_functions_run_kernels_on_the_cpu(tmp_path):
    said = run(
        """
        import tilewright.compat.triton
        import torch
        import torch._inductor.config as config

        config.cpu_backend = "triton"
        config.compile_threads = 1

        def pointwise(x, y):
            return torch.sin(x) * y + torch.where(x > 0, x, y).exp().clamp(max=9)

        def reductions(x, y):
            return (x * y).sum(dim=1), torch.softmax(x, dim=1), (x - y).amax(dim=0), torch.nn.functional.layer_norm(x, x.shape[1:])

        launched = []
        from tilewright.compat.triton import knobs
        knobs.compilation.listener = lambda **told: launched.append(told["src"].name)
        for function in (pointwise, reductions):
            for shape in ((37, 123), (5, 1000)):
                x, y = torch.randn(shape), torch.randn(shape)
                expected, found = function(x, y), torch.compile(function)(x, y)
                torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
        assert launched and all(name.startswith("triton_") for name in launched), launched
        print(len(launched) >= 2)
        """,
        tmp_path,
    )
    assert said.strip().splitlines()[-1] == "True"


@pytest.mark.slow
def test_kernels_that_worker_processes_compiled_come_back(tmp_path):
    code = """
        import tilewright.compat.triton
        import torch
        import torch._inductor.config as config
        from torch._dynamo.utils import counters
        from torch._inductor.async_compile import AsyncCompile

        config.cpu_backend = "triton"
        config.compile_threads = 2
        config.fx_graph_cache = True

        def function(x, y):
            return torch.softmax(x * y + 1, dim=1), (x - y).amax(dim=0)

        if __name__ == "__main__":
            AsyncCompile.warm_pool()
            AsyncCompile.wait_pool_ready()
            assert AsyncCompile.use_process_pool()
            x, y = torch.randn(37, 123), torch.randn(37, 123)
            torch.testing.assert_close(torch.compile(function)(x, y), function(x, y))
            print(counters["inductor"]["fxgraph_cache_hit"])
        """
    (tmp_path / "program.py").write_text(textwrap.dedent(code))
    say = "import os, runpy; os.environ['TILEWRIGHT_TRITON'] = '1'; runpy.run_path('program.py', run_name='__main__')"
    assert [run(say, tmp_path).split()[-1] for _ in range(2)] == ["0", "1"], "the second process finds what the first one kept"


@pytest.mark.slow
def test_kernels_of_the_program_change_only_what_they_store_to(tmp_path):
    (tmp_path / "kernels.py").write_text(
        textwrap.dedent(
            """
            import triton
            import triton.language as tl

            @triton.autotune([triton.Config({"BLOCK": 32}), triton.Config({"BLOCK": 64})], key=["n"])
            @triton.jit
            def add_kernel(x, y, out, n, BLOCK: tl.constexpr):
                offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
                mask = offsets < n
                tl.store(out + offsets, tl.load(x + offsets, mask=mask) + tl.load(y + offsets, mask=mask), mask=mask)

            @triton.jit
            def accumulate_kernel(x, total, n, BLOCK: tl.constexpr):
                offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
                tl.atomic_add(total, tl.sum(tl.load(x + offsets, mask=offsets < n)))
            """
        )
    )
    said = run(
        """
        import tilewright.compat.triton
        import torch, triton
        import torch._inductor.config as config
        from kernels import accumulate_kernel, add_kernel

        config.cpu_backend = "triton"
        config.compile_threads = 1

        def function(x, y):
            out, total = torch.empty_like(x), torch.zeros(1)
            add_kernel[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x * 2, y, out, x.numel())
            accumulate_kernel[(triton.cdiv(x.numel(), 64),)](out, total, x.numel(), 64)
            y += 1
            return out.relu() + y, total

        x, y = torch.randn(1000), torch.randn(1000)
        expected, kept = (x * 2 + y), y.clone()
        result, total = torch.compile(function, fullgraph=True)(x, y)
        torch.testing.assert_close(y, kept + 1)
        torch.testing.assert_close(result, expected.relu() + y)
        torch.testing.assert_close(total[0], expected.sum(), rtol=1e-3, atol=1e-3)
        print("right")
        """,
        tmp_path,
    )
    assert said.strip().splitlines()[-1] == "right"


@pytest.mark.slow
def test_the_graph_cache_carries_kernels(tmp_path):
    code = """
        import tilewright.compat.triton
        import torch
        import torch._inductor.config as config
        from torch._dynamo.utils import counters
        from tilewright.compat.triton import knobs

        config.cpu_backend = "triton"
        config.compile_threads = 1
        config.fx_graph_cache = config.bundle_triton_into_fx_graph_cache = True
        hits = []
        knobs.compilation.listener = lambda **told: hits.append(told["cache_hit"])
        x = torch.randn(37, 123)
        torch.testing.assert_close(torch.compile(lambda x: torch.softmax(x * 2, dim=1))(x), torch.softmax(x * 2, dim=1))
        print(counters["inductor"]["fxgraph_cache_hit"], sorted(set(hits)))
        """
    assert run(code, tmp_path).strip() == "0 [False]"
    kernels = tmp_path / "inductor" / "triton"
    assert list(kernels.rglob("tilewright.kernel"))
    shutil.rmtree(kernels)
    assert run(code, tmp_path).strip() == "1 [True]"
