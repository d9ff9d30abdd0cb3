"""The host's memory as a backend's."""

import numpy as np
import pytest

from tilewright.errors import BackendError
from tilewright.runtime.arguments.array_protocols import address_of
from tilewright.runtime.devices.host_memory import HostMemory


@pytest.mark.parametrize("alignment", [1, 16, 64, 4096])
def test_memory_is_aligned_and_copied(alignment):
    memory = HostMemory()
    buffer = memory.allocate(1000, alignment)
    assert (
        address_of(buffer) == buffer.data_ptr()
        and buffer.data_ptr() % alignment == 0
        and buffer.nbytes == 1000
    )
    data = np.random.default_rng(1).integers(0, 256, 1000, dtype=np.uint8)
    memory.copy_to_device(buffer, memoryview(data))
    back = np.zeros(1000, np.uint8)
    memory.copy_to_host(buffer, memoryview(back))
    np.testing.assert_array_equal(back, data)
    memory.synchronize()
    with pytest.raises(BackendError, match="read-only"):
        memory.copy_to_host(buffer, memoryview(bytes(10)))
    with pytest.raises(BackendError, match="the memory has 1000 bytes, and 1001 were to be copied"):
        memory.copy_to_device(buffer, memoryview(bytes(1001)))


def test_empty_memory_and_nonsense():
    assert HostMemory().allocate(0, 16).nbytes == 0
    for size, alignment in ((-1, 16), (8, 0), (8, 24)):
        with pytest.raises(BackendError, match="alignment that is a power of two"):
            HostMemory().allocate(size, alignment)
