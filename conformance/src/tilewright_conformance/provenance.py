"""What was tested, with what: versions, the contents of the installed distributions, device and driver."""

from __future__ import annotations

import base64
import functools
import hashlib
import importlib.metadata
import json
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

import tilewright
from tilewright.ir import IR_VERSION
from tilewright.plugins.manifest import Capabilities
from tilewright_conformance.session import Subject

DISTRIBUTION = "tilewright-conformance"


@functools.cache
def suite_version() -> str:
    """The version of the suite."""
    return importlib.metadata.version(DISTRIBUTION)


def distribution_facts(name: str) -> dict[str, Any]:
    """What is installed of a distribution.

    Returns:
        ``name``, ``version``, ``editable``; ``wheel``: the SHA-256 of the wheel it was installed from, where the installer kept it; ``content``: the SHA-256
        over the paths and contents of its files; ``modified``: files that are not as the wheel had them (for an editable installation always empty).
    """
    try:
        distribution = importlib.metadata.distribution(name)
    except importlib.metadata.PackageNotFoundError:
        return {"name": name, "version": "not installed", "editable": False, "wheel": "", "content": "", "modified": []}
    origin = json.loads(distribution.read_text("direct_url.json") or "{}")
    editable = bool(origin.get("dir_info", {}).get("editable"))
    facts = {
        "name": name,
        "version": distribution.version,
        "editable": editable,
        "wheel": str(origin.get("archive_info", {}).get("hashes", {}).get("sha256", "")),
    }
    if editable:
        folder = Path(origin["url"].removeprefix("file://")) / "src"
        return {**facts, "content": _digest({path.relative_to(folder).as_posix(): path for path in folder.rglob("*.*")}), "modified": []}
    files, modified = {}, []
    for file in distribution.files or ():
        path = Path(str(file.locate()))
        if ".dist-info/" in file.as_posix() or file.as_posix().startswith("../"):
            continue
        files[file.as_posix()] = path
        if file.hash is not None and file.suffix != ".pyc":
            found = hashlib.new(file.hash.mode, path.read_bytes()).digest() if path.exists() else b""
            if base64.urlsafe_b64encode(found).rstrip(b"=").decode() != file.hash.value:
                modified.append(file.as_posix())
    return {**facts, "content": _digest(files), "modified": sorted(modified)}


def _digest(files: Mapping[str, Path]) -> str:
    total = hashlib.sha256()
    for name, path in sorted(files.items()):
        if path.is_file() and path.suffix != ".pyc":
            total.update(f"{name} {hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return total.hexdigest()


def capabilities_json(capabilities: Capabilities) -> dict[str, Any]:
    """A manifest's capabilities as JSON-able data."""
    return {
        "dtypes": sorted(capabilities.dtypes),
        "dot": {operand: list(results) for operand, results in sorted(capabilities.dot.items())},
        "dot_precisions": list(capabilities.dot_precisions),
        "min_dot": list(capabilities.min_dot),
        "atomics": {element: sorted(kinds) for element, kinds in sorted(capabilities.atomics.items())},
        "power_of_two": capabilities.power_of_two,
        "max_tile_elements": capabilities.max_tile_elements,
        "features": sorted(capabilities.features),
    }


def capabilities_from_json(data: Mapping[str, Any]) -> Capabilities:
    """The other way round."""
    return Capabilities(
        dtypes=frozenset(data["dtypes"]),
        dot={operand: tuple(results) for operand, results in data["dot"].items()},
        dot_precisions=tuple(data["dot_precisions"]),
        min_dot=tuple(data["min_dot"]),
        atomics={element: frozenset(kinds) for element, kinds in data["atomics"].items()},
        power_of_two=data["power_of_two"],
        max_tile_elements=data["max_tile_elements"],
        features=frozenset(data["features"]),
    )


def provenance(subject: Subject) -> dict[str, Any]:
    """The parts of a report that say what was tested, with what: ``suite``, ``core``, ``backend``, ``distributions``, ``device``, ``host``."""
    manifest, device = subject.backend.manifest, subject.device
    shipped_by = subject.backend.distribution.partition(" ")[0]
    names = dict.fromkeys([DISTRIBUTION, "tilewright", *([] if " from " in subject.backend.distribution else [shipped_by])])
    properties = json.loads(json.dumps(dict(device.properties), default=str))
    return {
        "core": {"version": tilewright.__version__, "ir": f"{IR_VERSION[0]}.{IR_VERSION[1]}"},
        "backend": {
            "name": manifest.name,
            "version": manifest.version,
            "distribution": subject.backend.distribution,
            "ir_versions": [f"{major}.{minor}" for major, minor in manifest.ir_versions],
            "capabilities": capabilities_json(subject.capabilities),
        },
        "distributions": [distribution_facts(name) for name in names],
        "device": {
            "kind": device.kind,
            "index": device.index,
            "name": device.name,
            "target": subject.target.key,
            "driver": str(device.properties.get("driver", "")),
            "properties": properties,
        },
        "host": {
            "python": platform.python_version(),
            "implementation": platform.python_implementation(),
            "system": platform.system(),
            "release": platform.release(),
            "machine": platform.machine(),
            "numpy": np.__version__,
        },
    }
