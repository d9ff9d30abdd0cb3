"""Device memory that is the host's: what is shared is accessed where it lies, and nothing else."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright_amd_emulator.errors import WaveError
from tilewright_amd_emulator.memory.host_arena import HostArena


def offsets(arena: HostArena, address: int, size: int = 4) -> np.ndarray:
    return arena.offsets(np.array([[address]], np.uint64), size)


def test_an_array_of_the_host_is_accessed_in_place_and_to_its_end() -> None:
    arena, array = HostArena(), np.arange(8, dtype=np.uint32)
    with pytest.raises(WaveError, match="is out of bounds"):
        offsets(arena, array.ctypes.data)
    arena.share(array.ctypes.data, array.nbytes)
    at = offsets(arena, array.ctypes.data + 28)
    assert arena.gather(at, 4).item() == 7
    arena.scatter(at[0], 4, np.array([[99]], np.uint32))
    assert array[7] == 99
    for address, size in (
        (array.ctypes.data - 4, 4),
        (array.ctypes.data + 32, 4),
        (array.ctypes.data + 28, 8),
    ):
        with pytest.raises(WaveError, match="the nearest part has 32 bytes"):
            offsets(arena, address, size)


def test_what_the_device_allocated_is_released_once() -> None:
    arena = HostArena()
    address = arena.allocate(100)
    assert address % 256 == 0 and (arena.get(address, np.uint8, 100) == 0xA5).all()
    offsets(arena, address + 96)
    with pytest.raises(WaveError):
        offsets(arena, address + 98)
    arena.release(address)
    with pytest.raises(WaveError):
        offsets(arena, address)
    with pytest.raises(WaveError, match="once"):
        arena.release(address)


def test_memory_that_is_shared_anew_is_no_more_what_it_was() -> None:
    arena, block = HostArena(), np.zeros(64, np.uint32)
    start = block.ctypes.data
    for first, size in ((0, 64), (128, 64), (32, 128)):
        arena.share(start + first, size)
    for place, held in (
        (0, False),
        (28, False),
        (32, True),
        (156, True),
        (160, False),
        (188, False),
    ):
        if held:
            offsets(arena, start + place)
        else:
            with pytest.raises(WaveError):
                offsets(arena, start + place)


def test_lanes_that_access_nothing_read_nothing_of_the_process() -> None:
    arena, array = HostArena(), np.arange(4, dtype=np.uint32)
    arena.share(array.ctypes.data, 16)
    addresses = np.array([[array.ctypes.data, 3]], np.uint64)
    at = arena.offsets(addresses, 4, np.array([[True, False]]))
    assert arena.gather(at, 4)[0].tolist() == [[0, 0]]
