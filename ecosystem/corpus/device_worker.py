"""A process that runs records on the GPU with whatever ``triton`` is in it, and measures.

    python -m corpus.device_worker JOBS RESULTS FOLDER ROUND

JOBS is a file of JSON: a list of [number, record]. For each record two lines of JSON are appended to
RESULTS: one before, so that whoever started this knows what ended the process, and one with the times.
In round 0 FOLDER gets what each tensor that changed holds afterwards, as ``NUMBER.npz``.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from corpus import data, load
from corpus.launches import Argument, Launch, launch_of

#: Bytes of a tensor that are compared.
_COMPARED = 64 << 20
#: Launches of a graph, and replays of it.
_LAUNCHES, _REPLAYS = 20, 15
#: Launches that host time is measured of: fewer than a stream holds.
_CALLS, _ROUNDS = 200, 5

_DTYPES = {
    "fp64": torch.float64,
    "fp32": torch.float32,
    "fp16": torch.float16,
    "bf16": torch.bfloat16,
    "i64": torch.int64,
    "u64": torch.uint64,
    "i32": torch.int32,
    "u32": torch.uint32,
    "i16": torch.int16,
    "u16": torch.uint16,
    "i8": torch.int8,
    "u8": torch.uint8,
    "i1": torch.bool,
    "fp8e4nv": torch.float8_e4m3fn,
    "fp8e5": torch.float8_e5m2,
    "fp8e4b8": torch.float8_e4m3fnuz,
    "fp8e5b16": torch.float8_e5m2fnuz,
}


def main() -> None:
    jobs, results, folder = Path(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3])
    first_round = sys.argv[4] == "0"
    torch.zeros(1, device="cuda")  # what the first use of the device takes is no kernel's time
    with results.open("a") as out:
        for number, record in json.loads(jobs.read_text()):
            launch = launch_of(record)
            _write(out, {"number": number})
            try:
                found = _measure(launch, folder / f"{number}.npz" if first_round else None)
            except Exception as error:
                traceback.print_exc()
                found = {"error": f"{type(error).__name__}: {str(error).splitlines()[:1]}"[:300]}
            _write(out, {"number": number, "outcome": found})
            torch.cuda.empty_cache()


def _measure(launch: Launch, keep: Path | None) -> dict[str, Any]:
    """Times of a launch in microseconds: the first call, the device's, the host's."""
    tensors: dict[str, torch.Tensor] = {}
    arguments = [_value(launch, each, tensors) for each in launch.arguments]
    before = {name: each.clone() for name, each in tensors.items()} if keep else {}
    start = load.kernel(launch)[launch.grid]
    options = load.options(launch)

    def call() -> None:
        start(*arguments, **options)

    began = time.perf_counter()
    call()
    torch.cuda.synchronize()
    first = time.perf_counter() - began
    if keep is not None:
        _keep(keep, tensors, before)
    before.clear()
    return {"first": first * 1e6, "device": _device_time(call), "host": _host_time(call)}


def _value(launch: Launch, argument: Argument, tensors: dict[str, torch.Tensor]) -> Any:
    """An argument as a launch takes it; tensors are noted by name."""
    if argument.items is not None:
        return tuple(_value(launch, each, tensors) for each in argument.items)
    kind = data.element(argument)
    if argument.type == "constexpr":
        return load.constant(argument.value)
    if not kind:
        return data.number(argument)
    storage = _storage(launch, argument, kind)
    assert argument.shape is not None and argument.strides is not None
    tensors[argument.name] = storage
    tensor = storage.as_strided(argument.shape, argument.strides)
    if argument.type.startswith("*"):
        return tensor
    from triton.tools.tensor_descriptor import TensorDescriptor  # type: ignore[import-untyped]

    shape, strides = list(argument.shape), list(argument.strides)
    padding = {"padding": argument.padding} if argument.padding else {}
    return TensorDescriptor(tensor, shape, strides, list(argument.block or ()), **padding)


def _storage(launch: Launch, argument: Argument, kind: str) -> torch.Tensor:
    """A tensor of all elements between the first and the last, filled by a pattern."""
    pattern = torch.from_numpy(data.contents(launch, argument, 1 << 20).view(np.uint8).copy()).cuda()
    size = data.extent(argument) * _DTYPES[kind].itemsize
    repeated = pattern.repeat(-(-size // pattern.numel()))[:size]
    return repeated.view(_DTYPES[kind])


def _keep(file: Path, tensors: dict[str, torch.Tensor], before: dict[str, torch.Tensor]) -> None:
    """Keep the tensors that a launch changed, up to a size."""
    changed = {}
    for name, tensor in tensors.items():
        now, then = tensor.view(torch.uint8), before[name].view(torch.uint8)
        if not torch.equal(now, then):
            changed[name] = now[:_COMPARED].cpu().numpy()
    np.savez(file, **changed)


def _device_time(call: Callable[[], None]) -> float:
    """Microseconds of the device for a launch: the median of replays of a graph of launches."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        call()
        stream.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            for _ in range(_LAUNCHES):
                call()
        times: list[float] = []
        for _ in range(_REPLAYS):
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record(stream)
            graph.replay()
            end.record(stream)
            end.synchronize()
            times.append(start.elapsed_time(end) * 1e3 / _LAUNCHES)
    return statistics.median(times)


def _host_time(call: Callable[[], None]) -> float:
    """Microseconds of the host for a launch: the least mean of several rounds."""
    best = float("inf")
    for _ in range(_ROUNDS):
        torch.cuda.synchronize()
        began = time.perf_counter()
        for _ in range(_CALLS):
            call()
        best = min(best, (time.perf_counter() - began) / _CALLS)
    torch.cuda.synchronize()
    return best * 1e6


def _write(out: Any, line: dict[str, Any]) -> None:
    out.write(json.dumps(line) + "\n")
    out.flush()


if __name__ == "__main__":
    main()
