"""The batch-invariant matmul of an installed vLLM, loaded without the rest of vLLM.

    matmul = load(device)          # matmul(x, w.t()) -> x @ w.t()

The kernel, its block sizes and its launch are the package's own. What they import from the rest of
vLLM is replaced by substitutes that answer from PyTorch, since importing vLLM takes its compiled
libraries, which need the release of PyTorch that they were built for.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import torch

#: The module of the matmul in the package, by release.
_PLACES = (
    "vllm.model_executor.determinism.batch_invariant",
    "vllm.model_executor.layers.batch_invariant",
)


class DeviceCapability(NamedTuple):
    """The capability of a GPU, as vLLM's platforms state it."""

    major: int
    minor: int


class _Platform:
    """The platform of one device."""

    def __init__(self, device: str) -> None:
        self._on_gpu = device != "cpu"

    def is_cuda_alike(self) -> bool:
        return self._on_gpu

    def is_cuda(self) -> bool:
        return self._on_gpu and torch.version.cuda is not None

    def is_rocm(self) -> bool:
        return self._on_gpu and torch.version.hip is not None

    def is_xpu(self) -> bool:
        return False

    def get_device_capability(self) -> DeviceCapability:
        return DeviceCapability(*torch.cuda.get_device_capability())

    def num_compute_units(self, device_id: int | None = 0) -> int:
        if not self._on_gpu:
            return torch.get_num_threads()
        return torch.cuda.get_device_properties(device_id or 0).multi_processor_count

    def shared_memory(self, gpu: int = 0) -> int:
        return torch.cuda.get_device_properties(gpu).shared_memory_per_block_optin


def load(device: str) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    """Return vLLM's persistent matmul of ``[M, K]`` by ``[K, N]``.

    Raises:
        ModuleNotFoundError: vLLM is not installed, or has no such matmul.
    """
    spec = importlib.util.find_spec("vllm")
    if spec is None or spec.submodule_search_locations is None:
        raise ModuleNotFoundError("vLLM is not installed, or its folder is not on PYTHONPATH")
    (root,) = spec.submodule_search_locations
    for place in _PLACES:
        if Path(root, *place.split(".")[1:]).with_suffix(".py").exists():
            with _substituted(Path(root), _Platform(device)):
                matmul: Callable[..., torch.Tensor] = importlib.import_module(
                    place
                ).matmul_persistent
            return matmul
    raise ModuleNotFoundError(f"the vLLM in {root} has no batch-invariant matmul: {_PLACES}")


@contextlib.contextmanager
def _substituted(root: Path, platform: _Platform) -> Iterator[None]:
    """Let modules of vLLM be imported without its packages' own initialization."""
    triton: Any = importlib.import_module("triton")
    language: Any = importlib.import_module("triton.language")
    packages = ["vllm", "vllm.utils", *_PLACES, "vllm.model_executor"]
    packages = [name.removesuffix(".batch_invariant") for name in packages]
    made = {name: _module(name, __path__=[str(root.joinpath(*name.split(".")[1:]))])
            for name in packages}  # fmt: skip
    contents: dict[str, dict[str, Any]] = {
        "vllm.envs": {"VLLM_BATCH_INVARIANT": False},
        "vllm.platforms": {"current_platform": platform, "__path__": []},
        "vllm.platforms.interface": {"DeviceCapability": DeviceCapability},
        "vllm.triton_utils": {"tl": language, "triton": triton},
        "vllm.utils.mem_utils": {"get_max_shared_memory_bytes": platform.shared_memory},
        "vllm.utils.nccl": {"pin_nccl_env": lambda pins: None},
        "vllm.utils.platform_utils": {"num_compute_units": platform.num_compute_units},
        "vllm.utils.torch_utils": {"is_torch_equal_or_newer": lambda version: True},
    }
    made |= {name: _module(name, **names) for name, names in contents.items()}
    made["vllm"].envs = made["vllm.envs"]  # type: ignore[attr-defined]
    before = dict(sys.modules)
    sys.modules.update(made)
    try:
        yield
    finally:
        for name in [name for name in sys.modules if name.partition(".")[0] == "vllm"]:
            del sys.modules[name]
        sys.modules.update({name: one for name, one in before.items() if name not in sys.modules})


def _module(name: str, **names: Any) -> ModuleType:
    found = ModuleType(name)
    vars(found).update(names)
    return found
