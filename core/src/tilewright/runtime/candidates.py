"""The configurations of a tuning that are worth measuring: what a backend proposes, what the kernel's author and the backend leave of a list."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, SupportsFloat

from tilewright.errors import AutotunerError
from tilewright.plugins.manifest import Device, Target
from tilewright.plugins.registry import Backend
from tilewright.runtime import trials
from tilewright.runtime.config import Config, check_configs


class Place(NamedTuple):
    """Where a tuning is for."""

    backend: Backend
    device: Device
    target: Target


class Pruning(NamedTuple):
    """What ``prune_configs_by`` of :func:`autotune` says."""

    early_config_prune: Callable[..., Any] | None = None
    perf_model: Callable[..., float] | None = None
    top_k: float = 1.0

    @classmethod
    def of(cls, given: Mapping[str, Any] | None) -> Pruning:
        """The pruning of a dictionary.

        Raises:
            ValueError: it has other entries, or ``top_k`` is neither a count nor a part.
        """
        given = dict(given or {})
        unknown = sorted(given.keys() - set(cls._fields))
        if unknown:
            raise ValueError(f"prune_configs_by takes early_config_prune, perf_model and top_k, not {', '.join(map(str, unknown))}")
        found = cls(**given)
        if isinstance(found.top_k, bool) or not isinstance(found.top_k, int | float) or found.top_k <= 0:
            raise ValueError(f"top_k must be a count, or a part above 0 and up to 1.0, not {found.top_k!r}")
        return found

    def apply(self, configs: Sequence[Config], named: Mapping[str, Any], keywords: Mapping[str, Any]) -> list[Config]:
        """The configurations that are left for a launch with positional arguments ``named`` and ``keywords``.

        Raises:
            AutotunerError: none are.
            TypeError: the author's functions give something else than they should.
        """
        found = list(configs)
        if self.early_config_prune is not None:
            found = check_configs(self.early_config_prune(found, named, **keywords), "the result of early_config_prune")
            if not found:
                raise AutotunerError("No valid autotuner configs after pruning. `early_config_prune` should return at least one config.")
        if self.perf_model is not None:
            count = int(len(found) * self.top_k) if isinstance(self.top_k, float) and self.top_k <= 1.0 else int(self.top_k)
            if len(found) > count:
                estimates = {config: self.perf_model(**{**named, **keywords, **config.all_kwargs()}) for config in found}
                if not all(isinstance(estimate, SupportsFloat) for estimate in estimates.values()):
                    raise TypeError(f"perf_model must return numbers, and it returned {', '.join(map(repr, estimates.values()))}")
                found = sorted(found, key=lambda config: float(estimates[config]))[: max(count, 1)]
        return found


def proposed(place: Place, warmup: Callable[[], Any]) -> list[Config]:
    """Option sets the backend finds worth trying for the kernel that ``warmup`` warms up; empty where it proposes none."""
    from tilewright.runtime.compile import build_module

    if not place.backend.implements("tilewright_tuning_space"):
        return []
    with trials.collect() as found:
        warmup()
    _, selected = found[0]
    space = place.backend.call("tilewright_tuning_space", module=build_module(selected.specialization, place.backend, place.target), target=place.target)
    configs = []
    for options in space or ():
        rest = dict(options)
        own = {name: rest.pop(name) for name in ("num_warps", "num_stages", "num_ctas", "maxnreg") if name in rest}
        configs.append(Config(rest, **own))
    return configs


def backend_pruned(kernel: str, configs: list[Config], place: Place, arguments: Mapping[str, Any]) -> list[Config]:
    """The configurations that the backend does not rule out for a launch of ``kernel`` with ``arguments``, cheapest by its estimate first.

    Raises:
        AutotunerError: it rules out all of them.
    """
    if place.backend.implements("tilewright_prune"):
        offered = [config.all_kwargs() for config in configs]
        kept = place.backend.call("tilewright_prune", configurations=offered, target=place.target, arguments=arguments)
        if kept is not None:
            configs = [config for config, options in zip(configs, offered, strict=True) if any(options == other for other in kept)]
            if not configs:
                raise AutotunerError(f"no configuration of {kernel} fits {place.target.arch}: backend {place.backend.name!r} ruled out all {len(offered)}")
    if place.backend.implements("tilewright_cost") and len(configs) > 1:
        costs = {}
        for config in configs:
            cost = place.backend.call("tilewright_cost", configuration=config.all_kwargs(), target=place.target, arguments=arguments)
            costs[config] = math.inf if cost is None else float(cost)
        configs = sorted(configs, key=lambda config: costs[config])
    return configs
