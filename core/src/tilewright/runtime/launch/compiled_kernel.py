"""A compiled kernel: its code and texts, and the callable that launches it.

A kernel pickles with its code, so that another process can launch it; its per-process state
(:class:`_Here`) begins anew there.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections import namedtuple
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from tilewright.errors import BackendError, LaunchError, OutOfResources
from tilewright.forks import setting_up
from tilewright.plugins.manifest import CodeObject, Device, Target
from tilewright.plugins.registry import Backend
from tilewright.runtime.compiler.compile import Specialization, compile_kernel, lower_module
from tilewright.runtime.compiler.specialize import value_picker
from tilewright.runtime.hooks import LazyDict, hooks
from tilewright.runtime.launch.dispatch import Dispatcher, Known
from tilewright.runtime.launch.fallback_kernel import Variant
from tilewright.runtime.launch.grid import Grid, grid_of
from tilewright.runtime.launch.positional_launch import Converter, converters_of, kinds_of
from tilewright.runtime.storage.artifact import Artifact
from tilewright.runtime.storage.disk_cache import disk_cache


class Stages(Mapping[str, Any]):
    """The text or bytes of each stage by name.

    The stages are ``source``, ``tileir``, then the backend's; ``binary`` is the stage that is
    loaded.
    """

    def __init__(self, stages: dict[str, str | bytes], binary: bytes, source: str) -> None:
        self._stages: dict[str, str | bytes] = {"source": source, **stages}
        self._stages.setdefault("binary", binary)

    def __getitem__(self, name: str) -> str | bytes:
        try:
            return self._stages[name]
        except KeyError:
            raise KeyError(
                f"Unknown key: {name!r}; the stages of this kernel are {', '.join(self._stages)}"
            ) from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._stages)

    def __len__(self) -> int:
        return len(self._stages)


class _Here:
    """Per-process state of a compiled kernel; a copy, in any process, begins with an empty one.

    Attributes:
        lock: held while the kernel is loaded.
        process: the number of the process that loads it.
        launcher: the backend's, once the kernel is loaded; ``call`` is the value of ``run`` where
            that differs.
        pick: function from the arguments of all parameters to the runtime values, made on first
            use.
        checked: kinds of arguments of ``compiled[grid](...)`` that were checked -> how the runtime
            values are picked from them, as a function and in words.
        positional: the dispatcher of such launches.
        otherwise, metadata: see :class:`CompiledKernel`.
        alone: the kernel for external launchers where it differs, made on first use.
    """

    __slots__ = (
        "alone",
        "call",
        "checked",
        "launcher",
        "lock",
        "metadata",
        "otherwise",
        "pick",
        "positional",
        "process",
    )

    def __init__(self) -> None:
        self.lock, self.process = threading.Lock(), os.getpid()
        self.launcher: Callable[..., None] | None = None
        self.call: Any = None
        self.pick: Callable[[tuple[Any, ...]], tuple[Any, ...]] | None = None
        self.checked: dict[
            tuple[Any, ...], tuple[Callable[[tuple[Any, ...]], tuple[Any, ...]], list[Converter]]
        ] = {}
        self.positional: Dispatcher | None = None
        self.otherwise: Variant | None = None
        self.alone: CompiledKernel | None = None
        self.metadata: Any = None

    def __reduce__(self) -> Any:
        return _Here, ()


class CompiledKernel:
    """A compiled kernel for one specialization and one device; its first launch loads the code.

    Attributes:
        src: the :class:`Specialization` that it was compiled from.
        asm: the text or bytes of each stage of the compilation, by the stage's name.
        metadata: a named tuple with the backend's metadata and the launch options: ``name hash
            target num_warps shared …``.
        hash: the key of the kernel in the disk cache.
        timings: the time of each stage in milliseconds. For a kernel from the disk cache, these are
            the times of its original compilation.
        converters: functions that select the runtime values among the arguments of a launch and
            convert them; None if launches pass the runtime values directly.
        otherwise: the fallback kernel for launches that this kernel refuses, if its code can refuse
            launches.
        n_regs: the number of registers of a thread; 0 if the backend does not report it.
        n_spills: the number of 32-bit words that a thread spills; 0 if the backend does not report
            it.
        n_max_threads: the maximum number of threads of a program instance with this code; 0 if the
            backend does not report it.
        n_resident: the number of program instances that can run at once on the device, which is the
            maximum for a cooperative launch; 0 if the backend does not report it.
    """

    def __init__(
        self,
        artifact: Artifact,
        specialization: Specialization,
        backend: Backend,
        target: Target,
        device: Device | None,
        converters: Sequence[Converter] | None = None,
    ) -> None:
        self.artifact = artifact
        self.src = self.specialization = specialization
        self.backend, self.target, self.device = backend, target, device
        self.parameters = artifact.parameters
        self.hash = artifact.key
        self.cache_hit = artifact.cache_hit
        self.timings = dict(artifact.timings)
        self.name: str = artifact.code.name
        self.module: Any = None
        self.function: Any = None
        self.converters = converters
        self._here = _Here()

    @property
    def otherwise(self) -> Variant | None:
        return self._here.otherwise

    @property
    def asm(self) -> Stages:
        return Stages(
            self.artifact.code.stages,
            self.artifact.code.binary,
            getattr(self.specialization.fn, "src", ""),
        )

    @property
    def metadata(self) -> Any:
        if self._here.metadata is None:
            facts = {
                **self.specialization.options,
                "shared": 0,
                **self.artifact.code.metadata,
                "name": self.name,
                "hash": self.hash,
                "target": self.target,
            }
            facts = {
                name: value
                for name, value in facts.items()
                if name.isidentifier() and not name.startswith("_")
            }
            self._here.metadata = namedtuple("KernelMetadata", sorted(facts))(**facts)
        return self._here.metadata

    @property
    def metadata_group(self) -> dict[str, str | bytes]:
        """Return the stages by file name."""
        return {
            f"{self.name}.{re.sub(r'[^a-z0-9]+', '-', stage.lower())}": text
            for stage, text in self.artifact.code.stages.items()
        }

    @property
    def packed_metadata(self) -> tuple[int, int, int]:
        """Return (num_warps, num_ctas, bytes of shared memory)."""
        options, facts = self.specialization.options, self.artifact.code.metadata
        return (
            int(options.get("num_warps") or 1),
            int(options.get("num_ctas") or 1),
            int(facts.get("shared", 0)),
        )

    @property
    def kernel(self) -> bytes:
        """The object that the backend loaded on the device."""
        return self.artifact.code.binary

    def _fact(self, name: str) -> int:
        self._init_handles()
        return int(getattr(self.module, name, self.artifact.code.metadata.get(name, 0)) or 0)

    @property
    def n_regs(self) -> int:
        return self._fact("n_regs")

    @property
    def n_spills(self) -> int:
        return self._fact("n_spills")

    @property
    def n_max_threads(self) -> int:
        return self._fact("n_max_threads")

    @property
    def n_resident(self) -> int:
        return self._fact("n_resident")

    def _init_handles(self) -> None:
        """Load the kernel on its device, unless it is.

        Raises:
            LaunchError: it was compiled for a target without a device.
        """
        here = self._here
        if here.launcher is not None:
            return
        with setting_up(), here.lock:
            if here.launcher is not None:
                return
            if self.device is None:
                target = f"{self.target.backend} {self.target.arch}"
                raise LaunchError(
                    f"kernel {self.name} was compiled for {target} without a device, so it cannot "
                    "be launched here"
                )
            arguments = (
                (self.module, self.function, self.name, self.metadata_group, self.hash)
                if hooks.kernel_load_start
                else ()
            )
            if hooks.kernel_load_start:
                hooks.kernel_load_start(*arguments)
            started = time.perf_counter()
            try:
                module, launcher = self._load()
            except OutOfResources:
                raise
            except Exception as error:
                if not self.cache_hit:
                    raise
                self._compile_again(error)
                module, launcher = self._load()
            self.timings["load"] = (time.perf_counter() - started) * 1e3
            self.module, self.function = module, getattr(module, "function", module)
            if hooks.kernel_load_end:
                hooks.kernel_load_end(
                    self.module, self.function, self.name, self.metadata_group, self.hash
                )
            here.launcher = launcher

    def _load(self) -> tuple[Any, Callable[..., None]]:
        """Load the code on its device, and make its launcher."""
        module = self.backend.require(
            "tilewright_load", code=self.artifact.code, device=self.device
        )
        launcher = self.backend.require(
            "tilewright_launcher",
            loaded=module,
            parameters=self.parameters,
            options=self.specialization.options,
        )
        if not callable(launcher):
            raise BackendError(
                f"backend {self.backend.name!r} ({self.backend.distribution}): tilewright_launcher "
                f"gave a {type(launcher).__name__}, which cannot be called. Report this to "
                "its authors."
            )
        preparation = self.specialization.before_passes
        if preparation is not None and preparation.adapt is not None:
            launcher = preparation.adapt(launcher, self)
        changed = self.artifact.code.metadata.get("otherwise")
        if changed is None:
            return module, launcher
        specialization = replace(
            self.specialization, options={**self.specialization.options, **changed}
        )
        self._here.otherwise = Variant(
            partial(
                _other,
                self._compile,
                specialization,
                self.backend,
                self.target,
                self.device,
                self.artifact.code,
            )
        )
        return module, self._here.otherwise.launcher(launcher)

    @staticmethod
    def _compile(specialization: Specialization, backend: Backend, target: Target) -> Artifact:
        """Compile the fallback kernel for launches that this one refuses."""
        return compile_kernel(specialization, backend, target)

    def _compile_again(self, error: Exception) -> None:
        """Replace code from the disk cache that cannot be loaded, though its checksum is right."""
        disk_cache().discard(self.hash, f"it cannot be loaded ({str(error).partition(chr(10))[0]})")
        self.artifact = compile_kernel(self.specialization, self.backend, self.target, anew=True)
        self.parameters, self.cache_hit, self._here.metadata = self.artifact.parameters, False, None
        self.timings = dict(self.artifact.timings)

    def __del__(self, _process_of: Callable[[], int] = os.getpid) -> None:
        """Unload the code from the device; a forked child leaves its parent's code alone."""
        here = self.__dict__.get("_here")
        if here is None or here.launcher is None or _process_of() != here.process:
            return
        if hooks is not None and hooks.kernel_unload:
            hooks.kernel_unload(
                self.module, self.function, self.name, self.metadata_group, self.hash
            )
        here.launcher = self.module = self.function = None

    def result(self, ignore_errors: bool = False) -> CompiledKernel:
        """Return the kernel itself; the counterpart of :meth:`FutureKernel.result`."""
        return self

    @property
    def native_launcher(self) -> Callable[..., None]:
        """Return the backend's launcher, of a grid of three, a stream and runtime arguments."""
        self._init_handles()
        assert self._here.launcher is not None
        return self._here.launcher

    @property
    def run(self) -> Callable[..., None]:
        """The backend's launcher: ``run(grid of three, stream, runtime arguments)``."""
        return self.native_launcher

    def launch_metadata(self, grid: Grid, stream: Any, *args: Any) -> LazyDict | None:
        """Return the metadata passed to launch hooks; None where there are no hooks.

        ``args`` are all arguments in parameter order.

        The callback of ``jit(launch_metadata=)`` is read from the kernel's function, since programs
        set that attribute later.
        """
        if not hooks.launch_enter and not hooks.launch_exit:
            return None
        found = LazyDict(
            {
                "name": self.name,
                "function": self.function,
                "stream": stream,
                "grid": grid,
                "kernel": self,
            }
        )
        more = getattr(self.specialization.fn, "launch_metadata", None)
        if more is not None:
            names = dict(zip(self.specialization.fn.arg_names, args, strict=False))
            found.add(more, (grid, self.metadata, names))
        return found

    def launch(self, grid: tuple[int, int, int], stream: Any, args: tuple[Any, ...]) -> None:
        """Launch with the arguments of all parameters in order, hooks included.

        A grid with a zero launches nothing.
        """
        if 0 in grid:
            self._init_handles()
            return
        self._start(grid, stream, args, self.pick(args))

    @property
    def pick(self) -> Callable[[tuple[Any, ...]], tuple[Any, ...]]:
        """The function that selects the runtime values from the arguments of all parameters."""
        if self._here.pick is None:
            self._here.pick = tuple if self.converters is None else value_picker(self.converters)
        return self._here.pick

    def _start(
        self,
        grid: tuple[int, int, int],
        stream: Any,
        args: tuple[Any, ...],
        values: tuple[Any, ...],
    ) -> None:
        run = self.run
        metadata = self.launch_metadata(grid, stream, *args)
        if metadata is None:
            run(grid, stream, values)
            return
        hooks.launch_enter(metadata)
        run(grid, stream, values)
        hooks.launch_exit(metadata)

    def __getitem__(self, grid: Any) -> Callable[..., CompiledKernel]:
        """Return the launcher of ``compiled[grid](*args, stream=None)``.

        It takes the arguments of all parameters, constants included, in order.

        Raises:
            LaunchError: there are more or fewer arguments than parameters, or one does not fit what
                the kernel was compiled for.
        """
        here = self._here
        calls = here.positional
        if calls is None:
            if not hasattr(self.specialization.fn, "params"):
                return partial(self._launch_positional, grid)
            calls = here.positional = Dispatcher(
                self.specialization.fn, self._launch_positional, self._known
            )
        return calls.launcher(grid) if calls.native is None else partial(calls.native, grid)

    def _launch_positional(self, grid: Any, *args: Any, stream: Any = None) -> CompiledKernel:
        names = self.src.fn.arg_names
        if not hasattr(self.src.fn, "params"):  # compiled from a file
            if len(args) != len(names):
                raise LaunchError(
                    f"{self.name} takes {len(names)} arguments ({', '.join(names)}), not "
                    f"{len(args)}"
                )
            self.launch(grid_of(grid, dict(zip(names, args, strict=True))), stream, args)
            return self
        self._init_handles()
        assert self.device is not None
        kinds = kinds_of(self.specialization, args)
        checked = self._here.checked.get(kinds)
        if checked is None:
            converters = converters_of(self.specialization, self.device, kinds, args)
            checked = self._here.checked[kinds] = value_picker(converters), converters
        pick, _ = checked
        sizes = grid_of(grid, dict(zip(names, args, strict=True)))
        if 0 not in sizes:
            self._start(sizes, stream, args, pick(args))
        return self

    def _known(self, args: tuple[Any, ...], keywords: dict[str, Any]) -> Known | None:
        """Describe a completed launch to the dispatcher; None where it cannot be replayed."""
        kinds = None if keywords else kinds_of(self.specialization, args)
        if kinds is None or kinds not in self._here.checked:
            return None
        return Known(args, kinds, {}, self.native_launcher, self, self._here.checked[kinds][1])

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "module": None, "function": None}

    def __repr__(self) -> str:
        return f"<CompiledKernel {self.name} for {self.target.backend} {self.target.arch}>"


def _other(
    compile_: Callable[..., Artifact],
    specialization: Specialization,
    backend: Backend,
    target: Target,
    device: Device | None,
    code: CodeObject,
) -> CompiledKernel:
    return CompiledKernel(
        with_other_options(compile_, specialization, backend, target, code),
        specialization,
        backend,
        target,
        device,
    )


def with_other_options(
    compile_: Callable[..., Artifact],
    specialization: Specialization,
    backend: Backend,
    target: Target,
    code: CodeObject,
) -> Artifact:
    """Recompile a kernel, from its Python function by ``compile_`` or else from its Tile IR.

    Args:
        specialization: the kernel's, with the options wanted, which none but the backend reads.
        code: the code of its earlier compilation.

    Raises:
        BackendError: there is neither function nor Tile IR.
    """
    if getattr(specialization.fn, "fn", None) is not None:
        return compile_(specialization, backend, target)
    text = code.stages.get("tileir")
    if not isinstance(text, str):
        raise BackendError(
            f"kernel {code.name} came from another process without its Tile IR, and is to be "
            "compiled again; keep the texts of its stages"
        )
    from tilewright.ir.parser import parse_module

    return lower_module(parse_module(text, backend.table), specialization.options, backend, target)
