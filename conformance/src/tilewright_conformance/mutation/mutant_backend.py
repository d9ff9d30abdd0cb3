"""The broken backend: the CPU backend with one bug switched on."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import Any

from tilewright.ir import Module
from tilewright.ir.work import Work
from tilewright.plugins.hooks import hookimpl
from tilewright.plugins.manifest import CodeObject, Device, Launcher, Manifest, Parameter, Target
from tilewright.plugins.registry import registry
from tilewright_conformance.mutation.mutant import Healthy, Switch
from tilewright_conformance.mutation.mutants import switch

#: Names the switch of a :class:`BrokenBackend` that is made without one.
ENVIRONMENT = "TILEWRIGHT_BROKEN_SWITCH"
#: The backend that works.
BASE = "cpu"


class BrokenBackend:
    """A plugin that passes every hook on to the CPU backend, except those that its switch wraps.

    Args:
        on: the switch or its name; by default what the environment variable
            ``TILEWRIGHT_BROKEN_SWITCH`` names. Empty for no bug at all.
        name: the backend's name; ``broken-<switch>`` by default, and ``broken`` without one.

    Raises:
        KeyError: there is no such switch.
    """

    #: what the registry takes for the plugin's module: its files are part of cache keys
    __name__ = "tilewright_conformance.mutation"

    def __init__(self, on: Switch | str | None = None, name: str | None = None) -> None:
        wanted = os.environ.get(ENVIRONMENT, "") if on is None else on
        self.switch: Switch | None = (
            (switch(wanted) if wanted else None) if isinstance(wanted, str) else wanted
        )
        self.name = name or (f"broken-{self.switch.name}" if self.switch else "broken")
        self._hooks = dict(self.switch.hooks) if self.switch else {}
        self._healthy = Healthy(self._base)

    def _base(self, hook: str, /, **arguments: Any) -> Any:
        base = registry().get(BASE)
        return base.manifest if hook == "tilewright_backend" else base.call(hook, **arguments)

    def _call(self, hook: str, /, **arguments: Any) -> Any:
        wrapper = self._hooks.get(hook)
        return (
            self._base(hook, **arguments)
            if wrapper is None
            else wrapper(self._healthy, **arguments)
        )

    @hookimpl
    def tilewright_backend(self) -> Manifest:
        from tilewright.runtime.storage.cache_keys import backend_version, digest

        manifest: Manifest = self._call("tilewright_backend")
        # The version keeps the code of one bug, or of one state of the base's files, apart from
        # another's.
        state = self.switch.name if self.switch else "healthy"
        base = digest(backend_version(registry().get(BASE)))[:12]
        version = f"{manifest.version}+{state}.{base}"
        summary = (
            f"the {BASE} backend, with a bug: {self.switch.description}"
            if self.switch
            else f"the {BASE} backend, without a bug"
        )
        return dataclasses.replace(
            manifest, name=self.name, version=version, summary=summary, priority=-1000
        )

    @hookimpl
    def tilewright_devices(self) -> Sequence[Device]:
        return [
            dataclasses.replace(device, backend=self.name)
            for device in self._call("tilewright_devices")
        ]

    @hookimpl
    def tilewright_target(self, device: Device) -> Target:
        return dataclasses.replace(
            self._call("tilewright_target", device=device), backend=self.name
        )

    @hookimpl
    def tilewright_lower(
        self, module: Module, target: Target, options: Mapping[str, Any]
    ) -> CodeObject:
        return self._call("tilewright_lower", module=module, target=target, options=options)

    @hookimpl
    def tilewright_load(self, code: CodeObject, device: Device) -> Any:
        return self._call("tilewright_load", code=code, device=device)

    @hookimpl
    def tilewright_launcher(
        self, loaded: Any, parameters: Sequence[Parameter], options: Mapping[str, Any]
    ) -> Launcher:
        return self._call(
            "tilewright_launcher", loaded=loaded, parameters=parameters, options=options
        )

    @hookimpl
    def tilewright_memory(self, device: Device) -> Any:
        return self._call("tilewright_memory", device=device)

    @hookimpl
    def tilewright_timer(self, device: Device) -> Any:
        return self._call("tilewright_timer", device=device)

    @hookimpl
    def tilewright_tuning_space(self, module: Module, target: Target) -> Any:
        return self._call("tilewright_tuning_space", module=module, target=target)

    @hookimpl
    def tilewright_prune(
        self,
        configurations: Sequence[Mapping[str, Any]],
        target: Target,
        arguments: Mapping[str, Any],
        works: Sequence[Work | None],
    ) -> Any:
        return self._call(
            "tilewright_prune",
            configurations=configurations,
            target=target,
            arguments=arguments,
            works=works,
        )

    @hookimpl
    def tilewright_cost(
        self,
        configuration: Mapping[str, Any],
        target: Target,
        arguments: Mapping[str, Any],
        work: Work | None,
    ) -> Any:
        return self._call(
            "tilewright_cost",
            configuration=configuration,
            target=target,
            arguments=arguments,
            work=work,
        )
