"""Small calls of every public operation, over which tests of the whole library walk."""

from __future__ import annotations

from catalogue.array_samples import array_samples
from catalogue.attention_samples import attention_samples
from catalogue.expert_samples import expert_samples
from catalogue.linear_samples import linear_samples
from catalogue.row_samples import row_samples
from catalogue.sample import Sample
from catalogue.state_samples import state_samples

#: Name -> sample.
SAMPLES: dict[str, Sample] = {
    each.name: each
    for samples in (
        row_samples(), linear_samples(), attention_samples(), expert_samples(), array_samples(),
        state_samples(),
    )
    for each in samples
}  # fmt: skip

__all__ = ["SAMPLES", "Sample"]
