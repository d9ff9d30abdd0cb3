"""Specialization keys: argument values -> hashable kinds -> the frontend's signature.

The rules (section 5 of the language): an int 1 and None become constants; other ints are i32, i64
or u64 by size, with divisibility by 16 noted; bools are u1; floats are fp32, or fp64 where all they
meet is (:mod:`tilewright.runtime.arguments.float_arguments`), NumPy's floats what they are; arrays
are pointers to their element type, with an address divisible by 16 noted; tuples nest; functions of
the language become constants.

The *kind* of an argument, its specialization key, is a :class:`ScalarKind`, an ``ArrayKind``, a
:class:`DescriptorKind`, a tuple (type, kinds...) for a tuple, or a result of :func:`constant_key`.
Kinds are hashable, and equal kinds compile to the same code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tilewright.runtime.arguments.array_protocols import (
    ALIGNMENT,
    ArgumentError,
    ArrayKind,
    array_kind,
    describe_instance,
    describers,
    is_array_type,
)
from tilewright.runtime.arguments.descriptor import TensorDescriptor
from tilewright.runtime.arguments.dtypes import ITEM_SIZE
from tilewright.runtime.arguments.float_arguments import UNTYPED

if TYPE_CHECKING:
    from tilewright.language.definitions.callable import FunctionParameter


class IntegerRangeError(ArgumentError, OverflowError):
    """An integer argument does not fit 64 bits."""


class ScalarKind:
    """A number, compared by identity.

    ``type`` is signature text, ``"constexpr"`` for a value that becomes a constant.

    ``convert`` converts the caller's value to the launcher's; None where it is the object itself.
    """

    __slots__ = ("convert", "divisible", "type")

    def __init__(
        self, type_: str, divisible: bool = False, convert: Callable[[Any], Any] | None = None
    ) -> None:
        self.type, self.divisible, self.convert = type_, divisible, convert

    def __repr__(self) -> str:
        return f"<{self.type}{' divisible' if self.divisible else ''}>"


class DescriptorKind:
    """A host-side tensor descriptor; interned, compared by identity.

    ``whole_rows``: the last extent is a multiple of 16 bytes.
    """

    __slots__ = ("base", "padding", "type", "whole_rows")
    _interned: dict[tuple[ArrayKind, str, str, bool], DescriptorKind] = {}  # noqa: RUF012
    base: ArrayKind
    type: str
    padding: str
    whole_rows: bool

    def __new__(cls, base: ArrayKind, type_: str, padding: str, whole_rows: bool) -> DescriptorKind:
        key = (base, type_, padding, whole_rows)
        self = cls._interned.get(key)
        if self is None:
            self = object.__new__(cls)
            self.base, self.type, self.padding, self.whole_rows = key
            self = cls._interned.setdefault(key, self)
        return self


ONE = ScalarKind("constexpr")
NONE = ScalarKind("constexpr")
BOOL = ScalarKind("u1")
FLOAT = ScalarKind("fp32")
#: A Python float that is always fp32, whatever types it is combined with.
PLAIN_FLOAT = ScalarKind("fp32")
NUMPY_FLOATS = {
    name: ScalarKind(type_, convert=float)
    for name, type_ in (
        ("float16", "fp16"),
        ("bfloat16", "bf16"),
        ("float32", "fp32"),
        ("float64", "fp64"),
    )
}
I32, I64, U64 = (ScalarKind(type_) for type_ in ("i32", "i64", "u64"))
I32_DIVISIBLE, I64_DIVISIBLE, U64_DIVISIBLE = (
    ScalarKind(type_, True) for type_ in ("i32", "i64", "u64")
)


def _integer_kind(value: int) -> ScalarKind:
    if value == 1:
        return ONE
    if -0x80000000 <= value <= 0x7FFFFFFF:
        return I32 if value & 15 else I32_DIVISIBLE
    if -0x8000000000000000 <= value <= 0x7FFFFFFFFFFFFFFF:
        return I64 if value & 15 else I64_DIVISIBLE
    if 0 <= value <= 0xFFFFFFFFFFFFFFFF:
        return U64 if value & 15 else U64_DIVISIBLE
    raise IntegerRangeError(
        f"an integer of {value.bit_length()} bits, {_shortened(value)}, does not fit 64 bits"
    )


def _integer_kind_unaligned(value: int) -> ScalarKind:
    return ONE if value == 1 else _integer_kind_plain(value)


def _integer_kind_plain(value: int) -> ScalarKind:
    if -0x80000000 <= value <= 0x7FFFFFFF:
        return I32
    if -0x8000000000000000 <= value <= 0x7FFFFFFFFFFFFFFF:
        return I64
    if 0 <= value <= 0xFFFFFFFFFFFFFFFF:
        return U64
    raise IntegerRangeError(
        f"an integer of {value.bit_length()} bits, {_shortened(value)}, does not fit 64 bits"
    )


def _shortened(value: int) -> str:
    return str(value) if value.bit_length() < 200 else f"{value:#x}"[:20] + "..."


def _bool_kind(value: bool) -> ScalarKind:
    return BOOL


def _float_kind(value: float) -> ScalarKind:
    return FLOAT


def _numpy_float_kind(type_: type) -> Callable[[Any], ScalarKind]:
    """Return the kind function of a NumPy float type; types wider than fp64 are passed as fp64."""
    found = NUMPY_FLOATS.get(type_.__name__, NUMPY_FLOATS["float64"])
    return lambda value: found


def of_one_float(kind: Any) -> Any:
    """Replace the kind of every float by fp32, as Triton passes them."""
    if isinstance(kind, tuple):
        return tuple(map(of_one_float, kind))
    if kind is FLOAT:
        return PLAIN_FLOAT
    return (
        NUMPY_FLOATS["float32"]
        if isinstance(kind, ScalarKind) and kind.type in ("fp16", "bf16", "fp64")
        else kind
    )


def _none_kind(value: None) -> ScalarKind:
    return NONE


def _converted(
    function: Callable[[Any], ScalarKind], convert: Callable[[Any], Any]
) -> Callable[[Any], ScalarKind]:
    """Return the kind function of ``convert(value)``; its kinds record ``convert``."""
    marked: dict[ScalarKind, ScalarKind] = {}

    def kind(value: Any) -> ScalarKind:
        plain = function(convert(value))
        found = marked.get(plain)
        if found is None:
            found = marked.setdefault(
                plain, plain if plain is ONE else ScalarKind(plain.type, plain.divisible, convert)
            )
        return found

    return kind


def _unaligned(describe: Callable[[Any], ArrayKind]) -> Callable[[Any], ArrayKind]:
    plain: dict[ArrayKind, ArrayKind] = {}

    def kind(value: Any) -> ArrayKind:
        found = describe(value)
        other = plain.get(found)
        if other is None:
            other = plain[found] = ArrayKind(found.dtype, False, found.device, found.convert)
        return other

    return kind


def _descriptor_kind(value: TensorDescriptor) -> DescriptorKind:
    base = array_kind(value.base)
    whole_rows = value.shape[-1] * ITEM_SIZE[base.dtype] % ALIGNMENT == 0
    return DescriptorKind(
        base,
        f"tensordesc<{base.dtype}[{','.join(map(str, value.block_shape))}]>",
        value.padding,
        whole_rows,
    )


class Specializer(dict[type, Callable[[Any], Any]]):
    """Type of argument -> function that returns its kind.

    ``specialize`` false: no constants of 1, no divisibility; ``align`` false: no divisibility.
    """

    def __init__(self, specialize: bool = True, align: bool = True) -> None:
        self.specialize, self.align = specialize, align and specialize
        self.integer = (
            _integer_kind
            if self.align
            else _integer_kind_unaligned
            if specialize
            else _integer_kind_plain
        )
        super().__init__(
            {
                int: self.integer,
                bool: _bool_kind,
                float: _float_kind,
                type(None): _none_kind,
                tuple: self._tuple_kind,
            }
        )
        self[TensorDescriptor] = _descriptor_kind

    def __missing__(self, type_: type) -> Callable[[Any], Any]:
        found = self._find(type_)
        self[type_] = found
        return found

    def _find(self, type_: type) -> Callable[[Any], Any]:
        if issubclass(type_, TensorDescriptor):
            return _descriptor_kind
        if is_array_type(type_):
            describe = describers[type_]
            return describe if self.align else _unaligned(describe)
        if issubclass(type_, tuple):
            return self._tuple_kind
        if issubclass(type_, bool):
            return _bool_kind
        if issubclass(type_, int):
            return self.integer
        if is_numpy_scalar(type_):
            import numpy as np

            if issubclass(type_, np.bool_):
                return _converted(_bool_kind, bool)
            if issubclass(type_, np.integer):
                return _converted(self.integer, int)
            if issubclass(type_, np.floating) or type_.__name__ == "bfloat16":
                return _numpy_float_kind(type_)
        if issubclass(type_, float):
            return _float_kind
        return constant_key if _is_language_constant(type_) else self._instance_kind

    def _instance_kind(self, value: Any) -> ArrayKind:
        """Return the kind of an object of unknown type that implements an array protocol itself."""
        found = describe_instance(value)
        if found is None:
            raise _unsupported(type(value))
        return found if self.align else ArrayKind(found.dtype, False, found.device, found.convert)

    def _tuple_kind(self, value: tuple[Any, ...]) -> tuple[Any, ...]:
        return (type(value), *[self[type(item)](item) for item in value])


def is_numpy_scalar(type_: type) -> bool:
    """Return whether a type is one of NumPy's scalar types."""
    return any(base.__module__ == "numpy" and base.__name__ == "generic" for base in type_.__mro__)


def _is_language_constant(type_: type) -> bool:
    """Return whether a value is always passed as a constant.

    These are functions of the language, constexpr functions and explicit constexpr values.
    """
    return hasattr(type_, "cache_key") or any(
        base.__name__ in ("constexpr", "JitCallable", "ConstexprFunction") for base in type_.__mro__
    )


def _unsupported(type_: type) -> ArgumentError:
    name = (
        type_.__qualname__
        if type_.__module__ == "builtins"
        else f"{type_.__module__}.{type_.__qualname__}"
    )
    return ArgumentError(
        f"Unsupported type {name} of a kernel argument: pass numbers, None, tuples of arguments, "
        "arrays (NumPy, PyTorch, DLPack, the array interfaces) or tensor descriptors, or annotate "
        "the parameter as tl.constexpr to make the value a constant"
    )


@dataclass(frozen=True, slots=True)
class ConstantKind:
    """Kind of a value that is a constant of the compiled code.

    ``key`` distinguishes values that Python's ``==`` does not (1, 1.0 and True; 0.0 and -0.0).
    """

    type: type
    key: Any


def constant_key(value: Any) -> Any:
    """Return a hashable that is equal for two values exactly when they are the same constant.

    Raises:
        ArgumentError: the value is not hashable.
    """
    type_ = type(value)
    if type_ is int or type_ is str or value is None:
        return value
    if type_ is float:
        return ConstantKind(float, value.hex())
    if isinstance(value, tuple | list):
        return ConstantKind(type_, tuple([constant_key(item) for item in value]))
    key = getattr(value, "cache_key", None)
    if isinstance(key, str):
        return ConstantKind(type_, key)
    if type_.__name__ == "constexpr" and hasattr(value, "value"):
        return constant_key(value.value)
    try:
        hash(value)
    except TypeError:
        raise ArgumentError(
            f"a constexpr argument must be hashable, and a {type_.__qualname__} is not: "
            f"{_start_of(value)}. Pass a tuple or a frozen dataclass"
        ) from None
    if is_array_type(type_):  # some hash by identity, independently of their elements
        raise ArgumentError(
            f"a constexpr argument must be a constant, and a {type_.__qualname__} is an array: "
            f"{_start_of(value)}. Pass a tuple of its elements"
        )
    return ConstantKind(type_, value)


def _start_of(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:200]}..."


SPECIALIZE = Specializer()
SPECIALIZE_UNALIGNED = Specializer(align=False)
DO_NOT_SPECIALIZE = Specializer(specialize=False)


def specializer(specialize: bool, align: bool) -> Specializer:
    """Return the specializer for a parameter's flags."""
    return DO_NOT_SPECIALIZE if not specialize else SPECIALIZE if align else SPECIALIZE_UNALIGNED


# ---- from kinds to what the frontend takes


@dataclass
class Signature:
    """The arguments of :func:`compile_function` for one specialisation.

    Attributes:
        types: parameter -> signature text, nested tuples for tuples.
        constants: name -> value of each ``constexpr`` entry; a tuple's items are named ``t.0``.
        attributes: name -> facts of each runtime entry that has any.
        devices: every (kind, index) that an array lies on -> the first parameter whose array does,
            in the order of the parameters.
        stand_ins: entries whose argument is a mock array without memory.
        converters: for each runtime argument, flattened in order: (path of positions, conversion or
            None).
    """

    types: dict[str, Any] = field(default_factory=dict)
    constants: dict[str, Any] = field(default_factory=dict)
    attributes: dict[str, dict[str, Any]] = field(default_factory=dict)
    devices: dict[tuple[str, int], str] = field(default_factory=dict)
    stand_ins: list[str] = field(default_factory=list)
    converters: list[tuple[tuple[int, ...], Callable[[Any], Any] | None]] = field(
        default_factory=list
    )

    @classmethod
    def of(
        cls, parameters: Iterable[FunctionParameter], kinds: Iterable[Any], values: Iterable[Any]
    ) -> Signature:
        """Make the signature of a launch from the bound arguments and their kinds."""
        found = cls()
        for parameter, kind, value in zip(parameters, kinds, values, strict=True):
            if parameter.is_constexpr:
                found.add_constant(parameter.name, value)
            else:
                found.add(
                    parameter.num,
                    parameter.name,
                    kind,
                    value,
                    parameter.annotation_type or None,
                    parameter.is_const,
                )
        return found

    def add(
        self,
        position: int,
        name: str,
        kind: Any,
        value: Any,
        annotation: str | None = None,
        const: bool = False,
    ) -> None:
        """Add a parameter's argument.

        ``annotation`` is the type its annotation fixes; ``const`` makes pointers point to
        constants.
        """
        self.types[name] = self._entry((position,), name, kind, value, annotation, const)

    def add_constant(self, name: str, value: Any) -> None:
        """Add a parameter that is declared constexpr."""
        self.types[name] = "constexpr"
        self.constants[name] = unwrap(value)

    def _entry(
        self,
        path: tuple[int, ...],
        name: str,
        kind: Any,
        value: Any,
        annotation: str | None,
        const: bool,
    ) -> Any:
        if isinstance(kind, ArrayKind):
            self._place(name, kind)
            self._runtime(path, name, kind.divisible, kind.convert)
            return (
                annotation
                if annotation and annotation.startswith("*")
                else f"*{'k' if const else ''}{kind.dtype}"
            )
        if isinstance(kind, DescriptorKind):
            self._place(name, kind.base)
            self._runtime(path, name, True, None)
            if kind.padding != "zero":
                self.attributes[name]["padding"] = kind.padding
            if kind.whole_rows:
                self.attributes[name]["extent_divisibility"] = (
                    ALIGNMENT // ITEM_SIZE[kind.base.dtype]
                )
            return kind.type
        if isinstance(kind, ScalarKind):
            if kind.type == "constexpr" and (annotation is None or value is None):
                self.constants[name] = value
                return "constexpr"
            if annotation is not None:
                return self._annotated(path, name, kind, value, annotation)
            self._runtime(path, name, kind.divisible, kind.convert)
            if kind is FLOAT:
                self.attributes[name] = {UNTYPED: 1}
            return kind.type
        if isinstance(kind, tuple) and isinstance(value, tuple):
            items = [
                self._entry((*path, i), f"{name}.{i}", kind[i + 1], item, None, const)
                for i, item in enumerate(value)
            ]
            return type(value)(*items) if hasattr(type(value), "_fields") else tuple(items)
        self.constants[name] = unwrap(value)
        return "constexpr"

    def _place(self, name: str, kind: ArrayKind) -> None:
        if kind.device is None:
            self.stand_ins.append(name)
        else:
            self.devices.setdefault(kind.device, name)

    def _annotated(
        self, path: tuple[int, ...], name: str, kind: ScalarKind, value: Any, annotation: str
    ) -> str:
        """Add a number whose type the parameter's annotation fixes.

        Floats and booleans are not specialized; ints keep their divisibility.
        """
        convert = kind.convert
        if annotation.startswith(("fp", "bf")):
            convert = float if not isinstance(value, float) or convert else None
        elif annotation not in ("u1", "i1") and isinstance(value, float):
            raise ArgumentError(
                f"parameter {name!r} is annotated {annotation}, and {value!r} is a float"
            )
        elif annotation in ("u1", "i1"):
            convert = bool
        divisible = kind.divisible and annotation[0] in "iu" and annotation not in ("u1", "i1")
        self._runtime(path, name, divisible, convert)
        return annotation

    def _runtime(
        self,
        path: tuple[int, ...],
        name: str,
        divisible: bool,
        convert: Callable[[Any], Any] | None,
    ) -> None:
        self.converters.append((path, convert))
        if divisible:
            self.attributes[name] = {"divisibility": ALIGNMENT}


def unwrap(value: Any) -> Any:
    """Return the Python value inside a constexpr; other values unchanged."""
    while type(value).__name__ == "constexpr" and hasattr(value, "value"):
        value = value.value
    return value


def value_picker(
    converters: Sequence[tuple[tuple[int, ...], Callable[[Any], Any] | None]],
) -> Callable[[tuple[Any, ...]], tuple[Any, ...]]:
    """Generate the function from bound arguments to runtime values.

    Arguments are in parameter order, values in the order of the IR function's arguments.
    """
    names: dict[str, Any] = {}
    items = []
    for number, (path, convert) in enumerate(converters):
        text = "a" + "".join(f"[{position}]" for position in path)
        if convert is not None:
            names[f"c{number}"] = convert
            text = f"c{number}({text})"
        items.append(text)
    source = f"lambda a: ({', '.join(items)}{',' if len(items) == 1 else ''})"
    picker: Callable[[tuple[Any, ...]], tuple[Any, ...]] = eval(source, dict(names))
    return picker


def attribute_facts(attributes: Mapping[str, Mapping[str, Any]]) -> str:
    """Format attributes as a stable text for cache keys."""
    return ";".join(
        f"{name}:{','.join(f'{key}={value}' for key, value in sorted(facts.items()))}"
        for name, facts in sorted(attributes.items())
    )
