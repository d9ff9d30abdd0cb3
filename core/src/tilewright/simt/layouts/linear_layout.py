"""Linear layouts: maps from threads and registers to elements of a tile, as matrices over F2.

The bits of (register, lane, warp, CTA of a cluster) map linearly, by XOR, to the bits of an
element's row-major index in its tile. Extents are powers of two, so the row-major index is the
concatenation of the bits of the coordinates, and one integer is the image of one bit. Blocked
layouts, slices, operands and accumulators of matrix instructions, and swizzled shared memory all
have this form, and questions about them are linear algebra (Zhou et al., "Linear Layouts: Robust
Code Generation of Efficient Tensor Computation Using F2").
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from tilewright.ir.types import TileType, Type


def log2(value: int) -> int:
    """Return the exponent of a power of two.

    Raises:
        ValueError: it is none.
    """
    if value < 1 or value & (value - 1):
        raise ValueError(f"{value} is not a power of two")
    return value.bit_length() - 1


def combine(images: Sequence[int], index: int) -> int:
    """Return the XOR of the images of the set bits of ``index``."""
    result = 0
    for image in images:
        if index & 1:
            result ^= image
        index >>= 1
    return result


def span(images: Sequence[int]) -> list[int]:
    """Return ``combine(images, i)`` for all i, in order."""
    result = [0]
    for image in images:
        result += [value ^ image for value in result]
    return result


class Basis:
    """Set of vectors over F2 in echelon form, with incremental insertion."""

    __slots__ = ("_rows", "count")

    def __init__(self, vectors: Iterable[int] = ()) -> None:
        self._rows: dict[int, tuple[int, int]] = {}
        #: number of calls of ``add``
        self.count = 0
        for vector in vectors:
            self.add(vector)

    def _reduce(self, vector: int) -> tuple[int, int]:
        """The rest of ``vector`` and which of the vectors added give the part taken off."""
        used = 0
        while vector:
            row = self._rows.get(vector.bit_length())
            if row is None:
                break
            vector ^= row[0]
            used ^= row[1]
        return vector, used

    def add(self, vector: int) -> bool:
        """Add a vector; whether it was independent of those before."""
        rest, used = self._reduce(vector)
        self.count += 1
        if rest:
            self._rows[rest.bit_length()] = (rest, used ^ (1 << (self.count - 1)))
        return bool(rest)

    def solve(self, vector: int) -> int | None:
        """Bits of the vectors that add up to ``vector``, by the order they were added in; None
        where it is not in the span."""
        rest, used = self._reduce(vector)
        return None if rest else used

    @property
    def rank(self) -> int:
        return len(self._rows)


@dataclass(frozen=True, slots=True)
class LinearLayout:
    """Distribution of a tile's elements over registers, lanes, warps and CTAs.

    Attributes:
        shape: the tile's extents, powers of two.
        registers: images of the bits of the register index.
        lanes: images of the bits of the lane index in a warp.
        warps: images of the bits of the warp index in a program, or in its partition.
        blocks: images of the bits of the CTA rank in a cluster, if CTAs share a program.

    Register images are linearly independent: a thread holds an element once. A lane, warp or CTA
    bit whose image is 0, or depends on other images, means that several threads hold the same
    elements.

    The text form yields images as coordinates: ``layout<8x16, registers [(0,1)], lanes [(0,2)
    (1,0)], warps []>``.
    """

    keyword: ClassVar[str] = "layout"
    prefix: ClassVar[str] = "L"

    shape: tuple[int, ...]
    registers: tuple[int, ...]
    lanes: tuple[int, ...]
    warps: tuple[int, ...]
    blocks: tuple[int, ...] = ()

    # ---- size and coordinates

    @property
    def register_count(self) -> int:
        return 1 << len(self.registers)

    @property
    def images(self) -> tuple[int, ...]:
        """All images: registers, lanes, warps, CTAs."""
        return (*self.registers, *self.lanes, *self.warps, *self.blocks)

    def element(self, register: int = 0, lane: int = 0, warp: int = 0, block: int = 0) -> int:
        """Return the row-major index of the element that a register holds."""
        return (
            combine(self.registers, register)
            ^ combine(self.lanes, lane)
            ^ combine(self.warps, warp)
            ^ combine(self.blocks, block)
        )

    def register_elements(self) -> list[int]:
        """Return, for each register, the XOR of its element with the thread's first element."""
        return span(self.registers)

    @property
    def covers(self) -> bool:
        """Return whether some thread holds each element."""
        return Basis(self.images).rank == log2(math.prod(self.shape))

    def redundant_threads(self) -> tuple[int, int]:
        """Masks of lane and warp bits: the threads with none of these bits set hold every element
        once.

        Bits are kept in the order registers, lanes, warps, so a warp is redundant before a lane is.
        """
        basis = Basis(self.registers)
        lanes = sum(1 << i for i, image in enumerate(self.lanes) if not basis.add(image))
        warps = sum(1 << i for i, image in enumerate(self.warps) if not basis.add(image))
        return lanes, warps

    # ---- layouts of related tiles

    def reshape(self, shape: Sequence[int]) -> LinearLayout:
        """Return the layout of a reshape: row-major indices stay the same."""
        assert math.prod(shape) == math.prod(self.shape)
        return replace(self, shape=tuple(shape))

    def expand_dims(self, axis: int) -> LinearLayout:
        return self.reshape((*self.shape[:axis], 1, *self.shape[axis:]))

    def permute(self, order: Sequence[int]) -> LinearLayout:
        """Return the layout of the tile whose axis i is axis ``order[i]`` of this one."""
        target = tuple(self.shape[axis] for axis in order)
        moves: dict[int, int] = {}
        shifts = axis_shifts(target)
        source_shifts = axis_shifts(self.shape)
        for position, axis in enumerate(order):
            for bit in range(log2(self.shape[axis])):
                moves[source_shifts[axis] + bit] = shifts[position] + bit
        return self.mapped(target, lambda image: sum(1 << moves[bit] for bit in bits_of(image)))

    def without_axis(self, axis: int) -> LinearLayout:
        """Of the tile with ``axis`` removed: a thread holds what it holds of any element along the
        axis. Registers that become equal are dropped."""
        return self.narrowed(axis).reshape((*self.shape[:axis], *self.shape[axis + 1 :]))

    def narrowed(self, axis: int) -> LinearLayout:
        """Return the layout of the tile with extent 1 along ``axis``."""
        shift, count = axis_shifts(self.shape)[axis], log2(self.shape[axis])
        low, mask = (1 << shift) - 1, (1 << count) - 1
        shape = (*self.shape[:axis], 1, *self.shape[axis + 1 :])
        return self.mapped(
            shape, lambda image: (image & low) | (image & ~(mask << shift) & ~low) >> count
        )

    def broadcast_source(self, shape: Sequence[int]) -> LinearLayout:
        """Return the layout of a tile of ``shape`` that is broadcast to this one."""
        result = self
        for axis, (ours, theirs) in enumerate(zip(self.shape, shape, strict=True)):
            if ours != theirs:
                result = result.narrowed(axis)
        return result

    def joined(self) -> LinearLayout:
        """Of ``join(a, b)`` for a and b in this layout: the new last axis is the lowest register
        bit."""
        shape = (*self.shape, 2)
        doubled = self.mapped(shape, lambda image: image << 1)
        return replace(doubled, registers=(1, *doubled.registers))

    def mapped(self, shape: tuple[int, ...], move: Callable[[int], int]) -> LinearLayout:
        """Return the layout of a tile of ``shape`` whose images are mapped by a linear ``move``.

        Registers that become equal are dropped.
        """
        registers, lanes, warps, blocks = (
            tuple(map(move, images))
            for images in (self.registers, self.lanes, self.warps, self.blocks)
        )
        basis = Basis()
        return LinearLayout(
            shape, tuple(image for image in registers if basis.add(image)), lanes, warps, blocks
        )

    # ---- properties of an axis

    def vector_width(self, axis: int, limit: int) -> int:
        """Return the length of aligned runs along ``axis`` in consecutive registers.

        Runs start at register 0, and have at most ``limit`` elements.
        """
        shift, width = axis_shifts(self.shape)[axis], 1
        for bit, image in enumerate(self.registers):
            if width >= limit or image != 1 << (shift + bit) or 1 << (bit + 1) > self.shape[axis]:
                break
            width *= 2
        return width

    def axis_mask(self, axis: int) -> int:
        """Return the bits of a row-major index that are the coordinate along ``axis``."""
        return (self.shape[axis] - 1) << axis_shifts(self.shape)[axis]

    # ---- text

    def text(self) -> str:
        parts = []
        for name, images in (
            ("registers", self.registers),
            ("lanes", self.lanes),
            ("warps", self.warps),
            ("blocks", self.blocks),
        ):
            if images or name != "blocks":
                listed = " ".join(
                    "(" + ",".join(map(str, coordinates(image, self.shape))) + ")"
                    for image in images
                )
                parts.append(f"{name} [{listed}]")
        return f"{shape_text(self.shape)}, {', '.join(parts)}"

    @classmethod
    def parse(cls, text: str) -> LinearLayout:
        """The layout that :meth:`text` yields.

        Raises:
            ValueError: the text is none.
        """
        found = _LAYOUT.match(text)
        if found is None:
            raise ValueError(
                f"{text!r} is no layout: 'EXTENTS, registers [(...) ...], lanes [...], warps "
                "[...]' is, and blocks where there are some"
            )
        shape = parse_shape(found[1])
        images: list[tuple[int, ...]] = []
        for part in found.group(2, 3, 4, 5):
            points = [
                tuple(map(int, point.split(",")))
                for point in re.findall(r"\(([^)]*)\)", part or "")
            ]
            if any(
                len(point) != len(shape)
                or any(not 0 <= value < extent for value, extent in zip(point, shape, strict=True))
                for point in points
            ):
                raise ValueError(
                    f"{text!r} is no layout: each image has a coordinate below the extent for "
                    "each axis"
                )
            images.append(tuple(row_major(point, shape) for point in points))
        if Basis(images[0]).rank < len(images[0]):
            raise ValueError(
                f"{text!r} is no layout: images of registers are independent, for a thread holds "
                "an element once"
            )
        return cls(shape, *images)

    def misfit(self, type_: Type) -> str:
        """Return the error for a value whose shape the layout does not fit, or the empty string."""
        if isinstance(type_, TileType) and type_.shape == self.shape:
            return ""
        return f"a value of type {type_} cannot have a layout of {shape_text(self.shape)}"

    def __str__(self) -> str:
        return self.text().partition(", ")[2]


_IMAGES = r"\[((?:\([\d,]*\) ?)*)\]"
_LAYOUT = re.compile(
    rf"([\dx]+), registers {_IMAGES}, lanes {_IMAGES}, warps {_IMAGES}(?:, blocks {_IMAGES})?\Z"
)


def shape_text(shape: Sequence[int]) -> str:
    """``64x32``."""
    return "x".join(map(str, shape))


def parse_shape(text: str) -> tuple[int, ...]:
    """Parse a shape like ``64x32``, whose extents are powers of two."""
    shape = tuple(int(extent) for extent in text.split("x"))
    for extent in shape:
        log2(extent)
    return shape


def bits_of(value: int) -> list[int]:
    """Return the positions of the set bits."""
    return [bit for bit in range(value.bit_length()) if value >> bit & 1]


@functools.cache
def axis_shifts(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return, for each axis, the lowest bit of its coordinate in a row-major index."""
    shifts = []
    total = 0
    for extent in reversed(shape):
        shifts.append(total)
        total += log2(extent)
    return tuple(reversed(shifts))


def coordinates(element: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the coordinates of a row-major index."""
    return tuple(
        (element >> shift) & (extent - 1)
        for shift, extent in zip(axis_shifts(shape), shape, strict=True)
    )


def row_major(point: Sequence[int], shape: tuple[int, ...]) -> int:
    """Return the row-major index of coordinates."""
    return sum(value << shift for value, shift in zip(point, axis_shifts(shape), strict=True))


@functools.lru_cache(maxsize=4096)
def blocked(
    shape: tuple[int, ...], order: tuple[int, ...], vector: int, lanes: int, warps: int
) -> LinearLayout:
    """Threads side by side along the axes in ``order``, fastest first, each with ``vector``
    elements along the first.

    Lanes fill the first axis before the next, then warps; what is left of the tile is repeated in
    registers. Where the tile is smaller than the threads, several threads hold the same elements.
    """
    shifts = axis_shifts(shape)
    free = [shifts[axis] + bit for axis in order for bit in range(log2(shape[axis]))]
    count = min(log2(vector), log2(shape[order[0]]))
    registers = [1 << bit for bit in free[:count]]
    rest = free[count:]

    def take(number: int) -> list[int]:
        taken = [1 << bit for bit in rest[: log2(number)]]
        del rest[: len(taken)]
        return taken + [0] * (log2(number) - len(taken))

    lane_images = take(lanes)
    warp_images = take(warps)
    return LinearLayout(
        shape, (*registers, *(1 << bit for bit in rest)), tuple(lane_images), tuple(warp_images)
    )


def replicated(shape: tuple[int, ...], lanes: int, warps: int) -> LinearLayout:
    """Return the layout in which every thread holds the whole tile."""
    return LinearLayout(
        shape,
        tuple(1 << bit for bit in range(log2(math.prod(shape)))),
        (0,) * log2(lanes),
        (0,) * log2(warps),
    )


@dataclass(frozen=True, slots=True)
class SharedLayout:
    """Layout of a tile in shared memory: a linear map from row-major indices to offsets.

    ``images`` are the offsets, in elements, of the bits of the row-major index. The map is one to
    one, so that a tile of n elements takes the space of n elements. Swizzles, which spread the
    elements of one access over the banks, XOR higher bits into lower ones.

    The text form lists the images from the lowest bit on, ``shared<8x8, 1 2 4 8 17 34>``, or
    nothing where elements lie in row-major order, ``shared<8x8>``.
    """

    keyword: ClassVar[str] = "shared"
    prefix: ClassVar[str] = "S"

    shape: tuple[int, ...]
    images: tuple[int, ...]

    @classmethod
    def row_major(cls, shape: tuple[int, ...]) -> SharedLayout:
        """Return the layout with elements in row-major order, without gaps."""
        return cls(shape, tuple(1 << bit for bit in range(log2(math.prod(shape)))))

    def text(self) -> str:
        shape = shape_text(self.shape)
        return (
            shape
            if self == SharedLayout.row_major(self.shape)
            else f"{shape}, {' '.join(map(str, self.images))}"
        )

    @classmethod
    def parse(cls, text: str) -> SharedLayout:
        """Parse the output of :meth:`text`.

        Raises:
            ValueError: the text is none, or two elements have one place.
        """
        extents, comma, rest = text.partition(",")
        shape = parse_shape(extents.strip())
        if not comma:
            return cls.row_major(shape)
        bits = log2(math.prod(shape))
        images = tuple(int(image) for image in rest.split() if image.isdecimal())
        if (
            len(images) != len(rest.split())
            or len(images) != bits
            or Basis(images).rank != bits
            or any(image >> bits for image in images)
        ):
            raise ValueError(
                f"{text!r} is no layout of shared memory: {bits} independent images below "
                f"{1 << bits} are"
            )
        return cls(shape, images)

    def misfit(self, type_: Type) -> str:
        """Return an error: no value has a shared layout, which is part of the types of slots."""
        return (
            f"a value of type {type_} is held by threads: a layout of shared memory is for "
            "slots and buffers"
        )

    def offset(self, element: int) -> int:
        """Return the offset of an element, in elements."""
        return combine(self.images, element)

    def through(self, layout_images: Sequence[int]) -> tuple[int, ...]:
        """Images in shared memory of bits whose images in the tile are given."""
        return tuple(self.offset(image) for image in layout_images)
