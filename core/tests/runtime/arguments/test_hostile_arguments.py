"""Rejection of invalid arguments, by an error that names kernel, parameter and remedy."""

import numpy as np
import pytest
from optional_torch import torch

import tilewright as tw
import tilewright.language as tl
from tilewright.errors import BackendError, LaunchError
from tilewright.runtime.arguments.array_protocols import ArgumentError
from tilewright.runtime.launch.grid import sizes


@tw.jit
def put(y, a, WIDTH: tl.constexpr = 4):
    tl.store(y, a)


def fake_tensor():
    pytest.importorskip("torch")
    from torch._subclasses import FakeTensorMode

    with FakeTensorMode():
        return torch.zeros(16)


class Holder:
    """An array of somebody's, with one attribute wrong."""

    dtype, device = "float32", "cpu"
    memory = np.zeros(16, np.float32)

    def data_ptr(self):
        return self.memory.ctypes.data


def holder(**wrong):
    return type("Holder", (Holder,), wrong)()


def failing(*_, **__):
    raise RuntimeError("the memory is gone")


ARRAYS = {
    "meta": (lambda: torch.zeros(3, device="meta"), "has no memory"),
    "traced": (fake_tensor, "has no memory"),
    "sparse": (lambda: torch.zeros(16).to_sparse(), "layout is torch.sparse_coo: pass its parts"),
    "csr": (
        lambda: torch.zeros(4, 4).to_sparse_csr(),
        "layout is torch.sparse_csr: pass its parts",
    ),
    "complex": (lambda: torch.zeros(3, dtype=torch.complex64), "pass the real and imaginary parts"),
    "storage": (lambda: torch.zeros(3).untyped_storage(), "does not tell where its memory is"),
    "null": (lambda: holder(data_ptr=lambda self: 0), "has no memory"),
    "text address": (
        lambda: holder(data_ptr=lambda self: "here"),
        "does not tell where its memory is",
    ),
    "failing address": (lambda: holder(data_ptr=failing), "RuntimeError: the memory is gone"),
    "no function": (lambda: holder(data_ptr=5), "does not tell where its memory is"),
    "device": (lambda: holder(device="cuda:x"), "does not tell where its memory is"),
    "dtype": (lambda: holder(dtype="floaty"), "floaty has no counterpart"),
    "interface number": (
        lambda: type("A", (), {"__array_interface__": 5})(),
        "does not tell where its memory is",
    ),
    "interface null": (
        lambda: type(
            "A",
            (),
            {
                "__array_interface__": {
                    "typestr": "<f4",
                    "shape": (8,),
                    "data": (0, False),
                    "version": 3,
                }
            },
        )(),
        "has no memory",
    ),
    "interface empty": (
        lambda: type("A", (), {"__array_interface__": {}})(),
        "KeyError: 'typestr'",
    ),
    "dlpack number": (
        lambda: type("A", (), {"__dlpack__": lambda self, **_: 5})(),
        "invalid PyCapsule",
    ),
    "dlpack failing": (lambda: type("A", (), {"__dlpack__": failing})(), "the memory is gone"),
    "long double": (lambda: np.zeros(3, np.longdouble), "has no counterpart"),
    "big-endian": (lambda: np.zeros(3, ">f4"), "byte order"),
    "structure": (lambda: np.zeros(3, [("a", "f4")]), "pass each field"),
    "objects": (lambda: np.array([None]), "Python objects"),
}


@pytest.mark.filterwarnings(
    "ignore::UserWarning:torch",
    "ignore:Sparse CSR",
    "ignore:Accessing the data pointer of FakeTensor",
)
@pytest.mark.parametrize("make", ARRAYS.values(), ids=ARRAYS)
def test_arrays_without_readable_memory(recorder, make):
    array, reason = make[0](), make[1]
    with pytest.raises(ArgumentError, match="put: argument 'y': cannot pass this ") as raised:
        put[(1,)](array, 2)
    assert reason in str(raised.value)
    assert recorder.launches == []


@pytest.mark.parametrize("empty", [torch.zeros(0), np.zeros(0, np.float32)], ids=["torch", "numpy"])
def test_arrays_without_elements_pass(recorder, empty):
    put[(1,)](empty, 2)
    assert len(recorder.launches) == 1


def test_gradients_and_views_pass_as_their_memory(recorder):
    leaf, view, scalar = torch.zeros(4, requires_grad=True), torch.zeros(8)[::2], torch.tensor(3.0)
    for tensor in (leaf, view, scalar):
        put[(1,)](tensor, 2)
        assert recorder.launches[-1][2][0] is tensor


def test_a_stand_in_is_for_warming_up(recorder):
    with pytest.raises(
        LaunchError,
        match=(
            r"put: argument 'y' only stands for a tensor and has no memory; compile with "
            r"put\.warmup"
        ),
    ):
        put[(1,)](tw.MockTensor(tl.float32), 2)
    assert put.warmup(tw.MockTensor(tl.float32), 2, grid=(1,)) is not None


@pytest.mark.parametrize("value", [2**64, -(2**63) - 1, 1 << 5000])
def test_integers_of_more_than_64_bits_name_the_parameter(recorder, value):
    with pytest.raises(
        OverflowError, match=r"put: argument 'a': an integer of \d+ bits, .* does not fit 64 bits"
    ) as raised:
        put[(1,)](np.zeros(1), value)
    assert isinstance(raised.value, LaunchError)
    assert len(str(raised.value)) < 200


@pytest.mark.parametrize(
    "value", [[1], {}, {1}, 1j, "a", b"a", np.datetime64("2020"), np.complex64(1), slice(1), type]
)
def test_values_that_are_no_arguments_name_the_parameter(recorder, value):
    with pytest.raises(ArgumentError, match="put: argument 'a': Unsupported type"):
        put[(1,)](np.zeros(1), value)
    with pytest.raises(ArgumentError, match="put: argument 'a': Unsupported type"):
        put.warmup(np.zeros(1), value, grid=(1,))


@pytest.mark.parametrize(
    "value",
    [{1: 2}, set(), bytearray(b"x"), np.zeros(3), torch.zeros(3)],
    ids=lambda value: type(value).__name__,
)
def test_constants_that_are_none_name_the_parameter(recorder, value):
    with pytest.raises(ArgumentError, match="put: argument 'WIDTH': a constexpr argument must be"):
        put[(1,)](np.zeros(1), 2, value)


# ---- grids, options, backends


@pytest.mark.parametrize(
    "grid",
    ["4", b"ab", bytearray(b"a"), {"x": 1}, {1}, None, (None,), ((1,),), 1.0, (np.float32(2),)],
    ids=repr,
)
def test_what_has_no_sizes(grid):
    with pytest.raises(LaunchError, match="a grid is one to three integers"):
        sizes(grid)


def test_grids_no_program_id_can_count():
    largest = 2**31 - 1
    assert sizes((largest, largest, 2)) == (largest, largest, 2)
    for grid in ((2**31,), (1, 2**31), (1, 1, 2**70), (0, 2**31)):
        with pytest.raises(LaunchError, match=r"below 2\*\*31"):
            sizes(grid)
    with pytest.raises(LaunchError, match=r"at most 2\*\*63 - 1 programs"):
        sizes((largest, largest, largest))


def test_what_a_grid_function_raises_comes_through(recorder):
    with pytest.raises(KeyError, match="NOPE"):
        put[lambda meta: (meta["NOPE"],)](np.zeros(1), 2)
    with pytest.raises(LaunchError, match="one to three integers"):
        put[lambda meta: None](np.zeros(1), 2)


@pytest.mark.parametrize("value", [np.int64(8), np.uint8(8)])
def test_options_are_integers_of_any_library(recorder, value):
    put[(1,)](np.zeros(1), 2, num_warps=value)
    assert recorder.lowered[-1]["num_warps"] == 8
    assert type(recorder.lowered[-1]["num_warps"]) is int


@pytest.mark.parametrize("value", [None, np.True_, 8.0, [8], "8"])
def test_options_that_are_none(recorder, value):
    with pytest.raises(LaunchError, match="option num_warps must be a positive integer, not"):
        put[(1,)](np.zeros(1), 2, num_warps=value)


@pytest.mark.parametrize("name", [None, 3, ["cpu"]])
def test_backends_are_asked_for_by_name(recorder, name):
    with pytest.raises(BackendError, match="by its name, a string, not by"):
        put[(1,)](np.zeros(1), 2, backend=name)
    with pytest.raises(BackendError, match="by its name, a string, not by"):
        tw.backend(name)


def test_a_backend_the_environment_asks_for_in_vain(recorder, monkeypatch):
    from tilewright.runtime.devices import backend_choice

    monkeypatch.setenv("TILEWRIGHT_BACKEND", " npu ")
    backend_choice.refresh_environment()
    with pytest.raises(
        BackendError,
        match=r"no backend named 'npu' is installed[\s\S]*TILEWRIGHT_BACKEND asks for it",
    ):
        put[(1,)](np.zeros(1), 2)


def test_options_of_a_context_need_not_be_hashable(install_recorder):
    listening = install_recorder(name="listening", options={"shape": ()})
    with tw.backend("listening", shape=[1, 2]):
        put[(1,)](np.zeros(1), 2)
    assert listening.lowered[-1]["shape"] == [1, 2]
