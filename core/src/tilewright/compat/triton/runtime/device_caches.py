"""``kernel.device_caches``: the compiled kernels of each device."""

from __future__ import annotations

from typing import Any

from tilewright.runtime.device_caches import DeviceCaches


class TritonDeviceCaches(DeviceCaches):
    """``"backend:index"`` -> (kernels by key, keys, target, backend, binder).

    Also asked by what programs have at hand: an index is that device of the active driver, else of any backend; ``"cpu"`` or ``"cuda"`` the first device
    of that kind; a ``torch.device`` both.
    """

    def __missing__(self, key: Any) -> Any:
        kind, index = _kind_and_index(key)
        found = [
            (name, entry)
            for name, entry in self.items()
            if (index is None or name.endswith(f":{index}")) and (kind is None or entry[3].manifest.device_kinds[0] == kind)
        ]
        if len(found) > 1:
            active = _active_backend()
            found.sort(key=lambda item: item[0].partition(":")[0] != active)
        return found[0][1] if found else ({}, {}, None, None, None)


def _kind_and_index(key: Any) -> tuple[str | None, int | None]:
    if isinstance(key, int):
        return None, key
    if isinstance(key, str):
        kind, _, index = key.partition(":")
        return kind, int(index) if index.isdigit() else None
    return getattr(key, "type", None), getattr(key, "index", None)


def _active_backend() -> str:
    from tilewright.compat.triton.runtime.driver import driver

    return getattr(driver.active, "backend_name", "")
