"""Linker from one relocatable object to a code object that the HIP runtime loads.

It replaces the vendor's linker. The file is an ELF shared object for the machine AMDGPU. Memory
addresses equal file offsets, and segments are aligned to pages:

    headers, notes, dynamic symbols and their hash table, dynamic relocations, constants   read
    code read, execute the table of addresses (GOT), data, the dynamic section read, write

HSA's loader reads ``.symtab`` and HIP's reads ``.dynsym``, so the file has both. Loaders compute
the image's size from the section headers. Relocations are those of "User Guide for AMDGPU Backend"
(LLVM). References to addresses that are known only at load time become R_AMDGPU_RELATIVE64.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from tilewright.errors import LoweringError

_PAGE: Final = 4096
_EM_AMDGPU: Final = 224
_ET_REL, _ET_DYN = 1, 3
_PT_LOAD, _PT_DYNAMIC, _PT_NOTE, _PT_PHDR = 1, 2, 4, 6
_READ, _WRITE, _EXECUTE = 4, 2, 1
_PROGBITS, _SYMTAB, _STRTAB, _RELA, _HASH, _DYNAMIC, _NOTE, _NOBITS, _DYNSYM = (
    1,
    2,
    3,
    4,
    5,
    6,
    7,
    8,
    11,
)
_SHF_WRITE, _SHF_ALLOC, _SHF_EXECUTE = 1, 2, 4
_LOCAL, _SECTION_SYMBOL = 0, 3
_UNDEFINED, _ABSOLUTE = 0, 0xFFF1

_HEADER: Final = struct.Struct("<16sHHIQQQIHHHHHH")
_PROGRAM: Final = struct.Struct("<IIQQQQQQ")
_SECTION: Final = struct.Struct("<IIQQQQIIQQ")
_SYMBOL: Final = struct.Struct("<IBBHQQ")
_RELOCATION: Final = struct.Struct("<QQq")
_RELATIVE64: Final = 13

#: relocation type -> (0, or -1 to subtract the place; whether the relocation refers to the symbol's
#: GOT entry; bits to shift out; bytes to write)
_KINDS: Final[dict[int, tuple[int, bool, int, int]]] = {
    1: (0, False, 0, 4),  # ABS32_LO
    2: (0, False, 32, 4),  # ABS32_HI
    3: (0, False, 0, 8),  # ABS64
    4: (-1, False, 0, 4),  # REL32
    5: (-1, False, 0, 8),  # REL64
    6: (0, False, 0, 4),  # ABS32
    7: (-1, True, 0, 4),  # GOTPCREL
    8: (-1, True, 0, 4),  # GOTPCREL32_LO
    9: (-1, True, 32, 4),  # GOTPCREL32_HI
    10: (-1, False, 0, 4),  # REL32_LO
    11: (-1, False, 32, 4),  # REL32_HI
}


@dataclass(slots=True)
class _Section:
    """A section of the relocatable object or of the linked file.

    Attributes:
        align: alignment of its address.
        data: its content; empty for zero-initialized memory.
        size: bytes in memory.
        link, info, entry: as the section header has them; ``link`` by name.
        address: its address in memory, which is also its offset in the file.
    """

    name: str
    type: int
    flags: int
    align: int
    data: bytearray
    size: int
    link: str = ""
    info: int = 0
    entry: int = 0
    address: int = 0


@dataclass(slots=True)
class _Symbol:
    """A symbol of the object; ``section`` is its section's index, ``value`` the offset in it."""

    name: str
    info: int
    other: int
    section: int
    value: int
    size: int

    @property
    def is_local(self) -> bool:
        return self.info >> 4 == _LOCAL


@dataclass(slots=True)
class _Object:
    """The parsed relocatable object.

    Attributes:
        abi: the ABI version.
        flags: the header's flags, which name the architecture.
        sections: sections, in the order of their indices.
        relocations: (section, offset in it, kind, symbol, addend).
    """

    abi: int
    flags: int
    sections: list[_Section] = field(default_factory=list)
    symbols: list[_Symbol] = field(default_factory=list)
    relocations: list[tuple[int, int, int, int, int]] = field(default_factory=list)


def link(relocatable: bytes) -> bytes:
    """Link a relocatable AMDGPU object into a code object.

    Raises:
        LoweringError: the input is no such object, refers to an undefined symbol, or has an unknown
            relocation.
    """
    return _File(_read(relocatable)).linked()


# ---- reading


def _text(table: bytes | bytearray, offset: int) -> str:
    return table[offset : table.index(0, offset)].decode()


def _read(data: bytes) -> _Object:
    if len(data) < _HEADER.size or data[:6] != b"\x7fELF\x02\x01":
        raise LoweringError(
            "a code object is linked from a relocatable ELF object of 64 bits, which this is not"
        )
    identity, type_, machine, _, _, _, headers, flags, _, _, _, _, count, names = (
        _HEADER.unpack_from(data)
    )
    if machine != _EM_AMDGPU or type_ != _ET_REL:
        raise LoweringError(
            "a code object is linked from a relocatable object for AMDGPU; this has ELF machine "
            f"{machine} and type {type_}"
        )
    found = _Object(identity[8], flags)
    rows = [_SECTION.unpack_from(data, headers + i * _SECTION.size) for i in range(count)]

    def content(row: Sequence[int]) -> bytes:
        return b"" if row[1] == _NOBITS else data[row[4] : row[4] + row[5]]

    titles = content(rows[names])
    for row in rows:
        found.sections.append(
            _Section(
                _text(titles, row[0]),
                row[1],
                row[2],
                max(1, row[8]),
                bytearray(content(row)),
                row[5],
                info=row[7],
            )
        )
    for row in rows:
        if row[1] == _SYMTAB:
            strings = content(rows[row[6]])
            for name, info, other, section, value, size in _SYMBOL.iter_unpack(content(row)):
                found.symbols.append(
                    _Symbol(_text(strings, name), info, other, section, value, size)
                )
        elif row[1] == _RELA and found.sections[row[7]].flags & _SHF_ALLOC:
            for offset, what, addend in _RELOCATION.iter_unpack(content(row)):
                found.relocations.append((row[7], offset, what & 0xFFFFFFFF, what >> 32, addend))
    return found


# ---- writing


def _strings(names: Sequence[str]) -> tuple[bytearray, dict[str, int]]:
    """Build a string table; return it with the offset of each string."""
    table, places = bytearray(b"\0"), {"": 0}
    for name in names:
        if name not in places:
            places[name] = len(table)
            table += name.encode() + b"\0"
    return table, places


def _hash(name: str) -> int:
    """The hash function of the System V ABI."""
    value = 0
    for byte in name.encode():
        value = (value << 4) + byte
        high = value & 0xF0000000
        value = (value ^ high >> 24) & ~high & 0xFFFFFFFF
    return value


def _hash_table(names: Sequence[str]) -> bytes:
    """Build the System V hash table of the given symbols; index 0 is the null symbol."""
    count = len(names)
    buckets = max(1, count // 2)
    heads, chains = [0] * buckets, [0] * count
    for index in range(1, count):
        bucket = _hash(names[index]) % buckets
        chains[index], heads[bucket] = heads[bucket], index
    return struct.pack(f"<{2 + buckets + count}I", buckets, count, *heads, *chains)


class _File:
    """The code object being linked."""

    def __init__(self, source: _Object) -> None:
        self.source = source
        used = {
            symbol
            for _, _, kind, symbol, _ in source.relocations
            if kind in _KINDS and _KINDS[kind][1]
        }
        #: symbol index -> its index in the GOT
        self.table = {symbol: place for place, symbol in enumerate(sorted(used))}
        self.exported = [
            symbol
            for symbol in source.symbols
            if symbol.name and not symbol.is_local and symbol.section != _UNDEFINED
        ]
        self.dynamic: list[tuple[int, int, int]] = []
        kept = [
            section
            for section in source.sections
            if section.flags & _SHF_ALLOC and section.type not in (0, _RELA)
        ]
        self._check()
        names, self._name_places = _strings([symbol.name for symbol in self.exported])
        moved = sum(
            1
            for section, _, kind, _, _ in source.relocations
            if kind == 3 and source.sections[section].flags & _SHF_ALLOC
        ) + len(self.table)
        symbols = bytearray(_SYMBOL.size * (1 + len(self.exported)))
        table = _hash_table(["", *(symbol.name for symbol in self.exported)])
        self.dynsym = _Section(
            ".dynsym", _DYNSYM, _SHF_ALLOC, 8, symbols, len(symbols), ".dynstr", 1, _SYMBOL.size
        )
        self.hash = _Section(
            ".hash", _HASH, _SHF_ALLOC, 4, bytearray(table), len(table), ".dynsym", 0, 4
        )
        self.dynstr = _Section(".dynstr", _STRTAB, _SHF_ALLOC, 1, names, len(names))
        self.rela = _Section(
            ".rela.dyn",
            _RELA,
            _SHF_ALLOC,
            8,
            bytearray(_RELOCATION.size * moved),
            _RELOCATION.size * moved,
            ".dynsym",
            0,
            _RELOCATION.size,
        )
        self.got = _Section(
            ".got",
            _PROGBITS,
            _SHF_ALLOC | _SHF_WRITE,
            8,
            bytearray(8 * len(self.table)),
            8 * len(self.table),
        )
        entries = 16 * (6 + (3 if moved else 0))
        self.dynamic_section = _Section(
            ".dynamic",
            _DYNAMIC,
            _SHF_ALLOC | _SHF_WRITE,
            8,
            bytearray(entries),
            entries,
            ".dynstr",
            0,
            16,
        )
        notes = [section for section in kept if section.type == _NOTE]
        constant = [
            section
            for section in kept
            if section.type != _NOTE and not section.flags & (_SHF_WRITE | _SHF_EXECUTE)
        ]
        code = [section for section in kept if section.flags & _SHF_EXECUTE]
        data = [section for section in kept if section.flags & _SHF_WRITE]
        data.sort(key=lambda section: section.type == _NOBITS)
        #: (the segment's permissions, its sections)
        self.segments = [
            (
                _READ,
                [
                    *notes,
                    self.dynsym,
                    self.hash,
                    self.dynstr,
                    *([self.rela] if moved else []),
                    *constant,
                ],
            ),
            (_READ | _EXECUTE, code),
            (_READ | _WRITE, [*([self.got] if self.table else []), self.dynamic_section, *data]),
        ]
        self.notes = notes
        self.ordered = [section for _, sections in self.segments for section in sections]

    def _check(self) -> None:
        for _, _, kind, index, _ in self.source.relocations:
            symbol = self.source.symbols[index]
            if kind not in _KINDS:
                raise LoweringError(
                    f"the object refers to {symbol.name or 'a section'!r} by relocation {kind}, "
                    "which the linker does not know"
                )
            if symbol.section == _UNDEFINED:
                raise LoweringError(
                    f"there is no {symbol.name!r} on the GPU, which the kernel refers to"
                )

    def linked(self) -> bytes:
        """Return the linked file."""
        programs = (
            1 + len([1 for _, sections in self.segments if sections]) + 1 + (1 if self.notes else 0)
        )
        first = _HEADER.size + programs * _PROGRAM.size
        end = self._place(first)
        self._relocate()
        self._write_dynamic()
        out = bytearray(end)
        for section in self.ordered:
            if section.type != _NOBITS:
                out[section.address : section.address + len(section.data)] = section.data
        return self._finished(out, programs, first)

    def _place(self, first: int) -> int:
        """Assign each section its address; return the end of the loaded part of the file."""
        end = first
        for number, (_, sections) in enumerate(self.segments):
            if number:
                end = -(-end // _PAGE) * _PAGE
            for section in sections:
                end = -(-end // section.align) * section.align
                section.address = end
                end += section.size
        return end

    def _address(self, index: int) -> int:
        symbol = self.source.symbols[index]
        return (
            symbol.value
            if symbol.section == _ABSOLUTE
            else self.source.sections[symbol.section].address + symbol.value
        )

    def _relocate(self) -> None:
        for index, place in self.table.items():
            address = self._address(index)
            struct.pack_into("<Q", self.got.data, 8 * place, address)
            self.dynamic.append((self.got.address + 8 * place, _RELATIVE64, address))
        for number, offset, kind, index, addend in self.source.relocations:
            section = self.source.sections[number]
            relative, by_table, dropped, size = _KINDS[kind]
            base = self.got.address + 8 * self.table[index] if by_table else self._address(index)
            place = section.address + offset
            value = base + addend + relative * place
            if kind == 3:
                self.dynamic.append((place, _RELATIVE64, value))
            fits = dropped or kind not in (4, 6, 7) or -(1 << 31) <= value < 1 << 32
            if not fits:
                raise LoweringError(
                    f"{self.source.symbols[index].name!r} is too far from what refers to it"
                )
            written = value >> dropped & ((1 << 8 * size) - 1)
            section.data[offset : offset + size] = written.to_bytes(size, "little")

    def _number(self, section: _Section) -> int:
        return 1 + next(i for i, other in enumerate(self.ordered) if other is section)

    def _symbol(self, symbol: _Symbol, name: int) -> bytes:
        """Return a symbol table entry."""
        if symbol.section in (_UNDEFINED, _ABSOLUTE):
            return _SYMBOL.pack(
                name, symbol.info, symbol.other, symbol.section, symbol.value, symbol.size
            )
        section = self.source.sections[symbol.section]
        return _SYMBOL.pack(
            name,
            symbol.info,
            symbol.other,
            self._number(section),
            section.address + symbol.value,
            symbol.size,
        )

    def _write_dynamic(self) -> None:
        for i, symbol in enumerate(self.exported):
            self.dynsym.data[(1 + i) * _SYMBOL.size : (2 + i) * _SYMBOL.size] = self._symbol(
                symbol, self._name_places[symbol.name]
            )
        for i, (place, kind, addend) in enumerate(self.dynamic):
            _RELOCATION.pack_into(self.rela.data, i * _RELOCATION.size, place, kind, addend)
        entries = [
            (4, self.hash.address),
            (5, self.dynstr.address),
            (6, self.dynsym.address),
            (10, self.dynstr.size),
            (11, _SYMBOL.size),
        ]
        if self.dynamic:
            entries += [(7, self.rela.address), (8, self.rela.size), (9, _RELOCATION.size)]
        for i, entry in enumerate([*entries, (0, 0)]):
            struct.pack_into("<QQ", self.dynamic_section.data, 16 * i, *entry)

    def _programs(self, first: int) -> list[bytes]:
        found = [
            _PROGRAM.pack(
                _PT_PHDR,
                _READ,
                _HEADER.size,
                _HEADER.size,
                _HEADER.size,
                first - _HEADER.size,
                first - _HEADER.size,
                8,
            )
        ]
        for number, (flags, sections) in enumerate(self.segments):
            if not sections:
                continue
            start = 0 if number == 0 else sections[0].address
            ends = [section.address + section.size for section in sections]
            filled = [
                section.address + section.size for section in sections if section.type != _NOBITS
            ]
            found.append(
                _PROGRAM.pack(
                    _PT_LOAD,
                    flags,
                    start,
                    start,
                    start,
                    max(filled, default=start) - start,
                    max(ends) - start,
                    _PAGE,
                )
            )
        dynamic = self.dynamic_section
        found.append(
            _PROGRAM.pack(
                _PT_DYNAMIC,
                _READ | _WRITE,
                dynamic.address,
                dynamic.address,
                dynamic.address,
                dynamic.size,
                dynamic.size,
                8,
            )
        )
        if self.notes:
            start, end = self.notes[0].address, self.notes[-1].address + self.notes[-1].size
            found.append(
                _PROGRAM.pack(_PT_NOTE, _READ, start, start, start, end - start, end - start, 4)
            )
        return found

    def _finished(self, out: bytearray, programs: int, first: int) -> bytes:
        """Append the sections that are not loaded and write the headers.

        These are the symbols for debuggers and loaders, their names, and the section headers.
        """
        kept = {id(section) for section in self.ordered}
        sections = self.source.sections
        listed = [
            symbol
            for symbol in self.source.symbols[1:]
            if symbol.info & 15 != _SECTION_SYMBOL and symbol.name
            if symbol.section == _ABSOLUTE
            or (symbol.section < len(sections) and id(sections[symbol.section]) in kept)
        ]
        listed.sort(key=lambda symbol: not symbol.is_local)
        names, places = _strings([symbol.name for symbol in listed])
        rows = bytearray(_SYMBOL.size) + b"".join(
            self._symbol(symbol, places[symbol.name]) for symbol in listed
        )
        locals_ = 1 + sum(symbol.is_local for symbol in listed)
        tail = [
            _Section(
                ".symtab",
                _SYMTAB,
                0,
                8,
                bytearray(rows),
                len(rows),
                ".strtab",
                locals_,
                _SYMBOL.size,
            ),
            _Section(".strtab", _STRTAB, 0, 1, names, len(names)),
        ]
        titles, title_places = _strings(
            [section.name for section in (*self.ordered, *tail)] + [".shstrtab"]
        )
        tail.append(_Section(".shstrtab", _STRTAB, 0, 1, titles, len(titles)))
        everything = [*self.ordered, *tail]
        numbers = {section.name: 1 + i for i, section in enumerate(everything)}
        for section in tail:
            out += bytes(-len(out) % section.align)
            section.address = len(out)
            out += section.data
        out += bytes(-len(out) % 8)
        headers = len(out)
        out += bytes(_SECTION.size)
        for section in everything:
            address = section.address if section.flags & _SHF_ALLOC else 0
            out += _SECTION.pack(
                title_places[section.name], section.type, section.flags, address, section.address,
                section.size,
                numbers.get(section.link, 0), section.info, section.align, section.entry,
            )  # fmt: skip
        identity = b"\x7fELF\x02\x01\x01" + bytes([64, self.source.abi]) + bytes(7)
        count = 1 + len(everything)
        sizes = _HEADER.size, _PROGRAM.size, programs, _SECTION.size, count, count - 1
        out[: _HEADER.size] = _HEADER.pack(
            identity, _ET_DYN, _EM_AMDGPU, 1, 0, _HEADER.size, headers, self.source.flags, *sizes
        )
        out[_HEADER.size : first] = b"".join(self._programs(first))
        return bytes(out)
