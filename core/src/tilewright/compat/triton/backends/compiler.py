"""``triton.backends.compiler``: each installed Tilewright backend as Triton sees a compiler."""

from __future__ import annotations

import enum
from abc import ABCMeta, abstractmethod
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from tilewright.compat.triton import knobs
from tilewright.compat.triton.backends.options import (
    ALL_FP8,
    BINARY,
    BY_KIND,
    COMMON,
    FP8_BY_KIND,
    MIN_DOT,
    TritonOptions,
    frozen,
    require_clusters,
)
from tilewright.compat.triton.backends.targets import GPUTarget, place_of
from tilewright.compat.triton.outside import OutsideNameError
from tilewright.plugins.manifest import Target
from tilewright.plugins.registry import Backend, registry


class Language(enum.Enum):
    """Source languages of kernels."""

    TRITON = 0
    GLUON = 1


class BaseBackend(metaclass=ABCMeta):
    """A compiler for one target."""

    supports_native_tensor_specialization = True

    def __init__(self, target: GPUTarget) -> None:
        self.target = target
        assert self.supports_target(target), f"{type(self).__name__} does not compile for {target}"

    @staticmethod
    @abstractmethod
    def supports_target(target: GPUTarget) -> bool:
        """Return whether the backend compiles for a target."""

    @abstractmethod
    def hash(self) -> str:
        """A text that differs between compilers that may write other code."""

    @abstractmethod
    def parse_options(self, options: dict[str, Any]) -> Any:
        """Every option of a compilation, from the ones that were given."""

    @abstractmethod
    def add_stages(
        self, stages: dict[str, Any], options: Any, language: Language = Language.TRITON
    ) -> None:
        """Add the compiler's stages, functions by name, to ``stages``."""

    @abstractmethod
    def load_dialects(self, context: Any) -> None:
        """Prepare an MLIR context."""

    @abstractmethod
    def get_module_map(self) -> dict[str, ModuleType]:
        """Modules of the language -> those that do their work for this target."""

    @staticmethod
    def parse_attr(desc: str) -> list[list[Any]]:
        """Parse the letters of a specialisation: ``D`` is divisible by 16."""
        return [["tt.divisibility", 16]] if "D" in desc else []

    @staticmethod
    def get_int_specialization(arg: int, **kwargs: Any) -> str:
        return "D" if kwargs.get("align", False) and arg % 16 == 0 else ""

    @staticmethod
    def get_tensor_specialization(arg: Any, **kwargs: Any) -> str:
        return "D" if kwargs.get("align", False) and arg.data_ptr() % 16 == 0 else ""


class TilewrightCompiler(BaseBackend):
    """One backend of Tilewright. Subclasses name it.

    Args:
        target: what to compile for, in Triton's terms.
        own: the same in Tilewright's; found by ``target`` where it is not given.
    """

    backend_name = ""

    def __init__(self, target: GPUTarget, own: Target | None = None) -> None:
        super().__init__(target)
        self._own = own

    @property
    def binary_ext(self) -> str:
        """Return the name of the code among a kernel's stages."""
        return BINARY.get(self.kind, "binary")

    @property
    def own(self) -> Target:
        """The target in Tilewright's terms.

        Raises:
            BackendError: the backend has no such target.
        """
        if self._own is None:
            self._own = place_of(self.target, self.backend())[0]
        return self._own

    @property
    def kind(self) -> str:
        """The kind of device."""
        return self.target.backend

    @classmethod
    def backend(cls) -> Backend:
        """The plugin.

        Raises:
            BackendError: it is broken.
        """
        return registry().get(cls.backend_name)

    @staticmethod
    def supports_target(target: GPUTarget) -> bool:
        return False

    def hash(self) -> str:
        backend = self.backend()
        return f"{backend.name}-{backend.manifest.version}-{self.target.arch}"

    def parse_options(self, options: Mapping[str, Any]) -> TritonOptions:
        """Parse launch options.

        Raises ValueError for a precision of ``dot`` that the target lacks, and for ``num_ctas``
        where it has no clusters.
        """
        capabilities = self.own.capabilities
        values: dict[str, Any] = {
            **COMMON,
            **BY_KIND.get(self.kind, {}),
            **self.backend().manifest.options,
        }
        values["arch"] = self.target.arch if self.kind != "cuda" else f"sm_{self.target.arch}"
        values["warp_size"] = self.target.warp_size
        values["backend_name"] = self.kind
        if "line_info" in values and self.kind != "cpu":
            values["line_info"] = not knobs.compilation.disable_line_info
        values["enable_fp_fusion"] = knobs.language.fp_fusion_enabled(
            options.get("enable_fp_fusion")
        )
        values["supported_fp8_dtypes"] = FP8_BY_KIND.get(self.kind, ALL_FP8)
        if self.kind == "cuda" and int(self.target.arch) >= 90:
            values["deprecated_fp8_dot_operand_dtypes"] = ("fp8e4b15",)
        if capabilities is not None:
            values["allowed_dot_input_precisions"] = capabilities.dot_precisions
            if values["default_dot_input_precision"] not in capabilities.dot_precisions or (
                self.kind == "cuda" and int(self.target.arch) < 80
            ):
                values["default_dot_input_precision"] = "ieee"
        wanted = knobs.language.fp32_default
        if wanted is not None:
            allowed = values["allowed_dot_input_precisions"]
            if wanted not in allowed:
                raise ValueError(
                    f"TRITON_F32_DEFAULT is {wanted!r}, and {self.target.backend} has the "
                    f"precisions {', '.join(allowed)}"
                )
            values["default_dot_input_precision"] = wanted
        values.update(
            {
                name: frozen(value)
                for name, value in options.items()
                if name in values and name != "enable_fp_fusion" and value is not None
            }
        )
        values["launch_cooperative_grid"] = bool(
            values["launch_cooperative_grid"] or values.get("cooperative")
        )
        require_clusters(self.kind, values["arch"], values["num_ctas"])
        return TritonOptions(values)

    def add_stages(
        self, stages: dict[str, Any], options: Any, language: Language = Language.TRITON
    ) -> None:
        raise OutsideNameError(
            "the stages of Triton's compiler are not Tilewright's: triton.compile runs them all, "
            "and tilewright inspect shows each"
        )

    def load_dialects(self, context: Any) -> None:
        """Nothing is to be prepared: see :mod:`tilewright.compat.triton._C.libtriton.ir`."""

    def get_codegen_implementation(self, options: Any) -> dict[str, Any]:
        """Return functions that the language queries the target by.

        ``min_dot_size(lhs type, rhs type)`` is the smallest (M, N, K).
        """
        capabilities = self.own.capabilities
        least = (1, 1, 1) if capabilities is None else capabilities.min_dot
        by_bits = MIN_DOT.get(self.kind, {})
        return {"min_dot_size": lambda lhs, rhs: by_bits.get(lhs.scalar.primitive_bitwidth, least)}

    def get_module_map(self) -> dict[str, ModuleType]:
        from tilewright.language import libdevice

        return {"triton.language.extra.libdevice": libdevice}

    def pack_metadata(self, metadata: Any) -> tuple[int, int, int]:
        """(num_warps, num_ctas, bytes of shared memory)."""
        return int(metadata.num_warps), int(metadata.num_ctas), int(metadata.shared)


__all__ = ["BaseBackend", "GPUTarget", "Language"]
