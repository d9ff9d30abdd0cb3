"""TMA: bulk tensor copies (``cp.async.bulk.tensor``), from sm_90 on.

One thread starts a copy, and an mbarrier counts its bytes. Tiles lie in shared memory in swizzle
atoms (:mod:`.swizzle_atoms`) or row-major. A store may instead update the tensor's elements, each
atomically (``cp.reduce.async.bulk.tensor``).

From compute capability 10.0 on, TMA also gathers arbitrary rows of a tensor of rank 2, given four
row indices per instruction (``tile::gather4``), and on 10.x it scatters them (``tile::scatter4``).
By the PTX ISA (the modes of tensors), the map's box is then one row, and four rows have the same
layout in shared memory as a box of four rows.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Final

from tilewright.errors import LoweringError
from tilewright.gpu_host.expressions import Expression
from tilewright.ir.core import Function, Operation, Region, Value
from tilewright.ir.ops.memory import (
    DescriptorGather,
    DescriptorLoad,
    DescriptorReduce,
    DescriptorScatter,
    MakeDescriptor,
)
from tilewright.ir.types import (
    BF16,
    F16,
    F32,
    I32,
    I64,
    U32,
    U64,
    DescriptorType,
    FloatType,
    TileType,
)
from tilewright.llvm.emission.registers import storage_size
from tilewright.llvm.emission.writer import FunctionWriter
from tilewright.simt.dialect.attributes import CLUSTER, function_of
from tilewright.simt.dialect.ops import tensor_maps
from tilewright.simt.dialect.ops import tma as ops
from tilewright.simt.dialect.ops.buffers import SharedView, Slot
from tilewright.simt.dialect.ops.dot import Multiplication
from tilewright.simt.dialect.types import slot_type
from tilewright.simt.layouts.linear_layout import SharedLayout
from tilewright.simt.lowering.emission.context import SimtContext
from tilewright.simt.target.capabilities import tma as capability
from tilewright.simt.target.copy_mechanism import (
    BARRIER,
    ROW_COPIES,
    BlockAccess,
    BlockCopy,
    CopyMechanism,
    multicast_axis,
)
from tilewright.simt.target.matmul_plan import Matmul, MatmulPlan
from tilewright.simt.target.simt_target import required
from tilewright_nvidia.async_copy import im2col
from tilewright_nvidia.async_copy.device_tensor_maps import DeviceMapEmission, DeviceTensorMap
from tilewright_nvidia.async_copy.launch_expressions import expressions_of
from tilewright_nvidia.async_copy.tensor_maps import (
    ALIGNMENT,
    BYTES,
    MOST_AXES,
    MOST_BOX,
    ROUNDED,
    PixelBox,
    TensorMap,
    engine_type,
    fills_with_nan,
)
from tilewright_nvidia.async_copy.tma_boxes import (
    ROWS_AT_ONCE,
    SLOT_ALIGNMENT,
    Boxes,
    boxes,
    can_fill,
    can_fill_rows,
    layouts,
    part_bytes,
    row_boxes,
    shares,
)
from tilewright_nvidia.codegen.inline_ptx import call_asm
from tilewright_nvidia.codegen.kernel_state import kernel_state
from tilewright_nvidia.operations import LoadIm2col

NAME: Final = "tma"
#: Reduction -> element types that TMA supports for it.
_INTEGERS: Final = frozenset({U32, I32, U64, I64})
_REDUCED: Final = {"add": frozenset({U32, I32, U64, F32, F16, BF16})} | dict.fromkeys(
    ("min", "max", "and", "or", "xor"), _INTEGERS
)
_Copy = ops.TmaCopy | ops.RowCopy
_LOADS: Final = (ops.BlockLoadStart, ops.RowsLoadStart)
_SHARED: Final = "ptr addrspace(3)"
#: The LLVM type of a tensor map parameter. The map stays in parameter memory, where TMA reads it.
MAP_TYPE: Final = f'ptr byval([{BYTES} x i8]) align 64 "nvvm.grid_constant"'


def _boxes_of(copy: _Copy) -> Boxes:
    """Return the boxes of a copy's tile."""
    type_ = slot_type(copy.slot)
    if isinstance(copy, ops.RowCopy):
        found = row_boxes(type_.layout, type_.element)
    else:
        found = boxes(
            type_.layout,
            type_.element,
            function_of(copy).attributes[CLUSTER]
            if isinstance(copy, ops.BlockLoadStart) and copy.to_all
            else 1,
        )
    assert found is not None, f"{copy.name} at {copy.location}: the TMA unit cannot reach {type_}"
    return found


def keeps(operation: BlockAccess, divisors: Sequence[int], width: int) -> bool:
    """Return whether TMA can copy the block of a load or store through a descriptor.

    The tensor's rows must be aligned, by the runtime's check or the kernel's assumption. The block
    must begin at an aligned position of a row, since TMA faults otherwise. TMA must support the
    element type and the padding. It writes a row of a tensor in whole 16-byte pieces, including the
    last one. So ``width``, which divides the number of elements of a row, must show that no piece
    reaches beyond the row's end.
    """
    descriptor = operation.descriptor
    type_ = descriptor.type
    assert isinstance(type_, DescriptorType)
    divisor, padding = _known(descriptor)
    if isinstance(operation, DescriptorReduce) and type_.element not in _REDUCED.get(
        operation.kind, ()
    ):
        return False
    if (
        padding == "nan"
        and isinstance(type_.element, FloatType)
        and not fills_with_nan(type_.element)
    ):
        return False
    if (
        not isinstance(operation, DescriptorLoad | DescriptorGather)
        and width * storage_size(type_.element) % ALIGNMENT
    ):
        return False
    place = math.gcd(divisor, divisors[-1] * storage_size(type_.element))
    if isinstance(operation, ROW_COPIES):
        return _reaches_rows(operation, type_, place)
    return reaches(type_, place)


def _reaches_rows(
    operation: DescriptorGather | DescriptorScatter, type_: DescriptorType, divisor: int
) -> bool:
    """Return whether TMA can gather or scatter rows by their indices.

    The indices must have 32 bits. Their number must be a multiple of four, and the rows must fill
    aligned stages.
    """
    rows = operation.rows
    assert isinstance(rows.type, TileType)
    shape = rows.type.shape[0], type_.block_shape[1]
    return (
        rows.type.element is I32
        and divisor % ALIGNMENT == 0
        and can_fill_rows(SharedLayout.row_major(shape), type_.element)
    )


def _known(descriptor: Value) -> tuple[int, str]:
    """Return the divisibility in bytes of a descriptor's address and strides, and its padding."""
    made = descriptor.definition
    if made is not None:
        assert isinstance(made, MakeDescriptor)
        return ALIGNMENT if made.aligned else 1, made.padding
    function = descriptor.owner.owner if isinstance(descriptor.owner, Region) else None
    assert isinstance(function, Function)
    facts = function.argument_attributes[function.arguments.index(descriptor)]
    return facts.get("divisibility", 1), facts.get("padding", "zero")


def reaches(block: DescriptorType, divisor: int) -> bool:
    """Return whether TMA can copy blocks of a tensor.

    ``divisor`` divides the tensor's address and strides, and the blocks' offsets in a row, in
    bytes.
    """
    return (
        divisor % ALIGNMENT == 0
        and block.rank <= MOST_AXES
        and can_fill(SharedLayout.row_major(block.block_shape), block.element)
    )


class TensorMaps:
    """The tensor maps that a kernel takes: one for each descriptor and box shape.

    A descriptor is a kernel argument, or made of arguments (``simt.tensor``). Device-side maps are
    separate (``simt.make_descriptor``).
    """

    def __init__(self, function: Function) -> None:
        self._names: dict[tuple[str, tuple[int, ...], int, str], str] = {}
        #: load of pixels -> its im2col map
        self._pixels: dict[Operation, str] = {}
        #: names of the descriptor parameters that tensor maps replace
        self.descriptors: set[str] = set()
        #: descriptor made of arguments -> its name; nothing but its maps is left in the kernel
        self.tensors: dict[Operation, str] = {}
        #: (name of the map's parameter, the map as a function of the words of the function's
        #: arguments)
        self.wanted: list[tuple[str, TensorMap]] = []
        for number, argument in enumerate(function.arguments):
            if isinstance(argument.type, DescriptorType):
                self.descriptors.add(f"a{number}")
                padding = function.argument_attributes[number].get("padding", "zero")
                nan = padding == "nan" and fills_with_nan(argument.type.element)
                self._want(
                    argument, f"%a{number}", functools.partial(TensorMap.of_descriptor, number), nan
                )
                self._want_pixels(
                    argument,
                    function.argument_attributes[number].get("divisibility", 1),
                    functools.partial(TensorMap.of_descriptor, number),
                )
        #: the device-side maps
        self.made = DeviceMapEmission(function)
        for made in [
            operation
            for operation in function.walk()
            if isinstance(operation, tensor_maps.MakeTensorMap)
        ]:
            for copy in [user for user in made.result.uses if isinstance(user, _Copy)]:
                self.made.want(made, _made_map(copy))
        known: dict[tuple[tuple[Expression, ...], ...], str] = {}
        for tensor in [
            operation for operation in function.walk() if isinstance(operation, tensor_maps.Tensor)
        ]:
            address, extents, strides = (
                expressions_of(values, function)
                for values in ([tensor.base], tensor.shape, tensor.strides)
            )
            name = self.tensors[tensor] = known.setdefault(
                (address, extents, strides), f"tensor{len(known)}"
            )
            self._want(
                tensor.result,
                name,
                functools.partial(_implied, address[0], extents, strides),
                nan=False,
            )

    def _want(
        self, descriptor: Value, stands_for: str, made: Callable[..., TensorMap], nan: bool
    ) -> None:
        for copy in [user for user in descriptor.uses if isinstance(user, _Copy)]:
            found, element = _boxes_of(copy), _tma_element(copy)
            key = stands_for, found.shape, found.span, element
            if key not in self._names:
                name = f"map{len(self.wanted)}"
                self._names[key] = f"%{name}"
                self.wanted.append((name, made(element, found.shape, found.span, nan)))

    def _want_pixels(
        self, descriptor: Value, divisibility: int, made: Callable[..., TensorMap]
    ) -> None:
        known: dict[PixelBox, str] = {}
        for load in [
            user
            for user in descriptor.uses
            if isinstance(user, LoadIm2col) and im2col.can_copy(user, divisibility)
        ]:
            type_, box = descriptor.type, PixelBox(load.lower, load.upper, load.pixels)
            assert isinstance(type_, DescriptorType)
            if box not in known:
                known[box] = f"%map{len(self.wanted)}"
                self.wanted.append(
                    (
                        known[box][1:],
                        made(str(type_.element), type_.block_shape, 0, nan=False, pixel_box=box),
                    )
                )
            self._pixels[load] = known[box]

    def im2col(self, load: LoadIm2col) -> str:
        """Return the map parameter of an im2col load.

        Raises:
            LoweringError: there is none.
        """
        if load not in self._pixels:
            raise LoweringError(
                f"load_im2col at {load.location}: the tensor's address and strides must be "
                f"multiples of {ALIGNMENT} bytes, and so must the channels of a pixel be, "
                f"{MOST_BOX} at the most; the descriptor is {load.descriptor.type}"
            )
        return self._pixels[load]

    def name(self, context: SimtContext, copy: BlockCopy, found: Boxes) -> str:
        """Return the map parameter of a copy, or the address of a device-side map."""
        assert isinstance(context.operation, _Copy)
        made = context.operation.descriptor.definition
        if isinstance(made, tensor_maps.MakeTensorMap):
            return self.made.name(
                context.writer, made, copy.descriptor, _made_map(context.operation)
            )
        return self._names[
            copy.descriptor, found.shape, found.span, _tma_element(context.operation)
        ]


def _made_map(copy: _Copy) -> DeviceTensorMap:
    """Return the device-side map that a copy needs."""
    type_, found, element = slot_type(copy.slot), _boxes_of(copy), _tma_element(copy)
    return DeviceTensorMap(
        element if element == ROUNDED else str(engine_type(type_.element)),
        found.shape,
        found.span,
        not isinstance(copy, _LOADS),
    )


def _tma_element(copy: _Copy) -> str:
    """Return the element type as which TMA copies a copy's elements.

    TMA rounds f32 to tf32 if only tf32 matmuls read it: the matmul itself would truncate.
    """
    type_ = slot_type(copy.slot)
    rounded = type_.element is F32 and isinstance(copy, _LOADS) and _feeds_tf32_alone(copy.slot)
    return ROUNDED if rounded else str(type_.element)


def _feeds_tf32_alone(slot: Value) -> bool:
    """Return whether all readers of a slot's buffer are tf32 matmuls that read shared memory."""
    definition = slot.definition
    if not isinstance(definition, Slot):
        return False
    readers = [
        user
        for one in definition.buffer.uses
        if isinstance(one, Slot)
        for user in one.results[0].uses
    ]
    found = False
    while readers:
        reader = readers.pop()
        if isinstance(reader, SharedView):
            readers += reader.results[0].uses
        elif isinstance(reader, Multiplication) and reader.precision == "tf32":
            found = True
        elif not isinstance(reader, _LOADS):
            return False
    return found


def _implied(
    address: Expression,
    extents: tuple[Expression, ...],
    strides: tuple[Expression, ...],
    element: str,
    box: tuple[int, ...],
    span: int,
    nan: bool,
) -> TensorMap:
    return TensorMap(address, extents, strides, element, box, span, nan, implied=True)


def mechanism(*, rows: bool) -> CopyMechanism:
    """Return TMA's copy mechanism; ``rows``: whether the target gathers and scatters rows."""

    def start(context: SimtContext, copy: BlockCopy) -> None:
        w = context.writer
        for address, name, point in _pieces(context, copy):
            axes = ", ".join(f"${3 + axis}" for axis in range(len(point)))
            operands = [
                (_SHARED, address),
                ("ptr", name),
                (_SHARED, copy.barrier),
                *(("i32", at) for at in point),
            ]
            how = (
                "2d.shared::cta.global.tile::gather4"
                if copy.rows
                else f"{len(point)}d.shared::cluster.global"
            )
            what, to = f"[$0], [$1, {{{axes}}}], [$2]", ""
            if copy.parts > 1:
                what, to = f"{what}, ${len(operands)}", ".multicast::cluster"
                operands.append(("i16", str((1 << copy.parts) - 1)))
            call_asm(
                w,
                f"cp.async.bulk.tensor.{how}.mbarrier::complete_tx::bytes{to} {what};",
                (),
                operands,
                memory=True,
            )

    def store(context: SimtContext, copy: BlockCopy) -> None:
        w, how = (
            context.writer,
            ".tile::scatter4" if copy.rows else f".{copy.reduction}" if copy.reduction else "",
        )
        for address, name, point in _pieces(context, copy):
            axes = ", ".join(f"${2 + axis}" for axis in range(len(point)))
            rank = 2 if copy.rows else len(point)
            verb = "cp.reduce" if copy.reduction else "cp"
            text = (
                f"{verb}.async.bulk.tensor.{rank}d.global.shared::cta{how}.bulk_group "
                f"[$1, {{{axes}}}], [$0];"
            )
            call_asm(
                w,
                text,
                (),
                [(_SHARED, address), ("ptr", name), *(("i32", at) for at in point)],
                memory=True,
            )

    return CopyMechanism(
        NAME,
        BARRIER,
        fills=can_fill,
        layouts=layouts,
        start=start,
        store=store,
        fills_rows=can_fill_rows if rows else None,
        alignment=SLOT_ALIGNMENT,
        shares=shares,
    )


def _pieces(context: SimtContext, copy: BlockCopy) -> list[tuple[str, str, list[str]]]:
    """Return (shared address, tensor map, coordinates with the innermost first) of a block's boxes.

    For gathered rows, there is one entry for each four rows, whose coordinates are the column and
    the four row indices.
    """
    w = context.writer
    assert isinstance(context.operation, _Copy)
    found = _boxes_of(context.operation)
    pieces, name, numbers = (
        [],
        kernel_state(context.writer).maps.name(context, copy, found),
        dict[int, list[str]](),
    )
    first, offsets = copy.shared, copy.offsets
    if copy.parts > 1:  # this CTA's part
        rank, step = (
            required(context.target.clusters, context.target, "clusters").rank(w),
            part_bytes(copy.layout, copy.element, copy.parts),
        )
        first = w.emit(
            f"getelementptr i8, {_SHARED} {first}, i32 {w.emit(f'mul i32 {rank}, {step}')}"
        )
        cut = multicast_axis(copy.layout.shape)
        extent = copy.layout.shape[cut] // copy.parts
        start = w.emit(f"add i32 {offsets[cut]}, {w.emit(f'mul i32 {rank}, {extent}')}")
        offsets = (*offsets[:cut], start, *offsets[cut + 1 :])
    for offset, point in found.starts:
        address = w.emit(f"getelementptr i8, {_SHARED} {first}, i32 {offset}") if offset else first
        if copy.rows:
            row, column = point
            if row not in numbers:
                numbers[row] = _four(w, copy.rows, row)
            pieces.append(
                (
                    address,
                    name,
                    [
                        w.emit(f"add i32 {offsets[0]}, {column}") if column else offsets[0],
                        *numbers[row],
                    ],
                )
            )
            continue
        at = [
            w.emit(f"add i32 {start}, {step}") if step else start
            for start, step in zip(offsets, point, strict=True)
        ]
        pieces.append((address, name, at[::-1]))
    return pieces


def _four(w: FunctionWriter, rows: str, first: int) -> list[str]:
    """Load four row indices from shared memory."""
    place = w.emit(f"getelementptr i32, {_SHARED} {rows}, i32 {first}") if first else rows
    word = w.emit(f"load <4 x i32>, {_SHARED} {place}, align 16")
    return [w.emit(f"extractelement <4 x i32> {word}, i32 {i}") for i in range(ROWS_AT_ONCE)]


def commit(context: SimtContext) -> None:
    """Commit this thread's copies from shared memory as a group."""
    call_asm(context.writer, "cp.async.bulk.commit_group;", (), (), memory=True)


def wait(context: SimtContext, pending: int, *, written: bool) -> None:
    """Wait until at most ``pending`` of this thread's groups still read shared memory.

    With ``written``, wait for the completion of their writes instead.
    """
    call_asm(
        context.writer,
        f"cp.async.bulk.wait_group{'' if written else '.read'} {pending};",
        (),
        (),
        memory=True,
    )


class PtxDeviceMaps(capability.DeviceTensorMaps):
    """Tensor maps that a kernel makes; the state of its emission has them."""

    bytes = BYTES

    def allocate(self, context: SimtContext, operation: tensor_maps.Descriptors) -> str:
        return kernel_state(context.writer).maps.made.take(context, operation)

    def make(
        self,
        context: SimtContext,
        operation: tensor_maps.MakeTensorMap,
        made: capability.MadeDescriptor,
    ) -> str:
        return kernel_state(context.writer).maps.made.make(context, operation, made)

    def show(
        self, context: SimtContext, operation: tensor_maps.ShowDescriptor, descriptor: str
    ) -> None:
        kernel_state(context.writer).maps.made.show(context, operation.descriptor, descriptor)

    def free(
        self, context: SimtContext, operation: tensor_maps.FreeDescriptors, memory: str
    ) -> None:
        kernel_state(context.writer).maps.made.give_back(context, operation.memory, memory)


class PtxTma(capability.Tma):
    """TMA with the options of a launch.

    Args:
        blocks: whether TMA copies blocks.
        gathers, scatters: whether TMA gathers rows by index, and scatters them.
        plans: matmul -> the plans of instructions that read blocks from shared memory.
    """

    device_maps = PtxDeviceMaps()

    def __init__(
        self,
        plans: Callable[[Matmul], Sequence[MatmulPlan]],
        *,
        blocks: bool,
        gathers: bool,
        scatters: bool,
    ) -> None:
        self._plans, self._blocks, self._gathers, self._scatters = plans, blocks, gathers, scatters

    def keeps(self, operation: BlockAccess, divisors: Sequence[int], width: int) -> bool:
        if isinstance(operation, DescriptorGather):
            there = self._gathers
        else:
            there = self._scatters if isinstance(operation, DescriptorScatter) else self._blocks
        return there and keeps(operation, divisors, width)

    def promotes(self, matmul: Matmul) -> bool:
        return bool(self._plans(matmul))

    def reaches(self, block: DescriptorType, divisor: int) -> bool:
        return reaches(block, divisor)

    def tensor(self, context: SimtContext, operation: tensor_maps.Tensor) -> str:
        return kernel_state(context.writer).maps.tensors[operation]
