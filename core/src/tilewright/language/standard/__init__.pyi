# What type checkers know of the standard library: its functions are compiled from untyped source,
# where `constexpr` marks what must be a constant. core/tests/language/test_types.py compares names
# and defaults of the parameters with the functions.
from collections.abc import Sequence
from typing import Any, Literal, TypeAlias, overload

from tilewright.language.value_types.dtypes import dtype as _dtype
from tilewright.language.value_types.tensors import tensor
from tilewright.language.value_types.values import constexpr

_Number: TypeAlias = tensor | constexpr | int | float
_Flag: TypeAlias = bool | constexpr
_Axis: TypeAlias = int | constexpr
_Type: TypeAlias = _dtype | constexpr
_Order: TypeAlias = Literal["any", "tree", "sequential"] | constexpr

_argmax_combine: Any
_argmin_combine: Any
_log2: Any
sort_impl: Any

def argmax(
    input: tensor, axis: _Axis | None, tie_break_left: _Flag = True, keep_dims: _Flag = False
) -> tensor: ...
def argmin(
    input: tensor, axis: _Axis | None, tie_break_left: _Flag = True, keep_dims: _Flag = False
) -> tensor: ...
def bitonic_merge(x: tensor, dim: _Axis | None = None, descending: _Flag = ...) -> tensor: ...
def cdiv(x: _Number, div: _Number) -> Any: ...
def cumprod(
    input: tensor,
    axis: _Axis = 0,
    reverse: _Flag = False,
    dtype: _Type | None = None,
    order: _Order | None = None,
) -> tensor: ...
def cumsum(
    input: tensor,
    axis: _Axis = 0,
    reverse: _Flag = False,
    dtype: _Type | None = None,
    order: _Order | None = None,
) -> tensor: ...
def flip(x: tensor, dim: _Axis | None = None) -> tensor: ...
def interleave(a: tensor, b: tensor) -> tensor: ...
@overload
def max(
    input: tensor,
    axis: _Axis | None = None,
    return_indices: Literal[False] | constexpr = False,
    return_indices_tie_break_left: _Flag = True,
    keep_dims: _Flag = False,
) -> tensor: ...
@overload
def max(
    input: tensor,
    axis: _Axis | None = None,
    *,
    return_indices: Literal[True],
    return_indices_tie_break_left: _Flag = True,
    keep_dims: _Flag = False,
) -> tuple[tensor, tensor]: ...
@overload
def max(
    input: tensor,
    axis: _Axis | None,
    return_indices: Literal[True],
    return_indices_tie_break_left: _Flag = True,
    keep_dims: _Flag = False,
) -> tuple[tensor, tensor]: ...
@overload
def min(
    input: tensor,
    axis: _Axis | None = None,
    return_indices: Literal[False] | constexpr = False,
    return_indices_tie_break_left: _Flag = True,
    keep_dims: _Flag = False,
) -> tensor: ...
@overload
def min(
    input: tensor,
    axis: _Axis | None = None,
    *,
    return_indices: Literal[True],
    return_indices_tie_break_left: _Flag = True,
    keep_dims: _Flag = False,
) -> tuple[tensor, tensor]: ...
@overload
def min(
    input: tensor,
    axis: _Axis | None,
    return_indices: Literal[True],
    return_indices_tie_break_left: _Flag = True,
    keep_dims: _Flag = False,
) -> tuple[tensor, tensor]: ...
def ravel(x: tensor, can_reorder: _Flag = False) -> tensor: ...
def reduce_or(input: tensor, axis: _Axis | None, keep_dims: _Flag = False) -> tensor: ...
def sigmoid(x: tensor) -> tensor: ...
def softmax(
    x: tensor, dim: _Axis | None = None, keep_dims: _Flag = False, ieee_rounding: _Flag = False
) -> tensor: ...
def sort(x: tensor, dim: _Axis | None = None, descending: _Flag = ...) -> tensor: ...
def squeeze(x: tensor, dim: _Axis) -> tensor: ...
def sum(
    input: tensor,
    axis: _Axis | None = None,
    keep_dims: _Flag = False,
    dtype: _Type | None = None,
    order: _Order | None = None,
) -> tensor: ...
def swizzle2d(
    i: _Number, j: _Number, size_i: _Number, size_j: _Number, size_g: _Number
) -> tuple[tensor, tensor]: ...
def topk(
    x: tensor, k: int | constexpr, dim: _Axis | None = None, descending: _Flag = True
) -> tensor: ...
def unsqueeze(x: tensor, dim: _Axis) -> tensor: ...
def xor_sum(input: tensor, axis: _Axis | None = None, keep_dims: _Flag = False) -> tensor: ...
def zeros(shape: Sequence[_Axis] | constexpr, dtype: _Type) -> tensor: ...
def zeros_like(input: tensor) -> tensor: ...
