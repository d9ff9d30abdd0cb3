"""Read-only arrays as arguments: which ones are, and that kernels that store to them are not
launched."""

import ctypes

import numpy as np
import pytest
from optional_torch import torch

import tilewright as tw
import tilewright.language as tl
from tilewright.errors import KernelError, LaunchError
from tilewright.plugins.manifest import Parameter
from tilewright.plugins.registry import registry
from tilewright.runtime.arguments import array_protocols, dlpack
from tilewright.runtime.arguments.array_protocols import ArgumentError, ArrayView, launch_value
from tilewright.runtime.arguments.descriptor import TensorDescriptor
from tilewright.runtime.arguments.mock_tensors import TensorWrapper, reinterpret
from tilewright.runtime.arguments.writability import is_writable, writable_address, write_guard


@tw.jit
def scale(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) * 2, mask=i < n)


@tw.jit
def count(x, total, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.atomic_add(total, tl.sum(tl.load(x + i, mask=i < n, other=0.0)))


@tw.jit
def double(source, target):
    target.store([0, 0], source.load([0, 0]) * 2)


def frozen(array):
    array = array.copy()
    array.flags.writeable = False
    return array


class Interface:
    """Has an array interface and nothing else."""

    def __init__(self, array, readonly):
        self.array = array
        address = array.__array_interface__["data"][0]
        self.__array_interface__ = {**array.__array_interface__, "data": (address, readonly)}


class Exporter:
    """Has DLPack and nothing else. ``newest``: the versions it knows have the read-only flag."""

    def __init__(self, array, newest=True):
        self.array, self.newest = array, newest

    def __dlpack_device__(self):
        return (1, 0)

    def __dlpack__(self, **options):
        if not self.newest:
            if options:
                raise TypeError("unexpected keyword argument 'max_version'")
            return self.array.__dlpack__()
        return self.array.__dlpack__(**options)


class Device:
    def __init__(self, readonly):
        self.__cuda_array_interface__ = {
            "shape": (4,),
            "typestr": "<f4",
            "data": (4096, readonly),
            "version": 3,
        }


class Computed(Device):
    """An array of JAX's on a GPU, as far as it is looked at: it may not be computed yet, and never
    changes."""

    __module__ = "jaxlib._jax"
    ready = False

    def block_until_ready(self):
        self.ready = True
        return self


X = np.random.default_rng(3).random(37, np.float32)


def writable_ones(tmp_path):
    mapped = np.memmap(tmp_path / "m", np.float32, "w+", shape=(37,))
    mapped[:] = 1
    mapped.flush()
    yield from (
        X.copy(),
        mapped,
        np.memmap(tmp_path / "m", np.float32, "r+"),
        np.memmap(tmp_path / "m", np.float32, "c"),
    )
    yield from (
        torch.from_numpy(X.copy()),
        Interface(X.copy(), False),
        Exporter(X.copy()),
        Exporter(X.copy(), newest=False),
    )
    yield reinterpret(X.view(np.uint32).copy(), np.float32)


def read_only_ones(tmp_path):
    np.arange(37, dtype=np.float32).tofile(tmp_path / "r")
    mapped = np.memmap(tmp_path / "r", np.float32, "r")
    yield from (
        frozen(X),
        frozen(X)[2:],
        mapped,
        mapped[4:],
        np.asarray(mapped),
        np.frombuffer(X.tobytes(), np.float32),
    )
    yield from (
        Interface(X, True),
        Exporter(frozen(X)),
        reinterpret(frozen(X.view(np.uint32)), np.float32),
    )


def test_is_writable(tmp_path):
    assert all(
        is_writable(value) and is_writable(launch_value(value)) for value in writable_ones(tmp_path)
    )
    assert not any(
        is_writable(value) or is_writable(launch_value(value)) for value in read_only_ones(tmp_path)
    )
    assert is_writable(Device(False))
    assert not is_writable(Device(True))
    assert is_writable(None)
    assert is_writable(4096)
    with pytest.raises(ArgumentError, match="pass a NumPy array"):
        is_writable(object())


def test_the_flag_is_read_anew():
    array = X.copy()
    assert is_writable(array)
    array.flags.writeable = False
    assert not is_writable(array)


def test_writable_address(tmp_path):
    for value in writable_ones(tmp_path):
        assert writable_address(value) == array_protocols.address_of(value)
    for value in read_only_ones(tmp_path):
        with pytest.raises(LaunchError, match="read-only"):
            writable_address(value)


def test_views_say_what_their_libraries_say():
    view = launch_value(Interface(X, True))
    assert isinstance(view, ArrayView)
    assert view.readonly
    assert view.__array_interface__["data"] == (X.ctypes.data, True)
    assert not np.asarray(view).flags.writeable
    assert not launch_value(Interface(X, False)).readonly
    assert dlpack.read(frozen(X)).readonly
    assert not dlpack.read(X).readonly
    assert not launch_value(Exporter(X, newest=False)).readonly
    assert TensorWrapper(view, np.int32).readonly


def test_arrays_of_jax_on_a_gpu_are_waited_for_and_not_written():
    array = Computed(False)
    view = launch_value(array)
    assert array.ready and view.readonly and (view.pointer, view.device) == (4096, ("cuda", 0))


def test_the_read_only_bit_of_a_capsule():
    capsule = X.__dlpack__(max_version=(1, 1))
    pointer = dlpack._get_pointer(capsule, b"dltensor_versioned")
    flags = ctypes.c_uint64.from_address(pointer + dlpack._Versioned.flags.offset)

    class Held:
        def __dlpack__(self, max_version):
            return capsule

    assert not dlpack.read(Held()).readonly
    flags.value |= 2  # the data was copied
    assert not dlpack.read(Held()).readonly
    flags.value |= 1
    assert dlpack.read(Held()).readonly


def test_the_guard_names_argument_and_remedy(tmp_path):
    guard = write_guard(
        "k",
        [
            Parameter("x", "ptr<f32>", stored=False),
            Parameter("n", "i32"),
            Parameter("out", "ptr<f32>"),
            Parameter("d", "desc<4x4xf32>"),
        ],
    )
    described = TensorDescriptor.from_tensor(np.zeros((8, 8), np.float32), [4, 4])
    np.zeros(8, np.float32).tofile(tmp_path / "r")
    mapped = np.memmap(tmp_path / "r", np.float32, "r")
    assert guard((frozen(X), 3, X.copy(), described)) is None
    with pytest.raises(LaunchError) as raised:
        guard((X, 3, frozen(X), described))
    assert str(raised.value) == (
        "k: argument 'out' is a read-only ndarray, and the kernel may store to it; pass a "
        "writable array, such as out.copy()"
    )
    with pytest.raises(LaunchError) as raised:
        guard((X, 3, mapped[2:], described))
    assert str(raised.value) == (
        f"k: argument 'out' is a memmap opened for reading ({tmp_path / 'r'}), and the kernel "
        "may store to it; open it with mode 'r+' to change the file, "
        "or with mode 'c' to change only what this process sees of it"
    )
    with pytest.raises(
        LaunchError,
        match=(
            r"k: argument 'd' describes a read-only ndarray, and the kernel may store to it; "
            r"pass a writable array, such as d.copy"
        ),
    ):
        guard((X, 3, X, TensorDescriptor.from_tensor(frozen(np.zeros((8, 8), np.float32)), [4, 4])))
    with pytest.raises(
        LaunchError,
        match=(
            r"k: argument 'out' is a read-only Interface, and the kernel may store to it; pass a "
            r"writable array\n"
        ),
    ):
        guard((X, 3, launch_value(Interface(X, True)), described))
    with pytest.raises(LaunchError, match=r"k: argument 'out' is a read-only Exporter"):
        guard((X, 3, launch_value(Exporter(frozen(X))), described))


BACKENDS = [
    backend.name
    for backend in registry().for_device_kind("cpu")
    if backend.name in ("reference", "cpu")
]


@pytest.mark.parametrize("backend", BACKENDS)
def test_kernels_read_read_only_arrays(backend, tmp_path):
    for value in read_only_ones(tmp_path):
        n = 30
        out = np.full(40, np.nan, np.float32)
        scale[(tw.cdiv(n, 16),)](value, out, n, BLOCK=16, backend=backend)
        read = np.asarray(
            value.base.view(np.float32)
            if isinstance(value, TensorWrapper)
            else getattr(value, "array", value)
        )
        assert np.array_equal(out[:n], read[:n] * 2)
        assert np.isnan(out[n:]).all()


@pytest.mark.parametrize("backend", BACKENDS)
def test_kernels_do_not_store_to_read_only_arrays(backend, tmp_path):
    for value in read_only_ones(tmp_path):
        for _ in range(2):
            with pytest.raises(
                LaunchError, match=r"scale: argument 'out' is a .*, and the kernel may store to it"
            ):
                scale[(2,)](X, value, 20, BLOCK=16, backend=backend)
    assert np.array_equal(np.fromfile(tmp_path / "r", np.float32), np.arange(37))


@pytest.mark.parametrize("backend", BACKENDS)
def test_kernels_store_to_writable_arrays(backend, tmp_path):
    for value in writable_ones(tmp_path):
        scale[(3,)](X, value, 37, BLOCK=16, backend=backend)
        found = (
            value.base.view(np.float32)
            if isinstance(value, TensorWrapper)
            else getattr(value, "array", value)
        )
        assert np.array_equal(np.asarray(found), X * 2)
    assert np.array_equal(np.fromfile(tmp_path / "m", np.float32), X * 2)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_private_mapping_leaves_the_file_alone(backend, tmp_path):
    np.zeros(37, np.float32).tofile(tmp_path / "c")
    mapped = np.memmap(tmp_path / "c", np.float32, "c")
    scale[(3,)](X, mapped, 37, BLOCK=16, backend=backend)
    assert np.array_equal(mapped, X * 2)
    assert not np.fromfile(tmp_path / "c", np.float32).any()


@pytest.mark.parametrize("backend", BACKENDS)
def test_atomics_and_descriptors(backend):
    total = np.zeros(1, np.float32)
    count[(1,)](frozen(X), total, 37, BLOCK=64, backend=backend)
    np.testing.assert_allclose(total[0], X.sum(), rtol=1e-5)
    with pytest.raises(LaunchError, match="count: argument 'total' is a read-only ndarray"):
        count[(1,)](X, frozen(total), 37, BLOCK=64, backend=backend)
    base = np.random.default_rng(4).random((8, 8), np.float32)
    target = np.zeros((8, 8), np.float32)
    double[(1,)](
        TensorDescriptor.from_tensor(frozen(base), [8, 8]),
        TensorDescriptor.from_tensor(target, [8, 8]),
        backend=backend,
    )
    assert np.array_equal(target, base * 2)
    with pytest.raises(
        LaunchError, match="double: argument 'target' describes a read-only ndarray"
    ):
        double[(1,)](
            TensorDescriptor.from_tensor(base, [8, 8]),
            TensorDescriptor.from_tensor(frozen(target), [8, 8]),
            backend=backend,
        )


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_compiled_kernel_launched_by_itself(backend):
    out = np.zeros(37, np.float32)
    compiled = scale[(3,)](X, out, 37, BLOCK=16, backend=backend)
    assert [parameter.stored for parameter in compiled.parameters] == [False, True, False]
    compiled[(3,)](frozen(X), out, 37, 16)
    with pytest.raises(LaunchError, match="argument 'out' is a read-only ndarray"):
        compiled[(3,)](X, frozen(out), 37, 16)


def test_the_finding_is_kept_with_the_kernel():
    out = np.zeros(37, np.float32)
    first = scale[(3,)](X, out, 37, BLOCK=32, backend="reference")
    scale._reset_launching()
    second = scale[(3,)](X, out, 37, BLOCK=32, backend="reference")
    assert second is not first
    assert second.cache_hit
    assert second.parameters == first.parameters
    with pytest.raises(LaunchError, match="read-only"):
        scale[(3,)](X, frozen(out), 37, BLOCK=32, backend="reference")


def test_the_interpreter_itself_refuses_a_store_to_read_only_memory():
    from tilewright.reference.interpreter import run

    module = scale[(1,)](X, np.zeros(37, np.float32), 37, BLOCK=64, backend="reference").module
    for value in (frozen(X), launch_value(Interface(X.copy(), True))):
        with pytest.raises(KernelError, match="read-only memory"):
            run(module, [X.copy(), value, 37], (1, 1, 1))
