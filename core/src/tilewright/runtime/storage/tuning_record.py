"""The record of one tuning: its configurations' timings, and the keys by which it is found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tilewright.runtime.storage.cache_keys import digest

VERSION = 1


@dataclass(frozen=True)
class Record:
    """The result of one tuning.

    Attributes:
        kernel: the kernel's name, for people.
        source: digest of the source of the kernel and of what it calls; independent of where the
            files lie.
        key: text of the tuning key.
        device: the device's name; target: the target's cache key.
        space: digest of the configurations that were compared.
        best: text of the best configuration.
        complete: whether every configuration was tried; not where a budget ended the tuning.
        timings: text of each configuration -> milliseconds (median, lower and upper quantile);
            infinities are absent.
        version: of this format.
        signature: of an invariant tuning: the configuration whose bits all launches of the kernel
            have, and a digest of bits that it computes; empty for others.
    """

    kernel: str
    source: str
    key: str
    device: str
    target: str
    space: str
    best: str
    timings: dict[str, list[float]] = field(default_factory=dict)
    complete: bool = True
    version: int = VERSION
    signature: str = ""

    @property
    def identity(self) -> str:
        """The digest by which the record is found."""
        return identity(self.source, self.key, self.device, self.target, self.space)


def identity(source: str, key: str, device: str, target: str, space: str) -> str:
    """Return the digest by which a record is found."""
    return digest(source, key, device, target, space)


def parse(data: Mapping[str, Any]) -> Record:
    """Parse a record from JSON data.

    Raises:
        ValueError: it is none.
    """
    try:
        record = Record(**data)
    except TypeError as error:
        raise ValueError(f"this is no tuning record: {error}") from None
    texts = (
        record.kernel,
        record.source,
        record.key,
        record.device,
        record.target,
        record.space,
        record.best,
        record.signature,
    )
    if (
        record.version != VERSION
        or not isinstance(record.complete, bool)
        or not all(isinstance(text, str) for text in texts)
        or not isinstance(record.timings, dict)
    ):
        raise ValueError("this is no tuning record of a version that is understood")
    if not all(
        isinstance(times, list)
        and len(times) == 3
        and all(isinstance(time, int | float) for time in times)
        for times in record.timings.values()
    ):
        raise ValueError("the timings of a tuning record are three numbers for each configuration")
    return record
