"""Stand-ins for the compiled parts of packages, so that their Python can be imported without these.

No kernel of the corpus needs them. They are built for one version of PyTorch and take a driver;
packages that come as source archives are installed without.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any


def replace_compiled_parts() -> None:
    """Let imports of compiled parts find a stand-in, whether or not these are installed."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds the compiled parts of packages: modules that have every name, as a function that cannot
    be called.
    """

    _NAMES = (
        "flash_attn_2_cuda",
        "causal_conv1d_cuda",
        "selective_scan_cuda",
        "vllm._C",
        "vllm._C_stable_libtorch",
        "vllm._moe_C",
        "vllm._flashmla_C",
        "vllm.vllm_flash_attn._vllm_fa2_C",
        "vllm.vllm_flash_attn._vllm_fa3_C",
        "sgl_kernel",
        "deep_gemm",
    )

    def find_spec(
        self, fullname: str, path: Any, target: Any = None
    ) -> importlib.machinery.ModuleSpec | None:
        if not any(fullname == name or fullname.startswith(f"{name}.") for name in self._NAMES):
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        module = ModuleType(spec.name)
        module.__getattr__ = self._refusing(spec.name)  # type: ignore[method-assign]
        module.__version__ = "0"  # type: ignore[attr-defined]
        return module

    def exec_module(self, module: ModuleType) -> None: ...

    @staticmethod
    def _refusing(module: str) -> Callable[[str], Any]:
        def get(name: str) -> Any:
            if name.startswith("__"):
                raise AttributeError(name)

            def refuse(*args: Any, **kwargs: Any) -> Any:
                raise NotImplementedError(f"{module}.{name} is compiled, and not here")

            return refuse

        return get
