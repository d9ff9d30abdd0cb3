"""The description of a matmul of matrices in memory: its operands, accumulator and conditions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tilewright.ir.types import F16, F32, F64, I32, FloatType, Type
from tilewright.llvm.emission.writer import FunctionWriter
from tilewright_cpu.codegen.gemm.batched_k import BatchedAccumulation
from tilewright_cpu.codegen.gemm.extent_limit import ALL, Limits
from tilewright_cpu.codegen.gemm.loop_accumulator import LoopAccumulator
from tilewright_cpu.codegen.gemm.operand import Accumulator
from tilewright_cpu.codegen.gemm.pack import Matrix
from tilewright_cpu.codegen.gemm.pack_cache import PackCache
from tilewright_cpu.codegen.gemm.plan import FMA32, FMA64, IEEE, Scheme, choose_scheme
from tilewright_cpu.hardware import Hardware

#: Returns the address of room for a number of elements, aligned to 64 bytes.
Allocate = Callable[[int, Type], str]

#: LLVM type of a K-group -> the element type of buffers for packed operands.
BUFFER_ELEMENT: dict[str, Type] = {"float": F32, "double": F64, "i32": I32}


@dataclass(frozen=True)
class Gemm:
    """``c += a @ b`` (``c = a @ b`` where ``c.zero``) for matrices M x K and K x N.

    Attributes:
        elements: the operand types of the dot; a matrix may hold narrower floats, which are widened
            exactly.
        precision: the precision of a matmul of f32.
        sequential: whether each element of c is added to by one k after the other.
        invariant: whether the bits of a row must not depend on the number of rows.
        limits: the extents to compute.
        prepacked: the address of the list of matrices that were packed before (see
            :mod:`.prepack_lookup`), or the null pointer; None where B is not one of them for
            certain.
        batching: how the matmul is added up together with those of other iterations of a loop; None
            where it is not.
        pack_caches: the caches of packed tiles of A, and of B, for later programs; None where there
            are none.
        loop: the state of a loop's accumulator that starts from zero; None for other ones.
    """

    w: FunctionWriter
    hardware: Hardware
    elements: tuple[Type, Type]
    a: Matrix
    b: Matrix
    c: Accumulator
    allocate: Allocate
    limits: Limits = ALL
    prepacked: str | None = None
    batching: BatchedAccumulation | None = None
    pack_caches: tuple[PackCache | None, PackCache | None] = (None, None)
    precision: str = IEEE
    sequential: bool = False
    invariant: bool = False
    loop: LoopAccumulator | None = None

    @property
    def scheme(self) -> Scheme:
        if self.sequential and isinstance(self.c.element, FloatType):
            return FMA64 if self.c.element is F64 else FMA32
        extents = self.a.rows, self.b.columns, self.a.columns
        scheme = choose_scheme(*self.elements, self.hardware, extents, self.precision)
        # accumulators in f16 are rounded at each addition
        return FMA32 if scheme.split is not None and self.c.element is F16 else scheme
