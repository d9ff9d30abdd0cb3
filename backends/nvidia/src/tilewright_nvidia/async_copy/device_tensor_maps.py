"""Device-side tensor maps: built by the kernel in shared memory, with ``tensormap.replace``.

TMA reads tensor maps only from global memory. A kernel with device-side tensor maps therefore has a
global array of slots, one for each CTA that may be resident. A CTA acquires the first free slot
when it starts and releases it when it ends, so launches need no extra memory. One thread builds a
map in shared memory (``tensormap.replace``), and a warp copies it to the slot
(``tensormap.cp_fenceproxy``).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from tilewright.ir.core import Function, Operation, Value
from tilewright.ir.types import DescriptorType, FloatType, Type, bit_width
from tilewright.llvm.emission.registers import encode_float, storage_size
from tilewright.llvm.emission.writer import FunctionWriter, ModuleWriter
from tilewright.simt.dialect.attributes import SHARED_BYTES
from tilewright.simt.dialect.ops import tensor_maps as ops
from tilewright.simt.lowering.emission.context import SimtContext
from tilewright.simt.target.capabilities.tma import MadeDescriptor
from tilewright_nvidia.architectures import Architecture
from tilewright_nvidia.async_copy.tensor_maps import ALIGNMENT, BYTES, fills_with_nan
from tilewright_nvidia.codegen.inline_ptx import call_asm

#: The maximum number of SMs of a device with TMA: of compute capability 9.0, and later.
_PROCESSORS: Final = (144, 192)
#: The maximum number of slots per SM, whose allocation bits fill one word.
_BITS: Final = 32
#: TMA element type -> ``.elemtype`` of the map.
_TYPES: Final = {
    "u8": 0,
    "u16": 1,
    "u32": 2,
    "i32": 3,
    "u64": 4,
    "i64": 5,
    "f16": 6,
    "f32": 7,
    "f64": 9,
    "bf16": 10,
    "tf32": 11,
}
#: Swizzle width in bytes -> ``.swizzle_mode``.
_SWIZZLES: Final = {0: 0, 32: 1, 64: 2, 128: 3}
_SHARED: Final = "ptr addrspace(3)"
_GLOBAL: Final = "ptr addrspace(1)"

#: PTX that acquires a slot. ``$0`` receives its number; ``$1`` is the address of one word per SM,
#: whose bits mark allocated slots.
_TAKE: Final = """{{
.reg .pred %stop;
.reg .b32 %which, %taken, %free, %bit;
.reg .b64 %word;
mov.u32 %which, %smid;
rem.u32 %which, %which, {processors};
again:
mad.wide.u32 %word, %which, 4, $1;
ld.relaxed.gpu.global.b32 %taken, [%word];
not.b32 %free, %taken;
and.b32 %free, %free, {mask};
setp.eq.b32 %stop, %free, 0;
@%stop bra next;
neg.s32 %bit, %free;
and.b32 %bit, %bit, %free;
atom.acquire.gpu.global.or.b32 %taken, [%word], %bit;
and.b32 %taken, %taken, %bit;
setp.eq.b32 %stop, %taken, 0;
@%stop bra done;
bra again;
next:
add.u32 %which, %which, 1;
rem.u32 %which, %which, {processors};
bra again;
done:
bfind.u32 %bit, %bit;
mad.lo.u32 $0, %which, {programs}, %bit;
}}"""


@dataclass(frozen=True, slots=True)
class DeviceTensorMap:
    """The compile-time parameters of a device-side tensor map.

    Attributes:
        element: the element type as TMA sees it.
        box: extents of the box that one copy moves, outermost first.
        span: swizzle width in bytes; 0 without a swizzle.
        stores: whether copies to the tensor use the map.
    """

    element: str
    box: tuple[int, ...]
    span: int
    stores: bool


@dataclass(slots=True)
class _Memory:
    """The slots of a ``simt.descriptors``; each has room for the maps of all its descriptors.

    Attributes:
        number: the operation's number.
        made: (operation that makes a descriptor, its map), in the order of their offsets in a slot.
    """

    number: int
    made: list[tuple[ops.MakeTensorMap, DeviceTensorMap]] = field(default_factory=list)

    @property
    def bytes(self) -> int:
        return BYTES * len(self.made)


class DeviceMapEmission:
    """The tensor maps that a kernel builds: one for each descriptor and box shape."""

    def __init__(self, function: Function) -> None:
        self._memories: dict[Operation, _Memory] = {}
        self._known: dict[tuple[ops.MakeTensorMap, DeviceTensorMap], int] = {}
        self._shared = int(function.attributes.get(SHARED_BYTES, 0))
        self._processors, self._programs = _PROCESSORS[0], _BITS
        for operation in function.walk():
            if isinstance(operation, ops.Descriptors):
                self._memories[operation] = _Memory(len(self._memories))

    def want(self, made: ops.MakeTensorMap, map_: DeviceTensorMap) -> None:
        """Request a map of a descriptor for a copy."""
        if (made, map_) not in self._known:
            memory = self._memory(made)
            self._known[made, map_] = len(memory.made)
            memory.made.append((made, map_))

    def name(
        self, w: FunctionWriter, made: ops.MakeTensorMap, descriptor: str, map_: DeviceTensorMap
    ) -> str:
        """Return the address of a map, given the slot's address."""
        place = BYTES * self._known[made, map_]
        return w.emit(f"getelementptr i8, ptr {descriptor}, i64 {place}") if place else descriptor

    def _memory(self, made: ops.MakeTensorMap) -> _Memory:
        definition = made.memory.definition
        assert definition is not None
        return self._memories[definition]

    # ---- memory

    def begin(self, module: ModuleWriter, threads: int, machine: Architecture) -> None:
        """Declare the slots: as many as CTAs of ``threads`` threads fit a device."""
        self._processors = _PROCESSORS[machine.capability >= 100]
        self._programs = max(
            1,
            min(
                _BITS,
                machine.blocks,
                machine.threads // threads,
                machine.shared_total // max(1, self._shared),
            ),
        )
        nothing: dict[str, str] = {}
        for memory in self._memories.values():
            count = self._processors * self._programs
            module.add_global(
                f"{_places(memory)} = internal addrspace(1) global [{count * memory.bytes} x i8] "
                f"zeroinitializer, align {BYTES}"
            )
            module.add_global(
                f"{_words(memory)} = internal addrspace(1) global [{self._processors} x i32] "
                "zeroinitializer, align 4"
            )
            for made, map_ in memory.made:
                name, bits, size = _nothing(made, map_)
                count = ALIGNMENT * 8 // size
                nothing[name] = (
                    f"{name} = internal addrspace(1) global [{count} x i{size}] "
                    f"[{', '.join([f'i{size} {bits}'] * count)}], align {ALIGNMENT}"
                )
        for text in nothing.values():
            module.add_global(text)

    def take(self, context: SimtContext, operation: Operation) -> str:
        """Acquire a slot; return its number in the lanes of the first thread's warp."""
        w = context.writer
        before, then, join = w.current, w.new_block("take"), w.new_block("taken")
        w.branch_if(context.is_first_thread(), then, join)
        w.place(then)
        mask = (1 << self._programs) - 1
        text = _TAKE.format(processors=self._processors, programs=self._programs, mask=mask)
        (number,) = call_asm(
            w, text, ["i32"], [(_GLOBAL, _words(self._memories[operation]))], memory=True
        )
        w.branch(join)
        w.place(join)
        return context.target.lanes.shuffle(w, w.phi("i32", ((number, then), ("0", before))), "0")

    def give_back(self, context: SimtContext, memory: Value, number: str) -> None:
        """Release a slot."""
        w, definition = context.writer, memory.definition
        assert definition is not None
        with w.when(context.is_first_thread()):
            which, bit = (
                w.emit(f"{operation} i32 {number}, {self._programs}")
                for operation in ("udiv", "urem")
            )
            word = w.emit(
                f"getelementptr i32, {_GLOBAL} {_words(self._memories[definition])}, i32 {which}"
            )
            others = w.emit(f"xor i32 {w.emit(f'shl i32 1, {bit}')}, -1")
            call_asm(
                w,
                "red.release.gpu.global.and.b32 [$0], $1;",
                (),
                [(_GLOBAL, word), ("i32", others)],
                memory=True,
            )

    # ---- maps

    def make(self, context: SimtContext, operation: ops.MakeTensorMap, made: MadeDescriptor) -> str:
        """Build the maps of a descriptor; return their slot's address."""
        w, memory = context.writer, self._memory(operation)
        distance = w.emit(f"mul i64 {w.emit(f'zext i32 {made.memory} to i64')}, {memory.bytes}")
        place = w.emit(
            f"getelementptr i8, ptr addrspacecast ({_GLOBAL} {_places(memory)} to ptr), "
            f"i64 {distance}"
        )
        with w.when(_is_first_warp(context)):
            for number, (owner, map_) in enumerate(memory.made):
                if owner is operation:
                    to = w.emit(f"getelementptr i8, ptr {place}, i64 {BYTES * number}")
                    self._make(
                        context,
                        operation,
                        made,
                        map_,
                        w.emit(f"addrspacecast ptr {to} to {_GLOBAL}"),
                    )
        return place

    def _make(
        self,
        context: SimtContext,
        operation: ops.MakeTensorMap,
        made: MadeDescriptor,
        map_: DeviceTensorMap,
        to: str,
    ) -> None:
        w, warp = context.writer, context.target
        own = w.emit(f"getelementptr i32, {_SHARED} {made.shared}, i32 {context.lane}")
        # fields that are not set below stay zero
        call_asm(w, "st.shared.b32 [$0], $1;", (), [(_SHARED, own), ("i32", "0")], memory=True)
        warp.threads.warp_barrier(w)
        with w.when(context.is_first_thread()):
            _fill(w, operation, made, map_)
        warp.threads.warp_barrier(w)
        text = (
            "tensormap.cp_fenceproxy.global.shared::cta."
            f"tensormap::generic.release.gpu.sync.aligned [$0], [$1], {BYTES};"
        )
        call_asm(w, text, (), [(_GLOBAL, to), (_SHARED, made.shared)], memory=True, convergent=True)
        warp.threads.warp_barrier(w)

    def show(self, context: SimtContext, descriptor: Value, address: str) -> None:
        """Fence the maps of a descriptor, so that following copies see them."""
        w, operation = context.writer, descriptor.definition
        assert operation is not None
        with w.when(_is_first_warp(context)):
            for (made, _), number in self._known.items():
                if made is operation:
                    place = w.emit(f"getelementptr i8, ptr {address}, i64 {BYTES * number}")
                    call_asm(
                        w,
                        f"fence.proxy.tensormap::generic.acquire.gpu [$0], {BYTES};",
                        (),
                        [("ptr", place)],
                        memory=True,
                    )


def _fill(
    w: FunctionWriter, operation: ops.MakeTensorMap, made: MadeDescriptor, map_: DeviceTensorMap
) -> None:
    """Set all fields of a map.

    TMA accepts no empty tensor. The map of an empty tensor describes a single element that holds
    the padding value.
    """
    rank, (type_,) = len(map_.box), (result.type for result in operation.results)
    assert isinstance(type_, DescriptorType)
    size = storage_size(type_.element)
    empty = "false"
    for extent in made.extents:
        empty = w.emit(f"or i1 {empty}, {w.emit(f'icmp slt i64 {extent}, 1')}")
    base = w.emit(f"ptrtoint ptr {made.base} to i64")
    base = w.emit(
        f"select i1 {empty}, i64 ptrtoint ({_GLOBAL} {_nothing(operation, map_)[0]} to i64), "
        f"i64 {base}"
    )
    _replace(w, made.shared, "global_address", "b64", base)
    _replace(w, made.shared, "rank", "b32", rank - 1)
    for number, axis in enumerate(reversed(range(rank))):
        extent = w.emit(f"trunc i64 {made.extents[axis]} to i32")
        _replace(w, made.shared, f"box_dim {number}", "b32", str(map_.box[axis]))
        _replace(
            w,
            made.shared,
            f"global_dim {number}",
            "b32",
            w.emit(f"select i1 {empty}, i32 1, i32 {extent}"),
        )
        _replace(w, made.shared, f"element_stride {number}", "b32", "1")
        if number:
            # the stride of this axis; the map has no stride for the innermost axis
            _replace(
                w,
                made.shared,
                f"global_stride {number - 1}",
                "b64",
                w.emit(f"mul i64 {made.strides[axis]}, {size}"),
            )
    _replace(w, made.shared, "elemtype", "b32", _TYPES[map_.element])
    _replace(w, made.shared, "interleave_layout", "b32", 0)
    _replace(w, made.shared, "swizzle_mode", "b32", _SWIZZLES[map_.span])
    _replace(w, made.shared, "fill_mode", "b32", int(_fills_with_nan(operation)))


def _replace(w: FunctionWriter, shared: str, what: str, type_: str, value: str | int) -> None:
    """Set a field (``field`` or ``field number``) of the map in shared memory.

    An integer value becomes an immediate operand of the instruction.
    """
    name, *number = what.split()
    place = f" {number[0]}," if number else ""
    operands = (
        [(_SHARED, shared)]
        if isinstance(value, int)
        else [(_SHARED, shared), ("i64" if type_ == "b64" else "i32", value)]
    )
    given = str(value) if isinstance(value, int) else "$1"
    call_asm(
        w,
        f"tensormap.replace.tile.{name}.shared::cta.b1024.{type_} [$0],{place} {given};",
        (),
        operands,
        memory=True,
    )


def _is_first_warp(context: SimtContext) -> str:
    return context.thread_is_zero(0, (1 << (context.threads.count - 1).bit_length()) - 1) or "true"


def _fills_with_nan(operation: ops.MakeTensorMap) -> bool:
    return operation.padding == "nan" and fills_with_nan(_element(operation))


def _element(operation: ops.MakeTensorMap) -> Type:
    type_ = operation.results[0].type
    assert isinstance(type_, DescriptorType)
    return type_.element


def _nothing(operation: ops.MakeTensorMap, map_: DeviceTensorMap) -> tuple[str, int, int]:
    """Return (name, element bits, bits per element) of the memory behind an empty tensor's map.

    Stores go to separate memory that nothing reads.
    """
    element = _element(operation)
    size = max(8, bit_width(element))
    if map_.stores:
        return "@tilewright_dropped", 0, 64
    if _fills_with_nan(operation):
        assert isinstance(element, FloatType)
        return f"@tilewright_nan_{element}", encode_float(float("nan"), element), size
    return "@tilewright_zero", 0, 64


def _places(memory: _Memory) -> str:
    return f"@tilewright_maps{memory.number}"


def _words(memory: _Memory) -> str:
    return f"@tilewright_taken{memory.number}"
