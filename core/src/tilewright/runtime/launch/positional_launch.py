"""``compiled[grid](*args)``: arguments by position, checked against the compiled signature."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tilewright.errors import LaunchError
from tilewright.plugins.manifest import Device
from tilewright.plugins.registry import registry
from tilewright.runtime.arguments.array_protocols import ArgumentError, ArrayKind
from tilewright.runtime.compiler.compile import Specialization
from tilewright.runtime.compiler.specialize import (
    SPECIALIZE,
    DescriptorKind,
    ScalarKind,
    constant_key,
)
from tilewright.runtime.devices.device_registry import why_unreachable

if TYPE_CHECKING:
    from tilewright.language.definitions.callable import FunctionParameter

#: Position of a runtime argument, including positions within tuples, and its conversion.
Converter = tuple[tuple[int, ...], Callable[[Any], Any] | None]

_FLOATS = ("fp", "bf")
_BOOLEANS = ("u1", "i1")
#: type of an integer argument by its value -> the types of parameters it may be passed to
_INTEGERS = {
    "i32": frozenset({"i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64"}),
    "i64": frozenset({"i64", "u32", "u64"}),
    "u64": frozenset({"u64"}),
    "constexpr": frozenset({"i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64"}),  # the number 1
}


def kinds_of(specialization: Specialization, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the kind of each argument; see ``specialize``.

    Raises:
        LaunchError: their number is wrong.
        ArgumentError: one is of a kind that kernels cannot take.
    """
    parameters: list[FunctionParameter] = specialization.fn.params
    if len(args) != len(parameters):
        names = ", ".join(parameter.name for parameter in parameters)
        raise LaunchError(
            f"{specialization.fn.__name__} takes {len(parameters)} arguments ({names}), not "
            f"{len(args)}"
        )
    return tuple(
        [
            constant_key(value) if parameter.is_constexpr else SPECIALIZE[type(value)](value)
            for parameter, value in zip(parameters, args, strict=True)
        ]
    )


def converters_of(
    specialization: Specialization, device: Device, kinds: tuple[Any, ...], args: tuple[Any, ...]
) -> list[Converter]:
    """Return the positions and conversions of the runtime values for arguments of these kinds.

    Raises:
        ArgumentError: the kernel was compiled for another type, device, alignment or constant.
    """
    check = _ArgumentCheck(specialization, device)
    for parameter, kind, value in zip(specialization.fn.params, kinds, args, strict=True):
        pointer = parameter.annotation_type.startswith("*")
        check.entry(
            (parameter.num,),
            parameter.name,
            specialization.signature[parameter.name],
            kind,
            value,
            pointer,
        )
    return check.converters


class _ArgumentCheck:
    def __init__(self, specialization: Specialization, device: Device) -> None:
        self.specialization, self.device = specialization, device
        self.converters: list[Converter] = []

    def entry(
        self,
        path: tuple[int, ...],
        name: str,
        type_: Any,
        kind: Any,
        value: Any,
        any_element: bool = False,
    ) -> None:
        """Check one argument, or one item of a tuple.

        ``any_element``: the parameter's annotation fixes the element type, whatever the array's is.
        """
        if isinstance(type_, tuple | list):
            if not isinstance(value, tuple) or len(value) != len(type_):
                raise self._refuse(name, f"a tuple of {len(type_)}", kind, value)
            for number, item in enumerate(value):
                self.entry(
                    (*path, number), f"{name}.{number}", type_[number], kind[number + 1], item
                )
            return
        if type_ == "constexpr":
            compiled = self.specialization.constants.get(name)
            if constant_key(compiled) != constant_key(value):
                raise self._refuse(name, f"the constant {compiled!r:.100}", kind, value)
            return
        divisible = True
        if isinstance(kind, ArrayKind):
            fits = type_.startswith("*") and (
                any_element or type_.removeprefix("*").removeprefix("k") == kind.dtype
            )
            place, convert, divisible = kind.device, kind.convert, kind.divisible
        elif isinstance(kind, DescriptorKind):
            fits, place, convert = type_ == kind.type, kind.base.device, None
        elif isinstance(kind, ScalarKind):
            fits, place, convert = (
                _fits(type_, kind, value),
                (self.device.kind, self.device.index),
                kind.convert,
            )
            divisible = kind.divisible
            if type_.startswith(_FLOATS):
                convert = None if type(value) is float else float
            elif type_ in _BOOLEANS:
                convert = None if type(value) is bool else bool
        else:
            raise self._refuse(name, type_, kind, value)
        if not fits:
            raise self._refuse(name, type_, kind, value)
        why = (
            ""
            if place is None
            else why_unreachable(registry().get(self.device.backend), self.device, place)
        )
        if place is None or why:
            where = "has no memory" if place is None else f"lies on {place[0]}:{place[1]}"
            away = f", which cannot access that memory ({why})" if why else ""
            raise ArgumentError(
                f"{self._kernel}: argument {name!r} {where}, and this kernel was compiled for "
                f"{self.device.kind}:{self.device.index}{away}"
            )
        wanted = self.specialization.attributes.get(name, {}).get("divisibility", 1)
        if wanted > 1 and not divisible:
            what = "the address" if type_.startswith("*") else "the value"
            raise ArgumentError(
                f"{self._kernel}: {what} of argument {name!r} is not divisible by {wanted}, which "
                "this kernel was compiled to rely on; launch the kernel itself, "
                f"{self._kernel}[grid](...), which compiles what is missing"
            )
        self.converters.append((path, convert))

    @property
    def _kernel(self) -> str:
        return self.specialization.fn.__name__

    def _refuse(self, name: str, wanted: str, kind: Any, value: Any) -> ArgumentError:
        given = (
            f"*{kind.dtype}"
            if isinstance(kind, ArrayKind)
            else kind.type
            if isinstance(kind, DescriptorKind)
            else f"{value!r:.100}"
        )
        return ArgumentError(
            f"{self._kernel}: argument {name!r} is {given}, and this kernel was compiled for "
            f"{wanted}; launch the kernel itself, {self._kernel}[grid](...), which compiles "
            "what is missing"
        )


def _fits(type_: str, kind: ScalarKind, value: Any) -> bool:
    if type_ in _BOOLEANS:
        return kind.type in ("u1", "i32", "constexpr") and value is not None
    if type_.startswith(_FLOATS):
        return kind.type.startswith(_FLOATS) or (kind.type in _INTEGERS and value is not None)
    return value is not None and type_ in _INTEGERS.get(kind.type, ())
