"""Words of the field, and the page that a search for each must find first.

A page's words become tags of its entry in the search index, which outrank titles. Readers do not
see them, so the page itself must say what the word is about: ``tests/test_built_site.py`` demands
that it has the word.
"""

from __future__ import annotations

from typing import Any

#: Source of a page, below ``docs/site`` -> words that lead to it.
WORDS = {
    "backends/nvidia.md": ("PTX", "CUDA", "profiler"),
    "concepts/addresses.md": ("int64", "pointers", "stride"),
    "concepts/index.md": ("mask", "empty grid", "grid", "program_id"),
    "concepts/layouts.md": ("bank conflict", "coalescing", "layout"),
    "concepts/pipelining.md": ("cp.async", "pipelining", "shared memory", "num_stages"),
    "concepts/specialization.md": ("constexpr", "specialization"),
    "debugging.md": ("breakpoint", "debug", "logging", "out of bounds", "race", "uninitialized"),
    "developers/toolkit/copies.md": ("TMA", "mbarrier", "tensor map"),
    "developers/toolkit/pipelining.md": ("warp specialization",),
    "guides/deployment.md": ("AOT", "cache", "container", "offline", "warmup"),
    "guides/glossary.md": ("occupancy", "persistent", "register spill", "swizzle"),
    "guides/jax.md": ("shard_map",),
    "guides/numerics.md": ("NaN", "integer division", "numerics", "overflow", "tf32", "tolerance"),
    "guides/porting.md": ("porting", "shim"),
    "guides/pytorch.md": ("autograd.Function", "CUDA graphs", "DDP", "torch.export"),
    "guides/security.md": ("security",),
    "install.md": ("install", "uninstall", "upgrade"),
    "performance.md": ("benchmark", "performance", "slow kernel", "transposed copy", "uncoalesced"),
    "reference/explain.md": ("explain", "roofline"),
    "reference/host/Config.md": ("num_warps",),
    "reference/language/math.md": ("ULP",),
    "reference/models.md": ("torch.compile",),
    "reference/order.md": ("batch invariance", "determinism"),
    "reference/pytorch.md": ("custom op",),
    "reference/triton.md": ("Proton", "profiling"),
    "reference/jax.md": ("JAX", "vmap"),
    "tutorials/attention.md": ("flash attention", "online softmax"),
    "tutorials/autotuning.md": ("autotune", "autotuning"),
    "tutorials/dropout.md": ("dropout", "random numbers", "seed"),
    "tutorials/gradients.md": ("autograd", "backward"),
    "tutorials/grouped_gemm.md": ("MoE",),
    "tutorials/layer_norm.md": ("layer norm",),
    "tutorials/matmul.md": ("GEMM", "matmul", "matrix multiplication", "persistent kernel"),
    "tutorials/quantized_weights.md": ("int4", "quantization"),
    "tutorials/softmax.md": ("softmax",),
    "vendors/conformance.md": ("conformance",),
    "vendors/index.md": ("plugin",),
}


def add_tags(page: Any) -> None:
    """Add a page's words to its entry in the search index."""
    words = WORDS.get(page.file.src_uri, ())
    if words:
        page.meta["tags"] = [*page.meta.get("tags", ()), *words]
