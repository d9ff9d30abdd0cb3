"""The files of compiled kernels, as Triton lays them out.

They are ``<directory>/<key>/<name>.<stage>``, with ``<name>.json`` for the facts and
``__grp__<name>.json`` for the paths of all.

They are written where the program or its environment names a directory in Triton's terms
(``TRITON_CACHE_DIR``, ``TRITON_CACHE_MANAGER`` …); see :mod:`.directory`.
"""

from __future__ import annotations

import json
from typing import Any, Final

from tilewright.compat.triton import knobs
from tilewright.compat.triton.compiler.directory import directory
from tilewright.compat.triton.compiler.group import CODE, RECORD, Parts, file_name, record_of
from tilewright.errors import TilewrightError
from tilewright.runtime.launch.compiled_kernel import CompiledKernel
from tilewright.runtime.storage.files import warn_user

#: Stages that are files, by their endings.
_STAGES: Final = ("source", "ttir", "llir", "ptx", "amdgcn", "cubin", "hsaco")
#: Those that others launch by themselves.
_LAUNCHED: Final = ("cubin", "hsaco")
#: Types of arguments whose words are what others write of them.
_PLAIN: Final = frozenset(
    {"i1", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "f32", "f64"}
)


def keep(kernel: CompiledKernel) -> None:
    """Write the files of a kernel, unless they are there or nobody asks for them.

    A failure to write is a warning.
    """
    if not kernel.hash or not (knobs.cache.manager_class or directory()):
        return
    from tilewright.compat.triton.runtime.cache import get_cache_manager

    name = file_name(kernel.specialization)
    try:
        manager = get_cache_manager(kernel.hash)
        if manager.get_group(f"{name}.json") is not None:
            return
        found = {
            f"{name}.{stage}": text
            for stage in _STAGES
            if (text := _content(kernel, stage)) is not None
        }
        code = kernel.artifact.code.binary
        ending = next((stage for stage in _LAUNCHED if found.get(f"{name}.{stage}") == code), CODE)
        found[f"{name}.{ending}"] = code
        facts = {**kernel.metadata._asdict(), RECORD: record_of(parts_of(kernel), ending)}
        found[f"{name}.json"] = json.dumps(facts, default=_plain)
        group = {
            file: manager.put(text, file, binary=isinstance(text, bytes))
            for file, text in found.items()
        }
        manager.put_group(f"{name}.json", group)
    except OSError as error:
        warn_user(
            f"the files of kernel {name} cannot be written ({error}); set TRITON_CACHE_DIR to a "
            "directory that can"
        )


def files_of(kernel: CompiledKernel) -> dict[str, str] | None:
    """The paths of a kernel's files by name; None where it has none."""
    if not kernel.hash or not (knobs.cache.manager_class or directory()):
        return None
    from tilewright.compat.triton.runtime.cache import get_cache_manager

    return get_cache_manager(kernel.hash).get_group(f"{file_name(kernel.specialization)}.json")


def parts_of(kernel: CompiledKernel) -> Parts:
    """Return the parts of a kernel."""
    return Parts(
        kernel.artifact,
        kernel.specialization,
        kernel.backend,
        kernel.target,
        kernel.device,
        list(kernel.converters or ()),
    )


def launches_alone(kernel: CompiledKernel) -> bool:
    """Return whether others may load the code and launch it with the arguments alone.

    Each is passed as its type says: the code has the function's name, takes nothing beside the
    arguments, and is launched as it is.
    """
    facts = kernel.artifact.code.metadata
    return (
        facts.get("kernel") == kernel.specialization.fn.__name__
        and not facts.get("tensor_maps")
        and not facts.get("launch_pdl")
        and not facts.get("cooperative")
        and all(
            parameter.type in _PLAIN or parameter.type.startswith("ptr<")
            for parameter in kernel.parameters
        )
    )


def _content(kernel: CompiledKernel, stage: str) -> str | bytes | None:
    if stage in _LAUNCHED and not launches_alone(kernel):
        return None
    try:
        return kernel.asm.get(stage)
    except TilewrightError:
        return None


def _plain(value: Any) -> Any:
    return vars(value) if hasattr(value, "__dict__") else str(value)
