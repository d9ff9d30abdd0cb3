"""Backends that misbehave: the CPU backend, except for kernels of the operation named in
``MISBEHAVE_AT``, where ``MISBEHAVE_HOW`` happens. The one that hangs makes the file
``MISBEHAVE_SIGN`` first, where the environment names one.

Loaded by the tests with ``Setup(load=("misbehaving",))``; their folder is on ``PYTHONPATH`` for the
worker processes.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
import signal
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import tilewright_cpu.plugin as cpu
from tilewright.errors import KernelError, LoweringError
from tilewright.ir import Module
from tilewright.plugins.hooks import hookimpl
from tilewright.plugins.manifest import (
    CodeObject,
    Device,
    Launcher,
    Manifest,
    Memory,
    Parameter,
    Target,
)
from tilewright.runtime.compiler import compile as compile_

NAME = "misbehaving"
HOW, AT = os.environ.get("MISBEHAVE_HOW", ""), os.environ.get("MISBEHAVE_AT", "")
_kept: list[Any] = []

if HOW in ("undeclared", "undeclared and refused", "undeclared and broken"):
    # The core refuses what a manifest does not declare. A plugin that gets around that has to be
    # found out all the same.
    compile_.check_declared = lambda *args: None


@hookimpl
def tilewright_backend() -> Manifest:
    own = cpu.tilewright_backend()
    capabilities = own.capabilities
    assert capabilities is not None
    if HOW.startswith("undeclared"):
        capabilities = dataclasses.replace(capabilities, dtypes=capabilities.dtypes - {"f64"})
    return dataclasses.replace(
        own, name=NAME, version="0.0.1", capabilities=capabilities, priority=-1000
    )


@hookimpl
def tilewright_devices() -> Sequence[Device]:
    return [dataclasses.replace(device, backend=NAME) for device in cpu.tilewright_devices()]


@hookimpl
def tilewright_target(device: Device) -> Target | None:
    return cpu.tilewright_target(device)


@hookimpl
def tilewright_lower(
    module: Module, target: Target, options: Mapping[str, Any]
) -> CodeObject | None:
    code = cpu.tilewright_lower(module=module, target=target, options=options)
    text = str(module)
    code.metadata["misbehave"] = any(
        operation.name == AT for operation in module.kernel.body.walk()
    )
    if "f64" in text and HOW == "undeclared and refused":
        raise LoweringError("this target has no f64")
    if "f64" in text and HOW == "undeclared and broken":
        raise ZeroDivisionError("nobody thought of f64")
    if code.metadata["misbehave"] and HOW == "exit":
        raise SystemExit(3)
    return code


@hookimpl
def tilewright_load(code: CodeObject, device: Device) -> Any:
    return cpu.tilewright_load(code=code, device=device), code.metadata["misbehave"]


@hookimpl
def tilewright_launcher(
    loaded: Any, parameters: Sequence[Parameter], options: Mapping[str, Any]
) -> Launcher:
    inner, misbehave = loaded
    launch = cpu.tilewright_launcher(loaded=inner, parameters=parameters, options=options)

    def misbehaving(grid: tuple[int, int, int], stream: Any, values: tuple[Any, ...]) -> None:
        _check_device()
        launch(grid, stream, values)
        if misbehave:
            _MISDEEDS.get(HOW, lambda values: None)(values)

    return misbehaving


@hookimpl
def tilewright_memory(device: Device) -> Memory | None:
    memory = cpu.tilewright_memory(device)
    assert memory is not None
    return _MemoryOfDevice(memory)


class _MemoryOfDevice:
    """Memory that cannot be reached any more once the device is lost."""

    def __init__(self, memory: Memory) -> None:
        self.allocate = memory.allocate
        self.copy_to_device, self.copy_to_host, self._wait = (
            memory.copy_to_device,
            memory.copy_to_host,
            memory.synchronize,
        )

    def synchronize(self) -> None:
        _check_device()
        self._wait()
        _lost.extend(_spent)


_lost: list[bool] = []
_spent: list[bool] = []


def _check_device() -> None:
    if _lost:
        raise KernelError("a kernel has failed, and the device answers no more")


def _lose(values: Sequence[Any]) -> None:
    """As where an assertion on the device takes the process's connection to it with it."""
    _lost.append(True)
    _check_device()


def _spend(values: Sequence[Any]) -> None:
    """As where a kernel does what it should, and its device is of no more use to the process once
    it has been waited for."""
    _spent.append(True)


def _abort(values: Sequence[Any]) -> None:
    os.write(2, b"assertion failed in the driver\n")
    os.kill(os.getpid(), signal.SIGSEGV)


def _hang(values: Sequence[Any]) -> None:
    if "MISBEHAVE_SIGN" in os.environ:
        Path(os.environ["MISBEHAVE_SIGN"]).touch()
    time.sleep(1000)


def _leak(values: Sequence[Any]) -> None:
    while True:
        _kept.append(np.ones(1 << 22, np.uint8))


def _garbage(values: Sequence[Any]) -> None:
    """Other bits in every array."""
    for view in values:
        if hasattr(view, "data_ptr"):
            _bytes(view.data_ptr(), view.nbytes)[:] ^= 0x55


_launches = itertools.count(1)


def _fifth(values: Sequence[Any]) -> None:
    """Wrong once, at the fifth launch."""
    if next(_launches) == 5:
        _garbage(values)


def _overrun(values: Sequence[Any]) -> None:
    """One byte beyond the last array."""
    view = values[-1]
    _bytes(view.data_ptr() + view.nbytes, 1)[:] = 7


def _chatter(values: Sequence[Any]) -> None:
    os.write(1, b'{"case": "elementwise/add/i8/scalar", "status": "passed"}\n')


def _bytes(address: int, size: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    import ctypes

    return np.frombuffer((ctypes.c_uint8 * size).from_address(address), np.uint8)


_MISDEEDS = {
    "crash": _abort,
    "hang": _hang,
    "leak": _leak,
    "garbage": _garbage,
    "fifth": _fifth,
    "overrun": _overrun,
    "chatter": _chatter,
    "lose": _lose,
    "spend": _spend,
}
