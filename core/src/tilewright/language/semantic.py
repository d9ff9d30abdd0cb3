"""Semantics of operators and builtins: types, promotion, broadcasting, and their Tile IR.

The compiler evaluates Python's operators by calling :class:`Semantic`; builtins get it as
``_semantic`` and emit operations through it. Operands may be tensors, constexprs or plain Python
numbers.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from tilewright import ir
from tilewright.errors import helped
from tilewright.language.builtin_functions.conversion import common_shape, shape_of
from tilewright.language.builtin_functions.descriptors import (
    EMITTED_MEMBERS,
    tensor_descriptor_base,
)
from tilewright.language.builtin_functions.operators import Operators
from tilewright.language.definitions.custom_derivative import DifferentiableCall
from tilewright.language.options import Options
from tilewright.language.value_types.base_classes import base_type
from tilewright.language.value_types.dtypes import int1
from tilewright.language.value_types.tensors import tensor
from tilewright.language.value_types.tuples import slice as tl_slice
from tilewright.language.value_types.tuples import tuple as tl_tuple
from tilewright.language.value_types.values import constexpr, unwrap_if_constexpr


class Generator(Protocol):
    """Interface of the source visitor to builtins: running functions of the language."""

    def call(self, fn: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Inline ``fn`` at the current insertion point and give back what it returns."""
        ...

    def region(
        self, fn: Any, argument_types: Sequence[base_type]
    ) -> tuple[ir.Region, list[base_type]]:
        """Build a region with ``fn`` inlined on its arguments, ended by ``yield``.

        The second result is the types it yields.
        """
        ...

    def differentiable_call(self, call: DifferentiableCall) -> Any:
        """Emit a call that stays one while a kernel is differentiated; return its result."""
        ...


class Semantic(Operators):
    """The semantics of one compilation: operators, conversions, and the members of values.

    Attributes:
        builder: where operations go; its insertion point and location are the compiler's.
        options: of the compilation.
        generator: runs functions written in the language.
    """

    __slots__ = ()

    def __init__(
        self,
        builder: ir.Builder,
        options: Options | None = None,
        generator: Generator | None = None,
    ) -> None:
        super().__init__(builder, options if options is not None else Options(), generator)

    def __getattr__(self, name: str) -> Any:
        """Find builtins and operators by the names that builtins written for Triton know.

        An example is ``_semantic.load(pointer, mask, other)``.
        """
        operator = _TRITON_OPERATORS.get(name)
        if operator is not None:
            return functools.partial(getattr(self, operator[0]), operator[1])
        if name in _TRITON_BUILTINS:
            from tilewright.language import core

            return functools.partial(getattr(core, name), _semantic=self)
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")

    def subscript(self, x: Any, index: Any) -> Any:
        """``x[index]``: new axes of a tensor (``None``) between kept ones (``:``).

        It selects items of tuples and constexprs, too.

        Raises:
            ValueError: a tensor is indexed by anything else.
        """
        if not isinstance(x, tensor):
            return x[index]
        plain = unwrap_if_constexpr(index)
        items = list(plain) if isinstance(plain, tuple | list | tl_tuple) else [plain]
        result, kept = x, 0
        for position, item in enumerate(items):
            item = unwrap_if_constexpr(item)
            if item is None:
                result = self.expand_dims(result, position)
            elif _is_full_slice(item):
                kept += 1
            else:
                raise ValueError(
                    f"unsupported tensor index: {item!r} (a tensor is indexed by `None` and "
                    "`:` only)"
                )
        if kept > len(x.extents):
            self.warn(f"index has {kept} `:` for a tensor of {len(x.extents)} axes")
        return result

    def attribute(self, value: Any, name: str) -> Any:
        """``value.name`` in a kernel: like ``getattr``, with the members that emit code.

        Members that are functions written in the language come as
        :class:`~tilewright.language.binding.BoundCallable`.
        """
        if isinstance(value, tensor):
            if name == "T":
                if len(value.extents) != 2:
                    raise ValueError(f"`T` is the transpose of a 2-D tensor, not of {value}")
                return self.permute(value, (1, 0))
        elif type(value) is tensor_descriptor_base and name in EMITTED_MEMBERS:
            return value.emitted(name, self)
        elif isinstance(value, constexpr) and name not in ("value", "type"):
            return getattr(value.value, name)
        return getattr(value, name)

    def truth(self, x: Any) -> Any:
        """Convert the condition of ``if``, ``while`` and ``?:``.

        A constexpr stays as it is; a tensor of one element becomes a scalar ``int1``.

        Raises:
            ValueError: a tensor has more than one element.
        """
        if not isinstance(x, tensor):
            return x if isinstance(x, constexpr) else constexpr(x)
        if x.extents:
            if x.numel.value != 1:
                remedy = (
                    "choose for each element with tl.where(condition, a, b), or reduce to one "
                    "value: tl.max(condition.to(tl.int32)) is 1 where the condition holds for any "
                    "element, tl.min(...) where it does for all"
                )
                raise helped(
                    ValueError(
                        f"Boolean value of Tensor with more than one value is ambiguous: it is {x}"
                    ),
                    remedy,
                )
            self.warn(
                "If conditional called with multidimensional Tensor instead of scalar; please use "
                "`.item()` or a reduction"
            )
            x = self.scalar_of(x)
        return self.cast(x, int1)


_SAME = (
    "arange assume atomic_add atomic_and atomic_cas atomic_max atomic_min atomic_or atomic_xchg "
    "atomic_xor clamp debug_barrier device_assert device_print gather histogram join load "
    "make_tensor_descriptor max_constancy max_contiguous maximum minimum multiple_of num_programs "
    "program_id reshape split store where"
)
#: Methods of Triton's semantics that are builtins of the same name and order of parameters.
_TRITON_BUILTINS = frozenset(_SAME.split())
#: Those that are operators: name -> (method of ours, operator).
_TRITON_OPERATORS: dict[str, tuple[str, str]] = {
    **{
        name: ("compare", op)
        for name, op in (
            ("equal", "eq"),
            ("not_equal", "ne"),
            ("less_than", "lt"),
            ("less_equal", "le"),
        )
    },
    **{name: ("compare", op) for name, op in (("greater_than", "gt"), ("greater_equal", "ge"))},
    **{
        name: ("unary", op)
        for name, op in (("minus", "neg"), ("plus", "pos"), ("invert", "invert"), ("not_", "not"))
    },
    **{
        name: ("binary", op)
        for name, op in (("xor_", "xor"), ("shl", "lshift"), ("ashr", "rshift"), ("lshr", "rshift"))
    },
    **{name: ("logical", op) for name, op in (("logical_and", "and"), ("logical_or", "or"))},
}


def _is_full_slice(item: Any) -> bool:
    if isinstance(item, tl_slice):
        return item.is_full
    return isinstance(item, slice) and all(
        unwrap_if_constexpr(part) is None for part in (item.start, item.stop, item.step)
    )


#: The name that code reaching into the compiler knows it by.
TritonSemantic = Semantic

__all__ = ["Generator", "Options", "Semantic", "TritonSemantic", "common_shape", "shape_of"]
