"""A backend that records instead of running, a cache of each test's own, and interrupts."""

import signal

import pytest
from optional_torch import is_absent

import tilewright as tw
import tilewright.language as tl
from tilewright.errors import RefusedError
from tilewright.plugins.hooks import hookimpl
from tilewright.plugins.manifest import Capabilities, CodeObject, Device, Manifest, Target
from tilewright.plugins.registry import registry
from tilewright.runtime import tuning_records
from tilewright.runtime.devices import backend_choice, device_registry

ALL_TYPES = frozenset(
    [
        "i1",
        "i8",
        "i16",
        "i32",
        "i64",
        "u8",
        "u16",
        "u32",
        "u64",
        "f16",
        "bf16",
        "f32",
        "f64",
        "f8e4m3fn",
        "f8e5m2",
        "f8e4m3fnuz",
        "f8e5m2fnuz",
        "f8e4b15",
    ]
)


@pytest.fixture(autouse=True)
def _without_what_is_absent(request):
    """Tests whose parameters were made of PyTorch are skipped where it is not installed."""
    if is_absent(getattr(getattr(request.node, "callspec", None), "params", {})):
        pytest.skip("PyTorch is not installed")


@pytest.fixture
def interruptible():
    """Interrupts raise KeyboardInterrupt, also where this process was started with them ignored, as
    in the background of a shell's script."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


class Recorder:
    """A plugin that lowers to the module's text and records what reaches it.

    ``launches`` has (grid, stream, values) of each launch, ``lowered`` the options of each
    lowering; ``on_lower`` and ``on_launch`` are called first.
    """

    __name__ = "recorder"

    def __init__(self, name="recorder", kinds=("cpu",), priority=1000, options=None, count=1):
        self.name, self.kinds, self.priority, self.options, self.count = (
            name,
            kinds,
            priority,
            options or {},
            count,
        )
        self.lowered, self.launches, self.loaded = [], [], []
        self.on_lower = self.on_launch = lambda *args: None

    @hookimpl
    def tilewright_backend(self):
        return Manifest(
            self.name,
            "1",
            "records",
            self.kinds,
            ("paper",),
            Capabilities(
                ALL_TYPES,
                power_of_two=False,
                features=frozenset({"assert", "descriptors", "noinline"}),
            ),
            options=self.options,
            priority=self.priority,
        )

    @hookimpl
    def tilewright_devices(self):
        return [
            Device(self.name, kind, index, f"sheet {index}")
            for kind in self.kinds
            for index in range(self.count)
        ]

    @hookimpl
    def tilewright_target(self, device):
        return Target(self.name, "paper", limits={"lines": 40}, kind=device.kind)

    @hookimpl
    def tilewright_lower(self, module, target, options):
        self.on_lower(module, options)
        self.lowered.append(dict(options))
        return CodeObject(
            module.kernel.name,
            b"\0code",
            {"tileir": str(module), "paper": "text"},
            {"shared": 12},
            {"write": 0.5},
        )

    @hookimpl
    def tilewright_load(self, code, device):
        self.loaded.append((code, device))
        return code

    @hookimpl
    def tilewright_launcher(self, loaded, parameters, options):
        def launch(grid, stream, values):
            self.on_launch(grid, values)
            assert len(values) == len(parameters), (values, parameters)
            self.launches.append((grid, stream, values))

        return launch


class Meshed(Recorder):
    """A recorder whose devices access the memory of those of lower numbers. ``asked`` has the pairs
    it was asked about."""

    def __init__(self, **facts):
        super().__init__(**facts)
        self.asked = []

    @hookimpl
    def tilewright_peer_access(self, device, peer):
        self.asked.append((device.index, peer.index))
        return (
            ""
            if peer.index < device.index
            else f"the link from {device.index} to {peer.index} is cut"
        )


class Forward(Meshed):
    """One that answers by a truth value."""

    @hookimpl
    def tilewright_peer_access(self, device, peer):
        return True


class Choosy(Recorder):
    """A recorder whose kernels of the option ``fast`` take even numbers only."""

    @hookimpl
    def tilewright_lower(self, module, target, options):
        code = super().tilewright_lower(module, target, options)
        code.metadata["otherwise"] = {"fast": False} if options["fast"] else None
        code.metadata["fast"] = options["fast"]
        return code

    @hookimpl
    def tilewright_launcher(self, loaded, parameters, options):
        def launch(grid, stream, values):
            if loaded.metadata["fast"] and any(value % 2 for value in values if type(value) is int):
                raise RefusedError(f"{values[1]} is odd")
            self.launches.append((grid, loaded.metadata["fast"], values[1]))

        return launch


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    """Give each test its own cache, and isolate it from the environment."""
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path / "tilewright-cache"))
    for name in (
        "TILEWRIGHT_CACHE_SIZE",
        "TILEWRIGHT_BACKEND",
        "TILEWRIGHT_CHECKED",
        "TILEWRIGHT_DEBUG",
        "TILEWRIGHT_AUTOTUNE",
        "TILEWRIGHT_PRINT_AUTOTUNING",
    ):
        monkeypatch.delenv(name, raising=False)
    backend_choice.refresh_environment()
    yield
    backend_choice.refresh_environment()
    tuning_records.forget_loaded()


@pytest.fixture
def install_recorder():
    """Registers recorders: ``install_recorder(**arguments of Recorder)``."""
    names = []

    def install(kind=Recorder, **arguments):
        recorder = kind(**arguments)
        registry().register(recorder, recorder.name)
        names.append(recorder.name)
        return recorder

    yield install
    for name in names:
        registry().unregister(name)
    device_registry.forget()


@pytest.fixture
def recorder(install_recorder):
    """A recorder that is the default backend of CPU arrays."""
    return install_recorder()


@pytest.fixture
def choosy(install_recorder):
    return install_recorder(Choosy, options={"fast": True})


@pytest.fixture
def meshed(install_recorder):
    return install_recorder(Meshed, name="rec", kinds=("xpu",), count=4)


@pytest.fixture
def forward(install_recorder):
    return install_recorder(Forward, name="rec", kinds=("xpu",), count=4)


@tw.jit
def _scale(x, n, factor=2.0, BLOCK: tl.constexpr = 16):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + offsets, tl.load(x + offsets, mask=offsets < n) * factor, mask=offsets < n)


@tw.jit
def _one_int(x, i):
    tl.store(x, i)


def _fresh(kernel, **options):
    return tw.jit(kernel.fn, **options) if options else tw.jit(kernel.fn)


@pytest.fixture
def fresh():
    """``fresh(kernel, **options of jit)``: the same kernel without anything compiled."""
    return _fresh


@pytest.fixture
def scale():
    """A kernel ``scale(x, n, factor=2.0, BLOCK=16)``."""
    return _fresh(_scale)


@pytest.fixture
def one_int():
    """A kernel ``one_int(x, i)``."""
    return _fresh(_one_int)


@pytest.fixture
def types_of():
    """``types_of(compiled)``: the types of its parameters by name."""
    return lambda compiled: dict(compiled.src.signature)


@pytest.fixture
def kernels():
    """``kernels(kernel, place)``: what is compiled of a kernel on a device."""
    return lambda kernel, place="recorder:0": kernel.device_caches[place][0]


@pytest.fixture
def count_python(monkeypatch):
    """``count_python(kernel)``: how often its binder's launch function was called since."""

    def watch(kernel):
        binder = kernel._make_binder()
        calls = []

        def launch(*args, **keywords):
            calls.append(args)
            return binder.launch(*args, **keywords)

        kernel._binder = binder._replace(launch=launch)
        return calls

    return watch
