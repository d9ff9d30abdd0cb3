"""Source of elementwise operations: operators, functions of numbers, casts."""

from __future__ import annotations

from tilewright.frontend.source.expression_text import (
    Binding,
    SourceExpression,
    atom,
    call_text,
    dtype_text,
    keeps_value,
)
from tilewright.frontend.source.function_writer import SourceWriter
from tilewright.frontend.source.operand_forms import (
    exact,
    exact_scalar,
    infix,
    loose,
    promoted,
    strong,
)
from tilewright.frontend.source.source_rows import SourceForm, written
from tilewright.ir.core import Operation, Value
from tilewright.ir.ops.arithmetic import (
    Addptr,
    Arange,
    Binary,
    Bitcast,
    Cast,
    Cmp,
    Constant,
    Div,
    Extremum,
    Fma,
    Ldexp,
    NumPrograms,
    ProgramId,
    Rem,
    Select,
    Sqrt,
    Unary,
)
from tilewright.ir.types import (
    BF16,
    F32,
    I1,
    I32,
    U32,
    U64,
    FloatType,
    IntType,
    PointerType,
    Type,
    element_type,
    shape_of,
    with_element,
)

_OPERATORS = {
    "add": ("+", Binding.SUM),
    "sub": ("-", Binding.SUM),
    "mul": ("*", Binding.FACTOR),
    "and": ("&", Binding.AND),
    "or": ("|", Binding.OR),
    "xor": ("^", Binding.XOR),
    "shl": ("<<", Binding.SHIFT),
    "shr": (">>", Binding.SHIFT),
}
_COMPARISONS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
#: operation -> the function of one float of 32 or 64 bits
_FUNCTIONS = {
    "exp": "tl.exp",
    "exp2": "tl.exp2",
    "log": "tl.log",
    "log2": "tl.log2",
    "sin": "tl.sin",
    "cos": "tl.cos",
    "tanh": "tl.extra.libdevice.tanh",
    "erf": "tl.erf",
    "rsqrt": "tl.rsqrt",
    "floor": "tl.floor",
    "ceil": "tl.ceil",
    "round_even": "tl.extra.libdevice.rint",
    "trunc": "tl.extra.libdevice.trunc",
}
_BITS = {"clz": "tl.extra.libdevice.clz", "popcount": "tl.extra.libdevice.popc"}


@written("constant", form=SourceForm.IMPLIED)
def _constant(writer: SourceWriter, operation: Constant) -> SourceExpression:
    return exact(writer, operation.result)


@written("arange")
def _arange(writer: SourceWriter, operation: Arange) -> SourceExpression:
    text = call_text("tl.arange", str(operation.start), str(operation.end))
    return atom(text, operation.result.type)


@written("program_id", "num_programs")
def _axis(writer: SourceWriter, operation: ProgramId | NumPrograms) -> SourceExpression:
    return atom(call_text(f"tl.{operation.name}", str(operation.axis)), operation.result.type)


@written("add", "sub", "mul", "and", "or", "shl", "shr")
def _operator(writer: SourceWriter, operation: Binary) -> SourceExpression:
    operator, binding = _OPERATORS[operation.name]
    left, right = promoted(writer, (operation.a, operation.b))
    if binding is Binding.SHIFT and left.is_number:
        left = exact_scalar(left, operation.a.type)
    if binding is Binding.SHIFT and right.is_number:
        right = _amount(right, operation.b.type)
    return infix(left, operator, right, binding, operation.result.type)


def _amount(shift: SourceExpression, type_: Type) -> SourceExpression:
    """Return the number of bits of a shift; one that shifts out all of them is no number."""
    element = element_type(type_)
    assert isinstance(element, IntType)
    assert shift.number is not None
    return shift if 0 <= shift.number < element.bits else exact_scalar(shift, type_)


@written("xor")
def _xor(writer: SourceWriter, operation: Binary) -> SourceExpression:
    for x, y in ((operation.a, operation.b), (operation.b, operation.a)):
        ones = loose(writer, y)
        if ones.is_number and _is_all_ones(ones, y):
            text = f"~{exact(writer, x).within(Binding.SIGN)}"
            return SourceExpression(text, Binding.SIGN, operation.result.type)
    left, right = promoted(writer, (operation.a, operation.b))
    return infix(left, "^", right, Binding.XOR, operation.result.type)


def _is_all_ones(form: SourceExpression, value: Value) -> bool:
    element = element_type(value.type)
    assert isinstance(element, IntType)
    return form.number == (True if element is I1 else -1 if element.signed else element.maximum)


@written("div")
def _div(writer: SourceWriter, operation: Div) -> SourceExpression:
    element = element_type(operation.a.type)
    if isinstance(element, IntType):
        return _wide(writer, operation, "//")
    if element is F32 and (operation.approximate or operation.exact or operation.fast):
        function = (
            "tl.fdiv"
            if operation.approximate
            else "tl.div_rn"
            if operation.exact
            else "tl.extra.libdevice.fast_dividef"
        )
        forms = promoted(writer, (operation.a, operation.b), casts=False)
        return atom(call_text(function, *(x.text for x in forms)), operation.result.type)
    return _wide(writer, operation, "/")


@written("rem")
def _rem(writer: SourceWriter, operation: Rem) -> SourceExpression:
    return _wide(writer, operation, "%")


def _wide(writer: SourceWriter, operation: Binary, operator: str) -> SourceExpression:
    """Return a division, which the language computes in f32 where floats are narrower."""
    left, right = promoted(writer, (operation.a, operation.b), division=True)
    type_ = operation.result.type
    element = element_type(type_)
    found = infix(left, operator, right, Binding.FACTOR, type_)
    if isinstance(element, FloatType) and element.bits < 32:
        return converted_to(found, type_)
    return found


@written("neg")
def _neg(writer: SourceWriter, operation: Unary) -> SourceExpression:
    text = f"-{exact(writer, operation.x).within(Binding.SIGN)}"
    return SourceExpression(text, Binding.SIGN, operation.result.type)


@written("abs")
def _abs(writer: SourceWriter, operation: Unary) -> SourceExpression:
    return atom(call_text("tl.abs", exact(writer, operation.x).text), operation.result.type)


@written("mulhi")
def _mulhi(writer: SourceWriter, operation: Binary) -> SourceExpression:
    forms = promoted(writer, (operation.a, operation.b), casts=False)
    function = "tl.extra.libdevice.mulhi"
    return atom(call_text(function, *(x.text for x in forms)), operation.result.type)


@written("min", "max")
def _extremum(writer: SourceWriter, operation: Extremum) -> SourceExpression:
    type_, element = operation.result.type, element_type(operation.result.type)
    forms = promoted(writer, (operation.a, operation.b), comparison=True, casts=False)
    nan = "tl.PropagateNan.ALL" if operation.nan == "propagate" else None
    function = f"tl.{operation.name}imum"
    found = atom(call_text(function, *(x.text for x in forms), propagate_nan=nan), type_)
    return converted_to(found, type_) if element is BF16 else found


@written("cmp")
def _cmp(writer: SourceWriter, operation: Cmp) -> SourceExpression:
    operator = _COMPARISONS[operation.predicate]
    operands = (operation.a, operation.b)
    if isinstance(element_type(operation.a.type), PointerType):
        left, right = (converted_to(exact(writer, x), with_element(x.type, U64)) for x in operands)
    else:
        left, right = promoted(writer, operands, comparison=True)
    return infix(left, operator, right, Binding.COMPARISON, operation.result.type)


@written("select")
def _select(writer: SourceWriter, operation: Select) -> SourceExpression:
    type_ = operation.result.type
    condition = loose(writer, operation.condition)
    if condition.is_number:
        condition = exact(writer, operation.condition)
    a, b = loose(writer, operation.a), loose(writer, operation.b)
    if a.is_number and b.is_number and not _agree(a, b, element_type(type_)):
        a = exact_scalar(a, type_)
    shapes = {shape_of(x.type) for x in (condition, a, b) if not x.is_number}
    if shape_of(type_) not in shapes and shape_of(type_):
        condition = exact(writer, operation.condition)
    return atom(call_text("tl.where", condition.text, a.text, b.text), type_)


def _agree(a: SourceExpression, b: SourceExpression, element: Type) -> bool:
    """Return whether two numbers beside each other are constants of a type."""
    assert a.number is not None
    assert b.number is not None
    return keeps_value(a.number, element) and keeps_value(b.number, element)


@written("fma")
def _fma(writer: SourceWriter, operation: Fma) -> SourceExpression:
    operands = (operation.a, operation.b, operation.c)
    forms = promoted(writer, operands, casts=False)
    if forms[0].is_number and forms[1].is_number:
        forms[0] = exact_scalar(forms[0], operation.a.type)
    return atom(call_text("tl.fma", *(x.text for x in forms)), operation.result.type)


def converted_to(x: SourceExpression, type_: Type, **options: str) -> SourceExpression:
    """Return ``x.to(dtype)``."""
    return atom(call_text(f"{x.within(Binding.ATOM)}.to", dtype_text(type_), **options), type_)


@written("cast")
def _cast(writer: SourceWriter, operation: Cast) -> SourceExpression:
    type_ = operation.result.type
    extent = extent_of_descriptor(writer, operation)
    if extent is not None:
        return extent
    x = exact(writer, operation.x)
    if operation.rounding == "rtz":
        return converted_to(x, type_, fp_downcast_rounding='"rtz"')
    return converted_to(x, type_)


def extent_of_descriptor(writer: SourceWriter, operation: Cast) -> SourceExpression | None:
    """Return ``desc.shape[i]``, which is the extent as int32; None for another cast."""
    from tilewright.ir.ops.memory import DescriptorExtent

    definition = operation.x.definition
    if not isinstance(definition, DescriptorExtent) or operation.result.type is not I32:
        return None
    text = f"{exact(writer, definition.descriptor).text}.shape[{definition.axis}]"
    return atom(text, I32)


@written("bitcast")
def _bitcast(writer: SourceWriter, operation: Bitcast) -> SourceExpression:
    type_, x = operation.result.type, exact(writer, operation.x)
    source, target = element_type(operation.x.type), element_type(type_)
    both_integers = isinstance(source, IntType) and isinstance(target, IntType)
    if both_integers or isinstance(source, PointerType) or isinstance(target, PointerType):
        return converted_to(x, type_)
    return converted_to(x, type_, bitcast="True")


@written("addptr")
def _addptr(writer: SourceWriter, operation: Addptr) -> SourceExpression:
    pointer, offset = loose(writer, operation.pointer), strong(writer, operation.offset)
    shape = shape_of(operation.result.type)
    mine = () if offset.is_number else shape_of(offset.type)
    if shape not in (shape_of(pointer.type), mine) and not _spread_to(pointer, offset, shape):
        pointer = exact(writer, operation.pointer)
    return infix(pointer, "+", offset, Binding.SUM, operation.result.type)


def _spread_to(a: SourceExpression, b: SourceExpression, shape: tuple[int, ...]) -> bool:
    """Return whether two operands of one rank broadcast to a shape."""
    if b.is_number or len(shape_of(a.type)) != len(shape_of(b.type)):
        return False
    return tuple(map(max, shape_of(a.type), shape_of(b.type))) == shape


@written(*_FUNCTIONS)
def _function(writer: SourceWriter, operation: Unary) -> SourceExpression:
    text = call_text(_FUNCTIONS[operation.name], exact(writer, operation.x).text)
    return atom(text, operation.result.type)


@written("sqrt")
def _sqrt(writer: SourceWriter, operation: Sqrt) -> SourceExpression:
    precise = element_type(operation.x.type) is F32 and not operation.approximate
    function = "tl.sqrt_rn" if precise else "tl.sqrt"
    return atom(call_text(function, exact(writer, operation.x).text), operation.result.type)


@written("copysign")
def _copysign(writer: SourceWriter, operation: Binary) -> SourceExpression:
    forms = promoted(writer, (operation.a, operation.b), casts=False)
    text = call_text("tl.extra.libdevice.copysign", *(x.text for x in forms))
    return atom(text, operation.result.type)


@written("ldexp")
def _ldexp(writer: SourceWriter, operation: Ldexp) -> SourceExpression:
    x, exponent = exact(writer, operation.x), loose(writer, operation.exponent)
    text = call_text("tl.extra.libdevice.ldexp", x.text, exponent.text)
    return atom(text, operation.result.type)


@written("clz", "popcount")
def _bits(writer: SourceWriter, operation: Unary) -> SourceExpression:
    type_ = operation.result.type
    element = element_type(type_)
    assert isinstance(element, IntType)
    x = exact(writer, operation.x)
    if element.bits < 32:
        # the lower bits alone, and as many bits more in front of them
        unsigned = with_element(type_, IntType(element.bits, signed=False))
        wide = converted_to(converted_to(x, unsigned), with_element(type_, U32))
        found = atom(call_text(_BITS[operation.name], wide.text), with_element(type_, I32))
        if _counts_from_the_top(operation):
            text = f"{found.text} - {32 - element.bits}"
            found = SourceExpression(text, Binding.SUM, found.type)
        return converted_to(found, type_)
    found = atom(call_text(_BITS[operation.name], x.text), with_element(type_, I32))
    return found if element is I32 else converted_to(found, type_)


def _counts_from_the_top(operation: Operation) -> bool:
    """Return whether an operation counts the zeros before the first bit that is set."""
    return _BITS[operation.name].endswith("clz")
