"""Tile IR to object code for a CPU."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from tilewright.errors import LoweringError
from tilewright.ir.core import Module, Operation
from tilewright.ir.ops.control import While
from tilewright.ir.ops.memory import Load
from tilewright.ir.table import Effect
from tilewright.llvm.emission.contraction import is_contracted
from tilewright.passes.analysis.write_extent import certain_writes
from tilewright.plugins.manifest import CodeObject, Target
from tilewright_cpu.codegen.kernel import write_module
from tilewright_cpu.codegen.sanitizer.bounds import bounded_arguments


def lower(module: Module, target: Target, options: Mapping[str, Any]) -> CodeObject:
    """Compile a module of one kernel to an object file.

    The module is left as it is. Stages: ``tileir``, ``llir``. Metadata: ``kernel`` (the symbol),
    ``arch`` and ``features`` that it needs, ``asserts`` (messages by index), ``bounds`` (the
    arguments whose bounds the launcher puts behind them, see :mod:`.codegen.sanitizer.bounds`),
    ``memory_bytes`` and ``cleared_bytes`` (heap memory that a thread passes to the kernel's
    function, see :mod:`.codegen.kernel`), ``arena_bytes`` (heap memory a thread takes in all),
    ``contracted`` (whether multiplications and additions were fused), ``prepackable`` (whether it
    looks up operands that were packed before the launch), ``polls`` (whether its loops have
    cancellation checks), ``cooperative`` (whether all programs run at once), ``waits`` (where a
    loop is that may wait for another program), ``writes`` (see
    :mod:`tilewright.runtime.arguments.bounds_check`).

    Raises:
        LoweringError: something cannot be lowered, with the operation and its location; or an
            option has no such value.
    """
    from tilewright.llvm.codegen.compile import compile_to_object
    from tilewright_cpu.target import llvm_target

    triple, cpu, features = llvm_target(target)
    started = time.perf_counter()
    if options.get("flush_denormals") not in (None, False, True):
        raise LoweringError(
            f"kernel {module.kernel.name}: flush_denormals must be True, False or None, not "
            f"{options['flush_denormals']!r}"
        )
    found = write_module(module, target, options)
    timings = {"lower": (time.perf_counter() - started) * 1e3}
    passes = _passes(bool(options.get("debug")))
    binary = compile_to_object(
        found.text, triple=triple, cpu=cpu, features=features, passes=passes, timings=timings
    )
    metadata = {
        "kernel": found.symbol,
        "arch": target.arch,
        "features": [feature[1:] for feature in target.features if feature.startswith("+")],
        "asserts": found.messages,
        "memory_bytes": found.memory_bytes,
        "cleared_bytes": found.cleared_bytes,
        "arena_bytes": found.arena_bytes,
        "contracted": is_contracted(module.kernel, options),
        "prepackable": found.prepackable,
        "polls": found.polls,
    }
    if options.get("debug"):
        metadata["bounds"] = bounded_arguments(module)
    if options.get("cooperative"):
        metadata["cooperative"] = True
    waits = waiting_loop(module)
    if waits is not None:
        metadata["waits"] = str(waits.location)
    writes = certain_writes(module)
    if writes:
        metadata["writes"] = [
            [write.argument, write.first, write.end, *write.place] for write in writes
        ]
    return CodeObject(
        found.symbol, binary, {"tileir": str(module), "llir": found.text}, metadata, timings
    )


def waiting_loop(module: Module) -> Operation | None:
    """The first loop that may end by what another program writes, or None.

    It is a ``while`` that reads memory in order, or anew each time.
    """
    for function in module.functions.values():
        for operation in function.walk():
            if isinstance(operation, While) and any(
                _reads_anew(inner) for region in operation.regions for inner in region.walk()
            ):
                return operation
    return None


def _reads_anew(operation: Operation) -> bool:
    effects = operation.spec.effects
    updates = bool(effects & Effect.READ) and bool(effects & (Effect.WRITE | Effect.ORDER))
    return updates or (isinstance(operation, Load) and operation.volatile)


def _passes(debug: bool) -> tuple[str, ...]:
    """LLVM's IR passes for a kernel: checks collect in memory what loops carry in registers."""
    return ("sroa",) if debug else ()


def listing(code: CodeObject, target: Target) -> str:
    """The assembly of a code object whose stages were kept."""
    from tilewright.llvm.codegen.compile import assembly
    from tilewright_cpu.target import llvm_target

    triple, cpu, features = llvm_target(target)
    return assembly(
        str(code.stages["llir"]),
        triple=triple,
        cpu=cpu,
        features=features,
        passes=_passes("bounds" in code.metadata),
    )
