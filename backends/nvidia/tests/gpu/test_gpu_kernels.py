"""Whole kernels on CUDA tensors, against PyTorch; launches in streams, graphs and threads; errors
that end a process in a process of their own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import gpu_kernels as kernels
import pytest
from gpu_support import gpu_is_there

from tilewright.testing.threads import side_by_side

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        not gpu_is_there() or not torch.cuda.is_available(), reason="there is no NVIDIA GPU here"
    ),
]


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def poisoned(like: Any, dtype: Any = None) -> Any:
    made = torch.empty_like(like, dtype=dtype or like.dtype)
    return made.fill_(float("nan") if made.dtype.is_floating_point else 77)


def close(found: Any, expected: Any, rtol: float, atol: float) -> None:
    torch.testing.assert_close(found.float(), expected.float(), rtol=rtol, atol=atol)


@pytest.mark.parametrize(
    "dtype", ["float32", "float16", "bfloat16", "float64", "int32", "int64", "int8"]
)
@pytest.mark.parametrize("n", [1, 1000, 4096, 98432])
@pytest.mark.parametrize("num_warps", [1, 4, 8])
def test_add(dtype: str, n: int, num_warps: int) -> None:
    kind = getattr(torch, dtype)
    make = (
        (lambda: torch.randn(n, device="cuda").to(kind))
        if kind.is_floating_point
        else (lambda: torch.randint(-50, 50, (n,), device="cuda").to(kind))
    )
    x, y = make(), make()
    z = poisoned(x)
    kernels.add[(-(-n // 1024),)](x, y, z, n, BLOCK=1024, num_warps=num_warps)
    assert torch.equal(z, x + y)


@pytest.mark.parametrize("offset", [1, 2, 3])
def test_add_of_unaligned_views(offset: int) -> None:
    x, y, z = (torch.randn(5000, device="cuda") for _ in range(3))
    before = z.clone()
    kernels.add[(5,)](x[offset:], y[offset:], z[offset:], 4096, BLOCK=1024)
    assert torch.equal(z[offset : offset + 4096], (x + y)[offset : offset + 4096])
    assert torch.equal(z[:offset], before[:offset]) and torch.equal(
        z[offset + 4096 :], before[offset + 4096 :]
    )


@pytest.mark.parametrize("columns", [1, 63, 1024, 1823, 12544])
@pytest.mark.parametrize("num_warps", [1, 4, 8])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_softmax(columns: int, num_warps: int, dtype: str) -> None:
    x = torch.randn(37, columns, device="cuda").to(getattr(torch, dtype))
    z = poisoned(x)
    kernels.softmax[(37,)](
        x,
        z,
        columns,
        BLOCK=1 << (columns - 1).bit_length() if columns > 1 else 1,
        num_warps=num_warps,
    )
    tolerance = 1e-6 if dtype == "float32" else 1e-3
    close(z, torch.softmax(x.float(), 1), 1e-5 if dtype == "float32" else 1e-3, tolerance)


@pytest.mark.parametrize("columns", [5, 1000, 4096])
@pytest.mark.parametrize("num_warps", [1, 4, 8])
def test_layer_norm(columns: int, num_warps: int) -> None:
    x, w, b = (
        torch.randn(19, columns, device="cuda"),
        torch.randn(columns, device="cuda"),
        torch.randn(columns, device="cuda"),
    )
    z = poisoned(x)
    kernels.layer_norm[(19,)](
        x, w, b, z, columns, 1e-5, BLOCK=1 << (columns - 1).bit_length(), num_warps=num_warps
    )
    close(z, torch.nn.functional.layer_norm(x, (columns,), w, b, 1e-5), 1e-4, 1e-5)


@pytest.mark.parametrize(
    ("m", "n", "k"), [(128, 128, 64), (1, 1, 1), (255, 129, 77), (512, 256, 384), (64, 1000, 33)]
)
@pytest.mark.parametrize("num_warps", [1, 4, 8])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_matmul(m: int, n: int, k: int, num_warps: int, dtype: str) -> None:
    a, b = (
        torch.randn(*shape, device="cuda").to(getattr(torch, dtype)) for shape in ((m, k), (k, n))
    )
    c = torch.full((m, n), float("nan"), device="cuda", dtype=a.dtype)
    kernels.matmul[(-(-m // 64) * -(-n // 64),)](
        a, b, c, m, n, k, BM=64, BN=64, BK=32, GROUP=4, num_warps=num_warps
    )
    close(c, a.float() @ b.float(), 1e-2, 1e-1 if dtype == "bfloat16" else 2e-2)


@pytest.mark.parametrize(
    ("precision", "rtol"),
    [("ieee", 1e-5), ("tf32", 5e-3), ("tf32x3", 1e-5), ("bf16x3", 1e-4), ("bf16x6", 1e-5)],
)
def test_matmul_of_f32(precision: str, rtol: float) -> None:
    a, b = torch.randn(200, 300, device="cuda"), torch.randn(300, 100, device="cuda")
    c = torch.full((200, 100), float("nan"), device="cuda")
    kernels.matmul[(4 * 2,)](
        a, b, c, 200, 100, 300, BM=64, BN=64, BK=32, GROUP=4, PRECISION=precision
    )
    exact = a.double() @ b.double()
    error = ((c.double() - exact).abs().max() / exact.abs().max()).item()
    assert error < rtol, error


def test_matmul_of_integers_is_exact() -> None:
    a, b = (
        torch.randint(-128, 128, shape, dtype=torch.int8, device="cuda")
        for shape in ((130, 200), (200, 70))
    )
    c = torch.full((130, 70), 77, dtype=torch.int32, device="cuda")
    kernels.matmul[(3 * 2,)](a, b, c, 130, 70, 200, BM=64, BN=64, BK=64, GROUP=2)
    assert torch.equal(c.cpu(), a.cpu().int() @ b.cpu().int())


@pytest.mark.parametrize("num_stages", [1, 2, 3, 4])
@pytest.mark.parametrize(
    ("bm", "bn", "bk", "num_warps"),
    [(128, 128, 64, 4), (128, 128, 32, 8), (64, 128, 64, 4), (16, 16, 16, 1), (128, 64, 32, 2)],
)
def test_matmul_pipelines(num_stages: int, bm: int, bn: int, bk: int, num_warps: int) -> None:
    a, b = torch.randn(300, 520, device="cuda").half(), torch.randn(520, 264, device="cuda").half()
    c = torch.full((300, 264), float("nan"), device="cuda", dtype=torch.float16)
    grid = (-(-300 // bm) * -(-264 // bn),)
    kernels.matmul[grid](
        a,
        b,
        c,
        300,
        264,
        520,
        BM=bm,
        BN=bn,
        BK=bk,
        GROUP=4,
        num_warps=num_warps,
        num_stages=num_stages,
    )
    close(c, a.float() @ b.float(), 1e-2, 5e-2)


@pytest.mark.parametrize("n", [64, 100, 512])
@pytest.mark.parametrize("num_warps", [1, 4, 8])
def test_attention(n: int, num_warps: int) -> None:
    q, k, v = (torch.randn(3, n, 64, device="cuda").half() for _ in range(3))
    out, lse = poisoned(q), poisoned(q[..., 0], torch.float32)
    kernels.attention_forward[(-(-n // 64), 3)](
        q, k, v, out, lse, n, 0.125, D=64, BM=64, BN=32, CAUSAL=False, num_warps=num_warps
    )
    close(
        out,
        torch.nn.functional.scaled_dot_product_attention(q.float(), k.float(), v.float()),
        1e-2,
        2e-3,
    )
    close(lse, torch.logsumexp(q.float() @ k.float().mT * 0.125, 2), 1e-3, 1e-3)


@pytest.mark.parametrize("name", ["exp", "exp2", "rsqrt", "quotient"])
def test_relaxed_functions_stay_within_their_bounds(name: str) -> None:
    """In units in the last place, from the relative errors of the instructions in the PTX ISA;
    results below the normal numbers may be zero."""
    x = (
        torch.empty(1 << 20, device="cuda").uniform_(-87, 88)
        if "exp" in name
        else torch.empty(1 << 20, device="cuda").uniform_(1e-6, 1e6)
    )
    y = torch.empty_like(x).uniform_(-9, 9)
    z = poisoned(x)
    kernels.function[(1 << 10,)](x, y, z, NAME=name, BLOCK=1024)
    wide, other = x.double(), y.double()
    exact = {
        "exp": wide.exp(),
        "exp2": wide.exp2(),
        "rsqrt": wide.rsqrt(),
        "quotient": wide / other,
    }[name]
    unit = torch.exp2(torch.floor(torch.log2(exact.abs())) - 23)
    error = ((z.double() - exact).abs() / unit)[exact.abs() > 2.0**-125]
    bound = {
        "exp": 2.9 + 1.173 * x.abs().double()[exact.abs() > 2.0**-125],
        "exp2": 2.9,
        "rsqrt": 2.2,
        "quotient": 2.0,
    }[name]
    assert (error <= bound).all(), error.max()
    special = torch.tensor([float("inf"), float("-inf"), float("nan"), 0.0], device="cuda")
    kernels.function[(1,)](special, torch.ones_like(special), poisoned(special), NAME=name, BLOCK=4)


@pytest.mark.parametrize("name", ["rounded quotient", "rounded root"])
def test_functions_rounded_correctly_are_not_relaxed(name: str) -> None:
    x, y = torch.randn(1 << 20, device="cuda").abs(), torch.randn(1 << 20, device="cuda")
    z = poisoned(x)
    kernels.function[(1 << 10,)](x, y, z, NAME=name, BLOCK=1024)
    assert torch.equal(
        z, (x.double() / y.double() if name == "rounded quotient" else x.double().sqrt()).float()
    )


def test_dropout_is_that_of_the_cpu() -> None:
    x = torch.randn(5000, device="cuda")
    z, host = poisoned(x), torch.empty(5000)
    kernels.dropout[(5,)](x, z, 5000, 0.3, 123, BLOCK=1024)
    kernels.dropout[(5,)](x.cpu(), host, 5000, 0.3, 123, BLOCK=1024)
    torch.testing.assert_close(z.cpu(), host)


def test_assembly() -> None:
    x = torch.randint(-1000, 1000, (128,), dtype=torch.int32, device="cuda")
    z = poisoned(x)
    kernels.assembly[(1,)](x, z, BLOCK=128)
    assert torch.equal(z, x << 3)
    x = torch.randint(-128, 128, (512,), dtype=torch.int8, device="cuda")
    z = poisoned(x)
    kernels.packed_assembly[(1,)](x, z, BLOCK=512)
    assert torch.equal(z, ~x)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64", "int32", "int64"])
def test_atomic_sums(dtype: str) -> None:
    x = torch.randint(-3, 4, (1024,), device="cuda").to(getattr(torch, dtype))
    z = torch.zeros(4, dtype=x.dtype, device="cuda")
    kernels.sums[(1,)](x, z, 1000, BLOCK=1024, ORDER="relaxed", SCOPE="gpu")
    x[1000:] = 0
    assert torch.equal(z, x.view(-1, 4).double().sum(0).to(x.dtype))


def test_atomic_extremes() -> None:
    x = torch.randn(512, device="cuda")
    z = torch.tensor([-9.0, -9.0, 9.0, 9.0], device="cuda")
    kernels.extremes[(1,)](x, z, BLOCK=512)
    pairs = x.view(-1, 2)
    assert torch.equal(z, torch.cat([pairs.amax(0), pairs.amin(0)]))


# ---- launching


def test_launches_go_to_the_current_stream() -> None:
    stream = torch.cuda.Stream()
    x, y = torch.randn(1 << 20, device="cuda"), torch.randn(1 << 20, device="cuda")
    z = poisoned(x)
    kernels.add[(1024,)](x, y, z, 1 << 20, BLOCK=1024)  # compiled
    torch.cuda.synchronize()
    z.fill_(float("nan"))
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(50_000_000)
        x.add_(1)
        kernels.add[(1024,)](x, y, z, 1 << 20, BLOCK=1024)
    stream.synchronize()
    assert torch.equal(z, x + y)


def test_a_graph_is_captured_and_replayed() -> None:
    x, y = torch.randn(4096, device="cuda"), torch.randn(4096, device="cuda")
    z = poisoned(x)
    kernels.add[(4,)](x, y, z, 4096, BLOCK=1024)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kernels.add[(4,)](x, y, z, 4096, BLOCK=1024)
    x.mul_(2)
    z.fill_(float("nan"))
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(z, x + y)


def test_kernels_that_may_overlap_see_what_the_one_before_wrote() -> None:
    x = torch.zeros(1 << 16, device="cuda")
    one = torch.ones_like(x)
    for _ in range(200):
        kernels.add[(64,)](x, one, x, 1 << 16, BLOCK=1024, launch_pdl=True)
    torch.cuda.synchronize()
    assert torch.equal(x, torch.full_like(x, 200.0))


def test_threads_launch_at_the_same_time() -> None:
    def work(seed: int) -> None:
        generator = torch.Generator("cuda").manual_seed(seed)
        for _ in range(50):
            x, y = (torch.randn(2048, device="cuda", generator=generator) for _ in range(2))
            z = poisoned(x)
            kernels.add[(2,)](x, y, z, 2048, BLOCK=1024)
            torch.cuda.current_stream().synchronize()
            assert torch.equal(z, x + y)

    side_by_side(4, work)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_two_devices() -> None:
    for index in (0, 1, 0):
        x = torch.randn(3000, device=f"cuda:{index}")
        z = poisoned(x)
        kernels.add[(3,)](x, x, z, 3000, BLOCK=1024)
        torch.cuda.synchronize(index)
        assert torch.equal(z, x + x)


def test_host_arrays_are_refused_by_name() -> None:
    from tilewright.errors import TilewrightError

    x = torch.randn(1024, device="cuda")
    compiled = kernels.add[(1,)](x, x, poisoned(x), 1024, BLOCK=1024)
    with pytest.raises(TilewrightError, match="cpu tensor"):
        kernels.add[(1,)](x, x.cpu(), x, 1024, BLOCK=1024)
    assert compiled.n_regs > 0 and compiled.n_spills == 0


def test_buffers_without_torch() -> None:
    import numpy as np

    from tilewright.plugins.registry import registry

    backend = registry().get("nvidia")
    device = backend.call("tilewright_devices")[0]
    memory = backend.call("tilewright_memory", device=device)
    data = np.arange(100, dtype=np.float32)
    buffer = memory.allocate(data.nbytes, 256)
    memory.copy_to_device(buffer, memoryview(data))
    seen = torch.as_tensor(buffer, device="cuda").view(torch.float32)
    assert torch.equal(seen.cpu(), torch.from_numpy(data))


_CRASHES = """
import sys
sys.path.insert(0, {folder!r})
import torch, tilewright
import gpu_kernels as kernels
x = torch.zeros(16, device="cuda")
try:
    {statement}
    torch.cuda.synchronize()
except Exception as error:
    print("torch:", str(error)[:40])
try:
    kernels.add[(1,)](x, x, x, 16, BLOCK=16)
    torch.cuda.synchronize()
except tilewright.errors.KernelError as error:
    print("ours:", error)
"""


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("kernels.says[(100,)](x, 3, debug=True)", "a device-side assertion of a kernel failed"),
        (
            "from tilewright.runtime.arguments.array_protocols import ArrayView; "
            "bad = ArrayView(x, 16, 'fp32', (16,), (1,), ('cuda', 0)); "
            "kernels.volatile_copy[(1,)](bad, x)",
            "illegal address",
        ),
    ],
)
def test_failures_on_the_device_are_told(statement: str, words: str) -> None:
    script = _CRASHES.format(folder=str(Path(__file__).resolve().parents[1]), statement=statement)
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=300, check=False
    )
    assert "ours:" in done.stdout and words in done.stdout, done.stdout + done.stderr


def test_a_warm_start_links_nothing(tmp_path: Path) -> None:
    script = (
        f"import sys; sys.path.insert(0, {str(Path(__file__).resolve().parents[1])!r})\n"
        "import torch, gpu_kernels as kernels\n"
        "x = torch.zeros(1024, device='cuda'); k = kernels.add[(1,)](x, x, x, 1024, BLOCK=1024); "
        "torch.cuda.synchronize()\n"
        "print(k.cache_hit, 'cubin' in k.asm, k.timings)"
    )
    import os

    environment = {**os.environ, "TILEWRIGHT_CACHE_DIR": str(tmp_path), "CUDA_CACHE_DISABLE": "1"}
    found = [
        subprocess.run(
            [sys.executable, "-c", script],
            capture_output=True,
            text=True,
            env=environment,
            timeout=300,
            check=True,
        ).stdout
        for _ in range(2)
    ]
    assert found[0].startswith("False True") and found[1].startswith("True True"), found
