"""Trial imports of plugins in a process of their own, once per version.

They find plugins that end the process which imports them, by a fault in native code or by leaving
it.

What survived is remembered, by files whose names say which plugin that was; where nothing can be
remembered nothing is tried out. Plugins of this project are not either: they are tested with it.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import os
import re
import signal
import subprocess
import sys
from importlib.machinery import PathFinder
from pathlib import Path

from tilewright.child_process import environment, python_command

_SURVIVED = b"survived"
#: The code of the other process. An exception is for the importing process to tell.
_CHILD = f"""
import importlib, os, sys
from tilewright.child_process import end_with_parent
end_with_parent(int(sys.argv[2]))
try:
    importlib.import_module(sys.argv[1])
except BaseException:
    pass
os.write(1, {_SURVIVED!r})
os._exit(0)
"""


class EndingError(Exception):
    """Importing a module ends the process."""


def try_out(name: str, version: str, module: str, folder: Path, limit: float) -> None:
    """Import a plugin's module in another process, unless that is known to be survived.

    Args:
        name, version: of the distribution.
        folder: where what survived is remembered.
        limit: seconds that it may take, 0 for no limit. What takes longer has survived.

    Raises:
        EndingError: the other process ended; the message says how.
    """
    if name in _own_distributions():
        return
    facts = (name, version, module, *_file_facts(module), sys.executable, sys.version)
    known = folder / hashlib.sha256("\x00".join(facts).encode()).hexdigest()
    if known.exists():
        return
    command = python_command(_CHILD, module, os.getpid())
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            env=environment(),
            stdin=subprocess.DEVNULL,
            timeout=limit or None,
            check=False,
        )
    except subprocess.TimeoutExpired:
        pass
    else:
        if done.returncode or not done.stdout.endswith(_SURVIVED):
            raise EndingError(
                _message(module, done.returncode, done.stderr.decode(errors="replace").strip())
            )
    known.touch(mode=0o600)


def _message(module: str, status: int, errors: str) -> str:
    how = (
        f"by signal {-status} ({signal.strsignal(-status)})"
        if status < 0
        else f"with status {status}"
    )
    return f"importing {module} ends the process {how}{': ' + errors[-500:] if errors else ''}"


@functools.cache
def _own_distributions() -> frozenset[str]:
    """The distributions of this project: this one, and those that its extras install."""
    try:
        needed = importlib.metadata.requires("tilewright") or []
    except importlib.metadata.PackageNotFoundError:
        needed = []
    return frozenset(
        (
            "tilewright",
            *(
                found[0]
                for need in needed
                if (found := re.match(r"tilewright-\w+(?=.*extra)", need))
            ),
        )
    )


def _file_facts(module: str) -> tuple[str, ...]:
    """Return facts that change with an editable module's code: path, size and time of its file.

    Of a package they are those of its own file.
    """
    found = None
    path = None
    for part in module.split("."):
        spec = PathFinder.find_spec(part, path)
        if spec is None:
            break
        found, path = spec.origin or found, list(spec.submodule_search_locations or ())
    if not found or not os.path.exists(found):
        return ()
    status = os.stat(found)
    return found, str(status.st_size), str(status.st_mtime_ns)
