"""Grouped matmuls: contiguous groups of rows, groups with a capacity, and groups along K."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import array_api_compat

import tilewright as tw
from tilewright_kernels.linear.alignment import is_transposed_in_memory
from tilewright_kernels.linear.blocks import grouped_blocks, k_grouped_blocks
from tilewright_kernels.linear.element_types import (
    accumulator_of,
    bits_of,
    name_of,
    operand_of,
    result_of,
)
from tilewright_kernels.linear.epilogue import packed
from tilewright_kernels.linear.grouped_kernels import (
    grouped_descriptor_kernel,
    grouped_matmul_kernel,
    k_grouped_descriptor_kernel,
    k_grouped_matmul_kernel,
)
from tilewright_kernels.operations import Array, Launcher, Operation, strides
from tilewright_kernels.operations.devices import device_of

_GROUP_M = 8
#: Elements of 16 bits that TMA stores at once: a divisor of what it stores of rows.
_EIGHT = 8


def grouped_matmul_reference(a: Any, b: Any, rows: Any) -> Any:
    """Return ``a[rows of g] @ b[g]`` for each group g.

    Groups are contiguous where ``a`` is a matrix, and else those rows of ``a[g]`` are used that
    ``rows`` counts; the others' results are zeros.
    """
    xp = array_api_compat.array_namespace(a)
    if a.ndim == 2:
        ends = [int(each) for each in rows]
        parts = [
            xp.matmul(a[start:end], b[group])
            for group, (start, end) in enumerate(itertools.pairwise(ends))
        ]
        return xp.concat(parts, axis=0)
    places = xp.arange(a.shape[1], device=array_api_compat.device(a))
    inside = places[None, :] < rows[:, None]
    return xp.where(inside[:, :, None], xp.matmul(a, b), xp.zeros_like(a[:1, :1, :1]))


def k_grouped_matmul_reference(a: Any, b: Any, rows: Any) -> Any:
    """Return ``a[rows of g].T @ b[rows of g]`` for each group g of rows of matrices."""
    xp = array_api_compat.array_namespace(a)
    ends = [int(each) for each in rows]
    return xp.stack(
        [
            xp.matmul(xp.permute_dims(a[start:end], (1, 0)), b[start:end])
            for start, end in itertools.pairwise(ends)
        ]
    )


def _shapes(
    make: Any, a: Any, b: Any, rows: Any, precision: str, invariant: bool | None
) -> tuple[Any, ...]:
    return (make((*a.shape[:-1], b.shape[-1]), result_of(operand_of(name_of(a), name_of(b)))),)


def _launch(
    run: Launcher,
    c: Any,
    a: Array,
    b: Array,
    rows: Array,
    precision: str,
    invariant: bool | None = None,
) -> None:
    n_groups, k, n = b.shape
    capacity = a.shape[1] if a.ndim == 3 else 0
    a, c, rows = _rows(a), _rows(c), packed(rows)
    n_rows = a.shape[0]
    if n_rows == 0 or n == 0 or n_groups == 0:
        return
    operand = name_of(a)
    device = device_of(a)
    transposed = is_transposed_in_memory(b)
    has_descriptors = (
        device.family in ("hopper", "blackwell")
        and transposed is not None
        and is_transposed_in_memory(a) is False
        and strides(c)[-1] == 1
        and k > 0
    )
    blocks = grouped_blocks(
        max(n_rows // n_groups, 1),
        n,
        k,
        bits_of(operand),
        device,
        n_groups,
        may_widen=has_descriptors and not invariant,
        is_invariant=bool(invariant),
    )
    tiles = (
        n_groups * tw.cdiv(capacity, blocks.m)
        if capacity
        else n_rows // blocks.m + min(n_groups, n_rows)
    )
    programs = tiles * tw.cdiv(n, blocks.n)
    constants = {
        "BLOCK_M": blocks.m,
        "BLOCK_N": blocks.first,
        "BLOCK_K": blocks.k,
        "GROUP_M": _GROUP_M,
        "CAPACITY": capacity,
        "SUM": accumulator_of(operand),
        "PRECISION": precision,
        **blocks.options,
        **({"invariant": True} if invariant else {}),
    }
    if has_descriptors and blocks.m >= 64:
        programs = min(programs, device.processors)
        run(
            grouped_descriptor_kernel,
            (programs,),
            a,
            b,
            c,
            rows,
            n_groups,
            n,
            k,
            strides(a)[0],
            strides(b)[0],
            max(strides(b)[1:]),
            strides(c)[0],
            MORE_N=blocks.n - blocks.first,
            B_IS_TRANSPOSED=bool(transposed),
            PROGRAMS=programs,
            DIVISOR_N=_EIGHT if n % _EIGHT == 0 else 1,
            **constants,
        )
        return
    run(
        grouped_matmul_kernel,
        (programs,),
        a,
        b,
        c,
        rows,
        tiles,
        n_groups,
        n,
        k,
        *strides(a),
        *strides(b),
        *strides(c),
        GROUPS=tw.next_power_of_2(n_groups),
        **constants,
    )


def _rows(array: Any) -> Any:
    return array if array.ndim == 2 else array.reshape(-1, array.shape[-1])


GROUPED_MATMUL = Operation(
    "grouped_matmul", ("c",), _shapes, _launch, reference=grouped_matmul_reference
)


def _k_shapes(
    make: Any, a: Any, b: Any, rows: Any, n_groups: int, precision: str, invariant: bool | None
) -> Any:
    return (make((n_groups, a.shape[-1], b.shape[-1]), name_of(a)),)


def _k_launch(
    run: Launcher,
    c: Any,
    a: Array,
    b: Array,
    rows: Array,
    n_groups: int,
    precision: str,
    invariant: bool | None = None,
) -> None:
    capacity = max(a.shape[1], 1) if a.ndim == 3 else 0
    a, b, rows = _rows(a), _rows(b), packed(rows)
    m, n = a.shape[1], b.shape[1]
    if m == 0 or n == 0 or n_groups == 0:
        return
    operand = name_of(a)
    device = device_of(a)
    may_persist = (
        device.family == "hopper"
        and not invariant
        and a.shape[0] > 0
        and is_transposed_in_memory(a) is is_transposed_in_memory(b) is False
        and strides(c)[-1] == 1
    )
    blocks = k_grouped_blocks(
        m,
        n,
        max(a.shape[0] // n_groups, 1),
        bits_of(operand),
        device,
        n_groups,
        may_persist=may_persist,
        is_invariant=bool(invariant),
    )
    programs = n_groups * tw.cdiv(m, blocks.m) * tw.cdiv(n, blocks.n)
    constants: dict[str, Any] = {
        "BLOCK_M": blocks.m,
        "BLOCK_N": blocks.n,
        "BLOCK_K": blocks.k,
        "GROUP_M": _GROUP_M,
        "CAPACITY": capacity,
        "SUM": accumulator_of(operand),
        "PRECISION": precision,
        **blocks.options,
        **({"invariant": True} if invariant else {}),
    }
    if blocks.is_persistent:
        programs = min(programs, device.processors)
        run(
            k_grouped_descriptor_kernel,
            (programs,),
            a,
            b,
            c,
            rows,
            n_groups,
            m,
            n,
            strides(a)[0],
            strides(b)[0],
            *strides(c)[:2],
            PROGRAMS=programs,
            DIVISOR_N=_EIGHT if n % _EIGHT == 0 else 1,
            **constants,
        )
        return
    run(
        k_grouped_matmul_kernel,
        (programs,),
        a,
        b,
        c,
        rows,
        m,
        n,
        *strides(a),
        *strides(b),
        *strides(c),
        **constants,
    )


K_GROUPED_MATMUL = Operation(
    "k_grouped_matmul", ("c",), _k_shapes, _k_launch, reference=k_grouped_matmul_reference
)


@GROUPED_MATMUL.differentiate(saved=("a", "b", "rows"))
def _gradients(saved: Any, dc: Any) -> Mapping[str, Any]:
    found, settings = {}, (saved.precision, saved.invariant)
    if "a" in saved.needed:
        found["a"] = GROUPED_MATMUL(dc, saved.b.swapaxes(-1, -2), saved.rows, *settings)
    if "b" in saved.needed:
        found["b"] = K_GROUPED_MATMUL(saved.a, dc, saved.rows, saved.b.shape[0], *settings)
    return found


@K_GROUPED_MATMUL.differentiate(saved=("a", "b", "rows"))
def _k_gradients(saved: Any, dc: Any) -> Mapping[str, Any]:
    found, settings = {}, (saved.precision, saved.invariant)
    if "a" in saved.needed:
        found["a"] = GROUPED_MATMUL(saved.b, dc.swapaxes(-1, -2), saved.rows, *settings)
    if "b" in saved.needed:
        found["b"] = GROUPED_MATMUL(saved.a, dc, saved.rows, *settings)
    return found


def grouped_matmul(
    a: Any,
    b: Any,
    rows: Any,
    *,
    precision: str = "ieee",
    invariant: bool | None = None,
    out: Any = None,
) -> Any:
    """Multiply each group of rows by the matrix of the group, in one launch.

    Args:
        a: of shape (rows, K) with contiguous groups of rows, or of shape (groups, capacity, K), of
            float16, bfloat16 or float32.
        b: of shape (groups, K, N), of any strides, of the type of ``a``.
        rows: of int32. For contiguous groups, it has the shape (groups + 1,) and contains the first
            row of each group in ascending order, and at the end the number of all rows. For groups
            with a capacity, it has the shape (groups,) and contains how many rows of each group are
            used. The results of all other rows are zeros.
        precision: see :func:`.matmul`.
        invariant: whether the bits of a row must not depend on the numbers of rows and groups. This
            holds for operands of the same strides and alignment. None means the library's default.
        out: the array for the result.

    Returns:
        An array with the element type of ``a``. It has the shape (rows, N) if ``a`` has the shape
        (rows, K), and (groups, capacity, N) if ``a`` has the shape (groups, capacity, K). The host
        does not read ``rows``, so it does not wait for the device.

    Raises:
        ValueError: the shapes of the arguments do not match.

    Gradients: the same operation, and :func:`k_grouped_matmul`.
    """
    if b.ndim != 3 or a.ndim not in (2, 3) or a.shape[-1] != b.shape[1]:
        raise ValueError(
            f"a of shape {tuple(a.shape)} has no groups of rows for b of shape {tuple(b.shape)}: "
            "they are (rows, K) or (groups, capacity, K), and (groups, K, N)"
        )
    if a.ndim == 3 and a.shape[0] != b.shape[0]:
        raise ValueError(f"a has {a.shape[0]} groups, and b has {b.shape[0]}")
    _check(a, b, rows, b.shape[0])
    return GROUPED_MATMUL(a, b, rows, precision, invariant, out=out)


def k_grouped_matmul(
    a: Any,
    b: Any,
    rows: Any,
    *,
    precision: str = "ieee",
    invariant: bool | None = None,
    out: Any = None,
) -> Any:
    """For each group, multiply the transpose of the group's rows of ``a`` by its rows of ``b``.

    Args:
        a: of shape (rows, M), of float16, bfloat16 or float32.
        b: of shape (rows, N), of the type of ``a``.
        rows: of int32 and shape (groups + 1,): the first row of each group in ascending order, and
            at the end the number of all rows.
        precision: see :func:`.matmul`.
        invariant: whether the bits of a group's result must not depend on the other groups.
        out: the array for the result.

    Returns:
        An array of shape (groups, M, N) with the element type of ``a``. If a group has no rows, its
        result is zero.

    Raises:
        ValueError: the shapes of the arguments do not match.

    Gradients: two calls of :func:`grouped_matmul`.
    """
    if a.ndim != 2 or b.ndim != 2 or a.shape[0] != b.shape[0]:
        raise ValueError(
            f"a and b must be matrices of the same rows: {tuple(a.shape)} and {tuple(b.shape)}"
        )
    n_groups = rows.shape[0] - 1
    _check(a, b, rows, n_groups)
    return K_GROUPED_MATMUL(a, b, rows, n_groups, precision, invariant, out=out)


def _check(a: Any, b: Any, rows: Any, n_groups: int) -> None:
    expected = (n_groups,) if a.ndim == 3 else (n_groups + 1,)
    if tuple(rows.shape) != expected:
        raise ValueError(f"rows has the shape {tuple(rows.shape)}, not {expected}")
    if name_of(a) != name_of(b):
        raise TypeError(f"a is of {name_of(a)}, and b of {name_of(b)}")
    operand_of(name_of(a), name_of(b))
