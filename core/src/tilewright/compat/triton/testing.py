"""``triton.testing``: timing, comparison, reports, and what the hardware could do at best."""

from __future__ import annotations

import contextlib
import functools
import os
import subprocess
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from tilewright.compat.triton import runtime
from tilewright.compat.triton.outside import OutsideNameError
from tilewright.compat.triton.timing import (
    cuda_graph_without_gc,
    do_bench,
    do_bench_cudagraph,
    refuse_within_capture,
)
from tilewright.testing import Benchmark, Mark, assert_close, perf_report
from tilewright.testing.bench import summarize as _summarize_statistics


def _proton() -> OutsideNameError:
    return OutsideNameError(
        "Proton is not part of tilewright.compat.triton: measure with do_bench or "
        "do_bench_cudagraph"
    )


def do_bench_proton(
    fn: Callable[[], Any],
    warmup: float = 25,
    rep: float = 100,
    grad_to_none: Iterable[Any] | None = None,
    quantiles: Sequence[float] | None = None,
    return_mode: str = "mean",
) -> Any:
    """Raises OutsideNameError: it measures with the Proton profiler."""
    raise _proton()


def do_bench_cudagraph_proton(
    fn: Callable[[], Any],
    rep: float = 20,
    grad_to_none: Iterable[Any] | None = None,
    quantiles: Sequence[float] | None = None,
    return_mode: str = "mean",
) -> Any:
    """Raise OutsideNameError: it measures with the Proton profiler.

    Like :func:`do_bench_cudagraph` it refuses to run within a capture.
    """
    refuse_within_capture()
    raise _proton()


def nvsmi(attrs: Sequence[str]) -> list[int]:
    """Numbers that ``nvidia-smi`` tells of the first GPU: ``nvsmi(["clocks.current.sm"])``."""
    printed = subprocess.check_output(
        [
            "nvidia-smi",
            "-i",
            "0",
            f"--query-gpu={','.join(attrs)}",
            "--format=csv,noheader,nounits",
        ],
        text=True,
    )
    return [int(text) for text in printed.strip().split(",")]


def _driver() -> Any:
    from tilewright.compat.triton.runtime.driver import driver

    return driver.active


def get_dram_gbps(device: int | None = None) -> float:
    """The bandwidth of a GPU's memory in GB/s, from its clock and the width of its bus."""
    driver = _driver()
    facts = driver.utils.get_device_properties(
        driver.get_current_device() if device is None else device
    )
    return float(facts["mem_clock_rate"] * facts["mem_bus_width"] * 2 / 1e6 / 8)


def _bits(dtype: Any) -> int:
    size = getattr(dtype, "primitive_bitwidth", None)
    return int(size) if size is not None else int(dtype.itemsize) * 8


def get_max_tensorcore_tflops(dtype: Any, clock_rate: float, device: int | None = None) -> float:
    """Return the peak of an NVIDIA GPU's tensor cores, in 10^12 operations a second.

    The clock rate is in kHz.

    Raises:
        RuntimeError: they have no products of this type.
    """
    driver = _driver()
    index = driver.get_current_device() if device is None else device
    major = driver.get_device_capability(index)[0]
    bits = _bits(dtype)
    if major < 8:
        assert bits == 16, "tensor cores before compute capability 8.0 multiply float16"
        per_unit = 256
    elif bits not in (8, 16, 32):
        raise RuntimeError("dtype not supported")
    else:
        per_unit = 8192 // bits  # a unit's operations a cycle double as the elements halve
    units = driver.utils.get_device_properties(index)["multiprocessor_count"] * 4
    return float(units * clock_rate * per_unit * 1e-9)


def get_max_simd_tflops(dtype: Any, clock_rate: float, device: int | None = None) -> float:
    """Return the peak of an NVIDIA GPU without its tensor cores, in 10^12 operations a second.

    The clock rate is in kHz.

    Raises:
        RuntimeError: the type is neither float16, bfloat16 nor float32.
    """
    driver = _driver()
    index = driver.get_current_device() if device is None else device
    bits = _bits(dtype)
    if bits not in (16, 32):
        raise RuntimeError("dtype not supported")
    per_unit = 1024 // bits  # 16 fused multiply-adds of 32 bits a cycle, twice as many of 16
    units = driver.utils.get_device_properties(index)["multiprocessor_count"] * 4
    return float(units * clock_rate * per_unit * 1e-9)


def cuda_memcheck(**target_kwargs: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Run a test with these arguments again under ``compute-sanitizer``, in a new process.

    The test takes pytest's ``request``.
    """

    def decorate(test: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(test)
        def wrapper(*args: Any, **kwargs: Any) -> None:
            if (
                os.environ.get("TILEWRIGHT_IN_MEMCHECK") == "1"
                or not target_kwargs.items() <= kwargs.items()
            ):
                test(*args, **kwargs)
                return
            assert "request" in kwargs, (
                "a test that is checked for memory errors takes pytest's fixture `request`"
            )
            path = os.path.realpath(test.__globals__["__file__"])
            command = [
                "compute-sanitizer",
                "pytest",
                "-vs",
                f"{path}::{test.__name__}[{kwargs['request'].node.callspec.id}]",
            ]
            environment = {
                **os.environ,
                "PYTORCH_NO_CUDA_MEMORY_CACHING": "1",
                "TILEWRIGHT_IN_MEMCHECK": "1",
            }
            out = subprocess.run(
                command, capture_output=True, env=environment, text=True, check=False
            )
            assert out.returncode == 0, f"the memory checker found errors: {out.stdout[-2000:]}"

        return wrapper

    return decorate


@contextlib.contextmanager
def set_gpu_clock(
    ref_sm_clock: int = 1350, ref_mem_clock: int = 1215
) -> Iterator[tuple[float, float]]:
    """Lock the first NVIDIA GPU's clocks (MHz) in the block.

    It yields the rates of an A100 at them: (10^12 operations, 10^9 bytes) a second.
    """

    def smi(*arguments: str) -> None:
        subprocess.check_output(["nvidia-smi", "-i", "0", *arguments])

    try:
        smi("-pm", "1")
        smi(f"--lock-gpu-clocks={ref_sm_clock},{ref_sm_clock}")
        smi(f"--lock-memory-clocks={ref_mem_clock},{ref_mem_clock}")
        now = nvsmi(["clocks.current.sm", "clocks.current.memory"])
        assert abs(now[0] - ref_sm_clock) < 10, f"GPU SMs must run at {ref_sm_clock} MHz"
        assert abs(now[1] - ref_mem_clock) < 10, f"GPU memory must run at {ref_mem_clock} MHz"
        yield 1e-6 * 2 * 108 * 4 * 256 * ref_sm_clock, 640 * 2 * ref_mem_clock * 1e-3
    finally:
        for arguments in (("-pm", "0"), ("-rgc",), ("-rmc",)):
            smi(*arguments)


def __getattr__(name: str) -> Any:
    if name == "cublas":
        raise OutsideNameError(
            "triton.testing.cublas is a binding of Triton's compiler to a vendor's library: "
            "compare with torch.matmul"
        )
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "Benchmark",
    "Mark",
    "_summarize_statistics",
    "assert_close",
    "cuda_graph_without_gc",
    "cuda_memcheck",
    "do_bench",
    "do_bench_cudagraph",
    "do_bench_cudagraph_proton",
    "do_bench_proton",
    "get_dram_gbps",
    "get_max_simd_tflops",
    "get_max_tensorcore_tflops",
    "nvsmi",
    "perf_report",
    "runtime",
    "set_gpu_clock",
]
