"""Fused attention, forward and backward: softmax(q kᵀ · scale) v without storing the scores (Dao et
al., 2022).

The forward pass reads through tensor descriptors, made on the host where the device copies blocks
by itself, in the kernel elsewhere. A causal pass takes the blocks left of the diagonal without a
mask, and only those on it with one. Exponentials are to the base 2, which devices compute directly.

With P the weights and D the row sums of out · dout, the gradients are dv = Pᵀ dout, dS = P ∘ (dout
vᵀ - D), dq = scale · dS k, dk = scale · dSᵀ q; P is computed again from the logarithms of the row
sums that the forward pass kept.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
import triton
import triton.language as tl
from comparison import compare, device
from triton.tools.tensor_descriptor import TensorDescriptor


def set_blocks(arguments: dict[str, Any]) -> None:
    """The blocks of host descriptors follow from the configuration that is about to run."""
    for name, rows in (("q", "BLOCK_M"), ("k", "BLOCK_N"), ("v", "BLOCK_N"), ("out", "BLOCK_M")):
        if isinstance(arguments[name], TensorDescriptor):
            arguments[name].block_shape = [1, arguments[rows], arguments["HEAD"]]


def forward_configurations() -> list[triton.Config]:
    sizes = [(128, 64, 8, 3), (128, 64, 4, 3), (64, 64, 4, 3), (64, 32, 4, 4)]
    return [
        triton.Config({"BLOCK_M": m, "BLOCK_N": n}, num_warps=w, num_stages=s, pre_hook=set_blocks)
        for m, n, w, s in sizes
    ]


def backward_configurations() -> list[triton.Config]:
    sizes = [
        (32, 128, 4, 3),
        (64, 64, 4, 2),
        (32, 32, 4, 3),
    ]  # the block that stays, the block that goes by
    return [
        triton.Config({"BLOCK_HELD": held, "BLOCK_STEP": step}, num_warps=w, num_stages=s)
        for step, held, w, s in sizes
    ]


def sensible(
    configs: list[triton.Config], arguments: dict[str, Any], **_: Any
) -> list[triton.Config]:
    """Without the configurations whose query block is mostly past the end of short sequences."""
    return [
        config for config in configs if config.kwargs["BLOCK_M"] <= max(64, arguments["length"])
    ]


@triton.jit
def descriptor_of(x, matrices, length, HEAD: tl.constexpr, BLOCK: tl.constexpr):
    """``x`` where the host made it a descriptor, else a descriptor of the [matrices, length, HEAD]
    elements it points to.
    """
    if isinstance(x, tl.tensor_descriptor):
        return x
    else:
        return tl.make_tensor_descriptor(
            x, [matrices, length, HEAD], [length * HEAD, HEAD, 1], [1, BLOCK, HEAD]
        )


@triton.jit
def attend(
    state, q, k, v, matrix, rows, start, end, length, log2_scale,
    CAUSAL: tl.constexpr, MASKED: tl.constexpr, BLOCK_N: tl.constexpr, HEAD: tl.constexpr,
):  # fmt: skip
    """Update ``state`` (weighted sum, sum of weights, maximum score, per row) with a range of keys.

    The range is from ``start`` up to ``end``.
    """
    weighted, total, highest = state
    for column in tl.range(start, end, BLOCK_N):
        keys = k.load([matrix, column, 0]).reshape(BLOCK_N, HEAD)
        scores = tl.dot(q, keys.T) * log2_scale
        if MASKED:
            columns = column + tl.arange(0, BLOCK_N)
            seen = columns[None, :] < length
            if CAUSAL:
                seen = seen & (rows[:, None] >= columns[None, :])
            scores = tl.where(seen, scores, -float("inf"))
        new_highest = tl.maximum(highest, tl.max(scores, 1))
        fade = tl.math.exp2(highest - new_highest)
        weights = tl.math.exp2(scores - new_highest[:, None])
        values = v.load([matrix, column, 0]).reshape(BLOCK_N, HEAD)
        weighted = tl.dot(weights.to(values.dtype), values, weighted * fade[:, None])
        total = total * fade + tl.sum(weights, 1)
        highest = new_highest
    return weighted, total, highest


@triton.autotune(
    configs=forward_configurations(),
    key=["length", "HEAD", "CAUSAL"],
    prune_configs_by={"early_config_prune": sensible},
)
@triton.jit
def forward_kernel(
    q, k, v, out, lse_ptr, scale, matrices, length,
    CAUSAL: tl.constexpr, HEAD: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    start_m = tl.program_id(0) * BLOCK_M
    matrix = tl.program_id(1)
    q = descriptor_of(q, matrices, length, HEAD, BLOCK_M)
    k = descriptor_of(k, matrices, length, HEAD, BLOCK_N)
    v = descriptor_of(v, matrices, length, HEAD, BLOCK_N)
    out = descriptor_of(out, matrices, length, HEAD, BLOCK_M)
    rows = start_m + tl.arange(0, BLOCK_M)
    queries = q.load([matrix, start_m, 0]).reshape(BLOCK_M, HEAD)
    log2_scale = scale * 1.4426950408889634

    zero = tl.zeros([BLOCK_M, HEAD], dtype=tl.float32)
    state = (
        zero,
        tl.zeros([BLOCK_M], dtype=tl.float32),
        tl.full([BLOCK_M], -float("inf"), dtype=tl.float32),
    )
    if CAUSAL:
        whole = start_m // BLOCK_N * BLOCK_N
        end = tl.minimum(start_m + BLOCK_M, length)
    else:
        whole = length // BLOCK_N * BLOCK_N
        end = length
    state = attend(
        state,
        queries,
        k,
        v,
        matrix,
        rows,
        0,
        whole,
        length,
        log2_scale,
        CAUSAL,
        False,
        BLOCK_N,
        HEAD,
    )
    state = attend(
        state,
        queries,
        k,
        v,
        matrix,
        rows,
        whole,
        end,
        length,
        log2_scale,
        CAUSAL,
        True,
        BLOCK_N,
        HEAD,
    )
    weighted, total, highest = state

    tl.store(lse_ptr + matrix * length + rows, highest + tl.math.log2(total), mask=rows < length)
    result = (weighted / total[:, None]).to(out.dtype)
    out.store([matrix, start_m, 0], result.reshape(1, BLOCK_M, HEAD))


@triton.jit
def products_kernel(out_ptr, dout_ptr, delta_ptr, length, HEAD: tl.constexpr, BLOCK: tl.constexpr):
    """The row sums of out · dout."""
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    matrix = tl.program_id(1).to(tl.int64)
    places = matrix * length * HEAD + rows[:, None] * HEAD + tl.arange(0, HEAD)[None, :]
    inside = rows < length
    out = tl.load(out_ptr + places, mask=inside[:, None], other=0.0).to(tl.float32)
    dout = tl.load(dout_ptr + places, mask=inside[:, None], other=0.0).to(tl.float32)
    tl.store(delta_ptr + matrix * length + rows, tl.sum(out * dout, axis=1), mask=inside)


@triton.autotune(configs=backward_configurations(), key=["length", "HEAD", "CAUSAL"])
@triton.jit
def keys_backward_kernel(
    q_ptr, k_ptr, v_ptr, dout_ptr, dk_ptr, dv_ptr, lse_ptr, delta_ptr, scale, length,
    CAUSAL: tl.constexpr, HEAD: tl.constexpr, BLOCK_HELD: tl.constexpr, BLOCK_STEP: tl.constexpr,
):  # fmt: skip
    """Compute dk and dv of a block of keys, from all queries that attend to it.

    Scores are kept transposed, with one key per row.
    """
    start = tl.program_id(0) * BLOCK_HELD
    matrix = tl.program_id(1).to(tl.int64)
    base = matrix * length * HEAD
    columns = start + tl.arange(0, BLOCK_HELD)
    dims = tl.arange(0, HEAD)
    held = columns[:, None] * HEAD + dims[None, :]
    k = tl.load(k_ptr + base + held, mask=columns[:, None] < length, other=0.0)
    v = tl.load(v_ptr + base + held, mask=columns[:, None] < length, other=0.0)
    dk = tl.zeros([BLOCK_HELD, HEAD], dtype=tl.float32)
    dv = tl.zeros([BLOCK_HELD, HEAD], dtype=tl.float32)
    log2_scale = scale * 1.4426950408889634
    first = start // BLOCK_STEP * BLOCK_STEP if CAUSAL else 0
    for row in range(first, length, BLOCK_STEP):
        rows = row + tl.arange(0, BLOCK_STEP)
        inside = rows < length
        q = tl.load(
            q_ptr + base + rows[:, None] * HEAD + dims[None, :], mask=inside[:, None], other=0.0
        )
        dout = tl.load(
            dout_ptr + base + rows[:, None] * HEAD + dims[None, :], mask=inside[:, None], other=0.0
        )
        lse = tl.load(
            lse_ptr + matrix * length + rows, mask=inside, other=0.0
        )  # rows past the end add nothing: their dout is 0
        delta = tl.load(delta_ptr + matrix * length + rows, mask=inside, other=0.0)
        weights = tl.math.exp2(tl.dot(k, q.T) * log2_scale - lse[None, :])
        if CAUSAL:
            weights = tl.where(rows[None, :] >= columns[:, None], weights, 0.0)
        dv = tl.dot(weights.to(dout.dtype), dout, dv)
        dscores = weights * (tl.dot(v, dout.T) - delta[None, :])
        dk = tl.dot(dscores.to(q.dtype), q, dk)
    tl.store(
        dk_ptr + base + held,
        (dk * scale).to(dk_ptr.dtype.element_ty),
        mask=columns[:, None] < length,
    )
    tl.store(dv_ptr + base + held, dv.to(dv_ptr.dtype.element_ty), mask=columns[:, None] < length)


@triton.autotune(configs=backward_configurations(), key=["length", "HEAD", "CAUSAL"])
@triton.jit
def queries_backward_kernel(
    q_ptr, k_ptr, v_ptr, dout_ptr, dq_ptr, lse_ptr, delta_ptr, scale, length,
    CAUSAL: tl.constexpr, HEAD: tl.constexpr, BLOCK_HELD: tl.constexpr, BLOCK_STEP: tl.constexpr,
):  # fmt: skip
    """dq of a block of queries, from all keys they see."""
    start = tl.program_id(0) * BLOCK_HELD
    matrix = tl.program_id(1).to(tl.int64)
    base = matrix * length * HEAD
    rows = start + tl.arange(0, BLOCK_HELD)
    dims = tl.arange(0, HEAD)
    inside = rows < length
    held = rows[:, None] * HEAD + dims[None, :]
    q = tl.load(q_ptr + base + held, mask=inside[:, None], other=0.0)
    dout = tl.load(dout_ptr + base + held, mask=inside[:, None], other=0.0)
    lse = tl.load(lse_ptr + matrix * length + rows, mask=inside, other=0.0)
    delta = tl.load(delta_ptr + matrix * length + rows, mask=inside, other=0.0)
    dq = tl.zeros([BLOCK_HELD, HEAD], dtype=tl.float32)
    log2_scale = scale * 1.4426950408889634
    end = tl.minimum(start + BLOCK_HELD, length) if CAUSAL else length
    for column in range(0, end, BLOCK_STEP):
        columns = column + tl.arange(0, BLOCK_STEP)
        k = tl.load(
            k_ptr + base + columns[:, None] * HEAD + dims[None, :],
            mask=columns[:, None] < length,
            other=0.0,
        )
        v = tl.load(
            v_ptr + base + columns[:, None] * HEAD + dims[None, :],
            mask=columns[:, None] < length,
            other=0.0,
        )
        weights = tl.math.exp2(tl.dot(q, k.T) * log2_scale - lse[:, None])
        seen = columns[None, :] < length
        if CAUSAL:
            seen = seen & (rows[:, None] >= columns[None, :])
        weights = tl.where(
            seen, weights, 0.0
        )  # a key past the end has the score 0, whose weight may be infinite
        dscores = weights * (tl.dot(dout, v.T) - delta[:, None])
        dq = tl.dot(dscores.to(k.dtype), k, dq)
    tl.store(dq_ptr + base + held, (dq * scale).to(dq_ptr.dtype.element_ty), mask=inside[:, None])


def makes_descriptors_on_the_host() -> bool:
    """Return whether the device has TMA (compute capability 9 and later).

    Other devices access descriptors element by element.
    """
    target = triton.runtime.driver.active.get_current_target()
    return target.backend != "cuda" or target.arch >= 90


class Attention(torch.autograd.Function):
    """Attention of ``q``, ``k``, ``v`` [batch, heads, length, head dimension], the last a power of
    two from 16.
    """

    @staticmethod
    def forward(
        ctx: Any,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        causal: bool,
        scale: float,
        host_descriptors: bool | None = None,
    ) -> torch.Tensor:
        batch, heads, length, head = q.shape
        q, k, v = (tensor.contiguous() for tensor in (q, k, v))
        out = torch.empty_like(q)
        lse = torch.empty((batch, heads, length), device=q.device, dtype=torch.float32)
        matrices = batch * heads
        operands: list[Any] = [q, k, v, out]
        if makes_descriptors_on_the_host() if host_descriptors is None else host_descriptors:
            # the blocks are set before a launch, when the configuration is known
            operands = [
                TensorDescriptor(
                    tensor, [matrices, length, head], [length * head, head, 1], [1, 1, 1]
                )
                for tensor in operands
            ]
        else:
            triton.set_allocator(
                lambda size, alignment, stream: torch.empty(
                    size, device=lse.device, dtype=torch.int8
                )
            )
        grid = lambda meta: (triton.cdiv(length, meta["BLOCK_M"]), matrices)  # noqa: E731
        forward_kernel[grid](*operands, lse, scale, matrices, length, CAUSAL=causal, HEAD=head)
        ctx.save_for_backward(q, k, v, out, lse)
        ctx.causal, ctx.scale = causal, scale
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        q, k, v, out, lse = ctx.saved_tensors
        batch, heads, length, head = q.shape
        matrices = batch * heads
        dout = gradients[0].contiguous()
        dq, dk, dv = (torch.empty_like(tensor) for tensor in (q, k, v))
        delta = torch.empty_like(lse)
        products_kernel[(triton.cdiv(length, 64), matrices)](
            out, dout, delta, length, HEAD=head, BLOCK=64
        )
        grid = lambda meta: (triton.cdiv(length, meta["BLOCK_HELD"]), matrices)  # noqa: E731
        keys_backward_kernel[grid](
            q, k, v, dout, dk, dv, lse, delta, ctx.scale, length, CAUSAL=ctx.causal, HEAD=head
        )
        queries_backward_kernel[grid](
            q, k, v, dout, dq, lse, delta, ctx.scale, length, CAUSAL=ctx.causal, HEAD=head
        )
        return dq, dk, dv, None, None, None


attention = Attention.apply


def exact_attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool, scale: float
) -> torch.Tensor:
    """Attention by its definition, in the type of the operands."""
    scores = q @ k.transpose(-2, -1) * scale
    if causal:
        scores = scores.masked_fill(
            ~torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).tril(), float("-inf")
        )
    return torch.softmax(scores, -1) @ v


def compare_of(shape: tuple[int, ...], dtype: torch.dtype, causal: bool) -> None:
    """Print the comparison of both passes in one type; the exact scores are those of two heads,
    since all of them in float64 take much memory.
    """
    q, k, v, dout = (torch.randn(shape, device=device(), dtype=dtype) for _ in range(4))
    inputs = [tensor.requires_grad_() for tensor in (q, k, v)]

    def mine() -> torch.Tensor:
        return attention(q, k, v, causal, 0.125)

    def rival() -> torch.Tensor:
        return torch.nn.functional.scaled_dot_product_attention(
            q, k, v, is_causal=causal, scale=0.125
        )

    def gradient(out: torch.Tensor, place: int) -> torch.Tensor:
        return torch.autograd.grad(out, inputs, dout, retain_graph=True)[place][:1, :2]

    wide = [tensor.detach()[:1, :2].double().requires_grad_() for tensor in inputs]
    exact = exact_attention(*wide, causal=causal, scale=0.125)
    name = f"attention {'x'.join(map(str, shape))} {str(dtype)[6:]}{' causal' if causal else ''}"
    compare(name, lambda: mine().detach()[:1, :2], lambda: rival().detach()[:1, :2], exact.detach())
    out, other = mine(), rival()
    wanted = torch.autograd.grad(exact, wide, dout[:1, :2].double())
    for place, operand in enumerate(("dq", "dk", "dv")):
        compare(
            f"  its backward pass, {operand}",
            partial(gradient, out, place),
            partial(gradient, other, place),
            wanted[place],
        )


def main() -> None:
    shape = (1, 2, 512, 64) if device().type == "cpu" else (4, 32, 4096, 64)
    for dtype in (torch.float16, torch.bfloat16):
        for causal in (False, True):
            compare_of(shape, dtype, causal)


if __name__ == "__main__":
    main()
