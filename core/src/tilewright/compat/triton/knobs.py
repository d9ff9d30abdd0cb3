"""``triton.knobs``: every setting of Triton, by its attributes and environment variables.

What each does here is in the reference page of the shim. In short: those of ``cache``, ``runtime``,
``language``, ``compilation`` and ``autotuning`` act on Tilewright; those that steer one vendor's
compiler or MLIR are kept, so that programs which set them run, and have no effect.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypedDict, TypeVar

from tilewright.compat.triton.environment import (
    Env,
    NvidiaTool,
    base_knobs,
    env,
    env_base,
    env_bool,
    env_class,
    env_int,
    env_nvidia_tool,
    env_opt_bool,
    env_opt_nvidia_tool,
    env_opt_str,
    env_str,
    env_str_callable_default,
    setenv,
    toenv,
)
from tilewright.runtime import hooks as _hooks

#: Whether assigning a setting sets its environment variable too.
propagate_env: bool = True

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class CompileTimes:
    """Times of one compilation, in microseconds.

    Attributes:
        ir_initialization: the frontend.
        lowering_stages: (stage, time) in order.
        store_results: keeping the result.
    """

    ir_initialization: int
    lowering_stages: list[tuple[str, int]]
    store_results: int

    @property
    def total_lowering(self) -> int:
        return sum(taken for _, taken in self.lowering_stages)

    @property
    def total(self) -> int:
        return self.ir_initialization + self.total_lowering + self.store_results


class HookChain(_hooks.HookChain, Generic[F]):
    """Functions that are called in order of addition, or in the reverse order."""

    __slots__ = ()

    def __init__(self, reversed: bool = False) -> None:
        super().__init__(reverse=reversed)

    @property
    def reversed(self) -> bool:
        return self.reverse

    def add(self, func: Callable[..., Any]) -> None:
        super().add(func)

    def remove(self, func: Callable[..., Any]) -> None:
        super().remove(func)

    @classmethod
    def _of(cls, chain: _hooks.HookChain) -> HookChain[Any]:
        """The chain under Triton's interface: the same list of functions, which launchers hold."""
        found = cls(chain.reverse)
        found.calls = chain.calls
        return found


class CompilationListener(Protocol):
    """Called after each compilation, and for each kernel found in the disk cache."""

    def __call__(
        self,
        *,
        src: Any,
        metadata: dict[str, Any],
        metadata_group: dict[str, Any],
        times: CompileTimes,
        cache_hit: bool,
    ) -> None: ...


class AutotuneListener(Protocol):
    """A listener called after each tuning.

    ``duration`` is in seconds; None for a result that was found on disk.
    """

    def __call__(
        self,
        *,
        fn: Any,
        key: Any,
        best_config: Any,
        configs_timings: Any,
        duration: float | None,
        cache_hit: bool,
    ) -> None: ...


class LaunchHook(Protocol):
    """Called around a launch with its metadata."""

    def __call__(self, metadata: Any) -> None: ...


class InitHandleHook(Protocol):
    """Called around loading a kernel on a device."""

    def __call__(
        self, module: Any, function: Any, name: str, metadata_group: dict[str, str], hash: str
    ) -> None: ...


class JITHookCompileInfo(TypedDict):
    """Data for hooks of a compilation."""

    key: Any
    signature: dict[str, Any]
    device: int
    constants: dict[tuple[int, ...], Any]
    num_warps: int
    num_ctas: int
    num_stages: int
    enable_fp_fusion: bool
    launch_cooperative_grid: bool
    extern_libs: tuple[tuple[str, str], ...]
    configs: list[dict[tuple[int, ...], list[Any]]]
    specialization_data: str
    is_warmup: bool


class JITHook(Protocol):
    """Called before a compilation, where a true result vetoes it, or after."""

    def __call__(
        self,
        *,
        key: Any,
        repr: str,
        fn: Any,
        compile: JITHookCompileInfo,
        is_manual_warmup: bool,
        already_compiled: bool,
    ) -> bool | None: ...


class PipelineStagesHook(Protocol):
    """Told the stages of a compilation."""

    def __call__(self, stages: Any, options: Any, language: Any, capability: Any) -> Any: ...


class BuildImpl(Protocol):
    """Compiles C to an extension module; gives its path."""

    def __call__(
        self,
        name: str,
        src: str,
        srcdir: str,
        library_dirs: list[str],
        include_dirs: list[str],
        libraries: list[str],
        /,
    ) -> str: ...


class build_knobs(base_knobs):  # noqa: N801 (Triton's names)
    """Settings of compiling C code (``triton.runtime.build``)."""

    cc = env_opt_str("CC")
    cudacrt_path = env_opt_str("TRITON_CUDACRT_PATH")
    cudart_path = env_opt_str("TRITON_CUDART_PATH")
    impl: BuildImpl | None = None

    @property
    def backend_dirs(self) -> set[str]:
        return {path for path in (self.cudacrt_path, self.cudart_path) if path is not None}


class redis_knobs(base_knobs):  # noqa: N801
    """The server of ``RedisRemoteCacheBackend``."""

    key_format = env_str("TRITON_REDIS_KEY_FORMAT", "triton:{key}:{filename}")
    host = env_str("TRITON_REDIS_HOST", "localhost")
    port = env_int("TRITON_REDIS_PORT", 6379)


def _triton_dir(name: str) -> str:
    """A directory of the settings that are in force, which tests replace."""
    return cache.get_triton_dir(name)


class cache_knobs(base_knobs):  # noqa: N801
    """Where compiled kernels are kept."""

    home_dir = env_str("TRITON_HOME", os.path.expanduser("~/"))
    dump_dir = env_str_callable_default("TRITON_DUMP_DIR", lambda: _triton_dir("dump"))
    override_dir = env_str_callable_default("TRITON_OVERRIDE_DIR", lambda: _triton_dir("override"))
    dir = env_str_callable_default("TRITON_CACHE_DIR", lambda: _triton_dir("cache"))
    manager_class = env_class("TRITON_CACHE_MANAGER", "CacheManager")
    remote_manager_class = env_class("TRITON_REMOTE_CACHE_BACKEND", "RemoteCacheBackend")

    def get_triton_dir(self, dirname: str) -> str:
        return os.path.join(self.home_dir, ".triton", dirname)


class compilation_knobs(base_knobs):  # noqa: N801
    """Settings of compiling kernels."""

    override = env_bool("TRITON_KERNEL_OVERRIDE")
    dump_ir = env_bool("TRITON_KERNEL_DUMP")
    dump_ir_extract_di_local_variables = env_bool("LLVM_EXTRACT_DI_LOCAL_VARIABLES")
    store_binary_only = env_bool("TRITON_STORE_BINARY_ONLY")
    always_compile = env_bool("TRITON_ALWAYS_COMPILE")
    use_ir_loc = env_opt_str("USE_IR_LOC")
    enable_asan = env_bool("TRITON_ENABLE_ASAN")
    disable_line_info = env_bool("TRITON_DISABLE_LINE_INFO")
    front_end_debugging = env_bool("TRITON_FRONT_END_DEBUGGING")
    allow_non_constexpr_globals = env_bool("TRITON_ALLOW_NON_CONSTEXPR_GLOBALS")
    fpsan_homomorphic_casts = env_bool("TRITON_FPSAN_HOMOMORPHIC_CASTS")
    instrumentation_mode: str = env_str("TRITON_INSTRUMENTATION_MODE", "").get()
    listener: CompilationListener | None = None


class autotuning_knobs(base_knobs):  # noqa: N801
    """Settings of the cache and output of tuning."""

    cache = env_bool("TRITON_CACHE_AUTOTUNING")
    print = env_bool("TRITON_PRINT_AUTOTUNING")
    listener: AutotuneListener | None = None


class runtime_knobs(base_knobs):  # noqa: N801
    """Where kernels run, and who is told."""

    interpret = env_bool("TRITON_INTERPRET")
    #: read once: it is looked at before each launch
    debug: bool = env_bool("TRITON_DEBUG").get()
    override_arch = env_opt_str("TRITON_OVERRIDE_ARCH")

    launch_enter_hook: HookChain[LaunchHook] = HookChain._of(_hooks.hooks.launch_enter)
    launch_exit_hook: HookChain[LaunchHook] = HookChain._of(_hooks.hooks.launch_exit)
    kernel_load_start_hook: HookChain[InitHandleHook] = HookChain._of(
        _hooks.hooks.kernel_load_start
    )
    kernel_load_end_hook: HookChain[InitHandleHook] = HookChain._of(_hooks.hooks.kernel_load_end)
    kernel_unload_hook: HookChain[InitHandleHook] = HookChain._of(_hooks.hooks.kernel_unload)
    jit_cache_hook: JITHook | None = None
    jit_post_compile_hook: JITHook | None = None
    add_stages_inspection_hook: PipelineStagesHook | None = None


class language_knobs(base_knobs):  # noqa: N801
    """Defaults of the language."""

    fp32_default = env_opt_str("TRITON_F32_DEFAULT")
    default_fp_fusion = env_bool("TRITON_DEFAULT_FP_FUSION", True)
    force_disable_fp_fusion = env_bool("TRITON_FORCE_DISABLE_FP_FUSION")

    def fp_fusion_enabled(self, requested: bool | None) -> bool:
        """Return whether multiply-add is fused: what a launch requested, or the default."""
        if self.force_disable_fp_fusion:
            return False
        return self.default_fp_fusion if requested is None else bool(requested)


class nvidia_knobs(base_knobs):  # noqa: N801
    """NVIDIA's tools, and switches of Triton's compiler for its GPUs."""

    cuobjdump = env_nvidia_tool("cuobjdump")
    nvdisasm = env_opt_nvidia_tool("nvdisasm")
    ptxas = env_nvidia_tool("ptxas")
    ptxas_blackwell = env_nvidia_tool("ptxas-blackwell")
    dump_nvptx = env_bool("NVPTX_ENABLE_DUMP")
    disable_ptxas_opt = env_bool("DISABLE_PTXAS_OPT")
    ptxas_options = env_opt_str("PTXAS_OPTIONS")
    mock_ptx_version = env_opt_str("TRITON_MOCK_PTX_VERSION")
    dump_ptxas_log = env_bool("TRITON_DUMP_PTXAS_LOG")
    libdevice_path = env_opt_str("TRITON_LIBDEVICE_PATH")
    libcuda_path = env_opt_str("TRITON_LIBCUDA_PATH")


class amd_knobs(base_knobs):  # noqa: N801
    """Switches of Triton's compiler for AMD's GPUs."""

    use_buffer_ops = env_bool("AMDGCN_USE_BUFFER_OPS", True)
    use_buffer_atomics = env_bool("AMDGCN_USE_BUFFER_ATOMICS", True)
    buffer_ops_analyze_small_tensor_range = env_bool("AMDGCN_ANALYZE_SMALL_TENSOR_RANGE")
    dump_amdgcn = env_bool("AMDGCN_ENABLE_DUMP")
    libhip_path = env_opt_str("TRITON_LIBHIP_PATH")
    use_block_pingpong = env_opt_bool("TRITON_HIP_USE_BLOCK_PINGPONG")
    use_in_thread_transpose = env_opt_bool("TRITON_HIP_USE_IN_THREAD_TRANSPOSE")
    use_async_copy = env_bool("TRITON_HIP_USE_ASYNC_COPY")
    scalarize_packed_fops = env_bool("AMDGCN_SCALARIZE_PACKED_FOPS")
    global_prefetch = env_int("TRITON_HIP_GLOBAL_PREFETCH")
    local_prefetch = env_int("TRITON_HIP_LOCAL_PREFETCH")
    use_coexec_scheduler = env_opt_bool("TRITON_HIP_USE_COEXEC_SCHEDULER")
    use_expert_scheduling = env_bool("TRITON_HIP_USE_EXPERT_SCHEDULING")
    dump_mir = env_opt_str("TRITON_DUMP_MIR")
    swap_mir = env_opt_str("TRITON_SWAP_MIR")
    swap_mir_enable_misched = env_bool("TRITON_SWAP_MIR_ENABLE_MISCHED")


class proton_knobs(base_knobs):  # noqa: N801
    """Settings of :mod:`tilewright.compat.triton.profiler`.

    ``disable`` records nothing, ``enable_nvtx`` makes scopes NVTX ranges too.
    """

    disable = env_bool("TRITON_PROTON_DISABLE")
    cupti_lib_dir = env_opt_str("TRITON_CUPTI_LIB_PATH")
    enable_nvtx = env_bool("TRITON_ENABLE_NVTX", True)


build = build_knobs()
redis = redis_knobs()
cache = cache_knobs()
compilation = compilation_knobs()
autotuning = autotuning_knobs()
runtime = runtime_knobs()
language = language_knobs()
nvidia = nvidia_knobs()
amd = amd_knobs()
proton = proton_knobs()


def refresh_knobs() -> None:
    """Read again what is read from the environment only once."""
    runtime.debug = env_bool("TRITON_DEBUG").get()
    compilation.instrumentation_mode = env_str("TRITON_INSTRUMENTATION_MODE", "").get()


__all__ = [
    "AutotuneListener",
    "BuildImpl",
    "CompilationListener",
    "CompileTimes",
    "Env",
    "HookChain",
    "InitHandleHook",
    "JITHook",
    "JITHookCompileInfo",
    "LaunchHook",
    "NvidiaTool",
    "PipelineStagesHook",
    "amd",
    "amd_knobs",
    "autotuning",
    "autotuning_knobs",
    "base_knobs",
    "build",
    "build_knobs",
    "cache",
    "cache_knobs",
    "compilation",
    "compilation_knobs",
    "env",
    "env_base",
    "env_bool",
    "env_class",
    "env_int",
    "env_nvidia_tool",
    "env_opt_bool",
    "env_opt_str",
    "env_str",
    "env_str_callable_default",
    "language",
    "language_knobs",
    "nvidia",
    "nvidia_knobs",
    "propagate_env",
    "proton",
    "proton_knobs",
    "redis",
    "redis_knobs",
    "refresh_knobs",
    "runtime",
    "runtime_knobs",
    "setenv",
    "toenv",
]
