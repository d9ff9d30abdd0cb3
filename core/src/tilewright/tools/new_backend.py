"""``tilewright new-backend``: write a skeleton package for a vendor to fill in.

It installs, registers, and lowers nothing yet.

The files are those of ``backend_template``, with the names put in; ``package`` in a path stands for
the package's name.
"""

from __future__ import annotations

import string
import tempfile
from pathlib import Path

import tilewright
from tilewright.plugins.discovery import installed_plugins
from tilewright.plugins.manifest import is_backend_name
from tilewright.tools.usage import UsageError

_TEMPLATE = Path(__file__).with_name("backend_template")
_SUFFIX = ".in"
_LONGEST = 40


def new_backend(name: str, directory: Path) -> list[Path]:
    """Write the package of a new backend to ``directory/tilewright-NAME``; return its files.

    Raises:
        UsageError: the name cannot be a backend's or is taken, the folder exists, or it cannot be
            written.
    """
    _check_name(name)
    folder = directory / f"tilewright-{name}"
    if folder.exists() or folder.is_symlink():
        raise UsageError(
            f"{folder} exists already: remove it, or choose another name or --directory"
        )
    try:
        directory.mkdir(parents=True, exist_ok=True)
        # Written aside and renamed, so that there is the whole package or nothing.
        with tempfile.TemporaryDirectory(prefix=f".{folder.name}-", dir=directory) as aside:
            whole = Path(aside, folder.name)
            files = [
                _write(template, whole, name) for template in sorted(_TEMPLATE.rglob(f"*{_SUFFIX}"))
            ]
            whole.rename(folder)
    except OSError as error:
        raise UsageError(f"cannot write {folder}: {error.strerror or error}") from error
    return [folder / file.relative_to(whole) for file in files]


def _check_name(name: str) -> None:
    if not is_backend_name(name) or name[-1] in "-_" or len(name) > _LONGEST:
        raise UsageError(
            f"{name!r} cannot be a backend's name: it begins with a lower-case letter, goes on "
            "with lower-case letters, digits, '-' and '_', ends with a letter or digit, and has "
            f"{_LONGEST} characters at most"
        )
    for source in installed_plugins():
        if source.name == name:
            raise UsageError(
                f"{source.distribution} is installed and has a backend named {name!r}, and two of "
                "one name disable each other: choose another name"
            )


def _write(template: Path, folder: Path, name: str) -> Path:
    package = f"tilewright_{name.replace('-', '_')}"
    major, minor = tilewright.__version__.split(".")[:2]
    words = {
        "name": name,
        "package": package,
        "distribution": f"tilewright-{name}",
        "core": f">={major}.{minor},<{major}.{int(minor) + 1}",
    }
    parts = [
        package if part == "package" else part for part in template.relative_to(_TEMPLATE).parts
    ]
    file = folder.joinpath(*parts).with_suffix("")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(
        string.Template(template.read_text(encoding="utf-8")).substitute(words), encoding="utf-8"
    )
    return file


def next_steps(files: list[Path]) -> str:
    """Return instructions for a new package."""
    folder = files[0].parent
    lines = [
        f"wrote {len(files)} files:",
        *(f"  {file}" for file in files),
        "",
        "next:",
        f"  cd {folder}",
    ]
    lines += [
        (
            "  make install     # install this package, pytest and the conformance suite into the "
            "Python of make"
        ),
        "  make test        # the tests of the package",
    ]
    lines += [
        "  make quick       # profile core of the conformance suite: no case passes yet",
        f"{folder / 'README.md'} describes the next steps.",
    ]
    return "\n".join(lines)
