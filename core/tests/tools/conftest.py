"""The command line, in this process, with a cache of each test's own."""

import pytest

from tilewright.tools import cli


@pytest.fixture
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path / "cache"))
    for name in (
        "TILEWRIGHT_CACHE_SIZE",
        "TILEWRIGHT_BACKEND",
        "TILEWRIGHT_AUTOTUNE",
        "TILEWRIGHT_TUNING_PATH",
    ):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def run(capsys):
    """``run(*arguments)`` -> (exit code, stdout, stderr)."""

    def call(*arguments):
        try:
            code = cli.main([str(argument) for argument in arguments])
        except SystemExit as error:
            code = error.code
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call
