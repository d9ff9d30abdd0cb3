"""LLVM IR text to object code and assembly.

The text is parsed, always verified, and handed to code generation. Invalid IR is a defect of the
backend that wrote it: it is reported with a file that reproduces it. The LLVM of the llvmlite wheel
has assertions on, so IR that skipped the verifier would end the process.
"""

from __future__ import annotations

import functools
import re
import time
from collections.abc import Sequence
from typing import Any, Final

import llvmlite.binding as llvm

from tilewright.errors import LoweringError, write_reproducer
from tilewright.llvm.assembly.assembly_sites import Sites
from tilewright.llvm.codegen.interrupts import abandonable
from tilewright.llvm.codegen.subprocess_codegen import (
    Form,
    generate_in_subprocess,
    has_inline_assembly,
)


@functools.cache
def _initialize(everything: bool) -> None:
    if everything:
        llvm.initialize_all_targets()
        llvm.initialize_all_asmprinters()
    else:
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        llvm.initialize_native_asmparser()


#: LLVM's own options that this process has set.
_options: list[str] = []


def set_option(option: str) -> None:
    """Set an LLVM option, ``--name=value``, for this process and its code generators.

    Once is enough. It must come before the first target machine that it is for.
    """
    if option not in _options:
        llvm.set_option("", option)
        _options.append(option)


def options_set() -> tuple[str, ...]:
    """The options that :func:`set_option` has set."""
    return tuple(_options)


@functools.cache
def host_target() -> tuple[str, str, str]:
    """Return (triple, cpu, features) of this machine, as LLVM names them.

    Features that a hypervisor hides are in the list with a minus.
    """
    _initialize(False)
    try:
        features = sorted(
            f"{'+' if on else '-'}{name}" for name, on in llvm.get_host_cpu_features().items()
        )
    except RuntimeError:  # LLVM cannot list this host's features: those the model implies
        features = []
    return llvm.get_process_triple(), llvm.get_host_cpu_name(), ",".join(features)


@functools.cache
def target_machine(
    triple: str,
    cpu: str = "",
    features: str = "",
    opt: int = 2,
    reloc: str = "pic",
    codemodel: str = "small",
) -> llvm.TargetMachine:
    """Return the target machine of a triple, one per process and set of arguments.

    ``opt`` is the code generator's level, 0 to 3.

    Raises:
        LoweringError: this LLVM has no such target.
    """
    native = triple == llvm.get_process_triple()
    _initialize(not native)
    try:
        target = llvm.Target.from_triple(triple)
    except RuntimeError as error:
        raise LoweringError(f"this LLVM generates no code for {triple!r}: {error}") from None
    # LLVM takes the calling convention of this architecture from a name alone, not from the
    # features
    convention = "lp64d" if triple.startswith("riscv64") and "+d" in features.split(",") else ""
    return target.create_target_machine(
        cpu=cpu,
        features=features,
        opt=opt,
        reloc=reloc,
        codemodel=codemodel,
        jit=native,
        abiname=convention,
    )


def parse(ir_text: str) -> llvm.ModuleRef:
    """Parse and verify LLVM IR text.

    Raises:
        LoweringError: the text is not valid LLVM IR. The message has LLVM's reason and the path of
            a file with the text.
    """
    try:
        # In the global context: a module that outlived a context of its own, in a cycle of
        # references say, would end the process.
        module = llvm.parse_assembly(ir_text)
        module.verify()
    except RuntimeError as error:
        place = re.search(r"<string>:(\d+):\d+: error: (.*)", str(error))
        misfit = Sites(ir_text).rejected_call(int(place[1]), place[2]) if place else None
        if misfit is not None:
            raise misfit from None
        path = write_reproducer(ir_text)
        raise LoweringError(
            "the backend wrote LLVM IR that LLVM rejects; this is a defect of the backend. "
            f"{str(error).strip()}\nreproducer: {path}"
        ) from None
    return module


def run_passes(module: llvm.ModuleRef, machine: llvm.TargetMachine, passes: Sequence[str]) -> None:
    """Run LLVM's IR passes on a module.

    A name is a level, ``O1`` to ``O3``, or a pass as llvmlite names it (``sroa``,
    ``instruction_combine``); ``pairs`` is the second level without changes to loops, and with
    neighbouring scalars made vectors where the target computes with those.

    Raises:
        ValueError: no such pass.
    """
    options = llvm.create_pipeline_tuning_options(speed_level=2)
    builder = llvm.create_pass_builder(machine, options)
    for name in passes:
        if name in ("O1", "O2", "O3"):
            options.speed_level = int(name[1])
            leveled = llvm.create_pass_builder(machine, options)
            leveled.getModulePassManager().run(module, leveled)
            continue
        if name == "pairs":
            paired = llvm.create_pipeline_tuning_options(speed_level=2)
            paired.slp_vectorization = True
            paired.loop_unrolling = paired.loop_vectorization = paired.loop_interleaving = False
            levelled = llvm.create_pass_builder(machine, paired)
            levelled.getModulePassManager().run(module, levelled)
            continue
        manager = llvm.create_new_module_pass_manager()
        add = getattr(manager, f"add_{name}_pass", None)
        if add is None:
            raise ValueError(f"LLVM has no pass {name!r} here")
        add()
        manager.run(module, builder)


def prepared(ir_text: str, machine: llvm.TargetMachine, passes: Sequence[str]) -> llvm.ModuleRef:
    """The module of IR text, verified, for a machine, after the passes."""
    module = parse(ir_text)
    module.triple = machine.triple
    module.data_layout = str(machine.target_data)
    if passes:
        run_passes(module, machine, passes)
    return module


#: Lines of IR text from which on it counts as long: tiled kernels stay below, what was unrolled
#: hundreds of times does not.
LONG: Final = 10_000


#: Lines from which on code is generated in a process of its own, which an interrupt ends: the
#: better part of a second, beside which starting it is little.
HUGE: Final = 40_000


def compile_to_object(
    ir_text: str,
    *,
    triple: str,
    cpu: str = "",
    features: str = "",
    opt: int = 2,
    passes: Sequence[str] = (),
    if_long: Sequence[str] = (),
    timings: dict[str, float] | None = None,
) -> bytes:
    """Compile LLVM IR text to object code.

    No IR pass runs unless ``passes`` names it: see :func:`run_passes`.

    Args:
        opt: the code generator's level, 0 to 3.
        if_long: options of LLVM's for texts of more than :data:`LONG` lines, for which code
            generation takes longer than in proportion without them.
        timings: gets ``parse`` and ``codegen`` in milliseconds; what a process of its own takes is
            all ``codegen``.

    Raises:
        LoweringError: the text is not valid LLVM IR, the assembler rejects its inline assembly, or
            this LLVM has no such target.
    """
    start = time.perf_counter()
    made = _generated_apart(
        ir_text,
        "object",
        if_long=if_long,
        triple=triple,
        cpu=cpu,
        features=features,
        opt=opt,
        passes=passes,
    )
    if made is None:
        binary, took = _object(ir_text, triple, cpu, features, opt, passes)
    else:
        (binary,), took = made, (0.0, time.perf_counter() - start)
    if timings is not None:
        timings["parse"], timings["codegen"] = (seconds * 1e3 for seconds in took)
    return binary


@abandonable
def _object(
    ir_text: str, triple: str, cpu: str, features: str, opt: int, passes: Sequence[str]
) -> tuple[bytes, tuple[float, float]]:
    """Object code, and the seconds that parsing and generating took."""
    start = time.perf_counter()
    machine = target_machine(triple, cpu, features, opt)
    module = prepared(ir_text, machine, passes)
    parsed = time.perf_counter()
    binary: bytes = machine.emit_object(module)
    return binary, (parsed - start, time.perf_counter() - parsed)


@abandonable
def _assembly(
    ir_text: str, triple: str, cpu: str, features: str, opt: int, passes: Sequence[str]
) -> str:
    machine = target_machine(triple, cpu, features, opt)
    text: str = machine.emit_assembly(prepared(ir_text, machine, passes))
    return text


def assembly(
    ir_text: str,
    *,
    triple: str,
    cpu: str = "",
    features: str = "",
    opt: int = 2,
    passes: Sequence[str] = (),
    if_long: Sequence[str] = (),
) -> str:
    """The target's assembly of LLVM IR text; arguments and errors as :func:`compile_to_object`."""
    made = _generated_apart(
        ir_text,
        "assembly",
        if_long=if_long,
        triple=triple,
        cpu=cpu,
        features=features,
        opt=opt,
        passes=passes,
    )
    return (
        _assembly(ir_text, triple, cpu, features, opt, passes) if made is None else made[0].decode()
    )


def assembly_and_object(
    ir_text: str,
    *,
    triple: str,
    cpu: str = "",
    features: str = "",
    opt: int = 2,
    passes: Sequence[str] = (),
    if_long: Sequence[str] = (),
    assembler: str = "",
) -> tuple[str, bytes]:
    """Compile a text as :func:`assembly` and :func:`compile_to_object`, with passes run once.

    Args:
        assembler: the module that generates code where there is inline assembly, which this LLVM
            cannot read for the target; see ``generator`` of
            :func:`~tilewright.llvm.codegen.subprocess_codegen.generate_in_subprocess`.
    """
    made = _generated_apart(
        ir_text, "assembly", "object", if_long=if_long, triple=triple, cpu=cpu, features=features,
        opt=opt, passes=passes, generator=assembler,
    )  # fmt: skip
    return (
        _assembly_and_object(ir_text, triple, cpu, features, opt, passes)
        if made is None
        else (made[0].decode(), made[1])
    )


@abandonable
def _assembly_and_object(
    ir_text: str, triple: str, cpu: str, features: str, opt: int, passes: Sequence[str]
) -> tuple[str, bytes]:
    machine = target_machine(triple, cpu, features, opt)
    module = prepared(ir_text, machine, passes)
    listing: str = machine.emit_assembly(module.clone())  # generating code changes the module
    binary: bytes = machine.emit_object(module)
    return listing, binary


def _generated_apart(
    ir_text: str, *forms: Form, if_long: Sequence[str], generator: str = "", **settings: Any
) -> list[bytes] | None:
    """Return the code that a child process generates; None where none is needed.

    It is needed for long text, and for inline assembly that an assembler reads.

    Args:
        generator: serves where there is inline assembly.
    """
    lines = ir_text.count("\n")
    options = if_long if lines > LONG else ()
    assembled = "object" in forms and has_inline_assembly(ir_text)
    if not (options or lines > HUGE or assembled):
        return None
    return generate_in_subprocess(
        ir_text, *forms, options=options, generator=generator if assembled else "", **settings
    )
