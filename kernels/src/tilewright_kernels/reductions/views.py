"""Arrays as two kept and two reduced axes, and as four axes for what is broadcast back."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import tilewright as tw
from tilewright_kernels.operations import strides
from tilewright_kernels.operations.block_rules import block_rule
from tilewright_kernels.operations.devices import Device

#: Programs that keep every processor of a GPU, and every core of a CPU, busy.
_PROGRAMS = {False: 528, True: 32}
#: Elements that a program of the CPU reduces at least where rows are split.
_SPLIT_ON_CPU = 1 << 15


@dataclass(frozen=True)
class Axis:
    """An axis, or several that are one in memory: its extent, and its stride in each array."""

    extent: int
    strides: tuple[int, ...]


def axes_of(axis: int | Sequence[int] | None, rank: int) -> int:
    """Return axes as a mask of bits, which operations take as a number.

    Raises:
        ValueError: an axis is out of range, or an axis is named twice.
    """
    if axis is None:
        return (1 << rank) - 1
    given = [axis] if isinstance(axis, int) else list(axis)
    mask = 0
    for each in given:
        if not -rank <= each < rank:
            raise ValueError(f"axis {each} is out of range: the array has {rank} axes")
        if mask >> each % rank & 1:
            raise ValueError(f"axis {each} is named twice")
        mask |= 1 << each % rank
    return mask


def axes_in(mask: int, rank: int) -> tuple[int, ...]:
    """Return the axes in a mask of :func:`axes_of`, in ascending order."""
    return tuple(place for place in range(rank) if mask >> place & 1)


def reduced_shape(shape: Sequence[int], axes: int, keepdims: bool) -> tuple[int, ...]:
    """Return the shape of an array after a reduction over axes."""
    return tuple(
        1 if axes >> place & 1 else extent
        for place, extent in enumerate(shape)
        if keepdims or not axes >> place & 1
    )


def reduced_extent(shape: Sequence[int], axes: int) -> int:
    """Return how many elements each element of the result is reduced from."""
    return math.prod(extent for place, extent in enumerate(shape) if axes >> place & 1)


def merged(axes: Sequence[Axis]) -> list[Axis]:
    """Merge neighbouring axes that are one in the memory of every array."""
    found: list[Axis] = []
    for axis in axes:
        if axis.extent == 1:
            continue
        before = found[-1] if found else None
        if before is not None and all(
            outer == inner * axis.extent
            for outer, inner in zip(before.strides, axis.strides, strict=True)
        ):
            found[-1] = Axis(before.extent * axis.extent, axis.strides)
        else:
            found.append(axis)
    return found


def padded(axes: Sequence[Axis], count: int, arrays: int) -> list[Axis]:
    """Return axes with leading ones of extent 1, so that there are ``count``."""
    return [Axis(1, (0,) * arrays)] * (count - len(axes)) + list(axes)


@dataclass(frozen=True)
class ReductionView:
    """An array as kept axes, whose strides in the result follow those in the array, and reduced.

    Attributes:
        kept, reduced: the axes.
        is_of_splits: whether the array has partial results.
    """

    kept: tuple[Axis, Axis]
    reduced: tuple[Axis, Axis]
    is_of_splits: bool = False

    @property
    def n_kept(self) -> int:
        """Number of elements of the result."""
        return self.kept[0].extent * self.kept[1].extent

    @property
    def n_reduced(self) -> int:
        """Number of elements that each of them is reduced from."""
        return self.reduced[0].extent * self.reduced[1].extent


def views_of(
    x: Any, out: Any, axes: int, ordered: bool
) -> Iterator[tuple[Any, Any, ReductionView]]:
    """Return views that together cover a reduction of ``x`` over axes to ``out``.

    There is one, but where the strides of ``out`` need more than two axes. ``x`` is copied where
    it needs more than two kept and two reduced axes itself.

    Args:
        x: the array.
        out: the array of results, with the reduced axes of extent 1 or without them.
        axes: a mask of axes.
        ordered: whether positions along the reduced axes count, so that their order must stay.
    """
    rank = len(x.shape)
    kept_places = [place for place in range(rank) if not axes >> place & 1]
    out_strides = strides(out)
    if len(out.shape) == rank:
        out_strides = tuple(out_strides[place] for place in kept_places)
    reduced_places = [place for place in range(rank) if axes >> place & 1]
    x_strides = strides(x)
    kept = [
        Axis(x.shape[place], (x_strides[place], stride))
        for place, stride in zip(kept_places, out_strides, strict=True)
    ]
    reduced = [Axis(x.shape[place], (x_strides[place],)) for place in reduced_places]
    found = _view(kept, reduced, ordered)
    if found is not None:
        yield x, out, found
        return
    x = _contiguous(x, kept_places + reduced_places)
    x_strides = strides(x)
    kept = [
        Axis(axis.extent, (stride, axis.strides[1]))
        for axis, stride in zip(kept, x_strides, strict=False)
    ]
    reduced = [
        Axis(extent, (stride,))
        for extent, stride in zip(x.shape[len(kept) :], x_strides[len(kept) :], strict=True)
    ]
    found = _view(kept, reduced, ordered)
    if found is not None:
        yield x, out, found
        return
    if len(out.shape) == rank:
        out = out.reshape([out.shape[place] for place in kept_places])
    for place in range(x.shape[0]):
        rest = (1 << len(x.shape) - 1) - (1 << len(kept) - 1)
        yield from views_of(x[place], out[place], rest, ordered)


def _view(kept: Sequence[Axis], reduced: Sequence[Axis], ordered: bool) -> ReductionView | None:
    found = merged(sorted(kept, key=lambda axis: -abs(axis.strides[0])))
    if not ordered:
        reduced = sorted(reduced, key=lambda axis: -abs(axis.strides[0]))
    along = merged(reduced)
    if len(found) > 2 or len(along) > 2:
        return None
    if not ordered and len(along) == 2 and along[1].extent < 32 < along[0].extent:
        along.reverse()  # lanes lie along the second axis
    first, second = padded(found, 2, 2)
    outer, inner = padded(along, 2, 1)
    return ReductionView((first, second), (outer, inner))


def _contiguous(x: Any, places: Sequence[int]) -> Any:
    transposed = x.permute(*places) if hasattr(x, "permute") else x.transpose(places)
    return contiguous(transposed)


def contiguous(x: Any) -> Any:
    """Return an array in C order: itself where it is."""
    if hasattr(x, "contiguous"):
        return x.contiguous()
    return x.copy(order="C") if hasattr(x, "strides") and not x.flags.c_contiguous else x


@dataclass(frozen=True)
class Blocks:
    """Sizes of a launch.

    Attributes:
        kept: kept elements of a program.
        reduced: elements of each that it reads at a time.
        splits: programs that share the elements which are reduced to one.
        chunk: how many of the axis that is split each of them takes.
        num_warps: warps of a program.
    """

    kept: int
    reduced: int
    splits: int
    chunk: int
    num_warps: int


@dataclass(frozen=True)
class ReductionTile:
    """The tile of a program that reduces.

    Attributes:
        kept: kept elements.
        reduced: elements of each that it reads at a time.
        num_warps: warps of the program.
    """

    kept: int
    reduced: int
    num_warps: int


@block_rule("reductions", rounded=("n_kept", "n_reduced"))
def reduction_tile(
    n_kept: int, n_reduced: int, along_reduced: bool, device: Device
) -> ReductionTile:
    """Return the tile for axes of some extents, whose lanes lie along one of them."""
    on_cpu = device.family == "cpu"
    elements = 2048 if on_cpu else 4096
    wide_kept = tw.next_power_of_2(max(n_kept, 1))
    wide_reduced = tw.next_power_of_2(max(n_reduced, 1))
    if along_reduced:
        reduced = min(wide_reduced, 256 if on_cpu else 4096)
        kept = min(wide_kept, max(elements // reduced, 1), 1 if on_cpu else 64)
    else:
        kept = min(wide_kept, 1024 if on_cpu else 128)
        reduced = min(wide_reduced, max(elements // kept, 1), 1 if on_cpu else 64)
    return ReductionTile(kept, reduced, max(min(kept * reduced // 512, 8), 1))


def reduction_blocks(view: ReductionView, device: Device) -> Blocks:
    """Choose sizes for a view: lanes lie along the axis with the smaller stride."""
    (_, kept), (outer, inner) = view.kept, view.reduced
    on_cpu = device.family == "cpu"
    along_reduced = abs(inner.strides[0]) <= abs(kept.strides[0]) or kept.extent == 1
    # records are of whole reductions; the few partial results of one take the model's choice
    choose = reduction_tile.choose if view.is_of_splits else reduction_tile
    tile = choose(kept.extent, inner.extent, along_reduced, device)
    block_kept, block_reduced = tile.kept, tile.reduced
    programs = view.kept[0].extent * tw.cdiv(kept.extent, block_kept)
    along = outer.extent if outer.extent > 1 else tw.cdiv(inner.extent, 2 * block_reduced)
    wanted = _PROGRAMS[on_cpu] // max(programs, 1)
    if wanted < 4:  # fewer programs than processors hold cost more than a few too many
        wanted = tw.cdiv(_PROGRAMS[on_cpu], max(programs, 1))
    wanted = min(wanted, along, 1024)
    if on_cpu:
        wanted = min(wanted, view.n_reduced * block_kept // _SPLIT_ON_CPU)
    whole = outer.extent if outer.extent > 1 else inner.extent
    chunk = tw.cdiv(whole, max(wanted, 1))
    if outer.extent <= 1:
        chunk = tw.cdiv(chunk, block_reduced) * block_reduced
    return Blocks(
        block_kept,
        block_reduced,
        max(tw.cdiv(whole, max(chunk, 1)), 1),
        max(chunk, 1),
        tile.num_warps,
    )


def sizes_of(view: ReductionView, blocks: Blocks) -> dict[str, Any]:
    """Return the arguments of kernels that say where elements lie."""
    (kept_0, kept_1), (reduced_0, reduced_1) = view.kept, view.reduced
    widest = max(blocks.kept * abs(kept_1.strides[0]), blocks.reduced * abs(reduced_1.strides[0]))
    return {
        "kept_1": kept_1.extent,
        "reduced_0": reduced_0.extent,
        "reduced_1": reduced_1.extent,
        "x_kept_0": kept_0.strides[0],
        "x_kept_1": kept_1.strides[0],
        "x_reduced_0": reduced_0.strides[0],
        "x_reduced_1": reduced_1.strides[0],
        "chunk": blocks.chunk,
        "SPLITS_OUTER": reduced_0.extent > 1,
        "IS_WIDE": widest >= 1 << 31,
        "BLOCK_K": blocks.kept,
        "BLOCK_R": blocks.reduced,
        "num_warps": blocks.num_warps,
    }


def grid_of(view: ReductionView, blocks: Blocks) -> tuple[int, int]:
    """Return the grid: blocks of kept elements, and splits."""
    return view.kept[0].extent * tw.cdiv(view.kept[1].extent, blocks.kept), blocks.splits


def splits_view(view: ReductionView, splits: int) -> ReductionView:
    """Return the view of partial results, an array of (splits, kept), with the same result."""
    n_kept = view.n_kept
    kept_0, kept_1 = view.kept
    return ReductionView(
        (
            Axis(kept_0.extent, (kept_1.extent, kept_0.strides[1])),
            Axis(kept_1.extent, (1, kept_1.strides[1])),
        ),
        (Axis(1, (0,)), Axis(splits, (n_kept,))),
        is_of_splits=True,
    )
