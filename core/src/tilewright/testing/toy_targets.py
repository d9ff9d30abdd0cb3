"""Two machines for tests that are as unlike as machines get: what runs on both depends on neither.

:class:`StagedTarget` has wide warps and brings tiles to shared memory through registers only.
:class:`BulkTarget` copies whole blocks, which complete on mbarriers, multiplies asynchronously from
shared memory, and divides a program into parts of any number of warps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilewright.ir.ops.memory import (
    DescriptorGather,
    DescriptorLoad,
    DescriptorScatter,
    DescriptorStore,
)
from tilewright.ir.types import F16, F32, F64, FloatType, IntType, Type
from tilewright.llvm.emission.casts import emit_cast
from tilewright.llvm.emission.registers import register_type
from tilewright.simt.emulator import (
    EmulatedClusters,
    EmulatedMatrix,
    EmulatedProxy,
    EmulatedTarget,
    EmulatedTensorMemory,
    EmulatedTma,
    accumulating_plan,
    asynchronous_plan,
    bulk_mechanism,
    start_copy,
)
from tilewright.simt.emulator.multiply import operand_layout
from tilewright.simt.layouts.linear_layout import LinearLayout, log2
from tilewright.simt.lowering.emission.context import SimtContext
from tilewright.simt.target.copy_mechanism import GROUPS, CopyMechanism
from tilewright.simt.target.fma_plan import result_layout
from tilewright.simt.target.matmul_plan import REGISTERS, SHARED, Matmul, MatmulPlan

#: Names of the plans.
ROWS_AND_COLUMNS = "rows and columns"
FROM_SHARED = "toy.ss"
FROM_REGISTERS = "toy.rs"
INTO_MEMORY = "toy.into"
#: What the words of a descriptor of the highest rank take.
_DESCRIPTOR_BYTES = 128


class StagedTarget(EmulatedTarget):
    """A target of wide warps without asynchronous copies.

    Its matmul takes whole rows of a and columns of b in each thread's registers.

    Args:
        matrix: whether it has that matmul; else all are multiplied and added from shared memory.
        k_step: elements along K that the matmul takes at a time; 0 for all.
        alternating: whether halves of the warps read and multiply in turn.
    """

    name = "staged"

    def __init__(
        self,
        warp_size: int = 64,
        *,
        matrix: bool = True,
        k_step: int = 0,
        alternating: bool = False,
        completion: str = "late",
        seed: int = 0,
    ) -> None:
        super().__init__(warp_size, copy_widths=(), completion=completion, seed=seed)
        if matrix:
            self.matrix = EmulatedMatrix(
                lambda matmul: self._plans(matmul, k_step),
                ping_pong=_Alternating() if alternating else None,
            )

    def _plans(self, matmul: Matmul, k_step: int) -> Sequence[MatmulPlan]:
        if not _is_known(matmul):
            return ()
        c = _result_layout(self, matmul)
        a, b = (operand_layout(c, matmul.k, position) for position in (0, 1))
        step = k_step if k_step < matmul.k else 0
        return (
            MatmulPlan(
                ROWS_AND_COLUMNS, a, b, c, _rows_times_columns(matmul, a, b, c), k_step=step
            ),
        )


class _Alternating:
    """Ping-pong of any number of warps but one."""

    def serves(self, matmul: Matmul) -> bool:
        return matmul.warps > 1

    def phase(self, context: SimtContext, *, matmuls: bool) -> None:
        """Emit nothing."""


class RunsTarget(StagedTarget):
    """A staged machine whose warps copy runs of shared memory as well, lane after lane.

    Args:
        drains: whether its copies are started before reads of shared memory.
    """

    name = "runs"

    def __init__(
        self,
        warp_size: int = 8,
        *,
        drains: bool = False,
        k_step: int = 0,
        alternating: bool = False,
        completion: str = "late",
        seed: int = 0,
    ) -> None:
        super().__init__(
            warp_size, k_step=k_step, alternating=alternating, completion=completion, seed=seed
        )
        self.async_copy.mechanisms = (
            CopyMechanism(
                "runs", GROUPS, (16,), start=_start_in_run, lanes_side_by_side=True, drains=drains
            ),
        )


def _start_in_run(
    context: SimtContext, shared: str, pointer: str, size: int, predicate: str | None
) -> None:
    w = context.writer
    own = w.emit(f"getelementptr i8, ptr {shared}, i32 {w.emit(f'mul i32 {context.lane}, {size}')}")
    start_copy(context, own, pointer, size, predicate)


class BulkTarget(EmulatedTarget):
    """A target with TMA copies, clusters and asynchronous matmuls.

    Matmul operands come from shared memory, or from registers and shared memory.

    Args:
        stores: whether it keeps stores through descriptors too.
        groups: whether it has copies from pointers as well, in groups.
        raises: what addresses must be known to be multiples of, in bytes, where blocks are copied
            of tensors that loads at pointers read; 0: none are.
        makes: whether kernels may make descriptors for it.
        rows: whether threads have whole rows of the result of a matmul, so that one matmul's result
            can be the next one's operand as it is.
        units: of memory for the accumulators of matmuls, one for each column of a result; 0:
            accumulators are in registers.
    """

    name = "bulk"

    def __init__(
        self,
        warp_size: int = 8,
        *,
        stores: bool = True,
        groups: bool = False,
        raises: int = 0,
        makes: bool = True,
        rows: bool = False,
        units: int = 0,
        completion: str = "late",
        seed: int = 0,
    ) -> None:
        super().__init__(
            warp_size, copy_widths=(4, 8, 16) if groups else (), completion=completion, seed=seed
        )
        self._rows = rows
        kept = (
            DescriptorLoad,
            DescriptorGather,
            *((DescriptorStore, DescriptorScatter) if stores else ()),
        )
        self.tma = EmulatedTma(
            self.record,
            lambda operation, divisors, width: isinstance(operation, kept),
            promotes=lambda matmul: bool(raises) and _is_known(matmul),
            reaches=lambda block, divisor: not raises or divisor % raises == 0,
            descriptor_bytes=_DESCRIPTOR_BYTES if makes else 0,
        )
        self.async_copy.mechanisms = (bulk_mechanism(stores=stores), *self.async_copy.mechanisms)
        self.matrix = EmulatedMatrix(self._plans)
        self.async_proxy, self.clusters = (
            EmulatedProxy(self.record),
            EmulatedClusters(self.record, max_ctas=4),
        )
        self.tensor_memory = EmulatedTensorMemory(units) if units else None

    def _plans(self, matmul: Matmul) -> Sequence[MatmulPlan]:
        if not _is_known(matmul):
            return ()
        c = _whole_rows(self, matmul) if self._rows else _result_layout(self, matmul)
        if self.tensor_memory is not None and matmul.accumulator is F32 and len(matmul.shape) == 2:
            return (accumulating_plan(INTO_MEMORY, matmul, c, matmul.shape[1]),)
        return (
            asynchronous_plan(FROM_SHARED, matmul, c, (SHARED, SHARED)),
            asynchronous_plan(FROM_REGISTERS, matmul, c, (REGISTERS, SHARED)),
        )


def _is_known(matmul: Matmul) -> bool:
    return matmul.accumulator in (F16, F32, F64) or (
        isinstance(matmul.accumulator, IntType) and matmul.accumulator.bits == 32
    )


def _result_layout(target: EmulatedTarget, matmul: Matmul) -> LinearLayout:
    return result_layout(matmul.shape, log2(target.resources.warp_size), log2(matmul.warps))


def _whole_rows(target: EmulatedTarget, matmul: Matmul) -> LinearLayout:
    """Threads over the rows; those of a thread far apart, and in its first registers."""
    n, count = log2(matmul.shape[-1]), log2(matmul.shape[-2])
    rows = [1 << n + bit for bit in range(count)]
    lanes, warps = log2(target.resources.warp_size), log2(matmul.warps)
    of_threads = [*rows[: lanes + warps], *[0] * (lanes + warps - count)]
    columns = [1 << bit for bit in range(n)]
    return LinearLayout(
        matmul.shape,
        (*rows[lanes + warps :], *columns),
        tuple(of_threads[:lanes]),
        tuple(of_threads[lanes:]),
    )


def _rows_times_columns(
    matmul: Matmul, a: LinearLayout, b: LinearLayout, c: LinearLayout
) -> Callable[..., list[str]]:
    """Make the emitter of a matmul of rows of ``a`` by columns of ``b`` in each thread's registers.

    Registers along K come last.
    """
    own = [len(layout.registers) - log2(matmul.k) for layout in (a, b)]
    m, n = log2(c.shape[-2]), log2(c.shape[-1])
    # which of its rows, and which of its columns, each register of the result takes
    of_register = [[0], [0]]
    counts = [0, 0]
    for image in c.registers:
        for position, mask in enumerate((~((1 << n) - 1), ~(((1 << m) - 1) << n))):
            moved = 1 << counts[position] if image & mask else 0
            counts[position] += 1 if moved else 0
            of_register[position] += [register ^ moved for register in of_register[position]]

    def emit(
        context: SimtContext, left: list[str], right: list[str], accumulator: list[str]
    ) -> list[str]:
        w = context.writer
        compute: Type = (
            matmul.accumulator
            if isinstance(matmul.accumulator, IntType) or matmul.accumulator is F64
            else F32
        )
        type_ = register_type(compute)
        x, y = (
            [emit_cast(context, name, element, compute, 0) for name in names]
            for names, element in ((left, matmul.a), (right, matmul.b))
        )
        found = [emit_cast(context, name, matmul.accumulator, compute, 0) for name in accumulator]
        for k in range(len(x) >> own[0]):
            for register, (row, column) in enumerate(zip(*of_register, strict=True)):
                pair = x[k << own[0] | row], y[k << own[1] | column]
                if isinstance(compute, FloatType):
                    found[register] = w.intrinsic(
                        "llvm.fma",
                        type_,
                        [(type_, pair[0]), (type_, pair[1]), (type_, found[register])],
                    )
                else:
                    found[register] = w.emit(
                        f"add {type_} {found[register]}, "
                        f"{w.emit(f'mul {type_} {pair[0]}, {pair[1]}')}"
                    )
        return [emit_cast(context, name, compute, matmul.accumulator, 0) for name in found]

    return emit
