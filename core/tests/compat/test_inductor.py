"""Triton features that PyTorch's compiler uses, in a process, and in three with one cache.

Imports and compilations take seconds in each.
"""

import os
import shutil
import sys

import fork_server
import pytest

pytest.importorskip("torch")
pytest.importorskip("tilewright_cpu")
pytestmark = pytest.mark.skipif(not fork_server.FORKS, reason="needs processes that fork")


#: What the three processes import in this order, once for all of them.
IMPORTS = """
import tilewright.compat.triton
import torch, torch._dynamo.utils
import torch._inductor.async_compile, torch._inductor.compile_fx
import torch._inductor.runtime.triton_heuristics
"""


@pytest.fixture
def server(monkeypatch):
    # PyTorch need not try out with a C++ compiler which vectors there are
    monkeypatch.setenv("TORCHINDUCTOR_VEC_ISA_OK", "1")
    with fork_server.ForkServer(IMPORTS) as server:
        yield server


def run(server, code, tmp_path):
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "inductor"),
        "TILEWRIGHT_CACHE_DIR": str(tmp_path / "tilewright"),
    }
    found = server.run(["-c", code], cwd=tmp_path, env=environment)
    assert found.returncode == 0, found.stderr[-4000:]
    return found.stdout


KERNELS = """
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

FIRST = """
import tilewright.compat.triton
import torch
import torch._inductor.config as config
import torch._inductor.runtime.triton_compat as compat
import torch._inductor.runtime.triton_helpers, torch._inductor.runtime.triton_heuristics, torch._inductor.runtime.hints as hints
from torch._dynamo.utils import counters
from torch.utils._triton import has_triton_package
import triton
from tilewright.compat.triton import knobs

# everything that it imports is there
assert compat.HAS_TRITON and has_triton_package()
assert compat.JITFunction is triton.runtime.jit.JITFunction and compat.ASTSource is triton.compiler.ASTSource
assert compat.GPUTarget is triton.backends.compiler.GPUTarget and compat.knobs is triton.knobs
assert compat.builtins_use_semantic_kwarg
assert hints.attrs_descriptor_from_configs if hasattr(hints, "attrs_descriptor_from_configs") else True

config.cpu_backend = "triton"
config.compile_threads = 1
config.fx_graph_cache = config.bundle_triton_into_fx_graph_cache = True

# compiled functions run kernels on the CPU
def pointwise(x, y):
    return torch.sin(x) * y + torch.where(x > 0, x, y).exp().clamp(max=9)

def reductions(x, y):
    return (x * y).sum(dim=1), torch.softmax(x, dim=1), (x - y).amax(dim=0), torch.nn.functional.layer_norm(x, x.shape[1:])

launched, hits = [], []
knobs.compilation.listener = lambda **told: (launched.append(told["src"].name), hits.append(told["cache_hit"]))
for function in (pointwise, reductions):
    for shape in ((37, 123), (5, 1000)):
        x, y = torch.randn(shape), torch.randn(shape)
        expected, found = function(x, y), torch.compile(function)(x, y)
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
assert len(launched) >= 2 and all(name.startswith("triton_") for name in launched), launched

# kernels of the program change only what they store to
from kernels import accumulate_kernel, add_kernel

def with_kernels(x, y):
    out, total = torch.empty_like(x), torch.zeros(1)
    add_kernel[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x * 2, y, out, x.numel())
    accumulate_kernel[(triton.cdiv(x.numel(), 64),)](out, total, x.numel(), 64)
    y += 1
    return out.relu() + y, total

x, y = torch.randn(1000), torch.randn(1000)
expected, kept = (x * 2 + y), y.clone()
result, total = torch.compile(with_kernels, fullgraph=True)(x, y)
torch.testing.assert_close(y, kept + 1)
torch.testing.assert_close(result, expected.relu() + y)
torch.testing.assert_close(total[0], expected.sum(), rtol=1e-3, atol=1e-3)

# of a function that is compiled for the first time no kernel was there before
hits.clear()
x = torch.randn(37, 123)
torch.testing.assert_close(torch.compile(lambda x: torch.softmax(x * 2, dim=1))(x), torch.softmax(x * 2, dim=1))
print("first:", counters["inductor"]["fxgraph_cache_hit"], sorted(set(hits)))
"""

WORKERS = """
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
    print("workers:", counters["inductor"]["fxgraph_cache_hit"])
"""

AGAIN = """
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
x, y = torch.randn(37, 123), torch.randn(37, 123)
torch.testing.assert_close(torch.compile(lambda x: torch.softmax(x * 2, dim=1))(x), torch.softmax(x * 2, dim=1))
print("the graph's:", counters["inductor"]["fxgraph_cache_hit"], sorted(set(hits)))
hits.clear()

def function(x, y):
    return torch.softmax(x * y + 1, dim=1), (x - y).amax(dim=0)

torch.testing.assert_close(torch.compile(function)(x, y), function(x, y))
print("the workers':", counters["inductor"]["fxgraph_cache_hit"], sorted(set(hits)))
"""


def run_first(server, tmp_path):
    (tmp_path / "kernels.py").write_text(KERNELS)
    assert run(server, FIRST, tmp_path).splitlines()[-1] == "first: 0 [False]"
    kernels = tmp_path / "inductor" / "triton"
    assert list(kernels.rglob("tilewright.kernel"))
    return kernels


@pytest.mark.slow
def test_compiled_functions_run_kernels_on_the_cpu(server, tmp_path):
    run_first(server, tmp_path)


@pytest.mark.slow
@pytest.mark.full
def test_kernels_of_compiled_functions_come_back(server, tmp_path):
    kernels = run_first(server, tmp_path)
    (tmp_path / "workers.py").write_text(WORKERS)
    shutil.rmtree(kernels)  # the graph cache carries them
    say = (
        "import os, runpy; os.environ['TILEWRIGHT_TRITON'] = '1'; runpy.run_path('workers.py', "
        "run_name='__main__')"
    )
    assert run(server, say, tmp_path).splitlines()[-1] == "workers: 0"
    assert run(server, AGAIN, tmp_path).splitlines()[-2:] == [
        "the graph's: 1 [True]",
        "the workers': 2 [True]",
    ]
