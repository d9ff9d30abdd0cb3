"""Discovery of plugins from the entry points of the group ``tilewright``.

They are read from the metadata of installed distributions.

Nothing is imported here. What an entry point refers to is imported when its backend is first
needed, by :meth:`PluginSource.load`.
"""

from __future__ import annotations

import importlib.metadata
import os
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tilewright.plugins.hooks import PROJECT

#: The entry-point group.
GROUP = PROJECT


@dataclass(frozen=True)
class PluginSource:
    """Where a plugin comes from.

    Attributes:
        name: the entry point's name, which is the backend's.
        distribution: name and version of the distribution that ships it, for messages.
        reference: what the entry point names, ``package.module`` or ``package.module:object``.
        load: imports and returns the plugin.
    """

    name: str
    distribution: str
    reference: str
    load: Callable[[], Any]

    @property
    def package(self) -> str:
        """The top-level package that the plugin is in."""
        return self.reference.partition(":")[0].partition(".")[0]


def installed_plugins(group: str = GROUP) -> list[PluginSource]:
    """Return every entry point of a group, sorted by name.

    One that several path entries show twice (an editable install) is listed once.
    """
    return _sources(importlib.metadata.entry_points(group=group))


def _sources(entry_points: Iterable[importlib.metadata.EntryPoint]) -> list[PluginSource]:
    found: dict[tuple[str, str, str], PluginSource] = {}
    for entry in entry_points:
        distribution = _distribution_text(entry)
        found.setdefault(
            (entry.name, distribution, entry.value),
            PluginSource(entry.name, distribution, entry.value, partial(_load, entry)),
        )
    return sorted(found.values(), key=lambda source: (source.name, source.distribution))


#: The folder in which is remembered which plugins do not end the process that imports them, once a
#: layer above says; None where there is none.
memory: Callable[[], Path | None] | None = None


def _load(entry: importlib.metadata.EntryPoint) -> Any:
    if not entry.pattern.match(entry.value):
        raise ImportError(
            f"{entry.value!r} does not name a module, or an object as package.module:object"
        )
    module, distribution = entry.value.partition(":")[0].strip(), getattr(entry, "dist", None)
    if (
        distribution is not None
        and module not in sys.modules
        and os.name == "posix"
        and memory is not None
        and (folder := memory()) is not None
    ):
        from tilewright.plugins.patience import time_limit
        from tilewright.plugins.probe import try_out

        # most of the limit is for the plugin itself
        try_out(str(distribution.name), str(distribution.version), module, folder, time_limit() / 4)
    return entry.load()


def _distribution_text(entry: importlib.metadata.EntryPoint) -> str:
    distribution = getattr(entry, "dist", None)
    if distribution is None:
        return "an unknown distribution"
    try:
        name, version = distribution.name, distribution.version
    except Exception:  # metadata without a name or version: the plugin may still work
        name = version = None
    return f"{name} {version}" if name and version else "a distribution with damaged metadata"
