"""Compilation of a module of Tile IR to LLVM IR for one thread, in stages.

Each stage rewrites the IR; a target may insert stages of its own. A stage records its decisions in
the module, so that a module that is printed after any stage and read back compiles to the same
code.
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
from tilewright.simt.pipeline.overlap_results import overlap_results
from tilewright.simt.pipeline.prefetch_beside_matmuls import prefetch_beside_matmuls
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


#: Divisors of the shared memory that the operands of a matmul may take; tried in order if whole
#: matmuls do not fit.
_PARTS: Final = (1, 2, 4)

#: The toolkit's own stages, in order.
STAGES: Final = (
    Stage(
        "prepare",
        lambda module, target, options: prepare(module, target),
        "inline calls, and expand descriptors and block-scaled matmuls to plain operations",
    ),
    Stage(
        "cluster",
        divide_program,
        "partition a program among the CTAs of its cluster",
    ),
    Stage(
        "warps",
        lambda module, target, options: set_warps(kernel_of(module), target, options),
        "choose the number of warps: as requested, or more",
    ),
    Stage(
        "narrow",
        narrow_operands,
        "turn f32 matmuls whose operands are exact in 16 bits into 16-bit matmuls",
    ),
    Stage(
        "raise",
        raise_loads,
        "promote pointer loads that feed matmuls to TMA block loads, where the target copies those "
        "faster",
    ),
    Stage(
        "unobserved",
        _on_kernel(lambda function, target: mark_unobserved(function)),
        "mark loads whose masked-off lanes are not observed, so that no zeros are written there",
    ),
    Stage(
        "atomics",
        _on_kernel(lambda function, target: relax_atomics(function)),
        "drop the acquire ordering of atomics that no access to memory follows",
    ),
    Stage(
        "rows",
        split_rows,
        "split back-to-back matmuls with two MMAs of rows per warp into two independent chains",
    ),
    Stage(
        "layouts",
        lambda module, target, options: _assign(kernel_of(module), target, options),
        "assign a layout to every tile, and a plan to every matmul",
    ),
    Stage(
        "sink_reductions",
        lambda module, target, options: sink_reductions(kernel_of(module)),
        "reduce loop-carried partial sums across threads after the loop, not in each iteration",
    ),
    Stage(
        "select",
        lambda module, target, options: select(kernel_of(module), target, options),
        "select the loads to prefetch, and their copy mechanisms",
    ),
    Stage(
        "schedule",
        lambda module, target, options: schedule(kernel_of(module), target, options),
        "choose form, slots and prefetch distance of each pipelined loop",
    ),
    Stage(
        "expand",
        _on_kernel(expand),
        "write prologue, steady state and epilogue of pipelined loops",
    ),
    Stage(
        "blocks",
        _on_kernel(write_block_copies),
        "write the remaining descriptor accesses as TMA copies and waits",
    ),
    Stage(
        "constants",
        lambda module, target, options: share_constant_operands(kernel_of(module), target, options),
        "keep loop-invariant operands in shared memory if registers are short",
    ),
    Stage(
        "converted",
        lambda module, target, options: share_converted_operands(
            kernel_of(module), target, options
        ),
        "read operands by K steps from shared memory that a conversion would pass through anyway",
    ),
    Stage(
        "stage",
        _on_kernel(stage_operands),
        "stage in shared memory the operands that matmuls read from there",
    ),
    Stage(
        "accumulators",
        _on_kernel(write_accumulators),
        "start and wait for matmuls with accumulators in tensor memory",
    ),
    Stage(
        "beside",
        _on_kernel(prefetch_beside_matmuls),
        "prefetch small loads beside asynchronous matmuls to words of each warp's own",
    ),
    Stage(
        "overlap",
        _on_kernel(overlap_results),
        "start matmuls before the results of the previous ones are used",
    ),
    Stage(
        "allocate",
        _on_kernel(allocate),
        "assign shared memory offsets to buffers and scratch space",
    ),
    Stage(
        "barriers",
        _on_kernel(insert_barriers),
        "insert the barriers between dependent accesses of shared memory",
    ),
    Stage(
        "check",
        lambda module, target, options: _check(kernel_of(module), target, options),
        "under debug or TILEWRIGHT_VERIFY: verify that nothing accesses data in flight, and that "
        "proxy fences are in place",
    ),
    Stage(
        "notes",
        lambda module, target, options: note_slow_paths(kernel_of(module), target, options),
        "report missed optimizations, and the reasons",
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
    """Return the module and the text of :func:`compile_with_state`."""
    found = compile_with_state(module, target, options, timings)
    return found.module, found.text


def compile_with_state(
    module: Module,
    target: SimtTarget,
    options: Mapping[str, Any],
    timings: MutableMapping[str, float] | None = None,
) -> Compiled:
    """Compile a kernel with as many stages as shared memory allows; leave ``module`` unchanged.

    If a program needs more shared memory than there is, loads are prefetched by fewer stages, and
    then matmuls are split along K. See :func:`compile_kernel`.

    Raises:
        OutOfResources: a program needs too much even so; the error is the one of the requested
            ``num_stages`` and of whole matmuls.
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
    """Return the LLVM IR of a module's kernel; the module changes to its form after the last stage.

    If ``TILEWRIGHT_VERIFY`` requests it, the module is verified before the first stage and after
    each.

    Args:
        options: the launch options; ``num_warps`` and ``num_stages`` among them.
        timings: a dictionary to which the milliseconds of each stage are added.

    Raises:
        OutOfResources: a program needs more shared memory or threads than the target has.
        LoweringError: the target cannot execute an operation.
        VerificationError: the module breaks a rule after a stage, which the message names.
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
        KeyError: there is no stage of a name; the message lists the stages.
        VerificationError: the module breaks a rule after a stage.
    """
    known = {stage.name: stage for stage in target.stages(STAGES)}
    for name in names:
        if name not in known:
            raise KeyError(f"no stage {name!r}; there are {', '.join(known)}")
        known[name].run(module, target, options)
        check_after(f"stage {name}", module)


def kernel_of(module: Module) -> Function:
    """Return the module's kernel."""
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
