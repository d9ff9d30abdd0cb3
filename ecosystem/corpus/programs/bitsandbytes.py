"""bitsandbytes' Triton backend: quantization and optimizers of 8 and 4 bits."""

import torch

from corpus.programs import TOKENS, WIDTHS, normal

DISTRIBUTION = "bitsandbytes"
MODULES = ("bitsandbytes",)


def case_blockwise():
    from bitsandbytes.backends.triton import ops

    code = torch.empty(256, dtype=torch.float32, device="cuda")
    for block in (256, 4096):
        for dtype in (torch.bfloat16, torch.float32):
            quantized, absmax = ops.quantize_blockwise(
                normal(TOKENS, 4096, dtype=dtype), code, block
            )
            ops.dequantize_blockwise(quantized, absmax, code, block, dtype)


def case_four_bits():
    from bitsandbytes.backends.triton import ops

    for kind in ("nf4", "fp4"):
        for block in (64, 128):
            for dtype in (torch.bfloat16, torch.float16):
                quantized, absmax = ops.quantize_4bit(
                    normal(4096, 14336, dtype=dtype), block, kind, torch.uint8
                )
                ops.dequantize_4bit(quantized, absmax, block, kind, (4096, 14336), dtype)


def case_vector_by_four_bits():
    from bitsandbytes.backends.triton import ops

    for width in WIDTHS:
        packed, absmax = (
            torch.empty(width * width // 2, 1, dtype=torch.uint8, device="cuda"),
            torch.empty(width * width // 64, device="cuda"),
        )
        ops.gemv_4bit(
            normal(1, 1, width), packed, (width, width), absmax, torch.empty(16, device="cuda"), 64
        )


def case_optimizers_of_8_bits():
    from bitsandbytes.backends.triton import ops

    for name in ("momentum", "rmsprop", "lion", "adagrad", "adam", "ademamix"):
        parameters, gradient = normal(4096, 4096), normal(4096, 4096)
        first = torch.empty(
            (2, 4096, 4096) if name == "ademamix" else (4096, 4096),
            dtype=torch.uint8,
            device="cuda",
        )
        second = (
            torch.empty(4096, 4096, dtype=torch.uint8, device="cuda")
            if name in ("adam", "ademamix")
            else None
        )
        scale = torch.empty(
            (2, 4096 * 4096 // 256) if name == "ademamix" else 4096 * 4096 // 256, device="cuda"
        )
        others = None if second is None else torch.empty(4096 * 4096 // 256, device="cuda")
        code = torch.empty(256, device="cuda")
        ops.optimizer_update_8bit_blockwise(
            name,
            gradient,
            parameters,
            first,
            second,
            0.9,
            0.999,
            0.9,
            5.0,
            1e-8,
            2,
            1e-3,
            code,
            None if second is None else code,
            scale,
            others,
            0.01,
            1.0,
            False,
        )


def case_optimizers_of_32_bits():
    from bitsandbytes.backends.triton import ops

    for name in ("momentum", "rmsprop", "lion", "adagrad", "adam", "ademamix"):
        parameters, gradient = normal(4096, 4096), normal(4096, 4096)
        first = torch.empty((2, 4096, 4096) if name == "ademamix" else (4096, 4096), device="cuda")
        second = torch.empty(4096, 4096, device="cuda") if name in ("adam", "ademamix") else None
        norm = torch.empty(1, device="cuda")
        ops.optimizer_update_32bit(
            name,
            gradient,
            parameters,
            first,
            second,
            norm,
            1.0,
            1.0,
            0.9,
            0.999,
            0.9,
            5.0,
            1e-8,
            0.01,
            2,
            1e-3,
            1.0,
            False,
        )
