"""Hooks for tools that watch compilation and launches: profilers, loggers, external caches.

All of them are members of :data:`hooks`. A chain holds any number of callables; the others hold one
callable or None.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class HookChain:
    """Callables in order of addition (``reverse=True``: last added, first called).

    A chain is false while it is empty.
    """

    __slots__ = ("calls", "reverse")

    def __init__(self, reverse: bool = False) -> None:
        self.calls: list[Callable[..., Any]] = []
        self.reverse = reverse

    def add(self, call: Callable[..., Any]) -> None:
        """Add a callable; one that is in the chain already is not added again."""
        if call not in self.calls:
            self.calls.append(call)

    def remove(self, call: Callable[..., Any]) -> None:
        """Take a callable out; nothing happens where it is not in the chain."""
        if call in self.calls:
            self.calls.remove(call)

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        for call in reversed(self.calls) if self.reverse else list(self.calls):
            call(*args, **kwargs)

    def __bool__(self) -> bool:
        return bool(self.calls)


class Hooks:
    """Hooks: lists of functions that Tilewright calls at launches and compilations.

    Attributes:
        launch_enter, launch_exit: functions called before and after each launch of a grid that is
            not empty, with the launch's metadata (a :class:`LazyDict`).
        kernel_load_start, kernel_load_end: functions called before and after a kernel is loaded on
            a device, with ``(module, function, name, metadata_group, hash)``.
        kernel_unload: functions called when a loaded kernel is dropped.
        jit_cache: a function called before a kernel is compiled, except by the autotuner, with the
            keywords ``key repr fn compile is_manual_warmup already_compiled``; a true result
            prevents the compilation. ``compile`` is a dictionary with ``key signature constants
            attributes options device target is_warmup`` and ``specialization_data``, the text that
            ``kernel.preload`` takes (empty if a constant cannot be represented as text).
        jit_post_compile: a function called with the same keywords after the compilation.
        compilation_listener: a function called after each compilation or hit in the disk cache,
            with the keywords ``src metadata metadata_group times cache_hit``.
        autotuning_listener: a function called after each tuning, with the keywords ``fn key
            best_config configs_timings bench_time cache_hit``.
    """

    def __init__(self) -> None:
        self.launch_enter = HookChain()
        self.launch_exit = HookChain(reverse=True)
        self.kernel_load_start = HookChain()
        self.kernel_load_end = HookChain(reverse=True)
        self.kernel_unload = HookChain()
        self.reset()

    def reset(self) -> None:
        """Forget all hooks. The chains stay the same objects: launchers hold them."""
        for chain in (
            self.launch_enter,
            self.launch_exit,
            self.kernel_load_start,
            self.kernel_load_end,
            self.kernel_unload,
        ):
            chain.calls.clear()
        self.jit_cache: Callable[..., Any] | None = None
        self.jit_post_compile: Callable[..., Any] | None = None
        self.compilation_listener: Callable[..., Any] | None = None
        self.autotuning_listener: Callable[..., Any] | None = None


class LazyDict:
    """Launch metadata that is computed when it is first read."""

    def __init__(self, data: dict[str, Any]) -> None:
        self.data = data
        self._extras: list[tuple[Callable[..., dict[str, Any]], tuple[Any, ...]]] = []

    def add(self, function: Callable[..., dict[str, Any]], args: tuple[Any, ...]) -> None:
        """Let ``function(*args)`` add to the data when it is read."""
        self._extras.append((function, args))

    def get(self) -> dict[str, Any]:
        """Return the data, with all extras in it."""
        while self._extras:
            function, args = self._extras.pop(0)
            self.data = {**self.data, **function(*args)}
        return self.data


#: The hooks of this process.
hooks = Hooks()
