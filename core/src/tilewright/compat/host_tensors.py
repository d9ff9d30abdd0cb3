"""CPU tensors for PyTorch programs that ask for a GPU, on a machine without one.

:class:`HostTensors` is the block in which they get them.

Programs get the facts of the GPU that they query before they run: that there is one, its number,
its name. ``x.is_cuda`` is true of every tensor, while ``x.device`` says where it lies.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Mapping
from types import SimpleNamespace
from typing import Any, Final
from unittest import mock

import torch
from torch.overrides import TorchFunctionMode

_GPU: Final = "cuda"
_HOST: Final = torch.device("cpu")
#: What the mode is asked for ``x.is_cuda``.
_IS_ON_GPU: Final[Any] = vars(torch._C.TensorBase)["is_cuda"].__get__


def _nothing() -> Callable[..., None]:
    """Make a function that does nothing, different for each name.

    PyTorch's compiler refuses to import where two of its names are one function.
    """
    return lambda *args, **kwargs: None


class _Current(contextlib.nullcontext[None]):
    """The GPU made the current one, which it is."""

    idx, prev_idx = 0, 0


def _properties(device: Any = None) -> Any:
    """Return the GPU's properties: the processor's own numbers, under PyTorch's names."""
    cores = os.cpu_count() or 1
    try:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # Windows
        memory = 0
    return SimpleNamespace(
        name="CPU",
        major=8,
        minor=0,
        multi_processor_count=cores,
        total_memory=memory,
        warp_size=32,
        max_threads_per_multi_processor=2048,
    )


#: What ``torch.cuda`` answers, by name.
_ANSWERS: Final[dict[str, Callable[..., Any]]] = {
    "is_available": lambda: True,
    "is_initialized": lambda: True,
    "device_count": lambda: 1,
    "current_device": lambda: 0,
    "get_device_name": lambda device=None: "CPU",
    "get_device_capability": lambda device=None: (8, 0),
    "get_device_properties": _properties,
    "device": lambda device=None: _Current(),
    **{
        name: _nothing()
        for name in (
            "synchronize",
            "empty_cache",
            "init",
            "set_device",
            "manual_seed",
            "manual_seed_all",
            "reset_peak_memory_stats",
        )
    },
}


class HostTensors(TorchFunctionMode):
    """A context in which PyTorch makes on the CPU what is asked for on a GPU."""

    def __init__(self) -> None:
        super().__init__()
        self._patches = contextlib.ExitStack()

    def __enter__(self) -> HostTensors:
        for name, answer in _ANSWERS.items():
            self._patches.enter_context(mock.patch.object(torch.cuda, name, answer))
        self._patches.enter_context(
            mock.patch.object(torch._C, "_cuda_getCurrentRawStream", lambda device: 0, create=True)
        )
        self._patches.enter_context(
            mock.patch.object(torch.nn.Module, "cuda", lambda module, device=None: module)
        )
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self._patches.close()

    def __torch_function__(
        self,
        function: Any,
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        if function is torch.Tensor.cuda:
            return args[0]
        if function == _IS_ON_GPU:
            return True
        return function(
            *map(_on_host, args),
            **{name: _on_host(value) for name, value in (kwargs or {}).items()},
        )


def _on_host(value: Any) -> Any:
    """A device as the CPU, if it is a GPU; anything else as it is."""
    if isinstance(value, torch.device):
        return _HOST if value.type == _GPU else value
    is_named = isinstance(value, str) and value.partition(":")[0] == _GPU
    return "cpu" if is_named else value
