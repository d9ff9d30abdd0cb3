"""An H100 that is not there: within :class:`Hopper` programs find one, and get tensors without
memory.

Tensors are PyTorch's fake ones, on the CPU in truth; programs are told ``cuda:0`` when they ask
where a tensor lies. Small tensors that are made of numbers (``torch.tensor([0, 4096])``) keep these
through further operations, so that what depends on them (``.item()``, ``.tolist()``) can be asked.
"""

from __future__ import annotations

import contextlib
import importlib
import itertools
import os
import sys
import weakref
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
from torch._subclasses import fake_tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode, unset_fake_temporarily
from torch.overrides import TorchFunctionMode

from corpus.compiled_parts import replace_compiled_parts
from corpus.contents import Run, runs_of
from tilewright.compat.host_tensors import HostTensors

CAPABILITY = (9, 0)
NAME = "NVIDIA H100 80GB HBM3"

#: What PyTorch tells of the device.
PROPERTIES = SimpleNamespace(
    name=NAME,
    major=9,
    minor=0,
    multi_processor_count=132,
    total_memory=85 << 30,
    warp_size=32,
    max_threads_per_multi_processor=2048,
    max_threads_per_block=1024,
    regs_per_multiprocessor=65536,
    shared_memory_per_block=49152,
    shared_memory_per_block_optin=232448,
    shared_memory_per_multiprocessor=233472,
    L2_cache_size=50 << 20,
    is_integrated=0,
    gcnArchName="",
    uuid="",
)

#: The same as a driver of Triton's tells it.
FACTS = {
    "max_shared_mem": 232448,
    "multiprocessor_count": 132,
    "max_num_regs": 65536,
    "warpSize": 32,
    "sm_clock_rate": 1980000,
    "mem_clock_rate": 2619000,
    "mem_bus_width": 5120,
}

_CUDA = torch.device("cuda:0")
#: Elements of a tensor whose values are kept.
_KEPT_ELEMENTS = 1 << 18

#: What programs are told of every tensor: getter -> answer.
_TOLD: dict[Any, Any] = {
    vars(torch._C.TensorBase)["device"].__get__: _CUDA,
    vars(torch._C.TensorBase)["is_cuda"].__get__: True,
}
_FAKE_DEVICE: Any = vars(FakeTensor)["device"]


#: Functions that give a number that depends on what tensors hold -> its type.
_NUMBERS: dict[Any, Callable[[float], Any]] = {
    torch.Tensor.item: lambda number: number,
    torch.Tensor.__int__: int,
    torch.Tensor.__index__: int,
    torch.Tensor.__bool__: bool,
    torch.Tensor.__float__: float,
    torch.equal: bool,
}
#: What they give of a tensor whose contents a kernel has written; see :func:`kernels_give`.
_answers: list[float] = []


@contextlib.contextmanager
def kernels_give(number: float) -> Iterator[None]:
    """A context in which a program that asks for a number that kernels have computed is given this
    one.
    """
    _answers.append(number)
    try:
        yield
    finally:
        _answers.pop()


#: Operators that programs have registered -> their functions.
_registered: dict[str, Callable[..., Any]] = {}
_IMPL = torch.library.Library.impl
_RUN_BACKWARD = torch.autograd._engine_run_backward


class Stream:
    """The current stream, which does nothing."""

    cuda_stream = 0
    stream_id = 0
    device = _CUDA
    device_index = 0
    device_type = 1

    def __init__(self, *args: Any, **kwargs: Any) -> None: ...

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *error: Any) -> None: ...

    def synchronize(self) -> None: ...

    def wait_stream(self, stream: Any) -> None: ...

    def wait_event(self, event: Any) -> None: ...

    def record_event(self, event: Any = None) -> Any:
        return event


class Hopper(HostTensors):
    """The context. ``fake`` false: only the device is pretended, as for importing a package."""

    def __init__(self, fake: bool = True) -> None:
        super().__init__()
        self._mode = FakeTensorMode(allow_non_fake_inputs=True) if fake else None
        self._pages = itertools.count(1)
        self._addresses: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()

    def __enter__(self) -> Hopper:
        super().__enter__()
        patch = self._patches.enter_context
        for name, answer in self._answers().items():
            patch(mock.patch.object(torch.cuda, name, answer))
        patch(
            mock.patch.object(
                torch._C, "_cuda_getCurrentStream", lambda device: (0, 0, 1), create=True
            )
        )
        patch(mock.patch.object(torch.accelerator, "current_accelerator", lambda *given: _CUDA))
        patch(mock.patch.object(torch.accelerator, "is_available", lambda: True))
        patch(
            mock.patch.dict(os.environ, {"CUDA_VISIBLE_DEVICES": "0", "TORCHDYNAMO_DISABLE": "1"})
        )
        patch(mock.patch.object(torch.library.Library, "impl", _register))
        patch(mock.patch.object(torch.autograd, "_engine_run_backward", self._run_backward))
        if (
            "tilewright.compat.triton" in sys.modules
        ):  # Triton's own driver for CUDA asks PyTorch whether it is the active one
            patch(mock.patch.dict(os.environ, {"TRITON_DEFAULT_BACKEND": "cuda"}))
        replace_compiled_parts()
        patch(active_driver())
        if self._mode is not None:
            patch(
                mock.patch.object(FakeTensorMode, "avoid_device_init", property(lambda mode: True))
            )
            patch(mock.patch.object(fake_tensor, "CONSTANT_NUMEL_LIMIT", _KEPT_ELEMENTS))
            patch(mock.patch.object(FakeTensor, "device", property(_told_device)))
            patch(mock.patch.object(FakeTensor, "is_cuda", property(_told_is_cuda), create=True))
            patch(
                mock.patch.object(
                    FakeTensor, "data_ptr", lambda tensor: self._address(tensor), create=True
                )
            )
            patch(self._mode)
        return self

    def _answers(self) -> dict[str, Any]:
        """What ``torch.cuda`` answers, beside what every pretended GPU does."""
        return {
            "get_device_name": lambda device=None: NAME,
            "get_device_capability": lambda device=None: CAPABILITY,
            "get_device_properties": lambda device=None: PROPERTIES,
            "get_arch_list": lambda: ["sm_90"],
            "is_bf16_supported": lambda including_emulation=True: True,
            "current_stream": lambda device=None: Stream(),
            "default_stream": lambda device=None: Stream(),
            "Stream": Stream,
            "stream": lambda stream: contextlib.nullcontext(),
            "device_of": lambda tensor: contextlib.nullcontext(),
            "is_current_stream_capturing": lambda: False,
            "memory_allocated": lambda device=None: 0,
            "max_memory_allocated": lambda device=None: 0,
            "mem_get_info": lambda device=None: (80 << 30, 85 << 30),
            "get_rng_state": lambda device=None: torch.zeros(16, dtype=torch.uint8),
            "set_rng_state": lambda state, device=None: None,
        }

    def _address(self, tensor: Any) -> int:
        """An address for a tensor: storages begin at multiples of 4 GiB."""
        storage = tensor.untyped_storage()
        if storage not in self._addresses:
            self._addresses[storage] = next(self._pages) << 40
        return self._addresses[storage] + int(tensor.storage_offset()) * int(tensor.element_size())

    def __torch_function__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if function is torch.device:
            return function(*args, **(kwargs or {}))
        if kwargs and kwargs.get("pin_memory"):  # which takes a driver
            kwargs = {**kwargs, "pin_memory": False}
        if function is torch.arange and not _asked_by_torch():
            return _counted(function(*args, **(kwargs or {})), args)
        if function in _TOLD and not _asked_by_torch():
            return _TOLD[function]
        if function in _TOLD:
            return function(*args)
        implementation = _implementation(function)
        if implementation is None:
            try:
                return super().__torch_function__(function, types, args, kwargs)
            except fake_tensor.DataDependentOutputException:
                if function not in _NUMBERS or not _answers:
                    raise
                return _NUMBERS[function](_answers[-1])
        with _Inner(self):
            return implementation(*args, **(kwargs or {}))

    def _run_backward(self, *args: Any, **kwargs: Any) -> Any:
        with _Inner(self):
            return _RUN_BACKWARD(*args, **kwargs)


def _counted(tensor: Any, bounds: Sequence[Any]) -> Any:
    """A range of whole numbers, which keeps them as tensors that are made of numbers do."""
    if (
        tensor.is_floating_point()
        or tensor.numel() > _KEPT_ELEMENTS
        or not all(isinstance(each, int) for each in bounds)
    ):
        return tensor
    return torch.tensor(range(*bounds), dtype=tensor.dtype)


def contents_of(tensor: Any) -> list[Run] | None:
    """The runs of what a tensor holds where that is known and its elements lie one after the other;
    None otherwise.
    """
    held = getattr(tensor, "constant", None)
    if held is None or not tensor.is_contiguous() or not held.numel():
        return None
    with unset_fake_temporarily():
        return list(runs_of(held.flatten().tolist())) or None


class _Inner(TorchFunctionMode):  # type: ignore[misc]
    """The pretence within what PyTorch calls of the program: a mode does not see what is called in
    answer to it.
    """

    def __init__(self, outer: Hopper) -> None:
        super().__init__()
        self._outer = outer

    def __torch_function__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        return self._outer.__torch_function__(function, types, args, kwargs)


def _implementation(function: Any) -> Callable[..., Any] | None:
    """The Python function that a program has registered as an operator; None for PyTorch's own
    operators.

    For fake tensors PyTorch would call another, which launches nothing.
    """
    if isinstance(function, torch._ops.OpOverloadPacket):
        function = function.default if "default" in function.overloads() else None
    if not isinstance(function, torch._ops.OpOverload):
        return None
    name = function._schema.name
    defined = torch._library.custom_ops.OPDEFS.get(name)
    return _registered.get(name) if defined is None else defined._init_fn


def _register(library: Any, op_name: Any, fn: Any, dispatch_key: str = "", **options: Any) -> Any:
    """``torch.library.Library.impl``, which notes Python's functions."""
    if callable(fn) and dispatch_key in (
        "",
        "CUDA",
        "CompositeExplicitAutograd",
        "CompositeImplicitAutograd",
    ):
        name = op_name if isinstance(op_name, str) else op_name._schema.name
        _registered[name if "::" in name else f"{library.ns}::{name}"] = fn
    return _IMPL(library, op_name, fn, dispatch_key, **options)


def _told_device(tensor: Any) -> Any:
    """Where a fake tensor lies."""
    return _FAKE_DEVICE.__get__(tensor) if _asked_by_torch() else _CUDA


def _told_is_cuda(tensor: Any) -> bool:
    """Whether a fake tensor lies on a GPU."""
    return not _asked_by_torch()


def _asked_by_torch() -> bool:
    """Whether PyTorch itself is about to be answered, which is told the truth."""
    frame = sys._getframe(1)
    while frame.f_globals.get("__name__") == __name__ and frame.f_back is not None:
        frame = frame.f_back
    return frame.f_globals.get("__name__", "").partition(".")[0] in ("torch", "torchgen")


def active_driver() -> contextlib.AbstractContextManager[Any]:
    """Make a driver with the H100 Triton's active one. The shim and Triton itself take the same."""
    runtime = importlib.import_module("triton.runtime")
    targets = importlib.import_module("triton.backends.compiler")
    base = importlib.import_module("triton.backends.driver").DriverBase

    def kept(name: str) -> Any:
        return lambda *args, **kwargs: name

    methods = {
        "is_active": staticmethod(lambda: True),
        "get_current_target": lambda driver: targets.GPUTarget("cuda", 90, 32),
        "get_current_device": lambda driver: 0,
        "set_current_device": lambda driver, device: None,
        "get_current_stream": lambda driver, device=None: 0,
        "get_device_capability": lambda driver, device=None: CAPABILITY,
        "get_device_interface": lambda driver: torch.cuda,
        "get_active_torch_device": lambda driver: _CUDA,
        "map_python_to_cpp_type": lambda driver, type_: type_,
        "get_benchmarker": kept("benchmarker"),
        "get_empty_cache_for_benchmark": kept("cache"),
        "clear_cache": kept("cache"),
        "utils": SimpleNamespace(get_device_properties=lambda device: dict(FACTS)),
        "__init__": lambda driver: None,
    }
    driver = type("HopperDriver", (base,), methods)
    driver.__abstractmethods__ = frozenset()  # type: ignore[attr-defined]
    return _active(runtime.driver, driver())


@contextlib.contextmanager
def _active(config: Any, driver: Any) -> Any:
    before = config._active if hasattr(config, "_active") else None
    config.set_active(driver)
    try:
        yield
    finally:
        if before is None:
            config._active = None
        else:
            config.set_active(before)
