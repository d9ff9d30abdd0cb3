"""``pytest --tilewright[=cpu|reference|checked]``: run tests of Triton kernels without a GPU.

``import triton`` finds Tilewright in the tests, in the workers of pytest-xdist and in processes
that they start; kernels run

- ``cpu``: compiled for the processor;
- ``reference``: in the interpreter, exact and slow;
- ``checked``: in the interpreter, which reports what hardware hides as an error of the test:
  accesses out of bounds, races between programs, integer overflow.

With ``--tilewright-host-tensors`` tests that ask PyTorch for tensors on a GPU get them on the CPU,
and PyTorch reports a GPU.

The plugin is there in every run of pytest. Without these options it does one thing: an error that
Tilewright raised on purpose is shown without the frames of the compiler, at the line of the test
that met it. ``--full-trace`` and ``TILEWRIGHT_FRONT_END_DEBUGGING=1`` show those frames, too.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

#: mode -> (backend, what is asked of it)
_MODES: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    "cpu": ("cpu", {}),
    "reference": ("reference", {}),
    "checked": ("reference", {"checked": True}),
}
#: By which the workers of pytest-xdist, whose command line is not the user's, know what was asked
#: for.
_MODE, _HOST_TENSORS = "TILEWRIGHT_PYTEST", "TILEWRIGHT_PYTEST_HOST_TENSORS"


def _mode(text: str) -> str:
    if text not in _MODES:
        raise pytest.UsageError(
            f"--tilewright takes {', '.join(_MODES)}, not {text!r}; before the path of a test "
            "write --tilewright=cpu"
        )
    return text


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("tilewright", "tests of kernels without a GPU")
    group.addoption(
        "--tilewright",
        nargs="?",
        const="cpu",
        type=_mode,
        metavar="MODE",
        help=(
            "let 'import triton' find Tilewright, and run kernels on the cpu (the default), in "
            "the reference interpreter, or there checked"
        ),
    )
    group.addoption(
        "--tilewright-host-tensors",
        action="store_true",
        help="with --tilewright: tensors that tests ask for on a GPU lie on the CPU",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Before a conftest can import triton."""
    known = early_config.known_args_namespace
    mode = getattr(known, "tilewright", None)
    if getattr(known, "tilewright_host_tensors", False):
        if mode is None:
            raise pytest.UsageError("--tilewright-host-tensors is said beside --tilewright")
        os.environ[_HOST_TENSORS] = "1"
    if mode is not None:
        os.environ[_MODE] = mode
        from tilewright.compat.children import inherit

        inherit()  # also in processes that tests start
    mode = os.environ.get(_MODE)
    if mode is None:
        return
    from tilewright.plugins.registry import registry

    try:
        registry().get(_MODES[mode][0])
        import tilewright.compat.triton  # noqa: F401
    except Exception as error:
        raise pytest.UsageError(f"--tilewright={mode}: {error}") from error


@contextlib.contextmanager
def _kernels_run_here() -> Iterator[None]:
    mode = os.environ.get(_MODE)
    if mode is None:
        yield
        return
    from tilewright.runtime.devices.backend_choice import backend

    name, options = _MODES[mode]
    host: AbstractContextManager[Any] = contextlib.nullcontext()
    if os.environ.get(_HOST_TENSORS):
        from tilewright.compat.host_tensors import HostTensors

        host = HostTensors()
    with backend(name, **options), host:
        yield


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Iterator[None]:
    with _kernels_run_here():
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    with _kernels_run_here():
        return (yield)


# ---- what is shown of an error


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Report a Tilewright error, whose text is complete, without the frames of this package.

    Others find it as it was raised.
    """
    raised = call.excinfo
    kept = (
        None if raised is None or item.config.getoption("fulltrace", False) else _kept(raised.value)
    )
    if raised is None or kept is None:
        return (yield)
    error = raised.value
    before = error.__traceback__, error.__cause__, error.__context__, error.__suppress_context__
    error.__traceback__ = kept
    if _explains_itself(error):
        error.__cause__ = error.__context__ = None
    call.excinfo = pytest.ExceptionInfo.from_exception(error)
    try:
        return (yield)
    finally:
        call.excinfo = raised
        error.__traceback__, error.__cause__, error.__context__, error.__suppress_context__ = before


def _kept(error: BaseException) -> TracebackType | None:
    """Return the traceback of a Tilewright error without the frames of this package.

    None where it is to be shown as it is.
    """
    errors = sys.modules.get("tilewright.errors")
    if errors is None or not isinstance(error, errors.TilewrightError):
        return None
    from tilewright.environment import flag

    if flag("TILEWRIGHT_FRONT_END_DEBUGGING"):
        return None
    frames = []
    trace = error.__traceback__
    while trace is not None:
        if not _is_internal(trace.tb_frame):
            frames.append(trace)
        trace = trace.tb_next
    kept: TracebackType | None = None
    for found in reversed(frames):
        kept = TracebackType(kept, found.tb_frame, found.tb_lasti, found.tb_lineno)
    return kept


def _explains_itself(error: BaseException) -> bool:
    """Return whether an error's text has all that its causes say.

    That is so for errors of a kernel's source, whose causes were raised within the compiler.
    """
    return isinstance(error, sys.modules["tilewright.errors"].CompilationError)


def _is_internal(frame: FrameType) -> bool:
    """Return whether a frame belongs to this package, a backend, or generated launch code.

    Frames of context managers around those count, too.
    """
    package = str(frame.f_globals.get("__name__", "")).partition(".")[0]
    return (
        package == "contextlib"
        or package.partition("_")[0] == "tilewright"
        or frame.f_code.co_filename.startswith("<launcher of ")
    )
