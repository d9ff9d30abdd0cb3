"""The command line of the suite.

python -m tilewright_conformance run --backend NAME [--profile PROFILE] [--without PROFILE]
[--quick]
                                     [-j N] [--resume] [--sample N] [--expectations FILE]
                                     [--report DIR] [--seed N] [--emulate TARGET]
                                     [--executor dask://HOST:PORT]
python -m tilewright_conformance verify REPORT... [--rerun N [--seed N]] [--signed-by KEY]
                                        [--wheel FILE]
python -m tilewright_conformance sign REPORT... --key FILE python -m tilewright_conformance keygen
FILE python -m tilewright_conformance compare REPORT REPORT python -m tilewright_conformance
scoreboard REPORT... [--html | --site DIR] python -m tilewright_conformance list [--profile PROFILE]
[--without PROFILE] [--required] [--json]
                                      [PATTERN...]
python -m tilewright_conformance profiles --check | --write | --claimable [--profile PROFILE] [-j N]
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tilewright.errors import TilewrightError
from tilewright.runtime.executors import FORMS as EXECUTORS
from tilewright.runtime.executors import ExecutorError
from tilewright.tools.shared_options import repeated, worker_processes
from tilewright_conformance.suite.case import PROFILES, Status
from tilewright_conformance.suite.catalogue import CatalogueError, catalogue
from tilewright_conformance.suite.engine.journal import JournalError
from tilewright_conformance.suite.engine.process import WorkerRefusedError
from tilewright_conformance.suite.expectations import ExpectationError
from tilewright_conformance.suite.profiles import ProfileError
from tilewright_conformance.suite.provenance import WheelError
from tilewright_conformance.suite.report.document import ReportError
from tilewright_conformance.suite.report.signature import KeyFileError

#: Exit codes: all is well; a case went wrong, or a report is refused; the question is wrong, or the
#: backend cannot be tested.
GOOD, WRONG, USAGE = 0, 1, 2
_USAGE_ERRORS = (
    *(
        CatalogueError,
        ExecutorError,
        ExpectationError,
        JournalError,
        KeyFileError,
        ProfileError,
        WheelError,
        WorkerRefusedError,
    ),
    *(TilewrightError, ImportError, OSError),
)


def build_parser() -> argparse.ArgumentParser:
    """The parser of the command line; its ``function`` default is the function of the command."""
    parser = argparse.ArgumentParser(
        prog="python -m tilewright_conformance",
        description="Run the conformance suite of Tilewright, and check its reports.",
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    run = _command(commands, "run", "run the suite on a backend, and write a report", _run)
    run.add_argument(
        "--backend",
        required=True,
        metavar="NAME",
        help="backend to test, by its name in 'tilewright backends'",
    )
    repeated(
        run,
        "--profile",
        choices=PROFILES,
        help="run only the cases of this profile; may be repeated (default: all profiles)",
    )
    _omitted_profiles(run)
    repeated(
        run,
        "--case",
        metavar="PATTERN",
        help="run only the cases that match a pattern such as 'math/exp/*'; may be repeated",
    )
    run.add_argument(
        "--quick", action="store_true", help="run a subset of the cases; supports no claim"
    )
    run.add_argument(
        "--sample",
        type=_count,
        default=0,
        metavar="N",
        help="run N random cases of those selected; supports no claim",
    )
    worker_processes(run, _positive)
    run.add_argument(
        "--executor",
        default="",
        metavar="WHERE",
        help=f"distribute the cases to workers, with --jobs processes on each: {EXECUTORS}",
    )
    run.add_argument(
        "--resume",
        action="store_true",
        help="continue the interrupted run whose journal is in the report folder",
    )
    run.add_argument(
        "--expectations",
        type=Path,
        metavar="FILE",
        help="TOML file in which the vendor lists the cases that are expected to fail",
    )
    run.add_argument(
        "--report",
        type=Path,
        default=Path("conformance-report"),
        metavar="DIR",
        help="folder for the journal and the reports (default: %(default)s)",
    )
    run.add_argument(
        "--seed", type=_count, default=0, metavar="N", help="random seed (default: %(default)s)"
    )
    run.add_argument(
        "--repeat",
        type=_positive,
        default=1,
        metavar="N",
        help="run each case N times in a row, with warm caches; one failure fails the case",
    )
    repeated(
        run,
        "--load",
        metavar="MODULE",
        help="register this plugin module under the backend's name; may be repeated",
    )
    run.add_argument(
        "--emulate",
        default="",
        metavar="TARGET",
        help="run on this emulated target of the backend; TARGET:MODE for a mode of its emulator",
    )
    run.add_argument(
        "--memory",
        type=_positive,
        default=4096,
        metavar="MIB",
        help="memory that a worker may allocate during one case (default: %(default)s)",
    )
    run.add_argument(
        "--wheel",
        type=Path,
        action="extend",
        nargs="+",
        default=[],
        metavar="FILE",
        help="wheel files that were installed, whose hashes the claims name",
    )
    run.add_argument(
        "--time-scale",
        type=float,
        default=1.0,
        metavar="X",
        help="multiply the time limits by X, for slow machines",
    )

    verify = _command(
        commands,
        "verify",
        "check reports offline; exit with code 1 if one is damaged, inconsistent or not "
        "reproducible",
        _verify,
    )
    verify.add_argument("reports", nargs="+", type=Path, metavar="REPORT")
    verify.add_argument(
        "--rerun",
        type=_positive,
        metavar="N",
        help="run N of the cases again on this machine, with two seeds, and compare",
    )
    verify.add_argument(
        "--seed",
        type=_count,
        metavar="N",
        help=(
            "second seed of --rerun, which also selects the cases (default: the seed of the "
            "suite's release)"
        ),
    )
    repeated(
        verify,
        "--signed-by",
        metavar="KEY",
        help="reject reports that this public key has not signed; may be repeated",
    )
    repeated(
        verify,
        "--wheel",
        type=Path,
        metavar="FILE",
        help="reject reports on anything but this wheel; may be repeated",
    )
    repeated(verify, "--load", metavar="MODULE", help="as for run; for --rerun")

    sign = _command(commands, "sign", "sign reports with an Ed25519 key", _sign)
    sign.add_argument("reports", nargs="+", type=Path, metavar="REPORT")
    sign.add_argument(
        "--key", required=True, type=Path, metavar="FILE", help="the private key, in PEM"
    )

    keygen = _command(
        commands,
        "keygen",
        "write a new private key, and print the public key, which you publish",
        _keygen,
    )
    keygen.add_argument("file", type=Path, metavar="FILE")

    compare = _command(commands, "compare", "show where two reports differ", _compare)
    compare.add_argument("reports", nargs=2, type=Path, metavar="REPORT")

    scoreboard = _command(
        commands,
        "scoreboard",
        "print a table of many reports; reports that verify rejects are listed and skipped",
        _scoreboard,
    )
    scoreboard.add_argument("reports", nargs="+", type=Path, metavar="REPORT")
    form = scoreboard.add_mutually_exclusive_group()
    form.add_argument("--html", action="store_true", help="print an HTML page instead of Markdown")
    form.add_argument(
        "--site",
        type=Path,
        metavar="DIR",
        help="write a static site: the table, and each report with its page and badge",
    )

    listing = _command(commands, "list", "print the ids of cases", _list)
    listing.add_argument("patterns", nargs="*", metavar="PATTERN")
    repeated(listing, "--profile", choices=PROFILES)
    _omitted_profiles(listing)
    listing.add_argument("--quick", action="store_true", help="list the cases of a quick run")
    listing.add_argument(
        "--required", action="store_true", help="list the cases that their profile requires"
    )
    listing.add_argument(
        "--json", action="store_true", help="print JSON, with profile, subject and needs"
    )

    about = "check or write the number and hash of the cases that each profile requires"
    profiles = _command(commands, "profiles", about, _profiles)
    action = profiles.add_mutually_exclusive_group(required=True)
    action.add_argument(
        "--check", action="store_true", help="exit with code 1 if the required cases have changed"
    )
    action.add_argument(
        "--write", action="store_true", help="write the number and hash for each profile and family"
    )
    action.add_argument(
        "--claimable",
        action="store_true",
        help=(
            "run each profile on a backend that has only what the profile requires; exit with "
            "code 1 if one fails"
        ),
    )
    repeated(
        profiles,
        "--profile",
        choices=PROFILES,
        help="for --claimable: only this profile; may be repeated (default: all profiles)",
    )
    worker_processes(profiles, _positive, "for --claimable: number of worker processes")
    return parser


def _omitted_profiles(command: argparse.ArgumentParser) -> None:
    repeated(
        command,
        "--without",
        choices=PROFILES,
        metavar="PROFILE",
        help="omit this profile; may be repeated",
    )


def _command(
    commands: Any, name: str, text: str, function: Callable[[argparse.Namespace], int]
) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(
        name, help=text, description=text[0].upper() + text[1:] + "."
    )
    parser.set_defaults(function=function)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line and return the exit code."""
    options = build_parser().parse_args(arguments)
    try:
        code: int = options.function(options)
    except ReportError as error:
        print(f"{options.command}: {error}", file=sys.stderr)
        return WRONG
    except _USAGE_ERRORS as error:
        print(f"{options.command}: {error}", file=sys.stderr)
        return USAGE
    except KeyboardInterrupt:
        print("\ninterrupted; go on with --resume", file=sys.stderr)
        return 130
    return code


def _run(options: argparse.Namespace) -> int:
    from tilewright_conformance.suite.engine.setup import Setup
    from tilewright_conformance.suite.progress import Printer
    from tilewright_conformance.suite.report import failure_groups
    from tilewright_conformance.suite.report.document import BAD
    from tilewright_conformance.suite.run import Options, run

    setup = Setup(
        options.backend,
        seed=options.seed,
        quick=options.quick,
        load=tuple(options.load),
        memory=options.memory << 20,
        time_scale=options.time_scale,
        emulate=options.emulate,
        repeat=options.repeat,
    )
    wanted = Options(
        setup,
        _profiles_left(options),
        tuple(options.case),
        options.jobs,
        options.report,
        options.resume,
        options.expectations,
        options.sample,
    )
    printer = Printer(sys.stderr)
    try:
        report = run(
            dataclasses.replace(wanted, wheels=tuple(options.wheel), executor=options.executor),
            printer,
        )
    finally:
        printer.end()
    print(_conclusion(report))
    for line in failure_groups.lines(report):
        print(line)
    print(f"reports in {options.report}: report.json, report.html, junit.xml, badge.svg")
    return WRONG if any(result["verdict"] in BAD for result in report["results"]) else GOOD


def _profiles_left(options: argparse.Namespace) -> tuple[str, ...]:
    """The profiles that ``--profile`` and ``--without`` select, for the report; empty for all.

    Raises:
        CatalogueError: none is left.
    """
    if not options.without:
        return tuple(options.profile)
    left = tuple(
        name
        for name in PROFILES
        if name in (options.profile or PROFILES) and name not in options.without
    )
    if not left:
        raise CatalogueError(f"no profile is left without {', '.join(options.without)}")
    return left


def _conclusion(report: dict[str, Any]) -> str:
    """Counts and claims of a run, for people."""
    lines = []
    width = max(len(name) for name in report["summary"])
    for name, counts in report["summary"].items():
        rest = ", ".join(f"{count} {what}" for what, count in counts.items() if what != "cases")
        lines.append(f"{name:{width}}  {counts['cases']} cases: {rest}")
    lines += [
        (
            f"profile {claim['profile']}: "
            f"{'claimed' if claim['holds'] else 'not claimed: ' + '; '.join(claim['reasons'])}"
        )
        for claim in report["claims"]
    ]
    each = f" each of {report['run']['executor']}" if report["run"].get("executor") else ""
    lines.append(f"{report['run']['seconds']:.1f} s on {report['run']['workers']} workers{each}")
    return "\n".join(lines)


def _verify(options: argparse.Namespace) -> int:
    from tilewright_conformance.suite.report import document, signature

    keys = {signature.public_key(text) for text in options.signed_by}
    code = GOOD
    for path in options.reports:
        try:
            report = document.read(path)
            document.verify(report, catalogue())
            document.check_wheels(report, options.wheel)
            signed = _signed(report, keys)
        except ReportError as error:
            print(f"{path}: refused: {error}")
            code = WRONG
        else:
            claims = ", ".join(claim["profile"] for claim in report["claims"] if claim["holds"])
            print(
                f"{path}: consistent; {report['backend']['name']} {report['backend']['version']} "
                f"on {report['device']['name']} claims {claims or 'no profile'}"
            )
            print(f"    {report['checksum']} (shows damage, and no edit)\n    {signed}")
            if not options.rerun:
                print(
                    "    no case was run again: that the report is true is shown by --rerun N alone"
                )
            elif not _agrees(report, options.rerun, options.seed, tuple(options.load)):
                code = WRONG
    return code


def _signed(report: dict[str, Any], keys: set[str]) -> str:
    """Describe the signer of a report.

    Raises:
        ReportError: the signature is not of this report, or by none of ``keys``.
        SignatureUnavailableError: it cannot be checked, and ``keys`` ask for it.
    """
    from tilewright_conformance.suite.report import signature

    try:
        signer = signature.signer(report)
    except signature.SignatureUnavailableError as error:
        if keys:
            raise
        return f"its signature was not checked: {error}"
    if keys and signer not in keys:
        raise ReportError(
            f"it is {f'signed by {signer}' if signer else 'not signed'}, and asked for is "
            f"{' or '.join(sorted(keys))}"
        )
    if not signer:
        return "not signed"
    return f"signed by {signer}" + (
        "" if keys else " (whose key that is, its owner's pages say; ask for it by --signed-by)"
    )


def _agrees(report: dict[str, Any], count: int, seed: int | None, load: tuple[str, ...]) -> bool:
    """Run cases of a report again; print what came of it."""
    from tilewright_conformance.suite.rerun import rerun

    found = rerun(report, count, seed=seed, load=load)
    what = (
        f"results ({', '.join(found.others)}: not the report's, so errors may differ)"
        if found.others
        else "results and errors"
    )
    print(
        f"    ran {found.cases} cases again, with the report's seed and with {found.seed}: {what} "
        f"{'differ' if found.differences else 'agree'}"
    )
    for text in found.differences:
        print(f"    {text}")
    return not found.differences


def _sign(options: argparse.Namespace) -> int:
    from tilewright_conformance.suite.report import document, signature

    for path in options.reports:
        report = signature.signed(document.read(path), options.key)
        document.write(report, path)
        print(f"{path}: signed by {report['signature']['key']}")
    return GOOD


def _keygen(options: argparse.Namespace) -> int:
    from tilewright_conformance.suite.report import signature

    print(signature.new_key(options.file))
    return GOOD


def _compare(options: argparse.Namespace) -> int:
    from tilewright_conformance.suite.report import document
    from tilewright_conformance.suite.report.differences import comparison

    print(comparison(*(document.read(path) for path in options.reports)))
    return GOOD


def _scoreboard(options: argparse.Namespace) -> int:
    from tilewright_conformance.suite.report import document, scoreboard, signature

    code, of_each = GOOD, dict[str, dict[str, Any]]()
    for path in options.reports:
        try:
            report = document.read(path)
            document.verify(report, catalogue())
            signature.signer(report)
            if "signature" not in of_each.get(
                report["checksum"], {}
            ):  # one report, signed where some copy of it is
                of_each[report["checksum"]] = report
        except ReportError as error:
            print(f"{path}: skipped: {error}", file=sys.stderr)
            code = WRONG
    good = list(of_each.values())
    if options.site is not None:
        scoreboard.write_site(good, options.site)
        print(options.site / "index.html")
    else:
        print(scoreboard.page(good) if options.html else scoreboard.markdown(good), end="")
    return code


def _list(options: argparse.Namespace) -> int:
    from tilewright_conformance.suite.profiles import required_cases

    cases = catalogue().select(
        profiles=_profiles_left(options), patterns=options.patterns, quick=options.quick
    )
    if options.required:
        required = {id_ for ids in required_cases(catalogue()).values() for id_ in ids}
        cases = [case for case in cases if case.id in required]
    if options.json:
        rows = [
            {
                "case": case.id,
                "profile": case.profile,
                "subject": case.subject,
                "quick": case.quick,
                "time_limit": case.time_limit,
                "source": case.source,
            }
            for case in cases
        ]
        print(json.dumps(rows, indent=1))
    else:
        print("\n".join(case.id for case in cases))
    return GOOD


def _profiles(options: argparse.Namespace) -> int:
    from tilewright_conformance.suite import profiles
    from tilewright_conformance.suite.provenance import suite_version

    if options.claimable:
        return _claimable(options)
    if options.write:
        profiles.write_fingerprints(catalogue(), suite_version())
        return GOOD
    changes = profiles.changed_families(catalogue(), suite_version())
    for profile, families in changes.items():
        print(f"{profile}: the required cases of {', '.join(families)} have changed")
    return WRONG if changes else GOOD


def _claimable(options: argparse.Namespace) -> int:
    from tilewright_conformance.suite.minimal_backend import claims

    code = GOOD
    for claim, outcomes in claims(catalogue(), options.profile or PROFILES, workers=options.jobs):
        print(
            f"profile {claim.profile}: "
            f"{f'claimed, {len(outcomes)} cases' if claim.holds else '; '.join(claim.reasons)}",
            flush=True,
        )
        if not claim.holds:
            code = WRONG
            wrong = [
                outcome
                for outcome in outcomes
                if outcome.status not in (Status.PASSED, Status.NOT_SUPPORTED)
            ]
            print(
                "".join(
                    (
                        f"    {outcome.status} {outcome.case}: "
                        f"{outcome.message.partition(chr(10))[0]}\n"
                    )
                    for outcome in wrong
                ),
                end="",
            )
    return code


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, not {number}")
    return number


def _count(text: str) -> int:
    number = int(text)
    if number < 0:
        raise argparse.ArgumentTypeError(f"must be at least 0, not {number}")
    return number
