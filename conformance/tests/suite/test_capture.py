"""Capture of native output, and restoration of the output afterwards."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys

import pytest

from tilewright_conformance.suite.capture import captured_output
from tilewright_conformance.suite.session import Session, Subject


def test_output_behind_python_is_collected_and_the_rest_is_not(
    capfd: pytest.CaptureFixture[str],
) -> None:
    libc = ctypes.CDLL(None)
    libc.puts(b"before")
    with captured_output() as found:
        libc.puts(b"held back by the C library")
        os.write(1, b"at once\n")
        os.write(2, b"an error\n")
    libc.puts(b"after")
    libc.fflush(None)
    assert sorted("".join(found).splitlines()) == ["at once", "held back by the C library"]
    assert capfd.readouterr() == ("before\nafter\n", "an error\n")
    with captured_output((1, 2)) as found:
        os.write(2, b"an error\n")
    assert found == ["an error\n"]


_BUFFERED = """
import ctypes
from tilewright_conformance.suite.capture import captured_output
libc = ctypes.CDLL(None)
libc.puts(b"before")
with captured_output() as found:
    libc.puts(b"inside")
libc.puts(b"after")
libc.puts(repr(found).encode())
libc.fflush(None)
"""


def test_what_the_c_library_holds_back_comes_where_it_was_written() -> None:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    found = subprocess.run(
        [sys.executable, "-c", _BUFFERED],
        capture_output=True,
        text=True,
        env=environment,
        timeout=900,
        check=True,
    )
    assert found.stdout.splitlines() == ["before", "after", r"['inside\n']"]


def test_lines_of_kernels_come_from_python_and_from_native_code() -> None:
    session = Session(Subject("reference"), "control/print")
    with session.printed() as lines:
        print("from Python")
        os.write(1, b"from the driver\n")
    assert lines == ["from Python", "from the driver"]
    with pytest.raises(KeyError), session.printed() as lines:
        raise KeyError
    assert os.write(1, b"") == 0
