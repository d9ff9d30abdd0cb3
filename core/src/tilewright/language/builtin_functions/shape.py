"""Builtins that move or repeat elements."""

from __future__ import annotations

import builtins
from typing import Any

from tilewright.language.binding import builtin
from tilewright.language.builtin_functions.conversion import shape_of
from tilewright.language.value_types.dtypes import block_type, int1, refuse_mask
from tilewright.language.value_types.tensors import tensor
from tilewright.language.value_types.tuples import tuple as tl_tuple
from tilewright.language.value_types.values import unwrap_if_constexpr


@builtin
def broadcast(input: Any, other: Any, _semantic: Any = None) -> tl_tuple:
    """Broadcast two operands to their common shape.

    Args:
        input: a tensor or a number.
        other: the second operand. In both, missing leading axes are added, and axes of extent 1 are
            repeated.

    Returns:
        A tuple of two tensors of the same shape.

    Raises:
        ValueError: two extents differ, and neither is 1.

    Example:
        rows, columns = tl.broadcast(x[:, None], x[None, :])
    """
    return tl_tuple(
        _semantic.broadcast_pair(_semantic.to_tensor(input), _semantic.to_tensor(other))
    )


@builtin
def broadcast_to(input: Any, *shape: Any, _semantic: Any = None) -> tensor:
    """Broadcast a tensor to a shape.

    Args:
        input: a tensor or a number. Missing leading axes are added, and axes of extent 1 are
            repeated.
        shape: the extents, constexprs, as one list or as separate arguments.

    Returns:
        A tensor of ``shape``.

    Raises:
        ValueError: an extent of ``input`` differs from that of ``shape``, and is not 1.

    Example:
        table = tl.broadcast_to(x[None, :], [4, BLOCK])
    """
    return _semantic.broadcast_to(_semantic.to_tensor(input), shape_of(shape))


@builtin
def expand_dims(input: Any, axis: Any, _semantic: Any = None) -> tensor:
    """Insert new axes of extent 1.

    Args:
        input: a tensor or a number.
        axis: the positions of the new axes in the result: a constexpr integer or a list of them;
            negative ones count from the end.

    Returns:
        A tensor with the elements of ``input`` and the new axes.

    Raises:
        ValueError: an axis is out of range, or named twice.

    Example:
        wide = tl.expand_dims(x, (0, 2))
    """
    result = _semantic.to_tensor(input)
    axes = _axes(_semantic.constant(axis, "axis"))
    rank = len(result.extents) + len(axes)
    positions = [wrap_axis(a, rank) for a in axes]
    if len(set(positions)) != len(positions):
        raise ValueError(f"expand_dims received duplicate axes, normalized axes = {positions}")
    for position in sorted(positions):
        result = _semantic.expand_dims(result, position)
    return result


@builtin
def reshape(input: Any, *shape: Any, can_reorder: Any = False, _semantic: Any = None) -> tensor:
    """Reshape a tensor, and keep the row-major order of its elements.

    Args:
        input: a tensor.
        shape: the extents, constexprs, as one list or as separate arguments; ``()`` converts a
            tensor of one element to a scalar.
        can_reorder: whether the elements may be in any order, which can save data movement.

    Returns:
        A tensor of ``shape``.

    Raises:
        ValueError: the number of elements would change.

    Example:
        square = tl.reshape(x, (BLOCK // 4, 4))
    """
    return reshaped(_semantic, input, shape_of(shape), bool(unwrap_if_constexpr(can_reorder)))


@builtin
def view(input: Any, *shape: Any, _semantic: Any = None) -> tensor:
    """Reshape a tensor, possibly with its elements in a different order.

    Deprecated: use :func:`reshape`, with ``can_reorder=True`` if the order does not matter.

    Args:
        input: a tensor.
        shape: the extents, constexprs, as one list or as separate arguments.

    Returns:
        A tensor of ``shape``.

    Raises:
        ValueError: the number of elements would change.

    Example:
        square = tl.view(x, (BLOCK // 4, 4))
    """
    _semantic.warn("view is deprecated: use reshape(..., can_reorder=True)", DeprecationWarning)
    return reshaped(_semantic, input, shape_of(shape), True)


def reshaped(semantic: Any, x: Any, extents: builtins.tuple[int, ...], reorder: bool) -> tensor:
    """``x`` in another shape, in any order of its elements where ``reorder`` says so.

    Raises:
        ValueError: it has another number of elements.
    """
    x = semantic.to_tensor(x)
    numel = 1
    for extent in extents:
        numel *= extent
    if numel != x.numel.value:
        raise ValueError(
            f"reshape() cannot change total number of elements in tensor: {list(x.extents)} has "
            f"{x.numel.value}, {list(extents)} has {numel}"
        )
    if not extents:
        return semantic.scalar_of(x)
    if not x.extents:
        return semantic.splat(x, extents)
    if extents == x.extents and not reorder:
        return x
    type_ = block_type(x.dtype, extents)
    attributes = {"reorder": True} if reorder else {}
    return tensor(semantic.builder.reshape(x.handle, result=type_.ir_type, **attributes), type_)


@builtin
def trans(input: Any, *dims: Any, _semantic: Any = None) -> tensor:
    """Permute the axes of a tensor; by default, exchange the last two axes.

    Args:
        input: a tensor.
        dims: axis ``i`` of the result is axis ``dims[i]`` of ``input``: a list or separate
            arguments. By default, the last two axes are exchanged.

    Returns:
        A tensor with the elements of ``input``, whose axes are permuted.

    Raises:
        ValueError: ``dims`` is missing and there are fewer than two axes, or ``dims`` is not a
            permutation.

    Example:
        square = tl.reshape(x, (BLOCK // 4, 4))
        transposed = tl.trans(square)
        same = square.T
    """
    x = _semantic.to_tensor(input)
    order = _dims(dims)
    if not order:
        rank = len(x.extents)
        if rank < 2:
            raise ValueError("tl.trans invoked with a 0- or 1-dimensional tensor")
        order = [*builtins.range(rank - 2), rank - 1, rank - 2]
    return _permute(_semantic, x, order)


@builtin
def permute(input: Any, *dims: Any, _semantic: Any = None) -> tensor:
    """Permute the axes of a tensor.

    Args:
        input: a tensor.
        dims: axis ``i`` of the result is axis ``dims[i]`` of ``input``: a list or separate
            arguments.

    Returns:
        A tensor with the elements of ``input``, whose axes are permuted.

    Raises:
        ValueError: ``dims`` is not a permutation.

    Example:
        cube = tl.reshape(x, (BLOCK // 8, 4, 2))
        permuted = tl.permute(cube, (2, 0, 1))
    """
    return _permute(_semantic, _semantic.to_tensor(input), _dims(dims))


def _permute(semantic: Any, x: tensor, order: list[int]) -> tensor:
    rank = len(x.extents)
    return semantic.permute(
        x, [axis + rank if isinstance(axis, int) and -rank <= axis < 0 else axis for axis in order]
    )


@builtin
def cat(
    input: Any, other: Any, can_reorder: Any = False, dim: Any = 0, _semantic: Any = None
) -> tensor:
    """Concatenate two tensors along an axis.

    Args:
        input: the first tensor.
        other: the second tensor, which has the same extents. Both are promoted to one type.
        can_reorder: has no effect: the elements always keep their order.
        dim: the axis, a constexpr.

    Returns:
        A tensor whose extent along ``dim`` is twice that of each operand.

    Raises:
        ValueError: an operand is a scalar, or the shapes differ.

    Example:
        both = tl.cat(x, y)
    """
    a, b = _semantic.to_tensor(input), _semantic.to_tensor(other)
    if not a.extents or not b.extents:
        raise ValueError(f"cat takes tensors with at least one axis, got {a} and {b}")
    # Extents are powers of two, and so is a sum of two of them only where they are equal.
    if a.extents != b.extents:
        raise ValueError(f"tl.cat requires tensors of the same shape, got {a} and {b}")
    a, b = _unify(_semantic, a, b)
    axis = wrap_axis(_semantic.constant(dim, "dim"), len(a.extents))
    extents = builtins.tuple(
        2 * extent if i == axis else extent for i, extent in enumerate(a.extents)
    )
    type_ = block_type(a.dtype, extents)
    return tensor(_semantic.builder.cat(a.handle, b.handle, axis=axis), type_)


def _unify(semantic: Any, a: tensor, b: tensor) -> builtins.tuple[tensor, tensor]:
    """Both operands with one element type, without changing shapes."""
    if a.dtype is b.dtype:
        return a, b
    if a.dtype.is_ptr() or b.dtype.is_ptr():
        raise TypeError(f"invalid operands of type {a.dtype} and {b.dtype}")
    from tilewright.language.value_types.promotion import computation_type

    target = computation_type(a.dtype, False, b.dtype, False)
    return semantic.cast(a, target), semantic.cast(b, target)


@builtin
def join(a: Any, b: Any, _semantic: Any = None) -> tensor:
    """Join two operands along a new last axis.

    Args:
        a: a tensor or a number.
        b: the second operand; both are broadcast and promoted to one type.

    Returns:
        A tensor ``z`` with one more axis than the operands: ``z[..., 0]`` is the first operand, and
        ``z[..., 1]`` is the second operand. If both operands are scalars, the result has shape
        ``[2]``.

    Raises:
        ValueError: the shapes cannot be broadcast.

    Example:
        pairs = tl.join(x, y)
    """
    x, y = _unify(_semantic, _semantic.to_tensor(a), _semantic.to_tensor(b))
    x, y = _semantic.broadcast_pair(x, y)
    if not x.extents:
        one = (1,)
        joined = _semantic.wrap(
            _semantic.builder.join(_semantic.splat(x, one).handle, _semantic.splat(y, one).handle),
            x.dtype,
        )
        return reshaped(_semantic, joined, (2,), False)
    block_type(x.dtype, (*x.extents, 2))
    return _semantic.wrap(_semantic.builder.join(x.handle, y.handle), x.dtype)


@builtin
def split(a: Any, _semantic: Any = None) -> tl_tuple:
    """Split a tensor whose last axis has extent 2 into two tensors: the inverse of :func:`join`.

    Args:
        a: a tensor whose last axis has extent 2.

    Returns:
        A tuple of two tensors without the last axis. If the operand has shape ``[2]``, the result
        is a tuple of two scalars.

    Raises:
        ValueError: the last axis has another extent.

    Example:
        left, right = tl.split(tl.join(x, y))
    """
    x = _semantic.to_tensor(a)
    if not x.extents:
        raise ValueError(f"split takes a tensor with a last axis of 2, got {x}")
    if x.extents[-1] != 2:
        raise ValueError(f"split takes a tensor with a last axis of 2, got shape {list(x.extents)}")
    left, right = _semantic.builder.split(x.handle)
    return tl_tuple([_semantic.wrap(left, x.dtype), _semantic.wrap(right, x.dtype)])


@builtin
def item(input: Any, _semantic: Any = None) -> tensor:
    """Return the element of a tensor that has only one, as a scalar.


    Args:
        input: a tensor of one element, of any rank.

    Returns:
        A scalar.

    Raises:
        ValueError: the tensor has several elements.

    Example:
        total = tl.sum(x, axis=0, keep_dims=True).item()
    """
    x = _semantic.to_tensor(input)
    if x.numel.value != 1:
        raise ValueError(f"item() needs a tensor with one element, got {x} with {x.numel.value}")
    return _semantic.scalar_of(x)


@builtin
def gather(src: Any, index: Any, axis: Any, _semantic: Any = None) -> tensor:
    """Select elements along an axis by index: ``out[i, j] = src[index[i, j], j]`` for axis 0.

    Args:
        src: a tensor.
        index: an integer tensor with the rank of ``src``, and with the same extents on the other
            axes. An index out of range yields an undefined value.
        axis: a constexpr.

    Returns:
        A tensor of the shape of ``index`` and the type of ``src``.

    Raises:
        ValueError: ``index`` is not an integer tensor, the shapes do not match, or the axis is out
            of range.

    Example:
        reversed = tl.gather(x, BLOCK - 1 - tl.arange(0, BLOCK), axis=0)
    """
    x, picks = _semantic.to_tensor(src), _semantic.to_tensor(index)
    if not picks.dtype.is_int() or picks.dtype is int1:
        raise ValueError(f"index must be an integer tensor, got {picks.dtype}")
    rank = len(x.extents)
    if rank == 0 or len(picks.extents) != rank:
        raise ValueError(
            f"source and index tensors must have the same rank of at least 1, got {x} and {picks}"
        )
    position = _semantic.constant(axis, "axis")
    if not isinstance(position, int) or not -rank <= position < rank:
        raise ValueError(f"gather axis {position} must be < source rank ({rank})")
    position %= rank
    for d in builtins.range(rank):
        if d != position and x.extents[d] != picks.extents[d]:
            raise ValueError(
                f"index dim {d} must match the corresponding source dim: {picks.extents[d]} and "
                f"{x.extents[d]}"
            )
    return _semantic.wrap(_semantic.builder.gather(x.handle, picks.handle, axis=position), x.dtype)


@builtin
def histogram(input: Any, num_bins: Any, mask: Any = None, _semantic: Any = None) -> tensor:
    """Count the occurrences of each number from 0 to ``num_bins - 1``.

    Args:
        input: a 1-D integer tensor. Numbers outside of the bins are not counted.
        num_bins: the number of bins: a constexpr, a power of two.
        mask: ``int1``; masked-off elements are not counted.

    Returns:
        An ``int32`` tensor of shape ``[num_bins]``.

    Raises:
        ValueError: ``input`` has another rank or type, or the mask is not boolean.

    Example:
        counts = tl.histogram(offsets, 64)
    """
    x = _semantic.to_tensor(input)
    if len(x.extents) != 1:
        raise ValueError(f"histogram only supports 1D input, got {x}")
    if not x.dtype.is_int():
        raise ValueError(f"histogram only supports integer input, got {x.dtype}")
    bins = _semantic.constant(num_bins, "num_bins")
    from tilewright.language.value_types.dtypes import int32

    type_ = block_type(int32, (bins,))
    lanes = None
    if unwrap_if_constexpr(mask) is not None:
        lanes = _semantic.broadcast_to(_semantic.to_tensor(mask), x.extents)
        refuse_mask(lanes.dtype)
    return tensor(
        _semantic.builder.histogram(
            x.handle, mask=None if lanes is None else lanes.handle, bins=bins
        ),
        type_,
    )


def wrap_axis(axis: Any, rank: int) -> int:
    """An axis counted from the front.

    Raises:
        ValueError: it is not in ``-rank .. rank-1``.
    """
    axis = unwrap_if_constexpr(axis)
    if type(axis) is not int or not -rank <= axis < rank:
        raise ValueError(f"invalid axis {axis}. Expected {-rank} <= axis < {rank}")
    return axis + rank if axis < 0 else axis


def _axes(axis: Any) -> list[Any]:
    return list(axis) if isinstance(axis, list | builtins.tuple | tl_tuple) else [axis]


def _dims(dims: builtins.tuple[Any, ...]) -> list[Any]:
    """Axes given as one list or as separate arguments."""
    if len(dims) == 1:
        only = unwrap_if_constexpr(dims[0])
        if isinstance(only, list | builtins.tuple | tl_tuple):
            return [unwrap_if_constexpr(axis) for axis in only]
    return [unwrap_if_constexpr(axis) for axis in dims]
