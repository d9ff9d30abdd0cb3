"""Checks of a kernel's derivatives in float64, on the reference interpreter."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.testing.gradients.check_precision import Precision
from tilewright.testing.gradients.derivative_launches import DerivativeLaunches
from tilewright.testing.gradients.gradient_report import LISTED, Blame, GradientCheck

Array = NDArray[np.float64]
#: How often elements at kinks are excluded from a direction, a few each time.
_ROUNDS = 8
#: The elements of an input that a direction moves, by their flat indices.
_Elements = NDArray[np.int64]


def gradcheck(
    kernel: Any,
    grid: Any,
    *args: Any,
    outputs: str | Sequence[str],
    wrt: str | Sequence[str],
    saved: str | Sequence[str] = (),
    tolerance: float | None = None,
    directions: int = 1,
    rng: Any = 0,
    **keywords: Any,
) -> GradientCheck:
    """Check a kernel's derivatives in forward and reverse mode, on the reference interpreter.

    The function compares forward mode with central differences of the kernel, and reverse mode with
    forward mode, along random directions of each input. If two of the compared derivatives differ,
    ``gradcheck`` searches for the elements of the input that cause the difference. If the function
    that the kernel computes has a kink, as ReLU has at 0, ``gradcheck`` accepts at the kink any
    derivative between the derivatives on the two sides of the kink.

    The function passes copies of the arrays to the kernel, and converts arrays of floats to
    float64. If the kernel does not compile for float64 arrays, the copies have the types of the
    original arrays instead. For example, the compilation fails if a variable is float32 before a
    loop, and the loop assigns a float64 value to the variable. The allowed errors of the
    derivatives depend on the narrowest float type in which the kernel computes a value that depends
    on an input: the narrower this type, the larger the allowed errors.

    Args:
        kernel: a kernel of ``tilewright.jit``, or of the Triton shim.
        grid: the grid of a launch of the kernel.
        args, keywords: the kernel's arguments and launch options; arrays are those of NumPy or
            PyTorch.
        outputs: the outputs whose derivatives to check, as in :func:`tilewright.vjp`. If the kernel
            adds to an output, it adds to the given contents.
        wrt: the parameters with respect to which to check derivatives, as in
            :func:`tilewright.vjp`.
        saved: the outputs that the adjoint reads, as in :func:`tilewright.vjp`.
        tolerance: the allowed error of forward mode, relative to the largest tangent of an array;
            None: the tolerance of the type.
        directions: the number of random directions to try for each input.
        rng: a random generator of NumPy, or its seed.

    Raises:
        DerivativeError: the kernel has no derivative, or the compiler cannot derive it.
    """
    launches = DerivativeLaunches(
        kernel, grid, args, keywords, _names(outputs), _names(wrt), _names(saved)
    )
    precision = launches.precision
    if tolerance is not None:
        precision = replace(precision, difference=tolerance)
    generator = np.random.default_rng(rng)
    checker = _Checker(launches, precision, generator)
    for name in launches.wrt:
        for _ in range(directions):
            checker.check(name)
    return GradientCheck(
        tuple(dict.fromkeys(checker.wrong)), checker.difference, checker.dot, precision.type
    )


def assert_gradients(kernel: Any, grid: Any, *args: Any, **keywords: Any) -> GradientCheck:
    """Assert that a kernel's derivatives are right; see :func:`gradcheck`.

    Raises:
        AssertionError: a derivative is wrong; the message names elements of it, each with the
            computed and the expected value.
        DerivativeError: the kernel has no derivative, or the compiler cannot derive it.
    """
    found = gradcheck(kernel, grid, *args, **keywords)
    if not found:
        raise AssertionError(str(found))
    return found


class _Checker:
    """Comparisons along random directions, one input at a time."""

    def __init__(
        self, launches: DerivativeLaunches, precision: Precision, rng: np.random.Generator
    ) -> None:
        self._launches, self._precision, self._rng = launches, precision, rng
        self._values = launches.values()
        self._cotangents = {
            name: rng.uniform(-1, 1, value.shape) for name, value in self._values.items()
        }
        self._gradients = launches.gradients(self._cotangents)
        self.wrong: list[Blame] = []
        self.difference = self.dot = 0.0

    def check(self, name: str) -> None:
        """Check the derivatives by one input."""
        along = self._launches.direction(name, self._rng)
        elements = np.flatnonzero(along)
        if not elements.size:
            return
        tangents = self._launches.tangents(name, along)
        self._check_forward(name, along, tangents)
        self._check_reverse(name, along, elements, tangents)

    # ---- forward mode against central differences

    def _check_forward(self, name: str, along: Array, tangents: dict[str, Array]) -> None:
        for _ in range(_ROUNDS):
            differences = self._differences(name, along)
            errors = {
                output: _smallest_error(tangent, [one[output] for one in differences])
                for output, tangent in tangents.items()
            }
            wrong = [
                output
                for output, tangent in tangents.items()
                if errors[output].max(initial=0.0) > self._allowed(name, output, tangent)
            ]
            kinks = [
                element
                for output in wrong
                for element in self._blame(name, along, output, errors[output], tangents[output])
            ]
            if len(kinks) == 0 or self.wrong:
                break
            along = along.copy()
            along.reshape(-1)[kinks] = 0.0
            tangents = self._launches.tangents(name, along)
        for output, error in errors.items():
            scale = float(np.abs(tangents[output]).max(initial=0.0)) + 1e-300
            self.difference = _larger(self.difference, float(error.max(initial=0.0)) / scale)

    def _blame(
        self, name: str, along: Array, output: str, error: Array, tangent: Array
    ) -> list[int]:
        """Find elements that change the worst element of an output otherwise than its tangent says.

        Returns:
            those at which the kernel has a kink; the others are reported.
        """
        index = tuple(map(int, np.unravel_index(int(np.argmax(error)), error.shape)))

        def pair(part: Array) -> tuple[float, float]:
            found = float(self._launches.tangents(name, part)[output][index])
            values = [float(one[output][index]) for one in self._differences(name, part)]
            return found, min(values, key=lambda value: _distance(found, value))

        kinks: list[int] = []
        allowed = self._allowed(name, output, tangent)
        for element in _bisect(along, np.flatnonzero(along), pair, allowed):
            unit = _only(along, element, 1.0)
            found, expected = pair(unit)
            if self._is_kink(name, unit, output, index, found):
                kinks.append(element)
                continue
            where = _index(element, along.shape)
            self.wrong.append(Blame("forward", name, where, (output, index), found, expected))
        return kinks

    def _is_kink(
        self, name: str, unit: Array, output: str, index: tuple[int, ...], found: float
    ) -> bool:
        """Return whether a derivative lies between differences to either side, which differ."""
        here = self._values[output][index]
        for relative in self._precision.steps:
            step = relative * self._launches.magnitude(name)
            sides = [
                float(
                    sign * (self._launches.values({name: unit}, sign * step)[output][index] - here)
                )
                / step
                for sign in (1, -1)
            ]
            noise = 8 * self._precision.epsilon * _magnitude(self._values[output]) / step
            tolerance = self._precision.difference * max(map(abs, (*sides, found))) + noise
            is_between = min(sides) - tolerance <= found <= max(sides) + tolerance
            if is_between and abs(sides[0] - sides[1]) > 2 * tolerance:
                return True
        return False

    def _allowed(self, name: str, output: str, tangent: Array) -> float:
        """Return how far differences of an output may be from its tangent."""
        step = self._precision.steps[0] * self._launches.magnitude(name)
        noise = 4 * self._precision.epsilon * _magnitude(self._values[output]) / step
        return self._precision.difference * float(np.abs(tangent).max(initial=0.0)) + noise

    def _differences(self, name: str, along: Array) -> list[dict[str, Array]]:
        """Return central differences of the outputs, with each of the steps."""
        magnitude = self._launches.magnitude(name)
        return [
            self._launches.differences({name: along}, relative, magnitude)
            for relative in self._precision.steps
        ]

    # ---- reverse mode against forward mode

    def _check_reverse(
        self, name: str, along: Array, elements: _Elements, tangents: dict[str, Array]
    ) -> None:
        gradient = self._gradients[name]

        def pair(part: Array) -> tuple[float, float]:
            moved = self._launches.tangents(name, part)
            return float((gradient * part).sum()), self._dot(moved)

        scale = sum(
            float(np.abs(self._cotangents[one] * tangents[one]).sum()) for one in tangents
        ) + float(np.abs(gradient * along).sum())
        error = _distance(float((gradient * along).sum()), self._dot(tangents))
        self.dot = _larger(self.dot, error / (scale + 1e-300) if error else 0.0)
        allowed = self._precision.dot * scale
        if error <= allowed:
            return
        for element in _bisect(along, elements, pair, allowed):
            found, expected = pair(_only(along, element, 1.0))
            where = _index(element, along.shape)
            self.wrong.append(Blame("reverse", name, where, None, found, expected))

    def _dot(self, tangents: dict[str, Array]) -> float:
        return sum(float((self._cotangents[one] * tangents[one]).sum()) for one in tangents)


def _bisect(
    along: Array,
    elements: _Elements,
    pair: Callable[[Array], tuple[float, float]],
    allowed: float,
) -> Iterator[int]:
    """Find elements of an input whose derivatives differ, at most ``LISTED``.

    Args:
        pair: the two derivatives along a direction.
        allowed: how far those of all elements may be apart.
    """
    waiting, found = [elements], 0
    while waiting and found < LISTED:
        chosen = waiting.pop()
        if len(chosen) == 1:
            found += 1
            yield int(chosen[0])
            continue
        halves = [chosen[: len(chosen) // 2], chosen[len(chosen) // 2 :]]
        errors = [_distance(*pair(_only(along, half))) for half in halves]
        order = sorted(range(2), key=lambda half: errors[half])
        if errors[order[0]] > allowed:
            waiting.append(halves[order[0]])
        waiting.append(halves[order[1]])


def _only(along: Array, elements: Any, value: float | None = None) -> Array:
    """Return a direction's part along some elements; there it is ``value``, where given."""
    part = np.zeros(along.size)
    part[elements] = along.reshape(-1)[elements] if value is None else value
    return part.reshape(along.shape)


def _smallest_error(tangent: Array, differences: list[Array]) -> Array:
    """Return the distance of each element to the nearest difference; infinite if none is finite."""
    errors = np.stack([np.abs(one - tangent) for one in differences])
    return np.asarray(np.where(np.isnan(errors), np.inf, errors).min(axis=0))


def _distance(a: float, b: float) -> float:
    error = abs(a - b)
    return error if error == error else float("inf")


def _larger(a: float, b: float) -> float:
    return a if a >= b else b


def _magnitude(array: Array) -> float:
    finite = np.abs(array[np.isfinite(array)])
    return float(finite.max(initial=0.0))


def _index(element: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(map(int, np.unravel_index(element, shape))) if shape else ()


def _names(given: str | Sequence[str]) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(given)
