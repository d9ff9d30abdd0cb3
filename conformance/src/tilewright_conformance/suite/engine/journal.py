"""The journal of a run, from which an interrupted run resumes.

It is a file of JSON lines, one for the run and one for each outcome as it comes.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO

from tilewright_conformance.suite.case import Outcome


class JournalError(ValueError):
    """A journal belongs to another run, or is no journal."""


class Journal:
    """Outcomes on disk.

    Each is written before the next case is waited for, so that a killed run loses only the cases in
    flight.

    Args:
        path: the file; its folder exists.
        identity: everything outcomes depend on (versions, seed, device); a run resumes only where
            all of it is the same.
        resume: go on with the file, where there is one, rather than begin it anew.

    Attributes:
        done: the outcomes that were in the file, by case.

    Raises:
        JournalError: the file is of another run (the message names the difference), or damaged
            elsewhere than in its last line.
    """

    def __init__(self, path: Path, identity: Mapping[str, Any], *, resume: bool) -> None:
        self.done: dict[str, Outcome] = {}
        identity = json.loads(json.dumps(identity))
        keep = 0
        if resume and path.exists():
            keep = self._read(path, identity)
        self._file: TextIO = path.open("r+" if keep else "w", encoding="utf-8")
        if keep:
            self._file.truncate(keep)
            self._file.seek(keep)
        else:
            self._write({"run": identity})

    def add(self, outcome: Outcome) -> None:
        """Keep an outcome."""
        self._write(outcome.as_json())

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _write(self, data: Mapping[str, Any]) -> None:
        self._file.write(json.dumps(data) + "\n")
        self._file.flush()

    def _read(self, path: Path, identity: Mapping[str, Any]) -> int:
        """Read the file's outcomes and return the number of bytes of its whole lines."""
        text = path.read_bytes()
        whole = text.rfind(b"\n") + 1  # what follows was being written when the run was cut off
        lines = text[:whole].decode("utf-8", errors="replace").splitlines()
        if not lines:
            return 0
        found: Any = None
        with contextlib.suppress(ValueError):
            found = json.loads(lines[0])
        if not isinstance(found, dict) or not isinstance(found.get("run"), dict):
            raise JournalError(
                f"{path} is not the journal of a run; remove it, or run without --resume"
            )
        before = found["run"]
        changed = [
            f"{name} was {before.get(name)!r} and is {identity.get(name)!r}"
            for name in {**before, **identity}
            if before.get(name) != identity.get(name)
        ]
        if changed:
            raise JournalError(
                f"{path} is the journal of another run: {'; '.join(changed)}. Run without --resume "
                "to begin anew"
            )
        for number, line in enumerate(lines[1:], 2):
            try:
                outcome = Outcome.from_json(json.loads(line))
            except (TypeError, ValueError) as error:
                raise JournalError(
                    f"{path}, line {number}, is damaged ({error}); run without --resume to "
                    "begin anew"
                ) from None
            self.done[outcome.case] = outcome
        return whole
