"""One atomic update of one element in memory.

Integers have instructions. Additions of narrow floats, and extrema of floats, are loops
that compare and exchange the element's bits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tilewright.ir.types import F32, F64, FloatType, IntType, PointerType, Type, bit_width
from tilewright.llvm.emission.casts import emit_cast
from tilewright.llvm.emission.element_context import ElementContext
from tilewright.llvm.emission.registers import register_type, storage_size
from tilewright.llvm.emission.writer import FunctionWriter

#: Memory orders of the table as LLVM's, for success and for the failing side of a compare-exchange.
_ORDERS: dict[str, tuple[str, str]] = {
    "relaxed": ("monotonic", "monotonic"),
    "acquire": ("acquire", "acquire"),
    "release": ("release", "monotonic"),
    "acq_rel": ("acq_rel", "acquire"),
}


@dataclass(frozen=True, slots=True)
class AtomicAccess:
    """Address space, scope and metadata of an atomic access.

    Attributes:
        pointer: LLVM type of the pointer.
        scope: LLVM's synchronisation scope; empty: all of the system.
        fadd_metadata: metadata on updates that add floats, with a leading comma.
    """

    pointer: str = "ptr"
    scope: str = ""
    fadd_metadata: str = ""

    def order(self, order: str) -> str:
        """An order of LLVM's, in the scope."""
        return f'syncscope("{self.scope}") {order}' if self.scope else order


#: Any address, for all threads of the system.
EVERYWHERE: Final = AtomicAccess()


def atomic_update(
    context: ElementContext,
    kind: str,
    element: Type,
    pointer: str,
    value: str,
    order: str,
    reach: AtomicAccess = EVERYWHERE,
) -> str:
    """Update the element at a pointer in one step, with operands in register form; the old one."""
    w, type_ = context.writer, register_type(element)
    if isinstance(element, FloatType) and kind in ("min", "max"):
        return _exchange_loop(
            context,
            element,
            pointer,
            order,
            reach,
            lambda old: extreme_of_bits(
                context.writer, kind, _bits_type(element), _to_bits(context, value, element), old
            ),
        )
    if isinstance(element, FloatType) and kind == "add" and element not in (F32, F64):
        return _exchange_loop(
            context,
            element,
            pointer,
            order,
            reach,
            lambda old: _sum_of_bits(context, old, value, element),
        )
    name = "fadd" if isinstance(element, FloatType) and kind == "add" else kind
    if isinstance(element, IntType) and not element.signed and kind in ("min", "max"):
        name = f"u{kind}"
    if isinstance(element, PointerType):
        assert kind == "xchg"
    if name == "fadd":
        return atomic_sum(w, type_, storage_size(element), pointer, value, order, reach)
    success, _ = _ORDERS[order]
    return w.emit(
        f"atomicrmw {name} {reach.pointer} {pointer}, {type_} {value} {reach.order(success)}, "
        f"align {storage_size(element)}"
    )


def atomic_sum(
    w: FunctionWriter,
    type_: str,
    size: int,
    pointer: str,
    value: str,
    order: str,
    reach: AtomicAccess,
) -> str:
    """Add a float of an LLVM type of ``size`` bytes, or a vector of such, to memory atomically.

    The result is the old value.
    """
    success, _ = _ORDERS[order]
    return w.emit(
        f"atomicrmw fadd {reach.pointer} {pointer}, {type_} {value} {reach.order(success)}, align "
        f"{size}{reach.fadd_metadata}"
    )


def atomic_read(
    context: ElementContext,
    element: Type,
    pointer: str,
    order: str,
    reach: AtomicAccess = EVERYWHERE,
) -> str:
    """The element at a pointer, read whole, in register form."""
    bits = _bits_type(element)
    name = context.writer.emit(
        f"load atomic {bits}, {reach.pointer} {pointer} {reach.order(_ORDERS[order][0])}, align "
        f"{storage_size(element)}"
    )
    return _from_bits(context, name, element)


def atomic_write(
    context: ElementContext,
    element: Type,
    pointer: str,
    value: str,
    order: str,
    reach: AtomicAccess = EVERYWHERE,
) -> None:
    """Write the element at a pointer whole; the value is in register form."""
    stored = f"{_bits_type(element)} {_to_bits(context, value, element)}"
    context.writer.do(
        f"store atomic {stored}, {reach.pointer} {pointer} {reach.order(_ORDERS[order][0])}, align "
        f"{storage_size(element)}"
    )


def _exchange_loop(
    context: ElementContext,
    element: Type,
    pointer: str,
    order: str,
    reach: AtomicAccess,
    compute: Callable[[str], str],
) -> str:
    """Replace the element's bits by ``compute(bits)`` in a compare-and-swap loop.

    The result is the old element.
    """
    w, bits, size = context.writer, _bits_type(element), storage_size(element)
    success, failure = _ORDERS[order]
    first = w.emit(
        f"load atomic {bits}, {reach.pointer} {pointer} {reach.order('monotonic')}, align {size}"
    )
    before, loop, done = w.current, w.new_block("retry"), w.new_block("done")
    w.branch(loop)
    w.place(loop)
    old, found = w.fresh("old"), w.fresh("found")
    position = len(w.current.lines)
    w.do("")
    pair = w.emit(
        f"cmpxchg {reach.pointer} {pointer}, {bits} {old}, {bits} {compute(old)} "
        f"{reach.order(success)} {failure}, align {size}"
    )
    w.do(f"{found} = extractvalue {{ {bits}, i1 }} {pair}, 0")
    same = w.emit(f"extractvalue {{ {bits}, i1 }} {pair}, 1")
    assert w.current is loop, "computing a new value takes no control flow"
    loop.lines[position] = (
        f"  {old} = phi {bits} [ {first}, %{before.label} ], [ {found}, %{loop.label} ]"
    )
    w.branch_if(same, done, loop, likely=True)
    w.place(done)
    return _from_bits(context, old, element)


def _sum_of_bits(context: ElementContext, old: str, value: str, element: FloatType) -> str:
    """Add narrow floats through f32, whose 24 bits make the second rounding harmless.

    That takes 2p + 2 bits, and p is at most 11.
    """
    w = context.writer
    a = emit_cast(context, _from_bits(context, old, element), element, F32, 0)
    b = emit_cast(context, value, element, F32, 0)
    return _to_bits(
        context, emit_cast(context, w.emit(f"fadd float {a}, {b}"), F32, element, 0), element
    )


def extreme_of_bits(w: FunctionWriter, kind: str, bits: str, a: str, b: str) -> str:
    """Return the lesser (``min``) or greater of the bits of two floats in their total order.

    ``bits`` is their type; sign and magnitude are compared as an integer.
    """

    def key(x: str) -> str:
        sign = w.emit(f"ashr {bits} {x}, {int(bits[1:]) - 1}")
        magnitude = w.emit(f"lshr {bits} {sign}, 1")
        return w.emit(f"xor {bits} {x}, {magnitude}")

    chosen = w.emit(f"icmp {'slt' if kind == 'min' else 'sgt'} {bits} {key(a)}, {key(b)}")
    return w.emit(f"select i1 {chosen}, {bits} {a}, {bits} {b}")


def _bits_type(element: Type) -> str:
    return f"i{bit_width(element)}"


def _to_bits(context: ElementContext, name: str, element: Type) -> str:
    type_ = register_type(element)
    if type_[0] == "i":
        return name
    how = "ptrtoint" if type_ == "ptr" else "bitcast"
    return context.writer.emit(f"{how} {type_} {name} to {_bits_type(element)}")


def _from_bits(context: ElementContext, name: str, element: Type) -> str:
    type_ = register_type(element)
    if type_[0] == "i":
        return name
    how = "inttoptr" if type_ == "ptr" else "bitcast"
    return context.writer.emit(f"{how} {_bits_type(element)} {name} to {type_}")


def compare_and_swap(
    context: ElementContext,
    element: Type,
    pointer: str,
    compare: str,
    value: str,
    order: str,
    reach: AtomicAccess = EVERYWHERE,
) -> str:
    """Replace the element at a pointer by ``value`` if it has the bits of ``compare``.

    The result is the old element.
    """
    w, bits = context.writer, _bits_type(element)
    success, failure = _ORDERS[order]
    expected, new = (_to_bits(context, name, element) for name in (compare, value))
    operands = f"{reach.pointer} {pointer}, {bits} {expected}, {bits} {new}"
    pair = w.emit(
        f"cmpxchg {operands} {reach.order(success)} {failure}, align {storage_size(element)}"
    )
    return _from_bits(context, w.emit(f"extractvalue {{ {bits}, i1 }} {pair}, 0"), element)
