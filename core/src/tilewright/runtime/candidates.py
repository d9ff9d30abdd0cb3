"""The configurations of a tuning that are worth measuring: what a backend proposes, what the kernel's author and the backend leave of a list."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, SupportsFloat

from tilewright.errors import AutotunerError
from tilewright.ir.work import Work
from tilewright.passes.work import work_of
from tilewright.plugins.manifest import Device, Target
from tilewright.plugins.registry import Backend
from tilewright.runtime import trials
from tilewright.runtime.config import Config, check_configs
from tilewright.runtime.grid import grid_of
from tilewright.runtime.trials import Trial


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


def works_of(
    trials: Sequence[Trial], place: Place, arguments: Mapping[str, Any], grid: Any, on_error: Callable[[Config, Exception], None]
) -> dict[Config, Work]:
    """What a launch with ``arguments`` on ``grid`` does in each configuration; empty where the backend estimates without.

    Args:
        on_error: called with each configuration whose source breaks a rule of the language.
    """
    found: dict[Config, Work] = {}
    if not (place.backend.takes("tilewright_prune", "works") or place.backend.takes("tilewright_cost", "work")):
        return found
    for trial in trials:
        named = {**arguments, **trial.config.all_kwargs()}
        for wanted in trial.wanted[:1]:
            try:
                module = wanted.module()
            except Exception as error:
                on_error(trial.config, error)
                continue
            found[trial.config] = work_of(module, named, wanted.selection.specialization.options, partial(_sizes, grid, named))
    return found


def _sizes(grid: Any, arguments: Mapping[str, Any]) -> tuple[int, int, int] | None:
    """The sizes of a grid; None where its function needs more than is known before a launch."""
    try:
        return grid_of(grid, arguments)
    except Exception:
        return None


def backend_pruned(kernel: str, configs: list[Config], place: Place, arguments: Mapping[str, Any], works: Mapping[Config, Work]) -> list[Config]:
    """The configurations that the backend does not rule out for a launch of ``kernel`` with ``arguments``, cheapest by its estimate first.

    Raises:
        AutotunerError: it rules out all of them.
    """
    if place.backend.implements("tilewright_prune"):
        offered = [config.all_kwargs() for config in configs]
        of_each = [works.get(config) for config in configs]
        kept = place.backend.call("tilewright_prune", configurations=offered, target=place.target, arguments=arguments, works=of_each)
        if kept is not None:
            configs = [config for config, options in zip(configs, offered, strict=True) if any(options == other for other in kept)]
            if not configs:
                raise AutotunerError(f"no configuration of {kernel} fits {place.target.arch}: backend {place.backend.name!r} ruled out all {len(offered)}")
    if place.backend.implements("tilewright_cost") and len(configs) > 1:
        costs = {}
        for config in configs:
            options, work = config.all_kwargs(), works.get(config)
            cost = place.backend.call("tilewright_cost", configuration=options, target=place.target, arguments=arguments, work=work)
            costs[config] = math.inf if cost is None else float(cost)
        configs = sorted(configs, key=lambda config: costs[config])
    return configs
