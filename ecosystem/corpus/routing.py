"""What kernels that sort the rows of tokens by experts leave for the kernels behind them, by the
names of arguments.

Row ``i`` of all tokens' rows (the *routes*) goes to expert ``i % experts``, as it does in the
records whose experts are known. Sorted by expert, routes keep their order within one. A tile, or
block, is so many sorted rows of one expert that a program multiplies.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from corpus.launches import Argument, Launch

Array = np.ndarray[Any, np.dtype[Any]]

#: Arguments with an element a route.
_OF_ROUTES = (
    "SortedIdx",
    "sorted_indices",
    "LocalPos",
    "ExpertIds",
    "x_gather_idx_ptr",
    "s_scatter_idx_ptr",
    "s_reverse_scatter_idx_ptr",
    "s_rev_ptr",
)
#: Arguments with an element an expert -> elements that they have beyond.
_OF_EXPERTS = {
    "ExpStart": 0,
    "ExpEnd": 0,
    "Counts": 0,
    "BlockEnd": 0,
    "expert_offs_ptr": 0,
    "expert_freq_ptr": 0,
    "expert_start_ptr": 1,
}
#: Constants that say how many rows a tile has.
_TILE = ("BLOCK_M_TOKEN", "BLOCK_SIZE_M", "BLOCK_M")
#: Experts where no argument tells how many.
_EXPERTS = 32


@dataclass(frozen=True)
class Routing:
    """Routes of tokens to experts.

    Attributes:
        routes: rows of all tokens.
        experts: how many there are.
        tokens: how many there are; each has equally many routes, one after the other.
        tile: rows of a tile.
    """

    routes: int
    experts: int
    tokens: int
    tile: int

    @cached_property
    def expert(self) -> Array:
        """The expert of each route."""
        return np.arange(self.routes) % self.experts

    @cached_property
    def order(self) -> Array:
        """The route of each sorted row."""
        return np.argsort(self.expert, kind="stable")

    @cached_property
    def place(self) -> Array:
        """The sorted row of each route."""
        return np.argsort(self.order, kind="stable")

    @cached_property
    def counts(self) -> Array:
        """How many rows each expert has."""
        return np.bincount(self.expert, minlength=self.experts)

    @cached_property
    def starts(self) -> Array:
        """The first sorted row of each expert, and their number."""
        return np.concatenate([[0], np.cumsum(self.counts)])

    @cached_property
    def tiles(self) -> Array:
        """The first tile of each expert, and their number."""
        return np.concatenate([[0], np.cumsum(-(-self.counts // self.tile))])

    def expert_of_tiles(self, count: int) -> Array:
        """The expert of each tile; that of what is beyond the last tile is the last."""
        return np.minimum(
            np.searchsorted(self.tiles, np.arange(count), "right") - 1, self.experts - 1
        )

    def start_of_tiles(self, count: int) -> Array:
        """The first sorted row of each tile; those beyond the last tile begin behind all rows."""
        expert = self.expert_of_tiles(count)
        return np.minimum(
            self.starts[expert] + (np.arange(count) - self.tiles[expert]) * self.tile, self.routes
        )

    def earlier(self, blocks: int) -> Array:
        """By expert and block of routes: how many routes of the expert earlier blocks have."""
        block = np.arange(self.routes) // -(-self.routes // blocks)
        found = np.zeros((self.experts, blocks), np.int64)
        np.add.at(found, (self.expert, block), 1)
        return np.cumsum(found, axis=1) - found


def left_by_sorting(
    launch: Launch, argument: Argument, arguments: Mapping[str, Argument], count: int
) -> Array | None:
    """What an argument of a launch holds, by its name; None where it is none of those that sorting
    leaves.

    Args:
        arguments: all that the launch passes, by name.
        count: the elements of the argument.
    """
    if argument.name not in (*_OF_ROUTES, *_OF_EXPERTS, *_TABLES):
        return None
    found = _routing(launch, arguments)
    match argument.name:
        case "SortedIdx" | "sorted_indices" | "s_scatter_idx_ptr":
            return found.order
        case "s_reverse_scatter_idx_ptr" | "s_rev_ptr":
            return found.place
        case "x_gather_idx_ptr":
            return found.order // max(1, found.routes // found.tokens)
        case "LocalPos":
            return found.place - found.starts[found.expert]
        case "ExpertIds":
            return found.expert
        case "ExpStart" | "expert_offs_ptr" | "expert_start_ptr":
            return found.starts[:count]
        case "ExpEnd":
            return found.starts[1:]
        case "Counts" if not {"ExpStart", "ExpEnd"} & set(arguments):
            return np.zeros(count)  # the kernel itself counts
        case "Counts" | "expert_freq_ptr":
            return found.counts
        case "BlockEnd":
            return found.tiles[1:]
        case "expert_tile_offset_ptr":
            return found.tiles[:count]
        case "tile_expert_ptr" | "BlockExpertIds":
            return found.expert_of_tiles(count)
        case "tile_row_start_ptr" | "BlockOffsets":
            return found.start_of_tiles(count)
        case _:
            assert argument.shape is not None
            return found.earlier(argument.shape[-1]).ravel()


#: Arguments with an element a tile, or one for an expert and tile.
_TABLES = (
    "expert_tile_offset_ptr",
    "tile_expert_ptr",
    "BlockExpertIds",
    "tile_row_start_ptr",
    "BlockOffsets",
    "partial_sum_ptr",
)


def _routing(launch: Launch, arguments: Mapping[str, Argument]) -> Routing:
    """The routes of a launch: as many routes and experts as its arguments have elements for."""
    rows = [
        each.shape[0]
        for each in arguments.values()
        if each.shape is not None and len(each.shape) == 2 and "i" not in each.type
    ]
    numbers = {
        each.name: int(each.value) for each in launch.arguments if isinstance(each.value, int)
    }
    of_routes = [_elements(arguments[name]) for name in _OF_ROUTES if name in arguments]
    routes = next(iter(of_routes), numbers.get("TK", max(rows, default=1)))
    of_experts = [
        _elements(arguments[name]) - beyond
        for name, beyond in _OF_EXPERTS.items()
        if name in arguments
    ]
    tile = next((numbers[name] for name in _TILE if name in numbers), 1)
    tokens = min((each for each in rows if routes % each == 0), default=routes)
    return Routing(routes, max(1, next(iter(of_experts), _EXPERTS)), tokens, tile)


def _elements(argument: Argument) -> int:
    assert argument.shape is not None
    return int(np.prod(argument.shape, dtype=np.int64))
