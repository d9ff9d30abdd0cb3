"""Processes that this one starts: what they import, that they end with it, and that they end in
time."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

pytest.importorskip("llvmlite")
pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals of POSIX systems")

#: Seconds after which a test that waits for what does not come fails.
GUARD = 900
#: Modules of the standard library that a process of ours imports.
HIDDEN = (
    "json",
    "socket",
    "pickle",
    "struct",
    "select",
    "ctypes",
    "signal",
    "subprocess",
    "tempfile",
    "hashlib",
)

GENERATE = """
from tilewright.llvm.codegen import subprocess_codegen
from tilewright.llvm.codegen.compile import compile_to_object, host_target
TEXT = 'define void @held() {\\n  call void asm sideeffect "nop", ""()\\n  ret void\\n}\\n'
def generate():
    triple, cpu, features = host_target()
    return compile_to_object(TEXT, triple=triple, cpu=cpu, features=features)
"""
LOWER = """
import os
from tilewright.runtime.compiler import workers
from tilewright.runtime.compiler.worker_server import LoweringJob
from tilewright.plugins.registry import registry
from tilewright.runtime.devices import device_registry
def lower():
    backend = registry().get("reference")
    target = device_registry.target_of(backend, device_registry.find(backend, None))
    pool = workers.WorkerPool(1)
    try:
        return pool.lower(LoweringJob(workers._NOTHING, {}, "reference", backend.completed(target), "", dict(os.environ)))
    finally:
        pool.close()
"""


EXECUTE = """
from tilewright.runtime.executors import opened
def execute():
    with opened("processes:1") as executor:
        return executor.submit(bytes, 1).result()
"""
PROBE = """
import pathlib
from tilewright.plugins.probe import try_out
def probe():
    pathlib.Path("known").mkdir(exist_ok=True)
    try_out("other", "1", "wave", pathlib.Path("known"), 0)
    return list(pathlib.Path("known").iterdir())
"""


def run(program, folder, **environment):
    """Run a program whose own path does not have the current folder, and which is in it."""
    return subprocess.Popen(
        [sys.executable, "-P", "-c", textwrap.dedent(program)],
        cwd=folder,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def is_gone(process):
    """Return whether a process ends."""
    until = time.monotonic() + GUARD
    while time.monotonic() < until:
        try:
            os.kill(process, 0)
            if Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] in "ZX":
                return True
        except OSError:
            return True
        time.sleep(0.01)
    return False


@pytest.fixture
def planted(tmp_path):
    """A folder in which modules lie that are called as modules of the standard library."""
    for name in HIDDEN:
        (tmp_path / f"{name}.py").write_text(
            f"open({str(tmp_path / 'ran')!r}, 'a').write('{name} ')\n"
            "raise SystemExit('code of the current folder ran')\n"
        )
    return tmp_path


@pytest.mark.parametrize(
    ("define", "call"), [(GENERATE, "generate()"), (LOWER, "lower()"), (EXECUTE, "execute()")]
)
def test_nothing_of_the_current_folder_is_imported(planted, define, call):
    child = run(f"{define}\nprint(len({call}) > 0)", planted)
    out, err = child.communicate(timeout=GUARD)
    assert not (planted / "ran").exists() and out == "True\n", err


def test_what_the_current_folder_means_comes_last(tmp_path, monkeypatch):
    from tilewright import child_process

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["", "/first", "/second"])
    assert child_process.module_path() == ["/first", "/second", str(tmp_path)]
    monkeypatch.setattr(sys, "path", ["/first", "/second"])
    assert child_process.module_path() == ["/first", "/second"]


def test_what_the_environment_says_by_now_follows_the_path_of_this_process(monkeypatch):
    from tilewright import child_process

    monkeypatch.setattr(sys, "path", ["/first", "/second"])
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(["/third", "", "/first", "fourth"]))
    assert child_process.module_path() == ["/first", "/second", "/third"]
    monkeypatch.delenv("PYTHONPATH")
    assert child_process.module_path() == ["/first", "/second"]


@pytest.mark.parametrize(
    ("said", "left"), [("", None), (":relative:.", None), ("/one::relative:/two", "/one:/two")]
)
def test_no_variable_of_another_process_names_the_current_folder(monkeypatch, said, left):
    from tilewright import child_process

    monkeypatch.setenv("PYTHONPATH", said)
    assert child_process.environment().get("PYTHONPATH") == left


@pytest.mark.each_value
@pytest.mark.parametrize(
    ("define", "call"), [(GENERATE, "generate()"), (LOWER, "lower()"), (PROBE, "probe()")]
)
@pytest.mark.parametrize("flag", ["-c", "-I"])
def test_no_other_process_starts_with_code_that_this_one_started_without(
    tmp_path, define, call, flag
):
    """An interpreter imports ``sitecustomize`` before a folder is put first on its path, and under
    ``-I`` from nowhere that a variable names."""
    named = tmp_path / "named"
    named.mkdir()
    for folder in (tmp_path, named)[flag == "-I" :]:
        (folder / "sitecustomize.py").write_text(
            f"open({str(tmp_path / 'ran')!r}, 'a').write('ran')\n"
        )
    program = f"import sys\nsys.path.insert(0, '')\n{define}\nprint(len({call}) > 0)"
    variables = {
        **os.environ,
        **({"PYTHONPATH": str(named)} if flag == "-I" else {}),
        "TILEWRIGHT_CACHE_DIR": str(tmp_path / "cache"),
    }
    command = [sys.executable, *(["-I"] if flag == "-I" else []), "-c", program]
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env=variables,
        capture_output=True,
        text=True,
        timeout=GUARD,
        check=False,
    )
    assert not (tmp_path / "ran").exists() and done.stdout == "True\n", done.stderr


def test_a_process_that_tries_out_a_plugin_ends_with_the_one_that_wants_it(tmp_path):
    (tmp_path / "hanging.py").write_text(
        "import os, time\nprint(os.getpid(), file=open('process', 'w'), flush=True)\n"
        "os.rename('process', 'hangs')\ntime.sleep(100000)\n"
    )
    parent = run(
        (
            f"import sys\nsys.path.append({str(tmp_path)!r})\n"
            f"{PROBE.replace('wave', 'hanging')}\nprobe()"
        ),
        tmp_path,
    )
    child = started(tmp_path)
    parent.kill()
    parent.communicate(timeout=GUARD)
    assert is_gone(child)


#: A process that generates code, and hangs instead; it tells its number.
HANGING = (
    GENERATE
    + """
subprocess_codegen._CHILD = '''
import os, sys, time
import tilewright.llvm.codegen.compile as compile_
def hang(*_):
    print(os.getpid(), file=open("process", "w"), flush=True)
    os.rename("process", "hangs")
    time.sleep(100000)
compile_.prepared = hang
''' + subprocess_codegen._CHILD
"""
)


def started(folder):
    """The process that hangs, as soon as it does."""
    until = time.monotonic() + GUARD
    while not (folder / "hangs").exists():
        assert time.monotonic() < until
        time.sleep(0.01)
    return int((folder / "hangs").read_text())


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL, signal.SIGALRM])
def test_a_process_that_generates_code_ends_with_the_one_that_wants_it(tmp_path, end):
    parent = run(f"{HANGING}\ngenerate()", tmp_path)
    child = started(tmp_path)
    parent.send_signal(end)
    parent.communicate(timeout=GUARD)
    assert is_gone(child)


def test_the_end_of_a_pipe_ends_it_where_the_system_kills_no_children(tmp_path):
    """A thread of the process waits for it, while the code generator runs."""
    without = HANGING.replace(
        "import os, sys, time\n",
        (
            "import os, sys, time\nfrom tilewright import child_process\n"
            "child_process.end_with_parent = int\n"
        ),
    )
    parent = run(f"{without}\ngenerate()", tmp_path)
    child = started(tmp_path)
    parent.kill()
    parent.communicate(timeout=GUARD)
    assert is_gone(child)


def test_code_that_takes_too_long_is_given_up_by_name(tmp_path):
    parent = run(
        f"""{HANGING}
try:
    generate()
except Exception as error:
    print(type(error).__name__, error)
""",
        tmp_path,
        TILEWRIGHT_COMPILE_TIME_LIMIT="1",
    )
    out, err = parent.communicate(timeout=GUARD)
    assert out.startswith(
        "LoweringError generating the code of held took longer than 1 seconds and was ended"
    ), err
    assert "TILEWRIGHT_COMPILE_TIME_LIMIT" in out


def test_the_limit_is_generous_and_can_be_taken_away(monkeypatch):
    from tilewright import child_process
    from tilewright.errors import VariableError

    monkeypatch.delenv("TILEWRIGHT_COMPILE_TIME_LIMIT", raising=False)
    assert child_process.time_limit() == 1800
    for text, limit in (("0", None), ("2.5", 2.5)):
        monkeypatch.setenv("TILEWRIGHT_COMPILE_TIME_LIMIT", text)
        assert child_process.time_limit() == limit
    monkeypatch.setenv("TILEWRIGHT_COMPILE_TIME_LIMIT", "-1")
    with pytest.raises(VariableError, match="must be a number of seconds from 0 on"):
        child_process.time_limit()
