"""Records of measured block sizes, a file for each family of devices."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tilewright.runtime.storage.disk_cache import default_directory
from tilewright.runtime.storage.files import write_whole

VERSION = 1
#: The records that the package ships.
SHIPPED = Path(__file__).parent / "records"


@dataclass(frozen=True)
class BlockRecord:
    """Block sizes that were measured to be faster than the choice of the cost model.

    Attributes:
        blocks: field of the blocks -> value, of those that differ from the model's choice.
        milliseconds: the median time with them.
        model_milliseconds: that with the model's choice.
    """

    blocks: Mapping[str, Any]
    milliseconds: float
    model_milliseconds: float


#: Name of a rule -> text of its arguments -> the record.
Records = dict[str, dict[str, BlockRecord]]


def own_folder() -> Path:
    """Return the folder of the records that were measured on this machine."""
    return default_directory() / "tilewright_kernels"


def file_name(family: str) -> str:
    """Return the name of the file of a family of devices, such as ``"sm_90.json"``."""
    return f"{family}.json"


@functools.cache
def records_of(family: str) -> Records:
    """Return the records of a family: those of this machine come before the shipped ones."""
    found: Records = {}
    for folder in (SHIPPED, own_folder()):
        path = folder / file_name(family)
        if family and path.is_file():
            for rule, records in read(path).items():
                found.setdefault(rule, {}).update(records)
    return found


def read(path: Path) -> Records:
    """Read a file of records.

    Raises:
        ValueError: it is none of a version that is understood.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        if data["version"] != VERSION:
            raise ValueError(f"the version is {data['version']}")
        return {
            rule: {key: BlockRecord(**record) for key, record in records.items()}
            for rule, records in data["rules"].items()
        }
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ValueError(
            f"{path} is no file of block records of version {VERSION}: {error}"
        ) from error


def add(folder: Path, family: str, records: Records) -> Path:
    """Add records to the file of a family in a folder, in place of those of the same arguments."""
    path = folder / file_name(family)
    merged = read(path) if path.is_file() else {}
    for rule, found in records.items():
        merged.setdefault(rule, {}).update(found)
    rules = {
        rule: {key: asdict(record) for key, record in sorted(found.items())}
        for rule, found in sorted(merged.items())
    }
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"version": VERSION, "family": family, "rules": rules}, indent=1)
    write_whole(path, f"{text}\n".encode())
    return path
