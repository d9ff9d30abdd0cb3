"""Compile the corpus with Tilewright and with Triton, and say where Tilewright's code is behind.

make corpus                                              everything
python -m corpus --package liger-kernel --target sm_90a  a part
python -m corpus --compiler tilewright                   only ours, against the baseline
python -m corpus --accept                                the same, and it is the new baseline
python -m corpus --execute --ids FILE --target gfx942 run both codes of some records in the emulator
of AMD's waves
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from pathlib import Path

from corpus import baseline as baselines
from corpus.comparison import Row, rows, tally
from corpus.compilation import ECOSYSTEM, Outcomes, compile_all, versions
from corpus.device.measure import measure
from corpus.device.measure import page as page_of_device
from corpus.execution import run
from corpus.execution.page import execution_page
from corpus.execution.record import ExecutionRecord
from corpus.launches import FOLDER, Launch, first_of_each_kernel, read_all
from corpus.packages import present
from corpus.page import page, page_of
from corpus.targets import TARGETS

ROOT = ECOSYSTEM.parent
PAGE = ROOT / "docs" / "performance" / "corpus.md"
PAGE_OF_EXECUTIONS = PAGE.with_name("corpus-amd.md")
RESULTS = ROOT / "build" / "corpus"


def main() -> int:
    given = _arguments()
    launches, absent = present(_chosen(given))
    print(*absent, sep="\n", file=sys.stderr)
    if not launches:
        print("no record of an installed package is like that", file=sys.stderr)
        return 2
    if given.device:
        return _on_device(launches, given)
    known = baselines.Baseline.read()
    outcomes: dict[str, Outcomes] = {}
    for compiler in given.compiler or ("triton", "tilewright"):
        outcomes[compiler] = compile_all(
            [(launch, given.target or list(TARGETS)) for launch in launches],
            compiler,
            given.results,
            limit=given.limit,
            jobs=given.jobs,
            again=compiler == "tilewright" and not given.reuse,
        )
    found = rows(outcomes.get("tilewright", {}), outcomes.get("triton", {}))
    _write_results(found, given.results)
    if len(outcomes) == 2:
        made_with = {**versions("triton"), **versions("tilewright")}
        (given.results / "corpus.md").write_text(page(found, made_with))
        for target in given.target or TARGETS:
            counts = tally(found, target)
            print(f"{target}: " + ", ".join(f"{count} {word}" for word, count in counts.items()))
    changes = baselines.changes(known, outcomes.get("tilewright", {}))
    print(changes)
    if given.execute:
        return _execute(found, launches, given)
    if given.accept:
        for compiler, each in outcomes.items():
            known.accept(each, compiler)
            known.versions.update(versions(compiler))  # type: ignore[arg-type]
        known.write()
        PAGE.write_text(page_of(known))
        return 0
    return 1 if changes.worse else 0


def _execute(found: list[Row], launches: list[Launch], given: argparse.Namespace) -> int:
    """Run both codes in the emulator; the results have what is known so far after each kernel."""
    executions: list[run.Execution] = []
    for each in run.execute_all(found, launches):
        executions.append(each)
        text = json.dumps([vars(one) for one in executions], indent=1)
        (given.results / "executed.json").write_text(text + "\n")
    print(run.table(executions))
    if given.accept:
        record = ExecutionRecord.read()
        record.accept(
            executions, {**versions("triton"), **versions("tilewright"), **run.versions()}
        )
        record.write()
        PAGE_OF_EXECUTIONS.write_text(execution_page(record))
    return 0


def _on_device(launches: list[Launch], given: argparse.Namespace) -> int:
    """Run the launches on the GPU, and write the page of ratios."""
    import torch

    if given.device != "cuda" or not torch.cuda.is_available():
        print(f"there is no device {given.device!r} here", file=sys.stderr)
        return 2
    given.results.mkdir(parents=True, exist_ok=True)
    measured = measure(
        launches, given.results, given.rounds, given.limit, jobs=given.jobs, deadline=given.deadline
    )
    text = page_of_device(measured, torch.cuda.get_device_name())
    (given.results / "device.md").write_text(text)
    print(text)
    return 0 if all(each.right for each in measured) else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m corpus", description=(__doc__ or "").splitlines()[0]
    )
    add = parser.add_argument
    add("--package", action="append", default=[], help="may be repeated; all otherwise")
    add("--kernel", action="append", default=[], help="a part of a record's id; may be repeated")
    add("--ids", type=Path, help="a file with the ids of the records to take, one a line")
    add("--one-each", action="store_true", help="the first record of each kernel alone")
    add("--target", action="append", default=[], choices=list(TARGETS), help="may be repeated")
    add("--compiler", action="append", default=[], choices=["triton", "tilewright"])
    add("--reuse", action="store_true", help="do not compile again what is in the results")
    add(
        "--accept",
        action="store_true",
        help="take what is found as the baseline, with --execute what was executed",
    )
    add("--execute", action="store_true", help="run both codes for AMD GPUs in the emulator")
    add("--device", default="", help="cuda: run on the GPU, and measure")
    add("--rounds", type=int, default=2, help="how often each compiler's process times a launch")
    add(
        "--deadline",
        type=float,
        default=math.inf,
        help="seconds after which no measurement on a device begins",
    )
    add("--jobs", type=int, default=1, help="processes that compile at a time")
    add("--limit", type=float, default=120, help="processor time of one compilation")
    add("--launches", type=Path, default=FOLDER, help="the folder with the records")
    add("--results", type=Path, default=RESULTS)
    return parser.parse_args()


def _chosen(given: argparse.Namespace) -> list[Launch]:
    """The records that the options name, in the order of the file of ids where there is one.

    Raises:
        SystemExit: no record has one of these ids.
    """
    found = list(read_all(given.launches))
    if given.ids is not None:
        by_id = {launch.id: launch for launch in found}
        ids = [line for line in given.ids.read_text().splitlines() if line.strip()]
        if unknown := [each for each in ids if each not in by_id]:
            raise SystemExit(f"no record has the id {unknown[0]!r}")
        found = [by_id[each] for each in ids]
    if given.package:
        found = [launch for launch in found if launch.package in given.package]
    if given.kernel:
        found = [launch for launch in found if any(part in launch.id for part in given.kernel)]
    return first_of_each_kernel(found) if given.one_each else found


def _write_results(found: list[Row], folder: Path) -> None:
    """One file of JSON a target."""
    for target in TARGETS:
        records = [row.record() for row in found if row.target == target]
        if records:
            (folder / f"{target}.json").write_text(json.dumps(records, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
