"""Atomic updates of memory, one element after the other in row-major order.

Integers have instructions. Sums of narrow floats, and the least and greatest of floats, are loops that compare and exchange the element's bits.
"""

from __future__ import annotations

from collections.abc import Callable

from tilewright.ir.core import Operation, Value
from tilewright.ir.types import F32, F64, FloatType, IntType, PointerType, TileType, Type, bit_width, element_type
from tilewright_cpu.lowering.chunks import for_each, viewed
from tilewright_cpu.lowering.context import Buffer, Context
from tilewright_cpu.lowering.registers import constant, register_type, storage_size

#: Memory orders of the table as LLVM's, for success and for the failing side of a compare-exchange.
_ORDERS: dict[str, tuple[str, str]] = {
    "relaxed": ("monotonic", "monotonic"),
    "acquire": ("acquire", "acquire"),
    "release": ("release", "monotonic"),
    "acq_rel": ("acq_rel", "acquire"),
}


def lower_atomic_rmw(context: Context, operation: Operation) -> None:
    """Update the values at the pointers where the mask holds; the old ones, zero where it does not."""
    pointer, value, mask = (operation.operand(name) for name in ("pointer", "value", "mask"))
    assert pointer is not None and value is not None
    kind, order = operation.attribute("kind"), operation.attribute("order")

    def update(pointer_name: str, value_name: str) -> str:
        assert value is not None
        return atomic_update(context, kind, element_type(value.type), pointer_name, value_name, order)

    _for_lanes(context, operation, [pointer, value], mask, lambda names: update(*names))


def lower_atomic_cas(context: Context, operation: Operation) -> None:
    """Where the value at the pointer has the bits of compare, replace it; the old one."""
    pointer, compare, value = operation.operands
    element = element_type(value.type)
    success, failure = _ORDERS[operation.attribute("order")]

    def swap(names: list[str]) -> str:
        w, bits = context.writer, _bits_type(element)
        expected, new = (_to_bits(context, name, element) for name in names[1:])
        pair = w.emit(f"cmpxchg ptr {names[0]}, {bits} {expected}, {bits} {new} {success} {failure}, align {storage_size(element)}")
        return _from_bits(context, w.emit(f"extractvalue {{ {bits}, i1 }} {pair}, 0"), element)

    _for_lanes(context, operation, [pointer, compare, value], None, swap)


def _for_lanes(context: Context, operation: Operation, operands: list[Value], mask: Value | None, update: Callable[[list[str]], str]) -> None:
    """Run ``update`` on a scalar, or on every element of tiles, where the mask holds; bind what it gives back."""
    result, w = operation.results[0], context.writer
    if not isinstance(result.type, TileType):
        names = [context.scalar(operand) for operand in operands]
        if mask is None:
            context.bind_scalar(result, update(names))
        else:
            context.bind_scalar(result, when_else_zero(context, context.scalar(mask), result.type, lambda: update(names)))
        return
    buffers = [_flat(context.materialize(operand)) for operand in operands]
    masks = _flat(context.materialize(mask)) if mask is not None else None
    old = context.new_buffer(result.type.shape, result.type.element)
    wanted = bool(result.uses)

    def lane(index: str) -> None:
        names = [context.load_element(buffer, (index,)) for buffer in buffers]
        element = element_type(result.type)
        if masks is None:
            value = update(names)
        else:
            value = when_else_zero(context, context.load_element(masks, (index,)), element, lambda: update(names))
        if wanted:
            context.store_element(_flat(old), (index,), value)

    for_each(w, old.numel, lane)
    context.bind_buffer(result, old)


def _flat(buffer: Buffer) -> Buffer:
    return viewed(buffer, buffer.numel)


def when_else_zero(context: Context, condition: str, element: Type, body: Callable[[], str]) -> str:
    """What ``body`` gives where an i1 holds, else zero; it only runs where it holds."""
    w = context.writer
    then, join, before = w.new_block("then"), w.new_block("join"), w.current
    w.branch_if(condition, then, join)
    w.place(then)
    value = body()
    after = w.current
    w.branch(join)
    w.place(join)
    return w.phi(register_type(element), ((value, after), (constant(element, 0), before)))


# ---- one update


def atomic_update(context: Context, kind: str, element: Type, pointer: str, value: str, order: str) -> str:
    """Update the element at a pointer in one step, with operands in register form; the old one."""
    w, type_ = context.writer, register_type(element)
    if isinstance(element, FloatType) and kind in ("min", "max"):
        return _exchange_loop(context, element, pointer, order, lambda old: _extreme_of_bits(context, kind, old, _to_bits(context, value, element), element))
    if isinstance(element, FloatType) and kind == "add" and element not in (F32, F64):
        return _exchange_loop(context, element, pointer, order, lambda old: _sum_of_bits(context, old, value, element))
    name = "fadd" if isinstance(element, FloatType) and kind == "add" else kind
    if isinstance(element, IntType) and not element.signed and kind in ("min", "max"):
        name = f"u{kind}"
    if isinstance(element, PointerType):
        assert kind == "xchg"
    success, _ = _ORDERS[order]
    return w.emit(f"atomicrmw {name} ptr {pointer}, {type_} {value} {success}, align {storage_size(element)}")


def _exchange_loop(context: Context, element: Type, pointer: str, order: str, compute: Callable[[str], str]) -> str:
    """Replace the element's bits by ``compute(bits)`` until no one else changed them in between; the old element."""
    w, bits, size = context.writer, _bits_type(element), storage_size(element)
    success, failure = _ORDERS[order]
    first = w.emit(f"load atomic {bits}, ptr {pointer} monotonic, align {size}")
    before, loop, done = w.current, w.new_block("retry"), w.new_block("done")
    w.branch(loop)
    w.place(loop)
    old, found = w.fresh("old"), w.fresh("found")
    position = len(w.current.lines)
    w.do("")
    pair = w.emit(f"cmpxchg ptr {pointer}, {bits} {old}, {bits} {compute(old)} {success} {failure}, align {size}")
    w.do(f"{found} = extractvalue {{ {bits}, i1 }} {pair}, 0")
    same = w.emit(f"extractvalue {{ {bits}, i1 }} {pair}, 1")
    assert w.current is loop, "computing a new value takes no control flow"
    loop.lines[position] = f"  {old} = phi {bits} [ {first}, %{before.label} ], [ {found}, %{loop.label} ]"
    w.branch_if(same, done, loop, likely=True)
    w.place(done)
    return _from_bits(context, old, element)


def _sum_of_bits(context: Context, old: str, value: str, element: FloatType) -> str:
    """The sum of narrow floats, through f32: 24 bits are enough for the second rounding to change nothing (2p + 2, p at most 11)."""
    w = context.writer
    a = context.convert(_from_bits(context, old, element), element, F32)
    b = context.convert(value, element, F32)
    return _to_bits(context, context.convert(w.emit(f"fadd float {a}, {b}"), F32, element), element)


def _extreme_of_bits(context: Context, kind: str, old: str, value: str, element: FloatType) -> str:
    """The lesser or greater of two floats in the total order of their bits: sign and magnitude read as an integer."""
    w, bits = context.writer, _bits_type(element)

    def key(x: str) -> str:
        sign = w.emit(f"ashr {bits} {x}, {element.bits - 1}")
        magnitude = w.emit(f"lshr {bits} {sign}, 1")
        return w.emit(f"xor {bits} {x}, {magnitude}")

    chosen = w.emit(f"icmp {'slt' if kind == 'min' else 'sgt'} {bits} {key(value)}, {key(old)}")
    return w.emit(f"select i1 {chosen}, {bits} {value}, {bits} {old}")


def _bits_type(element: Type) -> str:
    return f"i{bit_width(element)}"


def _to_bits(context: Context, name: str, element: Type) -> str:
    type_ = register_type(element)
    if type_[0] == "i":
        return name
    how = "ptrtoint" if type_ == "ptr" else "bitcast"
    return context.writer.emit(f"{how} {type_} {name} to {_bits_type(element)}")


def _from_bits(context: Context, name: str, element: Type) -> str:
    type_ = register_type(element)
    if type_[0] == "i":
        return name
    how = "inttoptr" if type_ == "ptr" else "bitcast"
    return context.writer.emit(f"{how} {_bits_type(element)} {name} to {type_}")


LOWERINGS: dict[str, Callable[[Context, Operation], None]] = {"atomic_rmw": lower_atomic_rmw, "atomic_cas": lower_atomic_cas}
