"""Matmul builtins."""

from __future__ import annotations

from typing import Any

from tilewright.errors import helped
from tilewright.ir.ops.linear import SCALED_FORMATS
from tilewright.ir.order import ANY
from tilewright.language.binding import builtin
from tilewright.language.builtin_functions.order import order_attribute
from tilewright.language.value_types.dtypes import (
    bfloat16,
    block_type,
    dtype,
    float8e4b15,
    float8e4nv,
    float16,
    float32,
    float64,
    from_ir,
    int8,
    int32,
    uint8,
)
from tilewright.language.value_types.tensors import tensor
from tilewright.language.value_types.values import unwrap_if_constexpr

_PRECISIONS = ("ieee", "tf32", "tf32x3", "bf16x3", "bf16x6")


@builtin
def dot(
    input: Any,
    other: Any,
    acc: Any = None,
    input_precision: Any = None,
    allow_tf32: Any = None,
    max_num_imprecise_acc: Any = None,
    out_dtype: Any = None,
    order: Any = None,
    _semantic: Any = None,
) -> tensor:
    """Multiply matrices and add an accumulator: ``input @ other + acc``. Leading axes are batches.

    Args:
        input: ``[..., M, K]`` of int8, uint8, fp16, bf16, fp32, fp64 or an fp8 kind.
        other: ``[..., K, N]`` of the same type; fp8 kinds may differ.
        acc: the initial accumulator, ``[..., M, N]`` of the result's type; None stands for zeros.
        input_precision: how fp32 operands may be rounded: ``"ieee"``, ``"tf32"``, ``"tf32x3"``,
            ``"bf16x3"``, ``"bf16x6"``. The default is ``"ieee"``; in kernels written for
            Triton, ``"tf32"`` if the target supports it.
        allow_tf32: deprecated; true stands for ``input_precision="tf32"``, false for ``"ieee"``.
        max_num_imprecise_acc: for fp8 operands: how many terms may be accumulated at reduced
            precision before they are added at full precision; at most K.
        out_dtype: the type of the result. For fp16 and fp8 operands, it may be fp32 or fp16, and is
            by default the type of ``acc``, or fp32 without ``acc``. For int8 and uint8
            operands it is int32, for fp64 operands fp64, and for all others fp32.
        order: the order of the additions along K. ``"any"`` (the default) is the order of the
            target's matrix instructions. ``"sequential"`` adds one product after the other to
            ``acc`` by a fused multiply-add, which rounds once. It uses no matrix instructions, and
            the result has the same bits on every target.

    Returns:
        A tensor ``[..., M, N]``.

    Raises:
        ValueError: types, shapes or options do not match, or the target does not support them.

    Example:
        a = tl.broadcast_to(x[:, None], [BLOCK, BLOCK])
        c = tl.dot(a, tl.trans(a), input_precision="ieee")
    """
    lhs, rhs = _semantic.to_tensor(input), _semantic.to_tensor(other)
    for operand in (lhs, rhs):
        if not operand.extents:
            raise ValueError(f"dot takes tensors of rank 2 or more, got {operand}")
    precision = _precision(
        _semantic, unwrap_if_constexpr(input_precision), unwrap_if_constexpr(allow_tf32)
    )
    lhs, rhs = _dot_operands(_semantic, lhs, rhs)
    extents, depth = _dot_shape(_semantic, lhs, rhs)
    acc = None if unwrap_if_constexpr(acc) is None else acc
    element = _dot_result(lhs.dtype, unwrap_if_constexpr(out_dtype), acc)
    _check_dot_capability(_semantic, lhs.dtype, element)
    result = block_type(element, extents)
    if acc is None:
        acc = _semantic.full(extents, 0, element)
    elif not isinstance(acc, tensor) or acc.type is not result:
        raise ValueError(f"acc of dot must have type {result}, got {getattr(acc, 'type', acc)}")
    attributes: dict[str, Any] = {}
    if lhs.dtype is float32 and precision != "ieee":
        attributes["precision"] = precision
    imprecise = unwrap_if_constexpr(max_num_imprecise_acc)
    if imprecise is not None and lhs.dtype.is_fp8():
        if not 0 <= imprecise <= depth:
            raise ValueError(f"max_num_imprecise_acc ({imprecise}) must be <= K ({depth})")
        attributes["max_imprecise"] = imprecise
    attributes.update(_dot_order(_semantic, unwrap_if_constexpr(order), element, attributes))
    return tensor(_semantic.builder.dot(lhs.handle, rhs.handle, acc.handle, **attributes), result)


def _dot_order(
    semantic: Any, order: str | None, element: Any, attributes: dict[str, Any]
) -> dict[str, str]:
    """Return the attribute ``order`` of a dot; an order takes exact operands and a wide result."""
    found = order_attribute(semantic, "dot", ANY if order is None else order)
    if found and element is float16:
        raise ValueError(f"dot with order {order!r} takes out_dtype float32, not float16")
    if found and "precision" in attributes:
        raise ValueError(
            f"dot with order {order!r} takes input_precision 'ieee', not "
            f"{attributes['precision']!r}"
        )
    return found


def _precision(semantic: Any, input_precision: str | None, allow_tf32: Any) -> str:
    if input_precision is not None and allow_tf32 is not None:
        raise ValueError("Only one of input_precision and allow_tf32 can be specified")
    capabilities = semantic.options.capabilities
    allowed = _PRECISIONS if capabilities is None else capabilities.dot_precisions
    if input_precision is None:
        default = semantic.options.default_dot_precision
        if allow_tf32 is None:
            return default if default in allowed else "ieee"
        # The older spelling allows, it does not require: a target without tf32 computes exactly.
        return "tf32" if allow_tf32 and "tf32" in allowed else "ieee"
    if input_precision not in allowed:
        raise ValueError(f"input_precision must be one of {tuple(allowed)}. Got {input_precision}")
    return input_precision


def _dot_operands(semantic: Any, lhs: tensor, rhs: tensor) -> tuple[tensor, tensor]:
    a, b = lhs.dtype, rhs.dtype
    if not (a.is_fp8() and b.is_fp8()) and a is not b:
        raise ValueError(f"Both operands must be same dtype. Got {a} and {b}")
    if a not in (int8, uint8, float16, bfloat16, float32, float64) and not a.is_fp8():
        raise ValueError(
            f"Unsupported dtype of dot: {a}; it takes int8, uint8, fp16, bf16, fp32, fp64 and "
            "the fp8 kinds"
        )
    slow = semantic.options.deprecated_fp8_dot_operand_dtypes
    if slow and (a.name in slow or b.name in slow):
        import warnings

        name = a.name if a.name in slow else b.name
        # vendors: the warning has Triton's words
        warnings.warn(
            f"the use of {name} is deprecated on Hopper and later architectures and can cause "
            "significant slow down",
            stacklevel=2,
        )
    if float8e4b15 in (a, b):
        return semantic.cast(lhs, float16), semantic.cast(rhs, float16)
    return lhs, rhs


def _dot_shape(semantic: Any, lhs: tensor, rhs: tensor) -> tuple[tuple[int, ...], int]:
    """The shape of the result, and K."""
    a, b = lhs.extents, rhs.extents
    if len(a) != len(b) or len(a) < 2:
        error = ValueError(
            f"Both inputs must have one rank of at least 2; (lhs: {list(a)} vs rhs: {list(b)})"
        )
        if len(a) == len(b) == 1:
            raise helped(
                error,
                "the dot of two vectors is tl.sum(a * b); a vector is a matrix of one row as "
                "x[None, :], of one column as x[:, None]",
            )
        raise error
    if a[-1] != b[-2]:
        raise ValueError(
            f"First input shape ({list(a)}) and second input shape {list(b)} are not compatible "
            f"for matmul (second index of first shape ({a[-1]}) must be equal to first index of "
            f"second shape ({b[-2]}))"
        )
    if a[:-2] != b[:-2]:
        raise ValueError(f"Batch dimensions of dot must agree: {list(a[:-2])} and {list(b[:-2])}")
    capabilities = semantic.options.capabilities
    if capabilities is not None:
        m, n, k = dict(semantic.options.min_dot_size).get(
            lhs.dtype.primitive_bitwidth, capabilities.min_dot
        )
        if a[-2] < m or b[-1] < n or a[-1] < k:
            raise ValueError(
                f"Input shapes should have M >= {m}, N >= {n} and K >= {k}; got M = {a[-2]}, N = "
                f"{b[-1]}, K = {a[-1]}"
            )
    return (*a[:-1], b[-1]), a[-1]


def _dot_result(element: dtype, out_dtype: dtype | None, acc: Any) -> dtype:
    if element.is_int():
        # Kernels name the operands' type, int32 or the old default fp32 here; the accumulator is
        # int32 for all of them.
        if out_dtype is not None and not (out_dtype in (element, int32) or out_dtype is float32):
            raise ValueError(f"a dot of {element} returns int32, not {out_dtype}")
        return int32
    if out_dtype is bfloat16:
        raise ValueError(
            "out_dtype=bfloat16 is unsupported. Please use out_dtype=float32/float16 and cast with "
            "`.to(tl.bfloat16)`"
        )
    if element is float64:
        return float64
    if element in (float32, bfloat16):
        return float32
    if out_dtype is None:
        out_dtype = acc.dtype if isinstance(acc, tensor) else float32
    if out_dtype not in (float16, float32):
        raise ValueError(f"a dot of {element} returns fp16 or fp32, not {out_dtype}")
    return out_dtype


def _check_dot_capability(semantic: Any, element: dtype, result: dtype) -> None:
    capabilities = semantic.options.capabilities
    if capabilities is None:
        return
    accumulators = capabilities.dot.get(str(element.ir_type))
    where = f"backend {semantic.options.backend}" if semantic.options.backend else "this target"
    if not accumulators:
        raise ValueError(
            f"dot of {element} is not supported by {where}; it has "
            f"{', '.join(map(str, capabilities.dot)) or 'no dot'}"
        )
    if str(result.ir_type) not in accumulators:
        raise ValueError(
            f"dot of {element} does not accumulate in {result} on {where}; it has "
            f"{', '.join(accumulators)}"
        )


@builtin
def dot_scaled(
    lhs: Any,
    lhs_scale: Any,
    lhs_format: Any,
    rhs: Any,
    rhs_scale: Any,
    rhs_format: Any,
    acc: Any = None,
    fast_math: Any = False,
    lhs_k_pack: Any = True,
    rhs_k_pack: Any = True,
    out_dtype: Any = float32,
    _semantic: Any = None,
) -> tensor:
    """Multiply block-scaled matrices, in which groups of elements along K share a scale.

    Leading axes are batch axes. A group has 32 elements if its scale is a power of two (e8m0), and
    16 elements if its scale is an fp8e4nv number.

    The scales of both operands may have any magnitude, for example ``2**127`` in the left operand
    and ``2**-126`` in the right one. On GPUs without scaled matrix instructions, the kernel
    multiplies each element by its scale, and converts the product to bf16, with two exceptions.
    First, if only one operand has scales, and the other operand is fp16, the kernel converts the
    products to fp16. Second, if an operand that has scales is itself fp16, or if one operand is
    fp16 and the other one is bf16, the kernel converts the products to fp32. If both exceptions
    apply, the kernel follows the second one. If a product is out of the range of the type to which
    it is converted, the kernel computes the matmul again by a slower method.

    Args:
        lhs: ``[..., M, K]`` in ``lhs_format``, or uint8 if NumPy has no such type.
        lhs_scale: ``[..., M, K // 32]`` uint8 exponents (e8m0; 0xFF is NaN), ``[..., M, K // 16]``
            fp8e4nv, or None.
        lhs_format: ``"e2m1"`` (two elements in a uint8, the first one in the low half), ``"e4m3"``,
            ``"e5m2"``, ``"bf16"`` or ``"fp16"``.
        rhs: ``[..., K, N]`` in ``rhs_format``.
        rhs_scale: as ``lhs_scale``, but ``[..., N, K // 32]`` (N comes first, unlike in ``rhs``),
            or None.
        rhs_format: as ``lhs_format``.
        acc: the initial accumulator, ``[..., M, N]`` of fp32; None stands for zeros.
        fast_math: whether the compiler may assume that no scale is NaN.
        lhs_k_pack: whether the two ``"e2m1"`` elements of a byte are neighbours along K; if false,
            along M.
        rhs_k_pack: whether the two ``"e2m1"`` elements of a byte are neighbours along K; if false,
            along N.
        out_dtype: the type of the result, always fp32.

    Returns:
        An fp32 tensor ``[..., M, N]``.

    Raises:
        ValueError: formats, shapes or types do not match, or the target declares no such matmul.

    Example:
        a = tl.full((32, 64), 56, tl.uint8)
        scale = tl.full((32, 2), 127, tl.uint8)
        c = tl.dot_scaled(a, scale, "e4m3", tl.trans(a), scale, "e4m3")
    """
    a, b = _semantic.to_tensor(lhs), _semantic.to_tensor(rhs)
    if len(a.extents) < 2 or len(a.extents) != len(b.extents) or a.extents[:-2] != b.extents[:-2]:
        raise ValueError(
            "dot_scaled takes operands of one rank of at least 2 and of the same batches, got "
            f"{list(a.extents)} and {list(b.extents)}"
        )
    capabilities = _semantic.options.capabilities
    if capabilities is not None and "dot_scaled" not in capabilities.features:
        raise ValueError(
            f"dot_scaled is not supported by backend {_semantic.options.backend or '?'}"
        )
    if unwrap_if_constexpr(out_dtype) is not float32:
        raise ValueError(f"dot_scaled returns fp32, not {unwrap_if_constexpr(out_dtype)}")
    a_format, b_format = unwrap_if_constexpr(lhs_format), unwrap_if_constexpr(rhs_format)
    a_pack, b_pack = bool(unwrap_if_constexpr(lhs_k_pack)), bool(unwrap_if_constexpr(rhs_k_pack))
    for name, format_, pack in (("lhs", a_format, a_pack), ("rhs", b_format, b_pack)):
        if format_ not in SCALED_FORMATS:
            raise ValueError(
                f"{name}_format must be one of {', '.join(SCALED_FORMATS)}, got {format_}"
            )
        if not pack and format_ != "e2m1":
            raise ValueError(
                f"only e2m1 (fp4) operands can be packed along another axis than K, not {format_} "
                f"({name}_k_pack)"
            )
    a, b = (
        _scaled_operand(_semantic, a, a_format, "lhs"),
        _scaled_operand(_semantic, b, b_format, "rhs"),
    )
    m, k = (
        extent * (2 if a_format == "e2m1" and along == a_pack else 1)
        for extent, along in zip(a.extents[-2:], (False, True), strict=True)
    )
    other_k, n = (
        extent * (2 if b_format == "e2m1" and along == b_pack else 1)
        for extent, along in zip(b.extents[-2:], (True, False), strict=True)
    )
    if k != other_k:
        raise ValueError(
            f"the operands of dot_scaled must agree along K, got {k} and {other_k} "
            f"({list(a.extents)} and {list(b.extents)})"
        )
    batches = a.extents[:-2]
    a_scale = _scale(_semantic, lhs_scale, "lhs_scale", (*batches, m), k)
    b_scale = _scale(_semantic, rhs_scale, "rhs_scale", (*batches, n), k)
    result = block_type(float32, (*batches, m, n))
    acc = None if unwrap_if_constexpr(acc) is None else acc
    if acc is None:
        acc = _semantic.full((*batches, m, n), 0, float32)
    elif not isinstance(acc, tensor) or acc.type is not result:
        raise ValueError(
            f"acc of dot_scaled must have type {result}, got {getattr(acc, 'type', acc)}"
        )
    handle = _semantic.builder.dot_scaled(
        a.handle,
        None if a_scale is None else a_scale.handle,
        b.handle,
        None if b_scale is None else b_scale.handle,
        acc.handle,
        a_format=a_format,
        b_format=b_format,
        a_pack_k=a_pack,
        b_pack_k=b_pack,
        fast_math=bool(unwrap_if_constexpr(fast_math)),
    )
    return tensor(handle, result)


def _scaled_operand(semantic: Any, x: tensor, format_: str, name: str) -> tensor:
    """The operand with the element type of its format; 8-bit integers stand for the bits of fp8."""
    wanted = from_ir(SCALED_FORMATS[format_])
    if x.dtype is wanted:
        return x
    if wanted.primitive_bitwidth == x.dtype.primitive_bitwidth == 8 and x.dtype in (int8, uint8):
        return semantic.bitcast(x, wanted)
    raise ValueError(f"{name} in format {format_} must hold {wanted}, got {x.dtype}")


def _scale(semantic: Any, scale: Any, name: str, outer: tuple[int, ...], k: int) -> tensor | None:
    if unwrap_if_constexpr(scale) is None:
        return None
    scale = semantic.to_tensor(scale)
    if scale.dtype is int8:
        scale = semantic.bitcast(scale, uint8)
    if scale.dtype not in (uint8, float8e4nv):
        raise ValueError(f"{name} must hold uint8 (e8m0) or fp8e4nv, got {scale.dtype}")
    group = 16 if scale.dtype is float8e4nv else 32
    if scale.extents != (*outer, k // group):
        raise ValueError(
            f"{name} must be a tensor of shape {[*outer, k // group]}. Got "
            f"{list(map(str, scale.extents))}"
        )
    return scale
