"""How far one piece of code is behind another, by what can be read off both.

Each criterion gives points, positive where ours is behind. The score is their sum; a kernel is
*behind* at 0.35 points or more, *ahead* at -0.35 or less, else *level*. One point is about a factor
of two.

========================  =======================================================================
criterion                 points
========================  =======================================================================
width of loads            log2(theirs / ours) of the mean width in bytes, asynchronous copies of a
                          known width included; of the innermost loop if both have one with loads,
                          else of the kernel
width of stores           half of that, of the kernel
asynchronous copies       1 for each step behind: registers, cp.async (or loads to LDS), TMA
matrix instructions       2 for each step behind: none, of a warp (mma.sync, MFMA, WMMA), of a warp
                          group or a CTA (wgmma, tcgen05)
spills                    log2((64 + ours) / (64 + theirs)) of the bytes, halved
occupancy                 log2(theirs / ours) of the warps on an SM, halved
instructions of the loop  log2(ours / theirs) for the same work: matrix multiplications if both say
                          them, else the bytes loaded, else the bytes stored; without loops, of the
                          kernel
barriers of the loop      log2((1 + ours) / (1 + theirs)) for the same work, halved; without loops,
                          of the kernel, a quarter
========================  =======================================================================
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from corpus.figures import Figures
from tilewright.gpu_host.code_counts import Counts

#: A kernel is behind or ahead from so many points on.
THRESHOLD = 0.35
#: A criterion is among the reasons from so many points on.
_TOLD = 0.1
#: No criterion gives more points.
_MOST = 4.0


@dataclass
class Verdict:
    """How a kernel's code stands to another's.

    Attributes:
        score: points; positive where ours is behind.
        reasons: the criteria that give points, in words, the one with the most first.
    """

    score: float
    reasons: list[str] = field(default_factory=list)

    @property
    def word(self) -> Literal["behind", "level", "ahead"]:
        """In one word."""
        if self.score >= THRESHOLD:
            return "behind"
        return "ahead" if self.score <= -THRESHOLD else "level"


def judge(ours: Figures, theirs: Figures, other: str = "Triton") -> Verdict:
    """How far ours is behind theirs.

    Args:
        other: what theirs is called in the reasons.
    """
    points = [(min(max(each, -_MOST), _MOST), reason) for each, reason in _criteria(ours, theirs)]
    told = [(each, reason) for each, reason in points if abs(each) >= _TOLD]
    told.sort(key=lambda item: -abs(item[0]))
    score = sum(each for each, _ in points)
    reasons = [f"{reason.replace('Triton', other)} ({each:+.1f})" for each, reason in told]
    return Verdict(round(score, 2), reasons)


def _criteria(ours: Figures, theirs: Figures) -> Iterator[tuple[float, str]]:
    yield from _widths(ours, theirs)
    yield from _steps(ours.code, theirs.code)
    if ours.spilled != theirs.spilled:
        yield (
            math.log2((64 + ours.spilled) / (64 + theirs.spilled)) / 2,
            f"{ours.spilled} bytes spilled, Triton {theirs.spilled}",
        )
    mine, other = _resident(ours), _resident(theirs)
    if mine != other and mine and other:
        yield (
            math.log2(other / mine) / 2,
            f"{ours.ctas} CTAs fit by {ours.limit} ({ours.registers} registers,"
            f" {ours.shared} bytes of shared memory), Triton {theirs.ctas}"
            f" ({theirs.registers}, {theirs.shared})",
        )
    yield from _loops(ours, theirs)


def _resident(figures: Figures) -> int:
    """Threads that an SM holds at a time."""
    return figures.ctas * figures.threads


def _widths(ours: Figures, theirs: Figures) -> Iterator[tuple[float, str]]:
    mine, other = ours.code, theirs.code
    if ours.loop and theirs.loop and ours.loop.loaded and theirs.loop.loaded:
        mine, other = ours.loop, theirs.loop
    for of, weight in (("loads", 1.0), ("stores", 0.5)):
        if of == "stores":
            mine, other = ours.code, theirs.code
        one, two = mine.mean_width(of), other.mean_width(of)
        if one and two:
            text = f"{of} {_histogram(mine, of)} bytes wide, Triton {_histogram(other, of)}"
            yield weight * math.log2(two / one), text


def _histogram(counts: Counts, of: str) -> str:
    widths = sorted(counts.widths(of).items(), reverse=True)
    return ", ".join(f"{count}×{width}" for width, count in widths)


def _steps(ours: Counts, theirs: Counts) -> Iterator[tuple[float, str]]:
    for step, weight, what in ((_copy_step, 1.0, "copies"), (_mma_step, 2.0, "mma")):
        mine, other = step(ours), step(theirs)
        if mine != other:
            names = [", ".join(getattr(each, what)) or "none" for each in (ours, theirs)]
            kind = "asynchronous copies" if what == "copies" else "matrix instructions"
            yield weight * (other - mine), f"{kind}: {names[0]}, Triton {names[1]}"


def _copy_step(counts: Counts) -> int:
    if any("bulk" in name for name in counts.copies):
        return 2
    return 1 if counts.copies else 0


def _mma_step(counts: Counts) -> int:
    if any(
        name.partition(".")[0].endswith("GMMA") or name.startswith("UTC") for name in counts.mma
    ):
        return 2
    return 1 if counts.mma else 0


def _loops(ours: Figures, theirs: Figures) -> Iterator[tuple[float, str]]:
    mine, other, where, weight = ours.loop, theirs.loop, "in the loop", 0.5
    if mine is None and other is None:
        mine, other, where, weight = ours.code, theirs.code, "in all", 0.25
    if mine is None or other is None:
        return  # one of them has unrolled it
    share = 1.0
    if where == "in the loop":
        work = _work(mine, other)
        if work is None:
            return
        share = work[1] / work[0]
        if share != 1:
            where += f", for {work[2]} {work[0]:g} against {work[1]:g}"
    yield (
        math.log2(mine.instructions * share / other.instructions),
        f"{mine.instructions} instructions {where}, Triton {other.instructions}",
    )
    if mine.barriers * share != other.barriers:
        yield (
            math.log2((1 + mine.barriers * share) / (1 + other.barriers)) * weight,
            f"{mine.barriers} barriers {where}, Triton {other.barriers}",
        )


def _work(ours: Counts, theirs: Counts) -> tuple[float, float, str] | None:
    """What an iteration of each does, in a unit that both share; None where there is none."""
    for unit, one, two in (
        ("multiplications of", ours.work, theirs.work),
        ("bytes loaded of", ours.loaded, theirs.loaded),
        ("bytes stored of", _stored(ours), _stored(theirs)),
    ):
        if one and two:
            return one, two, unit
        if one or two:
            return None  # one of them does it elsewhere, or in a way that does not say how much
    if (ours.mma or ours.copies) or (theirs.mma or theirs.copies):
        return None
    return 1, 1, "iterations of"


def _stored(counts: Counts) -> int:
    return sum(width * count for width, count in counts.widths("stores").items())
