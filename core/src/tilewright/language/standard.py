"""The standard library, written in the language itself."""

# These functions are typed by the compiler, call by call; to Python they are untyped.
# mypy: ignore-errors

from __future__ import annotations

from typing import Any

from tilewright.language import core, math
from tilewright.language.callable import constexpr_function, device_function

# -- compile-time helpers -------------------------------------------------------------------------------------------------------------------------


@constexpr_function
def _log2(n: Any) -> Any:
    """The exponent of a power of two."""
    return n.bit_length() - 1


@constexpr_function
def _is_power_of_two(n: Any) -> Any:
    return n > 0 and n & (n - 1) == 0


@constexpr_function
def _sum_dtype(given: Any, dtype: Any) -> Any:
    """The type in which a sum is taken: the one asked for, else at least 32 bits for integers."""
    if dtype is not None:
        return dtype
    if given.is_int_signed():
        return core.int32 if given.int_bitwidth < 32 else given
    if given.is_int_unsigned():
        return core.uint32 if given.int_bitwidth < 32 else given
    return given


@constexpr_function
def _accumulator_dtype(dtype: Any) -> Any:
    """The type in which a sum of ``dtype`` is kept on the way: fp32 for narrower floats, so that rounding does not add up."""
    return core.float32 if dtype.is_floating() and dtype.primitive_bitwidth < 32 else dtype


@constexpr_function
def _prefix_dtype(given: Any, dtype: Any) -> Any:
    """The type in which a running sum is taken: as for a sum, and fp32 for bf16."""
    if dtype is not None:
        return dtype
    return core.float32 if given.is_bf16() else _sum_dtype(given, None)


@constexpr_function
def _product_dtype(given: Any, dtype: Any) -> Any:
    """The type in which a running product is taken: the operand's, and fp32 for bf16."""
    if dtype is not None:
        return dtype
    return core.float32 if given.is_bf16() else given


@constexpr_function
def _extremum_dtype(given: Any, indices: Any) -> Any:
    """The type in which a maximum or minimum is taken: fp32 for bf16; without indices at least 32 bits."""
    if given.is_bf16():
        return core.float32
    if indices or given.primitive_bitwidth >= 32:
        return given
    return core.float32 if given.is_floating() else core.int32


@constexpr_function
def _normal_axis(axis: Any, rank: Any) -> Any:
    """An axis counted from the front.

    Raises:
        ValueError: it is out of range.
    """
    if not -rank <= axis < rank:
        raise ValueError(f"invalid axis {axis}. Expected {-rank} <= axis < {rank}")
    return axis % rank


@constexpr_function
def _last_axis(axis: Any, rank: Any, name: Any) -> Any:
    """Check that ``axis`` is the last one, or None.

    Raises:
        ValueError: it is another.
    """
    if rank == 0:
        raise ValueError(f"{name} takes a tensor of rank 1 or more")
    if axis is not None and axis not in (rank - 1, -1):
        raise ValueError(f"{name}: only the last dimension is currently supported, got axis {axis} of {rank}")
    return rank - 1


@constexpr_function
def _without(shape: Any, axis: Any) -> Any:
    """``shape`` without one axis."""
    return [extent for i, extent in enumerate(shape) if i != axis]


@constexpr_function
def _with_axes(shape: Any, axis: Any, extents: Any) -> Any:
    """``shape`` with one axis replaced by any number of axes."""
    return [*shape[:axis], *extents, *shape[axis + 1 :]]


@constexpr_function
def _interleaved(shape: Any) -> Any:
    """The shape whose last two axes are one."""
    return [*shape[:-2], shape[-2] * shape[-1]]


@constexpr_function
def _only_on(rank: Any, axis: Any, extent: Any) -> Any:
    """A shape of ones but for ``extent`` on one axis."""
    return [extent if i == axis else 1 for i in range(rank)]


# -- creation and index arithmetic ----------------------------------------------------------------------------------------------------------------


@device_function
def cdiv(x, div):
    """The quotient of positive integers, rounded up.

    Args:
        x: an integer tensor or number.
        div: what it is divided by; the two are promoted and broadcast.

    Returns:
        ``(x + div - 1) // div``.

    Example:
        blocks = tl.cdiv(n, BLOCK)
    """
    return (x + div - 1) // div


@device_function
def zeros(shape, dtype):
    """A tensor of zeros.

    Args:
        shape: the extents, constexprs; ``()`` gives a scalar.
        dtype: any number type.

    Returns:
        A tensor of ``shape`` and ``dtype``.

    Example:
        acc = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    """
    return core.full(shape, 0, dtype)


@device_function
def zeros_like(input):
    """A tensor of zeros like another.

    Args:
        input: a tensor.

    Returns:
        A tensor of the shape and type of ``input``.

    Example:
        acc = tl.zeros_like(x)
    """
    return zeros(input.shape, input.dtype)


@device_function
def swizzle2d(i, j, size_i, size_j, size_g):
    """Another place in a grid for each program, so that programs that run together share rows: groups of rows are walked column by column.

    Args:
        i: the program's row, as row-major order has it.
        j: its column.
        size_i: rows of the grid.
        size_j: columns of the grid.
        size_g: rows of a group; the last group may have fewer.

    Returns:
        A tuple: the row and the column to work on.

    Example:
        row, column = tl.swizzle2d(pid, 0, n, 1, 4)
    """
    linear = i * size_j + j
    per_group = size_g * size_j
    first_row = (linear // per_group) * size_g
    # The last group may have fewer rows.
    rows = core.minimum(size_i - first_row, size_g)
    within = linear % per_group
    return first_row + within % rows, within // rows


# -- shape ----------------------------------------------------------------------------------------------------------------------------------------


@device_function
def ravel(x, can_reorder: core.constexpr = False):
    """All elements in one axis, in row-major order.

    Args:
        x: a tensor.
        can_reorder: any order of the elements is as good.

    Returns:
        A 1-D tensor.

    Example:
        flat = tl.ravel(x[:, None])
    """
    return core.reshape(x, [x.numel], can_reorder=can_reorder)


@device_function
def squeeze(x, dim: core.constexpr):
    """A tensor without one of its axes.

    Args:
        x: a tensor.
        dim: the axis, whose extent is 1: a constexpr.

    Returns:
        A tensor of the same elements.

    Raises:
        CompileTimeAssertionFailure: the axis has another extent.

    Example:
        flat = tl.squeeze(x[None, :], 0)
    """
    axis: core.constexpr = _normal_axis(dim, len(x.shape))
    core.static_assert(x.shape[axis] == 1, "squeeze: the axis must have extent 1")
    return core.reshape(x, _without(x.shape, axis))


@device_function
def unsqueeze(x, dim: core.constexpr):
    """A tensor with a new axis of extent 1.

    Args:
        x: a tensor.
        dim: where the axis stands in the result: a constexpr.

    Returns:
        A tensor of the same elements.

    Example:
        row = tl.unsqueeze(x, 0)
    """
    return core.expand_dims(x, dim)


@device_function
def interleave(a, b):
    """The elements of two tensors in turn along the last axis.

    Args:
        a: a tensor or a number: elements 0, 2, 4 and so on of the result.
        b: another, of the same shape: elements 1, 3, 5 and so on.

    Returns:
        A tensor whose last axis is twice as long; two scalars give shape ``[2]``.

    Example:
        mixed = tl.interleave(x, y)
    """
    joined = core.join(a, b)
    if len(joined.shape) == 1:
        return joined
    return core.reshape(joined, _interleaved(joined.shape))


@device_function
def flip(x, dim: core.constexpr = None):
    """A tensor in reverse order along an axis.

    Args:
        x: a tensor.
        dim: the axis, a constexpr; the last one by default.

    Returns:
        A tensor of the shape of ``x``.

    Example:
        backwards = tl.flip(x)
    """
    rank: core.constexpr = len(x.shape)
    axis: core.constexpr = _normal_axis(rank - 1 if dim is None else dim, rank)
    extent: core.constexpr = x.shape[axis]
    index = core.reshape(extent - 1 - core.arange(0, extent), _only_on(rank, axis, extent))
    return core.gather(x, core.broadcast_to(index, x.shape), axis)


# -- reductions -----------------------------------------------------------------------------------------------------------------------------------


@device_function
def _add(a, b):
    return a + b


@device_function
def _mul(a, b):
    return a * b


@device_function
def _xor(a, b):
    return a ^ b


@device_function
def _or(a, b):
    return a | b


@device_function
def _greater(a, b):
    return core.maximum(a, b)


@device_function
def _smaller(a, b):
    return core.minimum(a, b)


@device_function
def sum(input, axis=None, keep_dims=False, dtype: core.constexpr = None):
    """The sum along an axis.

    Args:
        input: a tensor of numbers.
        axis: a constexpr; None sums all elements.
        keep_dims: keep the axis, with extent 1.
        dtype: the type to sum in. By default integers narrower than 32 bits are summed as int32 or uint32 (booleans as uint32), all else in its own type.

    Returns:
        A tensor without the axis (a scalar where none is left).

    Example:
        total = tl.sum(x, axis=0)
    """
    result: core.constexpr = _sum_dtype(input.dtype, dtype)
    terms = input.to(result).to(_accumulator_dtype(result))
    return core.reduce(terms, axis, _add, keep_dims=keep_dims).to(result)


@device_function
def xor_sum(input, axis=None, keep_dims=False):
    """The bitwise exclusive or along an axis.

    Args:
        input: an integer tensor.
        axis: a constexpr; None takes all elements.
        keep_dims: keep the axis, with extent 1.

    Returns:
        A tensor without the axis (a scalar where none is left).

    Raises:
        CompileTimeAssertionFailure: ``input`` holds no integers.

    Example:
        parity = tl.xor_sum(offsets, axis=0)
    """
    core.static_assert(input.dtype.is_int(), "xor_sum only supported for integers")
    return core.reduce(input, axis, _xor, keep_dims=keep_dims)


@device_function
def reduce_or(input, axis, keep_dims=False):
    """The bitwise or along an axis.

    Args:
        input: an integer tensor.
        axis: a constexpr; None takes all elements.
        keep_dims: keep the axis, with extent 1.

    Returns:
        A tensor without the axis (a scalar where none is left).

    Raises:
        CompileTimeAssertionFailure: ``input`` holds no integers.

    Example:
        bits = tl.reduce_or(offsets, axis=0)
    """
    core.static_assert(input.dtype.is_int(), "reduce_or only supported for integers")
    return core.reduce(input, axis, _or, keep_dims=keep_dims)


@device_function
def _argmax_combine(value1, index1, value2, index2, tie_break_left: core.constexpr):
    """The greater value and its index; of equal ones the lower index, where ties break left."""
    if tie_break_left:
        first = (value1 > value2) | ((value1 == value2) & (index1 < index2))
    else:
        first = value1 > value2
    return core.where(first, value1, value2), core.where(first, index1, index2)


@device_function
def _argmax_combine_tie_break_left(value1, index1, value2, index2):
    return _argmax_combine(value1, index1, value2, index2, True)


@device_function
def _argmax_combine_tie_break_fast(value1, index1, value2, index2):
    return _argmax_combine(value1, index1, value2, index2, False)


@device_function
def _argmin_combine(value1, index1, value2, index2, tie_break_left: core.constexpr):
    """The smaller value and its index; of equal ones the lower index, where ties break left."""
    if tie_break_left:
        first = (value1 < value2) | ((value1 == value2) & (index1 < index2))
    else:
        first = value1 < value2
    return core.where(first, value1, value2), core.where(first, index1, index2)


@device_function
def _argmin_combine_tie_break_left(value1, index1, value2, index2):
    return _argmin_combine(value1, index1, value2, index2, True)


@device_function
def _argmin_combine_tie_break_fast(value1, index1, value2, index2):
    return _argmin_combine(value1, index1, value2, index2, False)


@device_function
def _reduce_with_indices(input, axis: core.constexpr, combine: core.constexpr, keep_dims: core.constexpr):
    """Reduce values together with their positions along ``axis`` (None: in row-major order)."""
    rank: core.constexpr = len(input.shape)
    if axis is None:
        flat = ravel(input)
        value, index = core.reduce((flat, core.arange(0, input.numel)), 0, combine)
        if keep_dims:
            value = core.full(_only_on(rank, 0, 1), value, value.dtype)
            index = core.full(_only_on(rank, 0, 1), index, index.dtype)
    else:
        along: core.constexpr = _normal_axis(axis, rank)
        extent: core.constexpr = input.shape[along]
        positions = core.reshape(core.arange(0, extent), _only_on(rank, along, extent))
        value, index = core.reduce((input, core.broadcast_to(positions, input.shape)), along, combine, keep_dims=keep_dims)
    return value, index


@device_function
def max(
    input,
    axis: core.constexpr = None,
    return_indices: core.constexpr = False,
    return_indices_tie_break_left: core.constexpr = True,
    keep_dims: core.constexpr = False,
):
    """The greatest value along an axis. NaN counts only where nothing else is there.

    Args:
        input: a tensor of numbers.
        axis: a constexpr; None takes all elements.
        return_indices: give the positions too.
        return_indices_tie_break_left: of equal values the first one counts; otherwise any.
        keep_dims: keep the axis, with extent 1.

    Returns:
        The values, or a tuple of the values and their ``int32`` positions. Integers narrower than 32 bits give int32 and fp16 and bf16 give fp32; with
        positions only bf16 is widened.

    Example:
        greatest, where = tl.max(x, axis=0, return_indices=True)
    """
    wide = input.to(_extremum_dtype(input.dtype, return_indices))
    if return_indices:
        if return_indices_tie_break_left:
            return _reduce_with_indices(wide, axis, _argmax_combine_tie_break_left, keep_dims)
        else:
            return _reduce_with_indices(wide, axis, _argmax_combine_tie_break_fast, keep_dims)
    else:
        return core.reduce(wide, axis, _greater, keep_dims=keep_dims)


@device_function
def min(
    input,
    axis: core.constexpr = None,
    return_indices: core.constexpr = False,
    return_indices_tie_break_left: core.constexpr = True,
    keep_dims: core.constexpr = False,
):
    """The smallest value along an axis. NaN counts only where nothing else is there.

    Args:
        input: a tensor of numbers.
        axis: a constexpr; None takes all elements.
        return_indices: give the positions too.
        return_indices_tie_break_left: of equal values the first one counts; otherwise any.
        keep_dims: keep the axis, with extent 1.

    Returns:
        The values, or a tuple of the values and their ``int32`` positions, of the types that :func:`max` gives.

    Example:
        smallest = tl.min(x, axis=0)
    """
    wide = input.to(_extremum_dtype(input.dtype, return_indices))
    if return_indices:
        if return_indices_tie_break_left:
            return _reduce_with_indices(wide, axis, _argmin_combine_tie_break_left, keep_dims)
        else:
            return _reduce_with_indices(wide, axis, _argmin_combine_tie_break_fast, keep_dims)
    else:
        return core.reduce(wide, axis, _smaller, keep_dims=keep_dims)


@device_function
def argmax(input, axis, tie_break_left: core.constexpr = True, keep_dims: core.constexpr = False):
    """The position of the greatest value along an axis.

    Args:
        input: a tensor of numbers.
        axis: a constexpr; None counts all elements in row-major order.
        tie_break_left: of equal values the first one counts; otherwise any.
        keep_dims: keep the axis, with extent 1.

    Returns:
        ``int32`` positions, without the axis.

    Example:
        best = tl.argmax(x, axis=0)
    """
    _value, index = max(input, axis, return_indices=True, return_indices_tie_break_left=tie_break_left, keep_dims=keep_dims)
    return index


@device_function
def argmin(input, axis, tie_break_left: core.constexpr = True, keep_dims: core.constexpr = False):
    """The position of the smallest value along an axis.

    Args:
        input: a tensor of numbers.
        axis: a constexpr; None counts all elements in row-major order.
        tie_break_left: of equal values the first one counts; otherwise any.
        keep_dims: keep the axis, with extent 1.

    Returns:
        ``int32`` positions, without the axis.

    Example:
        best = tl.argmin(x, axis=0)
    """
    _value, index = min(input, axis, return_indices=True, return_indices_tie_break_left=tie_break_left, keep_dims=keep_dims)
    return index


# -- scans ----------------------------------------------------------------------------------------------------------------------------------------


@device_function
def cumsum(input, axis: core.constexpr = 0, reverse: core.constexpr = False, dtype: core.constexpr = None):
    """Running sums along an axis.

    Args:
        input: a tensor of numbers.
        axis: a constexpr.
        reverse: sum from the end.
        dtype: the type to sum in. By default integers narrower than 32 bits widen to 32, bf16 to fp32, and all else keeps its type.

    Returns:
        A tensor of the shape of ``input``.

    Example:
        running = tl.cumsum(x, axis=0)
    """
    return core.associative_scan(input.to(_prefix_dtype(input.dtype, dtype)), axis, _add, reverse)


@device_function
def cumprod(input, axis: core.constexpr = 0, reverse: core.constexpr = False, dtype: core.constexpr = None):
    """Running products along an axis.

    Args:
        input: a tensor of numbers.
        axis: a constexpr.
        reverse: multiply from the end.
        dtype: the type to multiply in; by default that of ``input``, and fp32 for bf16.

    Returns:
        A tensor of the shape of ``input``.

    Example:
        running = tl.cumprod(x, axis=0)
    """
    return core.associative_scan(input.to(_product_dtype(input.dtype, dtype)), axis, _mul, reverse)


# -- softmax and friends --------------------------------------------------------------------------------------------------------------------------


@device_function
def sigmoid(x):
    """The logistic function, ``1 / (1 + exp(-x))``.

    Args:
        x: a tensor or a number, of fp32 or fp64.

    Returns:
        A tensor of the same type and shape.

    Raises:
        ValueError: another type.

    Example:
        y = tl.sigmoid(x)
    """
    return 1 / (1 + math.exp(-x))


@device_function
def softmax(x, dim: core.constexpr = None, keep_dims: core.constexpr = False, ieee_rounding: core.constexpr = False):
    """The exponentials along an axis, divided by their sum. The greatest value is taken off first, so nothing overflows.

    Args:
        x: a tensor of fp32 or fp64.
        dim: the axis, a constexpr; the first one by default.
        keep_dims: changes nothing: the result always has the shape of ``x``.
        ieee_rounding: round the divisions correctly.

    Returns:
        A tensor of the type and shape of ``x``.

    Raises:
        ValueError: another type.

    Example:
        weights = tl.softmax(x, dim=0)
    """
    axis: core.constexpr = 0 if dim is None else dim
    powers = math.exp(x - max(x, axis, keep_dims=True))
    return math.fdiv(powers, sum(powers, axis, keep_dims=True), ieee_rounding)


# -- sorting --------------------------------------------------------------------------------------------------------------------------------------


@device_function
def _positions(x):
    """The index of every element along the last axis, in a shape that broadcasts with ``x``."""
    last: core.constexpr = len(x.shape) - 1
    extent: core.constexpr = x.shape[last]
    return core.reshape(core.arange(0, extent), _only_on(last + 1, last, extent))


@device_function
def _compare_and_swap(x, index, distance, ascending):
    """One step of a bitonic network along the last axis: each element meets the one whose index differs in bit ``distance``; the smaller one goes to
    the lower index where ``ascending`` holds.

    NaN compares false with everything, so that it never changes places, and no value is lost.
    """
    partner = core.gather(x, core.broadcast_to(index ^ distance, x.shape), len(x.shape) - 1)
    wants_smaller = ((index & distance) == 0) == ascending
    return core.where(core.where(wants_smaller, partner < x, partner > x), partner, x)


# The steps of a network are loops, not unrolled code: as fast at run time, and ten times as fast to compile. Their bounds are constants once the outer
# loop is unrolled, for a backend that wants the distances known.


@device_function
def _merge(x, bits, ascending):
    """Sort runs of ``2**bits`` elements of the last axis, each of which is bitonic."""
    index = _positions(x)
    for step in core.range(0, bits):
        x = _compare_and_swap(x, index, 1 << (bits - 1 - step), ascending)
    return x


@device_function
def _ascending_runs(x, length, descending: core.constexpr):
    """Which elements of the last axis lie in runs of ``length`` that are to ascend: every other run."""
    return ((_positions(x) & length) == 0) != descending


@device_function
def _sort_runs(x, bits: core.constexpr, descending: core.constexpr):
    """Sort runs of ``2**bits`` elements of the last axis; neighbouring runs in opposite orders, the first one descending where ``descending``."""
    for stage in core.range(1, bits + 1):
        x = _merge(x, stage, _ascending_runs(x, 1 << stage, descending))
    return x


@device_function
def _best_of_pairs(x, length: core.constexpr, descending: core.constexpr):
    """Of every two neighbouring runs of ``length`` elements, sorted in opposite orders, the ``length`` best, sorted in alternating orders."""
    last: core.constexpr = len(x.shape) - 1
    pairs: core.constexpr = x.shape[-1] // (2 * length)
    grouped = core.reshape(x, _with_axes(x.shape, last, [pairs, 2, length]))
    if descending:
        best = max(grouped, last + 1)
    else:
        best = min(grouped, last + 1)
    best = core.reshape(best, _with_axes(x.shape, last, [pairs * length]))
    return _merge(best, _log2(length), _ascending_runs(best, length, descending))


@device_function
def sort_impl(x, k: core.constexpr = None, dim: core.constexpr = None, descending: core.constexpr = core.CONSTEXPR_0):
    """The best elements along the last axis, in order: what :func:`sort` and :func:`topk` are made of.

    Bitonic sort (K. Batcher, Sorting networks and their applications, 1968) of runs of ``k``; then, while several runs are left, the elementwise extrema
    of two neighbours that are sorted in opposite orders are the ``k`` best of both, and are bitonic.

    Args:
        x: a tensor of numbers.
        k: how many to keep: a constexpr, a power of two; None keeps all.
        dim: the last axis, or None.
        descending: the greatest first; otherwise the smallest.

    Returns:
        A tensor whose last axis has ``k`` elements.

    Raises:
        ValueError: ``dim`` is another axis.
        CompileTimeAssertionFailure: ``k`` is no power of two, or too great.

    Example:
        ordered = tl.standard.sort_impl(x)
    """
    axis: core.constexpr = _last_axis(dim, len(x.shape), "sort")
    extent: core.constexpr = x.shape[axis]
    kept: core.constexpr = extent if k is None else k
    core.static_assert(_is_power_of_two(kept), "k must be a power of two")
    core.static_assert(kept <= extent, "k must not exceed the extent of the axis")
    down: core.constexpr = descending != 0
    x = _sort_runs(x, _log2(kept), down)
    for _step in core.static_range(_log2(extent) - _log2(kept)):
        x = _best_of_pairs(x, kept, down)
    return x


@device_function
def sort(x, dim: core.constexpr = None, descending: core.constexpr = core.CONSTEXPR_0):
    """A tensor sorted along its last axis. NaN has no place in the order.

    Args:
        x: a tensor of numbers.
        dim: the last axis, or None.
        descending: the greatest first.

    Returns:
        A tensor of the type and shape of ``x``.

    Raises:
        ValueError: ``dim`` is another axis, or ``x`` a scalar.

    Example:
        ordered = tl.sort(x)
    """
    return sort_impl(x, dim=dim, descending=descending)


@device_function
def topk(x, k: core.constexpr, dim: core.constexpr = None, descending: core.constexpr = True):
    """The greatest elements along the last axis, in order.

    Args:
        x: a tensor of numbers.
        k: how many: a constexpr, a power of two.
        dim: the last axis, or None.
        descending: false gives the smallest ones, in rising order.

    Returns:
        A tensor whose last axis has ``k`` elements. Where that is fewer than before, integers narrower than 32 bits give int32, fp16 and bf16 fp32.

    Raises:
        ValueError: ``dim`` is another axis, or ``x`` a scalar.
        CompileTimeAssertionFailure: ``k`` is no power of two, or too great.

    Example:
        best = tl.topk(x, 4)
    """
    return sort_impl(x, k=k, dim=dim, descending=descending)


@device_function
def bitonic_merge(x, dim: core.constexpr = None, descending: core.constexpr = core.CONSTEXPR_0):
    """A bitonic tensor sorted along its last axis: one whose values rise and then fall, or a rotation of such.

    Args:
        x: a tensor of numbers.
        dim: the last axis, or None.
        descending: the greatest first.

    Returns:
        A tensor of the type and shape of ``x``.

    Raises:
        ValueError: ``dim`` is another axis, or ``x`` a scalar.

    Example:
        ordered = tl.bitonic_merge(x)
    """
    axis: core.constexpr = _last_axis(dim, len(x.shape), "bitonic_merge")
    return _merge(x, _log2(x.shape[axis]), descending == 0)
