"""``triton.knobs``: settings that are attributes and environment variables at once."""

# The names of the shim are not known to a checker of types.
# mypy: ignore-errors

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tilewright_conformance.api_coverage.machines import Machine
from tilewright_conformance.api_coverage.probe import add_probe, probe
from tilewright_conformance.api_coverage.shim import shim

#: setting -> (environment variable, text in the environment, what that reads as, another value and
#: its text)
_ON = ("1", True, False, "0")
_TEXT = ("probe", "probe", "other", "other")
SETTINGS: dict[str, tuple[str, str, Any, Any, str]] = {
    **{
        f"build.{name}": (variable, *_TEXT)
        for name, variable in {
            "cc": "CC",
            "cudacrt_path": "TRITON_CUDACRT_PATH",
            "cudart_path": "TRITON_CUDART_PATH",
        }.items()
    },
    "redis.key_format": ("TRITON_REDIS_KEY_FORMAT", *_TEXT),
    "redis.host": ("TRITON_REDIS_HOST", *_TEXT),
    "redis.port": ("TRITON_REDIS_PORT", "77", 77, 78, "78"),
    "cache.home_dir": ("TRITON_HOME", *_TEXT),
    "cache.dir": ("TRITON_CACHE_DIR", *_TEXT),
    "cache.dump_dir": ("TRITON_DUMP_DIR", *_TEXT),
    "cache.override_dir": ("TRITON_OVERRIDE_DIR", *_TEXT),
    "compilation.override": ("TRITON_KERNEL_OVERRIDE", *_ON),
    "compilation.dump_ir": ("TRITON_KERNEL_DUMP", *_ON),
    "compilation.dump_ir_extract_di_local_variables": ("LLVM_EXTRACT_DI_LOCAL_VARIABLES", *_ON),
    "compilation.store_binary_only": ("TRITON_STORE_BINARY_ONLY", *_ON),
    "compilation.always_compile": ("TRITON_ALWAYS_COMPILE", *_ON),
    "compilation.use_ir_loc": ("USE_IR_LOC", *_TEXT),
    "compilation.enable_asan": ("TRITON_ENABLE_ASAN", *_ON),
    "compilation.disable_line_info": ("TRITON_DISABLE_LINE_INFO", *_ON),
    "compilation.front_end_debugging": ("TRITON_FRONT_END_DEBUGGING", *_ON),
    "compilation.allow_non_constexpr_globals": ("TRITON_ALLOW_NON_CONSTEXPR_GLOBALS", *_ON),
    "autotuning.cache": ("TRITON_CACHE_AUTOTUNING", *_ON),
    "autotuning.print": ("TRITON_PRINT_AUTOTUNING", *_ON),
    "runtime.interpret": ("TRITON_INTERPRET", *_ON),
    "runtime.override_arch": ("TRITON_OVERRIDE_ARCH", *_TEXT),
    "language.fp32_default": ("TRITON_F32_DEFAULT", "ieee", "ieee", "tf32", "tf32"),
    "language.default_fp_fusion": ("TRITON_DEFAULT_FP_FUSION", "0", False, True, "1"),
    "nvidia.dump_nvptx": ("NVPTX_ENABLE_DUMP", *_ON),
    "nvidia.disable_ptxas_opt": ("DISABLE_PTXAS_OPT", *_ON),
    "nvidia.ptxas_options": ("PTXAS_OPTIONS", *_TEXT),
    "nvidia.mock_ptx_version": ("TRITON_MOCK_PTX_VERSION", *_TEXT),
    "nvidia.libdevice_path": ("TRITON_LIBDEVICE_PATH", *_TEXT),
    "nvidia.libcuda_path": ("TRITON_LIBCUDA_PATH", *_TEXT),
    "amd.use_buffer_ops": ("AMDGCN_USE_BUFFER_OPS", "0", False, True, "1"),
}


@contextmanager
def _environment(variable: str) -> Iterator[None]:
    """The variable is what it was when the block ends."""
    before = os.environ.get(variable)
    try:
        yield
    finally:
        os.environ.pop(variable, None)
        if before is not None:
            os.environ[variable] = before


def _setting(name: str) -> Callable[[Machine, Any], None]:
    group_name, _, attribute = name.partition(".")
    variable, text, read, other, other_text = SETTINGS[name]

    def run(on: Machine, rng: Any) -> None:
        with shim(), _environment(variable):
            from triton import knobs  # type: ignore[import-not-found]

            group = getattr(knobs, group_name)
            with group.scope():
                os.environ[variable] = text
                assert getattr(group, attribute) == read
                setattr(
                    group, attribute, other
                )  # an assignment wins, and is seen by processes started later
                assert getattr(group, attribute) == other and os.environ[variable] == other_text
                copied = group.copy()
                assert getattr(copied, attribute) == other
                group.reset()
            assert attribute in group.knob_descriptors

    return run


for _name in SETTINGS:
    add_probe(_name, [f"triton.knobs.{_name}"], _setting(_name), host=True)

_TOOLS = "ptxas cuobjdump nvdisasm ptxas_blackwell"


@probe(*(f"triton.knobs.nvidia.{name}" for name in _TOOLS.split()), host=True)
def tools(on: Machine, rng: Any) -> None:
    import stat
    import tempfile

    with shim(), tempfile.TemporaryDirectory() as folder:
        from triton import knobs

        for name in _TOOLS.split():
            path = os.path.join(folder, name)
            with open(path, "w") as file:
                file.write("#!/bin/sh\necho 'Cuda compilation tools, release 12.4, V12.4.131'\n")
            os.chmod(path, stat.S_IRWXU)
            variable = f"TRITON_{name.upper()}_PATH"
            with _environment(variable), knobs.nvidia.scope():
                os.environ[variable] = path
                tool = getattr(knobs.nvidia, name)
                assert tool.path == path and tool.version == "12.4"


_HOOKS = (
    "launch_enter_hook launch_exit_hook kernel_load_start_hook kernel_load_end_hook "
    "kernel_unload_hook"
)


@probe(*(f"triton.knobs.runtime.{name}" for name in _HOOKS.split()), host=True)
def hook_chains(on: Machine, rng: Any) -> None:
    with shim():
        from triton import knobs

        for name in _HOOKS.split():
            chain, seen = getattr(knobs.runtime, name), []

            def note(*args: Any, seen: list[Any] = seen, **keywords: Any) -> None:
                seen.append(args)

            chain.add(note)
            chain(1)
            chain.remove(note)
            assert seen[0][0] == 1 and len(seen) == 1
            chain(2)
            assert len(seen) == 1


_CALLABLES = (
    "runtime.jit_cache_hook runtime.jit_post_compile_hook runtime.add_stages_inspection_hook "
    "build.impl compilation.listener autotuning.listener"
)
_CLASSES = "cache.manager_class cache.remote_manager_class"


@probe(*(f"triton.knobs.{name}" for name in f"{_CALLABLES} {_CLASSES}".split()), host=True)
def callables(on: Machine, rng: Any) -> None:
    with shim():
        from triton import knobs
        from triton.runtime import cache  # type: ignore[import-not-found]

        for name in _CALLABLES.split():
            group_name, _, attribute = name.partition(".")
            group = getattr(knobs, group_name)
            with group.scope():
                assert getattr(group, attribute) is None
                setattr(group, attribute, print)
                assert getattr(group, attribute) is print
            assert getattr(group, attribute) is None

        class CacheManager(cache.FileCacheManager):  # type: ignore[misc]
            """A cache of one's own."""

        with knobs.cache.scope():
            knobs.cache.manager_class = CacheManager
            assert knobs.cache.manager_class is CacheManager
            knobs.cache.remote_manager_class = cache.RemoteCacheBackend
            assert knobs.cache.remote_manager_class is cache.RemoteCacheBackend


@probe(
    "triton.knobs.refresh_knobs",
    "triton.knobs.propagate_env",
    "triton.knobs.runtime.debug",
    "triton.knobs.compilation.instrumentation_mode",
    "triton.knobs.proton",
    "triton.knobs",
    host=True,
)
def read_once(on: Machine, rng: Any) -> None:
    with (
        shim(),
        _environment("TRITON_DEBUG"),
        _environment("TRITON_INSTRUMENTATION_MODE"),
        _environment("TRITON_CACHE_AUTOTUNING"),
    ):
        from triton import knobs

        before = knobs.runtime.debug
        try:
            os.environ["TRITON_DEBUG"], os.environ["TRITON_INSTRUMENTATION_MODE"] = "1", "probe"
            assert knobs.runtime.debug == before
            knobs.refresh_knobs()
            assert knobs.runtime.debug is True and knobs.compilation.instrumentation_mode == "probe"
            os.environ.pop("TRITON_CACHE_AUTOTUNING", None)
            knobs.propagate_env = False
            with knobs.autotuning.scope():
                knobs.autotuning.cache = True
                assert (
                    knobs.autotuning.cache is True and "TRITON_CACHE_AUTOTUNING" not in os.environ
                )
            assert hasattr(knobs.proton, "disable")
        finally:
            knobs.propagate_env = True
            del os.environ["TRITON_DEBUG"], os.environ["TRITON_INSTRUMENTATION_MODE"]
            knobs.refresh_knobs()
