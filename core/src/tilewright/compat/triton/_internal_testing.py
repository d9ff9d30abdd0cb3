"""``triton._internal_testing``: what Triton's own tests import. Needs PyTorch and pytest."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from numpy.random import RandomState

import tilewright.language as tl
from tilewright.compat.triton._utils import type_canonicalisation_dict
from tilewright.compat.triton.backends.compiler import GPUTarget
from tilewright.compat.triton.environment import fresh_settings
from tilewright.compat.triton.runtime.driver import driver
from tilewright.runtime.arguments.mock_tensors import TensorWrapper, reinterpret

int_dtypes = [f"int{bits}" for bits in (8, 16, 32, 64)]
uint_dtypes = [f"u{name}" for name in int_dtypes]
integral_dtypes = int_dtypes + uint_dtypes
float_dtypes = ["float16", "float32", "float64"]
float_dtypes_with_bfloat16 = [*float_dtypes, "bfloat16"]
dtypes = integral_dtypes + float_dtypes
dtypes_with_bfloat16 = [*dtypes, "bfloat16"]
torch_float8_dtypes = ["float8_e4m3fn", "float8_e5m2"]
torch_dtypes = ["bool", *int_dtypes, "uint8", *float_dtypes, "bfloat16"]
tma_dtypes = sorted(set(dtypes_with_bfloat16) - {"int64", "uint64", "float64"})


# ---- where the tests run


def is_interpreter() -> bool:
    return os.environ.get("TRITON_INTERPRET", "0") == "1"


def get_current_target() -> GPUTarget | None:
    """The active driver's target; None where kernels are interpreted."""
    return None if is_interpreter() else driver.active.get_current_target()


def _is_kind(kind: str) -> bool:
    target = get_current_target()
    return target is not None and target.backend == kind


def is_cpu() -> bool:
    return _is_kind("cpu")


def is_cuda() -> bool:
    return _is_kind("cuda")


def is_hip() -> bool:
    return _is_kind("hip")


def is_xpu() -> bool:
    return _is_kind("xpu")


def get_arch() -> str:
    target = get_current_target()
    return "" if target is None else str(target.arch)


def _capability() -> int:
    """The major compute capability of an NVIDIA GPU; 0 elsewhere."""
    target = get_current_target()
    return int(target.arch) // 10 if target is not None and target.backend == "cuda" else 0


def is_ampere_or_newer() -> bool:
    return _capability() >= 8


def is_hopper() -> bool:
    return _capability() == 9


def is_hopper_or_newer() -> bool:
    return _capability() >= 9


def is_blackwell() -> bool:
    return _capability() == 10


def is_blackwell_ultra() -> bool:
    return is_cuda() and get_arch() == "103"


def is_rubin() -> bool:
    return False


def is_sm12x() -> bool:
    return _capability() == 12


def _is_gfx(*parts: str) -> bool:
    return is_hip() and any(part in get_arch() for part in parts)


def is_hip_cdna2() -> bool:
    return _is_gfx("gfx90a")


def is_hip_cdna3() -> bool:
    return _is_gfx("gfx942")


def is_hip_cdna4() -> bool:
    return _is_gfx("gfx950")


def is_hip_cdna() -> bool:
    return is_hip_cdna2() or is_hip_cdna3() or is_hip_cdna4()


def is_hip_rdna3() -> bool:
    return _is_gfx("gfx11")


def is_hip_rdna4() -> bool:
    return _is_gfx("gfx120")


def is_hip_rdna() -> bool:
    return is_hip_rdna3() or is_hip_rdna4()


def is_hip_gfx11() -> bool:
    return _is_gfx("gfx11")


def is_hip_gfx12() -> bool:
    return _is_gfx("gfx12")


def is_hip_gfx1250() -> bool:
    return _is_gfx("gfx1250")


is_hip_mi200, is_hip_mi300, is_hip_mi350 = is_hip_cdna2, is_hip_cdna3, is_hip_cdna4


def get_hip_lds_size() -> int:
    """Bytes of an AMD GPU's local data share."""
    return 160 << 10 if is_hip_cdna4() else 64 << 10


def supports_tma(byval_only: bool = False) -> bool:
    """Return whether the hardware, or the interpreter in its place, copies tiles by descriptors.

    Descriptors work everywhere.
    """
    return is_interpreter() or is_hopper_or_newer()


def supports_ws() -> bool:
    """Return whether warps can be specialised."""
    return is_interpreter() or is_hopper_or_newer()


def tma_skip_msg(byval_only: bool = False) -> str:
    return "needs copies of tiles by descriptors in hardware (NVIDIA Hopper or newer)"


requires_tma = pytest.mark.skipif(
    "not __import__('triton._internal_testing')._internal_testing.supports_tma()",
    reason=tma_skip_msg(),
)


# ---- data


def numpy_random(
    shape: Any, dtype_str: str, rs: RandomState | None = None, low: Any = None, high: Any = None
) -> Any:
    """Random numbers: nonzero integers, normal floats, or bit patterns for ``float8``.

    Integers are of their whole range, and may divide; the patterns are of small numbers.

    bfloat16 is given as float32 of that precision. Without ``rs`` every call gives the same.

    Raises:
        RuntimeError: the type is unknown.
    """
    shape = (shape,) if isinstance(shape, int) else shape
    rs = RandomState(seed=17) if rs is None else rs
    if dtype_str in integral_dtypes:
        limits = np.iinfo(dtype_str)
        first = limits.min if low is None else max(low, limits.min)
        last = limits.max if high is None else min(high, limits.max)
        found = rs.randint(first, last, shape, dtype=np.dtype(dtype_str).type)
        found[found == 0] = 1
        return found
    if dtype_str and "float8" in dtype_str:
        return rs.randint(20, 40, shape, dtype=np.int8)
    if dtype_str in ("bool", "int1", "bool_"):
        return rs.normal(0, 1, shape) > 0
    if dtype_str not in float_dtypes_with_bfloat16:
        raise RuntimeError(f"Unknown dtype {dtype_str}")
    normal = rs.normal(0, 1, shape)
    if dtype_str == "bfloat16":
        return (normal.astype("float32").view("uint32") & np.uint32(0xFFFF0000)).view("float32")
    return normal.astype(dtype_str)


def to_triton(x: Any, device: Any, dst_type: str | None = None) -> Any:
    """Convert a NumPy array to a tensor on a device.

    ``dst_type`` is its type where that is bfloat16 or a ``float8``, of which it has the bits or the
    values.
    """
    name = x.dtype.name
    if name in uint_dtypes:
        return reinterpret(torch.tensor(x.astype(name[1:]), device=device), getattr(tl, name))
    found = torch.tensor(x, device=device)
    if dst_type and "float8" in dst_type:
        return reinterpret(found, getattr(tl, dst_type))
    return found.bfloat16() if name == "float32" and dst_type == "bfloat16" else found


def str_to_triton_dtype(x: str) -> Any:
    return tl.str_to_ty(type_canonicalisation_dict[x], None)


def torch_dtype_name(dtype: Any) -> str:
    """The name of an element type of the language or of PyTorch.

    Raises:
        TypeError: it is neither.
    """
    if isinstance(dtype, tl.dtype):
        return dtype.name
    if isinstance(dtype, torch.dtype):
        return str(dtype).removeprefix("torch.")
    raise TypeError(f"not a triton or torch dtype: {type(dtype)}")


def to_numpy(x: Any) -> Any:
    """A tensor as a NumPy array; bfloat16 as float32.

    Raises:
        ValueError: it is no tensor.
    """
    if isinstance(x, TensorWrapper):
        return x.base.cpu().numpy().astype(np.dtype(torch_dtype_name(x.dtype)))
    if isinstance(x, torch.Tensor):
        return (x.float() if x.dtype is torch.bfloat16 else x).cpu().numpy()
    raise ValueError(f"Not a triton-compatible tensor: {x}")


def unwrap_tensor(t: Any) -> Any:
    return t.base if isinstance(t, TensorWrapper) else t


def default_alloc_fn(size: int, align: int, _: Any) -> Any:
    """An allocator for ``triton.set_allocator``: PyTorch's, on the active device."""
    return torch.empty(size, dtype=torch.int8, device=driver.active.get_active_torch_device())


# ---- settings and processes


def _fresh_knobs_impl(
    skipped_attr: Iterable[str] | None = None,
) -> tuple[Callable[[], Any], Callable[[], None]]:
    """Return (install fresh settings, restore the old ones).

    Environment variables of the settings are unset in between.
    """
    return fresh_settings(skipped_attr)


@dataclass
class ProcessResult:
    """The end of a function in a process of its own: its exception, if any, and its stderr."""

    exc: BaseException | None
    driver_stderr_output: str


def _child(call: bytes, environment: Mapping[str, str], errors: str, connection: Any) -> None:
    """Run the call in the process.

    It is a pickle of its own: its modules are imported when the shim and the environment are in
    place.
    """
    os.environ.update(environment)
    target = os.open(errors, os.O_WRONLY | os.O_CREAT)
    os.dup2(target, 2)
    failure: BaseException | None = None
    try:
        function, args, kwargs = pickle.loads(call)
        function(*args, **kwargs)
    except BaseException as error:
        failure = error
    try:
        connection.send(failure)
    except Exception:  # one that cannot be pickled
        connection.send(RuntimeError(f"{type(failure).__name__}: {failure}"))


def run_in_process(
    client_fn: Callable[..., Any],
    args: tuple[Any, ...] = (),
    kwargs: Mapping[str, Any] | None = None,
    env: Mapping[str, str] | None = None,
) -> ProcessResult:
    """Call a function in a new process, with further environment variables.

    A device it breaks is not ours.
    """
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    with tempfile.TemporaryDirectory() as folder:
        errors = os.path.join(folder, "stderr")
        call = pickle.dumps((client_fn, tuple(args), dict(kwargs or {})))
        process = context.Process(target=_child, args=(call, dict(env or {}), errors, sender))
        process.start()
        sender.close()
        try:
            failure = receiver.recv()
        except EOFError:
            failure = None
        process.join()
        if failure is None and process.exitcode:
            failure = RuntimeError(f"the process ended with {process.exitcode}")
        with open(errors, errors="replace") as file:
            written = file.read()
    sys.stderr.write(written)
    return ProcessResult(failure, written)
