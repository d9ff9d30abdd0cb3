"""Settings that are attributes and environment variables at once, for ``triton.knobs``.

Reading an attribute gives what was assigned to it, else what the environment says now, else its
default. Assigning one also sets the environment variable, so that processes started later agree,
while :data:`tilewright.compat.triton.knobs.propagate_env` holds.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import os
import re
import shutil
import subprocess
import sysconfig
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

S = TypeVar("S")
G = TypeVar("G")
K = TypeVar("K", bound="base_knobs")

_TRUE = frozenset(("1", "true", "yes", "on", "y"))
_UNSET: Any = object()


class Env:
    """Assigned to a setting, takes its own value back: the environment decides again."""


env = Env()


def getenv(key: str) -> str | None:
    """An environment variable; None where it is unset or empty."""
    return os.environ.get(key) or None


def getenv_bool(key: str, default: bool | None) -> bool | None:
    value = getenv(key)
    return default if value is None else value.lower() in _TRUE


def setenv(key: str, value: str | None) -> None:
    """Set an environment variable, or remove it for None; nothing if ``propagate_env`` is false."""
    from tilewright.compat.triton import knobs

    if not knobs.propagate_env:
        return
    if value is None:
        os.environ.pop(key, None)
    else:
        os.environ[key] = value


def toenv(val: Any) -> tuple[str | None] | None:
    """A value as the text of an environment variable, in a tuple; None where it has none."""
    if val is None:
        return (None,)
    if isinstance(val, bool):
        return ("1" if val else "0",)
    return (str(val),) if type(val) in (str, int) else None


class env_base(Generic[S, G]):  # noqa: N801 (Triton's names)
    """One setting. ``key`` is the environment variable."""

    def __init__(self, key: str) -> None:
        self.key = key
        self.name = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, instance: Any, owner: type | None = None) -> G:
        if instance is None:
            return self  # type: ignore[return-value]
        value = instance.__dict__.get(self.name, _UNSET)
        return self.get() if value is _UNSET else self.transform(value)

    def __set__(self, instance: Any, value: S | Env) -> None:
        if isinstance(value, Env):
            instance.__dict__.pop(self.name, None)
            return
        instance.__dict__[self.name] = value
        text = toenv(value)
        if text is not None:
            setenv(self.key, text[0])

    def __delete__(self, instance: Any) -> None:
        instance.__dict__.pop(self.name, None)

    def get(self) -> G:
        """Return the value in the environment."""
        raise NotImplementedError(f"{type(self).__name__} must define get()")

    def transform(self, val: S) -> G:
        """Convert an assigned value."""
        return val  # type: ignore[return-value]


class env_str(env_base[str, str]):  # noqa: N801
    def __init__(self, key: str, default: str) -> None:
        super().__init__(key)
        self.default = default

    def get(self) -> str:
        return getenv(self.key) or self.default


class env_str_callable_default(env_base[str, str]):  # noqa: N801
    """A text whose default is worked out when it is read."""

    def __init__(self, key: str, default_factory: Callable[[], str]) -> None:
        super().__init__(key)
        self.default_factory = default_factory

    def get(self) -> str:
        return getenv(self.key) or self.default_factory()


class env_bool(env_base[bool, bool]):  # noqa: N801
    def __init__(self, key: str, default: bool = False) -> None:
        super().__init__(key)
        self.default = default

    def get(self) -> bool:
        return bool(getenv_bool(self.key, self.default))


class env_int(env_base[int, int]):  # noqa: N801
    def __init__(self, key: str, default: int = 0) -> None:
        super().__init__(key)
        self.default = default

    def get(self) -> int:
        text = getenv(self.key)
        try:
            return self.default if text is None else int(text)
        except ValueError:
            raise RuntimeError(f"Unable to use {self.key}={text}: expected int") from None


class env_opt_str(env_base[str | None, str | None]):  # noqa: N801
    def get(self) -> str | None:
        return getenv(self.key)


class env_opt_bool(env_base[bool | None, bool | None]):  # noqa: N801
    def get(self) -> bool | None:
        return getenv_bool(self.key, None)


class env_class(env_base[type | None, type | None]):  # noqa: N801
    """A class, written ``module:Class`` in the environment, with a base class called ``type``."""

    def __init__(self, key: str, type: str) -> None:
        super().__init__(key)
        self.type = type

    def get(self) -> type | None:
        text = getenv(self.key)
        if text is None:
            return None
        module, colon, name = text.partition(":")
        if not colon:
            raise RuntimeError(
                f"Unable to read {self.key}: '{text}' isn't of the form MODULE:CLASS"
            )
        # computed: a variable of the environment names the class
        found: type = getattr(importlib.import_module(module), name)
        if self.type not in [base.__name__ for base in found.__mro__]:
            raise RuntimeError(f"Unable to use '{text}' from {self.key}: not of type '{self.type}'")
        return found


@dataclass
class NvidiaTool:
    """A program of the CUDA toolkit, and the toolkit's version."""

    path: str
    version: str

    @staticmethod
    @functools.cache
    def from_path(path: str) -> NvidiaTool | None:
        """The program at ``path``; None where it does not run."""
        try:
            printed = subprocess.check_output(
                [path, "--version"], stderr=subprocess.STDOUT, text=True
            )
        except (subprocess.CalledProcessError, OSError):
            return None
        found = re.search(r"release (\d+\.\d+)", printed)
        return None if found is None else NvidiaTool(path, found[1])


class env_nvidia_tool(env_base[str, NvidiaTool]):  # noqa: N801
    """A program of the CUDA toolkit.

    The environment says where it is, else it is of an installed toolkit wheel, else on ``PATH``.
    """

    def __init__(self, binary: str) -> None:
        self.binary = binary + (sysconfig.get_config_var("EXE") or "")
        super().__init__(f"TRITON_{binary.upper().replace('-', '_')}_PATH")

    def get(self) -> NvidiaTool:
        return self.transform(getenv(self.key))

    def transform(self, path: str | None) -> NvidiaTool:
        for candidate in (path, *self._candidates()):
            tool = NvidiaTool.from_path(candidate) if candidate else None
            if tool is not None:
                return tool
        raise RuntimeError(
            f"Cannot find {self.binary}: set {self.key} to its path, or install the CUDA toolkit "
            "(pip install nvidia-cuda-nvcc)"
        )

    def _candidates(self) -> Iterator[str]:
        spec = importlib.util.find_spec("nvidia")
        for root in (spec.submodule_search_locations or ()) if spec is not None else ():
            yield from map(str, sorted(Path(root).glob(f"*/bin/{self.binary}"), reverse=True))
        found = shutil.which(self.binary)
        if found:
            yield found


class env_opt_nvidia_tool(env_base[str, NvidiaTool | None]):  # noqa: N801
    """An optional :class:`env_nvidia_tool`: None where it is not installed.

    All else works without it.
    """

    def __init__(self, binary: str) -> None:
        self.tool = env_nvidia_tool(binary)
        super().__init__(self.tool.key)

    def get(self) -> NvidiaTool | None:
        return self.transform(getenv(self.key) or "")

    def transform(self, path: str) -> NvidiaTool | None:
        try:
            return self.tool.transform(path)
        except RuntimeError:
            return None


class base_knobs:  # noqa: N801
    """A group of settings."""

    @property
    def knob_descriptors(self) -> dict[str, env_base[Any, Any]]:
        """The settings themselves, by name."""
        return {
            name: value
            for name, value in type(self).__dict__.items()
            if isinstance(value, env_base)
        }

    @property
    def knobs(self) -> dict[str, Any]:
        """Every setting's value now."""
        return {name: getattr(self, name) for name in self.knob_descriptors}

    def copy(self: K) -> K:
        """A group of the same kind with the same values; changing one leaves the other alone."""
        found = type(self)()
        found.__dict__.update(self.__dict__)
        return found

    def reset(self: K) -> K:
        """Take every assigned value back; gives the group."""
        for name in self.knob_descriptors:
            delattr(self, name)
        return self

    @contextmanager
    def scope(self) -> Iterator[None]:
        """Undo, at the end of the block, what is assigned in it, in the environment too."""
        values = dict(self.__dict__)
        keys = [knob.key for knob in self.knob_descriptors.values()]
        before: Mapping[str, str | None] = {key: os.environ.get(key) for key in keys}
        try:
            yield
        finally:
            self.__dict__.clear()
            self.__dict__.update(values)
            for key, value in before.items():
                if value is None:
                    os.environ.pop(key, None)
                else:
                    os.environ[key] = value


def fresh_settings(
    skipped: Iterable[str] | None = None,
) -> tuple[Callable[[], Any], Callable[[], None]]:
    """Return (install fresh settings, restore the old ones).

    Environment variables of the settings are unset in between.
    """
    from tilewright.compat.triton import knobs

    left_alone = set(skipped or ())
    groups = {
        name: group
        for name, group in vars(knobs).items()
        if isinstance(group, base_knobs) and name not in left_alone
    }
    keys = [knob.key for group in groups.values() for knob in group.knob_descriptors.values()]
    before = {key: os.environ[key] for key in keys if key in os.environ}
    propagated = knobs.propagate_env

    def fresh() -> Any:
        for name, group in groups.items():
            setattr(knobs, name, group.copy().reset())
        for key in keys:
            os.environ.pop(key, None)
        knobs.propagate_env = True
        return knobs

    def restore() -> None:
        for name, group in groups.items():
            setattr(knobs, name, group)
        for key in keys:
            os.environ.pop(key, None)
        os.environ.update(before)
        knobs.propagate_env = propagated

    return fresh, restore
