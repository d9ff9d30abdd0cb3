"""Count the lines of Python by folder and kind, and what the limit of 100 columns costs.

    python tools/source_lines.py [--columns 160]

Each file of the repository is counted as git has it: lines of code, of docstrings and comments, and
blank ones. The last columns are the lines that the file has when the formatter joins code wherever
the other limit has room (without regard to trailing commas), and the difference to the same at 100
columns. Prose is counted as it is wrapped; the last line estimates it at the other limit.
"""

from __future__ import annotations

import argparse
import ast
import io
import subprocess
import sys
import tempfile
import tokenize
from collections import Counter, defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
COLUMNS = 100
KINDS = ("code", "prose", "blank")
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
#: Lines of the smallest folder that has a row of its own.
SMALLEST = 2500


def folder_of(path: Path) -> str:
    """Return the row of a file: its distribution, and whether it is a source or a test."""
    parts = path.parts
    if "tests" in parts:
        return "/".join(parts[: parts.index("tests") + 1])
    if "src" in parts:
        inside = parts.index("src") + (3 if parts[0] in ("core", "conformance") else 1)
        return "/".join(parts[: min(inside, len(parts) - 1)])
    return parts[0] if len(parts) > 1 else "."


def lines_of(text: str) -> Counter[str]:
    """Count a file's lines by kind."""
    lines = text.splitlines()
    prose: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            first = node.body[0]
            prose |= set(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT and token.line.lstrip().startswith("#"):
            prose.add(token.start[0])
    found: Counter[str] = Counter()
    for number, line in enumerate(lines, 1):
        found["prose" if number in prose else "code" if line.strip() else "blank"] += 1
    return found


def formatted(files: list[Path], columns: int) -> dict[Path, int]:
    """Return the lines that each file has when it is formatted for so many columns."""
    with tempfile.TemporaryDirectory() as folder:
        for file in files:
            copy = Path(folder, file)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_text((ROOT / file).read_text())
        command = [sys.executable, "-m", "ruff", "format", "--quiet", "--no-cache", "--isolated"]
        command += ["--line-length", str(columns), "--target-version", "py311"]
        command += ["--config", "format.skip-magic-trailing-comma = true", folder]
        subprocess.run(command, check=True)
        return {file: len(Path(folder, file).read_text().splitlines()) for file in files}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--columns", type=int, default=160, help="the limit to compare with")
    options = parser.parse_args()
    listed = subprocess.run(
        ["git", "ls-files", "*.py"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    files = [Path(line) for line in listed.stdout.splitlines()]
    joined = formatted(files, options.columns)
    here = formatted(files, COLUMNS)
    rows: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for file in files:
        text = (ROOT / file).read_text()
        found = lines_of(text)
        found["lines"] = sum(found.values())
        found["joined"], found["saved"] = joined[file], here[file] - joined[file]
        rows[folder_of(file)] += found
    total = sum(rows.values(), Counter())
    small = [name for name, row in rows.items() if row["lines"] < SMALLEST]
    rows["others"] = sum((rows.pop(name) for name in small), Counter())
    rows["all"] = total
    columns = ("lines", *KINDS, "joined", "saved")
    print(f"| folder | {' | '.join(columns)} |\n|---|{'---|' * len(columns)}")
    for name, row in sorted(rows.items(), key=lambda item: -item[1]["lines"]):
        print(f"| {name} | {' | '.join(f'{row[column]:,}' for column in columns)} |")
    prose = total["prose"] * COLUMNS // options.columns
    print(f"\nprose at {options.columns} columns: about {prose:,} lines")


if __name__ == "__main__":
    main()
