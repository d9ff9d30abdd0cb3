"""The corpus: kernels of public packages, compiled by Triton and by Tilewright, by package."""

from __future__ import annotations

from pathlib import Path

#: The page of the repository with all kernels; its first table is by package.
PAGE = Path(__file__).resolve().parents[1] / "performance" / "corpus-h100.md"
HEAD = "| package | kernels | device | worst | below 0.90 |"


#: The section with all kernels, which is too long for the page.
ALL = "\n## All\n"


def section() -> str:
    """Return the Markdown of the section: summary, table by package, and causes of low ratios."""
    text, found, _ = PAGE.read_text().partition(ALL)
    if not found or HEAD not in text:
        raise ValueError(f"{PAGE} has no table '{HEAD}' or no section '{ALL.strip()}'")
    title, _, text = text.partition("\n")
    text = text.strip().replace("\n## ", "\n### ")
    return f"## {title.removeprefix('# ')}, compared with Triton\n\n{text}\n\n"
