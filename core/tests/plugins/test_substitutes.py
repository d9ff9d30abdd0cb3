"""A kernel that falls to the interpreter because a better backend is there and does not work says
so once, with the reason."""

import os
import subprocess
import textwrap

import fork_server
import pytest

_KERNEL = textwrap.dedent("""
    import sys
    import numpy as np
    import tilewright as tw
    import tilewright.language as tl

    @tw.jit
    def kernel(x):
        tl.store(x, 7)

    x = np.zeros(1, np.float32)
    for _ in range(2):
        compiled = kernel[(1,)](x)
    kernel[(1,)](np.zeros(4, np.float64))  # which is another kernel
    print(x[0], compiled.backend.name)
""")


def shipped(folder, distribution: str, entry: str, source: str) -> None:
    info = folder / f"{distribution.replace('-', '_')}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[tilewright]\n{entry} = pl_{entry}:plugin\n")
    (folder / f"pl_{entry}.py").write_text(source)


def run(folder, **environment: str) -> subprocess.CompletedProcess[str]:
    """The kernel, where of the backends only the interpreter and what lies in the folder are
    found."""
    only = textwrap.dedent("""
        import importlib.metadata
        found = importlib.metadata.entry_points
        def entry_points(**selected):
            entries = found(**selected)
            if selected.get("group") != "tilewright":
                return entries
            kept = [entry for entry in entries if entry.name == "reference" or entry.dist.name.startswith("pl-")]
            return importlib.metadata.EntryPoints(kept)
        importlib.metadata.entry_points = entry_points
    """)
    (folder / "program.py").write_text(only + _KERNEL)
    paths = [str(folder), *filter(None, [os.environ.get("PYTHONPATH")])]
    chosen = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(paths),
        "TILEWRIGHT_CACHE_DIR": str(folder / "cache"),
        **environment,
    }
    if "TILEWRIGHT_BACKEND" not in environment:
        chosen.pop("TILEWRIGHT_BACKEND", None)
    done = fork_server.run(
        [str(folder / "program.py")],
        timeout=300,
        env=chosen,
    )
    assert done.stdout.split() == ["7.0", "reference"], done.stderr
    return done


@pytest.fixture
def broken(tmp_path):
    shipped(tmp_path, "pl-fast", "fast", "import no_such_module\n")
    return tmp_path


def test_a_broken_import_is_told_once(broken):
    told = run(broken).stderr
    assert told.count("kernels run on the interpreter, backend 'reference'") == 1
    assert told.count("No module named 'no_such_module'") == 1
    assert "program.py:" in told  # where the kernel is launched


def test_a_clash_of_names_is_told(tmp_path):
    shipped(tmp_path, "pl-fast", "fast", "plugin = None\n")
    shipped(tmp_path, "pl-rival", "fast", "plugin = None\n")
    told = run(tmp_path).stderr
    assert told.count("kernels run on the interpreter") == 1
    assert (
        "backend 'fast' is disabled: pl-fast 1.0 and pl-rival 1.0 both ship a plugin of that name"
        in told
    )


def test_a_backend_that_says_it_cannot_run_is_told(tmp_path):
    source = textwrap.dedent("""
        from tilewright.plugins.hooks import hookimpl
        from tilewright.plugins.manifest import Manifest

        class plugin:
            @staticmethod
            @hookimpl
            def tilewright_backend():
                kind = "cpu" if __name__ == "pl_fast" else "elsewhere"
                return Manifest(__name__[3:], "1", "for tests", device_kinds=(kind,), targets=("t",), capabilities=None, status="its compiler is missing")
    """)
    shipped(tmp_path, "pl-fast", "fast", source)
    shipped(tmp_path, "pl-other", "other", source)
    told = run(tmp_path).stderr
    assert "backend 'fast' cannot run kernels: its compiler is missing" in told
    assert "'other'" not in told


SEARCHING = """
from tilewright.errors import BackendError, VariableError
from tilewright.plugins.hooks import hookimpl
from tilewright.plugins.manifest import Capabilities, Manifest

class plugin:
    @staticmethod
    @hookimpl
    def tilewright_backend():
        return Manifest("fast", "1", "for tests", device_kinds=("cpu",), targets=("t",), capabilities=Capabilities(frozenset({{'f32'}})))

    @staticmethod
    @hookimpl
    def tilewright_devices():
        {search}
"""


@pytest.mark.parametrize(
    "search",
    [
        "raise BackendError('the driver is of another age')",
        "return ['the driver is of another age']",
        "raise OSError('age')",
    ],
)
def test_a_backend_whose_search_for_devices_fails_is_told(tmp_path, search):
    shipped(tmp_path, "pl-fast", "fast", SEARCHING.format(search=search))
    told = run(tmp_path).stderr
    assert told.count("backend 'reference' is used, since one that comes before it failed") == 1
    assert "age" in told or "gave a str, not a Device" in told


def test_a_backend_that_finds_no_device_is_told_nothing_of(tmp_path):
    shipped(tmp_path, "pl-fast", "fast", SEARCHING.format(search="return []"))
    assert "since one that comes before" not in run(tmp_path).stderr


def test_garbage_in_a_variable_that_the_search_reads_is_refused(tmp_path):
    shipped(
        tmp_path,
        "pl-fast",
        "fast",
        SEARCHING.format(search="raise VariableError('TILEWRIGHT_FAST must be 0 or 1')"),
    )
    with pytest.raises(AssertionError, match="VariableError: TILEWRIGHT_FAST must be 0 or 1"):
        run(tmp_path)


def test_whoever_asks_for_the_interpreter_is_told_nothing(broken):
    assert "interpreter" not in run(broken, TILEWRIGHT_BACKEND="reference").stderr


def test_where_there_is_nothing_better_nothing_is_told(tmp_path):
    assert "interpreter" not in run(tmp_path).stderr
