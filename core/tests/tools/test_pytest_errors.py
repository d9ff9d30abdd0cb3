"""Kernel errors in pytest's output, in a separate process."""

import os
import re
import textwrap

import fork_server
import pytest

TESTS = """
    import numpy as np
    import tilewright as tw
    import tilewright.language as tl

    @tw.jit
    def wrong_axis(x):
        tl.store(x, tl.sum(tl.load(x + tl.arange(0, 8)), axis=3))

    @tw.jit
    def outside(x):
        tl.store(x + 100, 1.0)

    def launched(kernel, *args, **options):
        kernel[(1,)](*args, backend="reference", **options)

    def test_source():
        launched(wrong_axis, np.zeros(8, np.float32))

    def test_run():
        launched(outside, np.zeros(8, np.float32))

    def test_arguments():
        launched(outside)

    def test_option():
        launched(outside, np.zeros(8, np.float32), nothing=3)

    def test_another_error():
        raise ValueError("mine") from KeyError("cause")
"""

#: Another plugin, which looks at an error before it is reported and afterwards.
CONFTEST = """
    import pytest

    def seen(call):
        error = call.excinfo.value
        frames, trace = [], error.__traceback__
        while trace is not None:
            frames.append(trace)
            trace = trace.tb_next
        return call.excinfo, frames, error.__cause__, error.__context__, error.__suppress_context__

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(item, call):
        before = seen(call) if call.excinfo is not None else None
        report = yield
        if before is not None:
            print("ERROR IS AS BEFORE" if seen(call) == before else "ERROR IS CHANGED", len(before[1]), type(before[2]).__name__)
        return report
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("project")
    (folder / "test_kernels.py").write_text(textwrap.dedent(TESTS))
    (folder / "conftest.py").write_text(textwrap.dedent(CONFTEST))

    def output(*options: str, **variables: str) -> str:
        environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("TILEWRIGHT_", "PYTEST_"))
        } | variables
        command = [
            "-m",
            "pytest",
            "--tb=short",
            "-p",
            "no:cacheprovider",
            "--color=no",
            *options,
            "test_kernels.py",
        ]
        done = fork_server.run(command, cwd=folder, env=environment, timeout=300)
        assert done.returncode == 1, done.stdout + done.stderr
        return done.stdout

    return output


def shown_frames(text: str) -> list[tuple[str, str]]:
    """(file, function) of each frame."""
    heads = [
        line
        for line in text.splitlines()
        if not line.startswith(("E ", " ", "_", "=", "FAILED")) and ": in " in line
    ]
    return [
        (head.partition(":")[0].rpartition("/")[2], head.rpartition(" in ")[2]) for head in heads
    ]


def test_an_error_shows_the_frames_of_the_test_and_its_own_text(run):
    text = run()
    launches = ("test_source", "test_run", "test_arguments", "test_option")
    expected = [("test_kernels.py", name) for test in launches for name in (test, "launched")]
    assert shown_frames(text) == [*expected, ("test_kernels.py", "test_another_error")]
    assert (
        text.count("The above exception was the direct cause") == 1
    )  # that of the error that is none of ours
    assert (
        "E   tilewright.errors.CompilationError: invalid axis 3" in text
        and "KeyError: 'cause'" in text
    )


@pytest.mark.parametrize(
    ("options", "variables"),
    [(("--full-trace",), {}), ((), {"TILEWRIGHT_FRONT_END_DEBUGGING": "1"})],
)
def test_the_compilers_frames_are_shown_where_they_are_asked_for(run, options, variables):
    text = run("-k", "source", *options, **variables)
    assert re.search(r"runtime/launch/jit\.py:\d+: ", text)


def test_other_plugins_find_an_error_as_it_was_raised(run):
    text = run("-s")
    found = re.findall(r"ERROR IS (AS BEFORE|CHANGED) (\d+) (\w+)", text)
    assert [how for how, _, _ in found] == ["AS BEFORE"] * 5
    # frames of the compiler, and a cause, are there
    assert max(int(frames) for _, frames, _ in found) > 4 and {cause for _, _, cause in found} > {
        "NoneType"
    }
