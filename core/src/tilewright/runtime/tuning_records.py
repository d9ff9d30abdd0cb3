"""Stored results of autotuning.

There is one JSON record per kernel source, tuning key, device, target, and space of configurations.

Records lie in the folder ``tuning`` of the kernel cache's directory. They are plain data, so that a
library can ship the ones its kernels were tuned to: :func:`export` writes the records of this
machine to a file, :func:`load` adds a file's records to this process, where they come before the
local ones. :mod:`tilewright.runtime.shipped_records` documents the other locations of record
files.

``TILEWRIGHT_AUTOTUNE`` sets the mode of tuning:

    on             (default) tune, and keep the result
    off            never measure: the recorded best
    deterministic  never measure, and look only at loaded and shipped records: the same choice
                   on every machine
    refresh        measure even what is recorded, and keep the result
    memory         measure, and keep nothing on disk
    model          never measure, and look at no record: the configuration with the lowest
                   estimate of the backend

Where nothing is recorded, ``off`` and ``deterministic`` choose as ``model`` does; without an
estimate, all three take the first.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tilewright.environment import PREFIX, chosen, refused
from tilewright.errors import TuningArgumentError, VariableError
from tilewright.language.definitions.callable import JitCallable
from tilewright.runtime import shipped_records
from tilewright.runtime.storage import private_folder
from tilewright.runtime.storage.cache_keys import digest
from tilewright.runtime.storage.disk_cache import default_directory
from tilewright.runtime.storage.files import remove, warn_user
from tilewright.runtime.storage.tuning_record import Record, parse

MODES = ("on", "off", "deterministic", "refresh", "memory", "model")
CHECKS = ("off", "exact")
#: Bytes of the largest record: some hundred for each configuration.
_LARGEST = 64 << 20


def mode() -> str:
    """Return the current mode in ``TILEWRIGHT_AUTOTUNE``.

    Raises:
        VariableError: it names none.
    """
    return check_mode(
        os.environ.get("TILEWRIGHT_AUTOTUNE", "").strip().lower() or "on", "TILEWRIGHT_AUTOTUNE"
    )


def check_mode(found: str, source: str) -> str:
    """Validate a mode from ``source``: an argument, or an environment variable.

    Raises:
        TuningArgumentError, VariableError: it is none.
    """
    if found not in MODES:
        raise _refused(source, f"one of {', '.join(MODES)}", found)
    return found


def check_of_environment() -> str:
    """Return the check of configurations in ``TILEWRIGHT_AUTOTUNE_CHECK``, one of ``CHECKS``.

    Raises:
        VariableError: it names none.
    """
    return chosen("TILEWRIGHT_AUTOTUNE_CHECK", CHECKS)


def budget() -> float | None:
    """Return a tuning's budget in seconds from ``TILEWRIGHT_AUTOTUNE_BUDGET``; None for no limit.

    Raises:
        VariableError: it is no positive number.
    """
    named = os.environ.get("TILEWRIGHT_AUTOTUNE_BUDGET", "").strip()
    return check_budget(named, "TILEWRIGHT_AUTOTUNE_BUDGET") if named else None


def check_budget(given: Any, source: str) -> float:
    """Validate a number of seconds from ``source``: an argument, or an environment variable.

    Raises:
        TuningArgumentError, VariableError: it is no positive number.
    """
    try:
        found = math.nan if isinstance(given, bool) else float(given)
    except (TypeError, ValueError):
        found = math.nan
    if not found > 0:
        raise _refused(source, "a number of seconds above 0", given)
    return found


def _refused(source: str, wanted: str, given: Any) -> TuningArgumentError | VariableError:
    if source.startswith(PREFIX):
        return refused(source, wanted, given)
    return TuningArgumentError(f"{source} must be {wanted}, not {given!r}")


def source_key(function: JitCallable) -> str:
    """Return a digest of the source of a kernel and its callees, independent of file locations."""
    from tilewright.language.definitions.dependencies import dependencies, describe

    pending, seen, parts = [function], set(), []
    while pending:
        current = pending.pop()
        if id(current) in seen:
            continue
        seen.add(id(current))
        if current.fn is None:
            parts.append(str(current.hash))
            continue
        own = dependencies(current)
        read = [(name, value) for (name, _), (value, _) in own.globals.items()] + list(
            current.nonlocals.items()
        )
        values = sorted(f"{name}={describe(value, pending)}" for name, value in read)
        parts.append("\n".join((current.src, *values)))
        pending.extend(own.callees)
    return digest(parts[0], *sorted(parts[1:]))


def directory() -> Path:
    """Return the directory of this machine's records."""
    return default_directory() / "tuning"


_loaded: dict[str, Record] = {}


def find(wanted: str, *, own: bool = True, source_file: str | None = None) -> Record | None:
    """Find the record of an identity.

    Loaded records come first, then (with ``own``) this machine's, then those shipped for kernels of
    ``source_file``.
    """
    found = _loaded.get(wanted)
    if found is not None:
        return found
    if own:
        # no record, or a damaged one
        with contextlib.suppress(OSError, ValueError, RecursionError):
            return _own(directory() / f"{wanted}.json")
    return shipped_records.find(wanted, source_file)


def keep(record: Record) -> bool:
    """Write a record; False, with one warning, where the directory cannot be written."""
    path = directory() / f"{record.identity}.json"
    try:
        private_folder.write(
            path, json.dumps(asdict(record), indent=1).encode(), default_directory()
        )
    except OSError as error:
        warn_user(f"the result of autotuning {record.kernel} cannot be kept ({error})")
        return False
    return True


def keep_first(record: Record) -> Record:
    """Write a record unless its identity has one, and return the one that is kept.

    Of several processes that call this at once, all return the same record. Where the directory
    cannot be written, warn, and return the given record.
    """
    path = directory() / f"{record.identity}.json"
    try:
        private_folder.write_first(
            path, json.dumps(asdict(record), indent=1).encode(), default_directory()
        )
        with contextlib.suppress(ValueError, RecursionError):
            return _own(path)
        keep(record)  # in the place of a damaged one
        return record
    except OSError as error:
        warn_user(f"the bits of invariant launches of {record.kernel} cannot be kept ({error})")
        return record


def own_records() -> Iterator[Record]:
    """Return this machine's records."""
    for path in sorted(directory().glob("*.json")):
        with contextlib.suppress(OSError, ValueError, RecursionError):
            yield _own(path)


def _own(path: Path) -> Record:
    """Read a record of this machine; untrusted files are refused with a warning.

    Raises:
        OSError, ValueError, RecursionError: there is none, or it is damaged.
    """
    try:
        return parse(json.loads(private_folder.read(path, _LARGEST)))
    except private_folder.UntrustedError as error:
        warn_user(f"a record of autotuning is not used: {error}")
        raise


def export(path: str | os.PathLike[str], kernels: Iterable[str] | None = None) -> int:
    """Export this machine's records to a file and return their number.

    With names of kernels, only those kernels' records are written.
    """
    wanted = None if kernels is None else set(kernels)
    return shipped_records.write(
        path, [record for record in own_records() if wanted is None or record.kernel in wanted]
    )


def load(path: str | os.PathLike[str]) -> int:
    """Add the records of an exported file to this process; return their number.

    Raises:
        ValueError: the file is not an export of a version that is understood.
    """
    records = shipped_records.read(path)
    _loaded.update({record.identity: record for record in records})
    return len(records)


def forget_loaded() -> None:
    """Undo every :func:`load`."""
    _loaded.clear()


def clear() -> int:
    """Remove this machine's records; return their number."""
    count = 0
    for path in directory().glob("*.json"):
        count += remove(path)
    return count
