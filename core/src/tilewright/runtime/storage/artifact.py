"""A compiled kernel as bytes, for the disk cache and for compile jobs in other processes.

Layout: :data:`MAGIC`, the SHA-256 of the rest in hex, a line feed, the length of the header (8
bytes, little-endian), the header (JSON), the blobs. The header has the metadata and the
position of each blob. Reading never executes anything and trusts no length: damage of any kind
is :class:`DamagedArtifactError`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tilewright.plugins.manifest import CodeObject, Parameter

MAGIC = b"tilewright kernel 1\n"


class DamagedArtifactError(ValueError):
    """Bytes that are no artifact, or a truncated or modified one."""


@dataclass
class Artifact:
    """A kernel lowered for one target.

    Attributes:
        key: the text it is cached under (hex SHA-256).
        code: the backend's code object.
        parameters: the parameters of its launcher.
        timings: stage -> milliseconds of the compilation that made it.
        cache_hit: it was read from the disk cache.
    """

    key: str
    code: CodeObject
    parameters: tuple[Parameter, ...]
    timings: dict[str, float] = field(default_factory=dict)
    cache_hit: bool = False


def pack(artifact: Artifact) -> bytes:
    """Serialize an artifact.

    Raises:
        TypeError: the backend's metadata is not JSON-able.
    """
    code = artifact.code
    blobs = [code.binary]
    stages: list[list[Any]] = []
    for name, stage in code.stages.items():
        is_text = isinstance(stage, str)
        if stage is code.binary:
            stages.append([name, "binary", 0])
            continue
        blobs.append(stage.encode() if isinstance(stage, str) else bytes(stage))
        stages.append([name, "text" if is_text else "bytes", len(blobs) - 1])
    header = json.dumps(
        {
            "key": artifact.key,
            "name": code.name,
            "metadata": code.metadata,
            "parameters": parameters_as_data(artifact.parameters),
            "timings": artifact.timings,
            "stages": stages,
            "sizes": [len(blob) for blob in blobs],
        },
        separators=(",", ":"),
    ).encode()
    body = b"".join((len(header).to_bytes(8, "little"), header, *blobs))
    return b"".join((MAGIC, hashlib.sha256(body).hexdigest().encode(), b"\n", body))


def parameters_as_data(parameters: Sequence[Parameter]) -> list[list[Any]]:
    """Convert a launcher's parameters to JSON data."""
    return [
        [parameter.name, parameter.type, parameter.divisibility, parameter.stored]
        for parameter in parameters
    ]


def parameters_of_data(data: Sequence[Sequence[Any]]) -> tuple[Parameter, ...]:
    """Convert JSON data back to a launcher's parameters.

    Raises:
        TypeError, ValueError: it is none of that.
    """
    return tuple(
        Parameter(name, type_, divisibility, stored) for name, type_, divisibility, stored in data
    )


def unpack(data: bytes, key: str | None = None) -> Artifact:
    """Parse an artifact; with ``key``, check that it is the artifact of that key.

    Raises:
        DamagedArtifactError: it is not; the message says what is wrong.
    """
    start = len(MAGIC) + 65
    if data[: len(MAGIC)] != MAGIC:
        raise DamagedArtifactError("it does not start as a kernel does")
    body = memoryview(data)[start:]
    if hashlib.sha256(body).hexdigest().encode() + b"\n" != data[len(MAGIC) : start]:
        raise DamagedArtifactError("its checksum does not match")
    try:
        length = int.from_bytes(body[:8], "little")
        header = json.loads(bytes(body[8 : 8 + length]))
        blobs = []
        position = 8 + length
        for size in header["sizes"]:
            blobs.append(bytes(body[position : position + size]))
            position += size
        stages: dict[str, str | bytes] = {}
        for name, kind, index in header["stages"]:
            stages[name] = blobs[index].decode() if kind == "text" else blobs[index]
        parameters = parameters_of_data(header["parameters"])
        if not isinstance(header["key"], str):
            raise TypeError("the key is no text")
        found = Artifact(
            header["key"],
            CodeObject(header["name"], blobs[0], stages, header["metadata"]),
            parameters,
            header["timings"],
        )
    except (KeyError, IndexError, TypeError, ValueError, RecursionError) as error:
        raise DamagedArtifactError(
            f"its header cannot be read ({type(error).__name__}: {error})"
        ) from None
    if key is not None and found.key != key:
        raise DamagedArtifactError("it is the kernel of another key")
    return found
