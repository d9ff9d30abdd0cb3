"""Tuning records that ship with a library: record files, merging, and the search path.

A file has the records of one or several kinds of device, as
:func:`tilewright.runtime.tuning_records.export` writes them. Where a kernel is tuned that has no
local record, these places are looked at, in this order, and nothing is measured
where a record fits the kernel's source, the key, the device, the target and the configurations:

1. what ``TILEWRIGHT_TUNING_PATH`` names: files, and folders of ``*.json`` files, between colons
    (Windows: semicolons);
2. the folder ``tilewright_tuning`` beside the file that defines the kernel.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from tilewright.runtime.storage.files import warn_user, write_whole
from tilewright.runtime.storage.tuning_record import VERSION, Record, parse

#: The folder beside a library's kernels.
FOLDER = "tilewright_tuning"
VARIABLE = "TILEWRIGHT_TUNING_PATH"


def read(path: str | os.PathLike[str]) -> list[Record]:
    """Read the records of a file.

    Raises:
        OSError: it cannot be read.
        ValueError: it is not an export of a version that is understood.
    """
    wrong = f"{os.fspath(path)} is no file of tuning records of version {VERSION}"
    try:
        data = json.loads(Path(path).read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{wrong}: {error}") from None
    if (
        not isinstance(data, dict)
        or data.get("version") != VERSION
        or not isinstance(data.get("records"), list)
    ):
        raise ValueError(wrong)
    if not all(isinstance(entry, Mapping) for entry in data["records"]):
        raise ValueError(f"{wrong}: an entry is no record")
    return [parse(entry) for entry in data["records"]]


def write(path: str | os.PathLike[str], records: Iterable[Record]) -> int:
    """Write records to a file, in a deterministic order, and return their number.

    Raises:
        OSError: it cannot be written.
    """
    ordered = sorted(
        records,
        key=lambda record: (
            record.kernel,
            record.device,
            record.target,
            record.key,
            record.identity,
        ),
    )
    write_whole(
        Path(path),
        json.dumps(
            {"version": VERSION, "records": [asdict(record) for record in ordered]}, indent=1
        ).encode(),
    )
    return len(ordered)


def merge(records: Iterable[Record]) -> list[Record]:
    """Merge records with the same identity.

    Every configuration keeps its shortest median, and the overall best is the best; the result is
    complete if one record is. Of invariant tunings with different bits the first one counts.
    """
    found: dict[str, Record] = {}
    for record in records:
        before = found.get(record.identity)
        found[record.identity] = record if before is None else _both(before, record)
    return list(found.values())


def _both(one: Record, other: Record) -> Record:
    if one.signature != other.signature:  # the bits of one of them, which is the first
        return one
    timings = dict(one.timings)
    for text, times in other.timings.items():
        if text not in timings or times[0] < timings[text][0]:
            timings[text] = times
    fallback = one.best if one.complete or not other.complete else other.best
    best = min(timings, key=lambda text: timings[text][0], default=fallback)
    return replace(one, best=best, timings=timings, complete=one.complete or other.complete)


def file_name(device: str) -> str:
    """Return the file name for a kind of device.

    It is the device's name in lower case, with runs of characters other than letters and digits
    replaced by a dash.
    """
    words = "".join(
        character if character.isascii() and character.isalnum() else " "
        for character in device.lower()
    ).split()
    return f"{'-'.join(words) or 'device'}.json"


def write_by_device(folder: str | os.PathLike[str], records: Iterable[Record]) -> list[Path]:
    """Add records to the files of a folder, one per kind of device; return the files.

    Raises:
        OSError: a file cannot be written.
        ValueError: a file that is there holds something else.
    """
    by_file: dict[Path, list[Record]] = {}
    for record in records:
        by_file.setdefault(Path(folder) / file_name(record.device), []).append(record)
    for path, added in by_file.items():
        write(path, merge([*(read(path) if path.exists() else ()), *added]))
    return sorted(by_file)


# ---- looking up


def places(source_file: str | None) -> list[Path]:
    """Return the record files to search for a kernel defined in a file, in order."""
    entries = [
        Path(entry) for entry in os.environ.get(VARIABLE, "").split(os.pathsep) if entry.strip()
    ]
    if source_file:
        entries.append(Path(source_file).parent / FOLDER)
    found: list[Path] = []
    for entry in entries:
        found.extend(
            sorted(entry.glob("*.json")) if entry.is_dir() else [entry] if entry.is_file() else []
        )
    return found


#: (file, time of its last change, size) -> its records by identity
_read: dict[tuple[str, int, int], dict[str, Record]] = {}


def find(wanted: str, source_file: str | None) -> Record | None:
    """Find the record of an identity for a kernel defined in a file.

    A damaged record file is skipped with a warning.
    """
    for path in places(source_file):
        record = _records_of(path).get(wanted)
        if record is not None:
            return record
    return None


def _records_of(path: Path) -> Mapping[str, Record]:
    try:
        status = path.stat()
        key = (str(path), status.st_mtime_ns, status.st_size)
        if key not in _read:
            _read[key] = {}  # warned of once
            _read[key] = {record.identity: record for record in read(path)}
        return _read[key]
    except (OSError, ValueError) as error:
        warn_user(f"the tuning records of {path} are skipped ({error})")
        return {}


# ---- telling


def readable(text: str) -> str:
    """Return the readable text of a configuration or key, without the types of numbers."""
    return re.sub(r"(^|[=;])(?:int|float|bool|str):", r"\1", text)


def table(records: Sequence[Record]) -> list[dict[str, Any]]:
    """Tabulate records: kernel, device, key, best configuration and its milliseconds."""
    return [
        {
            "kernel": record.kernel,
            "device": record.device,
            "key": readable(record.key),
            "best": readable(record.best),
            "ms": record.timings.get(record.best, [math.nan])[0],
            "configurations": len(record.timings),
            "complete": record.complete,
        }
        for record in records
    ]
