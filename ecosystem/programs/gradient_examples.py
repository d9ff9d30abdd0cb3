"""The kernels of ``examples``, in sizes for the reference interpreter."""

import sys
from pathlib import Path

import torch

from programs import random

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def _example(folder, name):
    """A module of a folder of examples, which imports its neighbors by name."""
    import importlib

    sys.path.insert(0, str(EXAMPLES / folder))
    try:
        for other in ("comparison", name):
            sys.modules.pop(other, None)
        return importlib.import_module(name)
    finally:
        sys.path.pop(0)
        sys.modules.pop(name, None)


def case_attention(device):
    q, k, v = (random(device, 1, 2, 40, 16, seed=seed) for seed in range(3))
    for causal in (False, True):
        out, lse = torch.empty_like(q), torch.empty(1, 2, 40)
        kernel = _example("kernels", "attention").attention_kernel
        kernel[(3, 2)](q, k, v, out, lse, 0.25, 40, CAUSAL=causal, BLOCK_M=16, BLOCK_N=16, HEAD=16)


def case_cross_entropy(device):
    target = torch.tensor([3, 99, 0], device=device)
    logits, loss, lse = random(device, 3, 100), torch.empty(3), torch.empty(3)
    _example("kernels", "cross_entropy").cross_entropy(logits, target, loss, lse, 32)


def case_layer_norm(device):
    x, weight, bias = random(device, 3, 100), random(device, 100), random(device, 100, seed=1)
    out, mean, rstd = torch.empty_like(x), torch.empty(3), torch.empty(3)
    kernel = _example("kernels", "layer_norm").layer_norm_kernel
    kernel[(3,)](x, out, weight, bias, mean, rstd, 100, 100, 1e-5, BLOCK=64)


def case_matmul(device):
    a, b, c = random(device, 35, 45), random(device, 45, 27), torch.empty(35, 27)
    module = _example("kernels", "matmul")
    for activation in (None, module.leaky_relu):
        module.matmul_kernel[(6,)](
            a, b, c, 35, 27, 45, 45, 1, 27, 1, 27, 1, BLOCK_M=16, BLOCK_N=16, BLOCK_K=16, GROUP_M=2,
            ACTIVATION=activation,
        )  # fmt: skip


def case_softmax(device):
    x = random(device, 3, 100)
    _example("kernels", "softmax").softmax(x, torch.empty_like(x))


def case_split_k_matmul(device):
    a, b, c = random(device, 16, 64), random(device, 64, 16), torch.empty(16, 16)
    parts = torch.empty(2, 16, 16)
    _example("kernels", "split_k_matmul").split_k_matmul(a, b, c, parts, (16, 16, 16))


def case_swiglu(device):
    gate, up = random(device, 100), random(device, 100, seed=1)
    _example("kernels", "swiglu").swiglu(gate, up, torch.empty_like(gate), 64)


def case_vector_add(device):
    x, y = random(device, 100), random(device, 100, seed=1)
    _example("kernels", "vector_add").add(x, y, torch.empty_like(x), 64)


def case_triton_attention(device):
    q, k, v = (random(device, 1, 2, 64, 16, seed=seed) for seed in range(3))
    module = _example("triton", "attention")
    for causal in (False, True):
        module.Attention.apply(q, k, v, causal, 0.25, True)


def case_triton_dropout(device):
    module = _example("triton", "dropout")
    x = random(device, 4, 60)
    module.masked_dropout(x.flatten(), torch.rand(240) > 0.5, 0.3)
    module.seeded_dropout(x.flatten(), 0.3, 7)
    module.row_seeded_dropout(x, 0.3, torch.tensor([1, 2, 3, 4]))


def case_triton_extern_functions(device):
    module = _example("triton", "extern_functions")
    x, y = torch.rand(50) - 0.5, torch.rand(50) + 0.1
    module.asin(x)
    for name in ("hypot", "atan2", "copysign"):
        module.two_argument(name, x, y)


def case_triton_grouped_gemm(device):
    pairs = [(random(device, 16, 16), random(device, 16, 16, seed=1))]
    _example("triton", "grouped_gemm").grouped_gemm(*map(list, zip(*pairs, strict=True)))


def case_triton_layer_norm(device):
    module = _example("triton", "layer_norm")
    x, weight, bias = random(device, 3, 100), random(device, 100), random(device, 100, seed=1)
    module.LayerNorm.apply(x, weight, bias, 1e-5)


def case_triton_matmul(device):
    module = _example("triton", "matmul")
    for activation in ("", "leaky_relu"):
        module.matmul(random(device, 32, 32), random(device, 32, 32, seed=1), activation)


def case_triton_persistent_matmul(device):
    module = _example("triton", "persistent_matmul")
    for way in ("pointers", "host"):
        module.matmul(random(device, 32, 32), random(device, 32, 32, seed=1), way)


def case_triton_softmax(device):
    _example("triton", "softmax").softmax(random(device, 3, 100))


def case_triton_vector_add(device):
    _example("triton", "vector_add").add(random(device, 100), random(device, 100, seed=1))
