"""RMS norm over the last axis."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import array_api_compat

import tilewright as tw
import tilewright.language as tl
from tilewright_kernels.operations import Array, Launcher, Operation, strides
from tilewright_kernels.rows.shapes import contiguous, matrix_of


@tw.jit
def rms_norm_kernel(
    x_ptr, weight_ptr, y_ptr, rstd_ptr, x_stride, y_stride, n_columns, eps, BLOCK: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    inside = columns < n_columns
    x = tl.load(x_ptr + row * x_stride + columns, mask=inside, other=0.0).to(tl.float32)
    rstd = tl.rsqrt(tl.sum(x * x, axis=0) / n_columns + eps)
    y = x * rstd
    if weight_ptr is not None:
        y *= tl.load(weight_ptr + columns, mask=inside, other=0.0).to(tl.float32)
    tl.store(y_ptr + row * y_stride + columns, y, mask=inside)
    if rstd_ptr is not None:
        tl.store(rstd_ptr + row, rstd)


def rms_norm_reference(x: Any, weight: Any = None, eps: float = 1e-6) -> Any:
    """Return ``x / sqrt(mean(x ** 2) + eps) * weight`` over the last axis, in the types of x."""
    xp = array_api_compat.array_namespace(x)
    y = x / xp.sqrt(xp.mean(x * x, axis=-1, keepdims=True) + eps)
    return y if weight is None else y * weight


def _shapes(make: Any, x: Any, weight: Any, eps: float) -> tuple[Any, ...]:
    return make(x.shape, x.dtype), make(x.shape[:-1], "float32")


def _launch(
    run: Launcher, y: Any, rstd: Any, x: Array, weight: Array | None = None, eps: float = 1e-6
) -> None:
    rows = matrix_of(x)
    n_rows, n_columns = rows.shape
    block = tw.next_power_of_2(n_columns)
    run(
        rms_norm_kernel,
        (n_rows,),
        rows,
        contiguous(weight),
        y,
        rstd,
        strides(rows)[0],
        n_columns,
        n_columns,
        eps,
        BLOCK=block,
        num_warps=min(max(block // 512, 1), 16),
    )


RMS_NORM = Operation(
    "rms_norm", ("y", "rstd"), _shapes, _launch, residuals=("rstd",), reference=rms_norm_reference
)

_ADJOINT = {
    has_weight: tw.vjp(
        rms_norm_kernel,
        outputs="y_ptr",
        wrt=("x_ptr", "weight_ptr") if has_weight else "x_ptr",
        saved="rstd_ptr",
        deterministic=True,
    )
    for has_weight in (False, True)
}


def _backward_shapes(
    make: Any, dy: Any, x: Any, rstd: Any, weight: Any, eps: float
) -> tuple[Any, ...]:
    return make(x.shape, x.dtype), make(() if weight is None else weight.shape, x.dtype)


def _backward_launch(
    run: Launcher,
    dx: Any,
    dweight: Any,
    dy: Array,
    x: Array,
    rstd: Array,
    weight: Array | None,
    eps: float,
) -> None:
    # the adjoint applies a row's offset to its gradient and to its cotangent
    rows, cotangent = contiguous(matrix_of(x)), contiguous(matrix_of(dy))
    n_rows, n_columns = rows.shape
    block = tw.next_power_of_2(n_columns)
    gradients = {"d_x_ptr": dx.reshape(rows.shape)}
    if weight is not None:
        gradients["d_weight_ptr"] = dweight
    run(
        _ADJOINT[weight is not None],
        (n_rows,),
        rows,
        contiguous(weight),
        cotangent,
        rstd,
        strides(rows)[0],
        n_columns,
        n_columns,
        eps,
        BLOCK=block,
        num_warps=min(max(block // 512, 1), 16),
        d_y_ptr=cotangent,
        **gradients,
    )


RMS_NORM_BACKWARD = Operation(
    "rms_norm_backward", ("dx", "dweight"), _backward_shapes, _backward_launch
)


@RMS_NORM.differentiate(saved=("x", "weight", "rstd"))
def _gradients(saved: Any, dy: Any) -> Mapping[str, Any]:
    dx, dweight = RMS_NORM_BACKWARD(dy, saved.x, saved.rstd, saved.weight, saved.eps)
    return {"x": dx} if saved.weight is None else {"x": dx, "weight": dweight}


def rms_norm(x: Any, weight: Any = None, *, eps: float = 1e-6, out: Any = None) -> Any:
    """Divide each row by its root mean square, and multiply it by the weight.

    Args:
        x: of shape (..., columns), of float16, bfloat16 or float32, of any strides.
        weight: of shape (columns,), or None.
        eps: added to the mean of squares.
        out: the array for the result.

    Returns:
        An array of the shape and type of ``x``. Sums are in float32.

    Source: Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019.
    """
    return RMS_NORM(x, weight, eps, out=out)
