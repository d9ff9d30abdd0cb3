"""PyTorch's Inductor: the kernels that it writes for parts of 20 models, on a pretended H100.

``llama_mlp.triton_poi_fused_mul_silu_0`` is a kernel of the part ``llama_mlp``: attributes of this
module are the parts, whose attributes are the kernels. Inductor's code is generated at the first
access and never compiled or run; names and kernels are the same for one version of PyTorch.
"""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
import torch.nn.functional as F

_SOURCE = re.compile(r"async_compile\.triton\('(\w+)', '''(.*?)'''", re.DOTALL)


def kernels(part: str) -> dict[str, Any]:
    """Inductor's autotuners around the kernels of a part, by name."""
    from torch._inductor.codecache import PyCodeCache

    found: dict[str, Any] = {}
    with (
        _generating(),
        mock.patch("torch._inductor.runtime.triton_helpers.set_driver_to_gpu", lambda: None),
    ):
        for name, source in _SOURCE.findall(code(part)):
            found[name] = getattr(PyCodeCache.load(source), name)
    return found


@functools.cache
def code(part: str) -> str:
    """The Python text that Inductor writes for a part."""
    from torch._dispatch.python import enable_python_dispatcher
    from torch._inductor.debug import DebugContext
    from torch._inductor.decomposition import select_decomp_table
    from torch._inductor.graph import GraphLowering
    from torch._inductor.virtualized import V
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.proxy_tensor import make_fx

    function, shapes = PARTS[part]
    with _generating(), torch.no_grad():
        mode = FakeTensorMode()
        with mode:
            given = [torch.empty(shape, dtype=dtype, device="cuda") for shape, dtype in shapes]
        with enable_python_dispatcher():
            graph = make_fx(
                function,
                decomposition_table=select_decomp_table(),
                tracing_mode="fake",
                _allow_non_fake_inputs=True,
            )(*given)
        from torch._inductor.fx_passes.post_grad import post_grad_passes

        with V.set_fake_mode(mode):
            post_grad_passes(graph, is_inference=True)
            lowering = GraphLowering(graph, is_inference=True)
            with V.set_graph_handler(lowering), V.set_debug_handler(DebugContext()):
                lowering.run(*given)
                written = lowering.codegen()
    text = written[0] if isinstance(written, tuple) else written
    return str(getattr(text, "value", text))


class _Current(contextlib.nullcontext[None]):
    """The device made the current one, which it is: a class, as PyTorch's is, for Inductor asks
    what is an instance of it.
    """


@contextlib.contextmanager
def _generating() -> Iterator[None]:
    """The H100 that Inductor asks for, whose tensors lie where they say."""
    from torch._inductor import config
    from torch._subclasses.fake_tensor import FakeTensorMode

    from corpus.pretended import PROPERTIES

    answers = {
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "get_device_capability": lambda device=None: (9, 0),
        "get_device_properties": lambda device=None: PROPERTIES,
        "get_device_name": lambda device=None: PROPERTIES.name,
        "synchronize": lambda device=None: None,
        "device": _Current,
    }
    with contextlib.ExitStack() as patches:
        patches.enter_context(torch._C.DisableTorchFunction())  # of a pretence around this one
        for name, answer in answers.items():
            patches.enter_context(mock.patch.object(torch.cuda, name, answer))
        patches.enter_context(
            mock.patch.object(
                torch.cuda, "_get_device_properties", lambda device: PROPERTIES, create=True
            )
        )
        patches.enter_context(
            mock.patch.object(FakeTensorMode, "avoid_device_init", property(lambda mode: True))
        )
        patches.enter_context(
            config.patch(
                {"compile_threads": 1, "fx_graph_cache": False, "triton.unique_kernel_names": True}
            )
        )
        yield


def __getattr__(name: str) -> Any:
    if name not in PARTS:
        raise AttributeError(f"no part of a model is called {name!r}")
    return SimpleNamespace(**kernels(name))


# ---- the parts

_B, _F = torch.bfloat16, torch.float32
_Shapes = list[tuple[tuple[int, ...], torch.dtype]]


def _rms_norm(x: Any, weight: Any) -> Any:
    wide = x.float()
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-6)).to(x.dtype) * weight


def _rotated(x: Any, cos: Any, sin: Any) -> Any:
    half = x.shape[-1] // 2
    return x * cos + torch.cat((-x[..., half:], x[..., :half]), -1) * sin


def _adamw(p: Any, g: Any, m: Any, v: Any) -> Any:
    m, v = torch.lerp(m, g, 0.1), torch.lerp(v, g * g, 0.001)
    return p * 0.999 - 1e-3 * m / (v.sqrt() + 1e-8), m, v


def _attention_bias(scores: Any, bias: Any) -> Any:
    return torch.softmax(scores.float() * 0.125 + bias, -1).to(scores.dtype)


#: name -> (function, shapes and element types of its arguments)
PARTS: dict[str, tuple[Callable[..., Any], _Shapes]] = {
    "llama_norm": (
        lambda x, r, w: (_rms_norm(x + r, w), x + r),
        [((4096, 4096), _B), ((4096, 4096), _B), ((4096,), _B)],
    ),
    "llama_70b_norm": (
        lambda x, r, w: (_rms_norm(x + r, w), x + r),
        [((4096, 8192), _B), ((4096, 8192), _B), ((8192,), _B)],
    ),
    "llama_mlp": (lambda a, b: F.silu(a) * b, [((4096, 14336), _B), ((4096, 14336), _B)]),
    "llama_rope": (
        _rotated,
        [((1, 32, 4096, 128), _B), ((1, 1, 4096, 128), _B), ((1, 1, 4096, 128), _B)],
    ),
    "llama_loss": (
        lambda x, y: F.cross_entropy(x.float(), y),
        [((1024, 128256), _B), ((1024,), torch.int64)],
    ),
    "gemma_mlp": (
        lambda a, b: F.gelu(a, approximate="tanh") * b,
        [((4096, 24576), _B), ((4096, 24576), _B)],
    ),
    "gemma_softcap": (lambda x: 30.0 * torch.tanh(x.float() / 30.0), [((1024, 256000), _B)]),
    "gpt2_norm": (
        lambda x, w, b: F.layer_norm(x, (1600,), w, b),
        [((4096, 1600), _B), ((1600,), _B), ((1600,), _B)],
    ),
    "bert_embeddings": (
        lambda t, i, p, w, b: F.layer_norm(F.embedding(i, t) + p, (1024,), w, b),
        [
            ((30522, 1024), _B),
            ((8, 512), torch.int64),
            ((512, 1024), _B),
            ((1024,), _B),
            ((1024,), _B),
        ],
    ),
    "bert_attention": (_attention_bias, [((8, 16, 512, 512), _B), ((8, 1, 1, 512), _F)]),
    "t5_attention": (_attention_bias, [((8, 32, 512, 512), _B), ((1, 32, 512, 512), _F)]),
    "vit_pooling": (
        lambda x, w, b: F.layer_norm(x, (1280,), w, b).mean(1),
        [((32, 257, 1280), _B), ((1280,), _B), ((1280,), _B)],
    ),
    "resnet_block": (
        lambda x, r, m, v, w, b: F.relu(F.batch_norm(x, m, v, w, b) + r),
        [((32, 256, 56, 56), _F), ((32, 256, 56, 56), _F), *[((256,), _F)] * 4],
    ),
    "convnext_norm": (
        lambda x, w, b: F.layer_norm(x.permute(0, 2, 3, 1), (512,), w, b),
        [((32, 512, 28, 28), _F), ((512,), _F), ((512,), _F)],
    ),
    "unet_norm": (
        lambda x, w, b: F.silu(F.group_norm(x, 32, w, b)),
        [((2, 320, 128, 128), _B), ((320,), _B), ((320,), _B)],
    ),
    "dit_modulation": (
        lambda x, shift, scale: F.layer_norm(x, (3072,)) * (1 + scale[:, None]) + shift[:, None],
        [((2, 4096, 3072), _B), ((2, 3072), _B), ((2, 3072), _B)],
    ),
    "whisper_mlp": (lambda x, b: F.gelu(x + b), [((16, 1500, 5120), _B), ((5120,), _B)]),
    "mixtral_router": (lambda x: torch.softmax(x.float(), -1), [((4096, 8), _B)]),
    "mamba_gate": (
        lambda x, z, w: _rms_norm(x * F.silu(z), w),
        [((4096, 8192), _B), ((4096, 8192), _B), ((8192,), _B)],
    ),
    "deepseek_quantization": (
        lambda x: (
            x.view(4096, 56, 128) / (x.view(4096, 56, 128).abs().amax(-1, keepdim=True) / 448.0)
        ).to(torch.float8_e4m3fn),
        [((4096, 7168), _B)],
    ),
    "training_adamw": (_adamw, [((4096, 4096), _F)] * 4),
    "training_norm_of_gradients": (
        lambda x, y: torch.sqrt(x.square().sum() + y.square().sum()),
        [((4096, 14336), _F), ((4096, 4096), _F)],
    ),
}
