"""Epilogues of matmuls: bias, activation, users' functions and residual, and their adjoints."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import tilewright as tw
import tilewright.language as tl
from tilewright_kernels.operations import Array, Function, Launcher, Operation

#: Arrays that an epilogue takes at most.
MOST_ARRAYS = 3
#: Columns of a block that an epilogue can ask for at most.
MOST_COLUMNS = 256


@dataclass(frozen=True)
class Epilogue:
    """A function that a matmul applies to each tile of its result before it stores the tile.

    Attributes:
        function: a function of ``tilewright.jit``, called as ``function(x, rows, columns, M, N,
            *arrays)`` with a tile of the result, the indices of the tile's rows and columns, the
            extents of the result and pointers to the arrays. It returns the tile that is stored.
            Tiles at the edges have rows and columns beyond M and N, so loads need masks.
        columns: the number of columns of a group, a power of two. Each tile then contains only
            whole groups of columns. Pass 1 if the function treats each column separately.
    """

    function: Any
    columns: int = 1

    def __post_init__(self) -> None:
        if self.columns & (self.columns - 1) or not 1 <= self.columns <= MOST_COLUMNS:
            raise ValueError(
                f"an epilogue takes blocks of a power of two up to {MOST_COLUMNS} columns, not of "
                f"{self.columns}"
            )


@tw.jit
def transformed(
    x, bias_ptr, array_0_ptr, array_1_ptr, array_2_ptr, rows, columns, M, N,
    ACTIVATION: tl.constexpr, EPILOGUE: tl.constexpr,
):  # fmt: skip
    """Return ``epilogue(activation(x + bias))`` of a tile."""
    if bias_ptr is not None:
        bias = tl.load(bias_ptr + columns, mask=columns < N, other=0.0)
        x += bias.to(x.dtype)[None, :]
    if ACTIVATION is not None:
        x = ACTIVATION(x)
    if EPILOGUE is not None:
        if array_2_ptr is not None:
            x = EPILOGUE(x, rows, columns, M, N, array_0_ptr, array_1_ptr, array_2_ptr)
        elif array_1_ptr is not None:
            x = EPILOGUE(x, rows, columns, M, N, array_0_ptr, array_1_ptr)
        elif array_0_ptr is not None:
            x = EPILOGUE(x, rows, columns, M, N, array_0_ptr)
        else:
            x = EPILOGUE(x, rows, columns, M, N)
    return x


@tw.jit
def store_results(
    accumulator, c_ptr, z_ptr, bias_ptr, residual_ptr, array_0_ptr, array_1_ptr, array_2_ptr,
    rows, columns, M, N, stride_cm, stride_cn, stride_rm, stride_rn,
    ACTIVATION: tl.constexpr, EPILOGUE: tl.constexpr,
):  # fmt: skip
    """Store the transformed accumulator plus the residual, and the accumulator to ``z``."""
    inside = (rows[:, None] < M) & (columns[None, :] < N)
    if z_ptr is not None:
        places = rows[:, None] * N + columns[None, :]
        tl.store(z_ptr + places, accumulator.to(z_ptr.dtype.element_ty), mask=inside)
    accumulator = transformed(
        accumulator, bias_ptr, array_0_ptr, array_1_ptr, array_2_ptr, rows, columns, M, N,
        ACTIVATION, EPILOGUE,
    )  # fmt: skip
    if residual_ptr is not None:
        residual = tl.load(
            residual_ptr + rows[:, None] * stride_rm + columns[None, :] * stride_rn,
            mask=inside,
            other=0.0,
        )
        accumulator += residual.to(accumulator.dtype)
    tl.store(
        c_ptr + rows[:, None] * stride_cm + columns[None, :] * stride_cn,
        accumulator.to(c_ptr.dtype.element_ty),
        mask=inside,
    )


@tw.jit
def epilogue_kernel(
    z_ptr, bias_ptr, array_0_ptr, array_1_ptr, array_2_ptr, y_ptr, M, N,
    ACTIVATION: tl.constexpr, EPILOGUE: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Compute ``y = epilogue(activation(z + bias))`` of matrices; z is zeros if there is none."""
    rows = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    inside = (rows[:, None] < M) & (columns[None, :] < N)
    places = (tl.program_id(2).to(tl.int64) * M + rows[:, None]) * N + columns[None, :]
    y = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    if z_ptr is not None:
        y += tl.load(z_ptr + places, mask=inside, other=0.0).to(tl.float32)
    y = transformed(
        y, bias_ptr, array_0_ptr, array_1_ptr, array_2_ptr, rows, columns, M, N,
        ACTIVATION, EPILOGUE,
    )  # fmt: skip
    tl.store(y_ptr + places, y.to(y_ptr.dtype.element_ty), mask=inside)


@functools.cache
def _adjoint(names: tuple[str, ...]) -> Any:
    """Return the derived kernel of the gradients of arguments of :func:`epilogue_kernel`."""
    return tw.vjp(epilogue_kernel, outputs="y_ptr", wrt=names, deterministic=True)


#: Results of the adjoint -> the arguments whose gradients they are.
_GRADIENTS = {
    "dz": "z",
    "dbias": "bias",
    "d_array_0": "array_0",
    "d_array_1": "array_1",
    "d_array_2": "array_2",
}


def _shapes(
    make: Any,
    dy: Any,
    z: Any,
    bias: Any,
    array_0: Any,
    array_1: Any,
    array_2: Any,
    activation: Any,
    epilogue: Any,
    epilogue_columns: int,
    wanted: str,
) -> tuple[Any, ...]:
    given = dict(zip(_GRADIENTS.values(), (z, bias, array_0, array_1, array_2), strict=True))
    return tuple(
        make(array.shape, dy.dtype if name == "z" else array.dtype)
        if name in wanted.split()
        else make((0,), dy.dtype)
        for name, array in given.items()
    )


def _launch(
    run: Launcher,
    dz: Any,
    dbias: Any,
    d_array_0: Any,
    d_array_1: Any,
    d_array_2: Any,
    dy: Array,
    z: Array | None,
    bias: Array | None,
    array_0: Array | None,
    array_1: Array | None,
    array_2: Array | None,
    activation: Function | None,
    epilogue: Function | None,
    epilogue_columns: int,
    wanted: str,
) -> None:
    results = dict(
        zip(_GRADIENTS.values(), (dz, dbias, d_array_0, d_array_1, d_array_2), strict=True)
    )
    gradients = {f"d_{name}_ptr": results[name] for name in wanted.split()}
    *leading, rows, columns = dy.shape
    batch = 1
    for extent in leading:
        batch *= extent
    if epilogue is None:
        rows, batch = batch * rows, 1
    block = max(min(256, tw.next_power_of_2(columns)), epilogue_columns)
    cotangent = packed(dy)
    run(
        _adjoint(tuple(f"{name}_ptr" for name in wanted.split())),
        (tw.cdiv(rows, 16), tw.cdiv(columns, block), batch),
        z,
        *(None if each is None else packed(each) for each in (bias, array_0, array_1, array_2)),
        cotangent,
        rows,
        columns,
        ACTIVATION=activation,
        EPILOGUE=epilogue,
        BLOCK_M=16,
        BLOCK_N=block,
        d_y_ptr=cotangent,
        **gradients,
    )


EPILOGUE_BACKWARD = Operation("matmul_epilogue_backward", tuple(_GRADIENTS), _shapes, _launch)


def epilogue_gradients(saved: Any, z: Any, dy: Any) -> dict[str, Any]:
    """Return the gradients of the arguments of an epilogue, and of ``z`` where there is one.

    Args:
        saved: has ``bias``, ``array_0`` and so on, ``activation``, ``epilogue``,
            ``epilogue_columns`` and ``needed``.
        z: the matmul before the epilogue; None if no gradient depends on it.
        dy: the cotangent of the epilogue's result.
    """
    names = [each for each in _GRADIENTS.values() if each in saved.needed]
    names = names if z is None else ["z", *names]
    if not names:
        return {}
    found = EPILOGUE_BACKWARD(
        dy,
        z,
        saved.bias,
        saved.array_0,
        saved.array_1,
        saved.array_2,
        saved.activation,
        saved.epilogue,
        saved.epilogue_columns,
        " ".join(names),
    )
    every = dict(zip(_GRADIENTS.values(), found, strict=True))
    return {name: every[name] for name in names}


def packed(array: Any) -> Any:
    """Return an array of C order: a copy where it is of another."""
    if hasattr(array, "contiguous"):
        return array.contiguous()
    if hasattr(array, "flags"):
        import numpy as np

        return np.ascontiguousarray(array)
    return array
