"""SageAttention: attention of 8-bit queries and keys."""

import torch
from sageattention import core

from corpus.programs import normal

DISTRIBUTION = "sageattention"
MODULES = ("sageattention",)

#: (heads of queries, heads of keys, width of a head)
HEADS = ((32, 8, 128), (64, 8, 128), (16, 16, 64), (24, 24, 96))


def case_attention():
    for heads, groups, width in HEADS:
        for causal in (False, True):
            q = normal(2, heads, 2048, width)
            core.sageattn(
                q, normal(2, groups, 2048, width), normal(2, groups, 2048, width), is_causal=causal
            )


def case_attention_of_rows_first():
    for dtype in (torch.float16, torch.bfloat16):
        given = [normal(2, 2048, 32, 128, dtype=dtype) for _ in range(3)]
        core.sageattn(*given, tensor_layout="NHD", is_causal=True)


def case_attention_of_packed_sequences():
    starts = torch.tensor([0, 1024, 4096], dtype=torch.int32, device="cuda")
    for heads, groups, width in HEADS[:3]:
        for causal in (False, True):
            given = [
                normal(4096, heads, width),
                normal(4096, groups, width),
                normal(4096, groups, width),
            ]
            core.sageattn_varlen(*given, starts, starts, 3072, 3072, is_causal=causal)
