"""FlagGems: PyTorch's operators in Triton."""

import functools
import importlib
import os
import tempfile

import torch
import triton

from corpus.pretended import kernels_give
from corpus.programs import TOKENS, VOCABULARY, counted, normal

DISTRIBUTION = "flag-gems"
MODULES = ("flag_gems",)

_CACHE = tempfile.mkdtemp()


def prepare():
    """It asks the machine's tools whose GPU there is unless it is told, and keeps what it tunes in
    the user's home.
    """
    os.environ.setdefault("GEMS_VENDOR", "nvidia")
    os.environ.setdefault("FLAGGEMS_CACHE_DIR", _CACHE)


@functools.cache
def gems():
    """The package, whose tuner takes a configuration as Triton's does: it would launch all, and
    keep their times in a database.
    """
    prepare()
    package = importlib.import_module("flag_gems")
    importlib.import_module("flag_gems.utils.libentry").LibTuner.run = triton.runtime.Autotuner.run
    return package


def gem(name, *given, **options):
    with kernels_give(1):
        return getattr(gems(), name)(*given, **options)


def x(*shape, dtype=torch.bfloat16):
    return normal(*(shape or (TOKENS, 4096)), dtype=dtype)


def indices(*shape):
    return counted(*shape, dtype=torch.int64)


#: name of the operator -> its arguments
OPERATORS = {
    "sum": lambda: [x()],
    "sum_dim": lambda: [x(), [1]],
    "mean": lambda: [x()],
    "mean_dim": lambda: [x(), [1]],
    "max": lambda: [x()],
    "max_dim": lambda: [x(), 1],
    "min": lambda: [x()],
    "min_dim": lambda: [x(), 1],
    "amax": lambda: [x(), [1]],
    "argmax": lambda: [x(), 1],
    "argmin": lambda: [x(), 1],
    "prod": lambda: [x()],
    "prod_dim": lambda: [x(), 1],
    "all": lambda: [x()],
    "any": lambda: [x()],
    "all_dim": lambda: [x(), 1],
    "any_dim": lambda: [x(), 1],
    "cumsum": lambda: [x(), 1],
    "cummax": lambda: [x(128, 4096), 1],
    "cummin": lambda: [x(128, 4096), 1],
    "softmax": lambda: [x(), 1],
    "log_softmax": lambda: [x(), 1],
    "mm": lambda: [x(), x(4096, 4096)],
    "addmm": lambda: [x(4096), x(), x(4096, 4096)],
    "bmm": lambda: [x(32, 1024, 128), x(32, 128, 1024)],
    "baddbmm": lambda: [x(32, 1024, 1024), x(32, 1024, 128), x(32, 128, 1024)],
    "mv": lambda: [x(), x(4096)],
    "addmv": lambda: [x(TOKENS), x(), x(4096)],
    "dot": lambda: [x(4096), x(4096)],
    "vdot": lambda: [x(4096), x(4096)],
    "outer": lambda: [x(4096), x(4096)],
    "layer_norm": lambda: [x(), [4096], x(4096), x(4096), 1e-5],
    "rms_norm": lambda: [x(), [4096], x(4096), 1e-5],
    "group_norm": lambda: [x(16, 512, 64), x(512), x(512), 16, 512, 64, 32],
    "embedding": lambda: [x(VOCABULARY, 4096), indices(TOKENS)],
    "index_select": lambda: [x(), 0, indices(1024)],
    "gather": lambda: [x(), 1, indices(TOKENS, 8)],
    "topk": lambda: [x(128, VOCABULARY), 50],
    "sort": lambda: [x(128, 4096)],
    "vector_norm": lambda: [x()],
    "var_mean": lambda: [x(), [1]],
    "std": lambda: [x(), [1]],
    "triu": lambda: [x()],
    "tril": lambda: [x()],
    "diag": lambda: [x(4096)],
    "trace": lambda: [x()],
    "flip": lambda: [x(), [1]],
    "roll": lambda: [x(), 1, 1],
    "repeat_interleave_self_int": lambda: [x(), 2, 1],
    "conv2d": lambda: [x(8, 64, 56, 56), x(64, 64, 3, 3), None, 1, 1],
    "conv1d": lambda: [x(8, 64, 4096), x(64, 64, 3), None, 1, 1],
    "avg_pool2d": lambda: [x(8, 64, 56, 56), [2, 2], [2, 2]],
    "max_pool2d_with_indices": lambda: [x(8, 64, 56, 56), [2, 2], [2, 2]],
    "upsample_nearest2d": lambda: [x(8, 64, 56, 56), [112, 112]],
    "scaled_dot_product_attention": lambda: [
        x(2, 32, 2048, 128),
        x(2, 32, 2048, 128),
        x(2, 32, 2048, 128),
    ],
    "count_nonzero": lambda: [x()],
    "silu_and_mul": lambda: [x(TOKENS, 14336), x(TOKENS, 14336)],
    "fused_add_rms_norm": lambda: [x(), x(), [4096], x(4096), 1e-5],
    "skip_layer_norm": lambda: [x(), x(), [4096], x(4096), x(4096), 1e-5],
    "apply_rotary_pos_emb": lambda: [
        x(2, 2048, 32, 128),
        x(2, 2048, 8, 128),
        x(2048, 64),
        x(2048, 64),
    ],
    "topk_softmax": lambda: [
        x(TOKENS, 8, dtype=torch.float32),
        indices(TOKENS, 8).int(),
        indices(TOKENS, 8).int(),
        x(TOKENS, 128, dtype=torch.float32),
    ],
    "rwkv_ka_fusion": lambda: [x(), x(4096), x(), x(4096), 32, 128],
    "weight_norm": lambda: [x(), x(TOKENS, 1)],
    "per_token_group_quant_fp8": lambda: [x(), 128],
    "mse_loss": lambda: [x(), x()],
    "nll_loss_forward": lambda: [x(), indices(TOKENS)],
    "ones": lambda: [[TOKENS, 4096]],
    "zeros": lambda: [[TOKENS, 4096]],
    "full": lambda: [[TOKENS, 4096], 3.0],
    "arange": lambda: [4096],
    "linspace": lambda: [0.0, 1.0, 4096],
    "eye": lambda: [4096],
}


def run(name):
    gem(name, *OPERATORS[name]())


CASES = {name: functools.partial(run, name) for name in OPERATORS}
