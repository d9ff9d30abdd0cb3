"""Memory of tapes: counted, allocated beside the arguments, and freed after the launch."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from typing import Any

from tilewright.derivatives.adjoint.loop_tape import TRIPS, TapeParameter
from tilewright.derivatives.trip_counts import TRIPS_OUT
from tilewright.errors import LaunchError, with_help
from tilewright.ir.type_text import parse_type
from tilewright.ir.types import PointerType, byte_size
from tilewright.plugins.manifest import Parameter
from tilewright.runtime.arguments.array_protocols import ArrayView, is_numpy_array
from tilewright.runtime.arguments.descriptor import TensorDescriptor
from tilewright.runtime.arguments.device_bytes import SavedBytes, memory_of, zeroed_beside
from tilewright.runtime.derivatives.bound_launch import BoundLaunch, DerivedPlan
from tilewright.runtime.derivatives.scalar_slices import ScalarSlice


class TapeMemory:
    """The tapes of an adjoint.

    Each takes, for each program of the grid and each iteration of the longest loop, the elements of
    one carried value.
    """

    def __init__(
        self, count: ScalarSlice[int] | DerivedPlan, parameters: Sequence[Parameter], limit: int
    ) -> None:
        """Prepare.

        Args:
            count: counts iterations: on the host where they depend on scalars alone, else by a
                kernel of the launch's device.
            parameters: those of the adjoint.
            limit: bytes that the tapes of a launch may take.
        """
        self._count, self._limit = count, limit
        self._bytes: dict[str, int] = {}
        for parameter in parameters:
            tape = TapeParameter.of(parameter.name)
            if tape is not None:
                pointer = parse_type(parameter.type)
                assert isinstance(pointer, PointerType)
                self._bytes[parameter.name] = tape.elements * byte_size(pointer.pointee)

    def arguments(self, launch: BoundLaunch, like: Any) -> dict[str, Any]:
        """Return the adjoint's parameters of tapes for a launch, by name.

        Args:
            like: an array, beside which the memory is allocated.

        Raises:
            LaunchError: the array's library cannot allocate memory here, or the tapes would take
                more than the limit.
        """
        if isinstance(self._count, ScalarSlice):
            trips = self._count(launch.grid, launch.named)
        else:
            count = bytes_like(like, 8)
            self._count(launch, {TRIPS_OUT: count})
            trips = _as_integer(count)
        programs = math.prod(launch.grid)
        needed = programs * trips * sum(self._bytes.values())
        if needed > self._limit:
            raise LaunchError(
                with_help(
                    f"a tape of {size_text(needed)} is needed, over the limit of "
                    f"{size_text(self._limit)}: {programs} programs record {trips} iterations of "
                    f"{size_text(sum(self._bytes.values()))}",
                    "raise tape_limit, or carry fewer elements through the loop",
                )
            )
        tapes = {
            name: bytes_like(like, max(programs * trips * size, 1), zeroed=False)
            for name, size in self._bytes.items()
        }
        return {TRIPS: trips, **tapes}


def bytes_like(like: Any, size: int, *, zeroed: bool = True) -> Any:
    """Return bytes beside an array.

    Raises:
        LaunchError: it is neither NumPy's nor PyTorch's, and no backend allocates memory there.
    """
    array = like.base if isinstance(like, TensorDescriptor) else like
    if is_numpy_array(array):
        import numpy as np

        return np.zeros(size, np.uint8) if zeroed else np.empty(size, np.uint8)
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(array, torch.Tensor):
        make = torch.zeros if zeroed else torch.empty
        return make(size, dtype=torch.uint8, device=array.device)
    found = zeroed_beside(array, size)
    if found is not None:
        return found
    raise LaunchError(
        "the adjoint takes memory of its own, which is allocated beside arrays of NumPy or "
        f"PyTorch, and not beside a {type(array).__name__}"
    )


def size_text(size: int) -> str:
    """Return a number of bytes in the largest unit of which there is one."""
    units = ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB")
    power = min(max(size.bit_length() - 1, 0) // 10, len(units) - 1)
    return f"{size} bytes" if power == 0 else f"{size / (1 << 10 * power):.1f} {units[power]}"


def _as_integer(count: Any) -> int:
    """Return the i64 that eight bytes hold, when the device has written it."""
    if isinstance(count, ArrayView):
        memory = memory_of(count.device)
        assert memory is not None
        array = SavedBytes(count, memory).host
    else:
        array = count if is_numpy_array(count) else count.cpu().numpy()
    return int(array.view("int64")[0])
