"""What a process can do around kernels: threads, forks, signals, its end, several of them at once,
and where a kernel's source comes from."""

import importlib.util
import os
import signal
import subprocess
import sys
import textwrap

import fork_server
import pytest

pytest.importorskip("tilewright_cpu")
pytestmark = pytest.mark.skipif(os.name != "posix", reason="forks and signals")

#: Seconds after which a process that should have ended by itself hangs.
GUARD = 900

KERNELS = """
import os, signal, sys, threading, time
import numpy as np
import tilewright as tw
import tilewright.language as tl

GUARD = 800  # seconds: before the test gives the process up, so that it can tell what waited
signal.signal(signal.SIGINT, signal.default_int_handler)  # the parent may ignore interrupts, as one in the background of a shell's script does
signal.signal(signal.SIGALRM, signal.SIG_DFL)

@tw.jit
def copy_blocks(x, y, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + offsets, tl.load(x + offsets, offsets < n), offsets < n)

@tw.jit
def put(y, a):
    tl.store(y, a)

@tw.jit
def constant(y, VALUE: tl.constexpr):
    tl.store(y, VALUE)

@tw.jit
def hold(go, started, ended, FIRST: tl.constexpr):
    "Its programs, from one on, run until they are let go; the others just end."
    tl.atomic_add(started, 1)
    if tl.program_id(0) >= FIRST:
        looks = 0
        while tl.load(go, volatile=True) == 0:
            looks += 1
    tl.atomic_add(ended, 1)

N = 1_000_003
x = np.random.default_rng(0).random(N).astype(np.float32)

def shared(y=None):
    "A launch with work for every thread of the pool."
    y = np.full(N, np.nan, np.float32) if y is None else y
    copy_blocks[(tw.cdiv(N, 1024),)](x, y, N, BLOCK=1024)
    assert (x == y).all()
    return "fine"

def warm():
    for _ in range(3):
        shared()
"""


@pytest.fixture
def start(tmp_path):
    """Starts programs that define the kernels above: ``start(code, *before)`` -> the process."""
    processes = []

    def begin(
        code: str, *, whole: bool = False, name: str = "program.py", **environment: str
    ) -> fork_server.Child:
        file = tmp_path / name
        program = textwrap.dedent(code) if whole else KERNELS + textwrap.dedent(code)
        if not file.exists() or file.read_text() != program:  # another process may be reading it
            file.write_text(program)
        settings = {
            **os.environ,
            "TILEWRIGHT_CACHE_DIR": str(fork_server.warm_cache(tmp_path / "cache")),
            "TILEWRIGHT_NUM_THREADS": "4",
            **environment,
        }
        process = fork_server.start([file], env=settings)
        processes.append(process)
        return process

    yield begin
    for process in processes:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def finish(process, code=0, timeout=GUARD) -> list[str]:
    """The lines a process printed, after it ended by itself with ``code``."""
    out, err = process.communicate(timeout=timeout)
    assert process.returncode == code, (process.returncode, out, err)
    return out.splitlines()


# ---- forks


def test_children_of_a_fork_launch_and_end_as_any_process(start):
    process = start("""
        warm()
        for number in range(3):
            child = os.fork()
            if child == 0:
                signal.alarm(GUARD)
                warm()
                y = np.zeros(1)
                put[(1,)](y, 2.5 + number)  # compiled in the child
                sys.exit(0 if y[0] == 2.5 + number else 3)  # the ordinary end: atexit, threads joined
            assert os.waitpid(child, 0)[1] == 0
            print(shared(), flush=True)  # the next child, which ends as any process, would write what is still buffered once more
    """)
    assert finish(process) == ["fine"] * 3


def test_a_fork_while_other_threads_launch(start):
    process = start("""
        warm()
        stop, launched = threading.Event(), threading.Barrier(4)
        def launch():
            y = np.zeros(N, np.float32)
            shared(y)
            launched.wait(GUARD)
            while not stop.is_set():
                shared(y)
        threads = [threading.Thread(target=launch) for _ in range(3)]
        for thread in threads: thread.start()
        launched.wait(GUARD)
        for number in range(8):
            child = os.fork()
            if child == 0:
                signal.alarm(GUARD)
                try:
                    warm()
                    os._exit(0)
                finally:
                    os._exit(4)
            assert os.waitpid(child, 0)[1] == 0, number
        stop.set()
        for thread in threads: thread.join()
        print(shared())
    """)
    assert finish(process) == ["fine"]


def test_a_forked_pool_of_processes(start):
    process = start("""
        import multiprocessing
        warm()
        with multiprocessing.get_context("fork").Pool(3) as pool:
            print(*pool.starmap(shared, [()] * 6))
    """)
    assert finish(process) == ["fine fine fine fine fine fine"]


def test_kernels_travel_to_spawned_processes_by_name(start):
    process = start("""
        import multiprocessing
        def run(kernel):
            y = np.zeros(1)
            kernel[(1,)](y, 6)
            return y[0]
        if __name__ == "__main__":
            with multiprocessing.get_context("spawn").Pool(2) as pool:
                print(*pool.map(run, [put, constant]))
    """)
    assert finish(process) == ["6.0 6.0"]


# ---- the end


@pytest.mark.each_value
@pytest.mark.parametrize(
    "work", ["shared(y)", "constant[(1,)](y, next(numbers))"], ids=["running", "compiling"]
)
@pytest.mark.parametrize(
    ("end", "code"), [("", 0), ("sys.exit(7)", 7), ("raise ValueError('mine')", 1)]
)
def test_the_interpreter_ends_while_daemon_threads_work(start, work, end, code):
    process = start(f"""
        import itertools
        warm()
        numbers = itertools.count(2)
        at_work = threading.Barrier(4)
        def forever():
            y = np.zeros(N, np.float32)
            {work}
            at_work.wait(GUARD)
            while True:
                {work}
        for _ in range(3):
            threading.Thread(target=forever, daemon=True).start()
        at_work.wait(GUARD)
        {end}
    """)
    finish(process, code)


def test_launches_at_exit_and_in_destructors(start):
    process = start("""
        import atexit
        class Late:
            def __del__(self):
                print("destructor", shared())
        warm()
        atexit.register(lambda: print("atexit", shared()))
        late = Late()
    """)
    assert finish(process) == ["atexit fine", "destructor fine"]


# ---- signals


POOLS = ["auto", "python", "serial", *(["torch"] if importlib.util.find_spec("torch") else [])]


@pytest.mark.parametrize("pool", POOLS)
def test_an_interrupt_ends_programs_that_spin(start, pool):
    """One program alone, all of several, and only the last: the main thread's own one and another
    thread's, which it waits for. And again where launches of the kernel are known to be quick."""
    settings = {"TILEWRIGHT_CPU_POOL": "auto" if pool == "torch" else pool}
    process = start(
        f"""
        if {pool == "torch"}:
            import torch
        go, started, ended = np.zeros((3, 1), np.int32)
        def interrupt(programs):
            while started[0] < programs:
                time.sleep(0.001)
            os.kill(os.getpid(), signal.SIGINT)
        def launch(programs, first):
            go[0] = started[0] = ended[0] = 0
            interrupter = threading.Thread(target=interrupt, args=(programs if first else 1,), daemon=True)
            interrupter.start()
            try:
                hold[(programs,)](go, started, ended, first)
            except KeyboardInterrupt:
                print("interrupted", first <= started[0] and ended[0] == first)
            interrupter.join()
            go[0] = 1
            started[0] = ended[0] = 0
            for _ in range(3):
                hold[(programs,)](go, started, ended, first)
            assert ended[0] == 3 * programs
        for programs, first in ((1, 0), (1, 0), (8, 0), (8, 7), (8, 7)):
            launch(programs, first)
        print(shared())
        """,
        **settings,
    )
    assert finish(process) == 5 * ["interrupted True"] + ["fine"]


def test_an_interrupt_while_a_thread_is_taken_on_leaves_none_behind(start):
    """It comes when the thread runs, and its pool does not know it yet: at its end the interpreter
    would wait for a thread that nobody tells to end."""
    process = start(
        """
        go, started, ended = np.zeros((3, 1), np.int32)
        go[0] = 1
        begin, interrupted = threading.Thread.start, []
        def interrupt(thread):
            begin(thread)
            if thread.name.startswith("tilewright-waiting") and not interrupted:
                interrupted.append(thread.name)
                os.kill(os.getpid(), signal.SIGINT)
        threading.Thread.start = interrupt
        try:
            hold[(8,)](go, started, ended, 0)
        except KeyboardInterrupt:
            print("interrupted", *interrupted)
        hold[(8,)](go, started, ended, 0)
        print(shared())
        """,
        TILEWRIGHT_CPU_POOL="serial",
    )
    assert finish(process) == ["interrupted tilewright-waiting_0", "fine"]


def test_a_program_that_spins_lets_other_threads_and_handlers_run(start):
    process = start("""
        go, started, ended = np.zeros((3, 1), np.int32)
        go[0] = 1
        for _ in range(50):
            hold[(1,)](go, started, ended, 0)  # its launches are known to be quick
        def handle(number, frame):
            print("handled", shared())
            go[0] = 1
        signal.signal(signal.SIGUSR1, handle)
        def send():
            while started[0] == 50:
                time.sleep(0.001)
            os.kill(os.getpid(), signal.SIGUSR1)
        go[0] = 0
        threading.Thread(target=send, daemon=True).start()
        hold[(1,)](go, started, ended, 0)
        print(ended[0])
    """)
    assert finish(process) == ["handled fine", "51"]


def test_functions_that_spin_end_with_their_kernel(start):
    process = start("""
        @tw.jit(noinline=True)
        def wait(go, BLOCK: tl.constexpr):
            tile = tl.zeros((BLOCK,), tl.int32)
            while tl.max(tile) == 0:  # the tile of a loop, in heap memory
                tile = tl.load(go + tl.zeros((BLOCK,), tl.int32), volatile=True)
            return tile
        @tw.jit
        def waits(go, started, ended, BLOCK: tl.constexpr):
            tl.atomic_add(started, 1)
            tile = wait(go, BLOCK)
            tl.atomic_add(ended, tl.max(tile))
        go, started, ended = np.zeros((3, 1), np.int32)
        def interrupt():
            while not started[0]:
                time.sleep(0.001)
            os.kill(os.getpid(), signal.SIGINT)
        threading.Thread(target=interrupt, daemon=True).start()
        try:
            waits[(3,)](go, started, ended, BLOCK=1 << 17)
        except KeyboardInterrupt:
            print("interrupted", ended[0])
        go[0] = 1
        waits[(3,)](go, started, ended, BLOCK=1 << 17)
        print(ended[0], shared())
    """)
    assert finish(process) == ["interrupted 0", "3 fine"]


#: A grid that nothing but an interrupt ends.
ENDLESS = """
@tw.jit
def count(counted):
    tl.atomic_add(counted, 1)

counted = np.zeros(1, np.int32)

def endless():
    count[(65536, 65536, 16)](counted)

def after_some(*actions):
    "Does things in another thread, each once more programs have run."
    def work():
        for action in actions:
            before = counted[0]
            while counted[0] == before:
                time.sleep(0.001)
            action()
    threading.Thread(target=work, daemon=True).start()

def send(number):
    return lambda: os.kill(os.getpid(), number)
"""


@pytest.mark.each_value
@pytest.mark.parametrize("pool", ["auto", "python", "serial"])
@pytest.mark.parametrize("launcher", ["native", "python"])
def test_an_interrupt_ends_a_launch_between_programs(start, pool, launcher):
    environment = {"TILEWRIGHT_CPU_POOL": pool, "TILEWRIGHT_CPU_LAUNCHER": launcher}
    process = start(
        ENDLESS
        + """
for known in (False, True):  # the cost of its programs
    after_some(send(signal.SIGINT))
    try:
        endless()
    except KeyboardInterrupt:
        ran = counted[0]
        print("interrupted")
    time.sleep(0.05)
    print(counted[0] == ran, shared())
if hasattr(os, "fork"):
    child = os.fork()
    if child == 0:
        after_some(send(signal.SIGINT))
        try:
            endless()
        except KeyboardInterrupt:
            os._exit(7)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
""",
        **environment,
    )
    assert finish(process) == 2 * ["interrupted", "True fine"] + ["7"]


def test_handlers_of_signals_run_during_a_launch_and_what_they_raise_ends_it(start):
    process = start(
        ENDLESS
        + """
warm()  # the second signal comes while the first is handled: not while what handles it is compiled
calls = []
def handle(number, frame):
    calls.append(threading.current_thread() is threading.main_thread())
    shared()
    if len(calls) == 2:
        raise LookupError("of the handler")
def handled():
    while not calls:
        time.sleep(0.001)
signal.signal(signal.SIGINT, handle)
after_some(send(signal.SIGINT), handled, send(signal.SIGINT))
try:
    endless()
except LookupError as error:
    print(error, calls, shared())
signal.signal(signal.SIGINT, signal.SIG_IGN)
signal.signal(signal.SIGUSR1, handle)
calls[:] = [None]
after_some(send(signal.SIGINT), send(signal.SIGUSR1))
try:
    endless()
except LookupError as error:
    print(error, calls, shared())
"""
    )
    assert finish(process) == [
        "of the handler [True, True] fine",
        "of the handler [None, True] fine",
    ]


def test_an_interrupt_during_compilation_leaves_the_kernel_usable(start):
    process = start("""
        from tilewright.runtime.compiler import compile as compilation
        y, number = np.zeros(1), 1
        compiling, own = threading.Event(), compilation.build_module
        def build_module(*arguments):
            compiling.set()
            return own(*arguments)
        def interrupt():
            compiling.wait()
            os.kill(os.getpid(), signal.SIGINT)
        constant[(1,)](y, number)
        compilation.build_module = build_module
        threading.Thread(target=interrupt).start()
        try:
            while True:
                number += 1
                constant[(1,)](y, number)
        except KeyboardInterrupt:
            pass
        constant[(1,)](y, number)  # not locked, not half made
        print(y[0] == number)
    """)
    assert finish(process) == ["True"]


# ---- threads and processes at once


def test_many_threads_compile_and_launch(start):
    process = start("""
        failures = []
        def work(number):
            try:
                y, z = np.zeros(N, np.float32), np.zeros(1)
                for turn in range(4):
                    shared(y)
                    put[(1,)](z, number * 100 + turn + 2)
                    assert z[0] == number * 100 + turn + 2
                    constant[(1,)](z, turn + 2)
                    assert z[0] == turn + 2
            except BaseException as error:
                failures.append(error)
        threads = [threading.Thread(target=work, args=(number,)) for number in range(12)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        print(failures, len(constant.device_caches["cpu:0"][0]))
    """)
    assert finish(process) == ["[] 4"]


def test_processes_compile_the_same_kernel_at_the_same_time(start, tmp_path):
    code = """
        import warnings
        warnings.simplefilter("error")
        go = sys.argv[0] + ".go"
        print("ready", flush=True)
        while not os.path.exists(go): pass
        for number in range(2, 8):
            y = np.zeros(1)
            constant[(1,)](y, number)
            assert y[0] == number
        print(shared())
    """
    processes = [start(code) for _ in range(3)]
    for process in processes:
        assert process.stdout.readline() == "ready\n"
    (tmp_path / "program.py.go").touch()
    for process in processes:
        assert finish(process) == ["fine"]
    assert not list((tmp_path / "cache").rglob("*.tmp"))


# ---- sources

SOURCE = """
import tilewright as tw, tilewright.language as tl, numpy as np
@tw.jit
def k(x):
    tl.store(x, 3)

x = np.zeros(1); k[(1,)](x); print(x[0])
"""


def run_source(*arguments):
    return subprocess.run(
        [sys.executable, *arguments],
        input=SOURCE,
        capture_output=True,
        text=True,
        timeout=GUARD,
        check=False,
    )


def test_a_kernel_of_the_command_line_runs():
    result = run_source("-c", SOURCE)
    assert (result.returncode, result.stdout) == (0, "3.0\n"), result.stderr


@pytest.mark.parametrize("arguments", [["-"], []], ids=["-", "stdin"])
def test_sources_that_python_does_not_keep(arguments):
    if sys.version_info >= (3, 13):
        pytest.skip("this Python keeps them")
    result = run_source(*arguments)
    assert result.returncode == 1
    assert (
        "@jit functions should be defined in a Python file; the source of 'k'" in result.stderr
        and "  help: put the function in a file" in result.stderr
    )


def test_sources_that_change_or_go_after_their_import(start, tmp_path):
    process = start(
        """
        import importlib, pathlib, sys
        import numpy as np
        sys.dont_write_bytecode = True
        folder = pathlib.Path(__file__).parent
        source = "import tilewright as tw, tilewright.language as tl\\n@tw.jit\\ndef k(x, A: tl.constexpr):\\n    tl.store(x, 3 + A)\\n"
        def result(kernel, a):
            x = np.zeros(1)
            kernel[(1,)](x, a)
            return int(x[0])
        changes = {
            "gone": lambda path: path.unlink(),
            "edited": lambda path: path.write_text("# a line\\n\\n" + source.replace("3", "7")),
            "emptied": lambda path: path.write_text(""),
            "overwritten": lambda path: path.write_bytes(b"\\xff\\xfe\\x00"),
        }
        for name, change in changes.items():
            path = folder / f"source_{name}.py"
            path.write_text(source)
            importlib.invalidate_caches()
            kernel = importlib.import_module(path.stem).k
            change(path)
            print(name, result(kernel, 1), result(kernel, 2))
        """,
        whole=True,
    )
    assert finish(process) == ["gone 4 5", "edited 4 5", "emptied 4 5", "overwritten 4 5"]


def test_a_cell_that_is_run_again_is_a_kernel_of_its_own(start):
    process = start(
        """
        import linecache
        import numpy as np
        def cell(text, name="<ipython-input-1-abc>"):
            linecache.cache[name] = (len(text), None, text.splitlines(True), name)
            namespace = {"__name__": "__main__"}
            exec(compile(text, name, "exec"), namespace)
            linecache.checkcache()
            return namespace["k"]
        def result(kernel, a):
            x = np.zeros(1)
            kernel[(1,)](x, a)
            return int(x[0])
        source = "import tilewright as tw, tilewright.language as tl\\n@tw.jit\\ndef k(x, A: tl.constexpr):\\n    tl.store(x, 3 + A)\\n"
        first = cell(source)
        print(result(first, 1))
        second = cell(source.replace("3", "8"))
        print(result(second, 1), result(first, 2))
        """,
        whole=True,
    )
    assert finish(process) == ["4", "9 5"]
