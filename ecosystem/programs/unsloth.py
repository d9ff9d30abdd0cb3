"""unsloth: norms, activations, rotary embeddings and losses.

Its packages prepare PyTorch, transformers and a GPU for training when they are imported, and need a
dozen others for it; only the modules of kernels are imported here, from packages that hold nothing
else. Without a GPU they are imported as if there were one.
"""

import contextlib
import functools
import importlib
import importlib.util
import sys
from types import ModuleType

import torch
import torch.nn.functional as F

from programs import close, random, same

DISTRIBUTION = "unsloth"


def bare(name, **values):
    """A package whose modules can be imported, and whose own code is not run."""
    spec = importlib.util.find_spec(name)
    package = sys.modules[name] = ModuleType(name)
    package.__path__ = list(spec.submodule_search_locations)
    package.__spec__ = spec
    vars(package).update(values)


@functools.cache
def packages():
    importlib.import_module("torch._inductor.config")  # they read its source

    bare("unsloth_zoo", DEVICE_TYPE="cuda", DEVICE_TYPE_TORCH="cuda")
    bare("unsloth_zoo.temporary_patches")
    bare("unsloth")
    bare("unsloth.kernels")


def on(device):
    """Where its kernels are imported and run."""
    packages()
    if device != "cpu":
        return contextlib.nullcontext()
    from tilewright.compat.host_tensors import HostTensors

    return HostTensors()


def case_rms_norm(device):
    with on(device):
        from unsloth.kernels.rms_layernorm import Fast_RMS_Layernorm

        given = [random(device, 2, 6, 96), random(device, 96)]
        x, weight = given
        close(Fast_RMS_Layernorm.apply(x, weight, 1e-6, False), F.rms_norm(x, (96,), weight, 1e-6))
        # the gradient is that of the input alone: its models train adapters
        same(
            lambda x: Fast_RMS_Layernorm.apply(x, weight, 1e-6, False),
            lambda x: F.rms_norm(x, (96,), weight, 1e-6),
            [x],
        )
        same(
            lambda x: Fast_RMS_Layernorm.apply(x, weight, 1e-6, True),
            lambda x: F.rms_norm(x, (96,), weight + 1, 1e-6),
            [x],
        )


def case_layer_norm(device):
    with on(device):
        from unsloth.kernels.layernorm import Fast_Layernorm

        x, weight, bias = random(device, 2, 6, 96), random(device, 96), random(device, 96, seed=1)
        same(
            lambda x: Fast_Layernorm.apply(x, weight, bias, 1e-5),
            lambda x: F.layer_norm(x, (96,), weight, bias, 1e-5),
            [x],
        )


def gated(device, forward, backward, activation):
    """A gated activation and its gradients: (h, the gate's, the up projection's), which the
    backward pass writes over what it is given.
    """
    e, g, d = (random(device, 2, 6, 96, seed=seed) for seed in range(3))
    gate, up = (each.clone().requires_grad_() for each in (e, g))
    expected = activation(gate) * up
    close(forward(e, g), expected)
    gradients = torch.autograd.grad(expected, (up, gate), d)
    found = backward(*(each.reshape(12, 96).clone() for each in (d, e, g)))
    for one, other in zip(found, (expected, torch.nan, gradients[1]), strict=True):
        if isinstance(other, torch.Tensor):
            close(one.reshape(2, 6, 96), other)
    close(found[1].reshape(2, 6, 96), d * activation(e))


def case_swiglu(device):
    with on(device):
        from unsloth.kernels.swiglu import swiglu_DWf_DW_dfg_kernel, swiglu_fg_kernel

        gated(device, swiglu_fg_kernel, swiglu_DWf_DW_dfg_kernel, F.silu)


def case_geglu(device):
    with on(device):
        from unsloth.kernels import geglu

        gated(device, geglu.geglu_exact_forward_kernel, geglu.geglu_exact_backward_kernel, F.gelu)
        gated(
            device,
            geglu.geglu_approx_forward_kernel,
            geglu.geglu_approx_backward_kernel,
            lambda x: F.gelu(x, approximate="tanh"),
        )


def case_rope(device):
    with on(device):
        from unsloth.kernels.rope_embedding import fast_rope_embedding

        q, k = random(device, 1, 4, 10, 32), random(device, 1, 2, 10, 32)
        angles = torch.outer(torch.arange(10.0), 1e4 ** (-torch.arange(0, 32, 2) / 32)).to(device)
        cos, sin = (torch.cat((each, each), -1) for each in (angles.cos(), angles.sin()))

        def rotated(x):
            half = torch.cat((-x[..., 16:], x[..., :16]), -1)
            return x * cos + half * sin

        found = fast_rope_embedding(q.clone(), k.clone(), cos, sin)
        close(found[0], rotated(q))
        close(found[1], rotated(k))


def case_cross_entropy(device):
    with on(device):
        from unsloth.kernels.cross_entropy_loss import fast_cross_entropy_loss

        labels = (torch.arange(12, device=device) * 7).reshape(2, 6)
        labels[0, 2] = -100

        def expected(logits):
            return F.cross_entropy(logits.reshape(12, 100), labels.reshape(12))

        same(
            lambda logits: fast_cross_entropy_loss(logits.clone(), labels),
            expected,
            [random(device, 2, 6, 100)],
        )
