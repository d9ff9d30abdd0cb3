"""Atomic updates of global memory.

Sums, integer minima and maxima, bitwise updates and exchanges have instructions: ``red`` if the old
value is unused and the order allows it (only ``atom`` has ``.acquire``), ``atom`` otherwise. Sums
of consecutive f16 are packed (``.f16x2``). From compute capability 9.0 on, one instruction adds up
to 16 bytes of f32 (``.v4.f32``), f16 or bf16 (``.v4.bf16x2``). Float minima and maxima, in the
total order of the encodings, are integer ones: signed if the operand's sign bit is clear, unsigned
and exchanged if it is set. Updates without an instruction (16-bit exchanges, minima and maxima, and
bf16 sums before compute capability 9.0) use a compare-and-swap loop. f32 sums flush subnormals, as
the instruction does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from tilewright.errors import LoweringError
from tilewright.ir.types import BF16, F16, F32, F64, FloatType, IntType, Type, bit_width
from tilewright.llvm.emission.atomics import extreme_of_bits
from tilewright.llvm.emission.casts import emit_cast
from tilewright.llvm.emission.registers import register_type, storage_size
from tilewright.llvm.emission.writer import FunctionWriter
from tilewright.simt.lowering.emission.context import SimtContext
from tilewright.simt.target.capabilities.global_memory import GlobalMemory, Update
from tilewright_nvidia.architectures import Architecture
from tilewright_nvidia.codegen.inline_ptx import call_asm, listed
from tilewright_nvidia.codegen.kernel_state import words_in

SCOPES = {"program": "cta", "device": "gpu", "system": "sys"}
#: The type of two packed 16-bit floats.
_PACKED: Final[dict[Type, str]] = {F16: "f16x2", BF16: "bf16x2"}
_TWISTED = {"min": ("min", "max"), "max": ("max", "min")}


class Atomics(GlobalMemory):
    """Atomics and fences of global memory."""

    def __init__(self, row: Architecture) -> None:
        self._row = row

    def atomic_width(self, kind: str, element: Type, scope: str) -> int:
        if kind != "add":
            return 1
        if self._row.vector_atomics and element in (F32, F16, BF16):
            return 16 // storage_size(element)
        return 2 if element is F16 else 1

    def atomic_rmw(
        self,
        context: SimtContext,
        update: Update,
        pointer: str,
        values: Sequence[str],
        predicate: str | None,
    ) -> list[str]:
        w, kind, element = context.writer, update.kind, update.element
        suffix = f"global.{SCOPES[update.scope]}.{update.order}"
        reduces = not update.used and update.order in ("relaxed", "release")
        if len(values) > 1:
            return _add_vector(
                w, "red" if reduces else "atom", suffix, pointer, element, values, predicate
            )
        (value,) = values
        if reduces and _has_instruction(self._row.capability, kind, element):
            operands = [
                ("ptr", pointer),
                (_register(bit_width(element)), to_bits(w, value, element)),
            ]
            _call(
                w,
                f"red.{suffix}.{_operation(kind, element, bit_width(element))} [$0], $1;",
                (),
                operands,
                predicate,
            )
            return []
        return [
            _update(context, self._row.capability, kind, pointer, element, value, predicate, suffix)
        ]

    def atomic_cas(
        self,
        context: SimtContext,
        pointer: str,
        element: Type,
        compare: str,
        value: str,
        predicate: str | None,
        order: str,
        scope: str,
    ) -> str:
        w, bits = context.writer, bit_width(element)
        operands = [to_bits(w, name, element) for name in (compare, value)]
        return from_bits(
            w,
            _instruction(
                w,
                f"atom.global.{order}.{SCOPES[scope]}.cas.b{bits}",
                bits,
                pointer,
                operands,
                predicate,
            ),
            element,
        )

    def atomic_load(
        self,
        context: SimtContext,
        pointer: str,
        element: Type,
        predicate: str | None,
        order: str,
        scope: str,
    ) -> str:
        w, bits = context.writer, bit_width(element)
        (name,) = _call(
            w,
            f"ld.{order}.{SCOPES[scope]}.global.b{bits} $0, [$1];",
            [_register(bits)],
            [("ptr", pointer)],
            predicate,
        )
        return from_bits(w, name if bits > 8 else w.emit(f"trunc i16 {name} to i8"), element)

    def atomic_store(
        self,
        context: SimtContext,
        pointer: str,
        element: Type,
        value: str,
        predicate: str | None,
        order: str,
        scope: str,
    ) -> None:
        w, bits = context.writer, bit_width(element)
        name = to_bits(w, value, element)
        operands = [
            ("ptr", pointer),
            (_register(bits), name if bits > 8 else w.emit(f"zext i8 {name} to i16")),
        ]
        _call(w, f"st.{order}.{SCOPES[scope]}.global.b{bits} [$0], $1;", (), operands, predicate)

    def fence(self, w: FunctionWriter, order: str, scope: str) -> None:
        call_asm(w, f"fence.acq_rel.{SCOPES[scope]};", (), [], memory=True)


def _has_instruction(capability: int, kind: str, element: Type) -> bool:
    """Return whether ``red`` supports an update."""
    if isinstance(element, FloatType):
        return kind == "add" and (element is not BF16 or capability >= 90)
    return kind != "xchg"


def _add_vector(
    w: FunctionWriter,
    name: str,
    suffix: str,
    pointer: str,
    element: Type,
    values: Sequence[str],
    predicate: str | None,
) -> list[str]:
    """Add to consecutive elements by one ``atom`` or ``red``."""
    each = 4 // storage_size(element)
    register, words = register_type(element), words_in(w)
    packed = [
        ("i32", words.pack(w, values[i : i + each], register, "i32"))
        for i in range(0, len(values), each)
    ]
    count = len(packed)
    vector = f".v{count}" if count > 1 else ""
    type_ = f"noftz{vector}.{_PACKED[element]}" if each > 1 else f"{vector[1:]}.f32"
    first = count if name == "atom" else 0
    text = (
        f"{name}.{suffix}.add.{type_} {f'{listed(0, count)}, ' if first else ''}[${first}], "
        f"{listed(first + 1, count)};"
    )
    found = _call(w, text, ["i32"] * first, [("ptr", pointer), *packed], predicate)
    return [old for word in found for old in words.unpack(w, word, "i32", register)]


def _update(
    context: SimtContext,
    capability: int,
    kind: str,
    pointer: str,
    element: Type,
    value: str,
    predicate: str | None,
    suffix: str,
) -> str:
    """Update one element atomically; return the old one."""
    w, bits = context.writer, bit_width(element)
    if isinstance(element, FloatType) and kind in ("min", "max"):
        if bits == 16:
            new = to_bits(w, value, element)
            return from_bits(
                w,
                _exchange_loop(
                    w,
                    bits,
                    pointer,
                    predicate,
                    suffix,
                    lambda old: extreme_of_bits(w, kind, "i16", old, new),
                ),
                element,
            )
        return from_bits(
            w,
            _float_extreme(w, kind, bits, pointer, to_bits(w, value, element), predicate, suffix),
            element,
        )
    if kind == "xchg" and bits == 16:
        new = to_bits(w, value, element)
        return from_bits(
            w, _exchange_loop(w, bits, pointer, predicate, suffix, lambda old: new), element
        )
    if kind == "add" and element is BF16 and capability < 90:
        return _exchange_loop(
            w, bits, pointer, predicate, suffix, lambda old: _add_bf16(context, old, value)
        )
    operation = _operation(kind, element, bits)
    return from_bits(
        w,
        _instruction(
            w, f"atom.{suffix}.{operation}", bits, pointer, [to_bits(w, value, element)], predicate
        ),
        element,
    )


def _register(bits: int) -> str:
    """Return the register type of elements; those of 8 bits use 16-bit registers."""
    return f"i{max(bits, 16)}"


def _operation(kind: str, element: Type, bits: int) -> str:
    """Return the suffix of the mnemonic."""
    if isinstance(element, FloatType) and kind == "add":
        return {F16: "add.noftz.f16", BF16: "add.noftz.bf16", F32: "add.f32", F64: "add.f64"}[
            element
        ]
    if kind in ("and", "or", "xor"):
        return f"{kind}.b{bits}"
    if kind == "xchg":
        return f"exch.b{bits}"
    if isinstance(element, IntType):
        # adding wraps around, so that the sign does not matter
        return f"{kind}.{'s' if element.signed and kind != 'add' else 'u'}{bits}"
    raise LoweringError(f"there is no atomic {kind} of {element}")


def _instruction(
    w: FunctionWriter,
    mnemonic: str,
    bits: int,
    pointer: str,
    values: list[str],
    predicate: str | None,
) -> str:
    operands = [("ptr", pointer), *((f"i{bits}", value) for value in values)]
    (old,) = _call(
        w,
        f"{mnemonic} $0, [$1], {', '.join(f'${2 + i}' for i in range(len(values)))};",
        [f"i{bits}"],
        operands,
        predicate,
    )
    return old


def _call(
    w: FunctionWriter,
    text: str,
    results: Sequence[str],
    operands: list[tuple[str, str]],
    predicate: str | None,
) -> list[str]:
    """Execute one instruction where the predicate holds."""
    if predicate is None:
        return call_asm(w, text, results, operands)
    return call_asm(
        w, f"@${len(results) + len(operands)} {text}", results, [*operands, ("i1", predicate)]
    )


def _float_extreme(
    w: FunctionWriter,
    kind: str,
    bits: int,
    pointer: str,
    value: str,
    predicate: str | None,
    suffix: str,
) -> str:
    """Compute a float minimum or maximum with integer atomics.

    The order is that of the encodings as sign and magnitude: -0.0 is below 0.0, and NaN beyond
    infinity.
    """
    negative = w.emit(f"icmp slt i{bits} {value}, 0")
    positive = w.emit(f"xor i1 {negative}, true")
    if predicate is not None:
        negative, positive = (
            w.emit(f"and i1 {side}, {predicate}") for side in (negative, positive)
        )
    straight, twisted = _TWISTED[kind]
    text = (
        f"@$3 atom.{suffix}.{straight}.s{bits} $0, [$1], $2;\n@$4 "
        f"atom.{suffix}.{twisted}.u{bits} $0, [$1], $2;"
    )
    operands = [("ptr", pointer), (f"i{bits}", value), ("i1", positive), ("i1", negative)]
    (old,) = call_asm(w, text, [f"i{bits}"], operands)
    return old


def _exchange_loop(
    w: FunctionWriter,
    bits: int,
    pointer: str,
    predicate: str | None,
    suffix: str,
    compute: Callable[[str], str],
) -> str:
    """Replace the bits by ``compute(bits)`` in a compare-and-swap loop; return the old bits."""
    type_ = f"i{bits}"
    before, begin, done = w.current, w.new_block("begin"), w.new_block("done")
    if predicate is None:
        w.branch(begin)
    else:
        w.branch_if(predicate, begin, done)
    w.place(begin)
    (first,) = call_asm(w, f"ld.relaxed.gpu.global.b{bits} $0, [$1];", [type_], [("ptr", pointer)])
    retry = w.new_block("retry")
    w.branch(retry)
    w.place(retry)
    old = w.fresh("old")
    position = len(retry.lines)
    w.do("")
    found = _instruction(w, f"atom.{suffix}.cas.b{bits}", bits, pointer, [old, compute(old)], None)
    assert w.current is retry, "computing a new value takes no control flow"
    retry.lines[position] = (
        f"  {old} = phi {type_} [ {first}, %{begin.label} ], [ {found}, %{retry.label} ]"
    )
    w.branch_if(w.emit(f"icmp eq {type_} {found}, {old}"), done, retry, likely=True)
    w.place(done)
    if predicate is None:
        return found
    return w.phi(type_, ((found, retry), ("0", before)))


def _add_bf16(context: SimtContext, old: str, value: str) -> str:
    """Add two bf16 numbers in f32, whose precision makes the result correctly rounded."""
    a, b = (emit_cast(context, name, BF16, F32, 0) for name in (old, value))
    return emit_cast(context, context.writer.emit(f"fadd float {a}, {b}"), F32, BF16, 0)


def to_bits(w: FunctionWriter, name: str, element: Type) -> str:
    """Bitcast a number or pointer in register form to an integer of its width."""
    type_ = register_type(element)
    if type_[0] == "i":
        return name
    return w.emit(
        f"{'ptrtoint' if type_ == 'ptr' else 'bitcast'} {type_} {name} to i{bit_width(element)}"
    )


def from_bits(w: FunctionWriter, name: str, element: Type) -> str:
    """The inverse of :func:`to_bits`."""
    type_ = register_type(element)
    if type_[0] == "i":
        return name
    return w.emit(
        f"{'inttoptr' if type_ == 'ptr' else 'bitcast'} i{bit_width(element)} {name} to {type_}"
    )
