"""Exact remainder of floats (C's ``fmod``), for targets without such an instruction.

``x - trunc(x / y) * y`` is wrong where the quotient has many digits.

One function a type, written into the module where it is needed. The magnitudes are brought down by
multiples of ``|y| * 2**e`` with e as large as fits, the quotients of few enough bits that the
multiplications are exact.
"""

from __future__ import annotations

from tilewright.ir.types import BF16, F16, F32, F64, FloatType
from tilewright.llvm.emission.registers import constant, register_type
from tilewright.llvm.emission.writer import FunctionWriter


def float_remainder(w: FunctionWriter, a: str, b: str, element: FloatType) -> str | None:
    """``fmod(a, b)`` of f64, f32, f16 or bf16 in register form; None for other types."""
    if element in (F32, F64):
        return emit_remainder(w, a, b, element)
    if element is F16:  # exact in f32, and so is the result in f16
        x, y = (w.emit(f"fpext half {name} to float") for name in (a, b))
        return w.emit(f"fptrunc float {emit_remainder(w, x, y, F32)} to half")
    if element is BF16:
        wide = [w.emit(f"zext i16 {name} to i32") for name in (a, b)]
        x, y = (w.emit(f"bitcast i32 {w.emit(f'shl i32 {bits}, 16')} to float") for bits in wide)
        bits = w.emit(f"bitcast float {emit_remainder(w, x, y, F32)} to i32")
        return w.emit(f"trunc i32 {w.emit(f'lshr i32 {bits}, 16')} to i16")
    return None


def emit_remainder(w: FunctionWriter, a: str, b: str, element: FloatType) -> str:
    """``fmod(a, b)`` for f32 or f64."""
    type_ = register_type(element)
    symbol = f"tilewright_fmod_{element}"
    if all(function.name != symbol for function in w.module.functions):
        _write(w, symbol, element)
    return w.emit(f"call {type_} @{symbol}({type_} {a}, {type_} {b})")


def _write(outer: FunctionWriter, symbol: str, element: FloatType) -> None:
    """Write the function on integers, in steps that fit a word.

    With x = m * 2**e and y = n * 2**f, the remainder is (m * 2**(e - f) mod n) * 2**f; the steps
    divide the power of two.
    """
    type_, bits, mantissa = register_type(element), element.bits, element.mantissa
    word = f"i{bits}"
    w = outer.module.function(symbol, [(type_, "x"), (type_, "y")], type_, linkage="internal")
    x_bits, y_bits = (w.emit(f"bitcast {type_} {name} to {word}") for name in ("%x", "%y"))
    sign = w.emit(f"and {word} {x_bits}, {-(1 << (bits - 1))}")
    x_size, y_size = (
        w.emit(f"and {word} {name}, {(1 << (bits - 1)) - 1}") for name in (x_bits, y_bits)
    )
    infinity = ((1 << element.exponent) - 1) << mantissa
    invalid = w.emit(f"icmp uge {word} {x_size}, {infinity}")
    for wrong in (f"icmp ugt {word} {y_size}, {infinity}", f"icmp eq {word} {y_size}, 0"):
        invalid = w.emit(f"or i1 {invalid}, {w.emit(wrong)}")
    bad, good, small, reduce = (w.new_block(name) for name in ("bad", "good", "small", "reduce"))
    w.branch_if(invalid, bad, good, likely=False)
    w.place(bad)
    w.ret(f"{type_} {constant(element, float('nan'))}")
    w.place(good)
    w.branch_if(w.emit(f"icmp ult {word} {x_size}, {y_size}"), small, reduce)
    w.place(small)
    w.ret(f"{type_} %x")
    w.place(reduce)
    (m, e), (n, f) = (_parts(w, name, word, bits, mantissa) for name in (x_size, y_size))
    distance = w.emit(f"sub {word} {e}, {f}")
    # m mod n, then shifted left by as many bits as a word has room for, again and again
    first = w.emit(f"urem {word} {m}, {n}")
    step = bits - mantissa - 1
    head, body, done = (w.new_block(name) for name in ("head", "body", "done"))
    before = w.current
    w.branch(head)
    w.place(head)
    left, rest, next_left, next_rest = (w.fresh(name) for name in ("left", "rest", "left", "rest"))
    w.do(f"{left} = phi {word} [ {distance}, %{before.label} ], [ {next_left}, %{body.label} ]")
    w.do(f"{rest} = phi {word} [ {first}, %{before.label} ], [ {next_rest}, %{body.label} ]")
    w.branch_if(w.emit(f"icmp ne {word} {left}, 0"), body, done)
    w.place(body)
    fits = w.emit(f"icmp ult {word} {left}, {step}")
    shift = w.emit(f"select i1 {fits}, {word} {left}, {word} {step}")
    w.do(f"{next_rest} = urem {word} {w.emit(f'shl {word} {rest}, {shift}')}, {n}")
    w.do(f"{next_left} = sub {word} {left}, {shift}")
    w.branch(head)
    w.place(done)
    # back to a float: the leading bit of the remainder goes where the exponent allows
    zeros = w.intrinsic("llvm.ctlz", word, [(word, rest), ("i1", "false")])
    room = w.emit(f"sub {word} {zeros}, {bits - mantissa - 1}")
    tight = w.emit(f"icmp ult {word} {room}, {f}")
    moved = w.emit(f"select i1 {tight}, {word} {room}, {word} {w.emit(f'sub {word} {f}, 1')}")
    scaled = w.emit(f"shl {word} {rest}, {moved}")
    exponent = w.emit(f"sub {word} {w.emit(f'sub {word} {f}, {moved}')}, 1")
    # the leading bit of a normal number adds one to the exponent field; a subnormal has none, and a
    # field of zero
    number = w.emit(f"add {word} {scaled}, {w.emit(f'shl {word} {exponent}, {mantissa}')}")
    number = w.emit(f"select i1 {w.emit(f'icmp eq {word} {rest}, 0')}, {word} 0, {word} {number}")
    signed = w.emit(f"or {word} {number}, {sign}")
    w.ret(f"{type_} {w.emit(f'bitcast {word} {signed} to {type_}')}")


def _parts(w: FunctionWriter, size: str, word: str, bits: int, mantissa: int) -> tuple[str, str]:
    """Split a magnitude into (m, e) with magnitude = m * 2**(e - constant).

    m has the leading bit at ``mantissa`` for normal numbers, e is at least 1.
    """
    field = w.emit(f"lshr {word} {size}, {mantissa}")
    fraction = w.emit(f"and {word} {size}, {(1 << mantissa) - 1}")
    normal = w.emit(f"icmp ne {word} {field}, 0")
    lead = w.emit(f"select i1 {normal}, {word} {1 << mantissa}, {word} 0")
    return w.emit(f"or {word} {fraction}, {lead}"), w.emit(
        f"select i1 {normal}, {word} {field}, {word} 1"
    )
