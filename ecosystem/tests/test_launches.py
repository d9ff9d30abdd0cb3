"""The records of launches: writing and reading them, and that all that are kept are sound."""

import dataclasses
import json
import math
import re

import pytest
from corpus import launches, load
from corpus.capture import merged
from corpus.launches import Argument, Launch

ELEMENTS = r"([iu](1|8|16|32|64)|fp16|bf16|fp32|fp64|fp8e4nv|fp8e5|fp8e4b8|fp8e5b16|fp8e4b15)"
TYPES = re.compile(
    rf"constexpr|tuple|\*k?{ELEMENTS}|{ELEMENTS}|tensordesc<{ELEMENTS}\[\d+(,\d+)*\]>"
)
#: Kinds of constants that are objects in JSON.
CONSTANTS = {"dtype", "enum", "float", "function", "tuple"}
PACKAGES = sorted(file.stem for file in launches.FOLDER.glob("*.json"))

LAUNCH = Launch(
    package="package",
    version="1.2",
    module="package.kernels",
    kernel="_kernel",
    case="case/4096/bf16",
    arguments=(
        Argument("x", "*bf16", shape=(4096, 1), strides=(1, 0), aligned=True),
        Argument(
            "d",
            "tensordesc<bf16[64,64]>",
            shape=(128, 64),
            strides=(64, 1),
            block=(64, 64),
            padding="nan",
        ),
        Argument("n", "i32", value=0),
        Argument("one", "constexpr", value=1),
        Argument("none", "constexpr"),
        Argument("flag", "constexpr", value=False),
        Argument("scale", "fp32", value={"float": "-inf"}),
        Argument(
            "pair",
            "tuple",
            items=(
                Argument("pair.0", "i64", value=16, aligned=True),
                Argument("pair.1", "constexpr", value={"dtype": "fp32"}),
            ),
        ),
    ),
    options={"num_warps": 8},
    grid=(3, 2, 1),
    configurations=4,
)


def test_records_are_read_as_they_were_written(tmp_path):
    other = dataclasses.replace(
        LAUNCH, kernel="_a", arguments=(), options={}, grid=(1, 1, 1), configurations=0
    )
    launches.write("package", [LAUNCH, other], tmp_path)
    assert (
        launches.read("package", tmp_path) == [other, LAUNCH] == list(launches.read_all(tmp_path))
    )


def test_a_record_says_what_a_kernel_is_compiled_for():
    assert (
        LAUNCH.signature["pair"] == ("i64", "constexpr")
        and LAUNCH.signature["d"] == "tensordesc<bf16[64,64]>"
    )
    constants, attributes = load.specialization(
        dataclasses.replace(LAUNCH, arguments=LAUNCH.arguments[:7])
    )
    assert constants == {(3,): 1, (4,): None, (5,): False}
    assert attributes == {(0,): [["tt.divisibility", 16]]}
    assert load.constant({"float": "-inf"}) == -math.inf and load.constant(
        {"tuple": [1, {"float": "inf"}]}
    ) == (1, math.inf)
    with pytest.raises(ValueError, match="cannot tell what a:B was"):
        load.constant({"unknown": "a:B"})


def test_launches_of_one_specialization_are_kept_once():
    record = launches.record_of(LAUNCH)
    facts = {name: value for name, value in record.items() if name not in ("package", "version")}
    facts["case"] = "case"
    longer = {
        **facts,
        "arguments": [{**facts["arguments"][0], "shape": [8192, 1]}, *facts["arguments"][1:]],
    }
    unaligned = {
        **facts,
        "arguments": [{**facts["arguments"][0], "aligned": False}, *facts["arguments"][1:]],
    }
    nested = {**facts, "kernel": "make.<locals>.kernel"}
    unknown = {
        **facts,
        "arguments": [{"name": "x", "type": "constexpr", "value": {"unknown": "package:Class"}}],
    }
    foreign = {**facts, "module": "another.kernels"}
    kept, left = merged(
        [facts, longer, unaligned, nested, unknown, foreign], "package", "1.2", ["package"]
    )
    assert [launch.case for launch in kept] == ["case/128x64/bf16", "case/128x64/bf16/2"] and kept[
        0
    ].arguments == LAUNCH.arguments
    assert [why.partition("excluded: ")[2] for why in left] == [
        "it is defined within a function",
        "a constant is of type package:Class",
        "it is another package's",
    ]


@pytest.mark.parametrize("package", PACKAGES)
def test_records_are_sound_and_hold_facts_only(package):
    found = launches.read(package)
    assert found
    assert len({launch.id for launch in found}) == len(found), "two records have one id"
    assert len({launch.specialization for launch in found}) == len(found), (
        "two records have one specialization"
    )
    for launch in found:
        assert launch.package == package and launch.version, launch.id
        assert re.fullmatch(r"[\w.]+", launch.module) and re.fullmatch(r"[\w.]+", launch.kernel), (
            launch.id
        )
        assert min(launch.grid) >= 0 and launch.configurations >= 0, launch.id
        for _, argument in load.paths(launch.arguments):
            assert TYPES.fullmatch(argument.type), f"{launch.id}: {argument.type}"
            assert not argument.type.startswith("*") or argument.value is None, launch.id
            assert (argument.shape is None) == (argument.strides is None) and (
                argument.block is None
            ) == ("tensordesc" not in argument.type), launch.id
            check_constant(launch, argument.value)
        for value in launch.options.values():
            check_constant(launch, value)


def check_constant(launch, value):
    """A constant is a number, a short text, or one of the kinds that records can tell of."""
    if isinstance(value, dict):
        assert next(iter(value)) in CONSTANTS, f"{launch.id}: {value}"
        for item in value.get("tuple", ()):
            check_constant(launch, item)
    elif isinstance(value, str):
        assert len(value) < 100 and "\n" not in value, f"{launch.id}: {value!r}"
    else:
        assert value is None or isinstance(value, bool | int | float), f"{launch.id}: {value!r}"


@pytest.mark.parametrize("package", PACKAGES)
def test_files_are_as_they_are_written(package, tmp_path):
    written = launches.write(package, launches.read(package), tmp_path).read_text()
    assert written == (launches.FOLDER / f"{package}.json").read_text()
    assert all(json.loads(line.rstrip(",")) for line in written.splitlines()[1:-1])


def test_the_corpus_does_not_shrink():
    found = list(launches.read_all())
    assert len(PACKAGES) >= 13 and len({launch.id for launch in found}) == len(found) >= 780
    assert len({(launch.module, launch.kernel) for launch in found}) >= 400


def test_the_first_launch_of_each_kernel_is_taken() -> None:
    other = dataclasses.replace(LAUNCH, kernel="other")
    again = dataclasses.replace(LAUNCH, case="again")
    assert launches.first_of_each_kernel([LAUNCH, other, again]) == [LAUNCH, other]
