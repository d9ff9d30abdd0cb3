"""Stages of the GPU toolkit, text in and text out: what tests of passes are written with."""

from __future__ import annotations

import textwrap
from typing import Any

from tilewright.ir.core import Module
from tilewright.ir.parser import parse_module
from tilewright.ir.printer import print_module
from tilewright.ir.verifier import verify
from tilewright.simt.compile import run_stages
from tilewright.simt.emulator import EmulatedTarget
from tilewright.simt.target.simt_target import SimtTarget

_HEADER = "tilewright.ir 1.0\n"


def read(text: str, target: SimtTarget | None = None) -> Module:
    """Parse and verify the module of a text, whose header may be missing."""
    text = textwrap.dedent(text).strip()
    if not text.startswith("tilewright.ir"):
        text = _HEADER + text
    module = parse_module(text, (target or EmulatedTarget()).dialect.table)
    verify(module)
    return module


def written(module: Module) -> str:
    """The text of a module, without the header and without locations."""
    return print_module(module, locations=False).removeprefix(_HEADER).strip()


def plain(text: str) -> str:
    """Normalize a text to the form of :func:`written`."""
    return textwrap.dedent(text).strip()


def changed(text: str, *changes: tuple[str, str]) -> str:
    """Normalize a text to the form of :func:`written`, and replace some of its parts.

    Each change is (part, which the text has once; its replacement).
    """
    for old, new in changes:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return plain(text)


def after(text: str, *stages: str, target: SimtTarget | None = None, **options: Any) -> str:
    """Return the text of a module after named stages of the toolkit.

    By default it is for the emulated target, with two warps.

    Args:
        options: launch options, such as ``num_stages``.
    """
    target = target or EmulatedTarget()
    module = read(text, target)
    run_stages(module, target, {"num_warps": 2, "num_stages": 2, **options}, list(stages))
    return written(module)
