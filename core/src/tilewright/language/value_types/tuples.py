"""Tuples in kernels: literals, returns and arguments of several values, namedtuples; and slices."""

from __future__ import annotations

import builtins
from collections.abc import Iterator, Sequence
from typing import Any

from tilewright import ir
from tilewright.errors import helped
from tilewright.ir import types as ir_types
from tilewright.language.value_types.base_classes import base_type, base_value
from tilewright.language.value_types.values import constexpr, unwrap_if_constexpr


class tuple_type(base_type):  # noqa: N801
    """The type of a tuple: the types of its items, and their names if it came from a namedtuple."""

    __slots__ = ("fields", "types")

    def __init__(self, types: Sequence[base_type], fields: Sequence[str] | None = None) -> None:
        self.types: list[base_type] = list(types)
        self.fields: list[str] | None = list(fields) if fields is not None else None

    @property
    def name(self) -> str:
        if self.fields is None:
            return f"[{','.join(map(str, self.types))}]"
        named = zip(self.fields, self.types, strict=True)
        return f"[{','.join(f'{field}:{type_}' for field, type_ in named)}]"

    def flatten(self) -> list[ir_types.Type]:
        return [flat for type_ in self.types for flat in type_.flatten()]

    def unflatten(self, values: Iterator[ir.Value]) -> tuple:
        return tuple([type_.unflatten(values) for type_ in self.types], self)

    def mangle(self) -> str:
        return f"T{'_'.join(type_.mangle() for type_ in self.types)}T"

    def __iter__(self) -> Iterator[base_type]:
        return iter(self.types)

    def __len__(self) -> int:
        return len(self.types)

    def __getitem__(self, index: int) -> base_type:
        return self.types[index]

    def __eq__(self, other: object) -> bool:
        return self is other or (
            isinstance(other, tuple_type)
            and self.types == other.types
            and self.fields == other.fields
        )

    def __hash__(self) -> int:
        return hash(builtins.tuple(self.types))

    def __repr__(self) -> str:
        return f"tuple_type{self.name}"

    def __str__(self) -> str:
        return self.name


class tuple(base_value):  # noqa: N801
    """A tuple of values, which counts as one value.


    Items that are no values of a kernel become constexprs; Python's tuples and lists become tuples.

        t = (x, 3, BLOCK)        # len(t), t[0], t[1:], t + u, t * 2, t == u, f(*t)
        p = Point(x, y)          # a namedtuple: p.x

    Args:
        args: the items.
        type: their type, where the caller knows it; it names the fields.
    """

    __slots__ = ("_type", "values")

    def __init__(self, args: Sequence[Any], type: tuple_type | None = None) -> None:
        self.values: list[Any] = [to_value(item) for item in args]
        if type is None and hasattr(args, "_fields"):
            type = tuple_type([item.type for item in self.values], args._fields)
        self._type = type

    @property
    def type(self) -> tuple_type:
        if self._type is None:
            self._type = tuple_type([item.type for item in self.values])
        return self._type

    @property
    def fields(self) -> list[str] | None:
        return self._type.fields if self._type is not None else None

    def flatten(self) -> list[ir.Value]:
        return [flat for item in self.values for flat in item.flatten()]

    def _unwrapped(self, _: Any) -> tuple:
        return self

    def _with_fields(self, values: Sequence[Any]) -> tuple:
        """A tuple of other values with the same field names."""
        if self.fields is None:
            return tuple(values)
        made = tuple(values)
        return tuple(made.values, tuple_type([item.type for item in made.values], self.fields))

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return tuple(self.values[index.to_python()])
        if isinstance(index, builtins.slice):
            parts = (unwrap_if_constexpr(part) for part in (index.start, index.stop, index.step))
            return tuple(self.values[builtins.slice(*parts)])
        plain = unwrap_if_constexpr(index)
        if not isinstance(plain, int):
            raise TypeError(f"a tuple is indexed by a constexpr integer or slice, not by {index!r}")
        try:
            return self.values[plain]
        except IndexError:
            error = IndexError(f"index {plain} is out of range of a tuple of {len(self.values)}")
            if not self.values:
                helped(
                    error,
                    "a scalar or pointer has the shape (): pass the sizes of an array as arguments "
                    "of the kernel",
                )
            raise error from None

    def __getattr__(self, name: str) -> Any:
        fields = self.fields if not name.startswith("_") else None
        if fields is not None and name in fields:
            return self.values[fields.index(name)]
        raise AttributeError(
            f"tuple has no field {name!r}"
            + (f"; its fields are {', '.join(fields)}" if fields else "")
        )

    def __len__(self) -> int:
        return len(self.values)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.values)

    def __add__(self, other: Any) -> tuple:
        other = unwrap_if_constexpr(other)
        if not isinstance(other, tuple | builtins.tuple | list):
            return NotImplemented
        return tuple([*self.values, *other])

    def __radd__(self, other: Any) -> tuple:
        return tuple([*other, *self.values])

    def __mul__(self, other: Any) -> tuple:
        count = unwrap_if_constexpr(other)
        if not isinstance(count, int):
            raise TypeError(f"a tuple is repeated by a constexpr integer, not by {other!r}")
        return tuple(self.values * count)

    __rmul__ = __mul__

    def __eq__(self, other: Any) -> Any:
        if not isinstance(other, tuple | builtins.tuple | list):
            return constexpr(False)
        theirs = list(other)
        if len(self.values) != len(theirs):
            return constexpr(False)
        return constexpr(
            all(_same(mine, his) for mine, his in zip(self.values, theirs, strict=True))
        )

    def __ne__(self, other: Any) -> Any:
        return constexpr(not (self == other).value)

    def __hash__(self) -> int:
        return hash(builtins.tuple(self.values))

    def __repr__(self) -> str:
        return f"({', '.join(map(repr, self.values))}{',' if len(self.values) == 1 else ''})"


def _same(a: Any, b: Any) -> bool:
    """Equality of two items at compile time; tensors are equal where they are one value."""
    from tilewright.language.value_types.tensors import tensor

    if isinstance(a, tensor) or isinstance(b, tensor):
        return isinstance(a, tensor) and isinstance(b, tensor) and a.handle is b.handle
    return bool(a == b)


def to_value(item: Any) -> Any:
    """``item`` as a value of a kernel: itself, a tuple, or a constexpr."""
    if isinstance(item, base_value):
        return item
    if isinstance(item, builtins.tuple | list):
        return tuple(item)
    return constexpr(item)


class slice_type(base_type):  # noqa: N801
    """The type of a slice, which only compile-time code sees."""

    __slots__ = ()

    def flatten(self) -> list[ir_types.Type]:
        return []

    def mangle(self) -> str:
        return "slice"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, slice_type)

    def __hash__(self) -> int:
        return hash(slice_type)

    def __str__(self) -> str:
        return "slice_type"


class slice(base_value):  # noqa: N801
    """A slice ``start:stop:step`` in an index, with bounds known at compile time."""

    __slots__ = ("start", "step", "stop")

    def __init__(self, start: Any, stop: Any, step: Any) -> None:
        self.start, self.stop, self.step = (to_value(part) for part in (start, stop, step))

    @property
    def type(self) -> slice_type:
        return slice_type()

    def flatten(self) -> list[ir.Value]:
        return []

    def to_python(self) -> builtins.slice:
        return builtins.slice(
            *(unwrap_if_constexpr(part) for part in (self.start, self.stop, self.step))
        )

    @property
    def is_full(self) -> bool:
        """Return whether the slice is ``:``."""
        return self.start.value is None and self.stop.value is None and self.step.value is None


def listed(value: Any) -> list[Any]:
    """Return the items of a list or tuple, also of a constexpr one; a single value as a list."""
    plain = value.value if isinstance(value, constexpr) else value
    return list(plain) if isinstance(plain, Sequence | tuple) else [plain]


def shape_tuple(extents: Sequence[int]) -> tuple:
    """A shape as kernels see it: a tuple of constexprs."""
    return tuple([constexpr(extent) for extent in extents])
