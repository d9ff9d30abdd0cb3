"""Loops that load indices, gather rows of a table by them and multiply the rows.

They use the indices again, as paged and sparse attention do.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tilewright.ir import Region, Value
from tilewright.ir.types import F32, F64, I1, I32, I64, FloatType, IntType, PointerType, TileType
from tilewright_conformance.random_programs.state import State

#: Rows of the table; indices are below (``place`` of
#: :data:`~tilewright_conformance.random_programs.program.FILLS`).
_ROWS = 16


@dataclass(frozen=True)
class _Extents:
    """Extents of a matmul of ``m`` rows by ``k`` gathered rows of ``n`` elements."""

    m: int
    k: int
    n: int


def gathered_matmul(state: State) -> None:
    """Add a counted loop of matmuls with gathered rows.

    Every number is whole and small, so all results are exact.
    """
    dots = [
        (operand, accumulator)
        for operand, accumulator in state.language.dots
        if accumulator in (F32, F64, I32)
        and not (isinstance(operand, FloatType) and operand.is_fp8)
    ]
    minimum = max(state.language.capabilities.min_dot)
    extents = _Extents(*(max(minimum, state.one_of((16, 16, 32))) for _ in range(3)))
    if (
        state.depth
        or not dots
        or not state.language.fits(
            (extents.m, extents.n), (extents.k, extents.n), (extents.m, extents.k)
        )
    ):
        return
    _Gather(state, *state.one_of(dots), extents).write()


class _Gather:
    def __init__(
        self,
        state: State,
        operand: IntType | FloatType,
        accumulator: IntType | FloatType,
        extents: _Extents,
    ) -> None:
        self.state, self.operand, self.accumulator, self.extents = (
            state,
            operand,
            accumulator,
            extents,
        )
        self.trips, self.stages = state.number(0, 5), state.number(1, 4)
        #: whether each iteration loads the indices of the next one
        self.chained = state.chance(4)
        #: whether lanes past a number are masked off
        self.masked = not self.chained and state.chance(2)
        #: whether rows are multiplied as keys first, and then as values
        self.attention = state.chance(2)
        self.wide = state.chance(3)

    def array(self, element: IntType | FloatType, count: int, name: str) -> Value:
        return self.state.array(element, count, "place" if name == "index" else "whole", name).value

    def write(self) -> None:
        state, (m, k, n) = self.state, (self.extents.m, self.extents.k, self.extents.n)
        index, table = (
            self.array(I32, (self.trips + 1) * k, "index"),
            self.array(self.operand, _ROWS * n, "table"),
        )
        self.row_values = self.array(self.accumulator, _ROWS, "row")
        left_shape = (m, n) if self.attention else (m, k)
        left = self.array(self.operand, m * left_shape[1] * (self.trips + 1), "left")
        with state.guarding() as b:
            count = (
                state.scalar(I32, self.trips, "trips").value
                if state.chance(2)
                else b.constant_like(I32, self.trips)
            )
            zero, one = b.constant_like(I32, 0), b.constant_like(I32, 1)
            first = b.load(self.pointers(index, state.positions((k,))))
            inits = [
                b.constant_like(TileType((m, n), self.accumulator), 0),
                b.constant_like(TileType((k,), I32), 0),
                first,
            ]
            if self.attention:
                query = b.load(self.pointers(left, state.positions(left_shape)))
        body = Region([I32, *(init.type for init in inits)], ["i", "accumulator", "used", "at"])
        with state.inside(body, ()):
            i, accumulator, used, at = body.arguments
            mask: Value | None = None
            with state.guarding() as b:
                positions = b.add(
                    state.positions((k,)),
                    b.splat(b.mul(i, b.constant_like(I32, k)), result=TileType((k,), I32)),
                )
                if self.masked:
                    mask = b.cmp(
                        positions,
                        b.constant_like(positions.type, state.number(0, self.trips * k)),
                        predicate="lt",
                    )
                if not self.chained:
                    at = self.load(self.pointers(index, positions), mask)
                rows = self.load(
                    self.pointers(table, self.rows_at(at)),
                    self.spread(mask, 1) if mask is not None else None,
                )
                if not self.attention:
                    moved = b.add(
                        state.positions(left_shape),
                        b.splat(
                            b.mul(i, b.constant_like(I32, m * k)), result=TileType(left_shape, I32)
                        ),
                    )
                    query = b.load(self.pointers(left, moved))
                if self.attention:
                    none = b.constant_like(TileType((m, k), self.accumulator), 0)
                    scores = self.with_indices(
                        b.dot(query, b.permute(rows, order=(1, 0)), none), at
                    )
                    query = self.signs(scores)
                elif state.chance(2):
                    query = b.select(
                        b.cmp(
                            self.across(at),
                            b.constant_like(TileType((m, k), I32), 7),
                            predicate="lt",
                        ),
                        query,
                        self.constant((m, k), 1),
                    )
                accumulator = b.dot(query, rows, accumulator)
                used = getattr(b, state.one_of(("max", "add", "xor")))(used, at)
                following = b.load(self.pointers(index, at)) if self.chained else at
            state.builder.yield_([accumulator, used, following])
        for result in state.builder.region_op(
            "for", zero, count, one, inits, regions=[body], num_stages=self.stages
        ).results:
            state.add(result)

    def with_indices(self, scores: Value, at: Value) -> Value:
        """Scores with what is known of the rows: by a mask, by another load, by arithmetic."""
        state, b, shape = self.state, self.state.builder, (self.extents.m, self.extents.k)
        uses: list[Callable[[], Value]] = [
            lambda: b.select(
                b.cmp(self.across(at), state.along(shape, 0), predicate="ge"),
                scores,
                self.constant(shape, 0, self.accumulator),
            ),
            lambda: b.sub(scores, self.across(b.load(self.pointers(self.row_values, at)))),
            lambda: b.add(
                scores,
                b.cast(self.across(at), result=scores.type)
                if self.accumulator is not I32
                else self.across(at),
            ),
        ]
        for use in state.random.sample(uses, state.number(1, 3)):
            scores = use()
        return scores

    def signs(self, scores: Value) -> Value:
        """The left operand of the second matmul: one where a score is above zero, two elsewhere."""
        b = self.state.builder
        shape = (self.extents.m, self.extents.k)
        positive: Value = b.cmp(scores, self.constant(shape, 0, self.accumulator), predicate="gt")
        found: Value = b.select(positive, self.constant(shape, 1), self.constant(shape, 2))
        return found

    # ---- tiles

    def constant(
        self, shape: tuple[int, ...], value: int, element: IntType | FloatType | None = None
    ) -> Value:
        found: Value = self.state.builder.constant_like(
            TileType(shape, element or self.operand), value
        )
        return found

    def pointers(self, base: Value, offsets: Value) -> Value:
        b = self.state.builder
        assert isinstance(offsets.type, TileType) and isinstance(base.type, PointerType)
        found: Value = b.addptr(
            b.splat(base, result=TileType(offsets.type.shape, base.type)), offsets
        )
        return found

    def load(self, pointers: Value, mask: Value | None) -> Value:
        b = self.state.builder
        if mask is None:
            return self._loaded(b.load(pointers))
        assert isinstance(pointers.type, TileType) and isinstance(
            pointers.type.element, PointerType
        )
        element: Any = pointers.type.element.pointee
        return self._loaded(
            b.load(pointers, mask, b.constant_like(TileType(pointers.type.shape, element), 0))
        )

    def _loaded(self, value: Any) -> Value:
        assert isinstance(value, Value)
        return value

    def rows_at(self, at: Value) -> Value:
        """The place of each element of the rows that indices name."""
        b, shape = self.state.builder, (self.extents.k, self.extents.n)
        element = I64 if self.wide else I32
        if self.wide:
            at = b.cast(at, result=TileType((self.extents.k,), I64))
        starts = self.spread(b.mul(at, b.constant_like(at.type, self.extents.n)), 1)
        along = self.state.along(shape, 1)
        found: Value = b.add(
            starts, b.cast(along, result=TileType(shape, element)) if self.wide else along
        )
        return found

    def spread(self, tile: Value, axis: int) -> Value:
        """One value a row (``axis`` 1) of the gathered tile."""
        b = self.state.builder
        assert isinstance(tile.type, TileType)
        found: Value = b.broadcast(
            b.expand_dims(tile, axis=axis),
            result=TileType((self.extents.k, self.extents.n), tile.type.element),
        )
        return found

    def across(self, tile: Value) -> Value:
        """One value a column of the scores."""
        b = self.state.builder
        assert isinstance(tile.type, TileType) and tile.type.element is not I1
        found: Value = b.broadcast(
            b.expand_dims(tile, axis=0),
            result=TileType((self.extents.m, self.extents.k), tile.type.element),
        )
        return found


STEPS: dict[Callable[[State], None], int] = {gathered_matmul: 2}
