"""The option ``line_info``: code says which lines of the source it comes from, and is the same code
without."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tilewright.language as tl
from tilewright.errors import LoweringError
from tilewright.gpu_host.linking import Linked
from tilewright.language.definitions.callable import device_function
from tilewright.plugins.manifest import CodeObject
from tilewright_nvidia.toolchain.linking import says_lines

HERE = Path(__file__).name
SOURCE = Path(__file__).read_text().splitlines()


@device_function
def doubled(x: Any) -> Any:
    return x + x  # a line of a function that is called


@device_function
def kernel(x, z, n, BLOCK: tl.constexpr) -> Any:  # type: ignore[no-untyped-def]
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], tl.float32)
    for k in range(n):
        total += tl.load(x + i + k * n)  # the line of the load
    tl.store(z + i, doubled(total))  # the line of the store


SIGNATURE = {"x": "*fp32", "z": "*fp32", "n": "i32"}
CONSTANTS = {"BLOCK": 512}
Assembled = Callable[..., tuple[CodeObject, Linked]]


def line_of(text: str) -> int:
    """The number of the one line of this file that ends with a text."""
    (found,) = (number for number, line in enumerate(SOURCE, 1) if line.endswith(text))
    return found


def without_lines(text: str) -> str:
    """PTX without what says lines, its labels, comments and empty lines."""
    return re.sub(
        r"(?m)^(\t\.(loc|file|section)\t.*|\$L__(tmp|func_begin|func_end)\d+:|\s*(//.*)?)\n",
        "",
        text,
    )


def test_instructions_say_their_lines(ptx: Callable[..., str]) -> None:
    text = ptx(kernel, SIGNATURE, constants=CONSTANTS, line_info=True)
    files = dict(re.findall(r'\.file\t(\d+) "(.*)"', text))
    (own,) = (number for number, name in files.items() if name == __file__)
    place, found = ("", ""), set()
    for line in text.splitlines():
        if said := re.match(r"\t\.loc\t(\d+) (\d+) ", line):
            place = said[1], said[2]
        elif instruction := re.search(r"\b(ld\.global|st\.global|add\.(?:rn\.)?f32)", line):
            found.add((instruction[1].replace(".rn", ""), *place))
    load, store, added = (
        str(line_of(f"# {place}"))
        for place in (
            "the line of the load",
            "the line of the store",
            "a line of a function that is called",
        )
    )
    assert {place for place in found if "global" in place[0]} == {
        ("ld.global", own, load),
        ("st.global", own, store),
    }
    assert {place for place in found if place[0] == "add.f32"} == {
        ("add.f32", own, load),
        ("add.f32", own, added),
    }


def test_the_code_is_the_same(assembled: Assembled) -> None:
    (lined, with_lines), (plain, without) = (
        assembled(kernel, SIGNATURE, constants=CONSTANTS, line_info=on) for on in (True, False)
    )
    assert says_lines(lined.binary) and not says_lines(plain.binary)
    assert without_lines(lined.binary.decode()) == without_lines(plain.binary.decode())
    assert sections(with_lines.binary)[".text.kernel"] == sections(without.binary)[".text.kernel"]


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a", "sm_100a"])
def test_device_code_has_a_table_of_lines(arch: str, assembled: Assembled) -> None:
    _, linked = assembled(kernel, SIGNATURE, arch, constants=CONSTANTS, line_info=True)
    files, lines = line_table(sections(linked.binary)[".debug_line"])
    places = {(files[file - 1], line) for file, line in lines}
    for text in (
        "the line of the load",
        "the line of the store",
        "a line of a function that is called",
    ):
        assert (HERE, line_of(f"# {text}")) in places
    _, plain = assembled(kernel, SIGNATURE, arch, constants=CONSTANTS)
    assert ".debug_line" not in sections(plain.binary)


def test_what_is_no_switch_is_refused(assembled: Assembled) -> None:
    with pytest.raises(
        LoweringError, match="kernel kernel: line_info must be True or False, not 'all'"
    ):
        assembled(kernel, SIGNATURE, constants=CONSTANTS, line_info="all")


def sections(binary: bytes) -> dict[str, bytes]:
    """The sections of an ELF file of 64 bits by name."""
    (table,) = struct.unpack_from("<Q", binary, 40)
    size, count, of_names = struct.unpack_from("<3H", binary, 58)
    #: (name, type, flags, address, offset, bytes)
    headers = [
        struct.unpack_from("<2I4Q", binary, table + size * number) for number in range(count)
    ]

    def name(start: int) -> str:
        start += headers[of_names][4]
        return binary[start : binary.index(0, start)].decode()

    return {name(header[0]): binary[header[4] : header[4] + header[5]] for header in headers}


class Reader:
    """Numbers and texts of debug information, one after the other."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def take(self, form: str) -> int:
        (value,) = struct.unpack_from(f"<{form}", self.data, self.at)
        self.at += struct.calcsize(form)
        return int(value)

    def leb(self, signed: bool = False) -> int:
        value = shift = 0
        while True:
            byte = self.take("B")
            value, shift = value | (byte & 127) << shift, shift + 7
            if byte < 128:
                return value - (1 << shift) if signed and byte & 64 else value

    def text(self) -> str:
        end = self.data.index(0, self.at)
        found, self.at = self.data[self.at : end].decode(), end + 1
        return found


def line_table(data: bytes) -> tuple[list[str], set[tuple[int, int]]]:
    """The names of the files of a line program of DWARF 2 to 4, without folders, and its rows'
    (file, counted from 1, line)."""
    reader = Reader(data)
    end = reader.take("I") + reader.at
    version = reader.take("H")
    assert version in (2, 3, 4), version
    start = reader.take("I") + reader.at
    reader.at += 2 if version < 4 else 3
    base, span, first = reader.take("b"), reader.take("B"), reader.take("B")
    lengths = [reader.take("B") for _ in range(first - 1)]
    while reader.text():  # folders
        pass
    files = []
    while name := reader.text():
        files.append(Path(name).name)
        for _ in range(3):
            reader.leb()
    file, line, rows, reader.at = 1, 1, set(), start
    while reader.at < end:
        operation = reader.take("B")
        if operation >= first:
            line += base + (operation - first) % span
        elif operation == 0:
            length = reader.leb()
            if reader.data[reader.at] == 1:  # the end of a sequence
                file, line = 1, 1
            reader.at += length
            continue
        elif operation == 3:
            line += reader.leb(signed=True)
        elif operation == 4:
            file = reader.leb()
        elif operation == 9:
            reader.take("H")
        elif operation != 1:
            for _ in range(lengths[operation - 1]):
                reader.leb()
        if operation == 1 or operation >= first:
            rows.add((file, line))
    return files, rows
