"""Atomic updates of memory."""

from __future__ import annotations

from typing import Any

from tilewright.language.binding import builtin
from tilewright.language.dtypes import bfloat16, dtype, float16, float32, float64, int1, int32, int64, uint32, uint64
from tilewright.language.memory import fit_to_pointer, refuse_constant_pointer
from tilewright.language.tensors import tensor
from tilewright.language.values import _unwrap_if_constexpr

_ORDERS = {None: "acq_rel", "acquire": "acquire", "release": "release", "acq_rel": "acq_rel", "relaxed": "relaxed"}
_SCOPES = {None: "device", "gpu": "device", "cta": "program", "sys": "system"}
_WIDE_INTEGERS = (int32, uint32, int64, uint64)

#: The element types of each kind of update.
_ELEMENTS: dict[str, tuple[dtype, ...]] = {
    "add": (*_WIDE_INTEGERS, float16, bfloat16, float32, float64),
    "max": (*_WIDE_INTEGERS, float32, float64),
    "min": (*_WIDE_INTEGERS, float32, float64),
    "and": _WIDE_INTEGERS,
    "or": _WIDE_INTEGERS,
    "xor": _WIDE_INTEGERS,
    "xchg": (*_WIDE_INTEGERS, float32, float64),
}


def ordering(sem: Any) -> str:
    """The IR's name of a memory semantic."""
    sem = _unwrap_if_constexpr(sem)
    if sem not in _ORDERS:
        raise ValueError(f"Memory semantic {sem} not supported; one of {', '.join(map(repr, filter(None, _ORDERS)))}")
    return _ORDERS[sem]


def scope_of(scope: Any) -> str:
    """The IR's name of a memory scope."""
    scope = _unwrap_if_constexpr(scope)
    if scope not in _SCOPES:
        raise ValueError(f"Memory scope {scope} not supported; one of {', '.join(map(repr, filter(None, _SCOPES)))}")
    return _SCOPES[scope]


def check_capability(semantic: Any, element: dtype, kind: str, function: str) -> None:
    """Refuse an update the target does not have."""
    capabilities = semantic.options.capabilities
    if capabilities is not None and kind not in capabilities.atomics.get(str(element.ir_type), ()):
        raise ValueError(f"{function} does not support {element} on backend {semantic.options.backend or '?'}: the target has no such atomic")


def _update(semantic: Any, kind: str, pointer: Any, value: Any, mask: Any, sem: Any, scope: Any) -> tensor:
    function = f"atomic_{kind}"
    pointer, element = _target(pointer, function)
    if element not in _ELEMENTS[kind]:
        raise ValueError(f"{function} does not support {element}; it works on {', '.join(map(str, _ELEMENTS[kind]))}")
    check_capability(semantic, element, kind, function)
    if _unwrap_if_constexpr(mask) is not None:
        mask = semantic.to_tensor(mask)
        if mask.dtype is not int1:
            raise ValueError(f"Mask must have boolean scalar type, not {mask.dtype}")
    else:
        mask = None
    value, mask = fit_to_pointer(semantic, pointer, semantic.to_tensor(value), mask)
    value = semantic.cast(value, element)
    handle = semantic.builder.atomic_rmw(pointer.handle, value.handle, mask=mask and mask.handle, kind=kind, order=ordering(sem), scope=scope_of(scope))
    return semantic.wrap(handle, element)


def _target(pointer: Any, function: str) -> tuple[tensor, dtype]:
    if not isinstance(pointer, tensor) or not pointer.dtype.is_ptr():
        raise ValueError(f"Pointer argument of {function} is {getattr(pointer, 'type', pointer)}: it takes a pointer or a tensor of pointers")
    refuse_constant_pointer(pointer.dtype)
    return pointer, pointer.dtype.element_ty  # type: ignore[attr-defined]


_DETAILS = """

    Args:
        pointer: a pointer or a tensor of pointers.
        val: cast to the element type and broadcast to the pointers' shape.
        mask: ``int1``; masked-off lanes do nothing and give back an undefined value.
        sem: ``"acquire"``, ``"release"``, ``"acq_rel"`` (the default) or ``"relaxed"``.
        scope: who sees it in order: ``"gpu"`` (the device, the default), ``"cta"`` (this program) or ``"sys"``.

    Raises:
        ValueError: a constant pointer, an element type without this atomic, shapes that do not fit.
"""


@builtin
def atomic_add(pointer: Any, val: Any, mask: Any = None, sem: Any = None, scope: Any = None, _semantic: Any = None) -> tensor:
    """Add ``val`` at ``pointer`` as one step; gives back the old value. 32 and 64-bit integers, fp16, bf16, fp32, fp64."""
    return _update(_semantic, "add", pointer, val, mask, sem, scope)


@builtin
def atomic_max(pointer: Any, val: Any, mask: Any = None, sem: Any = None, scope: Any = None, _semantic: Any = None) -> tensor:
    """Put the greater value at ``pointer`` as one step; gives back the old one. 32 and 64-bit integers, fp32, fp64 (-0.0 is below 0.0)."""
    return _update(_semantic, "max", pointer, val, mask, sem, scope)


@builtin
def atomic_min(pointer: Any, val: Any, mask: Any = None, sem: Any = None, scope: Any = None, _semantic: Any = None) -> tensor:
    """Put the smaller value at ``pointer`` as one step; gives back the old one. 32 and 64-bit integers, fp32, fp64 (-0.0 is below 0.0)."""
    return _update(_semantic, "min", pointer, val, mask, sem, scope)


@builtin
def atomic_and(pointer: Any, val: Any, mask: Any = None, sem: Any = None, scope: Any = None, _semantic: Any = None) -> tensor:
    """Bitwise and of ``val`` into ``pointer`` as one step; gives back the old value. 32 and 64-bit integers."""
    return _update(_semantic, "and", pointer, val, mask, sem, scope)


@builtin
def atomic_or(pointer: Any, val: Any, mask: Any = None, sem: Any = None, scope: Any = None, _semantic: Any = None) -> tensor:
    """Bitwise or of ``val`` into ``pointer`` as one step; gives back the old value. 32 and 64-bit integers."""
    return _update(_semantic, "or", pointer, val, mask, sem, scope)


@builtin
def atomic_xor(pointer: Any, val: Any, mask: Any = None, sem: Any = None, scope: Any = None, _semantic: Any = None) -> tensor:
    """Bitwise exclusive or of ``val`` into ``pointer`` as one step; gives back the old value. 32 and 64-bit integers."""
    return _update(_semantic, "xor", pointer, val, mask, sem, scope)


@builtin
def atomic_xchg(pointer: Any, val: Any, mask: Any = None, sem: Any = None, scope: Any = None, _semantic: Any = None) -> tensor:
    """Put ``val`` at ``pointer`` as one step; gives back the old value. 32 and 64-bit integers, fp32, fp64."""
    return _update(_semantic, "xchg", pointer, val, mask, sem, scope)


for _fn in (atomic_add, atomic_max, atomic_min, atomic_and, atomic_or, atomic_xor, atomic_xchg):
    _fn.__doc__ = (_fn.__doc__ or "") + _DETAILS


@builtin
def atomic_cas(pointer: Any, cmp: Any, val: Any, sem: Any = None, scope: Any = None, _semantic: Any = None) -> tensor:
    """Where the value at ``pointer`` has the bits of ``cmp``, replace it by ``val``, as one step; gives back the old value.

    Elements of 16, 32 or 64 bits; there is no mask. ``sem`` and ``scope`` as in :func:`atomic_add`.

        old = tl.atomic_cas(lock, 0, 1)
    """
    pointer, element = _target(pointer, "atomic_cas")
    if element.primitive_bitwidth not in (16, 32, 64):
        raise ValueError(f"atomic_cas only supports elements with width {{16, 32, 64}}, not {element}")
    if not element.is_ptr():
        check_capability(_semantic, element, "cas", "atomic_cas")
    expected, _ = fit_to_pointer(_semantic, pointer, _semantic.to_tensor(cmp), None)
    value, _ = fit_to_pointer(_semantic, pointer, _semantic.to_tensor(val), None)
    expected, value = _semantic.cast(expected, element), _semantic.cast(value, element)
    handle = _semantic.builder.atomic_cas(pointer.handle, expected.handle, value.handle, order=ordering(sem), scope=scope_of(scope))
    return _semantic.wrap(handle, element)
