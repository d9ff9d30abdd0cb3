"""Block pointers: a window on a strided tensor that moves by ``advance``.

They exist in the language only: a load or store through one is a load or store through a tensor of
pointers, masked along the axes of ``boundary_check``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tilewright import ir
from tilewright.ir import types as ir_types
from tilewright.language.binding import builtin, must_use_result
from tilewright.language.value_types.base_classes import base_type, base_value
from tilewright.language.value_types.dtypes import (
    block_type,
    int32,
    int64,
    pointer_type,
    validate_block_shape,
)
from tilewright.language.value_types.tensors import tensor
from tilewright.language.value_types.tuples import listed, tuple_type
from tilewright.language.value_types.tuples import tuple as tl_tuple
from tilewright.language.value_types.values import constexpr, unwrap_if_constexpr


class block_pointer_type(base_type):  # noqa: N801
    """The type of a block pointer.

    It has the base pointer, the types of shape, strides and offsets, and the block's shape.
    """

    __slots__ = ("base", "block", "offsets", "order", "shape", "strides")

    def __init__(
        self,
        base: pointer_type,
        shape: tuple_type,
        strides: tuple_type,
        offsets: tuple_type,
        block: block_type,
        order: tuple[int, ...],
    ) -> None:
        self.base, self.shape, self.strides, self.offsets, self.block, self.order = (
            base,
            shape,
            strides,
            offsets,
            block,
            order,
        )

    @property
    def element_ty(self) -> block_type:
        """Return the type of a loaded block."""
        return self.block

    def flatten(self) -> list[ir_types.Type]:
        return [
            self.base.ir_type,
            *self.shape.flatten(),
            *self.strides.flatten(),
            *self.offsets.flatten(),
        ]

    def unflatten(self, values: Iterator[ir.Value]) -> block_pointer:
        base = tensor(next(values), self.base)
        shape, strides, offsets = (
            part.unflatten(values) for part in (self.shape, self.strides, self.offsets)
        )
        return block_pointer(base, shape, strides, offsets, self.block, self.order)

    def mangle(self) -> str:
        return f"BP{self.block.mangle()}{self.strides.mangle()}"

    def _key(self) -> tuple[Any, ...]:
        return (self.base, self.shape, self.strides, self.offsets, self.block, self.order)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, block_pointer_type) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash((self.base, self.block, self.order))

    def __str__(self) -> str:
        return f"block_pointer<{self.block}>"


class block_pointer(base_value):  # noqa: N801
    """A block of ``block.shape`` at ``offsets`` in a tensor at ``base``.

    The tensor has ``shape`` and ``strides`` (in elements).
    """

    __slots__ = ("base", "block", "offsets", "order", "shape", "strides")

    def __init__(
        self,
        base: tensor,
        shape: tl_tuple,
        strides: tl_tuple,
        offsets: tl_tuple,
        block: block_type,
        order: tuple[int, ...],
    ) -> None:
        self.base, self.shape, self.strides, self.offsets, self.block, self.order = (
            base,
            shape,
            strides,
            offsets,
            block,
            order,
        )

    @property
    def type(self) -> block_pointer_type:
        return block_pointer_type(
            self.base.type,
            self.shape.type,
            self.strides.type,
            self.offsets.type,
            self.block,
            self.order,
        )

    @property
    def dtype(self) -> block_pointer_type:
        return self.type

    def flatten(self) -> list[ir.Value]:
        return [
            self.base.handle,
            *self.shape.flatten(),
            *self.strides.flatten(),
            *self.offsets.flatten(),
        ]

    @builtin
    def advance(self, offsets: Any, _semantic: Any = None) -> block_pointer:
        """The block pointer moved by ``offsets``: see :func:`~tilewright.language.advance`."""
        return advance(self, offsets, _semantic=_semantic)

    def alike(self, semantic: Any, other: block_pointer) -> block_pointer:
        """Return this block pointer with numbers of the types that it shares with ``other``.

        The two meet in a merge of control flow.

        Extents and strides are int64, and so are offsets where one of the two has such.
        """
        wide = any(
            offset.dtype is int64 for pointer in (self, other) for offset in pointer.offsets.values
        )

        def numbers(items: tl_tuple, dtype: Any) -> tl_tuple:
            return tl_tuple(
                [semantic.cast(semantic.to_tensor(item), dtype) for item in items.values]
            )

        offsets = numbers(self.offsets, int64) if wide else self.offsets
        return block_pointer(
            self.base,
            numbers(self.shape, int64),
            numbers(self.strides, int64),
            offsets,
            self.block,
            self.order,
        )

    def access(
        self, semantic: Any, boundary_check: Any, padding: str
    ) -> tuple[tensor, tensor | None, tensor | None]:
        """Return the pointers, the mask and the masked-off lanes' value of an access."""
        element, extents = self.base.type.element_ty, self.block.shape
        rank = len(extents)
        checked = _boundary_axes(boundary_check, rank)
        if padding not in ("", "zero", "nan"):
            raise ValueError(f"Padding option {padding} not supported; one of '', 'zero', 'nan'")
        if padding == "nan" and not element.is_floating():
            raise ValueError(
                f"Padding option `nan` is not supported for {element}: integers have no NaN"
            )
        pointers, mask = self.base, None
        for axis in range(rank):
            lane = semantic.builder.arange(start=0, end=extents[axis])
            position = semantic.add(
                self.offsets.values[axis],
                tensor(lane, block_type(int32, (extents[axis],))),
                sanitize_overflow=False,
            )
            for other in range(rank):
                if other != axis:
                    position = semantic.expand_dims(position, other)
            stride = self.strides.values[axis]
            moved = position
            if not (isinstance(stride, constexpr) and stride.value == 1):
                moved = semantic.mul(
                    semantic.cast(position, int64),
                    semantic.cast(semantic.to_tensor(stride), int64),
                    sanitize_overflow=False,
                )
            pointers = semantic.add(pointers, moved, sanitize_overflow=False)
            if axis in checked:
                inside = semantic.and_(
                    semantic.compare("ge", position, 0),
                    semantic.compare("lt", position, self.shape.values[axis]),
                )
                mask = inside if mask is None else semantic.and_(mask, inside)
        fill = None
        if mask is not None:
            mask = semantic.broadcast_to(mask, extents)
            if padding:
                fill = semantic.full(extents, 0 if padding == "zero" else float("nan"), element)
        return pointers, mask, fill


def _boundary_axes(boundary_check: Any, rank: int) -> set[int]:
    axes = unwrap_if_constexpr(boundary_check)
    if axes is None:
        return set()
    if isinstance(axes, int):
        axes = [axes]
    plain = [unwrap_if_constexpr(axis) for axis in axes]
    for axis in plain:
        if not isinstance(axis, int) or not 0 <= axis < rank:
            raise ValueError(
                f"boundary_check names axis {axis}, but the block has axes 0 to {rank - 1}"
            )
    if len(set(plain)) != len(plain):
        raise ValueError(f"Duplicate dimension in `boundary_check`: {plain}")
    return set(plain)


@builtin
def make_block_ptr(
    base: Any,
    shape: Any,
    strides: Any,
    offsets: Any,
    block_shape: Any,
    order: Any,
    _semantic: Any = None,
) -> block_pointer:
    """Make a pointer to a block of a strided tensor; prefer :func:`make_tensor_descriptor`.

    Args:
        base: a pointer to the tensor's first element.
        shape: the tensor's extents, integers.
        strides: the strides in elements, an integer for each axis.
        offsets: the start of the block, an integer for each axis.
        block_shape: the block's extents, constexprs.
        order: the axes, from the one with the smallest stride to the one with the largest,
            constexprs.

    Returns:
        A block pointer. You can pass it to :func:`advance`, and to :func:`load` and :func:`store`,
        which accept the argument ``boundary_check`` for block pointers.

    Raises:
        ValueError: ``base`` is not a pointer, or the lists have different lengths.

    Example:
        block_ptr = tl.make_block_ptr(x_ptr, (n,), (1,), (pid * BLOCK,), (BLOCK,), (0,))
        block = tl.load(block_ptr, boundary_check=(0,), padding_option="zero")
    """
    _semantic.warn(
        "block pointers are deprecated: use tensor descriptors (make_tensor_descriptor) or "
        "tensors of pointers",
        DeprecationWarning,
    )
    if not isinstance(base, tensor) or not base.type.is_ptr():
        raise ValueError(
            "Expected `base` to be a pointer type (but not a block pointer type or others), got "
            f"{getattr(base, 'type', base)}"
        )
    extents = validate_block_shape(
        [_semantic.constant(extent, "block_shape") for extent in listed(block_shape)]
    )
    rank = len(extents)
    axes = tuple(_semantic.constant(axis, "order") for axis in listed(order))
    if sorted(axes) != list(range(rank)):
        raise ValueError(
            f"Expected a permutation of (0, 1, ..., len(order)-1) in order, got {list(axes)}"
        )
    parts = [
        scalar_integers(_semantic, name, value, rank)
        for name, value in (("shape", shape), ("strides", strides), ("offsets", offsets))
    ]
    wide = any(
        isinstance(item, tensor) and item.dtype.primitive_bitwidth == 64 for item in parts[2]
    )
    offset_type = int64 if wide else int32
    return block_pointer(
        base,
        tl_tuple(parts[0]),
        tl_tuple(parts[1]),
        tl_tuple([_semantic.cast(_semantic.to_tensor(item), offset_type) for item in parts[2]]),
        block_type(base.type.element_ty, extents),
        axes,
    )


@builtin
def advance(base: Any, offsets: Any, _semantic: Any = None) -> block_pointer:
    """Return the block pointer, moved by a number of elements along each axis.

    Args:
        base: a block pointer, which does not change.
        offsets: the distance to move along each axis, in elements.

    Returns:
        The moved block pointer. It is an error to ignore the result, because ``base`` does not
        change.

    Raises:
        ValueError: the number of offsets differs from the number of axes.

    Example:
        block_ptr = tl.make_block_ptr(x_ptr, (n,), (1,), (0,), (BLOCK,), (0,))
        block_ptr = tl.advance(block_ptr, (BLOCK,))
    """
    if not isinstance(base, block_pointer):
        raise ValueError(
            f"advance moves a block pointer, not {getattr(base, 'type', base)}; add to a "
            "pointer with +"
        )
    steps = scalar_integers(_semantic, "offsets", offsets, len(base.block.shape))
    moved = []
    for offset, step in zip(base.offsets.values, steps, strict=True):
        if isinstance(step, constexpr) and step.value == 0:
            moved.append(offset)
        else:
            moved.append(
                _semantic.add(
                    offset,
                    _semantic.cast(_semantic.to_tensor(step), offset.dtype),
                    sanitize_overflow=False,
                )
            )
    return block_pointer(
        base.base, base.shape, base.strides, tl_tuple(moved), base.block, base.order
    )


must_use_result(advance, "block pointers are not changed in place, so the result must be used")


def scalar_integers(semantic: Any, name: str, value: Any, rank: int) -> list[Any]:
    """The ``rank`` integers of an argument that is called ``name``: scalar tensors and constexprs.

    Raises:
        ValueError: they are others, or not that many.
    """
    items = [item if isinstance(item, tensor) else constexpr(item) for item in listed(value)]
    if len(items) != rank:
        raise ValueError(
            f"Expected {name} to have {rank} entries, one an axis of block_shape, got {len(items)}"
        )
    for item in items:
        fits = (
            (not item.extents and item.dtype.is_int())
            if isinstance(item, tensor)
            else isinstance(item.value, int)
        )
        if not fits:
            raise ValueError(f"Expected {name} to hold scalar integers, got {item!r}")
    return items
