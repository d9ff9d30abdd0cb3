"""Matmul with an epilogue: bias, activation, residual, and conversion."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import array_api_compat

import tilewright as tw
from tilewright_kernels.linear.alignment import (
    is_transposed_in_memory,
    row_alignment,
    with_aligned_rows,
)
from tilewright_kernels.linear.blocks import LINE, Blocks, plain_matmul_blocks
from tilewright_kernels.linear.element_types import (
    OPERANDS,
    accumulator_of,
    bits_of,
    name_of,
    operand_of,
    result_of,
)
from tilewright_kernels.linear.epilogue import MOST_ARRAYS, Epilogue, epilogue_gradients, packed
from tilewright_kernels.linear.leading_axes import in_shape, returned
from tilewright_kernels.linear.matmul_kernels import (
    add_parts_kernel,
    matmul_kernel,
    persistent_matmul_kernel,
    vector_matmul_kernel,
)
from tilewright_kernels.operations import Array, Function, Launcher, Operation, strides
from tilewright_kernels.operations.array_functions import evaluated
from tilewright_kernels.operations.devices import device_of

_GROUP_M = 8
#: Elements of 16 bits that TMA stores at once.
_EIGHT = 8
_INT32 = 1 << 31


def matmul_reference(
    a: Any,
    b: Any,
    bias: Any = None,
    residual: Any = None,
    *,
    activation: Any = None,
    epilogue: Any = None,
    arrays: Sequence[Any] = (),
) -> Any:
    """Return ``epilogue(activation(a @ b + bias)) + residual`` in the types of the arrays.

    Functions of ``tilewright.jit`` are evaluated by their source on the arrays; ``activation`` may
    also be a function of arrays.
    """
    xp = array_api_compat.array_namespace(a)
    c = xp.matmul(a, b)
    if bias is not None:
        c = c + bias
    if activation is not None:
        c = evaluated(activation, c)
    if epilogue is not None:
        c = _with_epilogue(xp, c, epilogue, arrays)
    return c if residual is None else c + residual


def _with_epilogue(xp: Any, c: Any, epilogue: Any, arrays: Sequence[Any]) -> Any:
    if c.ndim > 2:
        return xp.stack([_with_epilogue(xp, each, epilogue, arrays) for each in c])
    device = array_api_compat.device(c)
    rows, columns = (xp.arange(extent, device=device) for extent in c.shape)
    function = epilogue.function if isinstance(epilogue, Epilogue) else epilogue
    return evaluated(function, c, rows, columns, *c.shape, pointers=arrays)


def _by_formula(
    a: Any,
    b: Any,
    bias: Any,
    residual: Any,
    array_0: Any,
    array_1: Any,
    array_2: Any,
    activation: Any,
    epilogue: Any,
) -> Any:
    arrays = [each for each in (array_0, array_1, array_2) if each is not None]
    return matmul_reference(
        a, b, bias, residual, activation=activation, epilogue=epilogue, arrays=arrays
    )


def _shapes(
    make: Any,
    a: Any,
    b: Any,
    bias: Any,
    residual: Any,
    array_0: Any,
    array_1: Any,
    array_2: Any,
    activation: Any,
    epilogue: Any,
    epilogue_columns: int,
    out_dtype: str,
    precision: str,
    invariant: bool | None,
) -> tuple[Any, ...]:
    shape = (*a.shape[:-1], b.shape[-1])
    dtype = out_dtype or result_of(operand_of(name_of(a), name_of(b)))
    return make(shape, dtype), make((0,) if activation is epilogue is None else shape, dtype)


def launch_matmul(
    run: Launcher,
    c: Any,
    z: Any,
    a: Array,
    b: Array,
    bias: Array | None = None,
    residual: Array | None = None,
    array_0: Array | None = None,
    array_1: Array | None = None,
    array_2: Array | None = None,
    activation: Function | None = None,
    epilogue: Function | None = None,
    epilogue_columns: int = 1,
    out_dtype: str = "",
    precision: str = "ieee",
    invariant: bool | None = None,
) -> None:
    """Launch the kernels of a matmul."""
    z = None if activation is epilogue is None else z
    bias, array_0, array_1, array_2 = (
        None if each is None else packed(each) for each in (bias, array_0, array_1, array_2)
    )
    (m, k), n = a.shape[-2:], b.shape[-1]
    batch = a.shape[0] if a.ndim == 3 else 1
    if m == 0 or n == 0 or batch == 0:
        return
    operand = operand_of(name_of(a), name_of(b))
    device = device_of(a)
    if batch == 1 and device.family in ("hopper", "blackwell") and not invariant:
        a, b = with_aligned_rows(run, a, b)
        k = b.shape[-2]
    may_persist = (
        batch == 1
        and device.family in ("hopper", "blackwell")
        and name_of(a) == name_of(b)
        and k > 0
        and all(is_transposed_in_memory(each) is not None for each in (a, b, c))
        and is_transposed_in_memory(c) is False
        and bits_of(name_of(c)) <= 16
    )
    is_cpu = device.family == "cpu"
    blocks = plain_matmul_blocks(
        m,
        n,
        k,
        bits_of(operand),
        device,
        batch=batch,
        may_split=batch == 1 and not invariant,
        may_persist=may_persist,
        is_invariant=bool(invariant),
        columns=epilogue_columns,
        may_widen=may_persist,
        may_cluster=may_persist and activation is epilogue is z is None,
        alignment=row_alignment(a, b) if may_persist else LINE,
        b_is_row_major=is_cpu and strides(b)[-1] == 1,
        may_update_by_rank_1=is_cpu and strides(b)[-1] == strides(c)[-1] == 1,
    )
    results = (c, z, bias, residual, array_0, array_1, array_2)
    constants = {
        "SUM": accumulator_of(operand),
        "PRECISION": precision,
        "ACTIVATION": activation,
        "EPILOGUE": epilogue,
    }
    if blocks.is_persistent:
        launch_persistent(run, blocks, a, b, results, device.processors, constants)
    elif (
        m == batch == epilogue_columns == 1
        and not invariant
        and _is_vector(a, b, operand, device.family)
    ):
        launch_vector(run, a, b, results, constants)
    else:
        launch_blocks(
            run,
            blocks,
            a,
            b,
            results,
            OPERANDS[operand],
            constants,
            bool(invariant),
            epilogue_columns,
        )


def launch_blocks(
    run: Launcher,
    blocks: Blocks,
    a: Any,
    b: Any,
    results: tuple[Any, ...],
    operand: Any,
    constants: Mapping[str, Any],
    invariant: bool,
    epilogue_columns: int = 1,
) -> None:
    """Launch the kernel that reads operands of any strides through pointers."""
    c, _, _, residual, *_ = results
    (m, k), n = a.shape[-2:], b.shape[-1]
    batch = a.shape[0] if a.ndim == 3 else 1
    options: dict[str, Any] = {**blocks.options, **({"invariant": True} if invariant else {})}
    outputs = results
    c_strides, residual_strides = _three(c), _three(residual)
    if blocks.split > 1:
        parts = run.empty((blocks.split, m, n), "int32" if "int" in str(operand) else "float32")
        outputs, c_strides = (parts, *[None] * 6), (0, n, 1)
    wide = any(
        sum((size - 1) * step for size, step in zip(each.shape, strides(each), strict=True))
        >= _INT32
        for each in (a, b, c, residual)
        if each is not None
    )
    run(
        matmul_kernel,
        (tw.cdiv(m, blocks.m) * tw.cdiv(n, blocks.n) * batch, blocks.split),
        a,
        b,
        *outputs,
        m,
        n,
        k,
        *_three(a),
        *_three(b),
        *c_strides,
        *(residual_strides if blocks.split == 1 else (0, 0, 0)),
        BLOCK_M=blocks.m,
        BLOCK_N=blocks.n,
        BLOCK_K=blocks.k,
        GROUP_M=1 if blocks.updates_by_rank_1 else _GROUP_M,
        SPLIT=blocks.split,
        IS_BATCHED=batch > 1,
        IS_WIDE=wide,
        EVEN_K=k % blocks.k == 0,
        OPERAND=operand,
        **(constants if blocks.split == 1 else {**constants, "ACTIVATION": None, "EPILOGUE": None}),
        **options,
    )
    if blocks.split > 1:
        columns = max(min(512, tw.next_power_of_2(n)), epilogue_columns)
        run(
            add_parts_kernel,
            (tw.cdiv(m, max(1024 // columns, 1)), tw.cdiv(n, columns)),
            outputs[0],
            *results[:4],
            m,
            n,
            m * n,
            *_three(c)[1:],
            *residual_strides[1:],
            SPLIT=blocks.split,
            BLOCK_M=max(1024 // columns, 1),
            BLOCK_N=columns,
            **{name: each for name, each in constants.items() if name != "PRECISION"},
            **{f"array_{number}_ptr": each for number, each in enumerate(results[4:])},
        )


def launch_persistent(
    run: Launcher,
    blocks: Blocks,
    a: Any,
    b: Any,
    results: tuple[Any, ...],
    processors: int,
    constants: Mapping[str, Any],
) -> None:
    """Launch the kernel whose programs compute several blocks each."""
    a, b, c, z, bias, residual, *arrays = (_matrix(each) for each in (a, b, *results))
    (m, k), n = a.shape, b.shape[1]
    programs = min(tw.cdiv(m, blocks.m) * tw.cdiv(n, blocks.n), processors // blocks.ctas)
    run(
        persistent_matmul_kernel,
        (programs,),
        a,
        b,
        c,
        z,
        bias,
        residual,
        *arrays,
        m,
        n,
        k,
        max(strides(a)),
        max(strides(b)),
        strides(c)[0],
        *_three(residual)[1:],
        BLOCK_M=blocks.m,
        BLOCK_N=blocks.first,
        MORE_N=blocks.n - blocks.first,
        BLOCK_K=blocks.k,
        GROUP_M=_rows_together(blocks, n, processors),
        PROGRAMS=programs,
        A_IS_TRANSPOSED=bool(is_transposed_in_memory(a)),
        B_IS_TRANSPOSED=bool(is_transposed_in_memory(b)),
        DIVISOR_N=_EIGHT if n % _EIGHT == 0 else 1,
        **constants,
        **blocks.options,
    )


def _rows_together(blocks: Blocks, n: int, processors: int) -> int:
    """Return the rows of blocks that programs take column by column.

    A round of programs has all columns of blocks where these are no more than its square would be.
    A group of few rows ends within a round then, so that few rounds read a row's operand.
    """
    across = tw.cdiv(n, blocks.n)
    is_wide = across * across * blocks.n <= processors // blocks.ctas * blocks.m
    return _GROUP_M // 2 if is_wide else 2 * _GROUP_M


def launch_vector(
    run: Launcher, a: Any, b: Any, results: tuple[Any, ...], constants: Mapping[str, Any]
) -> None:
    """Launch the kernel for one row and a matrix whose memory is [N, K]."""
    k, n = b.shape[-2:]
    # 16 KiB of B per program and iteration, if there is as much: four programs of 128 registers
    # a thread share a processor, and few columns make the last round of programs short
    columns = 4
    inner = (2048 if k >= 2048 else 512) * 2 // (bits_of(name_of(b)) // 8)
    run(
        vector_matmul_kernel,
        (tw.cdiv(n, columns),),
        a,
        b,
        *results,
        n,
        k,
        strides(b)[-1],
        strides(results[0])[-1],
        _three(results[3])[2],
        BLOCK_N=columns,
        BLOCK_K=inner,
        EVEN_K=k % inner == 0,
        ACTIVATION=constants["ACTIVATION"],
        EPILOGUE=constants["EPILOGUE"],
        num_warps=4,
        num_stages=1,
    )


def _is_vector(a: Any, b: Any, operand: str, family: str) -> bool:
    k = b.shape[-2]
    return (
        family != "cpu"
        and k > 0
        and operand in ("float16", "bfloat16", "float32")
        and (k == 1 or (strides(a)[-1] == 1 and strides(b)[-2] == 1))
    )


def _three(array: Any) -> tuple[int, ...]:
    """Return strides of a batch, a row and a column."""
    if array is None:
        return (0, 0, 0)
    found = strides(array)
    return found if len(found) == 3 else (0, *found)


def _matrix(array: Any) -> Any:
    return array[0] if array is not None and array.ndim == 3 else array


MATMUL = Operation(
    "matmul", ("c", "z"), _shapes, launch_matmul, residuals=("z",), reference=_by_formula
)


@MATMUL.differentiate(saved=("a", "b", "z", "bias", "array_0", "array_1", "array_2"))
def _gradients(saved: Any, dc: Any) -> Mapping[str, Any]:
    found: dict[str, Any] = {"residual": dc} if "residual" in saved.needed else {}
    is_linear = saved.activation is saved.epilogue is None
    found.update(epilogue_gradients(saved, None if is_linear else saved.z, dc))
    dz = found.pop("z", dc)
    options = {"precision": saved.precision, "invariant": saved.invariant}
    options |= {"activation": None, "epilogue": None}
    if "a" in saved.needed:
        other = saved.b.swapaxes(-1, -2)
        found["a"] = MATMUL(dz, other, out_dtype=name_of(saved.a), **options)
    if "b" in saved.needed:
        other = saved.a.swapaxes(-1, -2)
        found["b"] = MATMUL(other, dz, out_dtype=name_of(saved.b), **options)
    return found


def check_shapes(a: Any, b: Any, bias: Any, residual: Any) -> tuple[int, ...]:
    """Return the shape of a result.

    Raises:
        ValueError: the shapes of the arguments do not match.
    """
    leading, m = a.shape[:-2], a.shape[-2]
    if a.ndim < 2 or b.ndim < 2:
        raise ValueError(f"operands must have two axes at least: {a.shape} and {b.shape}")
    if a.shape[-1] != b.shape[-2] or (b.ndim > 2 and tuple(b.shape[:-2]) != tuple(leading)):
        raise ValueError(
            f"matmul of shapes {tuple(a.shape)} and {tuple(b.shape)}: b must be of shape "
            f"({a.shape[-1]}, N), with the leading axes of a or none"
        )
    shape = (*leading, m, b.shape[-1])
    if bias is not None and tuple(bias.shape) != shape[-1:]:
        raise ValueError(f"bias has the shape {tuple(bias.shape)}, not {shape[-1:]}")
    if residual is not None and tuple(residual.shape) != shape:
        raise ValueError(f"residual has the shape {tuple(residual.shape)}, not {shape}")
    return shape


def matmul(
    a: Any,
    b: Any,
    bias: Any = None,
    residual: Any = None,
    *,
    activation: Any = None,
    epilogue: Any = None,
    arrays: Sequence[Any] = (),
    out_dtype: str = "",
    precision: str = "ieee",
    invariant: bool | None = None,
    out: Any = None,
) -> Any:
    """Compute ``epilogue(activation(a @ b + bias)) + residual``.

    Args:
        a: of shape (..., M, K), of any strides, of float16, bfloat16, float32, float8_e4m3fn,
            float8_e5m2 or int8.
        b: of shape (K, N), or (..., K, N) with the same leading axes as ``a``. Its type is that of
            ``a``. If ``a`` has a float type, ``b`` may also be int8, and is converted to the type
            of ``a``.
        bias: of shape (N,), or None.
        residual: of the shape of the result, or None.
        activation: a function of ``tilewright.jit`` that is called with a tile of sums, in float32
            or, for int8 operands, in int32; or None.
        epilogue: a function of ``tilewright.jit`` that is applied to each tile before it is stored,
            or an :class:`.Epilogue`. See :class:`.Epilogue` for the arguments of the function. If
            ``b`` is a matrix, the indices of rows count the rows of all matrices of ``a`` together.
            Otherwise, they count the rows of each matrix separately.
        arrays: up to three arrays for the epilogue, in C order.
        out_dtype: the name of the result's type. By default, this is int32 if ``a`` is int8,
            bfloat16 if ``a`` is float8, and otherwise the type of ``a``.
        precision: how float32 operands are multiplied: ``"ieee"``, ``"tf32"``, ``"tf32x3"``,
            ``"bf16x3"`` or ``"bf16x6"``.
        invariant: whether the bits of a row must not depend on the number of rows and matrices.
            This holds for operands of the same strides and alignment. None means the library's
            default.
        out: the array for the result.

    Returns:
        An array of shape (..., M, N). Calls with the same arguments return the same bits. Sums are
        computed in int32 if the operands are int8, and otherwise in float32.

    Raises:
        ValueError: the shapes of the arguments do not match, or ``arrays`` contains more than three
            arrays.
        TypeError: the element types of the operands cannot be multiplied with each other.

    Gradients: two matmuls, after the derived adjoint of bias, activation and epilogue, which also
    has gradients for the arrays.
    """
    shape = check_shapes(a, b, bias, residual)
    if len(arrays) > MOST_ARRAYS:
        raise ValueError(f"an epilogue takes {MOST_ARRAYS} arrays at most, not {len(arrays)}")
    if epilogue is None and arrays:
        raise ValueError("arrays are for an epilogue, and there is none")
    chosen = epilogue if epilogue is None or isinstance(epilogue, Epilogue) else Epilogue(epilogue)
    others = (
        *arrays,
        *[None] * (MOST_ARRAYS - len(arrays)),
        activation,
        *((None, 1) if chosen is None else (chosen.function, chosen.columns)),
        out_dtype,
        precision,
        invariant,
    )
    if a.ndim == 2 or (a.ndim == 3 and b.ndim == 3):
        return MATMUL(a, b, bias, residual, *others, out=out)
    flat = _flat_shape(shape, b.ndim)
    target = None if out is None else in_shape(out, flat)
    found = MATMUL(
        a.reshape(*flat[:-1], a.shape[-1]),
        b if b.ndim == 2 else b.reshape(flat[0], *b.shape[-2:]),
        bias,
        None if residual is None else residual.reshape(flat),
        *others,
        out=target,
    )
    return returned(found, shape, out, target)


def _flat_shape(shape: tuple[int, ...], ndim: int) -> tuple[int, ...]:
    """Return the shape of a result as one matrix, or as a batch of them."""
    rows = 1
    for extent in shape[:-2]:
        rows *= extent
    return (rows * shape[-2], shape[-1]) if ndim == 2 else (rows, *shape[-2:])
