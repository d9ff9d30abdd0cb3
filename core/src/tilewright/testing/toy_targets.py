"""Two machines for tests that are as unlike as machines get: what runs on both depends on neither.

:class:`StagedTarget` has wide warps and brings tiles to shared memory through registers only. :class:`BulkTarget` copies whole blocks, which complete on
barrier objects, multiplies asynchronously from shared memory, and divides a program into parts of any number of warps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilewright.ir.types import F16, F32, F64, DescriptorType, FloatType, IntType, Type
from tilewright.llvm.casts import emit_cast
from tilewright.llvm.registers import register_type
from tilewright.simt.emulator import EmulatedTarget, accumulating_plan, asynchronous_plan, bulk_mechanism, start_copy
from tilewright.simt.emulator.multiply import operand_layout
from tilewright.simt.layouts.linear_layout import LinearLayout, log2
from tilewright.simt.lowering.emission.context import SimtContext
from tilewright.simt.target.copy_mechanism import GROUPS, BlockAccess, CopyMechanism
from tilewright.simt.target.fma_plan import result_layout
from tilewright.simt.target.matmul_plan import REGISTERS, SHARED, Product, ProductPlan

#: Names of the plans.
ROWS_AND_COLUMNS = "rows and columns"
FROM_SHARED = "toy.ss"
FROM_REGISTERS = "toy.rs"
INTO_MEMORY = "toy.into"
#: What the words of a descriptor of the highest rank take.
_DESCRIPTOR_BYTES = 128


class StagedTarget(EmulatedTarget):
    """A machine of wide warps without asynchronous copies. Its product takes whole rows of a and columns of b in each thread's registers.

    Args:
        matrix: whether it has that product; else all are multiplied and added from shared memory.
        k_step: elements along K that the product takes at a time; 0 for all.
        alternating: whether halves of the warps read and multiply by turns.
    """

    name = "staged"

    def __init__(
        self, warp_size: int = 64, *, matrix: bool = True, k_step: int = 0, alternating: bool = False, completion: str = "late", seed: int = 0
    ) -> None:
        super().__init__(warp_size, copy_widths=(), completion=completion, seed=seed)
        self.matrix, self.k_step, self.alternating = matrix, k_step, alternating

    def alternates(self, product: Product) -> bool:
        return self.alternating and product.warps > 1

    def products(self, product: Product) -> Sequence[ProductPlan]:
        if not self.matrix or not _is_known(product):
            return ()
        c = _result_layout(self, product)
        a, b = (operand_layout(c, product.k, position) for position in (0, 1))
        step = self.k_step if self.k_step < product.k else 0
        return (ProductPlan(ROWS_AND_COLUMNS, a, b, c, _rows_times_columns(product, a, b, c), k_step=step),)


class RunsTarget(StagedTarget):
    """A staged machine whose warps copy runs of shared memory as well, lane after lane.

    Args:
        drains: whether its copies are started before reads of shared memory.
    """

    name = "runs"

    def __init__(
        self, warp_size: int = 8, *, drains: bool = False, k_step: int = 0, alternating: bool = False, completion: str = "late", seed: int = 0
    ) -> None:
        super().__init__(warp_size, k_step=k_step, alternating=alternating, completion=completion, seed=seed)
        self.mechanisms = (CopyMechanism("runs", GROUPS, (16,), start=_start_in_run, lanes_side_by_side=True, drains=drains),)


def _start_in_run(context: SimtContext, shared: str, pointer: str, size: int, predicate: str | None) -> None:
    w = context.writer
    own = w.emit(f"getelementptr i8, ptr {shared}, i32 {w.emit(f'mul i32 {context.lane}, {size}')}")
    start_copy(context, own, pointer, size, predicate)


class BulkTarget(EmulatedTarget):
    """A machine with copies of blocks and asynchronous products, from shared memory and from registers and shared memory, and with clusters.

    Args:
        stores: whether it keeps stores through descriptors too.
        groups: whether it has copies from pointers as well, in groups.
        raises: what addresses must be known to be multiples of, in bytes, where blocks are copied of tensors that loads at pointers read; 0: none are.
        makes: whether kernels may make descriptors for it.
        rows: whether threads have whole rows of the result of a product, so that one product's result can be the next one's operand as it is.
        units: of memory for the sums of products, one for each column of a result; 0: sums are in registers.
    """

    name = "bulk"
    published = True
    cluster_blocks = 4

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
        super().__init__(warp_size, copy_widths=(4, 8, 16) if groups else (), completion=completion, seed=seed)
        self.stores, self.raises, self.rows, self.accumulator_units = stores, raises, rows, units
        self.descriptor_bytes = _DESCRIPTOR_BYTES if makes else 0
        bulk: CopyMechanism = bulk_mechanism(stores=stores)
        self.mechanisms = (bulk, *self.mechanisms)

    def keeps_descriptor(self, operation: BlockAccess, divisors: Sequence[int], width: int) -> bool:
        return operation.name in ("descriptor_load", "descriptor_gather") or (self.stores and operation.name in ("descriptor_store", "descriptor_scatter"))

    def wants_blocks(self, product: Product) -> bool:
        return bool(self.raises) and _is_known(product)

    def reaches(self, block: DescriptorType, divisor: int) -> bool:
        return not self.raises or divisor % self.raises == 0

    def products(self, product: Product) -> Sequence[ProductPlan]:
        if not _is_known(product):
            return ()
        c = _whole_rows(self, product) if self.rows else _result_layout(self, product)
        if self.accumulator_units and product.accumulator is F32 and len(product.shape) == 2:
            return (accumulating_plan(INTO_MEMORY, product, c, product.shape[1]),)
        return (
            asynchronous_plan(FROM_SHARED, product, c, (SHARED, SHARED)),
            asynchronous_plan(FROM_REGISTERS, product, c, (REGISTERS, SHARED)),
        )


def _is_known(product: Product) -> bool:
    return product.accumulator in (F16, F32, F64) or (isinstance(product.accumulator, IntType) and product.accumulator.bits == 32)


def _result_layout(target: EmulatedTarget, product: Product) -> LinearLayout:
    return result_layout(product.shape, log2(target.warp_size), log2(product.warps))


def _whole_rows(target: EmulatedTarget, product: Product) -> LinearLayout:
    """Threads over the rows; those of a thread far apart, and in its first registers."""
    n, count = log2(product.shape[-1]), log2(product.shape[-2])
    rows = [1 << n + bit for bit in range(count)]
    lanes, warps = log2(target.warp_size), log2(product.warps)
    of_threads = [*rows[: lanes + warps], *[0] * (lanes + warps - count)]
    columns = [1 << bit for bit in range(n)]
    return LinearLayout(product.shape, (*rows[lanes + warps :], *columns), tuple(of_threads[:lanes]), tuple(of_threads[lanes:]))


def _rows_times_columns(product: Product, a: LinearLayout, b: LinearLayout, c: LinearLayout) -> Callable[..., list[str]]:
    """Writes a product of which each thread has its rows of ``a`` and columns of ``b`` in registers, those along K last."""
    own = [len(layout.registers) - log2(product.k) for layout in (a, b)]
    m, n = log2(c.shape[-2]), log2(c.shape[-1])
    # which of its rows, and which of its columns, each register of the result takes
    of_register = [[0], [0]]
    counts = [0, 0]
    for image in c.registers:
        for position, mask in enumerate((~((1 << n) - 1), ~(((1 << m) - 1) << n))):
            moved = 1 << counts[position] if image & mask else 0
            counts[position] += 1 if moved else 0
            of_register[position] += [register ^ moved for register in of_register[position]]

    def emit(context: SimtContext, left: list[str], right: list[str], sums: list[str]) -> list[str]:
        w = context.writer
        compute: Type = product.accumulator if isinstance(product.accumulator, IntType) or product.accumulator is F64 else F32
        type_ = register_type(compute)
        x, y = ([emit_cast(context, name, element, compute, 0) for name in names] for names, element in ((left, product.a), (right, product.b)))
        found = [emit_cast(context, name, product.accumulator, compute, 0) for name in sums]
        for k in range(len(x) >> own[0]):
            for register, (row, column) in enumerate(zip(*of_register, strict=True)):
                pair = x[k << own[0] | row], y[k << own[1] | column]
                if isinstance(compute, FloatType):
                    found[register] = w.intrinsic("llvm.fma", type_, [(type_, pair[0]), (type_, pair[1]), (type_, found[register])])
                else:
                    found[register] = w.emit(f"add {type_} {found[register]}, {w.emit(f'mul {type_} {pair[0]}, {pair[1]}')}")
        return [emit_cast(context, name, compute, product.accumulator, 0) for name in found]

    return emit
