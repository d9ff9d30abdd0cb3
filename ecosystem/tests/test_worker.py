"""Errors of compilations, as the corpus records them."""

from __future__ import annotations

import tempfile

from corpus.worker import first_line


def test_errors_do_not_name_temporary_files() -> None:
    error = RuntimeError(
        f"LLD failed to link {tempfile.gettempdir()}/tmpab1 into {tempfile.gettempdir()}/tmpcd2 because\nof this"
    )
    assert (
        first_line(error)
        == "RuntimeError: LLD failed to link a temporary file into a temporary file because"
    )
