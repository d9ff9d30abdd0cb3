"""Evaluation of a vector strip of a tile at an index.

The value is followed back through lazy operations. Each is computed once, in the outermost scope of
the loop nest that defines its coordinates (:class:`~tilewright_cpu.codegen.context.Scope` keeps
what has been evaluated). Along the lane axis a value is one scalar where it is uniform, ``base +
lane * step`` where it is an affine integer, and a vector otherwise. Evaluation writes no control
flow.
"""

from __future__ import annotations

from tilewright.errors import LoweringError
from tilewright.ir.core import Operation, Value
from tilewright.ir.ops.arithmetic import Addptr, Arange, Cast, Select
from tilewright.ir.ops.debug import Hint
from tilewright.ir.ops.memory import Load
from tilewright.ir.ops.shape import Broadcast, ExpandDims, Permute, Reshape, Splat
from tilewright.ir.types import I1, IntType, PointerType, TileType, element_type
from tilewright.llvm.emission.elementwise import emit_operation, move_pointer
from tilewright.llvm.emission.registers import (
    constant,
    register_type,
    storage_size,
    storage_type,
    vector_type,
)
from tilewright.passes.analysis.transfer_functions import unit_reshape
from tilewright_cpu.codegen.analysis.strides import SYMBOLIC, stride_along
from tilewright_cpu.codegen.context import (
    ZERO,
    Context,
    Coordinate,
    Index,
    Scope,
    lane_axis,
    scope_of,
    with_coordinate,
)
from tilewright_cpu.codegen.intrinsics.target_intrinsics import rounded_for_dots
from tilewright_cpu.codegen.sanitizer.bounds import checked_strip


def all_true(text: str) -> bool:
    return text in ("true", "splat (i1 true)")


def evaluate(context: Context, value: Value, index: Index) -> str:
    """``value`` at ``index`` in register form: a vector for an index with lanes, else a scalar."""
    type_ = value.type
    if not isinstance(type_, TileType):
        name = context.scalar(value)
        return name
    value = context.resolve(value)
    scope = scope_of(context, index)
    key = (value, index)
    found = scope.memo.get(key)
    if found is not None:
        return found
    writer = context.writer
    lane = lane_axis(index)
    saved = writer.current
    if (
        lane >= 0
        and (step := stride_along(context, value, lane)) is not None
        and not (step != 0 and (step is SYMBOLIC or not isinstance(type_.element, IntType)))
    ):
        # uniform, or an affine integer
        width = index[lane].width
        base = evaluate(context, value, with_coordinate(index, lane, ZERO))
        register = register_type(type_.element)
        if step == 0:
            home = scope_of(context, with_coordinate(index, lane, ZERO))
            splat_key = (value, with_coordinate(index, lane, ZERO._replace(width=width)))
            found = home.memo.get(splat_key)
            if found is None:
                if home is not context.scopes[-1]:
                    writer.current = home.block
                found = writer.splat(register, base, width)
                writer.current = saved
                home.memo[splat_key] = found
        else:
            if scope is not context.scopes[-1]:
                writer.current = scope.block
            assert isinstance(type_.element, IntType) and isinstance(step, int)
            found = affine_lanes(context, type_.element, base, index[lane], step)
            writer.current = saved
        scope.memo[key] = found
        return found
    buffer = context.buffers.get(value)
    if buffer is not None:
        if scope is not context.scopes[-1]:
            writer.current = scope.block
        found = load_strip(
            context,
            buffer_address(context, buffer.pointer, buffer.strides, type_.element, index),
            buffer.strides,
            type_.element,
            index,
        )
        writer.current = saved
    else:
        operation = value.definition
        if operation is None:
            raise LoweringError(
                f"tile {value!r} of type {type_} has no value here: an argument of a region that "
                "was not bound"
            )
        mark = writer.mark
        if context.lines is not None:
            writer.mark = context.lines.mark(operation.location)
        found = _compute(context, operation, value, index, lane, scope)
        writer.mark = mark
        if context.caching and value in context.caching:
            # only the first evaluation at the loop nest's own index fills the buffer
            kept = context.caching[value]
            if index == context.nest_index:
                store_strip(context, kept.pointer, kept.strides, kept.element, index, found)
    scope.memo[key] = found
    return found


def as_vector(context: Context, value: Value, index: Index, width: int) -> str:
    """``value`` at ``index`` as a vector of ``width`` lanes (``width`` 0: as it is).

    It is a splat where the value has no lane coordinate.
    """
    text = evaluate(context, value, index)
    if width and (not isinstance(value.type, TileType) or lane_axis(index) < 0):
        return context.writer.splat(register_type(element_type(value.type)), text, width)
    return text


def affine_lanes(context: Context, element: IntType, base: str, lane: Coordinate, step: int) -> str:
    """The vector ``base + step * (lane.base + iota)`` modulo the element's size."""
    writer, type_, vector = context.writer, register_type(element), vector_type(element, lane.width)
    first = base
    if lane.base != "0":
        moved = lane.base
        if element.bits < 64:
            moved = (
                str(_wrap(int(moved), element.bits))
                if moved.isdigit()
                else writer.emit(f"trunc i64 {moved} to {type_}")
            )
        if _is_number(moved):
            moved = str(_wrap(int(moved) * step, element.bits))
        elif step != 1:
            moved = writer.emit(f"mul {type_} {moved}, {_wrap(step, element.bits)}")
        if _is_number(base) and _is_number(moved):
            first = str(_wrap(int(base) + int(moved), element.bits))
        else:
            first = writer.emit(f"add {type_} {base}, {moved}")
    # What is constant is one constant: LLVM 22 miscompiles selects on AVX-512 whose conditions turn
    # out to be constant only after their types were made legal.
    start = int(first) if _is_number(first) else 0
    numbers = (_wrap(start + step * i, element.bits) for i in range(lane.width))
    lanes = f"<{', '.join(f'{type_} {number}' for number in numbers)}>"
    return (
        lanes
        if _is_number(first)
        else writer.emit(f"add {vector} {writer.splat(type_, first, lane.width)}, {lanes}")
    )


def _is_number(text: str) -> bool:
    return text.lstrip("-").isdigit()


def _wrap(number: int, bits: int) -> int:
    number &= (1 << bits) - 1
    return number - (1 << bits) if number >> (bits - 1) else number


# ---- operations


def _compute(
    context: Context, operation: Operation, value: Value, index: Index, lane: int, scope: Scope
) -> str:
    width = index[lane].width if lane >= 0 else 0
    element = element_type(value.type)
    if value in context.assumed and element is I1:
        return constant(I1, True, width)
    match operation:
        case ExpandDims():
            return evaluate(
                context, operation.x, (*index[: operation.axis], *index[operation.axis + 1 :])
            )
        case Broadcast():
            source = operation.x.type
            assert isinstance(source, TileType)
            inner = tuple(
                ZERO if extent == 1 else coordinate
                for extent, coordinate in zip(source.shape, index, strict=True)
            )
            return as_vector(context, operation.x, inner, width)
        case Permute():
            moved = sorted(zip(operation.order, index, strict=True))
            return evaluate(context, operation.x, tuple(coordinate for _, coordinate in moved))
        case Reshape():
            source, result = operation.x.type, value.type
            assert isinstance(source, TileType) and isinstance(result, TileType)
            axes = unit_reshape(source.shape, result.shape)
            if axes is None:
                raise LoweringError(
                    f"reshape of {source} to {result} was not put into memory before it is read"
                )
            return as_vector(
                context,
                operation.x,
                tuple(index[axes[axis]] if axis in axes else ZERO for axis in range(source.rank)),
                width,
            )
        case Splat():
            return context.scalar(operation.x)
        case Arange():
            return _arange(context, operation, index, scope)
        case Load():
            return _load(context, operation, index, lane, scope)
        case Hint():
            return evaluate(context, operation.x, index)
    if not operation.spec.elementwise:
        raise LoweringError(
            f"the result of {operation.name} was not put into memory before it is read, at "
            f"{operation.location}"
        )
    if element is I1:
        limit = context.limits.get((value, lane))
        if limit is not None:
            return _below_limit(context, limit, index[lane], scope)
    if isinstance(operation, Addptr) and lane >= 0:
        return _addptr(context, operation, index, lane, scope)
    texts = [as_vector(context, operand, index, width) for operand in operation.operands]
    if element is I1 and operation.name == "and":
        if all_true(texts[0]):
            return texts[1]
        if all_true(texts[1]):
            return texts[0]
    if isinstance(operation, Select) and all_true(texts[0]):
        return texts[1]
    writer = context.writer
    saved = writer.current
    if scope is not context.scopes[-1]:
        writer.current = scope.block
    own = (
        rounded_for_dots(context, operation, texts[0], width)
        if isinstance(operation, Cast)
        else None
    )
    text = emit_operation(context, operation, texts, width) if own is None else own
    writer.current = saved
    return text


def _arange(context: Context, operation: Arange, index: Index, scope: Scope) -> str:
    """One number of a row of them: with a lane coordinate they are affine, and were dealt with."""
    (coordinate,) = index
    if coordinate.base.isdigit():
        return str(operation.start + int(coordinate.base))
    writer = context.writer
    saved = writer.current
    if scope is not context.scopes[-1]:
        writer.current = scope.block
    text = writer.emit(f"trunc i64 {coordinate.base} to i32")
    if operation.start:
        text = writer.emit(f"add i32 {text}, {operation.start}")
    writer.current = saved
    return text


def _below_limit(context: Context, limit: str, coordinate: Coordinate, scope: Scope) -> str:
    """The lanes whose coordinate is below ``limit`` (an i64 of at most the extent)."""
    writer, width = context.writer, coordinate.width
    saved = writer.current
    if scope is not context.scopes[-1]:
        writer.current = scope.block
    rest = limit if coordinate.base == "0" else writer.emit(f"sub i64 {limit}, {coordinate.base}")
    # lanes are compared in 32 bits; an extent fits, and so does what is left of it
    narrow = writer.emit(f"trunc i64 {rest} to i32")
    splat = writer.splat("i32", narrow, width)
    text = writer.emit(f"icmp slt <{width} x i32> {writer.iota('i32', width)}, {splat}")
    writer.current = saved
    return text


def _addptr(context: Context, operation: Addptr, index: Index, lane: int, scope: Scope) -> str:
    pointer, offset = operation.pointer, operation.offset
    width = index[lane].width
    uniform = stride_along(context, pointer, lane) == 0
    base = evaluate(context, pointer, with_coordinate(index, lane, ZERO) if uniform else index)
    offsets = as_vector(context, offset, index, width)
    writer = context.writer
    saved = writer.current
    if scope is not context.scopes[-1]:
        writer.current = scope.block
    text = move_pointer(
        context,
        base,
        0 if uniform else width,
        offsets,
        width,
        element_type(offset.type),
        element_type(operation.result.type),
    )
    writer.current = saved
    return text


# ---- memory


def buffer_address(
    context: Context, pointer: str, strides: tuple[int, ...], element: object, index: Index
) -> str:
    """Address of a buffer's element at an index, of the first lane where it has lanes.

    Parts that change the fewest loops come first, in front of the loops that do not change them.
    """
    writer, saved = context.writer, context.writer.current
    fixed = 0
    parts: list[tuple[int, str, int]] = []
    for coordinate, stride in zip(index, strides, strict=True):
        if coordinate.base.isdigit():
            fixed += int(coordinate.base) * stride
        elif stride:
            parts.append((coordinate.depth, coordinate.base, stride))
    type_ = storage_type(element)  # type: ignore[arg-type]
    parts.sort(key=lambda part: part[0])
    for depth, base, stride in parts:
        scope = context.scopes[max(depth, context.floor)]
        key = type_, pointer, base, stride
        found = scope.addresses.get(key)
        if found is None:
            if scope is not context.scopes[-1]:
                writer.current = scope.block
            if stride != 1:
                base = writer.emit(f"mul nuw nsw i64 {base}, {stride}")
            found = scope.addresses[key] = writer.emit(
                f"getelementptr {type_}, ptr {pointer}, i64 {base}"
            )
            writer.current = saved
        pointer = found
    return writer.gep(type_, pointer, fixed)


def load_strip(
    context: Context, address: str, strides: tuple[int, ...], element: object, index: Index
) -> str:
    """Elements of a buffer at an address: one, or lanes ``strides[lane]`` elements apart."""
    writer = context.writer
    size, type_ = storage_size(element), storage_type(element)  # type: ignore[arg-type]
    lane = lane_axis(index)
    if lane < 0:
        raw = writer.load(type_, address, size)
        return writer.emit(f"trunc i8 {raw} to i1") if element is I1 else raw
    width = index[lane].width
    if strides[lane] == 1:
        raw = writer.load(f"<{width} x {type_}>", address, size)
    else:
        offsets = writer.iota("i64", width, strides[lane])
        pointers = writer.emit(f"getelementptr {type_}, ptr {address}, <{width} x i64> {offsets}")
        raw = gather(context, pointers, type_, width, size)
    return writer.emit(f"trunc <{width} x i8> {raw} to <{width} x i1>") if element is I1 else raw


def store_strip(
    context: Context,
    pointer: str,
    strides: tuple[int, ...],
    element: object,
    index: Index,
    text: str,
) -> None:
    """Store a strip into a buffer at an index."""
    writer = context.writer
    size, type_ = storage_size(element), storage_type(element)  # type: ignore[arg-type]
    lane = lane_axis(index)
    address = buffer_address(context, pointer, strides, element, index)
    width = index[lane].width if lane >= 0 else 0
    if element is I1:
        text = writer.emit(
            f"zext {vector_type(I1, width)} {text} to {f'<{width} x i8>' if width else 'i8'}"
        )
    if not width:
        writer.store(type_, text, address, size)
    elif strides[lane] == 1:
        writer.store(f"<{width} x {type_}>", text, address, size)
    else:
        offsets = writer.iota("i64", width, strides[lane])
        pointers = writer.emit(f"getelementptr {type_}, ptr {address}, <{width} x i64> {offsets}")
        scatter(context, text, pointers, type_, width, size, constant(I1, True, width))


def gather(
    context: Context,
    pointers: str,
    type_: str,
    width: int,
    size: int,
    mask: str | None = None,
    other: str | None = None,
) -> str:
    """Load a lane from each pointer where the mask holds."""
    vector = f"<{width} x {type_}>"
    operands = [
        (f"<{width} x ptr>", pointers),
        (f"<{width} x i1>", mask or constant(I1, True, width)),
        (vector, other or "poison"),
    ]
    return _masked(
        context, "llvm.masked.gather", vector, operands, 0, size, (vector, f"<{width} x ptr>")
    )


def scatter(
    context: Context, text: str, pointers: str, type_: str, width: int, size: int, mask: str
) -> None:
    """Store a lane to each pointer where the mask holds; at equal addresses the last lane wins."""
    vector = f"<{width} x {type_}>"
    operands = [(vector, text), (f"<{width} x ptr>", pointers), (f"<{width} x i1>", mask)]
    _masked(context, "llvm.masked.scatter", "void", operands, 1, size, (vector, f"<{width} x ptr>"))


def masked_load(
    context: Context, address: str, type_: str, width: int, size: int, mask: str, other: str
) -> str:
    vector = f"<{width} x {type_}>"
    operands = [("ptr", address), (f"<{width} x i1>", mask), (vector, other)]
    return _masked(context, "llvm.masked.load", vector, operands, 0, size, (vector, "ptr"))


def masked_store(
    context: Context, address: str, text: str, type_: str, width: int, size: int, mask: str
) -> None:
    vector = f"<{width} x {type_}>"
    operands = [(vector, text), ("ptr", address), (f"<{width} x i1>", mask)]
    _masked(context, "llvm.masked.store", "void", operands, 1, size, (vector, "ptr"))


def _masked(
    context: Context,
    name: str,
    result: str,
    operands: list[tuple[str, str]],
    pointer: int,
    alignment: int,
    overloads: tuple[str, ...],
) -> str:
    """Call a masked memory intrinsic; its alignment is an attribute of the pointer operand."""
    from tilewright.llvm.emission.writer import mangle

    full = ".".join((name, *map(mangle, overloads)))
    context.state.module.declare(full, result, [type_ for type_, _ in operands])
    listed = ", ".join(
        f"{type_} align {alignment} {text}" if at == pointer else f"{type_} {text}"
        for at, (type_, text) in enumerate(operands)
    )
    call = f"call {result} @{full}({listed})"
    if result == "void":
        context.writer.do(call)
        return ""
    return context.writer.emit(call)


def strip_address(
    context: Context, pointer: Value, index: Index, lane: int, size: int
) -> tuple[str, bool]:
    """(address, True) where lanes of ``pointer`` are contiguous, else (pointers, False).

    A scalar index returns (address, True).
    """
    if lane < 0:
        return evaluate(context, pointer, index), True
    step = stride_along(context, pointer, lane)
    coordinate = index[lane]
    writer = context.writer
    if isinstance(step, int) and step != 0:
        base = evaluate(context, pointer, with_coordinate(index, lane, ZERO))
        element = element_type(pointer.type)
        assert isinstance(element, PointerType)
        if step == size:
            return writer.gep(storage_type(element.pointee), base, coordinate.base), True
        moved = coordinate.base
        if step != 1 and moved != "0":
            moved = (
                str(int(moved) * step)
                if moved.isdigit()
                else writer.emit(f"mul nsw i64 {moved}, {step}")
            )
        address = writer.gep("i8", base, moved)
        return writer.emit(
            f"getelementptr i8, ptr {address}, <{coordinate.width} x i64> "
            f"{writer.iota('i64', coordinate.width, step)}"
        ), False
    return as_vector(context, pointer, index, coordinate.width), False


def _load(context: Context, operation: Load, index: Index, lane: int, scope: Scope) -> str:
    """A strip of a load from the kernel's memory."""
    pointer, mask, other = operation.pointer, operation.mask, operation.other
    element = element_type(operation.result.type)
    size, type_ = storage_size(element), storage_type(element)
    width = index[lane].width if lane >= 0 else 0
    guard = None if mask is None else as_vector(context, mask, index, width)
    if guard is not None and all_true(guard):
        guard = None
    writer = context.writer
    saved = writer.current
    other_text = None
    if guard is not None:
        other_text = (
            constant(element, 0, width)
            if other is None
            else as_vector(context, other, index, width)
        )
    home = scope is not context.scopes[-1]
    if lane >= 0:
        # what the address needs is evaluated where it belongs; the address itself goes with the
        # load
        _prepare_pointer(context, pointer, index, lane)
    else:
        evaluate(context, pointer, index)
    if home:
        writer.current = scope.block
    address, consecutive = strip_address(context, pointer, index, lane, size)
    own = address
    address, guard = checked_strip(context, operation, index, size, address, consecutive, guard)
    if context.copies and operation.result in context.copies:
        address = _address_or_copy(
            context,
            operation,
            index,
            lane,
            address,
            consecutive,
            by_rows=consecutive and lane >= 0 and address == own,
        )
    if guard is not None and other_text is None:
        other_text = constant(element, 0, width)
    if guard is None:
        if not width:
            raw = writer.load(type_, address, size)
        elif consecutive:
            raw = writer.load(f"<{width} x {type_}>", address, size)
        else:
            raw = gather(context, address, type_, width, size)
        if element is I1:
            raw = writer.emit(
                f"icmp ne {f'<{width} x i8>' if width else 'i8'} {raw}, "
                f"{'zeroinitializer' if width else '0'}"
            )
        writer.current = saved
        return raw
    assert other_text is not None
    if not width:
        # a masked-off lane reads zeros of our own
        safe = writer.emit(f"select i1 {guard}, ptr {address}, ptr {context.dummy}")
        raw = writer.load(type_, safe, size)
        if element is I1:
            raw = writer.emit(f"icmp ne i8 {raw}, 0")
        text = writer.emit(
            f"select i1 {guard}, {register_type(element)} {raw}, {register_type(element)} "
            f"{other_text}"
        )
    elif element is I1:
        raw = (
            masked_load(context, address, type_, width, size, guard, "zeroinitializer")
            if consecutive
            else gather(context, address, type_, width, size, guard, "zeroinitializer")
        )
        raw = writer.emit(f"icmp ne <{width} x i8> {raw}, zeroinitializer")
        text = writer.emit(
            f"select <{width} x i1> {guard}, <{width} x i1> {raw}, <{width} x i1> {other_text}"
        )
    elif consecutive:
        text = masked_load(context, address, type_, width, size, guard, other_text)
    else:
        text = gather(context, address, type_, width, size, guard, other_text)
    writer.current = saved
    return text


def _address_or_copy(
    context: Context,
    operation: Load,
    index: Index,
    lane: int,
    address: str,
    consecutive: bool,
    *,
    by_rows: bool,
) -> str:
    """Address of a strip of a load, or of its copy where that is to be read.

    ``by_rows``: the lanes are contiguous, and one decision a row suffices.
    """
    writer, copy = context.writer, context.copies[operation.result]
    element = element_type(operation.result.type)
    if not by_rows:
        there = buffer_address(context, copy.pointer, copy.strides, element, index)
        type_ = "ptr"
        if lane >= 0 and not consecutive:
            width, type_ = index[lane].width, f"<{index[lane].width} x ptr>"
            offsets = writer.iota("i64", width, copy.strides[lane])
            there = writer.emit(
                f"getelementptr {storage_type(element)}, ptr {there}, <{width} x i64> {offsets}"
            )
        return writer.emit(f"select i1 {copy.holds}, {type_} {there}, {type_} {address}")
    row = with_coordinate(index, lane, ZERO)
    scope, saved = scope_of(context, row), writer.current
    base = evaluate(context, operation.pointer, row)
    key = copy.holds, copy.pointer, base, 0
    found = scope.addresses.get(key)
    if found is None:
        if scope is not context.scopes[-1]:
            writer.current = scope.block
        there = buffer_address(context, copy.pointer, copy.strides, element, row)
        found = scope.addresses[key] = writer.emit(
            f"select i1 {copy.holds}, ptr {there}, ptr {base}"
        )
        writer.current = saved
    return writer.gep(storage_type(element), found, index[lane].base)


def _prepare_pointer(context: Context, pointer: Value, index: Index, lane: int) -> None:
    step = stride_along(context, pointer, lane)
    if isinstance(step, int) and step != 0:
        evaluate(context, pointer, with_coordinate(index, lane, ZERO))
    else:
        as_vector(context, pointer, index, index[lane].width)
