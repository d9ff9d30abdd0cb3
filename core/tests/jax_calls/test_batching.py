"""Effects of a kernel call from JAX on memory, without JAX.

Covers batches, results that begin as operands, and the interface of XLA.
"""

import ctypes
import math
import sys
from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("tilewright_cpu")

import tilewright as tw
import tilewright.language as tl
from tilewright.errors import LaunchError
from tilewright.jax import ffi
from tilewright.jax.batching import axes_read, batched
from tilewright.jax.call import KernelCall, _jax, _kind
from tilewright.jax.work import copy
from tilewright.runtime.arguments.array_protocols import ArrayView
from tilewright.runtime.arguments.dtypes import dtype_text


@tw.jit
def scaled(x, factor, out, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < n
    tl.store(
        out + offsets,
        tl.load(x + offsets, mask=inside) * tl.load(factor) + tl.load(out + offsets, mask=inside),
        mask=inside,
    )


def view(array):
    strides = tuple(stride // array.itemsize for stride in array.strides)
    return ArrayView(
        array, array.ctypes.data, dtype_text(array.dtype), array.shape, strides, ("cpu", 0)
    )


def run(x, factor, start, shape, axis=1, grid=(3, 1, 1), stream=None):
    """The result for a batch of ``shape``, and (stream, kernel) -> launches."""
    call = KernelCall(
        "k",
        scaled,
        {"x": 1, "factor": 0, "out": 1},
        {"out": 1},
        {"n": 10, "BLOCK": 4},
        {},
        grid,
        axis,
    )
    out = np.empty((*shape, 10), np.float32)
    with launches() as counted:
        call.run([view(x), view(factor), view(start)], [view(out)], stream)
    return out, counted


class launches:
    def __enter__(self):
        self.counted = Counter()
        self.hook = lambda metadata: self.counted.update(
            [(metadata.data["stream"], metadata.data["name"])]
        )
        tw.hooks.launch_enter.add(self.hook)
        return self.counted

    def __exit__(self, *error):
        tw.hooks.launch_enter.remove(self.hook)


def random(seed, *shape):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@pytest.mark.each_value
@pytest.mark.parametrize("stream", [None, 0, 77])
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(
    ("x", "factor", "start", "shape", "axis", "expected"),
    [
        ((), (), (), (), 1, 1),
        ((5,), (5,), (5,), (5,), 1, 1),
        ((5,), (1,), (1,), (5,), 1, 1),
        ((1,), (5,), (5,), (5,), 2, 1),
        ((2, 3), (2, 3), (1, 1), (2, 3), 1, 1),
        ((2, 3), (1, 3), (2, 1), (2, 3), 1, 6),  # no one step from element to element
        ((5,), (1,), (5,), (5,), None, 5),  # no axis is left
    ],
)
def test_batches(seed, x, factor, start, shape, axis, expected, stream):
    """On devices with streams what a result begins as is copied in the stream, too, by a kernel."""
    arrays = random(seed, *x, 10), random(seed + 1, *factor), random(seed + 2, *start, 10)
    out, counted = run(*arrays, shape, axis, stream=stream)
    np.testing.assert_allclose(
        out,
        np.broadcast_to(arrays[0] * arrays[1][..., None] + arrays[2], (*shape, 10)),
        rtol=1e-5,
        atol=1e-6,
    )
    copies = 0 if stream is None else counted.pop((stream, "copied"))
    assert copies == (0 if stream is None else 1 if start == shape else math.prod(shape))
    assert sum(counted.values()) == expected and {used for used, _ in counted} == {stream}


def test_empty_batches_and_grids_launch_nothing():
    for stream in (None, 5):
        assert not run(random(0, 0, 10), random(0, 1), random(0, 1, 10), (0,), stream=stream)[1]
    out, counted = run(random(0, 10), random(0), random(1, 10), (), grid=(0, 1, 1))
    assert not counted and np.array_equal(out, random(1, 10))


@pytest.mark.parametrize("dtype", ["bool", "uint8", "float16", "int32", "float64", "fp8e5", "bf16"])
def test_copies_are_of_the_same_bytes(dtype):
    size = {"fp8e5": 1, "bf16": 2}.get(dtype) or np.dtype(dtype).itemsize
    text = dtype if dtype in ("fp8e5", "bf16") else dtype_text(np.dtype(dtype))
    source, target = np.random.default_rng(0).integers(0, 256, (2, 3001 * size), np.uint8)
    before = target.copy()
    copy(
        *(
            ArrayView(array, array.ctypes.data, text, (3001,), (1,), ("cpu", 0))
            for array in (source, target)
        ),
        2999,
        1,
    )
    assert np.array_equal(target[: 2999 * size], source[: 2999 * size]) and np.array_equal(
        target[2999 * size :], before[2999 * size :]
    )


def test_the_kernel_of_a_batch_is_made_once():
    assert (
        batched(scaled, 1, ("x", "out"))
        is batched(scaled, 1, ("x", "out"))
        is not batched(scaled, 2, ("x", "out"))
    )
    assert batched(scaled, 1, ("x",)).arg_names == [
        "x",
        "factor",
        "out",
        "n",
        "BLOCK",
        "step_of_x_in_the_batch",
    ]


def test_axes_that_a_kernel_reads():
    @tw.jit
    def reads(out):
        tl.store(out, tl.program_id(0) + tl.num_programs(2))

    compiled = reads.warmup(np.zeros(1, np.int32))
    assert axes_read(compiled) == {0, 2}


# ---- JAX


def imitated(platform, version=""):
    """JAX, as far as it is asked before a call is traced."""
    registered = {}
    ffi_ = SimpleNamespace(
        pycapsule=lambda handler: handler,
        register_ffi_target=lambda name, handler, platform: registered.update({platform: handler}),
    )
    device = SimpleNamespace(client=SimpleNamespace(platform_version=version))
    return SimpleNamespace(
        ffi=ffi_, default_backend=lambda: platform, devices=lambda: [device], registered=registered
    )


@pytest.mark.parametrize(
    ("platform", "version", "expected"),
    [
        ("cpu", "<unknown>", "cpu"),
        ("gpu", "PJRT C API\ncuda 12090", "cuda"),
        ("gpu", "PJRT C API\nrocm 60400", "hip"),
    ],
)
def test_calls_are_traced_for_the_devices_that_jax_computes_on(platform, version, expected):
    assert _kind(imitated(platform, version)) == expected


def test_other_devices_are_refused():
    with pytest.raises(LaunchError, match="on CPUs and GPUs, not on tpu"):
        _kind(imitated("tpu", "TFRT TPU v5"))


def test_jax_knows_a_function_for_each_kind_of_device(monkeypatch):
    found = imitated("cpu")
    monkeypatch.setitem(sys.modules, "jax", found)
    assert _jax.__wrapped__() is found
    assert (
        list(found.registered) == ["cpu", "CUDA", "ROCM"]
        and len(set(map(id, found.registered.values()))) == 3
    )


# ---- XLA's interface


class Frame:
    """A call as XLA makes it."""

    def __init__(self, arrays, results, attributes, stage=3, extension=None, major=0):
        self.errors, self.kept = [], []

        def create(error):
            self.errors.append((error.contents.message.decode(), error.contents.code))
            return 77

        version = ffi._Version(ctypes.sizeof(ffi._Version), None, major, 3)
        self.api = self.keep(ffi._Api(ctypes.sizeof(ffi._Api), None, version))
        self.api.error_create = self.entry(ffi._CreateError(create))
        self.frame = ffi._Frame(
            ctypes.sizeof(ffi._Frame),
            extension,
            ctypes.pointer(self.api),
            1234,
            stage,
            self.listed(arrays),
            self.listed(results),
            self.texts(attributes),
        )

    def keep(self, item):
        self.kept.append(item)
        return item

    def entry(self, function):
        return ctypes.cast(self.keep(function), ctypes.c_void_p)

    def answers(self, question, answer):
        """Return an entry that describes this call, or raise an error if there is no answer."""

        def answered(address):
            asked = question.from_address(address)
            assert (asked.struct_size, asked.context) == (ctypes.sizeof(question), 1234)
            if answer is None:
                return 99
            asked.answer = answer
            return None

        return self.entry(ffi._Ask(answered))

    def listed(self, arrays):
        addresses = []
        for number, array in arrays:
            extents = self.keep((ctypes.c_int64 * array.ndim)(*array.shape))
            buffer = ffi._Buffer(
                ctypes.sizeof(ffi._Buffer),
                None,
                number,
                array.ctypes.data,
                array.ndim,
                ctypes.cast(extents, ctypes.POINTER(ctypes.c_int64)),
            )
            addresses.append(ctypes.addressof(self.keep(buffer)))
        items = self.keep((ctypes.c_void_p * len(arrays))(*addresses))
        return ffi._Buffers(
            ctypes.sizeof(ffi._Buffers),
            None,
            len(arrays),
            None,
            ctypes.cast(items, ctypes.POINTER(ctypes.c_void_p)),
        )

    def texts(self, attributes):
        def spans(texts):
            found = []
            for text in texts:
                data = self.keep(ctypes.create_string_buffer(text.encode()))
                found.append(
                    ctypes.addressof(self.keep(ffi._Span(ctypes.addressof(data), len(text))))
                )
            return ctypes.cast(
                self.keep((ctypes.c_void_p * len(found))(*found)), ctypes.POINTER(ctypes.c_void_p)
            )

        return ffi._Attributes(
            ctypes.sizeof(ffi._Attributes),
            None,
            len(attributes),
            None,
            spans(attributes),
            spans(attributes.values()),
        )

    def call(self, run, kind="cpu"):
        return ffi.make_handler(run, kind)(ctypes.addressof(self.frame))


def test_arrays_and_attributes_arrive():
    x, half, out = random(0, 2, 3), np.zeros(4, np.float16), np.zeros((2, 3), np.float32)
    seen = []

    def take(attributes, arrays, outputs, stream):
        assert stream is None and {array.device for array in (*arrays, *outputs)} == {("cpu", 0)}
        seen.append((attributes, [(array.dtype, array.shape, array.pointer) for array in arrays]))
        ctypes.memmove(outputs[0].pointer, arrays[0].pointer, arrays[0].nbytes)

    frame = Frame([(11, x), (10, half)], [(11, out)], {"key": "a key", "more": ""})
    assert frame.call(take) is None and np.array_equal(out, x)
    assert seen == [
        (
            {"key": "a key", "more": ""},
            [("fp32", (2, 3), x.ctypes.data), ("fp16", (4,), half.ctypes.data)],
        )
    ]
    assert (
        Frame([(11, x)], [(11, out)], {}, stage=0).call(take) is None and len(seen) == 1
    )  # before it runs


@pytest.mark.parametrize(
    ("kind", "device", "stream"), [("cuda", 0, 0), ("cuda", 3, 1 << 40), ("hip", 1, 8)]
)
def test_devices_and_streams_arrive(kind, device, stream):
    x, seen = random(0, 4), []
    frame = Frame([(11, x)], [(11, x)], {})
    frame.api.stream_get, frame.api.device_ordinal_get = (
        frame.answers(ffi._StreamQuestion, stream),
        frame.answers(ffi._DeviceQuestion, device),
    )
    assert (
        frame.call(
            lambda attributes, arrays, outputs, stream: seen.append(
                (arrays[0].device, outputs[0].device, stream)
            ),
            kind,
        )
        is None
    )
    assert seen == [((kind, device), (kind, device), stream)]
    frame.api.stream_get = frame.answers(ffi._StreamQuestion, None)
    assert (
        frame.call(lambda *given: seen.append(given), kind) == 99
        and len(seen) == 1
        and not frame.errors
    )


def test_an_interface_that_does_not_tell_the_device_is_refused():
    frame = Frame([], [], {})
    frame.api.struct_size = ffi._Api.device_ordinal_get.offset
    frame.api.stream_get = frame.answers(ffi._StreamQuestion, 1)
    frame.api.device_ordinal_get = frame.answers(ffi._DeviceQuestion, 1)
    assert frame.call(lambda *given: None, "cuda") == 77
    assert (
        "does not tell functions where they run (device_ordinal_get): update jax and jaxlib"
        in frame.errors[0][0]
    )


def test_errors_are_told():
    frame = Frame([], [], {})
    assert frame.call(lambda *given: 1 / 0) == 77
    assert frame.errors == [("ZeroDivisionError: division by zero", 13)]


@pytest.mark.parametrize("major", [0, 1])
def test_the_version_is_told(major):
    told = ffi._Metadata(ctypes.sizeof(ffi._Metadata))
    extension = ffi._MetadataExtension(
        ffi._Extension(ctypes.sizeof(ffi._MetadataExtension), 1, None), ctypes.pointer(told)
    )
    frame = Frame([], [], {}, extension=ctypes.addressof(extension), major=major)
    found = frame.call(lambda *given: 1 / 0)
    if major:
        assert found == 77 and "this is version 1" in frame.errors[0][0]
    else:
        assert found is None and (told.version.major, told.version.minor) == (0, 3)
