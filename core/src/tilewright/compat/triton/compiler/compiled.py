"""A compiled kernel with the attributes and the launch call that Triton's has."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tilewright.compat.triton import knobs
from tilewright.compat.triton.backends.launcher import Launcher
from tilewright.compat.triton.backends.options import BINARY, frozen
from tilewright.compat.triton.backends.targets import place_of, target_of
from tilewright.compat.triton.compiler import group
from tilewright.compat.triton.compiler.kept import files_of, keep
from tilewright.compat.triton.compiler.options import triton_options
from tilewright.compat.triton.compiler.pipeline import compile_artifact
from tilewright.compat.triton.compiler.sources import ASTSource, type_converters
from tilewright.compat.triton.compiler.stages import Asm
from tilewright.compat.triton.version import VERSION
from tilewright.plugins.manifest import Device, Target
from tilewright.plugins.registry import Backend
from tilewright.runtime.compiler.compile import Specialization
from tilewright.runtime.hooks import hooks
from tilewright.runtime.launch import compiled_kernel as own
from tilewright.runtime.launch.compiled_kernel import with_other_options
from tilewright.runtime.launch.positional_launch import Converter
from tilewright.runtime.storage.artifact import Artifact

#: Facts that a kernel of Triton has besides its options; kernels of Tilewright take no scratch
#: memory that its launch call would have to bring.
_FACTS: dict[str, Any] = {
    "shared": 0,
    "tmem_size": 0,
    "global_scratch_size": 0,
    "global_scratch_align": 1,
    "profile_scratch_size": 0,
    "profile_scratch_align": 1,
    "cluster_dims": (1, 1, 1),
    "tensordesc_meta": None,
}


#: What PyTorch's packages take of a kernel for the CPU.
_LIBRARIES = ("so", "launcher.so")


class CompiledKernel(own.CompiledKernel):
    """A kernel compiled for one specialisation.

    Attributes:
        src: the :class:`ASTSource` it was compiled from.
        asm: stages by Triton's names, see :class:`Asm`.
        metadata: a named tuple: every option of Triton's, ``name``, ``hash``, ``target``,
            ``shared`` …
        hash, name, module, function, n_regs, n_spills, n_max_threads, packed_metadata: as in
            Tilewright.
    """

    def __init__(self, src: Any, metadata_group: Mapping[str, Any], hash: str) -> None:
        """A kernel of the files that a compilation left; see :mod:`.group`.

        Args:
            src: the :class:`ASTSource` it was compiled from, or what has ``signature`` and
                ``fn.arg_names`` as that has.
            metadata_group: the paths of the files by name, as ``metadata_group`` has them.
            hash: the kernel's key.

        Raises:
            ForeignFilesError: another compiler made the files, or another version of this one.
            OSError: one cannot be read.
        """
        parts, read = group.open_group(src, metadata_group, hash)
        super().__init__(*parts)
        # what ``repr=`` gave may be no symbol of the target
        self.name = self.specialization.name or self.name
        self.src: Any = src
        self.hash = hash
        self._files = read

    @classmethod
    def of(
        cls,
        artifact: Artifact,
        specialization: Specialization,
        backend: Backend,
        target: Target,
        device: Device | None,
        converters: list[Converter],
    ) -> CompiledKernel:
        """A kernel that was compiled. It is made by the constructor, which programs replace."""
        parts = group.Parts(artifact, specialization, backend, target, device, converters)
        return cls(ASTSource.of(specialization), group.InMemory(parts), artifact.key)

    @property
    def asm(self) -> Any:
        if isinstance(self._here.alone, CompiledKernel):
            return self._here.alone.asm
        ending = BINARY.get(self.target.kind)
        if ending:
            return Asm(super().asm, {ending: self._device_code})
        return Asm(
            super().asm,
            dict.fromkeys(_LIBRARIES, self._library) if self.target.kind == "cpu" else None,
        )

    def _library(self) -> bytes:
        """The code as a shared library, see :mod:`.libraries`."""
        from tilewright.compat.triton.compiler.libraries import library_of

        stages = self.artifact.code.stages
        found = library_of(self)
        stages.update(dict.fromkeys(_LIBRARIES, found))
        return found

    def _device_code(self) -> bytes:
        """The code in the format of the vendor's tools, made with what this machine has for it.

        Raises:
            BackendError: it has nothing.
            LoweringError: what it has rejects the code.
        """
        code = self.artifact.code
        made = self.backend.call("tilewright_assemble", code=code, target=self.target)
        found: bytes = code.binary if made is None else made
        code.stages[BINARY[self.target.kind]] = found
        return found

    @property
    def metadata_group(self) -> dict[str, Any]:
        """Return the paths of the kernel's files by name; without files the stages themselves.

        See :mod:`.kept`.
        """
        return self._files or files_of(self) or super().metadata_group

    @property
    def launch_metadata_schema(self) -> dict[str, Any]:
        """Return the data that other launchers need.

        They are ``entry_name``, ``num_warps``, ``shared_mem`` in bytes, and ``tensordesc_meta``,
        None because a descriptor is passed as its address, extents and strides.

        Code that takes more than its arguments, which Tilewright's launcher makes, is compiled
        again without: who asks for this gets that code's stages by ``asm`` from then on. ``run``
        and ``metadata`` stay those of Tilewright's launches.
        """
        launched = self._alone()
        metadata = launched.metadata
        return {
            "entry_name": launched.artifact.code.metadata.get("kernel", self.name),
            "num_warps": metadata.num_warps,
            "shared_mem": metadata.shared,
            "tensordesc_meta": metadata.tensordesc_meta,
        }

    def _alone(self) -> CompiledKernel:
        """The kernel as it can be launched with its arguments alone."""
        changed = self.artifact.code.metadata.get("otherwise")
        if changed is None:
            return self
        with self._here.lock:
            if self._here.alone is None:
                specialization = replace(
                    self.specialization, options={**self.specialization.options, **changed}
                )
                artifact = with_other_options(
                    self._compile, specialization, self.backend, self.target, self.artifact.code
                )
                converters = type_converters(dict(specialization.signature))
                self._here.alone = CompiledKernel.of(
                    artifact, specialization, self.backend, self.target, self.device, converters
                )
            assert isinstance(self._here.alone, CompiledKernel)
            return self._here.alone

    @property
    def metadata(self) -> Any:
        if self._here.metadata is None:
            given = self.specialization.options
            options = triton_options(self.backend, self.target, given).__dict__
            facts = {**_FACTS, **given, **options, **self.artifact.code.metadata}
            facts.update(
                name=self.name,
                hash=self.hash,
                target=target_of(self.target),
                triton_version=VERSION,
            )
            facts = {
                name: frozen(value)
                for name, value in facts.items()
                if name.isidentifier() and not name.startswith("_")
            }
            self._here.metadata = namedtuple("KernelMetadata", sorted(facts))(**facts)
        return self._here.metadata

    @staticmethod
    def _compile(specialization: Specialization, backend: Backend, target: Target) -> Artifact:
        return compile_artifact(specialization, backend, target)[0]

    def _init_handles(self) -> None:
        if self.device is None:  # compiled for a target, by a process that may have had no device
            _, self.device = place_of(target_of(self.target), self.backend)
        super()._init_handles()

    @property
    def run(self) -> Any:
        if self._here.call is None:
            self._here.call = Launcher(self.native_launcher, self.pick)
        return self._here.call

    @property
    def was_read(self) -> bool:
        """Return whether it was made of files."""
        return self._files is not None

    def result(self, ignore_errors: bool = False) -> CompiledKernel:
        """The kernel itself, as :class:`FutureKernel` has it."""
        return self

    def launch_metadata(self, grid: Any, stream: Any, *args: Any) -> Any:
        self._init_handles()
        return super().launch_metadata(grid, stream, *args)

    def __repr__(self) -> str:
        return f"<CompiledKernel {self.name} for {target_of(self.target)}>"


def tell(kernel: CompiledKernel, times: knobs.CompileTimes) -> None:
    """Write the files of a kernel that was compiled, or found, and tell those who listen."""
    if not kernel.was_read:
        keep(kernel)
    if knobs.compilation.listener is not None:
        metadata = kernel.metadata._asdict()
        knobs.compilation.listener(
            src=kernel.src,
            metadata=metadata,
            metadata_group=kernel.metadata_group,
            times=times,
            cache_hit=kernel.cache_hit,
        )
    if hooks.compilation_listener is not None:
        hooks.compilation_listener(
            src=kernel.specialization,
            metadata=kernel.metadata,
            metadata_group=kernel.metadata_group,
            times=kernel.timings,
            cache_hit=kernel.cache_hit,
        )


__all__ = ["CompiledKernel", "tell"]
