"""The files of a compiled kernel: ``CompiledKernel(src, metadata_group, hash)``, as in Triton.

``<name>.json`` has the facts that ``metadata`` tells; beside them, under :data:`RECORD`, what
Tilewright launches the kernel by, and the ending of the file that holds the code. A kernel that was
compiled in this process is made of what is in memory: programs that put a constructor of their own
in the place of ``CompiledKernel``'s see its files by name, and may name other paths, which are then
read.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from tilewright.compat.triton.backends.options import BINARY
from tilewright.compat.triton.backends.targets import GPUTarget, place_of
from tilewright.compat.triton.compiler.sources import NamedFunction, type_converters
from tilewright.compat.triton.compiler.stages import OWN_NAMES
from tilewright.errors import TilewrightError
from tilewright.plugins.manifest import CodeObject, Device, Target
from tilewright.plugins.registry import Backend, registry
from tilewright.runtime.compiler.compile import Specialization
from tilewright.runtime.launch.positional_launch import Converter
from tilewright.runtime.storage.artifact import Artifact, parameters_as_data, parameters_of_data
from tilewright.runtime.storage.cache_keys import backend_version, core_version

_TRITON_NAMES: Final = {own: theirs for theirs, own in OWN_NAMES.items()}
#: What of ``<name>.json`` is Tilewright's own.
RECORD: Final = "tilewright"
#: The ending of the file that holds the code, where no other stage is what is loaded.
CODE: Final = "binary"


class ForeignFilesError(TilewrightError):
    """Files of a compiled kernel are from another compiler, or another version of this one."""

    page = "reference/triton#use-the-name-triton"


class Parts(NamedTuple):
    """The parts of a kernel in memory."""

    artifact: Artifact
    specialization: Specialization
    backend: Backend
    target: Target
    device: Device | None
    converters: list[Converter]


class InMemory(dict[str, Any]):
    """The files of a kernel in memory: name -> text or bytes, None until they are written."""

    def __init__(self, parts: Parts) -> None:
        self.parts = parts
        name, code = file_name(parts.specialization), parts.artifact.code
        stages = {
            BINARY.get(parts.target.kind, CODE): None,
            "json": None,
            **code.stages,
            CODE: code.binary,
        }
        super().__init__(
            {f"{name}.{_TRITON_NAMES.get(stage, stage)}": text for stage, text in stages.items()}
        )
        self._first = dict(self)

    def replaced(self) -> dict[str, Any]:
        """The files whose paths were given since."""
        return {name: path for name, path in self.items() if path is not self._first.get(name)}


def file_name(specialization: Specialization) -> str:
    """Return the name of a kernel's files."""
    name: str = specialization.fn.__name__
    return name[:150]


def record_of(parts: Parts, ending: str) -> dict[str, Any]:
    """Return the data for ``<name>.json`` under :data:`RECORD`.

    Args:
        ending: that of the file that holds the code.
    """
    artifact, specialization, backend = parts.artifact, parts.specialization, parts.backend
    return {
        "versions": [core_version(), backend_version(backend)],
        "backend": backend.name,
        "name": artifact.code.name,
        "symbol": specialization.name,
        "parameters": parameters_as_data(artifact.parameters),
        "metadata": artifact.code.metadata,
        "options": dict(specialization.options),
        "code": ending,
    }


def open_group(src: Any, given: Mapping[str, Any], key: str) -> tuple[Parts, dict[str, Any] | None]:
    """The parts of a kernel, and the files they were read from; None where they are in memory.

    Raises:
        ForeignFilesError: see :class:`ForeignFilesError`.
        OSError: a file cannot be read.
    """
    if isinstance(given, InMemory) and not given.replaced():
        return given.parts, None
    return _read(src, given, key), dict(given)


def _read(src: Any, given: Mapping[str, Any], key: str) -> Parts:
    described = next(
        (file for file in given if file.endswith(".json") and not file.startswith("__grp__")), None
    )
    if described is None:
        raise ForeignFilesError(
            "a kernel's files have one that ends with .json, and there are "
            f"{', '.join(map(str, given)) or 'none'}"
        )
    path, name = given[described], described.removesuffix(".json")
    facts = json.loads(Path(path).read_text())
    record = facts.get(RECORD)
    if record is None:
        release = facts.get("triton_version")
        maker = f"Triton {release}" if release else "another compiler"
        raise ForeignFilesError(
            f"{path} was written by {maker}, whose code is launched in a way of its own: compile "
            "the kernel with Tilewright"
        )
    backend = registry().get(record["backend"])
    here = [core_version(), backend_version(backend)]
    if record["versions"] != here:
        raise ForeignFilesError(
            f"{path} was written by {'; '.join(record['versions'])}, and this is "
            f"{'; '.join(here)}: compile the kernel again"
        )
    target, device = place_of(GPUTarget(**facts["target"]), backend)
    endings = [
        file.removeprefix(f"{name}.")
        for file in given
        if file.startswith(f"{name}.") and file != described
    ]
    contents = {ending: _content(given, f"{name}.{ending}") for ending in endings}
    stages = {
        OWN_NAMES.get(ending, ending): content
        for ending, content in contents.items()
        if content is not None
    }
    binary = stages.pop(CODE, None) if record["code"] == CODE else stages.get(record["code"])
    if not isinstance(binary, bytes):
        raise ForeignFilesError(
            f"{path} says that the code of {name} is in {name}.{record['code']}, which is not "
            "among the kernel's files"
        )
    code = CodeObject(record["name"], binary, stages, record["metadata"])
    artifact = Artifact(key, code, parameters_of_data(record["parameters"]), cache_hit=False)
    options = {option: _hashable(value) for option, value in record["options"].items()}
    specialization = _specialization(src, name, record["symbol"], options)
    return Parts(
        artifact,
        specialization,
        backend,
        target,
        device,
        type_converters(dict(specialization.signature)),
    )


def _content(given: Mapping[str, Any], file: str) -> str | bytes | None:
    """Return the content of a file, or of a kernel in memory where no path replaced it."""
    if isinstance(given, InMemory) and file not in given.replaced():
        found: str | bytes | None = given[file]
        return found
    data = Path(given[file]).read_bytes()
    return data if file.rpartition(".")[2] in (CODE, *BINARY.values()) else data.decode()


def _hashable(value: Any) -> Any:
    """An option's value as it was before JSON made lists of tuples."""
    return tuple(map(_hashable, value)) if isinstance(value, list) else value


def _specialization(
    src: Any, name: str, symbol: str | None, options: dict[str, Any]
) -> Specialization:
    if hasattr(src, "specialize"):
        found: Specialization = src.specialize(options)
        return Specialization(
            found.fn,
            found.signature,
            found.constants,
            found.attributes,
            options,
            symbol,
            found.ir_override,
        )
    function: Any = NamedFunction(name, list(src.fn.arg_names))
    return Specialization(function, dict(src.signature), options=options, name=symbol)
