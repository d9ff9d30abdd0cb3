"""Reductions, scans and maps with functions written in the language."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.language.binding import builtin
from tilewright.language.builtin_functions.order import order_attribute
from tilewright.language.builtin_functions.shape import reshaped, wrap_axis
from tilewright.language.value_types.dtypes import int64, uint64
from tilewright.language.value_types.tensors import tensor
from tilewright.language.value_types.tuples import tuple as tl_tuple
from tilewright.language.value_types.values import unwrap_if_constexpr


@builtin
def reduce(
    input: Any,
    axis: Any,
    combine_fn: Any,
    keep_dims: Any = False,
    order: Any = None,
    _semantic: Any = None,
) -> Any:
    """Reduce an axis to one element, by a function that combines two elements.

    Args:
        input: a tensor, or a tuple of n tensors of one shape that are reduced together.
        axis: a constexpr; None reduces all elements.
        combine_fn: a kernel-language function of scalars, ``f(a0, .., b0, ..)``, which takes n
            values for each side and returns n values of the inputs' types. The function must be
            associative and commutative.
        keep_dims: whether to keep the axis, with extent 1.
        order: ``"any"`` leaves the order to the backend. ``"tree"`` combines the elements in a
            balanced tree that does not depend on the target, ``num_warps`` or the other axes; it
            costs little. ``"sequential"`` combines one element after the other, which costs a loop
            in one thread. With ``"tree"`` and with ``"sequential"``, the result has the same bits
            on every target. None stands for the order in ``jit(order=)``, or for ``"any"`` if there
            is none.

    Returns:
        A tensor of the shape of ``input`` without the axis ``axis``, or a scalar if no axis is
        left. If ``input`` is a tuple, the result is a tuple, which contains a reduced tensor for
        each tensor in ``input``.

    Raises:
        ValueError: ``input`` is a scalar, shapes differ, the axis is out of range, ``combine_fn``
            returns other types, or the order is unknown or not supported by the target.

    Example:
        total = tl.reduce(x, 0, combine)
    """
    inputs, single = _inputs(_semantic, input, "reduce")
    axis, keep_dims = _semantic.constant(axis, "axis"), bool(unwrap_if_constexpr(keep_dims))
    rank = len(inputs[0].extents)
    if axis is None:
        inputs = [
            x if rank == 1 else reshaped(_semantic, x, (x.numel.value,), False) for x in inputs
        ]
        position = 0
    else:
        position = wrap_axis(axis, rank)
    attributes = {"axis": position, **_order(_semantic, "reduce", order)}
    results = _combined(_semantic, "reduce", combine_fn, inputs, "reduce", **attributes)
    if keep_dims:
        if axis is None:
            results = [_semantic.splat(x, (1,) * rank) for x in results]
        else:
            results = [_semantic.expand_dims(x, position) for x in results]
    return results[0] if single else tl_tuple(results)


@builtin
def associative_scan(
    input: Any,
    axis: Any,
    combine_fn: Any,
    reverse: Any = False,
    order: Any = None,
    _semantic: Any = None,
) -> Any:
    """Scan along an axis: element i of the result combines the elements 0 to i of the input.

    Args:
        input: a tensor, or a tuple of n tensors of one shape that are scanned together.
        axis: a constexpr.
        combine_fn: a function as for :func:`reduce`, which must be associative, but need not be
            commutative. Its left arguments are the earlier elements.
        reverse: whether to scan from the last element to the first: element i of the result then
            combines the elements from i to the last one.
        order: as for :func:`reduce`.

    Returns:
        A tensor of the shape of ``input``. If ``input`` is a tuple, the result is a tuple of
        tensors.

    Raises:
        ValueError: as for :func:`reduce`.

    Example:
        running = tl.associative_scan(x, 0, combine)
    """
    inputs, single = _inputs(_semantic, input, "associative_scan")
    position = wrap_axis(_semantic.constant(axis, "axis"), len(inputs[0].extents))
    attributes: dict[str, Any] = {"axis": position}
    if unwrap_if_constexpr(reverse):
        attributes["reverse"] = True
    attributes.update(_order(_semantic, "scan", order))
    results = _combined(_semantic, "scan", combine_fn, inputs, "associative_scan", **attributes)
    return results[0] if single else tl_tuple(results)


@builtin
def map_elementwise(scalar_fn: Any, *args: Any, pack: Any = 1, _semantic: Any = None) -> Any:
    """Run a function of scalars on every element; the function may contain branches and loops.

    Args:
        scalar_fn: a kernel-language function of scalars. With ``pack`` above 1, it receives that
            many consecutive elements of each argument, and returns as many values for each result.
        args: tensors and numbers, which are broadcast. The function runs for every element.
        pack: a constexpr that divides the number of elements.

    Returns:
        A tensor of the operands' common shape. If ``scalar_fn`` returns several values, the result
        is a tuple that contains a tensor of this shape for each value.

    Raises:
        ValueError: there are no arguments, ``pack`` does not divide the number of elements, or the
            values of one result differ in type.

    Example:
        combined = tl.map_elementwise(combine, x, y)
    """
    pack = _semantic.constant(pack, "pack")
    if not args:
        raise ValueError("map_elementwise needs at least one tensor")
    if type(pack) is not int or pack < 1:
        raise ValueError(f"pack must be a positive constexpr integer, got {pack}")
    inputs = _semantic.broadcast_all(*(_semantic.to_tensor(x) for x in args))
    scalar = not inputs[0].extents
    if scalar:
        inputs = [_semantic.splat(x, (1,)) for x in inputs]
    extents, numel = inputs[0].extents, inputs[0].numel.value
    if numel % pack:
        raise ValueError(f"pack {pack} must divide the {numel} elements")
    region, types = _semantic.generator.region(
        unwrap_if_constexpr(scalar_fn), [x.dtype for x in inputs for _ in range(pack)]
    )
    elements = [flat for type_ in types for flat in _scalars(type_)]
    if not elements or len(elements) % pack:
        raise ValueError(
            f"map_elementwise: the function returns {len(elements)} values, which is no multiple "
            f"of pack ({pack})"
        )
    groups = [elements[i : i + pack] for i in range(0, len(elements), pack)]
    if any(type_ is not group[0] for group in groups for type_ in group):
        raise ValueError(
            f"map_elementwise: the {pack} values of one result must have one type, got "
            f"{', '.join(map(str, elements))}"
        )
    from tilewright.language.value_types.dtypes import block_type

    results = [block_type(group[0], extents).ir_type for group in groups]
    operation = _semantic.builder.region_op(
        "map", [x.handle for x in inputs], regions=[region], results=results, pack=pack
    )
    outputs = [
        _semantic.wrap(handle, group[0])
        for handle, group in zip(operation.results, groups, strict=True)
    ]
    if scalar:
        outputs = [_semantic.scalar_of(x) for x in outputs]
    return outputs[0] if len(outputs) == 1 else tl_tuple(outputs)


def _inputs(semantic: Any, input: Any, function: str) -> tuple[list[tensor], bool]:
    """The tensors of one shape that are combined together, and whether there was a single one."""
    plain = unwrap_if_constexpr(input)
    single = not isinstance(plain, list | tuple | tl_tuple)
    inputs = [semantic.to_tensor(x) for x in ([plain] if single else plain)]
    if not inputs:
        raise ValueError(f"{function} needs at least one tensor")
    extents = inputs[0].extents
    if not extents:
        raise ValueError(f"{function} takes tensors of rank 1 or more, got a scalar of {inputs[0]}")
    if any(x.extents != extents for x in inputs):
        raise ValueError(
            f"all inputs of {function} must have the same shape, got {', '.join(map(str, inputs))}"
        )
    return inputs, single


def _order(semantic: Any, op: str, order: Any) -> dict[str, str]:
    """Return the attribute ``order`` of a reduction or scan, which is absent for any order."""
    found = unwrap_if_constexpr(order)
    if found is None:
        found = semantic.options.default_order
    return order_attribute(semantic, op, found)


def _combined(
    semantic: Any,
    op: str,
    combine_fn: Any,
    inputs: Sequence[tensor],
    function: str,
    **attributes: Any,
) -> list[tensor]:
    """Emit a reduction or scan, with overflow checks of additions.

    Checked additions are done in 64 bits, where they are exact: an overflow on the way depends on
    the order, while the exact sum does not. The checks of other functions are in them.
    """
    element = inputs[0].dtype
    if len(inputs) == 1 and semantic.is_checked(element):
        exact = int64 if element.is_int_signed() else uint64
        region, _ = semantic.generator.region(unwrap_if_constexpr(combine_fn), [exact] * 2)
        if _is_sum(region):
            operation = semantic.builder.region_op(
                op, [semantic.cast(inputs[0], exact).handle], regions=[region], **attributes
            )
            wide = semantic.wrap(operation.results[0], exact)
            semantic.check_range(wide, element, "add")
            return [semantic.cast(wide, element)]
    region = _combine(semantic, combine_fn, inputs, function)
    operation = semantic.builder.region_op(
        op, [x.handle for x in inputs], regions=[region], **attributes
    )
    return [
        semantic.wrap(handle, x.dtype) for handle, x in zip(operation.results, inputs, strict=True)
    ]


def _is_sum(region: Any) -> bool:
    """Return whether a function is ``a + b``."""
    first, last = region.first, region.terminator
    if first is None or first.name != "add" or first.next is not last:
        return False
    return list(last.operands) == first.results and sorted(map(id, first.operands)) == sorted(
        map(id, region.arguments)
    )


def _combine(semantic: Any, combine_fn: Any, inputs: Sequence[tensor], function: str) -> Any:
    elements = [x.dtype for x in inputs]
    region, types = semantic.generator.region(unwrap_if_constexpr(combine_fn), elements * 2)
    found = [flat for type_ in types for flat in _scalars(type_)]
    if found != elements:
        raise ValueError(
            f"{function}: the combine function must give values of the inputs' types "
            f"({', '.join(map(str, elements))}), got ({', '.join(map(str, found))}); cast "
            "its result"
        )
    return region


def _scalars(type_: Any) -> list[Any]:
    """Return the scalar types of a value, with tuples flattened."""
    parts = getattr(type_, "types", None)
    return [type_] if parts is None else [flat for part in parts for flat in _scalars(part)]
