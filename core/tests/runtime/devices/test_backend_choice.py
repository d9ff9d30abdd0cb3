"""Selection of the backend and the device of a launch."""

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tilewright.errors import BackendError
from tilewright.runtime.arguments.array_protocols import ArgumentError
from tilewright.runtime.devices.backend_choice import DeviceError


def test_the_backend_is_chosen_by_keyword_context_environment_and_device(
    install_recorder, monkeypatch, scale, fresh
):
    from tilewright.runtime.devices import backend_choice

    first, second = (
        install_recorder(name="first", priority=2000),
        install_recorder(name="second", priority=1500),
    )
    kernel = fresh(scale)
    x = np.zeros(8, np.float32)
    kernel[(1,)](x, 8)
    assert (len(first.launches), len(second.launches)) == (1, 0)
    with tw.backend("second") as found:
        assert found.name == "second"
        kernel[(1,)](x, 8)
        with tw.backend("first"):
            kernel[(1,)](x, 8)
        kernel[(1,)](x, 8)
    assert (len(first.launches), len(second.launches)) == (2, 2)
    kernel[(1,)](x, 8, backend="second")
    with tw.backend("first"):
        kernel[(1,)](x, 8, backend="second")
    assert (len(first.launches), len(second.launches)) == (2, 4)
    assert set(kernel.device_caches) == {"first:0", "second:0"}
    monkeypatch.setenv("TILEWRIGHT_BACKEND", "second")
    backend_choice.refresh_environment()
    again = fresh(scale)
    again[(1,)](x, 8)
    assert len(second.launches) == 5
    with tw.backend("first"):
        again[(1,)](x, 8)
    assert len(first.launches) == 3


def test_checked_mode_by_the_environment(recorder, monkeypatch, scale, fresh):
    from tilewright.errors import KernelError, VariableError
    from tilewright.runtime.devices import backend_choice

    @tw.jit
    def racing(x):
        tl.store(x, tl.program_id(0))

    x = np.zeros(1, np.int32)
    monkeypatch.setenv("TILEWRIGHT_CHECKED", "1")
    backend_choice.refresh_environment()
    with pytest.raises(KernelError, match="race: store races"):
        fresh(racing)[(2,)](x)
    fresh(racing)[(2,)](x, backend="recorder")
    with tw.backend("recorder"):
        fresh(racing)[(2,)](x)
    assert len(recorder.launches) == 2
    monkeypatch.setenv("TILEWRIGHT_BACKEND", "reference")
    backend_choice.refresh_environment()
    with pytest.raises(KernelError, match="race: store races"):
        fresh(racing)[(2,)](x)
    monkeypatch.setenv("TILEWRIGHT_BACKEND", "recorder")
    backend_choice.refresh_environment()
    with pytest.raises(VariableError, match="TILEWRIGHT_BACKEND=recorder: unset one of the two"):
        fresh(racing)[(2,)](x)


def test_an_option_of_another_backend_names_it(recorder, scale):
    with pytest.raises(
        KeyError, match=r"no option of backend 'recorder'.*; 'reference' has it: pa"
    ):
        scale[(1,)](np.zeros(8, np.float32), 8, checked=True)


def test_a_parameter_named_backend_is_a_parameter(recorder):
    @tw.jit
    def kernel(x, backend):
        tl.store(x, backend)

    x = np.zeros(1, np.int32)
    kernel[(1,)](x, backend=7)
    assert recorder.launches[-1][2] == (x, 7)


def test_options_of_a_context(install_recorder, scale):
    recorder = install_recorder(options={"depth": 1})
    x = np.zeros(8, np.float32)
    with tw.backend("recorder", depth=5):
        scale[(1,)](x, 8)
        assert recorder.lowered[-1]["depth"] == 5
        scale[(1,)](x, 8, depth=6)
        assert recorder.lowered[-1]["depth"] == 6
    with tw.backend("recorder", hue=5), pytest.raises(KeyError, match="hue"):
        scale[(1,)](x, 8)


def test_the_context_is_of_its_thread(install_recorder, scale, fresh):
    import threading

    install_recorder(name="first", priority=2000)
    second = install_recorder(name="second", priority=1500)
    with tw.backend("second"):
        thread = threading.Thread(target=lambda: fresh(scale)[(1,)](np.zeros(8, np.float32), 8))
        thread.start()
        thread.join()
    assert second.launches == []


def test_a_backend_that_is_not_there(recorder, scale):
    with pytest.raises(
        BackendError,
        match=(
            r"no backend named 'npu' is installed; installed: amd, cpu, nvidia, recorder, "
            r"reference\n"
        ),
    ):
        tw.backend("npu")
    with pytest.raises(
        BackendError,
        match=(
            r"no backend named 'npu' is installed; installed: amd, cpu, nvidia, recorder, "
            r"reference\n"
        ),
    ):
        scale[(1,)](np.zeros(8, np.float32), 8, backend="npu")


class OnDevice:
    """A tensor somewhere."""

    def __init__(self, device, dtype="float32"):
        self.device, self.dtype = device, dtype

    def data_ptr(self):
        return 4096


def test_the_device_of_the_arguments(install_recorder, scale):
    recorder = install_recorder(name="rec", kinds=("xpu",), count=3)
    scale[(1,)](OnDevice("xpu:2"), 8)
    assert recorder.loaded[-1][1].index == 2
    scale[(1,)](OnDevice("xpu:1"), 8)
    assert recorder.loaded[-1][1].index == 1
    assert {"rec:1", "rec:2"} <= set(scale.device_caches)
    with pytest.raises(BackendError, match=r"no device xpu:7; it found xpu:0"):
        scale[(1,)](OnDevice("xpu:7"), 8)


def test_a_device_that_nobody_serves(recorder, scale):
    with pytest.raises(
        BackendError,
        match=(
            r"no installed backend serves 'tpu' devices.*installed: recorder \(for cpu\).*pip "
            r"install 'tilewright\[all\]'"
        ),
    ):
        scale[(1,)](OnDevice("tpu"), 8)


def test_arguments_on_several_devices(install_recorder):
    install_recorder(name="rec", kinds=("xpu", "cpu"), count=3)

    @tw.jit
    def kernel(x, y):
        tl.store(x, tl.load(y))

    told = (
        r"these lie on xpu:0 and xpu:1: the launch runs on xpu:1, which cannot access the memory "
        r"of argument 'y' on xpu:0 \(backend 'rec' has no access of"
    )
    with pytest.raises(DeviceError, match=told):
        kernel[(1,)](OnDevice("xpu:1"), OnDevice("xpu:0"))
    with pytest.raises(ValueError, match=r"Pointer argument cannot be accessed \(cpu tensor\?\)"):
        kernel[(1,)](OnDevice("xpu:0"), np.zeros(4, np.float32))


@tw.jit
def three(x, t, y):
    tl.store(x, tl.load(y) + tl.load(t[1]))


def test_a_launch_runs_at_the_first_argument_where_that_device_reaches_the_others(meshed):
    arguments = (OnDevice("xpu:2"), (5, OnDevice("xpu:0")), OnDevice("xpu:1"))
    for _ in range(3):
        three[(1,)](*arguments)
    assert (
        [device.index for _, device in meshed.loaded] == [2]
        and meshed.asked == [(2, 0), (2, 1)]
        and len(meshed.launches) == 3
    )
    (kernel,) = three.device_caches["rec:2"][0].values()
    kernel[(1,)](*arguments)
    assert len(meshed.launches) == 4
    # alone on each device, as before
    three[(1,)](OnDevice("xpu:3"), (5, OnDevice("xpu:3")), OnDevice("xpu:3"))
    assert meshed.loaded[-1][1].index == 3 and meshed.asked == [(2, 0), (2, 1)]


def test_devices_that_do_not_reach_each_other_are_told(meshed, fresh):
    kernel = fresh(three)
    told = (
        r"these lie on xpu:1 and xpu:3: the launch runs on xpu:1, which cannot access the memory "
        r"of argument 't.1' on xpu:3 \(the link from 1 to 3 is cut\)"
    )
    with pytest.raises(DeviceError, match=told):
        kernel[(1,)](OnDevice("xpu:1"), (5, OnDevice("xpu:3")), OnDevice("xpu:1"))
    with pytest.raises(BackendError, match="has no device xpu:9"):
        kernel[(1,)](OnDevice("xpu:1"), (5, OnDevice("xpu:9")), OnDevice("xpu:1"))
    kernel[(1,)](OnDevice("xpu:1"), (5, OnDevice("xpu:1")), OnDevice("xpu:1"))
    (compiled,) = kernel.device_caches["rec:1"][0].values()
    told = (
        r"argument 'y' lies on xpu:2, and this kernel was compiled for xpu:1, which cannot "
        r"access that memory \(the link from 1 to 2 is cut\)"
    )
    with pytest.raises(ArgumentError, match=told):
        compiled[(1,)](OnDevice("xpu:1"), (5, OnDevice("xpu:1")), OnDevice("xpu:2"))
    assert len(meshed.launches) == 1


def test_an_answer_about_access_that_is_no_text_is_the_backends_defect(forward):
    with pytest.raises(BackendError, match="tilewright_peer_access gave a bool, not a str"):
        three[(1,)](OnDevice("xpu:2"), (5, OnDevice("xpu:0")), OnDevice("xpu:1"))


def test_a_backend_that_cannot_reach_the_arguments(install_recorder, scale):
    install_recorder(name="rec", kinds=("xpu",))
    with (
        tw.backend("rec"),
        pytest.raises(
            ValueError,
            match=(
                r"Pointer argument cannot be accessed \(cpu tensor\?\): backend 'rec' serves xpu "
                r"devices"
            ),
        ),
    ):
        scale[(1,)](np.zeros(8, np.float32), 8)


def test_kernels_without_arrays_run_on_the_default_backend(recorder):
    @tw.jit
    def kernel(n):
        tl.device_assert(n > 0)

    kernel[(2,)](5)
    assert recorder.launches[-1] == ((2, 1, 1), None, (5,))
