"""Configurations among which the autotuner chooses."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

from tilewright.errors import ConfigError, similar, with_help
from tilewright.runtime.options import option_key
from tilewright.runtime.storage.cache_keys import stable_text

#: The launch options that a configuration has as attributes.
OPTIONS = ("num_warps", "num_ctas", "num_stages", "maxnreg", "ir_override", "invariant")


class Config:
    """A configuration for tuning: values of a kernel's meta-parameters, and launch options.

    Attributes:
        kwargs: the values of meta-parameters by name; also further launch options of a backend.
        num_warps, num_stages, num_ctas, maxnreg: the launch options of these names.
        pre_hook: a function called before each launch of this configuration, with a dictionary of
            all arguments and meta-parameters. If there are tensor descriptors among the arguments,
            it is also called before the configuration is compiled, and may set their block shapes:
            ``arguments["x"].block_shape = [arguments["BLOCK"]]``.
        ir_override: the path of a Tile IR file that is compiled in place of the kernel's source.
        invariant: the launch option of this name; None stands for the value that the launch passes.

    Raises:
        ConfigError: an unknown keyword is given, or ``kwargs`` is not a dictionary with strings as
            keys.
    """

    def __init__(
        self,
        kwargs: Mapping[str, Any],
        num_warps: int = 4,
        num_stages: int = 3,
        num_ctas: int = 1,
        maxnreg: int | None = None,
        pre_hook: Callable[[dict[str, Any]], Any] | None = None,
        ir_override: str | None = None,
        invariant: bool | None = None,
        **unknown: Any,
    ) -> None:
        for name in unknown:
            message = (
                f"Config() has no keyword {name!r}: it takes meta-parameters in a dictionary, "
                f"Config({{{name!r}: ...}}), and {', '.join(OPTIONS)}"
            )
            raise ConfigError(with_help(message, similar(name, (*OPTIONS, "pre_hook"))))
        if not isinstance(kwargs, Mapping) or not all(isinstance(name, str) for name in kwargs):
            raise ConfigError(
                f"a Config takes meta-parameters by name, Config({{'BLOCK': 64}}), not {kwargs!r}"
            )
        self.kwargs: dict[str, Any] = dict(kwargs)
        self.num_warps, self.num_stages, self.num_ctas, self.maxnreg = (
            num_warps,
            num_stages,
            num_ctas,
            maxnreg,
        )
        self.pre_hook = pre_hook
        self.ir_override = ir_override
        self.invariant = invariant

    def __setstate__(self, state: dict[str, Any]) -> None:
        defaults = {
            "kwargs": {},
            "num_warps": 4,
            "num_stages": 3,
            "num_ctas": 1,
            "maxnreg": None,
            "pre_hook": None,
            "ir_override": None,
            "invariant": None,
        }
        self.__dict__.update({**defaults, **state})

    def all_kwargs(self) -> dict[str, Any]:
        """Return all keywords of a launch: meta-parameters, and the options that are not None."""
        return {
            **self.kwargs,
            **{name: value for name in OPTIONS if (value := getattr(self, name)) is not None},
        }

    def _key(self) -> tuple[Any, ...]:
        return (*option_key(sorted(self.all_kwargs().items())), self.pre_hook)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Config) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __str__(self) -> str:
        options = {
            name: getattr(self, name)
            for name in OPTIONS
            if name != "invariant" and (name != "ir_override" or self.ir_override is not None)
        }
        return ", ".join(
            f"{name}: {value}" for name, value in (*self.kwargs.items(), *options.items())
        )

    def __repr__(self) -> str:
        return f"Config({self})"


def made_invariant(config: Config) -> Config:
    """Return a configuration with the launch option ``invariant``."""
    if config.invariant:
        return config
    made = copy.copy(config)
    made.kwargs = dict(config.kwargs)
    made.invariant = True
    return made


def check_configs(configs: Any, source: str) -> list[Config]:
    """Validate configurations from ``source`` and return them as a list.

    Raises:
        ConfigError: some are none.
    """
    try:
        found: list[Any] = list(configs)
    except TypeError:
        raise ConfigError(
            f"{source} must be several Config objects, not {configs!r:.200}"
        ) from None
    for config in found:
        if not isinstance(config, Config):
            raise ConfigError(
                f"{source} must be Config objects, and one is a {type(config).__name__}: "
                f"{config!r:.200}. Write tilewright.Config({{'BLOCK': 64}})"
            )
    return found


def config_text(config: Config) -> str:
    """Return a text of a configuration that is the same in every process.

    Raises:
        UnstableError: a meta-parameter has no such text.
    """
    return ",".join(
        f"{name}={stable_text(value)}" for name, value in sorted(config.all_kwargs().items())
    )
