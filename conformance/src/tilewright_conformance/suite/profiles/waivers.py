"""Waivers: cases that need not pass for a claim of one backend on one device, until a day.

They hold for one version of the suite. They are rows of ``waivers.toml`` beside this file, each
with its reason and the issue in which it was granted. They belong to the suite's own release, and
are no list of a vendor's (that is ``tilewright_conformance.suite.expectations``, which spares no
case that must pass). A report names the waived cases of each claim.
"""

from __future__ import annotations

import datetime
import functools
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

_FILE = Path(__file__).with_name("waivers.toml")


class WaiverError(ValueError):
    """A row breaks a rule; the message has its number, from 1."""


@dataclass(frozen=True)
class Waiver:
    """One row.

    Attributes:
        case, device: an id and a device's name, or patterns of the shell.
        backend, suite: the backend's name, the suite's version.
        reason, issue: why, and the URL where it was granted.
        expires: the last day on which a run may start.
    """

    case: str
    backend: str
    device: str
    suite: str
    reason: str
    issue: str
    expires: datetime.date

    def __post_init__(self) -> None:
        for name in ("case", "backend", "device", "suite", "reason", "issue"):
            value = getattr(self, name)
            if not isinstance(value, str) or not value.strip():
                raise WaiverError(f"{name} must be a text that is not empty, not {value!r}")
        if not self.issue.startswith(("https://", "http://")):
            raise WaiverError(f"issue must be a URL, not {self.issue!r}")
        if type(self.expires) is not datetime.date:
            raise WaiverError(f"expires must be a day, as 2027-06-30, not {self.expires!r}")

    def holds(self, backend: str, device: str, suite: str, day: datetime.date) -> bool:
        """Return whether it holds for a backend, a device and a version of the suite on a day."""
        return (
            backend == self.backend
            and suite == self.suite
            and fnmatchcase(device, self.device)
            and day <= self.expires
        )


@functools.cache
def waivers() -> tuple[Waiver, ...]:
    """The rows of this version of the suite."""
    return read_waivers(_FILE)


def read_waivers(path: Path) -> tuple[Waiver, ...]:
    """Read a file of waivers.

    Raises:
        WaiverError: a row breaks a rule.
        tomllib.TOMLDecodeError, OSError: it cannot be read.
    """
    found, names = [], {field.name for field in fields(Waiver)}
    for number, row in enumerate(
        tomllib.loads(path.read_text(encoding="utf-8")).get("waiver", []), 1
    ):
        if set(row) != names:
            raise WaiverError(
                f"waiver {number} must have exactly {', '.join(sorted(names))}, not "
                f"{', '.join(sorted(row))}"
            )
        try:
            found.append(Waiver(**row))
        except WaiverError as error:
            raise WaiverError(f"waiver {number}: {error}") from None
    return tuple(found)


def waived_cases(document: Mapping[str, Any], rows: Iterable[Waiver]) -> frozenset[str]:
    """The cases of a report that rows spare."""
    day = datetime.datetime.fromisoformat(document["run"]["started"]).date()
    about = (
        document["backend"]["name"],
        document["device"]["name"],
        document["suite"]["version"],
        day,
    )
    valid = [row for row in rows if row.holds(*about)]
    return frozenset(
        result["case"]
        for result in document["results"]
        if any(fnmatchcase(result["case"], row.case) for row in valid)
    )
