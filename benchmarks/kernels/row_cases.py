"""Cases of ``rows.py``: the library's operations on rows beside PyTorch's and Liger's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional

import tilewright_kernels as tk

try:
    from liger_kernel.transformers import functional as liger
except ImportError:
    liger = None


@dataclass
class Case:
    """An operation and its rivals.

    Attributes:
        name: its name.
        function: the operation.
        rivals: name -> the same by another library.
        reference: the formula.
        inputs: the arguments in order.
        forward_bytes: bytes that the forward pass reads and writes at least.
        backward_bytes: those of the backward pass.
        checked: rows whose results are compared with the reference in float64.
        chunk: rows of a chunk of the reference, where the result is the mean over rows and the
            formula's intermediate arrays of all rows do not fit into memory; 0 where they do.
        inplace: rivals that change their inputs, which are given copies.
        operations: multiplications and additions of both passes, where the rate is theirs.
    """

    name: str
    function: Callable[..., Any]
    rivals: dict[str, Callable[..., Any]]
    reference: Callable[..., Any]
    inputs: tuple[Any, ...]
    forward_bytes: float
    backward_bytes: float
    checked: int = 64
    chunk: int = 0
    inplace: tuple[str, ...] = ("liger",)
    operations: float = 0.0


class Cases:
    """The cases of a device."""

    def __init__(self, device: str) -> None:
        self.device = device
        self.is_small = device == "cpu"
        self.dtype = torch.float32 if self.is_small else torch.bfloat16

    def drawn(self, *shape: int, dtype: torch.dtype | None = None) -> torch.Tensor:
        return torch.randn(*shape, device=self.device).to(dtype or self.dtype).requires_grad_()

    def rows(self, columns: int) -> tuple[int, int]:
        return (256 if self.is_small else 8192), columns

    def norm(self, name: str, columns: int) -> Case:
        x, weight, bias = self.drawn(*self.rows(columns)), self.drawn(columns), self.drawn(columns)
        size = x.element_size() * x.numel()
        if name == "rms_norm":
            rivals = {"torch": lambda x, w: functional.rms_norm(x, w.shape, w, 1e-6)}
            if liger:
                rivals["liger"] = lambda x, w: liger.liger_rms_norm(x, w, 1e-6)
            return Case(
                f"rms_norm {tuple(x.shape)}",
                tk.rms_norm,
                rivals,
                tk.rms_norm_reference,
                (x, weight),
                2 * size,
                3 * size,
            )
        rivals = {"torch": lambda x, w, b: functional.layer_norm(x, w.shape, w, b, 1e-5)}
        if liger:
            rivals["liger"] = lambda x, w, b: liger.liger_layer_norm(x, w, b, 1e-5)
        return Case(
            f"layer_norm {tuple(x.shape)}",
            tk.layer_norm,
            rivals,
            tk.layer_norm_reference,
            (x, weight, bias),
            2 * size,
            3 * size,
        )

    def add_rms_norm(self, columns: int) -> Case:
        x, y = self.drawn(*self.rows(columns)), self.drawn(*self.rows(columns))
        weight = self.drawn(columns)
        size = x.element_size() * x.numel()
        return Case(
            f"add_rms_norm {tuple(x.shape)}",
            lambda *each: tk.add_rms_norm(*each)[0],
            {"torch": lambda x, y, w: functional.rms_norm(x + y, w.shape, w, 1e-6)},
            lambda *each: tk.add_rms_norm_reference(*each)[0],
            (x, y, weight),
            4 * size,
            3 * size,
        )

    def softmax(self, columns: int) -> Case:
        x = self.drawn(*self.rows(columns))
        size = x.element_size() * x.numel()
        rivals = {"torch": lambda x: torch.softmax(x, -1)}
        if liger:
            rivals["liger"] = lambda x: liger.liger_softmax(x)
        return Case(
            f"softmax {tuple(x.shape)}",
            tk.softmax,
            rivals,
            tk.softmax_reference,
            (x,),
            2 * size,
            3 * size,
        )

    def gated(self, name: str, columns: int) -> Case:
        gate, up = self.drawn(*self.rows(columns)), self.drawn(*self.rows(columns))
        size = gate.element_size() * gate.numel()
        ours, formula = getattr(tk, name), getattr(tk, f"{name}_reference")
        activation = (
            functional.silu
            if name == "swiglu"
            else lambda x: functional.gelu(x, approximate="tanh")
        )
        rivals = {"torch": lambda a, b: activation(a) * b}
        if liger:
            rivals["liger"] = getattr(liger, f"liger_{name}")
        return Case(
            f"{name} {tuple(gate.shape)}", ours, rivals, formula, (gate, up), 3 * size, 5 * size
        )

    def rotary(self, heads: int, *, interleaved: bool = False) -> Case:
        rows = 64 if self.is_small else 8192
        x = self.drawn(rows, heads, 128)
        angles = torch.rand(rows, 64, device=self.device)
        cos, sin = angles.cos(), angles.sin()
        size = x.element_size() * x.numel()

        def rotated(x: Any, cos: Any, sin: Any) -> Any:
            return tk.rotary_reference(x, cos.to(x.dtype), sin.to(x.dtype), interleaved)

        rivals: dict[str, Any] = {"torch": rotated}
        if liger and not interleaved:
            double = torch.cat([cos, cos], -1)[None], torch.cat([sin, sin], -1)[None]
            heads_first = x.detach()[None].transpose(1, 2)[:, :1]
            rivals["liger"] = lambda x, cos, sin: liger.liger_rope(
                x[None].transpose(1, 2), heads_first.clone(), *double
            )[0][0].transpose(0, 1)
        return Case(
            f"rotary {'interleaved ' * interleaved}{tuple(x.shape)}",
            lambda x, cos, sin: tk.rotary(x, cos, sin, interleaved=interleaved),
            rivals,
            lambda x, cos, sin: tk.rotary_reference(x, cos, sin, interleaved),
            (x, cos, sin),
            2 * size,
            2 * size,
        )

    def cross_entropy(self, classes: int) -> Case:
        logits = self.drawn(*self.rows(classes))
        target = torch.randint(0, classes, logits.shape[:1], device=self.device)
        size = logits.element_size() * logits.numel()
        rivals = {"torch": lambda x, t: functional.cross_entropy(x, t)}
        if liger:
            rivals["liger"] = lambda x, t: liger.liger_cross_entropy(x, t)
        return Case(
            f"cross_entropy {tuple(logits.shape)}",
            tk.cross_entropy,
            rivals,
            tk.cross_entropy_reference,
            (logits, target),
            size,
            2 * size,
            checked=0,
            chunk=256,
        )

    def linear_cross_entropy(self) -> Case:
        rows, columns, classes = (64, 64, 1000) if self.is_small else (8192, 4096, 131072)
        x, weight = self.drawn(rows, columns), self.drawn(classes, columns)
        with torch.no_grad():
            weight *= columns**-0.5
        target = torch.randint(0, classes, (rows,), device=self.device)

        def whole(x: Any, weight: Any, target: Any) -> Any:
            return functional.cross_entropy(functional.linear(x, weight), target)

        rivals = {"torch": whole}
        if liger:
            rivals["liger"] = liger.liger_fused_linear_cross_entropy
        size = weight.element_size() * (x.numel() + weight.numel())
        return Case(
            f"linear_cross_entropy {(rows, columns, classes)}",
            tk.linear_cross_entropy,
            rivals,
            whole,
            (x, weight, target),
            3 * size,
            2 * size,
            checked=0,
            operations=6.0 * rows * columns * classes,
        )

    def divergence(self, name: str, classes: int) -> Case:
        rows = 16 if self.is_small else 4096
        with torch.no_grad():
            x, target = (
                torch.log_softmax(self.drawn(rows, classes, dtype=torch.float32), -1)
                for _ in range(2)
            )
        x.requires_grad_()
        size = x.element_size() * x.numel()
        if name == "kl_div":
            target = target.exp()
            rivals = {"torch": lambda x, t: functional.kl_div(x, t, reduction="batchmean")}
            if liger:
                rivals["liger"] = lambda x, t: liger.liger_kl_div(x, t, reduction="batchmean")
        else:
            rivals = {"torch": tk.jsd_reference}
            if liger:
                rivals["liger"] = lambda x, t: liger.liger_jsd(x, t)
        return Case(
            f"{name} {tuple(x.shape)}",
            getattr(tk, name),
            rivals,
            getattr(tk, f"{name}_reference"),
            (x, target),
            2 * size,
            # the gradient of the divergence by x depends on the target alone
            (2 if name == "kl_div" else 3) * size,
            checked=0,
        )

    def embedding(self) -> Case:
        rows, tokens, columns = (1000, 256, 512) if self.is_small else (128256, 8192, 4096)
        table = self.drawn(rows, columns)
        index = torch.randint(0, rows, (tokens,), device=self.device)
        size = table.element_size()
        moved = size * columns * tokens
        return Case(
            f"embedding {tokens} of {(rows, columns)}",
            tk.embedding,
            {"torch": functional.embedding},
            tk.embedding_reference,
            (index, table),
            2 * moved,
            moved + size * rows * columns,
            checked=0,
        )

    def dropout(self, columns: int) -> Case:
        x = self.drawn(*self.rows(columns))
        size = x.element_size() * x.numel()
        return Case(
            f"dropout {tuple(x.shape)}",
            lambda x: tk.dropout(x, 0.1, 7),
            {"torch": lambda x: functional.dropout(x, 0.1)},
            lambda x: tk.dropout_reference(x, 0.1, 7),
            (x,),
            2 * size,
            2 * size,
        )

    def group_norm(self) -> Case:
        x = self.drawn(*((2, 64, 16, 16) if self.is_small else (16, 320, 64, 64)))
        weight, bias = self.drawn(x.shape[1]), self.drawn(x.shape[1])
        size = x.element_size() * x.numel()
        return Case(
            f"group_norm {tuple(x.shape)}",
            lambda x, w, b: tk.group_norm(x, 32, w, b),
            {"torch": lambda x, w, b: functional.group_norm(x, 32, w, b)},
            lambda x, w, b: tk.group_norm_reference(x, 32, w, b),
            (x, weight, bias),
            2 * size,
            3 * size,
            checked=0,
        )

    def all(self) -> dict[str, Callable[[], Case]]:
        wide = 1024 if self.is_small else 8192
        feed_forward = 2048 if self.is_small else 14336
        classes = 8192 if self.is_small else 131072
        return {
            "rms_norm": lambda: self.norm("rms_norm", wide // 2),
            "rms_norm 2": lambda: self.norm("rms_norm", wide),
            "rms_norm short": lambda: self.norm("rms_norm", 128),
            "add_rms_norm": lambda: self.add_rms_norm(wide),
            "layer_norm": lambda: self.norm("layer_norm", wide // 2),
            "layer_norm 2": lambda: self.norm("layer_norm", wide),
            "softmax": lambda: self.softmax(wide // 2),
            "softmax 2": lambda: self.softmax(wide),
            "softmax wide": lambda: self.softmax(5 * wide),
            "cross_entropy": lambda: self.cross_entropy(classes),
            "linear_cross_entropy": self.linear_cross_entropy,
            "kl_div": lambda: self.divergence("kl_div", classes // 4),
            "jsd": lambda: self.divergence("jsd", classes // 4),
            "swiglu": lambda: self.gated("swiglu", feed_forward),
            "geglu": lambda: self.gated("geglu", feed_forward),
            "rotary": lambda: self.rotary(32),
            "rotary interleaved": lambda: self.rotary(32, interleaved=True),
            "embedding": self.embedding,
            "dropout": lambda: self.dropout(wide),
            "group_norm": self.group_norm,
        }
