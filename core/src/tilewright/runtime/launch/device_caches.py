"""``kernel.device_caches``: the compiled kernels of each device."""

from __future__ import annotations

import weakref
from typing import Any, Protocol


class Planned(Protocol):
    """Protocol of a kernel with launch plans."""

    def forget_plans(self) -> None:
        """Drop the launch plans: the next launches look up the compiled kernels again."""
        ...


class _Forgetting(dict[Any, Any]):
    """Dictionary of one kernel; removing an entry also drops the launch plans that may use it."""

    def __init__(self, kernel: Planned) -> None:
        super().__init__()
        self._kernel = weakref.ref(kernel)

    def _forget(self) -> None:
        kernel = self._kernel()
        if kernel is not None:
            kernel.forget_plans()

    def clear(self) -> None:
        super().clear()
        self._forget()

    def pop(self, *args: Any) -> Any:
        found = super().pop(*args)
        self._forget()
        return found

    def popitem(self) -> Any:
        found = super().popitem()
        self._forget()
        return found

    def __delitem__(self, key: Any) -> None:
        super().__delitem__(key)
        self._forget()


class KernelCache(_Forgetting):
    """Key -> compiled kernel, or the future of one.

    A kernel that is removed is compiled, or read from the disk cache, again.
    """


class DeviceCaches(_Forgetting):
    """``"backend:index"`` -> (kernels by key, plans by key, target, backend, binder).

    An integer finds the first entry of that device index.
    """

    def __missing__(self, key: Any) -> Any:
        if isinstance(key, int):
            for name, entry in self.items():
                if name.rpartition(":")[2] == str(key):
                    return entry
        return {}, {}, None, None, None
