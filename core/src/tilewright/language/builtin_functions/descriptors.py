"""Tensor descriptors: a strided tensor in memory that is accessed in blocks.

There is padding outside its bounds.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tilewright import ir
from tilewright.ir import types as ir_types
from tilewright.language.binding import builtin
from tilewright.language.builtin_functions.atomics import check_capability
from tilewright.language.builtin_functions.block_pointers import scalar_integers
from tilewright.language.builtin_functions.memory import from_memory, in_memory
from tilewright.language.value_types.base_classes import base_type, base_value
from tilewright.language.value_types.dtypes import (
    bfloat16,
    block_type,
    dtype,
    float16,
    float32,
    float64,
    int1,
    int8,
    int32,
    int64,
    uint32,
    uint64,
)
from tilewright.language.value_types.tensors import tensor
from tilewright.language.value_types.tuples import listed, shape_tuple, tuple_type
from tilewright.language.value_types.tuples import tuple as tl_tuple
from tilewright.language.value_types.values import constexpr

#: The element types of each kind of update of a block.
REDUCED_ELEMENTS: dict[str, tuple[dtype, ...]] = {
    "add": (int32, uint32, int64, uint64, float16, bfloat16, float32, float64),
    # Of the floats those that a bulk copy can reduce, where the target has it.
    "min": (int32, uint32, int64, uint64, float16, bfloat16),
    "max": (int32, uint32, int64, uint64, float16, bfloat16),
    "and": (int32, uint32, int64, uint64),
    "or": (int32, uint32, int64, uint64),
    "xor": (int32, uint32, int64, uint64),
}


class tensor_descriptor_base_type(base_type):  # noqa: N801
    """The type of a descriptor with blocks of type ``block_type``; one IR value represents it."""

    __slots__ = ("block_type",)

    def __init__(self, block_type: block_type) -> None:
        self.block_type = block_type

    @property
    def ir_type(self) -> ir_types.DescriptorType:
        element = self.block_type.element_ty
        return ir_types.DescriptorType(
            self.block_type.shape, (int8 if element is int1 else element).ir_type
        )

    def flatten(self) -> list[ir_types.Type]:
        return [self.ir_type]

    def unflatten(self, values: Iterator[ir.Value]) -> tensor_descriptor_base:
        return tensor_descriptor_base(next(values), self.block_type)

    def mangle(self) -> str:
        return f"TD{self.block_type.mangle()}"

    def _key(self) -> tuple[Any, ...]:
        return (self.block_type,)

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash((type(self).__name__, self.block_type))

    def __str__(self) -> str:
        return f"tensor_descriptor<{self.block_type}>"

    __repr__ = __str__


class tensor_descriptor_type(tensor_descriptor_base_type):  # noqa: N801
    """The type of a descriptor that also holds the tensor's shape and strides as values."""

    __slots__ = ("shape_type", "strides_type")

    def __init__(
        self, block_type: block_type, shape_type: tuple_type, strides_type: tuple_type
    ) -> None:
        super().__init__(block_type)
        self.shape_type, self.strides_type = shape_type, strides_type

    def flatten(self) -> list[ir_types.Type]:
        return [self.ir_type, *self.shape_type.flatten(), *self.strides_type.flatten()]

    def unflatten(self, values: Iterator[ir.Value]) -> tensor_descriptor:
        handle = next(values)
        return tensor_descriptor(
            handle,
            self.shape_type.unflatten(values),
            self.strides_type.unflatten(values),
            self.block_type,
        )

    def _key(self) -> tuple[Any, ...]:
        return (self.block_type, self.shape_type, self.strides_type)

    __hash__ = tensor_descriptor_base_type.__hash__


#: Members of a descriptor made by the host that emit code: the operation that reads one of their
#: items, and the type of the items.
EMITTED_MEMBERS: dict[str, tuple[str, dtype]] = {
    "shape": ("descriptor_extent", int32),
    "strides": ("descriptor_stride", int64),
}


class tensor_descriptor_base(base_value):  # noqa: N801
    """Base of descriptors, whether the kernel makes them or the host passes them.

    Attributes:
        block_type, block_shape, dtype: of the blocks it is accessed in.
        shape, strides: of the tensor, in elements: tuples of scalars, ``int32`` and ``int64`` where
            the host made the descriptor, of the types that :func:`make_tensor_descriptor` was given
            where the kernel did.
    """

    __slots__ = ("block_type", "handle")

    def __init__(self, handle: ir.Value, block_type: block_type) -> None:
        self.handle = handle
        self.block_type = block_type

    @property
    def type(self) -> tensor_descriptor_base_type:
        return tensor_descriptor_base_type(self.block_type)

    @property
    def block_shape(self) -> tl_tuple:
        return shape_tuple(self.block_type.shape)

    @property
    def dtype(self) -> dtype:
        return self.block_type.element_ty

    def flatten(self) -> list[ir.Value]:
        return [self.handle]

    def __str__(self) -> str:
        return str(self.type)

    def __getattr__(self, name: str) -> Any:
        if name in EMITTED_MEMBERS:
            raise ValueError(
                f"`{name}` of a tensor descriptor can be read only inside a kernel. Did you forget "
                "to add @jit?"
            )
        raise AttributeError(f"a tensor descriptor has no attribute {name!r}")

    def emitted(self, name: str, semantic: Any) -> tl_tuple:
        """Read ``shape`` or ``strides`` from the descriptor at the insertion point.

        ``name`` is one of :data:`EMITTED_MEMBERS`.
        """
        operation, type_ = EMITTED_MEMBERS[name]
        emit = getattr(semantic.builder, operation)
        return tl_tuple(
            [
                semantic.cast(tensor(emit(self.handle, axis=axis), int64), type_)
                for axis in range(len(self.block_type.shape))
            ]
        )

    @builtin
    def load(self, offsets: Any, _semantic: Any = None) -> tensor:
        """Load the block at ``offsets``, a scalar integer for each axis.

        Outside the tensor it has the descriptor's padding.

        x = desc.load([pid * BLOCK_M, k])
        """
        handle = _semantic.builder.descriptor_load(
            self.handle, offsets=_offsets(_semantic, self, offsets)
        )
        return from_memory(_semantic, handle, self.dtype)

    @builtin
    def store(self, offsets: Any, value: Any, _semantic: Any = None) -> None:
        """Write ``value``, cast to the element type, to the block at ``offsets``.

        Elements outside the tensor are dropped.
        """
        _semantic.builder.descriptor_store(
            self.handle,
            offsets=_offsets(_semantic, self, offsets),
            value=_block(_semantic, self, value),
        )

    @builtin
    def atomic_add(self, offsets: Any, value: Any, _semantic: Any = None) -> None:
        """Add ``value`` to the block at ``offsets``, atomically by element.

        It takes 32 and 64-bit integers and floats, fp16 and bf16.
        """
        _reduce(_semantic, self, "add", offsets, value)

    @builtin
    def atomic_min(self, offsets: Any, value: Any, _semantic: Any = None) -> None:
        """Update the block at ``offsets`` to its minimum with ``value``, atomically by element."""
        _reduce(_semantic, self, "min", offsets, value)

    @builtin
    def atomic_max(self, offsets: Any, value: Any, _semantic: Any = None) -> None:
        """Update the block at ``offsets`` to its maximum with ``value``, atomically by element."""
        _reduce(_semantic, self, "max", offsets, value)

    @builtin
    def atomic_and(self, offsets: Any, value: Any, _semantic: Any = None) -> None:
        """Combine the block at ``offsets`` with ``value`` by bitwise AND, atomically."""
        _reduce(_semantic, self, "and", offsets, value)

    @builtin
    def atomic_or(self, offsets: Any, value: Any, _semantic: Any = None) -> None:
        """Combine the block at ``offsets`` with ``value`` by bitwise OR, atomically."""
        _reduce(_semantic, self, "or", offsets, value)

    @builtin
    def atomic_xor(self, offsets: Any, value: Any, _semantic: Any = None) -> None:
        """Combine the block at ``offsets`` with ``value`` by bitwise XOR, atomically."""
        _reduce(_semantic, self, "xor", offsets, value)

    @builtin
    def gather(self, *args: Any, _semantic: Any = None) -> tensor:
        """``gather(x_offsets, y_offset)``: load the rows ``x_offsets``, from column ``y_offset``
        on.

        ``x_offsets``, a 1-D integer tensor, has the rows.

        The descriptor is 2-D with blocks of one row; the result is ``[rows, block_shape[1]]``.
        """
        x_offsets, y_offset = _rows(_semantic, self, args, "gather")
        handle = _semantic.builder.descriptor_gather(self.handle, x_offsets.handle, y_offset.handle)
        return from_memory(_semantic, handle, self.dtype)

    @builtin
    def scatter(self, value: Any, *args: Any, _semantic: Any = None) -> None:
        """``scatter(value, x_offsets, y_offset)``: write rows ``x_offsets``, from column
        ``y_offset`` on.

        ``value`` goes to the rows ``x_offsets``.
        """
        x_offsets, y_offset = _rows(_semantic, self, args, "scatter")
        value = _semantic.cast(_semantic.to_tensor(value), self.dtype)
        extents = (x_offsets.extents[0], self.block_type.shape[1])
        if value.extents != extents:
            raise ValueError(
                f"scatter takes a value of shape {list(extents)}, got {list(value.extents)}"
            )
        _semantic.builder.descriptor_scatter(
            self.handle, x_offsets.handle, y_offset.handle, in_memory(_semantic, value).handle
        )


class tensor_descriptor(tensor_descriptor_base):  # noqa: N801
    """A tensor descriptor, whether the kernel makes it or the host passes it."""

    __slots__ = ("shape", "strides")

    def __init__(self, handle: ir.Value, shape: Any, strides: Any, block_type: block_type) -> None:
        super().__init__(handle, block_type)
        self.shape = shape if isinstance(shape, tl_tuple) else tl_tuple(shape)
        self.strides = strides if isinstance(strides, tl_tuple) else tl_tuple(strides)

    @property
    def type(self) -> tensor_descriptor_type:
        return tensor_descriptor_type(self.block_type, self.shape.type, self.strides.type)

    def flatten(self) -> list[ir.Value]:
        return [self.handle, *self.shape.flatten(), *self.strides.flatten()]


def _offsets(semantic: Any, descriptor: tensor_descriptor_base, offsets: Any) -> list[ir.Value]:
    rank = len(descriptor.block_type.shape)
    items = listed(offsets)
    if len(items) != rank:
        raise ValueError(f"expected {rank} offsets, but got {len(items)}")
    result = []
    for item in items:
        offset = semantic.to_tensor(item)
        if offset.extents or not offset.dtype.is_int():
            raise ValueError(f"offsets of a descriptor are scalar integers, not {offset}")
        result.append(offset.handle)
    return result


def _block(semantic: Any, descriptor: tensor_descriptor_base, value: Any) -> ir.Value:
    value = semantic.to_tensor(value)
    if value.extents and value.extents != descriptor.block_type.shape:
        raise ValueError(
            f"a descriptor of blocks {list(descriptor.block_type.shape)} takes a value of that "
            f"shape, got {list(value.extents)}"
        )
    value = semantic.broadcast_to(
        semantic.cast(value, descriptor.dtype), descriptor.block_type.shape
    )
    return in_memory(semantic, value).handle


def _reduce(
    semantic: Any, descriptor: tensor_descriptor_base, kind: str, offsets: Any, value: Any
) -> None:
    element = descriptor.dtype
    if element not in REDUCED_ELEMENTS[kind]:
        raise ValueError(
            f"atomic_{kind} of a descriptor does not support {element}; it works on "
            f"{', '.join(map(str, REDUCED_ELEMENTS[kind]))}"
        )
    check_capability(semantic, element, kind, f"atomic_{kind} of a descriptor")
    semantic.builder.descriptor_reduce(
        descriptor.handle,
        offsets=_offsets(semantic, descriptor, offsets),
        value=_block(semantic, descriptor, value),
        kind=kind,
    )


def _rows(
    semantic: Any, descriptor: tensor_descriptor_base, args: tuple[Any, ...], name: str
) -> tuple[tensor, tensor]:
    if len(args) != 2:
        raise ValueError(
            f"descriptor {name} takes x_offsets and y_offset, got {len(args)} arguments"
        )
    extents = descriptor.block_type.shape
    if len(extents) != 2:
        raise ValueError(
            f"descriptor {name} must be 2D, but the descriptor has blocks of shape {list(extents)}"
        )
    if extents[0] != 1:
        raise ValueError(f"descriptor {name} block must have 1 row, but has {extents[0]}")
    x_offsets, y_offset = args
    if (
        not isinstance(x_offsets, tensor)
        or len(x_offsets.extents) != 1
        or not x_offsets.dtype.is_int()
    ):
        raise ValueError(
            f"x_offsets of descriptor {name} must be a 1D tensor of integers, got "
            f"{getattr(x_offsets, 'type', x_offsets)}"
        )
    if x_offsets.extents[0] < 8:
        raise ValueError(
            f"descriptor {name} must have at least 8 rows, but got {x_offsets.extents[0]}"
        )
    column = semantic.to_tensor(y_offset)
    if column.extents or not column.dtype.is_int():
        raise ValueError(f"y_offset of descriptor {name} must be a scalar integer, got {column}")
    return x_offsets, column


@builtin
def make_tensor_descriptor(
    base: Any,
    shape: Any,
    strides: Any,
    block_shape: Any,
    padding_option: Any = "zero",
    _semantic: Any = None,
) -> tensor_descriptor:
    """Make a descriptor of a strided tensor, which kernels read and write in blocks.

    The function works on every device. Unlike in Triton, you need not set an allocator with
    :func:`tilewright.set_allocator`.

    Args:
        base: a pointer to the first element, aligned to 16 bytes.
        shape: 1 to 5 extents, integers.
        strides: the strides in elements, an integer for each axis; the last one is the constexpr 1,
            the others are multiples of 16 bytes.
        block_shape: the extents of a block: constexprs, powers of two; the last axis spans at least
            16 bytes.
        padding_option: the value that a load returns outside of the tensor: ``"zero"``, or
            ``"nan"`` for floats.

    Returns:
        A :class:`tensor_descriptor`.

    Raises:
        ValueError: an argument breaks one of the rules in the table of parameters. The compiler
            does not check that ``base`` and the strides are multiples of 16 bytes.

    Example:
        desc = tl.make_tensor_descriptor(x_ptr, shape=[n], strides=[1], block_shape=[BLOCK])
        block = desc.load([pid * BLOCK])
    """
    if not isinstance(base, tensor) or not base.type.is_ptr():
        raise ValueError(
            f"base of a tensor descriptor must be a pointer, got {getattr(base, 'type', base)}"
        )
    extents = [_semantic.constant(extent, "block_shape") for extent in listed(block_shape)]
    rank = len(extents)
    if not 1 <= rank <= 5:
        raise ValueError(f"Expected 1 <= ndim <= 5 but got {rank} dimensions")
    for name, value in (("shape", shape), ("strides", strides)):
        if len(listed(value)) != rank:
            raise ValueError(f"Expected {rank} {name} but got {len(listed(value))}")
    element = base.type.element_ty
    padding = _semantic.constant(padding_option, "padding_option")
    if padding not in ("zero", "nan"):
        raise ValueError(f"Padding option {padding} not supported; one of 'zero', 'nan'")
    if padding == "nan" and not element.is_floating():
        raise ValueError(
            f"Padding option `nan` is not supported for {element} blocks: integers have no NaN"
        )
    type_ = block_type(element, extents)
    if extents[-1] * max(8, element.primitive_bitwidth) < 128:
        raise ValueError(
            "Descriptor block shape must have at least 16 bytes in the last dimension, but got "
            f"{extents[-1]} * {max(8, element.primitive_bitwidth) // 8} = "
            f"{extents[-1] * max(8, element.primitive_bitwidth) // 8} bytes"
        )
    sizes = scalar_integers(_semantic, "shape", shape, rank)
    steps = scalar_integers(_semantic, "strides", strides, rank)
    last = steps[-1]
    if not isinstance(last, constexpr) or last.value != 1:
        found = last.value if isinstance(last, constexpr) else last
        raise ValueError(
            f"Tensor descriptor last dim must be 1 but got {found}: the last stride is "
            "the constexpr 1"
        )
    sizes = [_semantic.to_tensor(size) for size in sizes]
    wide = [_semantic.cast(size, int64) for size in sizes]
    steps = [_semantic.cast(_semantic.to_tensor(step), int64) for step in steps]
    described = tensor_descriptor_base_type(type_)
    handle = _semantic.builder.make_descriptor(
        base.handle,
        shape=[size.handle for size in wide],
        strides=[step.handle for step in steps],
        padding=padding,
        aligned=True,
        result=described.ir_type,
    )
    return tensor_descriptor(handle, sizes, steps, type_)


@builtin
def load_tensor_descriptor(desc: Any, offsets: Any, _semantic: Any = None) -> tensor:
    """Load a block of a tensor through a descriptor, as ``desc.load(offsets)`` does.

    Args:
        desc: a descriptor, made in the kernel or on the host.
        offsets: the start of the block: a scalar integer for each axis.

    Returns:
        A tensor of the descriptor's block shape. Elements of the block that lie outside of
        the tensor have the padding value of the descriptor.

    Raises:
        ValueError: ``offsets`` does not have one scalar for each axis.

    Example:
        desc = tl.make_tensor_descriptor(x_ptr, shape=[n], strides=[1], block_shape=[BLOCK])
        block = tl.load_tensor_descriptor(desc, [pid * BLOCK])
    """
    return _descriptor(desc).load(offsets, _semantic=_semantic)


@builtin
def store_tensor_descriptor(desc: Any, offsets: Any, value: Any, _semantic: Any = None) -> None:
    """Write a block of a tensor through a descriptor, as ``desc.store(offsets, value)`` does.

    Args:
        desc: a descriptor, made in the kernel or on the host.
        offsets: the start of the block: a scalar integer for each axis.
        value: a tensor of the block's shape, cast to the element type. Elements outside of the
            array are not written.

    Raises:
        ValueError: the shapes do not fit.

    Example:
        desc = tl.make_tensor_descriptor(out_ptr, shape=[n], strides=[1], block_shape=[BLOCK])
        tl.store_tensor_descriptor(desc, [pid * BLOCK], x)
    """
    _descriptor(desc).store(offsets, value, _semantic=_semantic)


def _descriptor(desc: Any) -> tensor_descriptor_base:
    if not isinstance(desc, tensor_descriptor_base):
        raise TypeError(f"expected a tensor descriptor, got {getattr(desc, 'type', desc)}")
    return desc
