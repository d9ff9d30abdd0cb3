"""The corpus: kernels of public packages, compiled by Triton and by Tilewright, by package."""

from __future__ import annotations

from pathlib import Path

#: The page of the repository with all kernels; its first table is by package.
PAGE = Path(__file__).resolve().parents[1] / "performance" / "corpus-h100.md"
HEAD = "| package | kernels | device | worst | below 0.90 |"


def section() -> str:
    """Return the Markdown of the section: the page's summary, and its table of packages."""
    summary, found, rest = PAGE.read_text().partition(HEAD)
    if not found:
        raise ValueError(f"{PAGE} has no table '{HEAD}'")
    table = found + rest.partition("\n\n")[0]
    title, _, text = summary.partition("\n")
    text = text.strip().replace("A table below lists", "A table in the repository lists")
    return f"## {title.removeprefix('# ')}, compared with Triton\n\n{text}\n\n{table}\n\n" + (
        "`docs/performance/corpus-h100.md` in the repository lists each kernel, and why some are "
        "slower.\n\n"
    )
