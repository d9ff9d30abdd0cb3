"""The subcommands of ``tilewright`` and their options."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import tilewright
from tilewright.runtime.executors import FORMS as EXECUTORS
from tilewright.tools.shared_options import repeated, worker_processes


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line; ``command`` is the name of the subcommand."""
    parser = argparse.ArgumentParser(
        prog="tilewright",
        description="Inspect, measure and debug tile kernels, and manage backends and the cache.",
    )
    parser.add_argument(
        "--version", action="version", version=f"tilewright {tilewright.__version__}"
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    backends = _command(
        commands,
        "backends",
        "list the installed backends, their devices and the disabled plugins",
    )
    backends.add_argument("--json", action="store_true", help="print JSON")

    inspect = _command(
        commands, "inspect", "compile a kernel, and print the IR and the time of each stage"
    )
    inspect.add_argument(
        "kernel",
        metavar="FILE:KERNEL",
        help="a kernel of a Python file, or a file of Tile IR text (.tileir)",
    )
    _what_is_compiled(inspect)
    inspect.add_argument("--stage", help="print only this stage, without a heading")
    inspect.add_argument(
        "--locations", action="store_true", help="keep source locations in Tile IR text"
    )

    explain = _command(
        commands,
        "explain",
        "write an HTML report that shows how the compiler lowered each line of a kernel",
    )
    explain.add_argument(
        "kernel",
        metavar="FILE:KERNEL",
        help="a kernel of a Python file; FILE if it is the only one",
    )
    _what_is_compiled(explain)
    explain.add_argument(
        "--arguments",
        metavar="LIST",
        help=(
            "arguments of a launch instead of a signature: 'x=fp32[n, 64], n=4096, scale=0.5'; "
            "each name (x, n, scale) is a parameter of the kernel; write other extents as numbers; "
            "no array is allocated"
        ),
    )
    explain.add_argument(
        "--grid",
        metavar="SIZES",
        help=(
            "grid of the launch: one to three sizes; expressions may use arguments and constants: "
            "'cdiv(n, BLOCK)'"
        ),
    )
    explain.add_argument("--json", action="store_true", help="print JSON")
    explain.add_argument(
        "--output",
        type=Path,
        metavar="FILE",
        help="file to write (default: KERNEL.html in the current directory)",
    )

    export = _command(
        commands,
        "compile",
        "compile a kernel to a shared library and a header for C programs",
    )
    export.add_argument(
        "kernel",
        metavar="FILE:KERNEL",
        help="a kernel of a Python file; FILE if it is the only one",
    )
    _what_is_compiled(export)
    export.add_argument(
        "--name", help="name of the files and functions (default: the kernel's name)"
    )
    export.add_argument(
        "--output",
        type=Path,
        default=Path(),
        metavar="DIR",
        help="folder to write to (default: the current directory)",
    )

    opt = _command(
        commands,
        "opt",
        "run passes on Tile IR or on the SIMT IR of the GPU toolkit, and print the result",
    )
    opt.add_argument("file", nargs="?", metavar="FILE", help="a file of IR; - reads standard input")
    repeated(
        opt,
        "--passes",
        metavar="NAMES",
        help="passes to run in order, separated by commas; may be repeated (default: none)",
    )
    opt.add_argument(
        "--target",
        metavar="TARGET",
        help=(
            "target of the passes: BACKEND:ARCH, BACKEND, or emulator[:LANES], a machine that "
            "CPU threads emulate"
        ),
    )
    repeated(
        opt,
        "--options",
        metavar="NAME=VALUE",
        help="launch options, for example num_warps=8,num_stages=3",
    )
    opt.add_argument("--list", action="store_true", help="list the passes of the target")
    opt.add_argument(
        "--verify", action="store_true", help="verify the IR after each pass, not only the input"
    )
    opt.add_argument("--locations", action="store_true", help="print source locations")

    operations = _command(
        commands,
        "ops",
        "list the operations of Tile IR, or describe one: its types, its rules, an example",
    )
    operations.add_argument("name", nargs="?", metavar="NAME", help="an operation")
    operations.add_argument(
        "--backend",
        default="",
        metavar="NAME",
        help="add this backend's operations, and show at the end which of all it lowers, which the "
        "compiler decomposes for it, and which it does not lower",
    )
    operations.add_argument("--json", action="store_true", help="print JSON")

    trace = _command(
        commands,
        "trace",
        "run a kernel once, and print the range, the NaN and the infinities of each float value "
        "that it computes",
    )
    _described_launch(trace)
    trace.add_argument(
        "--nan",
        action="store_true",
        help="print only where NaN and infinities originate; exit with code 1 if there is a NaN",
    )
    trace.add_argument(
        "--output",
        type=Path,
        metavar="FILE.html",
        help="write the report of 'tilewright explain' with the values of each line",
    )
    trace.add_argument("--json", action="store_true", help="print JSON")

    bisect = _command(
        commands,
        "bisect",
        "find the pass, backend or launch option that changes a kernel's results; exit with "
        "code 1 if one does",
    )
    _described_launch(bisect)
    bisect.add_argument(
        "--exact",
        action="store_true",
        help="search in exact mode, with random payloads, and tolerate no difference",
    )
    bisect.add_argument("--json", action="store_true", help="print JSON")

    tune = _command(
        commands,
        "tune",
        "measure the configurations of a kernel for a launch, or the block sizes of a package",
    )
    tune.add_argument(
        "kernel",
        metavar="FILE:KERNEL",
        help=(
            "a kernel of a Python file; the result for a kernel with @autotune is recorded; or "
            "PACKAGE or PACKAGE:RULE,RULE: the package measures its block sizes"
        ),
    )
    _launch(tune, "meta-parameters", required=False)
    repeated(
        tune,
        "--config",
        metavar="NAME=VALUE,...",
        help="a configuration to measure instead of the kernel's own; may be repeated",
    )
    repeated(
        tune,
        "--space",
        metavar="NAME=VALUE|VALUE",
        help="values of a meta-parameter or option; every combination of several is measured",
    )
    tune.add_argument(
        "--budget",
        metavar="SECONDS",
        help="stop after this time, with the fastest so far",
    )
    tune.add_argument(
        "--time-limit",
        metavar="SECONDS",
        help="limit for compiling one configuration, and again for measuring it",
    )
    tune.add_argument(
        "--executor",
        metavar="WHERE",
        help=f"measure on workers, with one record per kind of device: {EXECUTORS}",
    )
    tune.add_argument(
        "--invariant",
        action="store_true",
        help="choose only among configurations that compute the same bits for every batch size",
    )
    tune.add_argument(
        "--records",
        type=Path,
        metavar="FOLDER",
        help="add the result to the folder's record file for this kind of device",
    )
    tune.add_argument(
        "--plot",
        type=Path,
        metavar="FILE",
        help="plot the times to this file (.png, .svg, .pdf); requires matplotlib",
    )
    tune.add_argument("--json", action="store_true", help="print JSON")

    records = _command(
        commands, "records", "list, merge or export tuning records, which a library can ship"
    )
    records.add_argument(
        "action",
        choices=("list", "merge", "export"),
        help="export: records measured on this machine",
    )
    records.add_argument("files", nargs="*", type=Path, metavar="FILE", help="record files")
    repeated(
        records,
        "--kernel",
        metavar="NAME",
        help="only records of this kernel; may be repeated",
    )
    records.add_argument(
        "--output",
        type=Path,
        metavar="PATH",
        help="a .json file, or a folder for one file per kind of device",
    )
    records.add_argument("--json", action="store_true", help="print JSON")

    cache = _command(commands, "cache", "show or clear the kernel cache and the tuning records")
    cache.add_argument("action", choices=("info", "clear"))
    cache.add_argument("--json", action="store_true", help="print JSON")

    doctor = _command(
        commands, "doctor", "check the installation; exit with code 1 if something is broken"
    )
    doctor.add_argument("--json", action="store_true", help="print JSON")

    surface = _command(
        commands,
        "surface",
        "test every public name on every backend; exit with code 1 if a name is missing or fails",
    )
    surface.add_argument("--json", action="store_true", help="print JSON")
    surface.add_argument(
        "--missing",
        action="store_true",
        help="print only missing, untested and failing names",
    )
    repeated(
        surface,
        "--backend",
        metavar="NAME",
        help="run on this backend; may be repeated (default: every backend that has a device)",
    )
    repeated(
        surface,
        "--compile",
        metavar="BACKEND:ARCH",
        help="compile for this target, without a device; may be repeated",
    )
    surface.add_argument(
        "--family",
        default="",
        metavar="TEXT",
        help="print only the families whose title contains this text",
    )
    surface.add_argument("--seed", type=int, default=0, help="seed of the random operands")

    selftest = _command(
        commands,
        "selftest",
        "test and measure a backend on this machine, and write a report to send to its vendor",
    )
    selftest.add_argument("--backend", required=True, metavar="NAME", help="the backend to test")
    selftest.add_argument(
        "--report",
        type=Path,
        default=Path("selftest"),
        metavar="DIR",
        help="folder for the report (default: %(default)s)",
    )
    selftest.add_argument(
        "--whole",
        action="store_true",
        help="run every case, not only the quick ones; slow, but valid for a claim",
    )
    selftest.add_argument(
        "--emulate",
        default="",
        metavar="TARGET",
        help="emulate this hardware; nothing is measured",
    )
    selftest.add_argument("--sample", type=int, default=0, metavar="N", help="run only N cases")
    worker_processes(selftest)

    helper = _command(commands, "help", "print a page of the documentation, or find words in it")
    helper.add_argument(
        "topic",
        nargs="*",
        metavar="TOPIC",
        help=(
            "a page ('debugging'), a section of one ('debugging#logs'), or words to find in "
            "headings or text; without a topic, the pages are listed"
        ),
    )

    new = _command(
        commands,
        "new-backend",
        "write the package of a new backend, which registers, and lowers no operation yet",
    )
    new.add_argument(
        "name",
        metavar="NAME",
        help=(
            "name of the backend: lower-case letters, digits, '-' and '_'; the package is "
            "tilewright-NAME"
        ),
    )
    new.add_argument(
        "--directory",
        type=Path,
        default=Path(),
        metavar="DIR",
        help="folder in which to create the package (default: the current directory)",
    )
    return parser


def _what_is_compiled(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--signature",
        default="",
        help=(
            "types of the runtime parameters in order ('*fp32:16, i32'), or by name ('x=*fp32, "
            "n=i32'); of a descriptor 'tensordesc<fp16[64,64]>'; :16 states divisibility"
        ),
    )
    _constants_and_options(command)
    command.add_argument("--backend", help="backend to compile with (default: the default backend)")
    command.add_argument("--arch", help="target of the backend, for which no device is needed")


def _described_launch(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "kernel",
        metavar="FILE:KERNEL",
        help="a kernel of a Python file, which is imported; FILE if it is the only one",
    )
    _launch(command, "constants")
    command.add_argument(
        "--arrays",
        type=Path,
        metavar="FILE.npz",
        help="values of array arguments, by name",
    )
    _constants_and_options(command)


def _launch(command: argparse.ArgumentParser, names: str, *, required: bool = True) -> None:
    command.add_argument(
        "--arguments",
        required=required,
        metavar="LIST",
        help=(
            "arguments of the launch: 'x=fp32[n, 64], n=4096, scale=0.5'; each name (x, n, scale) "
            "is a parameter of the kernel; write other extents as numbers; arrays of floats get "
            "random values, arrays of integers zeros (trace and bisect: unless --arrays sets them)"
        ),
    )
    command.add_argument(
        "--grid",
        required=required,
        metavar="SIZES",
        help=f"grid: one to three sizes, which may use arguments and {names}: 'cdiv(n, BLOCK)'",
    )
    command.add_argument("--backend", help="backend to run on (default: the default backend)")


def _constants_and_options(command: argparse.ArgumentParser) -> None:
    repeated(
        command,
        "--constants",
        metavar="NAME=VALUE",
        help="values of constexpr parameters, separated by commas; may be repeated",
    )
    repeated(
        command,
        "--option",
        metavar="NAME=VALUE",
        help="launch options, such as num_warps=8, separated by commas; may be repeated",
    )


def _command(commands: Any, name: str, text: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(
        name, help=text, description=text[0].upper() + text[1:] + "."
    )
    return parser
