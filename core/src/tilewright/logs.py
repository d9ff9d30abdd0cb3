"""Logging of the runtime's decisions, through Python's ``logging``.

The loggers are ``tilewright.compile``, ``.cache``, ``.tuning`` and ``.dispatch``.

``TILEWRIGHT_LOG=compile,cache`` switches some of them on, and writes what they say to standard
error where the program has set up no logging of its own. A message is made only where its logger is
on:

    if logs.CACHE.on():
        logs.CACHE.tell(f"{name}: not in {folder}")

Launches of kernels that were launched before ask none of them.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable

from tilewright.environment import refused

VARIABLE = "TILEWRIGHT_LOG"


class Channel:
    """One of the loggers.

    Facts that a user may want unasked are ``logging.INFO``, the rest ``logging.DEBUG``.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.logger = logging.getLogger(f"tilewright.{name}")

    def on(self, level: int = logging.DEBUG) -> bool:
        """Return whether anybody reads messages of a level.

        Raises:
            VariableError: ``TILEWRIGHT_LOG`` names a logger that there is not.
        """
        text = os.environ.get(VARIABLE, "")
        if text != _switched.text:
            _switched.follow(text)
        return self.logger.isEnabledFor(level)

    def tell(self, message: str, level: int = logging.DEBUG) -> None:
        """Log a message, which is no format."""
        self.logger.log(level, "%s", message)


class _StandardError(logging.Handler):
    """Writes to what ``sys.stderr`` is when a message comes."""

    def emit(self, record: logging.LogRecord) -> None:
        if sys.stderr is not None:
            print(f"{record.name}: {record.getMessage()}", file=sys.stderr)


class _Switched:
    """The last value of ``TILEWRIGHT_LOG``, and how to undo its effects."""

    def __init__(self) -> None:
        self.text = ""
        self._undo: list[Callable[[], None]] = []

    def follow(self, text: str) -> None:
        names = [name.strip() for name in text.split(",") if name.strip()]
        unknown = [name for name in names if name not in CHANNELS]
        if unknown:
            raise refused(
                VARIABLE, f"names of {', '.join(CHANNELS)}, with commas between them", text
            )
        while self._undo:
            self._undo.pop()()
        for name in dict.fromkeys(names):
            self._switch_on(CHANNELS[name].logger)
        self.text = text

    def _switch_on(self, logger: logging.Logger) -> None:
        level = logger.level
        logger.setLevel(logging.DEBUG)
        self._undo.append(lambda: logger.setLevel(level))
        if not logger.hasHandlers():
            handler = _StandardError()
            logger.addHandler(handler)
            self._undo.append(lambda: logger.removeHandler(handler))


_switched = _Switched()
COMPILE, CACHE, TUNING, DISPATCH = map(Channel, ("compile", "cache", "tuning", "dispatch"))
#: name -> logger, as ``TILEWRIGHT_LOG`` names them
CHANNELS = {channel.name: channel for channel in (COMPILE, CACHE, TUNING, DISPATCH)}
