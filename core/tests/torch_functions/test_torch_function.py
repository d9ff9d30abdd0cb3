"""Kernels as functions of PyTorch: gradients, graphs, and what is refused."""

from __future__ import annotations

import warnings

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("tilewright_cpu")

import tilewright as tw  # noqa: E402
import tilewright.language as tl  # noqa: E402
import tilewright.torch  # noqa: E402
from tilewright.errors import DefinitionError, LaunchError  # noqa: E402
from tilewright.torch import like  # noqa: E402
from tilewright.torch.call_layout import pack, unpack  # noqa: E402
from tilewright.torch.gradient_memory import GradientMemory  # noqa: E402


@tw.jit
def gated(x, w, out, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    a = tl.load(x + offsets, mask=mask)
    b = tl.load(w + offsets, mask=mask)
    tl.store(out + offsets, a * tl.sigmoid(a) * b, mask=mask)


@tw.jit
def row_softmax(x, out, total, row_stride, n, temperature, BLOCK: tl.constexpr, LOG: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    mask = columns < n
    a = tl.load(x + row * row_stride + columns, mask=mask, other=-float("inf")) / temperature
    e = tl.exp(a - tl.max(a, axis=0))
    s = tl.sum(e, axis=0)
    result = e / s
    if LOG == "log":
        result = tl.log(result)
    tl.store(out + row * n + columns, result, mask=mask)
    tl.store(total + row, tl.log(s) + tl.max(a, axis=0))


@tw.jit
def scaled_rows(x, w, out, row_stride, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    mask = columns < n
    a = tl.load(x + row * row_stride + columns, mask=mask)
    b = tl.load(w + columns, mask=mask)
    tl.store(out + row * n + columns, a * b, mask=mask)


def one_axis(meta):
    return (tw.cdiv(meta["n"], meta["BLOCK"]),)


swiglu = tilewright.torch.function(
    gated, outputs={"out": like("x")}, wrt=("x", "w"), grid=one_axis, name="test_swiglu"
)
softmax = tilewright.torch.function(
    row_softmax,
    outputs={
        "out": like("x", shape=lambda x: x.shape),
        "total": like("x", shape=lambda x: x.shape[:1]),
    },
    wrt="x",
    saved="out",
    grid=lambda meta: (meta["x"].shape[0],),
    name="test_softmax",
    BLOCK=64,
)
scale = tilewright.torch.function(
    scaled_rows,
    outputs={"out": lambda a: a["x"].new_empty(a["x"].shape)},
    wrt=("x", "w"),
    grid=lambda meta: (meta["x"].shape[0],),
    name="test_scale",
    BLOCK=64,
)


def random(*shape, dtype=torch.float32, seed=0):
    generator = torch.Generator().manual_seed(seed + len(shape))
    return torch.randn(*shape, generator=generator).to(dtype).requires_grad_()


def gradients(function, *inputs, cotangent=None):
    out = function(*inputs)
    wanted = [each for each in inputs if each.requires_grad]
    seed = seed_of(out) if cotangent is None else cotangent
    return out, *torch.autograd.grad(out, wanted, seed)


def seed_of(out):
    return torch.randn(out.shape, generator=torch.Generator().manual_seed(7)).to(out.dtype)


def test_gradients_are_those_of_pytorch() -> None:
    x, w = random(10, 37), random(10, 37, seed=1)
    found = gradients(lambda x, w: swiglu(2 * x, w, x.numel(), BLOCK=128), x, w)
    wanted = gradients(lambda x, w: torch.nn.functional.silu(2 * x) * w, x, w)
    torch.testing.assert_close(found, wanted)
    # an expanded cotangent, as a sum has
    (dx,) = torch.autograd.grad(swiglu(x, w, 370, BLOCK=128).sum(), x)
    (expected,) = torch.autograd.grad((torch.nn.functional.silu(x) * w).sum(), x)
    torch.testing.assert_close(dx, expected)


def test_only_wanted_gradients_are_derived() -> None:
    x, w = random(10, 37), random(10, 37, seed=1).detach()
    (dx,) = torch.autograd.grad(swiglu(x, w, 370, BLOCK=128).sum(), x)
    assert list(swiglu._adjoints)[-1][1] == ("x",)
    torch.testing.assert_close(
        dx, gradients(swiglu_of_torch, x, w, cotangent=torch.ones(10, 37))[1]
    )
    with torch.no_grad():
        assert not swiglu(x, w, 370, BLOCK=128).requires_grad
    assert not swiglu(x.detach(), w, 370, BLOCK=128).requires_grad


def swiglu_of_torch(x, w):
    return torch.nn.functional.silu(x) * w


@pytest.mark.parametrize("used", ["both", "out", "total"])
def test_several_outputs_of_which_some_have_no_cotangent(used) -> None:
    x = random(5, 50)

    def loss(out, total):
        return (out**2).sum() * (used != "total") + (total**3).sum() * (used != "out")

    def pick(out, total):
        return {"both": loss(out, total), "out": (out**2).sum(), "total": (total**3).sum()}[used]

    found = torch.autograd.grad(pick(*softmax(x, 50, 50, 0.5, LOG="")), x)
    wanted = torch.autograd.grad(pick(torch.softmax(x / 0.5, 1), torch.logsumexp(x / 0.5, 1)), x)
    torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-5)


def test_texts_are_constants() -> None:
    x = random(5, 50)
    found = gradients(lambda x: softmax(x, 50, 50, 1.0, LOG="log")[0], x)
    torch.testing.assert_close(found, gradients(lambda x: torch.log_softmax(x, 1), x))


def test_narrow_floats_are_summed_in_float32() -> None:
    x, w = random(300, 50, dtype=torch.bfloat16), random(50, dtype=torch.bfloat16, seed=1)
    _, dx, dw = gradients(lambda x, w: scale(x, w, 50, 50), x, w)
    expected = gradients(
        lambda x, w: x * w,
        x.detach().double().requires_grad_(),
        w.detach().double().requires_grad_(),
    )
    assert dw.dtype == dx.dtype == torch.bfloat16
    torch.testing.assert_close(dx.double(), expected[1], rtol=1e-2, atol=1e-2)
    torch.testing.assert_close(dw.double(), expected[2], rtol=1e-2, atol=1e-2 * 300**0.5)


@tw.jit
def taken_rows(x, indices, out, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    a = tl.load(x + tl.load(indices + row) * n + columns, mask=columns < n)
    tl.store(out + row * n + columns, a, mask=columns < n)


@pytest.fixture
def memories(monkeypatch):
    """The arrays to which adjoints write, of the launches of a test."""
    found = []
    original = GradientMemory.gradient

    def recorded(self):
        found.append(self.array.dtype)
        return original(self)

    monkeypatch.setattr(GradientMemory, "gradient", recorded)
    return found


def test_narrow_gradients_are_stored_where_they_are_not_added_to(memories) -> None:
    x, w = random(300, 50, dtype=torch.float16), random(50, dtype=torch.float16, seed=1)
    for _ in range(2):
        _, dx, dw = gradients(lambda x, w: scale(x, w, 50, 50), x, w)
    assert memories == [torch.float16] * 4
    wide = [each.detach().double().requires_grad_() for each in (x, w)]
    expected = gradients(lambda x, w: x * w, *wide)
    torch.testing.assert_close(dx.double(), expected[1], rtol=1e-3, atol=1e-6)
    # products in float16 are rounded before they are summed
    torch.testing.assert_close(dw.double(), expected[2], rtol=2e-3, atol=1e-2)

    memories.clear()
    take = tilewright.torch.function(
        taken_rows, outputs={"out": lambda named: named["x"].new_empty(2000, 50)}, wrt="x",
        grid=(2000,), name="test_taken_rows", BLOCK=64,
    )  # fmt: skip
    found = gradients(lambda x: take(x, torch.zeros(2000, dtype=torch.int64), 50), x)[1]
    assert memories == [torch.float32]
    cotangents = gradients(lambda x: x[torch.zeros(2000, dtype=torch.int64)], wide[0])[1]
    torch.testing.assert_close(found.double(), cotangents, rtol=1e-3, atol=0.05)


def test_inputs_with_gaps() -> None:
    w = random(50)
    wide = random(6, 80)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # the stride is an argument
        found = gradients(lambda x, w: scale(x[:, :50], w, x.stride(0), 50), wide, w)
    torch.testing.assert_close(found, gradients(lambda x, w: x[:, :50] * w, wide, w))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize(
    "view",
    [
        lambda row: row.expand(6, 50),
        lambda row: row[0, None].expand(6, 50),
        lambda row: (row * 2).expand(6, 50),
        lambda row: row[0].unfold(0, 20, 3),
        lambda row: row[0].as_strided((6, 25), (2, 1), 5),
    ],
)
def test_bases_of_elements_that_share_memory_have_the_sum_of_the_gradients(view, dtype) -> None:
    row, w = random(1, 50), random(50, seed=1)
    row = row.detach().to(dtype).requires_grad_()

    def kernel(row, w):
        x = view(row)
        return scale(x, w.to(dtype), x.stride(0), x.shape[1])

    def pytorch(row, w):
        x = view(row)
        return x * w[: x.shape[1]]

    out, *found = gradients(kernel, row, w)
    wide = row.detach().double().requires_grad_(), w.detach().double().requires_grad_()
    expected = gradients(pytorch, *wide, cotangent=seed_of(out).double())
    near = {"rtol": 1e-5, "atol": 1e-6} if dtype == torch.float32 else {"rtol": 4e-3, "atol": 4e-3}
    torch.testing.assert_close(
        [out.double(), *[each.double() for each in found]], [*expected], **near
    )


def test_gradients_of_elements_that_share_memory_are_refused_where_they_show() -> None:
    row, w = random(1, 50), random(50)
    leaf = row.detach().expand(6, 50).requires_grad_()
    retained, hooked = row.expand(6, 50), row.expand(6, 50)
    retained.retain_grad()
    hooked.register_hook(lambda gradient: pytest.fail("the gradient is refused before"))
    part = row.expand(7, 50)[1:]
    twice = row.expand(6, 50)[None].expand(1, 6, 50).as_strided((6, 50), (0, 1))
    for x, observer in (
        (leaf, "it is a leaf"),
        (retained, "it retains its gradient"),
        (hooked, "it has hooks"),
        (part, "its gradient passes through SliceBackward0"),
        (leaf.expand(6, 50), "it is a view of a tensor whose elements share memory"),
        (twice, "it is a view of a tensor whose elements share memory"),
    ):
        out = scale(x, w, 0, 50)
        torch.testing.assert_close(out, x * w)  # forward, they are inputs as any other
        advice = rf"elements share memory.*{observer}; pass x\.contiguous\(\)"
        with pytest.raises(LaunchError, match=advice):
            out.sum().backward()
    assert leaf.grad is None and retained.grad is None and row.grad is None
    x = row.expand(6, 50)
    with pytest.raises(LaunchError, match=r"a result of torch\.autograd\.grad"):
        torch.autograd.grad(scale(x, w, 0, 50).sum(), x)
    # w has a gradient where x wants none
    found = gradients(lambda w: scale(leaf.detach(), w, 0, 50), w)
    torch.testing.assert_close(found, gradients(lambda w: leaf.detach() * w, w))

    # each element of the copy has its own gradient
    seed = torch.randn(6, 50)
    found = gradients(lambda x: scale(x.contiguous(), w.detach(), 50, 50), leaf, cotangent=seed)
    torch.testing.assert_close(found[1], seed * w.detach())


def test_expanded_inputs_of_compiled_graphs() -> None:
    def model(row, w):
        return scale((row * 2).expand(6, 50), w, 0, 50)

    torch._dynamo.reset()
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    row, w = random(1, 50), random(50)
    found = gradients(compiled, row, w)
    torch.testing.assert_close(found, gradients(lambda x, w: (x * 2).expand(6, 50) * w, row, w))


def test_gradients_of_empty_expanded_inputs() -> None:
    w = random(50).detach()
    x = torch.empty(1, 0).expand(6, 0).requires_grad_()
    scale(x, w, 0, 0).sum().backward()
    assert x.grad.shape == (6, 0)


@pytest.mark.parametrize("dynamic", [False, True])
def test_functions_are_whole_in_compiled_graphs(dynamic) -> None:
    def model(x, w):
        gated = swiglu(x, w, x.numel(), BLOCK=128)
        return softmax(gated * 2, gated.stride(0), gated.shape[1], 0.5, LOG="")[0]

    def expected(x, w):
        return torch.softmax(swiglu_of_torch(x, w) * 4, 1)

    torch._dynamo.reset()
    # without the code generator: what is new is in the graph
    compiled = torch.compile(model, fullgraph=True, dynamic=dynamic, backend="aot_eager")
    for rows in (10, 12):
        x, w = random(rows, 37), random(rows, 37, seed=1)
        torch.testing.assert_close(
            gradients(compiled, x, w), gradients(expected, x, w), atol=1e-5, rtol=1e-5
        )


def test_floats_of_a_module_are_symbolic_in_dynamic_graphs() -> None:
    class Softmax(torch.nn.Module):
        temperature = 0.5

        def forward(self, x):
            return softmax(x, x.stride(0), x.shape[1], self.temperature, LOG="")[0]

    torch._dynamo.reset()
    model, x = Softmax(), random(10, 37).detach()
    compiled = torch.compile(model, fullgraph=True, dynamic=True, backend="aot_eager")
    for model.temperature in (0.5, 0.25):
        expected = torch.softmax(x / model.temperature, 1)
        torch.testing.assert_close(compiled(x), expected, atol=1e-5, rtol=1e-5)


def test_operators_pass_the_checks_of_pytorch() -> None:
    x, w = random(10, 37), random(10, 37, seed=1)
    packed = pack({"x": x, "w": w, "n": 370, "BLOCK": 128}, {"BLOCK"})
    torch.library.opcheck(swiglu.operators.forward, tuple(packed))
    x = random(10, 37)
    packed = pack({"x": x, "row_stride": 37, "n": 37, "temperature": 0.5, "LOG": ""}, ())
    out, _ = softmax.operators.forward(*packed)
    backward = ([x.detach()], *packed[1:], [out.detach()], [out.detach()], ["out"], ["x"])
    torch.library.opcheck(softmax.operators.backward, backward)


def test_packed_arguments_are_unpacked() -> None:
    tensor = torch.ones(3)
    named = {"x": tensor, "a": None, "b": True, "t": "a; b=(1)'\"", "n": 3}
    named |= {"e": 0.5, "B": 4, "f": float("inf"), "p": (1, 2)}
    packed = pack(named, {"B", "f"})
    assert (packed.integers, packed.floats) == ([3], [0.5])
    found = unpack(*packed)
    assert found.pop("x") is named.pop("x") and found == named
    with pytest.raises(LaunchError, match="argument 'o' is a object"):
        pack({"o": object()}, ())


def test_wrong_calls_are_refused() -> None:
    x = random(10, 37)
    with pytest.raises(LaunchError, match="takes 4 arguments, x, w, n, BLOCK, and was given 5"):
        swiglu(x, x, 370, 128, 5)
    with pytest.raises(LaunchError, match="'x' is given twice"):
        swiglu(x, x, 370, x=x, BLOCK=128)
    with pytest.raises(LaunchError, match="'BLOCK' is an output or fixed"):
        softmax(x, 37, 37, 1.0, BLOCK=128)
    with pytest.raises(DefinitionError, match="no parameter 'y', which wrt names: it has x, w"):
        tilewright.torch.function(gated, outputs={"out": like("x")}, wrt="y", grid=(1,))
    with pytest.raises(DefinitionError, match="saved names 'x', which is none of the outputs"):
        tilewright.torch.function(gated, outputs={"out": like("x")}, saved="x", grid=(1,))
    with pytest.raises(DefinitionError, match="wrt names 'out', which is no input"):
        tilewright.torch.function(gated, outputs={"out": like("x")}, wrt="out", grid=(1,))
    with pytest.raises(DefinitionError, match="is of a kernel, not of a function"):
        tilewright.torch.function(one_axis, outputs={}, grid=(1,))
    only_x = tilewright.torch.function(
        gated, outputs={"out": like("x")}, wrt="x", grid=one_axis, name="test_swiglu"
    )
    assert only_x.__name__ == "test_swiglu_1"
    with pytest.raises(LaunchError, match="the gradient of 'w' is wanted, and wrt= names x"):
        only_x(x, random(10, 37), 370, BLOCK=128).sum().backward()
    with pytest.raises(LaunchError, match="may store to 'out', which an operator does not change"):
        in_place = tilewright.torch.function(gated, outputs={}, grid=one_axis)
        in_place(x, x, x.detach().clone(), 370, BLOCK=128)


@tw.autotune([tw.Config({"BLOCK": block}) for block in (64, 256)], key=["n"])
@tw.jit
def tuned_wave(x, out, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    a = tl.load(x + offsets, mask=mask)
    tl.store(out + offsets, tl.sin(a) * a, mask=mask)


def test_tuned_kernels_are_functions() -> None:
    wave = tilewright.torch.function(
        tuned_wave, outputs={"out": like("x")}, wrt="x", grid=one_axis, name="test_wave"
    )
    x = random(1000, dtype=torch.float64)
    (gradient,) = torch.autograd.grad(wave(x, 1000).sum(), x, create_graph=True)
    torch.testing.assert_close(gradient, x.sin() + x * x.cos())
    (second,) = torch.autograd.grad(gradient.sum(), x)
    torch.testing.assert_close(second, 2 * x.cos() - x * x.sin())


@tw.jit
def squares_in(x, w, out, n, BLOCK: tl.constexpr, ACC: tl.constexpr):
    at = tl.program_id(0) * n + tl.arange(0, BLOCK)
    mask = tl.arange(0, BLOCK) < n
    a = tl.load(x + at, mask=mask).to(ACC)
    tl.store(out + at, a * a * tl.load(w + tl.arange(0, BLOCK), mask=mask), mask=mask)


@pytest.mark.parametrize("rows", [0, 3])
def test_a_grid_without_programs_has_gradients_of_zero(rows) -> None:
    squares = tilewright.torch.function(
        squares_in,
        outputs={"out": lambda a: torch.empty(a["x"].shape)},
        wrt=("x", "w"),
        grid=lambda meta: (meta["x"].shape[0],),
        name="test_squares_in",
        BLOCK=64,
        ACC=tl.float32,
    )
    found = gradients(lambda x, w: squares(x, w, 37), random(rows, 37), random(37, seed=1))
    expected = gradients(lambda x, w: x * x * w, random(rows, 37), random(37, seed=1))
    torch.testing.assert_close(found, expected)
