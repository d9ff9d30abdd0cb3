"""``jit``: kernels that are launched from Python.

    @tw.jit
    def add(x, y, out, n, BLOCK: tl.constexpr): ...

    add[grid](x, y, out, n, BLOCK=1024)

A launch binds its arguments, finds the plan of their kinds (see ``specialize``) and calls the
plan's launcher. A plan is made once per combination of kinds, options and chosen backend: it is the
compiled kernel on one device, and the selection of the
    runtime arguments from the bound ones.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import threading
import weakref
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Unpack, overload

from tilewright import logs
from tilewright.errors import DefinitionError, LaunchError, similar, with_help
from tilewright.forks import setting_up
from tilewright.plugins.manifest import Target
from tilewright.plugins.registry import Backend, registry
from tilewright.runtime.arguments.array_protocols import ArgumentError
from tilewright.runtime.compiler import parallel_compile
from tilewright.runtime.compiler.async_compile import FutureKernel, active_mode
from tilewright.runtime.compiler.kernel_definition import JitOptions, KernelDefinition
from tilewright.runtime.compiler.recompile_reasons import Compilation, compilation, reasons
from tilewright.runtime.compiler.selection import Selected
from tilewright.runtime.devices import backend_choice
from tilewright.runtime.launch.binder import Binder, make_binder
from tilewright.runtime.launch.compiled_kernel import CompiledKernel
from tilewright.runtime.launch.device_caches import KernelCache
from tilewright.runtime.launch.dispatch import Dispatcher, Known
from tilewright.runtime.launch.kernel_interface import KernelInterface
from tilewright.runtime.launch.launch_plan import Plan
from tilewright.runtime.launch.launch_policy import LaunchPolicy


class JITFunction(KernelInterface, KernelDefinition):
    """A kernel: a function that you can launch on a grid, or call from other kernels.

    Launch a kernel as ``kernel[grid](*args, **keywords)``. The keywords are parameters of the
    kernel or launch options. The grid is a tuple of one to three extents, or a function that
    returns this tuple. The function receives a dictionary of the kernel's arguments by name. If an
    extent is 0, the launch runs no program instances and calls no launch hooks.


    Attributes:
        device_caches: the compiled kernels of each device.
        pre_run_hooks: functions that are called with the arguments before each launch.
        policy: the rules of launches that differ between Tilewright and Triton, such as defaults.
    """

    #: Factory of a kernel's policy; subclasses override it.
    policy_class: type[LaunchPolicy] = LaunchPolicy

    def __init__(self, fn: Callable[..., Any], **options: Unpack[JitOptions]) -> None:
        super().__init__(fn, **options)
        self.pre_run_hooks: list[Callable[..., Any]] = []
        self._last_compilation: Compilation | None = None
        self._launch_lock = threading.RLock()
        self._reset_launching()

    def _reset_launching(self) -> None:
        with self._launch_lock:
            self.policy = self.policy_class()
            self.forget_plans()
            self._compile_locks: dict[Any, threading.Lock] = {}
            self.device_caches = self.policy.caches(self)
        _kernels.add(self)

    def _was_launched(self) -> bool:
        """Return whether a launch or warm-up has left cached state, or is in flight.

        A launch in flight has made its binder before it queries the backends.
        """
        with self._launch_lock:
            return self._binder is not None or bool(self.device_caches) or bool(self._compile_locks)

    def forget_plans(self) -> None:
        """Drop the launch plans: the next launches look up the compiled kernels again."""
        # so that no binder is made of plans that are dropped meanwhile
        with setting_up(), self._launch_lock:
            self._plans: dict[Any, Plan] = {}
            self._binder: Binder | None = None
            self._dispatcher: Dispatcher | None = None
            self._warm: dict[Any, CompiledKernel] = {}
            self._constants: frozenset[int | str] | None = None
            self._warmer = Dispatcher(self, self.warm_up, self._known_warm_up)

    def clear_cache(self) -> None:
        """Forget this kernel's compiled code and launch plans in this process.

        The next launch takes the code from the disk cache or compiles it anew.

        Safe while other threads launch the kernel; their launches end as they began. The disk cache
        is cleared with ``tilewright cache clear``.
        """
        self._reset_launching()

    def forget_meaning(self) -> None:
        super().forget_meaning()
        self.clear_cache()

    # -- launching

    def __getitem__(self, grid: Any) -> Callable[..., CompiledKernel | None]:
        if self.pre_run_hooks:
            return partial(self._run_with_hooks, grid)
        dispatcher = self._dispatcher
        if dispatcher is None:
            dispatcher = self._make_dispatcher()
        return (
            dispatcher.launcher(grid)
            if dispatcher.native is None
            else partial(dispatcher.native, grid)
        )

    def launch_function(self) -> Callable[..., Any] | None:
        """The native function if ``kernel[grid]`` only binds it to a grid; else None."""
        dispatcher = self._dispatcher
        if dispatcher is None or self.pre_run_hooks or type(self).__getitem__ is not _GET_ITEM:
            return None
        return dispatcher.native

    def run(
        self, *args: Any, grid: Any, warmup: bool = False, **kwargs: Any
    ) -> CompiledKernel | None:
        """Launch on ``grid`` and return the compiled kernel; with ``warmup`` compile only.

        The result is None where ``hooks.jit_cache`` vetoed the compilation.
        """
        return self.warmup(*args, **kwargs) if warmup else self[grid](*args, **kwargs)

    _own_run = run

    def warmup(self, *args: Any, grid: Any = (1,), **kwargs: Any) -> CompiledKernel | None:
        """Compile without running; repetitions cost no more than a launch."""
        collected = parallel_compile.collecting.get()
        if collected is None:
            found: CompiledKernel | None = self._warmer.start((1,), *args, **kwargs)
            return found
        collected.append((self, self.selected(args, kwargs)))
        return None

    def _constant_names(self) -> frozenset[int | str]:
        found = self._constants
        if found is None:
            found = self._constants = super()._constant_names()
        return found

    def bind(
        self, *args: Any, **keywords: Any
    ) -> tuple[tuple[Any, ...], tuple[Any, ...], dict[str, Any]]:
        """Bind a launch: (arguments in parameter order, their kinds, the other keywords).

        Raises:
            BindingError: they do not fit the parameters.
            ArgumentError: one is of a kind that kernels cannot take.
        """
        return (self._binder or self._make_binder()).bind(*args, **keywords)

    def selected(self, args: tuple[Any, ...], keywords: dict[str, Any]) -> Selected:
        """Return the selection for a warm-up's arguments."""
        args, keywords = self._standing(args, keywords)
        bound, kinds, options = self.bind(*args, **keywords)
        return self.policy.select(self, bound, kinds, options, backend_choice.current.get())

    def warm_up(self, grid: Any, /, *args: Any, **keywords: Any) -> CompiledKernel | None:
        """Warm up in Python, and cache the kernel for arguments of the same kinds."""
        args, keywords = self._standing(args, keywords)
        bound, kinds, options = self.bind(*args, **keywords)
        choice = backend_choice.current.get()
        key = (*kinds, choice, *options.items())
        with contextlib.suppress(TypeError):  # an option that is not hashable
            known = self._warm.get(key)
            if known is not None:
                return known
        selected = self.policy.select(self, bound, kinds, options, choice)
        found: CompiledKernel | None = self._kernel(selected, warmup=True)
        if isinstance(found, CompiledKernel) and self.policy.lasts(selected):
            with contextlib.suppress(TypeError):
                self._warm[key] = found
        return found

    def _known_warm_up(self, args: tuple[Any, ...], keywords: dict[str, Any]) -> Known | None:
        args, keywords = self._standing(args, keywords)
        known = _known(self._binder or self._make_binder(), self._warm, args, keywords)
        if known is None:
            return None
        bound, kinds, options, kernel = known
        return Known(bound, kinds, options, _nothing, kernel, ())

    def _run_with_hooks(self, grid: Any, /, *args: Any, **kwargs: Any) -> CompiledKernel | None:
        for hook in self.pre_run_hooks:
            hook(*args, **kwargs)
        found: CompiledKernel | None = (self._binder or self._make_binder()).launch(
            grid, *args, **kwargs
        )
        return found

    def add_pre_run_hook(self, hook: Callable[..., Any]) -> None:
        """Call ``hook(*args, **kwargs)`` with the launch's arguments before each launch."""
        self.pre_run_hooks.append(hook)

    def _make_binder(self) -> Binder:
        with setting_up(), self._launch_lock:
            binder = self._binder
            if binder is None:
                binder = self._binder = make_binder(
                    self, self._plans, self._miss, self._check_globals
                )
            return binder

    def _make_dispatcher(self) -> Dispatcher:
        with setting_up(), self._launch_lock:
            found = self._dispatcher
            if found is None:
                binder = self._make_binder()
                found = self._dispatcher = Dispatcher(
                    self, binder.launch, partial(_known_launch, binder, self._plans)
                )
            return found

    def _miss(
        self, key: tuple[Any, ...], args: tuple[Any, ...], options: dict[str, Any]
    ) -> Plan | None:
        """Make the launch plan of new kinds of arguments."""
        with setting_up():
            return self._missed(key, args, options)

    def _missed(
        self, key: tuple[Any, ...], args: tuple[Any, ...], options: dict[str, Any]
    ) -> Plan | None:
        self._check_globals()
        kinds, choice = key[: len(args)], key[len(args)]
        selected = self.policy.select(self, args, kinds, options, choice)
        if selected.signature.stand_ins:
            names = ", ".join(map(repr, selected.signature.stand_ins))
            raise LaunchError(
                f"{self.__name__}: argument {names} only stands for a tensor and has no memory; "
                f"compile with {self.__name__}.warmup(...) instead"
            )
        kernel = self._kernel(selected)
        if kernel is None:
            return None
        plan = self.policy.plan(kernel, selected.signature.converters)
        if self.policy.lasts(selected):
            self._plans[key] = plan
        return plan

    def _kernel(self, selected: Selected, warmup: bool = False) -> Any:
        """Return the kernel of a selection, from memory, disk or the compiler; None where vetoed.

        A warm-up within :class:`AsyncCompileMode` returns its future.
        """
        kernels, key = self._place(selected)
        found = kernels.get(key)
        if found is not None and logs.CACHE.on():
            logs.CACHE.tell(f"{self.__name__} for {selected.place}: in memory")
        if found is None:
            with setting_up(), self._compile_locks.setdefault(key, threading.Lock()):
                found = kernels.get(key)
                if found is None:
                    found = self._compile(selected, kernels, key, warmup)
        return found if warmup or not isinstance(found, FutureKernel) else found.result()

    def _compile(self, selected: Selected, kernels: dict[Any, Any], key: Any, warmup: bool) -> Any:
        policy = self.policy
        if policy.vetoed(self, selected, key, warmup):
            return None

        def finalize(compiled: Any) -> CompiledKernel:
            found = self.adopt(compiled, selected)
            policy.tell_compiled(self, selected, key, warmup)
            return found

        def cleanup(future: FutureKernel) -> None:
            if kernels.get(key) is future:
                del kernels[key]

        mode = active_mode.get()
        if mode is None:
            return finalize(policy.compile_job(selected, None)())
        found = mode.submit(
            (id(self), selected.backend.name, selected.device.index, key),
            policy.compile_job(selected, mode.executor),
            finalize,
            cleanup,
        )
        kernels[key] = found
        return found

    def _place(self, selected: Selected) -> tuple[dict[Any, CompiledKernel], Any]:
        """Return the kernels of the selection's device, and its key among them."""
        if selected.place not in self.device_caches:
            self.device_caches[selected.place] = self.device_entry(
                selected.backend, selected.target
            )
        return self.device_caches[selected.place][0], self.policy.key(selected)

    def device_entry(
        self, backend: Backend, target: Target
    ) -> tuple[KernelCache, dict[Any, Any], Any, Any, Any]:
        """Make the entry of ``device_caches`` for a device without compiled kernels."""
        return KernelCache(self), self._plans, target, backend, self._binder or self._make_binder()

    def is_compiled(self, selected: Selected) -> bool:
        """Return whether a selection's kernel is in memory."""
        kernels, key = self._place(selected)
        return key in kernels

    def adopt(self, compiled: Any, selected: Selected) -> CompiledKernel:
        """Adopt the kernel of a selection that a compile job compiled, here or elsewhere."""
        kernels, key = self._place(selected)
        found = kernels[key] = self.policy.compiled(self, compiled, selected)
        self.policy.announce(found, compiled)
        self._log_compilation(found, selected)
        return found

    def _log_compilation(self, found: CompiledKernel, selected: Selected) -> None:
        """Log that a kernel was compiled, or found on disk; a recompilation with its reason."""
        is_on = logs.COMPILE.on(logging.INFO)
        last, now = self._last_compilation, compilation(self, selected, functions=is_on)
        self._last_compilation = now
        if not is_on:
            return
        seconds = sum(time for stage, time in found.timings.items() if "." not in stage) / 1e3
        how = "found in the disk cache" if found.cache_hit else f"compiled in {seconds:.3g} s"
        where = f"{self.__name__} for {selected.place}"
        if last is None:
            logs.COMPILE.tell(f"{where}: {how}")
        else:
            why = "; ".join(reasons(last, now)) or "its earlier code is no longer in memory"
            logs.COMPILE.tell(f"{where}: {how}, once more: {why}", logging.INFO)

    def preload(self, data: str) -> Any:
        """Compile a specialization from the text that a compilation hook received.

        The text is ``compile["specialization_data"]`` of a hook in this or another process.

        Raises:
            RuntimeError: it is of another kernel.
            BackendError: its backend or device is not here.
        """
        from tilewright.runtime.compiler.specialization_data import parse, restore

        return self._kernel(restore(self, parse(data, self.full_name), list(_kernels)), warmup=True)

    def _check_globals(self) -> None:
        """Refuse to launch where a global that the compiled kernels read has another value now."""
        for (name, _), (value, namespace) in self.used_global_vals.items():
            now = namespace.get(name, _MISSING)
            if now is not value and (now is _MISSING or bool(now != value)):
                raise RuntimeError(
                    f"Global variable {name} has changed since we compiled this kernel, from "
                    f"{value!r} to {'nothing' if now is _MISSING else repr(now)}. Pass it to "
                    f"{self.__name__} as a constexpr parameter instead"
                )

    # -- source and copies

    def _unsafe_update_src(self, text: str) -> None:
        super()._unsafe_update_src(text)
        self._reset_launching()

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Pickle by name where the module defines this kernel, else by value."""
        if self.fn is not None and _by_name(self.__module__, self.__qualname__) is self:
            return _by_name, (self.__module__, self.__qualname__)
        return super().__reduce_ex__(protocol)

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        for name in (*_OF_THIS_PROCESS, "pre_run_hooks"):
            state.pop(name, None)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self.pre_run_hooks = []
        self._last_compilation = None
        self._launch_lock = threading.RLock()
        self._reset_launching()

    def __repr__(self) -> str:
        return f"JITFunction({self.__module__}:{self.__qualname__})"


def _known(
    binder: Binder, made: Mapping[Any, Any], args: tuple[Any, ...], keywords: dict[str, Any]
) -> tuple[Any, Any, Any, Any] | None:
    """Bind a call and return its arguments, kinds, options, and their entry in ``made``."""
    try:
        bound, kinds, options = binder.bind(*args, **keywords)
        found = made.get((*kinds, backend_choice.current.get(), *options.items()))
    except (TypeError, ArgumentError):
        return None
    return None if found is None else (bound, kinds, options, found)


def _known_launch(
    binder: Binder, plans: Mapping[Any, Plan], args: tuple[Any, ...], keywords: dict[str, Any]
) -> Known | None:
    known = _known(binder, plans, args, keywords)
    if known is None or not known[-1].settled:
        return None
    bound, kinds, options, plan = known
    return Known(bound, kinds, options, plan.launcher, plan.kernel, plan.converters)


def _nothing(grid: Any, stream: Any, values: Any) -> None:
    """Launch nothing; the launcher of warm-ups."""


def _by_name(module: str, qualname: str) -> JITFunction | None:
    """Look up the kernel that a module defines under a name, possibly within decorators."""
    try:
        # computed: the module of a kernel that was pickled
        found: Any = importlib.import_module(module)
    except ImportError:
        return None
    for name in qualname.split("."):
        found = getattr(found, name, None)
    found = getattr(found, "base_kernel", found)
    return found if isinstance(found, JITFunction) else None


#: Attributes of a kernel that only mean something in this process.
_OF_THIS_PROCESS = (
    "_last_compilation",
    "_plans",
    "_binder",
    "_dispatcher",
    "_warm",
    "_warmer",
    "_constants",
    "_launch_lock",
    "_compile_locks",
    "device_caches",
    "policy",
)
_MISSING: Any = object()
_GET_ITEM = JITFunction.__getitem__
_kernels: weakref.WeakSet[JITFunction] = weakref.WeakSet()


def _after_fork() -> None:
    """Reset the locks in a forked child, which the parent's threads may have held."""
    for kernel in list(_kernels):
        kernel._launch_lock = threading.RLock()
        kernel._compile_locks.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def _forget_plans() -> None:
    """Plan every launch anew: the backends are no longer the same."""
    for kernel in list(_kernels):
        if kernel._was_launched():
            kernel._reset_launching()


registry().on_change(_forget_plans)


@overload
def jit(fn: Callable[..., Any]) -> JITFunction: ...
@overload
def jit(
    fn: None = None, **options: Unpack[JitOptions]
) -> Callable[[Callable[..., Any]], JITFunction]: ...
def jit(
    fn: Callable[..., Any] | None = None, **options: Unpack[JitOptions]
) -> JITFunction | Callable[[Callable[..., Any]], JITFunction]:
    """Make a kernel from a Python function: ``@tw.jit``, or with options ``@tw.jit(...)``.

    Args:
        version: a value that is part of the cache key.
        repr: a function that returns the kernel's symbol, given an object with ``constants`` and
            ``signature``.
        launch_metadata: a function ``fn(grid, metadata, arguments by name)`` that returns a
            dictionary, which is added to the metadata that launch hooks receive.
        do_not_specialize: names or positions of parameters for whose values the compiler does not
            specialize the code (it otherwise does so for 1 and for multiples of 16).
        do_not_specialize_on_alignment: names or positions of parameters for which the compiler does
            not specialize the code for multiples of 16, but may do so for 1.
        debug: whether to compile ``device_assert`` and overflow checks; None: if
            ``TILEWRIGHT_DEBUG=1`` is set.
        noinline: whether to compile the kernel as a function, instead of inlining it, if another
            kernel calls it.
        order: the default order of reductions and scans, also in functions that the kernel calls:
            ``"any"``, ``"tree"`` or ``"sequential"``, see :func:`tl.reduce`. It does not apply to
            matmuls.

    Raises:
        DefinitionError: ``fn`` is not a Python function, its source cannot be read because it is
            not in a file, or an option is unknown.
    """
    for name in options.keys() - JitOptions.__annotations__.keys():
        remedy = (
            similar(name, JitOptions.__annotations__)
            or f"options of a launch are given there: kernel[grid](..., {name}=...)"
        )
        raise DefinitionError(
            with_help(
                f"jit() has no option {name!r}: it has "
                f"{', '.join(sorted(JitOptions.__annotations__))}",
                remedy,
            )
        )
    if fn is None:
        return lambda function: jit_function(function, options)
    return jit_function(fn, options)


def jit_function(fn: Callable[..., Any], options: JitOptions) -> JITFunction:
    """Make the kernel of a function; a kernel is remade with the options."""
    return JITFunction(fn.fn if isinstance(fn, JITFunction) else fn, **options)
