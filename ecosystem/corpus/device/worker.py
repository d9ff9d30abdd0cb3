"""A process that runs records on the GPU with whatever ``triton`` is in it, and measures.

    python -m corpus.device.worker DESCRIPTOR FOLDER

Each line of its standard input is a request, JSON of [action, number, record]; each is answered by
a line of JSON to the file descriptor DESCRIPTOR. ``import`` loads the kernel. ``run`` calls it
once: the answer has the time, and FOLDER gets what each tensor that changed holds afterwards, as
``NUMBER.npz``. ``exact`` does the same with floats of 32 bits in place of those of 16, which hold
the same numbers. ``time`` answers the times of the device and of the host.
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
from corpus.device.judge import WIDENED
from corpus.launches import Argument, Launch, launch_of

#: Bytes of a tensor that are compared.
_COMPARED = 16 << 20
#: Launches of a graph, and replays of it.
_LAUNCHES, _REPLAYS = 20, 10
#: Launches that host time is measured of: fewer than a stream holds.
_CALLS, _ROUNDS = 200, 4
#: Seconds of launches that are measured together, at most: for the time of the device, and of the
#: host, whose first launches after a wait take longer.
_SECONDS, _SECONDS_OF_HOST = 0.02, 0.2

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
    folder = Path(sys.argv[2])
    torch.zeros(1, device="cuda")  # what the first use of the device takes is no kernel's time
    prepared = _Prepared()
    with open(int(sys.argv[1]), "w") as answers:
        for request in sys.stdin:
            action, number, record = json.loads(request)
            answers.write(
                json.dumps(_outcome(action, number, launch_of(record), folder, prepared)) + "\n"
            )
            answers.flush()


def _outcome(
    action: str, number: str, launch: Launch, folder: Path, prepared: _Prepared
) -> dict[str, Any]:
    """The answer, or the error: ``absent`` where the kernel cannot be loaded, ``last`` where the
    device takes no more.
    """
    absent = True
    try:
        load.kernel(launch)
        absent = False
        return _answer(action, number, launch, folder, prepared)
    except Exception as error:
        traceback.print_exc()
        text = f"{type(error).__name__}: {str(error).splitlines()[:1]}"[:300]
    answers = _device_answers()
    if answers:
        prepared.forget()
    return {"error": text, "absent": absent, "last": not answers}


class _Prepared:
    """The call that was made last: the rounds of a launch's times are of one call."""

    def __init__(self) -> None:
        self.number = ""
        self.call: Callable[[], None] | None = None

    def forget(self) -> None:
        """Let its tensors go."""
        self.number, self.call = "", None
        torch.cuda.empty_cache()


def _answer(
    action: str, number: str, launch: Launch, folder: Path, prepared: _Prepared
) -> dict[str, Any]:
    """What is asked for: an import, the first call, or times in microseconds."""
    if action == "import":
        return {}
    if action in ("run", "exact"):
        return _first_call(launch, folder / f"{number}.npz", exact=action == "exact")
    if prepared.number != number:
        prepared.forget()
        prepared.call, _ = _call(launch)
        prepared.number = number
    assert prepared.call is not None
    return _times(prepared.call)


def _call(
    launch: Launch, exact: bool = False
) -> tuple[Callable[[], None], dict[str, torch.Tensor]]:
    """(what launches the kernel, the tensors by name); ``exact``: floats of 16 bits have 32."""
    tensors: dict[str, torch.Tensor] = {}
    arguments = [_value(launch, each, tensors, exact) for each in launch.arguments]
    start, options = load.kernel(launch)[launch.grid], load.options(launch)
    return lambda: start(*arguments, **options), tensors


def _first_call(launch: Launch, file: Path, exact: bool) -> dict[str, float]:
    """The time of the first call; the tensors that it changes are kept."""
    call, tensors = _call(launch, exact)
    before = {name: each.clone() for name, each in tensors.items()}
    torch.cuda.synchronize()
    began = time.perf_counter()
    call()
    torch.cuda.synchronize()
    first = time.perf_counter() - began
    _keep(file, tensors, before, 2 * _COMPARED if exact else _COMPARED)
    before.clear()
    tensors.clear()
    torch.cuda.empty_cache()
    return {"first": first * 1e6}


def _times(call: Callable[[], None]) -> dict[str, float]:
    """Times of the device and of the host; fewer launches where one takes long."""
    call()
    torch.cuda.synchronize()
    began = time.perf_counter()
    call()
    torch.cuda.synchronize()
    took = time.perf_counter() - began
    return {
        "device": _device_time(call, launches_of(_SECONDS / took, _LAUNCHES)),
        "host": _host_time(call, launches_of(_SECONDS_OF_HOST / took, _CALLS)),
    }


def launches_of(often: float, most: int) -> int:
    """How many launches are measured together."""
    return max(2, min(most, int(often)))


def _device_answers() -> bool:
    """Whether the device still takes work of this process: after an access out of bounds it does
    not.
    """
    try:
        torch.zeros(1, device="cuda").add_(1)
        torch.cuda.synchronize()
    except RuntimeError:
        return False
    return True


def _value(
    launch: Launch, argument: Argument, tensors: dict[str, torch.Tensor], exact: bool
) -> Any:
    """An argument as a launch takes it; tensors are noted by name."""
    if argument.items is not None:
        return tuple(_value(launch, each, tensors, exact) for each in argument.items)
    kind = data.element(argument)
    if argument.type == "constexpr":
        narrow = (
            exact and isinstance(argument.value, dict) and argument.value.get("dtype") in WIDENED
        )
        return load.constant({"dtype": "fp32"} if narrow else argument.value)
    if not kind:
        return data.number(argument)
    storage = _storage(launch, argument, kind)
    if exact and kind in WIDENED:
        storage = storage.float()
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
    pattern = torch.from_numpy(
        data.contents(launch, argument, 4 << 20).view(np.uint8).copy()
    ).cuda()
    size = data.extent(argument) * _DTYPES[kind].itemsize
    repeated = pattern.repeat(-(-size // pattern.numel()))[:size]
    return repeated.view(_DTYPES[kind])


def _keep(
    file: Path, tensors: dict[str, torch.Tensor], before: dict[str, torch.Tensor], most: int
) -> None:
    """Keep the tensors that a launch changed, up to a number of bytes."""
    changed = {}
    for name, tensor in tensors.items():
        now, then = tensor.view(torch.uint8), before[name].view(torch.uint8)
        if not torch.equal(now, then):
            changed[name] = now[:most].cpu().numpy()
    np.savez(file, **changed)


def _device_time(call: Callable[[], None], launches: int) -> float:
    """Microseconds of the device for a launch: the median of replays of a graph of launches."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        call()
        stream.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            for _ in range(launches):
                call()
        times: list[float] = []
        for _ in range(_REPLAYS):
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record(stream)
            graph.replay()
            end.record(stream)
            end.synchronize()
            times.append(start.elapsed_time(end) * 1e3 / launches)
    return statistics.median(times)


def _host_time(call: Callable[[], None], calls: int) -> float:
    """Microseconds of the host for a launch: the least mean of several rounds."""
    best = float("inf")
    for _ in range(_ROUNDS):
        torch.cuda.synchronize()
        began = time.perf_counter()
        for _ in range(calls):
            call()
        best = min(best, (time.perf_counter() - began) / calls)
    torch.cuda.synchronize()
    return best * 1e6


if __name__ == "__main__":
    main()
