"""The fault handler: it names the kernel that ran, in any thread, and the process ends as
before."""

import signal
import subprocess
import sys

import pytest

from tilewright_cpu.fault_handler import _watch

pytestmark = pytest.mark.skipif(_watch() is None, reason="for Linux on x86-64 and aarch64")

#: Seconds after which a process that should have ended by itself hangs.
GUARD = 300

KERNELS = """
import os, signal, sys
import numpy as np
import tilewright as tw
import tilewright.language as tl

@tw.jit
def fine(x):
    tl.store(x, 1)

@tw.jit
def wild(x, far, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    tl.store(x + offsets + far * (tl.program_id(0) == tl.num_programs(0) - 1), 1)

x = np.zeros(64, np.float32)
"""


def run(tmp_path, code, *options, **environment):
    file = tmp_path / "program.py"
    file.write_text(KERNELS + code)
    import os

    settings = {
        **os.environ,
        "TILEWRIGHT_CACHE_DIR": str(tmp_path / "cache"),
        "TILEWRIGHT_NUM_THREADS": "2",
        **environment,
    }
    done = subprocess.run(
        [sys.executable, *options, str(file)],
        capture_output=True,
        text=True,
        timeout=GUARD,
        env=settings,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


WILD = "fine[(1,)](x); wild[({programs},)](x, 1 << 45, BLOCK=64)"


@pytest.mark.each_value
@pytest.mark.parametrize("programs", [1, 4096])
@pytest.mark.parametrize("pool", ["native", "serial"])
def test_a_wild_store_names_its_kernel(tmp_path, programs, pool):
    code, _, err = run(tmp_path, WILD.format(programs=programs), TILEWRIGHT_CPU_POOL=pool)
    assert code == -signal.SIGSEGV
    assert (
        err.count("tilewright: kernel wild was running when a fault ended the process") == 1
        and "fine" not in err
    )


def test_who_handled_faults_before_still_does(tmp_path):
    code, _, err = run(tmp_path, WILD.format(programs=1), "-X", "faulthandler")
    assert (
        code == -signal.SIGSEGV
        and "kernel wild was running" in err
        and "Fatal Python error: Segmentation fault" in err
    )


def test_a_fault_elsewhere_names_no_kernel(tmp_path):
    code, _, err = run(tmp_path, "import ctypes; fine[(1,)](x); ctypes.string_at(8)")
    assert code == -signal.SIGSEGV and "tilewright: kernel" not in err


def test_a_signal_that_is_sent_still_ends_the_process(tmp_path):
    code, out, _ = run(
        tmp_path, "fine[(1,)](x); os.kill(os.getpid(), signal.SIGSEGV); print('alive')"
    )
    assert (code, out) == (-signal.SIGSEGV, "")
