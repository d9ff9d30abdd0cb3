"""AdamW with moments in 8 bits, over many arrays in one launch."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import array_api_compat
import numpy as np

import tilewright as tw
import tilewright.language as tl
from tilewright_kernels.operations import Arrays, Launcher, Operation
from tilewright_kernels.operations.devices import device_of
from tilewright_kernels.operations.frameworks import framework_of
from tilewright_kernels.optimizers.adamw import (
    adamw_update,
    hyperparameters,
    kernel_settings,
    pointer_in,
    program_row,
    stepped,
)
from tilewright_kernels.optimizers.code_cells import cell_table, code_by_cells
from tilewright_kernels.optimizers.pointer_tables import grouped, table_of

#: Elements that have one scale.
GROUP = 256
#: Where cells begin in a table of codes: after 256 numbers and 257 bounds.
FIRST_CELL = tl.constexpr(513)
#: Groups of a block in the table of blocks.
_GROUPS_OF_BLOCK = 4


@functools.cache
def dynamic_codes(signed: bool) -> np.ndarray[Any, Any]:
    """Return the 256 numbers that codes stand for, in order: dynamic tree quantization.

    Leading zeros of a code are a decimal exponent, from 0 to 6, and the bits after the first one
    a fraction of it; so small numbers keep few digits, and those close to 1 many.
    """
    fraction_bits = 6 if signed else 7
    numbers = [0.0, 1.0]
    for exponent in range(7):
        count = 1 << max(exponent + fraction_bits - 6, 0)
        edges = np.linspace(0.1, 1, count + 1)
        means = (edges[:-1] + edges[1:]) / 2 * 10.0 ** (exponent - 6)
        numbers += [*means, *(-means if signed else ())]
    numbers += [0.0] * (256 - len(numbers))
    return np.sort(np.array(numbers, np.float32))


@tw.jit
def code_of(x, codes_ptr, SIGNED: tl.constexpr):
    """Return the code of the number that is nearest to x, between -1 and 1.

    The decimal exponent and the fraction give the code, but where x is close to a bound of the
    code's interval. There the bounds, which follow the 256 numbers in the table, decide.
    """
    magnitude = tl.abs(x)
    scaled = magnitude * 1e6
    count = tl.full(x.shape, 1 if SIGNED else 2, tl.int32)
    for power in tl.static_range(2, -1, -1):
        is_above = scaled >= 10.0 ** ((1 << power) - 1)
        if power == 0:
            is_above &= count < (64 if SIGNED else 128)
        scaled = tl.where(is_above, scaled * 10.0 ** -(1 << power), scaled)
        count = tl.where(is_above, count << (1 << power), count)
    fraction = (scaled - 0.1) * (count.to(tl.float32) * (1 / 0.9))
    place = tl.minimum(tl.maximum(fraction, 0.0).to(tl.int32), count - 1)
    rest = fraction - place.to(tl.float32)
    # the bounds between exponents are a fifth of the way or less, the highest close to 1
    is_close = (tl.abs(rest - 0.5) > 0.499) | (fraction < 0.25) | (magnitude > 0.99)
    is_upper = rest > 0.5
    if SIGNED:
        code = tl.where(x < 0, 127 - (count + place), 127 + count + place)
        is_upper = is_upper != (x < 0)
    else:
        code = count - 1 + place
    reached = code + is_upper.to(tl.int32)
    bound = tl.load(codes_ptr + 256 + reached, mask=is_close, other=0.0)
    return tl.where(is_close, reached - (x < bound).to(tl.int32), code)


@tw.jit
def load_moment(codes_ptr, scales_ptr, table_ptr, is_inside, is_group):
    """Return what codes stand for, times the scales of their groups."""
    code = tl.load(codes_ptr, mask=is_inside).to(tl.int32)
    scale = tl.load(scales_ptr, mask=is_group)
    return tl.load(table_ptr + code) * scale[:, None]


@tw.jit
def codes_of(moment, table_ptr, is_inside, SIGNED: tl.constexpr, BY_CELLS: tl.constexpr):
    """Return the codes of moments, and the scale of each group: its largest magnitude."""
    if is_inside is not None:
        moment = tl.where(is_inside, moment, 0.0)
    scale = tl.max(tl.abs(moment), axis=1)
    inverse = tl.where(scale > 0, 1.0 / scale, 0.0)
    if BY_CELLS:
        cells_ptr = table_ptr.to(tl.pointer_type(tl.int32)) + FIRST_CELL
        codes = code_by_cells(moment * inverse[:, None], cells_ptr, SIGNED)
    else:
        codes = code_of(moment * inverse[:, None], table_ptr, SIGNED)
    return codes.to(tl.uint8), scale


@tw.jit
def update_groups(
    parameter_ptr,
    gradient_ptr,
    first_ptr,
    first_scale_ptr,
    second_ptr,
    second_scale_ptr,
    signed_ptr,
    unsigned_ptr,
    is_inside,
    is_group,
    settings,
    BY_CELLS: tl.constexpr,
):
    """Update groups of elements, of which all are there where the masks are None."""
    parameter, first, second = adamw_update(
        tl.load(parameter_ptr, mask=is_inside).to(tl.float32),
        tl.load(gradient_ptr, mask=is_inside).to(tl.float32),
        load_moment(first_ptr, first_scale_ptr, signed_ptr, is_inside, is_group),
        load_moment(second_ptr, second_scale_ptr, unsigned_ptr, is_inside, is_group),
        settings,
    )
    if BY_CELLS:
        # one after the other: a CPU stores all three in one loop
        first_codes, first_scale = codes_of(first, signed_ptr, is_inside, True, BY_CELLS)
        second_codes, second_scale = codes_of(second, unsigned_ptr, is_inside, False, BY_CELLS)
        tl.store(parameter_ptr, parameter, mask=is_inside)
        tl.store(first_ptr, first_codes, mask=is_inside)
        tl.store(second_ptr, second_codes, mask=is_inside)
        tl.store(first_scale_ptr, first_scale, mask=is_group)
        tl.store(second_scale_ptr, second_scale, mask=is_group)
    else:
        # each as soon as it is known: a GPU needs 78 registers instead of 94
        tl.store(parameter_ptr, parameter, mask=is_inside)
        codes, scale = codes_of(first, signed_ptr, is_inside, True, BY_CELLS)
        tl.store(first_ptr, codes, mask=is_inside)
        tl.store(first_scale_ptr, scale, mask=is_group)
        codes, scale = codes_of(second, unsigned_ptr, is_inside, False, BY_CELLS)
        tl.store(second_ptr, codes, mask=is_inside)
        tl.store(second_scale_ptr, scale, mask=is_group)


@tw.jit
def adamw_8bit_kernel(
    table_ptr,
    blocks_ptr,
    signed_ptr,
    unsigned_ptr,
    rate,
    gain_1,
    gain_2,
    eps,
    kept,
    inverse_correction,
    PARAMETER: tl.constexpr,
    GRADIENT: tl.constexpr,
    IS_ALIGNED: tl.constexpr,
    PARTS: tl.constexpr,
    GROUP: tl.constexpr,
    BY_CELLS: tl.constexpr,
):
    row_ptr, number = program_row(table_ptr, blocks_ptr, 7, PARTS)
    n = tl.load(row_ptr + 6)
    group = number + tl.arange(0, 1)
    offsets = group[:, None] * GROUP + tl.arange(0, GROUP)[None, :]
    parameter_ptr = pointer_in(row_ptr, 0, PARAMETER, IS_ALIGNED) + offsets
    gradient_ptr = pointer_in(row_ptr, 1, GRADIENT, IS_ALIGNED) + offsets
    first_ptr = pointer_in(row_ptr, 2, tl.uint8, IS_ALIGNED) + offsets
    first_scale_ptr = pointer_in(row_ptr, 3, tl.float32, False) + group
    second_ptr = pointer_in(row_ptr, 4, tl.uint8, IS_ALIGNED) + offsets
    second_scale_ptr = pointer_in(row_ptr, 5, tl.float32, False) + group
    settings = (rate, gain_1, gain_2, eps, kept, inverse_correction)
    if (number + 1) * GROUP <= n:
        update_groups(
            parameter_ptr, gradient_ptr, first_ptr, first_scale_ptr, second_ptr, second_scale_ptr,
            signed_ptr, unsigned_ptr, None, None, settings, BY_CELLS,
        )  # fmt: skip
    else:
        update_groups(
            parameter_ptr, gradient_ptr, first_ptr, first_scale_ptr, second_ptr, second_scale_ptr,
            signed_ptr, unsigned_ptr, offsets < n, group * GROUP < n, settings, BY_CELLS,
        )  # fmt: skip


def encoded_reference(moment: Any, signed: bool) -> tuple[Any, Any]:
    """Return the codes of a moment, and the scales of its groups."""
    xp = array_api_compat.array_namespace(moment)
    device = array_api_compat.device(moment)
    codes = dynamic_codes(signed)
    flat = xp.reshape(moment, (-1,))
    n = flat.shape[0]
    padding = xp.zeros((-n % GROUP,), dtype=flat.dtype, device=device)
    groups = xp.reshape(xp.concat([flat, padding]), (-1, GROUP))
    scales = xp.max(xp.abs(groups), axis=1)
    scaled = groups / xp.where(scales > 0, scales, xp.ones_like(scales))[:, None]
    middles = xp.asarray((codes[1:] + codes[:-1]) / 2, dtype=flat.dtype, device=device)
    found = xp.searchsorted(middles, xp.reshape(scaled, (-1,)), side="right")[:n]
    return xp.reshape(xp.astype(found, xp.uint8), tuple(moment.shape)), scales


def decoded_reference(codes: Any, scales: Any, signed: bool) -> Any:
    """Return the moment that codes stand for."""
    xp = array_api_compat.array_namespace(scales)
    table = xp.asarray(dynamic_codes(signed), device=array_api_compat.device(scales))
    flat = xp.reshape(codes, (-1,))
    found = xp.take(table, xp.astype(flat, xp.int32)) * xp.repeat(scales, GROUP)[: flat.shape[0]]
    return xp.reshape(found, tuple(codes.shape))


def adamw_8bit_reference(
    parameter: Any,
    gradient: Any,
    state: tuple[Any, Any, Any, Any],
    step: int,
    *,
    lr: float = 1e-3,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
    weight_decay: float = 0.01,
) -> tuple[Any, tuple[Any, Any, Any, Any]]:
    """Return a parameter and its state after a step: that of AdamW between two roundings."""
    settings = hyperparameters("adamw_8bit", step, lr, betas, eps, weight_decay)
    parameter, *found = _stepped(parameter, gradient, *state, *settings)
    return parameter, (found[0], found[1], found[2], found[3])


def _stepped(
    parameter: Any, gradient: Any, first_codes: Any, first_scales: Any, second_codes: Any,
    second_scales: Any, *settings: float,
) -> tuple[Any, ...]:  # fmt: skip
    parameter, first, second = stepped(
        parameter,
        gradient,
        decoded_reference(first_codes, first_scales, True),
        decoded_reference(second_codes, second_scales, False),
        *settings,
    )
    return (parameter, *encoded_reference(first, True), *encoded_reference(second, False))


def _by_formula(
    parameters: Any, gradients: Any, first_codes: Any, first_scales: Any, second_codes: Any,
    second_scales: Any, lr: float, gain_1: float, gain_2: float, eps: float, weight_decay: float,
    correction_1: float, correction_2: float,
) -> tuple[Any, ...]:  # fmt: skip
    settings = (lr, gain_1, gain_2, eps, weight_decay, correction_1, correction_2)
    arrays = zip(
        parameters, gradients, first_codes, first_scales, second_codes, second_scales, strict=True
    )
    return tuple(zip(*(_stepped(*each, *settings) for each in arrays), strict=True))


def code_table(signed: bool) -> np.ndarray[Any, Any]:
    """Return the numbers that codes stand for, the 257 bounds of their intervals, and the cells.

    The entries of :func:`.cell_table` are in the bits of the last numbers.
    """
    codes = dynamic_codes(signed)
    middles = (codes[1:] + codes[:-1]) / 2
    numbers = np.concatenate([codes, [-np.inf], middles, [np.inf]]).astype(np.float32)
    return np.concatenate([numbers, cell_table(middles, signed).view(np.float32)])


@functools.lru_cache(16)
def _codes(signed: bool, place: str | None) -> Any:
    if place is None:
        return code_table(signed)
    import torch

    return torch.from_numpy(code_table(signed)).to(place)


def _shapes(make: Any, *arguments: Any) -> tuple[Any, ...]:
    return ()


def _launch(
    run: Launcher,
    parameters: Arrays,
    gradients: Arrays,
    first_codes: Arrays,
    first_scales: Arrays,
    second_codes: Arrays,
    second_scales: Arrays,
    lr: float,
    gain_1: float,
    gain_2: float,
    eps: float,
    weight_decay: float,
    correction_1: float,
    correction_2: float,
) -> None:
    lists: Any = (parameters, gradients, first_codes, first_scales, second_codes, second_scales)
    for key, groups in grouped("adamw_8bit", lists).items():
        first = groups[0][0]
        place = str(first.device) if hasattr(first, "data_ptr") else None
        table = table_of(groups, _GROUPS_OF_BLOCK * GROUP)
        run(
            adamw_8bit_kernel,
            (table.n_blocks * _GROUPS_OF_BLOCK,),
            table.rows,
            table.blocks,
            _codes(True, place),
            _codes(False, place),
            *kernel_settings(lr, gain_1, gain_2, eps, weight_decay, correction_1, correction_2),
            getattr(tl, key[0]),
            getattr(tl, key[1]),
            IS_ALIGNED=key[-1],
            PARTS=_GROUPS_OF_BLOCK,
            GROUP=GROUP,
            BY_CELLS=device_of(first).family == "cpu",
            num_warps=1,  # which finds the largest magnitude of its group by itself
        )


ADAMW_8BIT = Operation(
    "adamw_8bit_",
    (),
    _shapes,
    _launch,
    mutated=("parameters", "first_codes", "first_scales", "second_codes", "second_scales"),
    reference=_by_formula,
)


def adamw_8bit_state(parameter: Any) -> tuple[Any, Any, Any, Any]:
    """Return a parameter's initial AdamW state: 8-bit codes and scales of its two moments."""
    n = math.prod(parameter.shape)
    framework, found = framework_of(parameter), []
    for signed in (True, False):
        codes = framework.empty(parameter.shape, "uint8", parameter)
        framework.fill(codes, int(np.searchsorted(dynamic_codes(signed), 0.0)))
        found += [codes, framework.zeros((tw.cdiv(n, GROUP),), "float32", parameter)]
    return found[0], found[1], found[2], found[3]


def adamw_8bit(
    parameters: Sequence[Any],
    gradients: Sequence[Any],
    states: Sequence[tuple[Any, Any, Any, Any]],
    step: int,
    *,
    lr: float = 1e-3,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
    weight_decay: float = 0.01,
) -> None:
    """Update parameters in place by a step of AdamW, with both moments stored in 8 bits.

    Args:
        parameters: arrays of NumPy or PyTorch in C order, of float16, bfloat16 or float32.
        gradients: of the same shapes.
        states: the state of each parameter; before the first step, the result of
            :func:`adamw_8bit_state`.
        step: the number of the step, from 1.
        lr: the learning rate.
        betas: the decay rates of the running means.
        eps: a number that is added to the square root of the second moment.
        weight_decay: each step multiplies a parameter by 1 - lr * weight_decay.

    Raises:
        ValueError: in the same cases as in :func:`adamw`.

    Source: Dettmers et al., "8-bit optimizers via block-wise quantization", 2022.
    """
    settings = hyperparameters("adamw_8bit", step, lr, betas, eps, weight_decay)
    if parameters:
        moments = ([state[place] for state in states] for place in range(4))
        ADAMW_8BIT(list(parameters), list(gradients), *moments, *settings)
