"""Attention as an operation, forward and backward, of batches and of packed sequences."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import tilewright as tw
from tilewright_kernels.attention.backward_kernels import (
    keys_gradient_kernel,
    queries_gradient_kernel,
    row_products_kernel,
    sinks_gradient_kernel,
)
from tilewright_kernels.attention.bias_gradients import (
    bias_gradient_kernel,
    scores_gradient_kernel,
    slopes_gradient_kernel,
)
from tilewright_kernels.attention.blocks import (
    bias_blocks,
    bias_columns,
    forward_blocks,
    forward_programs,
    fused_blocks,
    fuses_gradients,
    key_blocks,
    padded_head,
    query_blocks,
)
from tilewright_kernels.attention.forward_kernel import attention_forward_kernel
from tilewright_kernels.attention.fused_backward import (
    fused_gradients_kernel,
    scaled_sums_kernel,
)
from tilewright_kernels.attention.heads import Extents, extents_of, head_strides, rows_of
from tilewright_kernels.attention.reference import attention_by_formula
from tilewright_kernels.operations import Array, Function, Launcher, Operation, strides
from tilewright_kernels.operations.devices import device_of


def _lse_shape(q: Any, cu_seqlens_q: Any) -> tuple[int, ...]:
    if cu_seqlens_q is None:
        return q.shape[0], q.shape[2], q.shape[1]
    return q.shape[1], q.shape[0]


def _shapes(
    make: Any, q: Any, k: Any, v: Any, sinks: Any, alibi_slopes: Any, bias: Any,
    cu_seqlens_q: Any, cu_seqlens_k: Any, max_q: int, max_k: int,
    scale: float, softcap: float, left: int, right: int, mask: Any, deterministic: bool | None,
) -> tuple[Any, ...]:  # fmt: skip
    shape = (*q.shape[:-1], v.shape[-1])
    return make(shape, q.dtype), make(_lse_shape(q, cu_seqlens_q), "float32")


def _slopes_batch(alibi_slopes: Any) -> int:
    if alibi_slopes is None or len(alibi_slopes.shape) == 1:
        return 0
    return strides(alibi_slopes)[0]


def _all_rows_of(*arrays: Any) -> list[Any]:
    """Return arrays as :func:`rows_of` does, and None of None."""
    return [None if each is None else rows_of(each) for each in arrays]


def _bias_strides(bias: Any) -> tuple[int, int, int, int]:
    if bias is None:
        return 0, 0, 0, 0
    found = [0 if n == 1 else s for n, s in zip(bias.shape, strides(bias), strict=True)]
    return found[0], found[1], found[2], found[3]


def _constants(extents: Extents, left: int, right: int, softcap: float) -> Any:
    is_square = not extents.is_packed and extents.n_q == extents.n_k and right == 0
    return {
        "LEFT": left >= 0,
        "RIGHT": right >= 0,
        "SQUARE": is_square,
        "SOFTCAP": softcap > 0,
        "GROUP": extents.group,
        "D": extents.dims,
        "D_V": extents.value_dims,
        "PADDED": padded_head(extents.dims),
        "PADDED_V": padded_head(extents.value_dims),
    }


def _launch(
    run: Launcher, out: Any, lse: Any, q: Array, k: Array, v: Array,
    sinks: Array | None = None, alibi_slopes: Array | None = None, bias: Array | None = None,
    cu_seqlens_q: Array | None = None, cu_seqlens_k: Array | None = None,
    max_q: int = 0, max_k: int = 0, scale: float = 1.0, softcap: float = 0.0,
    left: int = -1, right: int = -1, mask: Function | None = None,
    deterministic: bool | None = None,
) -> None:  # fmt: skip
    e = extents_of(q, k, v, cu_seqlens_q, max_q, max_k)
    if 0 in (e.batch, e.n_q, e.heads):
        return
    q, k, v, sinks, alibi_slopes, cu_seqlens_q, cu_seqlens_k = _all_rows_of(
        q, k, v, sinks, alibi_slopes, cu_seqlens_q, cu_seqlens_k
    )
    constants = _constants(e, left, right, softcap)
    dims = max(constants["PADDED"], constants["PADDED_V"])
    device = device_of(q)
    blocks = forward_blocks(e.n_q, e.n_k, dims, q.dtype.itemsize, right >= 0, device)
    grid = (tw.cdiv(e.n_q, blocks.m), e.heads, e.batch)
    programs = 0
    if not e.is_packed:
        programs = forward_programs(
            math.prod(grid), e.n_k, blocks, dims, q.dtype.itemsize, right >= 0, device
        )
    run(
        attention_forward_kernel,
        (min(programs, math.prod(grid)),) if programs else grid,
        q, k, v, out, lse, sinks, alibi_slopes, bias, cu_seqlens_q, cu_seqlens_k,
        *head_strides(q), *head_strides(k), *head_strides(v), *head_strides(out),
        *e.lse_strides, _slopes_batch(alibi_slopes), *_bias_strides(bias),
        e.n_q, e.n_k, e.total_k, scale, softcap, left, right, e.heads, e.batch,
        EVEN=not e.is_packed and e.n_k % blocks.n == 0, MASK=mask, PROGRAMS=programs,
        **constants, **blocks.constants,
    )  # fmt: skip


def _out_by_formula(
    q: Any, k: Any, v: Any, sinks: Any, alibi_slopes: Any, bias: Any,
    cu_seqlens_q: Any, cu_seqlens_k: Any, max_q: int, max_k: int,
    scale: float, softcap: float, left: int, right: int, mask: Any,
) -> Any:  # fmt: skip
    out, _ = attention_by_formula(
        q, k, v, sinks, alibi_slopes, bias, cu_seqlens_q, cu_seqlens_k, max_q, max_k,
        scale, softcap, left, right, mask,
    )  # fmt: skip
    return out


#: Attention, and the logarithms of the row sums for the backward pass alone.
ATTENTION = Operation(
    "attention", ("out", "lse"), _shapes, _launch, residuals=("lse",), reference=_out_by_formula
)
#: Attention with the logarithms of the row sums as a result.
ATTENTION_LSE = Operation(
    "attention_lse", ("out", "lse"), _shapes, _launch, reference=attention_by_formula
)


def _backward_shapes(
    make: Any, dout: Any, dlse: Any, q: Any, k: Any, v: Any, attended: Any, lse: Any, sinks: Any,
    alibi_slopes: Any, bias: Any, cu_seqlens_q: Any, cu_seqlens_k: Any, max_q: int, max_k: int,
    scale: float, softcap: float, left: int, right: int, mask: Any, deterministic: bool | None,
    of_slopes: bool, of_bias: bool, of_sinks: bool,
) -> tuple[Any, ...]:  # fmt: skip
    return (
        make(q.shape, q.dtype),
        make(k.shape, k.dtype),
        make(v.shape, v.dtype),
        make(sinks.shape, "float32") if of_sinks else None,
        make(alibi_slopes.shape, "float32") if of_slopes else None,
        make(bias.shape, bias.dtype) if of_bias else None,
    )


def _backward_launch(
    run: Launcher, dq: Any, dk: Any, dv: Any, dsinks: Any, dslopes: Any, dbias: Any,
    dout: Array, dlse: Array | None, q: Array, k: Array, v: Array, attended: Array, lse: Array,
    sinks: Array | None, alibi_slopes: Array | None, bias: Array | None,
    cu_seqlens_q: Array | None, cu_seqlens_k: Array | None, max_q: int, max_k: int,
    scale: float, softcap: float, left: int, right: int, mask: Function | None,
    deterministic: bool | None = None, of_slopes: bool = False, of_bias: bool = False,
    of_sinks: bool = False,
) -> None:  # fmt: skip
    e = extents_of(q, k, v, cu_seqlens_q, max_q, max_k)
    q, k, v, dout, dlse, sinks, alibi_slopes, cu_seqlens_q, cu_seqlens_k = _all_rows_of(
        q, k, v, dout, dlse, sinks, alibi_slopes, cu_seqlens_q, cu_seqlens_k
    )
    constants = {**_constants(e, left, right, softcap), "MASK": mask}
    dims = max(constants["PADDED"], constants["PADDED_V"])
    device, itemsize = device_of(q), q.dtype.itemsize
    delta = run.empty(lse.shape, "float32")
    distances, distances_strides = None, (0, 0)
    dlse_strides = (0, 0)
    if dlse is not None:
        found = strides(dlse)
        dlse_strides = (0, found[0]) if e.is_packed else (found[0], found[1])
    side = 64 if e.value_dims <= 128 else 32
    is_fused = (
        not deterministic
        and fuses_gradients(dims, itemsize, device)
        and 0 not in (e.batch, e.n_q, e.heads)  # descriptors have no empty axes
    )
    lse_blocks, delta_blocks, blocks_strides = None, None, (0, 0)
    if is_fused:
        blocks = fused_blocks(dims, device)
        side = blocks.m
        blocks_strides = e.block_strides(side)
        rows = e.heads * blocks_strides[1]
        lse_blocks, delta_blocks = (run.empty((rows,), "float32") for _ in range(2))
    run(
        row_products_kernel,
        (tw.cdiv(e.n_q, side), e.heads, e.batch),
        attended, dout, lse, dlse, delta, lse_blocks, delta_blocks, cu_seqlens_q,
        *head_strides(attended), *head_strides(dout),
        *e.lse_strides, *dlse_strides, *blocks_strides, e.n_q,
        M=side, D=e.value_dims, PADDED=constants["PADDED_V"],
    )  # fmt: skip
    if is_fused:
        dq_sums = run.zeros((rows, constants["PADDED"]), "float32")
        if of_slopes:
            distances = run.empty((1 if e.is_packed else e.batch, e.heads, e.total_k), "float32")
            distances_strides = (0 if e.is_packed else e.heads * e.total_k, e.total_k)
        run(
            fused_gradients_kernel,
            (tw.cdiv(e.n_k, blocks.n), e.key_heads, e.batch),
            q, k, v, dout, lse_blocks, delta_blocks, dq_sums, dk, dv, distances,
            alibi_slopes, bias, cu_seqlens_q, cu_seqlens_k,
            *head_strides(q), *head_strides(k), *head_strides(v), *head_strides(dout),
            *head_strides(dk), *head_strides(dv), *blocks_strides, rows, *distances_strides,
            _slopes_batch(alibi_slopes), *_bias_strides(bias),
            e.n_q, e.n_k, e.total_q, scale, softcap, left, right,
            EVEN=not e.is_packed and e.n_k % blocks.n == 0, updates=("dq_sums_ptr",),
            **constants, **blocks.constants,
        )  # fmt: skip
        is_scaled = softcap > 0 or alibi_slopes is not None or bias is not None
        run(
            scaled_sums_kernel,
            (tw.cdiv(e.n_q, side), e.heads, e.batch),
            dq_sums, dq, cu_seqlens_q, *blocks_strides, *head_strides(dq), e.n_q,
            1.0 if is_scaled else scale, M=side, D=e.dims, PADDED=constants["PADDED"],
        )  # fmt: skip
    else:
        blocks = key_blocks(dims, itemsize, device)
        run(
            keys_gradient_kernel,
            (tw.cdiv(e.n_k, blocks.n), e.key_heads, e.batch),
            q, k, v, dout, lse, delta, dk, dv, alibi_slopes, bias, cu_seqlens_q, cu_seqlens_k,
            *head_strides(q), *head_strides(k), *head_strides(v), *head_strides(dout),
            *head_strides(dk), *head_strides(dv), *e.lse_strides,
            _slopes_batch(alibi_slopes), *_bias_strides(bias),
            e.n_q, e.n_k, e.total_q, scale, softcap, left, right,
            **constants, **blocks.constants,
        )  # fmt: skip
        blocks = query_blocks(dims, itemsize, device)
        if of_slopes:
            distances, distances_strides = run.empty(lse.shape, "float32"), e.lse_strides
        run(
            queries_gradient_kernel,
            (tw.cdiv(e.n_q, blocks.m), e.heads, e.batch),
            q, k, v, dout, lse, delta, dq, distances,
            alibi_slopes, bias, cu_seqlens_q, cu_seqlens_k,
            *head_strides(q), *head_strides(k), *head_strides(v), *head_strides(dout),
            *head_strides(dq), *e.lse_strides, _slopes_batch(alibi_slopes), *_bias_strides(bias),
            e.n_q, e.n_k, e.total_k, scale, softcap, left, right,
            EVEN=not e.is_packed and e.n_k % blocks.n == 0,
            **constants, **blocks.constants,
        )  # fmt: skip
    if of_slopes:
        of_batches = len(dslopes.shape) == 2
        run(
            slopes_gradient_kernel,
            (e.heads, e.batch if of_batches else 1),
            distances, dslopes, cu_seqlens_k if is_fused else cu_seqlens_q,
            1 if of_batches else e.batch, e.n_k if is_fused else e.n_q,
            *distances_strides, _slopes_batch(dslopes),
            BLOCK=1024,
        )  # fmt: skip
    if of_bias:
        of_batch, of_head, of_row, of_column = (n != 1 for n in dbias.shape)
        of_scores = tuple(dbias.shape) == (e.batch, e.heads, e.n_q, e.n_k)
        blocks = bias_blocks(dims, itemsize, of_scores, device)
        row_blocks = tw.cdiv(e.n_q, blocks.m) if of_row else 1
        column_blocks = tw.cdiv(e.n_k, blocks.n) if of_column else 1
        shared: dict[str, Any] = {}
        if of_scores:
            each = bias_columns(row_blocks * e.heads * e.batch, column_blocks, device)
            column_blocks = tw.cdiv(column_blocks, each)
            extents: tuple[int, ...] = (each * blocks.n,)
        else:
            extents = (1 if of_batch else e.batch, 1 if of_head else e.heads)
            shared = {"ALL_ROWS": not of_row, "ALL_COLUMNS": not of_column}
        run(
            scores_gradient_kernel if of_scores else bias_gradient_kernel,
            (row_blocks * column_blocks, dbias.shape[1], dbias.shape[0]),
            q, k, v, dout, lse, delta, dbias, alibi_slopes, bias,
            *head_strides(q), *head_strides(k), *head_strides(v), *head_strides(dout),
            *e.lse_strides, _slopes_batch(alibi_slopes), *_bias_strides(bias), *strides(dbias),
            e.n_q, e.n_k, *extents, scale, softcap, left, right,
            **shared, **constants, **blocks.constants,
        )  # fmt: skip
    if of_sinks:
        rows = e.total_q
        run(
            sinks_gradient_kernel,
            (e.heads,),
            sinks, lse, delta, dsinks, e.heads, rows, *e.lse_strides, 1 if e.is_packed else e.batch,
            BLOCK=1024,
        )  # fmt: skip


ATTENTION_BACKWARD = Operation(
    "attention_backward",
    ("dq", "dk", "dv", "dsinks", "dslopes", "dbias"),
    _backward_shapes,
    _backward_launch,
    optional=("dsinks", "dslopes", "dbias"),
)

_SAVED = (
    "q", "k", "v", "out", "lse", "sinks", "alibi_slopes", "bias", "cu_seqlens_q", "cu_seqlens_k",
)  # fmt: skip


def _gradients(saved: Any, dout: Any, dlse: Any) -> Mapping[str, Any]:
    if dout is None:
        dout = saved.out * 0
    dq, dk, dv, *others, dbias = ATTENTION_BACKWARD(
        dout, dlse, saved.q, saved.k, saved.v, saved.out, saved.lse, saved.sinks,
        saved.alibi_slopes, saved.bias, saved.cu_seqlens_q, saved.cu_seqlens_k,
        saved.max_q, saved.max_k, saved.scale, saved.softcap, saved.left, saved.right, saved.mask,
        saved.deterministic, *(name in saved.needed for name in ("alibi_slopes", "bias", "sinks")),
    )  # fmt: skip
    found = {"q": dq, "k": dk, "v": dv, "bias": dbias}
    for name, gradient in zip(("sinks", "alibi_slopes"), others, strict=True):
        if gradient is not None:
            cast = getattr(gradient, "astype", None) or gradient.to
            found[name] = cast(getattr(saved, name).dtype)
    return found


@ATTENTION.differentiate(saved=_SAVED)
def _attention_gradients(saved: Any, dout: Any) -> Mapping[str, Any]:
    return _gradients(saved, dout, None)


@ATTENTION_LSE.differentiate(saved=_SAVED)
def _attention_lse_gradients(saved: Any, dout: Any, dlse: Any) -> Mapping[str, Any]:
    return _gradients(saved, dout, dlse)
