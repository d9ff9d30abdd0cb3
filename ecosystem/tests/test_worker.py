"""Errors of compilations, as the corpus records them."""

from __future__ import annotations

import tempfile

from corpus.worker import first_line


def test_errors_name_files_of_packages_without_the_installation() -> None:
    error = RuntimeError("at fault (at /opt/env/lib/python3.11/site-packages/fla/ops/gla.py:7:4)")
    assert first_line(error) == "RuntimeError: at fault (at fla/ops/gla.py:7:4)"


def test_errors_do_not_name_temporary_files() -> None:
    error = RuntimeError(
        f"LLD failed to link {tempfile.gettempdir()}/tmpab1 into "
        f"{tempfile.gettempdir()}/tmpcd2 because\nof this"
    )
    assert (
        first_line(error)
        == "RuntimeError: LLD failed to link a temporary file into a temporary file because"
    )
