"""Packed registers (b32): several narrow elements in the word that memory and MMA work on.

Where a word came from is remembered, so that elements which go on together are not packed again; and what was rounded to an element, so that two are rounded
at a time where they are packed.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from tilewright.llvm.assembly.inline_assembly import BITS
from tilewright.llvm.emission.writer import FunctionWriter, float_constant
from tilewright_nvidia.codegen.inline_ptx import call_asm


class PackedRegisters:
    """Packs and unpacks; remembers for each element the word it was taken from, and what it wrote in a block."""

    def __init__(self) -> None:
        self._sources: dict[str, tuple[str, str, int]] = {}
        #: for elements that were rounded from f32: that one, and the PTX type of a pair of them
        self._rounded: dict[str, tuple[str, str]] = {}
        #: the same for elements of 8 bits
        self._rounded_bytes: dict[str, tuple[str, str]] = {}
        #: the words whose upper halves were moved down, by what that gave
        self._upper: dict[str, str] = {}
        #: the words whose bytes were put into another order, and the selector of ``prmt``, by what that gave
        self._permuted: dict[str, tuple[str, int]] = {}
        self._written: dict[Hashable, str] = {}
        #: for each block the words that elements were joined into there
        self._joined: dict[tuple[object, str], tuple[str, str, int]] = {}

    def round(self, name: str, operand: str, pair: str) -> None:
        """Remember that an element is an f32 rounded to nearest: the machine does so with two at a time, for a word of PTX type ``pair``."""
        self._rounded[name] = operand, pair

    def round_byte(self, name: str, operand: str, kind: str) -> None:
        """Remember that an element of 8 bits is an f32 rounded to nearest by ``cvt.rn.satfinite``, which takes two for a pair of PTX type ``kind``."""
        self._rounded_bytes[name] = operand, kind

    def single(self, w: FunctionWriter, name: str) -> str | None:
        """A bf16 number as f32, in one instruction: made of the whole word that it was taken from, or rounded into the upper half of a word. None where it is
        neither."""
        number, pair = self._rounded.get(name, ("", ""))
        if pair == "bf16x2":
            # two numbers are rounded at four times the rate of one: the upper half of a word is the f32
            (word,) = call_asm(w, "cvt.rn.bf16x2.f32 $0, $1, $2;", ["i32"], [("float", number), ("float", "0.0")], effects=False)
            return w.emit(f"bitcast i32 {word} to float")
        word, word_type, at = self._sources.get(name, ("", "", 0))
        if word_type != "i32":
            return None
        bits = w.emit(f"and i32 {word}, -65536" if at else f"shl i32 {word}, 16")
        return w.emit(f"bitcast i32 {bits} to float")

    def unpack(self, w: FunctionWriter, word: str, word_type: str, type_: str) -> list[str]:
        """The elements of LLVM type ``type_`` in a word of an integer type, lowest first."""
        if type_ == word_type:
            return [word]
        count = BITS[word_type] // BITS[type_]
        if count == 1:
            names = [w.emit(f"{'inttoptr' if type_ == 'ptr' else 'bitcast'} {word_type} {word} to {type_}")]
        else:
            vector = w.emit(f"bitcast {word_type} {word} to <{count} x {type_}>")
            names = [w.emit(f"extractelement <{count} x {type_}> {vector}, i32 {i}") for i in range(count)]
        for i, name in enumerate(names):
            self._sources[name] = (word, word_type, i)
        return names

    def pack(self, w: FunctionWriter, names: Sequence[str], type_: str, word_type: str) -> str:
        """The word of an integer type that holds elements of LLVM type ``type_``, lowest first."""
        if type_ == word_type:
            return names[0]
        source = self._sources.get(names[0])
        if source is not None and source[1:] == (word_type, 0):
            word = source[0]
            if all(self._sources.get(name) == (word, word_type, i) for i, name in enumerate(names)):
                return word
        rounded = [self._rounded[name] for name in names if name in self._rounded]
        if len(names) == len(rounded) == 2 and word_type == "i32":
            (low, pair), (high, _) = rounded
            return call_asm(w, f"cvt.rn.{pair}.f32 $0, $1, $2;", ["i32"], [("float", high), ("float", low)], effects=False)[0]
        if len(names) > 1 and all(name in self._rounded_bytes for name in names):
            return self._bytes_word(w, [self._rounded_bytes[name] for name in names], word_type)
        if len(names) == 1:
            return w.emit(f"{'ptrtoint' if type_ == 'ptr' else 'bitcast'} {type_} {names[0]} to {word_type}")
        vector_type = f"<{len(names)} x {type_}>"
        if all(name[0] != "%" for name in names):
            return w.emit(f"bitcast {vector_type} <{', '.join(f'{type_} {name}' for name in names)}> to {word_type}")
        vector = "poison"
        for i, name in enumerate(names):
            vector = w.emit(f"insertelement {vector_type} {vector}, {type_} {name}, i32 {i}")
        return w.emit(f"bitcast {vector_type} {vector} to {word_type}")

    def _bytes_word(self, w: FunctionWriter, rounded: Sequence[tuple[str, str]], word_type: str) -> str:
        """The word of two or four f32 numbers rounded to 8 bits, by pairs."""
        kind = rounded[0][1]
        pairs = []
        for (low, _), (high, _) in zip(rounded[::2], rounded[1::2], strict=True):
            pairs += call_asm(w, f"cvt.rn.satfinite.{kind}.f32 $0, $1, $2;", ["i16"], [("float", high), ("float", low)], effects=False)
        return self.pack(w, pairs, "i16", word_type)

    def shifted(self, w: FunctionWriter, word: str) -> str:
        """The upper half of an i32, as one."""
        name = w.emit(f"lshr i32 {word}, 16")
        self._upper[name] = word
        return name

    def half(self, w: FunctionWriter, name: str) -> str:
        """The lower half of an i32, as i16: where it was the upper half of another one, it is known to be the neighbour of that one's lower half."""
        word = self._upper.get(name)
        return self.unpack(w, word or name, "i32", "i16")[1 if word else 0]

    def widened(self, w: FunctionWriter, name: str, kind: str, type_: str) -> str:
        """An element of 8 bits of an fp8 kind, as PTX names a pair of them, as ``half``, or as bf16 (``i16``). Neighbours in the word that they were taken from
        are widened together, once a block."""
        word, word_type, i = self._sources.get(name, (name, "i8", 0))
        key = (w.current, word, kind + type_, i // 2)
        if key not in self._written:
            if word_type == "i8":
                pair = w.emit(f"zext i8 {name} to i16")
            else:
                moved = w.emit(f"lshr {word_type} {word}, {16 * (i // 2)}") if i > 1 else word
                pair = moved if word_type == "i16" else w.emit(f"trunc {word_type} {moved} to i16")
            (wide,) = call_asm(w, f"cvt.rn.f16x2.{kind} $0, $1;", ["i32"], [("i16", pair)], effects=False)
            if type_ != "half":
                singles = [("float", w.emit(f"fpext half {half} to float")) for half in self.unpack(w, wide, "i32", "half")]
                (wide,) = call_asm(w, "cvt.rn.bf16x2.f32 $0, $2, $1;", ["i32"], singles, effects=False)
            self._written[key] = wide
        return self.unpack(w, self._written[key], "i32", type_)[i % 2]

    def byte(self, w: FunctionWriter, name: str, *, signed: bool) -> str:
        """An integer of 8 bits as ``float``. The byte becomes the lowest bits of 2^23, of which a subtraction leaves the number: the machine's own conversions
        run at an eighth of the rate of these instructions."""
        word, word_type, i = self._sources.get(name, (name, "i8", 0))
        if word_type != "i32":
            key = word, "wide"
            if not self.is_written(w, key):
                self.write(w, key, w.emit(f"zext {word_type} {word} to i32"))
            word = self.written(w, key)
        if signed:
            key = word, "signs"
            if not self.is_written(w, key):
                self.write(w, key, w.emit(f"xor i32 {word}, {0x80808080 - (1 << 32) if word_type != 'i8' else 0x80}"))
            word = self.written(w, key)
        if word_type == "i8":
            bits = w.emit(f"or i32 {word}, {0x4B000000}")
        else:
            bits = w.call("llvm.nvvm.prmt", "i32", [("i32", word), ("i32", str(0x4B000000)), ("i32", str(0x7540 | i))])
        return w.emit(f"fsub float {w.emit(f'bitcast i32 {bits} to float')}, {float_constant('float', float((1 << 23) + (128 if signed else 0)))}")

    def permute(self, w: FunctionWriter, word: str, selector: int) -> str:
        """A word with its bytes in another order, by ``prmt``: conversions take them from where they are."""
        name = w.call("llvm.nvvm.prmt", "i32", [("i32", word), ("i32", word), ("i32", str(selector))])
        self._permuted[name] = word, selector
        return name

    def narrow_float(self, w: FunctionWriter, name: str, type_: str, *, signed: bool) -> str | None:
        """An integer of 8 bits as ``half``, or as bf16 (``i16``), made with its neighbour in the word that it was taken from, once a block: both get into the
        mantissas of a power of two, which is subtracted. None where it was not taken from a word."""
        word, word_type, i = self._sources.get(name, (name, "", 0))
        if word_type not in ("i16", "i32"):
            return None
        key = word, type_, signed, i // 2
        if not self.is_written(w, key):
            source, selector = self._permuted.get(word, (word, 0x3210))
            if word_type == "i16":
                source = w.emit(f"zext i16 {word} to i32")
            low, high = (selector >> 4 * (i // 2 * 2 + place) & 3 for place in range(2))
            self.write(w, key, (self._half_pair if type_ == "half" else self._bf16_pair)(w, source, low, high, signed))
        return self.unpack(w, self.written(w, key), "i32", type_)[i % 2]

    @staticmethod
    def _half_pair(w: FunctionWriter, word: str, low: int, high: int, signed: bool) -> str:
        if signed:
            word = w.emit(f"xor i32 {word}, {0x80808080 - (1 << 32)}")
        if (low, high) == (0, 2):
            bits = masked(w, word, 0x00FF00FF, 0x64006400)
        else:
            bits = w.call("llvm.nvvm.prmt", "i32", [("i32", str(0x64646464)), ("i32", word), ("i32", str(0x0404 | low | high << 8))])
        least = float_constant("half", 1152.0 if signed else 1024.0)
        number = w.emit(f"fsub <2 x half> {w.emit(f'bitcast i32 {bits} to <2 x half>')}, <half {least}, half {least}>")
        return w.emit(f"bitcast <2 x half> {number} to i32")

    @staticmethod
    def _bf16_pair(w: FunctionWriter, word: str, low: int, high: int, signed: bool) -> str:
        """The mantissa has seven bits: the eighth of the byte chooses what is subtracted."""
        if (low, high) == (1, 3):
            word = w.emit(f"lshr i32 {word}, 8")
        elif (low, high) != (0, 2):
            word = w.call("llvm.nvvm.prmt", "i32", [("i32", word), ("i32", "0"), ("i32", str(0x4040 | low | high << 8))])
        bits = masked(w, word, 0x007F007F, 0x43004300)
        # -128 or -256
        least = masked(w, word, 0x00800080, 0xC300C300, complement=not signed)
        one, add = str(0x3F803F80), "fma.rn.bf16x2 $0, $1, $2, $3;"
        (number,) = call_asm(w, add, ["i32"], [("i32", bits), ("i32", one), ("i32", least)], effects=False)
        if not signed:
            (number,) = call_asm(w, add, ["i32"], [("i32", number), ("i32", one), ("i32", str(0x43004300))], effects=False)
        return number

    def pair(self, w: FunctionWriter, names: Sequence[str], type_: str) -> tuple[int, list[str]] | None:
        """(which half of a word elements of 16 bits are, words that have each of them there); None where none of them was taken from a word. An element that
        is no such half, as a factor of all elements, has a word with it in both halves."""
        places = [self._place(w, name) for name in names]
        halves = [place[2] for place in places if place is not None and place[1] == "i32"]
        if not halves:
            return None
        at, words = halves[0], []
        for name, place in zip(names, places, strict=True):
            there = place is not None and place[1:] == ("i32", at)
            words.append(place[0] if place is not None and there else self._both(w, name, type_))
        return at, words

    def follow_registers(self, w: FunctionWriter, names: Sequence[str]) -> bool:
        """Whether the first two of some elements are halves of one word in this order, or of none."""
        first, second = (self._place(w, name) for name in names[:2])
        return (first is None and second is None) or (first is not None and second == (*first[:2], 1) and first[2] == 0)

    def _place(self, w: FunctionWriter, name: str) -> tuple[str, str, int] | None:
        return self._sources.get(name) or self._joined.get((w.current, name))

    def join(self, w: FunctionWriter, names: Sequence[str], type_: str) -> None:
        """Pack elements of 16 bits by twos, as they follow each other, where they were not taken from words: those after it in the block find them there."""
        for low, high in zip(names[::2], names[1::2], strict=True):
            known = any(self._place(w, name) is not None for name in (low, high))
            if low != high and not known and all(name.startswith("%") for name in (low, high)):
                word = self.pack(w, [low, high], type_, "i32")
                for at, name in enumerate((low, high)):
                    self._joined[w.current, name] = (word, "i32", at)

    def is_written(self, w: FunctionWriter, key: Hashable) -> bool:
        """Whether a block has what :meth:`write` was given under a key."""
        return (w.current, key) in self._written

    def write(self, w: FunctionWriter, key: Hashable, name: str) -> None:
        """Remember, as long as a block goes on, a value that others may need too."""
        self._written[w.current, key] = name

    def written(self, w: FunctionWriter, key: Hashable) -> str:
        """What was written in this block under a key."""
        return self._written[w.current, key]

    def _both(self, w: FunctionWriter, name: str, type_: str) -> str:
        """A word both of whose halves are one element of 16 bits."""
        key = name, "both"
        if self.is_written(w, key):
            return self.written(w, key)
        if name in self._rounded:
            number, pair = self._rounded[name]
            (word,) = call_asm(w, f"cvt.rn.{pair}.f32 $0, $1, $1;", ["i32"], [("float", number)], effects=False)
        else:
            half = w.emit(f"insertelement <2 x {type_}> poison, {type_} {name}, i32 0")
            word = w.emit(f"bitcast <2 x {type_}> {w.emit(f'insertelement <2 x {type_}> {half}, {type_} {name}, i32 1')} to i32")
        self.write(w, key, word)
        return word

    def address(self, w: FunctionWriter, base: str, thread: str, bits: int) -> str:
        """``base + (thread ^ bits)`` in shared memory; written once a block."""
        key = (w.current, base, thread, bits)
        if key not in self._written:
            offset = w.emit(f"xor i32 {thread}, {bits}") if bits else thread
            self._written[key] = w.emit(f"getelementptr i8, ptr addrspace(3) {base}, i32 {offset}")
        return self._written[key]


def masked(w: FunctionWriter, word: str, mask: int, bits: int, *, complement: bool = False) -> str:
    """``word & mask | bits``, or ``~word & mask | bits``, in one instruction. LLVM's ``or`` of an ``and`` would have ptxas load the mask for each of them: of
    ``lop3`` it takes the second operand into the instruction, and keeps the third one in a register."""
    operands = [("i32", word), *(("i32", str(number - (number >> 31 << 32))) for number in (mask, bits))]
    return call_asm(w, f"lop3.b32 $0, $1, $2, $3, {'0xAE' if complement else '0xEA'};", ["i32"], operands, effects=False)[0]
