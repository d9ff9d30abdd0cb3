"""The programs of ``examples/triton_programs`` through the shim, with odd shapes.

They run on CPU tensors, and on CUDA tensors if there is a GPU. PyTorch in float64 is the oracle. A
test of an autotuned kernel runs one configuration, so that each is tested separately; tuning has
its own test.
"""

from __future__ import annotations

import importlib
import os
import re
import runpy
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

FOLDER = Path(__file__).resolve().parents[1] / "triton_programs"
EXAMPLES = tuple(sorted(path.stem for path in FOLDER.glob("*.py") if path.stem != "comparison"))

#: dtype -> the maximum error, relative to the maximum result, that rounding operands and results to
#: it explains
ERROR = {"float32": 1e-5, "float16": 2e-3, "bfloat16": 1.6e-2}

CUDA = pytest.param(
    "cuda",
    marks=[
        pytest.mark.gpu,
        pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no NVIDIA GPU here"),
    ],
)


@pytest.mark.parametrize("package", ["triton", "torch", "jax", "numpy"])
def test_no_folder_hides_a_package_from_scripts(package: str) -> None:
    assert not (FOLDER.parent / package).exists(), (
        "a program of examples/ would import the folder, as a namespace package"
    )


@pytest.fixture(params=["cpu", CUDA])
def place(request: pytest.FixtureRequest) -> str:
    """The device that holds the tensors."""
    return request.param


@pytest.fixture(scope="module")
def examples() -> Iterator[SimpleNamespace]:
    """Import the examples' modules while ``import triton`` finds Tilewright."""
    from tilewright.compat.triton import hook

    active = hook.is_active()
    hook.activate()
    sys.path.insert(0, str(FOLDER))
    modules: dict[str, ModuleType] = {}
    # modules of examples/kernels have the same names
    others = {
        name: sys.modules.pop(name) for name in ("comparison", *EXAMPLES) if name in sys.modules
    }
    try:
        for name in ("comparison", *EXAMPLES):
            modules[name] = importlib.import_module(name)
        yield SimpleNamespace(**modules)
    finally:
        sys.path.remove(str(FOLDER))
        for name in modules:
            sys.modules.pop(name, None)
        sys.modules.update(others)
        if not active:
            hook.deactivate()


@pytest.fixture(autouse=True)
def poisoned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unwritten outputs are NaN, and random data are the same in every run."""
    torch.manual_seed(0)
    for name in ("empty", "empty_like"):
        allocate = getattr(torch, name)

        def filled(*args: Any, allocate: Callable[..., Any] = allocate, **kwargs: Any) -> Any:
            found = allocate(*args, **kwargs)
            return found.fill_(float("nan")) if found.is_floating_point() else found

        monkeypatch.setattr(torch, name, filled)


@pytest.fixture
def only(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """``only(kernel, 2, ...)`` leaves an autotuned kernel that one configuration."""

    def leave(kernel: Any, place: int) -> None:
        monkeypatch.setattr(kernel, "configs", [kernel.configs[place % len(kernel.configs)]])

    return leave


def normal(place: str, *shape: int, dtype: str = "float32") -> Any:
    return torch.randn(*shape, device=place).to(getattr(torch, dtype))


def error(found: Any, exact: Any) -> float:
    """Return the maximum error relative to the maximum result; NaN if there is a NaN."""
    return float(
        (found.double() - exact.double()).abs().max() / exact.double().abs().max().clamp_min(1e-30)
    )


@pytest.mark.each_value
@pytest.mark.parametrize("n", [1, 1000, 1024, 5001])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_vector_add(examples: Any, place: str, n: int, dtype: str) -> None:
    x, y = normal(place, n, dtype=dtype), normal(place, n, dtype=dtype)
    assert torch.equal(examples.vector_add.add(x, y), x + y)


@pytest.mark.each_value
@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (3, 7), (5, 128), (150, 781), (2, 4097)])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_softmax(examples: Any, place: str, rows: int, columns: int, dtype: str) -> None:
    wide = normal(place, rows, columns + 3, dtype=dtype) * 10
    for x in (wide[:, :columns].contiguous(), wide[:, :columns]):
        found = examples.softmax.softmax(x)
        assert (found.double() - torch.softmax(x.double(), 1)).abs().max() < (
            2e-6 if dtype == "float32" else 5e-4
        )


def test_as_many_programs_of_softmax_as_the_device_holds(examples: Any) -> None:
    count = examples.softmax.programs_at_once
    properties = {
        "warpSize": 32,
        "max_num_regs": 65536,
        "max_shared_mem": 232448,
        "multiprocessor_count": 132,
    }
    driver = examples.softmax.triton.runtime.driver
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(examples.softmax, "properties", lambda: properties)
        for registers, shared, expected in (
            (32, 0, 16),
            (32, 100_000, 2),
            (255, 0, 2),
            (0, 232_448, 1),
        ):
            assert (
                count(SimpleNamespace(n_regs=registers, metadata=SimpleNamespace(shared=shared)), 4)
                == 132 * expected
            )
    has = driver.active.utils.get_device_properties(driver.active.get_current_device())
    assert (
        has["multiprocessor_count"] >= 1
        and {"max_shared_mem", "max_num_regs", "warpSize"} <= has.keys()
    )


@pytest.mark.each_value
@pytest.mark.parametrize("config", range(5))
@pytest.mark.parametrize(("m", "n", "k", "turned"), [(130, 200, 70, False), (33, 17, 1, True)])
def test_matmul(
    examples: Any, place: str, only: Any, config: int, m: int, n: int, k: int, turned: bool
) -> None:
    only(examples.matmul.matmul_kernel, config)
    for dtype, activation in (("float16", ""), ("bfloat16", "leaky_relu")):
        a, b = normal(place, m, k, dtype=dtype), normal(place, k, n, dtype=dtype)
        if turned:
            a, b = a.T.contiguous().T, b.T.contiguous().T
        exact = a.double() @ b.double()
        if activation:
            exact = torch.nn.functional.leaky_relu(exact, 0.01)
        assert error(examples.matmul.matmul(a, b, activation), exact) < ERROR[dtype]


@pytest.mark.parametrize("dtype", ["float8_e5m2", "float8_e4m3fn"])
def test_matmul_of_fp8(examples: Any, place: str, only: Any, dtype: str) -> None:
    only(examples.matmul.matmul_kernel, 1)
    a, b = normal(place, 65, 100, dtype=dtype), normal(place, 48, 100, dtype=dtype).T
    found = examples.matmul.matmul(a, b)
    assert found.dtype is torch.float16
    assert error(found, a.double() @ b.double()) < ERROR["float16"]


def test_matmul_is_tuned_once_a_shape(
    examples: Any, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(
        "TILEWRIGHT_AUTOTUNE", "memory"
    )  # a result of an earlier day would be no tuning
    kernel = examples.matmul.matmul_kernel
    offered = kernel.configs[-2:]
    monkeypatch.setattr(kernel, "configs", offered)
    monkeypatch.setattr(kernel, "cache", {})
    a, b = normal(place, 100, 60, dtype="float16"), normal(place, 60, 90, dtype="float16")
    for _ in range(2):
        assert error(examples.matmul.matmul(a, b), a.double() @ b.double()) < ERROR["float16"]
        assert len(kernel.cache) == 1
    assert kernel.best_config in offered
    assert set(kernel.configs_timings) == set(offered)
    assert error(examples.matmul.matmul(a[:50], b), a[:50].double() @ b.double()) < ERROR["float16"]
    assert len(kernel.cache) == 2


@pytest.mark.parametrize("n", [1, 1000, 5001])
def test_dropout(examples: Any, place: str, n: int) -> None:
    x = normal(place, n) + 10
    for p in (0.0, 0.3, 0.9):
        found = examples.dropout.seeded_dropout(x, p, 17)
        keep = found != 0
        exact = torch.where(keep, x.double() / (1 - p), 0)
        assert error(found, exact) < 1e-6
        assert error(examples.dropout.masked_dropout(x, keep.to(torch.int32), p), exact) < 1e-6
        assert abs(float((~keep).double().mean()) - p) <= 5 * (p * (1 - p) / n) ** 0.5 + 1e-12
        assert torch.equal(examples.dropout.seeded_dropout(x, p, 17), found)
    if n > 100:
        assert not torch.equal(
            examples.dropout.seeded_dropout(x, 0.3, 18) != 0,
            examples.dropout.seeded_dropout(x, 0.3, 17) != 0,
        )


def test_dropout_keeps_no_tensor_for_its_gradient(examples: Any, place: str) -> None:
    x = (normal(place, 77, 13) + 10).requires_grad_()
    out = examples.dropout.Dropout.apply(x, 0.4, 5)
    assert out.grad_fn.saved_tensors == ()
    gradient = normal(place, 77, 13)
    out.backward(gradient)
    assert error(x.grad, torch.where(out != 0, gradient.double() / 0.6, 0)) < 1e-6


def test_dropout_with_a_seed_a_row(examples: Any, place: str) -> None:
    x = normal(place, 5, 300) + 10
    seeds = torch.tensor([3, 1, 4, 1, 5], dtype=torch.int32, device=place)
    found = examples.dropout.row_seeded_dropout(x, 0.5, seeds)
    for row, seed in enumerate(seeds.tolist()):
        assert torch.equal(
            found[row], examples.dropout.seeded_dropout(x[row].contiguous(), 0.5, seed)
        )


@pytest.mark.each_value
@pytest.mark.parametrize("shape", [(1, 1), (3, 7), (2, 5, 300), (600, 33), (7, 1500)])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_layer_norm_and_its_gradients(
    examples: Any, place: str, shape: tuple[int, ...], dtype: str
) -> None:
    columns = shape[-1]
    inputs = [
        normal(place, *shape, dtype=dtype) + 1,
        normal(place, columns, dtype=dtype),
        normal(place, columns, dtype=dtype),
    ]
    narrow = [tensor.requires_grad_() for tensor in inputs]
    wide = [tensor.detach().double().requires_grad_() for tensor in inputs]
    out = examples.layer_norm.layer_norm(*narrow, 1e-5)
    exact = torch.nn.functional.layer_norm(wide[0], (columns,), wide[1], wide[2], 1e-5)
    assert error(out.detach(), exact.detach()) < ERROR[dtype]
    gradient = normal(place, *shape, dtype=dtype)
    found = torch.autograd.grad(out, narrow, gradient)
    wanted = torch.autograd.grad(exact, wide, gradient.double())
    for name, mine, other in zip(("dx", "dweight", "dbias"), found, wanted, strict=True):
        if columns == 1 and name != "dbias":  # whatever the input, a row of one is normalised to 0
            assert float(mine.abs().max()) < 1e-4, name
        else:
            assert error(mine, other) < 2 * ERROR[dtype], name


def test_rows_of_a_layer_norm_that_wait_for_each_other(
    examples: Any, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All rows go into one partial sum, guarded by one lock."""
    monkeypatch.setattr(examples.layer_norm, "groups_of", lambda columns: 1)
    x, weight, bias = (
        normal(place, 4000, 40).requires_grad_(),
        normal(place, 40).requires_grad_(),
        normal(place, 40).requires_grad_(),
    )
    gradient = normal(place, 4000, 40)
    normalised = torch.nn.functional.layer_norm(x.detach().double(), (40,), eps=1e-5)
    for _ in range(3):
        _, dweight, dbias = torch.autograd.grad(
            examples.layer_norm.layer_norm(x, weight, bias, 1e-5), (x, weight, bias), gradient
        )
        assert error(dweight, (normalised * gradient.double()).sum(0)) < 2e-5
        assert error(dbias, gradient.double().sum(0)) < 2e-5


SHAPES = [(1, 1, 1, 16), (2, 1, 100, 32), (1, 2, 130, 64)]


@pytest.mark.each_value
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("described", ["host", "device"])
@pytest.mark.parametrize(
    ("shape", "dtype", "config"),
    [
        (SHAPES[0], "float16", 0),
        (SHAPES[1], "bfloat16", 1),
        *((SHAPES[2], "float16", i) for i in range(4)),
    ],
)
def test_attention(
    examples: Any,
    place: str,
    only: Any,
    shape: tuple[int, ...],
    dtype: str,
    config: int,
    described: str,
    causal: bool,
) -> None:
    only(examples.attention.forward_kernel, config)
    q, k, v = (normal(place, *shape, dtype=dtype) for _ in range(3))
    found = examples.attention.attention(q, k, v, causal, 0.2, described == "host")
    assert (
        error(
            found,
            examples.attention.exact_attention(q.double(), k.double(), v.double(), causal, 0.2),
        )
        < ERROR[dtype]
    )


@pytest.mark.each_value
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    ("shape", "dtype", "config"),
    [
        (SHAPES[0], "float16", 0),
        (SHAPES[1], "bfloat16", 1),
        *((SHAPES[2], "float16", i) for i in range(3)),
    ],
)
def test_gradients_of_attention(
    examples: Any,
    place: str,
    only: Any,
    shape: tuple[int, ...],
    dtype: str,
    config: int,
    causal: bool,
) -> None:
    only(examples.attention.forward_kernel, 3)
    only(examples.attention.keys_backward_kernel, config)
    only(examples.attention.queries_backward_kernel, config)
    inputs = [normal(place, *shape, dtype=dtype).requires_grad_() for _ in range(3)]
    wide = [tensor.detach().double().requires_grad_() for tensor in inputs]
    gradient = normal(place, *shape, dtype=dtype)
    found = torch.autograd.grad(
        examples.attention.attention(*inputs, causal, 0.2), inputs, gradient
    )
    wanted = torch.autograd.grad(
        examples.attention.exact_attention(*wide, causal, 0.2), wide, gradient.double()
    )
    for name, mine, exact in zip(("dq", "dk", "dv"), found, wanted, strict=True):
        if shape[2] == 1 and name != "dv":  # a single weight is 1 whatever the score
            assert float(mine.abs().max()) < 4 * ERROR[dtype], name
        else:
            assert error(mine, exact) < 2 * ERROR[dtype], name


def test_the_blocks_of_host_descriptors_are_tuned(
    examples: Any, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A trial's code depends on the blocks that the hook sets in the descriptors."""
    monkeypatch.setenv("TILEWRIGHT_AUTOTUNE", "memory")
    kernel = examples.persistent_matmul.host_descriptor_kernel
    monkeypatch.setattr(kernel, "configs", kernel.configs[-2:])
    monkeypatch.setattr(kernel, "cache", {})
    a, b = normal(place, 100, 64, dtype="float16"), normal(place, 72, 64, dtype="float16")
    found = examples.persistent_matmul.matmul(a, b, "host")
    assert error(found, a.double() @ b.double().T) < ERROR["float16"]
    assert len(kernel.configs_timings) == 2
    assert all(0 < times[0] < float("inf") for times in kernel.configs_timings.values())


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 3e-7), ("float64", 1e-15)])
def test_extern_functions(examples: Any, place: str, dtype: str, tolerance: float) -> None:
    module = examples.extern_functions
    large = 1e30 if dtype == "float32" else 1e200  # its square is none of the type
    edges = [
        large,
        0.0,
        -0.0,
        1.0,
        -1.0,
        0.5,
        -0.5,
        1 / large,
        1 / large,
        1.5,
        float("nan"),
        float("inf"),
        -large,
    ]
    edges = torch.tensor(edges, device=place, dtype=getattr(torch, dtype))
    x = torch.cat([torch.rand(5001, device=place, dtype=edges.dtype) * 2 - 1, edges])
    y = torch.cat([normal(place, 5001, dtype=dtype), edges.flip(0)])
    torch.testing.assert_close(
        module.asin(x).double(), torch.asin(x.double()), rtol=tolerance, atol=0, equal_nan=True
    )
    for name, rival in module.RIVALS.items():
        torch.testing.assert_close(
            module.two_argument(name, x, y).double(),
            rival(x.double(), y.double()),
            rtol=tolerance,
            atol=1e-300,
            equal_nan=True,
        )


def test_an_unknown_extern_function_is_refused_where_it_is_compiled(examples: Any) -> None:
    module = examples.extern_functions
    with pytest.raises(module.triton.CompilationError, match="no such function here"):
        module.two_argument("gamma", torch.zeros(4), torch.zeros(4))


@pytest.mark.each_value
@pytest.mark.parametrize(("config", "programs"), [(0, 84), (2, 84), (2, 3)])
@pytest.mark.parametrize("descriptors", [False, True])
def test_grouped_gemm(
    examples: Any,
    place: str,
    monkeypatch: pytest.MonkeyPatch,
    config: int,
    programs: int,
    descriptors: bool,
) -> None:
    module = examples.grouped_gemm
    kernel = module.grouped_descriptor_kernel if descriptors else module.grouped_kernel
    offered = kernel.configs[config]
    chosen = module.triton.Config(
        {**offered.kwargs, "PROGRAMS": programs},
        num_warps=offered.num_warps,
        num_stages=offered.num_stages,
    )
    monkeypatch.setattr(kernel, "configs", [chosen])
    if descriptors:
        sizes = [(200, 136, 64), (1, 8, 8), (129, 16, 200), (64, 64, 32)]
    else:
        sizes = [(200, 135, 65), (1, 1, 1), (129, 7, 33), (64, 64, 32)]
    for dtype, count in (("float16", 4), ("bfloat16", 1)):
        lefts = [normal(place, m, k, dtype=dtype) for m, _, k in sizes[:count]]
        rights = [
            normal(place, *((n, k) if descriptors else (k, n)), dtype=dtype)
            for _, n, k in sizes[:count]
        ]
        found = module.grouped_gemm(lefts, rights, descriptors)
        for a, b, c in zip(lefts, rights, found, strict=True):
            assert (
                error(c, a.double() @ (b.double().T if descriptors else b.double())) < ERROR[dtype]
            )


def test_grouped_gemm_of_aligned_matrices(examples: Any, place: str, only: Any) -> None:
    only(examples.grouped_gemm.grouped_kernel, 2)
    a, b = normal(place, 100, 64, dtype="float16"), normal(place, 64, 160, dtype="float16")
    (found,) = examples.grouped_gemm.grouped_gemm([a], [b])
    assert error(found, a.double() @ b.double()) < ERROR["float16"]


@pytest.mark.parametrize(
    ("way", "config"),
    [
        (way, config)
        for way, count in (("pointers", 3), ("host", 6), ("device", 6))
        for config in range(count)
    ],
)
def test_persistent_matmul(examples: Any, place: str, only: Any, config: int, way: str) -> None:
    module = examples.persistent_matmul
    kernel = {
        "pointers": module.pointer_kernel,
        "host": module.host_descriptor_kernel,
        "device": module.device_descriptor_kernel,
    }[way]
    assert len(kernel.configs) == (3 if way == "pointers" else 6)
    only(kernel, config)
    m, n, k = (300, 209, 71) if way == "pointers" else (300, 208, 72)
    a, b = normal(place, m, k, dtype="float16"), normal(place, n, k, dtype="float16")
    assert error(module.matmul(a, b, way), a.double() @ b.double().T) < ERROR["float16"]


@pytest.mark.parametrize("way", ["pointers", "host", "device"])
def test_persistent_matmul_of_fp8_and_in_warps_of_their_own(
    examples: Any, place: str, only: Any, way: str
) -> None:
    module = examples.persistent_matmul
    only(
        {
            "pointers": module.pointer_kernel,
            "host": module.host_descriptor_kernel,
            "device": module.device_descriptor_kernel,
        }[way],
        -1,
    )
    a, b = (
        normal(place, 97, 80, dtype="float8_e4m3fn"),
        normal(place, 144, 80, dtype="float8_e4m3fn"),
    )
    assert (
        error(module.matmul(a, b, way, specialize=True), a.double() @ b.double().T)
        < ERROR["float16"]
    )


def test_a_launch_tells_its_work(examples: Any, place: str, only: Any) -> None:
    module = examples.persistent_matmul
    only(module.pointer_kernel, 2)
    told: list[dict[str, Any]] = []

    def tell(metadata: Any) -> None:
        told.append(metadata.get())

    chain = module.triton.knobs.runtime.launch_enter_hook
    chain.add(tell)
    try:
        module.matmul(
            normal(place, 20, 32, dtype="float16"), normal(place, 48, 32, dtype="float16")
        )
    finally:
        chain.remove(tell)
    assert [(entry["name"], entry["flops"]) for entry in told] == [
        ("pointer_kernel [20 x 48 x 32]", 2.0 * 20 * 48 * 32)
    ]


#: The values of e2m1 by code.
E2M1 = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0]


def decoded(x: Any) -> Any:
    """A quantised matrix in float64, from its bits."""
    if x.format == "e2m1":
        table = torch.tensor(E2M1, dtype=torch.float64, device=x.elements.device)
        elements = table[torch.stack((x.elements & 15, x.elements >> 4), -1).long()].flatten(1)
    else:
        elements = x.elements.double()
    scales = (
        x.scales.double()
        if x.scales.dtype is torch.float8_e4m3fn
        else torch.exp2(x.scales.double() - 127)
    )
    return elements * scales.repeat_interleave(x.group, 1)


@pytest.mark.each_value
@pytest.mark.parametrize("name", ["mxfp8", "mxfp4", "nvfp4", "mixed"])
@pytest.mark.parametrize(("m", "n", "k"), [(1, 8, 128), (100, 72, 256), (130, 264, 384)])
def test_block_scaled_matmul(examples: Any, place: str, name: str, m: int, n: int, k: int) -> None:
    module = examples.block_scaled_matmul
    # rows and groups of very different size, so that a scale in the wrong place shows
    sizes = torch.exp2(
        torch.randint(-6, 7, (m + n, k // 16), device=place).float()
    ).repeat_interleave(16, 1)
    x, y = (normal(place, m + n, k) * sizes).split([m, n])
    a, b = module.operands(x, y, name)
    for mine, original in ((a, x), (b, y)):
        assert torch.equal(decoded(mine), mine.values.double())
        group = (
            original.abs()
            .reshape(-1, k // mine.group, mine.group)
            .amax(-1)
            .repeat_interleave(mine.group, 1)
        )
        assert (
            (mine.values - original).abs() <= group / 4 + 0.01
        ).all()  # an e4m3 scale has steps of 2**-9 at the least
    exact = decoded(a) @ decoded(b).T
    assert error(module.block_scaled_matmul(a, b, torch.float32), exact) < 1e-5


def compared(said: str) -> bool:
    """Return whether a program printed its distance from PyTorch, and it was small."""
    errors = [float(found) for found in re.findall(r"error +(\S+)$", said, re.M)]
    return bool(errors) and all(found < 1e-2 for found in errors)


@pytest.fixture
def settings(place: str) -> dict[str, str]:
    """The environment of a program."""
    return {
        "TILEWRIGHT_AUTOTUNE": "deterministic",
        "TILEWRIGHT_BACKEND": {"cpu": "cpu", "cuda": "nvidia"}[place],
    }


@pytest.mark.parametrize("example", EXAMPLES)
def test_the_program_itself(
    examples: Any,
    settings: dict[str, str],
    example: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It compares itself with PyTorch."""
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    file = FOLDER / f"{example}.py"
    monkeypatch.setattr(sys, "argv", [str(file), "--check"])
    runpy.run_path(str(file), run_name="__main__")
    said = capsys.readouterr().out
    assert compared(said), said


def test_a_program_is_started_as_its_readers_start_it(
    settings: dict[str, str], tmp_path: Path
) -> None:
    command = [
        sys.executable,
        "-m",
        "tilewright.compat.triton",
        str(FOLDER / "vector_add.py"),
        "--check",
    ]
    done = subprocess.run(
        command,
        env={**os.environ, **settings},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0 and compared(done.stdout), done.stdout + done.stderr
