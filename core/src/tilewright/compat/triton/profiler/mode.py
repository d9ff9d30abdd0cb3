"""``triton.profiler.mode``: modes of recording; :class:`Default` times every launch by events."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.compat.triton.outside import OutsideNameError


@dataclass(frozen=True)
class BaseMode:
    """A way to record."""

    name: str


@dataclass(frozen=True)
class Default(BaseMode):
    """Every launch is recorded."""

    name: str = "default"


def checked(mode: BaseMode | str | None) -> Default:
    """The mode of a session.

    Raises:
        OutsideNameError: a mode of Proton that there is no counterpart of.
    """
    name = mode.name if isinstance(mode, BaseMode) else mode
    if name in (None, "", "default"):
        return Default()
    raise OutsideNameError(
        f"profiling in mode {name!r} is outside what tilewright.compat.triton provides: it samples "
        "or instruments code of Triton's. Launches are timed in the default mode; the profiler of "
        "the hardware's vendor shows what is inside of a kernel"
    )


def __getattr__(name: str) -> BaseMode:
    if name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    checked(name)
    raise AttributeError(name)
