"""torchao: the kernels of its own that need no hardware of one vendor."""

import torch

from programs import close, random

DISTRIBUTION = "torchao"


def case_block_scaled_products(device):
    from torchao.kernel.blockwise_quantization import (
        blockwise_fp8_gemm,
        fp8_blockwise_act_quant,
        fp8_blockwise_weight_quant,
    )

    x, w = random(device, 16, 128), random(device, 128, 128)
    quantized, scale = fp8_blockwise_act_quant(x, block_size=128)
    weight, weight_scale = fp8_blockwise_weight_quant(w, block_size=128)
    close(quantized.float() * scale, x, 0.2)
    expected = (quantized.float() * scale) @ (weight.float() * weight_scale).T
    close(
        blockwise_fp8_gemm(quantized, scale, weight, weight_scale, block_size=128).float(),
        expected,
        2e-2,
    )
    assert quantized.dtype == torch.float8_e4m3fn
