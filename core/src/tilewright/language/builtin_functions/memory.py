"""Loads and stores through pointers and block pointers, and the barrier."""

from __future__ import annotations

from typing import Any

from tilewright import ir
from tilewright.errors import helped
from tilewright.language.binding import builtin
from tilewright.language.builtin_functions.block_pointers import block_pointer
from tilewright.language.value_types.dtypes import dtype, int1, int8, refuse_mask
from tilewright.language.value_types.tensors import tensor
from tilewright.language.value_types.values import unwrap_if_constexpr

_LOAD_CACHE = {"": "", None: "", ".ca": "ca", ".cg": "cg", ".cs": "cs", ".cv": "cv"}
_STORE_CACHE = {"": "", None: "", ".wb": "wb", ".cg": "cg", ".cs": "cs", ".wt": "wt"}
_EVICTION = {
    "": "normal",
    None: "normal",
    "evict_normal": "normal",
    "evict_first": "first",
    "evict_last": "last",
}


@builtin
def load(
    pointer: Any,
    mask: Any = None,
    other: Any = None,
    boundary_check: Any = (),
    padding_option: Any = "",
    cache_modifier: Any = "",
    eviction_policy: Any = "",
    volatile: Any = False,
    _semantic: Any = None,
) -> tensor:
    """Load values from memory.

    Args:
        pointer: a pointer, a tensor of pointers, or a block pointer.
        mask: ``int1``; masked-off elements read no memory. The mask and the pointers are broadcast
            to one shape.
        other: the value of masked-off elements, cast to the element type. Without ``other``,
            masked-off elements are zero on every backend, as they are in Triton on GPUs.
        boundary_check: the axes along which accesses through a block pointer are masked to the
            tensor's shape.
        padding_option: the value of elements outside the tensor, for a block pointer: ``""``
            (undefined), ``"zero"`` or ``"nan"`` (floats only).
        cache_modifier: ``""``, ``".ca"``, ``".cg"``, ``".cs"`` or ``".cv"``.
        eviction_policy: ``""``, ``"evict_normal"``, ``"evict_first"`` or ``"evict_last"``.
        volatile: whether the compiler must not merge, move or remove this load.

    Returns:
        If ``pointer`` is a scalar, the result is a scalar. Otherwise, it is a tensor of the
        pointers' shape. If the elements are booleans, an element is true if its byte in memory is
        not 0.

    Raises:
        ValueError: ``pointer`` is not a pointer, ``other`` is given without ``mask``, ``mask`` is a
            tensor although ``pointer`` is a scalar, shapes do not match, or an option is unknown.

    Example:
        x = tl.load(x_ptr + offsets, mask=offsets < n, other=0.0)
    """
    attributes = _access_attributes(cache_modifier, _LOAD_CACHE, eviction_policy)
    if unwrap_if_constexpr(volatile):
        attributes["volatile"] = True
    mask, other = _absent(mask), _absent(other)
    if isinstance(pointer, block_pointer):
        if mask is not None or other is not None:
            raise ValueError(
                "`mask` and `other` arguments cannot be specified for loading block pointers; use "
                "boundary_check and padding_option"
            )
        pointer, mask, other = pointer.access(
            _semantic, boundary_check, unwrap_if_constexpr(padding_option)
        )
        return _load(_semantic, pointer, mask, other, attributes)
    _refuse_block_options(boundary_check, padding_option, "load")
    pointer = _pointer(pointer, "load")
    if mask is None and other is not None:
        raise helped(
            ValueError("`other` cannot be provided without `mask`"),
            "it is what lanes that the mask leaves out read as: give a mask, or leave it out",
        )
    if mask is not None:
        mask = _mask(_semantic, mask)
    if other is not None:
        other = _semantic.to_tensor(other)
    if not pointer.extents:
        for name, value in (("Mask", mask), ("Other", other)):
            if value is not None and value.extents:
                raise _block_for_a_scalar(name, value)
    elif mask is not None:
        pointer, mask = _semantic.broadcast_pair(pointer, mask)
        if other is not None:
            other = _semantic.broadcast_to(other, pointer.extents)
    return _load(_semantic, pointer, mask, other, attributes)


def _load(
    semantic: Any,
    pointer: tensor,
    mask: tensor | None,
    other: tensor | None,
    attributes: dict[str, Any],
) -> tensor:
    element: dtype = pointer.dtype.element_ty  # type: ignore[attr-defined]
    semantic.check_supported(element)
    if other is not None:
        other = in_memory(semantic, semantic.cast(other, element))
    handle = semantic.builder.load(
        pointer.handle, mask=mask and mask.handle, other=other and other.handle, **attributes
    )
    return from_memory(semantic, handle, element)


def in_memory(semantic: Any, value: tensor) -> tensor:
    """``value`` as memory holds it: a boolean is a byte, 0 or 1."""
    return semantic.cast(value, int8) if value.dtype is int1 else value


def from_memory(semantic: Any, handle: ir.Value, element: dtype) -> tensor:
    """A loaded IR value as a tensor of ``element``: a byte other than 0 is true."""
    if element is int1:
        return semantic.cast(semantic.wrap(handle, int8), int1)
    return semantic.wrap(handle, element)


@builtin
def store(
    pointer: Any,
    value: Any,
    mask: Any = None,
    boundary_check: Any = (),
    cache_modifier: Any = "",
    eviction_policy: Any = "",
    _semantic: Any = None,
) -> None:
    """Write values to memory.

    Args:
        pointer: a pointer, a tensor of pointers, or a block pointer.
        value: the values to write, cast to the element type and broadcast to the pointers' shape.
        mask: ``int1``; masked-off elements write no memory.
        boundary_check: the axes along which accesses through a block pointer are masked to the
            tensor's shape.
        cache_modifier: ``""``, ``".wb"``, ``".cg"``, ``".cs"`` or ``".wt"``.
        eviction_policy: ``""``, ``"evict_normal"``, ``"evict_first"`` or ``"evict_last"``.

    Raises:
        ValueError: ``pointer`` is not a pointer or points to constants, shapes do not match, the
            mask is not boolean, or an option is unknown.

    Example:
        tl.store(out_ptr + offsets, x, mask=offsets < n)
    """
    attributes = _access_attributes(cache_modifier, _STORE_CACHE, eviction_policy)
    mask = _absent(mask)
    value = _semantic.to_tensor(value)
    if isinstance(pointer, block_pointer):
        if mask is not None:
            raise ValueError(
                "`mask` argument cannot be specified for storing to block pointers; use "
                "boundary_check"
            )
        pointer, mask, _ = pointer.access(_semantic, boundary_check, "")
        if value.extents and len(value.extents) != len(pointer.extents):
            raise ValueError(
                f"value has shape {list(value.extents)} and the block pointer "
                f"{list(pointer.extents)}: the ranks must agree"
            )
    else:
        _refuse_block_options(boundary_check, "", "store")
        if value.dtype.is_ptr() and not (isinstance(pointer, tensor) and pointer.dtype.is_ptr()):
            raise helped(
                _no_pointer(pointer, "store"), "the pointer comes first: tl.store(pointer, value)"
            )
        pointer = _pointer(pointer, "store")
        if mask is not None:
            mask = _mask(_semantic, mask)
    refuse_constant_pointer(pointer.dtype)
    value, mask = fit_to_pointer(_semantic, pointer, value, mask)
    value = in_memory(_semantic, _semantic.cast(value, pointer.dtype.element_ty))
    _semantic.builder.store(pointer.handle, value.handle, mask=mask and mask.handle, **attributes)


@builtin
def debug_barrier(_semantic: Any = None) -> None:
    """Let all threads of the program instance wait for each other, and see each other's writes.

    Example:
        tl.debug_barrier()
    """
    _semantic.builder.barrier()


def fit_to_pointer(
    semantic: Any, pointer: tensor, value: tensor, mask: tensor | None
) -> tuple[tensor, tensor | None]:
    """Value and mask in the shape of the pointers, which must not grow.

    Raises:
        ValueError: a block of values or lanes does not fit.
    """
    extents = pointer.extents
    for name, operand in (("Value", value), ("Mask", mask)):
        if operand is None or operand.extents == extents:
            continue
        if not extents:
            raise _block_for_a_scalar(name, operand)
        from tilewright.language.builtin_functions.conversion import common_shape

        common = common_shape(extents, operand.extents) if operand.extents else extents
        if common != extents:
            raise ValueError(
                f"Expected pointer argument to have shape {list(common)} but got {list(extents)}"
            )
    return semantic.broadcast_to(value, extents), None if mask is None else semantic.broadcast_to(
        mask, extents
    )


def _block_for_a_scalar(name: str, block: tensor) -> ValueError:
    """The error for a tile where a pointer to one element is accessed."""
    error = ValueError(
        f"{name} argument cannot be block type if pointer argument is not a block: it is {block}"
    )
    place = (
        f"tl.arange(0, {block.extents[0]})"
        if len(block.extents) == 1
        else "rows[:, None] * stride + columns[None, :]"
    )
    return helped(error, f"a tile takes a pointer for each of its elements: pointer + {place}")


def refuse_constant_pointer(type_: dtype) -> None:
    """Raise ValueError for a pointer to const."""
    if type_.is_const():
        raise ValueError("Cannot store to a constant pointer")


def _absent(x: Any) -> Any:
    """``x``, or None where it is a constexpr None."""
    return None if unwrap_if_constexpr(x) is None else x


def _pointer(x: Any, function: str) -> tensor:
    if not isinstance(x, tensor) or not x.dtype.is_ptr():
        raise _no_pointer(x, function)
    return x


def _no_pointer(x: Any, function: str) -> ValueError:
    """The error for what is given in a pointer's place."""
    found = str(x.type) if isinstance(x, tensor) else repr(x)
    return ValueError(
        f"Unsupported ptr type {found} in `tl.{function}`: it takes a pointer or a tensor "
        "of pointers"
    )


def _mask(semantic: Any, mask: Any) -> tensor:
    mask = semantic.to_tensor(mask)
    refuse_mask(mask.dtype)
    return mask


def _refuse_block_options(boundary_check: Any, padding_option: Any, function: str) -> None:
    if unwrap_if_constexpr(boundary_check) or unwrap_if_constexpr(padding_option):
        raise ValueError(
            "`padding_option` or `boundary_check` argument is not supported for "
            f"{'loading' if function == 'load' else 'storing'} a tensor of pointers or a scalar: "
            "they belong to block pointers. Use `mask` and `other`."
        )


def _access_attributes(cache: Any, caches: dict[Any, str], eviction: Any) -> dict[str, Any]:
    cache, eviction = unwrap_if_constexpr(cache), unwrap_if_constexpr(eviction)
    if not cache and not eviction:
        return {}
    if cache not in caches:
        raise ValueError(
            f"Cache modifier {cache} not supported; one of "
            f"{', '.join(repr(name) for name in caches if name is not None)}"
        )
    if eviction not in _EVICTION:
        raise ValueError(
            f"Eviction policy {eviction} not supported; one of "
            f"{', '.join(repr(name) for name in _EVICTION if name is not None)}"
        )
    return {"cache": caches[cache], "eviction": _EVICTION[eviction]}
