"""PyTorch programs that ask for tensors on a GPU, on a machine without one: within :class:`HostTensors` they get tensors on the CPU.

What is told of the GPU is what programs ask before they run: that there is one, its number, its name. ``x.is_cuda`` is true of every tensor, while
``x.device`` says where it lies.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final
from unittest import mock

import torch
from torch.overrides import TorchFunctionMode

_GPU: Final = "cuda"
_HOST: Final = torch.device("cpu")
#: What the mode is asked for ``x.is_cuda``.
_IS_ON_GPU: Final[Any] = vars(torch._C.TensorBase)["is_cuda"].__get__


def _nothing(*args: Any, **kwargs: Any) -> None:
    return None


#: What ``torch.cuda`` answers, by name.
_ANSWERS: Final[dict[str, Callable[..., Any]]] = {
    "is_available": lambda: True,
    "is_initialized": lambda: True,
    "device_count": lambda: 1,
    "current_device": lambda: 0,
    "get_device_name": lambda device=None: "CPU",
    "get_device_capability": lambda device=None: (8, 0),
    "device": lambda device=None: contextlib.nullcontext(),
    **dict.fromkeys(("synchronize", "empty_cache", "init", "set_device", "manual_seed", "manual_seed_all", "reset_peak_memory_stats"), _nothing),
}


class HostTensors(TorchFunctionMode):
    """A context in which PyTorch makes on the CPU what is asked for on a GPU."""

    def __init__(self) -> None:
        super().__init__()
        self._patches = contextlib.ExitStack()

    def __enter__(self) -> HostTensors:
        for name, answer in _ANSWERS.items():
            self._patches.enter_context(mock.patch.object(torch.cuda, name, answer))
        self._patches.enter_context(mock.patch.object(torch.nn.Module, "cuda", lambda module, device=None: module))
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self._patches.close()

    def __torch_function__(self, function: Any, types: Iterable[type], args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None) -> Any:
        if function is torch.Tensor.cuda:
            return args[0]
        if function == _IS_ON_GPU:
            return True
        return function(*map(_on_host, args), **{name: _on_host(value) for name, value in (kwargs or {}).items()})


def _on_host(value: Any) -> Any:
    """A device as the CPU, if it is a GPU; anything else as it is."""
    if isinstance(value, torch.device):
        return _HOST if value.type == _GPU else value
    is_named = isinstance(value, str) and value.partition(":")[0] == _GPU
    return "cpu" if is_named else value
