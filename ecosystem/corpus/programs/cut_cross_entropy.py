"""Apple's cut cross entropy: the loss of a language model without its logits."""

from corpus.pretended import kernels_give
from corpus.programs import TOKENS, VOCABULARY, WIDTHS, backward, labels, normal

DISTRIBUTION = "cut-cross-entropy"
MODULES = ("cut_cross_entropy",)


def case_linear_cross_entropy():
    from cut_cross_entropy import linear_cross_entropy

    for width in WIDTHS:
        for options in ({}, {"softcap": 30.0}, {"shift": True}, {"filter_eps": None}):
            states = normal(2, TOKENS // 2, width, grad=True)
            with kernels_give(1):
                backward(
                    linear_cross_entropy(
                        states,
                        normal(VOCABULARY, width, grad=True),
                        labels(2, TOKENS // 2),
                        reduction="sum",
                        **options,
                    )
                )
