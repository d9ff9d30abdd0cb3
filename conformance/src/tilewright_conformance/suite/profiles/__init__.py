"""What a backend must pass to claim a profile: a list of ids for each version of the suite and profile, checked in, so that it cannot change unseen.

    profiles/0.1.0/math.toml

``python -m tilewright_conformance profiles --write`` makes the lists of this version anew from the
catalogue; ``--check`` says what has changed.

A claim rests on four things: the backend declares what the profile requires, each case of the list
passed, of the profile's other cases none was anything but passed or refused, and all that took part
is in wheels whose hashes are known. Cases with a waiver (``waivers.toml``) do not count.
"""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tilewright.passes.decompose.catalogue import remaining
from tilewright.plugins.manifest import Capabilities
from tilewright_conformance.suite.case import PROFILES, Needs, Outcome, Status
from tilewright_conformance.suite.catalogue import Catalogue
from tilewright_conformance.suite.expectations import Expectations, Verdict

_FOLDER = Path(__file__).parent

_INTEGERS = ("i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64")
_CORE = Needs(frozenset(("i1", *_INTEGERS, "f16", "bf16", "f32")), tile_elements=1 << 16)

#: What a backend has to declare for each profile. A case that needs no more than this must pass.
REQUIRES: dict[str, Needs] = {
    **dict.fromkeys(PROFILES, _CORE),
    "matmul": _CORE | Needs(dot=frozenset({("f16", "f32"), ("bf16", "f32"), ("f32", "f32"), ("i8", "i32")}), dot_shape=(16, 16, 16)),
    "atomics": _CORE
    | Needs(
        atomics=frozenset(
            {(element, kind) for element in ("i32", "u32") for kind in ("add", "min", "max", "and", "or", "xor", "xchg", "cas")}
            | {("f32", "add"), ("i64", "add"), ("u64", "add"), ("i64", "cas"), ("u64", "cas")}
        )
    ),
    "descriptors": _CORE | Needs(features=frozenset({"descriptors"})),
    "fp8": _CORE | Needs(dtypes=frozenset({"f8e4m3fn", "f8e5m2"})),
    "perf": _CORE | Needs(dot=frozenset({("f16", "f32"), ("f32", "f32")}), dot_shape=(16, 16, 16)),
}

_CORE_USES = frozenset(
    (
        *("constant", "arange", "program_id", "num_programs", "cast", "bitcast", "select", "cmp"),
        *("add", "sub", "mul", "div", "rem", "neg", "abs", "fma", "min", "max", "sqrt", "floor", "ceil", "round_even", "trunc", "copysign", "ldexp"),
        *("and", "or", "xor", "shl", "shr", "mulhi", "clz", "popcount"),
        *("splat", "unsplat", "broadcast", "expand_dims", "reshape", "permute", "cat", "join", "split"),
        *("addptr", "load", "store", "barrier", "reduce", "if", "for", "yield", "return", "assume", "hint"),
    )
)
_WHILE = ("while", "condition")

#: What the kernels of each profile use: the operations of core, and these. A case that must pass uses no others.
USES: dict[str, frozenset[str]] = {
    **dict.fromkeys(PROFILES, _CORE_USES),
    "math": _CORE_USES | {"exp", "exp2", "log", "log2", "sin", "cos", "tanh", "erf", "rsqrt"},
    "memory": _CORE_USES | {"gather", "histogram"},
    "control": _CORE_USES | {*_WHILE, "scan", "map"},
    "matmul": _CORE_USES | {"dot", *_WHILE, "exp", "exp2", "log"},  # functions for attention
    "atomics": _CORE_USES | {"atomic_rmw", "atomic_cas", "atomic_load", "atomic_store", *_WHILE},
    "descriptors": _CORE_USES | {"make_descriptor", *(f"descriptor_{name}" for name in ("load", "store", "gather", "scatter", "extent", "stride"))},
    "perf": _CORE_USES | {"dot", "exp"},
}

#: What a backend has to lower for each profile, where all else is taken apart (``Manifest.lowers``); products are to be fast in perf.
OPERATIONS: dict[str, frozenset[str]] = {
    profile: remaining(used - {"dot"}) | (used & {"dot"}) if profile == "perf" else remaining(used) for profile, used in USES.items()
}


class ProfileError(ValueError):
    """There is no list of a version, or a list is damaged."""


@dataclass(frozen=True)
class Claim:
    """Whether a run shows that a backend has a profile; ``reasons`` say why not, and are empty where it does; ``waived`` are the cases that did not count."""

    profile: str
    reasons: tuple[str, ...]
    waived: tuple[str, ...] = ()

    @property
    def holds(self) -> bool:
        return not self.reasons


def must_pass(version: str, profile: str) -> tuple[str, ...]:
    """The list of a version of the suite and a profile.

    Raises:
        ProfileError: there is none.
    """
    path = _FOLDER / version / f"{profile}.toml"
    try:
        return tuple(tomllib.loads(path.read_text(encoding="utf-8"))["must_pass"])
    except FileNotFoundError:
        raise ProfileError(f"this suite has no list of profile {profile!r} for version {version}") from None
    except (KeyError, ValueError) as error:
        raise ProfileError(f"{path} is damaged: {error}") from None


def listed_profiles(version: str) -> tuple[str, ...]:
    """The profiles that have a list in a version of the suite, in the order of :data:`PROFILES`."""
    return tuple(profile for profile in PROFILES if (_FOLDER / version / f"{profile}.toml").exists())


def current_lists(catalogue: Catalogue) -> dict[str, tuple[str, ...]]:
    """The lists as the catalogue has them now: for each profile that has cases, those that need no more than it requires, sorted."""
    found: dict[str, list[str]] = {}
    for case in catalogue:
        listed = found.setdefault(case.profile, [])
        if _covers(REQUIRES[case.profile], case.needs):
            listed.append(case.id)
    return {profile: tuple(sorted(found[profile])) for profile in PROFILES if profile in found}


def write_lists(catalogue: Catalogue, version: str, folder: Path = _FOLDER) -> list[Path]:
    """Write the lists of a version; gives the files."""
    (folder / version).mkdir(exist_ok=True)
    written = []
    for profile, ids in current_lists(catalogue).items():
        path = folder / version / f"{profile}.toml"
        body = "".join(f'    "{id_}",\n' for id_ in ids)
        path.write_text(
            f'# Written by: python -m tilewright_conformance profiles --write\nsuite = "{version}"\nprofile = "{profile}"\nmust_pass = [\n{body}]\n'
        )
        written.append(path)
    return written


def list_changes(catalogue: Catalogue, version: str) -> dict[str, tuple[list[str], list[str]]]:
    """Profile -> (ids that the checked-in list lacks, ids that it has too much); profiles without changes are left out."""
    changes = {}
    now = current_lists(catalogue)
    for profile in PROFILES:
        listed = set(must_pass(version, profile)) if profile in listed_profiles(version) else set()
        wanted = set(now.get(profile, ()))
        if listed != wanted:
            changes[profile] = sorted(wanted - listed), sorted(listed - wanted)
    return changes


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
) -> Claim:
    """Judge a claim.

    Args:
        listed: the profile's must-pass list.
        outcomes: of the run, by case.
        profiles_of: the profile of each case that was run.
        quick: whether the run was a quick one, which shows nothing.
        waived: cases that need not pass (:mod:`tilewright_conformance.suite.profiles.waivers`).
        unknown: what took part and was not installed from a wheel whose hash is known.
    """
    reasons = ["a quick run is not valid for a claim"] if quick else []
    if unknown:
        remedy = "install the file itself, or name it: --wheel FILE; what PYTHONPATH hides is of none"
        reasons.append(f"{', '.join(unknown)}: not installed from a wheel whose hash is known ({remedy})")
    missing = REQUIRES[profile].missing(capabilities)
    if missing:
        reasons.append(f"the backend does not declare {', '.join(missing[:3])}{f' and {len(missing) - 3} more' if missing[3:] else ''}")
    absent = [id_ for id_ in listed if id_ not in outcomes]
    if absent:
        reasons.append(f"{len(absent)} of {len(listed)} cases that must pass were not run{_examples(absent)}")
    failing = [id_ for id_ in listed if id_ in outcomes and outcomes[id_].status is not Status.PASSED and id_ not in waived]
    if failing:
        reasons.append(f"{len(failing)} of {len(listed)} cases that must pass did not{_examples(failing)}")
    known = set(listed)
    others = [id_ for id_, own in profiles_of.items() if own == profile and id_ not in known and not _harmless(outcomes[id_], expectations)]
    spared = [id_ for id_, own in profiles_of.items() if own == profile and id_ in waived and outcomes[id_].status is not Status.PASSED]
    others = [id_ for id_ in others if id_ not in waived]
    if others:
        reasons.append(f"{len(others)} further cases were neither passed nor refused{_examples(others)}")
    return Claim(profile, tuple(reasons), tuple(spared))


def _harmless(outcome: Outcome, expectations: Expectations) -> bool:
    verdict, entry = expectations.verdict(outcome), expectations.of(outcome.case)
    return verdict is Verdict.GOOD or (verdict is Verdict.EXPECTED and entry is not None and entry.kind != "notyet")


def _examples(ids: list[str]) -> str:
    return f": {', '.join(ids[:3])}{', …' if len(ids) > 3 else ''}"


def _covers(required: Needs, needs: Needs) -> bool:
    """Whether a backend that declares no more than ``required`` has what a case needs."""
    shape = required.dot_shape or (1 << 30,) * 3
    return (
        needs.dtypes <= required.dtypes
        and needs.dot <= required.dot
        and needs.dot_precisions <= required.dot_precisions
        and (needs.dot_shape is None or all(own >= least for own, least in zip(needs.dot_shape, shape, strict=True)))
        and needs.atomics <= required.atomics
        and needs.features <= required.features
        and (required.any_extent or not needs.any_extent)
        and needs.tile_elements <= required.tile_elements
    )
