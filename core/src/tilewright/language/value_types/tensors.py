"""The tensor: a number, a pointer, or a block of them, computed by a kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tilewright import ir
from tilewright.language.binding import builtin
from tilewright.language.value_types import tuples
from tilewright.language.value_types.base_classes import base_value
from tilewright.language.value_types.dtypes import block_type, dtype
from tilewright.language.value_types.values import constexpr


class tensor(base_value):  # noqa: N801
    """An N-dimensional array of numbers or pointers, or a scalar (its ``type`` is no block type).

    Attributes:
        handle: the IR value that carries it.
        type: its ``block_type``, or the ``dtype`` of a scalar.
        dtype: the type of an element (a ``pointer_type`` for pointers).
        shape: a tuple of constexprs, empty for a scalar.
        numel: the number of elements, a constexpr.

    Functions of the language whose first argument is a tensor are members too: ``x.sum(axis=0)`` is
    ``tl.sum(x, axis=0)``.
    """

    __slots__ = ("handle", "type")

    handle: ir.Value
    type: Any

    def __init__(self, handle: ir.Value, type: dtype) -> None:
        self.handle = handle
        self.type = type

    def flatten(self) -> list[ir.Value]:
        return [self.handle]

    @property
    def dtype(self) -> dtype:
        return self.type.scalar

    @property
    def shape(self) -> tuples.tuple:
        return tuples.shape_tuple(self.extents)

    @property
    def extents(self) -> tuple[int, ...]:
        """The shape as plain integers."""
        type_ = self.type
        return type_.shape if type_.__class__ is block_type else ()

    @property
    def numel(self) -> constexpr:
        type_ = self.type
        return constexpr(type_.numel if type_.__class__ is block_type else 1)

    def __str__(self) -> str:
        extents = self.extents
        return f"{self.dtype}[{', '.join(map(str, extents))}]" if extents else f"{self.dtype}"

    def __repr__(self) -> str:
        return f"<tensor {self}>"

    def __hash__(self) -> int:
        return id(self)

    @property
    def T(self) -> tensor:  # noqa: N802
        """The transpose of a 2-D tensor."""
        raise ValueError(
            "`T` of a tensor can be read only inside a kernel. Did you forget to add @jit?"
        )

    @builtin
    def to(
        self,
        dtype: Any,
        fp_downcast_rounding: str | None = None,
        bitcast: bool = False,
        _semantic: Any = None,
    ) -> tensor:
        """Convert every element to another type, as :func:`~tilewright.language.cast` does."""
        return _semantic.convert(self, dtype, fp_downcast_rounding, bitcast)

    @builtin
    def __getitem__(self, index: Any, _semantic: Any = None) -> tensor:
        """``x[:, None]``: only ``None`` and full slices."""
        return _semantic.subscript(self, index)

    @builtin
    def __setitem__(self, index: Any, value: Any, _semantic: Any = None) -> None:
        raise TypeError(
            "__setitem__ is not supported: elements of a tensor cannot be assigned; use `where` or "
            "write to memory with `store`"
        )

    @builtin
    def logical_and(self, other: Any, _semantic: Any = None) -> Any:
        """Logical and of two boolean tensors, element by element."""
        return _semantic.logical("and", self, other)

    @builtin
    def logical_or(self, other: Any, _semantic: Any = None) -> Any:
        """Logical or of two boolean tensors, element by element."""
        return _semantic.logical("or", self, other)

    @builtin
    def __not__(self, _semantic: Any = None) -> Any:
        return _semantic.unary("not", self)

    # the operators, which are made below; a kernel is checked as the Python that it is written in
    if TYPE_CHECKING:

        def __add__(self, other: Any) -> tensor: ...
        def __radd__(self, other: Any) -> tensor: ...
        def __sub__(self, other: Any) -> tensor: ...
        def __rsub__(self, other: Any) -> tensor: ...
        def __mul__(self, other: Any) -> tensor: ...
        def __rmul__(self, other: Any) -> tensor: ...
        def __truediv__(self, other: Any) -> tensor: ...
        def __rtruediv__(self, other: Any) -> tensor: ...
        def __floordiv__(self, other: Any) -> tensor: ...
        def __rfloordiv__(self, other: Any) -> tensor: ...
        def __mod__(self, other: Any) -> tensor: ...
        def __rmod__(self, other: Any) -> tensor: ...
        def __and__(self, other: Any) -> tensor: ...
        def __rand__(self, other: Any) -> tensor: ...
        def __or__(self, other: Any) -> tensor: ...
        def __ror__(self, other: Any) -> tensor: ...
        def __xor__(self, other: Any) -> tensor: ...
        def __rxor__(self, other: Any) -> tensor: ...
        def __lshift__(self, other: Any) -> tensor: ...
        def __rlshift__(self, other: Any) -> tensor: ...
        def __rshift__(self, other: Any) -> tensor: ...
        def __rrshift__(self, other: Any) -> tensor: ...
        def __eq__(self, other: object) -> tensor: ...  # type: ignore[override]
        def __ne__(self, other: object) -> tensor: ...  # type: ignore[override]
        def __lt__(self, other: Any) -> tensor: ...
        def __le__(self, other: Any) -> tensor: ...
        def __gt__(self, other: Any) -> tensor: ...
        def __ge__(self, other: Any) -> tensor: ...
        def __neg__(self) -> tensor: ...
        def __pos__(self) -> tensor: ...
        def __invert__(self) -> tensor: ...
        def __index__(self) -> int: ...  # a bound of a loop, range(0, n), may be a scalar
        # functions of the language as members; see ``members``
        def __getattr__(self, name: str) -> Any: ...


def _operator(family: str, name: str, dunder: str, reflected: bool = False) -> Callable[..., Any]:
    """Make the member that evaluates a Python operator by the semantics of the current kernel."""
    if family == "unary":

        def unary(self: tensor, _semantic: Any = None) -> Any:
            return _semantic.unary(name, self)

        unary.__name__ = dunder
        return builtin(unary)

    def binary(self: tensor, other: Any, _semantic: Any = None) -> Any:
        apply = getattr(_semantic, family)
        return apply(name, other, self) if reflected else apply(name, self, other)

    binary.__name__ = dunder
    return builtin(binary)


for _name in (
    "add",
    "sub",
    "mul",
    "truediv",
    "floordiv",
    "mod",
    "and",
    "or",
    "xor",
    "lshift",
    "rshift",
):
    setattr(tensor, f"__{_name}__", _operator("binary", _name, f"__{_name}__"))
    setattr(tensor, f"__r{_name}__", _operator("binary", _name, f"__r{_name}__", reflected=True))
for _name in ("eq", "ne", "lt", "le", "gt", "ge"):
    setattr(tensor, f"__{_name}__", _operator("compare", _name, f"__{_name}__"))
for _name in ("neg", "pos", "invert"):
    setattr(tensor, f"__{_name}__", _operator("unary", _name, f"__{_name}__"))
