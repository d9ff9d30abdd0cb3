"""Kernels of flash-linear-attention and Liger on Triton and on Tilewright (:mod:`both_libraries`).

``torch`` computes the same in plain PyTorch, linear attention in its quadratic form. It checks the
results and serves as the clock; it is not a rival. A case names the library, its function, and
``forward`` or ``backward``. The kernels tune themselves at first use, which ``first_s`` includes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from both_libraries import Calls, main

#: Parts of a case: the inputs that require gradients, the library's function of them, and
#: PyTorch's.
Made = tuple[list[Any], Callable[..., Any], Callable[..., Any]]

#: (batch, length, heads, depth) of linear attention
SEQUENCE = (2, 2048, 8, 64)
#: (rows, columns) of norms, activations and losses, and the inner extent of a linear layer before a
#: loss
ROWS, COLUMNS, INNER = 8192, 4096, 1024


class Maker:
    """Inputs and functions of the cases, on a device.

    Args:
        sequence: (batch, length, heads, depth) of linear attention.
        rows, columns, inner: extents of all other cases.
    """

    def __init__(
        self,
        device: str = "cuda",
        sequence: tuple[int, int, int, int] = SEQUENCE,
        rows: int = ROWS,
        columns: int = COLUMNS,
        inner: int = INNER,
    ) -> None:
        import torch

        self.torch, self.device, self.sequence = torch, device, sequence
        self.rows, self.columns, self.inner = rows, columns, inner

    def normal(self, *shape: int, scale: float = 1.0) -> Any:
        return self.torch.randn(*shape, device=self.device) * scale

    def heads(self, count: int) -> list[Any]:
        """Return normally distributed numbers of shape [batch, length, heads, depth]."""
        return [self.normal(*self.sequence) for _ in range(count)]

    def matrices(self, count: int, *more: tuple[int, ...]) -> list[Any]:
        """Return ``count`` matrices of the case's extents, and tensors of the given shapes."""
        return [self.normal(*shape) for shape in ((self.rows, self.columns),) * count + more]

    # ---- flash-linear-attention

    def fla_retention(self) -> Made:
        from fla.ops.retention import chunk_retention

        torch, (_, length, heads, depth) = self.torch, self.sequence
        gate = torch.log1p(
            -torch.exp2(-5.0 - torch.arange(heads, device=self.device, dtype=torch.float64))
        )
        steps = torch.arange(1, length + 1, device=self.device)[None, :, None, None]

        def plain(q: Any, k: Any, v: Any) -> Any:
            return _decayed(q * depth**-0.5, k, v, gate[None, None, :, None] * steps)

        return self.heads(3), lambda q, k, v: chunk_retention(q, k, v)[0], plain

    def fla_gla(self) -> Made:
        from fla.ops.gla import chunk_gla

        depth, functional = self.sequence[3], self.torch.nn.functional

        def plain(q: Any, k: Any, v: Any, gate: Any) -> Any:
            return _decayed(
                q * depth**-0.5, k, v, (functional.logsigmoid(gate) / 16).double().cumsum(1)
            )

        return (
            self.heads(4),
            lambda q, k, v, gate: chunk_gla(q, k, v, functional.logsigmoid(gate) / 16)[0],
            plain,
        )

    def fla_gated_delta_rule(self) -> Made:
        from fla.ops.gated_delta_rule import chunk_gated_delta_rule

        torch, functional, (batch, length, heads, depth) = (
            self.torch,
            self.torch.nn.functional,
            self.sequence,
        )
        given = [*self.heads(3), *(self.normal(batch, length, heads) for _ in range(2))]

        def prepared(k: Any, gate: Any, beta: Any) -> tuple[Any, Any, Any]:
            return (
                functional.normalize(k, dim=-1),
                functional.logsigmoid(gate) / 16,
                torch.sigmoid(beta),
            )

        def program(q: Any, k: Any, v: Any, gate: Any, beta: Any) -> Any:
            k, gate, beta = prepared(k, gate, beta)
            return chunk_gated_delta_rule(q, k, v, gate, beta)[0]

        def plain(q: Any, k: Any, v: Any, gate: Any, beta: Any) -> Any:
            k, gate, beta = prepared(k, gate, beta)
            decay, beta = gate.double().cumsum(1)[..., None], beta.double()[..., None]
            falling, rising = decay.exp(), (-decay).exp()
            before = _products(k * beta * falling, k * rising, -1)
            changes = _solved(before, _by_head(v * beta))
            return _by_step(_products(q * falling * depth**-0.5, k * rising, 0) @ changes)

        return given, program, plain

    def fla_rwkv7(self) -> Made:
        from fla.ops.rwkv7 import chunk_rwkv7

        functional = self.torch.nn.functional

        def prepared(w: Any, a: Any, b: Any) -> tuple[Any, Any, Any]:
            a = functional.normalize(a, dim=-1)
            return functional.logsigmoid(w) / 32, -a, a * self.torch.sigmoid(b)

        def program(r: Any, w: Any, k: Any, v: Any, a: Any, b: Any) -> Any:
            w, a, b = prepared(w, a, b)
            return chunk_rwkv7(r, w, k, v, a, b)[0]

        def plain(r: Any, w: Any, k: Any, v: Any, a: Any, b: Any) -> Any:
            w, a, b = prepared(w, a, b)
            decay = w.double().cumsum(1)
            falling, rising, earlier = decay.exp(), (-decay).exp(), (decay - w).exp()
            # the state of each step adds v times k, and b times the previous state's result for a
            values = _by_head(v.double())
            given = _solved(
                -_products(a * earlier, b * rising, -1),
                _products(a * earlier, k * rising, -1) @ values,
            )
            return _by_step(
                _products(r * falling, b * rising, 0) @ given
                + _products(r * falling, k * rising, 0) @ values
            )

        return self.heads(6), program, plain

    def fla_causal_conv1d(self) -> Made:
        from fla.modules.convolution import causal_conv1d

        functional, (batch, length, heads, depth) = self.torch.nn.functional, self.sequence
        channels = heads * depth
        given = [
            self.normal(batch, length, channels),
            self.normal(channels, 4),
            self.normal(channels),
        ]

        def plain(x: Any, weight: Any, bias: Any) -> Any:
            padded = functional.pad(x.transpose(1, 2), (3, 0))
            return functional.silu(
                functional.conv1d(padded, weight[:, None], bias, groups=channels)
            ).transpose(1, 2)

        return (
            given,
            lambda x, weight, bias: causal_conv1d(x, weight, bias, activation="silu")[0],
            plain,
        )

    def fla_rms_norm(self) -> Made:
        from fla.modules.layernorm import rms_norm

        functional, size = self.torch.nn.functional, self.columns
        return (
            self.matrices(1, (size,)),
            lambda x, w: rms_norm(x, w, None, eps=1e-6),
            lambda x, w: functional.rms_norm(x, (size,), w, 1e-6),
        )

    def fla_layer_norm(self) -> Made:
        from fla.modules.layernorm import layer_norm

        functional, size = self.torch.nn.functional, self.columns
        given = self.matrices(1, (size,), (size,))
        return (
            given,
            lambda x, w, b: layer_norm(x, w, b, eps=1e-5),
            lambda x, w, b: functional.layer_norm(x, (size,), w, b, 1e-5),
        )

    # ---- Liger

    def liger_rms_norm(self) -> Made:
        from liger_kernel.ops.rms_norm import LigerRMSNormFunction

        functional, size = self.torch.nn.functional, self.columns

        def program(x: Any, w: Any) -> Any:
            return LigerRMSNormFunction.apply(x, w, 1e-6, 0.0, "llama", False)

        return (
            self.matrices(1, (size,)),
            program,
            lambda x, w: functional.rms_norm(x, (size,), w, 1e-6),
        )

    def liger_layer_norm(self) -> Made:
        from liger_kernel.ops.layer_norm import LigerLayerNormFunction

        functional, size = self.torch.nn.functional, self.columns
        given = self.matrices(1, (size,), (size,))
        return (
            given,
            lambda x, w, b: LigerLayerNormFunction.apply(x, w, b, 1e-5),
            lambda x, w, b: functional.layer_norm(x, (size,), w, b, 1e-5),
        )

    def liger_swiglu(self) -> Made:
        from liger_kernel.ops.swiglu import LigerSiLUMulFunction

        functional = self.torch.nn.functional
        # its backward pass overwrites its inputs
        return (
            self.matrices(2),
            lambda a, b: LigerSiLUMulFunction.apply(a * 1, b * 1),
            lambda a, b: functional.silu(a) * b,
        )

    def liger_geglu(self) -> Made:
        from liger_kernel.ops.geglu import LigerGELUMulFunction

        functional = self.torch.nn.functional
        return (
            self.matrices(2),
            lambda a, b: LigerGELUMulFunction.apply(a * 1, b * 1),
            lambda a, b: functional.gelu(a, approximate="tanh") * b,
        )

    def liger_softmax(self) -> Made:
        from liger_kernel.transformers.functional import liger_softmax

        return self.matrices(1), liger_softmax, lambda x: self.torch.softmax(x, -1)

    def liger_cross_entropy(self) -> Made:
        from liger_kernel.transformers.functional import liger_cross_entropy

        target = self.torch.arange(self.rows, device=self.device) % self.columns
        # the forward pass overwrites its input with the gradients
        return (
            self.matrices(1),
            lambda x: liger_cross_entropy(x * 1, target),
            lambda x: self.torch.nn.functional.cross_entropy(x, target),
        )

    def liger_fused_linear_cross_entropy(self) -> Made:
        from liger_kernel.transformers.functional import liger_fused_linear_cross_entropy

        target = self.torch.arange(self.rows, device=self.device) % self.columns
        given = [
            self.normal(self.rows, self.inner),
            self.normal(self.columns, self.inner, scale=self.inner**-0.5),
        ]

        def plain(x: Any, w: Any) -> Any:
            return self.torch.nn.functional.cross_entropy(x @ w.T, target)

        return given, lambda x, w: liger_fused_linear_cross_entropy(x, w, target), plain

    def liger_kl_divergence(self) -> Made:
        from liger_kernel.transformers.functional import liger_kl_div

        functional = self.torch.nn.functional
        target = self.torch.softmax(self.normal(self.rows, self.columns), -1)

        def plain(x: Any) -> Any:
            return functional.kl_div(functional.log_softmax(x, -1), target)

        return (
            self.matrices(1),
            lambda x: liger_kl_div(functional.log_softmax(x, -1), target),
            plain,
        )

    def liger_group_norm(self) -> Made:
        from liger_kernel.transformers.functional import liger_group_norm

        functional, channels = self.torch.nn.functional, 64
        given = [
            self.normal(-(-self.rows // 64), channels, self.columns),
            self.normal(channels),
            self.normal(channels),
        ]
        return (
            given,
            lambda x, w, b: liger_group_norm(x, w, b, channels, 4, 1e-5),
            lambda x, w, b: functional.group_norm(x, 4, w, b, 1e-5),
        )


def _by_head(x: Any) -> Any:
    """Transpose [batch, length, heads, depth] to [batch, heads, length, depth] in float64."""
    return x.double().transpose(1, 2)


def _by_step(x: Any) -> Any:
    return x.transpose(1, 2).float()


def _products(left: Any, right: Any, diagonal: int) -> Any:
    """Return the dot products of rows with earlier rows, up to a diagonal.

    The result has shape [batch, heads, length, length].
    """
    return (_by_head(left) @ _by_head(right).transpose(-1, -2)).tril(diagonal)


def _solved(before: Any, wanted: Any) -> Any:
    """Solve x + before x = wanted for x; ``before`` is strictly lower triangular."""
    import torch

    return torch.linalg.solve_triangular(
        before + torch.eye(before.shape[-1], dtype=before.dtype, device=before.device),
        wanted,
        upper=False,
    )


def _decayed(q: Any, k: Any, v: Any, decay: Any) -> Any:
    """Compute linear attention with a decaying state in float64.

    ``decay`` is the cumulative sum of the logarithms of the decay factors.
    """
    return _by_step(_products(q * decay.exp(), k * (-decay).exp(), 0) @ _by_head(v))


def names() -> list[str]:
    """Return library and function of every case, as the methods of :class:`Maker` are named."""
    return [name for name in vars(Maker) if name.startswith(("fla_", "liger_"))]


def cases() -> Iterator[str]:
    """Yield the names of all cases, which :func:`calls_of` parses."""
    for name in names():
        for way in ("forward", "backward"):
            yield f"{name.replace('_', ' ', 1)} {way}"


def calls_of(case: str, maker: Maker | None = None) -> Calls:
    """Return (0; the library's call and PyTorch's): results, or the gradients of all inputs."""
    import torch

    torch.manual_seed(0)
    program, function, way = case.split()
    inputs, *functions = getattr(maker or Maker(), f"{program}_{function}")()
    if way == "forward":
        return 0, dict(
            zip(("program", "torch"), (lambda f=f: f(*inputs) for f in functions), strict=True)
        )
    inputs = [each.requires_grad_() for each in inputs]
    return 0, dict(
        zip(("program", "torch"), (_backward(f, inputs) for f in functions), strict=True)
    )


def _backward(function: Callable[..., Any], inputs: list[Any]) -> Callable[[], Any]:
    """Return a call of the forward and the backward pass.

    Some backward passes overwrite the saved results of the forward pass, so that each needs a
    forward pass of its own.
    """
    import torch

    found = function(*inputs)
    torch.manual_seed(1)
    slope = torch.randn(
        found.shape, device=found.device
    )  # the same numbers, however the result lies in memory
    return lambda: torch.autograd.grad(function(*inputs), inputs, slope)


if __name__ == "__main__":
    main("programs written for Triton", list(cases()), calls_of, __file__)
