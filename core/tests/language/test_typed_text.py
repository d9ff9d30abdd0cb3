"""Kernels that no file holds: typed at a prompt, given on the command line or on standard input, or
run by ``exec``; and cells that are run again."""

from __future__ import annotations

import linecache
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl

PROGRAM = """import numpy as np
import tilewright as tw
import tilewright.language as tl

@tw.jit
def put(y, n):
    # the second line
    tl.store(y, n)

y = np.zeros(1, np.int32)
with tw.backend("reference"):
    put[(1,)](y, 42)
print("gave", y[0])
"""


def python(*arguments: str, **keywords: Any) -> str:
    done = subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
        **keywords,
    )
    return done.stdout + done.stderr


def test_on_the_command_line() -> None:
    assert python("-c", PROGRAM) == "gave 42\n"


def test_on_standard_input_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    with (tmp_path / "program.py").open() as file:
        assert python("-", stdin=file) == "gave 42\n"


def test_by_exec_of_a_text_that_is_still_there() -> None:
    text = PROGRAM
    names: dict[str, Any] = {}
    exec(text, names)
    assert names["y"][0] == 42 and names["put"].definition_line == 6
    assert names["put"].src.startswith("def put(y, n):\n    # the second line\n")


def test_what_is_nowhere_says_how(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    said = python("-c", "exec(open('program.py').read())", cwd=tmp_path)
    assert (
        "the source of 'put' (<string>) cannot be read\n  help: put the function in a file" in said
    )
    linecache.cache["<kernels>"] = (
        len(PROGRAM),
        None,
        PROGRAM.splitlines(keepends=True),
        "<kernels>",
    )
    names: dict[str, Any] = {"text": None}
    exec(compile("".join(list(PROGRAM)), "<kernels>", "exec"), names)
    assert names["y"][0] == 42


def test_a_text_that_makes_another_function_is_not_taken() -> None:
    template = "def put(y, n):\n    tl.store(y, n{})\n"
    code, other = compile(template.format(""), "<string>", "exec"), template.format(" + 1")
    names: dict[str, Any] = {}
    exec(code, names)
    with pytest.raises(ValueError, match="cannot be read"):
        tw.jit(names["put"])
    assert other


def test_what_the_command_line_says_is_not_taken_for_another_text_without_a_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lines = ["import sys\n", "print(sys.argv)\n"]
    monkeypatch.setitem(
        linecache.cache, "<string>", (sum(map(len, lines)), None, lines, "<string>")
    )
    names: dict[str, Any] = {"tl": tl}
    exec("def put(y, n):\n    tl.store(y, n)\n", names)
    assert tw.jit(names["put"]).src == "def put(y, n):\n    tl.store(y, n)\n"
    exec("".join(["def put(y, n):\n", "    tl.store(y, n + 2)\n"]), names)
    with pytest.raises(ValueError, match="cannot be read"):
        tw.jit(names["put"])
    lines[:] = ["def put(y, n):\n", "    tl.store(y, n + 2)\n"]
    assert tw.jit(names["put"]).src.endswith("n + 2)\n")


@pytest.mark.skipif(sys.platform == "win32", reason="there are no pseudo-terminals")
def test_at_the_prompt() -> None:
    import pty

    pid, terminal = pty.fork()
    if pid == 0:
        os.environ.update(TERM="dumb", PYTHON_HISTORY=os.devnull)
        os.execv(
            sys.executable,
            [
                sys.executable,
                "-q",
                "-i",
                "-c",
                "import readline, numpy as np, tilewright as tw, tilewright.language as tl",
            ],
        )
    said = b""

    def read_until(text: bytes) -> None:
        nonlocal said
        end = time.monotonic() + 300
        while text not in said:
            assert time.monotonic() < end, said.decode()
            said += os.read(terminal, 4096)

    read_until(b">>> ")
    for line in [
        "@tw.jit",
        "def put(y, n):",
        "    tl.store(y, n)",
        "",
        "y = np.zeros(1, np.int32)",
        "with tw.backend('reference'): put[(1,)](y, 42)",
        "",
    ]:
        os.write(terminal, line.encode() + b"\n")
    os.write(terminal, b"print('ga' + 've', y[0])\nexit()\n")
    read_until(b"gave 42")
    os.waitpid(pid, 0)
    os.close(terminal)


# ---- cells that are run again


class Notebook:
    def __init__(self) -> None:
        self.names: dict[str, Any] = {}
        self.count = 0

    def run(self, text: str) -> None:
        self.count += 1
        name = f"<cell {id(self)} {self.count}>"
        linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
        exec(compile(text, name, "exec"), self.names)


HELPERS = "@tw.jit\ndef inner(x):\n    return x + {}\n"
KERNELS = """
@tw.jit
def outer(x):
    return inner(x) * 2

@tw.jit
def kernel(y):
    tl.store(y, outer(tl.load(y)))
"""


@pytest.mark.parametrize("backend", ["reference", "cpu"])
def test_a_helper_that_is_defined_again_is_seen_by_kernels_that_call_it(backend: str) -> None:
    if backend == "cpu":
        pytest.importorskip("tilewright_cpu")
    notebook = Notebook()
    notebook.run("import tilewright as tw, tilewright.language as tl\n" + HELPERS.format(1))
    notebook.run(KERNELS)

    def launch() -> int:
        y = np.ones(1, np.int32)
        with tw.backend(backend):
            notebook.names["kernel"][(1,)](y)
        return int(y[0])

    assert [launch() for _ in range(5)] == [4] * 5
    notebook.run(HELPERS.format(10))
    assert [launch() for _ in range(5)] == [22] * 5
    notebook.run(HELPERS.format(1))
    assert launch() == 4
    notebook.run(KERNELS.replace("* 2", "* 3"))
    assert launch() == 6


def test_a_function_of_the_same_name_elsewhere_changes_nothing() -> None:
    notebook = Notebook()
    notebook.run("import tilewright as tw, tilewright.language as tl\n" + HELPERS.format(1))
    notebook.run(KERNELS)
    y = np.ones(1, np.int32)
    with tw.backend("reference"):
        first = notebook.names["kernel"][(1,)](y)
        notebook.run(
            "def make():\n    @tw.jit\n    def inner(x):\n        return x\n"
            "    return inner\nmake()\n"
        )
        assert notebook.names["kernel"][(1,)](y) is first
