"""The command ``tilewright``: runs the function of a subcommand.

These functions import the other modules of this package when they are needed.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

from tilewright.errors import TilewrightError, VariableError
from tilewright.tools.printing import print_json, size_text
from tilewright.tools.subcommands import build_parser
from tilewright.tools.usage import UsageError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line, and return the exit code.

    It is 0, 1 where something is broken, 2 for wrong usage.
    """
    parser = build_parser()
    if not (sys.argv[1:] if arguments is None else arguments):
        parser.print_help(sys.stderr)
        return 2
    options, rest = parser.parse_known_args(arguments)
    if rest:
        parser.error(_unrecognized(rest, sys.argv[1:] if arguments is None else arguments))
    try:
        code = RUN[options.command](options)
    except (UsageError, VariableError) as error:
        print(f"tilewright {options.command}: {_with_notes(error)}", file=sys.stderr)
        return 2
    except TilewrightError as error:
        print(f"{type(error).__name__}: {_with_notes(error)}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # the reader of a pipe has seen enough
        return 0
    return code


def _unrecognized(rest: Sequence[str], arguments: Sequence[str]) -> str:
    """Return the message about words of a command line that no option takes."""
    text = f"unrecognized arguments: {' '.join(rest)}"
    values: dict[str, list[str]] = {"--constants": [], "--option": []}
    flag = ""
    for word in arguments:
        if word.startswith("-"):
            flag, _, word = word.partition("=")
        name, equals, _ = word.partition("=")
        if equals and name.isidentifier() and flag in values:
            values[flag].append(word)
    for flag, words in values.items():
        if len(words) > 1:
            text += f"\n  help: separate the values of {flag} by commas: {flag} {','.join(words)}"
    return text


def _with_notes(error: TilewrightError) -> str:
    return "\n".join((str(error), *getattr(error, "__notes__", ())))


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


def _help(options: argparse.Namespace) -> int:
    from tilewright.tools.help_pages import help_text

    print(help_text(options.topic))
    return 0


def _new_backend(options: argparse.Namespace) -> int:
    from tilewright.tools.new_backend import new_backend, next_steps

    print(next_steps(new_backend(options.name, options.directory)))
    return 0


#: Subcommand -> its function, which returns the exit code.
RUN: Mapping[str, Callable[[argparse.Namespace], int]] = {
    "backends": _backends,
    "bisect": _bisect,
    "cache": _cache,
    "compile": _compile,
    "doctor": _doctor,
    "explain": _explain,
    "help": _help,
    "inspect": _inspect,
    "new-backend": _new_backend,
    "ops": _ops,
    "opt": _opt,
    "records": _records,
    "selftest": _selftest,
    "surface": _surface,
    "trace": _trace,
    "tune": _tune,
}


if __name__ == "__main__":
    sys.exit(main())
