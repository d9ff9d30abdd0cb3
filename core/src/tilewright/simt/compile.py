"""All of the toolkit in order: from a module of Tile IR to LLVM IR for one thread.

The way is a tuple of stages, each from IR to IR; a target may put others in. What a stage decides
is in the module when it ends: printed, it can be read back, and the next stage does the same with
it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, MutableMapping
from typing import Any, Final, NamedTuple

from tilewright.errors import OutOfResources
from tilewright.ir.core import Function, Module
from tilewright.llvm.emission.writer import ModuleWriter
from tilewright.passes.clone import clone_module
from tilewright.passes.pipeline import check_after, verification
from tilewright.simt.analysis.async_hazards import check_in_flight
from tilewright.simt.analysis.masked_off_lanes import mark_unobserved
from tilewright.simt.assign_layouts.assign import assign
from tilewright.simt.dialect.attributes import note
from tilewright.simt.lowering.lower_function import write_function
from tilewright.simt.passes.allocate_shared import SHARED_MEMORY, allocate
from tilewright.simt.passes.allocate_tensor_memory import ACCUMULATORS, write_accumulators
from tilewright.simt.passes.check_proxies import check_proxies
from tilewright.simt.passes.converted_operands import share_converted_operands
from tilewright.simt.passes.cta_clusters import divide_program
from tilewright.simt.passes.inline_and_expand import prepare
from tilewright.simt.passes.insert_membar import insert_barriers
from tilewright.simt.passes.narrow_operands import narrow_operands
from tilewright.simt.passes.relax_atomics import relax_atomics
from tilewright.simt.passes.remarks import note_slow_paths, warn_slow
from tilewright.simt.passes.sink_reductions import sink_reductions
from tilewright.simt.passes.split_k import slice_along_k
from tilewright.simt.passes.split_rows import split_rows
from tilewright.simt.passes.stage_operands import stage_operands
from tilewright.simt.passes.tma.lower_tma_loads import write_block_copies
from tilewright.simt.passes.tma.promote_to_tma import raise_loads
from tilewright.simt.passes.warp_count import set_warps, warps_asked
from tilewright.simt.pipeline import expand, schedule, select
from tilewright.simt.pipeline.constant_operands import share_constant_operands
from tilewright.simt.target.simt_target import SimtTarget, Stage


def _on_kernel(
    run: Callable[[Function, SimtTarget], None],
) -> Callable[[Module, SimtTarget, Mapping[str, Any]], None]:
    return lambda module, target, options: run(kernel_of(module), target)


def _assign(function: Function, target: SimtTarget, options: Mapping[str, Any]) -> None:
    assign(function, target, warps_asked(function, options), options)


def _check(function: Function, target: SimtTarget, options: Mapping[str, Any]) -> None:
    if options.get("debug"):
        check_in_flight(function)
    if options.get("debug") or verification() is not None:
        check_proxies(function, target)


#: What part of the shared memory the operands of a matmul may take, one after the other, where
#: whole matmuls do not fit.
_PARTS: Final = (1, 2, 4)

#: The toolkit's own stages, in order.
STAGES: Final = (
    Stage(
        "prepare",
        lambda module, target, options: prepare(module, target),
        "calls, descriptors and block-scaled matmuls become plain operations",
    ),
    Stage(
        "cluster",
        divide_program,
        "a program that several CTAs are to run becomes what each of them does",
    ),
    Stage(
        "warps",
        lambda module, target, options: set_warps(kernel_of(module), target, options),
        "how many warps run a program: those asked for, or more",
    ),
    Stage(
        "narrow",
        narrow_operands,
        "matmuls of f32 whose operands are exact in 16 bits become matmuls of those",
    ),
    Stage(
        "raise",
        raise_loads,
        "loads at pointers that feed matmuls become loads of blocks, where the machine copies "
        "those better",
    ),
    Stage(
        "unobserved",
        _on_kernel(lambda function, target: mark_unobserved(function)),
        "loads whose masked-off lanes nobody sees: no zeros are written there",
    ),
    Stage(
        "atomics",
        _on_kernel(lambda function, target: relax_atomics(function)),
        "atomic updates behind which nothing touches memory do not acquire",
    ),
    Stage(
        "rows",
        split_rows,
        "chains of matmuls of two MMAs' rows a warp become two chains side by side",
    ),
    Stage(
        "layouts",
        lambda module, target, options: _assign(kernel_of(module), target, options),
        "every tile has a layout, every matmul a plan",
    ),
    Stage(
        "sink_reductions",
        lambda module, target, options: sink_reductions(kernel_of(module)),
        "partial sums that loops over matmuls carry are reduced across threads after them",
    ),
    Stage(
        "select",
        lambda module, target, options: select(kernel_of(module), target, options),
        "loads that are copied ahead, by which mechanism",
    ),
    Stage(
        "schedule",
        lambda module, target, options: schedule(kernel_of(module), target, options),
        "how far ahead, and in what order",
    ),
    Stage("expand", _on_kernel(expand), "pipelined loops are written out"),
    Stage(
        "blocks",
        _on_kernel(write_block_copies),
        "blocks that descriptors lead to are copied and waited for",
    ),
    Stage(
        "constants",
        lambda module, target, options: share_constant_operands(kernel_of(module), target, options),
        "operands that stay the same in a loop are read from shared memory, for want of registers",
    ),
    Stage(
        "converted",
        lambda module, target, options: share_converted_operands(
            kernel_of(module), target, options
        ),
        "operands that would be converted through shared memory are read from there, step by step",
    ),
    Stage(
        "stage",
        _on_kernel(stage_operands),
        "operands that matmuls read from shared memory are put there",
    ),
    Stage(
        "accumulators",
        _on_kernel(write_accumulators),
        "matmuls whose accumulator is in tensor memory are started and waited for",
    ),
    Stage("allocate", _on_kernel(allocate), "where in shared memory everything is"),
    Stage("barriers", _on_kernel(insert_barriers), "threads wait for each other where they must"),
    Stage(
        "check",
        lambda module, target, options: _check(kernel_of(module), target, options),
        "under debug or TILEWRIGHT_VERIFY: what is in flight is touched by nothing, and proxy "
        "fences stand where they must",
    ),
    Stage(
        "notes",
        lambda module, target, options: note_slow_paths(kernel_of(module), target, options),
        "what left the fast path, and why",
    ),
)


class Compiled(NamedTuple):
    """A kernel as LLVM IR.

    Attributes:
        module: in its form after the last stage.
        text: the LLVM IR.
        state: the target's, for the kernel
            (:meth:`~tilewright.simt.target.simt_target.SimtTarget.prepare`).
    """

    module: Module
    text: str
    state: object


def compile_fitting(
    module: Module,
    target: SimtTarget,
    options: Mapping[str, Any],
    timings: MutableMapping[str, float] | None = None,
) -> tuple[Module, str]:
    """The module and the text of :func:`compile_with_state`."""
    found = compile_with_state(module, target, options, timings)
    return found.module, found.text


def compile_with_state(
    module: Module,
    target: SimtTarget,
    options: Mapping[str, Any],
    timings: MutableMapping[str, float] | None = None,
) -> Compiled:
    """As :func:`compile_kernel`, but where a program would need more shared memory than there is
    loads are copied less far ahead, and where that is not enough matmuls are cut along K;
    ``module`` stays as it is.

    Raises:
        OutOfResources: a program needs too much so as well; for ``num_stages`` and matmuls as they
            were given.
    """
    stages = int(options.get("num_stages") or 1)
    minimum = min(stages, 2)
    first: OutOfResources | None = None
    for fewer, parts in (
        *((fewer, 0) for fewer in range(stages, minimum - 1, -1)),
        *((minimum, parts) for parts in _PARTS),
    ):
        copy = clone_module(module)
        if parts and not slice_along_k(kernel_of(copy), target.resources.shared_memory // parts):
            continue
        try:
            written = _written(copy, target, {**options, "num_stages": fewer}, timings)
        except OutOfResources as error:
            if error.name == ACCUMULATORS:
                raise
            first = first or error
            if error.name != SHARED_MEMORY:
                break
            continue
        if fewer < stages:
            note(
                next(iter(kernel_of(copy).body)),
                f"num_stages={fewer} in place of {stages}, for want of shared memory",
            )
        return Compiled(copy, written.text(), written.state)
    assert first is not None
    raise first


def compile_kernel(
    module: Module,
    target: SimtTarget,
    options: Mapping[str, Any],
    timings: MutableMapping[str, float] | None = None,
) -> str:
    """LLVM IR text of a module's kernel. The module is changed to its form after the last stage.

    Where ``TILEWRIGHT_VERIFY`` asks for it, the module is verified before the first and after each
    stage.

    Args:
        options: the launch options; ``num_warps`` and ``num_stages`` among them.
        timings: gets the milliseconds of each stage added.

    Raises:
        OutOfResources: a program needs more shared memory or threads than the target has.
        LoweringError: an operation that the target cannot do.
        VerificationError: a stage leaves a module that breaks a rule; the message names the stage.
    """
    return _written(module, target, options, timings).text()


def _written(
    module: Module,
    target: SimtTarget,
    options: Mapping[str, Any],
    timings: MutableMapping[str, float] | None,
) -> ModuleWriter:
    check = verification()
    if check is not None:
        check(module)
    clock = _Clock(timings)
    for stage in target.stages(STAGES):
        stage.run(module, target, options)
        clock.lap(stage.name)
        if check is not None:
            check_after(f"stage {stage.name}", module, check)
            clock.lap("verify")
    function = kernel_of(module)
    written = write_function(function, target, options)
    clock.lap("emit")
    warn_slow(function)
    return written


def run_stages(
    module: Module, target: SimtTarget, options: Mapping[str, Any], names: list[str]
) -> None:
    """Run stages by name on a module, which is verified after each.

    Raises:
        KeyError: there is no stage of a name; the message lists those there are.
        VerificationError: a stage leaves a module that breaks a rule.
    """
    known = {stage.name: stage for stage in target.stages(STAGES)}
    for name in names:
        if name not in known:
            raise KeyError(f"no stage {name!r}; there are {', '.join(known)}")
        known[name].run(module, target, options)
        check_after(f"stage {name}", module)


def kernel_of(module: Module) -> Function:
    """The module's kernel."""
    (function,) = (function for function in module.functions.values() if function.kernel)
    return function


class _Clock:
    def __init__(self, timings: MutableMapping[str, float] | None) -> None:
        self._timings, self._last = timings, time.perf_counter()

    def lap(self, name: str) -> None:
        now = time.perf_counter()
        if self._timings is not None:
            self._timings[name] = self._timings.get(name, 0.0) + (now - self._last) * 1e3
        self._last = now
