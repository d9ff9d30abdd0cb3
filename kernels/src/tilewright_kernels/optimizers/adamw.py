"""AdamW over many arrays in one launch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import array_api_compat

import tilewright as tw
import tilewright.language as tl
from tilewright_kernels.operations import Arrays, Launcher, Operation
from tilewright_kernels.operations.devices import device_of
from tilewright_kernels.optimizers.pointer_tables import grouped, table_of

#: Programs that keep a GPU busy: with more elements a program takes several blocks, since it reads
#: its addresses, one after another, before it reads elements.
_PROGRAMS = 2048
#: Elements of a block on a CPU, whose values stay in registers or the first cache, and its blocks.
_CPU_BLOCKS = (256, 16)


@tw.jit
def program_row(table_ptr, blocks_ptr, COLUMNS: tl.constexpr, PARTS: tl.constexpr = 1):
    """Return the program's row of a table of addresses, and its part of a block of the arrays."""
    program = tl.program_id(0)
    entry = tl.load(blocks_ptr + program // PARTS)
    block = (entry & 0xFFFFFFFF) * PARTS + program % PARTS
    return table_ptr + (entry >> 32) * COLUMNS, block


@tw.jit
def pointer_in(row_ptr, column, ELEMENT: tl.constexpr, IS_ALIGNED: tl.constexpr):
    """Return the address in a column of a table as a pointer to elements."""
    pointer = tl.load(row_ptr + column).to(tl.pointer_type(ELEMENT))
    if IS_ALIGNED:
        pointer = tl.multiple_of(pointer, 16)
    return pointer


@tw.jit
def adamw_update(parameter, gradient, first, second, settings):
    """Return a parameter and its moments after a step, in float32, by :func:`kernel_settings`."""
    rate, gain_1, gain_2, eps, kept, inverse_correction = settings
    parameter *= kept
    first += gain_1 * (gradient - first)
    second += gain_2 * (gradient * gradient - second)
    denominator = tl.sqrt(second * inverse_correction) + eps
    return parameter - rate * (first / denominator), first, second


@tw.jit
def update_blocks(
    parameters_ptr,
    gradients_ptr,
    firsts_ptr,
    seconds_ptr,
    begin,
    n,
    settings,
    IS_WHOLE: tl.constexpr,
    STEPS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Update consecutive blocks, of which all elements are there where ``IS_WHOLE``.

    Accesses with a mask that ends anywhere are of single elements.
    """
    for step in range(STEPS):
        offsets = begin + step * BLOCK + tl.arange(0, BLOCK)
        is_inside = None if IS_WHOLE else offsets < n
        parameter, first, second = adamw_update(
            tl.load(parameters_ptr + offsets, mask=is_inside).to(tl.float32),
            tl.load(gradients_ptr + offsets, mask=is_inside).to(tl.float32),
            tl.load(firsts_ptr + offsets, mask=is_inside).to(tl.float32),
            tl.load(seconds_ptr + offsets, mask=is_inside).to(tl.float32),
            settings,
        )
        tl.store(parameters_ptr + offsets, parameter, mask=is_inside)
        tl.store(firsts_ptr + offsets, first, mask=is_inside)
        tl.store(seconds_ptr + offsets, second, mask=is_inside)


@tw.jit
def adamw_kernel(
    table_ptr,
    blocks_ptr,
    rate,
    gain_1,
    gain_2,
    eps,
    kept,
    inverse_correction,
    PARAMETER: tl.constexpr,
    GRADIENT: tl.constexpr,
    FIRST: tl.constexpr,
    SECOND: tl.constexpr,
    IS_ALIGNED: tl.constexpr,
    STEPS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row_ptr, chunk = program_row(table_ptr, blocks_ptr, 5)
    n = tl.load(row_ptr + 4)
    parameters = pointer_in(row_ptr, 0, PARAMETER, IS_ALIGNED)
    gradients = pointer_in(row_ptr, 1, GRADIENT, IS_ALIGNED)
    firsts = pointer_in(row_ptr, 2, FIRST, IS_ALIGNED)
    seconds = pointer_in(row_ptr, 3, SECOND, IS_ALIGNED)
    settings = (rate, gain_1, gain_2, eps, kept, inverse_correction)
    begin = chunk * (STEPS * BLOCK)
    if begin + STEPS * BLOCK <= n:
        update_blocks(
            parameters, gradients, firsts, seconds, begin, n, settings, True, STEPS, BLOCK
        )
    else:
        update_blocks(
            parameters, gradients, firsts, seconds, begin, n, settings, False, STEPS, BLOCK
        )


def hyperparameters(
    name: str, step: int, lr: float, betas: tuple[float, float], eps: float, weight_decay: float
) -> tuple[float, ...]:
    """Return the settings of an optimizer's operation for a step.

    Raises:
        ValueError: the step is below 1.
    """
    if step < 1:
        raise ValueError(f"{name}: steps are counted from 1, not {step}")
    gains, corrections = [1 - each for each in betas], [1 - each**step for each in betas]
    return lr, *gains, eps, weight_decay, *corrections


def kernel_settings(
    lr: float, gain_1: float, gain_2: float, eps: float, weight_decay: float,
    correction_1: float, correction_2: float,
) -> tuple[float, ...]:  # fmt: skip
    """Return what kernels take of an operation's settings.

    It is the learning rate with the first moment's correction of bias; what the moments take of the
    gradient and of its square; what is added to the root of the second moment; what weight decay
    leaves of the parameter; and the second moment's correction of bias, a factor.
    """
    kept, inverse_correction = 1 - lr * weight_decay, 1 / correction_2
    return lr / correction_1, gain_1, gain_2, eps, kept, inverse_correction


def adamw_reference(
    parameter: Any,
    gradient: Any,
    first: Any,
    second: Any,
    step: int,
    *,
    lr: float = 1e-3,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
    weight_decay: float = 0.01,
) -> tuple[Any, Any, Any]:
    """Return a parameter and its moments after a step, in their types."""
    settings = hyperparameters("adamw", step, lr, betas, eps, weight_decay)
    return stepped(parameter, gradient, first, second, *settings)


def stepped(
    parameter: Any,
    gradient: Any,
    first: Any,
    second: Any,
    lr: float,
    gain_1: float,
    gain_2: float,
    eps: float,
    weight_decay: float,
    correction_1: float,
    correction_2: float,
) -> tuple[Any, Any, Any]:
    """Return a parameter and its moments after a step, for settings of the operation."""
    xp = array_api_compat.array_namespace(parameter)
    first = (1 - gain_1) * first + gain_1 * gradient
    second = (1 - gain_2) * second + gain_2 * gradient * gradient
    denominator = xp.sqrt(second / correction_2) + eps
    update = lr / correction_1 * (first / denominator)
    return parameter * (1 - lr * weight_decay) - update, first, second


def _by_formula(
    parameters: Any, gradients: Any, first: Any, second: Any, lr: float, gain_1: float,
    gain_2: float, eps: float, weight_decay: float, correction_1: float, correction_2: float,
) -> tuple[Any, ...]:  # fmt: skip
    settings = (lr, gain_1, gain_2, eps, weight_decay, correction_1, correction_2)
    arrays = zip(parameters, gradients, first, second, strict=True)
    return tuple(zip(*(stepped(*each, *settings) for each in arrays), strict=True))


def _shapes(make: Any, *arguments: Any) -> tuple[Any, ...]:
    return ()


def _launch(
    run: Launcher,
    parameters: Arrays,
    gradients: Arrays,
    first: Arrays,
    second: Arrays,
    lr: float,
    gain_1: float,
    gain_2: float,
    eps: float,
    weight_decay: float,
    correction_1: float,
    correction_2: float,
) -> None:
    lists: Any = (parameters, gradients, first, second)
    for key, groups in grouped("adamw", lists).items():
        block, steps = _CPU_BLOCKS
        if device_of(groups[0][0]).family != "cpu":
            total = sum(math.prod(group[0].shape) for group in groups)
            block, steps = 1024, 4
            if total < _PROGRAMS * steps * block:
                steps = 1
        table = table_of(groups, steps * block)
        run(
            adamw_kernel,
            (table.n_blocks,),
            table.rows,
            table.blocks,
            *kernel_settings(lr, gain_1, gain_2, eps, weight_decay, correction_1, correction_2),
            *(getattr(tl, name) for name in key[:4]),
            IS_ALIGNED=key[4],
            STEPS=steps,
            BLOCK=block,
            num_warps=8,
        )


ADAMW = Operation(
    "adamw_",
    (),
    _shapes,
    _launch,
    mutated=("parameters", "first", "second"),
    reference=_by_formula,
)


def adamw(
    parameters: Sequence[Any],
    gradients: Sequence[Any],
    first: Sequence[Any],
    second: Sequence[Any],
    step: int,
    *,
    lr: float = 1e-3,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
    weight_decay: float = 0.01,
) -> None:
    """Update parameters in place by a step of AdamW.

    One launch updates all arrays of the same types. Arrays whose addresses are not multiples of 16
    take a launch of their own.

    Args:
        parameters: arrays of NumPy or PyTorch in C order, of float16, bfloat16 or float32.
        gradients: of the same shapes.
        first: running means of the gradients, of the same shapes; pass zeros before the first step.
        second: running means of the squared gradients, of the same shapes; pass zeros before the
            first step.
        step: the number of the step, from 1.
        lr: the learning rate.
        betas: the decay rates of the running means.
        eps: a number that is added to the square root of the second moment.
        weight_decay: each step multiplies a parameter by 1 - lr * weight_decay.

    Raises:
        ValueError: the lists of arrays have different lengths, an array is not in C order, or the
            step is below 1.

    Source: Loshchilov and Hutter, "Decoupled weight decay regularization", 2019. The arithmetic is
    in float32.
    """
    settings = hyperparameters("adamw", step, lr, betas, eps, weight_decay)
    if parameters:
        ADAMW(list(parameters), list(gradients), list(first), list(second), *settings)
