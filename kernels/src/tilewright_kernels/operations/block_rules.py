"""Rules that choose block sizes: a model of the time, refined by records of the device's family."""

from __future__ import annotations

import contextlib
import contextvars
import functools
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import tilewright as tw
from tilewright_kernels.operations.devices import Device
from tilewright_kernels.operations.prepared_calls import PreparedCalls


@dataclass
class Trial:
    """Blocks that a rule returns instead of its choice, while a tuner measures them.

    Attributes:
        rule: the name of the rule.
        blocks: the blocks; None lets the model choose.
        calls: the arguments of the rule's calls, and what the model chose.
    """

    rule: str
    blocks: Any = None
    calls: list[tuple[Mapping[str, Any], Any]] = field(default_factory=list)


_trial: contextvars.ContextVar[Trial | None] = contextvars.ContextVar(
    "tilewright_kernels_trial", default=None
)
#: Name -> rule.
RULES: dict[str, BlockRule] = {}


class BlockRule:
    """A function that chooses blocks by a model, and looks for a record first.

    Args:
        name: of the rule in files of records.
        choose: returns blocks, a dataclass; one of its arguments is ``device``. Where an argument
            ``is_invariant`` is true, the model alone chooses.
        rounded: extents that records know rounded up to a power of two.
    """

    def __init__(self, name: str, choose: Callable[..., Any], rounded: Sequence[str]) -> None:
        functools.update_wrapper(self, choose)
        self.name, self.choose, self.rounded = name, choose, frozenset(rounded)
        self._signature = inspect.signature(choose)
        self._refined = functools.lru_cache(4096)(self._refine)
        RULES[name] = self

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        """Return the blocks."""
        trial = _trial.get()
        if trial is None:
            return self._refined(*arguments, **keywords)
        chosen = self.choose(*arguments, **keywords)
        if trial.rule != self.name:
            return chosen
        trial.calls.append((self._arguments(arguments, keywords), chosen))
        return chosen if trial.blocks is None else trial.blocks

    def forget(self) -> None:
        """Look for records again at the next call."""
        self._refined.cache_clear()
        PreparedCalls.forget()

    def key(self, arguments: Mapping[str, Any]) -> str:
        """Return the text of arguments in a file of records."""
        device: Device = arguments["device"]
        values = {name: each for name, each in arguments.items() if name != "device"}
        for name in self.rounded:
            values[name] = tw.next_power_of_2(max(values[name], 1))
        if device.family == "cpu":
            values["threads"] = device.processors
        return ",".join(f"{name}={each}" for name, each in values.items())

    def _refine(self, *arguments: Any, **keywords: Any) -> Any:
        chosen = self.choose(*arguments, **keywords)
        bound = self._arguments(arguments, keywords)
        if bound.get("is_invariant"):
            return chosen
        record = bound["device"].records.get(self.name, {}).get(self.key(bound))
        return chosen if record is None else replace(chosen, **record.blocks)

    def _arguments(
        self, arguments: tuple[Any, ...], keywords: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        bound = self._signature.bind(*arguments, **keywords)
        bound.apply_defaults()
        return bound.arguments


def block_rule(name: str, *, rounded: Sequence[str] = ()) -> Callable[[Any], BlockRule]:
    """Decorate a function that chooses blocks; arguments as of :class:`BlockRule`."""
    return lambda choose: BlockRule(name, choose, rounded)


def is_trying() -> bool:
    """Return whether calls are within a ``with`` block of :func:`trying`."""
    return _trial.get() is not None


@contextlib.contextmanager
def trying(rule: str, blocks: Any = None) -> Iterator[Trial]:
    """Let a rule return ``blocks`` within a ``with`` block, and models choose for other rules."""
    trial = Trial(rule, blocks)
    token = _trial.set(trial)
    try:
        yield trial
    finally:
        _trial.reset(token)
