"""The site, built once for all tests and workers of a run."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the built site; a warning of mkdocs fails the build."""
    pytest.importorskip("mkdocs")
    own = tmp_path_factory.getbasetemp()
    folder = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "site"
    # not --quiet, under which --strict overlooks warnings
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir"]
    with open(f"{folder}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            unfinished = folder.with_suffix(".unfinished")
            done = subprocess.run(
                [*command, str(unfinished)],
                cwd=ROOT,
                capture_output=True,
                text=True,
                env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
                timeout=900,
                check=False,
            )
            assert done.returncode == 0, done.stdout + done.stderr
            unfinished.rename(folder)
    return folder
