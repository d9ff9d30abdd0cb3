"""``triton.backends``: the installed backends of Tilewright, by name, as Triton sees them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tilewright.compat.triton.backends.compiler import BaseBackend, TilewrightCompiler
from tilewright.compat.triton.backends.driver import DriverBase, TilewrightDriver
from tilewright.compat.triton.backends.targets import GPUTarget
from tilewright.plugins.registry import registry


@dataclass(frozen=True)
class Backend:
    """The classes of one backend."""

    compiler: type[BaseBackend]
    driver: type[DriverBase]


def _wrap(name: str) -> Backend:
    def supports_target(target: GPUTarget) -> bool:
        return target.backend in registry().get(name).manifest.device_kinds

    title = name.replace("-", "_").capitalize()
    compiler: type[TilewrightCompiler] = type(
        f"{title}Compiler",
        (TilewrightCompiler,),
        {"backend_name": name, "supports_target": staticmethod(supports_target)},
    )
    driver = type(f"{title}Driver", (TilewrightDriver,), {"backend_name": name})
    return Backend(compiler, driver)


class Backends(Mapping[str, Backend]):
    """All loadable backends, except the reference, which is not a device.

    They are made when asked for: plugins may be registered at any time.
    """

    def __init__(self) -> None:
        self._made: dict[str, Backend] = {}

    def __getitem__(self, name: str) -> Backend:
        if name not in list(self):
            raise KeyError(name)
        return self.classes(name)

    def classes(self, name: str) -> Backend:
        """The classes of any backend, the reference's too."""
        found = self._made.get(name)
        if found is None:
            found = self._made[name] = _wrap(name)
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(
            [backend.name for backend in registry().backends() if backend.manifest.priority >= 0]
        )

    def __len__(self) -> int:
        return len(list(iter(self)))


backends = Backends()

__all__ = ["Backend", "BaseBackend", "DriverBase", "backends"]
