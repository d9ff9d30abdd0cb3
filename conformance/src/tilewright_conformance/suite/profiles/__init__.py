"""Profiles: what a backend must declare, lower and pass to claim one.

The cases that must pass follow from the catalogue: those that need no more than the profile
requires. ``required_cases.toml`` has their number and hash by profile and family, so that every
change of them shows. ``python -m tilewright_conformance profiles --write`` writes it, ``--check``
names the families that have changed, and ``list --required`` prints the ids.

A claim rests on four things: the backend declares what the profile requires, each case of the list
passed, each of the profile's other cases passed or was refused, and all software that took part is
in wheels whose hashes are known. Cases with a waiver (``waivers.toml``) do not count.
"""

from __future__ import annotations

import hashlib
import itertools
import tomllib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tilewright.ir.types import BF16, F16, F32, INTEGERS
from tilewright.passes.decompose.catalogue import remaining
from tilewright.plugins.manifest import Capabilities
from tilewright_conformance.suite.case import PROFILES, Needs, Outcome, Status
from tilewright_conformance.suite.catalogue import Catalogue
from tilewright_conformance.suite.expectations import Expectations, Verdict

_FILE = Path(__file__).with_name("required_cases.toml")

_CORE = Needs(frozenset(map(str, (*INTEGERS, F16, BF16, F32))), tile_elements=1 << 16)

#: What a backend has to declare for each profile. A case that needs no more than this must pass.
REQUIRES: dict[str, Needs] = {
    **dict.fromkeys(PROFILES, _CORE),
    "matmul": _CORE
    | Needs(
        dot=frozenset({("f16", "f32"), ("bf16", "f32"), ("f32", "f32"), ("i8", "i32")}),
        dot_shape=(16, 16, 16),
    ),
    "atomics": _CORE
    | Needs(
        atomics=frozenset(
            {
                (element, kind)
                for element in ("i32", "u32")
                for kind in ("add", "min", "max", "and", "or", "xor", "xchg", "cas")
            }
            | {("f32", "add"), ("i64", "add"), ("u64", "add"), ("i64", "cas"), ("u64", "cas")}
        )
    ),
    "descriptors": _CORE | Needs(features=frozenset({"descriptors"})),
    "fp8": _CORE | Needs(dtypes=frozenset({"f8e4m3fn", "f8e5m2"})),
    "exact": _CORE | Needs(dot=frozenset({("i8", "i32")}), dot_shape=(16, 16, 16)),
    "gradients": _CORE | Needs(atomics=frozenset({("f32", "add")})),
    "perf": _CORE | Needs(dot=frozenset({("f16", "f32"), ("f32", "f32")}), dot_shape=(16, 16, 16)),
}

#: Profile -> what its kernels use, beside what those of core use.
_USED: dict[str, str] = {
    "core": """
        constant arange program_id num_programs cast bitcast select cmp
        add sub mul div rem neg abs fma min max sqrt floor ceil round_even trunc copysign ldexp
        and or xor shl shr mulhi clz popcount
        splat unsplat broadcast expand_dims reshape permute cat join split
        addptr load store barrier reduce if for yield return assume hint
    """,
    "math": "exp exp2 log log2 sin cos tanh erf rsqrt",
    "memory": "gather histogram",
    "control": "while condition scan map",
    "matmul": "dot while condition exp exp2 log",  # functions for attention
    "atomics": "atomic_rmw atomic_cas atomic_load atomic_store while condition",
    "descriptors": """
        make_descriptor descriptor_extent descriptor_stride descriptor_load descriptor_store
        descriptor_gather descriptor_scatter
    """,
    "exact": "dot gather while condition scan",
    "gradients": """
        exp exp2 log log2 sin cos tanh erf rsqrt gather histogram while condition scan map dot
        atomic_rmw
    """,
    "perf": "dot exp",
}
#: What the kernels of each profile use. A case that must pass uses no others.
USES: dict[str, frozenset[str]] = {
    profile: frozenset(f"{_USED['core']} {_USED.get(profile, '')}".split()) for profile in PROFILES
}

#: Operations that a backend has to lower for each profile, where all others are decomposed
#: (``Manifest.lowers``); perf needs fast matmuls.
OPERATIONS: dict[str, frozenset[str]] = {
    profile: remaining(used - {"dot"}) | (used & {"dot"}) if profile == "perf" else remaining(used)
    for profile, used in USES.items()
}


class ProfileError(ValueError):
    """There are no fingerprints of a version, or their file is damaged."""


@dataclass(frozen=True)
class Fingerprint:
    """The number of some cases, and a hash of their ids."""

    cases: int
    sha256: str

    @classmethod
    def of(cls, ids: Iterable[str]) -> Fingerprint:
        listed = sorted(ids)
        return cls(len(listed), hashlib.sha256("\n".join(listed).encode()).hexdigest())


@dataclass(frozen=True)
class Claim:
    """The judgment of a run's claim to a profile.

    Attributes:
        profile: the profile.
        reasons: why the run does not show that the backend has the profile; empty where it does.
        waived: the cases that did not count.
    """

    profile: str
    reasons: tuple[str, ...]
    waived: tuple[str, ...] = ()

    @property
    def holds(self) -> bool:
        return not self.reasons


def required_cases(catalogue: Catalogue) -> dict[str, tuple[str, ...]]:
    """Return the ids of the cases that must pass, by profile.

    They are those that need no more than the profile requires.
    """
    found: dict[str, list[str]] = {}
    for case in catalogue:
        listed = found.setdefault(case.profile, [])
        if _covers(REQUIRES[case.profile], case.needs):
            listed.append(case.id)
    return {profile: tuple(sorted(found[profile])) for profile in PROFILES if profile in found}


def fingerprints(catalogue: Catalogue) -> dict[str, dict[str, Fingerprint]]:
    """Return profile -> family -> fingerprint of the cases that must pass."""
    found: dict[str, dict[str, Fingerprint]] = {}
    for profile, ids in required_cases(catalogue).items():
        families = itertools.groupby(ids, lambda id_: id_.partition("/")[0])
        found[profile] = {family: Fingerprint.of(own) for family, own in families}
    return found


def recorded_fingerprints(version: str, file: Path = _FILE) -> dict[str, dict[str, Fingerprint]]:
    """Return the checked-in fingerprints of a version of the suite.

    Raises:
        ProfileError: there are none, or the file is damaged.
    """
    try:
        table = tomllib.loads(file.read_text(encoding="utf-8"))
        if table.pop("suite") != version:
            raise ProfileError(f"this suite has no required cases of version {version}")
        return {
            profile: {family: Fingerprint(**row) for family, row in families.items()}
            for profile, families in table.items()
        }
    except (AttributeError, KeyError, TypeError, tomllib.TOMLDecodeError) as error:
        raise ProfileError(f"{file} is damaged: {error}") from None


def write_fingerprints(catalogue: Catalogue, version: str, file: Path = _FILE) -> None:
    """Write the fingerprints of a version."""
    lines = ["# Written by: python -m tilewright_conformance profiles --write"]
    lines.append(f'suite = "{version}"')
    for profile, families in fingerprints(catalogue).items():
        lines += ["", f"[{profile}]"]
        for family, own in families.items():
            lines.append(f'{family} = {{ cases = {own.cases}, sha256 = "{own.sha256}" }}')
    file.write_text("\n".join(lines) + "\n")


def changed_families(catalogue: Catalogue, version: str) -> dict[str, list[str]]:
    """Return profile -> families whose required cases are not the checked-in ones."""
    recorded, now = recorded_fingerprints(version), fingerprints(catalogue)
    found = {}
    for profile in PROFILES:
        before, after = recorded.get(profile, {}), now.get(profile, {})
        differing = {family for family, _ in before.items() ^ after.items()}
        if differing:
            found[profile] = sorted(differing)
    return found


def claim(
    profile: str,
    listed: tuple[str, ...],
    outcomes: Mapping[str, Outcome],
    profiles_of: Mapping[str, str],
    capabilities: Capabilities,
    expectations: Expectations,
    *,
    quick: bool,
    waived: Collection[str] = (),
    unknown: Sequence[str] = (),
    changed: Sequence[str] = (),
) -> Claim:
    """Judge a claim.

    Args:
        listed: the cases that must pass.
        outcomes: of the run, by case.
        profiles_of: the profile of each case that was run.
        quick: whether the run was a quick one, which shows nothing.
        waived: cases that need not pass (:mod:`tilewright_conformance.suite.profiles.waivers`).
        unknown: what took part and was not installed from a wheel whose hash is known.
        changed: families whose required cases are not those that the suite's version has.
    """
    reasons = ["a quick run is not valid for a claim"] if quick else []
    if changed:
        reasons.append(f"the cases of {', '.join(changed)} are not those of the suite's version")
    if unknown:
        remedy = (
            "install the wheel file itself, or name it: --wheel FILE; a package that is imported "
            "from a folder of PYTHONPATH has no hash"
        )
        reasons.append(
            f"{', '.join(unknown)}: not installed from a wheel whose hash is known ({remedy})"
        )
    missing = REQUIRES[profile].missing(capabilities)
    if missing:
        reasons.append(
            "the backend does not declare "
            f"{', '.join(missing[:3])}{f' and {len(missing) - 3} more' if missing[3:] else ''}"
        )
    absent = [id_ for id_ in listed if id_ not in outcomes]
    if absent:
        reasons.append(
            f"{len(absent)} of {len(listed)} cases that must pass were not run{_examples(absent)}"
        )
    failing = [
        id_
        for id_ in listed
        if id_ in outcomes and outcomes[id_].status is not Status.PASSED and id_ not in waived
    ]
    if failing:
        reasons.append(
            f"{len(failing)} of {len(listed)} cases that must pass did not{_examples(failing)}"
        )
    known = set(listed)
    others = [
        id_
        for id_, own in profiles_of.items()
        if own == profile and id_ not in known and not _harmless(outcomes[id_], expectations)
    ]
    spared = [
        id_
        for id_, own in profiles_of.items()
        if own == profile and id_ in waived and outcomes[id_].status is not Status.PASSED
    ]
    others = [id_ for id_ in others if id_ not in waived]
    if others:
        reasons.append(
            f"{len(others)} further cases were neither passed nor refused{_examples(others)}"
        )
    return Claim(profile, tuple(reasons), tuple(spared))


def _harmless(outcome: Outcome, expectations: Expectations) -> bool:
    verdict, entry = expectations.verdict(outcome), expectations.of(outcome.case)
    return verdict is Verdict.GOOD or (
        verdict is Verdict.EXPECTED and entry is not None and entry.kind != "notyet"
    )


def _examples(ids: list[str]) -> str:
    return f": {', '.join(ids[:3])}{', …' if len(ids) > 3 else ''}"


def _covers(required: Needs, needs: Needs) -> bool:
    """Return whether a backend that declares no more than ``required`` has what a case needs."""
    shape = required.dot_shape or (1 << 30,) * 3
    return (
        needs.dtypes <= required.dtypes
        and needs.dot <= required.dot
        and needs.dot_precisions <= required.dot_precisions
        and (
            needs.dot_shape is None
            or all(own >= minimum for own, minimum in zip(needs.dot_shape, shape, strict=True))
        )
        and needs.orders <= required.orders
        and needs.atomics <= required.atomics
        and needs.features <= required.features
        and (required.any_extent or not needs.any_extent)
        and needs.tile_elements <= required.tile_elements
    )
