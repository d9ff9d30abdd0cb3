"""``triton.runtime.jit``: kernels with Triton's launch contract.

They are kernels of Tilewright. What differs: TF32 products where the target has them, Triton's launch options, hooks and listeners of ``triton.knobs``,
compiled kernels with Triton's attributes, and the place of kernels without tensors (:mod:`.placement`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from functools import partial
from types import SimpleNamespace
from typing import Any, Unpack, overload

from tilewright.compat.triton import knobs
from tilewright.compat.triton._utils import find_paths_if, get_iterable_path
from tilewright.compat.triton.backends.compiler import target_for
from tilewright.compat.triton.backends.options import ALL_NAMES, RENAMED, frozen, names_of
from tilewright.compat.triton.compiler.compiled import CompiledKernel, tell
from tilewright.compat.triton.compiler.pipeline import compile_artifact, language_options, triton_options
from tilewright.compat.triton.outside import OutsideNameError
from tilewright.compat.triton.runtime.binding import TritonBinder, compute_cache_key, serialize_specialization_data
from tilewright.compat.triton.runtime.device_caches import TritonDeviceCaches
from tilewright.compat.triton.runtime.global_values import GlobalValues
from tilewright.compat.triton.runtime.placement import choice_without_arrays, has_arrays
from tilewright.compat.triton.runtime.specialization_data import check_target, hook_facts
from tilewright.compat.triton.runtime.specialize import mangle_type, native_specialize_impl
from tilewright.language.callable import BoundConstexprFunction, ConstexprFunction, FunctionParameter, JitCallable, constexpr_function
from tilewright.runtime import jit as own
from tilewright.runtime.backend_choice import Choice, DeviceError, environment_choice
from tilewright.runtime.bounds import bounds_check
from tilewright.runtime.device_caches import KernelCache
from tilewright.runtime.interface import KernelInterface
from tilewright.runtime.options import option_key
from tilewright.runtime.selection import ReprContext, Selected
from tilewright.runtime.specialize import ONE, constant_key
from tilewright.runtime.tensors import MockTensor, TensorWrapper, reinterpret
from tilewright.runtime.trials import artifact_of, collecting

JITCallable = JitCallable
KernelParam = FunctionParameter


@dataclass
class JitFunctionInfo:
    """The kernel that a hook is told about."""

    module: str
    name: str
    jit_function: JITFunction


class JITFunction(own.JITFunction):
    """A kernel, made by :func:`jit`."""

    kernel: Any = None

    def __init__(
        self,
        fn: Callable[..., Any],
        version: Any = None,
        do_not_specialize: Iterable[int | str] | None = None,
        do_not_specialize_on_alignment: Iterable[int | str] | None = None,
        debug: bool | None = None,
        noinline: bool | None = None,
        repr: Callable[[ReprContext], str] | None = None,
        launch_metadata: Callable[..., dict[str, Any]] | None = None,
    ) -> None:
        self._globals = GlobalValues(self)
        super().__init__(
            fn,
            version=version,
            repr=repr,
            launch_metadata=launch_metadata,
            do_not_specialize=tuple(do_not_specialize or ()),
            do_not_specialize_on_alignment=tuple(do_not_specialize_on_alignment or ()),
            debug=debug,
            noinline=noinline,
        )

    def _reset_launching(self) -> None:
        super()._reset_launching()
        self._globals = GlobalValues(self)

    def _make_device_caches(self) -> TritonDeviceCaches:
        return TritonDeviceCaches(self)

    # -- description

    @property
    def launch_metadata(self) -> Callable[..., dict[str, Any]] | None:
        return self._launch_metadata

    @launch_metadata.setter
    def launch_metadata(self, function: Callable[..., dict[str, Any]] | None) -> None:
        self._launch_metadata = function

    def _relocate(self, **places: Any) -> None:
        self._source.relocate(**places)
        self.hash = None

    #: Where the source is said to be written: programs that write kernels from others' texts say those others' places.
    raw_src = property(lambda self: self._source.raw_lines, lambda self, lines: self._relocate(raw_lines=lines))
    starting_line_number = property(lambda self: self._source.first_line, lambda self, line: self._relocate(first_line=line))
    file_name = property(lambda self: self._source.file, lambda self, file: self._relocate(file=file))
    def_file_line_number = property(lambda self: self._source.definition_line, lambda self, line: self._relocate(definition_line=line))
    def_file_col_number = property(lambda self: self._source.indent + 1, lambda self, column: self._relocate(indent=column - 1))

    def is_gluon(self) -> bool:
        """Whether the kernel is written in Gluon: never."""
        return False

    def get_capture_scope(self) -> dict[str, Any]:
        """The globals and captured variables that the kernel may read."""
        return {**self.__globals__, **self.nonlocals}

    def create_binder(self) -> tuple[dict[Any, Any], dict[Any, Any], Any, Any, Callable[..., Any]]:
        """(kernels, keys, target, compiler, binder) for the active driver; see :class:`.binding.TritonBinder`."""
        from tilewright.compat.triton.compiler.compiler import make_backend
        from tilewright.compat.triton.runtime.driver import driver

        target = driver.active.get_current_target()
        return {}, {}, target, make_backend(target), TritonBinder(self)

    def _place(self, selected: Selected) -> tuple[dict[Any, Any], Any]:
        if selected.place not in self.device_caches:
            self.device_caches[selected.place] = (KernelCache(self), {}, selected.target, selected.backend, TritonBinder(self))
        return super()._place(selected)

    def key_of_launch(self, args: tuple[Any, ...], keywords: dict[str, Any]) -> str:
        """The key of the kernel that a launch with these arguments runs, among those of its device."""
        return self._key(self._selected(args, keywords))

    @property
    def type(self) -> Any:
        from tilewright.language.core import constexpr_type

        return constexpr_type(self)

    # -- launching

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError(f"Cannot call @triton.jit'd outside of the scope of a kernel: launch {self.__name__} on a grid, {self.__name__}[grid](...)")

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        if type(self).run is not _RUN or "run" in self.__dict__:  # a subclass's, or one that a program has put in its place
            return partial(self.run, grid=grid, warmup=False)
        if knobs.runtime.debug or self._globals.mutable:
            return partial(self._launch_checked, grid)
        return super().__getitem__(grid)

    def run(self, *args: Any, grid: Any, warmup: bool = False, **kwargs: Any) -> Any:
        """See :meth:`tilewright.runtime.jit.JITFunction.run`. Launches ask this method where a subclass or a program has put another in its place."""
        return self._compile_only(*args, grid=grid, **kwargs) if warmup else self._launch_on(grid)(*args, **kwargs)

    def _launch_on(self, grid: Any) -> Callable[..., Any]:
        """What launches on a grid, without asking :meth:`run`."""
        if knobs.runtime.debug or self._globals.mutable:
            return partial(self._launch_checked, grid)
        return super().__getitem__(grid)

    def warmup(self, *args: Any, grid: Any = (1,), **kwargs: Any) -> Any:
        if type(self).run is not _RUN or "run" in self.__dict__:
            return self.run(*args, grid=grid, warmup=True, **kwargs)
        return self._compile_only(*args, grid=grid, **kwargs)

    def _compile_only(self, *args: Any, grid: Any, **kwargs: Any) -> Any:
        if (knobs.runtime.debug or self._globals.mutable) and collecting.get() is None:
            return self._warm_up((1,), *args, **kwargs)
        return super().warmup(*args, grid=grid, **kwargs)

    def _launch_checked(self, grid: Any, /, *args: Any, **kwargs: Any) -> Any:
        """A launch with what cannot be part of a plan's key: the debug switch of the process, and constants that may change their value in place."""
        self._globals.check()
        if knobs.runtime.debug:
            kwargs["debug"] = True
        return super().__getitem__(grid)(*args, **kwargs)

    def _select(self, args: tuple[Any, ...], kinds: tuple[Any, ...], options: Mapping[str, Any], choice: Choice | None) -> Selected:
        """As in Tilewright, with Triton's options.

        Raises:
            AssertionError: ``num_warps`` is no power of two.
            KeyError: an option is unknown for the backend.
            ValueError: tensors lie where the kernel cannot reach them.
            BackendError: the backend has no code for ``knobs.runtime.override_arch``.
        """
        given = dict(options)
        own_debug = given.pop("debug", None)
        given["debug"] = bool((self.debug if own_debug is None else own_debug) or knobs.runtime.debug)
        for theirs, ours in RENAMED.items():
            if theirs in given and theirs != "default_dot_input_precision":
                given[ours] = given.pop(theirs)
        kept = {name: frozen(given.pop(name)) for name in list(given) if name in _KEPT}
        if choice is None and "backend" not in given and not has_arrays(kinds) and environment_choice() is None:
            choice = choice_without_arrays(self)
        given.setdefault("enable_fp_fusion", None)
        given["enable_fp_fusion"] = knobs.language.fp_fusion_enabled(given["enable_fp_fusion"])
        try:
            selected = super()._select(args, kinds, given, choice)
        except DeviceError as error:
            raise DeviceError(f"Pointer argument cannot be accessed from Triton (cpu tensor?). {error}") from None
        backend = selected.backend
        if knobs.runtime.override_arch:
            selected = selected._replace(target=target_for(backend, selected.target))
        warps = selected.specialization.options.get("num_warps")
        if isinstance(warps, int) and warps & (warps - 1):
            raise AssertionError(f"num_warps must be a power of 2, not {warps}")
        known = names_of(selected.target.kind)
        for name in kept:
            if name not in known:
                raise KeyError(f"Keyword argument {name} was specified but unrecognised: it is no option of backend {backend.name!r}")
        chosen = {**selected.specialization.options, **kept, **language_options(selected.target, triton_options(backend, selected.target, kept).__dict__)}
        if "line_info" in chosen and "line_info" not in given and selected.target.kind != "cpu":
            chosen["line_info"] = not knobs.compilation.disable_line_info
        return selected._replace(specialization=replace(selected.specialization, options=chosen))

    def _key(self, selected: Selected) -> str:
        """A text, as Triton's keys are."""
        specialization, signature = selected.specialization, selected.signature
        parts = (
            signature.types,
            [(parameter, constant_key(value)) for parameter, value in signature.constants.items()],
            [(parameter, sorted(facts.items())) for parameter, facts in signature.attributes.items()],
            option_key(specialization.options.items()),
            selected.target.arch,
            [kind is ONE for kind in selected.kinds],
            [getattr(convert, "__qualname__", None) for _, convert in signature.converters],
            specialization.ir_override,
            self.cache_key,
        )
        return str(parts)

    def _miss(self, key: tuple[Any, ...], args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        plan = super()._miss(key, args, options)
        if plan is not None and isinstance(plan.kernel, CompiledKernel):
            plan.launcher = launcher = plan.kernel.native_launcher  # its ``run`` is Triton's launch call
            artifact = plan.kernel.artifact
            writes = artifact.code.metadata.get("writes")
            if writes:
                plan.launcher = partial(_first_launch, plan, launcher, bounds_check(plan.kernel.name, artifact.parameters, writes))
        return plan

    def _compile(self, selected: Selected, kernels: dict[Any, Any], key: Any, warmup: bool) -> Any:
        self._globals.record()
        return super()._compile(selected, kernels, key, warmup)

    def _compile_job(self, selected: Selected, executor: Executor | None = None) -> Callable[[], Any]:
        return partial(compile_artifact, selected.specialization, selected.backend, selected.target)

    def adopt(self, compiled: Any, selected: Selected) -> CompiledKernel:
        """Take over the kernel of a selection that was compiled, here or elsewhere; ``compiled`` may be a pair with the times it took."""
        artifact, times = compiled if isinstance(compiled, tuple) else (compiled, knobs.CompileTimes(0, [], 0))
        kernels, key = self._place(selected)
        found = kernels[key] = CompiledKernel(
            artifact_of(artifact),
            selected.specialization,
            selected.backend,
            selected.target,
            selected.device,
            selected.signature.converters,
            self._launch_metadata,
        )
        tell(found, times)
        return found

    def _jit_hooks(self) -> Any:
        return SimpleNamespace(jit_cache=knobs.runtime.jit_cache_hook, jit_post_compile=knobs.runtime.jit_post_compile_hook)

    def _hook(self, hook: Any, key: Any, selected: Selected, warmup: bool) -> Any:
        """Call a hook of ``triton.knobs.runtime``."""
        if hook is None:
            return None
        options = triton_options(selected.backend, selected.target, selected.specialization.options)
        types = ", ".join(f"{name}: {type_}" for name, type_ in selected.specialization.signature.items())
        shown = ", ".join(f"{name}={getattr(options, name)}" for name in ("num_warps", "num_ctas", "num_stages", "enable_fp_fusion", "launch_cooperative_grid"))
        return hook(
            key=key,
            repr=f"{self.__qualname__}[{shown}]({types})",
            fn=JitFunctionInfo(self.module, self.__qualname__, self),
            compile=hook_facts(selected, key, self._fn_name, options, warmup),
            is_manual_warmup=warmup,
            already_compiled=False,
        )

    def preload(self, specialization_data: str) -> Any:
        """Compile the specialisation that a hook was told of (``compile["specialization_data"]``), here or in another process.

        Raises:
            RuntimeError: it is of another kernel, or of another target than the one here.
        """
        check_target(specialization_data, self._fn_name)
        return super().preload(specialization_data)

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        state.pop("_globals", None)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._globals = GlobalValues(self)
        super().__setstate__(state)


_RUN = JITFunction.run


def _first_launch(plan: own.Plan, launcher: Callable[..., None], check: Callable[[Sequence[Any]], None], grid: Any, stream: Any, values: Any) -> None:
    """The first launch of a plan: refused where it is sure to write outside an argument's memory. Later launches are not looked at."""
    check(values)
    plan.launcher = launcher
    launcher(grid, stream, values)


#: Triton's options that are none of Tilewright's: accepted, part of the key, without effect on the code.
_KEPT = ALL_NAMES - {
    "num_warps",
    "num_ctas",
    "num_stages",
    "maxnreg",
    "enable_fp_fusion",
    "launch_pdl",
    "debug",
    "sanitize_overflow",
    "ir_override",
    *RENAMED,
} | {"default_dot_input_precision"}


@overload
def jit(fn: Callable[..., Any]) -> JITFunction: ...
@overload
def jit(fn: None = None, **options: Unpack[own.JitOptions]) -> Callable[[Callable[..., Any]], JITFunction]: ...
def jit(
    fn: Callable[..., Any] | None = None,
    *,
    version: Any = None,
    repr: Callable[[ReprContext], str] | None = None,
    launch_metadata: Callable[..., dict[str, Any]] | None = None,
    do_not_specialize: Sequence[int | str] | None = None,
    do_not_specialize_on_alignment: Sequence[int | str] | None = None,
    debug: bool | None = None,
    noinline: bool | None = None,
) -> JITFunction | Callable[[Callable[..., Any]], JITFunction]:
    """Make a kernel of a Python function; with ``TRITON_INTERPRET=1`` one that runs on the reference. See :func:`tilewright.jit`."""
    options: own.JitOptions = {
        "version": version,
        "repr": repr,
        "launch_metadata": launch_metadata,
        "do_not_specialize": do_not_specialize,
        "do_not_specialize_on_alignment": do_not_specialize_on_alignment,
        "debug": debug,
        "noinline": noinline,
    }

    def decorate(function: Callable[..., Any]) -> JITFunction:
        assert callable(function)
        function = function.fn if isinstance(function, JitCallable) else function
        if knobs.runtime.interpret:
            from tilewright.compat.triton.runtime.interpreter import InterpretedFunction

            return InterpretedFunction(function, **options)
        return JITFunction(function, **options)

    return decorate if fn is None else decorate(fn)


def get_full_name(fn: Callable[..., Any]) -> str:
    return f"{fn.__module__}.{fn.__qualname__}"


def get_jit_fn_file_line(fn: Any) -> tuple[str, int]:
    """The file and the line of a kernel's ``def``."""
    base = getattr(fn, "base_fn", fn)
    return base.file, base.definition_line


def convert_to_tuple_if_list(item: Any) -> Any:
    """Lists as tuples, also within lists."""
    return tuple(convert_to_tuple_if_list(inner) for inner in item) if isinstance(item, list) else item


_OUTSIDE = frozenset(
    (
        "DependenciesFinder",
        "create_function_from_signature",
        "get_def_col_number",
        "get_def_line_number",
    )
)


def __getattr__(name: str) -> Any:
    if name == "type_canonicalisation_dict":
        from tilewright.compat.triton._utils import type_canonicalisation_dict

        return type_canonicalisation_dict
    if name in _OUTSIDE:
        raise OutsideNameError(f"triton.runtime.jit.{name} is a part of Triton's launcher; Tilewright's is in tilewright.runtime")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "BoundConstexprFunction",
    "ConstexprFunction",
    "JITCallable",
    "JITFunction",
    "JitFunctionInfo",
    "KernelInterface",
    "KernelParam",
    "MockTensor",
    "TensorWrapper",
    "compute_cache_key",
    "constexpr_function",
    "convert_to_tuple_if_list",
    "find_paths_if",
    "get_full_name",
    "get_iterable_path",
    "get_jit_fn_file_line",
    "jit",
    "mangle_type",
    "native_specialize_impl",
    "reinterpret",
    "serialize_specialization_data",
]
