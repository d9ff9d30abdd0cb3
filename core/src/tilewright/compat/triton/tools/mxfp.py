"""``triton.tools.mxfp``: the Open Compute Project's microscaling formats as bit patterns.

The patterns are in PyTorch tensors.

Source: OCP Microscaling Formats (MX) specification 1.0.
"""

from __future__ import annotations

import itertools
from typing import Any

import torch

#: The numbers of E2M1 by bit pattern, without the sign bit.
_E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
_E8M0_BIAS, _E8M0_NAN = 127, 255


def _size(size: Any) -> tuple[int, ...]:
    return tuple(size) if isinstance(size, tuple | list | torch.Size) else (size,)


class _Patterns:
    """Numbers of a narrow format as bit patterns, one in each byte of ``data``.

    They are rounded from ``data``, or drawn at random in a shape.
    """

    data: torch.Tensor

    def __init__(
        self, data: torch.Tensor | None = None, size: Any = None, device: Any = None
    ) -> None:
        self.device = device
        if data is not None:
            assert isinstance(data, torch.Tensor), "Parameter data must be a torch tensor"
            self.device = data.device
            self.data = self._from_float(data)
        elif size is not None:
            self.size = _size(size)
        else:
            raise ValueError("Either parameter data or size must be provided")

    def _from_float(self, values: torch.Tensor) -> torch.Tensor:
        raise NotImplementedError


class MXFP4Tensor(_Patterns):
    """Four-bit floats (E2M1), one in each byte of ``data``.

    :meth:`to_packed_tensor` puts two into a byte.

    Args:
        data: numbers to round to the format: to the nearest, ties to the even pattern; too large
            ones, infinities and NaNs become the largest.
        size, device: the shape and place of numbers that :meth:`random` makes.

    Raises:
        ValueError: neither ``data`` nor ``size`` is given.
    """

    def random(self) -> MXFP4Tensor:
        """Every pattern with the same probability."""
        self.data = torch.randint(0, 16, size=self.size, dtype=torch.uint8, device=self.device)
        return self

    def to(self, dtype: torch.dtype) -> torch.Tensor:
        """The numbers as float32; zeros keep their sign."""
        assert dtype == torch.float32, (
            "Currently only float32 is supported for fp4e2m1 to float conversion"
        )
        table = torch.tensor(
            [*_E2M1, *(-value for value in _E2M1)], dtype=torch.float32, device=self.data.device
        )
        return table[self.data.long()]

    def _from_float(self, values: torch.Tensor) -> torch.Tensor:
        magnitude = torch.where(torch.isfinite(values), values.abs().double(), _E2M1[-1])
        # between two neighbours the even pattern takes the point in the middle
        middles = [(low + high) / 2 for low, high in itertools.pairwise(_E2M1)]
        pattern = torch.zeros_like(magnitude, dtype=torch.uint8)
        for number, middle in enumerate(middles, 1):
            pattern += (magnitude >= middle if number % 2 == 0 else magnitude > middle).to(
                torch.uint8
            )
        return torch.signbit(values).to(torch.uint8) << 3 | pattern

    def to_packed_tensor(self, dim: int) -> torch.Tensor:
        """Pack two neighbours along ``dim`` in each byte, the first one in the low bits.

        An odd extent is filled up with zero.
        """
        data = self.data
        assert 0 <= dim < data.ndim, (
            "The dimension to pack along is not within the range of tensor dimensions"
        )
        if data.shape[dim] % 2:
            zeros = torch.zeros_like(data.narrow(dim, 0, 1))
            data = torch.cat([data, zeros], dim)
        low, high = (data.unflatten(dim, (-1, 2)).select(dim + 1, part) for part in (0, 1))
        return high << 4 | low

    def unpack_packed_tensor(
        self, packed_tensor: torch.Tensor, dim: int, original_shape: Any
    ) -> torch.Tensor:
        """The inverse of :meth:`to_packed_tensor`: one pattern in each byte."""
        both = torch.stack((packed_tensor & 0xF, packed_tensor >> 4 & 0xF), dim=dim + 1).flatten(
            dim, dim + 1
        )
        return both.narrow(dim, 0, original_shape[dim]).to(torch.uint8)


class MXScaleTensor(_Patterns):
    """Powers of two in one byte (E8M0, bias 127); pattern 255 is NaN.

    Args:
        data: numbers to round down to a power of two; zero, negative ones, infinities and NaNs
            become NaN.
        size, device: the shape and place of numbers that :meth:`random` makes.

    Raises:
        ValueError: neither ``data`` nor ``size`` is given.
    """

    def random(self, low: float | None = None, high: float | None = None) -> MXScaleTensor:
        """Powers of two from ``low`` to ``high``, each with the same probability; no NaN."""
        first = 0 if low is None else max(0, int(torch.log2(torch.tensor(low))) + _E8M0_BIAS)
        last = (
            _E8M0_NAN - 1
            if high is None
            else min(_E8M0_NAN - 1, max(0, int(torch.log2(torch.tensor(high))) + _E8M0_BIAS))
        )
        assert first <= last, "Low must be less than or equal to high"
        self.data = torch.randint(
            first, last + 1, size=self.size, dtype=torch.uint8, device=self.device
        )
        return self

    def to(self, dtype: torch.dtype) -> torch.Tensor:
        """The powers as float32."""
        assert dtype == torch.float32, (
            "Currently only float32 is supported for f8e8m0 to float conversion"
        )
        return fp8e8m0_to_float32(self.data)

    def _from_float(self, values: torch.Tensor) -> torch.Tensor:
        valid = torch.isfinite(values) & (values > 0)
        # value = m * 2**exponent, m in [0.5, 1)
        _, exponent = torch.frexp(torch.where(valid, values, 1.0).double())
        biased = (exponent - 1 + _E8M0_BIAS).clamp(0, _E8M0_NAN - 1)
        return torch.where(valid, biased, _E8M0_NAN).to(torch.uint8)


def fp8e8m0_to_float32(scale: torch.Tensor) -> torch.Tensor:
    """E8M0 patterns as float32."""
    patterns = scale.view(torch.uint8)
    values = torch.ldexp(
        torch.ones_like(patterns, dtype=torch.float64), patterns.to(torch.int32) - _E8M0_BIAS
    )
    return torch.where(patterns == _E8M0_NAN, torch.nan, values).to(torch.float32)


__all__ = ["MXFP4Tensor", "MXScaleTensor", "fp8e8m0_to_float32"]
