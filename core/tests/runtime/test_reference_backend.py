"""The reference interpreter as a backend, asked for by name."""

import numpy as np
import pytest
from optional_torch import torch

import tilewright as tw
import tilewright.language as tl
from tilewright.errors import KernelError, LaunchError
from tilewright.runtime.arguments.descriptor import TensorDescriptor
from tilewright.runtime.arguments.mock_tensors import reinterpret
from tilewright_conformance.kernels.portable_kernels import add


@tw.jit
def unmasked_copy(x, out, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    tl.store(out + offsets, tl.load(x + offsets))


@tw.jit
def copy_blocks(source, target):
    row = tl.program_id(0) * 4
    target.store([row, 0], source.load([row, 0]) * 2)


@pytest.mark.parametrize("n", [1, 63, 64, 65, 777])
@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_a_kernel_runs(n, library):
    rng = np.random.default_rng(n)
    x, y = rng.random(n, np.float32), rng.random(n, np.float32)
    out = np.zeros(n, np.float32)
    expected = x + y
    arguments = [torch.from_numpy(array) if library == "torch" else array for array in (x, y, out)]
    with tw.backend("reference"):
        compiled = add[lambda meta: (tw.cdiv(n, meta["BLOCK"]),)](*arguments, n, BLOCK=64)
    assert np.array_equal(out, expected)
    assert compiled.target.backend == "reference"
    assert compiled.asm["tileir"].encode() == compiled.kernel
    out[:] = 0
    add[(tw.cdiv(n, 64),)](*arguments, n, BLOCK=64, backend="reference")
    assert np.array_equal(out, expected)


def test_every_backend_of_the_host_agrees():
    from tilewright.plugins.registry import registry

    rng = np.random.default_rng(5)
    x, y = rng.random(777, np.float32), rng.random(777, np.float32)
    ran = []
    for backend in registry().for_device_kind("cpu"):
        if not backend.manifest.status:
            out = np.zeros_like(x)
            add[(25,)](x, y, out, 777, BLOCK=32, backend=backend.name)
            assert np.array_equal(out, x + y), backend.name
            ran.append(backend.name)
    assert "reference" in ran


def test_checked_mode_finds_accesses_out_of_bounds():
    x, out = np.zeros(10, np.float32), np.zeros(16, np.float32)
    with (
        tw.backend("reference", checked=True),
        pytest.raises(KernelError, match=r"test_reference_backend\.py"),
    ):
        unmasked_copy[(1,)](x, out, BLOCK=16)
    with pytest.raises(KernelError):
        unmasked_copy[(1,)](x, out, BLOCK=16, backend="reference", checked=True)
    with tw.backend("reference", checked=True):
        unmasked_copy[(1,)](np.ones(16, np.float32), out, BLOCK=16)
    assert out.sum() == 16


def test_what_checked_mode_looks_for_can_be_chosen():
    from tilewright.reference.checks.checked_mode import CheckedOptions

    x, out = np.ones(16, np.float32), np.zeros(16, np.float32)
    with pytest.raises(KernelError, match="uninitialized-read"):
        unmasked_copy[(1,)](
            x, out, BLOCK=16, backend="reference", checked=CheckedOptions(uninitialized=("x",))
        )
    unmasked_copy[(1,)](
        x, out, BLOCK=16, backend="reference", checked=CheckedOptions(buffers=[x, out])
    )
    assert out.sum() == 16


def on_every_host_backend():
    from tilewright.plugins.registry import registry

    return [
        backend.name for backend in registry().for_device_kind("cpu") if not backend.manifest.status
    ]


@pytest.mark.parametrize("backend", on_every_host_backend())
@pytest.mark.parametrize("padding", ["zero", "nan"])
def test_the_padding_of_a_descriptor(backend, padding):
    source, target = np.ones((3, 8), np.float32), np.full((4, 8), 5, np.float32)
    copy_blocks[(1,)](
        TensorDescriptor.from_tensor(source, [4, 8], padding),
        TensorDescriptor.from_tensor(target, [4, 8]),
        backend=backend,
    )
    assert (target[:3] == 2).all()
    assert (np.isnan(target[3]) if padding == "nan" else target[3] == 0).all()


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_descriptors(library):
    source = np.arange(12 * 32, dtype=np.float32).reshape(12, 32)
    target = np.zeros_like(source)
    convert = torch.from_numpy if library == "torch" else np.asarray
    with tw.backend("reference"):
        copy_blocks[(3,)](
            TensorDescriptor.from_tensor(convert(source), [4, 32]),
            TensorDescriptor.from_tensor(convert(target), [4, 32]),
        )
    assert np.array_equal(target, source * 2)


def test_reinterpreted_and_foreign_arrays():
    bits = np.array([0x3F80, 0x4000, 0xC040, 0], np.uint16)  # 1, 2, -3 and 0 in bfloat16
    out = np.zeros(4, np.float32)

    class Foreign:
        def __dlpack__(self, **keywords):
            return out.__dlpack__(**keywords)

        def __dlpack_device__(self):
            return out.__dlpack_device__()

    @tw.jit
    def widen(x, out):
        offsets = tl.arange(0, 4)
        tl.store(out + offsets, tl.load(x + offsets).to(tl.float32))

    with tw.backend("reference"):
        widen[(1,)](reinterpret(bits, "bf16"), Foreign())
    assert out.tolist() == [1, 2, -3, 0]


class DeviceStorage:
    """Memory of a device, as PyTorch's storages behave; ``copies`` counts what goes to the host and
    back."""

    def __init__(self, host):
        self.host, self.copies = host, []

    def data_ptr(self):
        return self.host.untyped_storage().data_ptr()

    def cpu(self):
        self.copies.append("to host")
        return self.host.untyped_storage().clone()

    def copy_(self, other):
        self.copies.append("to device")
        self.host.untyped_storage().copy_(other)


class DeviceTensor:
    """A tensor that claims to lie on a GPU."""

    device = "cuda:0"

    def __init__(self, storage, view):
        self.storage, self.view = storage, view
        self.dtype, self.shape = view.dtype, view.shape

    def data_ptr(self):
        return self.view.data_ptr()

    def untyped_storage(self):
        return self.storage

    def storage_offset(self):
        return self.view.storage_offset()

    def stride(self):
        return self.view.stride()


def test_arguments_on_a_gpu_are_copied_to_the_host_and_back_once_per_storage():
    memory = torch.arange(64, dtype=torch.float32)
    storage = DeviceStorage(memory)
    x, out = DeviceTensor(storage, memory[:16]), DeviceTensor(storage, memory[32:48])
    with tw.backend("reference"):
        add[(2,)](x, x, out, 16, BLOCK=8)
    assert memory[32:48].tolist() == [2.0 * value for value in range(16)]
    assert memory[48:].tolist() == list(range(48, 64))
    assert storage.copies == ["to host", "to device"]


def test_a_stand_in_cannot_run():
    with tw.backend("reference"), pytest.raises(LaunchError, match="has no memory"):
        add[(1,)](
            tw.MockTensor(torch.float32),
            tw.MockTensor(torch.float32),
            tw.MockTensor(torch.float32),
            4,
            BLOCK=4,
        )
