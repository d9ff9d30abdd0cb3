"""Dispatch of ``kernel[grid](...)``, ``compiled[grid](...)`` and ``warmup`` by native code.

A call that was made before is remembered in the form that the native dispatcher reads.

A call goes through a Python function, the binder's generated one, once (:mod:`.native_calls`). Then
its arguments' kinds are written down as conditions that native code checks
(:mod:`tilewright.llvm.native.dispatch_entries`). Tuples of arguments, objects of other libraries
and constants that may change keep to the Python function.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from tilewright.runtime.arguments.array_protocols import ALIGNMENT, ArrayKind
from tilewright.runtime.arguments.descriptor import TensorDescriptor
from tilewright.runtime.arguments.dtypes import ITEM_SIZE
from tilewright.runtime.arguments.mock_tensors import MockTensor
from tilewright.runtime.compiler import specialize
from tilewright.runtime.devices import backend_choice
from tilewright.runtime.hooks import hooks
from tilewright.runtime.launch.constant_checks import constant_checks
from tilewright.runtime.launch.native_calls import NativeCalls, UnsuitedError

if TYPE_CHECKING:
    from tilewright.language.definitions.callable import FunctionParameter, JitCallable
    from tilewright.llvm.native.dispatch_entries import Check

#: The ranges of the integer kinds. The second kind of i64 has the numbers above those of i32, the
#: first the ones below.
_INT32, _INT64 = (-(2**31), 2**31 - 1), (-(2**63), 2**63 - 1)


class Known(NamedTuple):
    """A completed call, described for replay in terms of its arguments.

    Attributes:
        bound: the arguments in parameter order.
        kinds: their kinds; see ``specialize``.
        options: the keywords other than parameters.
        launcher: called with grid, stream and values.
        kernel: the result of the call.
        converters: for each of the launcher's values, its position in ``bound`` and its conversion.
    """

    bound: tuple[Any, ...]
    kinds: tuple[Any, ...]
    options: Mapping[str, Any]
    launcher: Callable[..., Any]
    kernel: Any
    converters: Sequence[tuple[tuple[int, ...], Callable[[Any], Any] | None]]


class Dispatcher(NativeCalls):
    """Native dispatcher of one kernel's calls."""

    symbol = "dispatch"
    first_sets_up = True

    def __init__(
        self,
        kernel: JitCallable,
        python: Callable[..., Any],
        find: Callable[[tuple[Any, ...], dict[str, Any]], Known | None],
    ) -> None:
        """Begin.

        Args:
            python: performs a call in Python.
            find: describes a call by its arguments and keywords once ``python`` has made it; None
                where it cannot be replayed.
        """
        super().__init__(kernel.__name__, python)
        self._kernel, self._find = kernel, find

    def bound(self) -> tuple[Any, ...]:
        return (
            self._through_python,
            backend_choice.current,
            hooks.launch_enter.calls,
            hooks.launch_exit.calls,
            self._entries,
        )

    def learn(self, args: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        entry = self._entry(args, keywords)
        # else it was not started natively for another reason
        if not any(entry[:4] == other[:4] for other in self._entries[0]):
            self.keep(entry)

    def _entry(self, args: tuple[Any, ...], keywords: dict[str, Any]) -> tuple[Any, ...]:
        """Make the dispatcher's entry for a launch that was just made.

        Raises:
            UnsuitedError: it cannot be described.
        """
        from tilewright.llvm.native.dispatch_entries import (
            DEFAULT,
            MAX_ARGUMENTS,
            Check,
            CheckKind,
            table,
        )

        params = self._kernel.params
        given = 1 + len(args) + len(keywords)
        if given > MAX_ARGUMENTS or any(parameter.variadic for parameter in params):
            raise UnsuitedError
        known = self._find(args, keywords)
        if known is None:
            raise UnsuitedError
        choice = backend_choice.current.get()
        by_keyword = {name: 1 + len(args) + position for position, name in enumerate(keywords)}
        checks: list[Check] = []
        sources: list[int] = []
        defaults: list[Any] = []
        keep: list[Any] = []
        for parameter, kind, value in zip(params, known.kinds, known.bound, strict=True):
            source = (
                1 + parameter.num if parameter.num < len(args) else by_keyword.get(parameter.name)
            )
            found = _checks(source or 0, parameter, kind, value, keep)
            if source is not None:
                checks += found
                sources.append(source)
            else:  # the object is the same; what it refers to may mean something else
                checks += [check for check in found if check.condition == CheckKind.GLOBAL]
                sources.append(DEFAULT | len(defaults))
                defaults.append(value)
        for name, value in known.options.items():
            checks += constant_checks(by_keyword[name], value, keep)
            sources.append(by_keyword[name])
        for (name, _), (value, namespace) in self._kernel.used_global_vals.items():
            if type(namespace) is not dict:
                raise UnsuitedError
            keep += [namespace, name, value]
            checks.append(Check(CheckKind.GLOBAL, 0, id(namespace), id(name), id(value)))
        values = []
        for path, convert in known.converters:
            if len(path) != 1 or convert is not None:
                raise UnsuitedError
            values.append(sources[path[0]])
        names = (*(parameter.name for parameter in params), *known.options)
        conditions = table(given, len(keywords), checks, values, sources)
        return (
            conditions,
            known.launcher,
            known.kernel,
            tuple(keywords),
            names,
            tuple(defaults),
            choice,
            tuple(keep),
        )


def _checks(
    source: int, parameter: FunctionParameter, kind: Any, value: Any, keep: list[Any]
) -> list[Check]:
    """Return the native conditions that an argument is of a kind.

    Raises:
        UnsuitedError: native code cannot tell.
    """
    if parameter.is_constexpr or isinstance(kind, specialize.ConstantKind):
        return constant_checks(source, value, keep)
    return [_check(source, parameter, kind, value, keep)]


def _check(
    source: int, parameter: FunctionParameter, kind: Any, value: Any, keep: list[Any]
) -> Check:
    """Return the native condition that a non-constant argument is of a kind."""
    from tilewright.llvm.native.dispatch_entries import Check, CheckKind, Divisibility

    specialized = not parameter.do_not_specialize
    aligned = specialized and not parameter.do_not_specialize_on_alignment
    type_ = type(value)
    if isinstance(kind, ArrayKind):
        if type(value) is MockTensor and value.given is not None:
            keep.append(value.given)
            return Check(CheckKind.OBJECT, source, id(value.given))
        if kind.convert is not None or kind.device is None:
            raise UnsuitedError
        alignment = (
            (Divisibility.DIVISIBLE if kind.divisible else Divisibility.INDIVISIBLE)
            if aligned
            else Divisibility.ANY
        )
        return array_check(source, value, alignment, keep)
    if isinstance(kind, specialize.DescriptorKind):
        return _descriptor_check(source, kind, value, keep)
    if isinstance(kind, specialize.ScalarKind) and kind.convert is None:
        if type_ is int:
            if kind is specialize.ONE:
                return Check(CheckKind.INTEGER, source, 1, 1, 0, Divisibility.ANY)
            low, high = _range_of(value)
            alignment = (
                (Divisibility.INDIVISIBLE if value & 15 else Divisibility.DIVISIBLE)
                if aligned
                else Divisibility.ANY
            )
            # a number out of range excludes nothing
            excluded = (
                1 if specialized and low <= 1 <= high else low - 1 if low > _INT64[0] else high + 1
            )
            return Check(CheckKind.INTEGER, source, low, high, excluded, alignment)
        if value is None:
            return Check(CheckKind.OBJECT, source, id(None))
        if type_ in (bool, float):
            return Check(CheckKind.TYPE, source, id(type_))
    raise UnsuitedError


def _range_of(value: int) -> tuple[int, int]:
    """Return the range of integers that are passed as the same type as ``value``."""
    if _INT32[0] <= value <= _INT32[1]:
        return _INT32
    if _INT32[1] < value <= _INT64[1]:
        return _INT32[1] + 1, _INT64[1]
    if _INT64[0] <= value < _INT32[0]:
        return _INT64[0], _INT32[0] - 1
    raise UnsuitedError


def array_check(source: int, value: Any, alignment: int, keep: list[Any]) -> Check:
    """Return the native condition on an array's type, element type, device and alignment.

    Raises:
        UnsuitedError: native code cannot tell.
    """
    import numpy as np

    from tilewright.llvm.native import native_functions
    from tilewright.llvm.native.dispatch_entries import Check, CheckKind

    if type(value) is np.ndarray:
        keep.append(value.dtype)
        return Check(CheckKind.ARRAY, source, 0, id(value.dtype), 0, alignment)
    facts = native_functions.tensor_facts(value)
    if facts is None:
        raise UnsuitedError
    keep.append(type(value))
    packed = (facts.dtype & 0xFFFFFFFF) | (facts.device_kind & 0x7FFFFFFF) << 32
    return Check(CheckKind.TENSOR, source, id(type(value)), packed, facts.device_index, alignment)


def _descriptor_check(
    source: int, kind: specialize.DescriptorKind, value: Any, keep: list[Any]
) -> Check:
    from tilewright.llvm.native.dispatch_entries import Check, CheckKind, Described, Divisibility

    def alignment(divisible: bool) -> Divisibility:
        return Divisibility.DIVISIBLE if divisible else Divisibility.INDIVISIBLE

    if (
        kind.base.convert is not None
        or kind.base.device is None
        or type(value) is not TensorDescriptor
        or any(type(n) is not int for n in value.block_shape)
    ):
        raise UnsuitedError
    base = array_check(source, value.base, alignment(kind.base.divisible), keep)
    blocks, divisor = (
        list(value.block_shape),
        ALIGNMENT // math.gcd(ALIGNMENT, ITEM_SIZE[kind.base.dtype]),
    )
    wanted = Described(
        id(TensorDescriptor),
        id(blocks),
        id(value.padding),
        divisor,
        alignment(kind.whole_rows),
        base,
    )
    keep += [blocks, value.padding, wanted]
    return Check(CheckKind.DESCRIPTOR, source, ctypes.addressof(wanted))
