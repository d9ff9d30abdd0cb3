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
    """``x / div`` rounded up, of positive integers.

    blocks = tl.cdiv(n, BLOCK)
    """
    return (x + div - 1) // div


@device_function
def zeros(shape, dtype):
    """A tensor of zeros.

    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    """
    return core.full(shape, 0, dtype)


@device_function
def zeros_like(input):
    """A tensor of zeros of the shape and type of ``input``.

    acc = tl.zeros_like(x)
    """
    return zeros(input.shape, input.dtype)


@device_function
def swizzle2d(i, j, size_i, size_j, size_g):
    """The position that a program at row-major position ``(i, j)`` of a ``size_i`` by ``size_j`` grid takes, so that programs that run together share
    rows: groups of ``size_g`` rows are walked column by column.

    pid_m, pid_n = tl.swizzle2d(pid_m, pid_n, blocks_m, blocks_n, GROUP_M)
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

    y = tl.ravel(x)
    """
    return core.reshape(x, [x.numel], can_reorder=can_reorder)


@device_function
def squeeze(x, dim: core.constexpr):
    """``x`` without the axis ``dim``, whose extent is 1.

    y = tl.squeeze(x, 0)
    """
    axis: core.constexpr = _normal_axis(dim, len(x.shape))
    core.static_assert(x.shape[axis] == 1, "squeeze: the axis must have extent 1")
    return core.reshape(x, _without(x.shape, axis))


@device_function
def unsqueeze(x, dim: core.constexpr):
    """``x`` with a new axis of extent 1 at position ``dim`` of the result.

    y = tl.unsqueeze(x, 0)
    """
    return core.expand_dims(x, dim)


@device_function
def interleave(a, b):
    """The elements of ``a`` and ``b`` in turn along the last axis, which doubles. Two scalars give a tensor of shape ``[2]``.

    y = tl.interleave(even, odd)
    """
    joined = core.join(a, b)
    if len(joined.shape) == 1:
        return joined
    return core.reshape(joined, _interleaved(joined.shape))


@device_function
def flip(x, dim: core.constexpr = None):
    """``x`` in reverse order along ``dim``, by default the last axis.

    y = tl.flip(x, 0)
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
    """The sum along ``axis`` (None: of all elements).

    Integers narrower than 32 bits are summed as int32 or uint32 (booleans as uint32), unless ``dtype`` names another type; floats keep their type.

        total = tl.sum(x, axis=0)
    """
    return core.reduce(input.to(_sum_dtype(input.dtype, dtype)), axis, _add, keep_dims=keep_dims)


@device_function
def xor_sum(input, axis=None, keep_dims=False):
    """The bitwise exclusive or of integers along ``axis`` (None: of all elements).

    parity = tl.xor_sum(x, axis=0)
    """
    core.static_assert(input.dtype.is_int(), "xor_sum only supported for integers")
    return core.reduce(input, axis, _xor, keep_dims=keep_dims)


@device_function
def reduce_or(input, axis, keep_dims=False):
    """The bitwise or of integers along ``axis`` (None: of all elements).

    any_bit = tl.reduce_or(x, axis=0)
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
    """The greatest value along ``axis`` (None: of all elements). NaN is ignored where another value is there.

    Integers narrower than 32 bits give int32, fp16 and bf16 give fp32; with indices only bf16 is widened.

    With ``return_indices`` it is ``(values, int32 indices)``; of equal values the first one counts, unless ``return_indices_tie_break_left`` is false.

        m = tl.max(x, axis=1)
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
    """The smallest value along ``axis`` (None: of all elements). Otherwise like :func:`max`.

    m = tl.min(x, axis=1)
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
    """The ``int32`` index of the greatest value along ``axis`` (None: in row-major order); the first of equal ones, if ties break left.

    best = tl.argmax(x, axis=0)
    """
    _value, index = max(input, axis, return_indices=True, return_indices_tie_break_left=tie_break_left, keep_dims=keep_dims)
    return index


@device_function
def argmin(input, axis, tie_break_left: core.constexpr = True, keep_dims: core.constexpr = False):
    """The ``int32`` index of the smallest value along ``axis`` (None: in row-major order); the first of equal ones, if ties break left.

    best = tl.argmin(x, axis=0)
    """
    _value, index = min(input, axis, return_indices=True, return_indices_tie_break_left=tie_break_left, keep_dims=keep_dims)
    return index


# -- scans ----------------------------------------------------------------------------------------------------------------------------------------


@device_function
def cumsum(input, axis: core.constexpr = 0, reverse: core.constexpr = False, dtype: core.constexpr = None):
    """The running sum along ``axis``, from the end where ``reverse``. Narrow integers widen to 32 bits and bf16 to fp32, unless ``dtype`` says else.

    y = tl.cumsum(x, axis=0)
    """
    return core.associative_scan(input.to(_prefix_dtype(input.dtype, dtype)), axis, _add, reverse)


@device_function
def cumprod(input, axis: core.constexpr = 0, reverse: core.constexpr = False, dtype: core.constexpr = None):
    """The running product along ``axis``, from the end where ``reverse``; in ``dtype``, by default the operand's (fp32 for bf16).

    y = tl.cumprod(x, axis=0)
    """
    return core.associative_scan(input.to(_product_dtype(input.dtype, dtype)), axis, _mul, reverse)


# -- softmax and friends --------------------------------------------------------------------------------------------------------------------------


@device_function
def sigmoid(x):
    """``1 / (1 + exp(-x))``, of fp32 or fp64.

    y = tl.sigmoid(x)
    """
    return 1 / (1 + math.exp(-x))


@device_function
def softmax(x, dim: core.constexpr = None, keep_dims: core.constexpr = False, ieee_rounding: core.constexpr = False):
    """``exp(x) / sum(exp(x))`` along ``dim`` (by default the first axis), of fp32 or fp64; the greatest value is taken off first.

    The result has the shape of ``x``; ``keep_dims`` changes nothing.

        y = tl.softmax(x, dim=1)
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
    """The ``k`` smallest elements (greatest, where ``descending``) along the last axis, in order; all of them where ``k`` is None.

    Bitonic sort (K. Batcher, Sorting networks and their applications, 1968) of runs of ``k``; then, while several runs are left, the elementwise extrema
    of two neighbours that are sorted in opposite orders are the ``k`` best of both, and are bitonic.
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
    """``x`` sorted along ``dim``, which must be the last axis. NaN has no place in the order.

    y = tl.sort(x)
    """
    return sort_impl(x, dim=dim, descending=descending)


@device_function
def topk(x, k: core.constexpr, dim: core.constexpr = None, descending: core.constexpr = True):
    """The ``k`` greatest elements (smallest, unless ``descending``) along ``dim``, which must be the last axis, in order. ``k`` is a power of two.

    Where ``k`` is less than the extent, integers narrower than 32 bits give int32, fp16 and bf16 fp32.

        best = tl.topk(x, 8)
    """
    return sort_impl(x, k=k, dim=dim, descending=descending)


@device_function
def bitonic_merge(x, dim: core.constexpr = None, descending: core.constexpr = core.CONSTEXPR_0):
    """Sort ``x`` along ``dim``, which must be the last axis, where each row of ``x`` is bitonic: it rises and then falls, or is a rotation of such a row.

    y = tl.bitonic_merge(x)
    """
    axis: core.constexpr = _last_axis(dim, len(x.shape), "bitonic_merge")
    return _merge(x, _log2(x.shape[axis]), descending == 0)
