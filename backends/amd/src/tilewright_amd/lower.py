"""Ahead-of-time lowering of tile IR to AMDGPU assembly and a code object.

This needs no GPU and no vendor library.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tilewright.errors import LoweringError, OutOfResources
from tilewright.ir.core import Module
from tilewright.plugins.complete_target import check_complete
from tilewright.plugins.manifest import CodeObject, Target
from tilewright.runtime.storage.files import write_whole
from tilewright.simt.target.launch_options import check_portable, configuration_text, refuse_externs
from tilewright_amd.architectures import MFMA, architecture, target_of
from tilewright_amd.codegen.kernel_state import KernelState
from tilewright_amd.manifest import OPTIONS
from tilewright_amd.target import SCHEDULE_HINTS, TRIPLE, GcnTarget
from tilewright_amd.toolchain import rocm_llvm
from tilewright_amd.toolchain.linker import link
from tilewright_amd.toolchain.resources import usage_of

#: LLVM passes to run before code generation: ``pairs`` forms packed f32 operations where the target
#: has them.
PASSES = ("pairs",)
#: LLVM command-line options. They keep loop-carried accumulators whole, and in VGPRs instead of
#: AccVGPRs. Otherwise LLVM moves accumulators in every iteration.
_LLVM_OPTIONS = ("--amdgpu-codegenprepare-break-large-phis=0", "--amdgpu-mfma-vgpr-form=1")
#: Options for long kernels: straight-line strength reduction compares all pairs of addresses of a
#: block.
_IF_LONG = ("--opt-disable=slsr",)


def lower(
    module: Module, target: Target, options: Mapping[str, Any], *, assembly_only: bool = False
) -> CodeObject:
    """Lower a module of one kernel to a code object, leaving the module unchanged.

    Stages: ``tileir`` (the input), ``simt`` (with layout conversions and shared memory),
    ``layouts`` (each tile's layout, the costs of conversions and accesses, missed optimizations),
    ``llir``, ``amdgcn`` (assembly) and ``hsaco`` (the code object, which is also the binary).
    Metadata: ``kernel`` (the symbol), ``num_warps``, ``shared`` (bytes of LDS of a program),
    ``n_regs``, ``n_spills`` (registers), ``cooperative``, ``assertions`` (their error texts, see
    :mod:`.codegen.assertions`), ``prints`` (formats, and words of a record, see
    :mod:`.codegen.prints`; None if the kernel prints nothing), ``configuration`` (for messages),
    ``notes`` (missed optimizations).

    Args:
        assembly_only: return the assembly as the binary, without a stage ``hsaco``, for tools that
            read or emulate it. LLVM generates code once for the assembly and once more for a code
            object, which takes up to half of the time.

    Raises:
        LoweringError: an operation cannot be lowered (the message has the operation and its
            location), an option is out of range, or the target is incomplete.
        OutOfResources: a program needs more than the target has.
    """
    from tilewright.llvm.codegen.compile import assembly, assembly_and_object, set_option
    from tilewright.simt.compile import compile_with_state
    from tilewright.simt.dialect.attributes import SHARED_BYTES, WARPS, notes_of
    from tilewright.simt.report import report

    check_complete(target, target_of(architecture(target.arch)))
    machine = GcnTarget(target, options)
    check_options(module.kernel.name, options, machine)
    refuse_externs(module)
    timings: dict[str, float] = {}
    try:
        copy, text, state = compile_with_state(module, machine, options, timings)
    except OutOfResources as error:
        raise OutOfResources(
            error.required,
            error.limit,
            f"{error.name} of kernel {module.kernel.name} ({configuration_text(options)})",
        ) from error
    assert isinstance(state, KernelState)
    settings: dict[str, Any] = {
        "triple": TRIPLE,
        "cpu": target.cpu,
        "features": ",".join(target.features),
        "opt": 3,
        "passes": PASSES,
        "if_long": _IF_LONG,
    }
    for option in _LLVM_OPTIONS:
        set_option(option)
    started = time.perf_counter()
    linked: bytes | None = None
    if assembly_only:
        listing = assembly(text, **settings)
        timings["amdgcn"] = (time.perf_counter() - started) * 1e3
    else:
        listing, unlinked = assembly_and_object(text, assembler=rocm_llvm.__name__, **settings)
        timings["amdgcn"] = (time.perf_counter() - started) * 1e3
        started = time.perf_counter()
        linked = link(unlinked)
        timings["hsaco"] = (time.perf_counter() - started) * 1e3
        _keep_listing(listing, linked)
    name, facts, usage = module.kernel.name, copy.kernel.attributes, usage_of(listing)
    metadata = {
        "kernel": name,
        "num_warps": facts[WARPS],
        "shared": facts[SHARED_BYTES],
        "n_regs": usage.registers,
        "n_spills": usage.spilled,
        "cooperative": bool(options.get("cooperative")),
        "assertions": state.assertions,
        "prints": {"formats": state.formats, "words": state.record_words}
        if state.record_words
        else None,
        "configuration": configuration_text(options),
        "notes": [
            *machine_notes(options, machine),
            *(f"{operation.location}: {note}" for operation, note in notes_of(copy.kernel)),
        ],
    }
    stages: dict[str, str | bytes] = {
        "tileir": str(module), "simt": str(copy), "layouts": report(copy.kernel, machine),
        "llir": text, "amdgcn": listing,
    }  # fmt: skip
    if linked is not None:
        stages["hsaco"] = linked
    return CodeObject(
        name, listing.encode() if linked is None else linked, stages, metadata, timings
    )


def _keep_listing(listing: str, binary: bytes) -> None:
    """Write the assembly to the folder ``TILEWRIGHT_AMD_LISTINGS``, if it is set.

    The file's name is the SHA-256 of the code object, so that tools which get only the binary find
    it.
    """
    folder = os.environ.get("TILEWRIGHT_AMD_LISTINGS")
    if folder:
        write_whole(Path(folder) / hashlib.sha256(binary).hexdigest(), listing.encode())


def machine_notes(options: Mapping[str, Any], machine: GcnTarget) -> list[str]:
    """Return notes about options without an effect on the target."""
    hint = options.get("schedule_hint", "")
    if hint and SCHEDULE_HINTS[hint] is None:
        return [f"schedule_hint={hint!r} changes nothing: LLVM's strategy for it is not sound"]
    if architecture(machine.name).matrix == MFMA:
        return []
    defaults = {"kpack": 1, "matrix_instr_nonkdim": 0, "schedule_hint": ""}
    asked = {
        name: options[name]
        for name, default in defaults.items()
        if options.get(name, default) != default
    }
    return [
        f"{name}={value!r} changes nothing on {machine.name}: it is of MFMA instructions"
        for name, value in asked.items()
    ]


def check_options(name: str, options: Mapping[str, Any], machine: GcnTarget) -> None:
    """Refuse options that no GPU of this backend has.

    Raises:
        LoweringError: the message names the option, its value and the allowed values.
        OutOfResources: more warps than a program may have.
    """
    check_portable(name, options, machine.resources.warp_size, machine.resources.max_threads)
    if options.get("maxnreg") is not None:
        raise LoweringError(
            f"kernel {name}: maxnreg must be None for {machine.name}; waves_per_eu bounds "
            "registers there"
        )
    if options.get("math", OPTIONS["math"]) not in ("relaxed", "strict"):
        raise LoweringError(
            f"kernel {name}: math must be 'relaxed' or 'strict', not {options['math']!r}"
        )
    if not isinstance(options.get("line_info", False), bool):
        raise LoweringError(
            f"kernel {name}: line_info must be True or False, not {options['line_info']!r}"
        )
    waves = options.get("waves_per_eu", 0)
    if isinstance(waves, bool) or not isinstance(waves, int) or not 0 <= waves <= 16:
        raise LoweringError(
            f"kernel {name}: waves_per_eu must be a number from 0 to 16, not {waves!r}"
        )
    chiplets = options.get("chiplets", 0)
    if isinstance(chiplets, bool) or not isinstance(chiplets, int) or not 0 <= chiplets <= 64:
        raise LoweringError(
            f"kernel {name}: chiplets must be a number from 0 to 64, not {chiplets!r}"
        )
    if options.get("kpack", 1) not in (1, 2):
        raise LoweringError(f"kernel {name}: kpack must be 1 or 2, not {options['kpack']!r}")
    if options.get("schedule_hint", "") not in SCHEDULE_HINTS:
        raise LoweringError(
            f"kernel {name}: schedule_hint must be one of {', '.join(map(repr, SCHEDULE_HINTS))}, "
            f"not {options['schedule_hint']!r}"
        )
    if options.get("matrix_instr_nonkdim", 0) not in (0, 16, 32):
        raise LoweringError(
            f"kernel {name}: matrix_instr_nonkdim must be 0, 16 or 32, not "
            f"{options['matrix_instr_nonkdim']!r}"
        )
