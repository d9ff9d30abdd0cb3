"""Drawings of loops whose loads run ahead of their matmuls."""

from __future__ import annotations

from drawings.svg import FAINT, FILLS, Drawing


def schedule(stages: int, iterations: int, load: int, matmul: int) -> list[tuple[int, int]]:
    """Return when the load and the matmul of each iteration start.

    A load starts when its slot is free, that is when the matmul of ``stages`` iterations before
    has ended; with one stage, when the matmul before has. Loads overlap with each other.

    Args:
        stages: slots in shared memory.
        iterations: of the loop.
        load: the time from the start of a load to the arrival of its data.
        matmul: the time of a matmul.
    """
    starts: list[tuple[int, int]] = []
    for iteration in range(iterations):
        free = 0
        if iteration >= stages:
            free = starts[iteration - stages][1] + matmul
        arrived = free + load
        before = starts[-1][1] + matmul if starts else 0
        starts.append((free, max(arrived, before)))
    return starts


def pipeline_drawing(stages: int, iterations: int = 6, load: int = 4, matmul: int = 2) -> Drawing:
    """Draw loads and matmuls of a loop over time, with a number of stages."""
    starts = schedule(stages, iterations, load, matmul)
    unit, left, high, top = 17, 80, 22, 34
    end = starts[-1][1] + matmul
    drawing = Drawing(
        left + max(end, 36) * unit + 20,
        top + stages * high + high + 48,
        f"{iterations} iterations with {stages} "
        f"{'stage' if stages == 1 else 'stages'} take {end} units of time.",
    )
    drawing.text(
        left,
        18,
        f"num_stages={stages}: {end} units of time",
        anchor="start",
        is_code=True,
    )
    for slot in range(stages):
        drawing.text(left - 8, top + slot * high + 16, f"slot {slot}", anchor="end", size=11)
    drawing.text(left - 8, top + stages * high + 22, "matmuls", anchor="end", size=11)
    for iteration, (loaded, multiplied) in enumerate(starts):
        slot, fill = iteration % stages, FILLS[iteration % 8]
        y = top + slot * high
        drawing.cell(left + loaded * unit, y, load * unit, high - 3, f"load {iteration}", fill, 11)
        y = top + stages * high + 6
        drawing.cell(left + multiplied * unit, y, matmul * unit, high - 3, str(iteration), fill, 11)
    drawing.text(left, top + stages * high + 50, "time →", anchor="start", size=11, color=FAINT)
    return drawing
