"""Tensor maps: what they are made of, what the driver is asked for by Python and by machine code,
what is refused."""

from __future__ import annotations

import json
import re
from ctypes import CFUNCTYPE, POINTER, addressof, c_bool, c_int32, c_int64, c_void_p, cast, memset
from types import SimpleNamespace
from typing import Any

import pytest
from hopper_support import compiled, product_kernel
from mock_bindings import FakeBindings

from tilewright.errors import RefusedError
from tilewright.gpu_host.arguments import ArgumentBlock
from tilewright.gpu_host.driver import Driver
from tilewright.gpu_host.encoding import encoder_code
from tilewright.gpu_host.expressions import Expression, evaluate, word
from tilewright.gpu_host.kernels import LoadedKernel
from tilewright.gpu_host.launch import PythonLauncher
from tilewright.gpu_host.native_launch import native_launcher
from tilewright.plugins.manifest import CodeObject, Parameter
from tilewright.testing.stand_in_driver import StandInLibrary
from tilewright_nvidia.async_copy.tensor_maps import ROUNDED, TensorMap, element_of, opaque
from tilewright_nvidia.host.driver_table import TABLE
from tilewright_nvidia.host.image import image

driver = pytest.importorskip("cuda.bindings.driver")


class Encoding(FakeBindings):
    """A driver that encodes maps as what it is asked for."""

    cuuint64_t = cuuint32_t = int
    CUtensorMapDataType = CUtensorMapInterleave = CUtensorMapSwizzle = CUtensorMapL2promotion = (
        CUtensorMapFloatOOBfill
    ) = int

    def _cuTensorMapEncodeTiled(self, *asked: Any) -> Any:
        self.asked = asked
        return SimpleNamespace(opaque=list(range(16)))


#: Of the parameters of the driver's function behind the structure: what machine code passes, lists
#: by the type of what they have.
_PASSED = (
    c_int32,
    c_int32,
    c_int64,
    POINTER(c_int64),
    POINTER(c_int64),
    POINTER(c_int32),
    POINTER(c_int32),
    c_int32,
    c_int32,
    c_int32,
    c_int32,
)

WORDS = (0x7F00_0000_1000, 1000, 72, 80, 1)


def asked(wanted: TensorMap, words: tuple[int, ...]) -> tuple[Any, ...]:
    """Calls of the driver by the Python launcher and by the native one, which are equal."""
    bindings = Encoding()
    found = opaque(Driver(TABLE, bindings), wanted)
    block = ArgumentBlock(
        "k",
        [Parameter("d", f"desc<{'x'.join(map(str, wanted.box))}x{element_of(wanted)}>")],
        int,
        [found],
    )
    rank = len(wanted.box)
    block.place(
        (SimpleNamespace(base=words[0], shape=words[1 : 1 + rank], strides=words[1 + rank :]),)
    )
    native: list[tuple[Any, ...]] = []

    def encode(structure: int, *passed: Any) -> int:
        lengths = {3: rank, 4: max(1, rank - 1), 5: rank, 6: rank}
        native.append(
            tuple(
                list(each[: lengths[place]]) if place in lengths else each
                for place, each in enumerate(passed)
            )
        )
        return 0

    function = CFUNCTYPE(c_int32, c_void_p, *_PASSED)(encode)
    code = encoder_code("k", [found], [0])
    assert code is not None
    memory, places, functions = (
        (c_int64 * 32)(),
        (c_int64 * 1)(),
        (c_void_p * 1)(cast(function, c_void_p).value),
    )
    made = CFUNCTYPE(c_bool, c_void_p, c_void_p, c_void_p, c_void_p)(code.address("encode"))(
        (c_int64 * len(words))(*words), memory, places, functions
    )
    assert made and native == [bindings.asked] and places[0] == addressof(memory)
    return bindings.asked


def test_maps_are_made_of_a_descriptors_words() -> None:
    kind, rank, address, extents, strides, box, ones, *rest = asked(
        TensorMap.of_descriptor(0, "f16", (128, 64), 128, nan=False), WORDS
    )
    assert (kind, rank, address) == (
        driver.CUtensorMapDataType.CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
        2,
        WORDS[0],
    )
    # innermost axis first; strides are in bytes, without that of the innermost axis
    assert (extents, strides, box, ones) == ([72, 1000], [160], [64, 128], [1, 1])
    assert rest == [
        driver.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
        driver.CUtensorMapSwizzle.CU_TENSOR_MAP_SWIZZLE_128B,
        driver.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
        driver.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
    ]


def test_maps_of_one_axis_have_no_stride() -> None:
    assert asked(TensorMap.of_descriptor(0, "f32", (256,), 0, nan=False), (4096, 1000, 1))[3:6] == (
        [1000],
        [16],
        [256],
    )


def test_maps_are_made_of_pointers_and_numbers() -> None:
    """A tensor of the pointer that is argument 2 plus a row, of extents n and k, which is argument
    0."""
    start: Expression = ("add", word(2), ("mul", 128, word(1)))
    wanted = TensorMap(
        start, (word(1), word(0)), (word(0), 1), "f16", (64, 64), 128, nan=False, implied=True
    )
    assert TensorMap.of(json.loads(json.dumps(wanted.facts()))) == wanted
    found = opaque(Driver(TABLE, Encoding()), wanted)
    assert (
        found.subject == "the TMA unit cannot access the memory at addresses made of arguments 1, 2"
    )
    values = [evaluate(expression, [[40], [3], [4096]]) for expression in found.inputs]
    assert values == [4096 + 3 * 128, 3, 40, 80]

    # natively, of a kernel's plain arguments
    parameters = (Parameter("k", "i32"), Parameter("n", "i32"), Parameter("x", "ptr<f16>"))
    code = CodeObject(
        "k",
        b"",
        {},
        {
            "kernel": "k",
            "num_warps": 4,
            "shared": 0,
            "format": "cubin",
            "tensor_maps": [wanted.facts()],
        },
    )
    bindings = Encoding()
    encoded: list[tuple[Any, ...]] = []
    loaded = LoadedKernel(code, 0, Driver(TABLE, bindings).start())
    library = StandInLibrary(TABLE, 3, 1000)

    def encode(structure: int, *passed: Any) -> int:
        encoded.append((passed[2], passed[3][:2], passed[4][:1]))
        return 0

    library.functions["cuTensorMapEncodeTiled"] = CFUNCTYPE(c_int32, c_void_p, *_PASSED)(encode)
    fast = native_launcher(loaded, parameters, PythonLauncher(loaded, parameters), library)
    assert fast is not None
    fast((1, 1, 1), 0, (40, 3, 4096))
    assert encoded == [(4096 + 3 * 128, [40, 3], [80])]
    for refused in ((0, 3, 4096), (40, 0, 4096), (-40, 3, 4096), (41, 3, 4096), (40, 3, 4100)):
        with pytest.raises(RefusedError, match="the memory at addresses made of arguments 1, 2"):
            fast((1, 1, 1), 0, refused)
    assert len(encoded) == len(library.launches) == 1


@pytest.mark.parametrize(
    ("element", "kind"),
    [
        ("bf16", "BFLOAT16"),
        ("f32", "FLOAT32"),
        ("f64", "FLOAT64"),
        ("f8e4m3fn", "UINT8"),
        ("i8", "UINT8"),
        ("u16", "UINT16"),
        ("i32", "INT32"),
        ("u32", "UINT32"),
        ("i64", "INT64"),
        ("u64", "UINT64"),
        (ROUNDED, "TFLOAT32"),
    ],
)
def test_elements_of_maps(element: str, kind: str) -> None:
    told = asked(TensorMap.of_descriptor(0, element, (8, 32), 0, nan=True), (4096, 64, 64, 64, 1))
    assert told[0] == getattr(driver.CUtensorMapDataType, f"CU_TENSOR_MAP_DATA_TYPE_{kind}")
    assert (
        told[-1] == driver.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA
    )


@pytest.mark.parametrize("span", [0, 32, 64, 128])
def test_swizzles_of_maps(span: int) -> None:
    told = asked(TensorMap.of_descriptor(0, "f16", (8, 16), span, nan=False), WORDS)
    assert told[8] == getattr(
        driver.CUtensorMapSwizzle, f"CU_TENSOR_MAP_SWIZZLE_{f'{span}B' if span else 'NONE'}"
    )


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ((WORDS[0] + 8, *WORDS[1:]), "the address must be a multiple of 16, not 139637976731656"),
        (
            (WORDS[0], 1000, 72, 81, 1),
            r"strides must be multiples of 16 bytes from 0 to below 2\*\*40, not 162",
        ),
        (
            (WORDS[0], 1000, 72, -80, 1),
            r"strides must be multiples of 16 bytes from 0 to below 2\*\*40, not -160",
        ),
        ((WORDS[0], 1000, 72, 2**39, 1), r"from 0 to below 2\*\*40, not 1099511627776"),
        (
            (WORDS[0], 1000, 72, 80, 2),
            "the elements of a row must be side by side, its stride 1, not 2",
        ),
        ((WORDS[0], 0, 72, 80, 1), r"extents must be from 1 to 2\*\*32, not 0"),
        ((WORDS[0], 2**32 + 1, 72, 80, 1), r"extents must be from 1 to 2\*\*32, not 4294967297"),
    ],
)
def test_tensors_that_the_engine_cannot_reach(words: tuple[int, ...], why: str) -> None:
    with pytest.raises(
        RefusedError, match=f"k: the TMA unit cannot access the tensor of argument 0: .*{why}"
    ):
        asked(TensorMap.of_descriptor(0, "f16", (128, 64), 128, nan=False), words)


def test_what_the_driver_refuses_is_told() -> None:
    bindings = Encoding()
    bindings.settings.failures["cuTensorMapEncodeTiled"] = 1
    found = opaque(
        Driver(TABLE, bindings), TensorMap.of_descriptor(0, "f16", (128, 64), 128, nan=False)
    )
    block = ArgumentBlock("k", [Parameter("d", "desc<128x64xf16>")], int, [found])
    with pytest.raises(
        RefusedError,
        match=(
            "k: the TMA unit cannot access the tensor of argument 0: cuTensorMapEncodeTiled failed"
        ),
    ):
        block.place((SimpleNamespace(base=WORDS[0], shape=WORDS[1:3], strides=WORDS[3:]),))


def test_maps_are_parameters_behind_the_others() -> None:
    code = compiled(product_kernel((64, 64), 64, "f16", "f16"))
    loaded = image(Driver(TABLE, Encoding()), 1, CodeObject("k", b"", {}, code.metadata))
    assert [(each.inputs[0], each.size) for each in loaded.opaque] == [
        (word(0), 128),
        (word(1), 128),
    ]
    head = str(code.stages["llir"]).split("define", 1)[1].split("{", 1)[0]
    assert re.findall(r"%(\w+)[,)]", head)[-3:] == ["a12", "map0", "map1"]


def test_native_launches_pass_maps_of_their_own_arguments() -> None:
    text = product_kernel((64, 64), 64, "f16", "f16")
    bindings = Encoding()
    code = CodeObject("k", b"", {}, {**compiled(text).metadata, "format": "cubin"})
    loaded = LoadedKernel(code, 0, Driver(TABLE, bindings).start())
    library = StandInLibrary(TABLE, 11, 1000)
    library.sizes = (128, 128)
    encoded: list[tuple[int, list[int], list[int]]] = []

    def encode(structure: int, *passed: Any) -> int:
        encoded.append((passed[2], passed[3][:2], passed[4][:1]))
        memset(structure, len(encoded), 128)
        return 0

    library.functions["cuTensorMapEncodeTiled"] = CFUNCTYPE(c_int32, c_void_p, *_PASSED)(encode)
    slow = PythonLauncher(loaded, text.parameters)
    fast = native_launcher(loaded, text.parameters, slow, library)
    assert fast is not None
    tensors = [
        SimpleNamespace(base=4096 * (1 + number), shape=[100, 64 + number], strides=[128, 1])
        for number in range(2)
    ]
    bindings.calls.clear()
    fast((1, 1, 1), 0, (*tensors, 1 << 20))
    tensors[0].base = 1 << 16
    fast((1, 1, 1), 0, (*tensors, 1 << 20))
    assert not bindings.calls and [launch["words"][0] for launch in library.launches] == [
        4096,
        1 << 16,
    ]
    assert encoded == [
        (base, [columns, 100], [256])
        for base, columns in ((4096, 64), (8192, 65), (1 << 16, 64), (8192, 65))
    ]
    assert library.structures == [bytes([3]) * 128, bytes([4]) * 128]
    tensors[1].shape[0] = 0
    with pytest.raises(RefusedError, match="argument 1: extents must be from 1"):
        fast((1, 1, 1), 0, (*tensors, 1 << 20))
