"""Parts of the language: what has a derivative, and how the rest is refused."""

from __future__ import annotations

from pathlib import Path

import language_kernels
import numpy as np
import pytest
from language_kernels import COLUMNS, ROWS, N, kinds, part, refused

import tilewright as tw

#: Parts that are run on the CPU as well: loops with and without tapes, and what is lowered anew.
ON_CPU = (
    "reduction of three",
    "scan of pairs",
    "sort",
    "nested recurrences",
    "loop that carries a truth",
    "map",
    "store in each iteration",
)


def errors(kind: str, *, differences: bool) -> tuple[float, float]:
    """How far forward mode is from differences, and reverse mode from forward mode."""
    rng = np.random.default_rng(0)
    x, y, tx, ty, cotangent = (rng.uniform(-1, 1, (ROWS, COLUMNS)) for _ in range(5))
    out, tout, high, low, dx, dy = (np.zeros_like(x) for _ in range(6))
    constants = (N, COLUMNS, kind)
    forward = tw.jvp(part, inputs=("x", "y"), outputs="out")
    forward[(ROWS,)](x, y, out, *constants, t_x=tx, t_y=ty, t_out=tout)
    difference = 0.0
    if differences:
        for sign, result in ((1, high), (-1, low)):
            moved = (x + sign * 1e-6 * tx, y + sign * 1e-6 * ty)
            part[(ROWS,)](*moved, result, *constants)
        difference = float(np.abs((high - low) / 2e-6 - tout).max())
    adjoint = tw.vjp(part, outputs="out", wrt=("x", "y"))
    adjoint[(ROWS,)](x, y, out, *constants, d_out=cotangent, d_x=dx, d_y=dy)
    return difference, float(abs((cotangent * tout - dx * tx - dy * ty).sum()))


@pytest.mark.parametrize("kind", kinds(part))
def test_parts_of_the_language_have_derivatives(kind: str) -> None:
    with tw.backend("reference"):
        difference, dot = errors(kind, differences=True)
    assert difference < 1e-7
    assert dot < 1e-12


@pytest.mark.parametrize("kind", ON_CPU)
def test_derivatives_are_the_same_on_the_cpu(kind: str) -> None:
    pytest.importorskip("tilewright_cpu")
    with tw.backend("cpu"):
        _, dot = errors(kind, differences=False)
    assert dot < 1e-12


#: Part of the language -> what the adjoint says of it, and the remedy.
MESSAGES = {
    "bits": (
        "bitcast: makes a float of the bits of one that has a derivative",
        "compute it by operations that have a derivative, or in a kernel of its own, whose "
        "gradient you write by hand",
    ),
    "bits as numbers": (
        "cast: makes a float of the bits of one that has a derivative",
        "compute it by operations that have a derivative, or in a kernel of its own, whose "
        "gradient you write by hand",
    ),
    "keys that a loop changes": (
        "bitcast: makes a float of the bits of one that has a derivative",
        "compute it by operations that have a derivative, or in a kernel of its own, whose "
        "gradient you write by hand",
    ),
    "bits in a loop": (
        "bitcast: makes a float of the bits of one that has a derivative",
        "compute it by operations that have a derivative, or in a kernel of its own, whose "
        "gradient you write by hand",
    ),
    "while": (
        "while: computes what has a derivative, and how often it runs is not known before",
        "write it as a for loop with a bound, and skip the iterations that are too many by a "
        "condition",
    ),
    "atomic max": (
        "atomic_rmw: atomic max has no derivative, only add has",
        "reduce within the program, and let one more kernel reduce what programs stored",
    ),
    "in place": (
        "load: reads x, to which the kernel writes at LINE in refused what has a derivative",
        "write the result to another array, and read what was computed instead of loading it",
    ),
    "read back": (
        "load: reads out, to which the kernel writes at LINE in refused what has a derivative",
        "write the result to another array, and read what was computed instead of loading it",
    ),
    "old value": (
        "atomic_rmw: the old value of what has a derivative is read, which other programs wrote",
        "compute the sum of the programs in a kernel of its own",
    ),
    "assembly": (
        "inline_asm: has no derivative",
        "compute it by operations that have a derivative, or in a kernel of its own, whose "
        "gradient you write by hand",
    ),
    "branch in a combination": (
        "if: control flow in a combination has no derivative",
        "compute it by operations that have a derivative, or in a kernel of its own, whose "
        "gradient you write by hand",
    ),
}


@pytest.mark.parametrize("kind", MESSAGES)
def test_what_has_no_derivative_is_refused_with_its_place_and_a_remedy(kind: str) -> None:
    arrays = {name: np.zeros((ROWS, COLUMNS)) for name in ("x", "y", "out", "d_out", "d_x", "d_y")}
    outputs = ("out", "x") if kind == "in place" else ("out",)
    wrt = ("y",) if kind == "in place" else ("x", "y")
    adjoint = tw.vjp(refused, outputs=outputs, wrt=wrt)
    names = (*refused.arg_names[:3], *(f"d_{name}" for name in (*outputs, *wrt)))
    keywords = {name: arrays[name] for name in names}
    with pytest.raises(tw.DerivativeError) as caught, tw.backend("reference"):
        adjoint.warmup(**keywords, n=N, B=COLUMNS, KIND=kind)
    file = language_kernels.__file__
    lines = Path(file).read_text().splitlines()
    line = next(i for i, text in enumerate(lines, 1) if f'KIND == "{kind}"' in text)
    reason, remedy = MESSAGES[kind]
    place = caught.value.location.chain()[-1]
    assert place.file == file
    assert place.line > 0
    reported = caught.value.reason
    for number in range(line, line + 8):
        for column in (4, 8, 12):
            reported = reported.replace(f"{file}:{number}:{column}", "LINE")
    assert reported == reason
    assert caught.value.remedy == remedy
    assert str(caught.value).startswith(f"{caught.value.location}: ")
    assert str(caught.value).endswith(f"\n  help: {remedy}")


def test_calls_that_led_to_the_place_are_named() -> None:
    arrays = [np.zeros((ROWS, COLUMNS)) for _ in range(6)]
    adjoint = tw.vjp(refused, outputs="out", wrt=("x", "y"))
    named = dict(zip(("x", "y", "out", "d_out", "d_x", "d_y"), arrays, strict=True))
    with pytest.raises(tw.DerivativeError, match="called at") as caught, tw.backend("reference"):
        adjoint.warmup(**named, n=N, B=COLUMNS, KIND="branch in a combination")
    chain = caught.value.location.chain()
    assert [place.function for place in chain][-2:] == ["chosen", "refused"]
    assert str(caught.value).count("\n  called at ") == len(chain) - 1
