"""Builtins that move or repeat elements."""

from __future__ import annotations

import builtins
from typing import Any

from tilewright.language.binding import builtin
from tilewright.language.dtypes import block_type, int1
from tilewright.language.semantic import shape_of
from tilewright.language.tensors import tensor
from tilewright.language.tuples import tuple as tl_tuple
from tilewright.language.values import _unwrap_if_constexpr


@builtin
def broadcast(input: Any, other: Any, _semantic: Any = None) -> tl_tuple:
    """Both operands in their common shape: a tuple of two tensors.

    x, y = tl.broadcast(x[:, None], y[None, :])
    """
    return tl_tuple(_semantic.broadcast_pair(_semantic.to_tensor(input), _semantic.to_tensor(other)))


@builtin
def broadcast_to(input: Any, *shape: Any, _semantic: Any = None) -> tensor:
    """``input`` repeated to ``shape``, given as one list or as separate extents: axes of extent 1 grow, missing leading axes come in.

    y = tl.broadcast_to(x[None, :], [4, 16])
    """
    return _semantic.broadcast_to(_semantic.to_tensor(input), shape_of(shape))


@builtin
def expand_dims(input: Any, axis: Any, _semantic: Any = None) -> tensor:
    """``input`` with new axes of extent 1 at the positions ``axis`` (an integer or several) of the result.

    Raises:
        ValueError: an axis is out of range, or named twice.

        y = tl.expand_dims(x, (0, 2))      # [16] -> [1, 16, 1]
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
    """The same elements, in row-major order, in another shape, given as one list or as separate extents; ``()`` makes one element a scalar.

    With ``can_reorder`` any order of the elements is as good.

    Raises:
        ValueError: the number of elements changes.

        y = tl.reshape(x, (4, 16))
    """
    return _reshape(_semantic, input, shape_of(shape), bool(_unwrap_if_constexpr(can_reorder)))


@builtin
def view(input: Any, *shape: Any, _semantic: Any = None) -> tensor:
    """Deprecated: :func:`reshape` with ``can_reorder=True``."""
    _semantic.warn("view is deprecated: use reshape(..., can_reorder=True)", DeprecationWarning)
    return _reshape(_semantic, input, shape_of(shape), True)


def _reshape(semantic: Any, x: Any, extents: builtins.tuple[int, ...], reorder: bool) -> tensor:
    x = semantic.to_tensor(x)
    numel = 1
    for extent in extents:
        numel *= extent
    if numel != x.numel.value:
        raise ValueError(f"reshape() cannot change total number of elements in tensor: {list(x.extents)} has {x.numel.value}, {list(extents)} has {numel}")
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
    """``input`` with its axes reordered by ``dims``; without them the last two axes change places.

    Raises:
        ValueError: fewer than two axes and no ``dims``; ``dims`` are not a permutation.

        y = tl.trans(x)            # x.T
        y = tl.trans(x, 2, 0, 1)
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
    """``input`` with its axes reordered: axis i of the result is axis ``dims[i]`` of ``input``. Like :func:`trans`, but ``dims`` are required.

    y = tl.permute(x, (2, 0, 1))
    """
    return _permute(_semantic, _semantic.to_tensor(input), _dims(dims))


def _permute(semantic: Any, x: tensor, order: list[int]) -> tensor:
    rank = len(x.extents)
    return semantic.permute(x, [axis + rank if isinstance(axis, int) and -rank <= axis < 0 else axis for axis in order])


@builtin
def cat(input: Any, other: Any, can_reorder: Any = False, dim: Any = 0, _semantic: Any = None) -> tensor:
    """``input``, then ``other``, along ``dim``. The result's extent must be a power of two, so both have one extent there.

    ``can_reorder`` allows any order of the elements of 1-D operands; this implementation keeps the order.

        y = tl.cat(a, b, dim=0)
    """
    a, b = _semantic.to_tensor(input), _semantic.to_tensor(other)
    if not a.extents or not b.extents:
        raise ValueError(f"cat takes tensors with at least one axis, got {a} and {b}")
    if len(a.extents) != len(b.extents):
        raise ValueError(f"cat takes tensors of one rank, got {a} and {b}")
    a, b = _unify(_semantic, a, b)
    axis = wrap_axis(_semantic.constant(dim, "dim"), len(a.extents))
    for i, (x, y) in enumerate(zip(a.extents, b.extents, strict=True)):
        if i != axis and x != y:
            raise ValueError(f"cat takes tensors that agree on all axes but {axis}, got {a} and {b}")
    extents = builtins.tuple(x + (y if i == axis else 0) for i, (x, y) in enumerate(zip(a.extents, b.extents, strict=True)))
    type_ = block_type(a.dtype, extents)
    return tensor(_semantic.builder.cat(a.handle, b.handle, axis=axis), type_)


def _unify(semantic: Any, a: tensor, b: tensor) -> builtins.tuple[tensor, tensor]:
    """Both operands with one element type, without changing shapes."""
    if a.dtype is b.dtype:
        return a, b
    if a.dtype.is_ptr() or b.dtype.is_ptr():
        raise TypeError(f"invalid operands of type {a.dtype} and {b.dtype}")
    from tilewright.language.promotion import computation_type

    target = computation_type(a.dtype, False, b.dtype, False)
    return semantic.cast(a, target), semantic.cast(b, target)


@builtin
def join(a: Any, b: Any, _semantic: Any = None) -> tensor:
    """The operands side by side in a new last axis of extent 2; they broadcast. Two scalars give a tensor of shape ``[2]``.

    z = tl.join(x, y)          # z[..., 0] is x, z[..., 1] is y
    """
    x, y = _unify(_semantic, _semantic.to_tensor(a), _semantic.to_tensor(b))
    x, y = _semantic.broadcast_pair(x, y)
    if not x.extents:
        one = (1,)
        joined = _semantic.wrap(_semantic.builder.join(_semantic.splat(x, one).handle, _semantic.splat(y, one).handle), x.dtype)
        return _reshape(_semantic, joined, (2,), False)
    block_type(x.dtype, (*x.extents, 2))
    return _semantic.wrap(_semantic.builder.join(x.handle, y.handle), x.dtype)


@builtin
def split(a: Any, _semantic: Any = None) -> tl_tuple:
    """The two halves of a last axis of extent 2: the inverse of :func:`join`. Shape ``[2]`` gives two scalars.

    x, y = tl.split(z)
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
    """The element of a tensor that has one, as a scalar.

    Raises:
        ValueError: there are more elements.
    """
    x = _semantic.to_tensor(input)
    if x.numel.value != 1:
        raise ValueError(f"item() needs a tensor with one element, got {x} with {x.numel.value}")
    return _semantic.scalar_of(x)


@builtin
def gather(src: Any, index: Any, axis: Any, _semantic: Any = None) -> tensor:
    """``src`` picked along ``axis`` by ``index``: ``out[i, j] = src[index[i, j], j]`` for axis 0. The result has the shape of ``index``.

    Args:
        index: integers, of the rank of ``src`` and its extents on the other axes. Out-of-range indices give undefined values.

        y = tl.gather(x, order, axis=0)
    """
    x, picks = _semantic.to_tensor(src), _semantic.to_tensor(index)
    if not picks.dtype.is_int() or picks.dtype is int1:
        raise ValueError(f"index must be an integer tensor, got {picks.dtype}")
    rank = len(x.extents)
    if rank == 0 or len(picks.extents) != rank:
        raise ValueError(f"source and index tensors must have the same rank of at least 1, got {x} and {picks}")
    position = _semantic.constant(axis, "axis")
    if not isinstance(position, int) or not -rank <= position < rank:
        raise ValueError(f"gather axis {position} must be < source rank ({rank})")
    position %= rank
    for d in builtins.range(rank):
        if d != position and x.extents[d] != picks.extents[d]:
            raise ValueError(f"index dim {d} must match the corresponding source dim: {picks.extents[d]} and {x.extents[d]}")
    return _semantic.wrap(_semantic.builder.gather(x.handle, picks.handle, axis=position), x.dtype)


@builtin
def histogram(input: Any, num_bins: Any, mask: Any = None, _semantic: Any = None) -> tensor:
    """How often each of ``0 .. num_bins-1`` occurs in a 1-D integer tensor: an ``int32`` tensor. Other values are ignored.

    Args:
        num_bins: a constexpr, a power of two.
        mask: ``int1``; masked-off elements are not counted.

        counts = tl.histogram(x, 256)
    """
    x = _semantic.to_tensor(input)
    if len(x.extents) != 1:
        raise ValueError(f"histogram only supports 1D input, got {x}")
    if not x.dtype.is_int():
        raise ValueError(f"histogram only supports integer input, got {x.dtype}")
    bins = _semantic.constant(num_bins, "num_bins")
    from tilewright.language.dtypes import int32

    type_ = block_type(int32, (bins,))
    lanes = None
    if _unwrap_if_constexpr(mask) is not None:
        lanes = _semantic.broadcast_to(_semantic.to_tensor(mask), x.extents)
        if lanes.dtype is not int1:
            raise ValueError(f"Mask must have boolean scalar type, not {lanes.dtype}")
    return tensor(_semantic.builder.histogram(x.handle, mask=None if lanes is None else lanes.handle, bins=bins), type_)


def wrap_axis(axis: Any, rank: int) -> int:
    """An axis counted from the front.

    Raises:
        ValueError: it is not in ``-rank .. rank-1``.
    """
    axis = _unwrap_if_constexpr(axis)
    if type(axis) is not int or not -rank <= axis < rank:
        raise ValueError(f"invalid axis {axis}. Expected {-rank} <= axis < {rank}")
    return axis + rank if axis < 0 else axis


def _axes(axis: Any) -> list[Any]:
    return list(axis) if isinstance(axis, list | builtins.tuple | tl_tuple) else [axis]


def _dims(dims: builtins.tuple[Any, ...]) -> list[Any]:
    """Axes given as one list or as separate arguments."""
    if len(dims) == 1:
        only = _unwrap_if_constexpr(dims[0])
        if isinstance(only, list | builtins.tuple | tl_tuple):
            return [_unwrap_if_constexpr(axis) for axis in only]
    return [_unwrap_if_constexpr(axis) for axis in dims]
