"""Elementwise builtins on any numbers: named arithmetic, selection, extrema and hints."""

from __future__ import annotations

import enum
import math
from typing import Any

from tilewright import ir
from tilewright.language.binding import builtin
from tilewright.language.value_types.dtypes import bfloat16, float32, int1
from tilewright.language.value_types.tensors import tensor
from tilewright.language.value_types.tuples import tuple as tl_tuple
from tilewright.language.value_types.values import constexpr, is_negative_zero, unwrap_if_constexpr


class PropagateNan(enum.Enum):
    """NaN rule of extrema and ``clamp``: return the other operand (``NONE``) or NaN (``ALL``)."""

    NONE = 0
    ALL = 0xFFFF


@builtin
def add(x: Any, y: Any, sanitize_overflow: Any = True, _semantic: Any = None) -> Any:
    """Add two values, as ``x + y`` does, optionally without the overflow check of debug mode.

    Args:
        x: a tensor or a number.
        y: the second operand; both are promoted and broadcast.
        sanitize_overflow: false omits the check for integer overflow in debug mode.

    Returns:
        A tensor of the operands' common type and shape.

    Raises:
        TypeError: the operands have types that cannot be combined.

    Example:
        total = tl.add(n, 1, sanitize_overflow=False)
    """
    return _arithmetic(_semantic, "add", x, y, sanitize_overflow)


@builtin
def sub(x: Any, y: Any, sanitize_overflow: Any = True, _semantic: Any = None) -> Any:
    """Subtract two values, as ``x - y`` does, optionally without the overflow check of debug mode.

    Args:
        x: a tensor or a number.
        y: the second operand; both are promoted and broadcast.
        sanitize_overflow: false omits the check for integer overflow in debug mode.

    Returns:
        A tensor of the operands' common type and shape.

    Raises:
        TypeError: the operands have types that cannot be combined.

    Example:
        rest = tl.sub(n, 1, sanitize_overflow=False)
    """
    return _arithmetic(_semantic, "sub", x, y, sanitize_overflow)


@builtin
def mul(x: Any, y: Any, sanitize_overflow: Any = True, _semantic: Any = None) -> Any:
    """Multiply two values, as ``x * y`` does, optionally without the overflow check of debug mode.

    Args:
        x: a tensor or a number.
        y: the second operand; both are promoted and broadcast.
        sanitize_overflow: false omits the check for integer overflow in debug mode.

    Returns:
        A tensor of the operands' common type and shape.

    Raises:
        TypeError: the operands have types that cannot be combined.

    Example:
        hash = tl.mul(n, 40503, sanitize_overflow=False)
    """
    return _arithmetic(_semantic, "mul", x, y, sanitize_overflow)


def _arithmetic(semantic: Any, op: str, x: Any, y: Any, sanitize_overflow: Any) -> Any:
    if not isinstance(x, tensor) and not isinstance(y, tensor):
        return semantic.binary(op, x, y)
    return getattr(semantic, op)(x, y, bool(unwrap_if_constexpr(sanitize_overflow)))


@builtin
def where(condition: Any, x: Any, y: Any, _semantic: Any = None) -> tensor:
    """Select one of two values, element by element.

    The kernel computes both values for every element, including their loads. If a load must not
    access memory where the condition is false, pass the condition to the load as its mask.

    Args:
        condition: ``int1``; other types are converted by ``condition != 0``, with a warning.
        x: the value where the condition is true: a tensor or a number.
        y: the value elsewhere. The two are promoted to one type, or are pointers of one type; all
            three are broadcast.

    Returns:
        A tensor of the operands' common type and shape.

    Raises:
        TypeError: ``x`` and ``y`` have no common type.

    Example:
        positive = tl.where(x > 0, x, 0.0)
    """
    condition = _semantic.to_tensor(condition)
    if condition.dtype is not int1:
        _semantic.warn(
            f"where: a condition of type {condition.dtype} is deprecated; compare with 0 instead"
        )
        condition = _semantic.cast(condition, int1)
    a, b = _semantic.promote(x, y, lhs_pointer=True, rhs_pointer=True)
    if a.dtype is not b.dtype:
        raise TypeError(f"where cannot choose between {a.dtype} and {b.dtype}")
    condition, a, b = _semantic.broadcast_all(condition, a, b)
    return tensor(_semantic.builder.select(condition.handle, a.handle, b.handle), a.type)


def _strong(x: Any, semantic: Any) -> tensor:
    """Convert an operand of an extremum or clamp: numbers keep their own type, bf16 is fp32."""
    x = semantic.to_tensor(x)
    return semantic.cast(x, float32) if x.dtype is bfloat16 else x


def _nan(propagate_nan: Any) -> dict[str, str]:
    propagate_nan = unwrap_if_constexpr(propagate_nan)
    if propagate_nan is PropagateNan.ALL:
        return {"nan": "propagate"}
    if propagate_nan is PropagateNan.NONE:
        return {}
    raise ValueError(
        f"Unexpected propagate_nan {propagate_nan}: it is PropagateNan.NONE or PropagateNan.ALL"
    )


def _extremum(semantic: Any, op: str, x: Any, y: Any, propagate_nan: Any) -> tensor:
    nan = _nan(propagate_nan)
    a, b = semantic.promote(_strong(x, semantic), _strong(y, semantic))
    return tensor(
        getattr(semantic.builder, op)(a.handle, b.handle, **(nan if a.dtype.is_floating() else {})),
        a.type,
    )


@builtin
def minimum(
    x: Any, y: Any, propagate_nan: Any = PropagateNan.NONE, _semantic: Any = None
) -> tensor:
    """Return the smaller of two values, element by element.

    Args:
        x: a tensor or a number.
        y: the second operand; both are promoted and broadcast. bf16 is computed as fp32, and
            literal numbers keep their own type.
        propagate_nan: what to return if one operand is NaN and the other is a number:
            ``tl.PropagateNan.NONE`` returns the number, ``tl.PropagateNan.ALL`` returns NaN.

    Returns:
        A tensor of the operands' common type and shape. If this type is bf16, the result has type
        fp32.

    Raises:
        ValueError: ``propagate_nan`` is something else.

    Example:
        low = tl.minimum(x, y)
    """
    return _extremum(_semantic, "min", x, y, propagate_nan)


@builtin
def maximum(
    x: Any, y: Any, propagate_nan: Any = PropagateNan.NONE, _semantic: Any = None
) -> tensor:
    """Return the greater of two values, element by element.

    Args:
        x: a tensor or a number.
        y: the second operand; both are promoted and broadcast. bf16 is computed as fp32, and
            literal numbers keep their own type.
        propagate_nan: what to return if one operand is NaN and the other is a number:
            ``tl.PropagateNan.NONE`` returns the number, ``tl.PropagateNan.ALL`` returns NaN.

    Returns:
        A tensor of the operands' common type and shape. If this type is bf16, the result has type
        fp32.

    Raises:
        ValueError: ``propagate_nan`` is something else.

    Example:
        relu = tl.maximum(x, 0.0)
    """
    return _extremum(_semantic, "max", x, y, propagate_nan)


@builtin
def clamp(
    x: Any, min: Any, max: Any, propagate_nan: Any = PropagateNan.NONE, _semantic: Any = None
) -> tensor:
    """Clamp a value between two limits; ``min`` must not exceed ``max``.

    Args:
        x: a tensor or a number.
        min: the lower limit.
        max: the upper limit. All three are promoted to one type and broadcast; bf16 is computed as
            fp32.
        propagate_nan: ``tl.PropagateNan.ALL`` keeps a NaN of ``x``; ``NONE`` returns a limit.

    Returns:
        A tensor of the operands' common type and shape. If this type is bf16, the result has type
        fp32.

    Raises:
        ValueError: ``propagate_nan`` is something else.

    Example:
        limited = tl.clamp(x, -1.0, 1.0)
    """
    nan = _nan(propagate_nan)
    a, low = _semantic.promote(_strong(x, _semantic), _strong(min, _semantic))
    high, a = _semantic.promote(_strong(max, _semantic), a)
    high, low = _semantic.promote(high, low)
    a, low, high = _semantic.broadcast_all(a, low, high)
    nan = nan if a.dtype.is_floating() else {}
    builder = _semantic.builder
    return tensor(builder.min(builder.max(a.handle, low.handle, **nan), high.handle, **nan), a.type)


@builtin
def expect_zero(x: Any, mask: Any, _semantic: Any = None) -> tensor:
    """Return ``x``; in debug mode, also assert that ``x`` is zero where ``mask`` is true.

    Args:
        x: a tensor of numbers.
        mask: ``int1``: ``x`` is expected to be zero in the elements for which it is true. It is
            broadcast with ``x``.

    Returns:
        ``x``.

    Example:
        weight = tl.expect_zero(tl.exp(x), x < -200.0)
    """
    x, mask = _semantic.to_tensor(x), _semantic.to_tensor(mask)
    if _semantic.options.debug:
        zero = _semantic.compare("eq", x, 0)
        zero, mask = _semantic.broadcast_pair(zero, _semantic.cast(mask, int1))
        _semantic.builder.assert_(
            zero.handle, mask=mask.handle, message="expect_zero: a value is not zero"
        )
    return x


# -- Python's min and max in kernels ---------------------------------------------------------------

_NOTHING = object()


def _python_extremum(semantic: Any, args: tuple[Any, ...], propagate_nan: Any, op: str) -> Any:
    items = args
    if len(items) == 1:
        only = unwrap_if_constexpr(items[0])
        items = tuple(only) if isinstance(only, tuple | list | tl_tuple) else items
    if not items:
        raise ValueError(f"{op}() expects at least one value")
    if any(isinstance(item, tensor) for item in items):
        nan = PropagateNan.NONE if propagate_nan is _NOTHING else propagate_nan
        result = items[0]
        for item in items[1:]:
            result = _extremum(semantic, op, result, item, nan)
        return semantic.to_tensor(result)
    values = [unwrap_if_constexpr(item) for item in items]
    for value in values:
        if isinstance(value, float) and math.isnan(value):
            raise ValueError(f"{op}() of constants: NaN is not supported")
        if is_negative_zero(value):
            raise ValueError(f"{op}() of constants: -0.0 is not supported")
    return constexpr(min(values) if op == "min" else max(values))


@builtin
def builtin_max(*args: Any, propagate_nan: Any = _NOTHING, _semantic: Any = None) -> Any:
    """Python's ``max`` in a kernel: of constexprs, a constexpr; otherwise the same as
    :func:`maximum`.

    Among constexprs NaN and -0.0 are refused.
    """
    return _python_extremum(_semantic, args, propagate_nan, "max")


@builtin
def builtin_min(*args: Any, propagate_nan: Any = _NOTHING, _semantic: Any = None) -> Any:
    """Python's ``min`` in a kernel: of constexprs, a constexpr; otherwise the same as
    :func:`minimum`.

    Among constexprs NaN and -0.0 are refused.
    """
    return _python_extremum(_semantic, args, propagate_nan, "min")


# -- hints -----------------------------------------------------------------------------------------


def _promise(semantic: Any, name: str, attribute: str, input: Any, values: Any) -> tensor:
    x = semantic.to_tensor(input)
    plain = unwrap_if_constexpr(values)
    items = list(plain) if isinstance(plain, list | tuple | tl_tuple) else [plain]
    numbers = []
    for i, item in enumerate(items):
        if isinstance(item, tensor):
            raise TypeError(f"{name}: values element {i} must have type `constexpr`")
        number = unwrap_if_constexpr(item)
        if type(number) is not int or number < 1:
            raise TypeError(
                f"{name}: values element {i} must have type `constexpr[int]` and be positive, got "
                f"`constexpr[{number!r}]`"
            )
        numbers.append(number)
    if len(numbers) != max(1, len(x.extents)):
        raise ValueError(
            f"Shape of input to {name} does not match the length of values: {list(x.extents)} "
            f"and {numbers}"
        )
    hinted = tensor(semantic.builder.hint(x.handle, **{attribute: tuple(numbers)}), x.type)
    if x is input and _is_made_here(semantic, x):
        # Kernels also state a promise of a variable and drop the result: what reads the variable
        # from here on has the promise. It is the variable's tensor that is given back, so that a
        # promise of the result is one of the variable too.
        x.handle = hinted.handle
        return x
    return hinted


def _is_made_here(semantic: Any, x: tensor) -> bool:
    """Return whether ``x`` is defined in the region that is being written.

    Then a value made now can be read wherever ``x`` can from now on.
    """
    owner = x.handle.owner
    return (owner.parent if isinstance(owner, ir.Operation) else owner) is semantic.builder.region


@builtin
def multiple_of(input: Any, values: Any, _semantic: Any = None) -> tensor:
    """Return the operand, with the hint that its values are multiples of a number.

    If the operand is a scalar, the hint states that this scalar is a multiple of ``values``. If the
    operand is a tensor, ``values`` contains a number for each axis. For a tensor, the hint states
    that the elements along each axis form runs of consecutive integers, and that the first element
    of each run is a multiple of the number for this axis. The hint :func:`max_contiguous` states
    how long the runs are.

    Args:
        input: an integer or pointer tensor, or a scalar.
        values: the number for each axis: a constexpr, or a list of them.

    Returns:
        ``input``. If the hint is wrong, the behaviour of the kernel is undefined.

    Raises:
        TypeError: an element of ``values`` is not a positive constexpr.
        ValueError: ``values`` does not have one element for each axis.

    Example:
        start = tl.multiple_of(pid * BLOCK, BLOCK)
        size = tl.multiple_of(n, 4)  # an argument, of which callers pass only multiples of 4
    """
    return _promise(_semantic, "multiple_of", "divisibility", input, values)


@builtin
def max_contiguous(input: Any, values: Any, _semantic: Any = None) -> tensor:
    """Return the operand, with the hint that its elements form runs of consecutive integers.

    Args:
        input: an integer or pointer tensor.
        values: the length of the runs along each axis: a constexpr, or a list of them.

    Returns:
        ``input``. If the hint is wrong, the behaviour of the kernel is undefined.

    Raises:
        TypeError: an element of ``values`` is not a positive constexpr.
        ValueError: ``values`` does not have one element for each axis.

    Example:
        rows = tl.max_contiguous(offsets, BLOCK)
    """
    return _promise(_semantic, "max_contiguous", "contiguity", input, values)


@builtin
def max_constancy(input: Any, values: Any, _semantic: Any = None) -> tensor:
    """Return the operand, with the hint that its elements form runs of equal values.

    Args:
        input: a tensor.
        values: the length of the runs along each axis: a constexpr, or a list of them.

    Returns:
        ``input``. If the hint is wrong, the behaviour of the kernel is undefined.

    Raises:
        TypeError: an element of ``values`` is not a positive constexpr.
        ValueError: ``values`` does not have one element for each axis.

    Example:
        group = tl.max_constancy(offsets // 8, 8)
    """
    return _promise(_semantic, "max_constancy", "constancy", input, values)


@builtin
def assume(cond: Any, _semantic: Any = None) -> None:
    """Let the compiler assume that a condition is true.

    If the condition is false during a launch, the behaviour of the kernel is undefined.

    Args:
        cond: a scalar condition. A constexpr that is true has no effect.

    Raises:
        ValueError: the condition is not a scalar, or is known to be false.

    Example:
        tl.assume(n > 0)
    """
    if not isinstance(cond, tensor):
        if not unwrap_if_constexpr(cond):
            raise ValueError("assume: the condition is known to be false")
        return
    if cond.numel.value != 1:
        raise ValueError(f"assume takes a scalar condition, got {cond}")
    condition = _semantic.cast(_semantic.scalar_of(cond), int1)
    _semantic.builder.assume(condition.handle)
