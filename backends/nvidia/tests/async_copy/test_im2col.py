"""Loads of pixels in the order of a convolution: what is written, what ptxas takes, what the driver
is asked for, what is refused."""

from __future__ import annotations

import json
import re
from ctypes import CFUNCTYPE, POINTER, c_bool, c_int32, c_int64, c_void_p, cast
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from im2col_kernels import CASES, expected, module_of
from mock_bindings import FakeBindings

import tilewright.language as tl
from tilewright.errors import CompilationError, LoweringError
from tilewright.frontend.compile import compile_function
from tilewright.gpu_host.driver import Driver
from tilewright.gpu_host.encoding import encoder_code
from tilewright.ir.parser import parse_module
from tilewright.language.definitions.callable import device_function
from tilewright.language.options import Options
from tilewright.plugins.manifest import PORTABLE_OPTIONS, CodeObject, Target
from tilewright.plugins.registry import registry
from tilewright_nvidia.architectures import ARCHITECTURES, target_of
from tilewright_nvidia.async_copy.tensor_maps import PixelBox, TensorMap, opaque
from tilewright_nvidia.host.driver_table import TABLE
from tilewright_nvidia.lower import lower
from tilewright_nvidia.manifest import OPTIONS
from tilewright_nvidia.toolchain.linking import assemble

driver = pytest.importorskip("cuda.bindings.driver")


def compiled(
    arch: str, case: tuple[Any, ...] = CASES[0], divisibility: int = 16, **options: Any
) -> CodeObject:
    code = lower(
        module_of("fp16", case, divisibility),
        target_of(ARCHITECTURES[arch]),
        {**PORTABLE_OPTIONS, **OPTIONS, **options},
    )
    assemble(code.stages["ptx"], arch)
    return code


@pytest.mark.parametrize("arch", ["sm_90a", "sm_100a", "sm_120a"])
def test_a_thread_starts_a_copy_and_all_wait_for_it(arch: str) -> None:
    code = compiled(arch)
    text = str(code.stages["ptx"])
    copies = re.findall(
        (
            r"cp\.async\.bulk\.tensor\.4d\.\S+\.im2col\.mbarrier::complete_tx::bytes \[\S+\], "
            r"\[\S+, \{(.*?)\}\], \[\S+\], \{(.*?)\};"
        ),
        text,
    )
    # that of a loop, and that of the other map
    assert len(copies) == 2
    # behind the nine parts of the descriptor and the pointer: n, h, w, c; the innermost axis first
    (coordinates,) = {
        tuple(
            re.findall(rf"ld\.param\.b32 \t(%r\d+), \[window_param_{number}\]", text)[0]
            for number in (13, 12, 11, 10)
        )
    }
    assert [copy for copy, _ in copies] == [", ".join(coordinates)] * 2
    (down, right), (still, as_well) = (window.split(", ")[::-1] for _, window in copies)
    assert down != right and still == as_well
    named = (
        r"fence\.proxy|bar\.sync|barrier\.sync|mbarrier\.init|mbarrier\.arrive\.expect_tx|"
        r"cp\.async|mbarrier\.try_wait|mbarrier\.inval"
    )
    steps = re.findall(rf"^\s*({named})", text, re.M)
    meet = next(step for step in steps if step.endswith(".sync"))
    once = [
        "fence.proxy",
        meet,
        "mbarrier.init",
        "mbarrier.arrive.expect_tx",
        "cp.async",
        meet,
        "mbarrier.try_wait",
        meet,
        "mbarrier.inval",
    ]
    # before the next one nobody reads what the last one brought any more
    assert steps == [meet, *once, meet, *once] or steps == [meet, *once, *once], steps
    maps = [TensorMap.of(json.loads(json.dumps(facts))) for facts in code.metadata["tensor_maps"]]
    assert [one.pixel_box for one in maps] == [
        PixelBox((-1, -1), (high, high), 64) for high in (-1, -2)
    ]
    assert {one.box for one in maps} == {(1, 1, 1, 64)} and maps[0].facts() == code.metadata[
        "tensor_maps"
    ][0]


class Encoding(FakeBindings):
    """A driver that encodes maps as what it is asked for."""

    cuuint64_t = cuuint32_t = int
    CUtensorMapDataType = CUtensorMapInterleave = CUtensorMapSwizzle = CUtensorMapL2promotion = (
        CUtensorMapFloatOOBfill
    ) = int

    def _cuTensorMapEncodeIm2col(self, *asked: Any) -> Any:
        self.asked = asked
        return SimpleNamespace(opaque=list(range(16)))


#: Of the parameters of the driver's function behind the structure, and how many numbers those have
#: that are lists.
_PASSED = (
    c_int32,
    c_int32,
    c_int64,
    *[POINTER(c_int64)] * 2,
    *[POINTER(c_int32)] * 2,
    c_int32,
    c_int32,
    POINTER(c_int32),
    *[c_int32] * 4,
)
_LISTS = {3: 4, 4: 3, 5: 2, 6: 2, 9: 4}


def test_the_driver_is_asked_for_the_map_of_pixels() -> None:
    """By Python and by machine code alike: cuTensorMapEncodeIm2col, each list with the innermost
    axis first."""
    wanted = TensorMap.of_descriptor(
        0, "f16", (1, 1, 1, 64), 0, nan=False, pixel_box=PixelBox((-1, -2), (3, -4), 128)
    )
    bindings = Encoding()
    found = opaque(Driver(TABLE, bindings), wanted)
    words = (0x7F00_0000_1000, 5, 30, 40, 72, 40 * 80 * 30, 40 * 80, 80, 1)
    found.encode((*words[:5], *(2 * step for step in words[5:8])))
    passed: list[tuple[Any, ...]] = []

    def encode(structure: int, *given: Any) -> int:
        passed.append(
            tuple(
                list(one[: _LISTS[place]]) if place in _LISTS else one
                for place, one in enumerate(given)
            )
        )
        return 0

    function = CFUNCTYPE(c_int32, c_void_p, *_PASSED)(encode)
    code = encoder_code("k", [found], [0])
    assert (
        code is not None
        and found.native is not None
        and found.native.function == "cuTensorMapEncodeIm2col"
    )
    memory, places, functions = (
        (c_int64 * 32)(),
        (c_int64 * 1)(),
        (c_void_p * 1)(cast(function, c_void_p).value),
    )
    assert CFUNCTYPE(c_bool, *[c_void_p] * 4)(code.address("encode"))(
        (c_int64 * len(words))(*words), memory, places, functions
    )
    half = driver.CUtensorMapDataType.CU_TENSOR_MAP_DATA_TYPE_FLOAT16
    lists = [72, 40, 30, 5], [160, 6400, 192000], [-2, -1], [-4, 3]
    given = (
        half,
        4,
        words[0],
        *lists,
        64,
        128,
        [1, 1, 1, 1],
        0,
        0,
        driver.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
        0,
    )
    assert passed == [given]
    assert tuple(list(one) if isinstance(one, tuple) else one for one in bindings.asked) == given


@pytest.mark.parametrize(
    ("arch", "own", "message"),
    [
        ("sm_89", {}, "sm_89 has no such copies"),
        ("sm_90a", {"asynchronous": False}, "asynchronous=False forbids them"),
        ("sm_90a", {"divisibility": 8}, "must be multiples of 16 bytes"),
        ("sm_90a", {"case": (*CASES[0][:3], 4, *CASES[0][4:])}, "must be multiples of 16 bytes"),
    ],
)
def test_what_the_engine_cannot_load_is_refused(
    arch: str, own: dict[str, Any], message: str
) -> None:
    with pytest.raises(LoweringError, match=message):
        compiled(arch, **own)


@device_function
def made(x, out):
    images = tl.make_tensor_descriptor(x, [2, 8, 8, 64], [4096, 512, 64, 1], [1, 1, 1, 64])
    tile = tl.extra.cuda.load_im2col(images, [0, 0, 0, 0], [0, 0], 16, [0, 0], [0, 0])
    tl.store(out + tl.arange(0, 16)[:, None] * 64 + tl.arange(0, 64)[None, :], tile)


@device_function
def asked(x, out, PIXELS: tl.constexpr, WINDOW: tl.constexpr):
    tl.extra.cuda.load_im2col(x, [0, 0, 0, 0], WINDOW, PIXELS, [0, 0], [0, 0])


def test_arguments_that_do_not_fit_together() -> None:
    with pytest.raises(CompilationError, match="a descriptor that is an argument of the kernel"):
        compile_function(made, {"x": "*fp16", "out": "*fp16"}, {})
    types = {
        "x": "tensordesc<fp16[1,1,1,64]>",
        "out": "*fp16",
        "PIXELS": "constexpr",
        "WINDOW": "constexpr",
    }
    for pixels, window, message in (
        (48, (0, 0), "a power of two up to 1024, not 48"),
        (64, (0,), "window must be 2 integers"),
    ):
        with pytest.raises(CompilationError, match=message):
            compile_function(asked, types, {"PIXELS": pixels, "WINDOW": window})
    with pytest.raises(CompilationError, match="targets of kind 'cuda', not 'hip'"):
        target = Target("other", "x", "x", (), 64, {}, kind="hip")
        compile_function(
            asked, types, {"PIXELS": 64, "WINDOW": (0, 0)}, {}, Options(target=target, num_warps=4)
        )


def test_the_operation_is_one_of_the_backends() -> None:
    """So that kernels are read again, by other processes and from files."""
    text = str(module_of("fp16", CASES[1]))
    assert (
        "nvidia.load_im2col" in text
        and str(parse_module(text, registry().get("nvidia").table)) == text
    )


def test_what_the_tests_on_the_device_compare_with_is_a_convolution() -> None:
    """The pixels that they expect, times a filter, are a convolution computed directly."""
    (n, height, width, depth), *_ = case = ((2, 5, 6, 8), (0, -1, -1, 0), 64, 8, (3, 3), -1, -1, -1)
    rng = np.random.default_rng(0)
    images, weights = (
        rng.integers(-3, 4, (n, height, width, depth)),
        rng.integers(-3, 4, (3, 3, depth, 4)),
    )
    tiles = expected(images, case)[:9].reshape(3, 3, 64, depth)
    padded = np.pad(images, ((0, 0), (1, 1), (1, 1), (0, 0)))
    direct = sum(
        padded[:, r : r + height, s : s + width] @ weights[r, s] for r in range(3) for s in range(3)
    )
    found = sum(tiles[r, s] @ weights[r, s] for r in range(3) for s in range(3))
    assert (
        np.array_equal(found[: n * height * width], np.reshape(direct, (-1, 4)))
        and not found[n * height * width :].any()
    )
