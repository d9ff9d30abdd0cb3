"""Launch options of Triton's backends: names, defaults, and their effect in Tilewright.

An option is either one of the Tilewright backend's own, or it is kept: it is accepted, is part of
the kernel's key, shows in ``metadata``, and changes no code.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

#: Options of every backend.
COMMON: Mapping[str, Any] = {
    "num_warps": 4,
    "num_ctas": 1,
    "num_stages": 3,
    "maxnreg": None,
    "enable_fp_fusion": True,
    "launch_cooperative_grid": False,
    "launch_pdl": False,
    "default_dot_input_precision": "ieee",
    "allowed_dot_input_precisions": ("ieee",),
    "max_num_imprecise_acc_default": 0,
    "supported_fp8_dtypes": ("fp8e5",),
    "deprecated_fp8_dot_operand_dtypes": (),
    "extern_libs": None,
    "ir_override": None,
    "debug": False,
    "sanitize_overflow": True,
    "arch": None,
    "instrumentation_mode": "",
    "fpsan_homomorphic_casts": False,
}

#: Kind of target -> the options it has besides, or with another default.
BY_KIND: Mapping[str, Mapping[str, Any]] = {
    "cuda": {
        "ptx_version": None,
        "ptx_options": None,
        "enable_reflect_ftz": True,
        "default_dot_input_precision": "tf32",
        "max_num_imprecise_acc_default": None,
    },
    "hip": {
        "num_stages": 2,
        "enable_fp_fusion": False,
        "allowed_dot_input_precisions": ("ieee", "bf16x3", "bf16x6"),
        "supported_fp8_dtypes": ("fp8e4nv", "fp8e5", "fp8e5b16", "fp8e4b8"),
        "waves_per_eu": 0,
        "kpack": 1,
        "matrix_instr_nonkdim": 0,
        "schedule_hint": "",
        "allow_flush_denorm": False,
        "llvm_fn_attrs": "",
        "wgp_cu_mode": "wgp",
    },
    "cpu": {"num_cpu_threads": 0},
}

#: Triton's name -> the Tilewright option that does it.
RENAMED: Mapping[str, str] = {
    "num_cpu_threads": "num_threads",
    "default_dot_input_precision": "default_dot_precision",
    "launch_cooperative_grid": "cooperative",
}

#: Options that the language itself reads.
OF_THE_LANGUAGE = (
    "default_dot_precision",
    "supported_fp8_dtypes",
    "deprecated_fp8_dot_operand_dtypes",
    "min_dot_size",
    "plain_loops",
    "named_values",
    "thread_prints",
)

#: Element types that kernels may use on any backend of Tilewright, which converts where the
#: hardware cannot.
ALL_FP8 = ("fp8e4b15", "fp8e4b8", "fp8e4nv", "fp8e5", "fp8e5b16")

#: Kind of target -> the element types that Triton has there. Kernels find out by the error what
#: they may use, so it is raised for the others.
FP8_BY_KIND: Mapping[str, tuple[str, ...]] = {"cuda": ("fp8e4b15", "fp8e4nv", "fp8e5")}

#: Kind of target -> the smallest (M, N, K) of a dot by the bits of an operand's element; a kind
#: that is not here has the backend's own.
MIN_DOT: Mapping[str, Mapping[int, tuple[int, int, int]]] = {
    "cuda": {8: (1, 1, 32), 16: (1, 1, 16), 32: (1, 1, 8), 64: (1, 1, 4)}
}


#: Kind of target -> what its code is called among the stages of a kernel, and at the end of a
#: file's name.
BINARY: Mapping[str, str] = {"cuda": "cubin", "hip": "hsaco"}


def require_clusters(kind: str, arch: Any, num_ctas: Any) -> None:
    """Refuse ``num_ctas`` above 1 where Triton has no clusters of CTAs.

    ``arch`` is a target's, or text as ``sm80`` or ``gfx942``.

    Raises:
        ValueError: the architecture has none.
    """
    if not isinstance(num_ctas, int) or num_ctas <= 1:
        return
    if kind == "hip" and arch != "gfx1250":
        raise ValueError(f"num_ctas > 1 not supported on {arch}; use num_ctas=1")
    if kind == "cuda":
        digits = re.search(r"\d+", str(arch))
        if digits is not None and int(digits[0]) < 90:
            raise ValueError(
                f"num_ctas > 1 requires NVIDIA SM90+ (Hopper), and the target is sm_{digits[0]}; "
                "use num_ctas=1"
            )


def names_of(kind: str) -> frozenset[str]:
    """The options a launch on a kind of target may give, beyond those of the Tilewright backend."""
    return frozenset({*COMMON, *BY_KIND.get(kind, {})})


ALL_NAMES = frozenset({*COMMON, *(name for extra in BY_KIND.values() for name in extra)})


def frozen(value: Any) -> Any:
    """An option's value as Triton's option objects keep it: hashable."""
    if isinstance(value, Mapping):
        return tuple(value.items())
    return tuple(value) if isinstance(value, list) else value


class TritonOptions:
    """The options of one compilation as attributes. Read only; equal options have equal texts."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self.__dict__.update(values)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"options are read-only: give {name}= to the launch")

    def hash(self) -> str:
        """A text that differs for other options."""
        import hashlib

        return hashlib.sha256(repr(sorted(self.__dict__.items())).encode()).hexdigest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TritonOptions) and self.__dict__ == other.__dict__

    def __hash__(self) -> int:
        return hash(self.hash())

    def __repr__(self) -> str:
        options = ", ".join(f"{name}={value!r}" for name, value in self.__dict__.items())
        return f"TritonOptions({options})"
