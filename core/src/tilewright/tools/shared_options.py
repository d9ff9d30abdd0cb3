"""Options that several commands have, of this and other command lines."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any


def repeated(command: argparse.ArgumentParser, name: str, **settings: Any) -> None:
    """Add an option that may be repeated, whose values are a list.

    Args:
        settings: as of ``add_argument``.
    """
    command.add_argument(name, action="append", default=[], **settings)


def worker_processes(
    command: argparse.ArgumentParser,
    type_: Callable[[str], int] = int,
    help_: str = "number of worker processes (default: one per processor)",
) -> None:
    """Add ``-j`` and ``--jobs``, the number of worker processes; 0 by default."""
    command.add_argument("-j", "--jobs", type=type_, default=0, metavar="N", help=help_)
