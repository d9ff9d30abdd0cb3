"""Lowering of device-side tensor maps: made by the thread that starts the copies that use them."""

from __future__ import annotations

from tilewright.simt.dialect.op_interface import Interface, SharedEffects
from tilewright.simt.dialect.ops.tensor_maps import (
    Descriptors,
    FreeDescriptors,
    MakeTensorMap,
    ShowDescriptor,
)
from tilewright.simt.dialect.registry import register_interfaces
from tilewright.simt.lowering.emission.context import SimtContext
from tilewright.simt.lowering.shared_memory import slot_address
from tilewright.simt.target.capabilities.tma import DeviceTensorMaps, MadeDescriptor
from tilewright.simt.target.simt_target import required


def _device_maps(context: SimtContext) -> DeviceTensorMaps:
    tma = required(context.target.tma, context.target, "TMA")
    return required(tma.device_maps, context.target, "device-side tensor maps")


def lower_descriptors(context: SimtContext, operation: Descriptors) -> None:
    context.bind(operation.result, [_device_maps(context).allocate(context, operation)])


def lower_make(context: SimtContext, operation: MakeTensorMap) -> None:
    extents, strides = (
        tuple([context.scalar(value) for value in values])
        for values in (operation.shape, operation.strides)
    )
    memory, there, base = (
        context.scalar(operation.memory),
        slot_address(context, operation.slot),
        context.scalar(operation.base),
    )
    made = MadeDescriptor(memory, there, base, extents, strides, operation.padding)
    context.bind(operation.result, [_device_maps(context).make(context, operation, made)])


def lower_show(context: SimtContext, operation: ShowDescriptor) -> None:
    _device_maps(context).show(context, operation, context.scalar(operation.descriptor))


def lower_free(context: SimtContext, operation: FreeDescriptors) -> None:
    _device_maps(context).free(context, operation, context.scalar(operation.memory))


def _put_together(operation: MakeTensorMap) -> SharedEffects:
    return SharedEffects(writes=(operation.slot,))


INTERFACES = register_interfaces(
    {
        "simt.descriptors": Interface(lower_descriptors),
        "simt.make_descriptor": Interface(lower_make, effects=_put_together),
        "simt.show_descriptor": Interface(lower_show),
        "simt.free_descriptors": Interface(lower_free),
    }
)
