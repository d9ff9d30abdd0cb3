"""Lowering of tile IR to PTX, and to device code if the driver or an assembler is there."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from typing import Any

from tilewright.errors import LoweringError, OutOfResources
from tilewright.gpu_host.expressions import Expression, word
from tilewright.ir.core import Function, Module
from tilewright.ir.types import DescriptorType
from tilewright.plugins.manifest import CodeObject, Target
from tilewright.simt.target.launch_options import check_portable, configuration_text
from tilewright_nvidia.architectures import ARCHITECTURES, check_target
from tilewright_nvidia.async_copy.tma import TensorMaps
from tilewright_nvidia.codegen.kernel_state import KernelState
from tilewright_nvidia.manifest import OPTIONS
from tilewright_nvidia.target import TRIPLE, PtxTarget
from tilewright_nvidia.toolchain.occupancy_attempt import attempt_line, limit_line
from tilewright_nvidia.toolchain.occupancy_bound import ATTEMPTED

#: LLVM passes to run before code generation. Without instruction combining, code generation takes
#: ten times as long for matmuls: straight-line strength reduction compares all pairs of addresses
#: of a block.
PASSES = ("instruction_combine",)
#: Options for long kernels, which disable that strength reduction.
IF_LONG = ("--opt-disable=slsr",)

#: ptxas (CUDA 13.0) widens 16-bit negations and absolute values that are compared, and takes those
#: of -32768 as +32768. It does not widen shifts, sums and complements.
_REWRITTEN = (
    (re.compile(r"neg\.s16 \t(%rs\d+), (%rs\d+);"), r"not.b16 \t\1, \2;\n\tadd.s16 \t\1, \1, 1;"),
    (
        re.compile(r"abs\.s16 \t(%rs\d+), (%rs\d+);"),
        (
            r"{\n\t.reg .b16 %sign;\n\tshr.s16 \t%sign, \2, 15;\n\tadd.s16 \t\1, \2, "
            r"%sign;\n\txor.b16 \t\1, \1, %sign;\n\t}"
        ),
    ),
)


def lower(module: Module, target: Target, options: Mapping[str, Any]) -> CodeObject:
    """Lower a module of one kernel to PTX, leaving the module unchanged.

    Stages: ``tileir`` (the input), ``simt`` (with layout conversions and shared memory),
    ``layouts`` (each tile's layout, the costs of conversions and accesses, missed optimizations),
    ``llir``, ``ptx``, and ``cubin`` if it was compiled. The binary is the cubin, or else the PTX,
    which :mod:`.host.image` links when it loads it. Metadata: ``kernel`` (the symbol),
    ``num_warps`` and ``shared`` (bytes) of a CTA, ``cluster`` (CTAs of a program), ``launch_pdl``,
    ``cooperative``, ``tensor_maps`` (see :mod:`.async_copy.tensor_maps`), ``otherwise`` (options
    for launches whose tensor maps cannot be encoded), ``format`` (``cubin`` or ``ptx``),
    ``configuration`` (for messages), ``notes`` (missed optimizations).

    Raises:
        LoweringError: an operation cannot be lowered (the message has the operation and its
            location), an option is out of range, or the target is incomplete.
        OutOfResources: a program needs more than the target has.
    """
    from tilewright.simt.compile import compile_with_state
    from tilewright.simt.dialect.attributes import CLUSTER, SHARED_BYTES, WARPS, notes_of
    from tilewright.simt.passes.allocate_tensor_memory import ACCUMULATORS
    from tilewright.simt.report import report
    from tilewright.simt.target.externs import libraries_called

    check_target(target)
    check_options(module.kernel.name, options)
    libraries = libraries_called(module, options.get("extern_libs"), TRIPLE)
    timings: dict[str, float] = {}
    notes: list[str] = []
    try:
        try:
            machine = PtxTarget(target, options, libraries=libraries)
            copy, text, state = compile_with_state(module, machine, options, timings)
        except OutOfResources as error:
            if error.name != ACCUMULATORS:
                raise
            notes.append(
                f"accumulators are in registers: they would take {error.required} columns of "
                f"tensor memory, which has {error.limit}"
            )
            machine = PtxTarget(target, options, tensor_accumulators=False, libraries=libraries)
            copy, text, state = compile_with_state(module, machine, options, timings)
    except OutOfResources as error:
        raise OutOfResources(
            error.required,
            error.limit,
            f"{error.name} of kernel {module.kernel.name} ({configuration_text(options)})",
        ) from error
    assert isinstance(state, KernelState)
    if libraries is not None:
        text = libraries.linked(text, target.cpu, ",".join(target.features))
    ptx = to_ptx(text, target, timings)
    name, facts = module.kernel.name, copy.kernel.attributes
    if ATTEMPTED in facts:
        ptx = f"{attempt_line(facts[ATTEMPTED])}{ptx}"
    elif state.most_registers and not options.get("maxnreg"):
        ptx = f"{limit_line()}{ptx}"
    maps = tensor_maps(module.kernel, copy.kernel, state.maps)
    metadata = {
        "kernel": name,
        "num_warps": facts[WARPS],
        "cluster": facts.get(CLUSTER, 1),
        "shared": facts[SHARED_BYTES],
        "launch_pdl": bool(options.get("launch_pdl"))
        and ARCHITECTURES[target.arch].capability >= 90,
        "cooperative": bool(options.get("cooperative")),
        "tensor_maps": maps,
        "otherwise": {"asynchronous": False} if maps else None,
        "format": "ptx",
        "configuration": configuration_text(options),
        "notes": [
            *notes,
            *(f"{operation.location}: {note}" for operation, note in notes_of(copy.kernel)),
        ],
    }
    stages: dict[str, str | bytes] = {
        "tileir": str(module),
        "simt": str(copy),
        "layouts": report(copy.kernel, machine),
        "llir": text,
        "ptx": ptx,
    }
    code = CodeObject(name, ptx.encode(), stages, metadata, timings)
    attach_cubin(code, target)
    return code


def check_options(name: str, options: Mapping[str, Any]) -> None:
    """Refuse options that no GPU of this backend has.

    Raises:
        LoweringError: the message names the option, its value and the allowed values.
        OutOfResources: more warps than a CTA may have.
    """
    check_portable(name, options, 32, 1024)
    registers = options.get("maxnreg")
    if registers is not None and (
        isinstance(registers, bool) or not isinstance(registers, int) or not 24 <= registers <= 255
    ):
        raise LoweringError(
            f"kernel {name}: maxnreg must be None or a number of registers from 24 to 255, not "
            f"{registers!r}"
        )
    if options.get("math", "relaxed") not in ("relaxed", "strict"):
        raise LoweringError(
            f"kernel {name}: math must be 'relaxed' or 'strict', not {options['math']!r}"
        )
    for switch in ("asynchronous", "line_info"):
        if not isinstance(options.get(switch, OPTIONS[switch]), bool):
            raise LoweringError(
                f"kernel {name}: {switch} must be True or False, not {options[switch]!r}"
            )


def tensor_maps(source: Function, function: Function, maps: TensorMaps) -> list[dict[str, Any]]:
    """Return the kernel's tensor map parameters, as expressions over the source's argument words.

    Args:
        source, function: the kernel as the source has it, and fully lowered, where each descriptor
            is its words, after the descriptor itself or without it.
        maps: the tensor maps of the function.
    """
    if not maps.wanted:
        return []
    #: for each argument of the function: the source's argument, and its first word there
    places: list[tuple[int, int]] = []
    for position, argument in enumerate(source.arguments):
        if isinstance(argument.type, DescriptorType):
            if isinstance(function.arguments[len(places)].type, DescriptorType):
                places.append((position, 0))
            places += [(position, index) for index in range(1 + 2 * argument.type.rank)]
        else:
            places.append((position, 0))

    def of_source(place: int, index: int) -> Expression:
        position, first = places[place]
        return word(position, first + index)

    return [map_.with_words(of_source).facts() for _, map_ in maps.wanted]


def to_ptx(text: str, target: Target, timings: dict[str, float] | None = None) -> str:
    """Compile LLVM IR text to PTX.

    Raises:
        LoweringError: LLVM rejects the text, which is a defect of this backend.
    """
    from tilewright.llvm.codegen.compile import assembly, set_option

    set_option("--nvptx-short-ptr")  # 32-bit shared memory addresses
    started = time.perf_counter()
    ptx = assembly(
        text,
        triple=TRIPLE,
        cpu=target.cpu,
        features=",".join(target.features),
        opt=3,
        passes=PASSES,
        if_long=IF_LONG,
    )
    for instruction, replacement in _REWRITTEN:
        ptx = instruction.sub(replacement, ptx)
    if timings is not None:
        timings["ptx"] = (time.perf_counter() - started) * 1e3
    return ptx


def attach_cubin(code: CodeObject, target: Target) -> None:
    """Link the PTX if this process may use a matching device.

    The disk cache then has device code. Otherwise the process that loads the code links it.
    """
    from tilewright_nvidia.host.ahead_of_time import link_here

    started = time.perf_counter()
    linked = link_here(code.binary, target, f"{code.name} ({code.metadata['configuration']})")
    if linked is None:
        return
    code.timings["link"] = (time.perf_counter() - started) * 1e3
    code.metadata.update(n_spills=linked.spills, link_log=linked.log, linked_by=linked.by)
    if not linked.binary.startswith(code.binary):  # remaining PTX is compiled at load time
        code.binary = linked.binary
        code.stages["cubin"] = linked.binary
        code.metadata.update(format="cubin")
