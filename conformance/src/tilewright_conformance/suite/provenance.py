"""Provenance of a run: versions, contents of the installed distributions, device and driver."""

from __future__ import annotations

import base64
import csv
import functools
import hashlib
import importlib.metadata
import importlib.util
import json
import platform
import re
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import tilewright
from tilewright.ir import IR_VERSION
from tilewright.plugins.manifest import Capabilities
from tilewright_conformance.suite.session import Subject

DISTRIBUTION = "tilewright-conformance"


@functools.cache
def suite_version() -> str:
    """The version of the suite."""
    return importlib.metadata.version(DISTRIBUTION)


class WheelError(ValueError):
    """A wheel that was named is not what is installed, or is no wheel; the message says which."""


def distribution_facts(name: str, wheels: Sequence[Path] = ()) -> dict[str, Any]:
    """Describe an installed distribution.

    Args:
        wheels: files, one of which may be the wheel it was installed from: installers keep no hash
            of a wheel from an index.

    Returns:
        ``name``, ``version``, ``editable``; ``wheel``: the SHA-256 of the wheel it was installed
        from, where the installer kept it or it is among ``wheels``, and its packages are imported
        from there; ``content``: the SHA-256 over the paths and contents of its files; ``modified``:
        files that are not as the wheel had them (for an editable installation always empty).
    """
    try:
        distribution = importlib.metadata.distribution(name)
    except importlib.metadata.PackageNotFoundError:
        return {
            "name": name,
            "version": "not installed",
            "editable": False,
            "wheel": "",
            "content": "",
            "modified": [],
        }
    own = [path for path in wheels if wheel_name(path) == normal_name(name)]
    origin = json.loads(distribution.read_text("direct_url.json") or "{}")
    editable = bool(origin.get("dir_info", {}).get("editable"))
    facts = {
        "name": name,
        "version": distribution.version,
        "editable": editable,
        "wheel": str(origin.get("archive_info", {}).get("hashes", {}).get("sha256", "")),
    }
    if own:
        facts["wheel"] = _wheel_hash(own[0], distribution)
    if editable:
        folder = Path(origin["url"].removeprefix("file://")) / "src"
        return {
            **facts,
            "content": _digest(
                {path.relative_to(folder).as_posix(): path for path in folder.rglob("*.*")}
            ),
            "modified": [],
        }
    files, modified = {}, []
    for file in distribution.files or ():
        path = Path(str(file.locate()))
        if ".dist-info/" in file.as_posix() or file.as_posix().startswith("../"):
            continue
        files[file.as_posix()] = path
        if file.hash is not None and file.suffix != ".pyc":
            found = (
                hashlib.new(file.hash.mode, path.read_bytes()).digest() if path.exists() else b""
            )
            if base64.urlsafe_b64encode(found).rstrip(b"=").decode() != file.hash.value:
                modified.append(file.as_posix())
    if _is_hidden(files):
        facts["wheel"] = ""
    return {**facts, "content": _digest(files), "modified": sorted(modified)}


def _is_hidden(files: Mapping[str, Path]) -> bool:
    """Return whether a package of an installation is imported from elsewhere (PYTHONPATH)."""
    packages = {
        name.removesuffix("/__init__.py"): path
        for name, path in files.items()
        if name.count("/") == 1 and name.endswith("/__init__.py")
    }
    found = {name: importlib.util.find_spec(name) for name in packages}
    return any(
        spec is None
        or spec.origin is None
        or Path(spec.origin).resolve() != packages[name].resolve()
        for name, spec in found.items()
    )


def normal_name(name: str) -> str:
    """The name of a distribution as all who write it in one way or another mean it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def wheel_name(path: Path) -> str:
    """The distribution that a wheel's file name is of.

    Raises:
        WheelError: it is not the name of a wheel.
    """
    if path.suffix != ".whl" or path.name.count("-") < 4:
        raise WheelError(f"{path} is not named like a wheel, NAME-VERSION-….whl")
    return normal_name(path.name.partition("-")[0])


def built_on_the_core(name: str) -> list[str]:
    """A distribution and those of its requirements that require the core."""
    found: list[str] = []
    waiting = [name]
    while waiting:
        name = waiting.pop()
        required = [
            normal_name(match[0])
            for text in _requirements(name)
            if (match := re.match(r"[\w.-]+", text)) and "extra ==" not in text
        ]
        if not found or "tilewright" in required:
            found.append(name)
            waiting += [
                own for own in required if own not in ("tilewright", *map(normal_name, found))
            ]
    return list(dict.fromkeys(found))


def _requirements(name: str) -> list[str]:
    try:
        return importlib.metadata.requires(name) or []
    except importlib.metadata.PackageNotFoundError:
        return []


def _wheel_hash(path: Path, distribution: importlib.metadata.Distribution) -> str:
    """The SHA-256 of a wheel from which a distribution was installed.

    Raises:
        WheelError: it was not: its files have other hashes than the installed ones.
        OSError: it cannot be read.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            (record,) = (name for name in archive.namelist() if name.endswith(".dist-info/RECORD"))
            rows = [
                row
                for row in csv.reader(archive.read(record).decode().splitlines())
                if row and row[1]
            ]
    except (zipfile.BadZipFile, ValueError) as error:
        raise WheelError(f"{path} is no wheel: {error}") from None
    installed = {
        file.as_posix(): f"{file.hash.mode}={file.hash.value}"
        for file in distribution.files or ()
        if file.hash is not None
    }
    other = [
        name for name, digest, *_ in rows if ".data/" not in name and installed.get(name) != digest
    ]
    if other:
        name = distribution.metadata["Name"]
        raise WheelError(
            f"{path} is not the wheel that {name} {distribution.version} was installed from: "
            f"{', '.join(other[:3])} differ"
        )
    return hashlib.sha256(path.read_bytes()).hexdigest()


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
        "orders": {name: sorted(orders) for name, orders in sorted(capabilities.orders.items())},
        "atomics": {
            element: sorted(kinds) for element, kinds in sorted(capabilities.atomics.items())
        },
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
        orders={name: frozenset(orders) for name, orders in data["orders"].items()},
        atomics={element: frozenset(kinds) for element, kinds in data["atomics"].items()},
        power_of_two=data["power_of_two"],
        max_tile_elements=data["max_tile_elements"],
        features=frozenset(data["features"]),
    )


def provenance(subject: Subject, wheels: Sequence[Path] = ()) -> dict[str, Any]:
    """The parts of a report that identify the software and the device under test.

    They are ``core``, ``backend``, ``distributions``, ``device``, ``host``. The distributions are
    the suite, the core, the backend's own, and others on the core that it requires.

    Args:
        wheels: files that distributions were installed from.

    Raises:
        WheelError: one of them is of none, or is not the installed one.
    """
    manifest, device = subject.backend.manifest, subject.device
    shipped_by = subject.backend.distribution.partition(" ")[0]
    names = dict.fromkeys(
        [
            DISTRIBUTION,
            "tilewright",
            *([] if " from " in subject.backend.distribution else built_on_the_core(shipped_by)),
        ]
    )
    stray = [path for path in wheels if wheel_name(path) not in map(normal_name, names)]
    if stray:
        raise WheelError(
            f"{stray[0]} is the wheel of nothing that takes part, which is {', '.join(names)}"
        )
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
        "distributions": [distribution_facts(name, wheels) for name in names],
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
