"""All drawings of the site: path -> SVG."""

from __future__ import annotations

from drawings.compiled import definition, layout_of, simt_text
from drawings.kernels import matmul, scale, transpose
from drawings.layouts import layout_drawing, swizzle_drawing
from drawings.pipelines import pipeline_drawing
from drawings.programs import grid_of_programs, tile_of_addresses


def pictures() -> dict[str, str]:
    """Return the drawings, by their paths on the site."""
    rows = simt_text(scale, "x=*fp32:16, out=*fp32:16", {"N": 64, "ROWS": 16}, "sm_90a")
    turned = simt_text(transpose, "x=*fp16:16, out=*fp16:16", {"N": 64}, "sm_90a")
    hopper, ampere = (
        simt_text(
            matmul,
            "a=*fp16:16, b=*fp16:16, c=*fp32:16",
            {"M": 64, "N": 64, "K": 64},
            architecture,
        )
        for architecture in ("sm_90a", "sm_80")
    )
    drawings = {
        "grid": grid_of_programs(),
        "addresses": tile_of_addresses(),
        "coalesced": layout_drawing(
            layout_of(rows, "load"),
            "Neighbouring lanes of a warp hold neighbouring groups of four floats of a row.",
            rows=8,
            columns=24,
        ),
        "transposed_store": layout_drawing(
            layout_of(turned, "simt.convert"),
            "Neighbouring lanes hold neighbouring groups of eight elements of a column.",
            rows=24,
            columns=16,
        ),
        "mma_accumulator": layout_drawing(
            layout_of(ampere, "simt.dot"),
            "The accumulator of mma.sync: a lane holds two neighbouring columns of two rows.",
            rows=16,
            columns=24,
        ),
        "swizzle": swizzle_drawing(
            definition(hopper, "#S0"),
            2,
            "In shared memory, groups of 16 bytes of a row are permuted by the row's number, so "
            "that a column of groups touches all banks.",
        ),
        **{f"pipeline_{stages}": pipeline_drawing(stages) for stages in (1, 2, 3)},
    }
    return {f"concepts/{name}.svg": str(drawing) for name, drawing in drawings.items()}
