"""Several contexts in one process. Where there is one GPU, a second context of it stands for a
second device: it has its own memory and its own modules."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from typing import Any

import gpu_kernels as kernels
import numpy as np
import pytest
from gpu_support import gpu_is_there, launch_on_gpu, prepare

from tilewright.gpu_host.driver import Driver
from tilewright.gpu_host.table import Entry
from tilewright.reference.interpreter import run
from tilewright.testing.threads import side_by_side
from tilewright_conformance.op_samples import Sample, check_outputs, samples
from tilewright_nvidia.host.driver import driver
from tilewright_nvidia.host.driver_table import TABLE

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not gpu_is_there(), reason="there is no NVIDIA GPU here"),
]


def new_context(cuda: Driver) -> int:
    """A context of the first GPU that is no thread's current one."""
    handle = cuda.bindings.cuDeviceGet(0)[1]
    try:
        status, made = cuda.bindings.cuCtxCreate(None, 0, handle)
    except TypeError:  # before CUDA 13
        status, made = cuda.bindings.cuCtxCreate(0, handle)
    assert not int(status), cuda.error("cuCtxCreate", int(status))
    cuda("cuCtxPopCurrent")
    return int(made)


class OneGpuTwice(Driver):
    """The driver of a machine whose devices 0 and 1 are the primary and a second context of its
    first GPU."""

    def __init__(self, bindings: Any) -> None:
        super().__init__(TABLE, bindings)
        self.second = new_context(self)

    def __call__(self, entry: Entry, *arguments: Any) -> Any:
        return super().__call__(entry, *((0,) if entry == "cuDeviceGet" else arguments))

    def context(self, device: int) -> int:
        return self.second if device else super().context(0)


@pytest.fixture
def cuda() -> Iterator[OneGpuTwice]:
    made = OneGpuTwice(driver().bindings)
    yield made
    gc.collect()  # what lies in the second context goes before it
    made("cuCtxDestroy", made.bindings.CUcontext(made.second))


def chosen() -> list[Sample]:
    """Return kernels with shared memory, reductions, matmuls and atomics.

    The last fitting sample of each operation.
    """
    found = []
    for name in ("add", "reduce", "scan", "dot", "atomic_rmw", "store"):
        fitting = [sample for sample in samples(name) if sample.runnable and fits(sample)]
        assert fitting, name
        found.append(fitting[-1])
    return found


def fits(sample: Sample) -> bool:
    types = [
        value.type
        for operation in sample.module.kernel.walk()
        for value in (*operation.results, *operation.operands)
    ]
    return all(
        extent & (extent - 1) == 0 for type_ in types for extent in getattr(type_, "shape", ())
    )


@pytest.mark.parametrize("current", ["its own", "none", "the other's"])
def test_two_devices_from_two_threads(cuda: OneGpuTwice, current: str) -> None:
    """Whatever context is current in a thread, a kernel runs in that of its device, and the thread
    keeps its context."""
    start = threading.Barrier(2)
    contexts = [cuda.context(index) for index in (0, 1)]
    assert contexts[0] != contexts[1]

    def work(index: int) -> None:
        held = {"its own": contexts[index], "the other's": contexts[1 - index], "none": 0}[current]
        if held:
            cuda("cuCtxPushCurrent", cuda.bindings.CUcontext(held))
        try:
            loaded = [
                (sample, prepare(sample.module, index=index, cuda=cuda)) for sample in chosen()
            ]
            start.wait(900)
            for seed in range(10):
                for sample, (launch, memory) in loaded:
                    expected, found = (
                        sample.make_arguments(np.random.default_rng(seed + 100 * index))
                        for _ in range(2)
                    )
                    with np.errstate(all="ignore"):
                        run(sample.module, expected, sample.grid, printer=lambda *_: None)
                    # the default stream, which every context has
                    launch_on_gpu(launch, memory, found, sample.grid, index, stream=0)
                    check_outputs(sample, expected, found)
                    assert int(cuda("cuCtxGetCurrent")) == held
        except BaseException:
            start.abort()
            raise
        finally:
            if held:
                cuda("cuCtxPopCurrent")

    side_by_side(2, work)


def test_tensors_are_launched_on_while_a_context_of_ones_own_is_current() -> None:
    """As where another library has made itself a context: PyTorch's tensors are in the primary one,
    and that is where the kernel runs."""
    torch = pytest.importorskip("torch")
    cuda = driver()
    n = 100_000
    x, y = torch.randn(n, device="cuda"), torch.randn(n, device="cuda")
    results = [torch.full_like(x, float("nan")) for _ in range(2)]
    torch.cuda.synchronize()
    foreign = new_context(cuda)

    def launch_in(context: int, z: Any) -> None:
        if context:
            cuda("cuCtxPushCurrent", cuda.bindings.CUcontext(context))
        try:
            for _ in range(200):
                kernels.add[(-(-n // 1024),)](x, y, z, n, BLOCK=1024)
            assert int(cuda("cuCtxGetCurrent")) == context
        finally:
            if context:
                cuda("cuCtxPopCurrent")

    try:
        side_by_side(2, lambda number: launch_in((foreign, 0)[number], results[number]))
        torch.cuda.synchronize()
    finally:
        cuda("cuCtxDestroy", cuda.bindings.CUcontext(foreign))
    for z in results:
        assert torch.equal(z, x + y)


def test_two_gpus_from_two_threads() -> None:
    torch = pytest.importorskip("torch")
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two GPUs")

    def work(index: int) -> None:
        n = 5000
        x, y = (torch.randn(n, device=f"cuda:{index}") for _ in range(2))
        for _ in range(100):
            z = torch.full_like(x, float("nan"))
            kernels.add[(-(-n // 1024),)](x, y, z, n, BLOCK=1024)
            assert torch.equal(z, x + y)

    side_by_side(2, work)
