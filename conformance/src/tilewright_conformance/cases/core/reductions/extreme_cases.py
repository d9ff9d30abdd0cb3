"""Maxima and minima, and their positions."""

from __future__ import annotations

import functools
from collections.abc import Iterator

import numpy as np

import tilewright.language as tl
from tilewright_conformance.cases.core.reductions.reduction_case import (
    AXES,
    axis_text,
    reduced,
    reduction_case,
)
from tilewright_conformance.oracles.dtypes import (
    FLOATS,
    IR,
    NUMBERS,
    Array,
    kind,
)
from tilewright_conformance.suite.case import Case
from tilewright_conformance.suite.session import Session
from tilewright_conformance.testlib import combining
from tilewright_conformance.testlib.combining import Shape, extremum_type
from tilewright_conformance.testlib.numbers import check, draw, special, unset, wide


def _extreme(
    name: str, place: tuple[Shape, int | None, bool], high: bool, session: Session
) -> None:
    """NaN counts only where nothing else is there."""
    shape, axis, _ = place
    sets = [wide(session.rng, name, shape)]
    if name in FLOATS:
        some = special(name)
        sets.append(some[session.rng.integers(0, len(some), shape)])
        mostly = np.full(shape, np.nan)
        mostly.flat[:: max(2, shape[-1] * 2 + 1)] = -3.5 if high else 3.5
        sets.append(mostly.astype(kind(name)))
    for x in sets:
        found = reduced(tl.max if high else tl.min, x, extremum_type(name), place, session)
        exact = x.astype(np.float64) if name in FLOATS else x.astype(extremum_type(name))
        combine = np.fmax if high else np.fmin
        with np.errstate(invalid="ignore"):
            check(
                session,
                found,
                np.reshape(
                    combine.reduce(exact.ravel() if axis is None else exact, axis or 0), found.shape
                ),
                zero_sign=False,
            )


def extreme_values() -> Iterator[Case]:
    index = 3
    for name in NUMBERS:
        for high in (True, False):
            for _ in range(5):
                place = AXES[index % len(AXES)]
                index += 1
                function = "max" if high else "min"
                run = functools.partial(_extreme, name, place, high)
                text = f"tl.{function}/{IR[name]}/{axis_text(*place)}"
                yield reduction_case(
                    text,
                    f"tl.{function}",
                    run,
                    name,
                    extremum_type(name),
                    tile=int(np.prod(place[0])),
                    quick=index % 8 == 0,
                )


def _place(
    name: str, place: tuple[Shape, int | None, bool], high: bool, left: bool, session: Session
) -> None:
    """Check the position of a maximum or minimum: the first of equal ones, or any.

    A NaN's position counts only where all are NaN.
    """
    shape, axis, keep = place
    sets = [
        draw(session.rng, name, shape, limit=3),
        wide(session.rng, name, shape),
        np.zeros(shape, kind(name)),
    ]
    for x in [*sets, *(_beside_nan(name, shape, session) if name in FLOATS else ())]:
        if name in FLOATS and not np.isnan(x.astype(np.float32)).any():
            x.flat[0] = -np.inf if high else np.inf
        kept = "float32" if name == "bfloat16" else name
        extent = combining.extent_of(shape, axis, keep)
        found, places = unset(extent, kind(kept)), np.full(extent, -1, np.int32)
        function = tl.max if high else tl.min
        options = {"SHAPE": shape, "FUNCTION": function, "AXIS": axis, "KEEP": keep, "LEFT": left}
        session.launch(combining.reduced_with_positions, (1,), x, found, places, **options)
        exact = x.astype(np.float64) if name in FLOATS else x
        best, first = _best_and_first(exact, axis, high)
        first = np.reshape(first, extent).astype(np.int32)
        check(session, found, np.reshape(best, extent), zero_sign=False)
        if left:
            session.check(places, first, name="first place")
        else:
            flat = (
                exact.reshape(1, -1)
                if axis is None
                else np.moveaxis(exact, axis, -1).reshape(-1, shape[axis])
            )
            chosen = places.ravel()
            session.require(
                np.all((chosen >= 0) & (chosen < flat.shape[1])), "a place is none of the axis"
            )
            session.require(
                np.array_equal(
                    flat[np.arange(len(chosen)), chosen], np.ravel(best), equal_nan=name in FLOATS
                ),
                "a place is not that of the value",
            )


def _beside_nan(name: str, shape: Shape, session: Session) -> Iterator[Array]:
    """Yield tiles of numbers and NaNs, few of either, of NaNs with infinities, and all NaNs."""
    for share, of in ((0.2, None), (0.9, None), (0.5, -np.inf), (0.5, np.inf), (1.0, None)):
        x = (
            draw(session.rng, name, shape, limit=3)
            if of is None
            else np.full(shape, of, kind(name))
        )
        x[session.rng.random(shape) < share] = np.nan
        yield x


def _best_and_first(x: Array, axis: int | None, high: bool) -> tuple[Array, Array]:
    """Return the maximum (``high``) or the minimum along an axis, and its first position."""
    best = np.asarray(
        (np.fmax if high else np.fmin).reduce(x.ravel() if axis is None else x, axis or 0)
    )
    across = best if axis is None else np.expand_dims(best, axis)
    return best, np.asarray(((x == across) | (np.isnan(across))).argmax(axis))


def _position(
    name: str, place: tuple[Shape, int | None, bool], high: bool, session: Session
) -> None:
    shape, axis, _ = place
    for x in (
        draw(session.rng, name, shape, limit=3),
        np.zeros(shape, kind(name)),
        *(_beside_nan(name, shape, session) if name in FLOATS else ()),
    ):
        found = reduced(tl.argmax if high else tl.argmin, x, "int32", place, session)
        exact = x.astype(np.float64)
        session.check(
            found, np.reshape(_best_and_first(exact, axis, high)[1], found.shape).astype(np.int32)
        )


def extreme_places() -> Iterator[Case]:
    index = 7
    for name in NUMBERS:
        own = ("float32",) if name == "bfloat16" else ()
        for high in (True, False):
            function = "max" if high else "min"
            for left in (True, True, False):
                place = AXES[index % len(AXES)]
                index += 1
                run = functools.partial(_place, name, place, high, left)
                tie = "left" if left else "any"
                yield reduction_case(
                    f"tl.{function}/{IR[name]}/{axis_text(*place)}_places_{tie}",
                    f"tl.{function}",
                    run,
                    name,
                    *own,
                    tile=int(np.prod(place[0])),
                    quick=index % 7 == 0,
                )
            place = AXES[(5 * index) % len(AXES)]
            run = functools.partial(_position, name, place, high)
            text = f"tl.arg{function}/{IR[name]}/{axis_text(*place)}"
            yield reduction_case(
                text,
                f"tl.arg{function}",
                run,
                name,
                *own,
                tile=int(np.prod(place[0])),
                quick=name in ("float32", "int8", "uint64"),
            )
