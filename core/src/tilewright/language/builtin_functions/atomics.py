"""Atomic updates of memory, and ordered reads and writes."""

from __future__ import annotations

from typing import Any

from tilewright.language.binding import builtin
from tilewright.language.builtin_functions.memory import (
    fit_to_pointer,
    from_memory,
    in_memory,
    refuse_constant_pointer,
)
from tilewright.language.value_types.dtypes import (
    bfloat16,
    dtype,
    float16,
    float32,
    float64,
    int32,
    int64,
    refuse_mask,
    uint32,
    uint64,
)
from tilewright.language.value_types.tensors import tensor
from tilewright.language.value_types.values import unwrap_if_constexpr

_ORDERS = {
    None: "acq_rel",
    "acquire": "acquire",
    "release": "release",
    "acq_rel": "acq_rel",
    "relaxed": "relaxed",
}
#: What a read may say of its order -> the IR's name.
LOAD_ORDERS: dict[str | None, str] = {None: "acquire", "acquire": "acquire", "relaxed": "relaxed"}
_STORE_ORDERS = {None: "release", "release": "release", "relaxed": "relaxed"}
_SCOPES = {None: "device", "gpu": "device", "cta": "program", "sys": "system"}
_WIDE_INTEGERS = (int32, uint32, int64, uint64)

#: The element types of each kind of update.
UPDATED_ELEMENTS: dict[str, tuple[dtype, ...]] = {
    "add": (*_WIDE_INTEGERS, float16, bfloat16, float32, float64),
    "max": (*_WIDE_INTEGERS, float32, float64),
    "min": (*_WIDE_INTEGERS, float32, float64),
    "and": _WIDE_INTEGERS,
    "or": _WIDE_INTEGERS,
    "xor": _WIDE_INTEGERS,
    "xchg": (*_WIDE_INTEGERS, float32, float64),
}


def ordering(sem: Any, orders: dict[str | None, str] = _ORDERS) -> str:
    """The IR's name of a memory semantic."""
    sem = unwrap_if_constexpr(sem)
    if sem not in orders:
        raise ValueError(
            f"Memory semantic {sem} not supported; one of "
            f"{', '.join(map(repr, filter(None, orders)))}"
        )
    return orders[sem]


def scope_of(scope: Any) -> str:
    """The IR's name of a memory scope."""
    scope = unwrap_if_constexpr(scope)
    if scope not in _SCOPES:
        raise ValueError(
            f"Memory scope {scope} not supported; one of "
            f"{', '.join(map(repr, filter(None, _SCOPES)))}"
        )
    return _SCOPES[scope]


def check_capability(semantic: Any, element: dtype, kind: str, function: str) -> None:
    """Refuse an update the target does not have."""
    capabilities = semantic.options.capabilities
    if capabilities is not None and kind not in capabilities.atomics.get(str(element.ir_type), ()):
        raise ValueError(
            f"{function} does not support {element} on backend {semantic.options.backend or '?'}: "
            "the target has no such atomic"
        )


def _update(
    semantic: Any, kind: str, pointer: Any, value: Any, mask: Any, sem: Any, scope: Any
) -> tensor:
    function = f"atomic_{kind}"
    pointer, element = pointer_and_element(pointer, function)
    if element not in UPDATED_ELEMENTS[kind]:
        raise ValueError(
            f"{function} does not support {element}; it works on "
            f"{', '.join(map(str, UPDATED_ELEMENTS[kind]))}"
        )
    check_capability(semantic, element, kind, function)
    value, mask = fit_to_pointer(
        semantic, pointer, semantic.to_tensor(value), _mask(semantic, mask)
    )
    value = semantic.cast(value, element)
    handle = semantic.builder.atomic_rmw(
        pointer.handle,
        value.handle,
        mask=mask and mask.handle,
        kind=kind,
        order=ordering(sem),
        scope=scope_of(scope),
    )
    return semantic.wrap(handle, element)


def _mask(semantic: Any, mask: Any) -> tensor | None:
    if unwrap_if_constexpr(mask) is None:
        return None
    mask = semantic.to_tensor(mask)
    refuse_mask(mask.dtype)
    return mask


def pointer_and_element(
    pointer: Any, function: str, *, writes: bool = True
) -> tuple[tensor, dtype]:
    """The pointer that an atomic function is given, and the type of what is there.

    Raises:
        ValueError: it is none, or must not be written through.
    """
    if not isinstance(pointer, tensor) or not pointer.dtype.is_ptr():
        raise ValueError(
            f"Pointer argument of {function} is {getattr(pointer, 'type', pointer)}: it takes a "
            "pointer or a tensor of pointers"
        )
    if writes:
        refuse_constant_pointer(pointer.dtype)
    return pointer, pointer.dtype.element_ty  # type: ignore[attr-defined]


_DETAILS = """
    Args:
        pointer: a pointer or a tensor of pointers.
        val: cast to the element type and broadcast to the pointers' shape.
        mask: ``int1``; masked-off lanes access no memory, and their result is undefined.
        sem: ``"acquire"``, ``"release"``, ``"acq_rel"`` (the default) or ``"relaxed"``.
        scope: which threads the memory ordering includes: ``"gpu"`` (those of the device, the
            default), ``"cta"`` (those of this program instance) or ``"sys"`` (those of the whole
            system).

    Returns:
        The values that were in memory before the operation: a tensor with the shape of the pointers
        and the element type of the values in memory.

    Raises:
        ValueError: the pointer is constant, the element type has no such atomic, or shapes do not
            fit.
"""


@builtin
def atomic_add(
    pointer: Any,
    val: Any,
    mask: Any = None,
    sem: Any = None,
    scope: Any = None,
    _semantic: Any = None,
) -> tensor:
    """Add a number to a value in memory, atomically.

    The value is an integer of 32 or 64 bits, fp16, bf16, fp32 or fp64.

    Example:
        old = tl.atomic_add(out_ptr + offsets, x, mask=offsets < n)
    """
    return _update(_semantic, "add", pointer, val, mask, sem, scope)


@builtin
def atomic_max(
    pointer: Any,
    val: Any,
    mask: Any = None,
    sem: Any = None,
    scope: Any = None,
    _semantic: Any = None,
) -> tensor:
    """Replace a value in memory by the maximum of this value and another value, atomically.

    The values are integers of 32 or 64 bits, fp32 or fp64. For floats, -0.0 is less than 0.0.

    Example:
        old = tl.atomic_max(out_ptr + offsets, x)
    """
    return _update(_semantic, "max", pointer, val, mask, sem, scope)


@builtin
def atomic_min(
    pointer: Any,
    val: Any,
    mask: Any = None,
    sem: Any = None,
    scope: Any = None,
    _semantic: Any = None,
) -> tensor:
    """Replace a value in memory by the minimum of this value and another value, atomically.

    The values are integers of 32 or 64 bits, fp32 or fp64. For floats, -0.0 is less than 0.0.

    Example:
        old = tl.atomic_min(out_ptr + offsets, x)
    """
    return _update(_semantic, "min", pointer, val, mask, sem, scope)


@builtin
def atomic_and(
    pointer: Any,
    val: Any,
    mask: Any = None,
    sem: Any = None,
    scope: Any = None,
    _semantic: Any = None,
) -> tensor:
    """Replace a value in memory by the bitwise AND of this value and another value, atomically.

    The values are integers of 32 or 64 bits.

    Example:
        old = tl.atomic_and(lock_ptr, 3)
    """
    return _update(_semantic, "and", pointer, val, mask, sem, scope)


@builtin
def atomic_or(
    pointer: Any,
    val: Any,
    mask: Any = None,
    sem: Any = None,
    scope: Any = None,
    _semantic: Any = None,
) -> tensor:
    """Replace a value in memory by the bitwise OR of this value and another value, atomically.

    The values are integers of 32 or 64 bits.

    Example:
        old = tl.atomic_or(lock_ptr, 4)
    """
    return _update(_semantic, "or", pointer, val, mask, sem, scope)


@builtin
def atomic_xor(
    pointer: Any,
    val: Any,
    mask: Any = None,
    sem: Any = None,
    scope: Any = None,
    _semantic: Any = None,
) -> tensor:
    """Replace a value in memory by the bitwise XOR of this value and another value, atomically.

    The values are integers of 32 or 64 bits.

    Example:
        old = tl.atomic_xor(lock_ptr, 1)
    """
    return _update(_semantic, "xor", pointer, val, mask, sem, scope)


@builtin
def atomic_xchg(
    pointer: Any,
    val: Any,
    mask: Any = None,
    sem: Any = None,
    scope: Any = None,
    _semantic: Any = None,
) -> tensor:
    """Replace a value in memory by another value and return the old value, atomically.

    The values are integers of 32 or 64 bits, fp32 or fp64.

    Example:
        old = tl.atomic_xchg(lock_ptr, 0)
    """
    return _update(_semantic, "xchg", pointer, val, mask, sem, scope)


for _fn in (atomic_add, atomic_max, atomic_min, atomic_and, atomic_or, atomic_xor, atomic_xchg):
    _fn.__doc__ = (_fn.__doc__ or "") + _DETAILS


@builtin
def atomic_cas(
    pointer: Any, cmp: Any, val: Any, sem: Any = None, scope: Any = None, _semantic: Any = None
) -> tensor:
    """Compare a value in memory with ``cmp``, and replace it by ``val`` if they are equal,
    atomically.

    The function compares the bits of the two values, which have 16, 32 or 64 bits.

    Args:
        pointer: a pointer or a tensor of pointers.
        cmp: the expected contents of memory, cast to the element type.
        val: the value to write, cast to the element type.
        sem: ``"acquire"``, ``"release"``, ``"acq_rel"`` (the default) or ``"relaxed"``.
        scope: which threads the memory ordering includes: ``"gpu"`` (those of the device, the
            default), ``"cta"`` (those of this program instance) or ``"sys"`` (those of the whole
            system).

    Returns:
        The values that were in memory before the operation: a tensor with the shape of the pointers
        and the element type of the values in memory.

    Raises:
        ValueError: the pointer points to constants, elements have another width, or shapes do not
            match.

    Example:
        old = tl.atomic_cas(lock_ptr, 0, 1)
    """
    pointer, element = pointer_and_element(pointer, "atomic_cas")
    if element.primitive_bitwidth not in (16, 32, 64):
        raise ValueError(
            f"atomic_cas only supports elements with width {{16, 32, 64}}, not {element}"
        )
    if not element.is_ptr():
        check_capability(_semantic, element, "cas", "atomic_cas")
    expected, _ = fit_to_pointer(_semantic, pointer, _semantic.to_tensor(cmp), None)
    value, _ = fit_to_pointer(_semantic, pointer, _semantic.to_tensor(val), None)
    expected, value = _semantic.cast(expected, element), _semantic.cast(value, element)
    handle = _semantic.builder.atomic_cas(
        pointer.handle, expected.handle, value.handle, order=ordering(sem), scope=scope_of(scope)
    )
    return _semantic.wrap(handle, element)


@builtin
def atomic_load(
    pointer: Any, mask: Any = None, sem: Any = None, scope: Any = None, _semantic: Any = None
) -> tensor:
    """Read values from memory that other program instances may write at the same time.

    The function reads each element atomically. By default, the read is an acquire: the memory
    accesses that follow it in the kernel take effect after the read. The compiler never merges,
    moves or removes the read.

    Args:
        pointer: a pointer or a tensor of pointers to elements of 8, 16, 32 or 64 bits, or to
            booleans.
        mask: ``int1``; masked-off lanes read no memory, and their result is undefined.
        sem: ``"acquire"`` (the default) or ``"relaxed"``.
        scope: which threads the memory ordering includes: ``"gpu"`` (those of the device, the
            default), ``"cta"`` (those of this program instance) or ``"sys"`` (those of the whole
            system).

    Returns:
        A tensor of the pointers' shape and element type.

    Raises:
        ValueError: ``sem`` has another value, or the mask does not have the pointers' shape.

    Example:
        ready = tl.atomic_load(lock_ptr)
    """
    pointer, element = pointer_and_element(pointer, "atomic_load", writes=False)
    lanes = _mask(_semantic, mask)
    _, lanes = fit_to_pointer(_semantic, pointer, _semantic.to_tensor(False), lanes)
    handle = _semantic.builder.atomic_load(
        pointer.handle,
        mask=lanes and lanes.handle,
        order=ordering(sem, LOAD_ORDERS),
        scope=scope_of(scope),
    )
    return from_memory(_semantic, handle, element)


@builtin
def atomic_store(
    pointer: Any,
    val: Any,
    mask: Any = None,
    sem: Any = None,
    scope: Any = None,
    _semantic: Any = None,
) -> None:
    """Write values to memory that other program instances may access at the same time.

    The function writes each element atomically. By default, the write is a release: the memory
    accesses that precede it in the kernel take effect before the write.

    Args:
        pointer: a pointer or a tensor of pointers to elements of 8, 16, 32 or 64 bits, or to
            booleans.
        val: cast to the element type and broadcast to the pointers' shape.
        mask: ``int1``; masked-off lanes write nothing.
        sem: ``"release"`` (the default) or ``"relaxed"``.
        scope: which threads the memory ordering includes: ``"gpu"`` (those of the device, the
            default), ``"cta"`` (those of this program instance) or ``"sys"`` (those of the whole
            system).

    Raises:
        ValueError: the pointer points to constants, ``sem`` has another value, or shapes do not
            match.

    Example:
        tl.atomic_store(lock_ptr, 1)
    """
    pointer, element = pointer_and_element(pointer, "atomic_store")
    value, lanes = fit_to_pointer(
        _semantic, pointer, _semantic.to_tensor(val), _mask(_semantic, mask)
    )
    value = in_memory(_semantic, _semantic.cast(value, element))
    order, place = ordering(sem, _STORE_ORDERS), scope_of(scope)
    _semantic.builder.atomic_store(
        pointer.handle, value.handle, mask=lanes and lanes.handle, order=order, scope=place
    )


@builtin
def clock(_semantic: Any = None) -> tensor:
    """Nanoseconds by a clock of the device that never goes back, as an ``int64`` scalar."""
    return tensor(_semantic.builder.clock(), int64)
