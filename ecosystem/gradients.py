"""Gradients of the forward kernels of programs: right with their error, or refused with the reason.

    python ecosystem/gradients.py                       all programs that are installed
    python ecosystem/gradients.py --program liger       one, may be repeated
    python ecosystem/gradients.py --write docs/performance/gradients.md

The programs run unchanged on the CPU. Each launch of a kernel is recorded with its arguments, and
``tw.testing.gradcheck`` checks the kernel's derivatives in it: forward mode against central
differences, reverse mode against forward mode. Outputs are the arrays of floats that the launch
changed; the derivative is by the others. Kernels of backward passes are excluded.
"""

from __future__ import annotations

import argparse
import importlib
import re
import signal
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
PROGRAMS = (
    "gradient_examples", "liger", "gradient_packages", "gradient_chunks", "unsloth",
    "flash_linear_attention",
)  # fmt: skip
#: Names of kernels of backward passes.
_BACKWARD = re.compile(r"bwd|backward|grad|_bw_|_d[qkvxwb]|dq|dkv")
#: Seconds that a check may take on the reference interpreter.
_LIMIT = 120
#: Launches of one kernel that are checked, of other constants than sizes.
_VARIANTS = 3
#: Cases that are not run: of exact mode; and one that first compares two kernels of a package in
#: rows of very different magnitudes, to which no step fits (``gradient_chunks`` has the kernels).
_SKIPPED = re.compile(r"exact_mode|unsloth.*case_rms_norm$")
_SIZES = re.compile(r"BLOCK|GROUP|PROGRAMS|HALVES|SPECIALIZE|NUM_|num_|^B[A-Z]?$|^[MNK]$")


@dataclass
class Launch:
    """A launch of a kernel, with copies of its arguments."""

    kernel: Any
    grid: Any
    arguments: dict[str, Any]
    options: dict[str, Any]
    outputs: tuple[str, ...] = ()
    wrt: tuple[str, ...] = ()


@dataclass
class Row:
    """A line of the table."""

    program: str
    kernel: str
    constants: str
    verdict: str
    detail: str
    seconds: float


@contextmanager
def recorded() -> Iterator[list[Launch]]:
    """Record the launches of the block."""
    from tilewright.runtime.launch.jit import JITFunction

    launches: list[Launch] = []
    original = JITFunction.__getitem__

    def indexed(self: Any, grid: Any) -> Any:
        def run(*args: Any, **keywords: Any) -> Any:
            names = self.arg_names
            given = dict(zip(names, args, strict=False))
            given.update((name, value) for name, value in keywords.items() if name in names)
            options = {name: value for name, value in keywords.items() if name not in names}
            launch = Launch(self, grid, {k: _copy(v) for k, v in given.items()}, options)
            found = original(self, grid)(*args, **keywords)
            floats = {name: value for name, value in given.items() if _is_float(value)}
            changed = [n for n, value in floats.items() if not _same(launch.arguments[n], value)]
            launch.outputs = tuple(changed)
            launch.wrt = tuple(name for name in floats if name not in changed)
            launches.append(launch)
            return found

        return run

    JITFunction.__getitem__ = indexed  # type: ignore[method-assign]
    try:
        yield launches
    finally:
        JITFunction.__getitem__ = original  # type: ignore[method-assign]


def _base(value: Any) -> Any:
    return getattr(value, "base", None) if hasattr(value, "block_shape") else value


def _is_float(value: Any) -> bool:
    array = _base(value)
    return (
        hasattr(array, "dtype")
        and hasattr(array, "numel")
        and array.is_floating_point()
        and array.element_size() > 1
    )


def _copy(value: Any) -> Any:
    if hasattr(value, "block_shape"):
        copied = type(value)(_copy(value.base), value.shape, value.strides, value.block_shape)
        copied.padding = value.padding
        return copied
    if hasattr(value, "detach"):
        return value.detach().clone(memory_format=_torch().preserve_format)
    return value


def _torch() -> Any:
    import torch

    return torch


def _same(before: Any, after: Any) -> bool:
    first, second = (_base(each).detach().double().numpy() for each in (before, after))
    return bool(np.array_equal(first, second, equal_nan=True))


def constants_of(launch: Launch) -> str:
    """The constants of a launch that say what is computed."""
    names = {parameter.name for parameter in launch.kernel.params if parameter.is_constexpr}
    names = {name for name in names if not _SIZES.search(name)}
    values = {
        name: getattr(value, "__name__", value)
        for name, value in launch.arguments.items()
        if name in names
    }
    return ", ".join(f"{name}={value}" for name, value in values.items())


def chosen(launches: list[Launch]) -> Iterator[Launch]:
    """The launches of forward kernels that write floats, a few of each kernel.

    Of launches of the same constants it is the last, for programs test themselves, and tune, first.
    """
    seen: dict[str, dict[str, Launch]] = {}
    for launch in launches:
        name = launch.kernel.__name__
        known = seen.setdefault(name, {})
        constants = constants_of(launch)
        if _BACKWARD.search(name) or not launch.outputs:
            continue
        if constants in known or len(known) < _VARIANTS:
            known[constants] = launch
    for variants in seen.values():
        yield from variants.values()


def check(program: str, launch: Launch) -> Row | None:
    """Check the derivatives of a launch; None where the kernel reads no floats.

    Of a kernel that writes to all of its arrays, they are by the first, which it must not read.
    """
    import tilewright as tw

    started = time.perf_counter()

    def row(verdict: str, detail: str) -> Row:
        name = launch.kernel.__name__
        seconds = time.perf_counter() - started
        return Row(program, name, constants_of(launch), verdict, detail, seconds)

    for wrt in (launch.wrt, launch.outputs[:1]):
        try:
            with limited(_LIMIT):
                found = tw.testing.gradcheck(
                    launch.kernel,
                    launch.grid,
                    **launch.arguments,
                    **launch.options,
                    outputs=launch.outputs,
                    wrt=wrt,
                )
        except TimeoutError:
            return row("not checked", f"takes more than {_LIMIT} s on the reference interpreter")
        except tw.DerivativeError as error:
            return row("refused", _within_packages(" ".join(error.reason.split())))
        except tw.TilewrightError as error:
            if "no float of the kernel depends on" in str(error):
                continue
            return row("failed", " ".join(str(error).split())[:160])
        except Exception as error:
            traceback.print_exc()
            return row("failed", f"{type(error).__name__}: {' '.join(str(error).split())[:160]}")
        if not found:
            return row("wrong", str(found.wrong[0]))
        return row("right", f"{found.difference:.0e}, {found.dot:.0e} ({found.type})")
    return None


def _within_packages(text: str) -> str:
    """Return a text with paths that begin at the packages that are imported."""
    for folder in sorted(filter(None, sys.path), key=len, reverse=True):
        text = text.replace(f"{folder}/", "")
    return text


@contextmanager
def limited(seconds: int) -> Iterator[None]:
    """Raise TimeoutError when the block takes longer."""

    def late(number: int, frame: Any) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def run(program: str) -> list[Row]:
    """Run the cases of a program, and check the kernels that they launch."""
    module = importlib.import_module(f"programs.{program}")
    own = {name for name, value in vars(module).items() if hasattr(value, "arg_names")}
    with recorded() as launches:
        for name, case in list(vars(module).items()):
            if name.startswith("case_") and not _SKIPPED.search(f"{program} {name}"):
                try:
                    case("cpu")
                except Exception as error:
                    print(f"{program} {name}: {type(error).__name__}: {error}", file=sys.stderr)
    rows = []
    for launch in chosen(launches):
        if launch.kernel.__name__ not in own:
            found = check(program, launch)
            if found is not None:
                rows.append(found)
                print(line(found), flush=True)
    return rows


def line(row: Row) -> str:
    return (
        f"{row.program:24} {row.kernel:44} {row.verdict:12} {row.detail}  [{row.constants}] "
        f"{row.seconds:.1f} s"
    )


def page(rows: list[Row]) -> str:
    """The page of the table."""
    counts = {each: sum(row.verdict == each for row in rows) for each in dict.fromkeys(
        row.verdict for row in rows)}  # fmt: skip
    listed = ", ".join(f"{count} {verdict}" for verdict, count in counts.items())
    lines = [
        "# Gradients of programs' kernels",
        "",
        "Forward kernels of the examples and of public packages, unchanged. `python ecosystem/",
        "gradients.py --write` ran the programs on the CPU, and checked the derivatives of each",
        "kernel with `tw.testing.gradcheck`, on the reference interpreter, in a launch that the",
        "program made. *Right* has the errors of forward mode from central differences and of",
        "reverse mode from forward mode, and the narrowest type of floats that depend on an input.",
        "",
        f"{len(rows)} kernels: {listed}. A kernel that reads what it overwrites is refused: its",
        "gradient needs the input as it was. Pass an output of its own, or, where the kernel takes",
        "none, differentiate a copy of it that stores elsewhere.",
        "",
        "| program | kernel | constants | | |",
        "|---|---|---|---|---|",
    ]
    lines += [
        f"| {row.program} | `{row.kernel}` | {row.constants.replace('|', '/')} | {row.verdict} | "
        f"{row.detail.replace('|', '/')} |"
        for row in rows
    ]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Returns 1 where a gradient is wrong."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n", maxsplit=1)[0])
    parser.add_argument("--program", action="append", default=[])
    parser.add_argument("--write", default="", metavar="FILE", help="write the table as a page")
    options = parser.parse_args()
    import tilewright.compat.triton  # noqa: F401  # who imports triton from now on finds it

    sys.path.insert(0, str(HERE))
    rows = [row for program in options.program or PROGRAMS for row in run(program)]
    if options.write:
        Path(options.write).write_text(page(rows), encoding="utf-8")
    wrong = sum(row.verdict in ("wrong", "failed") for row in rows)
    print(f"{len(rows)} kernels, {wrong} wrong or failed")
    return 1 if wrong or not rows else 0


if __name__ == "__main__":
    sys.exit(main())
