"""Configurations worth measuring: a backend's proposals, and the pruning of a list."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, SupportsFloat

from tilewright.errors import AutotunerError, BackendError, TilewrightError, TuningArgumentError
from tilewright.ir.work import Work
from tilewright.passes.analysis.work import work_of
from tilewright.plugins.manifest import Device, Target
from tilewright.plugins.registry import Backend
from tilewright.runtime.compiler import parallel_compile
from tilewright.runtime.compiler.config import Config, check_configs
from tilewright.runtime.compiler.parallel_compile import Trial
from tilewright.runtime.launch.grid import grid_of
from tilewright.runtime.storage.files import warn_user


class TuningTarget(NamedTuple):
    """Backend, target and device of a tuning."""

    backend: Backend
    device: Device
    target: Target


class Pruning(NamedTuple):
    """The functions in ``prune_configs_by`` of :func:`autotune`."""

    early_config_prune: Callable[..., Any] | None = None
    perf_model: Callable[..., float] | None = None
    top_k: float = 1.0

    @classmethod
    def of(cls, given: Mapping[str, Any] | None) -> Pruning:
        """Make the pruning from a dictionary.

        Raises:
            TuningArgumentError: it has other entries, or ``top_k`` is neither a count nor a part.
        """
        given = dict(given or {})
        unknown = sorted(given.keys() - set(cls._fields))
        if unknown:
            raise TuningArgumentError(
                "prune_configs_by takes early_config_prune, perf_model and top_k, not "
                f"{', '.join(map(str, unknown))}"
            )
        found = cls(**given)
        if (
            isinstance(found.top_k, bool)
            or not isinstance(found.top_k, int | float)
            or found.top_k <= 0
        ):
            raise TuningArgumentError(
                f"top_k must be a count, or a part above 0 and up to 1.0, not {found.top_k!r}"
            )
        return found

    def apply(
        self, configs: Sequence[Config], named: Mapping[str, Any], keywords: Mapping[str, Any]
    ) -> list[Config]:
        """Prune the configurations for a launch with arguments ``named`` and ``keywords``.

        Raises:
            AutotunerError: none are.
            TypeError: the user's functions return a value of a wrong type.
        """
        found = list(configs)
        if self.early_config_prune is not None:
            found = check_configs(
                self.early_config_prune(found, named, **keywords),
                "the result of early_config_prune",
            )
            if not found:
                raise AutotunerError(
                    "No valid autotuner configs after pruning. `early_config_prune` should return "
                    "at least one config."
                )
        if self.perf_model is not None:
            count = (
                int(len(found) * self.top_k)
                if isinstance(self.top_k, float) and self.top_k <= 1.0
                else int(self.top_k)
            )
            if len(found) > count:
                estimates = {
                    config: self.perf_model(**{**named, **keywords, **_for_model(config)})
                    for config in found
                }
                if not all(isinstance(estimate, SupportsFloat) for estimate in estimates.values()):
                    raise TypeError(
                        "perf_model must return numbers, and it returned "
                        f"{', '.join(map(repr, estimates.values()))}"
                    )
                found = sorted(found, key=lambda config: float(estimates[config]))[: max(count, 1)]
        return found


def _for_model(config: Config) -> dict[str, Any]:
    """Return the keywords of a configuration that a program's own model knows."""
    return {name: value for name, value in config.all_kwargs().items() if name != "invariant"}


def proposed(place: TuningTarget, warmup: Callable[[], Any]) -> list[Config]:
    """Return the backend's proposed option sets for the kernel that ``warmup`` warms up.

    Empty where it proposes none.
    """
    from tilewright.runtime.compiler.compile import build_module

    if not place.backend.implements("tilewright_tuning_space"):
        return []
    with parallel_compile.collect() as found:
        warmup()
    _, selected = found[0]
    module = build_module(selected.specialization, place.backend, place.target)

    def ask() -> list[Config]:
        space = _asked(place.backend, "tilewright_tuning_space", module=module, target=place.target)
        if space is not None and (
            not isinstance(space, Sequence) or not all(isinstance(one, Mapping) for one in space)
        ):
            raise _BadAdviceError(f"must give a sequence of option sets, not {space!r:.200}")
        configs = []
        for options in space or ():
            rest = dict(options)
            own = {
                name: rest.pop(name)
                for name in ("num_warps", "num_stages", "num_ctas", "maxnreg")
                if name in rest
            }
            configs.append(Config(rest, **own))
        return configs

    return _advised(place.backend, "tilewright_tuning_space", "it proposes nothing", ask, [])


def works_of(
    trials: Sequence[Trial],
    place: TuningTarget,
    arguments: Mapping[str, Any],
    grid: Any,
    on_error: Callable[[Config, Exception], None],
) -> dict[Config, Work]:
    """Count the work of a launch in each configuration, for the backend's estimates.

    Empty where the backend estimates without it.

    Args:
        on_error: called with each configuration whose source breaks a rule of the language.
    """
    found: dict[Config, Work] = {}
    if not (
        place.backend.takes("tilewright_prune", "works")
        or place.backend.takes("tilewright_cost", "work")
    ):
        return found
    for trial in trials:
        named = {**arguments, **trial.config.all_kwargs()}
        for wanted in trial.wanted[:1]:
            try:
                module = wanted.module()
            except Exception as error:
                on_error(trial.config, error)
                continue
            found[trial.config] = work_of(
                module, named, wanted.selection.specialization.options, partial(_sizes, grid, named)
            )
    return found


def _sizes(grid: Any, arguments: Mapping[str, Any]) -> tuple[int, int, int] | None:
    """Return the sizes of a grid; None where its function needs more than the known arguments."""
    try:
        return grid_of(grid, arguments)
    except Exception:
        return None


def backend_pruned(
    kernel: str,
    configs: list[Config],
    place: TuningTarget,
    arguments: Mapping[str, Any],
    works: Mapping[Config, Work],
) -> list[Config]:
    """Prune configurations by the backend, and order them by its estimate, cheapest first.

    A backend that fails at either is skipped, with a warning that names it: tuning goes on without
    its advice.

    Raises:
        AutotunerError: it rules out all of them.
    """
    backend = place.backend
    configs = _advised(
        backend,
        "tilewright_prune",
        "no configuration is ruled out",
        lambda: _kept(kernel, configs, place, arguments, works),
        configs,
    )
    if len(configs) > 1:
        configs = _advised(
            backend,
            "tilewright_cost",
            "configurations stay in their order",
            lambda: _cheapest_first(configs, place, arguments, works),
            configs,
        )
    return configs


class _BadAdviceError(Exception):
    """A hook returned an invalid answer, which the message describes."""


def _advised(
    backend: Backend,
    hook: str,
    instead: str,
    ask: Callable[[], list[Config]],
    otherwise: list[Config],
) -> list[Config]:
    """Return the result of ``ask``, which calls an optional hook; ``otherwise`` if the hook fails.

    A failure warns with the backend's name and the consequence ``instead``.
    """
    try:
        return ask()
    except AutotunerError:
        raise
    except _BadAdviceError as error:
        warn_user(
            f"{hook} of backend {backend.name!r} ({backend.distribution}) {error}: {instead}. This "
            "is a defect of the backend: report it to its authors."
        )
    except TilewrightError as error:
        warn_user(
            f"{hook} of backend {backend.name!r} ({backend.distribution}) failed: "
            f"{instead}. {error}"
        )
    return otherwise


def _kept(
    kernel: str,
    configs: list[Config],
    place: TuningTarget,
    arguments: Mapping[str, Any],
    works: Mapping[Config, Work],
) -> list[Config]:
    """Return the configurations that the backend's pruning leaves."""
    if not place.backend.implements("tilewright_prune"):
        return configs
    offered = [config.all_kwargs() for config in configs]
    of_each = [works.get(config) for config in configs]
    kept = _asked(
        place.backend,
        "tilewright_prune",
        configurations=[dict(one) for one in offered],
        target=place.target,
        arguments=arguments,
        works=of_each,
    )
    if kept is None:
        return configs
    if not isinstance(kept, Sequence) or not all(isinstance(one, Mapping) for one in kept):
        raise _BadAdviceError(
            f"must give a sequence of the configurations it was offered, not {kept!r:.200}"
        )
    invented = [dict(one) for one in kept if dict(one) not in offered]
    if invented:
        raise _BadAdviceError(f"gave a configuration that it was not offered, {invented[0]}")
    left = [
        config
        for config, options in zip(configs, offered, strict=True)
        if any(options == dict(one) for one in kept)
    ]
    if not left:
        raise AutotunerError(
            f"no configuration of {kernel} fits {place.target.arch}: backend "
            f"{place.backend.name!r} ruled out all {len(offered)}"
        )
    return left


def _cheapest_first(
    configs: list[Config],
    place: TuningTarget,
    arguments: Mapping[str, Any],
    works: Mapping[Config, Work],
) -> list[Config]:
    """Sort configurations by the backend's estimates; those without an estimate come last."""
    if not place.backend.implements("tilewright_cost"):
        return configs
    costs = {}
    for config in configs:
        options, work = config.all_kwargs(), works.get(config)
        cost = _asked(
            place.backend,
            "tilewright_cost",
            configuration=options,
            target=place.target,
            arguments=arguments,
            work=work,
        )
        if cost is not None and (
            isinstance(cost, str) or not isinstance(cost, SupportsFloat) or math.isnan(float(cost))
        ):
            raise _BadAdviceError(
                f"must give a number that can be compared, or None, and gave {cost!r:.200} "
                f"for [{config}]"
            )
        costs[config] = math.inf if cost is None else float(cost)
    return sorted(configs, key=lambda config: costs[config])


def _asked(backend: Backend, hook: str, **arguments: Any) -> Any:
    """Call a hook and return its answer.

    Any exception other than an interrupt becomes a TilewrightError that is no AutotunerError.
    """
    try:
        return backend.call(hook, **arguments)
    except AutotunerError as error:
        raise BackendError(str(error)) from error
