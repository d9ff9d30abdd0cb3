"""Copies of arrays that an exact launch updates atomically: sums of residues, or keys.

A copy spans the memory from an array's first element to its last, gaps between them included. What
the kernel left there is converted back to payloads when the launch ends.
"""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Any

from tilewright.errors import LaunchError
from tilewright.ir.types import I32
from tilewright.passes.exact.address_groups import Storage
from tilewright.passes.exact.ring import Ring, ring_of
from tilewright.passes.exact.stored_floats import CODE_UNIT
from tilewright.plugins.manifest import Memory
from tilewright.runtime.arguments.array_protocols import address_of, is_numpy_array
from tilewright.runtime.exact.payloads import float_type, is_tensor
from tilewright.runtime.exact.spans import Span, span_of


class Shadows:
    """The copies of one launch; leaving the block writes them back."""

    def __init__(self, memory: Callable[[], Memory | None]) -> None:
        """Begin.

        Args:
            memory: returns the memory of the launch's device, for arrays that are neither NumPy's
                nor PyTorch's; None where the backend has none.
        """
        self._memory = memory
        self._made: dict[tuple[int, int], tuple[Any, Storage, Span, Ring]] = {}
        self._plain: list[_Unshaped] = []

    def __enter__(self) -> Shadows:
        return self

    def add_plain(self, array: Any) -> None:
        """Add an array that the kernel reads and writes as it is."""
        self._plain.append(_Unshaped(array))

    def shadow(self, array: Any, storage: Storage) -> Any:
        """Return the copy of an array in a representation, in the array's shape and strides."""
        type_ = float_type(array)
        assert type_ is not None
        has_library = is_numpy_array(array) or is_tensor(array)
        span = span_of(array, type_, None if has_library else self._memory())
        ring = ring_of(type_)
        key = (span.start, span.end)
        if key not in self._made or self._made[key][1] is not storage:
            if key in self._made:
                raise _overlap()
            stored = _to_stored(_wide(span.read(), ring), storage, ring)
            self._made[key] = span.place(stored), storage, span, ring
        return span.shaped(self._made[key][0])

    def check_overlaps(self) -> None:
        """Check that no copied memory is reached through another argument.

        Raises:
            LaunchError: it is.
        """
        spans = [span for _, _, span, _ in self._made.values()]
        for number, span in enumerate(spans):
            others: list[Span | _Unshaped] = [*spans[number + 1 :], *self._plain]
            for other in others:
                if span.start < other.end and other.start < span.end:
                    raise _overlap()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is not None:
            return
        for handle, storage, span, ring in self._made.values():
            span.write(_from_stored(span.fetch(handle), storage, ring))


def _overlap() -> LaunchError:
    return LaunchError(
        "exact mode: an array that is updated atomically overlaps another argument that is not, or "
        "not in the same way. Pass arrays that do not overlap"
    )


class _Unshaped:
    """The memory of an array that is not copied: first and last address."""

    def __init__(self, array: Any) -> None:
        self.start = address_of(array)
        self.end = self.start + int(getattr(array, "nbytes", 0))


def _where(condition: Any, a: Any, b: Any) -> Any:
    if is_tensor(condition):
        import torch

        return torch.where(condition, a, b)
    import numpy as np

    return np.where(condition, a, b)


def _wide(flat: Any, ring: Ring) -> Any:
    """Payloads as int64; codes of f64 are negative."""
    if is_tensor(flat):
        import torch

        wide = flat.to(torch.int64)
        return wide & ((1 << ring.bits) - 1) if ring.bits < 64 else wide
    return flat.astype("int64")


def _to_stored(payloads: Any, storage: Storage, ring: Ring) -> Any:
    finite = (payloads >= 0) & (payloads < ring.modulus)
    code = payloads & 3
    if storage is Storage.SUMS:
        return _where(finite, payloads, (code + 1) * CODE_UNIT)
    low, high = I32.minimum, I32.maximum
    nan, undefined = (low, high - 1) if storage is Storage.MAXIMA else (high, low + 1)
    key = _where(payloads > ring.half, payloads - ring.modulus, payloads)
    for number, coded in enumerate((low + 2, high - 2, nan, undefined)):
        key = _where(~finite & (code == number), payloads * 0 + coded, key)
    if is_tensor(key):
        import torch

        return key.to(torch.int32)
    return key.astype("int32")


def _from_stored(stored: Any, storage: Storage, ring: Ring) -> Any:
    """Payloads as int64, of which the lower bits count."""
    top = ring.negative_infinity if ring.bits < 64 else -4
    if storage is Storage.SUMS:
        codes = stored // CODE_UNIT
        code = _where((codes > 0) & (codes <= 4), codes - 1 + top, codes * 0 + top + 2)
        return _where(codes == 0, stored % CODE_UNIT % ring.modulus, code)
    if is_tensor(stored):
        import torch

        wide = stored.to(torch.int64)
    else:
        wide = stored.astype("int64")
    low, high = I32.minimum, I32.maximum
    found = _where(wide < 0, wide + ring.modulus, wide)
    for number, keys in enumerate(((low + 2,), (high - 2,), (low, high), (low + 1, high - 1))):
        for key in keys:
            found = _where(wide == key, wide * 0 + top + number, found)
    return found
