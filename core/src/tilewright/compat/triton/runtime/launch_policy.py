"""Launch policies of Triton's launch contract: options, keys, hooks and listeners."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from functools import partial
from typing import Any

from tilewright.compat.triton import knobs
from tilewright.compat.triton.backends.instrumentation import EXACT_MODE, sanitized
from tilewright.compat.triton.backends.options import (
    ALL_NAMES,
    RENAMED,
    frozen,
    names_of,
    require_clusters,
)
from tilewright.compat.triton.backends.targets import target_for
from tilewright.compat.triton.backends.torch_devices import current_device
from tilewright.compat.triton.compiler.compiled import CompiledKernel, tell
from tilewright.compat.triton.compiler.options import language_options, triton_options
from tilewright.compat.triton.compiler.pipeline import compile_artifact
from tilewright.compat.triton.runtime.device_caches import TritonDeviceCaches
from tilewright.compat.triton.runtime.global_values import GlobalValues
from tilewright.compat.triton.runtime.placement import choice_without_arrays, has_arrays
from tilewright.compat.triton.runtime.specialization_data import hook_facts
from tilewright.runtime.arguments.bounds_check import bounds_check
from tilewright.runtime.compiler.kernel_definition import KernelDefinition
from tilewright.runtime.compiler.selection import Selected
from tilewright.runtime.compiler.specialize import ONE, constant_key, of_one_float
from tilewright.runtime.devices.backend_choice import (
    Choice,
    DeviceError,
    Places,
    environment_choice,
)
from tilewright.runtime.launch import compiled_kernel as own
from tilewright.runtime.launch.jit import JITFunction
from tilewright.runtime.launch.launch_plan import Plan
from tilewright.runtime.launch.launch_policy import JitFunctionInfo, LaunchPolicy
from tilewright.runtime.launch.positional_launch import Converter
from tilewright.runtime.options import option_key, refusal


class TritonPolicy(LaunchPolicy):
    """The policy of one kernel.

    Attributes:
        mutable: the constants, of those that the kernel was compiled with, whose values can be set;
            see :class:`GlobalValues`.
    """

    __slots__ = ("_globals", "mutable")

    caches = TritonDeviceCaches
    make_kernel = CompiledKernel.of

    def __init__(self) -> None:
        self._globals = GlobalValues()
        self.mutable = self._globals.mutable

    def check_globals(self) -> None:
        """Raise RuntimeError if a constexpr has another value than the kernel was compiled with."""
        self._globals.check()

    def select(
        self,
        kernel: KernelDefinition,
        args: tuple[Any, ...],
        kinds: tuple[Any, ...],
        options: Mapping[str, Any],
        choice: Choice | None,
    ) -> Selected:
        """As in Tilewright, with Triton's options.

        Raises:
            AssertionError: ``num_warps`` is no power of two.
            UnknownOptionError: an option is unknown for the backend.
            ValueError: tensors lie where the kernel cannot reach them.
            BackendError: the backend has no code for ``knobs.runtime.override_arch``.
        """
        kinds = of_one_float(kinds)
        given = dict(options)
        own_debug = given.pop("debug", None)
        given["debug"] = bool(
            (kernel.debug if own_debug is None else own_debug) or knobs.runtime.debug
        )
        for theirs, ours in RENAMED.items():
            if theirs in given and theirs != "default_dot_input_precision":
                given[ours] = given.pop(theirs)
        kept = {name: frozen(given.pop(name)) for name in list(given) if name in _KEPT}
        if (
            choice is None
            and "backend" not in given
            and not has_arrays(kinds)
            and environment_choice() is None
        ):
            assert isinstance(kernel, JITFunction)
            choice = choice_without_arrays(kernel)
        if kept.get("instrumentation_mode") == EXACT_MODE:
            choice = sanitized(choice)
        given.setdefault("enable_fp_fusion", None)
        given["enable_fp_fusion"] = knobs.language.fp_fusion_enabled(given["enable_fp_fusion"])
        try:
            selected = super().select(kernel, args, kinds, given, choice)
        except DeviceError as error:
            raise DeviceError(
                f"Pointer argument cannot be accessed from Triton (cpu tensor?). {error}"
            ) from None
        backend = selected.backend
        if knobs.runtime.override_arch:
            selected = selected._replace(target=target_for(backend, selected.target))
        warps = selected.specialization.options.get("num_warps")
        if isinstance(warps, int) and warps & (warps - 1):
            raise AssertionError(f"num_warps must be a power of 2, not {warps}")
        require_clusters(
            selected.target.kind,
            kept.get("arch") or selected.target.arch,
            selected.specialization.options.get("num_ctas"),
        )
        known = names_of(selected.target.kind)
        for name in kept:
            if name not in known:
                raise refusal(backend, kernel.__name__, name, kernel.arg_names, known & _KEPT)
        chosen = {
            **selected.specialization.options,
            **_other_than_default(kept, triton_options(backend, selected.target, {}).__dict__),
            **language_options(
                selected.target, triton_options(backend, selected.target, kept).__dict__
            ),
        }
        if "line_info" in chosen and "line_info" not in given and selected.target.kind != "cpu":
            chosen["line_info"] = not knobs.compilation.disable_line_info
        return selected._replace(specialization=replace(selected.specialization, options=chosen))

    def place_among(self, places: Places) -> tuple[str, int]:
        """The active device, as for Triton's launches."""
        kind, _ = next(iter(places))
        return kind, current_device(kind)

    def lasts(self, selected: Selected) -> bool:
        """Not where it is the active device's, of several, which may be another one next time."""
        return len(selected.signature.devices) < 2

    def key(self, selected: Selected) -> str:
        """Return a text, as Triton's keys are.

        It begins with a pair of each parameter, whose constants programs read from it.
        """
        specialization, signature = selected.specialization, selected.signature
        parts = (
            [
                _pair(type_, signature.constants.get(name), signature.attributes.get(name))
                for name, type_ in signature.types.items()
            ],
            [(parameter, constant_key(value)) for parameter, value in signature.constants.items()],
            [
                (parameter, sorted(facts.items()))
                for parameter, facts in signature.attributes.items()
            ],
            option_key(specialization.options.items()),
            selected.target.arch,
            [kind is ONE for kind in selected.kinds],
            [getattr(convert, "__qualname__", None) for _, convert in signature.converters],
            specialization.ir_override,
            specialization.fn.cache_key,
            *([] if specialization.before_passes is None else [specialization.before_passes.name]),
        )
        return str(parts)

    def vetoed(self, kernel: KernelDefinition, selected: Selected, key: Any, warmup: bool) -> bool:
        self._globals.record(kernel)
        return bool(_call_hook(knobs.runtime.jit_cache_hook, kernel, selected, key, warmup))

    def tell_compiled(
        self, kernel: KernelDefinition, selected: Selected, key: Any, warmup: bool
    ) -> None:
        _call_hook(knobs.runtime.jit_post_compile_hook, kernel, selected, key, warmup)

    def compile_job(self, selected: Selected, executor: Executor | None) -> Callable[[], Any]:
        """Return the function that compiles a selection, and returns the times with it."""
        return partial(compile_artifact, selected.specialization, selected.backend, selected.target)

    def compiled(
        self, kernel: KernelDefinition, result: Any, selected: Selected
    ) -> own.CompiledKernel:
        return super().compiled(kernel, _artifact_and_times(result)[0], selected)

    def announce(self, found: own.CompiledKernel, result: Any) -> None:
        assert isinstance(found, CompiledKernel)
        tell(found, _artifact_and_times(result)[1])

    def plan(self, kernel: own.CompiledKernel, converters: Sequence[Converter]) -> Plan:
        if not isinstance(kernel, CompiledKernel):
            return super().plan(kernel, converters)
        # its ``run`` is Triton's launch call
        plan = Plan(kernel, kernel.native_launcher, converters)
        writes = kernel.artifact.code.metadata.get("writes")
        if writes:
            plan.settled = False
            plan.launcher = partial(
                _first_launch,
                plan,
                plan.launcher,
                bounds_check(kernel.name, kernel.artifact.parameters, writes),
            )
        return plan


def _pair(type_: Any, constant: Any, facts: Mapping[str, Any] | None) -> tuple[Any, Any]:
    """Return (type, assumption) of a parameter, as in Triton's keys.

    A constant is assumed to be itself.
    """
    if type_ == "constexpr":
        return type_, constant if isinstance(constant, bool | int | float | str) else constant_key(
            constant
        )
    return type_, "D" if facts else None


def _other_than_default(kept: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options other than their default.

    Programs that ask for the key of a launch pass options that the launch itself omits.
    """
    return {name: value for name, value in kept.items() if value != defaults.get(name)}


def _artifact_and_times(result: Any) -> tuple[Any, knobs.CompileTimes]:
    """Return a job's artifact and times, which jobs of Tilewright do not report."""
    return result if isinstance(result, tuple) else (result, knobs.CompileTimes(0, [], 0))


def _first_launch(
    plan: Plan,
    launcher: Callable[..., None],
    check: Callable[[Sequence[Any]], None],
    grid: Any,
    stream: Any,
    values: Any,
) -> None:
    """Launch a plan for the first time: refuse sure writes outside an argument's memory.

    Later launches are not checked.
    """
    check(values)
    plan.launcher, plan.settled = launcher, True
    launcher(grid, stream, values)


def _call_hook(
    hook: Callable[..., Any] | None,
    kernel: KernelDefinition,
    selected: Selected,
    key: Any,
    warmup: bool,
) -> Any:
    """Call a hook of ``triton.knobs.runtime``."""
    if hook is None:
        return None
    options = triton_options(selected.backend, selected.target, selected.specialization.options)
    types = ", ".join(
        f"{name}: {type_}" for name, type_ in selected.specialization.signature.items()
    )
    shown = ", ".join(
        f"{name}={getattr(options, name)}"
        for name in (
            "num_warps",
            "num_ctas",
            "num_stages",
            "enable_fp_fusion",
            "launch_cooperative_grid",
        )
    )
    return hook(
        key=key,
        repr=f"{kernel.__qualname__}[{shown}]({types})",
        fn=JitFunctionInfo(kernel.module, kernel.__qualname__, kernel),
        compile=hook_facts(selected, key, kernel.full_name, options, warmup),
        is_manual_warmup=warmup,
        already_compiled=False,
    )


#: Triton's options that are none of Tilewright's: accepted, part of the key, without effect on the
#: code.
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
