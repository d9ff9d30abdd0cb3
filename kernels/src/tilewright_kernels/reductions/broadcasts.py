"""Gradients of reductions: what is kept, broadcast over the axes that are not."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import tilewright as tw
import tilewright.language as tl
from tilewright_kernels.operations import Array, Launcher, Operation, strides
from tilewright_kernels.operations.devices import device_of
from tilewright_kernels.reductions.addresses import lanes
from tilewright_kernels.reductions.numeric_types import accumulator_type
from tilewright_kernels.reductions.views import Axis, contiguous, merged, padded


@tw.jit
def broadcast_kernel(
    dy_ptr,
    x_ptr,
    mean_ptr,
    index_ptr,
    dx_ptr,
    dx_base,
    dy_base,
    place_base,
    extent_1,
    extent_2,
    extent_3,
    dx_0,
    dx_1,
    dx_2,
    dx_3,
    dy_0,
    dy_1,
    dy_2,
    dy_3,
    place_0,
    place_1,
    place_2,
    place_3,
    numerator,
    divisor,
    FLOAT: tl.constexpr,
    IS_WIDE: tl.constexpr,
    IS_UNIFORM: tl.constexpr,
    BLOCK_2: tl.constexpr,
    BLOCK_3: tl.constexpr,
):
    blocks_2, blocks_3 = tl.cdiv(extent_2, BLOCK_2), tl.cdiv(extent_3, BLOCK_3)
    program = tl.program_id(0)
    first_3 = (program % blocks_3) * BLOCK_3
    program = program // blocks_3
    first_2 = (program % blocks_2) * BLOCK_2
    program = program // blocks_2
    i_0, i_1 = (program // extent_1).to(tl.int64), (program % extent_1).to(tl.int64)
    lanes_2, lanes_3 = lanes(BLOCK_2, IS_WIDE)[:, None], lanes(BLOCK_3, IS_WIDE)[None, :]
    is_inside = (first_2 + lanes_2 < extent_2) & (first_3 + lanes_3 < extent_3)
    start_2, start_3 = first_2.to(tl.int64), first_3.to(tl.int64)
    dx_at = (dx_base + i_0 * dx_0 + i_1 * dx_1 + start_2 * dx_2 + start_3 * dx_3) + (
        lanes_2 * dx_2 + lanes_3 * dx_3
    )
    dy_at = (dy_base + i_0 * dy_0 + i_1 * dy_1 + start_2 * dy_2 + start_3 * dy_3) + lanes_2 * dy_2
    is_kept = is_inside
    if IS_UNIFORM:
        is_kept = first_2 + lanes_2 < extent_2
    else:
        dy_at += lanes_3 * dy_3
    gradient = tl.load(dy_ptr + dy_at, mask=is_kept, other=0.0).to(FLOAT)
    if mean_ptr is not None:
        mean = tl.load(mean_ptr + dy_at, mask=is_kept, other=0.0)
        x = tl.load(x_ptr + dx_at, mask=is_inside, other=0.0).to(FLOAT)
        gradient *= (x - mean) * numerator
    if index_ptr is not None:
        index = tl.load(index_ptr + dy_at, mask=is_kept, other=-1)
        place = (
            place_base + i_0 * place_0 + i_1 * place_1 + start_2 * place_2 + start_3 * place_3
        ) + (lanes_2 * place_2 + lanes_3 * place_3)
        gradient = tl.where(place == index, gradient, 0.0)
    gradient /= tl.zeros_like(gradient) + divisor
    tl.store(dx_ptr + dx_at, tl.broadcast_to(gradient, [BLOCK_2, BLOCK_3]), mask=is_inside)


def _shapes(
    make: Any, dy: Any, x: Any, axes: int, numerator: int, divisor: int, mean: Any, index: Any
) -> tuple[Any, ...]:
    return (make(x.shape, x.dtype),)


def _launch(
    run: Launcher,
    dx: Any,
    dy: Array,
    x: Array,
    axes: int,
    numerator: int = 1,
    divisor: int = 1,
    mean: Array | None = None,
    index: Array | None = None,
) -> None:
    """Store ``dy * numerator / divisor``, where ``index`` is the place along the axes.

    It is times ``x - mean`` where the mean is given, without which the numerator must be 1.
    """
    if math.prod(x.shape) == 0:
        return
    each = [None if array is None else contiguous(array) for array in (dy, mean, index)]
    arrays = [None if mean is None else contiguous(x), *each]
    found = _axes(x.shape, dx, axes)
    outer, inner = found[:-4], found[-4:]
    updates: tuple[str, ...] = ()
    for place in itertools.product(*(range(axis.extent) for axis in outer)):
        bases = [
            sum(i * axis.strides[array] for i, axis in zip(place, outer, strict=True))
            for array in range(3)
        ]
        _broadcast(run, dx, arrays, bases, inner, (numerator, divisor), updates)
        updates = ("dx_ptr",)  # of what the launch before has stored to


def _axes(shape: Sequence[int], dx: Any, axes: int) -> list[Axis]:
    """Return axes with strides in dx, in the kept elements, and among those reduced to one."""
    found: list[Axis] = []
    kept, place = 1, 1
    for number in reversed(range(len(shape))):
        is_reduced = axes >> number & 1
        stride = (strides(dx)[number], 0 if is_reduced else kept, place if is_reduced else 0)
        found.append(Axis(shape[number], stride))
        kept, place = (kept, place * shape[number]) if is_reduced else (kept * shape[number], place)
    return merged(found[::-1])


def _broadcast(
    run: Launcher,
    dx: Any,
    arrays: Sequence[Any],
    bases: Sequence[int],
    axes: Sequence[Axis],
    factor: tuple[int, int],
    updates: Sequence[str],
) -> None:
    axis_0, axis_1, axis_2, axis_3 = given = padded(axes, 4, 3)
    is_on_cpu = device_of(dx).family == "cpu"
    elements = 1024 if is_on_cpu else 2048
    block_3 = min(tw.next_power_of_2(axis_3.extent), elements)
    block_2 = min(tw.next_power_of_2(axis_2.extent), elements // block_3)
    programs = tw.cdiv(axis_2.extent, block_2) * tw.cdiv(axis_3.extent, block_3)
    widest = max(
        abs(stride) * block
        for axis, block in ((axis_2, block_2), (axis_3, block_3))
        for stride in axis.strides
    )
    x, dy, mean, index = arrays
    run(
        broadcast_kernel,
        (axis_0.extent * axis_1.extent * programs,),
        dy,
        x,
        mean,
        index,
        dx,
        *bases,
        *(axis.extent for axis in given[1:]),
        *(axis.strides[array] for array in range(3) for axis in given),
        *factor,
        FLOAT=accumulator_type(dx.dtype).dtype,
        IS_WIDE=widest >= 1 << 31,
        # a load of one address by all lanes is one access on a GPU, and a gather on a CPU
        IS_UNIFORM=is_on_cpu and axis_3.strides[1] == 0,
        BLOCK_2=block_2,
        BLOCK_3=block_3,
        num_warps=max(block_2 * block_3 // 512, 1),
        updates=updates,
    )


BROADCAST = Operation("broadcast_gradient", ("dx",), _shapes, _launch)
