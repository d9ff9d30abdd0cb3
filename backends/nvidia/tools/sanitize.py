"""Kernels for compute-sanitizer to watch: every operation of the table, and the classic kernels at
small sizes. One process, without PyTorch.

    compute-sanitizer --tool racecheck --error-exitcode 9 python3 backends/nvidia/tools/sanitize.py

Every buffer is an allocation of its own, so that memcheck sees each access past its end. Exits with
status 1 where a result is wrong.
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "examples"))
import gpu_kernels
from gpu_support import run_on_gpu
from kernels.attention import attention
from kernels.attention_backward import attention_backward

from tilewright.errors import TilewrightError
from tilewright.gpu_host.memory import DeviceMemory
from tilewright.ir import TABLE
from tilewright.reference.interpreter import run
from tilewright.runtime.arguments.array_protocols import ArrayView
from tilewright_conformance.op_samples import Sample, check_outputs, samples
from tilewright_conformance.oracles import attention as exact_attention
from tilewright_conformance.oracles import rowwise
from tilewright_nvidia.host.driver import driver

#: Operations whose samples no GPU runs; the classic kernels have inline assembly.
_APART = {"inline_asm", "extern"}
_RNG = np.random.default_rng(5)
_NAMES = {"float32": "fp32", "float16": "fp16", "int32": "i32", "int8": "i8"}

Array = np.ndarray[Any, Any]


# ---- operations


def extents(sample: Sample) -> list[int]:
    """The numbers of elements of a sample's tiles; empty where GPUs do not take them."""
    types = [
        value.type
        for operation in sample.module.kernel.walk()
        for value in (*operation.results, *operation.operands)
    ]
    shapes = [shape for shape in (getattr(type_, "shape", ()) for type_ in types) if shape]
    if any(extent & (extent - 1) for shape in shapes for extent in shape):
        return []
    return [int(np.prod(shape)) for shape in shapes] or [1]


def operation(name: str, num_warps: int, count: int) -> None:
    """The samples of an operation with the largest tiles, which are what needs shared memory."""
    fitting = [sample for sample in samples(name) if sample.runnable and extents(sample)]
    fitting.sort(key=lambda sample: -max(extents(sample)))
    assert fitting, f"no sample of {name} fits"
    for number, sample in enumerate(fitting[:count]):
        expected, found = (sample.make_arguments(np.random.default_rng(number)) for _ in range(2))
        with np.errstate(all="ignore"):
            run(sample.module, expected, sample.grid, printer=lambda *_: None)
        run_on_gpu(sample.module, found, sample.grid, num_warps=num_warps)
        check_outputs(sample, expected, found)


# ---- classic kernels


class OnDevice(ArrayView):
    """A copy of an array on the GPU, as kernels take it."""

    __slots__ = ("memory",)

    def __init__(self, array: Array) -> None:
        self.memory = DeviceMemory(0, driver())
        array = np.ascontiguousarray(array)
        buffer = self.memory.allocate(array.nbytes, 256)
        self.memory.copy_to_device(buffer, memoryview(array.reshape(-1).view(np.uint8)))
        strides = tuple(stride // array.itemsize for stride in array.strides)
        super().__init__(
            buffer, buffer.data_ptr(), _NAMES[array.dtype.name], array.shape, strides, ("cuda", 0)
        )

    def host(self) -> Array:
        """What it holds when all kernels have ended."""
        dtype = {name: dtype for dtype, name in _NAMES.items()}[self.dtype]
        found = np.empty(self.shape, dtype)
        self.memory.synchronize()
        self.memory.copy_to_host(self.owner, memoryview(found.reshape(-1).view(np.uint8)))
        return found


def normal(*shape: int, dtype: str = "float32") -> Array:
    return _RNG.standard_normal(shape).astype(dtype)


def poisoned(*shape: int, dtype: str = "float32") -> OnDevice:
    return OnDevice(np.full(shape, np.nan if dtype[0] == "f" else 77, dtype))


def close(found: Array, exact: Array, error: float) -> None:
    """Compare, by the greatest error in parts of the greatest result."""
    worst = np.abs(found.astype(float) - exact).max() / np.abs(exact).max()
    assert worst < error, f"the error is {worst}"


def add(num_warps: int) -> None:
    x, y, z = normal(1000), normal(1000), poisoned(1000)
    gpu_kernels.add[(4,)](OnDevice(x), OnDevice(y), z, 1000, BLOCK=256, num_warps=num_warps)
    assert np.array_equal(z.host(), x + y)


def softmax(num_warps: int) -> None:
    x, z = normal(5, 781), poisoned(5, 781)
    gpu_kernels.softmax[(5,)](OnDevice(x), z, 781, BLOCK=1024, num_warps=num_warps)
    close(z.host(), rowwise.softmax(x), 1e-5)


def layer_norm(num_warps: int) -> None:
    x, w, b, z = normal(5, 300), normal(300), normal(300), poisoned(5, 300)
    gpu_kernels.layer_norm[(5,)](
        OnDevice(x), OnDevice(w), OnDevice(b), z, 300, 1e-5, BLOCK=512, num_warps=num_warps
    )
    close(z.host(), rowwise.layer_norm(x, w, b, 1e-5)[0], 1e-4)


def dropout(num_warps: int) -> None:
    x, z = normal(1000), poisoned(1000)
    gpu_kernels.dropout[(4,)](OnDevice(x), z, 1000, 0.5, 7, BLOCK=256, num_warps=num_warps)
    found = z.host()
    close(found[found != 0], x[found != 0] * 2.0, 1e-6)
    assert 350 < (found == 0).sum() < 650


#: Sizes that are multiples of 16 where rows are contiguous, so that loads are asynchronous copies
#: in a ring of buffers; and sizes that are not.
_ALIGNED, _ODD = (100, 144, 208), (100, 137, 203)


def matmul(
    num_warps: int,
    num_stages: int,
    dtype: str,
    precision: str = "ieee",
    sizes: tuple[int, int, int] = _ALIGNED,
) -> None:
    m, n, k = sizes
    a, b = (
        normal(*shape, dtype=dtype)
        if dtype[0] == "f"
        else _RNG.integers(-9, 9, shape).astype(dtype)
        for shape in ((m, k), (k, n))
    )
    c = poisoned(m, n, dtype="float32" if dtype[0] == "f" else "int32")
    blocks = {"BM": 64, "BN": 64, "BK": 32, "GROUP": 2, "PRECISION": precision}
    gpu_kernels.matmul[(2 * 3,)](
        OnDevice(a), OnDevice(b), c, m, n, k, **blocks, num_warps=num_warps, num_stages=num_stages
    )
    close(c.host(), a.astype(float) @ b.astype(float), 1e-2 if precision == "tf32" else 1e-4)


def forward(num_warps: int, dtype: str, depth: int) -> None:
    q, k, v = (normal(2, 100, depth, dtype=dtype) for _ in range(3))
    out, lse = poisoned(2, 100, depth, dtype=dtype), poisoned(2, 100)
    gpu_kernels.attention_forward[(2, 2)](
        *map(OnDevice, (q, k, v)),
        out,
        lse,
        100,
        depth**-0.5,
        D=depth,
        BM=64,
        BN=32,
        CAUSAL=False,
        num_warps=num_warps,
    )
    close(out.host(), exact_attention.forward(q, k, v, depth**-0.5, causal=False)[0], 5e-3)


def backward(dtype: str) -> None:
    heads, length, depth = 2, 100, 32
    q, k, v, dout = (normal(heads, length, depth, dtype=dtype) for _ in range(4))
    placed, (out, dq, dk, dv) = (
        [OnDevice(x) for x in (q, k, v)],
        (poisoned(heads, length, depth, dtype=dtype) for _ in range(4)),
    )
    lse, delta = poisoned(heads, length), poisoned(heads, length)
    attention(*placed, out, lse, causal=True, block=(32, 32))
    attention_backward(
        *placed, out, lse, OnDevice(dout), dq, dk, dv, delta, causal=True, block=(32, 32)
    )
    close(out.host(), exact_attention.forward(q, k, v, depth**-0.5, causal=True)[0], 5e-3)
    for found, exact in zip(
        (dq, dk, dv),
        exact_attention.gradients(q, k, v, dout, depth**-0.5, causal=True),
        strict=True,
    ):
        close(found.host(), exact, 1e-2)


def atomics(num_warps: int) -> None:
    x, z = normal(512), OnDevice(np.zeros(4, np.float32))
    gpu_kernels.sums[(1,)](
        OnDevice(x), z, 500, BLOCK=512, ORDER="relaxed", SCOPE="gpu", num_warps=num_warps
    )
    x[500:] = 0
    close(z.host(), x.reshape(-1, 4).astype(float).sum(0), 1e-4)


def assembly(num_warps: int) -> None:
    x, z = _RNG.integers(-1000, 1000, 128).astype(np.int32), poisoned(128, dtype="int32")
    gpu_kernels.assembly[(1,)](OnDevice(x), z, BLOCK=128, num_warps=num_warps)
    assert np.array_equal(z.host(), x << 3)


def works(
    warps: Sequence[int], count: int, names: Sequence[str]
) -> Iterator[tuple[str, Callable[[], None]]]:
    """Everything there is to run, by name."""
    for name in (
        spec.name for spec in TABLE if spec.name not in _APART and (not names or spec.name in names)
    ):
        for n in warps:
            yield f"{name}, {n} warps", lambda name=name, n=n: operation(name, n, count)
    if names:
        return
    for n in warps:
        for kernel in (add, softmax, layer_norm, dropout, atomics, assembly):
            yield f"{kernel.__name__}, {n} warps", lambda kernel=kernel, n=n: kernel(n)
        for stages in (1, 2, 3, 4):
            yield (
                f"matmul f16, {n} warps, {stages} stages",
                lambda n=n, stages=stages: matmul(n, stages, "float16"),
            )
        yield f"matmul f16, {n} warps, odd sizes", lambda n=n: matmul(n, 3, "float16", sizes=_ODD)
        yield f"matmul i8, {n} warps", lambda n=n: matmul(n, 3, "int8")
        for precision in ("ieee", "tf32"):
            yield (
                f"matmul f32 {precision}, {n} warps",
                lambda n=n, precision=precision: matmul(n, 3, "float32", precision),
            )
        for dtype in ("float16", "float32"):
            yield f"attention {dtype}, {n} warps", lambda n=n, dtype=dtype: forward(n, dtype, 32)
    for dtype in ("float16", "float32"):
        yield f"attention backward {dtype}", lambda dtype=dtype: backward(dtype)


def main() -> int:
    parser = argparse.ArgumentParser(description="kernels for compute-sanitizer to watch")
    parser.add_argument("--warps", type=int, nargs="*", default=[1, 4, 8])
    parser.add_argument("--samples", type=int, default=1, help="how many samples of each operation")
    parser.add_argument(
        "--only",
        nargs="*",
        default=[],
        metavar="OPERATION",
        help="these operations and nothing else",
    )
    options = parser.parse_args()
    start, wrong, count = time.perf_counter(), [], 0
    for name, work in works(options.warps, options.samples, options.only):
        count += 1
        try:
            work()
        except (TilewrightError, AssertionError):
            wrong.append(name)
            print(f"{name}:\n{traceback.format_exc()}", flush=True)
    print(
        f"{count} kernels or operations, {len(wrong)} wrong, {time.perf_counter() - start:.0f} "
        f"s{': ' + '; '.join(wrong) if wrong else ''}"
    )
    return bool(wrong) or not count


if __name__ == "__main__":
    sys.exit(main())
