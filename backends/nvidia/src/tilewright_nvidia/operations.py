"""Operations that only this backend has, in addition to the shared op table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tilewright.ir.core import Operation
from tilewright.ir.declare import Declarations, SingleOperand, TypedAttribute, VariadicOperand
from tilewright.ir.table import Effect, RuleError, Shape
from tilewright.ir.types import DescriptorType, IntType, TileType, Type

#: The maximum number of pixels per copy.
MOST_PIXELS: Final = 1024


def _load_im2col(shape: Shape) -> Sequence[Type]:
    descriptor = shape.type("descriptor")
    if (
        not isinstance(descriptor, DescriptorType)
        or not 3 <= descriptor.rank <= 5
        or set(descriptor.block_shape[:-1]) != {1}
    ):
        raise RuleError(
            "descriptor must be of rank 3 to 5, its block the channels of one pixel, not "
            f"{descriptor}"
        )
    spatial, pixels = descriptor.rank - 2, shape.attributes["pixels"]
    for name, count in (("offsets", descriptor.rank), ("window", spatial)):
        if len(shape.groups[name]) != count or not all(
            isinstance(type_, IntType) for type_ in shape.groups[name]
        ):
            raise RuleError(f"{name} must be {count} integers")
    if any(len(shape.attributes[name]) != spatial for name in ("lower", "upper")):
        raise RuleError(f"lower and upper must have {spatial} numbers")
    if not 1 <= pixels <= MOST_PIXELS or pixels & (pixels - 1):
        raise RuleError(f"pixels must be a power of two up to {MOST_PIXELS}, not {pixels}")
    return (TileType((pixels, descriptor.block_shape[-1]), descriptor.element),)


OPS: Final = Declarations()


@OPS.operation(
    "nvidia.load_im2col",
    "the channels of pixels that follow each other in the base box of a tensor of images, each "
    "moved by the window's place",
    _load_im2col,
    effects=Effect.READ,
)
class LoadIm2col(Operation):
    __slots__ = ()

    descriptor = SingleOperand()
    offsets = VariadicOperand("of the first pixel")
    window = VariadicOperand("how far pixels are moved")
    pixels = TypedAttribute[int]("how many")
    lower = TypedAttribute[tuple[int, ...]](
        "where the base box begins, along each axis of an image"
    )
    upper = TypedAttribute[tuple[int, ...]]("where it ends, from the image's last pixel on")
