"""Gradients of matmuls and attention."""

from __future__ import annotations

from collections.abc import Iterator

from tilewright_conformance.cases.gradients.gradients.gradient_case import (
    Operand,
    form,
    gradient_case,
)
from tilewright_conformance.cases.mixed.kernels.whole_kernel import blocks
from tilewright_conformance.kernels import exact_kernels, gradient_kernels
from tilewright_conformance.suite.case import Case

_M, _N, _K = 35, 27, 45


def cases() -> Iterator[Case]:
    yield from _matmuls()
    yield from _attention()


def _matmuls() -> Iterator[Case]:
    sizes = {"M": _M, "N": _N, "K": _K}
    for type_ in ("f32", "f16"):
        a, b = Operand((_M, _K), type=type_), Operand((_K, _N), type=type_)
        tiled = [
            form(
                exact_kernels.matmul_tiled, (blocks(_M, bm) * blocks(_N, 16),), **sizes, BM=bm,
                BN=16, BK=16, GROUP=2,
            )
            for bm in (16, 32)
        ]  # fmt: skip
        yield gradient_case(
            f"matmul/grouped/{type_}",
            {"a_ptr": a, "b_ptr": b, "c_ptr": Operand((_M, _N), "nan")},
            *tiled,
            outputs="c_ptr",
            wrt="a_ptr b_ptr",
            dot=True,
        )
        yield gradient_case(
            f"matmul/split_k/{type_}",
            {"a_ptr": a, "b_ptr": b, "parts_ptr": Operand((_M, _N), "zeros")},
            *(
                form(
                    exact_kernels.matmul_parts, (blocks(_M, 16), blocks(_N, 16), parts), **sizes,
                    SPLIT=parts, BLOCK=16, ATOMIC=True,
                )
                for parts in (1, 3)
            ),
            outputs="parts_ptr",
            wrt="a_ptr b_ptr",
            dot=True,
            atomic=True,
        )  # fmt: skip
    yield gradient_case(
        "matmul/scalar/f32",
        {
            "a_ptr": Operand((5, 7)),
            "b_ptr": Operand((7, 3)),
            "c_ptr": Operand((5, 3), "nan"),
        },
        form(exact_kernels.matmul_scalar, (5, 3), M=5, N=3, K=7),
        outputs="c_ptr",
        wrt="a_ptr b_ptr",
    )
    for gelu in (False, True):
        m, n, k = 19, 20, 24
        yield gradient_case(
            f"matmul/{'bias_and_gelu' if gelu else 'batched'}/f32",
            {
                "a_ptr": Operand((2, m, k)),
                "b_ptr": Operand((2, k, n)),
                "bias_ptr": Operand((n,)),
                "out_ptr": Operand((2, m, n), "nan"),
            },
            *(
                form(
                    gradient_kernels.batched_matmul, (blocks(m, bm), blocks(n, 16), 2), M=m, N=n,
                    K=k, GELU=gelu, BM=bm, BN=16, BK=16,
                )
                for bm in (16, 32)
            ),
            outputs="out_ptr",
            wrt="a_ptr b_ptr bias_ptr",
            dot=True,
            quick=gelu,
        )  # fmt: skip


def _attention() -> Iterator[Case]:
    heads, length, head = 2, 24, 16
    shape = (heads, length, head)
    for causal in (False, True):
        for saved in ("", "out_ptr lse_ptr"):
            operands = {f"{name}_ptr": Operand(shape) for name in "qkv"}
            operands |= {"out_ptr": Operand(shape, "nan"), "lse_ptr": Operand(shape[:2], "nan")}
            yield gradient_case(
                f"attention/{'causal' if causal else 'full'}/{'saved' if saved else 'recomputed'}",
                operands,
                *(
                    form(
                        exact_kernels.flash, (blocks(length, rows), heads), scale=head**-0.5,
                        length=length, CAUSAL=causal, BM=rows, BN=16, HEAD=head,
                    )
                    for rows in (16, 32)
                ),
                outputs="out_ptr",
                wrt="q_ptr k_ptr v_ptr",
                saved=saved,
                dot=True,
                quick=causal and bool(saved),
            )  # fmt: skip
    queries = (2 * heads, length, head)
    yield gradient_case(
        "attention/grouped_queries/saved",
        {
            "q_ptr": Operand(queries),
            "k_ptr": Operand(shape),
            "v_ptr": Operand(shape),
            "out_ptr": Operand(queries, "nan"),
            "lse_ptr": Operand(queries[:2], "nan"),
        },
        *(
            form(
                gradient_kernels.grouped_query_attention, (blocks(length, rows), 2 * heads),
                scale=head**-0.5, length=length, QUERIES=2, BM=rows, BN=16, HEAD=head,
            )
            for rows in (16, 32)
        ),
        outputs="out_ptr",
        wrt="q_ptr k_ptr v_ptr",
        saved="out_ptr lse_ptr",
        dot=True,
        atomic=True,
    )  # fmt: skip
