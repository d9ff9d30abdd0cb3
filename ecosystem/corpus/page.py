"""The page: both compilers side by side, the kernels furthest behind first."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence

from corpus import verdict
from corpus.baseline import Baseline
from corpus.comparison import Row, rows, tally
from corpus.targets import TARGETS

#: The most kernels whose reasons the page gives.
_EXPLAINED = 100
_WORDS = ("fails", "behind", "level", "ahead", "only ours", "neither", "compiles")
_HEAD = """# The corpus of public kernels

Kernels of public packages, compiled by Tilewright and by Triton for the same arguments, options and
targets, and what can be read off both codes without a GPU. Nothing here depends on the machine that
made it: it is `ecosystem/corpus/baseline.json` as a page, and `python -m corpus --accept` writes
both.

Each record in `ecosystem/corpus/launches` is a launch that a package made: the kernel's name,
types, shapes, constants and options. The sources are the packages' own. PTX of both is compiled by
the same ptxas, as the driver compiles it, and what is counted is the SASS; of AMD's GPUs it is the
assembly text. A launch that asks for more threads than a CTA may have, as 32 warps of 64 are, is
compiled with as many as it may; a kernel that takes more shared memory than the target has counts
as one that does not compile.
"""


def page_of(baseline: Baseline) -> str:
    """The page of what was accepted last."""
    found = rows(baseline.outcomes("tilewright"), baseline.outcomes("triton"))
    return page(found, baseline.versions)


def page(found: Sequence[Row], versions: dict[str, str]) -> str:
    """The page as Markdown.

    Args:
        found: the one furthest behind first.
    """
    parts = [
        _HEAD,
        _versions(versions),
        _summary(found),
        _packages(found),
        _rule(),
        _table(found),
        _reasons(found),
    ]
    return "\n".join(part.rstrip() + "\n" for part in parts)


def _versions(versions: dict[str, str]) -> str:
    return "Made with " + ", ".join(f"{name} {version}" for name, version in versions.items()) + "."


def _targets(found: Sequence[Row]) -> list[str]:
    """The targets that rows are of, in the order of the table of targets."""
    return [name for name in TARGETS if any(row.target == name for row in found)]


def _summary(found: Sequence[Row]) -> str:
    targets = _targets(found)
    lines = [
        "## By target",
        "",
        (
            "*Fails*: Triton compiles the kernel, and Tilewright does not. *Only ours* is the "
            "opposite; *neither*: nobody compiles it."
        ),
        "",
        "| target | kernels | " + " | ".join(_WORDS) + " |",
        "|---|" + "---:|" * (1 + len(_WORDS)),
    ]
    for target in targets:
        counts = tally(list(found), target)
        cells = [str(counts.total()), *(str(counts[word] or "") for word in _WORDS)]
        lines.append(f"| {target} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _packages(found: Sequence[Row]) -> str:
    """A line a package: for each target how many kernels fail, are behind, level and ahead, and the
    mean score of those that both compile.
    """
    targets = _targets(found)
    by_package: dict[str, list[Row]] = defaultdict(list)
    for row in found:
        by_package[row.kernel.partition("/")[0]].append(row)
    lines = [
        "## By package",
        "",
        (
            "Kernels that fail, are behind, level and ahead, and the mean of the points of those "
            "that both compile."
        ),
        "",
        "| package | " + " | ".join(targets) + " |",
        "|---|" + "---|" * len(targets),
    ]
    for package in sorted(by_package):
        cells = []
        for target in targets:
            counts = tally(by_package[package], target)
            scores = [
                row.verdict.score
                for row in by_package[package]
                if row.target == target and row.verdict is not None
            ]
            mean = f", {statistics.fmean(scores):+.2f}" if scores else ""
            cells.append(
                f"{counts['fails']}, {counts['behind']}, {counts['level']}, {counts['ahead']}{mean}"
                if counts
                else ""
            )
        lines.append(f"| {package} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _rule() -> str:
    """The rule of the score, as the module of verdicts states it."""
    text = (verdict.__doc__ or "").strip().splitlines()
    table = [line for line in text if line.startswith("=")]
    first, last = text.index(table[0]), len(text) - 1
    head, body = text[:first], text[first + 3 : last]
    column = len(table[0].split()[0]) + 2
    rows: list[list[str]] = []
    for line in body:
        name, words = line[:column].strip(), line[column:].strip()
        if name:
            rows.append([name, words])
        else:
            rows[-1][1] += " " + words
    return "\n".join(
        ["## The score", "", *head[2:], "| criterion | points |", "|---|---|"]
        + [f"| {name} | {words} |" for name, words in rows]
    )


def _table(found: Sequence[Row]) -> str:
    """A line a kernel with the score for each target, the furthest behind on any target first."""
    by_kernel: dict[str, dict[str, Row]] = defaultdict(dict)
    for row in found:
        by_kernel[row.kernel][row.target] = row
    targets = _targets(found)
    lines = [
        "## All kernels",
        "",
        "Points behind Triton, negative where ahead, in bold where behind; the furthest behind on "
        "any target first. ✗: only Triton compiles it; ✓: it compiles (Triton does not, or has no "
        "such target); –: nobody does.",
        "",
        "| kernel | " + " | ".join(targets) + " |",
        "|---|" + "---:|" * len(targets),
    ]
    for kernel in sorted(by_kernel, key=lambda each: _furthest(by_kernel[each].values())):
        cells = [_cell(by_kernel[kernel].get(target)) for target in targets]
        lines.append(f"| {escaped(kernel)} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _furthest(rows: Iterable[Row]) -> tuple[float, str]:
    given = list(rows)
    return -max(row.score for row in given), given[0].kernel


def _cell(row: Row | None) -> str:
    if row is None:
        return ""
    if row.verdict is None:
        return {"fails": "✗", "neither": "–"}.get(row.word, "✓")
    text = f"{row.score:+.1f}"
    return f"**{text}**" if row.word == "behind" else text


def _reasons(found: Sequence[Row]) -> str:
    """Why kernels fail or are behind, the same reasons of several targets in one line."""
    seen: dict[tuple[str, str], list[str]] = defaultdict(list)
    scores: dict[tuple[str, str], float] = {}
    for row in found:
        if row.word == "fails":
            text = f"fails: {row.ours.error}"
        elif row.word == "behind" and row.verdict is not None:
            text = "; ".join(row.verdict.reasons)
        else:
            continue
        seen[row.kernel, text].append(row.target)
        scores[row.kernel, text] = max(row.score, scores.get((row.kernel, text), -99.0))
    reasons = sorted(seen.items(), key=lambda item: -scores[item[0]])
    lines = ["## Why", ""]
    for (kernel, text), targets in reasons[:_EXPLAINED]:
        order = sorted(targets, key=list(TARGETS).index)
        lines.append(f"- {escaped(kernel)} ({', '.join(order)}): {escaped(text)}")
    if (omitted := len(reasons) - _EXPLAINED) > 0:
        lines += [
            "",
            (
                f"{omitted} more are omitted; `python -m corpus` writes the reasons for all "
                "kernels to `build/corpus`."
            ),
        ]
    return "\n".join(lines)


def escaped(text: str) -> str:
    """Text without what Markdown takes for markup."""
    return text.replace("_", "\\_").replace("*", "\\*").replace("<", "&lt;").replace("|", "\\|")
