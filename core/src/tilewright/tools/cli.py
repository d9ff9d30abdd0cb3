"""The command ``tilewright``: its subcommands and their options.

The functions that run them are in other modules of this package, which are imported when they are
needed.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import tilewright
from tilewright.errors import TilewrightError, VariableError
from tilewright.runtime.executors import FORMS as EXECUTORS
from tilewright.tools.printing import print_json, size_text
from tilewright.tools.usage import UsageError


def build_parser() -> argparse.ArgumentParser:
    """The parser of the command line; its ``run`` default is the function of the command."""
    parser = argparse.ArgumentParser(
        prog="tilewright",
        description="Tile kernels written in Python: look at backends, kernels and the cache.",
    )
    parser.add_argument(
        "--version", action="version", version=f"tilewright {tilewright.__version__}"
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    backends = _command(
        commands,
        "backends",
        "list the installed backends, their devices, and the plugins that are disabled",
        _backends,
    )
    backends.add_argument("--json", action="store_true", help="print JSON")

    inspect = _command(
        commands, "inspect", "compile a kernel and print every stage with its time", _inspect
    )
    inspect.add_argument(
        "kernel",
        metavar="FILE:KERNEL",
        help="a kernel of a Python file, or a file of Tile IR text (.tileir)",
    )
    _what_is_compiled(inspect)
    inspect.add_argument("--stage", help="print this stage alone, without a heading")
    inspect.add_argument(
        "--locations", action="store_true", help="keep source locations in Tile IR text"
    )

    explain = _command(
        commands,
        "explain",
        "write a page of what the compiler made of a kernel, line by line",
        _explain,
    )
    explain.add_argument("kernel", metavar="FILE:KERNEL", help="a kernel of a Python file")
    _what_is_compiled(explain)
    explain.add_argument(
        "--arguments",
        metavar="LIST",
        help=(
            "of a launch, in place of the signature: 'x=fp32[n, 64], n=4096, scale=0.5'; "
            "arrays take no memory"
        ),
    )
    explain.add_argument(
        "--grid",
        metavar="SIZES",
        help=(
            "of the launch: one to three sizes, which may name arguments and constants: "
            "'cdiv(n, BLOCK)'"
        ),
    )
    explain.add_argument("--json", action="store_true", help="print JSON")
    explain.add_argument(
        "--output",
        type=Path,
        metavar="FILE",
        help="where the page is written; KERNEL.html in the current directory otherwise",
    )

    export = _command(
        commands,
        "compile",
        "write a kernel as a shared library and a header for C programs",
        _compile,
    )
    export.add_argument("kernel", metavar="FILE:KERNEL", help="a kernel of a Python file")
    _what_is_compiled(export)
    export.add_argument(
        "--name", help="what files and functions are called; the kernel's name otherwise"
    )
    export.add_argument(
        "--output",
        type=Path,
        default=Path(),
        metavar="DIR",
        help="where the files are written; the current directory otherwise",
    )

    opt = _command(
        commands,
        "opt",
        "run passes on a text of Tile IR, or of a stage of the GPU toolkit, and print the result",
        _opt,
    )
    opt.add_argument(
        "file", nargs="?", metavar="FILE", help="a file of text; - reads standard input"
    )
    opt.add_argument(
        "--passes",
        action="append",
        default=[],
        metavar="NAMES",
        help="passes in order, with commas or by repeating; none prints what was read",
    )
    opt.add_argument(
        "--target",
        metavar="TARGET",
        help=(
            "what they run for: BACKEND:ARCH, BACKEND, or emulator[:LANES], the machine that "
            "runs on CPU threads"
        ),
    )
    opt.add_argument(
        "--options",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="launch options, for example num_warps=8,num_stages=3",
    )
    opt.add_argument(
        "--list", action="store_true", help="list the passes that there are for the target"
    )
    opt.add_argument(
        "--verify", action="store_true", help="verify after each pass, and not only what was read"
    )
    opt.add_argument("--locations", action="store_true", help="print source locations")

    operations = _command(
        commands,
        "ops",
        "list the operations of Tile IR, or tell all of one: types, rules, an example",
        _ops,
    )
    operations.add_argument("name", nargs="?", metavar="NAME", help="an operation")
    operations.add_argument(
        "--backend",
        default="",
        metavar="NAME",
        help="with those that this backend adds, and which it lowers, has decomposed, refuses",
    )
    operations.add_argument("--json", action="store_true", help="print JSON")

    trace = _command(
        commands,
        "trace",
        "run a kernel once, and print the range, the NaN and the infinities of each float value "
        "it computes",
        _trace,
    )
    _described_launch(trace)
    trace.add_argument(
        "--nan",
        action="store_true",
        help="print where NaN and infinities begin alone; exit code 1 where there is a NaN",
    )
    trace.add_argument(
        "--output",
        type=Path,
        metavar="FILE.html",
        help="write the page of 'tilewright explain' with the values beside each line",
    )
    trace.add_argument("--json", action="store_true", help="print JSON")

    bisect = _command(
        commands,
        "bisect",
        "name the pass, the backend or the launch option that changes a kernel's results; exit "
        "code 1 where one does",
        _bisect,
    )
    _described_launch(bisect)
    bisect.add_argument(
        "--exact",
        action="store_true",
        help="search in exact mode, on random payloads, and allow no difference",
    )
    bisect.add_argument("--json", action="store_true", help="print JSON")

    tune = _command(
        commands,
        "tune",
        "measure the configurations of a kernel for a launch, or the block sizes of a package",
        _tune,
    )
    tune.add_argument(
        "kernel",
        metavar="FILE:KERNEL",
        help=(
            "a kernel of a Python file; of one with @autotune its configurations, and the "
            "result is kept; or PACKAGE or PACKAGE:RULE,RULE, of which the package measures the "
            "block sizes"
        ),
    )
    _launch(tune, "meta-parameters", required=False)
    tune.add_argument(
        "--config",
        action="append",
        default=[],
        metavar="NAME=VALUE,...",
        help="a configuration, in place of the kernel's own; may be repeated",
    )
    tune.add_argument(
        "--space",
        action="append",
        default=[],
        metavar="NAME=VALUE|VALUE",
        help="values of a meta-parameter or option; of several every combination",
    )
    tune.add_argument(
        "--budget", metavar="SECONDS", help="end after this time with the best so far"
    )
    tune.add_argument(
        "--time-limit",
        metavar="SECONDS",
        help="for one configuration to compile, and again to be measured",
    )
    tune.add_argument(
        "--executor",
        metavar="WHERE",
        help=f"measure on workers, one record a kind of device: {EXECUTORS}",
    )
    tune.add_argument(
        "--invariant",
        action="store_true",
        help="choose among configurations that compute the same bits, for every batch size",
    )
    tune.add_argument(
        "--records",
        type=Path,
        metavar="FOLDER",
        help="add the result to the folder's file of records for this kind of device",
    )
    tune.add_argument(
        "--plot",
        type=Path,
        metavar="FILE",
        help="draw the times into this file (.png, .svg, .pdf); needs matplotlib",
    )
    tune.add_argument("--json", action="store_true", help="print JSON")

    records = _command(
        commands, "records", "list, merge or export tuning records, for a library to ship", _records
    )
    records.add_argument(
        "action", choices=("list", "merge", "export"), help="export: those measured on this machine"
    )
    records.add_argument("files", nargs="*", type=Path, metavar="FILE", help="files of records")
    records.add_argument(
        "--kernel",
        action="append",
        default=[],
        metavar="NAME",
        help="of this kernel alone; may be repeated",
    )
    records.add_argument(
        "--output",
        type=Path,
        metavar="PATH",
        help="a .json file, or a folder for one file a kind of device",
    )
    records.add_argument("--json", action="store_true", help="print JSON")

    cache = _command(
        commands, "cache", "show or clear the kernel cache and the tuning records", _cache
    )
    cache.add_argument("action", choices=("info", "clear"))
    cache.add_argument("--json", action="store_true", help="print JSON")

    doctor = _command(
        commands, "doctor", "check the installation; exit code 1 where something is broken", _doctor
    )
    doctor.add_argument("--json", action="store_true", help="print JSON")

    surface = _command(
        commands,
        "surface",
        "run a probe of every public name on every backend; exit code 1 where a name is missing "
        "or fails",
        _surface,
    )
    surface.add_argument("--json", action="store_true", help="print JSON")
    surface.add_argument(
        "--missing", action="store_true", help="print only names that are missing, unproven or fail"
    )
    surface.add_argument(
        "--backend",
        action="append",
        default=[],
        metavar="NAME",
        help="run on this backend; may be repeated; all that have a device otherwise",
    )
    surface.add_argument(
        "--compile",
        action="append",
        default=[],
        metavar="BACKEND:ARCH",
        help="compile for a target without a device; may be repeated",
    )
    surface.add_argument(
        "--family",
        default="",
        metavar="TEXT",
        help="print only the families whose title contains this",
    )
    surface.add_argument("--seed", type=int, default=0, help="of the random operands")

    selftest = _command(
        commands,
        "selftest",
        "test a backend on this machine, and write a report with figures of speed, to send",
        _selftest,
    )
    selftest.add_argument("--backend", required=True, metavar="NAME", help="the backend to test")
    selftest.add_argument(
        "--report",
        type=Path,
        default=Path("selftest"),
        metavar="DIR",
        help="where the report goes (%(default)s)",
    )
    selftest.add_argument(
        "--whole",
        action="store_true",
        help="run every case, and not only the quick ones; takes long, and is valid for a claim",
    )
    selftest.add_argument(
        "--emulate",
        default="",
        metavar="TARGET",
        help="emulate this hardware: nothing is measured then",
    )
    selftest.add_argument("--sample", type=int, default=0, metavar="N", help="run N cases alone")
    selftest.add_argument(
        "-j",
        "--jobs",
        type=int,
        default=0,
        metavar="N",
        help="worker processes at once; one for each processor otherwise",
    )

    new = _command(
        commands,
        "new-backend",
        "write the package of a new backend: it installs and registers, and lowers nothing yet",
        _new_backend,
    )
    new.add_argument(
        "name",
        metavar="NAME",
        help=(
            "of the backend: lower-case letters, digits, '-' and '_'; the package is "
            "tilewright-NAME"
        ),
    )
    new.add_argument(
        "--directory",
        type=Path,
        default=Path(),
        metavar="DIR",
        help="where the package's folder is made; the current directory otherwise",
    )
    return parser


def _what_is_compiled(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--signature",
        default="",
        help=(
            "types of the runtime parameters in order ('*fp32:16, i32'), or by name ('x=*fp32, "
            "n=i32'); :16 states divisibility"
        ),
    )
    _constants_and_options(command)
    command.add_argument("--backend", help="the backend to compile with; the default one otherwise")
    command.add_argument("--arch", help="a target of the backend to compile for without a device")


def _described_launch(command: argparse.ArgumentParser) -> None:
    command.add_argument("kernel", metavar="FILE:KERNEL", help="a kernel of a Python file")
    _launch(command, "constants")
    command.add_argument(
        "--arrays",
        type=Path,
        metavar="FILE.npz",
        help="the values of arrays among the arguments, by name",
    )
    _constants_and_options(command)


def _launch(command: argparse.ArgumentParser, names: str, *, required: bool = True) -> None:
    command.add_argument(
        "--arguments",
        required=required,
        metavar="LIST",
        help=(
            "of the launch: 'x=fp32[n, 64], n=4096, scale=0.5'; floats of arrays are "
            "random, integers 0"
        ),
    )
    command.add_argument(
        "--grid",
        required=required,
        metavar="SIZES",
        help=f"one to three sizes, which may name arguments and {names}: 'cdiv(n, BLOCK)'",
    )
    command.add_argument("--backend", help="the backend to run on; the default one otherwise")


def _constants_and_options(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--constants",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="values of constexpr parameters; several, with commas or by repeating",
    )
    command.add_argument(
        "--option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a launch option, for example num_warps=8; may be repeated",
    )


def _command(
    commands: Any, name: str, text: str, run: Callable[[argparse.Namespace], int]
) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(
        name, help=text, description=text[0].upper() + text[1:] + "."
    )
    parser.set_defaults(run=run)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line, and return the exit code.

    It is 0, 1 where something is broken, 2 for wrong usage.
    """
    parser = build_parser()
    if not (sys.argv[1:] if arguments is None else arguments):
        parser.print_help(sys.stderr)
        return 2
    options = parser.parse_args(arguments)
    try:
        code: int = options.run(options)
    except (UsageError, VariableError) as error:
        print(f"tilewright {options.command}: {error}", file=sys.stderr)
        return 2
    except TilewrightError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # the reader of a pipe has seen enough
        return 0
    return code


def _plugins_print_elsewhere() -> contextlib.AbstractContextManager[Any]:
    """Redirect the output of plugins at import and trial to standard error.

    Standard output is the report's, which may be JSON.
    """
    return contextlib.redirect_stdout(sys.stderr)


def _backends(options: argparse.Namespace) -> int:
    from tilewright.tools.backends import backends_report, backends_text

    with _plugins_print_elsewhere():
        report = backends_report()
    print_json(report) if options.json else print(backends_text(report))
    return 0


def _inspect(options: argparse.Namespace) -> int:
    from tilewright.tools.inspect import inspect_command

    return inspect_command(options)


def _explain(options: argparse.Namespace) -> int:
    from tilewright.tools.explain.explanation import explain_command

    return explain_command(options)


def _compile(options: argparse.Namespace) -> int:
    from tilewright.tools.export import compile_command

    return compile_command(options)


def _opt(options: argparse.Namespace) -> int:
    from tilewright.tools.opt import opt_command

    return opt_command(options)


def _ops(options: argparse.Namespace) -> int:
    code: int = _suite("op_samples.ops").ops_command(options)
    return code


def _trace(options: argparse.Namespace) -> int:
    from tilewright.tools.trace.trace_command import trace_command

    return trace_command(options)


def _bisect(options: argparse.Namespace) -> int:
    from tilewright.tools.bisect.bisect_command import bisect_command

    return bisect_command(options)


def _tune(options: argparse.Namespace) -> int:
    from tilewright.tools.tune import tune_command

    return tune_command(options)


def _records(options: argparse.Namespace) -> int:
    from tilewright.tools.tune import records_command

    return records_command(options)


def _cache(options: argparse.Namespace) -> int:
    from dataclasses import asdict

    from tilewright.runtime import tuning_records
    from tilewright.runtime.storage.disk_cache import disk_cache

    cache = disk_cache()
    report: dict[str, Any]
    if options.action == "clear":
        report = {
            "directory": str(cache.directory),
            "removed": cache.clear(),
            "removed_tuning_records": tuning_records.clear(),
        }
        text = (
            f"removed {report['removed']} kernels and {report['removed_tuning_records']} "
            f"tuning records from {cache.directory}"
        )
    else:
        report = {
            **asdict(cache.info()),
            "tuning_records": sum(1 for _ in tuning_records.own_records()),
        }
        text = "\n".join(
            (
                (
                    "directory       "
                    f"{report['directory']}{'' if report['writable'] else ' (cannot be written)'}"
                ),
                f"kernels         {report['entries']}",
                f"size            {size_text(report['size'])} of {size_text(report['cap'])}",
                f"tuning records  {report['tuning_records']}",
            )
        )
    print_json(report) if options.json else print(text)
    return 0


def _doctor(options: argparse.Namespace) -> int:
    from tilewright.tools.doctor import doctor_text, examine

    with _plugins_print_elsewhere():
        findings = examine()
    print_json([finding._asdict() for finding in findings]) if options.json else print(
        doctor_text(findings)
    )
    return 0 if all(finding.ok for finding in findings) else 1


def _surface(options: argparse.Namespace) -> int:
    code: int = _suite("api_coverage.examine").surface_command(options)
    return code


def _selftest(options: argparse.Namespace) -> int:
    suite, process = _suite("suite.selftest"), _suite("suite.engine.process")
    try:
        code: int = suite.selftest(
            options.backend,
            options.report,
            whole=options.whole,
            emulate=options.emulate,
            sample=options.sample,
            workers=options.jobs,
        )
    except process.WorkerRefusedError as error:
        raise UsageError(str(error)) from error
    return code


def _suite(name: str) -> ModuleType:
    """Import a module of the conformance suite.

    The suite has samples of each operation, probes of each public name and the cases.

    Raises:
        UsageError: it is not installed.
    """
    try:
        # computed: some commands belong to the conformance suite
        return importlib.import_module(f"tilewright_conformance.{name}")
    except ImportError as error:
        raise UsageError(
            f"the conformance suite is not installed ({error}): pip install tilewright-conformance"
        ) from error


def _new_backend(options: argparse.Namespace) -> int:
    from tilewright.tools.new_backend import new_backend, next_steps

    print(next_steps(new_backend(options.name, options.directory)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
