"""``triton.runtime.jit``: kernels with Triton's launch contract.

They are kernels of Tilewright. What differs: TF32 products where the target has them, Triton's
launch options, hooks and listeners of ``triton.knobs``, compiled kernels with Triton's attributes,
and the place of kernels without tensors (:mod:`.placement`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Unpack, overload

from tilewright.compat.triton import knobs
from tilewright.compat.triton._utils import find_paths_if, get_iterable_path
from tilewright.compat.triton.backends.compiler import BaseBackend
from tilewright.compat.triton.backends.instrumentation import EXACT_MODE
from tilewright.compat.triton.backends.targets import target_of
from tilewright.compat.triton.outside import OutsideNameError
from tilewright.compat.triton.runtime.binding import (
    TritonBinder,
    compute_cache_key,
    serialize_specialization_data,
)
from tilewright.compat.triton.runtime.launch_policy import JitFunctionInfo, TritonPolicy
from tilewright.compat.triton.runtime.specialization_data import check_target
from tilewright.compat.triton.runtime.specialize import mangle_type, native_specialize_impl
from tilewright.language.definitions.callable import (
    BoundConstexprFunction,
    ConstexprFunction,
    FunctionParameter,
    JitCallable,
    constexpr_function,
)
from tilewright.plugins.manifest import Target
from tilewright.plugins.registry import Backend
from tilewright.runtime.arguments.mock_tensors import MockTensor, TensorWrapper, reinterpret
from tilewright.runtime.compiler.kernel_definition import PortableJitOptions, ReprContext
from tilewright.runtime.compiler.parallel_compile import collecting
from tilewright.runtime.launch import jit as own
from tilewright.runtime.launch.device_caches import KernelCache
from tilewright.runtime.launch.kernel_interface import KernelInterface

JITCallable = JitCallable
KernelParam = FunctionParameter


class JITFunction(own.JITFunction):
    """A kernel, made by :func:`jit`."""

    kernel: Any = None
    policy_class = TritonPolicy
    policy: TritonPolicy

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

    # -- description

    def _relocate(self, **places: Any) -> None:
        self._source.relocate(**places)
        self.hash = None

    #: Where the source is said to be written: programs that write kernels from others' texts say
    #: those others' places.
    raw_src = property(
        lambda self: self._source.raw_lines, lambda self, lines: self._relocate(raw_lines=lines)
    )
    starting_line_number = property(
        lambda self: self._source.first_line, lambda self, line: self._relocate(first_line=line)
    )
    file_name = property(
        lambda self: self._source.file, lambda self, file: self._relocate(file=file)
    )
    def_file_line_number = property(
        lambda self: self._source.definition_line,
        lambda self, line: self._relocate(definition_line=line),
    )
    def_file_col_number = property(
        lambda self: self._source.indent + 1, lambda self, column: self._relocate(indent=column - 1)
    )

    def is_gluon(self) -> bool:
        """Return whether the kernel is written in Gluon: never."""
        return False

    def get_capture_scope(self) -> dict[str, Any]:
        """The globals and captured variables that the kernel may read."""
        return {**self.__globals__, **self.nonlocals}

    def create_binder(self) -> tuple[dict[Any, Any], dict[Any, Any], Any, Any, Callable[..., Any]]:
        """Return (kernels, keys, target, compiler, binder) for the active driver.

        See :class:`.binding.TritonBinder`.
        """
        from tilewright.compat.triton.compiler.choice import make_backend
        from tilewright.compat.triton.runtime.driver import driver

        target = driver.active.get_current_target()
        return {}, {}, target, make_backend(target), self._triton_binder()

    def _triton_binder(self) -> TritonBinder:
        return TritonBinder(self.params, self.bind, self.key_of_launch)

    def device_entry(
        self, backend: Backend, target: Target
    ) -> tuple[KernelCache, dict[Any, Any], Any, Any, Any]:
        from tilewright.compat.triton.compiler.options import compiler_of

        return (
            KernelCache(self),
            {},
            target_of(target),
            compiler_of(backend, target),
            self._triton_binder(),
        )

    def _pack_args(
        self,
        backend: BaseBackend,
        kwargs: Mapping[str, Any],
        bound_args: Mapping[str, Any],
        specialization: Sequence[tuple[Any, Any]],
        options: Any,
    ) -> tuple[Any, dict[str, Any], dict[tuple[int, ...], Any], dict[tuple[int, ...], Any]]:
        """Return the inputs of :attr:`ASTSource` and :attr:`compile` for a bound launch.

        ``binder`` of ``device_caches`` bound it.

        Args:
            backend: the compiler that ``device_caches`` has beside the binder.
            kwargs: the launch's keywords.
            bound_args, specialization, options: what the binder gave; of the options those in
                ``kwargs`` count.

        Returns:
            (all options, {parameter: type}, {path: constant}, {path: what is assumed}); a path has
            the position of a parameter, and those of items within.

        Raises:
            KeyError: a keyword is neither a parameter nor an option.
        """
        every = backend.parse_options(dict(kwargs))
        types = [type_ for type_, _ in specialization]
        assumed = [letters for _, letters in specialization]
        signature = dict(zip(self.arg_names, types, strict=True))
        for name in kwargs:
            if name not in every.__dict__ and name not in signature:
                raise KeyError(f"Keyword argument {name} was specified but unrecognised")
        values = list(bound_args.values())
        constants = {
            path: get_iterable_path(values, path)
            for path in find_paths_if(types, lambda _, type_: type_ == "constexpr")
        }
        attributes = {
            path: backend.parse_attr(get_iterable_path(assumed, path))
            for path in find_paths_if(assumed, lambda _, letters: isinstance(letters, str))
            if path not in constants
        }
        return every, signature, constants, attributes

    def key_of_launch(self, args: tuple[Any, ...], keywords: dict[str, Any]) -> str:
        """Return the key, among those of its device, of the kernel that a launch runs."""
        return self.policy.key(self.selected(args, keywords))

    # -- ahead of launches

    @property
    def ASTSource(self) -> Any:  # noqa: N802
        """``triton.compiler.ASTSource``, for those who compile with what ``device_caches`` has."""
        from tilewright.compat.triton.compiler.sources import ASTSource

        return ASTSource

    @property
    def CompiledKernel(self) -> Any:  # noqa: N802
        """``triton.compiler.CompiledKernel``."""
        from tilewright.compat.triton.compiler.compiled import CompiledKernel

        return CompiledKernel

    @property
    def compile(self) -> Callable[..., Any]:
        """``triton.compile``."""
        from tilewright.compat.triton.compiler.compiler import compile

        return compile

    @property
    def type(self) -> Any:
        from tilewright.language.core import constexpr_type

        return constexpr_type(self)

    # -- launching

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError(
            f"Cannot call @triton.jit'd outside of the scope of a kernel: launch {self.__name__} "
            f"on a grid, {self.__name__}[grid](...)"
        )

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        kind = type(self)
        # a subclass's, or one that a program has put in its place
        if kind.run is not kind._own_run or "run" in self.__dict__:
            return partial(self.run, grid=grid, warmup=False)
        if knobs.runtime.debug or knobs.compilation.instrumentation_mode or self.policy.mutable:
            return partial(self._launch_checked, grid)
        dispatcher = self._dispatcher  # as in the class above: each call counts here
        if dispatcher is None or dispatcher.native is None or self.pre_run_hooks:
            return super().__getitem__(grid)
        return partial(dispatcher.native, grid)

    def launch_function(self) -> Callable[..., Any] | None:
        kind, dispatcher = type(self), self._dispatcher
        if (
            kind.run is not kind._own_run
            or "run" in self.__dict__
            or knobs.runtime.debug
            or knobs.compilation.instrumentation_mode
            or self.policy.mutable
        ):
            return None
        if dispatcher is None or self.pre_run_hooks or kind.__getitem__ is not _GET_ITEM:
            return None
        return dispatcher.native

    def run(self, *args: Any, grid: Any, warmup: bool = False, **kwargs: Any) -> Any:
        """See :meth:`tilewright.runtime.launch.jit.JITFunction.run`.

        Launches call this method where a subclass or a program has replaced it.
        """
        return (
            self.compile_only(*args, grid=grid, **kwargs)
            if warmup
            else self.launch_on(grid)(*args, **kwargs)
        )

    _own_run = run

    def launch_on(self, grid: Any) -> Callable[..., Any]:
        """Return the function that launches on a grid, without calling :meth:`run`."""
        if knobs.runtime.debug or knobs.compilation.instrumentation_mode or self.policy.mutable:
            return partial(self._launch_checked, grid)
        return super().__getitem__(grid)

    def warmup(self, *args: Any, grid: Any = (1,), **kwargs: Any) -> Any:
        kind = type(self)
        if kind.run is not kind._own_run or "run" in self.__dict__:
            return self.run(*args, grid=grid, warmup=True, **kwargs)
        return self.compile_only(*args, grid=grid, **kwargs)

    def compile_only(self, *args: Any, grid: Any, **kwargs: Any) -> Any:
        """Compile as warm-ups do, without calling :meth:`run`."""
        _add_instrumentation_mode(kwargs)
        if (knobs.runtime.debug or self.policy.mutable) and collecting.get() is None:
            return self.warm_up((1,), *args, **kwargs)
        return super().warmup(*args, grid=grid, **kwargs)

    def _launch_checked(self, grid: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Launch with facts that cannot be part of a plan's key.

        They are the debug switch and the instrumentation mode of the process, and constants that
        may change their value in place.
        """
        self.policy.check_globals()
        if knobs.runtime.debug:
            kwargs["debug"] = True
        _add_instrumentation_mode(kwargs)
        return super().__getitem__(grid)(*args, **kwargs)

    def preload(self, specialization_data: str) -> Any:
        """Compile the specialisation of a hook's data (``compile["specialization_data"]``).

        The data may be of this or of another process.

        Raises:
            RuntimeError: it is of another kernel, or of another target than the one here.
        """
        check_target(specialization_data, self.full_name)
        return super().preload(specialization_data)


_GET_ITEM = JITFunction.__getitem__


def _add_instrumentation_mode(options: dict[str, Any]) -> None:
    """Add the option of ``triton.knobs`` that changes code; other modes have no effect."""
    if knobs.compilation.instrumentation_mode == EXACT_MODE:
        options.setdefault("instrumentation_mode", EXACT_MODE)


@overload
def jit(fn: Callable[..., Any]) -> JITFunction: ...
@overload
def jit(
    fn: None = None, **options: Unpack[PortableJitOptions]
) -> Callable[[Callable[..., Any]], JITFunction]: ...
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
    """Make a kernel of a Python function; see :func:`tilewright.jit`.

    With ``TRITON_INTERPRET=1`` it runs on the reference.
    """
    options: PortableJitOptions = {
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
    base = getattr(fn, "base_kernel", fn)
    return base.file, base.definition_line


def convert_to_tuple_if_list(item: Any) -> Any:
    """Lists as tuples, also within lists."""
    return (
        tuple(convert_to_tuple_if_list(inner) for inner in item) if isinstance(item, list) else item
    )


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
        raise OutsideNameError(
            f"triton.runtime.jit.{name} is a part of Triton's launcher; Tilewright's is in "
            "tilewright.runtime"
        )
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
