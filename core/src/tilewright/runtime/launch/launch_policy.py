"""Launch policy of a kind of kernels: options of launches, keys of kernels, listeners."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from typing import Any, NamedTuple

from tilewright.runtime.compiler import parallel_compile
from tilewright.runtime.compiler.kernel_definition import KernelDefinition
from tilewright.runtime.compiler.selection import Selected, key_of, select
from tilewright.runtime.devices.backend_choice import Choice, Places, first_place
from tilewright.runtime.hooks import hooks
from tilewright.runtime.launch.compiled_kernel import CompiledKernel
from tilewright.runtime.launch.device_caches import DeviceCaches
from tilewright.runtime.launch.launch_plan import Plan
from tilewright.runtime.launch.positional_launch import Converter


class JitFunctionInfo(NamedTuple):
    """The kernel's description in calls of hooks."""

    module: str
    name: str
    jit_function: KernelDefinition


class LaunchPolicy:
    """Launch policy of a kernel, here that of ``tilewright.jit``; other kinds override it.

    Each kernel has its own policy, recreated when the kernel's launch caches are cleared. It is
    consulted only by the first launch with arguments of given kinds.
    """

    __slots__ = ()

    #: Class of a kernel's ``device_caches``.
    caches: type[DeviceCaches] = DeviceCaches
    #: Constructor of a compiled kernel.
    make_kernel: Callable[..., CompiledKernel] = CompiledKernel

    def select(
        self,
        kernel: KernelDefinition,
        args: tuple[Any, ...],
        kinds: tuple[Any, ...],
        options: Mapping[str, Any],
        choice: Choice | None,
    ) -> Selected:
        """Select backend, device, options and specialization of a launch.

        See :func:`~tilewright.runtime.compiler.selection.select`.
        """
        return select(kernel, args, kinds, options, choice, self.place_among)

    def place_among(self, places: Places) -> tuple[str, int]:
        """Return the device of a launch whose arguments lie on several devices of one kind."""
        return first_place(places)

    def lasts(self, selected: Selected) -> bool:
        """Return whether later launches with the same kinds of arguments select the same kernel."""
        return True

    def key(self, selected: Selected) -> Any:
        """Return the key of a selection's kernel among those of its device."""
        return key_of(selected)

    def vetoed(self, kernel: KernelDefinition, selected: Selected, key: Any, warmup: bool) -> bool:
        """Call the hooks before a selection is compiled; return whether one of them vetoes."""
        return bool(_call_hook(hooks.jit_cache, kernel, selected, key, warmup))

    def compile_job(self, selected: Selected, executor: Executor | None) -> Callable[[], Any]:
        """Make the job that compiles a selection, here or in ``executor``, for :meth:`compiled`."""
        return parallel_compile.job(selected, executor)

    def compiled(self, kernel: KernelDefinition, result: Any, selected: Selected) -> CompiledKernel:
        """Make the compiled kernel from a compile job's result.

        The job is one of :meth:`compile_job` or of
        :func:`~tilewright.runtime.compiler.parallel_compile.job`.
        """
        return self.make_kernel(
            parallel_compile.artifact_of(result),
            selected.specialization,
            selected.backend,
            selected.target,
            selected.device,
            selected.signature.converters,
        )

    def announce(self, found: CompiledKernel, result: Any) -> None:
        """Report the kernel made from ``result`` to compilation listeners."""
        if hooks.compilation_listener is not None:
            hooks.compilation_listener(
                src=found.specialization,
                metadata=found.metadata,
                metadata_group=found.metadata_group,
                times=found.timings,
                cache_hit=found.cache_hit,
            )

    def tell_compiled(
        self, kernel: KernelDefinition, selected: Selected, key: Any, warmup: bool
    ) -> None:
        """Report to the kernel's hooks that a selection was compiled."""
        _call_hook(hooks.jit_post_compile, kernel, selected, key, warmup)

    def plan(self, kernel: CompiledKernel, converters: Sequence[Converter]) -> Plan:
        """Make the plan of launches that run a compiled kernel."""
        return Plan(kernel, kernel.run, converters)


def _call_hook(
    hook: Callable[..., Any] | None,
    kernel: KernelDefinition,
    selected: Selected,
    key: Any,
    warmup: bool,
) -> Any:
    if hook is None:
        return None
    from tilewright.runtime.compiler.specialization_data import hook_facts

    types = ", ".join(
        f"{name}: {type_}" for name, type_ in selected.specialization.signature.items()
    )
    return hook(
        key=key,
        repr=f"{kernel.__name__}({types})",
        fn=JitFunctionInfo(kernel.module, kernel.__name__, kernel),
        compile=hook_facts(selected, key, kernel.full_name, warmup),
        is_manual_warmup=warmup,
        already_compiled=False,
    )
