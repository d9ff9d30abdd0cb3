"""Native dispatch of ``autotuner[grid](...)`` once a configuration is chosen.

A launch goes through Python once for each form of call
(:mod:`tilewright.runtime.launch.native_calls`), and once more for each configuration. From then on
native code (:mod:`tilewright.llvm.native.tuned_dispatch`) makes the tuning key of the arguments,
asks the autotuner's ``cache`` for its configuration and launches the kernel.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tilewright.runtime.arguments.descriptor import TensorDescriptor
from tilewright.runtime.compiler.config import Config
from tilewright.runtime.devices import backend_choice
from tilewright.runtime.launch.dispatch import array_check
from tilewright.runtime.launch.native_calls import NativeCalls, UnsuitedError

if TYPE_CHECKING:
    from tilewright.llvm.native.dispatch_entries import Check
    from tilewright.runtime.tuning.autotune import Autotuner


class TunedDispatcher(NativeCalls):
    """Native dispatcher of one autotuner's launches."""

    symbol = "dispatch_tuned"

    def __init__(self, tuner: Autotuner) -> None:
        super().__init__(tuner.__name__, tuner.launch_best)
        self._tuner = tuner
        self._bases: dict[bytes, Check] = {}  # of descriptors; entries of one form share them

    def bound(self) -> tuple[Any, ...]:
        return self._through_python, backend_choice.current, self._entries, self._tuner

    def learn(self, args: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        from tilewright.llvm.native.dispatch_entries import DEFAULT, MAX_ARGUMENTS, table

        tuner = self._tuner
        given = 1 + len(args) + len(keywords)
        if given > MAX_ARGUMENTS or len(args) > len(tuner.arg_names):
            raise UnsuitedError
        sources = {
            **dict(zip(tuner.arg_names, range(1, 1 + len(args)), strict=False)),
            **{name: 1 + len(args) + i for i, name in enumerate(keywords)},
        }
        named = {**dict(zip(tuner.arg_names, args, strict=False)), **keywords}
        keep: list[Any] = []
        checks = [_check(sources[name], value, keep, self._bases) for name, value in named.items()]
        config: Config | None
        if tuner.takes_the_only_one():
            config, types, keys = tuner.configs[0], tuner.measures_one, []
        else:
            key = tuner.tuning_key(named)
            config, types, keys = (
                tuner.cache.get(key),
                key[-1],
                [sources.get(name, DEFAULT) for name in tuner.keys],
            )
        if type(config) is not Config:
            raise UnsuitedError
        chosen = _chosen(config, args, keywords, tuple(named), sources)
        described = table(given, len(keywords), checks, keys, ())
        choice = backend_choice.current.get()
        for entry in self._entries[0]:
            if (
                entry[0] == described
                and entry[2] is types
                and entry[3] == tuple(keywords)
                and entry[6] is choice
            ):
                entry[1][0] = (*(other for other in entry[1][0] if other[0] is not config), chosen)
                return
        # only for kernels is ``kernel[grid]`` known to only bind the grid to ``launch_function``
        kernel = type(tuner.fn) if hasattr(type(tuner.fn), "launch_function") else None
        self.keep(
            (described, [(chosen,)], types, tuple(keywords), kernel, (None,), choice, tuple(keep))
        )


def _chosen(
    config: Config,
    args: tuple[Any, ...],
    keywords: Mapping[str, Any],
    names: tuple[str, ...],
    sources: Mapping[str, int],
) -> tuple[Any, ...]:
    """Return a configuration's additions to calls of one form.

    See :data:`tilewright.llvm.native.tuned_dispatch.CHOSEN`.

    Raises:
        UnsuitedError: its values may change in place.
    """
    from tilewright.llvm.native.dispatch_entries import DEFAULT, MAX_ARGUMENTS
    from tilewright.llvm.native.tuned_dispatch import sources_bytes

    added = config.all_kwargs()
    try:
        hash(tuple(added.values()))
    except TypeError:
        raise UnsuitedError from None
    places = {name: DEFAULT | position for position, name in enumerate(added)}
    merged = {**places, **{name: sources[name] for name in keywords}}
    if 1 + len(args) + len(merged) > MAX_ARGUMENTS:
        raise UnsuitedError
    settings = vars(config)
    known = {**settings, "kwargs": dict(config.kwargs)}
    hook_names = (*names, *added)
    hook_sources = sources_bytes((*(sources[name] for name in names), *places.values()))
    values = tuple(added.values())
    return (
        config,
        settings,
        known,
        tuple(merged),
        sources_bytes(tuple(merged.values())),
        values,
        config.pre_hook,
        hook_names,
        hook_sources,
    )


def _check(source: int, value: Any, keep: list[Any], bases: dict[bytes, Check]) -> Check:
    """Return the native condition that an argument contributes the same to tuning keys as a value.

    It also holds for arguments that the key does not name: arrays contribute their element type and
    device.

    Raises:
        UnsuitedError: native code cannot check it.
    """
    from tilewright.llvm.native.dispatch_entries import Check, CheckKind, Divisibility

    kind = type(value)
    if kind is TensorDescriptor:
        base = array_check(source, value.base, Divisibility.UNREAD, keep)
        base = bases.setdefault(bytes(base), base)
        return Check(CheckKind.BASE, source, id(TensorDescriptor), ctypes.addressof(base))
    if getattr(value, "dtype", None) is not None:
        return array_check(source, value, Divisibility.UNREAD, keep)
    # none of them has a dtype
    if kind.__dictoffset__ == 0 and not hasattr(kind, "dtype") and not hasattr(kind, "__getattr__"):
        keep.append(kind)
        return Check(CheckKind.TYPE, source, id(kind))
    keep.append(value)
    return Check(CheckKind.OBJECT, source, id(value))
