"""The core of the language under one name: types, values and builtins.

Each lives in a file of its own family; this module only gathers them, as
``tilewright.language.core``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tilewright.language.binding import (
    BoundCallable,
    Member,
    builtin,
    extern,
    is_builtin,
    must_use_result,
)
from tilewright.language.builtin_functions.assembly import (
    dispatch,
    extern_elementwise,
    inline_asm_elementwise,
)
from tilewright.language.builtin_functions.atomics import (
    atomic_add,
    atomic_and,
    atomic_cas,
    atomic_load,
    atomic_max,
    atomic_min,
    atomic_or,
    atomic_store,
    atomic_xchg,
    atomic_xor,
)
from tilewright.language.builtin_functions.block_pointers import (
    advance,
    block_pointer,
    block_pointer_type,
    make_block_ptr,
)
from tilewright.language.builtin_functions.creation import (
    arange,
    cast,
    full,
    num_programs,
    program_id,
    to_tensor,
)
from tilewright.language.builtin_functions.debug import (
    device_assert,
    device_print,
    static_assert,
    static_print,
)
from tilewright.language.builtin_functions.descriptors import (
    load_tensor_descriptor,
    make_tensor_descriptor,
    store_tensor_descriptor,
    tensor_descriptor,
    tensor_descriptor_base,
    tensor_descriptor_base_type,
    tensor_descriptor_type,
)
from tilewright.language.builtin_functions.elementwise import (
    PropagateNan,
    add,
    assume,
    builtin_max,
    builtin_min,
    clamp,
    expect_zero,
    max_constancy,
    max_contiguous,
    maximum,
    minimum,
    mul,
    multiple_of,
    sub,
    where,
)
from tilewright.language.builtin_functions.gradients import stop_gradient
from tilewright.language.builtin_functions.iteration import condition, range, static_range
from tilewright.language.builtin_functions.linear import dot, dot_scaled
from tilewright.language.builtin_functions.memory import debug_barrier, load, store
from tilewright.language.builtin_functions.reduction import (
    associative_scan,
    map_elementwise,
    reduce,
)
from tilewright.language.builtin_functions.shape import (
    broadcast,
    broadcast_to,
    cat,
    expand_dims,
    gather,
    histogram,
    item,
    join,
    permute,
    reshape,
    split,
    trans,
    view,
)
from tilewright.language.builtin_functions.waiting import atomic_poll
from tilewright.language.definitions.aggregate import (
    aggregate,
    aggregate_replace,
    aggregate_type,
    aggregate_value,
)
from tilewright.language.signatures import str_to_ty
from tilewright.language.value_types.base_classes import base_type, base_value
from tilewright.language.value_types.dtypes import (
    TRITON_MAX_TENSOR_NUMEL,
    bfloat16,
    block_type,
    const,
    dtype,
    float8e4b8,
    float8e4b15,
    float8e4nv,
    float8e5,
    float8e5b16,
    float16,
    float32,
    float64,
    from_ir,
    get_int_dtype,
    int1,
    int8,
    int16,
    int32,
    int64,
    pi32_t,
    pointer_type,
    uint8,
    uint16,
    uint32,
    uint64,
    void,
)
from tilewright.language.value_types.tensors import tensor
from tilewright.language.value_types.tuples import slice, slice_type, to_value, tuple, tuple_type
from tilewright.language.value_types.values import (
    CONSTEXPR_0,
    check_bit_width,
    constexpr,
    constexpr_type,
    is_negative_zero,
    unwrap_if_constexpr,
    unwrap_iterable,
)

#: Names that kernels and libraries in use still say.
_aggregate = aggregate
_unwrap_if_constexpr = unwrap_if_constexpr
_unwrap_iterable = unwrap_iterable


def apply_builtin(fn: Any, args: Sequence[Any], kwargs: Mapping[str, Any], semantic: Any) -> Any:
    """Call a builtin while a kernel is built."""
    return fn(*args, _semantic=semantic, **kwargs)


def binary_op_type_legalization(lhs: Any, rhs: Any, semantic: Any) -> Any:
    """Convert both operands of a binary operator to their common type and shape."""
    return semantic.promote(lhs, rhs)


__all__ = [
    "CONSTEXPR_0",
    "TRITON_MAX_TENSOR_NUMEL",
    "BoundCallable",
    "Member",
    "PropagateNan",
    "_unwrap_if_constexpr",
    "_unwrap_iterable",
    "add",
    "advance",
    "aggregate",
    "aggregate_replace",
    "aggregate_type",
    "aggregate_value",
    "arange",
    "associative_scan",
    "assume",
    "atomic_add",
    "atomic_and",
    "atomic_cas",
    "atomic_load",
    "atomic_max",
    "atomic_min",
    "atomic_or",
    "atomic_poll",
    "atomic_store",
    "atomic_xchg",
    "atomic_xor",
    "base_type",
    "base_value",
    "bfloat16",
    "binary_op_type_legalization",
    "block_pointer",
    "block_pointer_type",
    "block_type",
    "broadcast",
    "broadcast_to",
    "builtin",
    "builtin_max",
    "builtin_min",
    "cast",
    "cat",
    "check_bit_width",
    "clamp",
    "condition",
    "const",
    "constexpr",
    "constexpr_type",
    "debug_barrier",
    "device_assert",
    "device_print",
    "dispatch",
    "dot",
    "dot_scaled",
    "dtype",
    "expand_dims",
    "expect_zero",
    "extern",
    "extern_elementwise",
    "float8e4b8",
    "float8e4b15",
    "float8e4nv",
    "float8e5",
    "float8e5b16",
    "float16",
    "float32",
    "float64",
    "from_ir",
    "full",
    "gather",
    "get_int_dtype",
    "histogram",
    "inline_asm_elementwise",
    "int1",
    "int8",
    "int16",
    "int32",
    "int64",
    "is_builtin",
    "is_negative_zero",
    "item",
    "join",
    "load",
    "load_tensor_descriptor",
    "make_block_ptr",
    "make_tensor_descriptor",
    "map_elementwise",
    "max_constancy",
    "max_contiguous",
    "maximum",
    "minimum",
    "mul",
    "multiple_of",
    "must_use_result",
    "num_programs",
    "permute",
    "pi32_t",
    "pointer_type",
    "program_id",
    "range",
    "reduce",
    "reshape",
    "slice",
    "slice_type",
    "split",
    "static_assert",
    "static_print",
    "static_range",
    "stop_gradient",
    "store",
    "store_tensor_descriptor",
    "str_to_ty",
    "sub",
    "tensor",
    "tensor_descriptor",
    "tensor_descriptor_base",
    "tensor_descriptor_base_type",
    "tensor_descriptor_type",
    "to_tensor",
    "to_value",
    "trans",
    "tuple",
    "tuple_type",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "view",
    "void",
    "where",
]
