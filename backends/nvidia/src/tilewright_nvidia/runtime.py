"""Loaded kernels, device memory, timing with events."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from tilewright.errors import BackendError, KernelError, LaunchError, OutOfResources
from tilewright.plugins.manifest import CodeObject, Device
from tilewright_nvidia.devices import capability_of
from tilewright_nvidia.driver import NO_BINARY, OUT_OF_LAUNCH_RESOURCES, OUT_OF_MEMORY, CudaError, DeviceFaultError, Driver, driver

#: Shared memory that a program has without asking.
_FREE_SHARED = 48 << 10


def translate(error: CudaError, kernel: str = "") -> BackendError | KernelError | LaunchError:
    """The error that a user meets for a status of the driver."""
    if isinstance(error, DeviceFaultError):
        return error
    of_kernel = f"kernel {kernel}: " if kernel else ""
    if error.code == OUT_OF_MEMORY:
        return BackendError(f"{of_kernel}the device has not enough free memory ({error.name})")
    if kernel:
        return LaunchError(f"{of_kernel}{error}")
    return error


class LoadedKernel:
    """A kernel on a device.

    Attributes:
        name: the kernel's symbol.
        device: the device's index.
        context: its primary context, as a number.
        function: the kernel's handle, as a number.
        threads: threads of a program.
        shared: bytes of shared memory of a program.
        n_regs: registers of a thread.
        n_spills: words that a thread keeps in local memory for want of registers.
        n_max_threads: threads that a program could have with so many registers.
        local_bytes: bytes of local memory of a thread.
        pdl: whether it may start before the kernel launched before it has ended.
    """

    def __init__(self, code: CodeObject, index: int, cuda: Driver) -> None:
        from tilewright_nvidia.linking import cubin_of

        metadata = code.metadata
        self.name, self.device, self.metadata, self.cuda = code.name, index, metadata, cuda
        self.configuration = str(metadata.get("configuration", ""))
        self.threads = 32 * int(metadata["num_warps"])
        self.shared = int(metadata["shared"])
        self.pdl = bool(metadata.get("launch_pdl"))
        self._check_shared()
        cubin = cubin_of(cuda, index, code)
        with cuda.use(index):
            self.context = cuda.context(index)
            try:
                self._module = cuda("cuModuleLoadData", cubin)
            except CudaError as error:
                if error.code == NO_BINARY:
                    raise BackendError(f"kernel {self.name} was compiled for another GPU than {capability_of(cuda, index) / 10}: {error}") from error
                raise translate(error, self.name) from error
            self._function = cuda("cuModuleGetFunction", self._module, str(metadata["kernel"]).encode())
            self.function = int(self._function)
            self.n_regs = cuda.function_attribute(self._function, "NUM_REGS")
            self.local_bytes = cuda.function_attribute(self._function, "LOCAL_SIZE_BYTES")
            self.n_max_threads = cuda.function_attribute(self._function, "MAX_THREADS_PER_BLOCK")
            self.n_spills = int(metadata.get("n_spills", self.local_bytes)) // 4
            if self.threads > self.n_max_threads:
                registers = cuda.attribute(index, "MAX_REGISTERS_PER_BLOCK")
                raise OutOfResources(self.n_regs * self.threads, registers, f"registers of kernel {self.name} ({self.configuration})")
            if self.shared > _FREE_SHARED:
                wanted = cuda.bindings.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
                cuda("cuFuncSetAttribute", self._function, wanted, self.shared)

    def _check_shared(self) -> None:
        limit = self.cuda.attribute(self.device, "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN")
        if self.shared > limit:
            raise OutOfResources(self.shared, limit, f"shared memory of kernel {self.name} ({self.configuration})")

    @property
    def occupancy(self) -> float:
        """The part of a multiprocessor's threads that programs of this kernel fill."""
        with self.cuda.use(self.device):
            blocks = int(self.cuda("cuOccupancyMaxActiveBlocksPerMultiprocessor", self._function, self.threads, self.shared))
        return blocks * self.threads / self.cuda.attribute(self.device, "MAX_THREADS_PER_MULTIPROCESSOR")

    def raise_failure(self, code: int) -> None:
        """Raise what a launch's status means."""
        error = self.cuda.error("cuLaunchKernelEx", code)
        if code == OUT_OF_LAUNCH_RESOURCES:
            registers = self.cuda.attribute(self.device, "MAX_REGISTERS_PER_BLOCK")
            raise OutOfResources(self.n_regs * self.threads, registers, f"registers of kernel {self.name} ({self.configuration})") from error
        raise translate(error, self.name) from error

    def __del__(self) -> None:
        module = getattr(self, "_module", None)
        if module is None or sys.is_finalizing():
            return
        try:
            with self.cuda.use(self.device):
                self.cuda("cuModuleUnload", module)
        except Exception:
            pass


def load(code: CodeObject, device: Device) -> LoadedKernel:
    """Load a kernel on a device.

    Raises:
        LoweringError: the driver rejects the PTX.
        OutOfResources: a program needs more registers or shared memory than the device has.
    """
    return LoadedKernel(code, device.index, driver())


# ---- memory


#: Bytes that memory from the driver is a multiple of.
_DRIVER_ALIGNMENT = 256


class DeviceBuffer:
    """Memory of a device, not cleared. It frees itself."""

    def __init__(self, cuda: Driver, device: int, size: int, alignment: int = 1) -> None:
        self._cuda, self._index, self.nbytes, self._pointer = cuda, device, size, 0
        self._alignment = alignment
        if size:
            with cuda.use(device):
                try:
                    self._pointer = int(cuda("cuMemAlloc", size + max(0, alignment - _DRIVER_ALIGNMENT)))
                except CudaError as error:
                    raise translate(error) from error

    dtype = np.dtype(np.uint8)

    @property
    def device(self) -> tuple[str, int]:
        return "cuda", self._index

    def data_ptr(self) -> int:
        return -(-self._pointer // self._alignment) * self._alignment

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {"version": 3, "shape": (self.nbytes,), "typestr": "|u1", "data": (self.data_ptr(), False), "strides": None}

    def __del__(self) -> None:
        if getattr(self, "_pointer", 0) and not sys.is_finalizing():
            try:
                with self._cuda.use(self._index):
                    self._cuda("cuMemFree", self._pointer)
            except Exception:
                pass


class DeviceMemory:
    """The memory of one device, as the runtime's :class:`Memory`. Copies have ended when they return."""

    def __init__(self, device: int, cuda: Driver) -> None:
        self._device, self._cuda = device, cuda

    def allocate(self, size: int, alignment: int) -> DeviceBuffer:
        if size < 0 or alignment < 1 or alignment & (alignment - 1):
            raise BackendError(f"memory is a size of at least 0 and an alignment that is a power of two, not {size} and {alignment}")
        return DeviceBuffer(self._cuda, self._device, size, alignment)

    def copy_to_device(self, buffer: Any, data: memoryview) -> None:
        self._copy("cuMemcpyHtoD", data, lambda host: (int(buffer.data_ptr()), host))

    def copy_to_host(self, buffer: Any, data: memoryview) -> None:
        if memoryview(data).readonly:
            raise BackendError("the memory to copy to is read-only")
        self._copy("cuMemcpyDtoH", data, lambda host: (host, int(buffer.data_ptr())))

    def _copy(self, name: str, data: memoryview, order: Callable[[int], tuple[int, int]]) -> None:
        flat = np.frombuffer(data, np.uint8)
        if not flat.size:
            return
        with self._cuda.use(self._device):
            try:
                self._cuda(name, *order(flat.ctypes.data), flat.size)
            except CudaError as error:
                raise translate(error) from error

    def synchronize(self) -> None:
        """Wait for all work of the device.

        Raises:
            KernelError: a kernel failed.
        """
        with self._cuda.use(self._device):
            try:
                self._cuda("cuCtxSynchronize")
            except CudaError as error:
                raise translate(error) from error


# ---- time


def current_stream(device: int) -> int:
    """The stream that launches go to: PyTorch's current one where PyTorch uses the GPU, else the default stream."""
    torch = sys.modules.get("torch")
    if torch is None:
        return 0
    find = getattr(getattr(torch, "_C", None), "_cuda_getCurrentRawStream", None)
    if find is None or not torch.cuda.is_initialized():
        return 0
    return int(find(device))


class DeviceTimer:
    """Times calls by events in the current stream. ``flush_cache`` overwrites more memory than the second-level cache holds."""

    def __init__(self, device: int, cuda: Driver) -> None:
        self._device, self._cuda = device, cuda
        self._spoiler: DeviceBuffer | None = None

    def measure(self, call: Callable[[], None], repetitions: int) -> list[float]:
        """Milliseconds of each repetition."""
        cuda, found = self._cuda, []
        with cuda.use(self._device):
            stream = cuda.bindings.CUstream(current_stream(self._device))
            events = [[cuda("cuEventCreate", 0) for _ in range(repetitions)] for _ in range(2)]
            try:
                for start, end in zip(*events, strict=True):
                    cuda("cuEventRecord", start, stream)
                    call()
                    cuda("cuEventRecord", end, stream)
                for start, end in zip(*events, strict=True):
                    cuda("cuEventSynchronize", end)
                    found.append(float(cuda("cuEventElapsedTime", start, end)))
            except CudaError as error:
                raise translate(error) from error
            finally:
                for event in (*events[0], *events[1]):
                    cuda("cuEventDestroy", event)
        return found

    def flush_cache(self) -> None:
        cuda = self._cuda
        if self._spoiler is None:
            self._spoiler = DeviceBuffer(cuda, self._device, max(256 << 20, 2 * cuda.attribute(self._device, "L2_CACHE_SIZE")))
        with cuda.use(self._device):
            stream = cuda.bindings.CUstream(current_stream(self._device))
            cuda("cuMemsetD8Async", self._spoiler.data_ptr(), 0, self._spoiler.nbytes, stream)


__all__ = ["DeviceBuffer", "DeviceMemory", "DeviceTimer", "LoadedKernel", "current_stream", "load", "translate"]
