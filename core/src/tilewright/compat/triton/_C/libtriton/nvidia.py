"""``triton._C.libtriton.nvidia``: matmul by cuBLASLt, to compare kernels with."""

from __future__ import annotations

import ctypes
import functools
import glob
import importlib.util
import os
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

from tilewright.compat.triton.backends.torch_devices import interface
from tilewright.errors import BackendError, LaunchError

# The enumerations of cublasLt.h, cublas_api.h and library_types.h.
_COMPUTE_32F, _R_32F, _R_16F, _OP_T = 68, 0, 2, 1
_TRANSPOSE_A, _WORKSPACE_BYTES, _POINTER = 3, 1, ctypes.c_void_p
#: PyTorch's dtype -> (cudaDataType_t, that of the C operand, which for fp8 results is f16)
_TYPES = {
    "torch.float32": (_R_32F, _R_32F),
    "torch.float16": (_R_16F, _R_16F),
    "torch.bfloat16": (14, 14),
    "torch.float8_e4m3fn": (28, _R_16F),
}


class _Heuristic(ctypes.Structure):
    """``cublasLtMatmulHeuristicResult_t``."""

    _fields_ = (
        ("algorithm", ctypes.c_uint64 * 8),
        ("workspace", ctypes.c_size_t),
        ("state", ctypes.c_int),
        ("waves", ctypes.c_float),
        ("reserved", ctypes.c_int * 4),
    )


def _candidates() -> Iterator[str]:
    """Where the library may be: beside PyTorch, then wherever the loader looks."""
    try:
        packages = importlib.util.find_spec("nvidia")
    except ValueError:
        packages = None
    for folder in (packages.submodule_search_locations or ()) if packages else ():
        for part in ("cublas", "cu*"):
            found = glob.glob(os.path.join(folder, part, "lib", "libcublasLt.so.*"))
            yield from sorted(found, reverse=True)
    yield from (f"libcublasLt.so.{version}" for version in (13, 12))


@functools.cache
def _library() -> ctypes.CDLL:
    """Load cuBLASLt.

    Raises:
        BackendError: it is nowhere.
    """
    for name in _candidates():
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    raise BackendError(
        "libcublasLt was found neither beside PyTorch nor by the loader: install it with pip "
        "install nvidia-cublas, or a CUDA toolkit"
    )


def _call(name: str, *arguments: Any) -> None:
    """Call a function of the library.

    Raises:
        LaunchError: it failed.
    """
    status = getattr(_library(), name)(*arguments)
    if status:
        raise LaunchError(f"{name} failed with cublasStatus_t {status}")


class CublasLt:
    """A handle of cuBLASLt, with memory that its kernels may use.

    Args:
        workspace: a tensor on the device; all of its bytes are used.
    """

    def __init__(self, workspace: Any) -> None:
        self._workspace = workspace
        self._bytes = workspace.numel() * workspace.element_size()
        self._handle = _POINTER()
        _call("cublasLtCreate", ctypes.byref(self._handle))

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            _library().cublasLtDestroy(self._handle)

    def matmul(self, A: Any, B: Any, C: Any) -> None:  # noqa: N803
        """``C = A @ B.T``: contiguous tensors of shapes (m, k), (n, k) and (m, n), of one dtype.

        The dtype is f32, f16, bf16 or fp8 (e4m3).

        Raises:
            LaunchError: shapes or dtypes do not fit, or the library refused.
        """
        self.gemm(A, B, None, C, 1.0, 0.0)

    def gemm(self, A: Any, B: Any, C: Any, D: Any, alpha: float, beta: float) -> None:  # noqa: N803
        """``D = alpha * A @ B.T + beta * C``, with C None for ``beta=0``; see :meth:`matmul`.

        C is f16 where the others are fp8.
        """
        (m, k), (n, inner), dtype = A.shape, B.shape, A.dtype
        if (
            inner != k
            or tuple(D.shape) != (m, n)
            or B.dtype != dtype
            or D.dtype != dtype
            or str(dtype) not in _TYPES
        ):
            shapes = ", ".join(f"{tensor.dtype}{list(tensor.shape)}" for tensor in (A, B, D))
            raise LaunchError(
                "cuBLASLt multiplies (m, k) by (n, k) into (m, n), all of one of "
                f"{', '.join(_TYPES)}; given {shapes}"
            )
        kind, addend = _TYPES[str(dtype)]
        made: list[tuple[str, Any]] = []

        def create(what: str, *arguments: Any) -> Any:
            handle = _POINTER()
            _call(f"cublasLt{what}Create", ctypes.byref(handle), *arguments)
            made.append((what, handle))
            return handle

        def set_attribute(what: str, handle: Any, attribute: int, value: Any) -> None:
            _call(
                f"cublasLt{what}SetAttribute",
                handle,
                attribute,
                ctypes.byref(value),
                ctypes.c_size_t(ctypes.sizeof(value)),
            )

        try:
            # the library's matrices are column-major: it computes D's transpose, B @ A.T
            description = create("MatmulDesc", _COMPUTE_32F, _R_32F)
            set_attribute("MatmulDesc", description, _TRANSPOSE_A, ctypes.c_int(_OP_T))
            preference = create("MatmulPreference")
            set_attribute(
                "MatmulPreference", preference, _WORKSPACE_BYTES, ctypes.c_size_t(self._bytes)
            )
            sizes = ((kind, k, n), (kind, k, m), (addend, n, m), (kind, n, m))
            layouts = [
                create(
                    "MatrixLayout",
                    type_,
                    ctypes.c_uint64(rows),
                    ctypes.c_uint64(columns),
                    ctypes.c_int64(rows),
                )
                for type_, rows, columns in sizes
            ]
            found, count = _Heuristic(), ctypes.c_int()
            wanted = (preference, 1, ctypes.byref(found), ctypes.byref(count))
            _call("cublasLtMatmulAlgoGetHeuristic", self._handle, description, *layouts, *wanted)
            if not count.value:
                raise LaunchError(f"cuBLASLt has no kernel for {dtype} products of {m} x {n} x {k}")
            b, a, c, d = layouts
            pointers = [
                _POINTER(None if tensor is None else tensor.data_ptr()) for tensor in (B, A, C, D)
            ]
            scales = [ctypes.byref(ctypes.c_float(scale)) for scale in (alpha, beta)]
            module = interface("cuda")
            stream = _POINTER(
                0 if module is None else int(module.current_stream(A.device).cuda_stream)
            )
            operands = (
                scales[0],
                pointers[0],
                b,
                pointers[1],
                a,
                scales[1],
                pointers[2],
                c,
                pointers[3],
                d,
            )
            memory = (_POINTER(self._workspace.data_ptr()), ctypes.c_size_t(self._bytes), stream)
            _call(
                "cublasLtMatmul",
                self._handle,
                description,
                *operands,
                ctypes.byref(found.algorithm),
                *memory,
            )
        finally:
            for what, handle in reversed(made):
                getattr(_library(), f"cublasLt{what}Destroy")(handle)


cublas = SimpleNamespace(CublasLt=CublasLt)

__all__ = ["CublasLt", "cublas"]
