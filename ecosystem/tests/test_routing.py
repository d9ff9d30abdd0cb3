"""Rows of tokens sorted by experts: what a record's arguments hold is what the kernels of its
package would have left."""

from __future__ import annotations

import numpy as np
import pytest
from corpus import data, launches
from corpus.launches import Argument, Launch
from corpus.routing import Routing


def tensor(name: str, *shape: int, kind: str = "*i32") -> Argument:
    return Argument(
        name,
        kind,
        shape=shape,
        strides=tuple(int(np.prod(shape[axis + 1 :])) for axis in range(len(shape))),
    )


def contents(launch: Launch) -> dict[str, np.ndarray]:
    return {
        each.name: data.contents(launch, each, 1 << 30)
        for each in launch.arguments
        if each.shape is not None and each.type[1:2] == "i"
    }


def launch_of(*arguments: Argument) -> Launch:
    return Launch("p", "1", "m", "k", "c", arguments)


def test_sorted_rows_of_tokens() -> None:
    """Ten routes of five tokens to four experts, in tiles of two rows."""
    names = ("s_scatter_idx_ptr", "s_reverse_scatter_idx_ptr", "x_gather_idx_ptr")
    found = contents(
        launch_of(
            *[tensor(name, 10) for name in names],
            tensor("x_ptr", 5, 64, kind="*bf16"),
            tensor("out_ptr", 10, 64, kind="*bf16"),
            tensor("expert_start_ptr", 5),
            tensor("tile_row_start_ptr", 8),
            tensor("tile_expert_ptr", 8),
            tensor("partial_sum_ptr", 4, 2),
            Argument("BLOCK_M", "constexpr", 2),
        )
    )
    order, place, tokens = (found[name] for name in names)
    assert order.tolist() == [0, 4, 8, 1, 5, 9, 2, 6, 3, 7]
    assert (order[place] == np.arange(10)).all()
    assert (tokens == order // 2).all() and tokens.max() == 4, "each is a row of x"
    assert found["expert_start_ptr"].tolist() == [0, 3, 6, 8, 10]
    assert found["tile_row_start_ptr"].tolist() == [0, 2, 3, 5, 6, 8, 10, 10]
    assert found["tile_expert_ptr"].tolist() == [0, 0, 1, 1, 2, 3, 3, 3]
    assert found["partial_sum_ptr"].tolist() == [0, 2, 0, 1, 0, 1, 0, 1]


def test_routes_have_places_of_their_own() -> None:
    names = [
        tensor("LocalPos", 10),
        tensor("ExpStart", 4),
        tensor("ExpEnd", 4),
        tensor("Counts", 4),
        tensor("BlockEnd", 4),
    ]
    found = contents(launch_of(*names, Argument("BLOCK_SIZE_M", "constexpr", 2)))
    assert found["LocalPos"].tolist() == [0, 0, 0, 0, 1, 1, 1, 1, 2, 2]
    assert found["ExpStart"].tolist() == [0, 3, 6, 8] and found["ExpEnd"].tolist() == [3, 6, 8, 10]
    assert found["Counts"].tolist() == [3, 3, 2, 2] and found["BlockEnd"].tolist() == [2, 4, 5, 6]
    assert contents(launch_of(*names[:1], names[3]))["Counts"].tolist() == [0, 0, 0, 0], (
        "a kernel that counts begins at 0"
    )


def test_rows_of_a_matrix_are_routes_where_no_index_tells() -> None:
    launch = launch_of(
        tensor("post_act_ptr", 12, 8, kind="*bf16"),
        tensor("expert_start_ptr", 4),
        tensor("tile_row_start_ptr", 3),
        Argument("BLOCK_M", "constexpr", 4),
    )
    assert contents(launch)["tile_row_start_ptr"].tolist() == [0, 4, 8]


@pytest.mark.parametrize("shape", [(10, 4, 5, 2), (64, 128, 8, 64), (16384, 32, 4096, 64)])
def test_tiles_cover_each_row_once(shape: tuple[int, int, int, int]) -> None:
    found = Routing(*shape)
    count = int(found.tiles[-1]) + 3
    start, expert = found.start_of_tiles(count), found.expert_of_tiles(count)
    rows = [
        row
        for first, each in zip(start, expert, strict=True)
        for row in range(first, min(first + found.tile, found.starts[each + 1]))
    ]
    assert rows == list(range(found.routes))


@pytest.mark.parametrize("launch", launches.read("liger-kernel"), ids=lambda launch: launch.id)
def test_records_have_room_for_the_tiles_and_rows_that_their_indices_name(launch: Launch) -> None:
    found = (
        contents(launch)
        if any(
            name in {each.name for each in launch.arguments}
            for name in ("tile_row_start_ptr", "x_gather_idx_ptr")
        )
        else {}
    )
    if (tiles := found.get("tile_row_start_ptr")) is not None and "x_ptr" in found:
        assert len(set(tiles)) == len(tiles) == launch.grid[0]
    rows = {
        each.name: each.shape[0]
        for each in launch.arguments
        if each.shape is not None and len(each.shape) == 2
    }
    for name in ("x_ptr", "dO_ptr", "dout_ptr"):
        if name in rows and "x_gather_idx_ptr" in found:
            assert found["x_gather_idx_ptr"].max() < rows[name]
