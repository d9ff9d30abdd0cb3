"""The packages of the records: which are pinned, and which are here.

python ecosystem/corpus/packages.py   the requirements, for pip install --no-deps
"""

from __future__ import annotations

import importlib.metadata
import sys
from collections.abc import Iterable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from corpus.launches import Launch, read_all


def requirements(launches: Iterable[Launch]) -> list[str]:
    """Each package with the version that was recorded, as pip takes it."""
    return sorted({f"{launch.package}=={launch.version}" for launch in launches})


def present(launches: Iterable[Launch]) -> tuple[list[Launch], list[str]]:
    """Return the launches of packages whose recorded version is installed, and the exclusions."""
    found: list[Launch] = []
    absent: dict[str, str] = {}
    for launch in launches:
        try:
            version = importlib.metadata.version(launch.package)
        except importlib.metadata.PackageNotFoundError:
            version = ""
        if version == launch.version:
            found.append(launch)
        else:
            there = f"{version} is installed" if version else "it is not installed"
            absent[f"{launch.package}=={launch.version}"] = there
    return found, [f"excluded: {package}; {why}" for package, why in absent.items()]


if __name__ == "__main__":
    print("\n".join(requirements(read_all())))
