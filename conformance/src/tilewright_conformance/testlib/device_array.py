"""An array in a backend's memory, which the autotuner can zero, copy and restore."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.plugins.manifest import Memory
from tilewright.runtime.arguments.array_protocols import ArrayView
from tilewright.runtime.arguments.dtypes import dtype_text
from tilewright_conformance.suite.session import Session


class DeviceArray(ArrayView):
    """A copy of a NumPy array on the device under test; :meth:`numpy` copies it back.

    It has as much of a tensor's interface as tuning needs.
    """

    __slots__ = ("_kind", "_memory", "_session")

    def __init__(self, session: Session, array: np.ndarray[Any, Any]) -> None:
        subject = session.subject
        self._session, self._kind = session, array.dtype
        self._memory: Memory = subject.memory
        buffer = self._memory.allocate(array.nbytes, 256)
        self._memory.copy_to_device(buffer, _bytes(np.ascontiguousarray(array)))
        strides = tuple(stride // array.itemsize for stride in np.ascontiguousarray(array).strides)
        super().__init__(
            buffer,
            int(buffer.data_ptr()),
            dtype_text(array.dtype),
            array.shape,
            strides,
            (subject.device.kind, subject.device.index),
        )

    def numpy(self) -> np.ndarray[Any, Any]:
        """Return the array's values after all launches have ended."""
        self._memory.synchronize()
        found = np.empty(self.shape, self._kind)
        self._memory.copy_to_host(self.owner, _bytes(found))
        return found

    def zero_(self) -> None:
        self._set(np.zeros(self.shape, self._kind))

    def clone(self) -> DeviceArray:
        return DeviceArray(self._session, self.numpy())

    def copy_(self, other: DeviceArray) -> None:
        self._set(other.numpy())

    def _set(self, array: np.ndarray[Any, Any]) -> None:
        self._memory.synchronize()
        self._memory.copy_to_device(self.owner, _bytes(array))


def _bytes(array: np.ndarray[Any, Any]) -> memoryview:
    return memoryview(array.data).cast("B")
