"""Output formats of commands."""

from __future__ import annotations

import json


def print_json(data: object) -> None:
    """Print what has a form in JSON; of everything else, its text."""
    print(json.dumps(data, indent=2, default=str))


def size_text(size: float) -> str:
    """Bytes for people."""
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"
