"""The kernels written for Triton, as their host functions launch them."""

from __future__ import annotations

from kernel_case import Case, descriptors, pointers, sizes

#: Folder of the programs.
TRITON = "examples/triton_programs/"
_FORWARD = {"CAUSAL": True, "HEAD": 64, "BLOCK_M": 128, "BLOCK_N": 64}
_BACKWARD = {"CAUSAL": True, "HEAD": 64, "BLOCK_HELD": 64, "BLOCK_STEP": 64}
_PERSISTENT = {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64, "GROUP": 8, "PROGRAMS": 132}
_GROUPED = {"TYPE": "float16", "PROGRAMS": 132, "BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 32}


def scaled(a_format: str, b_format: str, group: int) -> Case:
    """A matmul of block-scaled operands in blocks of 128 x 128 x 128."""
    scale, tiles = (
        ("u8", (1, 1, 128 // group // 4, 2, 256)) if group == 32 else ("fp8e4nv", (1, 1, 2, 2, 256))
    )
    parts = [
        descriptors(name, *(("u8", 128, 64) if format_ == "e2m1" else ("fp8e4nv", 128, 128)))
        + ", "
        + descriptors(f"{name}_scales", scale, *tiles)
        for name, format_ in (("a", a_format), ("b", b_format))
    ]
    constants = {
        "A_FORMAT": a_format,
        "B_FORMAT": b_format,
        "GROUP": group,
        "BLOCK_M": 128,
        "BLOCK_N": 128,
        "BLOCK_K": 128,
        "STAGES": 2,
    }
    return Case(
        f"{TRITON}block_scaled_matmul.py",
        "block_scaled_kernel",
        f"{', '.join(parts)}, {descriptors('c', 'fp16', 128, 128)}, {sizes('M N K')}",
        constants,
        {"num_warps": 8},
    )


def triton_matmul(
    element: str, result: str, m: int, n: int, k: int, warps: int, stages: int, strides: str
) -> Case:
    constants = {
        "BLOCK_M": m,
        "BLOCK_N": n,
        "BLOCK_K": k,
        "GROUP": 8,
        "ACTIVATION": "leaky_relu",
        "a_column": 1,
        "c_column": 1,
        strides: 1,
    }
    other = {"b_row": "b_column", "b_column": "b_row"}[strides]
    signature = (
        f"{pointers('a_ptr b_ptr', element)}, {pointers('c_ptr', result)}, "
        f"{sizes(f'M N K a_row {other} c_row')}"
    )
    return Case(
        f"{TRITON}matmul.py",
        "matmul_kernel",
        signature,
        constants,
        {"num_warps": warps, "num_stages": stages},
    )


TRITON_EXAMPLES = (
    Case(
        f"{TRITON}vector_add.py",
        "add_kernel",
        f"{pointers('left_ptr right_ptr sum_ptr', 'fp32')}, {sizes('length')}",
        {"BLOCK": 1024},
    ),
    Case(
        f"{TRITON}softmax.py",
        "softmax_kernel",
        f"{pointers('out_ptr in_ptr', 'fp32')}, {sizes('in_stride out_stride rows columns')}",
        {"BLOCK": 1024, "STAGES": 2},
    ),
    Case(
        f"{TRITON}softmax.py",
        "softmax_kernel",
        f"{pointers('out_ptr in_ptr', 'fp32')}, {sizes('in_stride out_stride rows columns', 1)}",
        {"BLOCK": 16384, "STAGES": 2},
        {"num_warps": 16},
    ),
    triton_matmul("fp16", "fp16", 128, 256, 64, 8, 3, "b_column"),
    triton_matmul("fp16", "fp16", 128, 128, 32, 4, 4, "b_column"),
    triton_matmul("fp8e5", "fp16", 128, 128, 32, 4, 4, "b_row"),
    Case(
        f"{TRITON}dropout.py",
        "masked_dropout_kernel",
        (
            f"{pointers('x_ptr out_ptr', 'fp32')}, {pointers('keep_ptr', 'i32')}, "
            f"{sizes('length')}, p=fp32"
        ),
        {"BLOCK": 1024},
    ),
    Case(
        f"{TRITON}dropout.py",
        "seeded_dropout_kernel",
        f"{pointers('x_ptr out_ptr', 'fp32')}, {sizes('length')}, p=fp32, seed=i32",
        {"BLOCK": 1024},
    ),
    Case(
        f"{TRITON}dropout.py",
        "row_seeded_dropout_kernel",
        (
            f"{pointers('x_ptr out_ptr', 'fp32')}, {pointers('seeds_ptr', 'i32')}, "
            f"{sizes('columns')}, p=fp32"
        ),
        {"BLOCK": 1024},
    ),
    Case(
        f"{TRITON}layer_norm.py",
        "forward_kernel",
        (
            f"{pointers('x_ptr weight_ptr bias_ptr y_ptr', 'fp16')}, "
            f"{pointers('mean_ptr rstd_ptr', 'fp32')}, {sizes('stride N')}, eps=fp32"
        ),
        {"BLOCK": 8192},
        {"num_warps": 8},
    ),
    Case(
        f"{TRITON}layer_norm.py",
        "rows_backward_kernel",
        f"{pointers('dx_ptr dy_ptr x_ptr weight_ptr', 'fp16')}, "
        f"{pointers('mean_ptr rstd_ptr partial_dweight_ptr partial_dbias_ptr', 'fp32')}, "
        f"{pointers('locks_ptr', 'i32')}, {sizes('stride N')}",
        {"GROUPS": 96, "BLOCK": 8192},
        {"num_warps": 8},
    ),
    Case(
        f"{TRITON}layer_norm.py",
        "columns_backward_kernel",
        (
            f"{pointers('partial_dweight_ptr partial_dbias_ptr', 'fp32')}, "
            f"{pointers('dweight_ptr dbias_ptr', 'fp16')}, {sizes('groups N')}"
        ),
        {"BLOCK_M": 32, "BLOCK_N": 128},
    ),
    Case(
        f"{TRITON}attention.py",
        "forward_kernel",
        f"{descriptors('q out', 'fp16', 1, 128, 64)}, {descriptors('k v', 'fp16', 1, 64, 64)}, "
        f"{pointers('lse_ptr', 'fp32')}, scale=fp32, "
        f"{sizes('matrices length')}",
        _FORWARD,
        {"num_warps": 8},
    ),
    Case(
        f"{TRITON}attention.py",
        "forward_kernel",
        (
            f"{pointers('q k v out', 'bf16')}, {pointers('lse_ptr', 'fp32')}, scale=fp32, "
            f"{sizes('matrices length')}"
        ),
        {**_FORWARD, "CAUSAL": False},
        {"num_warps": 8},
    ),
    Case(
        f"{TRITON}attention.py",
        "products_kernel",
        (
            f"{pointers('out_ptr dout_ptr', 'fp16')}, {pointers('delta_ptr', 'fp32')}, "
            f"{sizes('length')}"
        ),
        {"HEAD": 64, "BLOCK": 64},
    ),
    Case(
        f"{TRITON}attention.py",
        "keys_backward_kernel",
        (
            f"{pointers('q_ptr k_ptr v_ptr dout_ptr dk_ptr dv_ptr', 'fp16')}, "
            f"{pointers('lse_ptr delta_ptr', 'fp32')}, scale=fp32, {sizes('length')}"
        ),
        _BACKWARD,
        {"num_stages": 2},
    ),
    Case(
        f"{TRITON}attention.py",
        "queries_backward_kernel",
        (
            f"{pointers('q_ptr k_ptr v_ptr dout_ptr dq_ptr', 'fp16')}, "
            f"{pointers('lse_ptr delta_ptr', 'fp32')}, scale=fp32, {sizes('length')}"
        ),
        _BACKWARD,
        {"num_stages": 2},
    ),
    Case(
        f"{TRITON}extern_functions.py",
        "asin_kernel",
        f"{pointers('x_ptr out_ptr', 'fp32')}, {sizes('length')}",
        {"BLOCK": 1024},
    ),
    Case(
        f"{TRITON}extern_functions.py",
        "asin_kernel",
        f"{pointers('x_ptr out_ptr', 'fp64')}, {sizes('length')}",
        {"BLOCK": 1024},
    ),
    Case(
        f"{TRITON}extern_functions.py",
        "two_argument_kernel",
        f"{pointers('x_ptr y_ptr out_ptr', 'fp32')}, {sizes('length')}",
        {"FUNCTION": "atan2", "BLOCK": 1024},
    ),
    Case(
        f"{TRITON}grouped_gemm.py",
        "grouped_kernel",
        (
            f"{pointers('addresses_ptr strides_ptr', 'i64')}, {pointers('sizes_ptr', 'i32')}, "
            "groups=i32"
        ),
        {**_GROUPED, "ALIGNED": True},
    ),
    Case(
        f"{TRITON}grouped_gemm.py",
        "grouped_descriptor_kernel",
        (
            f"{pointers('addresses_ptr strides_ptr', 'i64')}, {pointers('sizes_ptr', 'i32')}, "
            "groups=i32"
        ),
        _GROUPED,
    ),
    Case(
        f"{TRITON}persistent_matmul.py",
        "pointer_kernel",
        f"{pointers('a_ptr b_ptr c_ptr', 'fp16')}, {sizes('M N K a_row b_row c_row')}",
        _PERSISTENT,
    ),
    Case(
        f"{TRITON}persistent_matmul.py",
        "host_descriptor_kernel",
        (
            f"{descriptors('a b', 'fp16', 128, 64)}, {descriptors('c', 'fp16', 128, 64)}, "
            f"{sizes('M N K')}"
        ),
        {**_PERSISTENT, "HALVES": True, "SPECIALIZE": False},
    ),
    Case(
        f"{TRITON}persistent_matmul.py",
        "host_descriptor_kernel",
        (
            f"{descriptors('a', 'fp8e4nv', 128, 64)}, {descriptors('b', 'fp8e4nv', 256, 64)}, "
            f"{descriptors('c', 'fp16', 128, 256)}, {sizes('M N K')}"
        ),
        {**_PERSISTENT, "BLOCK_N": 256, "HALVES": False, "SPECIALIZE": False},
        {"num_warps": 8},
    ),
    Case(
        f"{TRITON}persistent_matmul.py",
        "device_descriptor_kernel",
        f"{pointers('a_ptr b_ptr c_ptr', 'fp16')}, {sizes('M N K')}",
        {**_PERSISTENT, "HALVES": False, "SPECIALIZE": True},
    ),
    scaled("e4m3", "e4m3", 32),
    scaled("e2m1", "e2m1", 32),
    scaled("e2m1", "e2m1", 16),
    scaled("e4m3", "e2m1", 32),
)
