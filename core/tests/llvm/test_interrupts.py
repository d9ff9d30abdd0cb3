"""Interrupts while LLVM works: short calls end first, long ones are left to themselves or their
processes ended."""

import os
import signal
import subprocess
import sys
import textwrap
import threading

import pytest

from tilewright.errors import LoweringError
from tilewright.llvm.codegen.compile import compile_to_object, host_target
from tilewright.llvm.codegen.interrupts import abandonable

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals sent to a process")

#: Seconds after which a process that should have ended by itself hangs.
GUARD = 300

BEGIN = """
import os, signal, sys, threading
from tilewright.llvm.codegen import subprocess_codegen, compile, interrupts, link

signal.signal(signal.SIGINT, signal.default_int_handler)  # the parent may ignore interrupts
triple, cpu, features = compile.host_target()
TEXT = "define i32 @answer() {\\n  ret i32 42\\n}\\n"
begun, go = threading.Event(), threading.Event()

def make(text=TEXT):
    return compile.compile_to_object(text, triple=triple, cpu=cpu, features=features)

def interrupt():
    def send():
        begun.wait()
        begun.clear()
        os.kill(os.getpid(), signal.SIGINT)
    threading.Thread(target=send, daemon=True).start()

def slowly(prepared):
    def wait(*arguments):
        begun.set()
        go.wait()
        return prepared(*arguments)
    return wait
"""


def run(code: str) -> list[str]:
    """The lines that a program prints, which ends by itself."""
    program = BEGIN + textwrap.dedent(code)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=GUARD, check=False
    )
    assert done.returncode == 0, (done.returncode, done.stdout, done.stderr)
    assert not done.stderr, done.stderr
    return done.stdout.splitlines()


def test_code_generation_is_abandoned():
    lines = run("""
        own, compile.prepared = compile.prepared, slowly(compile.prepared)
        for _ in range(2):
            interrupt()
            try:
                make()
            except KeyboardInterrupt:
                print("interrupted", threading.active_count() > 1)
        compile.prepared = own
        binary = make()  # others may use LLVM meanwhile, where it is not LLVM itself that works on
        go.set()
        loaded = link.load_object(binary, ["answer"])
        print(loaded.address("answer") != 0, interrupts._abandoned, threading.active_count())
    """)
    assert lines == ["interrupted True", "interrupted True", "True [] 1"]


def test_objects_are_loaded_once_what_was_abandoned_has_ended_and_that_can_be_interrupted():
    lines = run("""
        binary = make()
        compile.prepared = slowly(compile.prepared)
        interrupt()
        try:
            make()
        except KeyboardInterrupt:
            pass
        class Call(interrupts._Call):
            def join(self, timeout):
                begun.set()
                super().join(timeout)
        interrupts._abandoned[0].__class__ = Call
        interrupt()
        try:
            link.load_object(binary, ["answer"])
        except KeyboardInterrupt:
            print("interrupted")
        go.set()
        print(link.load_object(binary, ["answer"]).address("answer") != 0)
    """)
    assert lines == ["interrupted", "True"]


def test_the_interpreter_ends_after_what_was_abandoned():
    lines = run("""
        import atexit
        compile.prepared = slowly(compile.prepared)
        interrupt()
        try:
            make()
        except KeyboardInterrupt:
            threading.Timer(0.2, go.set).start()
        threads = [thread for thread in threading.enumerate() if isinstance(thread, interrupts._Call)]
        atexit.register(lambda: print([thread.is_alive() for thread in threads]))
    """)
    assert lines == ["[False]"]


def test_code_of_huge_modules_is_generated_by_a_process_that_an_interrupt_ends():
    lines = run("""
        import subprocess
        usual = subprocess_codegen._CHILD
        subprocess_codegen._CHILD = "import sys, time; print(flush=True); time.sleep(10000)"
        started = []
        class Popen(subprocess.Popen):
            def communicate(self, *arguments, **settings):
                started.append(self)
                begun.set()
                return super().communicate(*arguments, **settings)
        subprocess.Popen = Popen
        compile.HUGE = 2
        interrupt()
        try:
            make()
        except KeyboardInterrupt:
            print("interrupted", [process.wait() for process in started])
        subprocess_codegen._CHILD = usual
        loaded = link.load_object(make(), ["answer"])
        print(loaded.address("answer") != 0, len(started))
        try:
            make(TEXT.replace("42", "forty"))
        except Exception as error:
            print(type(error).__name__, len(started))
    """)
    assert lines == ["interrupted [-9]", "True 2", "LoweringError 3"]


def test_what_a_call_raises_is_raised_and_what_it_gives_is_given():
    def divide(a: int, b: int) -> float:
        return a / b

    assert abandonable(divide)(3, b=2) == 1.5
    with pytest.raises(ZeroDivisionError):
        abandonable(divide)(3, 0)
    triple, cpu, features = host_target()
    with pytest.raises(LoweringError, match="expected"):
        compile_to_object("define i32 @f() { ret i32 }", triple=triple, cpu=cpu, features=features)


def test_handlers_run_during_calls_and_where_they_return_the_call_goes_on():
    seen: list[int] = []
    before = signal.signal(signal.SIGUSR1, lambda number, frame: seen.append(number))
    try:

        def work() -> tuple[int, bool]:
            os.kill(os.getpid(), signal.SIGUSR1)
            while not seen:  # which the main thread can only fill while it waits
                pass
            return len(seen), threading.current_thread() is threading.main_thread()

        assert abandonable(work)() == (1, False)
    finally:
        signal.signal(signal.SIGUSR1, before)
