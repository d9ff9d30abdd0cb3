"""Cases of ``gradients.py``: a forward kernel, its derivative, and the rivals of each."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gradient_kernels as kernels
import torch

import tilewright as tw

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples"))

from kernels.attention import attention, attention_kernel
from kernels.attention_backward import attention_backward
from kernels.matmul import matmul, matmul_kernel
from kernels.softmax import softmax, softmax_kernel

Tensor = torch.Tensor
Call = Callable[[], Any]


@dataclass
class Case:
    """A kernel whose gradients are measured.

    Attributes:
        name: the case's name.
        forward: launches the kernel.
        adjoint, arguments, grid, options: the derivative, and the forward's launch.
        cotangents: the derivative's arguments that it reads.
        inputs: inputs of the formula -> the names of their gradients.
        formula: computes the output from the inputs, in PyTorch.
        cotangent: the cotangent of the output.
        hand: launches the backward pass by hand, where there is one.
        by_hand: gradients that ``hand`` writes, in the order of ``inputs``.
        liger: computes the output by Liger's function, where there is one.
        configs: block sizes and options among which the derivative is tuned, where those of the
            forward pass are not its best.
        is_whole: whether rivals are measured forward and backward, for Liger's forward pass
            computes the gradient.
    """

    name: str
    forward: Call
    adjoint: Any
    arguments: tuple[Any, ...]
    grid: tuple[int, ...]
    options: Mapping[str, Any]
    cotangents: Mapping[str, Tensor]
    inputs: Mapping[str, Tensor]
    formula: Callable[..., Tensor]
    cotangent: Tensor
    hand: Call | None = None
    by_hand: tuple[Tensor, ...] = ()
    liger: Callable[..., Tensor] | None = None
    is_whole: bool = False
    configs: Sequence[tw.Config] = ()
    gradients: dict[str, Tensor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.gradients = {
            f"d_{name}": torch.full_like(value, float("nan")) for name, value in self.inputs.items()
        }
        self._launched, self._untuned = self.adjoint, dict(self.options)
        if self.configs:
            self._launched = tw.autotune(list(self.configs), key=[])(self.adjoint)
            chosen = {name for config in self.configs for name in config.all_kwargs()}
            self._untuned = {k: v for k, v in self.options.items() if k not in chosen}

    def derived(self) -> None:
        """Launch the derived backward pass."""
        if self.is_whole:
            self.forward()
        self._launched[self.grid](
            *self.arguments, **self._untuned, **self.cotangents, **self.gradients
        )

    def plan(self) -> Any:
        """Return the plan of the derived backward pass, after a launch."""
        own = {**self.cotangents, **self.gradients}
        options = self._untuned
        if self.configs:
            options = {**options, **self._launched.best_config.all_kwargs()}
        return self.adjoint.plan(*self.arguments, grid=self.grid, **options, **own)

    def expected(self) -> dict[str, Tensor]:
        """Return the gradients in float64."""
        wide = [value.double().requires_grad_() for value in self.inputs.values()]
        out = self.formula(*wide)
        found = torch.autograd.grad(out, wide, self.cotangent.double())
        return dict(zip(self.gradients, found, strict=True))

    def through(self, function: Callable[..., Tensor]) -> Call:
        """Return the backward pass of a function of tensors by PyTorch's autograd."""
        leaves = [value.detach().clone().requires_grad_() for value in self.inputs.values()]
        cotangent = self.cotangent.clone()  # functions may overwrite it
        if self.is_whole:
            return lambda: torch.autograd.grad(function(*leaves), leaves, cotangent)
        out = function(*leaves)
        return lambda: torch.autograd.grad(out, leaves, cotangent, retain_graph=True)


@dataclass(frozen=True)
class Sizes:
    """The extents of the cases on a device."""

    dtype: torch.dtype
    heads: int
    length: int
    rows: int
    columns: int
    wide: int
    vocabulary: int
    matmul: int
    block: tuple[int, int]
    matmul_block: tuple[int, int, int]


SIZES = {
    "cpu": Sizes(torch.float32, 4, 1024, 2048, 1024, 2048, 8192, 512, (64, 64), (64, 64, 64)),
    "cuda": Sizes(
        torch.float16, 64, 2048, 4096, 4096, 11008, 32768, 4096, (64, 64), (128, 128, 64)
    ),
}


#: The adjoint's tiles of gradients are BLOCK_K wide.
_MATMUL_CONFIGS = tuple(
    tw.Config({"BLOCK_K": block_k}, num_warps=warps, num_stages=stages)
    for block_k, warps, stages in ((64, 4, 3), (64, 4, 2), (128, 4, 2), (128, 4, 3), (128, 8, 3))
)


class Cases:
    """Makes cases on a device.

    Args:
        sizes: extents other than those of the device.
        is_gpu: whether kernels are launched as on a GPU; that of the device unless given.
    """

    def __init__(self, device: str, sizes: Sizes | None = None, is_gpu: bool | None = None) -> None:
        self.device, self.sizes = device, sizes or SIZES[device]
        self.is_gpu = device != "cpu" if is_gpu is None else is_gpu
        self._random = torch.Generator(device).manual_seed(0)

    def tensor(self, *shape: int, dtype: torch.dtype | None = None) -> Tensor:
        wanted = self.sizes.dtype if dtype is None else dtype
        drawn = torch.randn(*shape, generator=self._random, device=self.device)
        return drawn.to(wanted)

    def empty(self, *shape: int) -> Tensor:
        return torch.empty(*shape, device=self.device, dtype=torch.float32)

    def warps(self, elements: int) -> dict[str, int]:
        """Return the launch options of rows of a length."""
        return {"num_warps": max(4, min(32, elements // 512))} if self.is_gpu else {}

    def attention(self, head: int, causal: bool) -> Case:
        s = self.sizes
        shape = (s.heads, s.length, head)
        q, k, v, d_out = (self.tensor(*shape) for _ in range(4))
        out, lse, delta = torch.empty_like(q), self.empty(*shape[:2]), self.empty(*shape[:2])
        d_q, d_k, d_v = (torch.empty_like(q) for _ in range(3))

        def formula(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)

        def forward() -> None:
            attention(q, k, v, out, lse, causal, s.block)

        def hand() -> None:
            attention_backward(q, k, v, out, lse, d_out, d_q, d_k, d_v, delta, causal, s.block)

        blocks = {"BLOCK_M": s.block[0], "BLOCK_N": s.block[1], "HEAD": head}
        return Case(
            f"attention d{head} {'causal' if causal else 'full'}",
            forward,
            tw.vjp(
                attention_kernel,
                outputs="out_ptr",
                wrt=("q_ptr", "k_ptr", "v_ptr"),
                saved=("out_ptr", "lse_ptr"),
            ),
            (q, k, v, out, lse, head**-0.5, s.length),
            (tw.cdiv(s.length, s.block[0]), s.heads),
            {"CAUSAL": causal, **blocks},
            {"d_out_ptr": d_out},
            {"q_ptr": q, "k_ptr": k, "v_ptr": v},
            formula,
            d_out,
            hand,
            (d_q, d_k, d_v),
        )

    def softmax(self) -> Case:
        s = self.sizes
        x, d_out = (self.tensor(s.rows, s.columns) for _ in range(2))
        out, d_x = torch.empty_like(x), torch.empty_like(x)
        block = tw.next_power_of_2(s.columns)
        options = {"BLOCK": block, **self.warps(block)}

        def hand() -> None:
            kernels.softmax_backward_kernel[(s.rows,)](out, d_out, d_x, s.columns, **options)

        return Case(
            "softmax",
            lambda: softmax(x, out),
            tw.vjp(softmax_kernel, outputs="out_ptr", wrt="x_ptr", saved="out_ptr"),
            (x, out, s.columns, s.columns, s.columns),
            (s.rows,),
            options,
            {"d_out_ptr": d_out},
            {"x_ptr": x},
            lambda x: torch.softmax(x, -1),
            d_out,
            hand,
            (d_x,),
            _liger("softmax", "LigerSoftmaxFunction"),
        )

    def layer_norm(self) -> Case:
        s = self.sizes
        x, d_out = (self.tensor(s.rows, s.columns) for _ in range(2))
        w, b = (self.tensor(s.columns) for _ in range(2))
        out, mean, rstd = torch.empty_like(x), self.empty(s.rows), self.empty(s.rows)
        d_x, d_w, d_b = torch.empty_like(x), torch.empty_like(w), torch.empty_like(b)
        block = tw.next_power_of_2(s.columns)
        options = {"BLOCK": block, **self.warps(block)}
        arguments = (x, w, b, out, mean, rstd, s.columns, 1e-5)
        programs = min(264 if self.is_gpu else 16, s.rows // 4)
        parts = self.empty(programs, 2, s.columns)

        def hand() -> None:
            kernels.layer_norm_backward_kernel[(programs,)](
                x, w, mean, rstd, d_out, d_x, parts, s.rows, s.columns, **options
            )
            kernels.add_parts_kernel[(tw.cdiv(s.columns, 64),)](
                parts, d_w, d_b, programs, s.columns, ROWS=16, BLOCK=64
            )

        liger = _liger("layer_norm", "LigerLayerNormFunction")
        return Case(
            "layer norm",
            lambda: kernels.layer_norm_kernel[(s.rows,)](*arguments, **options),
            tw.vjp(
                kernels.layer_norm_kernel,
                outputs="out_ptr",
                wrt=("x_ptr", "w_ptr", "b_ptr"),
                saved=("mean_ptr", "rstd_ptr"),
            ),
            arguments,
            (s.rows,),
            options,
            {"d_out_ptr": d_out},
            {"x_ptr": x, "w_ptr": w, "b_ptr": b},
            lambda x, w, b: torch.nn.functional.layer_norm(x, (s.columns,), w, b, 1e-5),
            d_out,
            hand,
            (d_x, d_w, d_b),
            None if liger is None else lambda x, w, b: liger(x, w, b, 1e-5),
        )

    def rms_norm(self) -> Case:
        s = self.sizes
        x, d_out = (self.tensor(s.rows, s.columns) for _ in range(2))
        w = self.tensor(s.columns)
        out, rstd = torch.empty_like(x), self.empty(s.rows)
        block = tw.next_power_of_2(s.columns)
        options = {"BLOCK": block, **self.warps(block)}
        arguments = (x, w, out, rstd, s.columns, 1e-5)
        liger = _liger("rms_norm", "LigerRMSNormFunction")
        return Case(
            "RMS norm",
            lambda: kernels.rms_norm_kernel[(s.rows,)](*arguments, **options),
            tw.vjp(
                kernels.rms_norm_kernel,
                outputs="out_ptr",
                wrt=("x_ptr", "w_ptr"),
                saved="rstd_ptr",
            ),
            arguments,
            (s.rows,),
            options,
            {"d_out_ptr": d_out},
            {"x_ptr": x, "w_ptr": w},
            lambda x, w: torch.nn.functional.rms_norm(x, (s.columns,), w, 1e-5),
            d_out,
            liger=None if liger is None else lambda x, w: liger(x, w, 1e-5, 0.0, "llama", False),
        )

    def cross_entropy(self) -> Case:
        s = self.sizes
        n = s.vocabulary
        x = self.tensor(s.rows, n)
        target = torch.randint(0, n, (s.rows,), generator=self._random, device=self.device)
        loss, lse = self.empty(s.rows), self.empty(s.rows)
        d_loss = torch.full_like(loss, 1 / s.rows)
        options = {"BLOCK": tw.next_power_of_2(n), **self.warps(n)}
        arguments = (x, target, loss, lse, n)

        def formula(x: Tensor) -> Tensor:
            return torch.nn.functional.cross_entropy(x, target, reduction="none")

        return Case(
            "cross entropy",
            lambda: kernels.cross_entropy_kernel[(s.rows,)](*arguments, **options),
            tw.vjp(kernels.cross_entropy_kernel, outputs="loss_ptr", wrt="x_ptr", saved="lse_ptr"),
            arguments,
            (s.rows,),
            options,
            {"d_loss_ptr": d_loss},
            {"x_ptr": x},
            formula,
            d_loss,
            liger=_liger_cross_entropy(target),
            is_whole=True,
        )

    def gated(self, name: str) -> Case:
        s = self.sizes
        a, b, d_out = (self.tensor(s.rows, s.wide) for _ in range(3))
        out, d_a, d_b = (torch.empty_like(a) for _ in range(3))
        options = {"BLOCK": 1024}
        grid = (tw.cdiv(a.numel(), 1024),)
        arguments = (a, b, out, a.numel())
        kernel = kernels.swiglu_kernel if name == "SwiGLU" else kernels.geglu_kernel

        def hand() -> None:
            kernels.swiglu_backward_kernel[grid](a, b, d_out, d_a, d_b, a.numel(), **options)

        def formula(a: Tensor, b: Tensor) -> Tensor:
            if name == "SwiGLU":
                return torch.nn.functional.silu(a) * b
            return torch.nn.functional.gelu(a, approximate="tanh") * b

        return Case(
            name,
            lambda: kernel[grid](*arguments, **options),
            tw.vjp(kernel, outputs="out_ptr", wrt=("a_ptr", "b_ptr")),
            arguments,
            grid,
            options,
            {"d_out_ptr": d_out},
            {"a_ptr": a, "b_ptr": b},
            formula,
            d_out,
            hand if name == "SwiGLU" else None,
            (d_a, d_b),
            _liger("swiglu", "LigerSiLUMulFunction")
            if name == "SwiGLU"
            else _liger("geglu", "LigerGELUMulFunction"),
        )

    def rotary(self) -> Case:
        s = self.sizes
        heads, half, rows = 32, 64, s.rows if not self.is_gpu else 2 * s.rows
        x, d_out = (self.tensor(rows, heads, 2 * half) for _ in range(2))
        angles = self.tensor(rows, half, dtype=torch.float32)
        cos, sin = angles.cos().to(s.dtype), angles.sin().to(s.dtype)
        out = torch.empty_like(x)
        options = {"HEADS": heads, "HALF": half}
        arguments = (x, cos, sin, out, heads)

        def formula(x: Tensor) -> Tensor:
            first, second = x[..., :half], x[..., half:]
            c, s = cos[:, None].to(x.dtype), sin[:, None].to(x.dtype)
            return torch.cat([first * c - second * s, second * c + first * s], -1)

        return Case(
            "rotary",
            lambda: kernels.rotary_kernel[(rows,)](*arguments, **options),
            tw.vjp(kernels.rotary_kernel, outputs="out_ptr", wrt="x_ptr"),
            arguments,
            (rows,),
            options,
            {"d_out_ptr": d_out},
            {"x_ptr": x},
            formula,
            d_out,
            liger=_liger_rotary(cos, sin),
        )

    def matmul(self) -> Case:
        s = self.sizes
        n, (block_m, block_n, block_k) = s.matmul, s.matmul_block
        a, b = (self.tensor(n, n) / n**0.25 for _ in range(2))
        d_out, out = self.tensor(n, n), torch.empty_like(a)
        blocks = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8}
        options = {**blocks, "ACTIVATION": "leaky_relu"}
        d_a, d_b, d_sum = torch.empty_like(a), torch.empty_like(b), torch.empty_like(a)
        programs = (tw.cdiv(n, block_m) * tw.cdiv(n, block_n),)

        def hand() -> None:
            kernels.leaky_relu_backward_kernel[(tw.cdiv(n * n, 1024),)](
                out, d_out, d_sum, n * n, BLOCK=1024
            )
            extents = {**blocks, "ACTIVATION": ""}
            # d_sum bᵀ, then aᵀ d_sum
            matmul_kernel[programs](d_sum, b, d_a, n, n, n, n, 1, 1, n, n, 1, **extents)
            matmul_kernel[programs](a, d_sum, d_b, n, n, n, 1, n, n, 1, n, 1, **extents)

        return Case(
            "matmul + epilogue",
            lambda: matmul(a, b, out, "leaky_relu", s.matmul_block),
            tw.vjp(matmul_kernel, outputs="c_ptr", wrt=("a_ptr", "b_ptr"), saved="c_ptr"),
            (a, b, out, n, n, n, n, 1, n, 1, n, 1),
            programs,
            options,
            {"d_c_ptr": d_out},
            {"a_ptr": a, "b_ptr": b},
            # the sign of a sum near zero is that of the forward pass, not that in float64
            lambda a, b: (a @ b) * torch.where(out > 0, 1.0, 0.01).to(a.dtype),
            d_out,
            hand,
            (d_a, d_b),
            configs=() if self.device == "cpu" else _MATMUL_CONFIGS,
        )

    def all(self) -> dict[str, Callable[[], Case]]:
        """Return the makers of all cases by name."""
        return {
            "attention-64-full": lambda: self.attention(64, False),
            "attention-64-causal": lambda: self.attention(64, True),
            "attention-128-full": lambda: self.attention(128, False),
            "attention-128-causal": lambda: self.attention(128, True),
            "softmax": self.softmax,
            "layer-norm": self.layer_norm,
            "rms-norm": self.rms_norm,
            "cross-entropy": self.cross_entropy,
            "swiglu": lambda: self.gated("SwiGLU"),
            "geglu": lambda: self.gated("GeGLU"),
            "rotary": self.rotary,
            "matmul": self.matmul,
        }


def _liger(module: str, name: str) -> Callable[..., Tensor] | None:
    """Return a function of Liger; None where it is not installed."""
    try:
        found = __import__(f"liger_kernel.ops.{module}", fromlist=[name])
    except (ImportError, AttributeError):  # without a whole Triton
        return None
    function: Callable[..., Tensor] = getattr(found, name).apply
    return function


def _liger_cross_entropy(target: Tensor) -> Callable[..., Tensor] | None:
    """Return Liger's cross entropy without a reduction."""
    try:
        from liger_kernel.transformers.functional import liger_cross_entropy
    except (ImportError, AttributeError):  # without a whole Triton
        return None
    return lambda x: liger_cross_entropy(x, target, reduction="none")


def _liger_rotary(cos: Tensor, sin: Tensor) -> Callable[..., Tensor] | None:
    """Return Liger's rotation of [rows, heads, extent]; it overwrites what it rotates."""
    function = _liger("rope", "LigerRopeFunction")
    if function is None:
        return None
    wide = [torch.cat([value, value], -1)[None] for value in (cos, sin)]

    def rotate(x: Tensor) -> Tensor:
        key = torch.zeros(1, 1, x.shape[0], x.shape[2], device=x.device, dtype=x.dtype)
        query, *_ = function(x[None].transpose(1, 2), key, *wide)
        return query.transpose(1, 2)[0]

    return rotate
