"""The models of ``models.py``: those of the package transformers by their configurations, and two
of computer vision written here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

#: Extents of the tiny configurations.
WIDTH, LAYERS, HEADS, VOCABULARY, LENGTH = 64, 2, 4, 128, 24
_DECODER = {
    "hidden_size": WIDTH,
    "intermediate_size": 2 * WIDTH,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "num_key_value_heads": 2,
    "vocab_size": VOCABULARY,
    "max_position_embeddings": 64,
    "use_cache": False,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_ENCODER = {
    "hidden_size": WIDTH,
    "intermediate_size": 2 * WIDTH,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "vocab_size": VOCABULARY,
    "max_position_embeddings": 64,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
    "attention_dropout": 0.0,
}


@dataclass
class Case:
    """A model and its inputs.

    Attributes:
        inputs: keyword arguments for a batch of a number of sequences or images; sequences are
            longer in larger batches.
        tolerance: the maximum difference of a result from that of eager execution, relative to the
            maximum absolute value of the result.
    """

    model: nn.Module
    inputs: Callable[[int], dict[str, torch.Tensor]]
    tolerance: float = 2e-4


def tokens(size: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(size)
    return {
        "input_ids": torch.randint(3, VOCABULARY, (size, LENGTH + 4 * size), generator=generator)
    }


def tokens_of_both(size: int) -> dict[str, torch.Tensor]:
    given = tokens(size)["input_ids"]
    return {"input_ids": given, "decoder_input_ids": given[:, : LENGTH // 2 + size].flip(1)}


def images(size: int, extent: int = 32, name: str = "pixel_values") -> dict[str, torch.Tensor]:
    return {
        name: torch.randn(size, 3, extent, extent, generator=torch.Generator().manual_seed(size))
    }


def _transformer(
    name: str,
    given: Callable[[int], dict[str, torch.Tensor]],
    settings: dict[str, Any],
    head: str = "Model",
    **more: Any,
) -> Callable[[], Case]:
    """A model of transformers: of the configuration ``<name>Config`` and the class
    ``<name><head>``.

    Dropout is off, for eager execution and compiled code draw other numbers.
    """

    def make() -> Case:
        import transformers

        known = getattr(transformers, f"{name}Config")
        config = known(**settings, **more)
        model = getattr(transformers, f"{name}{head}")(config)
        for module in model.modules():
            if isinstance(module, nn.Dropout):
                module.p = 0.0
        return Case(model, given)

    return make


class Block(nn.Module):
    """Two convolutions with norms; what came in is added."""

    def __init__(self, before: int, after: int, stride: int = 1) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(before, after, 3, stride, 1, bias=False),
            nn.BatchNorm2d(after),
            nn.ReLU(inplace=True),
            nn.Conv2d(after, after, 3, 1, 1, bias=False),
            nn.BatchNorm2d(after),
        )
        self.side = (
            nn.Identity()
            if before == after and stride == 1
            else nn.Sequential(
                nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after)
            )
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(self.body(x) + self.side(x))


class ResNet(nn.Module):
    """Residual blocks of three widths, and a classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 16, 3, 1, 1, bias=False),
            nn.BatchNorm2d(16),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(2),
        )
        self.blocks = nn.Sequential(Block(16, 16), Block(16, 32, 2), Block(32, 64, 2))
        self.head = nn.Linear(64, 10)

    def forward(self, pixel_values: torch.Tensor) -> torch.Tensor:
        return self.head(self.blocks(self.stem(pixel_values)).mean((2, 3)))


class UNet(nn.Module):
    """Two steps down and up with skips, group norms, and attention at the bottom."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.down = nn.ModuleList([self._double(3, width), self._double(width, 2 * width)])
        self.bottom = self._double(2 * width, 4 * width)
        self.attention = nn.MultiheadAttention(4 * width, 4, batch_first=True)
        self.up = nn.ModuleList(
            [self._double(4 * width + 2 * width, 2 * width), self._double(2 * width + width, width)]
        )
        self.out = nn.Conv2d(width, 3, 1)

    @staticmethod
    def _double(before: int, after: int) -> nn.Sequential:
        layers: list[nn.Module] = []
        for channels in (before, after):
            layers += [nn.Conv2d(channels, after, 3, padding=1), nn.GroupNorm(4, after), nn.SiLU()]
        return nn.Sequential(*layers)

    def forward(self, pixel_values: torch.Tensor) -> torch.Tensor:
        x, skips = pixel_values, []
        for block in self.down:
            skips.append(block(x))
            x = F.avg_pool2d(skips[-1], 2)
        x = self.bottom(x)
        rows = x.flatten(2).transpose(1, 2)
        x = x + self.attention(rows, rows, rows, need_weights=False)[0].transpose(1, 2).unflatten(
            2, x.shape[2:]
        )
        for block, skip in zip(self.up, reversed(skips), strict=True):
            x = block(torch.cat((F.interpolate(x, scale_factor=2.0, mode="nearest"), skip), 1))
        return self.out(x)


class Mixer(nn.Module):
    """Products across pixels and across channels in turn."""

    def __init__(self, width: int = 32, patches: int = 64) -> None:
        super().__init__()
        self.patch = nn.Conv2d(3, width, 4, 4)
        self.norms = nn.ModuleList([nn.LayerNorm(width) for _ in range(4)])
        self.across = nn.ModuleList(
            [
                nn.Sequential(nn.Linear(patches, 96), nn.GELU(), nn.Linear(96, patches))
                for _ in range(2)
            ]
        )
        self.within = nn.ModuleList(
            [nn.Sequential(nn.Linear(width, 96), nn.GELU(), nn.Linear(96, width)) for _ in range(2)]
        )

    def forward(self, pixel_values: torch.Tensor) -> torch.Tensor:
        x = self.patch(pixel_values).flatten(2).transpose(1, 2)
        for layer in range(2):
            x = x + self.across[layer](self.norms[2 * layer](x).transpose(1, 2)).transpose(1, 2)
            x = x + self.within[layer](self.norms[2 * layer + 1](x))
        return x.mean(1)


_VISION = {
    "image_size": 32,
    "patch_size": 8,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
}
_MIXTURE = {
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": WIDTH,
    "head_dim": 16,
}

MODELS: dict[str, Callable[[], Case]] = {
    "llama": _transformer("Llama", tokens, _DECODER, "ForCausalLM"),
    "qwen2": _transformer("Qwen2", tokens, _DECODER, "ForCausalLM"),
    "qwen3": _transformer("Qwen3", tokens, _DECODER, "ForCausalLM", head_dim=16),
    "qwen3_moe": _transformer("Qwen3Moe", tokens, _DECODER, "ForCausalLM", **_MIXTURE),
    "mistral": _transformer("Mistral", tokens, _DECODER, "ForCausalLM", sliding_window=16),
    "mixtral": _transformer(
        "Mixtral", tokens, _DECODER, "ForCausalLM", num_local_experts=4, num_experts_per_tok=2
    ),
    "gemma2": _transformer(
        "Gemma2", tokens, _DECODER, "ForCausalLM", head_dim=16, sliding_window=16
    ),
    "phi3": _transformer("Phi3", tokens, _DECODER, "ForCausalLM"),
    "gpt2": _transformer(
        "GPT2",
        tokens,
        {
            "n_embd": WIDTH,
            "n_layer": LAYERS,
            "n_head": HEADS,
            "vocab_size": VOCABULARY,
            "n_positions": 64,
        },
        "LMHeadModel",
    ),
    "gpt_neox": _transformer(
        "GPTNeoX",
        tokens,
        {**_ENCODER, "use_cache": False, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2},
        "ForCausalLM",
    ),
    "mamba": _transformer(
        "Mamba",
        tokens,
        {
            "hidden_size": 32,
            "state_size": 8,
            "num_hidden_layers": 1,
            "vocab_size": VOCABULARY,
            "use_cache": False,
        },
        "ForCausalLM",
    ),
    "bert": _transformer("Bert", tokens, _ENCODER, "ForMaskedLM"),
    "roberta": _transformer(
        "Roberta", tokens, {**_ENCODER, "max_position_embeddings": 66}, "ForMaskedLM"
    ),
    "distilbert": _transformer(
        "DistilBert",
        tokens,
        {
            "dim": WIDTH,
            "hidden_dim": 128,
            "n_layers": LAYERS,
            "n_heads": HEADS,
            "vocab_size": VOCABULARY,
        },
        "ForMaskedLM",
    ),
    "t5": _transformer(
        "T5",
        tokens_of_both,
        {
            "d_model": WIDTH,
            "d_kv": 16,
            "d_ff": 128,
            "num_layers": LAYERS,
            "num_heads": HEADS,
            "vocab_size": VOCABULARY,
            "use_cache": False,
            "dropout_rate": 0.0,
        },
        "ForConditionalGeneration",
        decoder_start_token_id=0,
    ),
    "vit": _transformer("ViT", images, {**_ENCODER, **_VISION}, "Model"),
    "convnext": _transformer(
        "ConvNext",
        images,
        {"hidden_sizes": [16, 32], "depths": [1, 1], "num_stages": 2, "image_size": 32},
        "Model",
    ),
    "resnet": lambda: Case(ResNet(), images, 1e-3),
    "unet": lambda: Case(UNet(), images, 1e-3),
    "mixer": lambda: Case(Mixer(), images),
}
