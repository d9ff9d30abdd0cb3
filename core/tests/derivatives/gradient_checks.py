"""Checks of both modes on random kernels; ``python gradient_checks.py 0 5000`` checks many.

``python gradient_checks.py 0 500 second`` checks second derivatives.

Forward mode is compared with central differences, reverse mode with forward mode: for any tangents
``t`` of the inputs and cotangents ``d`` of the outputs, ``d . J t`` is ``J' d . t``.
"""

from __future__ import annotations

import sys
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from random_kernels import ELEMENTS, OUTPUTS, PROGRAMS, STEPS, RandomKernel

from tilewright.derivatives.adjoint.loop_tape import TapeParameter
from tilewright.derivatives.forward_mode import TangentRequest, jvp
from tilewright.derivatives.reverse_mode import AdjointRequest, vjp
from tilewright.derivatives.simplify.simplify_kernel import simplify_kernel
from tilewright.ir.core import Module, Value
from tilewright.ir.types import FloatType
from tilewright.reference.interpreter import run

#: How far the modes may be from each other and from central differences, relatively. Differences
#: are larger where a kernel has a kink, such as that of a maximum, nearby.
DOT_TOLERANCE, DIFFERENCE_TOLERANCE, STEP = 1e-10, 1e-5, 1e-6

Array = NDArray[np.float64]


class Errors(NamedTuple):
    """Relative errors of both modes for a kernel, and whether its adjoint has a tape."""

    difference: float
    dot: float
    is_taped: bool


def execute(module: Module, **arrays: Array) -> None:
    """Run a module of a random kernel, or one derived from it, on the reference.

    Tapes begin as NaN, tangents of them as zero.
    """
    values: list[object] = []
    for argument in module.kernel.arguments:
        tape = TapeParameter.of(argument.name.removeprefix("t_"))
        if tape is not None:
            initial = 0.0 if argument.name.startswith("t_") else np.nan
            values.append(np.full(PROGRAMS * STEPS * tape.elements, initial))
        else:
            values.append(arrays.get(argument.name, STEPS))
    run(module, values, (PROGRAMS, 1, 1))


def all_factors(factor: Value, narrow: FloatType) -> bool:
    """Allow any factor to be pulled out of sums."""
    return True


def check(seed: int) -> Errors:
    """Check a random kernel."""
    module = RandomKernel(seed).module
    tangent = jvp(module, TangentRequest(("x", "y"), ("out",)))
    adjoint = simplify_kernel(vjp(module, AdjointRequest(("out",), ("x", "y"))), all_factors)
    rng = np.random.default_rng(seed + 1000)
    x, y, tx, ty = (rng.uniform(-1, 1, ELEMENTS) for _ in range(4))
    cotangent = rng.uniform(-1, 1, OUTPUTS)
    out, tout, high, low = (np.zeros(OUTPUTS) for _ in range(4))
    dx, dy = np.zeros(ELEMENTS), np.zeros(ELEMENTS)
    execute(tangent, x=x, y=y, out=out, t_x=tx, t_y=ty, t_out=tout)
    for sign, result in ((1, high), (-1, low)):
        execute(module, x=x + sign * STEP * tx, y=y + sign * STEP * ty, out=result)
    execute(adjoint, x=x, y=y, out=out, d_out=cotangent.copy(), d_x=dx, d_y=dy)
    difference = np.abs((high - low) / (2 * STEP) - tout).max() / (np.abs(tout).max() + 1e-12)
    scale = np.abs(cotangent) @ np.abs(tout) + 1e-12
    dot = abs(cotangent @ tout - dx @ tx - dy @ ty) / scale
    taped = any(TapeParameter.of(value.name) for value in adjoint.kernel.arguments)
    return Errors(float(difference), float(dot), taped)


def check_second(seed: int) -> float:
    """Compare the tangents of a random kernel's adjoint with differences; return the error."""
    adjoint = vjp(RandomKernel(seed).module, AdjointRequest(("out",), ("x", "y")))
    names = [argument.name for argument in adjoint.kernel.arguments]
    tapes = tuple(name for name in names if TapeParameter.of(name))
    tangent = jvp(adjoint, TangentRequest(("x", "y"), ("d_x", "d_y", *tapes)))
    rng = np.random.default_rng(seed + 1000)
    x, y, tx, ty = (rng.uniform(-1, 1, ELEMENTS) for _ in range(4))
    cotangent, out = rng.uniform(-1, 1, OUTPUTS), np.zeros(OUTPUTS)

    def gradient(step: float) -> Array:
        dx, dy = np.zeros(ELEMENTS), np.zeros(ELEMENTS)
        moved = {"x": x + step * tx, "y": y + step * ty}
        execute(adjoint, **moved, out=out, d_out=cotangent.copy(), d_x=dx, d_y=dy)
        return np.concatenate([dx, dy])

    expected = (gradient(STEP) - gradient(-STEP)) / (2 * STEP)
    found = [np.zeros(ELEMENTS) for _ in range(4)]
    arrays = dict(zip(("d_x", "d_y", "t_d_x", "t_d_y"), found, strict=True))
    execute(tangent, x=x, y=y, out=out, d_out=cotangent.copy(), t_x=tx, t_y=ty, **arrays)
    second = np.concatenate(found[2:])
    return float(np.abs(second - expected).max() / (np.abs(second).max() + 1e-9))


def main_second(first: int, last: int) -> int:
    """Check second derivatives of some seeds; print and return the failures."""
    errors = {seed: check_second(seed) for seed in range(first, last)}
    wrong = {seed: error for seed, error in errors.items() if not error <= DIFFERENCE_TOLERANCE}
    print(f"{last - first} kernels, {len(wrong)} second derivatives beyond {DIFFERENCE_TOLERANCE}")
    print("\n".join(f"seed {seed}: {error:.1e}" for seed, error in wrong.items()))
    return len(wrong)


def main(first: int, last: int) -> int:
    """Check the kernels of some seeds; print the failures and a summary, return the failures."""
    failures = kinks = taped = 0
    worst = Errors(0.0, 0.0, False)
    for seed in range(first, last):
        errors = check(seed)
        taped += errors.is_taped
        is_kink = not errors.difference <= DIFFERENCE_TOLERANCE
        kinks += is_kink
        if not errors.dot <= DOT_TOLERANCE or not np.isfinite(errors.difference):
            failures += 1
            print(f"seed {seed}: {errors}", flush=True)
        smooth = worst.difference if is_kink else max(worst.difference, errors.difference)
        worst = Errors(smooth, max(worst.dot, errors.dot), False)
    print(
        f"{last - first} kernels, {failures} failures: reverse from forward mode within "
        f"{worst.dot:.1e}, forward mode from differences within {worst.difference:.1e} but for "
        f"{kinks} near kinks; {taped} with a tape"
    )
    return failures


if __name__ == "__main__":
    chosen = main_second if "second" in sys.argv else main
    sys.exit(chosen(int(sys.argv[1]), int(sys.argv[2])) > 0)
