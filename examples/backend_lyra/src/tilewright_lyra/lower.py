"""Tile IR to code for Lyra: the toolkit makes LLVM IR for one thread of it.

A machine of your own has LLVM's code generator, or the vendor's, go on from there;
the emulated machine takes that IR."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilewright.errors import OutOfResources
from tilewright.ir import Module
from tilewright.ir.printer import print_module
from tilewright.plugins.manifest import CodeObject
from tilewright.simt.compile import compile_fitting
from tilewright.simt.dialect.attributes import SHARED_BYTES, WARPS
from tilewright.simt.target.launch_options import check_portable, configuration_text, refuse_externs
from tilewright_lyra.target import LyraTarget


def lower(module: Module, options: Mapping[str, Any]) -> CodeObject:
    """Code of a module of one kernel, which is left as it is.

    Metadata: ``num_warps``, ``shared`` (bytes of a program), ``messages`` (of its assertions).

    Raises:
        LoweringError: an option is out of range, or there is no way to lower an operation.
        OutOfResources: a program needs more than the machine has.
    """
    machine, name = LyraTarget(), module.kernel.name
    check_portable(name, options, machine.resources.warp_size, machine.resources.max_threads)
    refuse_externs(module)
    timings: dict[str, float] = {}
    try:
        lowered, text = compile_fitting(module, machine, options, timings)
    except OutOfResources as error:
        raise OutOfResources(
            error.required,
            error.limit,
            f"{error.name} of kernel {name} ({configuration_text(options)})",
        ) from error
    facts = lowered.kernel.attributes
    metadata = {
        "num_warps": facts[WARPS],
        "shared": facts[SHARED_BYTES],
        "messages": machine.record.messages,
    }
    return CodeObject(
        name,
        text.encode(),
        {"tileir": str(module), "simt": print_module(lowered), "llir": text},
        metadata,
        timings,
    )
