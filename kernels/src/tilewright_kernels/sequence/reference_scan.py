"""Recurrences step by step, for reference twins."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import array_api_compat


def scan_by_formula(
    step: Callable[..., tuple[Any, Any]],
    arrays: Sequence[Any],
    initial: Any,
    state_shape: tuple[int, ...],
    cu_seqlens: Any,
    seq_idx: Any,
) -> tuple[list[Any], Any]:
    """Return the rows of all steps, and the last states.

    Args:
        step: ``step(state, *rows)`` returns a row and the next state, from a row of each array.
        arrays: of shape (batch, length, ...), of which the first tells the type of states.
        initial: states before the first steps; zeros if None.
        state_shape: the shape of a sequence's state.
        cu_seqlens: bounds of packed sequences, or None.
        seq_idx: the sequence of each step, or None.
    """
    first = arrays[0]
    xp = array_api_compat.array_namespace(first)
    batch, length = first.shape[:2]
    if cu_seqlens is None:
        parts = [((0, length), slice(None))]
    else:
        bounds = itertools.pairwise(int(each) for each in cu_seqlens)
        parts = [(each, slice(number, number + 1)) for number, each in enumerate(bounds)]
    if initial is None:
        count, device = batch if cu_seqlens is None else len(parts), array_api_compat.device(first)
        initial = xp.zeros((count, *state_shape), dtype=first.dtype, device=device)
    rows, states = [], []
    for places, sequence in parts:
        state = initial[sequence]
        for place in range(*places):
            if seq_idx is not None and place:
                is_same = seq_idx[:, place] == seq_idx[:, place - 1]
                state = xp.where(is_same[:, None, None, None], state, 0 * state)
            row, state = step(state, *(each[:, place] for each in arrays))
            rows.append(row)
        states.append(state)
    return rows, xp.concat(states, axis=0)
