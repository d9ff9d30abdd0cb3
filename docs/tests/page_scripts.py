"""The Python blocks of a page of the site as one program."""

from __future__ import annotations

import re
from pathlib import Path

BLOCK = re.compile(r'^```(python|output)(?: title="([^"]+)")?\n(.*?)^```$', re.M | re.S)
#: A page whose blocks with a title are files of the package that its program writes to ``folder``.
PACKAGE_PAGE = Path(__file__).resolve().parents[1] / "site" / "vendors" / "first_kernel.md"


def script_and_output(page: Path) -> tuple[str, str]:
    """The page's Python blocks as one script whose lines keep their numbers, and the output the
    page promises.

    A block with a title is a file of a package: the script replaces the file by the first block
    with its title, and appends further ones.
    """
    text = page.read_text()
    lines = [""] * text.count("\n")
    expected = ""
    titles: set[str] = set()
    for block in BLOCK.finditer(text):
        kind, title, body = block.groups()
        first = text.count("\n", 0, block.start(3))
        if kind == "output":
            expected += body
        elif title is None:
            for offset, line in enumerate(body.splitlines()):
                lines[first + offset] = line
        elif page == PACKAGE_PAGE:
            mode, blank = ("a", "\n\n") if title in titles else ("w", "")
            titles.add(title)
            lines[first] = (
                f"with open(folder / 'tilewright-vega' / {title!r}, {mode!r}) as file: "
                f"file.write({blank + body!r})"
            )
    return "\n".join(lines) + "\n", expected
