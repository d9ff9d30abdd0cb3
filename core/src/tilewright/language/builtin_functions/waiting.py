"""Waits for memory to hold a value."""

from __future__ import annotations

from typing import Any

from tilewright.language.binding import builtin
from tilewright.language.builtin_functions.atomics import LOAD_ORDERS, ordering, pointer_and_element
from tilewright.language.builtin_functions.memory import fit_to_pointer
from tilewright.language.builtin_functions.polling import poll
from tilewright.language.value_types.dtypes import uint64
from tilewright.language.value_types.tensors import tensor
from tilewright.language.value_types.values import constexpr, unwrap_if_constexpr


@builtin
def atomic_poll(
    pointer: Any,
    expected_value: Any,
    sem: Any = None,
    scope: Any = None,
    timeout_ns: Any = None,
    _semantic: Any = None,
) -> tensor:
    """Wait until memory has an expected value, by reading it repeatedly.

    Args:
        pointer: a pointer or a tensor of pointers, as for :func:`atomic_load`. For a tensor, the
            function waits until it has seen the expected value of each element at least once.
        expected_value: the value to wait for, cast to the element type and broadcast to the
            pointers' shape.
        sem: ``"acquire"`` (the default) or ``"relaxed"``.
        scope: which threads the memory ordering includes: ``"gpu"`` (those of the device, the
            default), ``"cta"`` (those of this program instance) or ``"sys"`` (those of the whole
            system).
        timeout_ns: the time limit in nanoseconds, an integer of at least 0. Memory is read at least
            once. None sets no limit.

    Returns:
        An ``int1`` tensor of the pointers' shape. An element is true if its memory had the expected
        value before ``timeout_ns`` nanoseconds were over.

    Raises:
        ValueError: ``sem`` has another value, the time limit is negative, or shapes do not match.

    Example:
        there = tl.atomic_poll(lock_ptr, 0, timeout_ns=1000)
    """
    pointer, element = pointer_and_element(pointer, "atomic_poll", writes=False)
    ordering(sem, LOAD_ORDERS)
    expected, _ = fit_to_pointer(_semantic, pointer, _semantic.to_tensor(expected_value), None)
    limit = _semantic.number(timeout_ns)
    if limit is not None and limit < 0:
        raise ValueError(f"timeout_ns of atomic_poll must not be negative, got {limit}")
    timed = unwrap_if_constexpr(timeout_ns) is not None
    timeout = _semantic.to_tensor(timeout_ns if timed else 0)
    if timeout.extents or not timeout.dtype.is_int():
        raise ValueError(f"timeout_ns of atomic_poll must be an integer scalar, got {timeout}")
    arguments = (
        pointer,
        _semantic.cast(expected, element),
        _semantic.cast(timeout, uint64),
        constexpr(timed),
        constexpr(sem),
        constexpr(scope),
    )
    return _semantic.generator.call(poll, arguments, {})
