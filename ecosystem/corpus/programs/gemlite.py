"""GemLite: matrix products with weights of 1 to 8 bits."""

import torch
from gemlite import GemLiteLinear, bitpack, helper, quant_utils

from corpus.pretended import kernels_give
from corpus.programs import TOKENS, normal

DISTRIBUTION = "gemlite"
MODULES = ("gemlite",)

#: rows of decoding, of a small batch and of a prefill
ROWS = (1, 8, TOKENS)
INPUT, OUTPUT = 4096, 14336
GROUP = 64


def multiply(layer, dtype=torch.bfloat16, rows=ROWS, kinds=("",)):
    """Rows through a layer, by the kernel that the package takes or by named ones."""
    for number in rows:
        for kind in kinds:
            given = normal(number, INPUT, dtype=dtype)
            if kind:
                layer.forward_manual(given, kind)
            else:
                layer(given)


def bits(number, group=GROUP, dtype=torch.bfloat16):
    """Numbers of few bits that share a scale and a shift in groups: (weights, scales, shifts)."""
    weights = torch.zeros(OUTPUT, INPUT, dtype=torch.uint8, device="cuda")
    return (
        weights,
        normal(OUTPUT * INPUT // group, 1, dtype=dtype),
        normal(OUTPUT * INPUT // group, 1, dtype=dtype),
    )


def case_few_bits():
    for make in (
        helper.A16W8_HQQ_INT,
        helper.A16W4_HQQ_INT,
        helper.A16W2_HQQ_INT,
        helper.A16W1_HQQ_INT,
    ):
        with kernels_give(0):
            multiply(make().from_weights(*bits(4)))


def case_few_bits_in_half_precision():
    with kernels_give(0):
        multiply(helper.A16W4_HQQ_INT().from_weights(*bits(4, dtype=torch.float16)), torch.float16)


def case_4_bits_by_each_kernel():
    with kernels_give(0):
        layer = helper.A16W4_HQQ_INT().from_weights(*bits(4, 128))
        multiply(layer, rows=(1,), kinds=("GEMV", "GEMV_REVSPLITK", "GEMV_SPLITK"))
        multiply(layer, rows=(16,), kinds=("GEMM_SPLITK", "GEMM"))


def case_8_bits():
    with kernels_give(0):
        for make in (helper.A16W8_INT8, helper.A16W8_FP8):
            multiply(make().from_weights(normal(OUTPUT, INPUT)))


def case_8_bits_by_8_bits():
    with kernels_give(0):
        for make in (helper.A8W8_int8_dynamic, helper.A8W8_fp8_dynamic):
            for blocks in (False, True):
                multiply(make(block_quant=blocks).from_weights(normal(OUTPUT, INPUT)))


def case_8_bits_by_few_bits():
    with kernels_give(0):
        for make in (helper.A8W4_HQQ_INT_dynamic, helper.A8W2_HQQ_INT_dynamic):
            multiply(make().from_weights(*bits(4)))


def case_ternary_weights():
    weights, scale = normal(OUTPUT, INPUT), normal(1)
    with kernels_give(0):
        for make in (helper.A16W158_INT, helper.A8W158_INT_dynamic):
            multiply(make().from_weights(weights, scale))


def case_microscaled():
    linear = torch.nn.Linear(INPUT, OUTPUT, bias=False, dtype=torch.bfloat16, device="meta")
    makes = (
        helper.A16W8_MXFP,
        helper.A16W4_MXFP,
        helper.A8W8_MXFP_dynamic,
        helper.A8W4_MXFP_dynamic,
        helper.A4W4_MXFP_dynamic,
    )
    for make in (*makes, helper.A16W4_NVFP, helper.A4W4_NVFP_dynamic):
        linear.weight = torch.nn.Parameter(normal(OUTPUT, INPUT), requires_grad=False)
        with kernels_give(1):
            multiply(make(dtype=torch.bfloat16).from_linear(linear, del_orig=False))


def case_activations():
    names = [f"scale_activations_per_token_triton_v{number}" for number in (1, 2, 3, 4)]
    names += [f"scale_activations_per_block_triton_v{number}" for number in (1, 2)]
    for rows in (8, TOKENS):
        for name in names:
            getattr(quant_utils, name)(normal(rows, INPUT), w_dtype=torch.float8_e4m3fn)


def case_microscaled_activations():
    names = [f"scale_activations_mxfp8_triton_v{number}" for number in (1, 2, 3, 4)]
    for rows in (8, TOKENS):
        for name in names:
            getattr(quant_utils, name)(normal(rows, INPUT), w_dtype=torch.float8_e4m3fn)


def case_activations_of_4_bits():
    for kind in ("mxfp4", "nvfp4"):
        for version in ("", "_v2", "_v3", "_v5"):
            getattr(quant_utils, f"scale_activations_{kind}_triton{version}")(normal(TOKENS, INPUT))


def case_packing():
    for number in (1, 2, 4):
        for width in (8, 32):
            bitpack.pack_weights_over_cols_triton(
                torch.zeros(OUTPUT, INPUT, dtype=torch.uint8, device="cuda"), number, width, True
            )


def case_wide_weights():
    layer = GemLiteLinear(16, None, INPUT, OUTPUT, helper.DType.BF16, helper.DType.BF16)
    layer.pack(normal(OUTPUT, INPUT), None, None)
    with kernels_give(0):
        multiply(layer)
