"""Kernels compiled for GPUs that this machine need not have."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from tilewright.frontend.compile import compile_function
from tilewright.ir import Module
from tilewright.language.options import Options
from tilewright.passes import pipeline
from tilewright.plugins.manifest import PORTABLE_OPTIONS, CodeObject
from tilewright_nvidia.architectures import ARCHITECTURES, target_of
from tilewright_nvidia.lower import lower
from tilewright_nvidia.manifest import CAPABILITIES, OPTIONS

#: What a pointer or size that is a multiple of 16 is known as.
ALIGNED = {"divisibility": 16}
#: An architecture of each generation.
GENERATIONS = ("sm_75", "sm_80", "sm_90a", "sm_100a", "sm_120a")


def module_of(
    kernel: Any,
    signature: Mapping[str, str],
    constants: Mapping[str, Any],
    *,
    arch: str = "sm_90a",
    aligned: bool = True,
    num_warps: int = 4,
    debug: bool = False,
) -> Module:
    """Tile IR of a kernel after the standard passes. ``signature`` has the runtime parameters; all
    of them are multiples of 16 where ``aligned``."""
    types = {**signature, **dict.fromkeys(constants, "constexpr")}
    ordered = {name: types[name] for name in kernel.arg_names}
    attributes = {
        name: ALIGNED
        for name, type_ in signature.items()
        if aligned and (type_[0] == "*" or type_ in ("i32", "i64"))
    }
    target = dataclasses.replace(target_of(ARCHITECTURES[arch]), capabilities=CAPABILITIES)
    module = compile_function(
        kernel,
        ordered,
        constants,
        attributes,
        Options(target=target, num_warps=num_warps, debug=debug),
    )
    pipeline.run(module, pipeline.STANDARD)
    return module


def compile_kernel(
    kernel: Any,
    signature: Mapping[str, str],
    arch: str = "sm_90a",
    *,
    aligned: bool = True,
    constants: Mapping[str, Any] | None = None,
    **options: Any,
) -> CodeObject:
    """PTX of a kernel for an architecture."""
    resolved = {**PORTABLE_OPTIONS, **OPTIONS, **options}
    module = module_of(
        kernel,
        signature,
        constants or {},
        arch=arch,
        aligned=aligned,
        num_warps=resolved["num_warps"],
        debug=resolved["debug"],
    )
    return lower(module, target_of(ARCHITECTURES[arch]), resolved)
