"""Memory that is accessed at any place, by words and by bytes."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright_amd_emulator.memory.arena import Memory


@pytest.mark.parametrize("size", [1, 2, 4, 8, 12, 16])
@pytest.mark.parametrize("step", [1, 2, 3, 4, 16])
def test_what_is_stored_is_loaded_wherever_it_lies(size: int, step: int) -> None:
    memory = Memory(1 << 10, unaligned=True)
    offsets = (np.arange(8) * -(-32 // step) * step + step)[None]
    data = np.random.default_rng(size * step).integers(0, 256, (8, size), dtype=np.uint8)
    padded = np.pad(data, ((0, 0), (0, -size % 4)))
    words = np.ascontiguousarray(padded).view(np.uint32).T[:, None]
    memory.scatter(offsets, size, words)
    for row, offset in zip(data, offsets[0], strict=True):
        np.testing.assert_array_equal(memory.bytes[offset : offset + size], row)
        # what lies beside it is as it was
        assert memory.bytes[offset - 1] == memory.bytes[offset + size] == 0xFF
    np.testing.assert_array_equal(memory.gather(offsets, size), words)
