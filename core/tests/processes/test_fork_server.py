"""Children of the fork server behave as new interpreters do."""

import os
import signal
import subprocess
import sys
import time

import fork_server
import pytest

pytestmark = pytest.mark.skipif(not fork_server.FORKS, reason="children are interpreters here")

SHOW = """
import os, sys
print(sys.argv[1:], os.getcwd(), __name__, os.environ.get("OF_THE_TEST"), sys.path[:2])
print(sys.stdin.read())
print("to stderr", file=sys.stderr)
"""


def as_an_interpreter(arguments, **options):
    """Run a child and an interpreter with the same arguments, and compare what is seen of them."""
    text = options.pop("input", "")
    command = [sys.executable, *arguments]
    known = subprocess.run(command, input=text, capture_output=True, text=True, **options)
    found = fork_server.run(arguments, input=text, **options)
    assert (found.returncode, found.stdout) == (known.returncode, known.stdout)
    return found.stderr, known.stderr


@pytest.mark.parametrize("kind", ["-c", "-m", "file"])
def test_arguments_environment_folder_and_streams(tmp_path, kind):
    (tmp_path / "shown.py").write_text(SHOW)
    (tmp_path / "inner").mkdir()
    program = {"-c": ["-c", SHOW], "-m": ["-m", "shown"], "file": [str(tmp_path / "shown.py")]}
    variables = {**os.environ, "OF_THE_TEST": "value", "PYTHONPATH": str(tmp_path)}
    errors = as_an_interpreter(
        [*program[kind], "one", "two"], env=variables, cwd=tmp_path / "inner", input="read\n"
    )
    assert errors == ("to stderr\n", "to stderr\n")


@pytest.mark.parametrize(
    "end",
    [
        "sys.exit(7)",
        "sys.exit('why')",
        "raise ValueError('mine')",
        "os.kill(os.getpid(), 9)",
        "os.kill(os.getpid(), 2)",
        "os._exit(3)",
    ],
)
def test_ends(end):
    (found, known) = as_an_interpreter(["-c", f"import os, sys\nprint('begun', flush=True)\n{end}"])
    assert found.splitlines()[-1:] == known.splitlines()[-1:]


def test_the_ordinary_end_runs_handlers_threads_and_finalizers():
    program = """
        import atexit, threading, time
        class Late:
            def __del__(self):
                print("finalized")
        late = Late()
        cycle = Late()
        cycle.itself = cycle
        atexit.register(print, "at exit")
        threading.Thread(target=lambda: (time.sleep(0.05), print("joined"))).start()
        print("last line")
    """
    as_an_interpreter(["-c", "if True:" + program])


def test_children_have_modules_but_no_threads_and_no_state():
    program = """
import sys, threading
from tilewright.plugins import registry
assert "tilewright_cpu.lower" in sys.modules and "torch" not in sys.modules
found = registry.registry()
print(threading.active_count(), found._sources, found._loaded)
"""
    assert fork_server.run(["-c", program]).stdout == "1 None {}\n"


def test_what_a_child_changes_is_not_there_for_the_next():
    change = "import tilewright, os; tilewright.changed = os.environ['CHANGED'] = '1'"
    assert fork_server.run(["-c", change]).returncode == 0
    look = "import tilewright, os; print(hasattr(tilewright, 'changed'), 'CHANGED' in os.environ)"
    assert fork_server.run(["-c", look]).stdout == "False False\n"


def test_variables_that_only_a_new_interpreter_follows_are_refused():
    with pytest.raises(AssertionError, match="PYTHONHASHSEED takes effect when an interpreter"):
        fork_server.run(["-c", "pass"], env={**os.environ, "PYTHONHASHSEED": "1"})


def test_a_child_is_signalled_and_killed():
    child = fork_server.start(["-c", "print('begun', flush=True)\nimport time; time.sleep(1000)"])
    assert child.stdout.readline() == "begun\n" and child.poll() is None
    child.send_signal(signal.SIGTERM)
    assert child.wait(900) == -signal.SIGTERM
    with pytest.raises(subprocess.TimeoutExpired):
        fork_server.run(["-c", "import time; time.sleep(1000)"], timeout=0.01)


def test_a_server_ends_its_children(tmp_path):
    with fork_server.ForkServer("") as server:
        child = server.start(["-c", "print('begun', flush=True)\nimport time; time.sleep(1000)"])
        assert child.stdout.readline() == "begun\n"
    until = time.monotonic() + 900
    while os.path.exists(f"/proc/{child.pid}/stat") and time.monotonic() < until:
        with open(f"/proc/{child.pid}/stat") as file:
            if file.read().rpartition(")")[2].split()[0] in "ZX":
                break
        time.sleep(0.01)
    else:
        assert time.monotonic() < until


def test_a_warm_cache_has_native_code_and_no_kernel_of_a_test(tmp_path):
    cache = fork_server.warm_cache(tmp_path / "cache")
    before = {file for file in cache.rglob("*") if file.is_file()}
    assert before
    program = tmp_path / "program.py"
    program.write_text(fork_server._FIRST_LAUNCH.replace("x + tl", "x + 1 * tl"))
    done = fork_server.run([program], env={**os.environ, "TILEWRIGHT_CACHE_DIR": str(cache)})
    assert done.returncode == 0, done.stderr
    assert len({file for file in cache.rglob("*") if file.is_file()} - before) == 1
