"""The bytes of a launch's arguments, laid out as the code's own metadata says."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tilewright_amd_emulator.errors import WaveError


def sizes_of_arguments(listing: str) -> list[int]:
    """Return the size in bytes of each argument that a launch passes, in order.

    Arguments that the runtime adds are omitted.
    """
    return [
        int(size)
        for size in re.findall(
            r"\.size: +(\d+)\n +\.value_kind: +(?:by_value|global_buffer)", _metadata(listing)
        )
    ]


def packed(listing: str, values: Sequence[bytes | int], grid: tuple[int, int, int]) -> bytes:
    """The kernarg segment of a launch of the one kernel of an assembly text.

    Args:
        values: an argument each, as bytes or as an integer that is written in the argument's width.
        grid: workgroups along each axis, for kernels that ask how many there are.

    Raises:
        WaveError: the kernel takes other arguments.
    """
    (size,) = map(int, re.findall(r"^    \.kernarg_segment_size: (\d+)$", listing, re.M))
    block = bytearray(size)
    given = list(values)
    hidden = {f"hidden_block_count_{axis}": count for axis, count in zip("xyz", grid, strict=True)}
    for offset, width, kind in re.findall(
        r"\.offset: +(\d+)\n +\.size: +(\d+)\n +\.value_kind: +(\w+)", _metadata(listing)
    ):
        if kind in hidden:
            value: bytes | int = hidden[kind]
        elif kind.startswith("hidden"):
            continue
        elif given:
            value = given.pop(0)
        else:
            raise WaveError(
                f"the kernel takes more arguments than the {len(values)} that are given"
            )
        written = (
            value
            if isinstance(value, bytes)
            else (value & ((1 << 8 * int(width)) - 1)).to_bytes(int(width), "little")
        )
        if len(written) != int(width):
            raise WaveError(
                f"the kernel takes {width} bytes at {offset}, and the argument has {len(written)}"
            )
        block[int(offset) : int(offset) + int(width)] = written
    if given:
        raise WaveError(f"the kernel takes fewer arguments than the {len(values)} that are given")
    return bytes(block)


def _metadata(listing: str) -> str:
    return listing[listing.index("amdhsa.kernels:") :]
