"""Bessel functions of any integer order, by recurrence on the order, one element at a time.

fp32 is computed in fp64.
"""

# These functions are typed by the compiler, call by call; to Python they are untyped.
# mypy: ignore-errors

from __future__ import annotations

from tilewright.language import core, math
from tilewright.language.core import constexpr
from tilewright.language.definitions.callable import device_function
from tilewright.language.definitions.custom_derivative import custom_vjp
from tilewright.language.device_math import special

_j0, _j1, _y0, _y1 = (special.FUNCTIONS[name] for name in ("j0", "j1", "y0", "y1"))
_NAN = constexpr(float("nan"))
_NEGATIVE_INFINITY = constexpr(float("-inf"))
_INFINITY = constexpr(float("inf"))


@device_function
def _upward(n, x, first, second):
    """The value of order ``n`` by upward recurrence: stable for Y, and for J while n < x.

    It starts from the values of orders 0 and 1.
    """
    if n == 0:
        return first
    for i in range(1, n):
        following = 2.0 * i.to(core.float64) / x * second - first
        first = second
        second = following
    return second


@device_function
def _downward(n, x):
    """J of order ``n`` > 0 for x > 0 by J. Miller's algorithm.

    It starts from an order where J is all but zero, and scales by J0 + 2 J2 + 2 J4 + ... = 1.
    """
    start = 2 * ((n + math.sqrt(160.0 * n.to(core.float64)).to(core.int32)) // 2)
    above = core.full((), 0.0, core.float64)
    value = core.full((), 1.0, core.float64)
    found = core.full((), 0.0, core.float64)
    total = core.full((), 0.0, core.float64)
    for order in range(start, 0, -1):
        below = 2.0 * order.to(core.float64) / x * value - above
        above = value
        value = below
        if math.abs(value) > 1e150:
            value *= 1e-150
            above *= 1e-150
            found *= 1e-150
            total *= 1e-150
        if order % 2 == 1 and order > 1:
            total += value
        if order == n:
            found = above
    return found / (2.0 * total + value)


@device_function
def _jn(n, x):
    size = math.abs(x)
    result = core.full((), 0.0, core.float64)
    if n < 0 or x != x:
        result = core.full((), _NAN, core.float64)
    elif size == 0.0:
        if n == 0:
            result = core.full((), 1.0, core.float64)
    elif size < _INFINITY:
        if n.to(core.float64) <= size or n <= 1:
            result = _upward(n, size, _j0(size), _j1(size))
        else:
            result = _downward(n, size)
    if x < 0.0 and n % 2 == 1:
        result = -result
    return result


@device_function
def _yn(n, x):
    result = core.full((), 0.0, core.float64)
    if n < 0 or x < 0.0 or x != x:
        result = core.full((), _NAN, core.float64)
    elif x == 0.0:
        result = core.full((), _NEGATIVE_INFINITY, core.float64)
    elif x < _INFINITY:
        first = _y0(x)
        second = _y1(x)
        result = _upward(n, x, first, second)
        if result != result:
            # Beyond the maximum float: inf - inf.
            result = core.full((), _NEGATIVE_INFINITY, core.float64)
    return result


@custom_vjp
def jn(x, y):
    """The Bessel function of the first kind of integer order ``x``, at ``y``.

    NaN for a negative order.
    """
    return _each(_jn, core.to_tensor(x), core.to_tensor(y))


@custom_vjp
def yn(x, y):
    """The Bessel function of the second kind of integer order ``x``, at ``y``.

    NaN for a negative order.
    """
    return _each(_yn, core.to_tensor(x), core.to_tensor(y))


@device_function
def _each(fn: constexpr, n, x):
    core.static_assert(n.dtype.is_int(), "the order of a Bessel function is an integer")
    core.static_assert(
        x.dtype == core.float32 or x.dtype == core.float64, "Expected dtype ['fp32', 'fp64']"
    )
    order, value = core.broadcast(n.to(core.int32), x.to(core.float64))
    return core.map_elementwise(fn, order, value).to(x.dtype)


@device_function
def _slope(fn: constexpr, n, x):
    """The derivative: half the difference of the neighbours in order."""
    order, value = core.to_tensor(n), core.to_tensor(x)
    lower = fn(core.maximum(order - 1, 0), value)
    upper = fn(order + 1, value)
    first = core.broadcast(order, value)[0] == 0
    return core.where(first, -upper, (lower - upper) * 0.5)


@jn.vjp
def _jn_vjp(n, x, y, dy):
    return None, dy * _slope(jn, n, x)


@jn.jvp
def _jn_jvp(n, x, y, dx):
    return dx * _slope(jn, n, x)


@yn.vjp
def _yn_vjp(n, x, y, dy):
    return None, dy * _slope(yn, n, x)


@yn.jvp
def _yn_jvp(n, x, y, dx):
    return dx * _slope(yn, n, x)


FUNCTIONS = {"jn": jn, "yn": yn}
