"""``tilewright opt``: run passes of Tile IR and stages of the GPU toolkit on a text.

The result is printed. Stages run for a target that is built on the toolkit.
"""

from __future__ import annotations

import argparse
import difflib
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilewright.errors import LoweringError, TilewrightError
from tilewright.ir.core import Module
from tilewright.ir.parser import ParseError, parse_module
from tilewright.ir.printer import print_module
from tilewright.ir.table import OpTable
from tilewright.ir.verifier import VerificationError, verify
from tilewright.plugins.manifest import PORTABLE_OPTIONS, Target
from tilewright.plugins.registry import Backend
from tilewright.tools.usage import UsageError

if TYPE_CHECKING:
    from tilewright.simt.target.simt_target import SimtTarget, Stage

#: The machine that needs no backend; ``emulator:8`` has warps of 8 lanes.
EMULATOR = "emulator"


@dataclass(frozen=True, slots=True)
class NamedPass:
    """A pass as the command line knows it.

    Attributes:
        name: by which it is asked for.
        meaning: a line about it.
        run: rewrites a module.
    """

    name: str
    meaning: str
    run: Callable[[Module], object]


@dataclass(slots=True)
class PassContext:
    """The target and options that the passes run for.

    Attributes:
        options: the launch options.
        backend, target: of a target of a backend; None for the emulated machine, and where no
            target is named.
        machine: what the toolkit lowers for; None where there is none.
    """

    options: Mapping[str, Any] = field(default_factory=dict)
    backend: Backend | None = None
    target: Target | None = None
    machine: SimtTarget | None = None

    @property
    def table(self) -> OpTable:
        """Return the operations that a text may have.

        Those of the toolkit are always among them, so that its output can be read without its
        target.
        """
        from tilewright.simt.dialect.ops import SIMT_TABLE

        table = self.machine.dialect.table if self.machine is not None else SIMT_TABLE
        own = self.backend.manifest.ops if self.backend is not None else ()
        return table.extended([spec for spec in own if spec.name not in table])


def opt_command(options: argparse.Namespace) -> int:
    """Run what the command line names; see ``tilewright opt --help``."""
    from tilewright.tools.inspect import parse_assignments

    place = place_of(options.target, parse_assignments(options.options))
    known = passes_of(place)
    if options.list:
        print(passes_text(list(known.values())))
        return 0
    if options.file is None:
        raise UsageError("name a FILE of text, or - for standard input; --list shows the passes")
    chosen = choose(
        [name.strip() for text in options.passes for name in text.split(",") if name.strip()],
        known,
        place,
    )
    name, text = _text(options.file)
    module = read(text, name, place)
    run(module, chosen, verify_each=options.verify)
    print(print_module(module, locations=options.locations), end="")
    return 0


def place_of(name: str | None, given: Mapping[str, Any]) -> PassContext:
    """Parse ``--target`` and ``--options``.

    The target is ``emulator``, ``emulator:LANES``, ``BACKEND`` or ``BACKEND:ARCH``.

    Raises:
        UsageError: there is no such target or option.
    """
    if name is None:
        return PassContext(_portable(given))
    head, _, rest = name.partition(":")
    if head == EMULATOR:
        from tilewright.simt.emulator import EmulatedTarget

        lanes = int(rest) if rest.isdecimal() else 0
        if rest and (lanes < 1 or lanes & (lanes - 1)):
            raise UsageError(f"--target: {EMULATOR}:LANES takes a power of two, not {rest!r}")
        return PassContext(_portable(given), machine=EmulatedTarget(lanes or 32))
    from tilewright.runtime.options import resolve
    from tilewright.tools.inspect import place

    backend, target = place(head, rest or None)
    try:
        options = resolve(backend, "opt", given, {})
    except (KeyError, AssertionError) as error:
        raise UsageError(f"--options: {error.args[0]}") from None
    return PassContext(
        options,
        backend,
        target,
        backend.call("tilewright_simt_target", target=target, options=options),
    )


def _portable(given: Mapping[str, Any]) -> dict[str, Any]:
    for name in given:
        if name not in PORTABLE_OPTIONS:
            raise UsageError(
                f"--options: there is no option {name!r}{_closest(name, PORTABLE_OPTIONS)} There "
                f"are {', '.join(PORTABLE_OPTIONS)}"
            )
    return {**PORTABLE_OPTIONS, **given}


def passes_of(place: PassContext) -> dict[str, NamedPass]:
    """Return the passes of a place by name.

    They are those of Tile IR, those that the backend adds for the target, and the toolkit's stages.
    """
    from tilewright.passes import pipeline
    from tilewright.passes.expand_math import expand_math
    from tilewright.passes.inline import inline

    found = {
        pass_.name: pass_
        for pass_ in (
            *map(_named, (*pipeline.STANDARD, inline, expand_math)),
            _decomposition(place),
        )
    }
    if place.backend is not None:
        own: Sequence[Callable[[Module], Any]] | None = place.backend.call(
            "tilewright_passes",
            target=place.target,
            options=place.options,
            passes=pipeline.STANDARD,
        )
        for pass_ in map(_named, own or ()):
            found.setdefault(pass_.name, pass_)
    if place.machine is not None:
        for stage in _stages(place.machine):
            found[stage.name] = _staged(stage, place.machine, place.options)
    return found


def _named(pass_: Callable[[Module], Any]) -> NamedPass:
    from tilewright.passes.pipeline import pass_name

    meaning = " ".join((pass_.__doc__ or "").partition("\n\n")[0].split())
    return NamedPass(pass_name(pass_), meaning, pass_)


def _decomposition(place: PassContext) -> NamedPass:
    """Return the pass that decomposes the operations that the backend does not lower.

    Without a backend whose manifest names its operations, all are decomposed that can be.
    """
    from tilewright.passes.decompose.catalogue import CATALOGUE, decompose

    manifest = None if place.backend is None else place.backend.manifest
    named = manifest is not None and manifest.lowers
    lowers = (
        manifest.lowers
        if manifest is not None and named
        else {spec.name for spec in place.table} - set(CATALOGUE)
    )
    computes = manifest.computes if manifest is not None else frozenset()
    which = (
        f"operations that {manifest.name} does not lower, or not in their types"
        if manifest is not None and named
        else "all operations that have a decomposition"
    )
    return NamedPass(
        "decompose",
        f"Decompose {which}, in place.",
        lambda module: decompose(module, lowers, computes),
    )


def _stages(machine: SimtTarget | None) -> tuple[Stage, ...]:
    from tilewright.simt.compile import STAGES

    return machine.stages(STAGES) if machine is not None else STAGES


def _staged(stage: Stage, machine: SimtTarget, options: Mapping[str, Any]) -> NamedPass:
    return NamedPass(
        stage.name,
        f"{stage.meaning} (a stage of the GPU toolkit)",
        lambda module: stage.run(module, machine, options),
    )


def choose(
    names: Sequence[str],
    known: Mapping[str, NamedPass],
    place: PassContext,
) -> list[NamedPass]:
    """The passes of some names, in order.

    Raises:
        UsageError: there is none of a name, or it needs a machine; the message lists those there
            are.
    """
    stages = [stage.name for stage in _stages(None)]
    for name in names:
        if name in known:
            continue
        if name in stages and place.machine is None:
            where = (
                f"backend {place.backend.name!r} is not built on it"
                if place.backend is not None
                else "no target is named"
            )
            raise UsageError(
                f"{name!r} is a stage of the GPU toolkit, and {where}: --target takes {EMULATOR}, "
                f"{EMULATOR}:LANES, or BACKEND:ARCH of a backend that is"
            )
        raise UsageError(
            f"there is no pass {name!r}{_closest(name, known)} There are {', '.join(known)}"
        )
    return [known[name] for name in names]


def _closest(name: str, known: Mapping[str, Any]) -> str:
    close = difflib.get_close_matches(name, list(known), 1)
    return f"; did you mean {close[0]}?" if close else "."


def _text(file: str) -> tuple[str, str]:
    """(what to call it in messages, the text) of a file, or of standard input."""
    if file == "-":
        return "standard input", sys.stdin.read()
    try:
        return file, Path(file).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            f"{file} cannot be read: {getattr(error, 'strerror', None) or error}"
        ) from None


def read(text: str, name: str, place: PassContext) -> Module:
    """The verified module of a text.

    Raises:
        UsageError: the text is no module, with the line and a caret, or breaks a rule.
    """
    try:
        module = parse_module(text, place.table)
        verify(module)
    except ParseError as error:
        raise UsageError(f"{name}: {error}") from None
    except VerificationError as error:
        raise UsageError(f"{name} breaks a rule: {error}") from None
    return module


def run(module: Module, passes: Sequence[NamedPass], *, verify_each: bool) -> None:
    """Run passes in order.

    Raises:
        LoweringError: a pass cannot do its work on what it is given, or leaves a module that breaks
            a rule.
    """
    for pass_ in passes:
        try:
            pass_.run(module)
        except TilewrightError:
            raise
        except Exception as error:
            text = f"{type(error).__name__}: {error}".rstrip(": ")
            raise LoweringError(
                f"{pass_.name} cannot run on this module, for which another pass may have to come "
                f"before: {text}"
            ) from error
        if verify_each:
            try:
                verify(module)
            except VerificationError as error:
                raise LoweringError(
                    f"after {pass_.name} the module breaks a rule: {error}"
                ) from error


def passes_text(passes: Sequence[NamedPass]) -> str:
    """A line a pass."""
    width = max(len(pass_.name) for pass_ in passes)
    return "\n".join(f"{pass_.name:<{width}}  {pass_.meaning}" for pass_ in passes)
