"""Steps on tensors in memory seen in blocks."""

from __future__ import annotations

from collections.abc import Callable

from tilewright.ir import Value
from tilewright.ir.types import (
    I32,
    I64,
    DescriptorType,
    FloatType,
    TileType,
    Type,
    element_type,
    shape_of,
)
from tilewright_conformance.random_programs.memory import own_part
from tilewright_conformance.random_programs.state import State, is_number

_OFFSET_TYPES = (I32, I32, I64)


class _Tensor:
    """A tensor argument: one for all programs if it is read, one each if it is written."""

    def __init__(
        self,
        state: State,
        element: Type,
        rank: int,
        fill: str,
        written: tuple[float, float] | None = None,
        rows: int = 0,
    ) -> None:
        self.state = state
        self.extents = [state.one_of((1, 3, 5, 8, 13, 20)) for _ in range(rank)]
        if rows:
            self.extents[0] = rows
        self.strides = [1 if state.number(0, 3) else 2]
        for extent in reversed(self.extents[1:]):
            self.strides.insert(0, self.strides[0] * extent + state.one_of((0, 0, 3)))
        size = (
            sum(
                (extent - 1) * stride
                for extent, stride in zip(self.extents, self.strides, strict=True)
            )
            + 1
        )
        slot = state.array(element, size * (state.programs if written else 1), fill, "t", written)
        self.base = own_part(state, slot.value, size) if written else slot.value
        self.element = element

    def seen_in(self, block: tuple[int, ...], padding: str = "zero") -> Value:
        """A descriptor; extents and strides are constants or arguments."""
        extents, strides = (
            [_wide(self.state, number) for number in numbers]
            for numbers in (self.extents, self.strides)
        )
        with self.state.guarding() as b:
            found: Value = b.make_descriptor(
                self.base,
                extents,
                strides,
                padding=padding,
                result=DescriptorType(block, self.element),
            )
        return found

    def offsets(self, block: tuple[int, ...]) -> list[Value]:
        """Offsets of a block that begins inside the tensor, across an edge, or beyond it."""
        found: list[Value] = []
        for extent, own in zip(self.extents, block, strict=True):
            type_ = self.state.one_of(_OFFSET_TYPES)
            place = self.state.one_of(
                (0, -1, 1, max(0, extent - own), extent - 1, extent, -own, extent // 2)
            )
            with self.state.guarding() as b:
                offset = b.constant_like(type_, place)
                if type_ is I32 and self.state.chance(3):
                    offset = b.add(offset, self.state.linear_program())
            found.append(offset)
        return found


def _wide(state: State, number: int) -> Value:
    if state.chance(3):
        return state.scalar(I64, number, "n").value
    with state.guarding() as b:
        found: Value = b.constant_like(I64, number)
    return found


def _block(state: State, rank: int) -> tuple[int, ...]:
    """The shape of a block."""
    extents = (1, 2, 4, 8, 16) if state.language.capabilities.power_of_two else (1, 2, 3, 4, 8, 16)
    shape = tuple(state.one_of(extents) for _ in range(rank))
    return shape if state.language.fits(shape) else (1,) * (rank - 1) + (4,)


def load(state: State) -> None:
    if not state.language.feature("descriptors"):
        return
    element, rank = state.one_of(state.language.stored), state.number(1, 3)
    block = _block(state, rank)
    tensor = _Tensor(state, element, rank, "random")
    padding = state.one_of(("zero", "nan")) if isinstance(element, FloatType) else "zero"
    descriptor = tensor.seen_in(block, padding)
    state.add(state.builder.descriptor_load(descriptor, tensor.offsets(block)))
    if state.chance(3):
        axis = state.number(0, rank - 1)
        state.add(
            getattr(state.builder, state.one_of(("descriptor_extent", "descriptor_stride")))(
                descriptor, axis=axis
            )
        )


def _tile(state: State) -> tuple[Value, tuple[int, ...], tuple[float, float]] | None:
    """A tile that a descriptor's block may be."""
    item = state.pick(
        lambda item: 1 <= len(shape_of(item.type)) <= 4 and is_number(element_type(item.type))
    )
    return (item.value, shape_of(item.type), item.bound or (0.0, 0.0)) if item is not None else None


def store(state: State) -> None:
    found = _tile(state)
    if found is None or not state.language.feature("descriptors"):
        return
    value, block, bound = found
    tensor = _Tensor(state, element_type(value.type), len(block), "poison", bound)
    state.builder.descriptor_store(tensor.seen_in(block), tensor.offsets(block), value)


def reduce(state: State) -> None:
    kinds = [
        (element, kind) for element, kind in state.language.atomics if kind not in ("xchg", "cas")
    ]
    found = _tile(state)
    if not kinds or found is None or not state.language.feature("descriptors"):
        return
    element, kind = state.one_of(kinds)
    block = found[1]
    adds = kind == "add" and isinstance(element, FloatType)
    tensor = _Tensor(state, element, len(block), "whole" if adds else "finite", (0.0, 0.0))
    type_ = TileType(block, element)
    value = state.whole(type_, 4) if adds else state.settled(state.of(type_))
    state.builder.descriptor_reduce(tensor.seen_in(block), tensor.offsets(block), value, kind=kind)


def _column(state: State, tensor: _Tensor, width: int) -> Value:
    return tensor.offsets((1, width))[1]


def gather(state: State) -> None:
    """Rows by number, some of them outside."""
    if not state.language.feature("descriptors"):
        return
    element, count, width = (
        state.one_of(state.language.stored),
        state.one_of((8, 16)),
        state.one_of((8, 16)),
    )
    tensor = _Tensor(state, element, 2, "random", rows=state.one_of((5, 13)))
    rows = state.integers((count,))
    with state.guarding() as b:
        wide = (
            rows if element_type(rows.type) is I32 else b.cast(rows, result=TileType((count,), I32))
        )
        rows = b.sub(b.and_(wide, b.constant_like(wide.type, 15)), b.constant_like(wide.type, 1))
    state.add(
        state.builder.descriptor_gather(
            tensor.seen_in((1, width)), rows, _column(state, tensor, width)
        )
    )


def scatter(state: State) -> None:
    """Rows of a tile to different rows of a tensor, some of them outside."""
    count, width = 8, state.one_of((8, 16))
    element = state.one_of(state.language.stored)
    if not state.language.feature("descriptors"):
        return
    tensor = _Tensor(state, element, 2, "poison", (0.0, 0.0), rows=state.one_of((5, 13)))
    with state.guarding() as b:
        rows = b.arange(start=0, end=count)
        # an odd factor modulo a power of two keeps them different
        mixed = b.and_(
            b.mul(rows, b.constant_like(rows.type, state.one_of((1, 3, 5, 7)))),
            b.constant_like(rows.type, 7),
        )
        rows = b.sub(mixed, b.constant_like(rows.type, state.one_of((0, 1, 2))))
    state.builder.descriptor_scatter(
        tensor.seen_in((1, width)),
        rows,
        _column(state, tensor, width),
        state.of(TileType((count, width), element)),
    )


STEPS: dict[Callable[[State], None], int] = {load: 4, store: 3, reduce: 2, gather: 2, scatter: 1}
