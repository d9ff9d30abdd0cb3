"""Measured peak rates of a machine: f32 multiply-adds in registers, and memory bandwidth."""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tilewright.llvm.codegen.compile import compile_to_object, host_target
from tilewright.llvm.codegen.link import load_object
from tilewright.llvm.emission.writer import ModuleWriter, vector
from tilewright_cpu.hardware import hardware_of
from tilewright_cpu.target import host

#: Independent accumulators: more than the latency of a multiply-add times the number issued per
#: cycle.
_CHAINS = 12
_STEPS = 4096


@dataclass(frozen=True)
class Peaks:
    """Measured peaks of some threads: f32 operations per second, and bytes per second of a copy.

    A copy's bytes are counted twice, as read and as written.
    """

    threads: int
    flops: float
    bytes: float

    def seconds(self, flops: float, bytes_: float) -> float:
        """Return the minimum time of work with the given operations and bytes of memory traffic."""
        return max(flops / self.flops, bytes_ / self.bytes)


def _multiply_add_loop() -> tuple[Callable[[int], None], int]:
    """Return a function that runs a number of iterations, and the operations per iteration."""
    triple, cpu, features = host_target()
    hardware = hardware_of(host())
    lanes = hardware.vector_bytes // 4
    type_ = vector("float", lanes)
    module = ModuleWriter("nounwind")
    w = module.function("turns", [("i64", "count"), ("ptr", "out")])
    factor = w.load(type_, "%out", 4)
    with w.loop("0", "%count", 1, [(type_, factor)] * _CHAINS) as loop:
        values = list(loop.values)
        for _ in range(4):
            values = [
                w.intrinsic(
                    "llvm.fma" if hardware.can("fused") else "llvm.fmuladd",
                    type_,
                    [(type_, value), (type_, factor), (type_, factor)],
                )
                for value in values
            ]
        loop.next_values = values
    for value in loop.results:
        w.store(type_, value, "%out", 4)
    w.ret()
    loaded = load_object(
        compile_to_object(module.text(), triple=triple, cpu=cpu, features=features), ["turns"]
    )
    function = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_void_p)(loaded.address("turns"))

    def run(count: int) -> None:
        out = np.zeros(64, np.float32)
        function(count, out.ctypes.data)

    run.loaded = loaded  # type: ignore[attr-defined]
    return run, 4 * _CHAINS * lanes * 2


def _best(work: Callable[[], None], threads: int, rounds: int = 15) -> float:
    """Return the minimum seconds in which ``threads`` threads each run ``work`` once."""
    best = float("inf")
    for _ in range(rounds):
        others = [threading.Thread(target=work) for _ in range(threads - 1)]
        began = time.perf_counter()
        for other in others:
            other.start()
        work()
        for other in others:
            other.join()
        best = min(best, time.perf_counter() - began)
    return best


def measure(threads: int) -> Peaks:
    """Measure the peaks of ``threads`` threads, for a fraction of a second each."""
    turns, each = _multiply_add_loop()
    count = 40 * _STEPS
    flops = threads * count * each / _best(lambda: turns(count), threads)
    size = max(64 << 20, 2 * host().limits["l3_bytes"])
    source, target = np.zeros(size, np.uint8), np.ones(size, np.uint8)
    parts = [slice(size * part // threads, size * (part + 1) // threads) for part in range(threads)]
    lock, left = threading.Lock(), list(parts)

    def copy() -> None:
        with lock:
            if not left:
                left.extend(parts)
            part = left.pop()
        target[part] = source[part]

    return Peaks(threads, flops, 2 * size / _best(copy, threads, 9))
