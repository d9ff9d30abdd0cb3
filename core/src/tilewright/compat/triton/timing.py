"""Timing of calls: the benchmarks of ``triton.testing``."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from tilewright.testing import do_bench as own_bench
from tilewright.testing.bench import RETURN_MODES, summarize

_GRAPH_REPLAYS = 10
#: Kernel calls in one graph, however short they are.
_MOST_CALLS = 1000


def do_bench(
    fn: Callable[[], Any],
    warmup: float = 25,
    rep: float = 100,
    grad_to_none: Iterable[Any] | None = None,
    quantiles: Sequence[float] | None = None,
    return_mode: str = "mean",
    n_warmup: int | None = None,
    n_repeat: int | None = None,
) -> Any:
    """Milliseconds that ``fn()`` takes; see :func:`tilewright.testing.do_bench`."""
    assert return_mode in RETURN_MODES, f"return_mode is one of {', '.join(RETURN_MODES)}"
    return own_bench(
        fn, warmup, rep, grad_to_none, quantiles, return_mode, n_warmup=n_warmup, n_repeat=n_repeat
    )


def do_bench_cudagraph(
    fn: Callable[[], Any],
    rep: float = 20,
    grad_to_none: Iterable[Any] | None = None,
    quantiles: Sequence[float] | None = None,
    return_mode: str = "mean",
) -> Any:
    """Return the milliseconds of ``fn()`` on a CUDA GPU without the host's part.

    Calls are recorded in a graph that is replayed. Needs PyTorch.

    Args:
        rep: milliseconds that one replay takes, about.

    Raises:
        RuntimeError: called while the current stream is being captured.
    """
    import torch

    assert return_mode in RETURN_MODES, f"return_mode is one of {', '.join(RETURN_MODES)}"
    refuse_within_capture()
    grads = list(grad_to_none or ())

    def call() -> None:
        for tensor in grads:
            tensor.grad = None
        fn()

    def five_calls() -> None:
        for _ in range(5):
            call()

    with torch.cuda.stream(torch.cuda.Stream()):
        fn()  # compiles, tunes, allocates
        for tensor in grads:
            tensor.detach_()
            tensor.requires_grad_(True)
        estimate = _elapsed(torch, five_calls) / 5
        calls = _MOST_CALLS if estimate == 0 else min(_MOST_CALLS, max(1, int(rep / estimate)))
        graph = torch.cuda.CUDAGraph()
        with cuda_graph_without_gc(graph):
            for _ in range(calls):
                call()
        torch.cuda.synchronize()
        return summarize(
            [_elapsed(torch, graph.replay) / calls for _ in range(_GRAPH_REPLAYS)],
            quantiles,
            return_mode,
        )


def refuse_within_capture() -> None:
    """Raise a RuntimeError where the current CUDA stream is being captured."""
    import torch

    if torch.cuda.is_available() and torch.cuda.is_current_stream_capturing():
        raise RuntimeError(
            "a CUDA graph cannot be recorded while another is. Warm up autotuned kernels before "
            "capturing, so that they are not tuned within it"
        )


@contextlib.contextmanager
def cuda_graph_without_gc(*args: Any, **kwargs: Any) -> Iterator[None]:
    """``torch.cuda.graph(*args, **kwargs)`` without garbage collection while recording.

    A collected object's GPU work would be recorded too.
    """
    import gc

    import torch

    was_enabled = gc.isenabled()
    gc.disable()
    try:
        with torch.cuda.graph(*args, **kwargs):
            yield
    finally:
        if was_enabled:
            gc.enable()


def _elapsed(torch: Any, call: Callable[[], Any]) -> float:
    """Milliseconds on the GPU."""
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    call()
    end.record()
    torch.cuda.synchronize()
    return float(start.elapsed_time(end))
